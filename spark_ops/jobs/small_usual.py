"""The usual figures of queues (`usual`) are read on the driver from the rollups of a week, for windows without Spark.

A rollup never changes, so a process that judges each minute remembers what it has read, and reads one rollup an hour.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

from spark_ops.jobs.rollup_store import stored
from spark_ops.jobs.small_columns import are
from spark_ops.jobs.usual import HISTORY_S, Usual
from spark_ops.telemetry.schema import HISTOGRAM_BUCKETS

ROWS_MAX: Final = 1_000_000
"""The maximal number of rows of rollups that are read here; a week of more copies is left to Spark."""
USUAL_BYTES: Final = 64 << 20
"""The maximal size of the figures that a process remembers; those that were used last are kept."""
_COLUMNS: Final = (
    "cluster",
    "vhost",
    "queue",
    "role",
    "first.confirm_us",
    "last.confirm_us",
    "last.msg_bytes",
)

Names = Sequence[tuple[str, str]]


class _Masters:
    """The figures of the masters of an hour: names, bytes at its end, and the confirms in it by bucket."""

    def __init__(self, path: Path, cluster: str) -> None:
        with ParquetFile(path) as file:
            table = file.read(list(_COLUMNS), use_threads=False)
        table = table.filter(pa.array(are(table, "role", "master") & are(table, "cluster", cluster)))
        self.at: dict[tuple[str, str], list[int]] = defaultdict(list)
        for at, row in enumerate(table.select(["vhost", "queue"]).to_pylist()):
            self.at[row["vhost"], row["queue"]].append(at)
        ends = {end: table.column(end).combine_chunks() for end in ("first", "last")}
        sizes = pc.struct_field(ends["last"], "msg_bytes")
        self.has_size = np.asarray(sizes.is_valid().to_numpy(zero_copy_only=False))
        self.sizes = np.asarray(pc.fill_null(sizes, 0).to_numpy(zero_copy_only=False))
        first, last = (_buckets(pc.struct_field(ends[end], "confirm_us")) for end in ("first", "last"))
        self.confirms = np.maximum(last - first, 0)
        self.size_bytes = self.confirms.nbytes + self.sizes.nbytes + 200 * len(self.sizes)


def _buckets(histograms: pa.Array) -> npt.NDArray[np.int64]:
    """Return histograms as rows of a matrix; a bucket that is missing is 0."""
    found = np.zeros((len(histograms), HISTOGRAM_BUCKETS), dtype=np.int64)
    for at, values in enumerate(histograms.to_pylist()):
        for bucket, value in enumerate((values or ())[:HISTOGRAM_BUCKETS]):
            found[at, bucket] = value or 0
    return found


class _Known:
    """The figures of rollups by path, cluster, size and time, at most `USUAL_BYTES` of them."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._found: OrderedDict[tuple[Any, ...], _Masters] = OrderedDict()

    def of(self, path: Path, cluster: str) -> _Masters:
        """Return the figures of a rollup. Raises: OSError; pyarrow.ArrowException if it cannot be read."""
        status = path.stat()
        key = (path, cluster, status.st_size, status.st_mtime_ns)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = _Masters(path, cluster)
            self.size_bytes += found.size_bytes
            while self.size_bytes > USUAL_BYTES and len(self._found) > 1:
                self.size_bytes -= self._found.popitem(last=False)[1].size_bytes
        self._found.move_to_end(key)
        return found


_KNOWN: Final = _Known()


def small_usual(root: Path, cluster: str, start_s: float, queues: Names) -> Usual | None:
    """Return the usual figures of queues in the week before `start_s`, s since 1970, from stored rollups.

    None: there are more rows than `ROWS_MAX`, or a rollup cannot be read. Raises: OSError.
    """
    paths = [path for path, _ in stored(root, "queue", start_s - HISTORY_S, start_s).values()]
    sizes: dict[tuple[str, str], list[int]] = defaultdict(list)
    confirms: dict[tuple[str, str], npt.NDArray[np.int64]] = {}
    try:
        if sum(ParquetFile(path).metadata.num_rows for path in paths) > ROWS_MAX:
            return None
        for path in paths:
            masters = _KNOWN.of(path, cluster)
            for name in queues:
                for at in masters.at.get(name, ()):
                    if masters.has_size[at]:
                        sizes[name].append(int(masters.sizes[at]))
                    confirms[name] = confirms.get(name, 0) + masters.confirms[at]
    except (pa.ArrowException, FileNotFoundError):
        return None
    return Usual(
        {name: float(np.percentile(own, 95)) for name, own in sizes.items()},
        {name: tuple(own.tolist()) for name, own in confirms.items() if own.any()},
    )
