"""Topologies, the copies of a queue, simulations, differences: what each says and what it refuses."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from node.catalogue.mirrors import views
from spark_ops.planning.diff import difference
from spark_ops.planning.goals import Settings, SettingsError, checked, settings_from
from spark_ops.planning.inverse import undone
from spark_ops.planning.placement import Placement
from spark_ops.planning.plan import parse_document
from spark_ops.planning.rows import ClusterRows
from spark_ops.planning.simulation import simulated
from spark_ops.planning.steps import Move, NotPossible, check, placement_of
from spark_ops.planning.times import iso, seconds
from spark_ops.planning.topology import TopologyError, parse, rows_of
from tests.spark_ops.planning.clusters import (
    FREE,
    NOW,
    after,
    cluster,
    clusters,
    document_of,
    node,
    plan,
    queue,
)


def _small() -> ClusterRows:
    names = ["a", "b", "c"]
    return cluster(
        [node(name) for name in names], [queue(f"q{n}", "a", "b", cpu=1.0, size=1e6) for n in range(4)]
    )


# --- placements ---


def _of(view: views.View) -> Placement:
    names = {member.id: member.node for member in view.members}
    return Placement(
        tuple(member.node for member in view.members),
        names[view.master],
        frozenset(names[id_] for id_ in view.synced),
    )


def test_a_placement_does_what_a_view_does() -> None:
    """The model is the broker's: add, fill, promote, drop and the death of a master, step by step."""
    view = views.created(0, [("a", 1), ("b", 1), ("c", 1)])
    model = Placement(("a", "b", "c"), "a", frozenset("abc"))

    def change(*changes: views.ViewChange) -> None:
        nonlocal view
        for each in changes:
            changed = views.changed(view, each)
            assert changed is not None, each
            view = changed

    def id_of(name: str) -> int:
        member = view.member_on(name)
        assert member is not None
        return member.id

    def promote(name: str) -> None:
        change(views.TransferMaster(view.master, id_of(name)))
        change(views.TookOver(view.since))

    promote("b")
    model = model.promoted("b")
    assert _of(view) == model
    change(views.AddMirror("d", 1))
    change(views.ActivateMirror(id_of("d")), views.MirrorSynced(id_of("d")))
    model = model.added("d").filled("d")
    assert _of(view) == model
    promote("d")
    model = model.promoted("d")
    dropped = id_of("a")
    change(views.DropMirror(dropped))
    change(views.EraseMirror(dropped, view.owner_of(dropped)))
    model = model.dropped("a")
    assert _of(view) == model
    heir = model.heir
    dead = id_of("d")
    view = views.died(view, [dead], may_lose=False)
    change(views.EraseMirror(dead, view.owner_of(dead)))
    survived = model.without(["d"])
    assert survived is not None
    assert _of(view) == survived
    assert survived.master == heir


@pytest.mark.parametrize(
    ("adds", "drops", "master", "why"),
    [
        (("b",), (), "a", "already"),
        ((), ("c",), "a", "no mirror"),
        ((), ("b",), "a", "too few"),
        ((), (), "c", "no synchronised copy"),
        ((), ("a",), "a", "no mirror"),
    ],
)
def test_moves_that_cannot_be(adds: tuple[str, ...], drops: tuple[str, ...], master: str, why: str) -> None:
    row = queue("q", "a", "b")
    with pytest.raises(NotPossible, match=why):
        check(Move(row, placement_of(row), master, adds, drops, "r", "w"))


# --- topologies ---


@settings(deadline=None, max_examples=30)
@given(clusters())
def test_a_topology_comes_back(rows: ClusterRows) -> None:
    text = json.dumps(document_of(rows))
    found = parse(text)
    assert document_of(found) == document_of(rows)
    assert [row.members or row.ring for row in found.queues] == [
        row.members or row.ring for row in rows.queues
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "fluffle-topology/9"),
        (("view_id",), "1"),
        (("nodes", 0, "is_up"), 1),
        (("nodes", 1, "node"), "a"),
        (("queues", 0, "ring"), ["b", "a"]),
        (("queues", 0, "ring"), ["a", "a"]),
        (("queues", 0, "synced"), ["c"]),
        (("queues", 0, "members"), ["a"]),
        (("queues", 0, "want_mirrors"), -1),
        (("queues", 0, "epoch"), None),
        (("queues", 0, "queue"), "q1"),
        (("queues",), {}),
        (("nodes", 0, "labels"), {"x": 1}),
    ],
)
def test_topologies_that_make_no_sense(path: tuple[str | int, ...], value: Any) -> None:
    document = document_of(_small())
    at: Any = document
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    with pytest.raises(TopologyError) as caught:
        rows_of(document)
    assert "\n" not in str(caught.value)


def test_a_queue_without_a_master_is_left_alone() -> None:
    """As the broker writes it: copies may be known, nobody leads."""
    document = document_of(_small())
    document["queues"][0].update(master=None, synced=[])
    rows = rows_of(document)
    assert all(step.queue != "q0" for step in plan(rows).steps if step.action != "note")


