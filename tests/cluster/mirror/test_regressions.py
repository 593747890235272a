"""Each fault that the simulation of whole brokers found (tests.sim.mirror_faults) has its shortest story here."""

from typing import Any

import pytest

from cluster.gm_ring.messages import Activity
from cluster.gm_ring.wire import RingPacket
from cluster.mirror.batch import Batch, encode_batch
from cluster.mirror.follower import Follower
from cluster.mirror.packet_queue import EARLY_AGE_MAX, PacketQueue
from cluster.mirror.side import Pull, Report, decode_side, encode_side
from node.amqp.methods import BasicAck, BasicGet, BasicNack, ConfirmSelect
from node.catalogue.commands import DeclareQueue, SetPolicy
from node.queue.storage import Waiter
from node.store.waiting import Waiting
from tests.cluster.mirror.test_follower import Copy as FollowerCopy
from tests.cluster.mirror.test_follower import Ring as FollowerRing
from tests.cluster.mirror.test_follower import enqueue
from tests.cluster.mirror.test_replicator import PERSISTENT
from tests.cluster.mirror.test_replicator import World as ReplicatorWorld
from tests.kit.cluster import RingCluster, client_of
from tests.kit.disk_cluster import PERSISTENT as PERSISTENT_MESSAGE
from tests.kit.disk_cluster import DiskCluster, publisher_of


def test_frames_that_come_before_the_queue_is_known() -> None:
    """reliability §4.3 R1: the master's first words reach a mirror before that has applied the declaration. They are
    not lost, and come before later ones.
    """
    cluster = RingCluster("n1", "n2", "n3")
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all"}))
    publisher = client_of(cluster["n1"])
    publisher.ask(1, ConfirmSelect())
    cluster.is_held = True
    declare = DeclareQueue("/", "q", "0123456789abcdef" * 2, durable=True, home="n1", mirrors=("n2", "n3"))
    cluster.log.append((declare, "", 0, None))
    while cluster.apply("n1"):
        pass
    publisher.publish(1, "q", b"first")
    cluster["n1"].turn()
    cluster.advance(0.01)
    cluster.deliver("n1", "n2")
    while cluster.apply("n2"):
        pass
    publisher.publish(1, "q", b"second")
    cluster.advance(0.01)
    cluster.deliver("n1", "n2")
    cluster.is_held = False
    cluster.advance(0.1)
    assert publisher.methods()[-1] == BasicAck(delivery_tag=2, multiple=True)
    for node in cluster:
        assert node.faults == []


@pytest.mark.parametrize("last", [-1, 0, 7])
def test_a_member_reports_though_it_has_nothing(last: int) -> None:
    """reliability §4.9: a mirror that got none of the master's broadcasts is asked how far it is."""
    assert decode_side(encode_side(Report(last))) == Report(last)


def test_early_packets_of_deleted_queues_go() -> None:
    """A packet for a queue that this node has dropped already is not kept for ever."""
    packet_queue = PacketQueue(lambda node, frame: None)
    packet_queue.put_by("n2", RingPacket("q1", 1, 2, 3, 3, Activity(3, 3, [])))
    for _ in range(EARLY_AGE_MAX):
        packet_queue.age()
    packet_queue.put_by("n2", RingPacket("q2", 1, 2, 3, 3, Activity(3, 3, [])))
    packet_queue.age()
    assert [packet.uid for _, packet in packet_queue.take_early()] == ["q2"]


def test_a_mirror_whose_first_word_is_that_it_wants_nothing() -> None:
    """reliability §4.5: it cancels what it had asked of the master before."""
    cluster = RingCluster("n1", "n2")
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all"}))
    cluster.declare_mirrored("q", "n1", "n2")
    record = cluster["n1"].broker.catalogue.queue("/", "q")
    assert record is not None
    assert record.view is not None
    replica = cluster["n1"].mirrors._known[record.uid].replica
    mirror = record.view.member_on("n2")
    assert replica is not None
    assert mirror is not None
    replica.receive(RingPacket(record.uid, mirror.id, replica.id, 2, 0, encode_side(Pull(1))))
    assert replica.sync_progress == {}


class JoiningDisk:
    """A storage that joins the waits of one waiter as the store does."""

    def __init__(self) -> None:
        self.waiting = Waiting()

    def await_safety(self, waiter: Waiter, first: int, last: int) -> None:
        self.waiting.add(waiter, first, last)


