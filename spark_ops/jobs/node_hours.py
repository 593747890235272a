"""The loads of the nodes of a cluster are made from their rollups, and from what their queues had in the same hours.

There is a row for each node, process and hour, some ten thousand in a day of a thousand nodes. Pure, but for the
function that reads a stored rollup.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

from spark_ops.jobs.hourly_estimates import Estimates, quotient, weight_of
from spark_ops.jobs.node_load import NodeLoad
from spark_ops.jobs.queue_hours import OfNodes
from spark_ops.jobs.raw_hours import RawRows, Rolled
from spark_ops.jobs.rollup_hours import leaves
from spark_ops.jobs.small_columns import Numbers, codes

_LAST: Final = ("mem_limit", "disk_free", "disk_limit", "fd_limit", "capacity_hints")
_COUNTERS: Final = ("mono_ms", "cpu_user_ms_total", "cpu_sys_ms_total", "clients_us_total")
_FITS: Final = ("mem_rss", "fd_used")
_COLUMNS: Final = (
    *("cluster", "node", "first_ts", "last_ts", "covered_ms"),
    *(f"{name}_{end}" for name in _COUNTERS for end in ("min", "max")),
    *(f"{name}_fit.{part}" for name in _FITS for part in ("n", "y")),
    *(f"last.{name}" for name in _LAST),
)


@dataclass(frozen=True, slots=True)
class NodeHour:
    """A process of a node in an hour; None: not known.

    ms: the time between its first and last row.   cpu_us, clients_us: what was used in that time.   memory, fds: sums
    of samples.   memory_n, fds_n: numbers of samples.   first_ts, last_ts: ms since 1970.   last: fields of its last
    row.
    """

    node: str
    first_ts: int
    last_ts: int
    covered_ms: int
    ms: int | None
    cpu_us: int | None
    clients_us: int | None
    memory: int | None
    memory_n: int
    fds: int | None
    fds_n: int
    last: dict[str, Any]


def rollup_nodes(path: Path, cluster: str) -> list[NodeHour]:
    """Return the rows of a cluster in a stored rollup. Raises: OSError; pyarrow.ArrowException if it cannot be read."""
    with ParquetFile(path, page_checksum_verification=True) as file:
        there = leaves(file.schema_arrow)
        table = file.read([name for name in _COLUMNS if name in there], use_threads=False)
    is_own = pc.and_(pc.equal(table.column("cluster"), cluster), pc.is_valid(table.column("node")))
    return [_of_row(row) for row in table.filter(is_own).to_pylist()]


def _of_row(row: dict[str, Any]) -> NodeHour:
    def added(name: str) -> int | None:
        low, high = row.get(f"{name}_min"), row.get(f"{name}_max")
        return None if low is None or high is None else high - low

    def samples(name: str) -> tuple[int | None, int]:
        fit = row.get(f"{name}_fit") or {}
        return (None if fit.get("y") is None else int(fit["y"])), fit.get("n") or 0

    return NodeHour(
        row["node"],
        row["first_ts"],
        row["last_ts"],
        row["covered_ms"] or 0,
        added("mono_ms"),
        _busy_us(added("cpu_user_ms_total"), added("cpu_sys_ms_total")),
        added("clients_us_total"),
        *samples("mem_rss"),
        *samples("fd_used"),
        row.get("last") or {},
    )


def _busy_us(user_ms: int | None, system_ms: int | None) -> int | None:
    return None if user_ms is None or system_ms is None else (user_ms + system_ms) * 1000


def raw_nodes(raw: RawRows) -> list[NodeHour]:
    """Return the rollup of an hour's rows of nodes."""
    table = raw.table
    if table.column("node").null_count:
        table = table.filter(pc.is_valid(table.column("node")))
    rolled = Rolled(table, (codes(table, ("node", "boot_id")),))
    added = {name: _listed(rolled.added(name)) for name in _COUNTERS}
    samples = {name: [_listed(each) for each in rolled.samples(name)] for name in _FITS}
    times, covered = rolled.column("ts"), rolled.column("interval_ms")
    first, last = (_listed(each) for each in (rolled.groups.least(times), rolled.groups.most(times)))
    covered_ms = _listed(rolled.groups.sums(covered))
    return [
        NodeHour(
            row["node"],
            first[at] or 0,
            last[at] or 0,
            covered_ms[at] or 0,
            added["mono_ms"][at],
            _busy_us(added["cpu_user_ms_total"][at], added["cpu_sys_ms_total"][at]),
            added["clients_us_total"][at],
            samples["mem_rss"][0][at],
            samples["mem_rss"][1][at] or 0,
            samples["fd_used"][0][at],
            samples["fd_used"][1][at] or 0,
            {name: row[name] for name in _LAST},
        )
        for at, row in enumerate(table.select(["node", *_LAST]).take(pa.array(rolled.lasts)).to_pylist())
    ]


