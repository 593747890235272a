"""Plans that move copies in the simulated world, while everything else goes wrong: `spark_ops` as the brokers see it.

    PlanRun: mostly two copies of each queue on three or four nodes, so that there is somewhere to move to
    Applier: takes the lock, adds a copy, waits, maybe promotes, drops one; dies anywhere; knows what some node knows

What is checked of each change of a view that a step made, and of each copy that a policy reconciler gives up while
copies are placed: there are no fewer synchronised copies than before, or than the policy wants.
Source: spark §6.1, §6.14.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final

from node.catalogue.commands import (
    PlanAction,
    ReleasePlanLock,
    SetPolicy,
    StepOutcome,
    TakePlanLock,
    TakePlanStep,
)
from node.catalogue.events import ViewChanged
from node.catalogue.mirrors.mirror_nodes import copies_wanted
from node.catalogue.mirrors.plan_steps import synced_nodes
from node.catalogue.policy import queue_settings
from node.catalogue.records import Json, PlanLock, QueueRecord
from tests.sim.mirror_faults import FAULTS, Run
from tests.sim.mirror_world import Node, Violation

PAUSE_S: Final = 0.1
PATIENCE_S: Final = 6.0
"""An applier waits for one step this long."""
LOCK_MS: Final = 20_000

PLAN_FAULTS: Final = (*(name for name, weight in FAULTS if weight and name != "total"), "plan")
"""These faults happen beside plans; the other runs have the blackouts."""


class Applier:
    """One plan: one copy of one queue moves.   steals: it makes its steps without the lock."""

    def __init__(self, run: "PlanRun", number: int, *, steals: bool) -> None:
        self.run, self.world, self.random = run, run.world, run.random
        self.plan = run.held_plan if steals and run.held_plan else f"plan{number}"
        self.owner = f"applier{number}"
        self._steps = count(1)
        self._script: Iterator[float] = self._carry_out(steals=steals)
        self._answer: Any = None

    def begin(self) -> None:
        """Go on until the script ends, or this applier dies."""
        pause = next(self._script, None)
        if pause is None or self.random.random() < 0.02:
            return  # it dies: nobody ends what it began
        self.world.after(pause, self.begin)

    def _node(self) -> Node | None:
        """A node that answers."""
        serving = self.world.serving
        return self.random.choice(serving) if serving else None

    def _submit(self, command: Any) -> Iterator[float]:
        """Have one node propose a command; `_answer` is what came, None: nothing in time."""
        self._answer = None
        node = self._node()
        if node is None:
            return

        def answered(result: Any) -> None:
            self._answer = result

        self.world.submit(command, node, answered)
        for _ in range(20):
            yield PAUSE_S
            if self._answer is not None:
                return

    def _seen(self, name: str) -> QueueRecord | None:
        """The queue as some node knows it, which may be behind."""
        node = self._node()
        return None if node is None else node.broker.catalogue.queue("/", name)

    def _carry_out(self, *, steals: bool) -> Iterator[float]:
        if not steals:
            yield from self._submit(TakePlanLock(self.plan, self.owner, self._now_ms(), LOCK_MS))
            lock = self._answer
            if not isinstance(lock, PlanLock) or lock.owner != self.owner:
                self.run.counts["plans: busy"] += 1
                return
            self.run.held_plan = self.plan
        name = self.random.choice(self.run.queues)
        record = self._seen(name)
        view = None if record is None else record.view
        if record is not None and view is not None and view.state == "live":
            ring = [member.node for member in view.ring]
            free = [node for node in self.run.names if node not in ring]
            target = self.random.choice(free or ring)
            yield from self._step(record, "add_mirror", target, 0)
            yield from self._step(record, "wait_synced", target, 0)
            if self.random.random() < 0.4:
                yield from self._step(record, "promote", target, 0)
            now = self._seen(name)
            master = None if now is None or now.view is None else now.view.master_node
            goers = [node for node in ring if node not in (target, master)]
            if goers:
                yield from self._step(record, "drop_mirror", self.random.choice(goers), len(ring))
        if not steals:
            yield from self._submit(ReleasePlanLock(self.plan, self.owner))

    def _step(self, record: QueueRecord, action: PlanAction, node: str, least: int) -> Iterator[float]:
        """Ask for a step until it is made, or not to be made."""
        step = f"s{next(self._steps)}"
        end = self.world.now + PATIENCE_S
        while self.world.now < end:
            known = self._seen(record.name)
            view = None if known is None else known.view
            if known is None or view is None or known.uid != record.uid:
                return
            source, target = (node, "") if action == "drop_mirror" else ("", node)
            # Half of the plans believe that their knowledge is good, the others take what comes.
            sees = self.random.random() < 0.5
            yield from self._submit(
                TakePlanStep(
                    self.plan,
                    step,
                    self._now_ms(),
                    action,
                    "/",
                    record.name,
                    record.uid,
                    source,
                    target,
                    view.since if sees else None,
                    (view.master_node or "") if sees else "",
                    (),
                    least if action == "drop_mirror" and sees else 0,
                )
            )
            outcome = self._answer
            if isinstance(outcome, StepOutcome):
                self.run.counts[f"plans: {action} {outcome.state}"] += 1
                if outcome.state not in ("waiting", "started"):
                    return
            yield PAUSE_S

    def _now_ms(self) -> int:
        return int(self.world.now * 1000)


class NeededCopyTaken(Violation):
    """A step of a plan has taken a copy that the queue needed."""


class PlanRun(Run):
    """A run with plans in it."""

    def __init__(self, seed: int, *, is_traced: bool = False, faults: Sequence[str] = PLAN_FAULTS) -> None:
        self.held_plan = ""
        super().__init__(seed, is_traced=is_traced, faults=[name for name in faults if name != "plan"])
        if "plan" in faults:
            self.faults.append(("plan", 16))
        self._number = count(1)

    def policy(self) -> None:
        """Mostly one that leaves a choice of nodes."""
        if self.random.random() < 0.2:
            super().policy()
            return
        definition: dict[str, Json] = {
            "ha-mode": "exactly",
            "ha-params": self.random.choice((2, 2, len(self.names) - 1)),
            "ha-sync-mode": self.random.choice(("automatic", "manual")),
        }
        self.world.trace(f"policy {definition}")
        self.ledger.trouble()
        self.world.submit(SetPolicy("/", "ha", ".*", definition), None)

    def plan(self) -> None:
        """Somebody has a plan; some make steps by another one's lock."""
        applier = Applier(self, next(self._number), steals=self.random.random() < 0.2)
        self.world.after(self.random.random(), applier.begin)

    def _see(self, event: Any) -> None:
        if isinstance(event, ViewChanged):
            self._check_change(event)
        super()._see(event)

    def _check_change(self, event: ViewChanged) -> None:
        old, new = event.before.view, event.after.view
        if old is None or new is None or old.state != "live" or new.state != "live":
            return
        lost = synced_nodes(old) - synced_nodes(new)
        if event.cause:
            self.counts["plans: steps"] += 1
            if new.master != old.master and new.master not in old.synced:
                raise NeededCopyTaken(f"{event.cause} promotes who lacks something: {old} {new}")
        elif not (lost and event.before.placement and self._is_of_reconciler()):
            return
        if lost and len(synced_nodes(new)) < self._wanted(event.before):
            raise NeededCopyTaken(f"{event.cause or 'a reconciler'} takes a copy that is needed: {old} {new}")

    def _is_of_reconciler(self) -> bool:
        """Whether the change comes of a proposal to drop who is not wanted: not of a fault or of slowness."""
        change = getattr(self.world.log[-1], "change", None)
        return bool(getattr(change, "version", 0)) and type(change).__name__ == "DropMirror"

    def _wanted(self, record: QueueRecord) -> int:
        catalogue = self.world.catalogue
        settings = queue_settings(record.arguments, catalogue.effective_policy(record))
        return copies_wanted(settings, record, catalogue.members.values())

    def heal(self) -> None:
        """As every run. Its policy ends the placements; those of quorum queues, which have none, a last plan."""
        self.world.after(8.0, self._repair)
        super().heal()

    def _repair(self) -> None:
        """Give up copies that are one too many, until no queue is placed."""
        world = self.world
        now_ms = int(world.now * 1000) + 10 * LOCK_MS  # what locks there were have expired
        for record in world.catalogue.queues("/"):
            view = record.view
            if record.type != "quorum" or not record.placement or view is None:
                continue
            world.submit(TakePlanLock("repair", "heal", now_ms, LOCK_MS), None)
            for node in sorted(synced_nodes(view) - {view.master_node}):
                world.submit(
                    TakePlanStep(
                        "repair", node or "", now_ms, "drop_mirror", "/", record.name, record.uid, node or ""
                    ),
                    None,
                )
            world.after(1.0, self._repair)
            return

    def check(self) -> None:
        """As every run."""
        for record in self.world.catalogue.queues("/"):
            if record.placement:
                raise Violation(f"{record.name} is still placed: {record.placement}")
        super().check()


def run_plans(seed: int, *, is_traced: bool = False, seconds: float | None = None) -> PlanRun:
    """One run. Raises: Violation, or whatever an assertion of the code says."""
    run = PlanRun(seed, is_traced=is_traced)
    run.begin()
    run.trouble_for(run.random.choice((3.0, 8.0, 15.0)) if seconds is None else seconds)
    run.heal()
    run.check()
    return run
