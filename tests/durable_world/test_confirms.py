"""Publisher confirms and the disk: who waits for it, and who doesn't. amqp-behaviour §4.3, §7.5."""

from random import Random

import pytest

from node.amqp.field_table import long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)
from node.store.disk import Append, Sync
from tests.durable_world.world import (
    LARGE_BYTES,
    PERSISTENT,
    TRANSIENT,
    DurableWorld,
    confirming,
    confirms,
)
from tests.kit.world import Client, check_invariants

SIZES = (3, LARGE_BYTES)


def ready() -> tuple[DurableWorld, Client]:
    """A world with the queue q, and a client whose channel 1 gets confirms."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    confirming(client)
    return world, client


def journal_syncs(world: DurableWorld) -> list[Sync]:
    return [
        step for step in world.disk.waiting if isinstance(step, Sync) and step.path.startswith("journal/")
    ]


def bind_all(world: DurableWorld, client: Client, *queues: str) -> None:
    """Bind queues to amq.fanout."""
    for queue in queues:
        client.send(1, QueueBind(queue=queue, exchange="amq.fanout"))
        world.rest()
        assert client.methods() == [QueueBindOk()]


@pytest.mark.parametrize("size", SIZES)
def test_persistent(size: int) -> None:
    """§7.5: a persistent message in a durable queue is confirmed after the write and the sync, not before."""
    world, client = ready()
    client.publish(1, "q", b"x" * size, properties=PERSISTENT)
    world.settle()
    while journal_syncs(world):
        assert confirms(client) == []
        assert world.disk.step()
    assert confirms(client) == [(1, "ack", 1, False)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(5))
def test_confirmed_is_safe(size: int, seed: int) -> None:
    """§7.5: a power loss at the moment of the confirm takes nothing that was confirmed."""
    world, client = ready()
    bodies = [bytes([index]) * size for index in range(5)]
    client.publish(1, "q", *bodies, properties=PERSISTENT)
    world.settle()
    while not (found := confirms(client)):
        assert world.disk.step()
    assert found == [(1, "ack", 5, True)]
    world.cut_power(Random(seed))
    world.start()
    assert world.bodies("q") == bodies


def test_transient() -> None:
    """§7.5: a transient message is confirmed as soon as it is enqueued."""
    world, client = ready()
    client.publish(1, "q", b"a", b"b", properties=TRANSIENT)
    assert confirms(client) == [(1, "ack", 1, False), (1, "ack", 2, False)]
    assert not world.disk.waiting


def test_transient_queue() -> None:
    """§7.5: in a queue that isn't durable a persistent message is confirmed as soon as it is enqueued."""
    world, client = ready()
    world.declare(client, "t", durable=False)
    client.publish(1, "t", b"a", b"b", properties=PERSISTENT)
    assert confirms(client) == [(1, "ack", 1, False), (1, "ack", 2, False)]
    assert not world.disk.waiting


def test_exclusive_queue() -> None:
    """§7.6: an exclusive queue goes with its connection, however durable it is declared: nobody waits for the disk."""
    _world, client = ready()
    client.send(1, QueueDeclare(queue="e", durable=True, exclusive=True))
    assert isinstance(client.methods()[0], QueueDeclareOk)
    client.publish(1, "e", b"a", properties=PERSISTENT)
    assert confirms(client) == [(1, "ack", 1, False)]


def test_mixed() -> None:
    """§4.3: what is confirmed at once doesn't wait for what is outstanding below it; what is left is one `multiple`."""
    world, client = ready()
    for body, properties in ((b"1", PERSISTENT), (b"2", TRANSIENT), (b"3", PERSISTENT), (b"4", TRANSIENT)):
        client.publish(1, "q", body, properties=properties)
    assert confirms(client) == [(1, "ack", 2, False), (1, "ack", 4, False)]
    world.settle_disk()
    assert confirms(client) == [(1, "ack", 3, True)]
    assert world.bodies("q") == [b"1", b"2", b"3", b"4"]


