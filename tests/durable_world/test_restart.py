"""A restart keeps durable queues and persistent messages and drops the rest: amqp-behaviour §7.6, row by row."""

from collections.abc import Callable
from random import Random

import pytest

from node.amqp.field_table import boolean, long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    ChannelClose,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    TxSelect,
)
from node.amqp.properties import Properties
from node.broker.unsettled import note_deliveries
from node.catalogue.commands import PutVhost, SetGlobalParameter, SetPermission, SetPolicy
from tests.durable_world.world import (
    LARGE_BYTES,
    PERSISTENT,
    TRANSIENT,
    DurableWorld,
    redelivered,
)
from tests.kit.world import Client, check_invariants

End = Callable[[DurableWorld], None]


def stop(world: DurableWorld) -> None:
    world.stop()


def kill(world: DurableWorld) -> None:
    world.kill()


def cut_power(world: DurableWorld) -> None:
    world.cut_power(Random(1))


ENDS = pytest.mark.parametrize("end", [stop, kill, cut_power])
CRASHES = pytest.mark.parametrize("end", [kill, cut_power])


def told(world: DurableWorld, client: Client, *methods: object) -> list[object]:
    """Send methods and have the disk follow; the answers."""
    for method in methods:
        client.send(1, method)  # type: ignore[arg-type]
    world.rest()
    return list(client.methods())


@ENDS
def test_topology(end: End) -> None:
    """Durable exchanges, queues and bindings are kept with their arguments; all that is transient is gone."""
    world = DurableWorld()
    client = world.client()
    told(
        world,
        client,
        ExchangeDeclare(exchange="durable-x", type="topic", durable=True),
        ExchangeDeclare(exchange="transient-x", type="topic"),
        QueueDeclare(queue="durable", durable=True, arguments={"x-max-length": long(5)}),
        QueueDeclare(queue="transient"),
        QueueDeclare(queue="exclusive", durable=True, exclusive=True),
        QueueDeclare(queue="auto", durable=True, auto_delete=True),
        QueueBind(queue="durable", exchange="durable-x", routing_key="a.#"),
        QueueBind(queue="transient", exchange="durable-x", routing_key="b"),
        QueueBind(queue="durable", exchange="transient-x", routing_key="c"),
        ExchangeBind(destination="durable-x", source="amq.topic", routing_key="a.b"),
    )
    end(world)
    world.start()
    client = world.client()
    assert world.queue_names == {"durable", "auto"}
    assert told(
        world,
        client,
        ExchangeDeclare(exchange="durable-x", type="topic", durable=True),
        QueueDeclare(queue="durable", durable=True, arguments={"x-max-length": long(5)}),
        QueueDeclare(queue="auto", durable=True, auto_delete=True),
    ) == [ExchangeDeclareOk(), QueueDeclareOk("durable", 0, 0), QueueDeclareOk("auto", 0, 0)]
    client.publish(1, "a.b", b"1", exchange="amq.topic")
    client.publish(1, "b", b"2", exchange="durable-x")
    assert world.bodies("durable") == [b"1"]
    (refused,) = told(world, client, ExchangeDeclare(exchange="transient-x", passive=True))
    assert isinstance(refused, ChannelClose)
    assert refused.reply_code == 404


