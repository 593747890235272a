"""Rollups on disk: this module finds the hours that need a rollup, writes it atomically, and reads rollups for jobs.

    <root>/v1/kind=rollup1h-queue/dt=2026-11-22/hour=13/rollup-<hash>.parquet
    …/hour=13/_rollup.json       the valid file, and a hash of its input

The hash is that of the names and sizes of the raw files. Late rows change the hash, so that only their hours are
rolled up again. Source: spark §2.7, §3.1.
"""

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_ops.documents import content_hash
from spark_ops.jobs.damaged_files import without_damaged
from spark_ops.jobs.engine import EngineError
from spark_ops.jobs.files import HOUR_S, Found, HourFiles, find, hour_folder, hour_folders, read_footer
from spark_ops.jobs.reading import load, read, schema
from spark_ops.jobs.rollup import rollup
from spark_ops.jobs.rollup_fields import ROLLUPS, RollupKind
from spark_ops.telemetry.layout import kind_directory
from spark_ops.telemetry.manifest import sync_directory, write_atomically

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT: Final = "spark-ops-rollup/1"
RECORD: Final = "_rollup.json"
BATCH_ROWS: Final = 20_000_000
"""The maximal number of raw rows in one Spark job; an hour with more rows is a job of its own."""

_SCRATCH: Final = "_scratch-"
_SCRATCH_S: Final = 86400.0
"""A scratch directory that is older (in seconds) is left over from a dead job."""


@dataclass(frozen=True, slots=True)
class Rolled:
    """The result for one hour.   rows: rows of the rollup.   raw_rows: rows of the raw files, including duplicates."""

    kind: RollupKind
    hour_s: int
    rows: int
    raw_rows: int


@dataclass(frozen=True, slots=True)
class Hours:
    """The rollup of some hours.   frame: as `rollup` returns it.   torn, unknown_versions: as in `reading.Read`.

    hours: number of hours.   computed: number of hours for which raw rows had to be read.
    """

    frame: "DataFrame"
    torn: tuple[str, ...]
    unknown_versions: int
    hours: int
    computed: int


def kind_of(kind: RollupKind) -> str:
    """Return the name of a kind's rollups in paths."""
    return f"rollup1h-{kind}"


def inputs_hash(root: Path, hour: HourFiles) -> str:
    """Return a hash of the input files and the columns of a rollup. Raises: OSError."""
    files = sorted([str(path.relative_to(root)), path.stat().st_size] for path in hour.paths)
    columns = {kind: [str(fields)] for kind, fields in ROLLUPS.items()}
    return content_hash([FORMAT, files, content_hash(columns)]).removeprefix("sha256:")


