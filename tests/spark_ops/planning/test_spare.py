"""Shortages of the other nodes after the loss of one: memory for copies that are made anew, and connections."""

from dataclasses import replace

import pytest

from spark_ops.planning.fleet import fleet_of
from spark_ops.planning.rows import ClusterRows
from spark_ops.planning.spare import Shortage, shortages
from spark_ops.planning.state import State
from tests.spark_ops.planning.clusters import FREE, NOW, cluster, node, plan, queue


def _shortages(rows: ClusterRows) -> list[Shortage]:
    return shortages(State(fleet_of(rows, FREE, now=NOW), FREE), FREE)


def _nodes(count: int, **given: float) -> ClusterRows:
    return cluster([node(f"n{number}", **given) for number in range(count)], [])


def test_connections_go_to_the_other_nodes() -> None:
    """Three nodes with 60 % of their descriptors in use: two have 90 % in use. Four have room."""
    (found,) = _shortages(_nodes(3, fds=1000.0, base_fds=600.0))
    assert (found.resource, found.used, found.limit) == ("file descriptors", pytest.approx(0.9), 0.8)
    assert _shortages(_nodes(4, fds=1000.0, base_fds=600.0)) == []
    assert _shortages(_nodes(3, base_fds=600.0)) == []


def test_copies_are_made_anew_where_there_are_nodes_for_them() -> None:
    """Memory: 8 GB a node, 80 % of it may be used. With copies on all nodes nothing is made anew."""
    rows = cluster(
        [node(name) for name in ("a", "b", "c", "d")],
        [queue("q", "a", "b", memory=6e9), queue("r", "c", "d", memory=6e9)],
    )
    (found,) = _shortages(rows)
    assert (found.resource, found.used) == ("memory", pytest.approx(1.0))
    everywhere = [replace(row, ring=("a", "b", "c", "d"), want_mirrors=3) for row in rows.queues]
    alone = [replace(row, ring=row.ring[:1], synced=row.ring[:1], want_mirrors=0) for row in rows.queues]
    for queues in (everywhere, alone):
        half = tuple(replace(row, memory=3e9) for row in queues)
        assert _shortages(replace(rows, queues=half)) == []


def test_the_plan_tells_it_and_nodes_to_be_left_do_not_count() -> None:
    rows = _nodes(3, fds=1000.0, base_fds=600.0)
    (note,) = plan(rows).steps
    assert (note.action, note.reason) == ("note", "no-spare")
    assert "90% of their file descriptors" in note.why
    drained = replace(rows, nodes=(replace(rows.nodes[0], is_draining=True), *rows.nodes[1:]))
    (found,) = _shortages(drained)
    assert found.used == pytest.approx(1.2)
    assert _shortages(_nodes(1, fds=1000.0, base_fds=900.0)) == []
