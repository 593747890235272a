"""The firehose (management §2.7). Keys, headers, their order and types are those of RabbitMQ 3.10.8, live."""

from node.amqp.field_table import Field, Table, array, long, longstr, table
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicNack,
    ConfirmSelect,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    TxRollback,
    TxSelect,
)
from node.amqp.properties import Properties
from node.broker.tracing import TRACE_EXCHANGE
from node.catalogue.commands import PutVhost
from node.client.counters import ExchangeCounters
from node.client.reply_to import REPLY_TO
from tests.kit.world import Client, Received, World


def switch(world: World, *, is_on: bool) -> None:
    world.submit(PutVhost("/", metadata={"tracing": is_on}))


def traced_world() -> tuple[Client, Client]:
    """A client with the queue q, and one that consumes the copies without acknowledging them."""
    world = World()
    client, watcher = world.client(), world.client()
    watcher.send(1, QueueDeclare(queue="traces"))
    watcher.send(1, QueueBind(queue="traces", exchange=TRACE_EXCHANGE, routing_key="#"))
    watcher.send(1, BasicConsume(queue="traces", consumer_tag="w", no_ack=True))
    client.send(1, QueueDeclare(queue="q"))
    watcher.received()
    client.received()
    switch(world, is_on=True)
    return client, watcher


def names(*texts: str) -> Field:
    return array([longstr(text) for text in texts])


def headers(received: Received) -> Table:
    assert received.properties is not None
    assert received.properties == Properties(headers=received.properties.headers), "nothing but headers"
    assert received.properties.headers is not None
    return received.properties.headers


def keys(watcher: Client) -> list[str]:
    """The routing keys of the copies that came."""
    return [each.method.routing_key for each in watcher.received() if isinstance(each.method, BasicDeliver)]


def test_nothing_is_copied_before_or_after() -> None:
    client, watcher = traced_world()
    switch(client.world, is_on=False)
    client.publish(1, "q", b"x")
    assert watcher.received() == []
    switch(client.world, is_on=True)
    client.publish(1, "q", b"x")
    assert keys(watcher) == ["publish."]


def test_only_true_switches_it_on() -> None:
    client, watcher = traced_world()
    for value in ("true", 1, None):
        client.world.submit(PutVhost("/", metadata={"tracing": value}))
        client.publish(1, "q", b"x")
        assert watcher.received() == []


def test_a_vhost_that_was_traced_before_the_node_came_up() -> None:
    world = World()
    world.submit(PutVhost("other", metadata={"tracing": True}))
    assert world.broker.vhosts["other"].tracer is not None
    assert world.broker.vhosts["/"].tracer is None


def test_a_publish() -> None:
    client, watcher = traced_world()
    client.send(1, ExchangeDeclare(exchange="x", type="fanout"))
    client.send(1, QueueDeclare(queue="r"))
    for name in ("q", "r"):
        client.send(1, QueueBind(queue=name, exchange="x"))
    client.received()
    own: Table = {"a": long(1), "CC": names("c")}
    properties = Properties(
        content_type="text/plain",
        content_encoding="utf8",
        headers=own,
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="ap",
        cluster_id="cl",
    )
    client.publish(1, "k", b"body", exchange="x", properties=properties)
    (copy,) = watcher.received()
    assert isinstance(copy.method, BasicDeliver)
    assert (copy.method.exchange, copy.method.routing_key) == (TRACE_EXCHANGE, "publish.x")
    assert copy.body == b"body"
    settings, connection = client.world.broker.settings, client.connection
    expected: Table = {
        "exchange_name": longstr("x"),
        "routing_keys": names("k", "c"),
        "properties": table(
            {
                "cluster_id": longstr("cl"),
                "app_id": longstr("ap"),
                "user_id": longstr("guest"),
                "type": longstr("t"),
                "timestamp": Field("I", 1_700_000_000),
                "message_id": longstr("m"),
                "expiration": longstr("60000"),
                "reply_to": longstr("r"),
                "correlation_id": longstr("c"),
                "priority": Field("I", 3),
                "delivery_mode": Field("I", 2),
                "headers": table(own),
                "content_encoding": longstr("utf8"),
                "content_type": longstr("text/plain"),
            }
        ),
        "node": longstr(settings.node_name),
        "vhost": longstr("/"),
        "connection": longstr(connection.name),
        "channel": Field("I", 1),
        "user": longstr("guest"),
        "routed_queues": names("q", "r"),
    }
    found = headers(copy)
    assert found == expected
    assert list(found) == list(expected)
    assert list(found["properties"].value) == list(expected["properties"].value)


