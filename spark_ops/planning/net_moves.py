"""A net move is the change of one queue's placement by a whole plan: from its first placement to its last one.

The planner serves one goal after the other, so it may move a queue twice, or away and back. A plan has only the net
moves: a queue's clients notice at most one promotion, and no copy is made that is dropped again.
Source: spark §3.3, §6.25.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from spark_ops.planning.fleet import Bools, Fleet
from spark_ops.planning.state import Done, State, masters_of


@dataclass(frozen=True, slots=True)
class NetMove:
    """The change of a queue's placement.

    source, target: the nodes of the master before and after it; the same if it stays.   adds, drops: nodes that get a
    copy, that lose theirs.   reason, why: of the planner's move that made the queue leave its first placement.
    may_cost: it drains or demotes a node or adds missing copies, which may cost what the loss of a node leaves.
    """

    queue: int
    source: int
    target: int
    adds: tuple[int, ...]
    drops: tuple[int, ...]
    reason: str
    why: str
    may_cost: bool

    @property
    def is_promotion(self) -> bool:
        """True if the master changes."""
        return self.source != self.target


def net_moves(fleet: Fleet, after: State, log: Sequence[Done]) -> list[NetMove]:
    """Return the net moves from a fleet's placements to those of a state, in the order of the queues' first moves.

    log: all moves between the two, in order.
    """
    by_queue: dict[int, list[Done]] = {}
    for done in log:
        by_queue.setdefault(done.queue, []).append(done)
    found = []
    for queue, moves in by_queue.items():
        old = [node for node in fleet.members[queue].tolist() if node >= 0]
        new = after.ring(queue)
        source, target = old[int(fleet.master_at[queue])], int(after.master[queue])
        adds = tuple(node for node in new if node not in old)
        drops = tuple(node for node in old if node not in new)
        if adds or drops or source != target:
            left = {*drops, source} if source != target else set(drops)
            cause = next((done for done in moves if done.source in left or done.target in adds), moves[0])
            may_cost = any(done.reason in ("drain", "demote", "copies") for done in moves)
            found.append(NetMove(queue, source, target, adds, drops, cause.reason, cause.why, may_cost))
    return found


def placed(fleet: Fleet, state: State) -> Fleet:
    """Return a fleet with the placements of a state."""
    return replace(fleet, members=state.members, synced=state.synced, master_at=state.master_at)


def is_moved(fleet: Fleet, state: State, queue: int) -> bool:
    """True if a queue's master or the nodes of its copies differ from those of the fleet."""
    old = fleet.members[queue]
    return int(old[fleet.master_at[queue]]) != int(state.master[queue]) or set(old.tolist()) != set(
        state.members[queue].tolist()
    )


def differing(fleet: Fleet, state: State) -> Bools:
    """Return for each queue whether its master or the nodes of its copies differ from those of the fleet."""
    moved: Bools = (np.sort(fleet.members, axis=1) != np.sort(state.members, axis=1)).any(axis=1)
    moved |= masters_of(fleet) != state.master
    return moved


def copied_bytes(fleet: Fleet, state: State, queue: int) -> int:
    """Return the bytes of copies of a queue that a state has and the fleet does not."""
    new = set(state.members[queue].tolist()) - set(fleet.members[queue].tolist()) - {-1}
    return int(fleet.size[queue]) * len(new)
