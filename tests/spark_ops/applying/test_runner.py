"""Plans carried out on a fake cluster in virtual time: prefixes, kills, staleness, aborts, one step after the other."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from spark_ops.applying.runner import Options, Runner
from spark_ops.applying.states import SUCCEEDED, PlanState, StepState
from spark_ops.applying.throttle import Limits
from spark_ops.applying.work import works
from spark_ops.planning.plan import Plan
from tests.spark_ops.applying.fake_cluster import FakeCluster
from tests.spark_ops.applying.world import Killed, World, random_cluster, random_plan

Seeds = st.integers(0, 2**32 - 1)
Placement = dict[tuple[str, str], tuple[str | None, frozenset[str]]]


def placement(cluster: FakeCluster) -> Placement:
    return {key: (queue.master, frozenset(queue.ring)) for key, queue in cluster.queues.items()}


def planned(cluster: FakeCluster, plan: Plan) -> Placement:
    """Return where all queues should be in the end."""
    found = placement(cluster)
    for step in plan.steps:
        if step.post is not None:
            assert step.vhost is not None
            assert step.queue is not None
            found[step.vhost, step.queue] = step.post.master, frozenset(step.post.ring)
    return found


def made(
    seed: int, *, lost: float = 0.0, options: Options | None = None, moves_max: int = 100
) -> tuple[World, Plan]:
    random = Random(seed)
    cluster = random_cluster(random)
    plan = random_plan(cluster, random, moves_max=moves_max)
    before = {key: len(queue.synced) for key, queue in cluster.queues.items()}

    def watch(now: float) -> None:
        for key, queue in cluster.queues.items():
            wanted = min(before[key], queue.want + 1)
            assert len(queue.synced) >= wanted, (key, queue.synced)
            assert queue.master in queue.synced

    return World(cluster, plan.plan_id, works(plan), lost=lost, options=options, watch=watch), plan


def live_on(world: World, *, kills: int, random: Random) -> Runner:
    """Lives until one ends by itself; the first ones are killed at any line that the journal gets."""
    for _ in range(kills):
        try:
            return world.live(kill_at=len(world.journal) + random.randint(1, 12))
        except Killed:
            if world.has_ended:  # it was killed when all but the release of its lock was done
                return world.runner
    return world.live()


@pytest.mark.slow
@given(Seeds, st.sampled_from([1, 2, 100]))
@settings(max_examples=25, deadline=None)
def test_a_plan_ends_where_it_said(seed: int, moves_max: int) -> None:
    """spark §6.1, §6.12: all steps done, and copies never below what there was or is wanted."""
    world, plan = made(seed, moves_max=moves_max)
    wanted = planned(world.cluster, plan)
    runner = world.live()
    assert runner.state is PlanState.DONE
    assert set(runner.states.values()) <= SUCCEEDED
    world.settle()
    assert placement(world.cluster) == wanted
    assert world.cluster.lock is None


@pytest.mark.slow
@given(Seeds, st.integers(0, 6))
@example(seed=8375638, kills=4)  # killed behind its last line
@settings(max_examples=25, deadline=None)
def test_killed_at_any_line_it_resumes(seed: int, kills: int) -> None:
    """spark §6.13: kill it after any journal line, lose answers: the same end, and nothing was done twice."""
    world, plan = made(seed, lost=0.2)
    wanted = planned(world.cluster, plan)
    runner = live_on(world, kills=kills, random=Random(seed))
    assert runner.state is PlanState.DONE, runner.why
    world.settle()
    assert placement(world.cluster) == wanted
    assert max(Counter(world.cluster.seen_steps).values(), default=1) == 1


@pytest.mark.slow
@given(Seeds)
@settings(max_examples=15, deadline=None)
def test_applied_twice_all_is_skipped(seed: int) -> None:
    """spark §6.7."""
    world, _ = made(seed)
    world.live()
    world.settle()
    world.journal.clear()
    after, count = placement(world.cluster), len(world.cluster.seen_steps)
    runner = world.live()
    assert runner.state is PlanState.DONE
    assert set(runner.states.values()) <= {StepState.SKIPPED}
    assert (placement(world.cluster), len(world.cluster.seen_steps)) == (after, count)


@pytest.mark.slow
@given(Seeds, st.sampled_from(["skip", "stop"]), st.sampled_from(["epoch", "gone", "anew"]))
@settings(max_examples=25, deadline=None)
def test_what_is_stale_is_refused(seed: int, on_stale: str, how: str) -> None:
    """spark §6.13: a queue that changed since the plan was made is left as it is, with all of its steps."""
    world, plan = made(seed, options=Options(on_stale=on_stale))  # type: ignore[arg-type]
    if not plan.steps:
        return
    random = Random(seed)
    changed = random.choice(plan.steps)
    assert changed.vhost is not None
    assert changed.queue is not None
    key = changed.vhost, changed.queue
    queue = world.cluster.queues[key]
    if how == "gone":
        del world.cluster.queues[key]
    elif how == "anew":
        queue.uid = "another"
    else:  # somebody else moves its master, and back
        from node.catalogue.mirrors import views

        assume(len(queue.synced) > 1)
        old = queue.view.master
        for to in (next(each for each in queue.view.synced if each != old), old):
            assert queue.change(views.TransferMaster(queue.view.master, to))
            assert queue.change(views.TookOver(queue.view.since))
    before = placement(world.cluster).get(key)
    runner = world.live()
    world.settle()
    assert placement(world.cluster).get(key) == before
    states = [runner.states[step.id] for step in plan.steps if (step.vhost, step.queue) == key]
    if on_stale == "skip":
        assert runner.state is PlanState.DONE
        assert states[0] is StepState.STALE
        assert set(states[1:]) <= {StepState.DROPPED}
    else:
        assert runner.state is PlanState.STALE
        assert runner.why
        assert not set(states) & SUCCEEDED
    others = [runner.states[step.id] for step in plan.steps if (step.vhost, step.queue) != key]
    assert on_stale == "stop" or set(others) <= SUCCEEDED


@pytest.mark.slow
@given(Seeds, st.sampled_from(["alarm", "node", "view"]), st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_it_is_aborted_within_a_tick(seed: int, what: str, after: int) -> None:
    """spark §6.14: after an alarm, or when the membership changes, at most one tick passes until nothing begins."""
    world, _ = made(seed)
    world.watch = lambda now: None  # a node that dies takes its copies with it
    happened: list[float] = []
    begun: list[int] = []

    def happen(world: World) -> None:
        if not happened and len(world.journal) > after:
            happened.append(world.now)
            if what == "alarm":
                world.cluster.alarms.add("memory on rabbit@n1")
            elif what == "node":
                world.cluster.kill_node("rabbit@n2")
            else:
                world.cluster.view_id += 1
        if happened and world.now > happened[0] + world.options.tick_s + 0.6:
            begun.append(len(world.cluster.seen_steps))

    runner = world.live(then=happen)
    if not happened or runner.state is PlanState.DONE:
        return  # it was over before
    assert runner.state in (PlanState.ABORTED, PlanState.STALE)
    assert len(set(begun)) <= 1
    assert world.cluster.lock is None


def test_the_last_synchronised_mirror_is_lost() -> None:
    """spark §3.4: that ends a plan, whoever's fault it is."""
    cluster = FakeCluster(("a", "b", "c"), Random(1))
    cluster.add("x", ("a", "b"), 1, 50)
    plan = random_plan(cluster, Random(3))
    assert plan.steps
    cluster.add("y", ("a", "b"), 1)
    world = World(cluster, plan.plan_id, works(plan))

    def happen(world: World) -> None:
        queue = cluster.queues["/", "y"]
        if len(world.journal) >= 2 and len(queue.view.synced) > 1:
            queue.view = replace(queue.view, synced=(queue.view.master,))

    runner = world.live(then=happen)
    assert runner.state is PlanState.ABORTED
    assert runner.why == "queue 'y' in vhost '/' lost its last synchronised mirror"


