"""This module finds the files below a root that a job may read, and reads their Parquet footers.

A torn file would make the whole read fail, so each footer is read before Spark starts. The footers tell the number of
rows, whether rows may have an unknown schema, and whether rows may be duplicates. An hour without duplicates needs no
deduplication, which takes longer than the rest of a read. Footers are read in threads, and a process reads each only
once: with many small files they would cost a judgement each minute more than Spark does. Source: spark §2.7.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_ops.telemetry import damage, layout, manifest
from spark_ops.telemetry.schema import FIELDS, VERSION, Kind

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData  # type: ignore[import-untyped]

UNIQUE_MARK: Final = b"fluffle.unique"
"""The metadata key of a file in which no two rows have the same key, as its writer has ensured."""

VERSIONS: Final = (0, VERSION + 1)
"""The oldest and the newest version of rows that are read. A version only adds fields, so rows of the next version can
be read (spark §6.22). Rows of later versions are left out and counted."""

HOUR_S: Final = 3600
SKEW_MAX_S: Final = 25 * HOUR_S
"""A node's clock may be wrong by this many seconds; the rows of a node whose clock is more wrong are not found."""
SKEW_ERR_MS_MAX: Final = 1000
"""A clock's skew is subtracted from its times only if the error of the skew is at most this, in ms."""
_ALIKE_MS: Final = 30_000
"""If the skews in a file differ by more, its rows are of clocks that are apart, and the rows themselves are read."""

KNOWN_MAX: Final = 200_000
"""The maximal number of footers that a process remembers, some 500 bytes each; those used last are kept."""
_THREADS: Final = 8
_THREADED: Final = 64
"""For fewer files than this, threads are not worth their start."""

_PHYSICAL: Final = {
    "int32": ("INT32",),
    "int64": ("INT32", "INT64"),
    "double": ("DOUBLE",),
    "bool": ("BOOLEAN",),
    "string": ("BYTE_ARRAY",),
}
"""The physical types of a column that can be read as each type. A later version may widen int32 to int64."""


@dataclass(frozen=True, slots=True)
class HourFiles:
    """The files of an hour.   has_unknown: rows may have an unknown version.   is_unique: there are no duplicates."""

    hour_s: int
    paths: tuple[Path, ...]
    rows: int
    has_unknown: bool
    is_unique: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The files of a kind in a time range.   torn: paths, relative to the root, of files that cannot be read: without
    an intact footer, or recorded in `telemetry.damage`."""

    hours: tuple[HourFiles, ...]
    torn: tuple[str, ...]

    @property
    def rows(self) -> int:
        """The number of rows in all files, according to the footers."""
        return sum(hour.rows for hour in self.hours)


@dataclass(frozen=True, slots=True)
class Footer:
    """A file's footer, as far as `find` needs it.

    has_unknown, is_unique: as in `HourFiles`.   process: the boot_id and the lowest and highest `seq` of a unique file
    whose rows are of one process.   times: as `times_of` returns them.
    """

    rows: int
    has_unknown: bool
    is_unique: bool
    process: tuple[str, int, int] | None
    times: tuple[int, int] | None = None


def footer(path: Path, kind: Kind) -> Footer | None:
    """Return the footer of a file; None if the file cannot be read as one of this kind."""
    try:
        status = path.stat()
    except OSError:
        return None
    return _footer(path, kind, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=KNOWN_MAX)
def _footer(path: Path, kind: Kind, _size: int, _mtime_ns: int) -> Footer | None:
    metadata = read_footer(path)
    if metadata is None or not _fits(metadata, kind):
        return None
    columns = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    versions = _range(metadata, columns.get("v"))
    has_unknown = versions is None or versions[0] < VERSIONS[0] or versions[1] > VERSIONS[1]
    boots, seqs = _range(metadata, columns.get("boot_id")), _range(metadata, columns.get("seq"))
    when = times_of(path, metadata)
    if UNIQUE_MARK not in (metadata.metadata or {}) or boots is None or seqs is None:
        return Footer(metadata.num_rows, has_unknown, False, None, when)
    process = (boots[0], seqs[0], seqs[1]) if boots[0] == boots[1] else None
    return Footer(metadata.num_rows, has_unknown, True, process, when)


def _footers(paths: Sequence[Path], kind: Kind) -> list[Footer | None]:
    """Return the footers of files, in their order. On a network file system, reading one is mostly waiting."""
    if len(paths) < _THREADED:
        return [footer(path, kind) for path in paths]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda path: footer(path, kind), paths))


@dataclass(slots=True)
class _Hour:
    """The accumulated contents of the footers of an hour's files."""

    paths: list[Path] = field(default_factory=list)
    rows: int = 0
    has_unknown: bool = False
    is_unique: bool = True
    processes: list[tuple[str, int, int]] = field(default_factory=list)
    mixed: int = 0
    """The number of files with rows of several processes."""

    def add(self, path: Path, footer: Footer) -> None:
        self.paths.append(path)
        self.rows += footer.rows
        self.has_unknown |= footer.has_unknown
        self.is_unique &= footer.is_unique
        if footer.process is not None:
            self.processes.append(footer.process)
        elif footer.is_unique:
            self.mixed += 1

    def hour_files(self, hour_s: int) -> HourFiles:
        processes = sorted(self.processes)
        overlap = any(a[0] == b[0] and b[1] <= a[2] for a, b in pairwise(processes))
        alone = not self.mixed or len(self.paths) == 1
        is_unique = self.is_unique and alone and not overlap
        return HourFiles(hour_s, tuple(self.paths), self.rows, self.has_unknown, is_unique)