def test_waits_for_the_disk_of_two_members_stay_two() -> None:
    """reliability §4.4: a mark says how far one member's broadcasts are. The store joins numbers that follow each
    other, and member 5 comes after broadcast 4 of member 1.
    """
    ring, disk = FollowerRing(), JoiningDisk()
    follower = Follower(ring, FollowerCopy(is_durable=True), disk, has_inventory=True)  # type: ignore[arg-type]

    def payload(seq: int) -> bytes:
        return encode_batch(Batch(seq + 1, 0, {}, [enqueue(seq, 1, PERSISTENT)]))

    follower.deliver(1, 0, [payload(seq) for seq in range(1, 6)])
    follower.deliver(5, 0, [payload(6), payload(7)])
    assert ring.disk == {}
    disk.waiting.settle(is_safe=True)
    assert ring.disk == {1: 4, 5: 1}


def test_who_waits_for_mirrors_that_are_no_more_waits_for_the_disk() -> None:
    """reliability §4.4: the policy is taken away while a persistent message is on its way to the only disk."""
    world = ReplicatorWorld(is_alone=True)
    world.publish(b"a", envelope=PERSISTENT)
    world.replicator.await_stable(world.client, 1, 1, is_kept=True)
    world.replicator.flush()
    world.replicator.go_on_alone()
    world.replicator.abandon(is_safe=True)
    assert world.client.settled == []
    world.disk.sync()
    assert world.client.settled == [(1, 1, True)]


def test_confirms_wait_for_mirrors_that_came_while_a_client_publishes() -> None:
    """A connection remembers where its publishes lead; whether they have copies elsewhere must not grow old there."""
    cluster = DiskCluster("n1", "n2")
    cluster.submit(DeclareQueue("/", "q", "0123456789abcdef" * 2, durable=True, home="n1"))
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"alone", properties=PERSISTENT_MESSAGE)
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=1)]
    policy = SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"})
    cluster.log.append((policy, "", 0, None))
    cluster.apply("n1")
    client.publish(1, "q", b"the policy holds, and there is no mirror yet", properties=PERSISTENT_MESSAGE)
    cluster["n1"].turn()
    cluster.settle()
    cluster.wait(2.0, lambda: len(cluster.view().synced) == 2)
    assert client.methods() == [BasicAck(delivery_tag=2)]
    cluster["n2"].is_disk_held = True
    client.publish(1, "q", b"with a mirror", properties=PERSISTENT_MESSAGE)
    cluster.wait(2.0)
    assert client.methods() == []
    cluster["n2"].is_disk_held = False
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=3)]


@pytest.mark.parametrize("is_returned", [True, False])
def test_a_dead_letter_that_a_stop_brings_back_says_that_a_client_had_it(is_returned: bool) -> None:
    """amqp-behaviour §7.6, §4.11: it died after a client had it, its way to another node ended with this one, so it is
    in its queue again.   is_returned: the client gave it back and it was too much then; else the client rejected it.
    """
    cluster = DiskCluster("n1", "n2")
    cluster.submit(DeclareQueue("/", "dead", "0123456789abcdef" * 2, durable=True, home="n2"))
    cluster.submit(DeclareQueue("/", "q", "fedcba9876543210" * 2, durable=True, home="n1"))
    dying: dict[str, Any] = {
        "max-length": 1,
        "dead-letter-exchange": "",
        "dead-letter-routing-key": "dead",
    }
    cluster.submit(SetPolicy("/", "dying", "^q$", dying))
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"1", properties=PERSISTENT_MESSAGE)
    client.send(1, BasicGet(queue="q"))
    client.publish(1, "q", b"2", properties=PERSISTENT_MESSAGE)
    cluster.settle()
    cluster.cut("n1", "n2")
    client.send(1, BasicNack(1, requeue=is_returned))
    cluster.settle()
    assert cluster["n1"].home_queue("q").backlog.count == 1
    cluster.stop("n1")
    cluster.cut_links.clear()
    cluster.submit(SetPolicy("/", "dying", "^q$", {"max-length": 10}))
    cluster.start("n1")
    assert cluster.contents("n1") == [(b"1", True), (b"2", False)]
