"""A fleet is a cluster in columns: the planner's input for up to a million queues, as arrays.

Nodes are sorted by name and queues by (vhost, name), so the order of the input rows changes nothing; a node or queue
is named by its place. `members` has a row of nodes for each queue, filled up with -1. Nothing here changes after it
was made; `spark_ops.planning.state` has the parts that change. Source: spark §3.3, §6.8.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from spark_ops.planning.capacities import with_capacities
from spark_ops.planning.goals import Settings, SettingsError
from spark_ops.planning.placement import Placement
from spark_ops.planning.rows import ClusterRows, NodeRow, QueueRow
from spark_ops.planning.topology import members_of, ram_nodes

CELLS_MAX: Final = 200_000_000
"""The most queues times copies: some 2 GB of memory during planning. Larger clusters are refused."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Fleet:
    """The columns.

    zones: by node, a number, -1 for none; all -1: the cluster has no zones.   groups: by node.
    members, synced: [queue, place]: nodes in the order that decides which one is heir; True if the copy is
    synchronised.
    master_at: place of the master in it; -1: none.   promote_cpu: cores that go with the master; mirror_cpu: cores of
    each
    copy.   movable: False if no step may touch it.   fixed: by queue, nodes to which its policy holds it.
    clients: by queue, numbers by node.   ram: nodes without quorum queues.   why_not: reasons, by queue that is not
    movable.
    tenants: by queue, a number; empty: not known.   rows: the queues in order; empty: `row` makes them.
    """

    cluster: str
    nodes: tuple[NodeRow, ...]
    zones: Ints
    groups: Ints
    members: Ints
    synced: Bools
    master_at: Ints
    promote_cpu: Floats
    mirror_cpu: Floats
    in_bytes: Floats
    out_bytes: Floats
    memory: Floats
    disk: Floats
    size: Floats
    want: Ints
    movable: Bools
    is_quorum: Bools
    fixed: dict[int, frozenset[int]] = field(default_factory=dict)
    clients: dict[int, dict[int, int]] = field(default_factory=dict)
    tenants: Ints = field(default_factory=lambda: np.zeros(0, np.int32))
    ram: frozenset[int] = frozenset()
    why_not: dict[int, str] = field(default_factory=dict)
    rows: Sequence[QueueRow] = ()

    @property
    def count(self) -> int:
        """The number of queues."""
        return len(self.want)

    def row(self, queue: int) -> QueueRow:
        """Return a queue with all that is known about it."""
        if self.rows:
            return self.rows[queue]
        placement = self.placement(queue)
        mirror_cpu = float(self.mirror_cpu[queue])
        return QueueRow(
            "/",
            f"q{queue:07d}",
            f"{queue:032x}",
            "classic",
            placement.master,
            placement.ring,
            tuple(node for node in placement.ring if node in placement.synced),
            want_mirrors=int(self.want[queue]),
            cpu=float(self.promote_cpu[queue]) + mirror_cpu,
            mirror_cpu=mirror_cpu,
            in_bytes=float(self.in_bytes[queue]),
            out_bytes=float(self.out_bytes[queue]),
            memory=float(self.memory[queue]),
            disk=float(self.disk[queue]),
            size=float(self.size[queue]),
        )

    def placement(self, queue: int) -> Placement:
        """Return the initial placement of a queue, which must have a master."""
        places = [int(node) for node in self.members[queue] if node >= 0]
        names = tuple(self.nodes[node].node for node in places)
        has_all = frozenset(name for at, name in enumerate(names) if self.synced[queue, at])
        return Placement(names, names[int(self.master_at[queue])], has_all)


