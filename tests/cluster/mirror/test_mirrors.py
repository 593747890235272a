"""A mirrored queue outlives its master: whole brokers, real rings. Rows of reliability §1.1, §2.2, §4;
amqp-behaviour §9.4.
"""

from collections.abc import Callable
from typing import Any

import pytest

from cluster.gm_ring.wire import encode_packet
from cluster.mirror.pacing import LAZY_S
from cluster.mirror.side import Probe, encode_side
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicGetOk,
    BasicQos,
    BasicReject,
    ConfirmSelect,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    TxSelect,
)
from node.amqp.properties import Properties
from node.catalogue.commands import ClearPolicy, DeleteQueue, SetPolicy
from node.catalogue.mirrors.views import DropMirror, stored_uid
from node.queue.queue import Queue
from tests.kit import disk_cluster
from tests.kit.cluster import RingCluster, client_of
from tests.kit.disk_cluster import frames_to, mirrored, publish, publisher_of, record_of
from tests.kit.world import Client

PERSISTENT = Properties(delivery_mode=2)


def three_nodes(*, sync: str = "automatic") -> RingCluster:
    """n1 has the master of `q`, n2 and n3 have copies."""
    cluster = RingCluster("n1", "n2", "n3")
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": sync}))
    cluster.declare_mirrored("q", "n1", "n2", "n3")
    return cluster


def bodies(cluster: RingCluster, node: str) -> list[bytes]:
    """All that is in `q`, in order, as a client of a node gets it."""
    client = client_of(cluster[node])
    found = []
    while True:
        client.send(1, BasicGet(queue="q", no_ack=True))
        cluster.settle()
        got = client.received()
        if not got[-1].body:
            return found
        found.append(got[-1].body)


@pytest.mark.parametrize("publisher_on", ["n1", "n2"])
def test_confirmed_messages_survive_the_master(publisher_on: str) -> None:
    """§2.2 declare_synchrony: what was confirmed is there after the master's node was killed."""
    cluster = three_nodes()
    publisher = client_of(cluster[publisher_on])
    publisher.ask(1, ConfirmSelect())
    for number in range(10):
        publisher.publish(1, "q", b"%d" % number, properties=PERSISTENT)
    cluster.settle()
    assert publisher.methods() == [BasicAck(delivery_tag=10, multiple=True)]
    cluster.crash("n1")
    cluster.settle()
    assert bodies(cluster, "n3") == [b"%d" % number for number in range(10)]


def test_node_that_comes_back_is_synchronised() -> None:
    """§4.5, §4.10: a rejoined node begins with nothing and gets all; then it may be promoted."""
    cluster = three_nodes()
    publisher = client_of(cluster["n2"])
    for number in range(10):
        publisher.publish(1, "q", b"%d" % number)
    cluster.settle()
    cluster.crash("n1")
    cluster.settle()
    cluster.start("n1")
    cluster.advance(1.0)
    record = cluster["n2"].broker.catalogue.queue("/", "q")
    assert record is not None
    status = cluster["n2"].mirrors.status(record)
    assert status.master == "n2"
    assert set(status.synced) == {"n1", "n2", "n3"}
    cluster.crash("n3")
    cluster.crash("n2")
    cluster.settle()
    assert bodies(cluster, "n1") == [b"%d" % number for number in range(10)]


def test_master_moves() -> None:
    """§4.1 transfer: everything goes along, the unacknowledged is delivered again in its old order."""
    cluster = three_nodes()
    publisher, consumer = client_of(cluster["n2"]), client_of(cluster["n1"])
    publisher.ask(1, ConfirmSelect())
    consumer.ask(1, BasicQos(prefetch_count=3))
    consumer.ask(1, BasicConsume(queue="q"))
    for number in range(6):
        publisher.publish(1, "q", b"%d" % number)
    cluster.settle()
    assert consumer.bodies() == [b"0", b"1", b"2"]
    cluster.transfer("q", "n3")
    cluster.advance(0.1)
    assert cluster["n3"].home_queue("q").unacked_count == 3
    got = consumer.received()
    assert [(item.body, item.method.redelivered) for item in got] == [
        (b"0", True),
        (b"1", True),
        (b"2", True),
    ]
    publisher.publish(1, "q", b"6")
    cluster.settle()
    consumer.send(1, BasicAck(delivery_tag=6, multiple=True))
    cluster.settle()
    assert consumer.bodies() == [b"3", b"4", b"5"]
    for node in cluster:
        assert node.faults == []


