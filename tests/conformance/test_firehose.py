"""management §2.7: what a traced vhost gives of what is published and delivered in it."""

from collections.abc import Callable

import pytest

from node.amqp.field_table import Field, Table, array, long, longstr, table
from node.amqp.methods import BasicConsume, BasicNack, QueueBind, TxRollback, TxSelect
from node.amqp.properties import Properties
from tests.kit.amqp_client import Channel, Connection, Content
from tests.kit.servers import Admin

Connect = Callable[..., Connection]


class Tracing:
    """A traced vhost with a client and the queues `q` and `r` bound to the exchange `x`, and a queue of copies."""

    def __init__(self, admin: Admin, connect: Connect, vhost: str) -> None:
        self.vhost = vhost
        self.channel: Channel = connect(vhost=vhost).channel(7)
        self._watcher = connect(vhost=vhost).channel()
        self._traces = self._watcher.declare("traces")
        self._watcher.call(QueueBind, queue="traces", exchange="amq.rabbitmq.trace", routing_key="#")
        for name in ("q", "r"):
            self.channel.declare(name)
            self.channel.call(QueueBind, queue=name, exchange="amq.fanout")
        admin.set_tracing(vhost, True)

    def copy(self) -> tuple[str, Table, bytes]:
        """The next copy: its routing key, its headers, its body."""
        content = self._watcher.wait_get(self._traces)
        assert content.method.exchange == "amq.rabbitmq.trace"
        headers = content.headers
        assert content.properties == Properties(headers=headers), "nothing but headers"
        return content.method.routing_key, headers, content.body

    def expect_none(self) -> None:
        self.channel.sync()
        assert self._watcher.get(self._traces) is None


@pytest.fixture
def traced(admin: Admin, connect: Connect, make_vhost: Callable[[], str]) -> Tracing:
    return Tracing(admin, connect, make_vhost())


def names(*texts: str) -> Field:
    return array([longstr(text) for text in texts])


def int_(value: int) -> Field:
    return Field("I", value)


def test_publish(traced: Tracing) -> None:
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
    traced.channel.publish("amq.fanout", "k", b"body", properties)
    key, headers, body = traced.copy()
    assert (key, body) == ("publish.amq.fanout", b"body")
    own_address = "{}:{}".format(*traced.channel.connection.socket.getsockname()[:2])
    connection = headers.pop("connection").value
    assert connection.startswith(own_address.encode() + b" -> ")
    node = headers.pop("node").value
    assert b"@" in node
    described = {
        "cluster_id": longstr("cl"),
        "app_id": longstr("ap"),
        "user_id": longstr("guest"),
        "type": longstr("t"),
        "timestamp": int_(1_700_000_000),
        "message_id": longstr("m"),
        "expiration": longstr("60000"),
        "reply_to": longstr("r"),
        "correlation_id": longstr("c"),
        "priority": int_(3),
        "delivery_mode": int_(2),
        "headers": table(own),
        "content_encoding": longstr("utf8"),
        "content_type": longstr("text/plain"),
    }
    assert headers == {
        "exchange_name": longstr("amq.fanout"),
        "routing_keys": names("k", "c"),
        "properties": table(described),
        "vhost": longstr(traced.vhost),
        "channel": int_(7),
        "user": longstr("guest"),
        "routed_queues": names("q", "r"),
    }
    assert list(headers["properties"].value) == list(described)


def test_order_of_headers(traced: Tracing) -> None:
    start = ["exchange_name", "routing_keys", "properties", "node"]
    traced.channel.publish("", "q")
    _, published, _ = traced.copy()
    assert list(published) == [*start, "vhost", "connection", "channel", "user", "routed_queues"]
    traced.channel.wait_get("q")
    _, delivered, _ = traced.copy()
    assert list(delivered) == [*start, "redelivered", "vhost", "connection", "channel", "user"]


def test_deliver(traced: Tracing) -> None:
    traced.channel.publish("", "q", b"body")
    traced.copy()
    traced.channel.consume("q")
    delivery = traced.channel.deliver()
    key, headers, body = traced.copy()
    assert (key, body) == ("deliver.q", b"body")
    assert headers["redelivered"] == int_(0)
    traced.channel.send(BasicNack, delivery_tag=delivery.method.delivery_tag, requeue=True)
    traced.channel.deliver()
    key, headers, _ = traced.copy()
    assert (key, headers["redelivered"]) == ("deliver.q", int_(1))


def test_get(traced: Tracing) -> None:
    traced.channel.publish("", "q")
    traced.copy()
    traced.channel.wait_get("q")
    assert traced.copy()[0] == "deliver.q"


def test_unroutable_by_name(traced: Tracing) -> None:
    traced.channel.publish("", "nope")
    key, headers, _ = traced.copy()
    assert (key, headers["routed_queues"]) == ("publish.", names("nope"))


def test_bcc(traced: Tracing) -> None:
    properties = Properties(headers={"CC": names("r"), "BCC": names("q")})
    traced.channel.publish("", "q", b"", properties)
    _, headers, _ = traced.copy()
    assert headers["routing_keys"] == names("q", "r", "q")
    assert headers["properties"] == table({"headers": table({"CC": names("r")})})
    assert headers["routed_queues"] == names("q", "r")


def test_direct_reply(traced: Tracing) -> None:
    channel = traced.channel
    channel.consume("amq.rabbitmq.reply-to", no_ack=True)
    channel.publish("", "q", b"ask", Properties(reply_to="amq.rabbitmq.reply-to"))
    asked: Content = channel.wait_get("q")
    reply_to = asked.properties.reply_to
    assert reply_to is not None
    for _ in range(2):
        traced.copy()
    channel.publish("", reply_to, b"reply")
    channel.deliver()
    key, headers, body = traced.copy()
    assert (key, body, headers["routed_queues"]) == ("publish.", b"reply", names())
    traced.expect_none()


def test_transaction_rolled_back(traced: Tracing) -> None:
    traced.channel.call(TxSelect)
    traced.channel.publish("", "q")
    traced.channel.call(TxRollback)
    assert traced.copy()[0] == "publish."


def test_switched_off(traced: Tracing, admin: Admin) -> None:
    traced.channel.publish("", "q")
    traced.copy()
    admin.set_tracing(traced.vhost, False)
    traced.channel.publish("", "q")
    traced.expect_none()


def test_copies_are_not_copied(traced: Tracing, connect: Connect) -> None:
    """A consumer of copies is given each once, and there are no copies of that."""
    channel = connect(vhost=traced.vhost).channel()
    channel.send(BasicConsume, queue="traces", no_ack=True)
    traced.channel.publish("", "q", b"x")
    traced.channel.sync()
    traced.expect_none()
