"""Interceptors of deliveries: what a client is given, what stays with its queue, and how long they may work."""

from collections.abc import Callable, Sequence

import pytest

from cluster.remote.remote_queue import RemoteQueue
from node.amqp.constants import ReplyCode
from node.amqp.field_table import Field, longstr
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicQos,
    BasicReject,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
)
from node.amqp.properties import Properties
from node.broker.intercepting import intercept_deliveries
from node.client.delivery_interception import (
    AT_ONCE_MAX,
    GETS_MAX,
    OF_ALL_MAX,
    WORK_S,
    OutgoingInterceptor,
)
from node.extension.delivery_interceptor import DeliveryInterceptor, DeliveryTarget, OutgoingMessage
from node.extension.protocol import Refusal
from tests.kit.cluster import Cluster, client_of
from tests.kit.world import Client, Received, World, check_invariants
from tests.node.client.told_protocol import ToldClient


class Acting(DeliveryInterceptor):
    """Does what bodies say: `refuse`, `fail`, `mark` sets a header, `new` is replaced by `changed`.

    seen: the targets and bodies that it was given.   before: called at each look.
    """

    def __init__(self) -> None:
        super().__init__({})
        self.seen: list[tuple[DeliveryTarget, list[bytes]]] = []
        self.before: Callable[[], None] = lambda: None

    def delivering(self, target: DeliveryTarget, messages: Sequence[OutgoingMessage]) -> None:
        self.before()
        self.seen.append((target, [message.body for message in messages]))
        for message in messages:
            if message.body == b"fail":
                raise KeyError("a bug")
            if message.body == b"unencodable":
                message.set_header("x", Field("I", 2**40))
            if message.body == b"refuse":
                message.refuse()
            if message.body == b"mark":
                message.set_header("seen", longstr("yes"))
            if message.body == b"new":
                message.set_body(b"changed")


def intercepted(world: World) -> Acting:
    """Have a new interceptor look at all deliveries of a broker."""
    acting = Acting()
    intercept_deliveries(world.broker, (OutgoingInterceptor("acting", acting),))
    return acting


@pytest.fixture
def world() -> World:
    """Return a broker with the queue `q`, whose dead letters go to the queue `dead`."""
    world = World()
    client = world.client()
    client.ask(1, ExchangeDeclare(exchange="dlx", type="fanout"))
    client.ask(1, QueueDeclare(queue="dead"))
    client.ask(1, QueueBind(queue="dead", exchange="dlx"))
    client.ask(1, QueueDeclare(queue="q", arguments={"x-dead-letter-exchange": longstr("dlx")}))
    return world


def fill(world: World, *bodies: bytes) -> None:
    """Publish messages to `q`."""
    client = world.client()
    client.publish(1, "q", *bodies, properties=Properties(headers={"a": longstr("b")}))
    world.settle()


def consumer(world: World, *, no_ack: bool = False) -> Client:
    """Return a client that consumes from `q`."""
    client = world.client()
    client.send(1, BasicConsume(queue="q", consumer_tag="t", no_ack=no_ack))
    return client


def work(world: World) -> None:
    """Have all work done, and then what it left for later."""
    world.settle()
    world.advance(0)


def delivered(client: Client) -> list[Received]:
    """Return the deliveries that a client has got, when all work is done that follows from them."""
    work(client.world)
    return [item for item in client.received() if isinstance(item.method, BasicDeliver)]


def bodies(client: Client) -> list[bytes]:
    """Return the bodies of `delivered`."""
    return [item.body for item in delivered(client)]


def test_a_client_gets_changed_messages_and_the_queue_keeps_its_own(world: World) -> None:
    acting = intercepted(world)
    fill(world, b"mark", b"new", b"plain")
    client = consumer(world)
    items = delivered(client)
    assert [item.body for item in items] == [b"mark", b"changed", b"plain"]
    assert [item.properties.headers for item in items if item.properties is not None] == [
        {"a": longstr("b"), "seen": longstr("yes")},
        {"a": longstr("b")},
        {"a": longstr("b")},
    ]
    target = DeliveryTarget("/", "guest", client.connection.name, "q", "t")
    assert acting.seen == [(target, [b"mark", b"new", b"plain"])]
    check_invariants(world)
    intercept_deliveries(world.broker, ())
    client.send(1, BasicReject(2, requeue=True))
    (again,) = delivered(client)
    assert (again.body, again.method) == (b"new", BasicDeliver("t", 4, True, "", "q"))
    check_invariants(world)


