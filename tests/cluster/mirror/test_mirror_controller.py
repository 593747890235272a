"""A node proposes once what its policy reconciler and its queue recovery want, and tells once what becomes of queues.

Whole brokers: `tests.kit.disk_cluster`. Which proposals are right: test_policy_reconciler.py, test_queue_recovery.py.
"""

from collections import Counter

from cluster.mirror.mirror_controller import MirrorController
from node.amqp.methods import BasicAck
from node.catalogue.commands import (
    ChangeView,
    ClearPolicy,
    DeleteQueue,
    SetDraining,
    SetPolicy,
    StartMirroring,
)
from node.catalogue.mirrors.views import AddMirror, DropMirror, OfferCopy, Revive, TookOver, TransferMaster
from tests.kit.disk_cluster import PERSISTENT, DiskCluster, mirrored, publisher_of

ALL = SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"})


def proposals(cluster: DiskCluster, since: int = 0) -> list[tuple[str, object]]:
    """Return which nodes asked for which changes."""
    found: list[tuple[str, object]] = []
    for command, origin, *_ in cluster.log[since:]:
        if isinstance(command, ChangeView):
            found.append((origin, type(command.change)))
        elif isinstance(command, StartMirroring):
            found.append((origin, StartMirroring))
    return found


def texts(cluster: DiskCluster) -> Counter[str]:
    """Return how often each text was told by all nodes, without the queue's name."""
    return Counter(text.split("': ", 1)[1] for node in cluster for text in node.events)


# --- proposals --------------------------------------------------------------------------------------------


def test_the_master_s_node_proposes_and_nobody_else() -> None:
    """The master's node proposes each change once and nobody else does: a view shows what came of it."""
    cluster = DiskCluster("n1", "n2", "n3")
    cluster.declare("n2", "q", durable=True)
    since = len(cluster.log)
    cluster.submit(ALL)
    cluster.advance(20.0)
    asked = Counter(proposals(cluster, since))
    assert asked["n2", StartMirroring] == 1
    assert asked["n2", AddMirror] == 2
    assert {origin for origin, kind in asked if kind in (StartMirroring, AddMirror)} == {"n2"}


def test_what_is_not_answered_is_asked_for_again_but_not_twice_at_a_time() -> None:
    """The log takes its time: the same change is not submitted while the first one is under way."""
    cluster = DiskCluster("n1", "n2")
    cluster.declare("n1", "q", durable=True)
    cluster.is_held = True
    since = len(cluster.log)
    cluster.submit(ALL)
    cluster.apply_all("n1", "n2")
    cluster.advance(60.0)
    assert Counter(proposals(cluster, since)) == {("n1", StartMirroring): 1}
    cluster.is_held = False
    cluster.advance(2.0)
    assert len(cluster.view().synced) == 2


def test_nothing_is_proposed_before_the_node_counts_as_up() -> None:
    """A node proposes nothing before it counts as up: its catalogue may be old, and its incarnation isn't known."""
    cluster = mirrored("n1", "n2")
    cluster.crash("n1")
    cluster.settle()
    since = len(cluster.log)
    cluster.is_held = True
    node = cluster.start("n1")
    assert isinstance(node.mirrors._controller, MirrorController)
    assert {origin for origin, _ in proposals(cluster, since)} <= {"n1"}
    assert not any(kind is AddMirror for _, kind in proposals(cluster, since)), "that is the master's"


def test_nodes_that_come_get_mirrors() -> None:
    """reliability §2.2 change_cluster."""
    cluster = mirrored("n1", "n2")
    cluster.start("n3")
    cluster.advance(1.0)
    assert [member.node for member in cluster.view().ring] == ["n1", "n2", "n3"]
    assert len(cluster.view().synced) == 3


def test_a_node_in_maintenance_mode_hands_over_its_masters() -> None:
    """amqp-behaviour §9.3: to a synchronised mirror; nothing pauses."""
    cluster = mirrored("n1", "n2")
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"1", properties=PERSISTENT)
    assert client.methods() == [BasicAck(delivery_tag=1)]
    cluster.submit(SetDraining("n1", is_draining=True))
    cluster.advance(1.0)
    assert cluster.view().master_node == "n2"
    assert texts(cluster)["Migrating queue leader to node n2"] == 1


def test_a_node_that_stops_hands_over_its_masters_first() -> None:
    """reliability §2.2 confirms_survive_stop: nobody waits for a flush."""
    cluster = mirrored("n1", "n2")
    since = len(cluster.log)
    cluster["n1"].mirrors.leave()
    assert cluster["n1"].mirrors.moving == 1
    cluster.settle()
    assert cluster["n1"].mirrors.moving == 0
    assert ("n1", TransferMaster) in proposals(cluster, since)
    assert cluster.view().master_node == "n2"


