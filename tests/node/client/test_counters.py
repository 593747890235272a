"""Counters have the numbers of a live RabbitMQ 3.10.8 (management §1.12)."""

from dataclasses import asdict

import pytest

from node.amqp.field_table import Field, Table, array, long, longstr
from node.amqp.frames import content_frames, method_frame
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicReject,
    ChannelClose,
    ChannelOpen,
    ConfirmSelect,
    ConnectionStartOk,
    ExchangeDeclare,
    ExchangeDelete,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    TxCommit,
    TxRollback,
    TxSelect,
)
from node.amqp.properties import Properties, content_header
from node.catalogue.commands import DeleteVhost
from node.client.counters import AMQP, AT_MOST_ONCE, DISABLED, ChannelCounters, ExchangeCounters
from node.client.reply_to import REPLY_TO
from node.client.vhost import routed
from tests.kit.world import EPOCH_S, Client, World


def moved(counters: object) -> dict[str, int]:
    """Return the counters that are not 0."""
    return {name: value for name, value in asdict(counters).items() if value}  # type: ignore[call-overload]


def channel(client: Client, number: int = 1) -> dict[str, int]:
    return moved(client.channel(number).counters)


def queue(client: Client, name: str = "q") -> dict[str, int]:
    return moved(client.world.queue(name).counters)


def exchange(client: Client, name: str = "") -> ExchangeCounters:
    return client.world.broker.vhosts["/"].exchange_counters[name]


def _names(*names: str) -> Field:
    return array([longstr(name) for name in names])


def _published(body: bytes, count: int) -> bytes:
    """Return the bytes of `count` publishes, as one read brings them."""
    header = content_header(len(body), Properties())
    return (method_frame(1, BasicPublish(routing_key="q")) + content_frames(1, header, body, 131072)) * count


def with_queue(*channels: int, arguments: Table | None = None) -> Client:
    client = World().client(*channels)
    client.send(1, QueueDeclare(queue="q", arguments=arguments or {}))
    client.received()
    return client


# --- messages ---------------------------------------------------------------------------------------------


def test_publishes() -> None:
    client = with_queue()
    client.send(1, ExchangeDeclare(exchange="x", type="fanout"))
    client.send(1, QueueDeclare(queue="r"))
    for name in ("q", "r"):
        client.send(1, QueueBind(queue=name, exchange="x"))
    client.publish(1, "", b"1", b"2", exchange="x")
    client.publish(1, "q", b"3")
    client.publish(1, "nope", b"4", b"5")
    client.publish(1, "nope", b"6", mandatory=True)
    client.received()
    assert channel(client) == {"publish": 6, "drop_unroutable": 2, "return_unroutable": 1}
    assert (queue(client), queue(client, "r")) == ({"publish": 3}, {"publish": 2})
    assert exchange(client, "x") == ExchangeCounters(publish_in=2, publish_out=4)
    assert exchange(client) == ExchangeCounters(publish_in=4, publish_out=1)
    assert routed(client.world.broker.counters.ended_exchanges, client.world.broker.vhosts.values()) == 5


def test_messages_that_are_routed_one_by_one() -> None:
    client = with_queue()
    client.send(1, QueueDeclare(queue="r"))
    client.publish(1, "q", b"1", b"2", properties=Properties(headers={"CC": _names("r", "s")}))
    client.received()
    assert channel(client) == {"publish": 2}
    assert exchange(client) == ExchangeCounters(publish_in=2, publish_out=4)


def test_deliveries_and_acknowledgements() -> None:
    client = with_queue(1, 2)
    client.publish(1, "q", *[b"x"] * 5)
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    client.send(1, BasicAck(1))
    client.send(1, BasicAck(3, True))
    client.send(1, BasicNack(4, False, True))
    client.received()
    client.send(1, BasicReject(5, requeue=False))
    client.received()
    counted = {"deliver": 6, "redeliver": 1, "ack": 3}
    assert channel(client) == {"publish": 5, **counted}
    assert queue(client) == {"publish": 5, **counted}


def test_deliveries_that_need_no_acknowledgement() -> None:
    client = with_queue()
    client.send(1, BasicConsume(queue="q", consumer_tag="t", no_ack=True))
    client.publish(1, "q", b"1", b"2")
    client.received()
    assert channel(client) == {"publish": 2, "deliver_no_ack": 2}
    assert queue(client) == {"publish": 2, "deliver_no_ack": 2}


def test_a_message_that_came_back_and_needs_no_acknowledgement() -> None:
    client = with_queue(1, 2)
    client.publish(1, "q", b"1")
    client.send(1, BasicGet(queue="q"))
    client.send(1, BasicNack(1, False, True))
    client.send(2, BasicConsume(queue="q", consumer_tag="t", no_ack=True))
    client.received()
    assert channel(client, 2) == {"deliver_no_ack": 1, "redeliver": 1}
    assert queue(client) == {"publish": 1, "get": 1, "deliver_no_ack": 1, "redeliver": 1}


