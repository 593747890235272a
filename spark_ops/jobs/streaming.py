"""`health --follow` reduces files to facts in micro-batches, and judges the stored facts as the batch job does.

The stream has no state of its own. Each micro-batch writes the facts of its rows to a directory named by its number,
so that a batch that is repeated after a crash replaces its first result; facts of late rows are merged like all others.
A minute is judged when the newest row is `WATERMARK_S` later. Findings have stable ids. Each judgement is one file with
the findings that were raised and cleared since the previous judgement (rules: `spark_ops.health.minutes`).

    <root>/_health/<cluster>/<versions>/checkpoint/            Spark's checkpoint: which files were read
    …/facts/batch=<first>-<last>/<kind>/*.parquet, DONE        facts of these batches
    …/judged/<end>.json                                        a judgement of the minutes before `end`

A checkpoint belongs to one cluster, this query and one version of facts; another version starts with a new checkpoint.
Source: spark §3.5, §6.18, §6.21.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_ops.health.document import health_document
from spark_ops.health.settings import Settings
from spark_ops.jobs.health import LIVE_S, MINUTE_S, Window, judge_facts
from spark_ops.jobs.minute_facts import (
    FACT_KINDS,
    FACTS_VERSION,
    RAW_KINDS,
    MinuteFacts,
    known,
    merge,
    reduce,
)
from spark_ops.jobs.reading import schema
from spark_ops.telemetry.layout import RAW_GLOB, VERSION_DIRECTORY, escape
from spark_ops.telemetry.manifest import write_atomically
from spark_ops.telemetry.schema import VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

WATERMARK_S: Final = 120
FILES_MAX: Final = 500
"""The maximal number of files in one micro-batch; further files wait for the next one."""
PARTS_MAX: Final = 40
"""The maximal number of parts, that is, of directories of facts; more parts are merged into one."""
JUDGED_MAX: Final = 1000
DIRECTORY: Final = "_health"
_DONE: Final = "DONE"
_PART: Final = re.compile(r"batch=(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Change:
    """A judgement and its changes.   document: the health document.   raised, cleared: ids of findings."""

    document: dict[str, Any]
    raised: tuple[str, ...]
    cleared: tuple[str, ...]


class Store:
    """The facts and judgements on disk of one cluster's stream."""

    def __init__(self, root: Path, cluster: str) -> None:
        self.directory = root / DIRECTORY / (escape(cluster) or "_none") / f"v{VERSION}-{FACTS_VERSION}"
        self.facts = self.directory / "facts"
        self.judged = self.directory / "judged"
        for each in (self.facts, self.judged):
            each.mkdir(parents=True, exist_ok=True)

    @property
    def checkpoint(self) -> Path:
        """The directory of Spark's checkpoint."""
        return self.directory / "checkpoint"

    def write(self, first: int, last: int, facts: MinuteFacts) -> None:
        """Store the facts of batches as a part, and replace that part. A part without the file `DONE` is not read."""
        part = self.facts / f"batch={first}-{last}"
        shutil.rmtree(part, ignore_errors=True)
        for kind in FACT_KINDS:
            getattr(facts, kind).coalesce(1).write.parquet(f"file://{part / kind}")
        write_atomically(part / _DONE, b"")

    def parts(self) -> list[tuple[int, int, Path]]:
        """Return the first and last batch and the path of each complete part that no other part contains, in order."""
        found = []
        for path in self.facts.iterdir():
            match = _PART.fullmatch(path.name)
            if match and (path / _DONE).exists():
                found.append((int(match[1]), int(match[2]), path))
        whole: list[tuple[int, int, Path]] = []
        for first, last, path in sorted(found, key=lambda part: (part[0], -part[1])):
            if not whole or last > whole[-1][1]:
                whole.append((first, last, path))
        return whole

    def read(self, spark: "SparkSession", parts: list[tuple[int, int, Path]]) -> MinuteFacts:
        """Return the merged facts of some parts."""

        def of(kind: str) -> "DataFrame":
            paths = [f"file://{path / kind}" for _, _, path in parts]
            return spark.read.option("__globPaths__", "false").parquet(*paths)

        return merge(MinuteFacts(of("node"), of("queue"), of("link"), of("event"), of("rows")))

    def tidy(self, spark: "SparkSession", oldest_minute: int) -> None:
        """Merge more than `PARTS_MAX` parts, without facts before `oldest_minute`, and remove old judgements."""
        parts = self.parts()
        if len(parts) > PARTS_MAX:
            merged = self.read(spark, parts)
            young = MinuteFacts(
                *(getattr(merged, kind).where(f"minute >= {oldest_minute}") for kind in FACT_KINDS)
            )
            self.write(parts[0][0], parts[-1][1], young)
        kept = {path for _, _, path in self.parts()}
        finished = [path for path in self.facts.iterdir() if (path / _DONE).exists()]
        for path in finished:
            if path not in kept:
                shutil.rmtree(path, ignore_errors=True)
        for path in sorted(self.judged.glob("*.json"))[:-JUDGED_MAX]:
            path.unlink()

    def last(self) -> dict[str, Any] | None:
        """Return the latest readable judgement; None if there is none."""
        for path in sorted(self.judged.glob("*.json"), reverse=True):
            try:
                document: dict[str, Any] = json.loads(path.read_bytes())
            except ValueError:
                continue
            return document
        return None

    def judge(self, document: dict[str, Any], end: int) -> Change:
        """Store a judgement. Returns: the changes since the previous judgement; empty if `end` was judged already."""
        last = self.last()
        before = set() if last is None else set(last["standing"])
        now = [finding["id"] for finding in document["findings"]]
        if last is not None and last["end"] >= end:
            return Change(document, (), ())
        raised = tuple(each for each in now if each not in before)
        cleared = tuple(sorted(before - set(now)))
        kept = {"end": end, "standing": now, "raised": raised, "cleared": cleared}
        write_atomically(self.judged / f"{end:012d}.json", json.dumps(kept).encode())
        return Change(document, raised, cleared)


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
        .where(F.col("cluster") == F.lit(cluster))
    )

    def keep(batch: "DataFrame", number: int) -> None:
        rows = known(batch).persist()
        try:
            by_kind = {
                kind: rows.where(F.col("kind") == kind).select(*schema(kind).names, "minute")
                for kind in RAW_KINDS
            }
            store.write(number, number, reduce(by_kind))
        finally:
            rows.unpersist()

    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", f"file://{store.checkpoint}")
    timed = (
        writer.trigger(availableNow=True) if is_once else writer.trigger(processingTime=f"{every_s} seconds")
    )
    return timed.start()


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

    parts = store.parts()
    if not parts:
        return None
    facts = store.read(spark, parts)
    row = facts.node.where(F.col("cluster") == F.lit(cluster)).agg(F.max("minute")).first()
    if row is None or row[0] is None:
        return None
    # The newest minute may be incomplete.
    end = int(row[0]) + 1 - WATERMARK_S // MINUTE_S
    if now_s is not None and now_s - (int(row[0]) + 1) * MINUTE_S > LIVE_S:
        end = int(now_s // MINUTE_S)  # the nodes have stopped writing, so the window ends now
    window = Window(cluster, end - max(1, round(window_s / MINUTE_S)), end, None)
    judged = judge_facts(facts, root, window, settings)
    created = now_s if now_s is not None else float(end * MINUTE_S)
    change = store.judge(health_document(judged, created), end)
    store.tidy(spark, window.start - 60)
    return change


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

    Raises: StreamingQueryException if the query fails.
    """
    store = Store(root, cluster)
    query = start(spark, root, store, cluster, is_once=False, every_s=every_s)
    try:
        while not query.awaitTermination(round(every_s)):
            change = judge_store(
                spark, root, store, cluster, window_s=window_s, settings=settings, now_s=now()
            )
            if change is not None:
                yield change
    finally:
        query.stop()
