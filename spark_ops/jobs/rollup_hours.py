"""A stored rollup of queues is read on the driver as columns of an hour, without Spark.

Only the columns that loads need are read, some of them only for the rows that need them: the state of a queue is in one
row of all its hours. A batch of rows is in memory as Arrow at a time; what is kept of it are numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

from spark_ops.jobs.numbered_names import Nodes, Queues, changes
from spark_ops.jobs.queue_hours import MASTER, MIRROR, OTHER, QueueHour
from spark_ops.jobs.small_columns import Numbers

if TYPE_CHECKING:
    from spark_ops.jobs.small_columns import Longs

BATCH_ROWS: Final = 1 << 18
STATE: Final = ("msg_bytes", "publishers_on", "consumers_on")
"""The fields of the newest row of a master that tell a queue's state."""

_NAMES: Final = ("cluster", "vhost", "queue", "node", "role")
_ENCODED: Final = ("cluster", "vhost", "node", "role")
_COUNTERS: Final = ("mono_ms", "cpu_us_total", "disk_us_total", "pub_bytes_total", "dlv_bytes_total")
_NUMBERS: Final = (
    "last_ts",
    *(f"{name}_{end}" for name in _COUNTERS for end in ("min", "max")),
    *(f"{name}_fit.{part}" for name in ("mem_bytes", "disk_bytes") for part in ("n", "y")),
    "last.disk_bytes",
)
_LAG: Final = ("last.sync_state", "last.mirror_lag_ops")

States = Callable[["Longs"], "pa.Table"]
"""A function that returns the fields of `STATE` of some rows of an hour, in their order."""


_RATES: Final = ("ms", "cpu_us", "in_bytes", "out_bytes")
_FIGURES: Final = (*_RATES, "memory", "memory_n", "disk", "disk_n", "last_disk", "lag")


@dataclass(slots=True)
class _Read:
    """The columns that are kept of the batches of a file.

    figures: columns of `QueueHour`.   vhosts, names, lengths: of adjacent rows of a queue.   row: of the file.
    """

    figures: "dict[str, list[Numbers]]" = field(default_factory=lambda: {name: [] for name in _FIGURES})
    vhosts: "list[Longs]" = field(default_factory=list)
    names: "list[pa.Array]" = field(default_factory=list)
    lengths: "list[Longs]" = field(default_factory=list)
    node: "list[Longs]" = field(default_factory=list)
    role: "list[Longs]" = field(default_factory=list)
    last_ts: "list[Longs]" = field(default_factory=list)
    row: "list[Longs]" = field(default_factory=list)


def rollup_hour(
    path: Path, hour_s: int, cluster: str, queues: Queues, nodes: Nodes, lag_since_ms: int
) -> tuple[QueueHour, States]:
    """Return the rows of a cluster in a stored rollup, and a function for their states.

    lag_since_ms: the lag of mirrors counts from this time on, ms since 1970.
    Raises: OSError; pyarrow.ArrowException if the file cannot be read.
    """
    with ParquetFile(path, page_checksum_verification=True, read_dictionary=list(_ENCODED)) as file:
        wanted = (*_NAMES, *_NUMBERS, *(_LAG if (hour_s + 3600) * 1000 > lag_since_ms else ()))
        there = leaves(file.schema_arrow)
        read, first = _Read(), 0
        for batch in file.iter_batches(BATCH_ROWS, columns=[name for name in wanted if name in there]):
            table, row = _of_cluster(pa.Table.from_batches([batch]), cluster, first)
            first += batch.num_rows
            if len(row):
                _add(read, table, queues, nodes, lag_since_ms)
                read.row.append(row)
    row = _joined(read.row)

    def states(rows: "Longs") -> pa.Table:
        return _states(path, row[rows])

    return _hour(read, hour_s, queues), states


def leaves(schema: pa.Schema) -> set[str]:
    """Return the names of columns, and of fields of structs with the name of the struct before them."""
    found = set(schema.names)
    for outer in schema:
        if pa.types.is_struct(outer.type):
            found |= {f"{outer.name}.{inner.name}" for inner in outer.type}
    return found


def _of_cluster(table: pa.Table, cluster: str, first: int) -> "tuple[pa.Table, Longs]":
    """Return the rows of a cluster in a batch, and their places in the file.   first: the place of the batch."""
    row = np.arange(first, first + table.num_rows)
    is_own: Any = pc.equal(table.column("cluster"), cluster)
    for name in ("vhost", "queue", "node"):
        is_own = pc.and_(is_own, pc.is_valid(table.column(name)))
    kept = np.asarray(pc.fill_null(is_own, False).to_numpy(), dtype=np.bool_)
    return (table, row) if kept.all() else (table.filter(pa.array(kept)), row[kept])


def _add(read: _Read, table: pa.Table, queues: Queues, nodes: Nodes, lag_since_ms: int) -> None:
    """Keep what is needed of the rows of a batch."""
    vhosts, names = queues.vhosts(chunk(table, "vhost")), chunk(table, "queue")
    starts = np.flatnonzero(changes(vhosts, names))
    read.vhosts.append(vhosts[starts])
    read.names.append(names.take(pa.array(starts)))
    read.lengths.append(np.diff(np.append(starts, table.num_rows)))
    read.node.append(nodes.numbers(chunk(table, "node")))
    role, last_ts = roles(chunk(table, "role")), _numbers(table, "last_ts").values
    read.role.append(role)
    read.last_ts.append(last_ts)
    added = {name: _added(table, name) for name in _COUNTERS}
    lag, state = _numbers(table, _LAG[1]), _column(table, _LAG[0])
    counts = (role == MIRROR) & (last_ts >= lag_since_ms)
    if state is not None:
        counts &= np.asarray(pc.fill_null(pc.equal(state, "synced"), False).to_numpy(zero_copy_only=False))
    figures = {
        "ms": added["mono_ms"],
        "cpu_us": cpu_of(added["cpu_us_total"], added["disk_us_total"]),
        "in_bytes": added["pub_bytes_total"],
        "out_bytes": added["dlv_bytes_total"],
        "memory": _numbers(table, "mem_bytes_fit.y"),
        "memory_n": _numbers(table, "mem_bytes_fit.n"),
        "disk": _numbers(table, "disk_bytes_fit.y"),
        "disk_n": _numbers(table, "disk_bytes_fit.n"),
        "last_disk": _numbers(table, "last.disk_bytes"),
        "lag": Numbers(lag.values, lag.known & counts),
    }
    for name, column in figures.items():
        read.figures[name].append(column)


