"""Compaction merges the many small files of an hour into one sorted file without duplicate rows.

Small hours are merged by pyarrow in this process, which needs no JVM; large hours by Spark, which sorts on disk. In
both cases the merged files are written under `node=_all`, then the manifest replaces the old files, and a later run
removes them (`spark_ops.telemetry.manifest`). Files that cannot be read or have a newer schema are not merged and stay
live. A file with damaged pages fails its merge; it is recorded (`spark_ops.telemetry.damage`), and the hour is merged
without it. Source: spark §2.7.
"""

import fcntl
import hashlib
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from spark_ops.telemetry import arrow, damage, layout, manifest
from spark_ops.telemetry.manifest import Manifest
from spark_ops.telemetry.schema import KEY, KINDS, VERSION, Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_ROWS: Final = 3_000_000
"""Hours with at least this many rows are merged by Spark; in this process they would need more than about 3 GB."""
ROWS_A_FILE: Final = 10_000_000
"""The number of rows in a file that Spark merged: about 128 MB of rows of the kind `queue`."""


class CompactError(Exception):
    """Compaction cannot continue; the error's text is one line."""


@dataclass(frozen=True, slots=True)
class Hour:
    """The files of one cluster, hour and kind to be merged; their paths are relative to the hour's directory."""

    kind: Kind
    directory: Path
    cluster: str
    files: tuple[str, ...]
    rows: int

    @property
    def target(self) -> Path:
        """The directory of the merged files. `cluster` is a part of a path: `cluster=…`."""
        return self.directory / self.cluster / f"node={layout.MERGED_NODE}"


@dataclass(slots=True)
class Compacted:
    """Counts of one run.   passed: files that cannot be merged.   removed: replaced files that were deleted."""

    hours: int = 0
    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    removed: int = 0
    passed: list[str] = field(default_factory=list)


@contextmanager
def held(root: Path) -> Iterator[None]:
    """Hold the lock of a root during the `with` block. Raises: CompactError if another compaction has it, OSError."""
    with (root / "_compact.lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CompactError(f"another compaction of {root} is running") from error
        yield


def compact(
    root: Path,
    *,
    now: datetime,
    older_than: timedelta,
    grace: timedelta,
    spark: "Callable[[int], AbstractContextManager[SparkSession]]",
    spark_rows: int = SPARK_ROWS,
    progress: Callable[[str], None] = lambda _: None,
) -> Compacted:
    """Merge all hours that ended at least `older_than` ago, and remove files that were replaced at least `grace` ago.

    spark: opens a session for the given number of rows; called only if an hour is large.   Raises: CompactError,
    ManifestError, EngineError, OSError; hours that were merged before the error stay merged.
    """
    done = Compacted()
    with held(root):
        todo = list(_todo(root, now - older_than, done))
        small = [hour for hour in todo if hour.rows < spark_rows]
        large = [hour for hour in todo if hour.rows >= spark_rows]
        for number, hour in enumerate(small):
            progress(f"merging hour {number + 1} of {len(todo)}")
            _merge(root, hour, _merge_here, (CompactError, OSError), done)
        if large:
            with spark(max(hour.rows for hour in large)) as session:
                from py4j.protocol import Py4JError  # type: ignore[import-untyped]
                from pyspark.errors import PySparkException

                errors = (CompactError, OSError, PySparkException, Py4JError)
                for number, hour in enumerate(large, len(small)):
                    progress(f"merging hour {number + 1} of {len(todo)} with Spark")
                    _merge(root, hour, partial(_merge_with_spark, session), errors, done)
        for kind in KINDS:
            for when in layout.existing_hours(root, kind):
                done.removed += sweep(layout.hour_directory(root, kind, when), now - grace)
    return done


def _merge(
    root: Path,
    hour: Hour,
    merge: Callable[[Hour], list[tuple[Path, int]]],
    errors: tuple[type[Exception], ...],
    done: Compacted,
) -> None:
    """Merge an hour and switch to the result, without files whose pages are damaged.

    errors: what `merge` raises if a file is damaged, among other reasons; raised if no file is.
    """
    try:
        made = merge(hour)
    except errors:
        # All pages of the hour are read again, once: the files that are recorded are not tried by the next run.
        damaged = [name for name in hour.files if damage.is_damaged(hour.directory / name)]
        if not damaged:
            raise
        paths = [hour.directory / name for name in damaged]
        damage.record(root, paths)
        done.passed += [str(path.relative_to(root)) for path in paths]
        hour = replace(hour, files=tuple(name for name in hour.files if name not in damaged))
        if len(hour.files) < 2:
            return
        made = merge(hour)
    _switch(hour, made, done)


def _todo(root: Path, before: datetime, done: Compacted) -> Iterator[Hour]:
    """Yield the hours in which at least two files can be merged."""
    damaged = damage.recorded(root)
    for kind in KINDS:
        for when in layout.existing_hours(root, kind):
            if when + timedelta(hours=1) > before:
                continue
            directory = layout.hour_directory(root, kind, when)
            groups: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
            for name in manifest.live(manifest.files_of_hour(directory), manifest.read(directory)):
                is_damaged = damage.is_recorded(directory / name, root, damaged)
                rows = None if is_damaged else rows_of(directory / name, kind)
                if rows is None:
                    done.passed.append(str((directory / name).relative_to(root)))
                else:
                    groups[name.split("/")[0]].append((name, rows))
            for cluster, files in sorted(groups.items()):
                if len(files) > 1 and cluster.startswith("cluster="):
                    names = tuple(name for name, _ in files)
                    yield Hour(kind, directory, cluster, names, sum(rows for _, rows in files))


def rows_of(path: Path, kind: Kind) -> int | None:
    """Return the number of rows in a file; None if the file is torn or has unknown columns or versions."""
    try:
        with pq.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except (pa.ArrowException, OSError):
        return None
    known = arrow.SCHEMAS[kind]
    for column in schema:
        if column.name not in known.names or not _widens(column.type, known.field(column.name).type):
            return None
    if "v" not in schema.names or any(name not in schema.names for name in KEY):
        return None
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(schema.get_field_index("v")).statistics
        if statistics is None or not statistics.has_min_max or statistics.max > VERSION:
            return None
    return int(metadata.num_rows)


def _widens(found: pa.DataType, wanted: pa.DataType) -> bool:
    """True if the type `found` can be cast to `wanted`. Types of lists and maps are compared only by id, since Spark
    names their items differently."""
    if pa.types.is_integer(found) and pa.types.is_integer(wanted):
        return bool(found.bit_width <= wanted.bit_width)
    return bool(found.id == wanted.id or {found, wanted} <= {pa.string(), pa.large_string()})


def _merge_here(hour: Hour) -> list[tuple[Path, int]]:
    """Merge in memory. Returns: the file and its number of rows. Raises: CompactError, OSError."""
    known = arrow.SCHEMAS[hour.kind]
    try:
        tables = [_conformed(_read(hour.directory / name), known) for name in hour.files]
    except pa.ArrowException as error:
        raise CompactError(f"{hour.directory}: {str(error).splitlines()[0]}") from error
    table = _unique(pa.concat_tables(tables))
    path = hour.target / f"{layout.MERGED_PREFIX}{name_of(hour)}.parquet"
    arrow.write(table.sort_by([(name, "ascending") for name in arrow.ORDER[hour.kind]]), path, unique=True)
    return [(path, table.num_rows)]


def _read(path: Path) -> pa.Table:
    """Return the rows of a file. Raises: pyarrow.ArrowException or OSError, also if a page's checksum is wrong."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        return file.read()


def _conformed(table: pa.Table, known: pa.Schema) -> pa.Table:
    """Return the table with the columns of our schema; columns that an old file lacks are null."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in known
    ]
    return pa.table(columns, schema=known)


