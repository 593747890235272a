"""Rows of connections (management §1.6)."""

from node.amqp.constants import ReplyCode
from node.amqp.field_table import longstr, table
from node.amqp.methods import ConnectionClose, QueueDeclare
from node.client.endpoint import ClientEndpoint, TlsFacts
from node.statistics.query import Query, Range, Ranges
from tests.kit.statistics_samples import TIME_MS, Watched

PEER = ClientEndpoint("10.0.0.1:40000", "10.0.0.2:5672")


def test_all_fields() -> None:
    """§1.6: with the types of a live RabbitMQ's list."""
    found = Watched()
    client = found.world.connect(PEER)
    client.shake_hands(heartbeat=30)
    row = found.row("connections", "10.0.0.1:40000 -> 10.0.0.2:5672")
    assert row.pop("id").startswith(row["name"] + "\0")
    for name in ("recv_oct", "send_oct", "recv_cnt", "send_cnt"):
        assert row.pop(name) > 0
    assert set(row.pop("garbage_collection").values()) == {-1}
    assert row == {
        "name": "10.0.0.1:40000 -> 10.0.0.2:5672",
        "node": "rabbit@localhost",
        "vhost": "/",
        "user": "guest",
        "user_who_performed_action": "guest",
        "protocol": "AMQP 0-9-1",
        "type": "network",
        "state": "running",
        "connected_at": TIME_MS,
        "timeout": 30,
        "frame_max": 131072,
        "channel_max": 2047,
        "channels": 0,
        "auth_mechanism": "PLAIN",
        "host": "10.0.0.2",
        "port": 5672,
        "peer_host": "10.0.0.1",
        "peer_port": 40000,
        "ssl": False,
        "ssl_protocol": None,
        "ssl_key_exchange": None,
        "ssl_cipher": None,
        "ssl_hash": None,
        "peer_cert_subject": None,
        "peer_cert_issuer": None,
        "peer_cert_validity": None,
        "client_properties": {},
        "recv_oct_details": {"rate": 0.0},
        "send_oct_details": {"rate": 0.0},
        "send_pend": 0,
        "reductions": 0,
        "reductions_details": {"rate": 0.0},
    }


def test_what_the_client_says_of_itself() -> None:
    found = Watched()
    client = found.world.client()
    client.connection.client_properties = {"capabilities": table({}), "connection_name": longstr("me")}
    client.connection.client_name = "me"
    [row] = found.rows("connections")
    assert row["user_provided_name"] == "me"
    assert row["client_properties"] == {"capabilities": {}, "connection_name": "me"}


def test_tls() -> None:
    found = Watched()
    facts = TlsFacts("tlsv1.3", "any", "aes_256_gcm", "aead")
    client = found.world.connect(ClientEndpoint("[::1]:1", "[::1]:5671", is_tls=True, tls=facts))
    client.shake_hands()
    [row] = found.rows("connections")
    assert (row["ssl"], row["ssl_protocol"], row["ssl_cipher"]) == (True, "tlsv1.3", "aes_256_gcm")
    assert row["peer_cert_subject"] is None
    assert (row["peer_host"], row["peer_port"]) == ("::1", 1)


def test_octets_a_second() -> None:
    found = Watched()
    client = found.world.client()
    client.ask(1, QueueDeclare(queue="q"))
    found.tick()
    before = client.connection.recv_oct
    client.publish(1, "q", b"x" * 1000)
    found.tick()
    query = Query(ranges=Ranges(data_rates=Range(5, 5)))
    [row] = found.rows("connections")
    rate = (client.connection.recv_oct - before) / 5
    assert row["recv_oct_details"] == {"rate": rate}
    [row] = found.rows("connections", query)
    assert isinstance(row["recv_oct_details"], dict)
    assert row["recv_oct_details"]["avg_rate"] == rate


def test_states() -> None:
    """§1.6: closing until the client answers; in an alarm blocking, blocked once it publishes."""
    found = Watched()
    client = found.world.client()
    found.broker.alarms.set("memory", "a@h")
    assert found.rows("connections")[0]["state"] == "blocking"
    client.publish(1, "q", b"x")
    assert found.rows("connections")[0]["state"] == "blocked"
    found.broker.alarms.clear("memory", "a@h")
    client.connection.force_close("bye")
    assert found.rows("connections")[0]["state"] == "closing"


def test_who_is_not_shown() -> None:
    """Handshakes, what has closed, and clients inside this process."""
    found = Watched()
    found.world.connect()
    closed = found.world.client()
    closed.send(0, ConnectionClose(ReplyCode.REPLY_SUCCESS, "bye", 0, 0))
    direct = found.world.connect(ClientEndpoint("direct:1", ""))
    direct.shake_hands()
    assert found.rows("connections") == []
    found.tick()
    assert found.rows("channels") == []


def test_by_user_vhost_name_and_id() -> None:
    found = Watched()
    first, _ = found.world.connect(PEER), found.world.client()
    first.shake_hands()
    [id_] = [str(row["id"]) for row in found.rows("connections") if row["peer_port"] == 40000]
    assert len(found.rows("connections", Query(user="guest", vhost="/"))) == 2
    assert found.rows("connections", Query(user="other")) == []
    assert found.rows("connections", Query(vhost="other")) == []
    for ids in ((id_,), (first.connection.name,)):
        assert [row["id"] for row in found.rows("connections", Query(ids=ids, fields=frozenset()))] == [id_]


def test_only_what_is_asked_for() -> None:
    found = Watched()
    found.world.client()
    [row] = found.rows("connections", Query(fields=frozenset({"state", "user", "user_provided_name"})))
    assert set(row) == {"id", "state", "user"}
