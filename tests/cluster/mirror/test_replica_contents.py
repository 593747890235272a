"""Mirrors get a queue's contents by removals, rolls and synchronisation, and a promotion makes a queue of them.

Whole brokers with disks. Rows of reliability §1.1 and §2.2; §4.3-§4.8.
"""

from typing import Final

import pytest

from cluster.mirror.pacing import LAZY_S
from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import BasicAck, BasicGet, BasicNack, BasicReject, ChannelClose, QueuePurge
from node.amqp.properties import Properties
from node.catalogue.commands import SetPolicy
from node.catalogue.mirrors.views import DropMirror, MirrorSynced
from node.catalogue.records import Json
from tests.kit.disk_cluster import (
    PERSISTENT,
    DiskCluster,
    id_on,
    mirrored,
    proposed,
    publish,
    publisher_of,
    record_of,
    with_a_mirror_that_lacks,
)

# --- inventory, removals ---------------------------------------------------------------------------------------


def test_w8_a_mirror_knows_only_what_the_master_took_in() -> None:
    """§1.1 W8: a queue that rejects publishes; a mirror that got them directly would keep them for ever."""
    cluster = mirrored("n1", "n2", sync="automatic", **{"max-length": 1, "overflow": "reject-publish"})
    client = publisher_of(cluster["n2"])
    client.publish(1, "q", *(b"%d" % number for number in range(100)), properties=PERSISTENT)
    cluster.settle()
    client.received()
    assert cluster.copy("n2") == [range(1, 2)]


def test_what_the_master_drops_is_dropped_everywhere() -> None:
    """§4.8: purge, max-length and expiry are removals of numbers; no mirror decides on its own."""
    cluster = mirrored("n1", "n2", sync="automatic", **{"max-length": 3, "message-ttl": 60_000})
    publish(cluster, "n1", *(b"%d" % number for number in range(1, 6)))
    assert cluster.copy("n2") == [range(3, 6)]
    cluster.frozen.add("n1")
    cluster.advance(120.0)
    assert cluster.copy("n2") == [range(3, 6)], "its clock is none of this queue's"
    cluster.frozen.clear()
    cluster.advance(0.1)
    assert cluster.copy("n2") == []


def test_marks_wait_for_a_mirror_s_disk_before_it_is_synchronised() -> None:
    """§4.5: what is confirmed before the view shows it must be kept there. But not from when the mirror lacks nothing:
    first its disk has to show that it works.
    """
    cluster = with_a_mirror_that_lacks(3)
    cluster["n2"].is_disk_held = True
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"4", properties=PERSISTENT)
    assert client.methods() == [BasicAck(delivery_tag=1)], "until then its disk counts for nothing"
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"}))
    cluster.advance(1.0)
    assert cluster.copy("n2") == [range(1, 5)]
    client.publish(1, "q", b"5", properties=PERSISTENT)
    assert client.methods() == [BasicAck(delivery_tag=2)]
    assert proposed(cluster, MirrorSynced) == []
    while not cluster.replica("n2").member.counts:
        assert cluster["n2"].disk.step()
        cluster.settle()
    client.publish(1, "q", b"6", properties=PERSISTENT)
    assert client.methods() == []
    cluster["n2"].is_disk_held = False
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=3)]
    assert len(cluster.view().synced) == 2


def test_l9_synchronisation_holds_up_nobody() -> None:
    """§1.1 L9: a mirror is being synchronised; publishes and deliveries go on."""
    cluster = with_a_mirror_that_lacks(50)
    client = publisher_of(cluster["n1"])
    cluster.is_held = True
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"}))
    cluster.apply_all("n1", "n2")
    cluster.hop("n2", "n1")
    client.publish(1, "q", b"51", properties=PERSISTENT)
    client.send(1, BasicGet(queue="q", no_ack=True))
    cluster.settle()
    assert client.bodies() == [b"1"]
    cluster.hop("n1", "n2", "n1")
    assert client.methods() == [BasicAck(delivery_tag=1)]
    cluster.is_held = False
    cluster.settle()
    assert cluster.copy("n2") == [range(2, 52)]
    assert set(cluster.view().synced) == {member.id for member in cluster.view().ring}