def _listed(column: Numbers) -> list[int | None]:
    both = zip(column.values.tolist(), column.known.tolist(), strict=True)
    return [value if known else None for value, known in both]


FIGURES: Final = ("base_cpu", "cpu", "clients_cpu", "base_memory", "base_fds")


def node_loads(
    hours: Mapping[int, Iterable[NodeHour]],
    of_queues: Mapping[int, OfNodes],
    disk: Numbers,
    numbers: Mapping[str, int],
    until: float,
) -> dict[str, NodeLoad]:
    """Return the load of each node with rows.

    hours: the rows by hour, s since 1970.   of_queues: what the queues of nodes had in each hour.   disk: bytes of all
    queues of each node.   numbers: of nodes, in columns.   until: end of the window, s since 1970.
    """
    estimates = {figure: Estimates(len(numbers), len(hours)) for figure in FIGURES}
    rows: dict[str, list[NodeHour]] = defaultdict(list)
    for hour_s, of_hour in hours.items():
        by_node: dict[str, list[NodeHour]] = defaultdict(list)
        for row in of_hour:
            by_node[row.node].append(row)
            rows[row.node].append(row)
        values = _values(by_node, numbers, of_queues.get(hour_s))
        for figure, column in values.items():
            estimates[figure].add(column, weight_of(hour_s, until))
    loads = {figure: _listed_floats(each.load()) for figure, each in estimates.items()}
    found = {}
    for node, own in rows.items():
        at = numbers[node]
        has_disk = at < len(disk.known) and disk.known[at]
        found[node] = NodeLoad(
            **{figure: loads[figure][at] for figure in FIGURES},
            first_ts=min(row.first_ts for row in own),
            last_ts=max(row.last_ts for row in own),
            covered_ms=sum(row.covered_ms for row in own),
            now=max(own, key=lambda row: row.last_ts).last,
            queues_disk=float(disk.values[at]) if has_disk else None,
        )
    return found


def _listed_floats(column: Numbers) -> list[float | None]:
    both = zip(column.values.tolist(), column.known.tolist(), strict=True)
    return [float(value) if known else None for value, known in both]


def _values(
    by_node: Mapping[str, list[NodeHour]], numbers: Mapping[str, int], of_queues: OfNodes | None
) -> dict[str, Numbers]:
    """Return the values of an hour by figure."""
    names = ("ms", "cpu_us", "clients_us", "memory", "memory_n", "fds", "fds_n")
    sums = {
        name: Numbers(np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.bool_)) for name in names
    }
    for node, own in by_node.items():
        at = numbers[node]
        for name, column in sums.items():
            values = [value for row in own if (value := getattr(row, name)) is not None]
            if values:
                column.values[at], column.known[at] = sum(values), True
    cpu = quotient(sums["cpu_us"], sums["ms"], 1000.0)
    memory = quotient(sums["memory"], sums["memory_n"])
    return {
        "base_cpu": _rest(cpu, None if of_queues is None else of_queues.cpu),
        "cpu": cpu,
        "clients_cpu": quotient(sums["clients_us"], sums["ms"], 1000.0),
        "base_memory": _rest(memory, None if of_queues is None else of_queues.memory),
        "base_fds": quotient(sums["fds"], sums["fds_n"]),
    }


def _rest(whole: Numbers, of_queues: Any) -> Numbers:
    """Return a node's figure minus that of its queues; at least 0, since the two are sampled at different times."""
    if of_queues is None:
        return whole
    queues = np.zeros(len(whole.values))
    queues[: len(of_queues)] = of_queues[: len(queues)]
    return Numbers(np.where(whole.known, np.maximum(whole.values - queues, 0.0), 0.0), whole.known)