def find(
    root: Path,
    kind: Kind,
    since: float | None,
    until: float | None,
    cluster: str | None = None,
    *,
    is_pruned: bool = False,
) -> Found:
    """Find the files of the hours that overlap [since, until), in s since 1970; None: no limit.

    cluster: only files of this cluster are looked at; None: those of all.
    is_pruned: without the files that have, by their footers, no row of [since, until).
    Raises: FileNotFoundError if the root is no directory; OSError.
    """
    hours: list[HourFiles] = []
    torn: list[str] = []
    damaged = damage.recorded(root)
    for hour_s, folder in hour_folders(root, kind, since, until):
        accumulated = _Hour()
        names = _names(folder, cluster)
        try:
            names = manifest.live(names, manifest.read(folder))
        except manifest.ManifestError:
            # Replaced files are then read beside the merged ones, and deduplication drops their rows.
            accumulated.is_unique = False
            torn.append(str((folder / manifest.NAME).relative_to(root)))
        paths = [folder / name for name in names]
        for path, footer in zip(paths, _footers(paths, kind), strict=True):
            if footer is None or damage.is_recorded(path, root, damaged):
                torn.append(str(path.relative_to(root)))
            elif footer.rows and not (is_pruned and _is_outside(footer, since, until)):
                accumulated.add(path, footer)
        if accumulated.paths:
            hours.append(accumulated.hour_files(hour_s))
    return Found(tuple(hours), tuple(torn))


def _is_outside(footer: Footer, since: float | None, until: float | None) -> bool:
    """True if a file has no row of [since, until)."""
    if footer.times is None:
        return False
    first, last = footer.times
    return (since is not None and last < since * 1000) or (until is not None and first >= until * 1000)


def _names(folder: Path, cluster: str | None) -> list[str]:
    """Return the files of an hour, relative to its folder.   cluster: as for `find`."""
    if cluster is None:
        return manifest.files_of_hour(folder)
    own = layout.cluster_directory(folder, cluster)
    return [f"{own.name}/{name}" for name in manifest.files_of_hour(own)]


def skewed(root: Path, kind: Kind, since: float, until: float, cluster: str | None = None) -> list[Path]:
    """Return the files with rows of [since, until), s since 1970, whose node's clock puts them into other hours.

    Only files that were written at about that time are read. The rows of their nodes show how wrong the clock is
    (`skew_ms`).   cluster: as for `find`.   Raises: FileNotFoundError if the root is no directory; OSError.
    """
    found = []
    damaged = damage.recorded(root)
    for hour_s, folder in hour_folders(root, kind, since - SKEW_MAX_S, until + SKEW_MAX_S):
        if hour_s + HOUR_S > since and hour_s < until:
            continue  # `find` finds its files
        for name in _names(folder, cluster):
            path = folder / name
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if not since <= status.st_mtime <= until + 2 * HOUR_S or damage.is_recorded(path, root, damaged):
                continue
            own = _footer(path, kind, status.st_size, status.st_mtime_ns)
            both = None if own is None else own.times
            if both is not None and both[0] < until * 1000 and both[1] >= since * 1000:
                found.append(path)
    return found