def test_take_over_is_told_to_the_log() -> None:
    """The log is told of a take-over, before which the queue moves to nobody else."""
    cluster = mirrored("n1", "n2", "n3")
    since = len(cluster.log)
    cluster.transfer("q", "n2")
    cluster.advance(1.0)
    assert [each for each in proposals(cluster, since) if each[1] is TookOver] == [("n2", TookOver)]
    assert cluster.view().previous == 0


def test_an_evicted_mirror_comes_back_after_ten_seconds() -> None:
    """reliability §4.9: its node gets no new one before that; the log says who, why, and for how long."""
    cluster = mirrored("n1", "n2")
    old = cluster.view().member_on("n2")
    record = cluster["n1"].broker.catalogue.queue("/", "q")
    assert old is not None
    assert record is not None
    since = len(cluster.log)
    cluster["n1"].mirrors.controller.evict(record, old.id, "does not keep up")
    cluster.settle()
    cluster["n1"].mirrors.controller.evict(record, old.id, "does not keep up")
    cluster.advance(9.0)
    assert [member.node for member in cluster.view().members] == ["n1"]
    assert [kind for _, kind in proposals(cluster, since) if kind in (DropMirror, AddMirror)] == [DropMirror]
    (line,) = [text for text in texts(cluster) if text.startswith("Dropping queue mirror")]
    assert "does not keep up; no new mirrors there for 10 s" in line
    cluster.advance(3.0)
    new = cluster.view().member_on("n2")
    assert new is not None
    assert new.id in cluster.view().synced


def test_copies_are_offered_and_after_half_a_minute_the_best_is_taken() -> None:
    """reliability §4.10: the last master's node does not come back."""
    cluster = mirrored("n1", "n2", "n3")
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"1", properties=PERSISTENT)
    assert client.methods() == [BasicAck(delivery_tag=1)]
    for node in ("n1", "n2", "n3"):
        cluster.crash(node, is_noticed=False)
    cluster.start("n2")
    since = len(cluster.log)
    cluster.declare_dead("n1")
    cluster.declare_dead("n3")
    cluster.settle()
    assert [kind for _, kind in proposals(cluster, since) if kind is OfferCopy] == [OfferCopy]
    cluster.advance(29.0)
    assert cluster.view().state == "down"
    cluster.advance(2.0)
    assert ("n2", Revive) in proposals(cluster, since)
    assert cluster.view().master_node == "n2"
    assert cluster.contents("n2") == [(b"1", True)]


def test_queues_that_are_gone_are_forgotten() -> None:
    """Nothing is kept of them, nothing is asked for them."""
    cluster = mirrored("n1", "n2")
    cluster.submit(DeleteQueue("/", "q"))
    since = len(cluster.log)
    cluster.start("n3")
    cluster.submit(ClearPolicy("/", "ha"))
    cluster.advance(30.0)
    assert proposals(cluster, since) == []


# --- what is told -----------------------------------------------------------------------------------------


def test_everything_is_told_once_in_a_cluster() -> None:
    """management §6.3: by the master's node; a promotion, a copy more or less, under-replicated and whole again."""
    cluster = mirrored("n1", "n2", "n3")
    cluster.crash("n3")
    cluster.settle()
    cluster.start("n3")
    cluster.advance(1.0)
    cluster.transfer("q", "n2")
    cluster.advance(1.0)
    told = texts(cluster)
    assert set(told.values()) == {1}
    assert told["2 of 3 copies are synchronised (under_replicated)"] == 1
    assert told["3 of 3 copies are synchronised"] == 1
    assert told["Promoting mirror <n2.2.2> to leader: <n1.1.1> hands over"] == 1


def test_l9_less_redundancy_is_an_alarm() -> None:
    """reliability §1.1 L9, §4.7 S12: each good copy that goes is told, down to the last."""
    cluster = mirrored("n1", "n2", "n3")
    for node in ("n3", "n2"):
        cluster.crash(node)
        cluster.settle()
    told = [text for text in texts(cluster) if "under_replicated" in text]
    assert told == [
        "2 of 3 copies are synchronised (under_replicated)",
        "1 of 3 copies are synchronised (under_replicated)",
    ]


def test_a_queue_that_stops_is_told_by_one_who_is_left() -> None:
    """reliability §1.1 W10: with the nodes that it waits for."""
    cluster = mirrored("n1", "n2")
    cluster.start("n3")
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "nodes", "ha-params": ["n1", "n2"]}))
    cluster.advance(2.0)
    cluster.crash("n2", is_noticed=False)
    cluster.crash("n1", is_noticed=False)
    cluster.declare_dead("n1")
    cluster.declare_dead("n2")
    cluster.settle()
    (line,) = [text for text in texts(cluster) if text.startswith("Stopping")]
    assert "n1" in line
