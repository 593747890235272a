"""The last goal is locality: a master should be where most of its clients are, so that operations make fewer hops.

Source: spark §3.3, goal 9.
"""

from collections.abc import Callable, Sequence
from typing import Final

from spark_ops.planning.balance import Bounds, tolerated
from spark_ops.planning.goals import CPU
from spark_ops.planning.spread import Spread
from spark_ops.planning.state import Done, State

CLIENTS_SHARE: Final = 0.6
"""The share of a queue's clients that must be at the other node: with an even split nothing is won."""

LOAD_SHARE: Final = 0.005
"""The share of its node's cpu that a queue must use: for smaller ones hops don't matter."""


def localize(
    state: State, earlier: Sequence[Bounds], spread: Spread | None, take: Callable[[Done], None]
) -> None:
    """Promote the mirrors at which most clients of a queue are, where all earlier goals accept it.

    spread: the masters of tenants; None: that is no goal.
    """
    fleet = state.fleet
    for queue, clients in sorted(fleet.clients.items()):
        source = int(state.master[queue])
        count = sum(clients.values())
        target = max(clients, key=lambda node: (clients[node], -node))
        if not fleet.movable[queue] or source < 0 or target == source:
            continue
        if clients[target] < CLIENTS_SHARE * count or clients.get(source, 0) >= clients[target]:
            continue
        if target not in state.synced_nodes(queue) or not state.may_promote(queue, target):
            continue
        vector = state.vector("promote", queue)
        if (
            vector[CPU] >= LOAD_SHARE * state.load[CPU][source]
            and tolerated(state, earlier, source, target, vector)
            and (spread is None or spread.allows(queue, target))
            and state.has_room(source, target, vector)
            and state.survives("promote", queue, source, target)
        ):
            why = f"{clients[target]} of its {count} clients are at {fleet.nodes[target].node}"
            take(Done("promote", queue, source, target, "locality", why))
            if spread is not None:
                spread.moved(queue, source, target)


def remote_share(state: State) -> float:
    """Return the share of the known clients that are not at their queue's master."""
    count = local = 0
    for queue, clients in state.fleet.clients.items():
        count += sum(clients.values())
        local += clients.get(int(state.master[queue]), 0)
    return (count - local) / count if count else 0.0