def times(path: Path, kind: Kind) -> tuple[int, int] | None:
    """Return what `times_of` does; None if the file cannot be read as one of this kind, too."""
    own = footer(path, kind)
    return None if own is None else own.times


def times_of(path: Path, metadata: "FileMetaData") -> tuple[int, int] | None:
    """Return the times of a file's first and last row, ms since 1970, by the clock of the other nodes if the skew is
    known; None if the file has no times. Raises: OSError."""
    columns = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    times = _range(metadata, columns.get("ts"))
    if times is None:
        return None
    skews, errors = _range(metadata, columns.get("skew_ms")), _range(metadata, columns.get("skew_err_ms"))
    if skews is None or errors is None:
        skews = _partly(metadata, columns.get("skew_ms"))
        if skews is None or abs(skews[0]) + abs(skews[1]) <= _ALIKE_MS:
            return times
    elif skews[1] - skews[0] <= _ALIKE_MS:
        if errors[1] > SKEW_ERR_MS_MAX:
            return times
        return times[0] - skews[1], times[1] - skews[1]
    return _times_of_rows(path)


def _times_of_rows(path: Path) -> tuple[int, int] | None:
    """Return the corrected times of the first and last row, from the rows; None if they cannot be read."""
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow.parquet import read_table

    try:
        table = read_table(path, columns=["ts", "skew_ms", "skew_err_ms"], partitioning=None)
    except (pyarrow.ArrowException, FileNotFoundError):
        return None
    times = [
        ts - (skew if skew is not None and error is not None and error <= SKEW_ERR_MS_MAX else 0)
        for ts, skew, error in zip(*(column.to_pylist() for column in table.columns), strict=True)
    ]
    return (min(times), max(times)) if times else None


def hour_folders(root: Path, kind: str, since: float | None, until: float | None) -> list[tuple[int, Path]]:
    """Return the begin (s since 1970) and the folder of each hour of a kind that overlaps [since, until), in order.

    Raises: FileNotFoundError if the root is no directory.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such directory")
    found = []
    for hour in layout.existing_hours(root, kind):
        hour_s = int(hour.timestamp())
        if (since is None or hour_s + HOUR_S > since) and (until is None or hour_s < until):
            found.append((hour_s, layout.hour_directory(root, kind, hour)))
    return found


def hour_folder(root: Path, kind: str, hour_s: int) -> Path:
    """Return the folder of an hour of a kind, whether it exists or not."""
    return layout.hour_directory(root, kind, datetime.fromtimestamp(hour_s, UTC))


def read_footer(path: Path) -> "FileMetaData | None":
    """Return the metadata of a Parquet file; None if the file cannot be read, for example because it is torn."""
    import pyarrow
    from pyarrow.parquet import read_metadata

    try:
        return read_metadata(path)
    except (pyarrow.ArrowException, OSError):
        return None


def _fits(metadata: "FileMetaData", kind: Kind) -> bool:
    """True if the types of all known columns can be read as the types of our schema."""
    fields = FIELDS[kind]
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        wanted = fields.get(column.path)
        if wanted is not None and column.physical_type not in _PHYSICAL.get(wanted, ()):
            return False
    return True


def _range(metadata: "FileMetaData", column: int | None) -> tuple[Any, Any] | None:
    """Return the minimum and maximum of a column; None if statistics are missing or the column has nulls."""
    if column is None:
        return None
    chunks = (metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups))
    statistics = list(chunks)
    if any(each is None or not each.has_min_max or each.null_count for each in statistics):
        return None
    return min(each.min for each in statistics), max(each.max for each in statistics)


def _partly(metadata: "FileMetaData", column: int | None) -> tuple[Any, Any] | None:
    """Return the minimum and maximum of the values of a column that may have nulls; None if no value is known."""
    if column is None:
        return None
    chunks = (metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups))
    known = [each for each in chunks if each is not None and each.has_min_max]
    return (min(each.min for each in known), max(each.max for each in known)) if known else None
