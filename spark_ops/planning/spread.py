"""The masters of one tenant should not all be on one node, whose loss would then stop the whole tenant.

A tenant is a virtual host, or what a pattern of the settings finds in the names of virtual host and queue: for instance
the queues that share one consistent hash exchange. Source: spark §3.3, goal 8.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from spark_ops.planning.balance import Bounds, tolerated
from spark_ops.planning.fleet import Longs
from spark_ops.planning.goals import CPU
from spark_ops.planning.state import Done, State, Vector

MASTERS_MIN: Final = 4
"""A tenant with fewer masters is left alone: promotions for each small virtual host would cost more than they help."""

ACT_ABOVE: Final = 0.6
"""Moves are made where a node has more than this share of a tenant's masters."""

STOP_AT: Final = 0.5
"""No node should have more than this share of them afterwards, as far as the number of nodes allows it."""


PARTNERS_TRIED: Final = 50
"""The most masters of a node that are tried as the other half of an exchange."""

FAILURES_MAX: Final = 200
"""After so many masters for which no exchange was found no more are looked for in a round."""


class Spread:
    """The numbers of each tenant's masters by node, as queues are promoted."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._tenants = state.fleet.tenants
        self._nodes = len(state.fleet.nodes)
        self._usable = max(1, sum(state.may_lead))
        there = state.master >= 0
        tenants = self._tenants[there].astype(np.int64)
        self._sizes = np.bincount(tenants)
        self._keys, self._counts = np.unique(tenants * self._nodes + state.master[there], return_counts=True)
        self._changes: dict[tuple[int, int], int] = {}
        self._masters: dict[int, Longs] = {}
        self._failures = 0

    def count(self, tenant: int, node: int) -> int:
        """Return the number of a tenant's masters on a node."""
        key = tenant * self._nodes + node
        at = int(np.searchsorted(self._keys, key))
        before = int(self._counts[at]) if at < len(self._keys) and self._keys[at] == key else 0
        return before + self._changes.get((tenant, node), 0)

    def most(self, tenant: int, share: float) -> int:
        """Return the most masters that a node may have for that share of a tenant's masters."""
        size = int(self._sizes[tenant])
        return max(int(share * size), -(-size // self._usable))

    def crowded(self) -> list[tuple[int, int]]:
        """Return tenants and nodes that have more of the tenant's masters than the level for action, in order."""
        tenants, nodes = np.divmod(self._keys, self._nodes)
        near = (self._sizes[tenants] >= MASTERS_MIN) & (self._counts > STOP_AT * self._sizes[tenants])
        return [
            (tenant, node)
            for tenant, node in zip(tenants[near].tolist(), nodes[near].tolist(), strict=True)
            if self.count(tenant, node) > self.most(tenant, ACT_ABOVE)
        ]

    def allows(self, queue: int, target: int) -> bool:
        """True if a node may become the master of a queue without too many masters of the queue's tenant."""
        tenant = int(self._tenants[queue])
        return int(self._sizes[tenant]) < MASTERS_MIN or self.count(tenant, target) < self.most(
            tenant, ACT_ABOVE
        )

    def moved(self, queue: int, source: int, target: int) -> None:
        """Note a promotion."""
        tenant = int(self._tenants[queue])
        for node, by in ((source, -1), (target, 1)):
            self._changes[tenant, node] = self._changes.get((tenant, node), 0) + by

    def run(self, earlier: Sequence[Bounds], take: Callable[..., None]) -> None:
        """Promote mirrors of crowded tenants where all earlier goals accept it, first of the least busy queues.

        Where a node has no room for one master more, it gives one of another tenant in exchange.
        take: records moves that belong together, or raises.
        """
        state = self._state
        for tenant, source in self.crowded():
            enough = self.most(tenant, STOP_AT)
            queues = np.flatnonzero(
                (self._tenants == tenant) & (state.master == source) & state.fleet.movable
            )
            order = np.lexsort((queues, state.fleet.promote_cpu[queues]))
            for queue in queues[order].tolist():
                if self.count(tenant, source) <= enough:
                    break
                share = self.count(tenant, source) / int(self._sizes[tenant])
                why = f"{state.fleet.nodes[source].node} has {share:.0%} of the masters of its tenant"
                found = self._found(queue, tenant, source, enough, earlier, why)
                if found:
                    take(*found)
                    for done in found:
                        self.moved(done.queue, done.source, done.target)

    def _found(
        self, queue: int, tenant: int, source: int, enough: int, earlier: Sequence[Bounds], why: str
    ) -> list[Done]:
        """Return the promotion to the node with the fewest masters of the tenant, or an exchange; none: no node."""
        state = self._state
        vector = state.vector("promote", queue)
        able = [
            node
            for node in state.synced_nodes(queue)
            if self.count(tenant, node) < enough and self._may(queue, source, node, vector)
        ]
        able.sort(key=lambda node: (self.count(tenant, node), node))
        for target in able:
            if tolerated(state, earlier, source, target, vector):
                return [Done("promote", queue, source, target, "spread", why)]
        for target in able:
            partner = self._partner(tenant, source, target, vector, earlier)
            if partner is not None:
                back = f"comes in exchange for a queue of another tenant: {why}"
                return [
                    Done("promote", queue, source, target, "spread", why),
                    Done("promote", partner, target, source, "spread", back),
                ]
        self._failures += 1
        return []

    def _may(self, queue: int, source: int, target: int, vector: Vector) -> bool:
        """True if the queue may be promoted there by all hard goals."""
        state = self._state
        return (
            target != source
            and state.may_promote(queue, target)
            and state.has_room(source, target, vector)
            and state.survives("promote", queue, source, target)
        )

    def _partner(
        self, tenant: int, source: int, target: int, vector: Vector, earlier: Sequence[Bounds]
    ) -> int | None:
        """Return a queue of another tenant whose master may go from target to source in exchange for such a load."""
        state, fleet = self._state, self._state.fleet
        if self._failures >= FAILURES_MAX:
            return None
        if target not in self._masters:
            self._masters[target] = np.flatnonzero((state.master == target) & fleet.movable)
        queues = self._masters[target]
        queues = queues[(state.master[queues] == target) & (self._tenants[queues] != tenant)]
        near = np.lexsort((queues, np.abs(fleet.promote_cpu[queues] - vector[CPU])))
        for queue in queues[near][:PARTNERS_TRIED].tolist():
            back = state.vector("promote", queue)
            change: Vector = tuple(one - other for one, other in zip(vector, back, strict=True))  # type: ignore[assignment]
            if (
                source in state.synced_nodes(queue)
                and self.allows(queue, source)
                and tolerated(state, earlier, source, target, change)
                and self._may(queue, target, source, back)
            ):
                return int(queue)
        return None


def crowded_tenants(state: State) -> int:
    """Return the number of tenants of which one node has too many masters."""
    return len({tenant for tenant, _ in Spread(state).crowded()})
