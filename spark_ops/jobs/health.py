"""The job `health` judges a window of raw telemetry. The stream judges its stored facts with the same functions.

A window ends with the newest telemetry rather than now, since telemetry is collected some minutes late.
Source: spark §3.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_ops.health.document import health_document
from spark_ops.health.facts import RowsSeen
from spark_ops.health.judge import Judged, judge
from spark_ops.health.settings import Settings
from spark_ops.jobs.damaged_files import without_damaged
from spark_ops.jobs.evidence import Intake, gather
from spark_ops.jobs.files import find, hour_folders, read_footer
from spark_ops.jobs.minute_facts import FACT_KINDS, RAW_KINDS, MinuteFacts, known, reduce, too_new
from spark_ops.jobs.reading import load, schema
from spark_ops.jobs.rollup_store import stored
from spark_ops.telemetry.layout import parse, unescape
from spark_ops.telemetry.quality import read_facts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE_S: Final = 60
SLACK_S: Final = 300
"""Rows are selected by their node's clock and assigned to minutes by the corrected clock. Rows are read for this many
seconds more on each side; rows with a larger difference are not read."""
LIVE_S: Final = 600
"""A cluster counts as running if its telemetry is at most this old, in s; the window then ends with the newest row."""


HISTORY_S: Final = 7 * 86_400
"""The time before the window in which a queue's usual size is looked up, in s."""


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

    until: s since 1970, `now` or `last`. `now` means the time of the newest telemetry if that is at most `LIVE_S` old;
    `last` means the time of the newest telemetry, regardless of its age.
    Raises: HealthError if it is not clear which cluster is meant; FileNotFoundError if the root is no directory.
    """
    newest = newest_by_cluster(root)
    if cluster is None:
        if len(newest) > 1:
            raise HealthError(f"there is telemetry of {', '.join(sorted(newest))}: choose one with --cluster")
        cluster = next(iter(newest), "")
    elif newest and cluster not in newest:
        raise HealthError(f"there is no telemetry of {cluster!r}, but of {', '.join(sorted(newest))}")
    last = newest.get(cluster)
    if isinstance(until, str):
        is_live = last is not None and now_s - last <= LIVE_S
        until = last if last is not None and (is_live or until == "last") else now_s
    end = int(until // MINUTE_S)
    return Window(cluster, end - max(1, round(window_s / MINUTE_S)), end, last)


def newest_by_cluster(root: Path) -> dict[str, float]:
    """Return the time of each cluster's newest `node` row, s since 1970, from the footers of the cluster's last hour.

    Raises: FileNotFoundError if the root is no directory.
    """
    found: dict[str, float] = {}
    for hour_s, folder in reversed(hour_folders(root, "node", None, None)):
        for directory in folder.glob("cluster=*"):
            cluster = unescape(directory.name.removeprefix("cluster="))
            if cluster in found:
                continue
            newest = [_newest(path) for path in directory.rglob("*.parquet") if path.name[0] not in "._"]
            known_ones = [each for each in newest if each is not None]
            if known_ones:
                found[cluster] = max(known_ones) / 1000
            elif newest:
                found[cluster] = float(hour_s)
    return found


def _newest(path: Path) -> int | None:
    """Return the largest `ts` in a file, in ms; None if the file cannot be read or has no statistics."""
    metadata = read_footer(path)
    if metadata is None:
        return None
    newest = None
    for group in range(metadata.num_row_groups):
        for at in range(metadata.num_columns):
            column = metadata.row_group(group).column(at)
            if (
                column.path_in_schema == "ts"
                and column.statistics is not None
                and column.statistics.has_min_max
            ):
                newest = max(newest or 0, int(column.statistics.max))
    return newest


def rows_hint(root: Path, window: Window) -> int:
    """Return the approximate number of rows that will be read."""
    return sum(
        find(root, kind, window.since_s, window.until_s).rows for kind in ("node", "queue", "link", "event")
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


def judge_window(spark: "SparkSession", root: Path, window: Window, settings: Settings) -> Judged:
    """Judge a window from its raw telemetry. Raises: FileNotFoundError if the root is no directory; OSError."""

    def judged() -> Judged:
        kept = _persisted(facts_of_files(spark, root, window))
        try:
            return judge_facts(kept, root, window, settings)
        finally:
            for kind in FACT_KINDS:
                getattr(kept, kind).unpersist()

    return without_damaged(root, RAW_KINDS, window.since_s, window.until_s, judged)


def judge_facts(facts: MinuteFacts, root: Path, window: Window, settings: Settings) -> Judged:
    """Judge a window from its facts."""
    intake = intake_of(facts.node.sparkSession, root, window)

    def usual(queues: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        return usual_sizes(facts.node.sparkSession, root, window, queues)

    found = gather(facts, window.cluster, window.start, window.end, settings, intake, usual)
    return judge(found, settings)


def usual_sizes(
    spark: "SparkSession", root: Path, window: Window, queues: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], float]:
    """Return the p95 of each queue's size in bytes at the end of each hour of the last days, from stored rollups."""
    from pyspark.sql import functions as F

    start_s = window.start * MINUTE_S
    paths = [path for path, _ in stored(root, "queue", start_s - HISTORY_S, start_s).values()]
    if not paths:
        return {}
    wanted = spark.createDataFrame(list(queues), "vhost string, queue string")
    kept = spark.read.option("__globPaths__", "false").parquet(*(f"file://{path}" for path in paths))
    of_masters = kept.where((F.col("cluster") == F.lit(window.cluster)) & (F.col("role") == "master"))
    size = F.percentile(F.col("last.msg_bytes"), 0.95).alias("size")
    rows = (
        of_masters.join(F.broadcast(wanted), ["vhost", "queue"]).groupBy("vhost", "queue").agg(size).collect()
    )
    return {(row["vhost"], row["queue"]): float(row["size"]) for row in rows if row["size"] is not None}


def facts_of_files(spark: "SparkSession", root: Path, window: Window) -> MinuteFacts:
    """Return the facts of a window's files. Duplicate rows do not change the facts, so they are not dropped."""
    frames: dict[str, DataFrame] = {}
    for kind in RAW_KINDS:
        paths = [
            path for hour in find(root, kind, window.since_s, window.until_s).hours for path in hour.paths
        ]
        wanted = schema(kind)
        frames[kind] = known(load(spark, paths, wanted) if paths else spark.createDataFrame([], wanted))
    return reduce(frames)


def _persisted(facts: MinuteFacts) -> MinuteFacts:
    return MinuteFacts(
        facts.node.persist(),
        facts.queue.persist(),
        facts.link.persist(),
        facts.event.persist(),
        facts.rows.persist(),
    )


def intake_of(spark: "SparkSession", root: Path, window: Window) -> Intake:
    """Return the problems in the telemetry of a window: files that cannot be read, and the counts of collectors."""
    torn: list[str] = []
    torn_rows: list[RowsSeen] = []
    unknown = 0
    for kind in RAW_KINDS:
        found = find(root, kind, window.since_s, window.until_s)
        torn += [path for path in found.torn if _is_of(path, window.cluster)]
        named = [parse(root / path, root, kind) for path in torn]
        torn_rows += [
            RowsSeen(each.node, each.boot_id, kind, each.first, each.last, 0, 0)
            for each in named
            if each is not None
        ]
        paths = [path for hour in found.hours if hour.has_unknown for path in hour.paths]
        unknown += too_new(load(spark, paths, schema(kind))).count() if paths else 0
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
