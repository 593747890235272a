"""Declares and deletes, and the disk: who is told that something durable is there. amqp-behaviour §3.7, §3.11, §7.6."""

from random import Random

import pytest

from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)
from node.store.disk import Sync
from tests.durable_world.world import LARGE_BYTES, PERSISTENT, DurableWorld, confirming
from tests.kit.world import Client, check_invariants


def until_told(world: DurableWorld, client: Client) -> list[object]:
    """Have the disk go on, step by step, until the client hears something: that."""
    while not (found := client.methods()):
        assert world.disk.step(), "nothing is left to be done, and there is no answer"
    return list(found)


@pytest.mark.parametrize("seed", range(5))
def test_declare_waits(seed: int) -> None:
    """§7.6: when declare-ok comes the queue outlives a power loss, and not before it is synced."""
    world = DurableWorld()
    client = world.client()
    client.send(1, QueueDeclare(queue="q", durable=True))
    world.settle()
    assert any(isinstance(step, Sync) for step in world.disk.waiting)
    assert until_told(world, client) == [QueueDeclareOk("q", 0, 0)]
    world.cut_power(Random(seed))
    world.start()
    assert world.queue_names == {"q"}


def test_transient_declares() -> None:
    """§7.6: what a restart takes anyway is declared at once."""
    world = DurableWorld()
    client = world.client()
    for method in (
        QueueDeclare(queue="transient"),
        QueueDeclare(queue="exclusive", durable=True, exclusive=True),
        QueueDeclare(queue="auto", auto_delete=True),
    ):
        assert client.ask(1, method) == QueueDeclareOk(method.queue, 0, 0)
    assert client.ask(1, ExchangeDeclare(exchange="x", type="direct")) == ExchangeDeclareOk()
    assert client.ask(1, QueueBind(queue="transient", exchange="x")) == QueueBindOk()
    assert not world.disk.waiting


@pytest.mark.parametrize("seed", range(5))
def test_all_durable(seed: int) -> None:
    """§7.6: exchange, queue and binding that were answered are there after a power loss."""
    world = DurableWorld()
    client = world.client()
    client.send(1, ExchangeDeclare(exchange="x", type="direct", durable=True))
    client.send(1, QueueDeclare(queue="q", durable=True))
    client.send(1, QueueBind(queue="q", exchange="x", routing_key="k"))
    told: list[object] = []
    while len(told) < 3:
        told += until_told(world, client)
    world.cut_power(Random(seed))
    world.start()
    client = world.client()
    client.publish(1, "k", b"a", exchange="x")
    assert world.bodies("q") == [b"a"]


def test_pipelined_publish() -> None:
    """§2.3: what is published behind a declare that waits comes into the queue, and is confirmed after declare-ok."""
    world = DurableWorld()
    client = world.client()
    confirming(client)
    client.send(1, QueueDeclare(queue="q", durable=True))
    client.publish(1, "q", b"a", b"x" * LARGE_BYTES, properties=PERSISTENT)
    client.send(1, QueueDeclare(queue="q", passive=True))
    world.settle()
    assert client.received() == []
    world.rest()
    assert client.methods() == [
        QueueDeclareOk("q", 0, 0),
        QueueDeclareOk("q", 2, 0),
        BasicAck(2, multiple=True),
    ]
    world.kill()
    world.start()
    assert world.bodies("q") == [b"a", b"x" * LARGE_BYTES]


@pytest.mark.parametrize("seed", range(10))
def test_published_before_it_is_declared(seed: int) -> None:
    """§7.5: another client publishes into a queue whose declare isn't synced: its confirm stands for the queue, too."""
    world = DurableWorld()
    client, publisher = world.client(), world.client()
    confirming(publisher)
    client.send(1, QueueDeclare(queue="q", durable=True))
    publisher.publish(1, "q", b"a", properties=PERSISTENT)
    assert until_told(world, publisher) == [BasicAck(1)]
    world.cut_power(Random(seed))
    world.start()
    assert world.bodies("q") == [b"a"]


@pytest.mark.parametrize(
    "method",
    [QueueDeclare(queue="q", durable=True), ExchangeDeclare(exchange="x", type="direct", durable=True)],
)
def test_declared_twice(method: QueueDeclare | ExchangeDeclare) -> None:
    """§7.6: who declares what somebody else is about to declare is told so when it is safe, too."""
    for seed in range(5):
        world = DurableWorld()
        one, other = world.client(), world.client()
        one.send(1, method)
        world.settle()
        other.send(1, method)
        until_told(world, other)
        world.cut_power(Random(seed))
        world.start()
        catalogue = world.broker.catalogue
        assert catalogue.queue("/", "q") or catalogue.exchange("/", "x")