# --- whole brokers with disks: see `tests.kit.disk_cluster` ---------------------------------------


def stored_on(cluster: disk_cluster.DiskCluster, node: str) -> set[str]:
    """The uids of the queues that a node has files of."""
    paths = (path.split("/") for path in cluster[node].disk.paths())
    return {part for parts in paths for part in parts if len(part) == 32}


# packets


def test_packets_for_members_that_are_not_known_yet_wait_for_them() -> None:
    """§4.3 R1: n2 hears of n1's broadcasts before it hears of the queue, and of the view that has another mirror."""
    cluster = disk_cluster.DiskCluster("n1", "n2")
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all"}))
    cluster.is_held = True
    cluster.declare_mirrored("q", "n1", "n2")
    cluster.apply_all("n1")
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"1", b"2", properties=PERSISTENT)
    cluster.hop("n1", "n2")
    client.publish(1, "q", b"3", properties=PERSISTENT)
    cluster.hop("n1", "n2")
    assert "q" not in cluster["n2"].queue_names
    cluster.apply_all("n2")
    assert cluster.copy("n2") == [range(1, 4)]
    cluster.hop("n2", "n1")
    assert client.methods() == [BasicAck(delivery_tag=3, multiple=True)]


def test_catch_up_of_a_member_that_is_not_known_yet_waits_for_its_view() -> None:
    """S7: n1 has applied the view that adds n2's mirror, and n2 has not."""
    cluster = mirrored("n1", "n2")
    publish(cluster, "n1", b"1")
    cluster.crash("n2")
    cluster.settle()
    cluster.is_held = True
    cluster.start("n2")
    for _ in range(2):
        cluster.apply_all("n1")
    assert cluster.view().member_on("n2") is not None
    cluster.hop("n1", "n2")
    assert cluster["n2"].mirrors._packets._early
    cluster.apply_all("n2")
    assert not cluster["n2"].mirrors._packets._early
    assert cluster.replica("n2").member.is_active


def test_who_is_meant_by_a_packet_is_a_member_and_not_a_node() -> None:
    """A former member of this node was asked; it is no more."""
    cluster = mirrored("n1", "n2")
    former = cluster.view().member_on("n2")
    assert former is not None
    cluster.change_view("q", lambda view: DropMirror(former.id))
    cluster.advance(1.0)
    uid, master = record_of(cluster).uid, cluster.view().master
    new = cluster.view().member_on("n2")
    assert new is not None
    cluster.is_held = True
    for receiver, answers in ((former.id, 0), (new.id, 1)):
        packet = encode_packet(uid, master, receiver, encode_side(Probe(0)), cluster.view().version)
        cluster["n2"].mirrors.receive("n1", [packet])
        cluster.settle()
        assert len(frames_to(cluster, "n1")) == answers


def test_packets_of_another_queue_s_member_go_nowhere() -> None:
    """W14: packets on their way while the queue is deleted, and declared again."""
    cluster = mirrored("n1", "n2")
    cluster.is_held = True
    client = publisher_of(cluster["n1"])
    client.publish(1, "q", b"old", properties=PERSISTENT)
    cluster.settle()
    assert frames_to(cluster, "n2")
    cluster.submit(DeleteQueue("/", "q"))
    cluster.declare_mirrored("q", "n1", "n2")
    cluster.apply_all("n1", "n2")
    client.publish(1, "q", b"new", properties=PERSISTENT)
    cluster.is_held = False
    cluster.settle()
    # Who waited for a queue that was deleted is answered: that is what publishing to it comes to.
    assert client.methods() == [BasicAck(delivery_tag=1), BasicAck(delivery_tag=2)]
    assert cluster.copy("n2") == [range(1, 2)]
    cluster.crash("n1")
    cluster.settle()
    assert cluster.contents("n2") == [(b"new", True)]
    cluster.advance(100.0)
    assert not cluster["n2"].mirrors._packets._early
    assert cluster["n2"].faults == []