def stored(
    root: Path, kind: RollupKind, since: float | None, until: float | None
) -> dict[int, tuple[Path, str]]:
    """Return the file and the hash of the input of each stored rollup, by the hour's begin in s since 1970.

    A rollup whose file is torn or whose record is malformed is left out.
    """
    found = {}
    for hour_s, folder in hour_folders(root, kind_of(kind), since, until):
        try:
            record: Any = json.loads((folder / RECORD).read_bytes())
            if record["format"] != FORMAT:
                continue
            path, inputs = folder / Path(str(record["file"])).name, str(record["inputs"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if read_footer(path) is not None:
            found[hour_s] = (path, inputs)
    return found


def stale(root: Path, kind: RollupKind, found: Found) -> list[HourFiles]:
    """Return the hours with raw files whose rollup is missing or was computed from other files. Raises: OSError."""
    there = stored(root, kind, None, None)
    return [hour for hour in found.hours if there.get(hour.hour_s, (None, ""))[1] != inputs_hash(root, hour)]


def rows_to_read(root: Path, kind: RollupKind, since: float, until: float) -> int:
    """Return the approximate number of rows that `hours` reads: of stored rollups, and raw ones where there is none."""
    found = find(root, kind, since, until)
    there = stored(root, kind, since, until)
    raw = sum(hour.rows for hour in found.hours if hour.hour_s not in there)
    footers = [read_footer(path) for path, _ in there.values()]
    return raw + sum(int(footer.num_rows) for footer in footers if footer is not None)


def write(
    spark: "SparkSession", root: Path, kind: RollupKind, hours: Iterable[HourFiles]
) -> Iterator[Rolled]:
    """Roll up hours in batches and store the results, each hour atomically. Files with damaged pages are left out and
    recorded (`telemetry.damage`). Raises: EngineError if Spark's machines do not share the root; OSError."""
    _sweep(kind_directory(root, kind_of(kind)))
    for batch in _batches(hours):
        yield from _write_readable(spark, root, kind, batch)


def _write_readable(
    spark: "SparkSession", root: Path, kind: RollupKind, batch: list[HourFiles]
) -> list[Rolled]:
    """Roll up the hours of one batch, without files that have damaged pages."""
    since, until = float(batch[0].hour_s), float(batch[-1].hour_s + HOUR_S)
    wanted = {hour.hour_s for hour in batch}
    given = [batch]  # for the first attempt; a further one finds the files again

    def rolled() -> list[Rolled]:
        if given:
            return _write(spark, root, kind, given.pop())
        again = [hour for hour in find(root, kind, since, until).hours if hour.hour_s in wanted]
        return _write(spark, root, kind, again) if again else []

    return without_damaged(root, (kind,), since, until, rolled)


def _write(spark: "SparkSession", root: Path, kind: RollupKind, batch: list[HourFiles]) -> list[Rolled]:
    """Roll up the hours of one batch in one Spark job."""
    inputs = {hour.hour_s: inputs_hash(root, hour) for hour in batch}
    raw = read(spark, root, kind, found=Found(tuple(batch), ()))
    frame = rollup(raw.frame, kind, rows_hint=raw.rows).where(_is_one_of(inputs))
    scratch = kind_directory(root, kind_of(kind)) / f"{_SCRATCH}{uuid.uuid4().hex}"
    try:
        _save(frame, kind, scratch, len(batch))
        return [
            Rolled(kind, hour.hour_s, _keep(root, kind, hour, inputs[hour.hour_s], scratch), hour.rows)
            for hour in batch
        ]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _save(frame: "DataFrame", kind: RollupKind, scratch: Path, hours: int) -> None:
    """Write a folder for each hour with one file, whose rows are sorted by subject.

    Raises: EngineError if this machine does not see all rows that Spark's tasks wrote.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    scratch.parent.mkdir(parents=True, exist_ok=True)
    ordered = frame.withColumn("part", F.col("hour")).repartition(hours, "part")
    ordered = ordered.sortWithinPartitions("part", *ROLLUPS[kind].subject)
    # Tasks count what they write; a task's count arrives with its result, whatever disk it wrote to.
    written = Observation()
    ordered = ordered.observe(written, F.count(F.lit(1)).alias("rows"))
    ordered.write.partitionBy("part").option("compression", "zstd").parquet(f"file://{scratch}")
    seen_here(scratch.glob("part=*/*.parquet"), int(written.get["rows"]), scratch.parent)


def seen_here(paths: Iterable[Path], rows: int, directory: Path) -> None:
    """Check that files which Spark's tasks wrote are on this machine's disk, too.   rows: rows that the tasks wrote.

    Raises: EngineError if rows are missing: a machine of the Spark cluster wrote to a directory of its own.
    """
    footers = [read_footer(path) for path in paths]
    here = sum(footer.num_rows for footer in footers if footer is not None)
    if here != rows:
        raise EngineError(
            f"{directory} is not shared: Spark's tasks wrote {rows} rows there, and this machine sees {here} of them. "
            "All machines of the Spark cluster must see ROOT under the same path"
        )


def _keep(root: Path, kind: RollupKind, hour: HourFiles, inputs: str, scratch: Path) -> int:
    """Move an hour's file to its folder and remove the old files there. Returns: the number of rows."""
    folder = hour_folder(root, kind_of(kind), hour.hour_s)
    folder.mkdir(parents=True, exist_ok=True)
    made = sorted((scratch / f"part={hour.hour_s}").glob("*.parquet"))
    assert len(made) <= 1, "an hour is in one partition"
    if not made:
        return 0  # all rows have a version that is too new
    with made[0].open("rb") as file:
        os.fsync(file.fileno())
    footer = read_footer(made[0])
    assert footer is not None, "Spark has just written it"
    target = folder / f"rollup-{inputs[:16]}.parquet"
    made[0].replace(target)
    sync_directory(folder)
    record = {"format": FORMAT, "file": target.name, "inputs": inputs, "rows": footer.num_rows}
    write_atomically(folder / RECORD, json.dumps(record, indent=1).encode())
    for old in folder.glob("rollup-*.parquet"):
        if old.name != target.name:
            old.unlink(missing_ok=True)
    return int(footer.num_rows)


def hours(spark: "SparkSession", root: Path, kind: RollupKind, *, since: float, until: float) -> Hours:
    """Return the rollup of [since, until), s since 1970: stored hours if they are valid, else computed from raw rows.

    An hour that is only partly in the range is computed from its raw rows, if they still exist. Nothing is written.
    """
    root = root.absolute()
    raw = find(root, kind, since, until)
    there = stored(root, kind, since, until)
    fresh, compute = [], []
    for hour in raw.hours:
        is_whole = since <= hour.hour_s and hour.hour_s + HOUR_S <= until
        path, inputs = there.pop(hour.hour_s, (None, ""))
        if path is not None and is_whole and inputs == inputs_hash(root, hour):
            fresh.append(path)
        else:
            compute.append(hour)
    fresh += [path for path, _ in there.values()]  # hours whose raw rows are no longer kept
    unknown = 0
    frames = [load(spark, fresh, rollup_schema(spark, kind))] if fresh else []
    if compute or not fresh:
        reading = read(spark, root, kind, since=since, until=until, found=Found(tuple(compute), raw.torn))
        unknown = reading.unknown_versions
        frames.append(rollup(reading.frame, kind, rows_hint=reading.rows))
    frame = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
    return Hours(frame, raw.torn, unknown, len(fresh) + len(compute), len(compute))


_SCHEMAS: "dict[RollupKind, StructType]" = {}


def rollup_schema(spark: "SparkSession", kind: RollupKind) -> "StructType":
    """Return the schema of a rollup, which Spark computes once for each kind."""
    if kind not in _SCHEMAS:
        _SCHEMAS[kind] = rollup(spark.createDataFrame([], schema(kind)), kind).schema
    return _SCHEMAS[kind]


def _is_one_of(hours_s: Iterable[int]) -> Any:
    """Return the condition for rows of these hours. A row in a wrong hour's folder must not replace a rollup."""
    from pyspark.sql import functions as F

    return F.col("hour").isin(*hours_s)


def _batches(hours_: Iterable[HourFiles]) -> Iterator[list[HourFiles]]:
    batch: list[HourFiles] = []
    for hour in hours_:
        if batch and sum(each.rows for each in batch) + hour.rows > BATCH_ROWS:
            yield batch
            batch = []
        batch.append(hour)
    if batch:
        yield batch


def _sweep(folder: Path) -> None:
    """Remove the scratch directories of dead jobs."""
    for scratch in folder.glob(f"{_SCRATCH}*"):
        if time.time() - scratch.stat().st_mtime > _SCRATCH_S:
            shutil.rmtree(scratch, ignore_errors=True)
