"""A connection stops when it has used its share of a turn, by the clock."""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import long, longstr
from node.amqp.frames import content_frames, method_frame
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionClose,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
)
from node.amqp.properties import Properties, content_header
from node.client.connection import Connection
from node.queue.consumer import NEXT_RUN_COST, PUMPED_MAX
from node.queue.queue import Queue
from node.routing.router import Router
from node.scheduling.turn import SHARE_S, TURN_S
from tests.kit.world import World

HEADERS = Properties(headers={"k": longstr("v")})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A broker where each message that is routed costs a millisecond."""
    world = World()
    routed = Router.route

    def route(self: Router, *arguments: object) -> list[str]:
        world.cost_s += 0.001
        return routed(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Router, "route", route)
    client = world.client()
    assert isinstance(client.ask(1, QueueDeclare(queue="q")), QueueDeclareOk)
    assert client.ask(1, ExchangeDeclare(exchange="x", type="headers")) == ExchangeDeclareOk()
    for arguments in ({"k": longstr("v")}, {"n": longstr("")}):  # so that routes depend on both headers
        assert client.ask(1, QueueBind(queue="q", exchange="x", arguments=arguments)) == QueueBindOk()
    client.lose()
    world.settle()
    return world


def publishes(count: int, exchange: str = "amq.topic", key: str = "k") -> bytes:
    """Publishes as one read brings them; with another key each where the key ends in a number sign."""
    content = content_frames(1, content_header(1, HEADERS), b"m", 131072)
    return b"".join(
        method_frame(1, BasicPublish(exchange=exchange, routing_key=key.replace("#", str(n)))) + content
        for n in range(count)
    )


def large_publishes(count: int) -> bytes:
    """Publishes of which each has to be routed by itself, by large headers that no other one has."""
    found = []
    for n in range(count):
        headers = Properties(headers={"k": longstr("v"), "n": longstr(f"{n:04}" * 2048)})
        found.append(method_frame(1, BasicPublish(exchange="x", routing_key="k")))
        found.append(content_frames(1, content_header(1, headers), b"m", 131072))
    return b"".join(found)


def ready(world: World) -> int:
    return world.queue("q").backlog.count


def turns(world: World, count: int) -> None:
    for _ in range(count):
        for connection in world.broker.turn(world.now):
            world.clients[connection].flush()


def test_a_connection_stops_after_the_message_that_passes_its_share(world: World) -> None:
    client, other = world.client(), world.client()
    before = world.cost_s
    client.feed(publishes(50, key="k.#"))
    assert SHARE_S < world.cost_s - before <= SHARE_S + 0.001
    assert not client.connection.is_reading
    other.send(1, BasicQos())
    turns(world, 1)
    assert world.cost_s - before <= TURN_S, "one share more"
    other.flush()
    assert other.methods() == [BasicQosOk()]
    world.settle()
    assert world.cost_s - before == pytest.approx(0.050)
    assert client.connection.is_reading
    assert not world.broker.has_work


def test_a_run_that_is_routed_by_headers_stops_too(world: World) -> None:
    """Each message of the run is looked at by itself; the rest is published later, in order, and confirmed."""
    client = world.client()
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    before = world.cost_s
    client.feed(large_publishes(100))
    assert 0 < ready(world) < 100
    assert world.cost_s - before <= SHARE_S + 0.001, "each may have ten thousand headers"
    first = ready(world)
    client.send(1, BasicGet(queue="q", no_ack=True))
    turns(world, 1)
    assert ready(world) > first
    methods = client.methods()
    assert [method.delivery_tag for method in methods if isinstance(method, BasicAck)][-1] == 100
    assert ready(world) == 99
    assert client.connection.is_reading


def test_many_that_were_stopped_go_on_by_turns(world: World) -> None:
    clients = [world.client() for _ in range(20)]
    bystander = world.client()
    for client in clients:
        client.feed(publishes(30, key="k.#"))
    costs = []
    while world.broker.turns.has_work:
        before = world.cost_s
        bystander.send(1, BasicQos())
        turns(world, 1)
        costs.append(world.cost_s - before)
    assert max(costs) <= TURN_S + 2 * (SHARE_S + 0.001), "one of those that were stopped goes on in any case"
    assert bystander.methods() == [BasicQosOk()] * len(costs)


def test_what_comes_in_for_those_who_were_stopped_waits_while_a_turn_is_full(world: World) -> None:
    clients = [world.client() for _ in range(20)]
    for client in clients:
        client.feed(publishes(3, key="k.#"))
    world.settle()
    before = world.cost_s
    for client in clients:
        client.feed(publishes(3, key="l.#"))
    assert world.cost_s - before <= TURN_S + 0.003
    world.settle()
    assert world.cost_s - before == pytest.approx(20 * 0.003)


def test_what_many_send_at_once_waits_once_a_turn_is_full(world: World) -> None:
    """Clients that send at once wait once a turn is full, or a node short of processors would lose its lease."""
    clients = [world.client() for _ in range(100)]
    before = world.cost_s
    for client in clients:
        client.feed(publishes(30, key="k.#"))
    assert world.cost_s - before <= TURN_S + SHARE_S + 0.001
    assert sum(client.connection.is_reading for client in clients) == 0
    world.settle()
    assert world.cost_s - before == pytest.approx(100 * 0.030)
    assert all(client.connection.is_reading for client in clients)


def test_who_asks_for_little_goes_before_those_who_were_stopped(world: World) -> None:
    clients = [world.client() for _ in range(100)]
    bystander = world.client()
    for client in clients:
        client.feed(publishes(30, key="k.#"))
    while world.broker.turns._short:
        turns(world, 1)
    for client in clients:
        client.feed(publishes(30, key="k.#"))
    bystander.send(1, BasicQos())
    turns(world, 1)
    assert bystander.methods() == [BasicQosOk()]


def test_one_of_those_who_are_stopped_again_and_again_works_in_a_turn_behind_all_others(world: World) -> None:
    clients = [world.client() for _ in range(20)]
    consumer, bystander = world.client(), world.client()
    consumer.send(1, BasicConsume(queue="q", no_ack=True, nowait=True))
    for client in clients:
        client.feed(publishes(100, key="k.#"))
    while world.broker.turns._short or len(world.broker.turns._long) < len(clients):
        turns(world, 1)
    costs = []
    for n in range(10):
        consumer.received()
        bystander.publish(1, "q", b"%d" % n)
        before = world.cost_s
        turns(world, 1)
        costs.append(world.cost_s - before)
        assert consumer.bodies() == [b"%d" % n], "what is done behind this turn is delivered by the next"
        turns(world, 1)
    assert max(costs) <= SHARE_S + 0.001
    world.settle()
    assert world.cost_s == pytest.approx(20 * 0.100)


def test_many_that_waited_for_the_same_go_on_by_turns(world: World) -> None:
    """Clients that sent a change of metadata and more behind it go on by turns, though all are applied at once."""
    waiting = []
    submit = world.broker.log.submit
    world.broker.log.submit = lambda *arguments: waiting.append(arguments)  # type: ignore[method-assign]
    clients = [world.client() for _ in range(50)]
    for client in clients:
        client.send(1, QueueDeclare(queue="another"))
        client.feed(publishes(30, key="k.#"))
    world.broker.log.submit = submit  # type: ignore[method-assign]
    before = world.cost_s
    for arguments in waiting:
        submit(*arguments)
    assert len(waiting) == 50
    assert world.cost_s - before <= TURN_S + SHARE_S + 0.001
    world.settle()
    assert world.cost_s - before == pytest.approx(50 * 0.030)


def test_everybody_in_the_line_gets_on(world: World) -> None:
    clients = [world.client() for _ in range(20)]
    for client in clients:
        client.feed(publishes(300, "x", "q"))
    counts = []
    for _ in range(4):
        turns(world, 1)
        counts.append(ready(world))
    assert counts == sorted(counts)
    world.settle()
    assert ready(world) == 20 * 300


def test_a_lost_connection_leaves_the_line(world: World) -> None:
    client = world.client()
    client.feed(publishes(50, "x"))
    published = ready(world)
    client.lose()
    world.settle()
    assert ready(world) == published
    assert not world.broker.has_work


def test_a_connection_that_took_long_to_close_is_still_read_from(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that took long to close is read from, or its socket stays open after the client ends it."""
    closed = Connection._closed_by_peer

    def slowly(self: Connection) -> None:
        world.cost_s += 2 * SHARE_S
        closed(self)

    monkeypatch.setattr(Connection, "_closed_by_peer", slowly)
    client = world.client()
    client.feed(method_frame(0, ConnectionClose(200, "", 0, 0)))
    turns(world, 2)
    assert client.connection.is_reading


