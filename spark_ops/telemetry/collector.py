"""The collector reads the segments of nodes and writes their rows to Parquet files.

    segments ─► lines ─► rows not seen before ─► one table for each kind, hour and process ─► files
                  └► _quarantine                      then the checkpoint, then the segments are removed

A collector may die after any step: the next run repeats the unfinished part and writes the same files. If the node has
closed more segments in between, a row may be in two files. Readers recognise that by the ranges in the files' names and
drop the duplicate. The collector is a process beside the node and reads only segments that the node has closed.
Source: spark §2.7.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from spark_ops.telemetry import arrow, checkpoint, layout
from spark_ops.telemetry.checkpoint import Checkpoint
from spark_ops.telemetry.manifest import write_atomically
from spark_ops.telemetry.schema import Kind
from spark_ops.telemetry.segments import (
    Problem,
    Rejected,
    Row,
    Segment,
    node_directories,
    read_file,
    segments,
)

LEFT_BEHIND_S: Final = 300
"""An open segment is left over from a dead node if it was not modified for this many seconds."""
BATCH_BYTES: Final = 64 * 1024 * 1024
"""Segments are converted in batches of about this size, which a busy node writes in a minute."""


@dataclass(slots=True)
class Taken:
    """Counts of one run of the collector.

    segments: segments read.   rows: rows written.   torn, bad, unknown_versions: rejected lines.
    """

    segments: int = 0
    rows: int = 0
    files: int = 0
    duplicates: int = 0
    late: int = 0
    torn: int = 0
    bad: int = 0
    unknown_versions: int = 0

    def add(self, problem: Problem) -> None:
        """Count a rejected line."""
        match problem:
            case Problem.TORN:
                self.torn += 1
            case Problem.BAD:
                self.bad += 1
            case Problem.UNKNOWN_VERSION:
                self.unknown_versions += 1


class _Place(NamedTuple):
    """The values that determine the file of a row."""

    kind: Kind
    hour_ms: int
    cluster: str
    node: str
    boot_id: str
    is_late: bool


def take_all(
    directories: Iterable[Path],
    root: Path,
    *,
    keep: bool,
    now: float,
    progress: Callable[[], None] = lambda: None,
) -> Taken:
    """Collect all segments of all nodes.

    directories: each is a node's directory, or has one subdirectory for each node.
    keep: leave segments where they are.   now: seconds since 1970.   progress: called after each batch of segments.
    Raises: CheckpointError, OSError; segments that were collected before the error stay collected.
    """
    total = Taken()
    for directory in directories:
        for source in node_directories(directory):
            take(source, root, total, keep=keep, now=now, progress=progress)
    return total


def take(
    source: Path,
    root: Path,
    total: Taken,
    *,
    keep: bool,
    now: float,
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Collect the segments of one node and count them in `total`. Raises: CheckpointError, OSError."""
    path = checkpoint.path_of(root, source)
    if not segments(source):
        return
    with checkpoint.held(path):
        state = checkpoint.load(path)
        state.watch.of_source("", source.name, round(now * 1000))
        there = segments(source)
        names = {segment.name for segment in there}
        state.taken = {name: size for name, size in state.taken.items() if name in names}
        new = [segment for segment in there if _is_ready(segment, state, now)]
        for batch in _batches(new):
            _take_batch(batch, root, state, total)
            checkpoint.save(path, state)
            progress()
            if not keep:
                _remove(batch)
        if not keep:
            _remove(segment for segment in there if segment.name in state.taken and segment not in new)


def _is_ready(segment: Segment, state: Checkpoint, now: float) -> bool:
    status = segment.path.stat()
    if state.taken.get(segment.name) == status.st_size:
        return False
    return not segment.is_open or now - status.st_mtime > LEFT_BEHIND_S


def _batches(new: list[Segment]) -> Iterator[list[Segment]]:
    """Yield the segments in batches that fit into memory, see `BATCH_BYTES`."""
    batch: list[Segment] = []
    size = 0
    for segment in new:
        batch.append(segment)
        size += segment.path.stat().st_size
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _remove(batch: Iterable[Segment]) -> None:
    """Remove closed segments; an open segment still belongs to its node."""
    for segment in batch:
        if not segment.is_open:
            segment.path.unlink(missing_ok=True)


def _take_batch(batch: list[Segment], root: Path, state: Checkpoint, total: Taken) -> None:
    places: defaultdict[_Place, list[Row]] = defaultdict(list)
    for segment in batch:
        rejected: list[bytes] = []
        for item in read_file(segment.path):
            if isinstance(item, Rejected):
                rejected.append(item.line)
                state.watch.rejected(item.problem)
                total.add(item.problem)
                continue
            is_late = state.watch.row(item)
            if is_late is None:
                total.duplicates += 1
                continue
            total.late += is_late
            hour_ms = item["ts"] // 3_600_000 * 3_600_000
            place = _Place(item["kind"], hour_ms, item["cluster"], item["node"], item["boot_id"], is_late)
            places[place].append(item)
        _quarantine(root, segment, rejected)
        state.taken[segment.name] = segment.path.stat().st_size
        total.segments += 1
    for place, rows in sorted(places.items()):
        _write(root, place, rows, state, total)


def _write(root: Path, place: _Place, rows: list[Row], state: Checkpoint, total: Taken) -> None:
    """Write one file; rows with a value of a wrong type are counted as bad and left out."""
    converted = arrow.convert(place.kind, rows)
    if converted.bad:
        state.watch.rejected(Problem.BAD, len(converted.bad))
        total.bad += len(converted.bad)
    if converted.table.num_rows == 0:
        return
    numbers = [row["seq"] for row in rows]
    file = layout.DataFile(
        place.kind,
        layout.hour_of(place.hour_ms),
        place.cluster,
        place.node,
        place.boot_id,
        min(numbers),
        max(numbers),
        place.is_late,
    )
    arrow.write(converted.table, file.path(root), unique=True)
    total.rows += converted.table.num_rows
    total.files += 1


def _quarantine(root: Path, segment: Segment, lines: list[bytes]) -> None:
    """Write the rejected lines to a file for the operator."""
    if not lines:
        return
    directory = root / layout.QUARANTINE / layout.escape(segment.node_directory.name)
    directory.mkdir(parents=True, exist_ok=True)
    ended = itertools.chain.from_iterable((line, b"" if line.endswith(b"\n") else b"\n") for line in lines)
    write_atomically(directory / segment.name, b"".join(ended))
