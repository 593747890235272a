"""A runner and a fake cluster in virtual time: answers that take their time, get lost, or never come; and kills.

The shell's order is kept: what a runner wants to have written is in the journal before what it asks for is sent.
"""

import heapq
import itertools
import json
from collections.abc import Callable
from random import Random
from typing import Any

from spark_ops.applying.asking import Answer, Ask, Silence
from spark_ops.applying.history import history
from spark_ops.applying.observation import Observation
from spark_ops.applying.runner import Options, Runner
from spark_ops.applying.states import EDGES, PlanState
from spark_ops.applying.work import Work
from spark_ops.planning import plan as plans
from spark_ops.planning.rows import NodeRow, QueueRow
from spark_ops.planning.steps import Move, NotPossible, placement_of, steps_of, waves_of
from tests.spark_ops.applying.fake_cluster import CLUSTER, FakeCluster, FakeQueue

BEGAN = 1_800_000_000.0
LONG_S = 3000.0


class Killed(Exception):
    """The program is no more."""


class World:
    """A plan that is carried out in as many lives as it takes.

    lost: which part of requests gets lost, half of them after they did their work.
    watch: called after each moment of the cluster, with its time.
    """

    def __init__(
        self,
        cluster: FakeCluster,
        plan_id: str,
        steps: tuple[Work, ...],
        *,
        lost: float = 0.0,
        options: Options | None = None,
        watch: Callable[[float], None] = lambda now: None,
    ) -> None:
        self.cluster = cluster
        self.journal: list[str] = []
        self.now = BEGAN
        self.runner: Runner
        self.plan_id = plan_id
        self.steps = steps
        self.options = options or Options()
        self.watch = watch
        self._lost = lost
        self._numbers = itertools.count()
        self._flying: list[tuple[float, int, Ask, Any]] = []

    @property
    def has_ended(self) -> bool:
        """True if the journal says that the plan has ended for good."""
        return PlanState.RUNNING not in EDGES[history(map(json.loads, self.journal)).state]

    def live(self, *, kill_at: int | None = None, then: Callable[["World"], None] | None = None) -> Runner:
        """One life, to its end.   kill_at: it dies when the journal has so many lines. Raises: Killed."""
        past = history(map(json.loads, self.journal))
        safe = {key for key, queue in self.cluster.queues.items() if len(queue.synced) > 1}
        runner = self.runner = Runner(
            self.plan_id, self.steps, "me#1", options=self.options, past=past, safe=safe, now=self.now
        )
        self._flying = []
        end = self.now + LONG_S
        while not runner.is_over:
            assert self.now < end, ("it does not end", runner.states, runner.state)
            asks = runner.asks(self.now)
            records = runner.take_records()
            for number, record in enumerate(records, 1):
                self.journal.append(json.dumps(record))
                if kill_at is not None and len(self.journal) >= kill_at:
                    if number == len(records) and self.cluster.random.random() < 0.5:
                        for ask in asks:
                            self._send(ask)
                    self._land_all()
                    raise Killed
            for ask in asks:
                self._send(ask)
            self._pass_time(runner)
            if then is not None:
                then(self)
        return runner

    def _send(self, ask: Ask) -> None:
        heapq.heappush(
            self._flying, (self.now + self.cluster.random.uniform(0.001, 0.3), next(self._numbers), ask, None)
        )

    def _pass_time(self, runner: Runner) -> None:
        wake = runner.wake_at(self.now)
        if self._flying and self._flying[0][0] <= wake:
            at, _, ask, given = heapq.heappop(self._flying)
            self._move_to(at)
            if given is None:
                given = self._result(ask)
                if isinstance(given, Silence):  # it is noticed later
                    heapq.heappush(self._flying, (at + 5, next(self._numbers), ask, given))
                    return
            if isinstance(given, Observation):
                runner.observed(ask, given, self.now)
            else:
                runner.answered(ask, given, self.now)
        else:
            self._move_to(max(wake, self.now + 0.001))

    def _land_all(self) -> None:
        """Deliver what a dead program has sent, which arrives all the same."""
        while self._flying:
            at, _, ask, given = heapq.heappop(self._flying)
            self._move_to(at)
            if given is None:
                self._result(ask)

    def _move_to(self, now: float) -> None:
        while self.now < now:  # so that nothing that lasts but a moment is missed
            self.now = min(now, self.now + 0.25)
            self.cluster.advance(self.now)
            self.watch(self.now)

    def _result(self, ask: Ask) -> Answer | Silence | Observation:
        dice = self.cluster.random.random()
        if dice < self._lost / 2:
            return Silence("connection refused")
        found = self._do(ask)
        self.watch(self.now)
        return Silence("the connection broke off") if dice < self._lost else found

    def _do(self, ask: Ask) -> Answer | Observation:
        match ask.kind:
            case "lock":
                return self.cluster.put_lock(ask.body, self.now)
            case "unlock":
                return self.cluster.delete_lock(ask.body)
            case "step":
                return self.cluster.step(ask.body, self.now)
        return self.cluster.observation()

    def settle(self) -> None:
        """Let the cluster end what it is at."""
        self._move_to(self.now + 30)


def row(queue: FakeQueue) -> QueueRow:
    """Return the row by which a planner knows a queue."""
    assert queue.master is not None
    return QueueRow(
        queue.vhost,
        queue.name,
        queue.uid,
        "classic",
        queue.master,
        queue.ring,
        queue.synced,
        epoch=queue.view.since,
        want_mirrors=queue.want,
        members=queue.members,
        size=1e6,
    )


def random_cluster(random: Random, *, nodes: int = 4, queues: int = 6) -> FakeCluster:
    """Queues with one to three copies here and there."""
    names = tuple(f"rabbit@n{number}" for number in range(1, nodes + 1))
    cluster = FakeCluster(names, random)
    for number in range(queues):
        want = random.randint(0, min(2, nodes - 2))
        cluster.add(f"q{number}", tuple(random.sample(names, want + 1)), want, random.uniform(0.1, 20))
    return cluster


def random_plan(
    cluster: FakeCluster, random: Random, *, moves_max: int = 100, now: float = BEGAN, name: str = CLUSTER
) -> plans.Plan:
    """Moves of most of the queues: another master, a copy elsewhere, or both."""
    made, count = [], 0
    nodes = {node: NodeRow(node, memory=1e9, disk=1e9) for node in cluster.nodes}
    for queue in cluster.queues.values():
        free = [node for node in cluster.nodes if node not in queue.ring]
        adds = tuple(random.sample(free, 1)) if free and random.random() < 0.7 else ()
        drops = tuple(random.sample(queue.ring, len(adds)))
        left = [node for node in (*queue.ring, *adds) if node not in drops]
        assert queue.master is not None
        master = random.choice(left) if queue.master in drops or random.random() < 0.5 else queue.master
        if not adds and master == queue.master:
            continue
        move = Move(row(queue), placement_of(row(queue)), master, adds, drops, "cpu", "why")
        try:
            steps = steps_of(move, count + 1, nodes)
        except NotPossible:
            continue
        made.append(steps)
        count += len(steps)
    document = plans.build(
        cluster=name,
        now=now,
        mode="full",
        inputs={"view_id": cluster.view_id, "topology_hash": "sha256:0"},
        goals=[],
        summary={},
        nodes=[],
        waves=waves_of(made, moves_max=moves_max, bytes_max=1 << 40),
        steps=[step for steps in made for step in steps],
    )
    return plans.parse_document(document)