def test_a_channel_that_was_closed_meanwhile_takes_no_rest(world: World) -> None:
    client = world.client(1, 2)
    client.feed(publishes(50, "x"))
    published = ready(world)
    error = ProtocolError(ReplyCode.PRECONDITION_FAILED, "for a reason of ours")
    client.connection._fail_channel(client.channel(), error)
    assert isinstance(client.methods()[-1], ChannelClose)
    assert ready(world) == published
    assert client.ask(2, BasicQos()) == BasicQosOk()


def test_an_alarm_stops_publishes_that_were_read_before(world: World) -> None:
    """A read brings thousands of them, and each may be copied to thousands of queues."""
    client = world.client()
    client.feed(large_publishes(100))
    world.broker.alarms.set("memory")
    published = ready(world)
    world.settle()
    assert ready(world) == published < 100
    assert client.connection._rest is None, (
        "it waits as bytes: small objects would hold on to the memory around them"
    )
    assert len(client.connection._routes) == 0
    world.broker.alarms.clear("memory")
    world.settle()
    assert ready(world) == 100


def test_queues_that_a_turn_has_no_time_for_are_delivered_from_in_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pumped = Queue.pump

    def pump(self: Queue, now: float) -> None:
        world.cost_s += 0.001
        pumped(self, now)

    monkeypatch.setattr(Queue, "pump", pump)
    client = world.client()
    for n in range(50):
        client.send(1, QueueDeclare(queue=f"p{n}", nowait=True))
        client.send(1, QueueBind(queue=f"p{n}", exchange="amq.fanout", nowait=True))
        client.send(1, BasicConsume(queue=f"p{n}", consumer_tag=str(n), no_ack=True, nowait=True))
    world.settle()
    client.publish(1, "", b"m", exchange="amq.fanout")
    costs = []
    while world.broker.has_work:
        before = world.cost_s
        turns(world, 1)
        costs.append(world.cost_s - before)
    assert max(costs) <= TURN_S + 0.0021
    assert len(client.bodies()) == 50


