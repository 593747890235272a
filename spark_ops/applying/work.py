"""The steps of a plan in the form that the runner needs, and the order in which they may be begun.

The planner has shown for each prefix of its steps that no node is over its limits. But steps are begun as soon as
possible, not always in that order, and three rules preserve that property:

- a step waits for all that it `depends` on, and for all earlier steps of its queue;
- a step that brings a node load waits for all earlier steps that take load away from that node: then no
  node ever has more than at the end of some prefix;
- a wave begins when the one before it has ended.

Source: spark §3.4, §6.5.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_ops.applying.states import ENDED, SUCCEEDED, StepState
from spark_ops.planning.plan import Plan, Step

PROMOTE: Final = "promote"
ADD: Final = "add_mirror"
WAIT: Final = "wait_synced"
DROP: Final = "drop_mirror"


@dataclass(frozen=True, slots=True)
class Work:
    """One step.

    source: the node that loses something: the old master, or the dropped copy; for a new copy, where its data come
    from.
    target: the node that gets something.   pre: as in the plan.   size_bytes: bytes to copy.   wave: from 1.
    """

    id: str
    action: str
    vhost: str
    queue: str
    uid: str
    source: str | None
    target: str | None
    pre: Mapping[str, Any]
    depends: tuple[str, ...]
    size_bytes: int
    wave: int

    @property
    def copy(self) -> tuple[str, str]:
        """The identity of the copy that add_mirror begins and wait_synced ends."""
        return self.uid, self.target or ""

    @property
    def gains(self) -> str | None:
        """The node that has more load afterwards; None if no node has."""
        return self.target if self.action in (PROMOTE, ADD) else None

    @property
    def relieves(self) -> str | None:
        """The node that has less load afterwards; None if no node has."""
        return self.source if self.action in (PROMOTE, DROP) else None


def works(plan: Plan) -> tuple[Work, ...]:
    """Return the steps of a plan in order, without its notes, for which nothing is done."""
    waves = {id_: number for number, wave in enumerate(plan.waves, 1) for id_ in wave}
    return tuple(_work(step, waves[step.id]) for step in plan.steps if step.action != "note")


def leaves_one(step: Work) -> bool:
    """True if a step may leave its queue with one synchronised copy: the last step when an only copy moves."""
    return step.action == DROP and int(step.pre["min_synced"]) < 2


def _work(step: Step, wave: int) -> Work:
    pre = step.pre
    assert pre is not None
    assert step.vhost is not None
    assert step.queue is not None
    told = {
        "uid": pre.uid,
        "epoch": pre.epoch,
        "master": pre.master,
        "synced": list(pre.synced),
        "min_synced": pre.min_synced,
        "max_lag_ops": pre.max_lag_ops,
    }
    size, vhost, queue = step.cost.bytes, step.vhost, step.queue
    return Work(
        step.id, step.action, vhost, queue, pre.uid, step.source, step.target, told, step.depends, size, wave
    )


class Order:
    """The order of steps: which of the waiting ones may begin, as others end one after the other."""

    def __init__(self, steps: Iterable[Work], states: Mapping[str, StepState]) -> None:
        """Make the order of all steps. states: of all of them; the caller updates this mapping."""
        self._states = states
        self._place: dict[str, int] = {}
        self._needs: dict[str, tuple[str, ...]] = {}
        self._relief: defaultdict[str, deque[str]] = defaultdict(deque)
        self._waiting: defaultdict[int, list[Work]] = defaultdict(list)
        self._unended: Counter[int] = Counter()
        last: dict[tuple[str, str, str], str] = {}
        for place, step in enumerate(steps):
            self._place[step.id] = place
            key = (step.uid, step.vhost, step.queue)
            before = (last[key],) if key in last else ()
            self._needs[step.id] = tuple(dict.fromkeys((*step.depends, *before)))
            last[key] = step.id
            if step.relieves is not None:
                self._relief[step.relieves].append(step.id)

    def add(self, step: Work) -> None:
        """Add a step that is to be carried out, unless it has ended."""
        if self._states[step.id] is StepState.WAITING:
            self._waiting[step.wave].append(step)
        self._unended[step.wave] += self._states[step.id] not in ENDED

    def ended(self, step: Work) -> None:
        """Note that an added step has an outcome."""
        self._unended[step.wave] -= 1

    @property
    def is_all_ended(self) -> bool:
        """True if all added steps have an outcome."""
        return not any(self._unended.values())

    def choose(self, admits: Callable[[Work], bool]) -> Iterator[tuple[Work, bool]]:
        """Yield steps that may begin now, with True, and steps that never will, with False; both stop waiting.

        admits: asked last, of each that may begin. The caller changes `states` before it takes the next step.
        """
        wave = min((wave for wave, count in self._unended.items() if count), default=0)
        waiting, self._waiting[wave] = self._waiting[wave], []
        for step in waiting:
            needs = [self._states[id_] for id_ in self._needs[step.id]]
            if any(state in ENDED and state not in SUCCEEDED for state in needs):
                yield step, False
            elif all(state in SUCCEEDED for state in needs) and self._has_room(step) and admits(step):
                yield step, True
            else:
                self._waiting[wave].append(step)

    def are_copies_waiting(self) -> bool:
        """True if a copy is yet to be begun."""
        return any(step.action == ADD for steps in self._waiting.values() for step in steps)

    def _has_room(self, step: Work) -> bool:
        """True if all earlier steps that relieve this step's target have ended."""
        if step.gains is None:
            return True
        relief = self._relief[step.gains]
        while relief and self._states[relief[0]] in ENDED:
            relief.popleft()
        return not relief or self._place[relief[0]] > self._place[step.id]
