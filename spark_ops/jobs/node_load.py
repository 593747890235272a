"""The load of a node, and what a plan's input is made of it, however it was computed. Pure."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from spark_ops.planning.rows import ClusterRows, NodeRow

CPU_DIGITS: Final = 4
"""The number of decimals to which cores are rounded; bytes are rounded to integers."""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """The load of a node.   None: not known.

    base_cpu, cpu, clients_cpu: us per s, of all but its queues, of all, and for clients.   base_memory: bytes.
    base_fds: descriptors.   first_ts, last_ts: of its rows, ms since 1970.   covered_ms: the time that these cover.
    now: fields of its newest row.   queues_disk: bytes of its queues.
    """

    base_cpu: float | None
    cpu: float | None
    clients_cpu: float | None
    base_memory: float | None
    base_fds: float | None
    first_ts: int
    last_ts: int
    covered_ms: int
    now: Mapping[str, Any]
    queues_disk: float | None


def with_base(row: NodeRow, load: NodeLoad | None) -> NodeRow:
    """Return a node with its capacities and its own load."""
    if load is None:
        return row
    now = load.now
    hints = dict(now.get("capacity_hints") or ())
    free = (now.get("disk_free") or 0) - (now.get("disk_limit") or 0)
    return replace(
        row,
        # A broker is one event loop, so it uses at most one core.
        cores=hints.get("cpu_millicores", 1000) / 1000,
        memory=whole(now.get("mem_limit")),
        disk=max(0.0, whole(free + (load.queues_disk or 0))),
        fds=whole(now.get("fd_limit")),
        base_cpu=cores(load.base_cpu),
        base_memory=whole(load.base_memory),
        base_fds=whole(load.base_fds),
    )


def cpu_known(nodes: Collection[NodeLoad]) -> float | None:
    """Return the share of the nodes' CPU time that is known to be for queues and their clients; None: it is unknown.

    The remainder is the nodes' own: timers, heartbeats, metadata, management.
    """
    used = sum(node.cpu or 0.0 for node in nodes)
    if not used or any(node.clients_cpu is None for node in nodes):
        return None
    own = sum(max(0.0, (node.base_cpu or 0.0) - (node.clients_cpu or 0.0)) for node in nodes)
    return float(round(1.0 - own / used, 3))


def rows_at(placed: ClusterRows, nodes: Mapping[str, NodeLoad]) -> float | None:
    """Return the time of the newest row of the node that is up and has been silent for the longest time, s since 1970.

    A node without any row counts in the coverage alone. Times are those of the nodes' clocks.
    """
    known = [nodes[row.node].last_ts / 1000 for row in placed.nodes if row.is_up and row.node in nodes]
    return min(known, default=None)


def coverage(
    up: Collection[str],
    copies: tuple[int, int],
    nodes: Mapping[str, NodeLoad],
    window: tuple[float, float],
) -> float:
    """Return the share of the time with rows of live nodes, times the share of their copies with rows.

    up: the live nodes.   copies: the number of their copies with rows, and of all of them.
    """
    length_ms = (window[1] - window[0]) * 1000
    if not up or length_ms <= 0:
        return 0.0
    there = sorted(set(up) & nodes.keys())
    told = sum(min(1.0, nodes[node].covered_ms / length_ms) for node in there) / len(up)
    seen, wanted = copies
    share: float = told * (seen / wanted if wanted else 1.0)
    return math.floor(share * 10_000) / 10_000


def cores(us_per_s: float | None) -> float:
    """Return cores from CPU time in us per s."""
    return round((us_per_s or 0.0) / 1e6, CPU_DIGITS)


def whole(value: float | None) -> float:
    """Return the nearest whole number; 0 if the value is unknown."""
    return float(round(value or 0.0))