def test_order() -> None:
    """§4.3: numbers are confirmed in the order of the batches."""
    world, client = ready()
    client.publish(1, "q", b"1", properties=PERSISTENT)
    world.settle()
    client.publish(1, "q", b"2", b"3", properties=PERSISTENT)
    world.settle()
    seen = []
    while len(seen) < 2:
        assert world.disk.step()
        seen += confirms(client)
    assert seen == [(1, "ack", 1, False), (1, "ack", 3, True)]


def test_durable_and_transient_queue() -> None:
    """§4.3: with several queues the last of them counts."""
    world, client = ready()
    world.declare(client, "t", durable=False)
    bind_all(world, client, "q", "t")
    client.publish(1, "", b"a", exchange="amq.fanout", properties=PERSISTENT)
    assert confirms(client) == []
    world.settle_disk()
    assert confirms(client) == [(1, "ack", 1, False)]
    assert world.bodies("q") == world.bodies("t") == [b"a"]


@pytest.mark.parametrize("size", SIZES)
def test_refused_by_one(size: int) -> None:
    """§4.3, §5.4: what one queue refuses is a nack at once, though another keeps it; the others wait for the disk."""
    world, client = ready()
    limit = {"x-max-length": long(1), "x-overflow": longstr("reject-publish")}
    world.declare(client, "small", arguments=limit)
    bind_all(world, client, "q", "small")
    bodies = [bytes([index]) * size for index in range(3)]
    client.publish(1, "", *bodies, exchange="amq.fanout", properties=PERSISTENT)
    assert confirms(client) == [(1, "nack", 2, False), (1, "nack", 3, False)]
    world.settle_disk()
    assert confirms(client) == [(1, "ack", 1, False)]
    world.kill()
    world.start()
    assert world.bodies("q") == bodies
    assert world.bodies("small") == bodies[:1]


def test_refused_by_all() -> None:
    """§4.3: a message that no queue keeps is settled at once; a large one leaves nothing on disk.

    A lone nack can carry `multiple`.
    """
    world, client = ready()
    limit = {"x-max-length": long(0), "x-overflow": longstr("reject-publish")}
    world.declare(client, "none", arguments=limit)
    client.publish(1, "none", b"x" * LARGE_BYTES, properties=PERSISTENT)
    assert confirms(client) == [(1, "nack", 1, True)]
    world.rest()
    assert not [path for path in world.disk.paths() if path.startswith("messages/")]


def test_dropped_at_once() -> None:
    """§4.3: a message that is dropped when it comes is acked."""
    world, client = ready()
    world.declare(client, "none", arguments={"x-max-length": long(0)})
    client.publish(1, "none", b"x", properties=PERSISTENT)
    world.rest()
    assert confirms(client) == [(1, "ack", 1, False)]


def test_unroutable() -> None:
    """§4.2, §4.3: an unroutable message is acked at once, after it was returned, whatever others wait for."""
    world, client = ready()
    client.publish(1, "q", b"kept", properties=PERSISTENT)
    client.publish(1, "nowhere", b"lost", mandatory=True, properties=PERSISTENT)
    returned, acked = client.methods()
    assert isinstance(returned, BasicReturn)
    assert acked == BasicAck(2)
    world.settle_disk()
    assert confirms(client) == [(1, "ack", 1, False)]


def test_consumed_at_once() -> None:
    """§7.5: what an auto-ack consumer took in the same turn is confirmed without the disk, and never written."""
    world, client = ready()
    consumer = world.client()
    assert consumer.ask(1, BasicConsume(queue="q", consumer_tag="c", no_ack=True)) == BasicConsumeOk("c")
    executed = world.disk.executed
    client.publish(1, "q", b"a", b"x" * LARGE_BYTES, properties=PERSISTENT)
    assert confirms(client) == [(1, "ack", 2, True)]
    assert len(consumer.bodies()) == 2
    world.rest()
    assert world.disk.executed == executed