def test_a_queue_cools_down_unless_a_move_of_it_is_unfinished() -> None:
    """A copy that was added and not yet dropped elsewhere is one too many, and a new plan may drop it."""
    rows = cluster(
        [node("n0", is_draining=True), node("n1"), node("n2")],
        [
            replace(queue("moved", "n1", "n0"), moved_at=NOW - 60),
            replace(queue("between", "n1", "n0", "n2", want_mirrors=1), moved_at=NOW - 60),
        ],
    )
    found = plan(rows, replace(FREE, mode="repair"))
    steps = {(step.queue, step.action, step.source) for step in found.steps if step.action != "note"}
    assert steps == {("between", "drop_mirror", "n0")}


# --- simulations ---


def test_what_has_changed_since_is_refused() -> None:
    """spark §6.13: master, epoch, incarnation, synchronised copies, a node that is down."""
    rows = _small()
    found = plan(rows, replace(FREE, goals=("masters",)))
    step = next(step for step in found.steps if step.action == "promote")
    old = next(row for row in rows.queues if row.queue == step.queue)
    others = tuple(row for row in rows.queues if row is not old)
    for new in (
        replace(old, epoch=8),
        replace(old, uid="another"),
        replace(old, synced=("a",)),
        replace(old, ring=("c", "b"), synced=("c", "b"), master="c"),
    ):
        result = simulated(found, replace(rows, queues=(new, *others)))
        assert step.id in result.refused
        assert not result.problems
    down = tuple(replace(row, is_up=row.node != step.target) for row in rows.nodes)
    assert step.id in simulated(found, replace(rows, nodes=down)).refused
    again = simulated(found, after(rows, found))
    assert again.done == []
    assert again.refused == {}


def test_a_node_that_dies_on_the_way() -> None:
    rows = _small()
    found = plan(rows, replace(FREE, mode="drain-node", node="b"))
    first = found.steps[0].id
    result = simulated(found, rows, {first: ["a"]})
    assert result.lost == []  # each has a synchronised copy on b
    assert result.problems == []
    result = simulated(found, rows, {first: ["a", "b"]})
    assert len(result.lost) == 4
    assert result.would_be_lost == 4


# --- differences, and back ---


def test_two_plans_differ_by_queue() -> None:
    rows = _small()
    drained = plan(rows, replace(FREE, mode="drain-node", node="b"))
    spread = plan(rows, replace(FREE, goals=("masters",)))
    assert difference(drained, drained).is_none
    found = difference(drained, spread)
    assert {change.queue for change in found.only_first} | {one.queue for one, _ in found.changed} == {
        "q0",
        "q1",
        "q2",
        "q3",
    }
    assert "copy to c" in found.changed[0][0].text


def test_what_is_elsewhere_now_is_not_undone() -> None:
    rows = _small()
    found = plan(rows, replace(FREE, goals=("masters",)))
    done = [step.id for step in found.steps]
    back = parse_document(undone(found, done, rows, now=NOW))  # somebody has undone it already
    assert back.waves == ()
    assert all("left as it is" in step.why for step in back.steps)
    gone = replace(after(rows, found), queues=())
    assert all(
        "not there any more" in step.why for step in parse_document(undone(found, done, gone, now=NOW)).steps
    )


# --- advice and settings ---


def test_a_queue_that_is_too_much_for_a_node_is_told() -> None:
    rows = cluster([node("a"), node("b")], [queue("big", "a", "b", cpu=7.0), queue("q", "a", "b", cpu=0.1)])
    notes = [step for step in plan(rows).steps if step.reason == "hot-single-queue"]
    assert [note.queue for note in notes] == ["big"]
    assert "divide it into 4" in notes[0].why


def test_a_cluster_that_is_too_small_is_told() -> None:
    rows = cluster([node("a"), node("b")], [queue(f"q{n}", "a", "b", cpu=1.0) for n in range(13)])
    notes = [step.why for step in plan(rows).steps if step.reason == "add-nodes"]
    assert len(notes) == 1
    assert "add 1 nodes" in notes[0]


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "drain-node"},
        {"node": "a"},
        {"cpu_max": 0.0},
        {"max_moves": -1},
        {"goals": ("cpu", "cpu")},
        {"goals": ("speed",)},
        {"only_vhost": "("},
        {"wave_moves": 0},
        {"expires_s": 1e9},
    ],
)
def test_settings_that_make_no_sense(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        checked(replace(Settings(), **given))


def test_settings_from_a_file() -> None:
    found = settings_from({"goals": ["cpu"], "cpu_max": 0.5, "max_moves": 7}, Settings())
    assert (found.goals, found.cpu_max, found.max_moves) == (("cpu",), 0.5, 7)
    for wrong in ({"speed": 1}, {"cpu_max": "much"}, {"with_copies": 1}, {"goals": "cpu"}, {"seed": True}):
        with pytest.raises(SettingsError):
            settings_from(wrong, Settings())


def test_a_node_that_is_not_there() -> None:
    with pytest.raises(SettingsError, match="no node 'x'"):
        plan(_small(), replace(FREE, mode="drain-node", node="x"))


def test_times() -> None:
    assert seconds(iso(1_800_000_000.9)) == 1_800_000_000
    for wrong in ("", "2026-11-21", "2026-13-21T09:00:00Z", "2026-11-21T09:00:00+00:00Z"):
        with pytest.raises(ValueError, match="time"):
            seconds(wrong)
