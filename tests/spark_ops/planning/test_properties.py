"""Every plan has the properties of spark §6, on clusters of all kinds."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from spark_ops.planning.drafting import draft
from spark_ops.planning.fleet import fleet_of
from spark_ops.planning.goals import NODE_MODES, Settings
from spark_ops.planning.inverse import undone
from spark_ops.planning.plan import Plan, parse_document, written
from spark_ops.planning.planner import objective, planned
from spark_ops.planning.rows import ClusterRows
from spark_ops.planning.simulation import Simulator, simulated
from spark_ops.planning.state import State
from spark_ops.planning.steps import summary_of
from tests.spark_ops.planning.clusters import FREE, NOW, after, clusters, node, outcome, plan, queue
from tests.spark_ops.planning.clusters import cluster as cluster_of

MANY = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
MODES = st.sampled_from(["full", "repair", *NODE_MODES])


def _settings(rows: ClusterRows, mode: str, **given: object) -> Settings:
    named = rows.nodes[-1].node if mode in NODE_MODES else None
    return replace(FREE, mode=mode, node=named, **given)  # type: ignore[arg-type]


@MANY
@given(clusters(), MODES, st.integers(1, 5))
def test_every_prefix_keeps_copies_and_one_master(rows: ClusterRows, mode: str, wave_moves: int) -> None:
    """spark §6.1, §6.2: the broker would take each step, and after each there are as many synchronised copies as
    before or as the policy wants; a master has all.
    """
    found = plan(rows, _settings(rows, mode, wave_moves=wave_moves))
    result = simulated(found, rows)
    assert not result.refused
    assert not result.problems
    up = {row.node for row in rows.nodes}
    for (vhost, name), placement in result.placements.items():
        row = next(each for each in rows.queues if (each.vhost, each.queue) == (vhost, name))
        assert len(set(placement.members)) == len(placement.members)
        assert set(placement.members) <= up
        assert len(placement.members) >= min(len(row.ring), row.want_mirrors + 1)
        assert placement.members[0] in placement.ring


@MANY
@given(clusters(), MODES)
def test_no_hard_goal_is_more_violated_than_before(rows: ClusterRows, mode: str) -> None:
    """spark §6.3: of the hard goals none; draining and missing copies may cost what a loss leaves."""
    asked = _settings(rows, mode)
    found = outcome(rows, asked)
    before = State(found.state.fleet, asked)
    old, new = objective(before, []), objective(found.state, [])
    may_cost = any(move.may_cost for move in found.moves)
    for at, (one, other) in enumerate(zip(old, new, strict=True)):
        if at == 4 and may_cost:
            continue
        if at == 2 and may_cost:
            continue  # a copy that came may be in a zone that is there already: then it lacks another one
        assert other <= one + 1e-6, (at, old, new)


@MANY
@given(clusters(with_oddities=False))
def test_more_moves_make_no_plan_worse(rows: ClusterRows) -> None:
    """spark §6.3, §6.10: of two plans the one that may have more moves is never worse, in order of the goals."""
    found = outcome(rows)
    states = []
    for count in range(len(found.moves) + 1):
        part = outcome(rows, replace(FREE, max_moves=count))
        assert len(part.moves) <= count
        states.append(objective(part.state, found.bounds))
    for one, other in pairwise(states):
        assert other <= tuple(value + 1e-6 for value in one)


@MANY
@given(clusters())
def test_zones_are_kept(rows: ClusterRows) -> None:
    """spark §6.4: in full mode no queue has copies in fewer zones afterwards, unless it left a node it had to."""
    zone = {row.node: row.zone for row in rows.nodes}
    found = outcome(rows)
    drained = {found.state.fleet.row(move.queue).uid for move in found.moves if move.may_cost}
    changed = after(rows, plan(rows))
    for old, new in zip(rows.queues, changed.queues, strict=True):
        if old.uid not in drained:
            assert len({zone[each] for each in new.ring}) >= len({zone[each] for each in old.ring})


@MANY
@given(clusters(), st.integers(1, 4))
def test_no_node_is_above_its_limit_at_any_prefix(rows: ClusterRows, wave_moves: int) -> None:
    """spark §6.5: memory, disk and cpu, what is copied counted at both ends; drops of a wave come after its adds."""
    found = plan(rows, replace(FREE, wave_moves=wave_moves))
    nodes = {row.node: row for row in rows.nodes}
    queues = {(row.vhost, row.queue): row for row in rows.queues}
    simulator = Simulator(rows)

    def loads() -> dict[str, list[float]]:
        used = {name: [row.base_cpu, row.base_memory, row.base_disk] for name, row in nodes.items()}
        for key, placement in simulator.result.placements.items():
            row = queues[key]
            for name in placement.members:
                used[name][0] += row.cpu if name == placement.master else row.mirror_cpu
                used[name][1] += row.memory
                used[name][2] += row.disk
        return used

    def limit(name: str) -> tuple[float, float, float]:
        return 0.7 * nodes[name].cores, 0.8 * nodes[name].memory, 0.8 * nodes[name].disk

    first = loads()
    by_id = found.by_id
    for wave in found.waves:
        # The worst order that there may be: all that comes, before anything goes.
        steps = [by_id[id_] for id_ in wave]
        for step in steps:
            simulator.step(step)
            for name, used in loads().items():
                for value, most, before in zip(used, limit(name), first[name], strict=True):
                    assert value <= max(most, before) * (1 + 1e-6)


@MANY
@given(clusters())
def test_a_drained_node_is_left_or_it_is_said_why_not(rows: ClusterRows) -> None:
    """spark §6.6; exclusive, excluded and cooling queues are in no step."""
    asked = _settings(rows, "drain-node", exclude_queue="^q3$")
    found = plan(rows, asked)
    drained = {asked.node, *(row.node for row in rows.nodes if row.is_draining)}
    told = {(step.vhost, step.queue, step.source) for step in found.steps if step.reason == "cannot-move"}
    for row in after(rows, found).queues:
        for name in drained & set(row.ring):
            assert (row.vhost, row.queue, name) in told
    touched = {(step.vhost, step.queue) for step in found.steps if step.action != "note"}
    for row in rows.queues:
        if row.is_exclusive or row.moved_at or row.queue == "q3":
            assert (row.vhost, row.queue) not in touched


ONE_TOO_MANY = cluster_of(
    [node("n0", is_draining=True), node("n1"), node("n2")],
    [queue("q0", "n0"), queue("q1", "n1"), queue("q2", "n1"), queue("q3", "n0", "n1", "n2", want_mirrors=1)],
)
"""A copy that has to leave n0 finds no place until another one, which is too many, has gone."""

ROOM_COMES_LATER = cluster_of(
    [node("n0", is_draining=True), *(node(f"n{number}") for number in (1, 2, 3, 4))],
    [
        queue("big", "n2", "n0", memory=3e9, size=3e9, fixed_nodes=("n0", "n1", "n2")),
        queue("x", "n1", "n3", memory=2e9, size=2e9),
        queue("y", "n3", "n1", memory=2e9, size=2e9),
    ],
)
"""A copy that has to leave n0 finds room on n1 when a balance of memory has made some."""

LEFT_IN_TWO_ROUNDS = cluster_of(
    [
        *(node(f"n{number}", is_draining=True) for number in (0, 1, 2)),
        *(node(f"n{number}") for number in (3, 4, 5)),
    ],
    [
        queue("q0", "n0", want_mirrors=1, cpu=1.6136, mirror_cpu=0.1614),
        queue("q3", "n0", "n1", synced=("n0",), cpu=0.0001, out_bytes=1e6),
        queue("q4", "n0", "n1", synced=("n0",), cpu=0.0001, out_bytes=1e5),
    ],
)
"""Masters leave n0 once their copies on n1 have gone to other nodes: before that the mean of masters is 0."""


@MANY
@given(clusters(), MODES)
@example(ONE_TOO_MANY, "full")
@example(ROOM_COMES_LATER, "full")
@example(LEFT_IN_TWO_ROUNDS, "full")
def test_a_plan_of_the_planned_is_empty(rows: ClusterRows, mode: str) -> None:
    """spark §6.7; and a plan that is carried out twice does nothing the second time."""
    asked = _settings(rows, mode)
    found = plan(rows, asked)
    changed = after(rows, found)
    again = plan(changed, asked)
    assert again.waves == ()


@MANY
@given(clusters(), st.randoms(use_true_random=False), st.integers(0, 3))
def test_the_order_of_rows_changes_nothing(rows: ClusterRows, random: object, seed: int) -> None:
    """spark §6.8: same plan to the byte for other orders of rows; the same moves if nodes have other names that are
    in the same order.
    """
    nodes, queues = list(rows.nodes), list(rows.queues)
    random.shuffle(nodes)  # type: ignore[attr-defined]
    random.shuffle(queues)  # type: ignore[attr-defined]
    shuffled = replace(rows, nodes=tuple(nodes), queues=tuple(queues))
    asked = replace(FREE, seed=seed)
    text = written(draft(rows, asked, now=NOW))
    assert written(draft(shuffled, asked, now=NOW)) == text
    named = _renamed(rows)
    renamed = outcome(named, asked)
    assert renamed.moves == [
        replace(move, why=renamed.moves[at].why) for at, move in enumerate(outcome(rows, asked).moves)
    ]


def _renamed(rows: ClusterRows) -> ClusterRows:
    def new(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"x{name}" for name in names)

    return replace(
        rows,
        nodes=tuple(replace(row, node=f"x{row.node}") for row in rows.nodes),
        queues=tuple(
            replace(
                row,
                master=f"x{row.master}",
                ring=new(row.ring),
                synced=new(row.synced),
                members=new(row.members),
                fixed_nodes=None if row.fixed_nodes is None else new(row.fixed_nodes),
                clients={f"x{name}": count for name, count in row.clients.items()},
            )
            for row in rows.queues
        ),
    )


@MANY
@given(clusters(), st.sampled_from([0.25, 2.0, 16.0]))
def test_loads_and_capacities_scale_together(rows: ClusterRows, factor: float) -> None:
    """spark §6.9: the same moves if all loads and all that nodes have is so many times as much."""
    asked = replace(FREE, goals=("cpu", "memory", "disk", "masters", "locality"))
    scaled = replace(
        rows,
        nodes=tuple(
            replace(
                row,
                cores=row.cores * factor,
                memory=row.memory * factor,
                disk=row.disk * factor,
                base_cpu=row.base_cpu * factor,
                base_memory=row.base_memory * factor,
            )
            for row in rows.nodes
        ),
        queues=tuple(
            replace(
                row,
                cpu=row.cpu * factor,
                mirror_cpu=row.mirror_cpu * factor,
                memory=row.memory * factor,
                disk=row.disk * factor,
            )
            for row in rows.queues
        ),
    )

    def moves(which: ClusterRows) -> list[tuple[object, ...]]:
        return [
            (move.queue, move.source, move.target, move.adds, move.drops)
            for move in outcome(which, asked).moves
        ]

    assert moves(scaled) == moves(rows)


@MANY
@given(clusters())
def test_no_moves_and_single_waves(rows: ClusterRows) -> None:
    """spark §6.10: --max-moves 0 is an empty plan; waves that come before may be carried out without the rest."""
    assert plan(rows, replace(FREE, max_moves=0)).waves == ()
    found = plan(rows, replace(FREE, wave_moves=2))
    simulator = Simulator(rows)
    for wave in found.waves:
        for id_ in wave:
            simulator.step(found.by_id[id_])
        assert not simulator.result.refused
        assert not simulator.result.problems


@MANY
@given(clusters(), MODES)
def test_a_plan_does_what_it_says(rows: ClusterRows, mode: str) -> None:
    """spark §6.11: the summary is the sum of the steps, nodes have after it what was predicted, and what steps say
    of their effects adds up to that.
    """
    asked = _settings(rows, mode)
    found = plan(rows, asked)
    real = summary_of([step for step in found.steps if step.action != "note"])
    assert {name: found.summary[name] for name in real} == real
    state = State(fleet_of(after(rows, found), asked, now=NOW), asked)
    for at, row in enumerate(found.nodes):
        for name, dimension in (("cpu", 0), ("memory", 3), ("disk", 4)):
            share = state.share(dimension, at)
            assert row[f"{name}_after"] == pytest.approx(share, abs=2e-4)
            told = sum(step.effect.get(f"{row['node']}.{name}", 0.0) for step in found.steps)
            assert row[f"{name}_after"] - row[f"{name}_before"] == pytest.approx(told, abs=2e-4)
        assert row["masters_after"] == state.load[5][at]
        assert row["copies_after"] == state.load[6][at]
        lost = (state.load[0][at] + state.worst[at]) / rows.nodes[at].cores
        assert row["cpu_after_loss_after"] == pytest.approx(lost, abs=2e-4)


@MANY
@given(clusters(), MODES, st.data())
def test_any_prefix_can_be_undone(rows: ClusterRows, mode: str, data: st.DataObject) -> None:
    """spark §6.12: masters and copies are where they were; the ring too, where no copy went, else it is said."""
    found = plan(rows, _settings(rows, mode))
    steps = [step for step in found.steps if step.action != "note"]
    count = data.draw(st.integers(0, len(steps)))
    completed = [step.id for step in steps[:count]]
    part = Plan(**{**_fields(found), "steps": tuple(steps[:count]), "waves": ()})
    changed = after(rows, part)
    back = parse_document(undone(found, completed, changed, now=NOW))
    restored = after(changed, back)
    told = {(step.vhost, step.queue): step.why for step in back.steps if step.action == "note"}
    for old, new in zip(rows.queues, restored.queues, strict=True):
        key = old.vhost, old.queue
        if key in told and "left as it is" in told[key]:
            # Only what had too few synchronised copies, or what its policy doesn't want.
            assert len(old.synced) <= old.want_mirrors or len(old.ring) > old.want_mirrors + 1
            continue
        assert new.master == old.master
        assert set(new.ring) == set(old.ring)
        assert new.ring == old.ring or key in told
    moved = {(step.vhost, step.queue) for step in steps[:count] if step.action != "promote"}
    for old, new in zip(rows.queues, restored.queues, strict=True):
        if (old.vhost, old.queue) not in moved:
            assert (new.ring, new.members or new.ring) == (old.ring, old.members or old.ring)


def _fields(found: Plan) -> dict[str, object]:
    return {name: getattr(found, name) for name in Plan.__dataclass_fields__}


@MANY
@given(clusters(nodes_min=3, with_oddities=False))
def test_a_new_node_only_receives(rows: ClusterRows) -> None:
    """spark §6.15: and nothing moves among the others."""
    new = node("new", zone=rows.nodes[0].zone)
    grown = replace(rows, nodes=(*rows.nodes, new))
    found = plan(grown, replace(FREE, mode="add-node", node="new"))
    for step in found.steps:
        if step.action in ("promote", "add_mirror"):
            assert step.target == "new"
        if step.action == "drop_mirror":
            assert step.source != "new"


@MANY
@given(clusters())
def test_a_demoted_node_has_no_masters_or_it_is_said_why(rows: ClusterRows) -> None:
    """spark §6.15: its copies stay, and no other queue is touched."""
    asked = _settings(rows, "demote")
    found = plan(rows, asked)
    told = {(step.vhost, step.queue) for step in found.steps if step.reason == "cannot-move"}
    assert {step.action for step in found.steps} <= {"promote", "note"}
    assert all(step.source == asked.node for step in found.steps if step.action == "promote")
    for row in after(rows, found).queues:
        assert row.master != asked.node or (row.vhost, row.queue) in told
    goal = next(goal for goal in found.goals if goal["id"] == "demote")
    assert goal["met"] == (goal["after"] == 0)


def test_a_demoted_node_is_restored() -> None:
    """spark §6.15: with its share of masters, without any copy."""
    names = ["a", "b", "c"]
    queues = [queue(f"q{n}", *(names[(n + k) % 3] for k in range(3)), cpu=0.5, size=1e6) for n in range(12)]
    rows = cluster_of([node(name) for name in names], queues)
    demoted = after(rows, plan(rows, replace(FREE, mode="demote", node="a")))
    assert Counter(row.master for row in demoted.queues) == {"b": 6, "c": 6}
    found = plan(demoted, replace(FREE, mode="restore", node="a"))
    assert {step.action for step in found.steps} == {"promote"}
    assert Counter(row.master for row in after(demoted, found).queues) == {"a": 4, "b": 4, "c": 4}


@MANY
@given(clusters(with_oddities=False), st.sampled_from([0.5, 1.0]))
def test_hot_nodes_get_colder(rows: ClusterRows, share: float) -> None:
    """No node that was above where there is to be acted has more of cpu afterwards than the fullest had before."""
    assume(rows.queues)
    asked = replace(FREE, goals=("cpu",), promote_share=0.005 * share)
    fleet = fleet_of(rows, asked, now=NOW)
    before, found = State(fleet, asked), planned(fleet, asked)
    fullest = max(before.share(0, at) for at in range(len(rows.nodes)))
    assert max(found.state.share(0, at) for at in range(len(rows.nodes))) <= max(fullest, 0.7) + 1e-9


def test_a_balanced_cluster_needs_no_plan() -> None:
    """spark §6.7: also with a little noise."""
    names = ["a", "b", "c"]
    queues = [
        queue(f"q{n}", *(names[(n + k) % 3] for k in range(3)), cpu=0.5 + 0.01 * (n % 4), size=1e6)
        for n in range(12)
    ]
    rows = cluster_of([node(name) for name in names], queues)
    assert plan(rows).waves == ()


def test_what_is_one_too_many_goes_from_where_it_has_to_leave() -> None:
    """No copy comes for one that has to leave while another one, which could stay, is given up."""
    found = [step for step in plan(ONE_TOO_MANY).steps if step.queue == "q3"]
    assert [step.source for step in found if step.action == "drop_mirror"] == ["n0"]
    assert not [step for step in found if step.action == "add_mirror"]


def test_the_only_copy_of_a_queue_moves() -> None:
    """spark §6.1: off a node that is drained, and from a hot node; the new copy has all before the old one goes."""
    names = ["a", "b", "c"]
    queues = [queue(f"q{n}", "a", cpu=1.0, size=5e6, memory=5e6) for n in range(6)]
    rows = cluster_of([node(name) for name in names], queues)
    drained = plan(rows, replace(FREE, mode="drain-node", node="a"))
    assert [step.action for step in drained.steps] == [
        "add_mirror",
        "wait_synced",
        "promote",
        "drop_mirror",
    ] * 6
    assert not [row for row in after(rows, drained).queues if "a" in row.ring]
    even = after(rows, plan(rows)).queues
    assert sorted(row.master for row in even) == ["a", "a", "b", "b", "c", "c"]
    assert all(row.ring == row.synced == (row.master,) for row in even)
    assert plan(rows, replace(FREE, with_copies=False)).waves == ()


def test_what_an_aborted_plan_leaves_of_an_only_copy_is_dropped() -> None:
    rows = cluster_of([node("a"), node("b")], [queue("q", "a", "b", want_mirrors=0)])
    (step,) = plan(rows).steps
    assert (step.action, step.source) == ("drop_mirror", "b")