@pytest.mark.parametrize("times", [20])
def test_rapid_redeclare(times: int) -> None:
    """§2.2 rapid_redeclare, W14: declare and delete; nothing is left anywhere."""
    cluster = disk_cluster.DiskCluster("n1", "n2", "n3")
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all"}))
    client = cluster["n2"].client()
    for _ in range(times):
        assert isinstance(client.ask(1, QueueDeclare(queue="q", durable=True)), QueueDeclareOk)
        client.publish(1, "q", b"1", properties=PERSISTENT)
        cluster.settle()
        for mirror in ("n1", "n3"):
            cluster[mirror].page_out()
            assert len(stored_on(cluster, mirror)) == 1
        client.send(1, QueueDelete(queue="q"))
        assert client.methods() == [QueueDeleteOk(message_count=1)]
    cluster.advance(1.0)
    for node in cluster:
        assert node.mirrors._known == {}
        assert stored_on(cluster, node.name) == set()
        assert node.faults == []


@pytest.mark.parametrize("length", [3, 127, 128, 255])
def test_w12_long_names(length: int) -> None:
    """§1.1 W12: confirms must not stop for names of any length."""
    cluster = mirrored("n1", "n2", "n3")
    name = "q".ljust(length, "Q")
    cluster.declare_mirrored(name, "n1", "n2", "n3")
    client = publisher_of(cluster["n2"])
    exchange = "x" * length
    assert client.ask(1, ExchangeDeclare(exchange=exchange, type="direct")) == ExchangeDeclareOk()
    assert client.ask(1, QueueBind(queue=name, exchange=exchange, routing_key="k" * length)) == QueueBindOk()
    client.publish(1, "k" * length, b"1", exchange=exchange, properties=PERSISTENT)
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=1)]
    cluster.crash("n1")
    cluster.settle()
    assert cluster.contents("n3", name) == [(b"1", True)]


# mirrored, not mirrored, mirrored again


def test_a_queue_with_messages_everywhere_becomes_mirrored() -> None:
    """StartMirroring: ready in memory and on disk, with a client, in an open transaction: all is in the roll."""
    cluster = disk_cluster.DiskCluster("n1", "n2")
    cluster.declare("n1", "q", durable=True)
    client, tx = cluster["n1"].client(), cluster["n1"].client()
    for number in range(1, 61):
        properties = PERSISTENT if number % 2 else Properties()
        client.publish(1, "q", b"%d" % number * (100 if number % 3 else 1), properties=properties)
    client.send(1, BasicGet(queue="q"))
    cluster.settle()
    assert len(client.bodies()) == 1
    cluster["n1"].page_out()
    tx.send(1, TxSelect())
    tx.send(1, BasicGet(queue="q"))
    cluster.settle()
    tag = tx.received()[-1].method
    assert isinstance(tag, BasicGetOk)
    tx.send(1, BasicAck(delivery_tag=tag.delivery_tag))
    cluster.settle()
    client.publish(1, "q", b"61")
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"}))
    cluster.advance(2.0)
    assert len(cluster.view().synced) == 2
    assert cluster.copy("n2") == [range(1, 62)]
    cluster.crash("n1")
    cluster.settle()
    found = cluster.contents("n2")
    assert [body.lstrip(b"0123456789") for body, _ in found] == [b""] * 61
    assert [int(body[: len(b"%d" % number)]) for number, (body, _) in enumerate(found, 1)] == [*range(1, 62)]


def test_acknowledgements_of_before_count_after() -> None:
    """Clients may still settle messages that they had when the mirroring began."""
    cluster = disk_cluster.DiskCluster("n1", "n2")
    cluster.declare("n1", "q", durable=True)
    client = cluster["n2"].client()
    client.publish(1, "q", b"1", b"2", b"3")
    client.send(1, BasicQos(prefetch_count=2))
    client.send(1, BasicConsume(queue="q"))
    cluster.settle()
    assert client.bodies() == [b"1", b"2"]
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"}))
    cluster.advance(1.0)
    client.send(1, BasicAck(delivery_tag=1))
    client.send(1, BasicReject(delivery_tag=2, requeue=True))
    cluster.settle()
    cluster.advance(LAZY_S)
    assert cluster.queue("n1").unacked_count == 2
    assert cluster.copy("n2") == [range(2, 4)]


