"""A copy that is of no use is given up, and never comes back as one that is: docs/mirrors.md, reliability §4.3 R11."""

import pytest

from cluster.gm_ring.messages import Activity, Item
from cluster.gm_ring.wire import encode_packet
from node.amqp.methods import BasicAck
from node.catalogue.commands import ChangeView
from node.catalogue.mirrors.views import GiveUp, TransferMaster
from tests.kit.disk_cluster import (
    PERSISTENT,
    DiskCluster,
    id_on,
    mirrored,
    proposed,
    publish,
    publisher_of,
    record_of,
)

FIVE = [(b"%d" % number, False) for number in range(1, 6)]


def five_messages(*nodes: str) -> DiskCluster:
    """`q` with five persistent messages."""
    cluster = mirrored(*nodes)
    publish(cluster, nodes[0], *(body for body, _ in FIVE))
    return cluster


def confuse(cluster: DiskCluster, node: str) -> None:
    """A member hears from its left neighbour what cannot be: it leaves the ring (R11)."""
    record, view = record_of(cluster), cluster.view()
    member = view.member_on(node)
    assert member is not None
    left = view.left_of(member.id)
    gap = Activity(view.version, member.edge, [Item(left, 1000, [], 1000, -1)])
    name = next(each.node for each in view.members if each.id == left)
    mirrors = cluster[node].mirrors
    mirrors.receive(name, [encode_packet(record.uid, left, member.id, gap)])
    known = mirrors._known[record.uid]
    assert known.replica is None or known.replica.is_lost


def bodies(cluster: DiskCluster, node: str) -> list[bytes]:
    """Return the bodies that a client gets, in order."""
    return [body for body, _ in cluster.contents(node)]


@pytest.mark.parametrize("node", ["n2", "n3"])
def test_a_mirror_that_left_the_ring_gets_another_copy(node: str) -> None:
    """R11: it does not come back as the member that it was, which would count as having all, and have nothing."""
    cluster = five_messages("n1", "n2", "n3")
    before = id_on(cluster, node)
    confuse(cluster, node)
    cluster.advance(3.0)
    view = cluster.view()
    assert view.member(before) is None
    assert len(view.synced) == 3
    assert any("Giving up the copy" in event for event in cluster[node].events)
    for each in ("n1", "n2", "n3"):
        if each != node:
            cluster.crash(each)
            cluster.settle()
    assert bodies(cluster, node) == [body for body, _ in FIVE]


def test_who_left_the_ring_is_not_promoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """R11: what it asks for is lost, and the others die meanwhile: it has what it had and counts as nothing."""
    cluster = five_messages("n1", "n2", "n3")
    known = cluster.replica("n2")
    with monkeypatch.context() as patch:
        patch.setattr(known, "propose", lambda change: None)
        confuse(cluster, "n2")
        cluster.advance(3.0)
        cluster.crash("n1")
        cluster.settle()
    cluster.advance(3.0)
    assert cluster.view().master_node == "n3"
    assert bodies(cluster, "n3") == [body for body, _ in FIVE]


def test_publishers_wait_no_longer_than_the_view_needs() -> None:
    """A member that left the ring forwards nothing."""
    cluster = five_messages("n1", "n2", "n3")
    client = publisher_of(cluster["n1"])
    confuse(cluster, "n3")
    client.publish(1, "q", b"6", properties=PERSISTENT)
    assert client.methods() == [BasicAck(delivery_tag=1)]


def test_a_master_that_left_the_ring_is_replaced() -> None:
    """As if its node had died; its copy is not what the queue is brought back from."""
    cluster = five_messages("n1", "n2", "n3")
    before = id_on(cluster, "n1")
    confuse(cluster, "n1")
    cluster.advance(3.0)
    view = cluster.view()
    assert view.state == "live"
    assert view.master_node in ("n2", "n3")
    assert view.member(before) is None
    assert len(view.synced) == 3
    assert bodies(cluster, "n1") == [body for body, _ in FIVE]


