"""docs/recent_history.md: exchanges of type x-recent-history, as RabbitMQ's plug-in has them."""

from collections.abc import Callable, Iterator

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.field_table import Field, Table, boolean, long, longstr
from node.amqp.methods import ExchangeBind, ExchangeDeclare, QueueBind, QueueUnbind
from node.amqp.properties import Properties
from tests.conformance.entities import alternate, bound_queue, declare_exchange, is_routed, refused
from tests.conformance.queue_steps import drain
from tests.kit.amqp_client import Channel, Connection
from tests.kit.server_cluster import is_rabbitmq
from tests.kit.servers import Server, start_server

Name = Callable[[str], str]

TYPE = "x-recent-history"


@pytest.fixture(scope="module")
def plugged() -> Iterator[Server]:
    """A server with the plug-in."""
    server = start_server(plugins=("rabbitmq_recent_history_exchange",))
    yield server
    server.stop()


@pytest.fixture
def peer(plugged: Server, connect: Callable[..., Connection]) -> Channel:
    """A channel of that server."""
    return connect(to=plugged).channel(1)


def history(channel: Channel, name: str, length: int | None = None) -> str:
    """An exchange with a history."""
    arguments: Table = {} if length is None else {"x-recent-history-length": long(length)}
    channel.call(ExchangeDeclare, exchange=name, type=TYPE, arguments=arguments)
    return name


def publish(channel: Channel, exchange: str, *bodies: bytes, headers: Table | None = None) -> None:
    """Publish messages, and wait until they are routed."""
    properties = b"\0\0" if headers is None else Properties(headers=headers)
    for body in bodies:
        channel.publish(exchange, "k", body, properties)
    channel.call(ExchangeDeclare, exchange=exchange, type=TYPE, passive=True)


def bind(channel: Channel, exchange: str, queue: str = "", key: str = "", **fields: Table) -> str:
    queue = queue or channel.declare(exclusive=True)
    channel.call(QueueBind, queue=queue, exchange=exchange, routing_key=key, **fields)
    return queue


def test_a_new_binding_gets_the_last_messages(peer: Channel, name: Name) -> None:
    exchange = history(peer, name("x"), 3)
    publish(peer, exchange, b"1", b"2", b"3", b"4", b"5")
    queue = bind(peer, exchange)
    assert drain(peer, queue) == [b"3", b"4", b"5"]
    publish(peer, exchange, b"6")
    assert drain(peer, queue) == [b"6"]
    assert drain(peer, bind(peer, exchange)) == [b"4", b"5", b"6"]


def test_twenty_by_default(peer: Channel, name: Name) -> None:
    exchange = history(peer, name("x"))
    publish(peer, exchange, *(b"%d" % number for number in range(25)))
    assert drain(peer, bind(peer, exchange)) == [b"%d" % number for number in range(5, 25)]


def test_each_binding_once(peer: Channel, name: Name) -> None:
    """Another binding of a queue brings the history again, a repeated one does not, nor does one that goes."""
    exchange = history(peer, name("x"), 2)
    publish(peer, exchange, b"1", b"2")
    queue = bind(peer, exchange)
    assert drain(peer, queue) == [b"1", b"2"]
    bind(peer, exchange, queue)
    assert drain(peer, queue) == []
    bind(peer, exchange, queue, "other")
    assert drain(peer, queue) == [b"1", b"2"]
    peer.call(QueueUnbind, queue=queue, exchange=exchange, routing_key="other")
    assert drain(peer, queue) == []
    bind(peer, exchange, queue, "other")
    assert drain(peer, queue) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("value", "is_kept"), [(boolean(True), False), (boolean(False), True), (longstr("true"), True)]
)
def test_messages_that_are_not_to_be_kept(peer: Channel, name: Name, value: Field, is_kept: bool) -> None:
    exchange = history(peer, name("x"))
    queue = bind(peer, exchange)
    publish(peer, exchange, b"1", headers={"x-recent-history-no-store": value})
    assert drain(peer, queue) == [b"1"]
    assert drain(peer, bind(peer, exchange)) == ([b"1"] if is_kept else [])


def test_keys_do_not_matter(peer: Channel, name: Name) -> None:
    exchange = history(peer, name("x"))
    queue = bind(peer, exchange, "", "some key")
    publish(peer, exchange, b"1")
    assert drain(peer, queue) == [b"1"]


def test_a_bound_exchange_routes_the_history(peer: Channel, name: Name) -> None:
    """RabbitMQ sends the newest message first then, though not to a queue; Fluffle the oldest."""
    exchange = history(peer, name("x"))
    publish(peer, exchange, b"1", b"2")
    topic = declare_exchange(peer, name("t"), "topic")
    queue = bound_queue(peer, topic, "k")
    other = bound_queue(peer, topic, "other")
    peer.call(ExchangeBind, destination=topic, source=exchange)
    expected = [b"2", b"1"] if is_rabbitmq() else [b"1", b"2"]
    assert (drain(peer, queue), drain(peer, other)) == (expected, [])


def test_what_comes_from_another_exchange_is_kept(peer: Channel, name: Name) -> None:
    exchange = history(peer, name("x"))
    fanout = declare_exchange(peer, name("f"), "fanout")
    peer.call(ExchangeBind, destination=exchange, source=fanout)
    publish(peer, fanout, b"1")
    assert drain(peer, bind(peer, exchange)) == [b"1"]


def test_mandatory_messages_need_a_binding(peer: Channel, name: Name) -> None:
    exchange = history(peer, name("x"))
    assert not is_routed(peer, exchange)
    queue = bind(peer, exchange)
    assert drain(peer, queue) == [b"probe"]
    assert is_routed(peer, exchange)


def test_the_alternate_exchange(peer: Channel, name: Name) -> None:
    other, exchange = declare_exchange(peer, name("f"), "fanout"), name("x")
    queue = bound_queue(peer, other)
    declare_exchange(peer, exchange, TYPE, arguments=alternate(other))
    publish(peer, exchange, b"1")
    assert drain(peer, queue) == [b"1"]
    assert drain(peer, bind(peer, exchange)) == [b"1"]


@pytest.mark.parametrize(
    ("length", "shown"),
    [
        (long(0), "0"),
        (long(-5), "-5"),
        (longstr("5"), '<<"5">>'),
        (boolean(True), "true"),
        (Field("B", 5), "5"),
        (Field("u", 5), "5"),
        (Field("i", 5), "5"),
    ],
)
def test_refused_lengths(peer: Channel, name: Name, length: Field, shown: str) -> None:
    refused(
        peer,
        ReplyCode.PRECONDITION_FAILED,
        f"Invalid argument {shown}, 'x-recent-history-length' must be a positive integer",
        ExchangeDeclare,
        exchange=name("x"),
        type=TYPE,
        arguments={"x-recent-history-length": length},
    )


@pytest.mark.parametrize("length", [Field("b", 1), Field("s", 1), Field("I", 1), Field("l", 1)])
def test_taken_lengths(peer: Channel, name: Name, length: Field) -> None:
    arguments = {"x-recent-history-length": length}
    peer.call(ExchangeDeclare, exchange=name("x"), type=TYPE, arguments=arguments)


def test_the_length_is_no_part_of_equivalence(peer: Channel, name: Name) -> None:
    """Only the alternate exchange is compared at a second declaration."""
    exchange = history(peer, name("x"), 5)
    history(peer, exchange, 6)