def test_a_delivery() -> None:
    client, watcher = traced_world()
    client.publish(1, "q", b"x")
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    _, copy = watcher.received()
    assert isinstance(copy.method, BasicDeliver)
    assert (copy.method.routing_key, copy.body) == ("deliver.q", b"x")
    expected: Table = {
        "exchange_name": longstr(""),
        "routing_keys": names("q"),
        "properties": table({}),
        "node": longstr(client.world.broker.settings.node_name),
        "redelivered": Field("I", 0),
        "vhost": longstr("/"),
        "connection": longstr(client.connection.name),
        "channel": Field("I", 1),
        "user": longstr("guest"),
    }
    found = headers(copy)
    assert found == expected
    assert list(found) == list(expected)


def test_gets_and_redeliveries() -> None:
    client, watcher = traced_world()
    client.publish(1, "q", b"x")
    client.send(1, BasicGet(queue="q"))
    client.send(1, BasicNack(1, False, True))
    client.send(1, BasicGet(queue="q", no_ack=True))
    client.send(1, BasicGet(queue="q", no_ack=True))
    _, first, second = watcher.received()
    assert headers(first)["redelivered"] == Field("I", 0)
    assert headers(second)["redelivered"] == Field("I", 1)


def test_a_name_without_a_queue_counts_as_routed() -> None:
    """The default exchange leads to a name, and RabbitMQ doesn't look whether there is such a queue."""
    client, watcher = traced_world()
    client.publish(1, "nope", b"x")
    client.publish(1, "nope", b"x", mandatory=True)
    assert [headers(copy)["routed_queues"] for copy in watcher.received()] == [names("nope")] * 2


def test_sender_selected_keys() -> None:
    """BCC is among the keys, but no more in the properties."""
    client, watcher = traced_world()
    properties = Properties(headers={"CC": names("r"), "BCC": names("s")})
    client.publish(1, "q", b"x", properties=properties)
    (copy,) = watcher.received()
    assert headers(copy)["routing_keys"] == names("q", "r", "s")
    assert headers(copy)["routed_queues"] == names("q", "r", "s")
    assert headers(copy)["properties"] == table({"headers": table({"CC": names("r")})})


def test_direct_replies() -> None:
    """The request shows where the reply goes; the reply is published to no queue and delivered from none."""
    client, watcher = traced_world()
    client.send(1, BasicConsume(queue=REPLY_TO, consumer_tag="t", no_ack=True))
    client.received()
    client.publish(1, "q", b"ask", properties=Properties(reply_to=REPLY_TO))
    client.send(1, BasicGet(queue="q", no_ack=True))
    asked = client.received()[-1].properties
    assert asked is not None
    assert asked.reply_to is not None
    watcher.received()
    client.publish(1, asked.reply_to, b"reply")
    assert client.bodies() == [b"reply"]
    (copy,) = watcher.received()
    assert headers(copy)["routed_queues"] == names()
    assert headers(copy)["routing_keys"] == names(asked.reply_to)


def test_a_transaction_is_copied_before_it_commits() -> None:
    client, watcher = traced_world()
    client.send(1, TxSelect())
    client.publish(1, "q", b"x")
    client.send(1, TxRollback())
    assert keys(watcher) == ["publish."]


def test_copies_of_copies_are_not_made() -> None:
    """A message published to the queue of copies by name is copied like any other; its copies are not."""
    client, watcher = traced_world()
    client.publish(1, "traces", b"x")
    copies = watcher.received()
    got = [each.method.routing_key for each in copies if isinstance(each.method, BasicDeliver)]
    assert sorted(got) == ["deliver.traces", "publish.", "traces"]


def test_runs_and_confirms() -> None:
    client, watcher = traced_world()
    client.send(1, ConfirmSelect())
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.publish(1, "q", *[b"%d" % number for number in range(20)])
    client.received()
    client.send(1, BasicAck(0, True))
    client.received()
    copies = watcher.received()
    assert len(copies) == 40
    published = [each.body for each in copies if "routed_queues" in headers(each)]
    assert published == [b"%d" % number for number in range(20)]


def test_a_large_body_comes_whole() -> None:
    client, watcher = traced_world()
    client.publish(1, "q", b"x" * 300_000)
    assert watcher.bodies() == [b"x" * 300_000]


def test_a_name_that_leaves_no_room_for_the_prefix() -> None:
    """A routing key has at most 255 bytes; who is given the copy by RabbitMQ is closed with 541."""
    client, watcher = traced_world()
    client.send(1, ExchangeDeclare(exchange="x" * 255, type="fanout"))
    client.received()
    client.publish(1, "", b"x", exchange="x" * 255)
    assert keys(watcher) == ["publish." + "x" * 247]


def test_a_timestamp_beyond_32_bits() -> None:
    client, watcher = traced_world()
    client.publish(1, "q", b"x", properties=Properties(timestamp=1 << 40))
    (copy,) = watcher.received()
    assert headers(copy)["properties"] == table({"timestamp": long(1 << 40)})


def test_copies_are_nobodys_publishes() -> None:
    client, _ = traced_world()
    client.publish(1, "q", b"x")
    client.received()
    vhost = client.world.broker.vhosts["/"]
    assert vhost.exchange_counters == {"": ExchangeCounters(1, 1)}