def test_unmirror_and_the_way_back() -> None:
    """The last mirror and the policy go, and come again: versions, members and copies never come twice."""
    cluster = mirrored("n1", "n2")
    publish(cluster, "n1", b"1", b"2")
    before, uid = cluster.view(), record_of(cluster).uid
    consumer = cluster["n2"].client()
    consumer.send(1, BasicQos(prefetch_count=1))
    consumer.send(1, BasicConsume(queue="q"))
    cluster.settle()
    assert consumer.bodies() == [b"1"]
    cluster["n2"].page_out()
    assert stored_on(cluster, "n2")
    cluster.submit(ClearPolicy("/", "ha"))
    cluster.advance(2.0)
    record = record_of(cluster)
    assert record.view is None
    assert (record.home, record.uid) == ("n1", uid)
    assert cluster.queue("n1").replicator is None
    assert stored_on(cluster, "n2") == set()
    publish(cluster, "n2", b"3")
    consumer.send(1, BasicAck(delivery_tag=1))
    cluster.settle()
    assert consumer.bodies() == [b"2"]
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"}))
    cluster.advance(2.0)
    after = cluster.view()
    assert after.version > before.version
    assert not {member.id for member in after.members} & {member.id for member in before.members}
    assert cluster.copy("n2") == [range(2, 4)]
    cluster.crash("n1")
    cluster.settle()
    assert [body for body, _ in cluster.contents("n2")] == [b"3"], "2 is with the consumer again"


def test_unmirrored_queue_keeps_its_messages_over_a_restart() -> None:
    """A copy keeps the name that it had as a mirror's when the mirroring ends: `QueueRecord.copy`."""
    cluster = mirrored("n1", "n2")
    publish(cluster, "n1", b"1")
    cluster.transfer("q", "n2")
    cluster.advance(0.1)
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "nodes", "ha-params": ["n2"]}))
    cluster.advance(2.0)
    cluster.submit(ClearPolicy("/", "ha"))
    cluster.advance(2.0)
    record = record_of(cluster)
    assert record.view is None
    assert (record.home, record.copy) == ("n2", 2)
    publish(cluster, "n1", b"2")
    cluster.crash("n2")
    cluster.settle()
    cluster.start("n2")
    cluster.settle()
    assert [body for body, _ in cluster.contents("n1")] == [b"1", b"2"]


def unmirrored_while_a_publish_comes_again(
    *, is_replicated: bool, is_disk_held: bool = False
) -> tuple[disk_cluster.DiskCluster, Client]:
    """n1 was sent one message by way of n3 and has died; what is under way to n2, the last copy, is still to come.

    is_disk_held: n2's is, so nothing is answered.   Returns: also the publisher.
    """
    cluster = disk_cluster.DiskCluster("n1", "n2", "n3")
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "nodes", "ha-params": ["n1", "n2"]}))
    cluster.declare_mirrored("q", "n1", "n2")
    client = publisher_of(cluster["n3"])
    cluster.is_held, cluster["n2"].is_disk_held = True, is_disk_held
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster.hop("n3", "n1", *["n2"] * is_replicated)
    cluster.crash("n1")
    cluster.submit(ClearPolicy("/", "ha"))
    while record_of(cluster).view is not None:
        cluster.apply_all("n2")
    cluster.apply_all("n3")
    assert client.methods() == []
    return cluster, client


@pytest.mark.parametrize("is_replicated", [True, False])
def test_what_comes_again_when_there_are_no_mirrors_any_more(is_replicated: bool) -> None:
    """§9.4: the former master may have delivered it, and its mirror may have it: it is redelivered, and there once."""
    cluster, client = unmirrored_while_a_publish_comes_again(is_replicated=is_replicated)
    cluster.is_held = False
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=1)]
    client.publish(1, "q", b"2", properties=PERSISTENT)
    cluster.settle()
    assert cluster.contents("n3") == [(b"1", True), (b"2", False)]


@pytest.mark.parametrize("is_replicated", [True, False])
def test_what_comes_again_and_once_more_when_there_are_mirrors_again(is_replicated: bool) -> None:
    """A repeated publish is known to the next master, whether it came in before or without mirrors."""
    cluster, client = unmirrored_while_a_publish_comes_again(is_replicated=is_replicated, is_disk_held=True)
    cluster.is_held = False
    cluster.settle()
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"}))
    cluster.wait(5.0, lambda: len(cluster.view().synced) == 2)
    assert client.methods() == []
    cluster.crash("n2")
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=1)]
    assert cluster.contents("n3") == [(b"1", True)]


