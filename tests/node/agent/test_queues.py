"""`list_queues` and `list_rings` show queues from the metadata and from what their homes tell."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from node.agent.moves import hosts, movable, transfer_to
from node.agent.queues import queue_rows, ring_rows
from node.app import Node
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import PutVhost, RestoreMember, RestoreQueue, SetPolicy
from node.catalogue.mirrors.views import TookOver, TransferMaster, View, changed, created, died
from node.catalogue.records import ClusterMember, QueueRecord
from node.io.control import EX_UNAVAILABLE, ControlError
from node.statistics.rows import Row

A, B, C = "a@h", "b@h", "c@h"
NODES = ((A, 11), (B, 12), (C, 13))
ALL = created(0, NODES)
QUEUE = QueueRecord("/", "q", "1" * 32, durable=True, home=A, view=ALL)


def catalogue_of(*records: QueueRecord, draining: str = "", down: str = "") -> Catalogue:
    catalogue = Catalogue()
    members = [
        ClusterMember(name, f"{name}:1", name, "disc", incarnation, name != down, name == draining)
        for name, incarnation in NODES
    ]
    for command in (PutVhost("/"), *map(RestoreMember, members), *map(RestoreQueue, records)):
        catalogue.apply(command)
    return catalogue


def measured(ready: int = 0, unacked: int = 0, consumers: int = 0, state: str = "running") -> Row:
    """As the statistics of a queue's home tell it."""
    return {
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
        "consumers": consumers,
        "state": state,
    }


def row_of(record: QueueRecord, told: Row | None) -> dict[str, Any]:
    [row] = rows_of(catalogue_of(record), {} if told is None else {record.uid: told})
    return row


def rows_of(catalogue: Catalogue, told: dict[str, Row], which: str = "all") -> list[dict[str, Any]]:
    broker, config = SimpleNamespace(catalogue=catalogue), SimpleNamespace(node_name=A)
    node = cast(Node, SimpleNamespace(broker=broker, config=config))
    return list(queue_rows(node, told, None, which))


# ---- list_queues ----


def test_a_mirrored_queue_has_pids_of_all_copies() -> None:
    """In the order of the ring from the master on, in the shape of RabbitMQ's pids."""
    view = replace(ALL, synced=ALL.synced[:2])
    row = row_of(replace(QUEUE, view=view), measured(2, 1, 3))
    assert row["pid"] == f"<{A}.11.{ALL.members[0].id}.0>"
    mirrors = [f"<{B}.12.{ALL.members[1].id}.0>", f"<{C}.13.{ALL.members[2].id}.0>"]
    assert row["slave_pids"] == row["mirror_pids"] == mirrors
    assert row["synchronised_slave_pids"] == row["synchronised_mirror_pids"] == mirrors[:1]
    assert (row["messages"], row["consumers"], row["state"]) == (3, 3, "running")
    assert row["recoverable_slaves"] == []


def test_a_queue_without_mirrors_has_none_of_these_columns() -> None:
    row = row_of(replace(QUEUE, view=None), measured())
    assert "slave_pids" not in row
    assert row["pid"] == f"<{A}.{QUEUE.uid}>"


FLUSHING = died(ALL, [ALL.master], may_lose=False)
DOWN = View(9, (), 0, (), state="down", recoverable=(B, C))


@pytest.mark.parametrize(
    ("record", "told", "state"),
    [
        (QUEUE, measured(), "running"),
        (QUEUE, measured(state="syncing"), "syncing"),
        (QUEUE, None, "down"),
        (replace(QUEUE, view=FLUSHING), None, "down"),
        (replace(QUEUE, view=DOWN), None, "down"),
        (replace(QUEUE, view=DOWN, type="quorum"), None, "minority"),
        (replace(QUEUE, view=None), None, "down"),
    ],
)
def test_states(record: QueueRecord, told: Row | None, state: str) -> None:
    assert row_of(record, told)["state"] == state


def test_a_queue_that_is_down_names_who_may_bring_it_back() -> None:
    row = row_of(replace(QUEUE, view=DOWN), None)
    assert row["recoverable_slaves"] == [B, C]
    assert row["slave_pids"] == []


def test_members_of_a_quorum_queue() -> None:
    row = row_of(replace(QUEUE, type="quorum"), measured())
    assert (row["leader"], row["members"], row["online"]) == (A, [A, B, C], [A, B, C])


def test_the_policy_that_applies() -> None:
    catalogue = catalogue_of(QUEUE)
    catalogue.apply(SetPolicy("/", "ha", "^q", {"ha-mode": "all"}))
    [row] = rows_of(catalogue, {})
    assert row["policy"] == "ha"
    assert row["effective_policy_definition"] == {"ha-mode": "all"}