@pytest.mark.parametrize("size", SIZES)
def test_acked_before_it_was_written(size: int) -> None:
    """§7.5: what is consumed and acked before its batch went is confirmed and never written."""
    world, client = ready()
    consumer = world.client()
    assert consumer.ask(1, BasicConsume(queue="q", consumer_tag="c")) == BasicConsumeOk("c")
    client.publish(1, "q", b"first", properties=PERSISTENT)
    world.settle()
    client.publish(1, "q", b"second".ljust(size, b"_"), properties=PERSISTENT)
    assert [body[:6] for body in consumer.bodies()] == [b"first", b"second"]
    consumer.send(1, BasicAck(2))
    world.settle()
    assert confirms(client) == []
    world.settle_disk()
    assert confirms(client) == [(1, "ack", 2, True)]
    world.rest()
    assert not any(b"second" in world.disk.content(path) for path in world.disk.paths())


def test_acked_while_it_is_written() -> None:
    """§7.5: an ack that comes when the batch is on its way changes nothing for the publisher."""
    world, client = ready()
    consumer = world.client()
    assert consumer.ask(1, BasicConsume(queue="q", consumer_tag="c")) == BasicConsumeOk("c")
    client.publish(1, "q", b"a", properties=PERSISTENT)
    assert consumer.bodies() == [b"a"]
    consumer.send(1, BasicAck(1))
    world.rest()
    assert confirms(client) == [(1, "ack", 1, False)]
    world.cut_power(Random(0))
    world.start()
    assert world.bodies("q") == []


def test_channel_closed() -> None:
    """§2.1: a confirm for a channel that is closed, and opened again, goes nowhere."""
    world, client = ready()
    client.publish(1, "q", b"a", properties=PERSISTENT)
    assert client.ask(1, ChannelClose(200, "", 0, 0)) == ChannelCloseOk()
    assert client.ask(1, ChannelOpen()) == ChannelOpenOk()
    confirming(client)
    world.rest()
    assert client.received() == []
    client.publish(1, "q", b"b", properties=PERSISTENT)
    world.rest()
    assert confirms(client) == [(1, "ack", 1, False)]
    assert world.bodies("q") == [b"a", b"b"]


def test_channel_failed() -> None:
    """§2.2: a channel that fails while confirms are due gets none after its close."""
    world, client = ready()
    client.publish(1, "q", b"a", properties=PERSISTENT)
    client.publish(1, "", b"b", exchange="missing", properties=PERSISTENT)
    (close,) = client.methods()
    assert isinstance(close, ChannelClose)
    world.rest()
    assert client.received() == []
    assert world.bodies("q") == [b"a"]


def test_connection_lost() -> None:
    """A publisher that goes before the sync takes nothing with it."""
    world, client = ready()
    client.publish(1, "q", b"a", properties=PERSISTENT)
    world.settle()
    client.lose()
    world.rest()
    check_invariants(world)
    assert world.bodies("q") == [b"a"]


def test_one_batch() -> None:
    """§7.5: batches share one sync, over channels and connections; each channel is told of its own."""
    world, one = ready()
    other = world.client(1, 2)
    confirming(other, 1, 2)
    world.declare(one, "r")
    one.publish(1, "q", b"1", b"2", properties=PERSISTENT)
    other.publish(1, "r", b"3", properties=PERSISTENT)
    other.publish(2, "q", b"4", b"5", properties=PERSISTENT)
    world.settle()
    assert len(journal_syncs(world)) == 1
    world.settle_disk()
    assert confirms(one) == [(1, "ack", 2, True)]
    assert sorted(confirms(other)) == [(1, "ack", 1, False), (2, "ack", 2, True)]
    assert world.bodies("q") == [b"1", b"2", b"4", b"5"]


def test_several_batches() -> None:
    """§7.5: what comes while a batch is on its way waits for the next one, however many turns that takes."""
    world, client = ready()
    batches = world.store.figures().batches
    for number in range(10):
        client.publish(1, "q", b"%d" % number, properties=PERSISTENT)
        world.settle()
    assert len(journal_syncs(world)) == 1
    world.settle_disk()
    assert confirms(client) == [(1, "ack", 1, False), (1, "ack", 10, True)]
    assert world.store.figures().batches == batches + 2


