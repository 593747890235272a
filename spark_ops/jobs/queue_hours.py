"""The loads of all queues of a cluster are summed up hour by hour, from the newest hour to the oldest. Pure.

An hour is given as columns, one row for each copy, process and role (`QueueHour`), as a rollup has them. Of the hours
that are done only sums and a few of the greatest values are kept (`hourly_estimates`), so that memory depends on the
number of queues and copies and hardly on the length of the window. Queues and nodes are named by numbers.

The newest row of a queue's master tells its state, and the newest row of a copy tells its size on disk. Hours come in
falling order, so the first hour with such a row has the newest one.
"""

from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from spark_ops.jobs.hourly_estimates import Estimates, quotient, rounded, weight_of
from spark_ops.jobs.small_columns import Bools, Floats, Groups, Longs, Numbers

MASTER: Final = 0
MIRROR: Final = 1
OTHER: Final = 2
"""The number of roles that no node writes; such rows have memory, and no load of a master or a mirror."""
ROLES: Final = (MASTER, MIRROR, OTHER)

NODES_MAX: Final = 1 << 20
"""The number of nodes is less: a copy has the number `queue * NODES_MAX + node`."""

Figure: TypeAlias = Literal["cpu", "in_bytes", "out_bytes", "memory", "disk"]
_FIGURES: Final[dict[int, tuple[Figure, ...]]] = {
    MASTER: ("cpu", "in_bytes", "out_bytes", "memory", "disk"),
    MIRROR: ("cpu", "memory", "disk"),
    OTHER: ("memory", "disk"),
}


@dataclass(frozen=True, slots=True)
class QueueHour:
    """The rows of an hour.

    hour_s: its begin, s since 1970.   queue, node, role: of each row.   ms: the time between the first and the last
    sample of a row.   cpu_us, in_bytes, out_bytes: what was used in that time.   memory, disk: sums of samples, in
    bytes.   memory_n, disk_n: numbers of samples.   last_ts: time of the last sample, ms since 1970.   last_disk: bytes
    on disk then.   lag: operations that a synchronised mirror lacked then, if that was in the window's last minutes.
    """

    hour_s: int
    queue: Longs
    node: Longs
    role: Longs
    last_ts: Longs
    ms: Numbers
    cpu_us: Numbers
    in_bytes: Numbers
    out_bytes: Numbers
    memory: Numbers
    memory_n: Numbers
    disk: Numbers
    disk_n: Numbers
    last_disk: Numbers
    lag: Numbers

    @property
    def copy(self) -> Longs:
        """The number of the copy of each row."""
        return self.queue * NODES_MAX + self.node

    def taken(self, rows: Longs | Bools) -> "QueueHour":
        """Return some of the rows."""
        taken: dict[str, Any] = {}
        for field in fields(self):
            column = getattr(self, field.name)
            if field.name != "hour_s":
                taken[field.name] = column.take(rows) if isinstance(column, Numbers) else column[rows]
        return QueueHour(self.hour_s, **taken)


@dataclass(frozen=True, slots=True)
class OfNodes:
    """The load of each node's queues in an hour.   cpu: us per s.   memory: bytes.   Both are rounded for each copy."""

    cpu: Floats
    memory: Floats


