"""A mirrored queue gets another master: what consumers of all nodes see of that (amqp-behaviour §9.4)."""

import pytest

from node.amqp.field_table import Table, boolean
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ConfirmSelect,
)
from tests.cluster.remote.moving import MOVES, PERSISTENT, bodies, deliveries, move
from tests.kit.cluster import Cluster, client_of

CANCEL: Table = {"x-cancel-on-ha-failover": boolean(True)}


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare_mirrored("q", "n1", "n2", "n3")
    return cluster


@pytest.mark.parametrize("how", MOVES)
@pytest.mark.parametrize("is_far", [True, False])
def test_consume_survives(cluster: Cluster, how: str, is_far: bool) -> None:
    """reliability §2.2 consume_survives_sigkill, _stop, _policy: after basic.cancel and another basic.consume all
    messages come, those seen before are redelivered. The producer does not confirm, the consumer's node is far
    or the new master's.
    """
    consumer = client_of(cluster["n3" if is_far else "n2"], 1)
    producer = cluster["n3"].client()
    assert isinstance(
        consumer.ask(1, BasicConsume(queue="q", consumer_tag="t", arguments=CANCEL)), BasicConsumeOk
    )
    producer.publish(1, "q", *bodies(1, 5), properties=PERSISTENT)
    cluster.settle()
    seen = deliveries(consumer)
    assert seen == [(body, False) for body in bodies(1, 5)]
    cluster.is_held = True
    producer.publish(1, "q", *bodies(6, 10), properties=PERSISTENT)
    cluster["n3"].turn()
    cluster.deliver("n3", "n1")
    cluster["n1"].turn()  # n1 has them, and has told nobody
    producer.publish(1, "q", *bodies(11, 15), properties=PERSISTENT)
    cluster.is_held = False
    move(cluster, how)
    assert BasicCancel("t", nowait=True) in consumer.methods()
    assert consumer.channel().consumers == {}
    consumer.send(1, BasicConsume(queue="q", consumer_tag="again"))
    producer.publish(1, "q", *bodies(16, 20), properties=PERSISTENT)
    cluster.settle()
    got = deliveries(consumer)
    assert [body for body, _ in got] == bodies(1, 20)
    assert all(is_again for body, is_again in got if body in bodies(1, 5))


@pytest.mark.parametrize("how", MOVES)
@pytest.mark.parametrize("node", ["n2", "n3"])
@pytest.mark.parametrize("has_ccn", [True, False])
def test_auto_resume(cluster: Cluster, how: str, node: str, has_ccn: bool) -> None:
    """reliability §2.2 auto_resume, auto_resume_no_ccn_client: the consumer is attached again in silence and gets all;
    what it had comes again in its place, redelivered (§9.4), with tags that go on.
    """
    client = client_of(cluster[node], 1) if has_ccn else cluster[node].client()
    arguments = {} if has_ccn else CANCEL
    client.send(1, BasicQos(prefetch_count=3))
    client.send(1, BasicConsume(queue="q", consumer_tag="t", arguments=arguments))
    client.publish(1, "q", *bodies(1, 5))
    cluster.settle()
    client.received()
    client.send(1, BasicAck(1))
    cluster.settle()
    assert deliveries(client) == [(b"4", False)]
    move(cluster, how)
    again = client.received()
    assert [
        (each.method.delivery_tag, each.body, each.method.redelivered)
        for each in again
        if isinstance(each.method, BasicDeliver)
    ] == [(5, b"2", True), (6, b"3", True), (7, b"4", True)]
    assert all(isinstance(each.method, BasicDeliver) for each in again)
    client.send(1, BasicAck(4, multiple=True))  # tags of the master before: accepted, and ignored
    client.send(1, BasicAck(7, multiple=True))
    cluster.settle()
    assert deliveries(client) == [(b"5", True)]
    client.send(1, BasicAck(8))
    cluster.settle()
    assert client.methods() == []
    assert cluster["n2"].home_queue("q").unacked_count == 0
    client.lose()
    cluster.settle()
    cluster.check_idle()