def test_a_refused_message_is_rejected_in_the_clients_place(world: World) -> None:
    intercepted(world)
    fill(world, b"1", b"refuse", b"2")
    client = consumer(world)
    assert bodies(client) == [b"1", b"2"]
    assert [world.queue(name).backlog.count for name in ("q", "dead")] == [0, 1]
    assert world.queue("q").unacked_count == 2
    assert client.channel().counters.deliver == 2
    check_invariants(world)
    client.send(1, BasicAck(0, multiple=True))
    world.settle()
    assert world.queue("q").unacked_count == 0
    check_invariants(world)


def test_a_refused_message_takes_no_prefetch(world: World) -> None:
    intercepted(world)
    fill(world, *([b"refuse"] * 40), b"1", b"2")
    client = world.client()
    client.ask(1, BasicQos(prefetch_count=1))
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    for _ in range(40):
        work(world)
    assert bodies(client) == [b"1"]
    assert world.queue("dead").backlog.count == 40
    check_invariants(world)


def test_a_consumer_that_acknowledges_nothing_loses_refused_messages(world: World) -> None:
    intercepted(world)
    fill(world, b"1", b"refuse", b"2")
    client = consumer(world, no_ack=True)
    assert bodies(client) == [b"1", b"2"]
    assert [world.queue(name).backlog.count for name in ("q", "dead")] == [0, 0]
    assert world.queue("q").unacked_count == 0
    check_invariants(world)


@pytest.mark.parametrize("bad", [b"fail", b"unencodable"])
def test_after_a_failure_the_channel_is_closed_and_all_messages_are_back(world: World, bad: bytes) -> None:
    intercepted(world)
    fill(world, b"1", bad, b"2")
    client = consumer(world)
    work(world)
    close = client.methods()[-1]
    assert isinstance(close, ChannelClose)
    text = "PRECONDITION_FAILED - plug-in 'acting' failed; the log has the reason"
    assert (close.reply_code, close.reply_text) == (ReplyCode.PRECONDITION_FAILED, text)
    queue = world.queue("q")
    assert (queue.backlog.count, queue.unacked_count, world.queue("dead").backlog.count) == (3, 0, 0)
    assert world.broker.exchange_types.failures["acting"] == 1
    assert client.connection.state.name == "OPEN"
    client.send(1, ChannelCloseOk())
    intercept_deliveries(world.broker, ())
    client.ask(1, ChannelOpen())
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    assert bodies(client) == [b"1", bad, b"2"]
    check_invariants(world)


def test_a_channel_that_closes_gives_back_what_was_refused_just_before(world: World) -> None:
    intercepted(world)
    fill(world, b"refuse")
    client = consumer(world)
    world.settle()
    client.send(1, ChannelClose(200, "", 0, 0))
    world.advance(0)
    assert world.queue("q").backlog.count == 1
    assert world.queue("q").unacked_count == 0


def test_basic_get_goes_on_behind_refused_messages(world: World) -> None:
    acting = intercepted(world)
    fill(world, b"refuse", b"refuse", b"new", b"1")
    client = world.client()
    client.send(1, BasicGet(queue="q"))
    (got,) = client.received()
    assert got.body == b"changed"
    assert world.queue("dead").backlog.count == 2
    assert {target.consumer for target, _ in acting.seen} == {""}
    check_invariants(world)


def test_one_basic_get_refuses_so_many_messages(world: World) -> None:
    intercepted(world)
    fill(world, *([b"refuse"] * (GETS_MAX + 1)))
    client = world.client()
    assert isinstance(client.ask(1, BasicGet(queue="q")), BasicGetEmpty)
    assert world.queue("dead").backlog.count == GETS_MAX
    assert isinstance(client.ask(1, BasicGet(queue="q")), BasicGetEmpty)
    assert world.queue("q").backlog.count == 0
    check_invariants(world)


def test_a_failing_basic_get_leaves_its_message(world: World) -> None:
    intercepted(world)
    fill(world, b"fail")
    client = world.client()
    code, text = client.refusal(BasicGet(queue="q"))
    assert (code, "plug-in 'acting' failed" in text) == (406, True)
    assert world.queue("q").backlog.count == 1
    assert world.queue("q").unacked_count == 0


def test_consumers_are_led_anew_when_interceptors_come_and_go(world: World) -> None:
    client = consumer(world)
    fill(world, b"mark")
    acting = intercepted(world)
    fill(world, b"mark")
    intercept_deliveries(world.broker, ())
    fill(world, b"mark")
    headers = [item.properties.headers for item in delivered(client) if item.properties is not None]
    assert ["seen" in (each or {}) for each in headers] == [False, True, False]
    assert len(acting.seen) == 1