def test_a_master_that_left_the_ring_keeps_the_only_copy() -> None:
    """A master alone has its messages: the queue has no master until its node starts again, and loses nothing."""
    cluster = mirrored("n1", "n2", sync="manual")
    cluster.crash("n2")
    cluster.settle()
    publish(cluster, "n1", *(body for body, _ in FIVE))
    cluster.start("n2")
    cluster.advance(1.0)
    confuse(cluster, "n1")
    cluster.advance(5.0)
    assert cluster.view().master_node == "n1"
    cluster.crash("n1")
    cluster.settle()
    cluster.start("n1")
    cluster.advance(1.0)
    assert bodies(cluster, "n2") == [body for body, _ in FIVE]


def test_a_damaged_mirror_passes_on_until_it_is_dropped() -> None:
    cluster = five_messages("n1", "n2", "n3")
    before = id_on(cluster, "n2")
    client = publisher_of(cluster["n1"])
    cluster.is_held = True
    assert cluster["n2"].mirrors.damaged(record_of(cluster), "has unreadable messages")
    client.publish(1, "q", b"6", properties=PERSISTENT)
    cluster.hop("n1", "n2", "n3", "n1")
    assert client.methods() == [BasicAck(delivery_tag=1)]
    assert cluster.view().member(before) is not None
    cluster.is_held = False
    cluster.advance(3.0)
    assert cluster.view().member(before) is None
    assert len(cluster.view().synced) == 3
    assert len(proposed(cluster, GiveUp)) == 1


def test_a_damaged_master_hands_over_first() -> None:
    """Decided by who has the messages: all are there, and then the node gets a new copy."""
    cluster = five_messages("n1", "n2", "n3")
    before = id_on(cluster, "n1")
    assert cluster["n1"].mirrors.damaged(record_of(cluster), "has unreadable messages")
    cluster.advance(3.0)
    assert [len(proposed(cluster, kind)) for kind in (TransferMaster, GiveUp)] == [1, 1]
    assert proposed(cluster, TransferMaster) < proposed(cluster, GiveUp)
    view = cluster.view()
    assert view.member(before) is None
    assert view.master_node != "n1"
    assert len(view.synced) == 3
    assert any("has unreadable messages" in event for event in cluster["n1"].events)
    assert bodies(cluster, "n1") == [body for body, _ in FIVE]


def test_the_only_good_copy_is_not_given_up() -> None:
    cluster = five_messages("n1", "n2")
    cluster.crash("n2")
    cluster.settle()
    assert not cluster["n1"].mirrors.damaged(record_of(cluster), "has unreadable messages")
    cluster.start("n2")
    cluster.advance(5.0)
    assert cluster.view().master_node == "n1"
    assert proposed(cluster, GiveUp) == []


def test_both_copies_are_damaged() -> None:
    """One of them stays, with what it has."""
    cluster = five_messages("n1", "n2")
    record = record_of(cluster)
    assert cluster["n2"].mirrors.damaged(record, "has unreadable messages")
    assert cluster["n1"].mirrors.damaged(record, "has unreadable messages")
    cluster.advance(5.0)
    view = cluster.view()
    assert view.state == "live"
    assert len(view.synced) == 2
    assert bodies(cluster, "n1") == [body for body, _ in FIVE]


def test_a_master_that_lacks_messages_hands_over_all_the_same() -> None:
    """The new master hears the last word of the one before, though that one's copy lacks something."""
    cluster = five_messages("n1", "n2", "n3")
    before = id_on(cluster, "n1")
    replica = cluster.replica("n1")
    assert replica.replicator is not None
    replica.replicator.live.add(range(100, 103))  # which no queue and no client has
    heir = id_on(cluster, "n3")
    cluster.submit(ChangeView("/", "q", record_of(cluster).uid, TransferMaster(before, heir)))
    cluster.advance(3.0)
    view = cluster.view()
    assert view.master == heir
    assert not view.previous
    assert view.member(before) is None
    assert len(view.synced) == 3
    publish(cluster, "n3", b"6")
    for node in ("n2", "n3"):
        cluster.crash(node)
        cluster.settle()
    assert bodies(cluster, "n1") == [*(body for body, _ in FIVE), b"6"]