@pytest.mark.parametrize("settle", [BasicNack(1, requeue=True), BasicNack(1, requeue=False), BasicAck(1)])
@pytest.mark.parametrize("node", ["n2", "n3"])
def test_old_tags_are_ignored(cluster: Cluster, settle: BasicNack | BasicAck, node: str) -> None:
    """§9.4: what is done with a delivery of the master before changes nothing at the new one."""
    client = client_of(cluster[node], 1)
    client.publish(1, "q", b"1")
    client.send(1, BasicGet(queue="q"))
    cluster.settle()
    assert isinstance(client.received()[0].method, BasicGetOk)
    move(cluster, "sigkill")
    home = cluster["n2"].home_queue("q")
    assert (home.backlog.count, home.unacked_count) == (1, 0), "basic.get unacked are requeued too"
    client.send(1, settle)
    cluster.settle()
    assert client.methods() == []
    assert (home.backlog.count, home.unacked_count) == (1, 0)
    client.send(1, settle)
    cluster.settle()
    assert isinstance(client.methods()[0], ChannelClose), "but each only once"


@pytest.mark.parametrize("how", MOVES)
@pytest.mark.parametrize("node", ["n2", "n3"])
def test_channel_limit_counts_anew(cluster: Cluster, how: str, node: str) -> None:
    """§9.4, §4.9: what came from the master before takes nothing of a channel's limit, nor do its acks give any."""
    client = client_of(cluster[node], 1)
    assert client.ask(1, BasicQos(prefetch_count=2, global_=True)) == BasicQosOk()
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.publish(1, "q", *bodies(1, 6))
    cluster.settle()
    assert len(deliveries(client)) == 2
    move(cluster, how)
    assert deliveries(client) == [(b"1", True), (b"2", True)]
    client.send(1, BasicAck(2, multiple=True))
    cluster.settle()
    assert deliveries(client) == []
    client.send(1, BasicAck(3))
    cluster.settle()
    assert deliveries(client) == [(b"3", True)]


def test_limit_set_after_the_move_minds_no_old_deliveries(cluster: Cluster) -> None:
    client = client_of(cluster["n3"], 1)
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.publish(1, "q", *bodies(1, 3))
    cluster.settle()
    move(cluster, "sigkill")
    assert len(deliveries(client)) == 6
    client.send(1, BasicQos(prefetch_count=4, global_=True))
    client.publish(1, "q", b"4", b"5")
    cluster.settle()
    assert deliveries(client) == [(b"4", False)]


def test_no_ack_messages_on_their_way_come_again(cluster: Cluster) -> None:
    """A message that the old master delivered without acks, and that may not have arrived, is redelivered."""
    client = client_of(cluster["n3"], 1)
    client.send(1, BasicConsume(queue="q", consumer_tag="t", no_ack=True))
    client.publish(1, "q", b"1")
    cluster.settle()
    assert deliveries(client) == [(b"1", False)]
    client.publish(1, "q", b"2")
    cluster.is_held = True
    cluster["n3"].turn()
    cluster.deliver("n3", "n1")
    cluster["n1"].turn()
    cluster["n1"].mirrors.replicate()
    cluster.is_held = False
    move(cluster, "sigkill")
    assert deliveries(client) == [(b"2", True)]


@pytest.mark.parametrize("how", MOVES)
def test_consumers_of_this_node_go_away_with_the_master(cluster: Cluster, how: str) -> None:
    """Consumers of the old master's own node live on only if their node does."""
    near, far = client_of(cluster["n1"], 1), client_of(cluster["n3"], 1)
    near.send(1, BasicConsume(queue="q", consumer_tag="near"))
    far.send(1, BasicConsume(queue="q", consumer_tag="far"))
    near.publish(1, "q", b"1", b"2", b"3")
    cluster.settle()
    assert len(deliveries(near)) + len(deliveries(far)) == 3
    move(cluster, how)
    home = cluster["n2"].home_queue("q")
    assert home.backlog.count == 0
    assert len(home.consumers) == (2 if how == "policy" else 1)
    assert sorted(deliveries(near) + deliveries(far)) == [(body, True) for body in bodies(1, 3)]
    if how == "policy":
        near.lose()
        far.lose()
        cluster.settle()
        cluster.check_idle()
        assert home.backlog.count == 3


