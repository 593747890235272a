"""A move (the wanted placement of a queue) becomes steps here, and steps are put into waves.

A copy that moves is added, filled and only then given up elsewhere, so a queue has at no prefix of the steps fewer
synchronised copies than before, or than its policy wants. Where that is impossible a reason is given instead of steps.
Source: spark §3.3, §3.4, §6.1-3.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark_ops.planning.placement import Placement
from spark_ops.planning.plan import Cost, Post, Pre, Step
from spark_ops.planning.rows import NodeRow, QueueRow
from spark_ops.planning.topology import members_of

MAX_LAG_OPS: Final = 1000
"""The most operations that a mirror may be behind when its queue's placement changes."""

PROMOTE_S: Final = 0.2
COPY_S: Final = 1.0
DROP_S: Final = 0.1
COPY_BYTES_S: Final = 20e6
"""The estimated duration of steps; a copy also takes its bytes at this rate, the default limit of `apply`."""

UNIT_BYTES: Final = 1 << 20
"""Copying so many bytes costs as much as a promotion."""


class NotPossible(ValueError):
    """A queue cannot be brought where it should be; the error's text is the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Move:
    """The wanted placement of a queue's copies, and the reason.

    before: the present placement.   master: the wanted node.   adds, drops: nodes that get a copy, that lose theirs.
    reason: a goal's id.   why: a sentence.
    """

    queue: QueueRow
    before: Placement
    master: str
    adds: tuple[str, ...]
    drops: tuple[str, ...]
    reason: str
    why: str

    @property
    def size(self) -> int:
        """The number of bytes that are copied."""
        return int(self.queue.size) * len(self.adds)


def placement_of(queue: QueueRow) -> Placement:
    """Return the placement of a queue's copies."""
    return Placement(members_of(queue), queue.master, frozenset(queue.synced))


def check(move: Move) -> Placement:
    """Return the placement after a move. Raises: NotPossible if the broker or the wanted number of copies forbid it."""
    queue, before = move.queue, move.before
    after = before
    if queue.is_exclusive:
        raise NotPossible("it belongs to one connection, and stays where that is")
    try:
        for node in move.adds:
            after = after.added(node).filled(node)
        if move.master != before.master:
            after = after.promoted(move.master)
        for node in move.drops:
            after = after.dropped(node)
            if len(after.synced) <= queue.want_mirrors:
                raise NotPossible(f"without the copy on {node} too few would have all")
    except NotPossible:
        raise
    except ValueError as error:
        raise NotPossible(str(error)) from error
    return after


def steps_of(move: Move, first: int, nodes: Mapping[str, NodeRow]) -> list[Step]:
    """Return the steps of a move; their ids begin with s`first`. Raises: NotPossible."""
    check(move)
    queue, placement = move.queue, move.before
    enough = min(len(placement.synced), queue.want_mirrors + 1)
    pre = Pre(queue.uid, queue.epoch, placement.master, (), max(enough, 1), MAX_LAG_OPS)
    base = Step("", "note", queue.vhost, queue.queue, None, None, move.reason, move.why)
    steps = _Steps(base, first, pre, placement)
    depends = tuple(_copy(steps, queue, nodes, node) for node in move.adds)
    placement = steps.placement
    if move.master != placement.master:
        source = placement.master
        placement = steps.placement = placement.promoted(move.master)
        promoted = steps.add(
            action="promote",
            source=source,
            target=move.master,
            cost=Cost(1 + round(queue.lag / MAX_LAG_OPS, 3), 0, PROMOTE_S),
            effect=_promoted(queue, nodes, source, move.master),
            pre=replace(pre, synced=(move.master,)),
            post=Post(placement.master, placement.ring),
            inverse=("promote", move.master, source),
            depends=depends,
        )
        steps.pre = replace(pre, epoch=None, master=move.master)
        depends = (*depends, promoted)
    for node in move.drops:
        depends = (*depends, _drop(steps, queue, nodes, node, depends))
    return steps.made


class _Steps:
    """The steps of a move so far.

    pre: the conditions of the next step.   placement: the placement before the next step.
    """

    def __init__(self, base: Step, first: int, pre: Pre, placement: Placement) -> None:
        self.made: list[Step] = []
        self.pre = pre
        self.placement = placement
        self._base = base
        self._first = first

    def add(self, **given: object) -> str:
        """Add a step: the base with the given fields. Returns: its id."""
        made = replace(self._base, id=f"s{self._first + len(self.made)}", **given)  # type: ignore[arg-type]
        self.made.append(made)
        return made.id


