"""Rows of vhosts (management §1.9)."""

from node.amqp.methods import BasicGet, ConnectionClose, QueueDeclare
from node.catalogue.commands import DeleteVhost, PutVhost
from node.statistics.query import Query
from tests.kit.statistics_samples import Watched


def test_what_the_metadata_say() -> None:
    """§1.9."""
    found = Watched()
    found.world.submit(PutVhost("v", "text", ("a", "b"), "quorum", {"tracing": True}))
    assert found.row("vhosts", "v") == {
        "id": "v",
        "name": "v",
        "description": "text",
        "tags": ["a", "b"],
        "default_queue_type": "quorum",
        "tracing": True,
        "metadata": {"description": "text", "tags": ["a", "b"]},
        "cluster_state": {"rabbit@localhost": "running"},
    }
    assert found.row("vhosts", "/")["default_queue_type"] == "undefined"


def test_traffic() -> None:
    """Messages, octets and message_stats of what is in it."""
    found = Watched()
    found.world.submit(PutVhost("v"))
    client = found.world.client()
    client.ask(1, QueueDeclare(queue="q"))
    found.tick()
    client.publish(1, "q", b"a", b"b", b"c", b"d", b"e")
    client.ask(1, BasicGet(queue="q"))
    found.tick()
    row = found.row("vhosts", "/")
    assert (row["messages"], row["messages_ready"], row["messages_unacknowledged"]) == (5, 4, 1)
    assert row["messages_details"] == {"rate": 1.0}
    stats = row["message_stats"]
    assert (stats["publish"], stats["get"], stats["deliver_get"], stats["confirm"]) == (5, 1, 1, 0)
    assert stats["publish_details"] == {"rate": 1.0}
    assert row["recv_oct"] == client.connection.recv_oct
    assert row["send_oct"] == client.connection.send_oct
    quiet = found.row("vhosts", "v")
    assert quiet["messages"] == 0
    assert not {"message_stats", "recv_oct", "send_oct"} & set(quiet)


def test_what_short_connections_did_stays() -> None:
    found = Watched()
    for _ in range(3):
        client = found.world.client()
        client.ask(1, QueueDeclare(queue="q"))
        client.publish(1, "q", b"a")
        client.send(0, ConnectionClose(200, "bye", 0, 0))
        client.received()
        client.lose()
        found.tick()
    row = found.row("vhosts", "/")
    assert row["message_stats"]["publish"] == 3
    assert row["recv_oct"] > 0
    found.tick()
    assert found.row("vhosts", "/")["recv_oct"] == row["recv_oct"]


def test_one_that_is_made_again_begins_anew() -> None:
    found = Watched()
    found.tick()
    client = found.world.client()
    client.publish(1, "q", b"a")
    found.tick()
    found.world.submit(DeleteVhost("/"))
    client.lose()
    found.world.submit(PutVhost("/"))
    found.tick()
    row = found.row("vhosts", "/")
    assert "message_stats" not in row
    assert "recv_oct" not in row


def test_which() -> None:
    found = Watched()
    found.world.submit(PutVhost("v"))
    assert found.rows("vhosts", Query(ids=("v",), fields=frozenset({"name"}))) == [{"id": "v", "name": "v"}]
    assert [row["name"] for row in found.rows("vhosts", Query(vhost="/"))] == ["/"]
