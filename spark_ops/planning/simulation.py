"""The simulator plays a plan over a topology, step by step as the broker would, also with nodes that die meanwhile.

It finds the steps that would be refused, the placements after each prefix, and the queues that could not be recovered.
The broker's checks are made with the conditions of each step. Source: spark §5, §6.1-4.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_ops.planning.placement import Placement
from spark_ops.planning.plan import Plan, Step
from spark_ops.planning.rows import ClusterRows, QueueRow
from spark_ops.planning.steps import placement_of

PROBLEMS_MAX: Final = 1000


@dataclass(slots=True)
class Simulation:
    """The result of a simulation.

    done, skipped: ids of steps.   refused: why, by id.   lost: queues without a synchronised copy after a node died,
    at the step.   would_be_lost: how many queues the same deaths would have lost before the first step.
    problems: prefixes of the steps that break a rule; a correct plan has none.
    """

    placements: dict[tuple[str, str], Placement]
    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    lost: list[tuple[str, str, str]] = field(default_factory=list)
    would_be_lost: int = 0
    problems: list[str] = field(default_factory=list)

    def masters(self) -> dict[str, int]:
        """Return the number of masters by node."""
        found: dict[str, int] = {}
        for placement in self.placements.values():
            found[placement.master] = found.get(placement.master, 0) + 1
        return found


@dataclass(slots=True)
class _Queue:
    row: QueueRow
    epoch: int
    enough: int
    zones: int


class Simulator:
    """One simulation of steps over one cluster."""

    def __init__(self, cluster: ClusterRows) -> None:
        self._queues: dict[tuple[str, str], _Queue] = {}
        self._zone = {row.node: row.zone for row in cluster.nodes}
        self._up = {row.node for row in cluster.nodes if row.is_up}
        placements = {}
        for row in cluster.queues:
            if row.master:
                placement = placement_of(row)
                placements[row.vhost, row.queue] = placement
                enough = min(len(placement.synced), row.want_mirrors + 1)
                self._queues[row.vhost, row.queue] = _Queue(row, row.epoch, enough, self._spread(placement))
        self.result = Simulation(placements)
        self._epochs: dict[tuple[str, str], set[int]] = {}

    def _spread(self, placement: Placement) -> int:
        return len({self._zone.get(node) for node in placement.members})

    def step(self, step: Step) -> None:
        """Carry out a step, or record why it is refused."""
        if step.action == "note" or step.vhost is None or step.queue is None:
            return
        result, key = self.result, (step.vhost, step.queue)
        waiting = [id_ for id_ in step.depends if id_ in result.refused]
        if waiting:
            result.refused[step.id] = f"{waiting[0]} was not carried out"
            return
        queue, placement = self._queues.get(key), result.placements.get(key)
        if queue is None or placement is None:
            result.refused[step.id] = "there is no such queue, or it has no master"
            return
        if step.pre is not None and step.pre.uid == queue.row.uid and _is_done(step, placement):
            result.skipped.append(step.id)
            return
        reason = self._refusal(step, queue, placement)
        if reason is not None:
            result.refused[step.id] = reason
            return
        try:
            after = _after(step, placement)
        except ValueError as error:
            result.refused[step.id] = str(error)
            return
        if step.action == "promote":
            queue.epoch += 1
        result.placements[key] = after
        result.done.append(step.id)
        self._check(step, queue, after)

    def _refusal(self, step: Step, queue: _Queue, placement: Placement) -> str | None:
        """Return why the broker would refuse a step; None if it would not."""
        pre = step.pre
        if pre is None or pre.uid != queue.row.uid:
            return "the queue is another one of the same name"
        if pre.epoch is not None and pre.epoch != queue.epoch:
            return f"its epoch is {queue.epoch} and not {pre.epoch}"
        if pre.master != placement.master:
            return f"its master is on {placement.master} and not on {pre.master}"
        lacking = [node for node in pre.synced if node not in placement.synced]
        if lacking:
            return f"the copy on {lacking[0]} is not synchronised"
        if step.target is not None and step.target not in self._up:
            return f"{step.target} is down"
        remaining = placement.synced - ({step.source} if step.action == "drop_mirror" else set())
        if step.action != "wait_synced" and len(remaining) < pre.min_synced:
            return f"there would be {len(remaining)} synchronised copies, {pre.min_synced} are wanted"
        return None

    def _check(self, step: Step, queue: _Queue, placement: Placement) -> None:
        """Record the rules that a queue breaks after a step."""
        problems = []
        if placement.master not in placement.synced:
            problems.append("its master has not all")
        if len(placement.synced) < queue.enough:
            problems.append(f"{len(placement.synced)} synchronised copies, before the plan {queue.enough}")
        if len(set(placement.members)) != len(placement.members):
            problems.append("two copies on a node")
        if len(self.result.problems) < PROBLEMS_MAX:
            name = queue.row.queue[:80]
            self.result.problems += [f"after {step.id}, queue {name!r}: {problem}" for problem in problems]

    def kill(self, node: str, at: str) -> None:
        """Let a node die after the step of that id."""
        self._up.discard(node)
        result = self.result
        for key, placement in list(result.placements.items()):
            if node not in placement.members:
                continue
            after = placement.without((node,))
            queue = self._queues[key]
            if after is None:
                del result.placements[key]
                result.lost.append((*key, at))
                continue
            if after.master != placement.master:
                queue.epoch += 1
            queue.enough = min(queue.enough, len(after.synced))
            result.placements[key] = after


def simulated(
    plan: Plan, cluster: ClusterRows, kills: Mapping[str, Iterable[str]] | None = None
) -> Simulation:
    """Simulate a plan.   kills: by id of a step, nodes that die after it."""
    simulator = Simulator(cluster)
    dying = {id_: list(nodes) for id_, nodes in (kills or {}).items()}
    for step in plan.steps:
        simulator.step(step)
        for node in dying.get(step.id, ()):
            simulator.kill(node, step.id)
    if dying:
        untouched = Simulator(cluster)
        for nodes in dying.values():
            for node in nodes:
                untouched.kill(node, "")
        simulator.result.would_be_lost = len(untouched.result.lost)
    return simulator.result


def _is_done(step: Step, placement: Placement) -> bool:
    match step.action:
        case "promote":
            return placement.master == step.target
        case "add_mirror":
            return step.target in placement.members
        case "wait_synced":
            return step.target in placement.synced
        case _:
            return step.source not in placement.members


def _after(step: Step, placement: Placement) -> Placement:
    match step.action, step.source, step.target:
        case "promote", _, str(target):
            return placement.promoted(target)
        case "add_mirror", _, str(target):
            return placement.added(target)
        case "wait_synced", _, str(target):
            return placement.filled(target)
        case "drop_mirror", str(source), _:
            return placement.dropped(source)
        case _:
            raise ValueError("a step of this kind has no such nodes")