def test_an_alarm_before_it_begins() -> None:
    """Nothing is begun, nothing is written, and the lock is given back."""
    world, _ = made(4)
    world.cluster.alarms.add("disk on rabbit@n3")
    runner = world.live()
    assert runner.refusal == "an alarm is set: disk on rabbit@n3"
    assert world.journal == []
    assert world.cluster.lock is None


def test_a_second_one_is_told_who_is_busy() -> None:
    """spark §3.4: "busy by X since T"."""
    world, _ = made(4)
    world.cluster.put_lock({"plan": "sha256:other", "owner": "eve@there", "ttl_s": 1e6}, world.now)
    runner = world.live()
    assert runner.refusal is not None
    assert "plan sha256:other of eve@there is being carried out since" in runner.refusal
    assert world.journal == []
    assert world.cluster.lock is not None
    assert world.cluster.lock["owner"] == "eve@there"


def test_a_lock_that_somebody_took_pauses() -> None:
    """After a freeze longer than its time, say."""
    world, _ = made(5)

    def happen(world: World) -> None:
        if len(world.journal) == 3:
            world.cluster.lock = None
            world.cluster.put_lock({"plan": "sha256:other", "owner": "eve", "ttl_s": 1e6}, world.now)

    runner = world.live(then=happen)
    assert runner.state is PlanState.PAUSED
    assert runner.why is not None
    assert "of eve" in runner.why
    count = len(world.cluster.seen_steps)
    world.cluster.lock = None
    assert world.live().state is PlanState.DONE
    assert len(world.cluster.seen_steps) > count