def test_gets() -> None:
    client = with_queue()
    client.publish(1, "q", *[b"x"] * 3)
    client.send(1, BasicGet(queue="q"))
    client.send(1, BasicNack(1, False, True))
    client.send(1, BasicGet(queue="q"))
    client.send(1, BasicAck(2))
    client.send(1, BasicGet(queue="q", no_ack=True))
    client.send(1, BasicGet(queue="q"))
    client.send(1, BasicReject(4, requeue=False))
    for no_ack in (False, True):
        client.send(1, BasicGet(queue="q", no_ack=no_ack))
    client.received()
    counted = {"publish": 3, "get": 3, "get_no_ack": 1, "get_empty": 2, "redeliver": 1, "ack": 1}
    assert channel(client) == counted
    assert queue(client) == counted


def test_confirms_without_nacks() -> None:
    arguments = {"x-max-length": long(1), "x-overflow": longstr("reject-publish")}
    client = with_queue(arguments=arguments)
    client.publish(1, "q", b"before")
    client.send(1, ConfirmSelect())
    client.publish(1, "q", b"1", b"2")
    client.publish(1, "nope", b"3")
    client.received()
    assert channel(client) == {"publish": 4, "received_confirm": 3, "confirm": 1, "drop_unroutable": 1}
    assert queue(client) == {"publish": 3}


def test_transactions_count_when_they_commit() -> None:
    client = with_queue(1, 2)
    client.publish(1, "q", b"0")
    client.send(2, TxSelect())
    client.send(2, BasicGet(queue="q"))
    client.send(2, BasicAck(1))
    client.publish(2, "q", b"1", b"2", b"3")
    client.received()
    assert channel(client, 2) == {"get": 1}
    client.send(2, TxRollback())
    client.publish(2, "q", b"4", b"5")
    client.publish(2, "nope", b"6")
    client.send(2, BasicAck(1))
    client.send(2, TxCommit())
    client.received()
    assert channel(client, 2) == {"get": 1, "publish": 3, "drop_unroutable": 1, "ack": 1}
    assert queue(client) == {"publish": 3, "get": 1, "ack": 1}
    assert exchange(client) == ExchangeCounters(publish_in=4, publish_out=3)


def test_a_direct_reply_is_a_publish_that_reaches_no_queue() -> None:
    client = with_queue(1, 2)
    client.send(1, BasicConsume(queue=REPLY_TO, consumer_tag="t", no_ack=True))
    client.publish(1, "q", b"ask", properties=Properties(reply_to=REPLY_TO))
    client.send(2, BasicGet(queue="q", no_ack=True))
    asked = client.received()[-1].properties
    assert asked is not None
    assert asked.reply_to is not None
    client.publish(2, asked.reply_to, b"reply")
    assert client.bodies() == [b"reply"]
    assert channel(client) == {"publish": 1}
    assert channel(client, 2) == {"get_no_ack": 1, "publish": 1, "drop_unroutable": 1}


@pytest.mark.parametrize(
    ("arguments", "strategy"),
    [
        ({}, DISABLED),
        ({"x-dead-letter-exchange": longstr("nope")}, DISABLED),
        ({"x-dead-letter-exchange": longstr("")}, AT_MOST_ONCE),
    ],
)
def test_what_leaves_a_queue_unacknowledged(arguments: Table, strategy: str) -> None:
    key: Table = {"x-dead-letter-routing-key": longstr("grave")} if arguments else {}
    limits: Table = {"x-max-length": long(3), "x-message-ttl": long(1000)}
    client = with_queue(arguments={**arguments, **key, **limits})
    client.send(1, QueueDeclare(queue="grave"))
    client.publish(1, "q", *[b"x"] * 5)
    client.send(1, BasicGet(queue="q"))
    client.send(1, BasicReject(1, requeue=False))
    client.received()
    client.world.advance(1)
    dead = client.world.broker.counters.dead_lettered
    assert dead == {("maxlen", strategy): 2, ("rejected", strategy): 1, ("expired", strategy): 2}
    assert queue(client, "grave") == {}, "no client has published them"
    assert client.world.queue("grave").backlog.count == (5 if strategy == AT_MOST_ONCE else 0)


def test_a_delivery_limit() -> None:
    client = World().client()
    arguments = {"x-queue-type": longstr("quorum"), "x-delivery-limit": long(0)}
    client.send(1, QueueDeclare(queue="q", durable=True, arguments=arguments))
    client.publish(1, "q", b"x")
    client.send(1, BasicGet(queue="q"))
    client.send(1, BasicNack(1, False, True))
    client.received()
    assert client.world.broker.counters.dead_lettered == {("delivery_limit", DISABLED): 1}


# --- what is gone -----------------------------------------------------------------------------------------


