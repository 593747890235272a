"""`health --follow` reduces files to facts in micro-batches, and judges the stored facts as the batch job does.

The stream has no state of its own. Each micro-batch writes the facts of its rows to a directory named by its number,
so that a batch that is repeated after a crash replaces its first result; facts of late rows are merged like all others.
The file `DONE` names the files that were read, so that rows which only a merged file has any more, because `compact`
removed the others while nothing followed, are read from that one (`catch_up`).
A minute is judged when the newest row is `WATERMARK_S` later. Findings have stable ids. Each judgement is one file with
the findings that were raised and cleared since the previous judgement (rules: `spark_ops.health.minutes`). Nothing is
cleared by what was not seen.

    <root>/_health/<cluster>/<versions>/checkpoint/            Spark's checkpoint: which files were read
    …/facts/batch=<first>-<last>/<kind>/*.parquet, DONE        facts of these batches
    …/facts/merged=<hash>/<kind>/*.parquet, DONE               facts of merged files
    …/judged/<number>.json                                     a judgement; its number is the minute of its end, or
                                                               the number after the last one's if that is greater
    …/told/<sink>.json                                         which judgements a sink of alerts has taken

A checkpoint belongs to one cluster, this query and one version of facts; another version starts with a new checkpoint.
Source: spark §3.5, §6.18, §6.21.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from spark_ops.documents import content_hash
from spark_ops.health.document import health_document
from spark_ops.health.settings import Settings
from spark_ops.jobs.compact import name_of_files
from spark_ops.jobs.damaged_files import without_damaged
from spark_ops.jobs.engine import EngineError, one_line
from spark_ops.jobs.files import HOUR_S, hour_folders, read_footer
from spark_ops.jobs.health import MINUTE_S, Window, facts_of, is_silent, judge_facts, newest_by_cluster
from spark_ops.jobs.minute_facts import (
    FACT_KINDS,
    FACTS_VERSION,
    RAW_KINDS,
    MinuteFacts,
    known,
    merge,
    reduce,
)
from spark_ops.jobs.outbox import Outbox
from spark_ops.jobs.reading import schema
from spark_ops.telemetry import damage, manifest
from spark_ops.telemetry.layout import MERGED_PREFIX, RAW_GLOB, VERSION_DIRECTORY, escape
from spark_ops.telemetry.manifest import write_atomically
from spark_ops.telemetry.schema import VERSION, Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

WATERMARK_S: Final = 120
FILES_MAX: Final = 500
"""The maximal number of files in one micro-batch; further files wait for the next one."""
PARTS_MAX: Final = 40
"""The maximal number of parts, that is, of directories of facts; more parts are merged into one."""
SMALL_BYTES: Final = 16_000_000
"""Facts of at most this size are read by one task, without shuffles."""
JUDGED_MAX: Final = 1000
DIRECTORY: Final = "_health"
_DONE: Final = "DONE"
UNTOLD_MAX: Final = 10_000
"""The maximal number of judgements while a sink of alerts has not taken the older ones; the oldest are removed then."""
_PART: Final = re.compile(r"batch=(\d+)-(\d+)")
_MERGED: Final = "merged="
_FILE: Final = "_file"
_HOUR: Final = re.compile(r"dt=(\d{4}-\d\d-\d\d)/hour=(\d\d)/")
_SEVERITY: Final = {"info": 1, "warn": 2, "crit": 3}
_SILENCE: Final = ("cluster-down",)
"""The findings that are over as soon as any node reports, however much of the window is missing."""
SEEN_MIN: Final = 0.5
"""Findings are not cleared by a window of which less than this share of the rows was seen."""


@dataclass(frozen=True, slots=True)
class Change:
    """A judgement and its changes.   document: the health document.   raised, cleared: ids of findings.

    A finding that becomes more severe is raised again.
    """

    document: dict[str, Any]
    raised: tuple[str, ...]
    cleared: tuple[str, ...]


class Store:
    """The facts and judgements on disk of one cluster's stream."""

    def __init__(self, root: Path, cluster: str) -> None:
        self.root = root
        self.directory = root / DIRECTORY / (escape(cluster) or "_none") / f"v{VERSION}-{FACTS_VERSION}"
        self.facts = self.directory / "facts"
        self.judged = self.directory / "judged"
        self.outbox = Outbox(self.judged, self.directory / "told")
        self._schemas: dict[str, StructType] = {}
        for each in (self.facts, self.judged):
            each.mkdir(parents=True, exist_ok=True)

    @property
    def checkpoint(self) -> Path:
        """The directory of Spark's checkpoint."""
        return self.directory / "checkpoint"

    def write(self, name: str, facts: MinuteFacts, files: Iterable[Path]) -> None:
        """Store the facts of some files as a part, and replace that part. A part without the file `DONE` is not read.

        files: those whose rows are in the facts.   Raises: EngineError if Spark's machines do not share the root.
        """
        part = self.facts / name
        shutil.rmtree(part, ignore_errors=True)
        for kind in FACT_KINDS:
            getattr(facts, kind).coalesce(1).write.parquet(f"file://{part / kind}")
            if not any((part / kind).glob("part-*.parquet")):
                raise EngineError(
                    f"{part} is not shared: Spark wrote facts, and this machine does not see them. "
                    "All machines of the Spark cluster must see ROOT under the same path"
                )
        names = sorted(str(path.relative_to(self.root)) for path in files)
        raw = (name for name in names if not Path(name).name.startswith(MERGED_PREFIX))
        newest = max((_written_ns(self.root / name) for name in raw), default=0)
        write_atomically(part / _DONE, json.dumps({"files": names, "newest": newest}).encode())

    def newest(self) -> int:
        """Return when the newest file of a collector that is in the facts was written, in ns since 1970; 0: none is."""
        found = [0]
        for path in self.facts.glob(f"*/{_DONE}"):
            try:
                found.append(int(json.loads(path.read_bytes())["newest"]))
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return max(found)

    def files(self) -> set[str]:
        """Return the paths, relative to the root, of all files whose rows are in the facts, or in merged files that
        are."""
        found: set[str] = set()
        for path in self.facts.glob(f"*/{_DONE}"):
            try:
                found.update(json.loads(path.read_bytes())["files"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return found

    def parts(self) -> list[tuple[int, int, Path]]:
        """Return the first and last batch and the path of each complete part that no other part contains, in order;
        then the parts of merged files, with -1 for both."""
        found = []
        for path in self.facts.iterdir():
            match = _PART.fullmatch(path.name)
            if match and (path / _DONE).exists():
                found.append((int(match[1]), int(match[2]), path))
        whole: list[tuple[int, int, Path]] = []
        for first, last, path in sorted(found, key=lambda part: (part[0], -part[1])):
            if not whole or last > whole[-1][1]:
                whole.append((first, last, path))
        whole_ones = [path for path in sorted(self.facts.glob(f"{_MERGED}*")) if (path / _DONE).exists()]
        return whole + [(-1, -1, path) for path in whole_ones]

    def read(self, spark: "SparkSession", parts: list[tuple[int, int, Path]]) -> MinuteFacts:
        """Return the merged facts of some parts; one task reads small ones, as in the batch job (`SMALL_ROWS`)."""
        size = sum(file.stat().st_size for _, _, path in parts for file in path.glob("*/part-*.parquet"))

        def of(kind: str) -> "DataFrame":
            paths = [f"file://{path / kind}" for _, _, path in parts]
            reader = spark.read.option("__globPaths__", "false")
            if kind in self._schemas:  # all parts have the same; Spark would read footers to find that out
                reader = reader.schema(self._schemas[kind])
            frame = reader.parquet(*paths)
            self._schemas[kind] = frame.schema
            return frame.coalesce(1) if size <= SMALL_BYTES else frame

        return merge(MinuteFacts(of("node"), of("queue"), of("link"), of("event"), of("rows")))

    def tidy(self, spark: "SparkSession", oldest_minute: int) -> None:
        """Merge more than `PARTS_MAX` parts, without facts before `oldest_minute`, and remove old judgements."""
        parts = [part for part in self.parts() if part[0] >= 0]
        if len(parts) > PARTS_MAX:
            merged = self.read(spark, parts)
            young = MinuteFacts(
                *(getattr(merged, kind).where(f"minute >= {oldest_minute}") for kind in FACT_KINDS)
            )
            young_files = [self.root / name for name in self.files() if _may_be_young(name, oldest_minute)]
            self.write(f"batch={parts[0][0]}-{parts[-1][1]}", young, young_files)
        kept = {path for _, _, path in self.parts()}
        finished = [path for path in self.facts.iterdir() if (path / _DONE).exists()]
        for path in finished:
            if path not in kept or (path.name.startswith(_MERGED) and self._is_old(path, oldest_minute)):
                shutil.rmtree(path, ignore_errors=True)
        self.forget_judgements()

    def forget_judgements(self) -> None:
        """Remove old judgements, but not those that a sink of alerts has yet to take."""
        judged = sorted(self.judged.glob("*.json"))
        taken = self.outbox.taken_by_all()
        for at, path in enumerate(judged[:-JUDGED_MAX]):
            is_untold = taken is not None and path.stem.isdecimal() and int(path.stem) > taken
            if not is_untold or len(judged) - at > UNTOLD_MAX:
                path.unlink()

    def _is_old(self, part: Path, oldest_minute: int) -> bool:
        """True if all files of a part are of hours before a minute."""
        try:
            names = json.loads((part / _DONE).read_bytes())["files"]
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return not any(_may_be_young(name, oldest_minute) for name in names)

    def last(self) -> dict[str, Any] | None:
        """Return the latest readable judgement; None if there is none."""
        for path in sorted(self.judged.glob("*.json"), reverse=True):
            try:
                document: dict[str, Any] = json.loads(path.read_bytes())
            except ValueError:
                continue
            return document
        return None

    def judge(self, document: dict[str, Any], end: int, *, is_silent: bool = False) -> Change:
        """Store a judgement. Returns: the changes since the previous judgement; empty if `end` was judged already.

        is_silent: the window ends now because no node reports. The first judgement after nodes report again ends
        earlier, with their newest rows; it counts all the same.
        """
        last = self.last()
        before = [] if last is None else list(last["standing"])
        told = {} if last is None else dict(last.get("texts", {}))
        found = {finding["id"]: finding for finding in document["findings"]}
        number = end
        if last is not None:
            if last["end"] >= end and (is_silent or not last.get("is_silent", False)):
                return Change(document, (), ())
            number = max(end, last.get("number", last["end"]) + 1)
        was = {} if last is None else {each["id"]: each for each in last.get("findings", ())}
        raised = tuple(
            each for each in found if each not in before or _is_worse(found[each], was.get(each, found[each]))
        )
        gone = tuple(sorted(set(before) - found.keys()))
        if not _is_seen(document):
            # A finding about queues or nodes that were not seen is not known to be over. A silence is.
            over = _SILENCE if not is_silent and (document.get("coverage") or {}).get("seen") else ()
            kept = [each for each in gone if each not in over]
            found |= {each: was.get(each, {"id": each, "text": told.get(each)}) for each in kept}
            gone = tuple(each for each in gone if each in over)
        texts = {each: one.get("text") for each, one in found.items()}
        stored = {
            "number": number,
            "end": end,
            "is_silent": is_silent,
            "end_iso": (document.get("window") or [None, None])[1],
            "cluster": document.get("cluster"),
            "verdict": document.get("verdict"),
            "score": document.get("score"),
            "standing": list(found),
            "raised": raised,
            "cleared": gone,
            "texts": {**texts, **{each: told.get(each) for each in gone}},
            "findings": list(found.values()),
        }
        write_atomically(self.outbox.path(number), json.dumps(stored).encode())
        return Change(document, raised, gone)


def _is_worse(finding: dict[str, Any], before: dict[str, Any]) -> bool:
    """True if a finding that stands has become more severe."""
    return _SEVERITY.get(finding.get("severity", ""), 0) > _SEVERITY.get(before.get("severity", ""), 0)


def _is_seen(document: dict[str, Any]) -> bool:
    """True if enough was seen of a window to say that a finding is over."""
    is_down = any(finding.get("kind") == "cluster-down" for finding in document["findings"])
    share = (document.get("coverage") or {}).get("share", 1.0)
    return document.get("verdict") != "unknown" and not is_down and share >= SEEN_MIN


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _may_be_young(name: str, oldest_minute: int) -> bool:
    """True if a file has, by its path, rows of `oldest_minute` or later."""
    match = _HOUR.search(name)
    if match is None:
        return True
    begin = datetime.strptime(f"{match[1]} {match[2]}", "%Y-%m-%d %H").replace(tzinfo=UTC)
    return begin.timestamp() + HOUR_S > oldest_minute * MINUTE_S


def raw_schema() -> "StructType":
    """Return the columns of all kinds of rows; columns with the same name have the same type."""
    from pyspark.sql.types import StructType

    columns = {field.name: field for kind in RAW_KINDS for field in schema(kind).fields}
    return StructType(list(columns.values()))


def start(
    spark: "SparkSession",
    root: Path,
    store: Store,
    cluster: str,
    *,
    is_once: bool,
    every_s: float = 60.0,
    files_max: int = FILES_MAX,
) -> "StreamingQuery":
    """Start the query that reduces files to facts.   is_once: process the existing files, then stop."""
    from pyspark.sql import functions as F

    # The glob may match nothing yet. Merged files are excluded, since their rows were read from raw files.
    paths = f"file://{root}/{VERSION_DIRECTORY}/kind={{{','.join(RAW_KINDS)}}}"
    stream = (
        spark.readStream.schema(raw_schema())
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", RAW_GLOB)
        .option("maxFilesPerTrigger", files_max)
        .option("ignoreCorruptFiles", "true")
        .option("ignoreMissingFiles", "true")
        .parquet(paths)
        .withColumn(_FILE, F.col("_metadata.file_path"))
    )

    def keep(batch: "DataFrame", number: int) -> None:
        # All columns are kept, so that a damaged page ends a file for all kinds of facts alike.
        rows = batch.persist()
        try:
            counted = rows.groupBy(_FILE).agg(F.count(F.lit(1))).collect()
            damaged = _damaged_of(root, {_path_of(uri): int(count) for uri, count in counted})
            good = rows.where(~F.col(_FILE).isin(*(uri for uri, _ in counted if _path_of(uri) in damaged)))
            own = known(good.where((F.col("cluster") == F.lit(cluster)) & F.col("kind").isin(*RAW_KINDS)))
            facts = reduce(_by_kind(own), own)
            read = [path for uri, _ in counted if (path := _path_of(uri)) not in damaged]
            store.write(f"batch={number}-{number}", facts, read)
        finally:
            rows.unpersist()

    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", f"file://{store.checkpoint}")
    timed = (
        writer.trigger(availableNow=True) if is_once else writer.trigger(processingTime=f"{every_s} seconds")
    )
    return timed.start()


def _by_kind(rows: "DataFrame") -> "dict[str, DataFrame]":
    from pyspark.sql import functions as F

    return {
        kind: rows.where(F.col("kind") == kind).select(*schema(kind).names, "minute") for kind in RAW_KINDS
    }


def _path_of(uri: str) -> Path:
    """Return the path of a file that Spark names by a URI."""
    return Path(unquote(urlsplit(uri).path))


def _damaged_of(root: Path, counts: dict[Path, int]) -> set[Path]:
    """Return the files of which Spark read fewer rows than there are, and record them.   counts: rows that it read.

    A file that is gone was merged meanwhile. Raises: EngineError if a file is not damaged: then a machine of the Spark
    cluster does not see it.
    """
    short = [
        path
        for path, rows in counts.items()
        if (footer := read_footer(path)) is not None and rows < footer.num_rows
    ]
    for path in short:
        if not damage.is_damaged(path) and path.exists():
            raise EngineError(
                f"{path} is not seen by all machines of the Spark cluster: they must see ROOT under the same path"
            )
    if short:
        damage.record(root, [path for path in short if path.exists()])
    return set(short)


def catch_up(spark: "SparkSession", root: Path, store: Store, cluster: str, *, since_s: float) -> list[str]:
    """Read the files of a cluster, from an hour on, that have rows which the stream has not read and will not read;
    store their facts.

    `compact` removes the files that it has merged an hour later, and the stream reads only those. If it was stopped for
    longer, their rows are in merged files only. And the stream passes over a file that a task cannot read: here it is
    found to be damaged, or the job fails.   since_s: s since 1970.   Returns: the files that were read.
    """
    known_files, newest = store.files(), store.newest()
    unread: dict[Kind, list[Path]] = {kind: [] for kind in RAW_KINDS}
    covered: list[Path] = []
    for kind in RAW_KINDS:
        for _, folder in hour_folders(root, kind, since_s, None):
            for path in _live_of(folder, cluster):
                if str(path.relative_to(root)) in known_files:
                    continue
                state = _state_of(root, folder, path, known_files, newest)
                if state == "read":
                    covered.append(path)
                elif state == "passed":
                    unread[kind].append(path)

    def wanted(kind: Kind) -> list[Path]:
        torn = damage.recorded(root)
        return [
            path
            for path in unread[kind]
            if not damage.is_recorded(path, root, torn)
            and (footer := read_footer(path)) is not None
            and footer.num_rows
        ]

    def facts() -> list[Path]:
        read: dict[Kind, list[Path]] = {kind: wanted(kind) for kind in RAW_KINDS}
        paths = [path for some in read.values() for path in some]
        if paths or covered:
            names = sorted(str(path.relative_to(root)) for path in (*paths, *covered))
            store.write(f"{_MERGED}{content_hash(names)[7:23]}", facts_of(spark, read), (*paths, *covered))
        return paths

    return sorted(
        str(path.relative_to(root)) for path in without_damaged(root, RAW_KINDS, since_s, None, facts)
    )


def _live_of(folder: Path, cluster: str) -> list[Path]:
    """Return the live files of a cluster in an hour's folder; none if its manifest is damaged."""
    try:
        there = manifest.live(manifest.files_of_hour(folder), manifest.read(folder))
    except manifest.ManifestError:
        return []
    return [folder / name for name in there if name.startswith(f"cluster={escape(cluster)}/")]


def _state_of(root: Path, folder: Path, path: Path, known_files: set[str], newest: int) -> str:
    """Return whether the rows of a file are known: `read`, `coming` if the stream will still read them, or `passed` if
    it will not.   newest: when the newest file that the stream has read was written, ns; it reads the oldest first."""
    if not path.name.startswith(MERGED_PREFIX):
        try:
            return "passed" if path.stat().st_mtime_ns < newest else "coming"
        except FileNotFoundError:
            return "coming"  # as a merged file
    merged, of_cluster = path, f"{path.parent.parent.name}/"
    replaced = [name for name in manifest.read(folder).replaced if name.startswith(of_cluster)]
    missing = [name for name in replaced if str((folder / name).relative_to(root)) not in known_files]
    if replaced:
        if not missing:
            return "read"
        is_raw = all(not name.rpartition("/")[2].startswith(MERGED_PREFIX) for name in missing)
        return "coming" if is_raw and all((folder / name).exists() for name in missing) else "passed"
    # The manifest forgets what it replaced when that was removed. The name of a merged file is a hash of it.
    begin = str(folder.relative_to(root)) + "/"
    own = [name.removeprefix(begin) for name in known_files if name.startswith(begin + of_cluster)]
    raw = [name for name in own if not name.rpartition("/")[2].startswith(MERGED_PREFIX)]
    return "read" if name_of_files(raw) in merged.name else "passed"


def follow_end(root: Path, newest: int, reported_s: float, now_s: float | None) -> tuple[int, bool]:
    """Return the minute at which a judgement ends, and whether it ends now because the nodes have stopped writing.

    newest: the newest minute whose rows are known.   reported_s: the newest row's time in files.   now_s: s since 1970;
    None: there is no present, and the newest row ends the window.
    """
    known = newest + 1  # the newest minute may be incomplete
    if now_s is None:
        return known - WATERMARK_S // MINUTE_S, False
    known = min(known, int(now_s // MINUTE_S))  # a clock that is ahead does not end the window
    if is_silent(root, max(known * MINUTE_S, reported_s), now_s):
        return int(now_s // MINUTE_S), True
    return known - WATERMARK_S // MINUTE_S, False


def judge_store(
    spark: "SparkSession",
    root: Path,
    store: Store,
    cluster: str,
    *,
    window_s: float,
    settings: Settings,
    now_s: float | None = None,
) -> Change | None:
    """Judge the stored facts; None if there are none.   now_s: s since 1970; None: the newest row ends the window."""
    from pyspark.sql import functions as F

    reported_s = newest_by_cluster(root).get(cluster)
    begin = now_s if now_s is not None else reported_s
    if begin is not None:
        catch_up(spark, root, store, cluster, since_s=begin - window_s - 2 * HOUR_S)
    parts = store.parts()
    if not parts:
        return None
    facts = store.read(spark, parts)
    row = facts.node.where(F.col("cluster") == F.lit(cluster)).agg(F.max("minute")).first()
    if row is None or row[0] is None:
        return None
    # Files that came since the stream's last batch show that nodes report, as do its facts.
    end, has_stopped = follow_end(root, int(row[0]), reported_s or 0.0, now_s)
    window = Window(cluster, end - max(1, round(window_s / MINUTE_S)), end, None)
    judged = judge_facts(facts, root, window, settings)
    created = now_s if now_s is not None else float(end * MINUTE_S)
    change = store.judge(health_document(judged, created), end, is_silent=has_stopped)
    store.tidy(spark, window.start - 60)
    return change


def awaited(query: "StreamingQuery", store: Store, timeout_s: float | None = None) -> bool:
    """Wait for the end of a stream's query. Returns: whether it has ended.   timeout_s: None: no limit.

    Raises: EngineError, with the store's directory, as the text of Spark's error names the query by a number.
    """
    from pyspark.errors import StreamingQueryException

    try:
        ended = query.awaitTermination(None if timeout_s is None else round(timeout_s))
    except StreamingQueryException as error:
        raise EngineError(f"the stream of {store.directory} failed: {one_line(error)}") from error
    return timeout_s is None or bool(ended)


def follow(
    spark: "SparkSession",
    root: Path,
    cluster: str,
    *,
    window_s: float,
    settings: Settings,
    every_s: float,
    now: Callable[[], float],
) -> Iterator[Change]:
    """Judge every `every_s` seconds, even without new files, until the caller closes the generator.

    Raises: EngineError if the query fails.
    """
    store = Store(root, cluster)
    query = start(spark, root, store, cluster, is_once=False, every_s=every_s)
    try:
        while not awaited(query, store, every_s):
            change = judge_store(
                spark, root, store, cluster, window_s=window_s, settings=settings, now_s=now()
            )
            if change is not None:
                yield change
    finally:
        query.stop()