def test_queue_deleted() -> None:
    """§4.3: messages of a queue that is deleted while they wait are acked."""
    world, client = ready()
    client.publish(1, "q", b"a", b"x" * LARGE_BYTES, properties=PERSISTENT)
    world.settle()
    client.publish(1, "q", b"b", b"y" * LARGE_BYTES, properties=PERSISTENT)
    client.send(1, QueueDelete(queue="q"))
    world.rest()
    methods = client.methods()
    assert QueueDeleteOk(4) in methods
    assert max(method.delivery_tag for method in methods if isinstance(method, BasicAck)) == 4
    assert not [path for path in world.disk.paths() if path.startswith("queues/")]


# --- what the disk can't do ---


def test_full_disk() -> None:
    """§7.5: while the disk is full confirms wait; consumers go on; when there is room all is confirmed."""
    world, client = ready()
    consumer = world.client()
    world.disk.fill_up()
    client.publish(1, "q", b"a", properties=PERSISTENT)
    client.publish(1, "q", b"b", properties=TRANSIENT)
    world.settle_disk()
    assert confirms(client) == [(1, "ack", 2, False)]
    consumer.send(1, BasicConsume(queue="q", consumer_tag="c"))
    world.settle_disk()
    assert consumer.bodies() == [b"a", b"b"]
    world.disk.free()
    world.settle_disk()
    assert confirms(client) == [(1, "ack", 1, False)]
    consumer.lose()
    world.rest()
    world.kill()
    world.start()
    assert world.bodies("q") == [b"a"]


def test_broken_disk() -> None:
    """§4.3: what never will be safe is nacked: what waits, and what comes; all else goes on."""
    world, client = ready()
    consumer = world.client()
    consumer.send(1, BasicConsume(queue="q", consumer_tag="c"))
    world.rest()
    consumer.received()
    world.disk.fail_sync()
    client.publish(1, "q", b"1", b"2", properties=PERSISTENT)
    world.settle()
    client.publish(1, "q", b"3", properties=PERSISTENT)
    world.rest()
    assert confirms(client) == [(1, "nack", 3, True)]
    assert len(world.errors) == 1
    client.publish(1, "q", b"4", properties=PERSISTENT)
    client.publish(1, "q", b"5", properties=TRANSIENT)
    assert confirms(client) == [(1, "nack", 4, True), (1, "ack", 5, False)]
    assert consumer.bodies() == [b"1", b"2", b"3", b"4", b"5"]
    consumer.send(1, BasicAck(5, multiple=True))
    world.rest()
    check_invariants(world)


def test_broken_disk_and_declares() -> None:
    """§7.5: a durable declare that can't be written is refused with 541; others are not."""
    world, client = ready()
    world.disk.fail(Append)
    client.publish(1, "q", b"1", properties=PERSISTENT)
    world.rest()
    assert confirms(client) == [(1, "nack", 1, True)]
    client.send(1, QueueDeclare(queue="transient"))
    client.send(1, QueueDeclare(queue="q", durable=True))
    client.send(1, QueueDeclare(queue="durable", durable=True))
    world.rest()
    transient, known, close = client.methods()
    assert isinstance(transient, QueueDeclareOk)
    assert known == QueueDeclareOk("q", 1, 0)
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 541


def test_broken_disk_and_pages() -> None:
    """A broken disk still reads: what was paged out before is delivered."""
    world, client = ready()
    bodies = [b"%02d" % number for number in range(20)]
    client.publish(1, "q", *bodies, properties=PERSISTENT)
    world.rest()
    world.page_out("q")
    confirms(client)
    world.disk.fail_sync()
    client.publish(1, "q", b"last", properties=PERSISTENT)
    world.rest()
    assert confirms(client) == [(1, "nack", 21, True)]
    consumer = world.client()
    consumer.send(1, BasicConsume(queue="q", consumer_tag="c"))
    world.rest()
    delivered = [item for item in consumer.received() if isinstance(item.method, BasicDeliver)]
    assert [item.body for item in delivered] == [*bodies, b"last"]