def fleet_of(cluster: ClusterRows, settings: Settings, *, now: float) -> Fleet:
    """Return the columns of a cluster, with the capacities of the settings.

    now: seconds since 1970.   Raises: SettingsError if a node that settings or queues name does not exist, or the
    cluster
    is too large to plan for.
    """
    cluster = _with_capacities(cluster, settings)
    nodes = tuple(sorted(cluster.nodes, key=lambda row: row.node))
    at = {row.node: place for place, row in enumerate(nodes)}
    if settings.node is not None and settings.node not in at:
        raise SettingsError(f"there is no node {settings.node!r} in cluster {cluster.cluster!r}")
    rows = sorted(cluster.queues, key=lambda row: (row.vhost, row.queue))
    for row in rows:
        gone = [node for node in row.ring if node not in at]
        if gone:
            raise SettingsError(
                f"queue {row.queue[:80]!r} has a copy on {gone[0]!r}, which is no node of the cluster"
            )
    width = max((max(len(row.ring), min(row.want_mirrors + 1, len(nodes))) for row in rows), default=1)
    if width * len(rows) > CELLS_MAX:
        raise SettingsError(
            f"{len(rows)} queues with up to {width} copies are more than can be planned for at once"
        )
    members = np.full((len(rows), width), -1, np.int32)
    synced = np.zeros((len(rows), width), np.bool_)
    master_at = np.full(len(rows), -1, np.int32)
    for place, row in enumerate(rows):
        order = members_of(row)
        members[place, : len(order)] = [at[node] for node in order]
        synced[place, : len(order)] = [node in row.synced for node in order]
        if row.master:
            master_at[place] = order.index(row.master)
    why_not = _left_alone(rows, settings, now)
    movable = np.ones(len(rows), np.bool_)
    movable[list(why_not)] = False
    return Fleet(
        cluster.cluster,
        nodes,
        _numbered([row.zone for row in nodes]),
        _numbered([row.labels.get(settings.group_label or "", "") for row in nodes]),
        members,
        synced,
        master_at,
        _column([row.cpu - row.mirror_cpu for row in rows]),
        _column([row.mirror_cpu for row in rows]),
        _column([row.in_bytes for row in rows]),
        _column([row.out_bytes for row in rows]),
        _column([row.memory for row in rows]),
        _column([row.disk for row in rows]),
        _column([row.size for row in rows]),
        np.array([row.want_mirrors for row in rows], np.int32),
        movable,
        np.array([row.type == "quorum" for row in rows], np.bool_),
        {
            place: frozenset(at[node] for node in row.fixed_nodes if node in at)
            for place, row in enumerate(rows)
            if row.fixed_nodes is not None
        },
        {
            place: {at[node]: count for node, count in sorted(row.clients.items()) if node in at}
            for place, row in enumerate(rows)
            if row.clients
        },
        _numbered([_tenant(row, settings.tenant_pattern) for row in rows]),
        frozenset(at[node] for node in ram_nodes(cluster) if node in at),
        why_not,
        rows,
    )


def _with_capacities(cluster: ClusterRows, settings: Settings) -> ClusterRows:
    try:
        return with_capacities(cluster, settings.capacity)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _column(values: list[float]) -> Floats:
    return np.array(values, np.float64)


def _numbered(names: Sequence[str | None]) -> Ints:
    """Return numbers of names by their alphabetical order; -1 for None."""
    known = {name: number for number, name in enumerate(sorted({name for name in names if name is not None}))}
    return np.array([-1 if name is None else known[name] for name in names], np.int32)


def _tenant(row: QueueRow, pattern: str | None) -> str:
    """Return the tenant of a queue: its vhost, or the first group of the pattern, or the match, in `vhost/queue`.

    A queue that the pattern does not match has its vhost as tenant.
    """
    found = None if pattern is None else re.search(pattern, f"{row.vhost}/{row.queue}")
    if found is None:
        return f"vhost {row.vhost}"
    return f"match {(found[1] if found.re.groups else found[0]) or ''}"


def _left_alone(rows: Sequence[QueueRow], settings: Settings, now: float) -> dict[int, str]:
    """Return the queues that no step may touch, with the reason."""
    only = re.compile(settings.only_vhost or "")
    exclude = None if settings.exclude_queue is None else re.compile(settings.exclude_queue)
    found: dict[int, str] = {}
    for place, row in enumerate(rows):
        if row.is_exclusive:
            found[place] = "it is exclusive, and stays where its connection is"
        elif not row.master or row.master not in row.ring:
            found[place] = "it has no master now"
        elif exclude is not None and exclude.search(row.queue):
            found[place] = "it is excluded"
        elif settings.only_vhost is not None and not only.search(row.vhost):
            found[place] = "its virtual host is not asked for"
        elif row.moved_at and now - row.moved_at < settings.cool_down_s and not _is_between(row):
            found[place] = f"it was moved {max(0, now - row.moved_at) / 60:.0f} minutes ago and cools down"
    return found


def _is_between(row: QueueRow) -> bool:
    """True if a queue has a copy too many: a plan was ended between the steps of a move, and another one may end it."""
    return len(row.ring) - 1 > row.want_mirrors