def test_a_mirror_that_was_dropped_begins_anew() -> None:
    """Contract: another member, and another name on disk, in the same incarnation; the first copy is gone."""
    cluster = mirrored("n1", "n2")
    publish(cluster, "n1", b"1", b"2")
    first = cluster.view().member_on("n2")
    assert first is not None
    uid = record_of(cluster).uid
    cluster["n2"].page_out()
    assert stored_on(cluster, "n2") == {stored_uid(uid, first.copy)}
    cluster.is_held = True
    cluster.change_view("q", lambda view: DropMirror(first.id))
    cluster.apply_all("n1", "n2", "n1", "n2")
    cluster.is_held = False
    cluster.settle()
    cluster.advance(2.0)
    second = cluster.view().member_on("n2")
    assert second is not None
    assert second.incarnation == first.incarnation
    assert second.id > first.id
    assert second.copy == second.id != first.copy
    assert cluster.copy("n2") == [range(1, 3)]
    cluster["n2"].page_out()
    assert stored_on(cluster, "n2") == {stored_uid(uid, second.copy)}


def test_w13_the_policy_flips() -> None:
    """§1.1 W13, §2.2 rapid_change, change_policy: none, all, some; the last one counts; no message is lost."""
    cluster = disk_cluster.DiskCluster("n1", "n2", "n3")
    cluster.declare("n1", "q", durable=True)
    publish(cluster, "n1", b"1")
    shapes: list[dict[str, Any]] = [
        {"ha-mode": "all"},
        {"ha-mode": "nodes", "ha-params": ["n1", "n2"]},
        {"ha-mode": "nodes", "ha-params": ["n2", "n3"]},
        {"ha-mode": "exactly", "ha-params": 2},
    ]
    for number in range(24):
        if number % 5 == 4:
            cluster.submit(ClearPolicy("/", "ha"))
        else:
            cluster.submit(SetPolicy("/", "ha", "^q", {**shapes[number % 4], "ha-sync-mode": "automatic"}))
        publish(cluster, "n3", b"%d" % (number + 2))
        if number % 3 == 0:
            cluster.advance(0.7)
    cluster.submit(
        SetPolicy(
            "/", "ha", "^q", {"ha-mode": "nodes", "ha-params": ["n2", "n3"], "ha-sync-mode": "automatic"}
        )
    )
    cluster.advance(20.0)
    view = cluster.view()
    assert {member.node for member in view.members} == {"n2", "n3"}
    assert len(view.synced) == 2
    found = cluster.contents("n1")
    assert [int(body) for body, _ in found] == [*range(1, 26)]
    for node in cluster:
        assert node.faults == []


# down, and back


def test_l4_nothing_but_a_delete_removes_a_queue() -> None:
    """§1.1 L4: mirrors and masters end in all ways and come back: the queue is there, and so is what is in it."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    uid = record_of(cluster).uid
    for node in ("n2", "n3"):
        cluster.crash(node)
        cluster.settle()
    cluster.crash("n1", is_noticed=False)
    for node in ("n1", "n2", "n3"):
        cluster.start(node)
    cluster.advance(2.0)
    for node in ("n3", "n2", "n1"):
        cluster.stop(node)
        if cluster.nodes:
            cluster.settle()
    for node in ("n2", "n3", "n1"):
        cluster.start(node)
    cluster.advance(40.0)
    assert record_of(cluster).uid == uid
    assert cluster.contents("n2") == [(b"1", True)]


def test_w10_down_says_what_it_waits_for() -> None:
    """§1.1 W10: no state that only a restart of everything ends: any of those copies brings it back."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    for node in ("n1", "n2"):
        cluster.crash(node, is_noticed=False)
    cluster.start("n4")
    cluster.crash("n3", is_noticed=False)
    for node in ("n1", "n2", "n3"):
        cluster.declare_dead(node)
    cluster.settle()
    status = cluster["n4"].mirrors.status(record_of(cluster))
    assert (status.state, status.master, status.ring) == ("down", None, ())
    assert set(status.recoverable) >= {"n1"}
    cluster.start("n1")
    cluster.advance(40.0)
    assert cluster.view().master_node == "n1"
    assert cluster.contents("n4") == [(b"1", True)]