@pytest.mark.slow
@given(Seeds)
@settings(max_examples=15, deadline=None)
def test_pause_resume_abort(seed: int) -> None:
    """The present steps are ended, and nothing begins until it is resumed."""
    world, plan = made(seed)
    wanted = planned(world.cluster, plan)
    seen: list[tuple[float, int]] = []

    def operator(world: World) -> None:
        runner = world.runner
        if len(world.journal) >= 4 and not seen:
            runner.told("pause", world.now)
        if runner.state is PlanState.PAUSED:
            sent = sum(state is not StepState.WAITING for state in runner.states.values())
            seen.append((world.now, sent))
            if world.now > seen[0][0] + 60:
                runner.told("resume", world.now)

    runner = world.live(then=operator)
    assert runner.state is PlanState.DONE
    assert len({sent for _, sent in seen}) <= 1
    world.settle()
    assert placement(world.cluster) == wanted


@pytest.mark.slow
@given(Seeds, st.sampled_from(["abort", "interrupt"]))
@settings(max_examples=15, deadline=None)
def test_the_operator_ends_it(seed: int, verb: str) -> None:
    """At once: copies are not waited for. What was left on the way is taken up again by a resume."""
    world, plan = made(seed)
    wanted = planned(world.cluster, plan)
    told: list[float] = []

    def operator(world: World) -> None:
        if len(world.journal) >= 4 and not told:
            told.append(world.now)
            world.runner.told(verb, world.now)  # type: ignore[arg-type]

    runner = world.live(then=operator)
    if runner.state is PlanState.DONE:
        return
    assert world.now - told[0] < world.options.settle_s + 2
    assert world.cluster.lock is None
    if verb == "abort":
        assert runner.state is PlanState.ABORTED
    else:
        assert runner.state is PlanState.PAUSED
        assert world.live().state is PlanState.DONE
        world.settle()
        assert placement(world.cluster) == wanted


@pytest.mark.slow
@given(Seeds)
@settings(max_examples=15, deadline=None)
def test_waves_one_by_one(seed: int) -> None:
    """spark §6.10: every wave alone is valid; a later one is refused before an earlier one has ended."""
    world, plan = made(seed, moves_max=2, options=Options(wave=2))
    if len(plan.waves) < 2:
        return
    assert world.live().refusal == "wave 1 comes before wave 2"
    wanted = planned(world.cluster, plan)
    for number, wave in enumerate(plan.waves, 1):
        world.options = Options(wave=number)
        runner = world.live()
        assert all(runner.states[id_] in SUCCEEDED for id_ in wave)
        is_last = number == len(plan.waves)
        assert runner.state is (PlanState.DONE if is_last else PlanState.PAUSED)
        if number + 2 <= len(plan.waves):
            world.options = Options(wave=number + 2)
            assert world.live().refusal == f"wave {number + 1} comes before wave {number + 2}"
    world.settle()
    assert placement(world.cluster) == wanted