@ENDS
def test_messages(end: End) -> None:
    """Persistent messages of durable queues are kept, in order, with their properties; transient ones are lost."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    expected = []
    for number in range(60):
        body = bytes([number]) * (LARGE_BYTES if number % 7 == 0 else number)
        is_persistent = number % 3 != 0
        properties = Properties(
            delivery_mode=2 if is_persistent else 1, message_id=str(number), content_type="a/b"
        )
        client.publish(1, "q", body, properties=properties)
        if is_persistent:
            expected.append((body, properties))
        if number % 20 == 19:
            world.rest()
    world.rest()
    end(world)
    world.start()
    found = world.get_all(world.client(), "q")
    assert [(message.body, message.properties) for message in found] == expected
    check_invariants(world)


@pytest.mark.parametrize("is_paged", [False, True])
@ENDS
def test_unacked(end: End, is_paged: bool) -> None:
    """Unacknowledged messages are back in their old places after a restart; acknowledged ones are gone."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    bodies = [b"%02d" % number for number in range(20)]
    client.publish(1, "q", *bodies, properties=PERSISTENT)
    world.rest()
    for tag in range(1, 7):
        assert isinstance(client.ask(1, BasicGet(queue="q")), BasicGetOk)
        if tag % 2:
            client.send(1, BasicAck(tag))
    if is_paged:
        world.page_out("q")
    world.rest()
    end(world)
    world.start()
    assert world.bodies("q") == [*bodies[1:6:2], *bodies[6:]]


@pytest.mark.parametrize("is_paged", [False, True])
@pytest.mark.parametrize("size", [1, LARGE_BYTES])
def test_redelivered_after_a_stop(size: int, is_paged: bool) -> None:
    """After a clean stop those are redelivered that were delivered before, and stay so; the others are not."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    client.publish(1, "q", *(bytes([number]) * size for number in range(12)), properties=PERSISTENT)
    world.rest()
    for _ in range(3):
        assert isinstance(client.ask(1, BasicGet(queue="q")), BasicGetOk)
    if is_paged:
        world.page_out("q")
    for _ in range(3):
        world.stop()
        world.start()
        world.rest()
    assert redelivered(world.get_all(world.client(), "q")) == [True] * 3 + [False] * 9


def test_redelivered_after_a_stop_that_some_clients_outlive() -> None:
    """Messages of a client whose socket outlives the stop count as delivered, whatever an open transaction settled."""
    world = DurableWorld()
    client = world.client(1, 2)
    world.declare(client, "q")
    client.publish(1, "q", *(bytes([number]) for number in range(6)), properties=PERSISTENT)
    world.rest()
    for _ in range(2):
        assert isinstance(client.ask(1, BasicGet(queue="q")), BasicGetOk)
    client.send(2, TxSelect())
    client.send(2, BasicGet(queue="q"))
    client.send(2, BasicAck(1))
    client.send(2, BasicGet(queue="q"))
    world.rest()
    note_deliveries(world.broker)
    world.close_store()
    world.start()
    assert redelivered(world.get_all(world.client(), "q")) == [True] * 4 + [False] * 2


@pytest.mark.parametrize("is_paged", [False, True])
@CRASHES
def test_redelivered_after_a_crash(end: End, is_paged: bool) -> None:
    """After a crash all messages are redelivered, after one more stop too; new ones are not."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    client.publish(1, "q", *(bytes([number]) for number in range(12)), properties=PERSISTENT)
    world.rest()
    if is_paged:
        world.page_out("q")
    end(world)
    world.start()
    world.client().publish(1, "q", b"new", properties=PERSISTENT)
    world.rest()
    world.stop()
    world.start()
    assert redelivered(world.get_all(world.client(), "q")) == [True] * 12 + [False]


@ENDS
def test_expiry(end: End) -> None:
    """Times to live go on while the node is down: what has expired is dropped, the rest lives out its time."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments={"x-message-ttl": long(100_000)})
    world.declare(client, "r")
    client.publish(1, "q", b"old", properties=PERSISTENT)
    client.publish(1, "r", b"short", properties=Properties(delivery_mode=2, expiration="60000"))
    client.publish(1, "r", b"long", properties=Properties(delivery_mode=2, expiration="600000"))
    client.publish(1, "r", b"for ever", properties=PERSISTENT)
    world.advance(50)
    client.publish(1, "q", b"new", properties=PERSISTENT)
    world.rest()
    end(world)
    world.start(down_s=80)
    world.rest()
    assert world.bodies("q") == [b"new"]
    assert world.bodies("r") == [b"long", b"for ever"]
    world.advance(25)
    world.rest()
    assert world.bodies("q") == []
    world.advance(600)
    world.rest()
    assert world.bodies("r") == [b"for ever"]


def test_expiry_just_after_the_start() -> None:
    """Messages published at once after a start have the right time to live, on disk too."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    for number in range(3):
        properties = Properties(delivery_mode=2, expiration="1000000")
        world.client().publish(1, "q", b"%d" % number, properties=properties)
        world.rest()
        world.kill()
        world.start()
    world.advance(500)
    world.rest()
    assert world.bodies("q") == [b"0", b"1", b"2"]
    world.advance(600)
    world.rest()
    assert world.bodies("q") == []