def test_what_was_recovered_is_dropped_when_the_queue_went_on_without_it() -> None:
    """§1.1 L9: n3's copy was synchronised when it died, and n3's node starts before that is known to all."""
    cluster = mirrored("n1", "n2", "n3")
    publish(cluster, "n1", b"1")
    uid = record_of(cluster).uid
    old = cluster.view().member_on("n3")
    assert old is not None
    cluster["n3"].page_out()
    cluster.crash("n3", is_noticed=False)
    cluster.start("n3")
    cluster.advance(2.0)
    new = cluster.view().member_on("n3")
    assert new is not None
    assert new.copy != old.copy
    cluster["n3"].page_out()
    assert stored_on(cluster, "n3") == {stored_uid(uid, new.copy)}
    assert cluster["n3"].mirrors._recovered == {}
    assert cluster.copy("n3") == [range(1, 2)]


def test_what_was_recovered_is_dropped_with_its_queue() -> None:
    """W14: it is deleted while it is down."""
    cluster = mirrored("n1", "n2")
    publish(cluster, "n1", b"1")
    cluster["n2"].page_out()
    assert stored_on(cluster, "n2")
    cluster.crash("n2")
    cluster.settle()
    cluster.start("n3")
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "nodes", "ha-params": ["n1", "n2"]}))
    cluster.crash("n1")
    cluster.settle()
    cluster.start("n2")
    assert cluster["n2"].mirrors._recovered == {}, "it lacks what n1 may have confirmed"
    cluster.submit(DeleteQueue("/", "q"))
    cluster.start("n1")
    cluster.settle()
    assert cluster["n1"].mirrors._recovered == {}
    assert stored_on(cluster, "n1") == stored_on(cluster, "n2") == set()


def test_copies_that_are_offered_go_with_their_queue() -> None:
    """A copy that was offered is dropped with its queue."""
    cluster = mirrored("n1", "n2")
    publish(cluster, "n1", b"1")
    cluster["n2"].page_out()
    for node in ("n1", "n2"):
        cluster.crash(node, is_noticed=False)
    cluster.start("n2")
    cluster.declare_dead("n1")
    cluster.settle()
    assert cluster.view().state == "down"
    assert [node for node, *_ in cluster.view().offers] == ["n2"]
    assert stored_on(cluster, "n2")
    cluster.submit(DeleteQueue("/", "q"))
    since = len(cluster.log)
    cluster.advance(60.0)
    assert len(cluster.log) == since, "nobody asks for anything"
    assert cluster["n2"].mirrors._recovered == {}
    assert stored_on(cluster, "n2") == set()


def test_revived_queue_goes_on_with_its_numbers() -> None:
    """S4, §4.10: what is on disk says how far they were."""
    cluster = mirrored("n1")
    publish(cluster, "n1", b"1", b"2", b"3")
    cluster.contents("n1")
    publish(cluster, "n1", b"4")
    cluster.crash("n1")
    cluster.start("n1")
    cluster.advance(1.0)
    assert cluster.queue("n1").next_seq >= 5
    assert cluster.contents("n1") == [(b"4", True)]


def test_a_copy_that_becomes_a_queue_is_not_dropped_when_the_policy_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy that becomes a queue is all that is left until its segments are read, so it is not dropped."""
    cluster = mirrored("n1", "n2")
    publish(cluster, "n1", b"1")
    filled: list[Callable[[], None]] = []
    begin_with = Queue.begin_with
    monkeypatch.setattr(
        Queue,
        "begin_with",
        lambda self, copy, on_done: filled.append(lambda: begin_with(self, copy, on_done)),
    )
    cluster.crash("n1")
    cluster.settle()
    cluster.submit(ClearPolicy("/", "ha"))
    cluster.advance(3.0)
    assert not cluster.replica("n2").is_acting
    filled.pop()()
    cluster.advance(3.0)
    assert record_of(cluster).view is None
    assert [body for body, _ in cluster.contents("n2")] == [b"1"]