def _copy(steps: _Steps, queue: QueueRow, nodes: Mapping[str, NodeRow], node: str) -> str:
    """Add the steps that bring a copy to a node. Returns: the id of the step after which it is synchronised."""
    master = steps.placement.master
    placement = steps.placement.added(node)
    post = Post(master, placement.ring)
    added = steps.add(
        action="add_mirror",
        source=master,
        target=node,
        cost=Cost(1 + round(queue.size / UNIT_BYTES, 3), int(queue.size), COPY_S),
        effect=_copied(queue, nodes, node, 1),
        pre=steps.pre,
        post=post,
        inverse=("drop_mirror", node, None),
    )
    steps.placement = placement.filled(node)
    return steps.add(
        action="wait_synced",
        source=master,
        target=node,
        cost=Cost(0.0, 0, round(queue.size / COPY_BYTES_S, 3)),
        pre=steps.pre,
        post=post,
        depends=(added,),
    )


def _drop(
    steps: _Steps, queue: QueueRow, nodes: Mapping[str, NodeRow], node: str, depends: tuple[str, ...]
) -> str:
    """Add the step that drops a node's copy. Returns: its id."""
    placement = steps.placement = steps.placement.dropped(node)
    return steps.add(
        action="drop_mirror",
        source=node,
        target=None,
        cost=Cost(0.0, 0, DROP_S),
        effect=_copied(queue, nodes, node, -1),
        pre=replace(
            steps.pre,
            synced=tuple(each for each in placement.ring if each in placement.synced),
            min_synced=queue.want_mirrors + 1,
        ),
        post=Post(placement.master, placement.ring),
        inverse=("add_mirror", placement.master, node),
        depends=depends,
    )


def _promoted(queue: QueueRow, nodes: Mapping[str, NodeRow], source: str, target: str) -> dict[str, float]:
    cpu = queue.cpu - queue.mirror_cpu
    found = {f"{source}.cpu": -_share(cpu, nodes, source), f"{target}.cpu": _share(cpu, nodes, target)}
    return {key: value for key, value in found.items() if value}


def _share(cpu: float, nodes: Mapping[str, NodeRow], node: str) -> float:
    return round(cpu / nodes[node].cores, 6) if node in nodes and nodes[node].cores > 0 else 0.0


def _copied(queue: QueueRow, nodes: Mapping[str, NodeRow], node: str, sign: int) -> dict[str, float]:
    """Return the effect of one mirror more or less on a node, as shares of its capacity."""
    row = nodes.get(node)
    if row is None:
        return {}
    shares = {
        "cpu": queue.mirror_cpu / row.cores if row.cores > 0 else 0.0,
        "memory": queue.memory / row.memory if row.memory > 0 else 0.0,
        "disk": queue.disk / row.disk if row.disk > 0 else 0.0,
    }
    return {f"{node}.{name}": sign * round(share, 6) for name, share in shares.items() if round(share, 6)}


def waves_of(moves: Sequence[Sequence[Step]], *, moves_max: int, bytes_max: int) -> list[list[str]]:
    """Return the ids of steps by wave. A wave has whole moves, at most so many moves and bytes, but at least one move.

    No step depends on a step of a later wave, so the applier may stop after any wave.
    """
    waves: list[list[str]] = []
    count = size = 0
    for steps in moves:
        bytes_ = sum(step.cost.bytes for step in steps)
        if not waves or count >= moves_max or size + bytes_ > bytes_max:
            waves.append([])
            count = size = 0
        waves[-1].extend(step.id for step in steps)
        count, size = count + 1, size + bytes_
    return waves


def summary_of(steps: Iterable[Step]) -> dict[str, int | float]:
    """Return the totals of steps: promotions, copies, drops, bytes, units, estimated seconds."""
    found = list(steps)
    return {
        "promotions": sum(step.action == "promote" for step in found),
        "copies": sum(step.action == "add_mirror" for step in found),
        "drops": sum(step.action == "drop_mirror" for step in found),
        "bytes": sum(step.cost.bytes for step in found),
        "units": round(sum(step.cost.units for step in found), 3),
        "eta_s": round(sum(step.cost.est_s for step in found), 3),
    }
