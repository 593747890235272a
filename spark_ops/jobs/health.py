"""The job `health` judges a window of raw telemetry. The stream judges its stored facts with the same functions.

A window of a running cluster ends with its newest telemetry, which is collected some minutes late; if there is none for
longer, the window ends now, so that silence is seen. Times are those of the other nodes' clocks where a node's skew is
known, and never later than now. Source: spark §3.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_ops.health.document import health_document
from spark_ops.health.facts import Evidence, RowsSeen
from spark_ops.health.judge import Judged, judge
from spark_ops.health.settings import Settings
from spark_ops.jobs.damaged_files import without_damaged
from spark_ops.jobs.evidence import Intake, gather
from spark_ops.jobs.files import HOUR_S, Found, find, hour_folders, skewed, times
from spark_ops.jobs.minute_facts import RAW_KINDS, MinuteFacts, known, reduce, sources, too_new
from spark_ops.jobs.reading import empty, envelope, load, schema
from spark_ops.jobs.session import SMALL_ROWS
from spark_ops.jobs.small_files import LOCAL_ROWS, local, tables_of
from spark_ops.jobs.usual import Usual, usual_figures
from spark_ops.telemetry.layout import parse, unescape
from spark_ops.telemetry.quality import read_facts
from spark_ops.telemetry.rounds import collected_until
from spark_ops.telemetry.schema import ENVELOPE, Kind

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MINUTE_S: Final = 60
SLACK_S: Final = 300
"""Files are selected by their node's clock and rows are assigned to minutes by the corrected clock. Files are read for
this many seconds more on each side; those of clocks that are more wrong are looked for (`files.skewed`)."""
LIVE_S: Final = 180
"""A cluster counts as running if its telemetry is at most this old, in s; the window then ends with the newest row.
A segment and a round of `collect` take a minute each. What collectors have not collected yet does not count as old."""


class HealthError(ValueError):
    """No cluster can be judged; the error's text is one line for the operator."""


@dataclass(frozen=True, slots=True)
class Window:
    """The minutes [start, end) of a cluster.   newest_s: the newest row's time, s since 1970; None: there is no row."""

    cluster: str
    start: int
    end: int
    newest_s: float | None

    @property
    def since_s(self) -> float:
        """The begin of the time range that is read, s since 1970."""
        return float(self.start * MINUTE_S - SLACK_S)

    @property
    def until_s(self) -> float:
        """The end of the time range that is read, s since 1970."""
        return float(self.end * MINUTE_S + SLACK_S)


