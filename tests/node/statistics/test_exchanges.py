"""Rows of exchanges (management §1.4)."""

from node.amqp.field_table import longstr
from node.amqp.methods import ExchangeDeclare, QueueBind, QueueDeclare
from node.amqp.properties import Properties
from node.catalogue.commands import SetPolicy
from node.statistics.query import Query
from tests.kit.statistics_samples import Watched


def test_predeclared_ones() -> None:
    """§1.4: seven in each vhost; without message_stats while nobody publishes."""
    found = Watched()
    rows = {row["name"]: row for row in found.rows("exchanges")}
    names = ("amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.rabbitmq.trace", "amq.topic")
    assert set(rows) == {"", *names}
    assert rows["amq.rabbitmq.trace"]["internal"] is True
    assert rows["amq.match"] == {
        "id": "/\0amq.match",
        "name": "amq.match",
        "vhost": "/",
        "type": "headers",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {},
        "user_who_performed_action": "rmq-internal",
    }


def test_counters() -> None:
    """§1.4, §1.12: publish_in, and publish_out once a queue."""
    found = Watched()
    client = found.world.client()
    arguments = {"alternate-exchange": longstr("amq.fanout")}
    client.ask(1, ExchangeDeclare(exchange="x", type="topic", arguments=arguments))
    for queue in ("a", "b"):
        client.ask(1, QueueDeclare(queue=queue))
        client.ask(1, QueueBind(queue=queue, exchange="x", routing_key="#"))
    found.tick()
    client.publish(1, "k", b"1", b"2", exchange="x")
    found.world.settle()
    found.tick()
    row = found.row("exchanges", "x")
    assert row["arguments"] == {"alternate-exchange": "amq.fanout"}
    assert row["user_who_performed_action"] == "guest"
    assert row["message_stats"] == {
        "publish_in": 2,
        "publish_in_details": {"rate": 0.0},
        "publish_out": 4,
        "publish_out_details": {"rate": 0.0},
    }
    client.publish(1, "k", *[b"1"] * 5, exchange="x")
    found.tick()
    assert found.row("exchanges", "x")["message_stats"]["publish_out_details"] == {"rate": 2.0}


def test_the_policy_only_if_there_is_one() -> None:
    found = Watched()
    found.world.submit(SetPolicy("/", "p", "^amq.t", {"alternate-exchange": "x"}, apply_to="exchanges"))
    assert found.row("exchanges", "amq.topic")["policy"] == "p"
    assert "policy" not in found.row("exchanges", "amq.direct")


def test_one_of_them() -> None:
    found = Watched()
    [row] = found.rows("exchanges", Query(ids=("/\0amq.topic", "/\0gone", "v\0x"), is_detailed=True))
    assert (row["name"], row["incoming"], row["outgoing"]) == ("amq.topic", [], [])
    assert found.rows("exchanges", Query(vhost="other")) == []
    [row] = found.rows("exchanges", Query(ids=("/\0",), fields=frozenset({"type", "message_stats"})))
    assert row == {"id": "/\0", "type": "direct"}


def test_what_the_queues_of_exchanges_know() -> None:
    found = Watched()
    client = found.world.client()
    size = {"x-cache-size": longstr("100")}
    assert client.ask(1, ExchangeDeclare(exchange="d", type="x-message-deduplication", arguments=size))
    assert client.ask(1, ExchangeDeclare(exchange="h", type="x-recent-history"))
    for id_ in ("a", "b", "a"):
        headers = {"x-deduplication-header": longstr(id_)}
        for exchange in ("d", "h"):
            client.publish(1, "k", b"m", exchange=exchange, properties=Properties(headers=headers))
    client.received()
    assert found.row("exchanges", "d")["message_deduplication"] == {"ids": 2, "duplicates": 1}
    assert found.row("exchanges", "h")["messages_recent"] == 3
    assert "message_deduplication" not in found.row("exchanges", "amq.direct")