@pytest.mark.parametrize(
    ("which", "names"), [("all", "efq"), ("online", "eq"), ("offline", "f"), ("local", "q")]
)
def test_which_queues(which: str, names: str) -> None:
    others = [replace(QUEUE, name=name, uid=name * 32, home=B, view=None) for name in "ef"]
    told = {uid: measured() for uid in (QUEUE.uid, "e" * 32)}
    rows = rows_of(catalogue_of(QUEUE, *others), told, which)
    assert "".join(row["name"] for row in rows) == names


# ---- list_rings ----


def test_a_ring_begins_with_its_master() -> None:
    view = replace(ALL, master=ALL.members[1].id, synced=ALL.synced[:2])
    sync = {"installed": 5, "total": 17, "is_running": True}
    progress = {"mirrors": [{"node": C, "behind": 12, "sync": sync}, {"node": A, "behind": 12, "sync": None}]}
    [row] = ring_rows(catalogue_of(replace(QUEUE, view=view)), {QUEUE.uid: progress}, "/")
    assert row["ring"] == [B, C, A]
    assert (row["master"], row["mirrors"], row["synchronised"]) == (B, [C, A], [A])
    assert (row["version"], row["state"]) == (ALL.version, "live")
    assert row["lag"] == 12
    assert row["sync"] == {C: sync}


def test_only_mirrored_queues_have_rings() -> None:
    assert list(ring_rows(catalogue_of(replace(QUEUE, view=None)), {}, None)) == []


def test_a_ring_without_a_master() -> None:
    [row] = ring_rows(catalogue_of(replace(QUEUE, view=DOWN)), {}, None)
    assert (row["master"], row["ring"], row["recoverable"], row["state"]) == (None, [], [B, C], "down")


# ---- masters that may move ----


def test_masters_that_may_move_have_a_synchronised_mirror_elsewhere() -> None:
    assert list(movable(catalogue_of(QUEUE), A)) == [QUEUE]
    assert list(movable(catalogue_of(QUEUE), B)) == []
    alone = replace(QUEUE, view=replace(ALL, synced=(ALL.master,)))
    assert list(movable(catalogue_of(alone), A)) == []


def test_masters_that_have_moved_count_until_others_act() -> None:
    """A master that has moved counts until others act, or a draining node would say too early that all have moved."""
    moving = changed(ALL, TransferMaster(ALL.master, ALL.synced[1]))
    assert moving is not None
    queue = replace(QUEUE, view=moving)
    assert list(movable(catalogue_of(queue), A)) == [queue]
    queue = replace(QUEUE, view=changed(moving, TookOver(moving.since)))
    assert list(movable(catalogue_of(queue), A)) == []


def test_nodes_in_maintenance_mode_get_no_masters() -> None:
    two = replace(QUEUE, view=replace(ALL, synced=ALL.synced[:2]))
    assert hosts(catalogue_of(draining=B, down=C), A) == [A]
    assert list(movable(catalogue_of(two, draining=B), A)) == []


def moved(view: View | None, target: str, draining: str = "") -> TransferMaster | None:
    record = replace(QUEUE, view=view)
    return transfer_to(catalogue_of(record, draining=draining), A, record, target)


def test_a_master_moves_to_a_synchronised_mirror() -> None:
    assert moved(ALL, B) == TransferMaster(ALL.master, ALL.members[1].id)
    assert moved(ALL, A) is None
    assert moved(None, A) is None


@pytest.mark.parametrize(
    ("view", "target", "draining", "reason"),
    [
        (None, B, "", "The queue is not mirrored: it cannot move"),
        (ALL, "nobody@h", "", "Node nobody@h has no copy of the queue"),
        (replace(ALL, synced=ALL.synced[:1]), B, "", f"The copy on node {B} is not synchronised"),
        (died(ALL, (ALL.members[1].id,), may_lose=False), B, "", f"Node {B} has no copy of the queue"),
        (ALL, B, B, f"Node {B} is in maintenance mode"),
        (replace(ALL, previous=2), B, "", "The queue has no master now, or is moving already"),
        (
            died(ALL, (ALL.master,), may_lose=False),
            B,
            "",
            "The queue has no master now, or is moving already",
        ),
    ],
)
def test_where_a_master_cannot_go(view: View | None, target: str, draining: str, reason: str) -> None:
    with pytest.raises(ControlError) as refusal:
        moved(view, target, draining)
    assert refusal.value.text == reason
    assert (refusal.value.exit_code == EX_UNAVAILABLE) is ("no master" in reason)