def test_a_new_master_tells_anew_who_lacks_something() -> None:
    """§4.5: a mirror that was told by the master before what there is, is told again: numbers that never came round
    are missing no more.
    """
    cluster = mirrored("n1", "n2", "n3", sync="manual")
    publish(cluster, "n1", b"1")
    cluster.crash("n3")
    cluster.settle()
    cluster.start("n3")
    cluster.advance(1.0)
    follower = cluster.replica("n3").follower
    assert follower is not None
    assert follower.copy.missing is not None
    assert follower.copy.missing.ranges() == [range(1, 2)]
    cluster.crash("n1")
    cluster.settle()
    cluster["n2"].client().send(1, QueuePurge(queue="q"))
    cluster.settle()
    cluster.advance(1.0)
    assert id_on(cluster, "n3") in cluster.view().synced


def test_w1_to_be_out_is_a_state_and_no_fault() -> None:
    """§1.1 W1, member_death down_in_members_change: a node finds that a view is without it; it begins anew."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    first = id_on(cluster, "n3")
    cluster.change_view("q", lambda view: DropMirror(first))
    cluster.advance(1.0)
    again = id_on(cluster, "n3")
    assert again > first
    assert cluster.replica("n3").id == again
    assert cluster.copy("n3") == [range(1, 2)]
    for node in cluster:
        assert node.faults == []


def test_a_change_is_not_asked_for_again_while_the_answer_is_awaited() -> None:
    """A change is asked for once while its answer is awaited, and a refused one changes nothing: compare and set."""
    cluster = mirrored("n1", "n2")
    view, record = cluster.view(), record_of(cluster)
    for _ in range(2):
        cluster["n1"].mirrors.propose(record, DropMirror(view.master))
    assert len(proposed(cluster, DropMirror)) == 1
    cluster.settle()
    assert cluster.view() == view
    cluster["n1"].mirrors.propose(record, DropMirror(view.master))
    assert len(proposed(cluster, DropMirror)) == 2


# --- synchronisation ---------------------------------------------------------------------------------------


def test_eager_sync_requeue() -> None:
    """§2.3 eager_sync_requeue: one rejected and requeued, one unacked: both are present after the synchronisation."""
    cluster = mirrored("n1", "n2", sync="manual")
    cluster.crash("n2")
    cluster.settle()
    publish(cluster, "n1", b"1", b"2")
    client = cluster["n1"].client()
    client.send(1, BasicGet(queue="q"))
    client.send(1, BasicGet(queue="q"))
    client.send(1, BasicReject(delivery_tag=1, requeue=True))
    cluster.start("n2")
    cluster.advance(1.0)
    cluster["n1"].mirrors.sync(record_of(cluster), is_on=True)
    cluster.advance(1.0)
    client.send(1, BasicReject(delivery_tag=2, requeue=True))
    cluster.settle()
    cluster.crash("n1")
    cluster.settle()
    assert cluster.contents("n2") == [(b"1", True), (b"2", True)]


def test_eager_sync_cancel() -> None:
    """§2.3 eager_sync_cancel: a cancelled copy is not trusted; cancelling again is no error."""
    cluster = mirrored("n1", "n2", sync="manual", **{"ha-sync-batch-size": 5})
    cluster.crash("n2")
    cluster.settle()
    publish(cluster, "n1", *(b"%d" % number for number in range(1, 21)))
    cluster.start("n2")
    cluster.advance(1.0)
    record = record_of(cluster)
    cluster.is_held = True
    cluster["n1"].mirrors.sync(record, is_on=True)
    cluster.hop("n1", "n2", "n1")
    for _ in range(2):
        cluster["n1"].mirrors.sync(record, is_on=False)
        cluster.settle()
    cluster.is_held = False
    cluster.settle()
    cluster.advance(3.0)
    (held,) = cluster.copy("n2")
    assert 5 <= len(held) <= 10, "what was on its way"
    assert len(cluster.view().synced) == 1
    cluster.crash("n1")
    cluster.settle()
    assert cluster.view().state == "down"


def test_sync_detection() -> None:
    """§2.3 sync_detection: synchronised when what it does not know is *gone*, not merely requeued."""
    cluster = mirrored("n1", "n2", sync="manual")
    cluster.crash("n2")
    cluster.settle()
    publish(cluster, "n1", b"1")
    client = cluster["n1"].client()
    client.send(1, BasicGet(queue="q"))
    cluster.start("n2")
    cluster.advance(1.0)
    publish(cluster, "n1", b"2")
    assert len(cluster.view().synced) == 1
    client.send(1, BasicReject(delivery_tag=1, requeue=True))
    cluster.advance(1.0)
    assert len(cluster.view().synced) == 1
    client.send(1, BasicGet(queue="q"))
    client.send(1, BasicAck(delivery_tag=2))
    cluster.advance(LAZY_S)
    cluster.advance(1.0)
    assert len(cluster.view().synced) == 2


def _lacks(cluster: DiskCluster, node: str) -> dict[str, int]:
    """Return how many messages each mirror of `q` lacks, as a node says."""
    return dict(cluster[node].mirrors.status(record_of(cluster)).lacks)


def test_what_was_removed_goes_with_the_next_publish_or_a_moment_later() -> None:
    cluster = mirrored("n1", "n2")
    publish(cluster, "n1", b"1", b"2", b"3")
    client = cluster["n1"].client()
    client.send(1, BasicGet(queue="q", no_ack=True))
    cluster.settle()
    assert cluster.copy("n2") == [range(1, 4)]
    publish(cluster, "n1", b"4")
    assert cluster.copy("n2") == [range(2, 5)]
    client.send(1, BasicGet(queue="q", no_ack=True))
    cluster.settle()
    assert cluster.copy("n2") == [range(2, 5)]
    cluster.advance(LAZY_S)
    assert cluster.copy("n2") == [range(3, 5)]


def test_what_a_mirror_lacks() -> None:
    """management §4.4 rows 1, 2: what came after it joined it has, what is gone it needs no more."""
    cluster = with_a_mirror_that_lacks(10)
    assert (_lacks(cluster, "n1"), _lacks(cluster, "n2")) == ({"n2": 10}, {})
    publish(cluster, "n1", b"11", b"12")
    assert _lacks(cluster, "n1") == {"n2": 10}
    client = cluster["n1"].client()
    for tag in range(1, 5):
        client.send(1, BasicGet(queue="q"))
        assert _lacks(cluster, "n1") == {"n2": 11 - tag}
        client.send(1, BasicAck(delivery_tag=tag))
        cluster.settle()
        cluster.advance(LAZY_S)
    assert _lacks(cluster, "n1") == {"n2": 6}
    cluster["n1"].mirrors.sync(record_of(cluster), is_on=True)
    cluster.advance(1.0)
    assert _lacks(cluster, "n1") == {}


def test_what_a_mirror_lacks_after_a_synchronisation_that_was_cancelled() -> None:
    """A mirror no longer lacks the messages that it got before its synchronisation was cancelled."""
    cluster = with_a_mirror_that_lacks(20, **{"ha-sync-batch-size": 5})
    cluster.is_held = True
    cluster["n1"].mirrors.sync(record_of(cluster), is_on=True)
    cluster.hop("n1", "n2", "n1")
    cluster["n1"].mirrors.sync(record_of(cluster), is_on=False)
    cluster.settle()
    cluster.is_held = False
    cluster.settle()
    cluster.advance(3.0)
    (held,) = cluster.copy("n2")
    assert 5 <= len(held) < 20
    assert _lacks(cluster, "n1") == {"n2": 20 - len(held)}
    client = cluster["n1"].client()
    client.send(1, QueuePurge(queue="q"))
    cluster.advance(LAZY_S)
    cluster.advance(1.0)
    assert _lacks(cluster, "n1") == {}


_IN_FIVES: Final[dict[str, Json]] = {"ha-mode": "all", "ha-sync-mode": "automatic", "ha-sync-batch-size": 5}


def _cancelled() -> DiskCluster:
    """The policy has n3 synchronised from n1; when it has got some messages an operator cancels that."""
    cluster = mirrored("n1", "n2", "n3", sync="manual", **{"ha-sync-batch-size": 5})
    cluster.crash("n3")
    cluster.settle()
    publish(cluster, "n1", *(b"%d" % number for number in range(1, 31)))
    cluster.start("n3")
    cluster.advance(1.0)
    cluster.is_held = True
    cluster.submit(SetPolicy("/", "ha", "^q", _IN_FIVES))
    cluster.apply_all("n1", "n2", "n3")
    cluster.hop("n3", "n1", "n3")
    cluster["n1"].mirrors.sync(record_of(cluster), is_on=False)
    cluster.is_held = False
    cluster.settle()
    return cluster


def test_what_was_cancelled_does_not_begin_again_by_itself() -> None:
    """The operator's word counts for these mirrors, though the policy has them synchronised automatically."""
    cluster = _cancelled()
    cluster.advance(100.0)
    assert 0 < _lacks(cluster, "n1")["n3"] < 30
    assert id_on(cluster, "n3") not in cluster.view().synced
    cluster["n1"].mirrors.sync(record_of(cluster), is_on=True)
    cluster.advance(1.0)
    assert id_on(cluster, "n3") in cluster.view().synced


