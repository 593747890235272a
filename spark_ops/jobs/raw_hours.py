"""The raw rows of an hour are rolled up on the driver, as far as loads need it, without Spark.

It is for hours without a valid rollup: the last one, and those that a window begins or ends in. The figures are those
of `rollup`. Source: spark §3.1.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from spark_ops.jobs.files import HOUR_S, VERSIONS, HourFiles
from spark_ops.jobs.numbered_names import Nodes, Queues, changes
from spark_ops.jobs.queue_hours import MIRROR, QueueHour
from spark_ops.jobs.rollup_hours import STATE, States, chunk, cpu_of, roles, state_table
from spark_ops.jobs.small_columns import Bools, Groups, Longs, Numbers, are, codes, numbers
from spark_ops.jobs.small_files import rows_of_file
from spark_ops.telemetry.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENVELOPE: Final = ("v", "cluster", "node", "boot_id", "seq", "ts", "mono_ms")
_COUNTERS: Final = ("cpu_us_total", "disk_us_total", "pub_bytes_total", "dlv_bytes_total")
COLUMNS: Final[dict[Kind, tuple[str, ...]]] = {
    "queue": (
        *(*_ENVELOPE, "vhost", "queue", "role", *_COUNTERS),
        *("mem_bytes", "disk_bytes", "sync_state", "mirror_lag_ops", *STATE),
    ),
    "node": (
        *(*_ENVELOPE, "interval_ms", "cpu_user_ms_total", "cpu_sys_ms_total", "clients_us_total"),
        *("mem_rss", "fd_used", "mem_limit", "disk_free", "disk_limit", "fd_limit", "capacity_hints"),
    ),
}
_ENCODED: Final = ("cluster", "node", "boot_id", "vhost", "role", "sync_state")
_SAMPLE_MAX: Final = 2**47
"""Greater samples of a gauge are reduced to this one, as in `rollup`."""


class Misplaced(Exception):
    """A row is not of the hour of its directory, so that hours cannot be summed up one after the other."""


@dataclass(frozen=True, slots=True)
class RawRows:
    """The rows of a cluster in an hour.   table: has `COLUMNS`.   unknown_versions: number of rows that are too new, of
    all clusters."""

    hour_s: int
    table: pa.Table
    unknown_versions: int


def raw_rows(kind: Kind, hour: HourFiles, cluster: str, since: float, until: float) -> RawRows:
    """Return the rows of an hour with times in [since, until), s since 1970, each once.

    Raises: Misplaced; OSError; pyarrow.ArrowException if a file cannot be read.
    """
    wanted = _schema(kind)
    unknown, tables = 0, []
    for path in hour.paths:
        table = rows_of_file(path, wanted)
        version, ts = numbers(table, "v"), numbers(table, "ts")
        is_known = version.known & (version.values >= VERSIONS[0]) & (version.values <= VERSIONS[1])
        kept = ts.known & (ts.values >= round(since * 1000)) & (ts.values < round(until * 1000))
        kept &= are(table, "cluster", cluster)
        if hour.has_unknown:
            unknown += int(table.num_rows - is_known.sum())
            kept &= is_known
        hours = ts.values[kept] // (HOUR_S * 1000) * HOUR_S
        if (hours != hour.hour_s).any():
            raise Misplaced(str(path))
        tables.append(table if kept.all() else table.filter(pa.array(kept)))
    whole = pa.concat_tables(tables).combine_chunks() if tables else wanted.empty_table()
    return RawRows(hour.hour_s, whole if hour.is_unique else _once(whole), unknown)


def _schema(kind: Kind) -> pa.Schema:
    from spark_ops.telemetry.arrow import SCHEMAS

    fields = (SCHEMAS[kind].field(name) for name in COLUMNS[kind])
    encoded = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([field.with_type(encoded) if field.name in _ENCODED else field for field in fields])


def _once(table: pa.Table) -> pa.Table:
    """Return the rows without those that come twice."""
    process, seq = codes(table, ("node", "boot_id")), numbers(table, "seq").values
    order = np.lexsort((seq, process))
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (np.diff(seq[order]) != 0) | (np.diff(process[order]) != 0)
    if is_first.all():
        return table
    return table.take(pa.array(np.sort(order[is_first])))


class Rolled:
    """Rows of a table in groups, each in order of `seq`.   code: the same for rows of a group."""

    def __init__(self, table: pa.Table, keys: "Sequence[Longs]") -> None:
        self._table = table
        seq = numbers(table, "seq").values
        self.order: Longs | None = None if _is_rising((*keys, seq)) else np.lexsort((seq, *reversed(keys)))
        is_new = np.ones(table.num_rows, dtype=np.bool_)
        if table.num_rows:
            is_new[1:] = np.logical_or.reduce([np.diff(self.ordered(key)) != 0 for key in keys])
        self.groups = Groups(np.cumsum(is_new))

    def ordered(self, column: Any) -> Any:
        """Return values in the order of groups."""
        return column if self.order is None else column[self.order]

    def column(self, name: str) -> Numbers:
        """Return a column in the order of groups."""
        found = numbers(self._table, name)
        return found if self.order is None else found.take(self.order)

    @property
    def lasts(self) -> Longs:
        """The row of the table that is the last of each group."""
        lasts: Longs = self.ordered(np.arange(self._table.num_rows))[self.groups.lasts]
        return lasts

    def added(self, name: str) -> Numbers:
        """Return by how much a counter rose in each group."""
        column = self.column(name)
        most, least = self.groups.most(column), self.groups.least(column)
        return Numbers(most.values - least.values, most.known)

    def samples(self, name: str) -> tuple[Numbers, Numbers]:
        """Return the sum and the number of a gauge's samples in each group."""
        column = self.column(name)
        bounded = Numbers(np.clip(column.values, -_SAMPLE_MAX, _SAMPLE_MAX).astype(np.int64), column.known)
        count = self.groups.sums(Numbers(column.known.astype(np.int64), np.ones_like(column.known)))
        return self.groups.sums(bounded), count