class QueueLoads:
    """The loads of the queues 0 to `queues` - 1.

    Queues with greater numbers count for their nodes only.   hours: number of hours that are added at most.
    until: end of the window, s since 1970.
    """

    def __init__(self, queues: int, hours: int, until: float) -> None:
        self._queues, self._hours, self._until = queues, hours, until
        self._estimates: dict[tuple[int, Figure], Estimates] = {}
        self._has_state = np.zeros(queues, dtype=np.bool_)
        self._copies: Longs = np.zeros(0, dtype=np.int64)
        self._last_hour: int | None = None
        self.lag: Longs = np.zeros(queues, dtype=np.int64)
        self.of_nodes: dict[int, OfNodes] = {}
        self.disk: Floats = np.zeros(0)
        self.disk_known: Bools = np.zeros(0, dtype=np.bool_)

    @property
    def copies(self) -> Longs:
        """The numbers of all copies that have a row, in rising order."""
        return self._copies

    def add(self, hour: QueueHour, nodes: int) -> Longs:
        """Add an hour, older than the ones before.   nodes: number of nodes that are known.

        Returns: the rows with the newest state of queues whose state was not known before.
        """
        assert self._last_hour is None or hour.hour_s < self._last_hour, "hours come from the newest on"
        assert len(self.of_nodes) < self._hours
        self._last_hour = hour.hour_s
        order, hour = _by_copy(hour)
        self._add_nodes(hour, nodes)
        within = hour.queue < self._queues
        rows = np.arange(len(hour.queue))
        if not within.all():
            rows, hour = rows[within], hour.taken(within)
        for role in ROLES:
            self._add_role(hour, role)
        np.maximum.at(self.lag, hour.queue[hour.lag.known], hour.lag.values[hour.lag.known])
        found = rows[self._newest_masters(hour)]
        return found if order is None else order[found]

    def load(self, role: int, figure: Figure) -> Numbers:
        """Return a load of each queue."""
        estimates = self._estimates.get((role, figure))
        return self._nothing() if estimates is None else estimates.load()

    def percentile(self, role: int, figure: Figure) -> Numbers:
        """Return the 95th percentile of the hours of each queue."""
        estimates = self._estimates.get((role, figure))
        return self._nothing() if estimates is None else estimates.percentile()

    def greatest(self, figure: Figure) -> Numbers:
        """Return the greatest load of each queue among its roles."""
        found = self._nothing()
        for role in ROLES:
            own = self.load(role, figure)
            values = np.where(own.known, np.maximum(found.values, own.values), found.values)
            found = Numbers(values, found.known | own.known)
        return found

    def _nothing(self) -> Numbers:
        return Numbers(np.zeros(self._queues), np.zeros(self._queues, dtype=np.bool_))

    def _add_role(self, hour: QueueHour, role: int) -> None:
        rows = np.flatnonzero(hour.role == role)
        if not len(rows):
            return
        groups = Groups(hour.queue[rows])
        queue = hour.queue[rows[groups.starts]]
        weight = weight_of(hour.hour_s, self._until)

        def summed(column: Numbers) -> Numbers:
            return groups.sums(column.take(rows))

        ms = summed(hour.ms)
        for figure in _FIGURES[role]:
            if figure == "memory":
                value = quotient(summed(hour.memory), summed(hour.memory_n))
            elif figure == "disk":
                value = quotient(summed(hour.disk), summed(hour.disk_n))
            else:
                used = hour.cpu_us if figure == "cpu" else getattr(hour, figure)
                value = quotient(summed(used), ms, 1000.0)
            estimates = self._estimates.get((role, figure))
            if estimates is None:
                estimates = self._estimates[role, figure] = Estimates(self._queues, self._hours)
            estimates.add(self._of_all(queue, value), weight)

    def _of_all(self, queue: Longs, value: Numbers) -> Numbers:
        """Return values of some queues as a column of all queues."""
        if len(queue) == self._queues:
            return value  # queues come in rising order
        found = self._nothing()
        found.values[queue], found.known[queue] = value.values, value.known
        return found

    def _add_nodes(self, hour: QueueHour, nodes: int) -> None:
        """Add what a node's queues have, all of them, and sizes on disk of copies that no newer hour has."""
        groups = Groups(hour.copy)
        node = hour.node[groups.starts]
        rate = quotient(groups.sums(hour.cpu_us), groups.sums(hour.ms), 1000.0)
        memory = quotient(groups.sums(hour.memory), groups.sums(hour.memory_n))
        cpu, held = (
            np.bincount(node, np.where(each.known, rounded(each.values), 0), nodes).astype(np.float64)
            for each in (rate, memory)
        )
        self.of_nodes[hour.hour_s] = OfNodes(cpu, held)
        copies = hour.copy[groups.starts]
        if np.array_equal(copies, self._copies):
            return
        at = np.searchsorted(self._copies, copies)
        is_new = np.ones(len(copies), dtype=np.bool_)
        inside = at < len(self._copies)
        is_new[inside] = self._copies[at[inside]] != copies[inside]
        if not is_new.any():
            return
        last = _newest(groups, hour.last_ts)[is_new]
        known = hour.last_disk.known[last]
        self.disk, self.disk_known = _wider(self.disk, nodes), _wider(self.disk_known, nodes)
        self.disk += np.bincount(hour.node[last], np.where(known, hour.last_disk.values[last], 0), nodes)
        self.disk_known |= np.bincount(hour.node[last], known, nodes) > 0
        self._copies = np.sort(np.concatenate((self._copies, copies[is_new])), kind="stable")

    def _newest_masters(self, hour: QueueHour) -> Longs:
        """Return the rows with the newest state of queues without one; of equal times, that of the greater node."""
        rows = np.flatnonzero((hour.role == MASTER) & ~self._has_state[hour.queue])
        queue = hour.queue[rows]
        self._has_state[queue] = True
        # Rows of a queue are in the order of nodes, so the last one of the newest has the greatest.
        return rows[_newest(Groups(queue), hour.last_ts[rows])]


def _by_copy(hour: QueueHour) -> tuple[Longs | None, QueueHour]:
    """Return an hour in the order of copies, and the rows as they were; None: they were in order."""
    copy = hour.copy
    if (copy[1:] >= copy[:-1]).all():
        return None, hour
    order = np.argsort(copy, kind="stable")
    return order, hour.taken(order)


def _newest(groups: Groups, last_ts: Longs) -> Longs:
    """Return the row of each group with the greatest time; the last one of equal times."""
    if len(groups.starts) == groups.size:
        return groups.starts
    of_group = np.repeat(np.arange(len(groups.starts)), np.diff(np.append(groups.starts, groups.size)))
    order = np.lexsort((last_ts, of_group))  # stable
    return order[groups.lasts]


def _wider(column: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    return np.concatenate((column, np.zeros(size - len(column), dtype=column.dtype)))