def test_without_an_interceptor_a_consumer_leads_to_the_channel_itself(world: World) -> None:
    """A feature that nobody enabled costs nothing: no delivery is asked about."""
    client = consumer(world)
    world.settle()
    assert client.channel().consumers["t"].channel is client.channel()


def test_interceptors_get_few_messages_at_a_time_and_stop_when_their_time_is_over(world: World) -> None:
    acting = intercepted(world)
    fill(world, *(b"%d" % number for number in range(100)))
    turns: list[int] = []

    def look() -> None:
        turns.append(world.broker.turns.number)
        world.cost_s += WORK_S * 0.6

    acting.before = look
    client = consumer(world)
    found: list[bytes] = []
    for _ in range(10):
        found += bodies(client)
    assert found == [b"%d" % number for number in range(100)]
    assert max(len(each) for _, each in acting.seen) == AT_ONCE_MAX
    assert max(turns.count(number) for number in turns) == 2  # the second look is over the time


def test_many_consumers_of_a_queue_get_one_message_at_a_time(world: World) -> None:
    acting = intercepted(world)
    clients = [consumer(world) for _ in range(OF_ALL_MAX)]
    world.settle()
    fill(world, *([b"m"] * 2 * OF_ALL_MAX))
    assert sum(len(bodies(client)) for client in clients) == 2 * OF_ALL_MAX
    acting.seen.clear()
    fill(world, *([b"m"] * 5 * OF_ALL_MAX))
    assert {len(each) for _, each in acting.seen} == {1}
    interception = world.broker.delivery_interception
    assert interception is not None
    assert interception.outlets == OF_ALL_MAX
    for client in clients:
        client.lose()
    world.settle()
    assert interception.outlets == 0


def test_deliveries_from_another_node_are_looked_at() -> None:
    cluster = Cluster("n1", "n2")
    cluster.declare("n2", "q")
    world = cluster["n1"]
    acting = intercepted(world)
    client = client_of(world)
    client.publish(1, "q", b"mark", b"refuse", b"new")
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    items = delivered(client)
    assert [item.body for item in items] == [b"mark", b"changed"]
    assert isinstance(world.broker.vhosts["/"].queues["q"], RemoteQueue)
    home = cluster["n2"].home_queue("q")
    assert (home.backlog.count, home.unacked_count) == (0, 2)  # without a dead-letter exchange it is dropped
    client.publish(1, "q", b"fail")
    work(world)
    assert isinstance(client.methods()[-1], ChannelClose)
    cluster.settle()
    assert (home.backlog.count, home.unacked_count) == (3, 0)
    assert len(acting.seen) >= 2


def test_deliveries_from_another_node_wait_for_the_next_turn() -> None:
    cluster = Cluster("n1", "n2")
    cluster.declare("n2", "q")
    world = cluster["n1"]
    acting = intercepted(world)
    turns: list[int] = []

    def look() -> None:
        turns.append(world.broker.turns.number)
        world.cost_s += WORK_S * 2

    acting.before = look
    client = client_of(world)
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    cluster.settle()
    other = client_of(cluster["n2"])
    for number in range(5):  # each a delivery of its own
        other.publish(1, "q", b"%d" % number, properties=Properties(message_id=str(number)))
        other.publish(1, "q", b"x", properties=Properties(priority=number))
    found: list[bytes] = []
    for _ in range(12):
        found += bodies(client)
    assert len(found) == 10
    assert len(set(turns)) == len(turns)
    client.send(1, BasicCancel("t"))
    cluster.settle()


def test_clients_of_other_protocols_get_changed_messages_and_are_ended_by_a_failure(world: World) -> None:
    acting = intercepted(world)
    client = ToldClient.opened(world)
    client.session.consume("q", "c", lambda: None)
    fill(world, b"new", b"refuse", b"1")
    work(world)
    assert [each.body for each in client.plugged.deliveries] == [b"changed", b"1"]
    assert {target.consumer for target, _ in acting.seen} == {"c"}
    client.told()
    fill(world, b"fail")
    work(world)
    work(world)
    (refusal,) = [item for item in client.told() if isinstance(item, Refusal)]
    assert (refusal.code, "plug-in 'acting' failed" in refusal.text) == (406, True)
    assert client.is_reset
    work(world)
    queue = world.queue("q")
    assert (queue.backlog.count, queue.unacked_count) == (3, 0)  # the refused one is a dead letter
