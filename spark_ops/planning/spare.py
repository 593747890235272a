"""The spare room of a cluster: whether the other nodes can bear the memory and the connections of a node that is lost.

The planner moves masters so that each heir has the CPU for a loss (`State.survives`). Memory and connections follow no
heir: the broker makes lost copies anew on any node, and clients connect to any node. So no move helps, only more room,
and this module tells the operator so. Source: spark §3.3 (goal 2, N+1).
"""

from dataclasses import dataclass

import numpy as np

from spark_ops.planning.fleet import Floats
from spark_ops.planning.goals import MEMORY, Settings
from spark_ops.planning.state import State


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource of which the other nodes would use too much after the loss of a node.

    node: the one whose loss is worst.   used: the share of the others' capacity.   limit: the most it may be.
    """

    resource: str
    node: str
    used: float
    limit: float


def shortages(state: State, settings: Settings) -> list[Shortage]:
    """Return the resources of which too much would be used after the loss of some node; nothing for a single node."""
    nodes = state.fleet.nodes
    good = np.array([node for node, bad in enumerate(state.is_bad) if not bad], np.int64)
    if len(good) < 2:
        return []
    fds = np.array([row.base_fds for row in nodes])
    found = []
    for resource, room, kept, moved, limit in (
        (
            "memory",
            np.array([row.memory for row in nodes]),
            np.array(state.load[MEMORY]),
            _made_anew(state, len(good) - 1),
            settings.memory_max,
        ),
        ("file descriptors", np.array([row.fds for row in nodes]), fds, fds, settings.fds_max),
    ):
        if not (room[good] > 0).all():
            continue  # a capacity that is not known
        used = (kept[good].sum() - kept[good] + moved[good]) / (room[good].sum() - room[good])
        worst = int(used.argmax())
        if used[worst] > limit:
            found.append(Shortage(resource, nodes[int(good[worst])].node, float(used[worst]), limit))
    return found


def _made_anew(state: State, left: int) -> Floats:
    """Return by node the bytes of its copies that would be made anew if it were lost.

    left: the number of other nodes. A queue whose policy wants a copy on each of them gets no further one.
    """
    fleet, count = state.fleet, len(state.fleet.nodes)
    found = np.zeros(count)
    again = (fleet.want > 0) & (fleet.want < left)
    for place in range(state.members.shape[1]):
        there = again & (state.members[:, place] >= 0)
        found += np.bincount(state.members[there, place], fleet.memory[there], count)
    return found