@ENDS
def test_unused_queue(end: End) -> None:
    """x-expires starts anew."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments={"x-expires": long(100_000)})
    world.advance(90)
    end(world)
    world.start(down_s=1000)
    world.advance(90)
    assert world.queue_names == {"q"}
    world.advance(20)
    world.rest()
    assert world.queue_names == set()


@ENDS
def test_auto_delete(end: End) -> None:
    """An auto-delete queue stays until a consumer comes and goes."""
    world = DurableWorld()
    client = world.client()
    told(world, client, QueueDeclare(queue="q", durable=True, auto_delete=True))
    client.publish(1, "q", b"a", properties=PERSISTENT)
    world.rest()
    end(world)
    world.start()
    assert world.bodies("q") == [b"a"]
    client = world.client()
    told(world, client, BasicConsume(queue="q", consumer_tag="c"))
    assert told(world, client, BasicCancel("c")) == [BasicCancelOk("c")]
    assert world.queue_names == set()
    world.kill()
    world.start()
    assert world.queue_names == set()


@pytest.mark.parametrize("end", [kill, cut_power])
def test_auto_delete_with_a_consumer(end: End) -> None:
    """An auto-delete queue whose consumer goes with the node stays, if the node has no time to delete it."""
    world = DurableWorld()
    client = world.client()
    told(world, client, QueueDeclare(queue="q", durable=True, auto_delete=True))
    told(world, client, BasicConsume(queue="q", consumer_tag="c"))
    end(world)
    world.start()
    assert world.queue_names == {"q"}


@ENDS
def test_operators_things(end: End) -> None:
    """Policies, permissions, parameters and vhosts are kept, and what follows from them is in force at once."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    for command in (
        PutVhost("other"),
        SetPolicy("/", "limit", "^q$", {"max-length": 2}),
        SetPermission("other", "guest", ".*", "", ".*"),
        SetGlobalParameter("cluster_name", "rabbits"),
    ):
        world.submit(command)
    world.rest()
    end(world)
    world.start()
    catalogue = world.broker.catalogue
    assert set(world.broker.vhosts) == {"/", "other"}
    assert catalogue.global_parameter("cluster_name") == "rabbits"
    client = world.client()
    client.publish(1, "q", b"1", b"2", b"3", properties=PERSISTENT)
    assert world.bodies("q") == [b"2", b"3"]