@pytest.mark.slow
@given(Seeds)
@settings(max_examples=15, deadline=None)
def test_no_more_at_once_than_allowed(seed: int) -> None:
    """spark §3.4: one promotion a source, two copies a node; and no node holds more than at the end of a prefix."""
    world, _ = made(seed, options=Options(limits=Limits(in_flight_first=16)))
    steps = {step.id: step for step in world.steps}
    ends: list[set[str]] = [set()]
    for step in world.steps:
        ends.append(ends[-1] | {step.id})

    def load(done: set[str], node: str) -> int:
        """Copies and masters that steps brought there."""
        gained = sum(steps[id_].gains == node for id_ in done)
        return gained - sum(steps[id_].relieves == node for id_ in done)

    most = {node: max(load(done, node) for done in ends) for node in world.cluster.nodes}

    def look(world: World) -> None:
        states = world.runner.states
        going = [step for step in world.steps if states[step.id] is StepState.SENT]
        sources = Counter(step.source for step in going if step.action == "promote")
        assert max(sources.values(), default=0) <= 1
        copying = [
            step
            for step in world.steps
            if step.action == "add_mirror"
            and states[step.id] in (StepState.SENT, StepState.DONE)
            and not any(
                other.action == "wait_synced" and other.copy == step.copy and states[other.id] in SUCCEEDED
                for other in world.steps
            )
        ]
        nodes = Counter(node for step in copying for node in (step.source, step.target))
        assert max(nodes.values(), default=0) <= 2
        gained = {step.id for step in world.steps if states[step.id] in (StepState.SENT, StepState.DONE)}
        relieved = {step.id for step in world.steps if states[step.id] is StepState.DONE}
        for node in world.cluster.nodes:
            begun = {id_ for id_ in gained if id_ in relieved or steps[id_].relieves != node}
            assert load(begun, node) <= most[node]

    assert world.live(then=look).state is PlanState.DONE


def test_a_copy_that_makes_no_progress_fails() -> None:
    """A copy without progress fails its step and drops dependent ones; others go on where the operator wants that."""
    world, plan = made(11, options=Options(on_stale="skip", stall_s=30.0))
    stuck = next(step for step in plan.steps if step.action == "wait_synced")
    assert stuck.queue is not None
    world.cluster.queues["/", stuck.queue].size_s = 1e9
    runner = world.live()
    assert runner.state is PlanState.DONE
    assert runner.states[stuck.id] is StepState.FAILED
    assert runner.reasons[stuck.id] == "no progress for 30 s"
    after = [step.id for step in plan.steps if stuck.id in step.depends]
    assert all(runner.states[id_] is StepState.DROPPED for id_ in after)


def test_a_cluster_that_does_not_answer_is_left_alone() -> None:
    """The journal says paused, and a resume goes on."""
    world, _ = made(12, lost=0.0)

    def happen(world: World) -> None:
        if len(world.journal) >= 3:
            world._lost = 1.0

    world._lost = 0.0
    runner = world.live(then=happen)
    assert runner.state is PlanState.PAUSED
    world._lost = 0.0
    assert world.live().state is PlanState.DONE


@pytest.mark.parametrize("status", [401, 403])
def test_a_user_who_may_not_is_told(status: int) -> None:
    """Nothing is begun."""
    from spark_ops.applying.asking import Answer

    world, _ = made(13)
    runner = Runner(world.plan_id, world.steps, "me", now=0.0)
    (ask,) = runner.asks(0.0)
    runner.answered(ask, Answer(status, {"error": "not_authorised", "reason": "Not administrator user"}), 0.1)
    assert runner.asks(0.2) == []
    assert runner.is_over
    assert runner.refusal == "Not administrator user"
    assert runner.take_records() == []
