"""Queues that hold messages until the time in a header, in a broker without sockets. docs/delayed.md."""

from collections.abc import Iterator

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.field_table import Field, Table, longstr
from node.amqp.methods import (
    BasicAck,
    BasicGet,
    BasicGetEmpty,
    ConfirmSelect,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    TxCommit,
    TxSelect,
)
from node.amqp.properties import Properties
from node.catalogue.commands import ClearPolicy, DeclareQueue, SetPolicy
from node.catalogue.delayed import DELAYED_TYPE, waiting_queue
from node.catalogue.holding import holding_exchange
from node.queue.delayed_queue import ROUNDING_S
from tests.kit.world import Client, World, check_invariants

HOLD = {"x-hold-until-header": longstr("eta")}
EXCHANGE = holding_exchange("eta")
WAITING = waiting_queue(EXCHANGE)


def at(world: World, seconds: float) -> Field:
    """The header that holds a message for so many seconds."""
    return Field("d", world.now + world.broker.epoch_s + seconds)


def publish(client: Client, eta: Field | None, body: bytes = b"m", key: str = "q", **options: object) -> None:
    headers: Table = {"task": longstr("t"), **({} if eta is None else {"eta": eta})}
    exchange = str(options.pop("exchange", ""))
    more = {"headers": headers, **options}
    client.publish(1, key, body, exchange=exchange, properties=Properties(**more))  # type: ignore[arg-type]
    client.world.settle()


def fetched(client: Client, queue: str = "q") -> list[bytes]:
    bodies = []
    while True:
        client.send(1, BasicGet(queue=queue, no_ack=True))
        (item,) = client.received()
        if isinstance(item.method, BasicGetEmpty):
            return bodies
        bodies.append(item.body)


def later(world: World, seconds: float) -> None:
    world.advance(seconds + 2 * ROUNDING_S)


def waiting(world: World) -> int:
    return world.queue(WAITING).backlog.count