def choose_window(
    root: Path, *, window_s: float, now_s: float, until: float | str = "now", cluster: str | None = None
) -> Window:
    """Return the window to judge.

    until: s since 1970, `now` or `last`. `now` means the time of the newest telemetry unless the cluster is silent
    (`is_silent`); `last` means the time of the newest telemetry, regardless of its age.
    Raises: HealthError if it is not clear which cluster is meant; FileNotFoundError if the root is no directory.
    """
    newest = {name: min(newest_s, now_s) for name, newest_s in newest_by_cluster(root).items()}
    if cluster is None:
        if len(newest) > 1:
            raise HealthError(f"there is telemetry of {', '.join(sorted(newest))}: choose one with --cluster")
        cluster = next(iter(newest), "")
    elif newest and cluster not in newest:
        raise HealthError(f"there is no telemetry of {cluster!r}, but of {', '.join(sorted(newest))}")
    last = newest.get(cluster)
    if isinstance(until, str):
        is_live = last is not None and (until == "last" or not is_silent(root, last, now_s))
        until = last if last is not None and is_live else now_s
    end = int(until // MINUTE_S)
    return Window(cluster, end - max(1, round(window_s / MINUTE_S)), end, last)


def is_silent(root: Path, newest_s: float, now_s: float) -> bool:
    """True if nodes have written nothing since `LIVE_S` after their newest row, s since 1970.

    Rows that a collector has not collected yet are not silence: it says how far it has come.
    """
    return collected_until(root, now_s) - newest_s > LIVE_S


def newest_by_cluster(root: Path) -> dict[str, float]:
    """Return the time of each cluster's newest `node` row, s since 1970, by the clock of the other nodes if the skew of
    the row's node is known.

    Only the footers of the cluster's last hours are read: of the last one, and of those before it while the newest time
    that was found is before their end, as with a clock that is ahead.
    Raises: FileNotFoundError if the root is no directory; OSError.
    """
    found: dict[str, float] = {}
    for hour_s, folder in reversed(hour_folders(root, "node", None, None)):
        for directory in folder.glob("cluster=*"):
            cluster = unescape(directory.name.removeprefix("cluster="))
            if cluster in found and found[cluster] >= hour_s + HOUR_S:
                continue
            paths = [path for path in directory.rglob("*.parquet") if path.name[0] not in "._"]
            ends = [both[1] for path in paths if (both := times(path, "node")) is not None]
            newest = max(ends) / 1000 if ends else float(hour_s) if paths and cluster not in found else 0.0
            if newest:
                found[cluster] = max(found.get(cluster, 0.0), newest)
    return found


@dataclass(frozen=True, slots=True)
class WindowFiles:
    """The files of a window, by kind.   skewed: of nodes whose clock is wrong, in folders of other hours."""

    found: dict[str, Found]
    skewed: dict[str, list[Path]]

    @property
    def rows(self) -> int:
        """The approximate number of rows that will be read; 0 only if there are none."""
        rows = sum(found.rows for found in self.found.values())
        return max(rows, int(any(self.skewed.values())))

    def paths(self, kind: str) -> list[Path]:
        """Return the files of a kind that are read."""
        return [*(path for hour in self.found[kind].hours for path in hour.paths), *self.skewed[kind]]


def files_of(root: Path, window: Window) -> WindowFiles:
    """Return the files of a window. Each footer is read, which takes a job longer than anything else on the driver, so
    the result is passed on. Raises: FileNotFoundError if the root is no directory; OSError."""
    since_s, until_s, cluster = window.since_s, window.until_s, window.cluster or None
    return WindowFiles(
        {kind: find(root, kind, since_s, until_s, cluster, is_pruned=True) for kind in RAW_KINDS},
        {kind: skewed(root, kind, since_s, until_s, cluster) for kind in RAW_KINDS},
    )


def health(
    spark: "SparkSession",
    root: str | Path,
    *,
    window_s: float = 6 * 3600.0,
    now: float,
    until: float | str = "now",
    cluster: str | None = None,
    settings: Settings | None = None,
) -> dict[str, Any]:
    """Return the health document of the last `window_s` seconds.   now: s since 1970.   until: see `choose_window`.

    Raises: HealthError, FileNotFoundError, OSError.
    """
    path = Path(root).absolute()
    window = choose_window(path, window_s=window_s, now_s=now, until=until, cluster=cluster)
    return health_document(judge_window(spark, path, window, settings or Settings()), now)


def judge_window(
    spark: "SparkSession", root: Path, window: Window, settings: Settings, files: WindowFiles | None = None
) -> Judged:
    """Judge a window from its raw telemetry.   files: the result of `files_of`, if the caller has it.

    Raises: FileNotFoundError if the root is no directory; OSError.
    """
    given = [files] if files is not None else []  # for the first attempt; a further one finds the files again

    def judged() -> Judged:
        read = given.pop() if given else files_of(root, window)
        return judge_facts(facts_of_files(spark, read, window.end), root, window, settings, read)

    return without_damaged(root, RAW_KINDS, window.since_s, window.until_s, judged)


def judge_facts(
    facts: MinuteFacts, root: Path, window: Window, settings: Settings, files: WindowFiles | None = None
) -> Judged:
    """Judge a window from its facts.   files: the result of `files_of`, if the caller has it."""
    read = files_of(root, window) if files is None else files
    intake = intake_of(root, window, read, unknown_versions(facts.node.sparkSession, read))

    def usual(queues: Sequence[tuple[str, str]]) -> Usual:
        start_s = float(window.start * MINUTE_S)
        return usual_figures(facts.node.sparkSession, root, window.cluster, start_s, queues)

    found = gather(facts, window.cluster, window.start, window.end, settings, intake, usual)
    return judge(found, settings)


def judge_empty(window: Window, settings: Settings, files: WindowFiles) -> Judged:
    """Judge a window of which no file has rows, without Spark."""
    torn = {path for found in files.found.values() for path in found.torn}
    own = tuple(sorted(path for path in torn if _is_of(path, window.cluster)))
    return judge(Evidence(window.cluster, window.start, window.end, torn=own), settings)


def facts_of_files(spark: "SparkSession", files: WindowFiles, end: int) -> MinuteFacts:
    """Return the facts of a window's files.   end: of the window. Duplicate rows do not change the facts, so they are
    not dropped."""
    paths = {kind: files.paths(kind) for kind in RAW_KINDS}
    if files.rows <= LOCAL_ROWS:
        tables = tables_of(paths, {kind: sources(kind) for kind in RAW_KINDS})
        if tables is not None:
            return _facts_of_tables(spark, tables, end)
    return facts_of(spark, paths, files.rows <= SMALL_ROWS)


def _facts_of_tables(spark: "SparkSession", tables: "Mapping[Kind, pa.Table]", end: int) -> MinuteFacts:
    """Return the facts of rows that are on the driver; their minutes are counted from `end`."""
    import pyarrow as pa

    every = pa.concat_tables([table.select(list(ENVELOPE)) for table in tables.values()])
    frames: dict[str, DataFrame] = {
        kind: known(local(spark, kind, table, end)) for kind, table in tables.items()
    }
    return reduce(frames, known(local(spark, "node", every, end)), end)


def facts_of(spark: "SparkSession", paths: Mapping[Kind, list[Path]], is_small: bool = False) -> MinuteFacts:
    """Return the facts of some files.   paths: by kind.   is_small: one task reads them."""

    def loaded(some: list[Path], wanted: "StructType") -> "DataFrame":
        frame = load(spark, some, wanted) if some else empty(spark, wanted)
        return known(frame.coalesce(1) if is_small else frame)

    every = [path for kind in RAW_KINDS for path in paths[kind]]
    return reduce({kind: loaded(paths[kind], schema(kind)) for kind in RAW_KINDS}, loaded(every, envelope()))


def unknown_versions(spark: "SparkSession", files: WindowFiles) -> int:
    """Return the number of rows in a window's files whose version is too new."""
    unknown = 0
    for kind in RAW_KINDS:
        paths = [path for hour in files.found[kind].hours if hour.has_unknown for path in hour.paths]
        unknown += too_new(load(spark, paths, schema(kind))).count() if paths else 0
    return unknown


def intake_of(root: Path, window: Window, files: WindowFiles, unknown: int) -> Intake:
    """Return the problems in the telemetry of a window: files that cannot be read, and the counts of collectors.

    unknown: the number of rows whose version is too new.
    """
    torn: list[str] = []
    torn_rows: list[RowsSeen] = []
    for kind in RAW_KINDS:
        found = files.found[kind]
        torn += [path for path in found.torn if _is_of(path, window.cluster)]
        named = [parse(root / path, root, kind) for path in torn]
        torn_rows += [
            RowsSeen(each.node, each.boot_id, kind, each.first, each.last, 0, 0)
            for each in named
            if each is not None
        ]
    hours = [
        facts
        for facts in read_facts(
            root,
            since=datetime.fromtimestamp(window.start * MINUTE_S, UTC),
            until=datetime.fromtimestamp(window.end * MINUTE_S, UTC),
        )
        if facts.cluster == window.cluster
    ]
    return Intake(
        tuple(sorted(torn)),
        tuple(torn_rows),
        sum(hour.torn + hour.bad for hour in hours),
        sum(hour.late for hour in hours),
        sum(hour.duplicates for hour in hours),
        unknown + sum(hour.unknown_versions for hour in hours),
    )


def _is_of(path: str, cluster: str) -> bool:
    """True if a file belongs to the cluster or to all clusters."""
    of = [part for part in path.split("/") if part.startswith("cluster=")]
    return not of or unescape(of[0].removeprefix("cluster=")) == cluster
