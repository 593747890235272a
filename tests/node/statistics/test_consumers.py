"""Rows of consumers (management §1.8)."""

from node.amqp.field_table import long
from node.amqp.methods import BasicConsume, BasicQos, QueueDeclare
from node.statistics.query import Query
from tests.kit.statistics_samples import Watched


def consuming() -> Watched:
    found = Watched()
    client = found.world.client()
    client.ask(1, QueueDeclare(queue="q"))
    client.ask(1, BasicQos(prefetch_count=9))
    client.send(1, BasicConsume(queue="q", consumer_tag="t", arguments={"x-priority": long(2)}))
    client.received()
    return found


def test_all_fields() -> None:
    """§1.8: with the types of a live RabbitMQ."""
    found = consuming()
    [row] = found.rows("consumers")
    [connection] = found.rows("connections")
    name = connection["name"]
    assert row.pop("id")
    assert row == {
        "queue": {"name": "q", "vhost": "/"},
        "consumer_tag": "t",
        "channel_details": {
            "name": f"{name} (1)",
            "number": 1,
            "connection_name": name,
            "peer_host": "127.0.0.1",
            "peer_port": 0,
            "node": "rabbit@localhost",
            "user": "guest",
        },
        "ack_required": True,
        "exclusive": False,
        "prefetch_count": 9,
        "active": True,
        "activity_status": "up",
        "arguments": {"x-priority": 2},
    }


def test_which() -> None:
    found = consuming()
    [row] = found.rows("consumers", Query(fields=frozenset({"consumer_tag"})))
    assert set(row) == {"id", "consumer_tag"}
    assert found.rows("consumers", Query(ids=(str(row["id"]),), fields=frozenset())) == [{"id": row["id"]}]
    assert found.rows("consumers", Query(ids=("other",))) == []
    assert found.rows("consumers", Query(vhost="other")) == []
    assert found.rows("consumers", Query(user="other")) == []