def test_a_queue_delivers_so_much_at_once(world: World) -> None:
    """Messages that came one by one cost more than those of a run."""
    count = 2 * PUMPED_MAX // (NEXT_RUN_COST + 1)
    publisher, client = world.client(), world.client()
    for n in range(count):
        publisher.publish(1, "q", b"m", properties=Properties(priority=n % 2))
        world.settle()
    client.send(1, BasicConsume(queue="q", no_ack=True, nowait=True))
    turns(world, 1)
    assert 0 < ready(world) < count
    world.settle()
    assert len(client.bodies()) == count


def test_dead_letters_stop_too(world: World) -> None:
    client = world.client()
    arguments = {"x-dead-letter-exchange": longstr("x"), "x-max-length": long(0)}
    client.send(1, QueueDeclare(queue="short", arguments=arguments))
    client.received()
    before = world.cost_s
    client.publish(1, "short", *[b"m"] * 400, properties=HEADERS)
    turns(world, 1)
    assert TURN_S < world.cost_s - before <= TURN_S + 0.020
    assert 0 < ready(world) < 400
    world.settle()
    assert ready(world) == 400


def test_without_a_clock_nothing_is_stopped() -> None:
    world = World()
    client = world.client()
    client.send(1, QueueDeclare(queue="q"))
    client.received()
    client.feed(publishes(5000, "", "q"))
    assert ready(world) == 5000
    assert client.connection.is_reading