@pytest.mark.parametrize("cause", ["another master", "another policy"])
def test_what_begins_a_cancelled_synchronisation_anew(cause: str) -> None:
    """A cancelled synchronisation begins anew with another master, or with another policy."""
    cluster = _cancelled()
    if cause == "another master":
        cluster.transfer("q", "n2")
    else:
        cluster.submit(SetPolicy("/", "ha", "^q", {**_IN_FIVES, "ha-sync-batch-size": 6}))
    cluster.advance(1.0)
    assert cluster.copy("n3") == [range(1, 31)]
    assert id_on(cluster, "n3") in cluster.view().synced


def test_a_new_master_counts_all_it_has_as_missing_at_an_unsynchronised_mirror() -> None:
    """A new master counts all it has as missing, as it does not know what came by the ring of the master before."""
    cluster = mirrored("n1", "n2", "n3", sync="manual")
    cluster.crash("n3")
    cluster.settle()
    publish(cluster, "n1", *(b"%d" % number for number in range(10)))
    cluster.start("n3")
    cluster.advance(1.0)
    publish(cluster, "n1", b"10")
    assert _lacks(cluster, "n1") == {"n3": 10}
    cluster.crash("n1")
    cluster.settle()
    publish(cluster, "n2", b"11")
    assert _lacks(cluster, "n2") == {"n3": 11}