def test_the_node_keeps_what_channels_counted() -> None:
    client = with_queue(1, 2)
    client.publish(1, "q", b"1")
    client.publish(2, "q", b"2", b"3")
    client.send(2, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    counters = client.world.broker.counters
    assert moved(counters.ended) == {}
    client.send(2, ChannelClose(200, "", 0, 0))
    client.received()
    assert moved(counters.ended) == {"publish": 2, "deliver": 3}
    assert (counters.channel_created, counters.channel_closed) == (2, 1)


def test_a_channel_that_failed_counts_once() -> None:
    client = with_queue()
    client.publish(1, "q", b"1")
    client.send(1, BasicAck(7))
    client.received()
    counters = client.world.broker.counters
    assert client.channel().counters == ChannelCounters()
    assert moved(counters.ended) == {"publish": 1}
    assert counters.channel_closed == 1
    client.lose()
    assert (moved(counters.ended), counters.channel_closed) == ({"publish": 1}, 1)


def test_the_node_keeps_what_exchanges_counted() -> None:
    client = with_queue()
    client.send(1, ExchangeDeclare(exchange="x", type="fanout"))
    client.send(1, QueueBind(queue="q", exchange="x"))
    client.publish(1, "", b"1", exchange="x")
    client.send(1, ExchangeDelete(exchange="x"))
    client.send(1, ExchangeDeclare(exchange="x", type="fanout"))
    client.received()
    broker = client.world.broker
    assert "x" not in broker.vhosts["/"].exchange_counters
    assert broker.counters.ended_exchanges == ExchangeCounters(1, 1)
    client.publish(1, "", b"2", exchange="x")
    client.publish(1, "q", b"3")
    client.received()
    assert exchange(client, "x") == ExchangeCounters(1, 0)
    assert routed(broker.counters.ended_exchanges, broker.vhosts.values()) == 2
    client.world.submit(DeleteVhost("/"))
    assert routed(broker.counters.ended_exchanges, broker.vhosts.values()) == 2


# --- the node ---------------------------------------------------------------------------------------------


def test_queues_that_come_and_go() -> None:
    client = with_queue()
    client.send(1, QueueDeclare(queue="q"))
    client.send(1, QueueDeclare(queue="q", passive=True))
    client.send(1, QueueDeclare(queue="r"))
    client.send(1, QueueDelete(queue="r"))
    client.send(1, QueuePurge(queue="q"))
    client.send(1, QueueDeclare(queue="nope", passive=True))
    client.received()
    counters = client.world.broker.counters
    assert (counters.queue_declared, counters.queue_created, counters.queue_deleted) == (4, 2, 1)


def test_connections() -> None:
    world = World()
    client = world.client()
    world.connect()  # which never opens a vhost
    connection, counters = client.connection, world.broker.counters
    assert (counters.connection_created, counters.connection_closed) == (1, 0)
    assert connection.connected_at_ms == EPOCH_S * 1000
    before = connection.recv_oct, connection.recv_cnt, connection.send_oct, connection.send_cnt
    client.feed(b"\x08\0\0\0\0\0\0\xce")
    assert (connection.recv_oct, connection.recv_cnt) == (before[0] + 8, before[1] + 1)
    client.ask(2, ChannelOpen())
    assert connection.send_oct > before[2]
    assert connection.send_cnt == before[3] + 1
    received, sent = connection.recv_oct, connection.send_oct
    client.lose()
    assert (counters.connection_created, counters.connection_closed) == (1, 1)
    assert (counters.recv_oct, counters.send_oct) == (received, sent)


def test_logins() -> None:
    world = World()
    world.client()
    stranger = world.connect()
    stranger.feed(b"AMQP\0\0\x09\x01")
    stranger.received()
    stranger.send(0, ConnectionStartOk({}, "PLAIN", b"\0guest\0wrong"))
    counters = world.broker.counters
    counters.count_login("http", is_good=True)
    assert {name: moved(each) for name, each in counters.auth_attempts.items()} == {
        AMQP: {"attempts": 2, "succeeded": 1, "failed": 1},
        "http": {"attempts": 1, "succeeded": 1},
    }


def test_runs_count_their_messages() -> None:
    """A read with many publishes is one run, and each message of it counts."""
    client = with_queue()
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    data = _published(b"x", 151)
    client.feed(data)
    client.received()
    client.send(1, BasicAck(101, True))
    client.send(1, BasicNack(0, True, True))
    client.received()
    assert channel(client) == {"publish": 151, "deliver": 201, "redeliver": 50, "ack": 101}
    assert queue(client) == {"publish": 151, "deliver": 201, "redeliver": 50, "ack": 101}


def test_counts_of_channels_are_added_up() -> None:
    total = ChannelCounters()
    total.add(ChannelCounters())
    assert total == ChannelCounters()
    total.add(ChannelCounters(publish=2, ack=1))
    total.add(ChannelCounters())
    total.add(ChannelCounters(publish=3))
    assert moved(total) == {"publish": 5, "ack": 1}