@ENDS
def test_kinds_of_queues(end: End) -> None:
    """Priorities, single active consumers, lazy queues and length limits are as before."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "priority", arguments={"x-max-priority": long(3)})
    world.declare(client, "single", arguments={"x-single-active-consumer": boolean(True)})
    world.declare(client, "lazy", arguments={"x-queue-mode": longstr("lazy")})
    world.declare(
        client, "limit", arguments={"x-max-length": long(2), "x-overflow": longstr("reject-publish")}
    )
    bodies = [b"%d" % number for number in range(4)]
    for queue in ("priority", "single", "lazy", "limit"):
        for number, body in enumerate(bodies):
            client.publish(1, queue, body, properties=Properties(delivery_mode=2, priority=number))
    world.rest()
    end(world)
    world.start()
    world.rest()
    assert world.bodies("priority") == bodies[::-1]
    assert world.bodies("single") == world.bodies("lazy") == bodies
    assert world.bodies("limit") == bodies[:2]
    one, other = world.client(), world.client()
    for each in (one, other):
        each.send(1, BasicConsume(queue="single", consumer_tag="c", nowait=True))
        world.rest()
    assert [item.body for item in one.received() if isinstance(item.method, BasicDeliver)] == bodies
    assert other.received() == []


@ENDS
def test_numbers_go_on(end: End) -> None:
    """Messages published after a restart stand behind those that were there, time and again."""
    world = DurableWorld()
    world.declare(world.client(), "q")
    expected = []
    for number in range(12):
        client = world.client()
        bodies = [b"%02d" % number, (b"%02d" % number).ljust(LARGE_BYTES, b"_")]
        client.publish(1, "q", *bodies, properties=PERSISTENT)
        expected += bodies
        world.rest()
        if number % 4 == 3:
            got = client.ask(1, BasicGet(queue="q", no_ack=True))
            while got is None:
                world.rest()
            expected.pop(0)
            world.rest()
        end(world)
        world.start()
    assert world.bodies("q") == expected


def test_connections_are_gone() -> None:
    """Consumers and channels are gone; their clients can come again."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    client.send(1, BasicConsume(queue="q", consumer_tag="c", nowait=True))
    world.settle()
    world.stop()
    world.start()
    assert not world.broker.connections
    client = world.client()
    assert told(world, client, QueueDeclare(queue="q", passive=True)) == [QueueDeclareOk("q", 0, 0)]


def test_unconfirmed() -> None:
    """Persistent messages that nobody waits for are on disk after 25 ms."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    client.publish(1, "q", b"a", properties=PERSISTENT)
    world.settle()
    world.advance(0.025)
    world.settle_disk()
    world.cut_power(Random(0))
    world.start()
    assert world.bodies("q") == [b"a"]


def test_transient_files_are_wiped() -> None:
    """Nothing of what was paged out of transient queues and messages is left after a start."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    told(world, client, QueueDeclare(queue="t"))
    for queue in ("q", "t"):
        client.publish(1, queue, b"a", b"x" * LARGE_BYTES, properties=TRANSIENT)
    world.rest()
    world.page_out("q", "t")
    assert any(path.startswith("transient/") for path in world.disk.paths())
    world.kill()
    world.start()
    world.rest()
    assert not any(path.startswith("transient/") for path in world.disk.paths())
    assert world.bodies("q") == []


def test_stop_while_everything_is_going_on() -> None:
    """A clean stop with publishes, acks and pages on their way loses nothing that was sent."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    client.send(1, QueueBind(queue="q", exchange="amq.fanout"))
    world.rest()
    assert client.methods() == [QueueBindOk()]
    bodies = [b"%02d" % number for number in range(40)]
    client.publish(1, "q", *bodies[:20], properties=PERSISTENT)
    world.rest()
    world.page_out("q")
    client.send(1, BasicConsume(queue="q", consumer_tag="c", nowait=True))
    client.publish(1, "", *bodies[20:], exchange="amq.fanout", properties=PERSISTENT)
    world.stop()
    assert world.start().was_clean
    assert world.bodies("q") == bodies


def test_exchange_to_exchange() -> None:
    """A binding between exchanges is kept where both are durable."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    answers = told(
        world,
        client,
        ExchangeDeclare(exchange="x", type="fanout", durable=True),
        ExchangeBind(destination="x", source="amq.direct", routing_key="k"),
        QueueBind(queue="q", exchange="x"),
    )
    assert answers == [ExchangeDeclareOk(), ExchangeBindOk(), QueueBindOk()]
    world.kill()
    world.start()
    world.client().publish(1, "k", b"a", exchange="amq.direct")
    assert world.bodies("q") == [b"a"]