def test_a_synchronisation_goes_on_with_another_master() -> None:
    """§4.5: n3 has got some from n1 when n2 becomes master; what it has it keeps, n2 sends the rest."""
    cluster = mirrored("n1", "n2", "n3", sync="manual", **{"ha-sync-batch-size": 5})
    cluster.crash("n3")
    cluster.settle()
    publish(cluster, "n1", *(b"%d" % number for number in range(1, 31)))
    cluster.start("n3")
    cluster.advance(1.0)
    cluster.is_held = True
    cluster["n1"].mirrors.sync(record_of(cluster), is_on=True)
    cluster.hop("n1", "n2", "n3", "n1", "n3")
    (some,) = cluster.copy("n3")
    assert 0 < len(some) < 30
    sent: list[range] = []
    cluster.transfer("q", "n2")
    cluster.is_held = False
    cluster.settle()
    sent += cluster.copy("n3")
    cluster.advance(3.0)
    assert cluster.copy("n3") == [range(1, 31)]
    assert len(cluster.view().synced) == 3
    cluster.crash("n2")
    cluster.crash("n1")
    cluster.settle()
    assert [int(body) for body, _ in cluster.contents("n3")] == [*range(1, 31)]


@pytest.mark.parametrize("is_paged", [False, True])
@pytest.mark.parametrize("way", ["synchronised", "from the beginning"])
def test_priorities_expiry_and_order_survive(is_paged: bool, way: str) -> None:
    """§4.6: priorities, what is left of times to live, order; in memory or on disk."""
    cluster = DiskCluster("n1", "n2")
    policy = SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"})
    if way == "from the beginning":
        cluster.submit(policy)
    arguments: Table = {"x-max-priority": long(3)}
    cluster.declare("n1", "q", arguments, durable=True)
    client = cluster["n1"].client()
    for number in range(40):
        mode, expiration = 1 + number % 2, "30000" if number % 4 == 0 else None
        properties = Properties(delivery_mode=mode, priority=number % 3, expiration=expiration)
        client.publish(1, "q", b"%d" % number, properties=properties)
    cluster.settle()
    if is_paged:
        cluster["n1"].page_out()
    cluster.submit(policy)
    cluster.advance(2.0)
    assert len(cluster.view().synced) == 2
    if is_paged:
        cluster["n2"].page_out()
    cluster.crash("n1")
    cluster.settle()
    cluster.advance(5.0)
    first = cluster["n2"].client()
    first.send(1, BasicGet(queue="q", no_ack=True))
    cluster.settle()
    assert first.bodies() == [b"2"]
    cluster.advance(30.0)
    left = [int(body) for body, _ in cluster.contents("n2")]
    assert left == sorted((n for n in range(40) if n % 4 and n != 2), key=lambda n: (-(n % 3), n))