def chunk(table: pa.Table, name: str) -> pa.Array:
    """Return a column as one array."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _column(table: pa.Table, name: str) -> pa.Array | None:
    """Return a column, or a field of one of structs, as `leaves` names it; None if the table lacks it."""
    outer, _, inner = name.partition(".")
    if outer not in table.schema.names:
        return None
    column = chunk(table, outer)
    if not inner:
        return column
    return pc.struct_field(column, inner) if column.type.get_field_index(inner) >= 0 else None


def _numbers(table: pa.Table, name: str) -> Numbers:
    """Return a column of integers; all are unknown if the table lacks it."""
    column = _column(table, name)
    if column is None:
        return Numbers(np.zeros(table.num_rows, np.int64), np.zeros(table.num_rows, np.bool_))
    if not column.null_count:
        known = np.ones(len(column), dtype=np.bool_)
    elif column.null_count == len(column):
        return Numbers(np.zeros(len(column), np.int64), np.zeros(len(column), np.bool_))
    else:
        known = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    if not pa.types.is_decimal(column.type):
        whole = column if not column.null_count else pc.fill_null(column, 0)
        return Numbers(np.asarray(whole.to_numpy(zero_copy_only=False), dtype=np.int64), known)
    # A decimal has 128 bits; the lower half is the number, since sums of samples of an hour need no more.
    halves = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
    values = halves[column.offset : column.offset + len(column), 0]
    return Numbers(np.where(known, values, 0), known)


def roles(column: pa.Array) -> "Longs":
    """Return the number of each role."""
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    codes = {"master": MASTER, "mirror": MIRROR}
    known = np.array([*(codes.get(role, OTHER) for role in encoded.dictionary.to_pylist()), OTHER])
    # A null has the last number.
    places = pc.fill_null(encoded.indices, len(known) - 1).to_numpy(zero_copy_only=False)
    return np.asarray(known[places], dtype=np.int64)


def _joined(pieces: "Sequence[npt.NDArray[Any]]", of: type = np.int64) -> "npt.NDArray[Any]":
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=of)


def _hour(read: _Read, hour_s: int, queues: Queues) -> QueueHour:
    names = pa.concat_arrays(read.names) if read.names else pa.array([], pa.string())
    queue = np.repeat(queues.numbers(_joined(read.vhosts), names), _joined(read.lengths))
    figures: dict[str, Numbers] = {}
    for name in _FIGURES:
        pieces = read.figures.pop(name)  # so that a column is in memory twice, and not all of them
        figures[name] = Numbers(
            _joined([piece.values for piece in pieces]), _joined([piece.known for piece in pieces], np.bool_)
        )
    return QueueHour(hour_s, queue, _joined(read.node), _joined(read.role), _joined(read.last_ts), **figures)


def _added(table: pa.Table, name: str) -> Numbers:
    """Return by how much a counter rose in the time of each row."""
    low, high = _numbers(table, f"{name}_min"), _numbers(table, f"{name}_max")
    return Numbers(high.values - low.values, low.known & high.known)


def cpu_of(broker: Numbers, disk: Numbers) -> Numbers:
    """Return the CPU time of the broker's thread and of the disk's, which older nodes do not write."""
    return Numbers(broker.values + np.where(disk.known, disk.values, 0), broker.known)


def _states(path: Path, row: "Longs") -> pa.Table:
    """Return the state in some rows of a file, from the row groups that have them.   row: any order, all different."""
    columns = [f"last.{name}" for name in STATE]
    order = np.argsort(row, kind="stable")
    rising, tables = row[order], []
    with ParquetFile(path, page_checksum_verification=True) as file:
        there = leaves(file.schema_arrow)
        first = 0
        for group in range(file.num_row_groups):
            end = first + file.metadata.row_group(group).num_rows
            own = rising[np.searchsorted(rising, first) : np.searchsorted(rising, end)]
            if len(own):
                table = file.read_row_group(group, [name for name in columns if name in there])
                tables.append(state_table(table, "last.").take(pa.array(own - first)))
            first = end
    whole = pa.concat_tables(tables) if tables else state_table(pa.table({}), "")
    back = np.empty(len(row), dtype=np.int64)
    back[order] = np.arange(len(row))
    return whole.take(pa.array(back))


def state_table(table: pa.Table, prefix: str) -> pa.Table:
    """Return the columns of `STATE`, which have a prefix in a table; one that it lacks is null."""
    from spark_ops.telemetry.arrow import SCHEMAS

    schema = pa.schema([SCHEMAS["queue"].field(name) for name in STATE])
    found = []
    for wanted in schema:
        column = _column(table, prefix + wanted.name)
        if column is None:
            column = pa.nulls(table.num_rows, wanted.type)
        found.append(column if column.type == wanted.type else column.cast(wanted.type))
    return pa.Table.from_arrays(found, schema=schema)