def test_transfer_back_and_forth(cluster: Cluster) -> None:
    """Masters on the near and the far node in turn: each message comes once to who acks."""
    client = client_of(cluster["n1"], 1, 2)
    client.send(1, ConfirmSelect())
    client.send(2, BasicConsume(queue="q", consumer_tag="t"))
    cluster.settle()
    got: list[bytes] = []
    for number in range(1, 9):
        client.publish(1, "q", b"%d" % number)
        cluster.settle()
        for each in client.received():
            if isinstance(each.method, BasicDeliver):
                got.append(each.body)
                client.send(2, BasicAck(each.method.delivery_tag))
        cluster.settle()
        cluster.transfer("q", "n2" if number % 2 else "n1")
    assert got == bodies(1, 8)
    record = cluster["n1"].broker.catalogue.queue("/", "q")
    assert record is not None
    assert not cluster.replicas[record.uid].messages
    client.lose()
    cluster.settle()
    cluster.check_idle()


@pytest.mark.parametrize("how", MOVES)
def test_exclusive_consumer_keeps_its_right(cluster: Cluster, how: str) -> None:
    client, other = client_of(cluster["n3"], 1), client_of(cluster["n2"], 1)
    client.send(1, BasicConsume(queue="q", consumer_tag="t", exclusive=True))
    cluster.settle()
    move(cluster, how)
    refusal = other.ask(1, BasicConsume(queue="q"))
    assert isinstance(refusal, ChannelClose)
    assert "exclusive use" in refusal.reply_text
    client.publish(1, "q", b"1")
    cluster.settle()
    assert deliveries(client) == [(b"1", False)]


def test_consumer_that_finds_the_queue_taken_is_cancelled(cluster: Cluster) -> None:
    """Somebody else was first at the new master: an exclusive consumer can't be, and hears that (§4.7)."""
    client, other = client_of(cluster["n3"], 1), client_of(cluster["n2"], 1)
    client.send(1, BasicConsume(queue="q", consumer_tag="t", exclusive=True))
    cluster.settle()
    client.received()
    cluster.crash("n1")
    cluster.is_held = True
    for name in ("n2", "n3"):
        while cluster.apply(name):
            cluster[name].mirrors.refresh()
    other.send(1, BasicConsume(queue="q", consumer_tag="first"))
    for name in ("n2", "n3", "n2"):
        while cluster.apply(name):
            cluster[name].mirrors.refresh()
    cluster.is_held = False
    cluster.settle()
    assert client.methods() == [BasicCancel("t", nowait=True)]
    assert client.channel().consumers == {}
    assert other.methods() == [BasicConsumeOk("first")]


@pytest.mark.parametrize("how", MOVES)
def test_single_active_consumer(how: str) -> None:
    """The first to be attached again is the active one; all stay in the line."""
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare_mirrored("q", "n1", "n2", "n3", arguments={"x-single-active-consumer": boolean(True)})
    first, second = client_of(cluster["n2"], 1), client_of(cluster["n3"], 1)
    first.send(1, BasicConsume(queue="q", consumer_tag="first"))
    cluster.settle()
    second.send(1, BasicConsume(queue="q", consumer_tag="second"))
    cluster.settle()
    move(cluster, how)
    first.publish(1, "q", b"1")
    cluster.settle()
    assert deliveries(first) == [(b"1", False)]
    first.lose()
    cluster.settle()
    assert deliveries(second) == [(b"1", True)]


@pytest.mark.parametrize("how", MOVES)
@pytest.mark.parametrize("node", ["n2", "n3"])
def test_auto_delete(how: str, node: str) -> None:
    """A move deletes nothing; the last consumer does that when it leaves (§3.12)."""
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare_mirrored("q", "n1", "n2", "n3", auto_delete=True)
    client = client_of(cluster[node], 1)
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    cluster.settle()
    move(cluster, how)
    assert cluster["n3"].broker.catalogue.queue("/", "q") is not None
    client.received()
    assert client.ask(1, BasicCancel("t")) == BasicCancelOk("t")
    assert cluster["n3"].broker.catalogue.queue("/", "q") is None


def test_auto_delete_when_the_consumers_node_dies() -> None:
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare_mirrored("q", "n1", "n2", auto_delete=True)
    client = client_of(cluster["n3"], 1)
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    cluster.settle()
    cluster.crash("n3")
    cluster.settle()
    assert cluster["n1"].broker.catalogue.queue("/", "q") is None