@pytest.mark.parametrize("at", ["n1", "n3"])
@pytest.mark.parametrize("how", ["nack", "close"])
def test_quorum_queues_keep_the_order_of_what_came_back_over_a_failover(at: str, how: str) -> None:
    """A nacked message goes to the tail, without a delivery limit; a closed channel's to its old place.

    The message has the same place on all copies, in memory and on disk.
    """
    cluster = DiskCluster("n1", "n2", "n3")
    cluster.declare("n1", "q", {"x-queue-type": longstr("quorum")}, durable=True)
    cluster.advance(1.0)
    assert len(cluster.view().synced) == 3
    for body in (b"a", b"b" * 300, b"c"):
        publish(cluster, "n3", body)
    cluster.advance(1.0)
    client = cluster[at].client()
    client.send(1, BasicGet(queue="q"))
    cluster.settle()
    assert client.bodies() == [b"a"]
    client.send(1, BasicNack(delivery_tag=1, requeue=True) if how == "nack" else ChannelClose(200, "", 0, 0))
    cluster.settle()
    client.lose()
    cluster.advance(1.0)
    cluster.crash("n1")
    cluster.settle()
    left = [b"b" * 300, b"c", b"a"] if how == "nack" else [b"a", b"b" * 300, b"c"]
    client = cluster["n3"].client()
    for expected in left:
        client.send(1, BasicGet(queue="q", no_ack=True))
        cluster.settle()
        (got,) = client.received()
        assert got.body == expected
    cluster.advance(LAZY_S)
    assert cluster.copy("n2") == []


def test_quorum_queues_count_deliveries_over_a_failover() -> None:
    """A message that is returned too often goes, whichever masters it was returned to."""
    cluster = DiskCluster("n1", "n2", "n3")
    arguments: Table = {"x-queue-type": longstr("quorum"), "x-delivery-limit": long(3)}
    cluster.declare("n1", "q", arguments, durable=True)
    cluster.advance(1.0)
    assert len(cluster.view().synced) == 3
    publish(cluster, "n3", b"1")
    for _ in range(2):
        client = cluster["n3"].client()
        client.send(1, BasicGet(queue="q"))
        cluster.settle()
        assert client.bodies() == [b"1"]
        client.send(1, BasicReject(delivery_tag=1, requeue=True))
        cluster.settle()
        client.lose()
    cluster.settle()
    cluster.crash("n1")
    cluster.settle()
    client = cluster["n3"].client()
    client.send(1, BasicGet(queue="q"))
    cluster.settle()
    (got,) = client.received()
    assert got.properties is not None
    assert got.properties.headers is not None
    assert got.properties.headers["x-delivery-count"].value == 2
    client.send(1, BasicReject(delivery_tag=1, requeue=True))
    client.send(1, BasicGet(queue="q"))
    client.send(1, BasicReject(delivery_tag=2, requeue=True))
    cluster.settle()
    assert cluster.contents("n3") == []
    mirror = "n3" if cluster.view().master_node == "n2" else "n2"
    assert cluster.copy(mirror) == []