def _is_rising(keys: "Sequence[Longs]") -> bool:
    """True if rows are in the order of the first key, those with the same one in the order of the next, and so on."""
    if len(keys[0]) < 2:
        return True
    is_above: Bools = np.zeros(len(keys[0]) - 1, dtype=np.bool_)
    for key in keys:
        step = np.diff(key)
        if ((step < 0) & ~is_above).any():
            return False
        is_above |= step > 0
    return True


def raw_queue_hour(raw: RawRows, queues: Queues, nodes: Nodes, lag_since_ms: int) -> tuple[QueueHour, States]:
    """Return the rollup of an hour's rows of queues, and a function for their states.

    lag_since_ms: the lag of mirrors counts from this time on, ms since 1970.
    """
    table = raw.table
    for name in ("vhost", "queue", "node"):
        if table.column(name).null_count:
            table = table.filter(pc.is_valid(table.column(name)))
    vhosts, names = queues.vhosts(chunk(table, "vhost")), chunk(table, "queue")
    starts = np.flatnonzero(changes(vhosts, names))
    numbered = queues.numbers(vhosts[starts], names.take(pa.array(starts)))
    queue = np.repeat(numbered, np.diff(np.append(starts, table.num_rows)))
    node, role = nodes.numbers(chunk(table, "node")), roles(chunk(table, "role"))
    boot = np.asarray(pc.fill_null(chunk(table, "boot_id").indices, -1).to_numpy(zero_copy_only=False))
    rolled = Rolled(table, (queue, node, boot.astype(np.int64), role))
    lasts = rolled.lasts
    last = table.select(["mirror_lag_ops", "disk_bytes", "sync_state"]).take(pa.array(lasts))
    last_ts = rolled.groups.most(rolled.column("ts")).values
    lag, role = numbers(last, "mirror_lag_ops"), role[lasts]
    counts = are(last, "sync_state", "synced") & (role == MIRROR) & (last_ts >= lag_since_ms)
    memory, disk = rolled.samples("mem_bytes"), rolled.samples("disk_bytes")
    added = {name: rolled.added(name) for name in ("mono_ms", *_COUNTERS)}
    hour = QueueHour(
        raw.hour_s,
        queue[lasts],
        node[lasts],
        role,
        last_ts,
        ms=added["mono_ms"],
        cpu_us=cpu_of(added["cpu_us_total"], added["disk_us_total"]),
        in_bytes=added["pub_bytes_total"],
        out_bytes=added["dlv_bytes_total"],
        memory=memory[0],
        memory_n=memory[1],
        disk=disk[0],
        disk_n=disk[1],
        last_disk=numbers(last, "disk_bytes"),
        lag=Numbers(lag.values, lag.known & counts),
    )

    def states(rows: Longs) -> pa.Table:
        return state_table(table.select(list(STATE)).take(pa.array(lasts[rows])), "")

    return hour, states