def test_connection_lost() -> None:
    """A client that goes while its declare waits leaves the queue."""
    world = DurableWorld()
    client = world.client()
    client.send(1, QueueDeclare(queue="q", durable=True))
    client.publish(1, "q", b"a", properties=PERSISTENT)
    world.settle()
    client.lose()
    world.rest()
    check_invariants(world)
    assert world.queue_names == {"q"}
    assert world.bodies("q") == []


def test_redeclared() -> None:
    """§3.11: a queue that is deleted and declared again is another one: nothing of the old one is in it, ever."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    client.publish(1, "q", b"old", b"x" * LARGE_BYTES, properties=PERSISTENT)
    client.send(1, QueueDelete(queue="q"))
    client.send(1, QueueDeclare(queue="q", durable=True))
    client.publish(1, "q", b"new", properties=PERSISTENT)
    world.rest()
    assert client.methods() == [QueueDeleteOk(2), QueueDeclareOk("q", 0, 0)]
    assert world.bodies("q") == [b"new"]
    for end in (world.kill, world.stop):
        end()
        world.start()
        world.rest()
        assert world.bodies("q") == [b"new"]
    assert not [path for path in world.disk.paths() if path.startswith("messages/")]


@pytest.mark.parametrize("seed", range(10))
def test_crash_between_delete_and_declare(seed: int) -> None:
    """§3.11: whatever the disk had of it, old messages never are in the new queue."""
    random = Random(seed)
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    client.publish(1, "q", b"old", b"x" * LARGE_BYTES, properties=PERSISTENT)
    world.rest()
    client.send(1, QueueDelete(queue="q"))
    client.send(1, QueueDeclare(queue="q", durable=True))
    client.publish(1, "q", b"new", properties=PERSISTENT)
    world.settle()
    for _ in range(random.randrange(12)):
        world.disk.step()
    told = client.methods()
    world.cut_power(random)
    world.start()
    if "q" in world.queue_names:
        assert world.bodies("q") in ([b"old", b"x" * LARGE_BYTES], [b"new"], [])
    if told:
        assert "q" not in world.queue_names or world.bodies("q") in ([b"new"], [])


@pytest.mark.parametrize("seed", range(5))
def test_deleted_is_gone(seed: int) -> None:
    """§3.11: after delete-ok neither queue nor messages come back, whatever a power loss leaves."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    client.publish(
        1, "q", *(b"%d" % number for number in range(20)), b"x" * LARGE_BYTES, properties=PERSISTENT
    )
    world.rest()
    world.page_out("q")
    client.send(1, QueueDelete(queue="q"))
    assert until_told(world, client) == [QueueDeleteOk(21)]
    world.cut_power(Random(seed))
    world.start()
    assert world.queue_names == set()
    world.rest()
    assert not [path for path in world.disk.paths() if path.startswith(("queues/", "messages/"))]


def test_delete_cancels_in_order() -> None:
    """§3.11: delete-ok, which waits for the disk, comes before the cancel of the deleter's own consumer."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    assert client.ask(1, BasicConsume(queue="q", consumer_tag="c")) == BasicConsumeOk("c")
    client.send(1, QueueDelete(queue="q"))
    world.settle()
    assert client.received() == []
    world.rest()
    assert client.methods() == [QueueDeleteOk(0)]


@pytest.mark.parametrize("size", [1, LARGE_BYTES])
def test_purged(size: int) -> None:
    """§3.11: a purge takes what is in memory and on disk, in all sub-queues; nothing of it comes back."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    for _ in range(3):
        client.publish(1, "q", *(bytes([number]) * size for number in range(15)), properties=PERSISTENT)
        world.rest()
        world.page_out("q", keep_bytes=3 * size)
    client.publish(1, "q", b"last", properties=PERSISTENT)
    client.send(1, QueuePurge(queue="q"))
    world.rest()
    assert client.methods() == [QueuePurgeOk(46)]
    assert isinstance(client.ask(1, BasicGet(queue="q")), BasicGetEmpty)
    client.publish(1, "q", b"new", properties=PERSISTENT)
    world.rest()
    world.kill()
    world.start()
    assert world.bodies("q") == [b"new"]
