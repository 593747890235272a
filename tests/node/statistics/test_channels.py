"""Rows of channels (management §1.7)."""

from typing import Any

import pytest

from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicQos,
    ConfirmSelect,
    QueueDeclare,
    TxCommit,
    TxSelect,
)
from node.client.endpoint import ClientEndpoint
from node.statistics.channels import channel_name
from node.statistics.query import Query
from tests.kit.statistics_samples import Watched
from tests.kit.world import Client


@pytest.fixture
def found() -> Watched:
    return Watched()


@pytest.fixture
def client(found: Watched) -> Client:
    client = found.world.client(1, 2)
    client.ask(1, QueueDeclare(queue="q"))
    return client


def channel(found: Watched, number: int = 1, query: Query | None = None) -> dict[str, Any]:
    [row] = [row for row in found.rows("channels", query) if row["number"] == number]
    return row


def test_all_fields(found: Watched, client: Client) -> None:
    """§1.7: with the types of a live RabbitMQ."""
    row = channel(found, 2)
    assert row.pop("id").startswith(row["name"] + "\0")
    assert set(row.pop("garbage_collection").values()) == {-1}
    assert row == {
        "name": f"{client.connection.name} (2)",
        "number": 2,
        "node": "rabbit@localhost",
        "vhost": "/",
        "user": "guest",
        "user_who_performed_action": "guest",
        "connection_details": {"name": client.connection.name, "peer_host": "127.0.0.1", "peer_port": 0},
        "state": "running",
        "transactional": False,
        "confirm": False,
        "consumer_count": 0,
        "messages_unacknowledged": 0,
        "messages_unconfirmed": 0,
        "messages_uncommitted": 0,
        "acks_uncommitted": 0,
        "prefetch_count": 0,
        "global_prefetch_count": 0,
        "pending_raft_commands": 0,
        "reductions": 0,
        "reductions_details": {"rate": 0.0},
    }


def test_a_single_channel_adds_lists(found: Watched, client: Client) -> None:
    """§1.7."""
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    row = channel(found, query=Query(is_detailed=True))
    assert [each["consumer_tag"] for each in row["consumer_details"]] == ["t"]
    assert (row["publishes"], row["deliveries"]) == ([], [])


def test_counters_of_publishes(found: Watched, client: Client) -> None:
    """§1.12: together, once one has moved."""
    client.ask(1, ConfirmSelect())
    found.tick()
    client.publish(1, "q", b"a", b"b")
    client.publish(1, "nowhere", b"c")
    client.publish(1, "nowhere", b"d", mandatory=True)
    client.received()
    found.tick()
    stats = channel(found)["message_stats"]
    assert {name: stats[name] for name in stats if not name.endswith("_details")} == {
        "publish": 4,
        "confirm": 4,
        "drop_unroutable": 1,
        "return_unroutable": 1,
    }
    assert stats["publish_details"] == {"rate": 0.8}


def test_counters_of_deliveries(found: Watched, client: Client) -> None:
    client.publish(1, "q", b"a", b"b")
    client.ask(2, BasicQos(prefetch_count=7))
    client.send(2, BasicConsume(queue="q"))
    client.received()
    client.send(2, BasicAck(1))
    row = channel(found, 2)
    stats = row["message_stats"]
    assert {name: stats[name] for name in stats if stats[name] and not name.endswith("_details")} == {
        "deliver": 2,
        "deliver_get": 2,
        "ack": 1,
    }
    assert "publish" not in stats
    assert stats["get"] == 0
    assert (row["consumer_count"], row["messages_unacknowledged"], row["prefetch_count"]) == (1, 1, 7)


def test_a_transaction(found: Watched, client: Client) -> None:
    """messages_uncommitted, acks_uncommitted."""
    client.publish(1, "q", b"a", b"b")
    client.ask(2, TxSelect())
    client.ask(2, BasicGet(queue="q"))
    client.publish(2, "q", b"c", b"d", b"e")
    client.send(2, BasicAck(1))
    client.received()
    row = channel(found, 2)
    assert (row["transactional"], row["messages_uncommitted"], row["acks_uncommitted"]) == (True, 3, 1)
    client.ask(2, TxCommit())
    row = channel(found, 2)
    assert (row["messages_uncommitted"], row["acks_uncommitted"]) == (0, 0)


def test_idle_since(found: Watched, client: Client) -> None:
    found.tick()
    client.publish(1, "q", b"a")
    assert "idle_since" not in channel(found)
    found.tick(2)
    assert channel(found)["idle_since"] == "2023-11-14T22:13:30.000+00:00"
    assert channel(found)["state"] == "running"


def test_a_number_that_is_used_again_begins_anew(found: Watched, client: Client) -> None:
    client.publish(1, "q", b"a")
    found.tick(2)
    assert client.refusal(QueueDeclare(queue="nowhere", passive=True))[0] == 404
    assert [row["number"] for row in found.rows("channels")] == [2]


def test_by_name_id_and_user(found: Watched, client: Client) -> None:
    row = channel(found)
    for ids in ((row["id"],), (row["name"],)):
        assert found.rows("channels", Query(ids=ids)) == [row]
    assert found.rows("channels", Query(user="other")) == []
    assert found.rows("channels", Query(vhost="other")) == []


def test_a_connection_of_the_nodes_own_has_rows_for_those_who_name_it(found: Watched, client: Client) -> None:
    """A link's connection has no address: lists leave it out, and its channel can be asked for."""
    own = found.world.client()
    connection = own.channel().connection
    connection.peer = ClientEndpoint(address="", local="")
    name = channel_name(own.channel())
    assert name not in [row["name"] for row in found.rows("channels")]
    (row,) = found.rows("channels", Query(ids=(name,)))
    assert row["connection_details"]["name"] == connection.name
    assert found.rows("channels", Query(ids=(name,), vhost="other")) == []