def _unique(table: pa.Table) -> pa.Table:
    """Return the table with the first row of each key only."""
    numbered = table.select(list(KEY)).append_column("row", pa.array(range(table.num_rows), pa.int64()))
    first = numbered.group_by(list(KEY)).aggregate([("row", "min")]).column("row_min")
    return table if len(first) == table.num_rows else table.take(first.sort())


def _merge_with_spark(spark: "SparkSession", hour: Hour) -> list[tuple[Path, int]]:
    """Merge on disk: Spark drops duplicates and sorts; `arrow.rewrite` compresses and marks the file as unique."""
    from spark_ops.jobs.reading import schema

    parts = -(-hour.rows // ROWS_A_FILE)
    temporary = hour.directory.absolute() / f".compact-{os.getpid()}"
    # Paths are literal, even with `*` or `%`. A damaged page must make the merge fail, not drop rows.
    reader = spark.read.schema(schema(hour.kind)).option("__globPaths__", "false")
    reader = reader.option("ignoreCorruptFiles", "false")
    reader = reader.option("parquet.page.verify-checksum.enabled", "true")
    frame = reader.parquet(*(f"file://{hour.directory.absolute() / name}" for name in hour.files))
    order = list(arrow.ORDER[hour.kind])
    ordered = (
        frame.dropDuplicates(list(KEY)).repartitionByRange(parts, *order[:-1]).sortWithinPartitions(*order)
    )
    try:
        ordered.write.mode("overwrite").parquet(f"file://{temporary}")
        found = []
        for number, part in enumerate(sorted(temporary.glob("part-*.parquet"))):
            path = hour.target / f"{layout.MERGED_PREFIX}{name_of(hour)}-{number}.parquet"
            found.append((path, arrow.rewrite(part, path, arrow.SCHEMAS[hour.kind])))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    expected, made = frame.select(*KEY).distinct().count(), sum(count for _, count in found)
    if made != expected:
        raise CompactError(
            f"{hour.directory}: Spark wrote {made} of {expected} rows; the files stay unmerged"
        )
    return found


def name_of(hour: Hour) -> str:
    """Return the name of the merged file, which depends only on the names of its input files."""
    return name_of_files(hour.files)


def name_of_files(names: Iterable[str]) -> str:
    """Return the name of the merged file of some files, which are relative to the hour's directory."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def _switch(hour: Hour, made: Sequence[tuple[Path, int]], done: Compacted) -> None:
    """Write the manifest that replaces the old files by the merged files."""
    before = manifest.read(hour.directory)
    gone = set(hour.files)
    names = [str(path.relative_to(hour.directory)) for path, _ in made]
    kept = [name for name in before.merged if name not in gone]
    merged = (*kept, *names)
    rows = sum(rows_of(hour.directory / name, hour.kind) or 0 for name in merged)
    manifest.write(hour.directory, Manifest(merged, (before.replaced | gone) - set(names), rows))
    done.hours += 1
    done.files_before += len(hour.files)
    done.files_after += len(made)
    done.rows += sum(count for _, count in made)


def sweep(directory: Path, before: datetime) -> int:
    """Remove the replaced files of an hour if its manifest was written before a time. Returns: the number of files.

    Raises: ManifestError, OSError.
    """
    path = directory / manifest.NAME
    try:
        if path.stat().st_mtime > before.timestamp():
            return 0
    except FileNotFoundError:
        return 0
    told = manifest.read(directory)
    there = manifest.files_of_hour(directory)
    dead = set(there) - set(manifest.live(there, told))
    for name in dead:
        (directory / name).unlink(missing_ok=True)
    if told.replaced:
        manifest.write(directory, Manifest(told.merged, frozenset(), told.rows))
    return len(dead)