@pytest.fixture(params=["argument", "policy"])
def held(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client, and the queue q that holds messages until the time in the header `eta`."""
    world = World()
    client = world.client()
    arguments: Table = HOLD if request.param == "argument" else {}
    assert isinstance(client.ask(1, QueueDeclare(queue="q", arguments=arguments)), QueueDeclareOk)
    if request.param == "policy":
        holding = world.broker.holding("/", "eta")
        assert holding is not None
        world.submit(holding)
        world.submit(SetPolicy("/", "p", "^q$", {"hold-until-header": "eta"}))
        world.settle()
    yield client
    check_invariants(world)


def test_a_message_waits_until_its_time(held: Client) -> None:
    """Content and address stay as they were."""
    world = held.world
    held.ask(1, ConfirmSelect())
    eta = at(world, 10.0)
    publish(held, eta, b"later", delivery_mode=2, message_id="id")
    assert held.methods() == [BasicAck(1, multiple=False)]
    publish(held, None, b"at once")
    held.received()
    assert (fetched(held), waiting(world)) == ([b"at once"], 1)
    world.advance(9.9)
    assert fetched(held) == []
    later(world, 0.1)
    held.send(1, BasicGet(queue="q", no_ack=True))
    items = [item for item in held.received() if item.body]
    (item,) = items
    assert item.body == b"later"
    assert (item.method.exchange, item.method.routing_key) == ("", "q")  # type: ignore[union-attr]
    headers = {"task": longstr("t"), "eta": eta}
    assert item.properties == Properties(headers=headers, delivery_mode=2, message_id="id")
    assert waiting(world) == 0


def test_messages_go_out_in_the_order_of_their_times(held: Client) -> None:
    world = held.world
    for seconds in (5.0, 1.0, 3.0, 1.0):
        publish(held, at(world, seconds), b"%d" % seconds)
    later(world, 5.0)
    assert fetched(held) == [b"1", b"1", b"3", b"5"]


@pytest.mark.parametrize("value", [Field("d", 0.0), longstr("soon"), None, Field("l", 1 << 39)])
def test_what_is_over_or_no_time_goes_on(held: Client, value: Field | None) -> None:
    """A time that is over, or too far away, costs a turn and no more."""
    publish(held, value)
    assert fetched(held) == [b"m"]


def test_a_time_that_is_published_again_when_it_is_over(held: Client) -> None:
    """Targets that were learnt from the same headers before do no harm."""
    world = held.world
    eta = at(world, 1.0)
    publish(held, eta, b"first")
    later(world, 1.0)
    publish(held, eta, b"second")
    assert fetched(held) == [b"first", b"second"]


def test_without_the_policy_messages_go_at_once() -> None:
    """A message that waits already goes on waiting."""
    world = World()
    client = world.client()
    client.ask(1, QueueDeclare(queue="q"))
    publish(client, at(world, 5.0), b"before")
    holding = world.broker.holding("/", "eta")
    assert holding is not None
    world.submit(holding)
    assert world.broker.holding("/", "eta") is None
    world.submit(SetPolicy("/", "p", "^q$", {"hold-until-header": "eta"}))
    publish(client, at(world, 5.0), b"with")
    world.submit(ClearPolicy("/", "p"))
    publish(client, at(world, 5.0), b"without")
    assert fetched(client) == [b"before", b"without"]
    later(world, 5.0)
    assert fetched(client) == [b"with"]


@pytest.mark.parametrize("is_policy", [False, True])
def test_the_exchange_is_made_where_it_is_missing(is_policy: bool) -> None:
    """After a change that did not make it first, as one by an older node."""
    world = World()
    client = world.client()
    world.submit(DeclareQueue("/", "q", "uid", arguments={} if is_policy else HOLD))
    world.submit(
        SetPolicy("/", "p", "^q$", {"hold-until-header": "eta"} if is_policy else {"expires": 1 << 40})
    )
    world.advance(0.0)
    publish(client, at(world, 5.0))
    assert (fetched(client), waiting(world)) == ([], 1)


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", "headers"])
def test_by_an_exchange_of_any_type(kind: str) -> None:
    """The whole message waits for all of its queues, and is routed when it is due."""
    world = World()
    client = world.client()
    client.ask(1, ExchangeDeclare(exchange="x", type=kind))
    client.ask(1, QueueDeclare(queue="q", arguments=HOLD))
    client.ask(1, QueueDeclare(queue="other"))
    arguments = {"task": longstr("t")} if kind == "headers" else {}
    for queue in ("q", "other"):
        client.ask(1, QueueBind(queue=queue, exchange="x", routing_key="k", arguments=arguments))
    publish(client, at(world, 5.0), key="k", exchange="x")
    publish(client, None, b"now", key="k", exchange="x")
    assert (fetched(client, "q"), fetched(client, "other")) == ([b"now"], [b"now"])
    later(world, 5.0)
    assert (fetched(client, "q"), fetched(client, "other")) == ([b"m"], [b"m"])


def test_with_carbon_copies_and_in_transactions(held: Client) -> None:
    world = held.world
    held.ask(1, QueueDeclare(queue="copy"))
    headers = {"CC": Field("A", [longstr("copy")]), "eta": at(world, 5.0)}
    held.publish(1, "q", b"cc", properties=Properties(headers=headers))
    held.ask(1, TxSelect())
    publish(held, at(world, 6.0), b"tx")
    held.ask(1, TxCommit())
    assert (fetched(held), fetched(held, "copy"), waiting(world)) == ([], [], 2)
    later(world, 6.0)
    assert (fetched(held), fetched(held, "copy")) == ([b"cc", b"tx"], [b"cc"])


def test_a_queue_that_is_gone_gets_nothing(held: Client) -> None:
    world = held.world
    publish(held, at(world, 5.0))
    held.ask(1, QueueDelete(queue="q"))
    later(world, 5.0)
    assert waiting(world) == 0


def test_clients_can_neither_publish_to_the_holding_exchange_nor_delete_it(held: Client) -> None:
    held.publish(1, "q", b"x", exchange=EXCHANGE)
    (item,) = held.received()
    assert item.method.reply_code == ReplyCode.ACCESS_REFUSED  # type: ignore[union-attr]


def test_a_delayed_exchange_holds_by_a_header_too() -> None:
    """With both, a message waits for the later time; it is held once."""
    world = World()
    client = world.client()
    arguments = {"x-delayed-type": longstr("direct"), **HOLD}
    declare = ExchangeDeclare(exchange="x", type=DELAYED_TYPE, arguments=arguments)
    assert client.ask(1, declare) == ExchangeDeclareOk()
    client.ask(1, QueueDeclare(queue="q"))
    client.ask(1, QueueBind(queue="q", exchange="x", routing_key="k"))
    publish(client, at(world, 2.0), b"held", key="k", exchange="x")
    for delay, eta in ((1000, 3.0), (4000, 3.0)):
        headers = {"x-delay": Field("I", delay), "eta": at(world, eta)}
        properties = Properties(headers=headers)
        client.publish(1, "k", b"%d" % delay, exchange="x", properties=properties)
    world.settle()
    seen = []
    for _ in range(4):
        later(world, 1.0)
        seen.append(fetched(client))
    assert seen == [[], [b"held"], [b"1000"], [b"4000"]]


def test_a_headers_exchange_that_delays_routes_by_the_headers_when_it_is_due() -> None:
    """The one that held the message holds it no more."""
    world = World()
    client = world.client()
    arguments = {"x-delayed-type": longstr("headers"), **HOLD}
    client.ask(1, ExchangeDeclare(exchange="x", type=DELAYED_TYPE, arguments=arguments))
    client.ask(1, QueueDeclare(queue="q"))
    client.ask(1, QueueBind(queue="q", exchange="x", arguments={"task": longstr("t")}))
    publish(client, at(world, 1.0), exchange="x")
    assert fetched(client) == []
    later(world, 1.0)
    assert fetched(client) == [b"m"]
