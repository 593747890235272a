"""A node stops in good order: `Peers.close` takes back what is out with other nodes' clients, and says no more."""

import pytest

from node.amqp.field_table import longstr
from node.amqp.methods import (
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicNack,
    BasicQos,
    ConfirmSelect,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
)
from node.amqp.properties import Properties
from node.catalogue.policy import QueueSettings
from node.client.reply_to import REPLY_TO
from node.queue.run import Batch, Envelope
from tests.kit.cluster import Cluster, Node, client_of
from tests.kit.messages import content

PERSISTENT = Properties(delivery_mode=2)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster("n1", "n2")
    cluster.declare("n2", "q", durable=True)
    return cluster


def close(node: Node) -> int:
    """Stop it as `Node.stop` does, its clients being gone; how many frames it had sent."""
    node.cluster.is_held = True
    for client in list(node.clients.values()):
        client.lose()
    node.turn()
    node.peers.close()
    return node.frame_count


def test_what_is_out_comes_back_in_order_and_redelivered(cluster: Cluster) -> None:
    """amqp-behaviour §9.1 row 8: what was delivered and what was got; no consumer is given it again."""
    client = client_of(cluster["n1"], 1, 2)
    client.publish(1, "q", b"1", b"2", b"3", b"4", properties=PERSISTENT)
    client.ask(1, BasicQos(prefetch_count=2))
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.send(2, BasicGet(queue="q"))
    client.received()
    home = cluster["n2"].home_queue("q")
    assert (home.backlog.count, home.unacked_count) == (1, 3)
    sent = close(cluster["n2"])
    cluster["n2"].turn()
    assert (home.backlog.count, home.unacked_count) == (4, 0)
    assert sum(map(len, home.backlog.delivered_before())) == 3
    assert cluster["n2"].frame_count == sent


def test_an_auto_delete_queue_is_not_deleted(cluster: Cluster) -> None:
    """amqp-behaviour §9.1 rows 1 and 8: its consumers elsewhere lose it, it does not lose them."""
    cluster.declare("n2", "brief", durable=True, auto_delete=True)
    client = client_of(cluster["n1"])
    client.publish(1, "brief", b"1", properties=PERSISTENT)
    client.send(1, BasicConsume(queue="brief", consumer_tag="t"))
    client.received()
    commands = len(cluster.log)
    close(cluster["n2"])
    cluster["n2"].turn()
    assert len(cluster.log) == commands
    assert cluster["n2"].home_queue("brief").backlog.count == 1


def test_frames_that_come_afterwards_are_ignored(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    sent = close(cluster["n2"])
    client.publish(1, "q", b"1")
    client.send(1, BasicGet(queue="q"))
    cluster["n1"].turn()
    assert cluster.deliver("n1", "n2")
    cluster["n2"].peers.receive("n1", [b"nonsense"])
    cluster["n2"].peers.relieved("n1")
    cluster["n2"].turn()
    assert cluster["n2"].home_queue("q").backlog.count == 0
    assert (cluster["n2"].frame_count, cluster["n2"].faults) == (sent, [])
    assert cluster["n2"].peers.is_idle


def test_nothing_is_sent_afterwards(cluster: Cluster) -> None:
    """Not by queues that were there, nor by one that is opened, nor to requesters."""
    cluster.declare("n1", "theirs", durable=True)
    requester = client_of(cluster["n1"])
    requester.send(1, BasicConsume(queue=REPLY_TO, consumer_tag="t", no_ack=True))
    requester.publish(1, "q", b"", properties=Properties(reply_to=REPLY_TO))
    requester.received()
    asker = client_of(cluster["n2"])
    asker.send(1, BasicGet(queue="q", no_ack=True))
    (item,) = asker.received()
    assert item.properties is not None
    name = item.properties.reply_to
    assert name is not None
    node = cluster["n2"]
    cluster.settle()
    cluster.is_held = True
    node.peers.close()
    sent = node.frame_count
    envelope, body = Envelope("", "theirs", channel=1, frame_max_bytes=131072), content(b"1", 1, 131072)
    record = node.broker.catalogue.queue("/", "theirs")
    assert record is not None
    node.peers.node_up("n1")
    for queue in (node.broker.vhosts["/"].queues["theirs"], node.peers.open(record, QueueSettings())):
        queue.publish(Batch(envelope, [body], 1), None)  # type: ignore[attr-defined]
    node.peers.reply("n1", name, envelope, body)
    node.broker.reply(name, envelope, body)
    asking = node.peers.has_requester("n1", name)
    with pytest.raises(StopIteration) as end:
        next(asking)
    assert end.value.value is False
    node.turn()
    assert node.frame_count == sent
    assert node.peers.is_idle
    assert not node.peers.has_work


def test_dead_letters_stay_where_they_died(cluster: Cluster) -> None:
    """Dead letters whose way to another node has ended stay: the disk has them still, and no turn tries again."""
    cluster.declare("n1", "graveyard", durable=True)
    arguments = {"x-dead-letter-exchange": longstr(""), "x-dead-letter-routing-key": longstr("graveyard")}
    cluster.declare("n2", "mortal", arguments, durable=True)
    client = client_of(cluster["n2"])
    client.publish(1, "mortal", b"1", b"2", properties=PERSISTENT)
    client.send(1, BasicGet(queue="mortal"))
    client.send(1, BasicGet(queue="mortal"))
    client.received()
    node = cluster["n2"]
    forgotten = []
    mortal = node.home_queue("mortal")
    forget = mortal.forget
    mortal.forget = lambda run: (forgotten.append(run), forget(run))[1]  # type: ignore[method-assign]
    cluster.is_held = True
    client.send(1, BasicNack(1, requeue=False))
    node.turn()
    sent = close(node)
    node.turn()
    assert not node.broker.has_work
    assert node.frame_count == sent
    assert forgotten == []


def test_what_we_wait_for_ends(cluster: Cluster) -> None:
    """A stop of n2 while its own clients wait for n1; they are gone, whatever they are told."""
    cluster.declare("n1", "theirs", durable=True)
    client = client_of(cluster["n2"], 1, 2, 3)
    client.ask(1, ConfirmSelect())
    cluster.is_held = True
    client.publish(1, "theirs", b"1")
    client.send(2, BasicGet(queue="theirs"))
    client.send(3, BasicConsume(queue="theirs", consumer_tag="t"))
    node = cluster["n2"]
    node.turn()
    node.peers.close()
    node.turn()
    assert node.peers.is_idle
    close(node)


def test_a_node_starts_again_after_it(cluster: Cluster) -> None:
    """The other side sees a node that went and came."""
    client = client_of(cluster["n1"])
    client.send(1, QueueBind(queue="q", exchange="amq.direct", routing_key="k"))
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    close(cluster["n2"])
    cluster.crash("n2")
    cluster.is_held = False
    cluster.settle()
    client.received()
    cluster.start("n2")
    assert client.ask(1, QueueDeclare(queue="q", passive=True)) == QueueDeclareOk("q", 0, 0)
    client.publish(1, "k", b"1", exchange="amq.direct")
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    assert [type(method) for method in client.methods()][-1] is BasicDeliver
