"""SEND and MESSAGE: bodies, headers and properties, destinations, receipts, transactions, replies."""

from collections.abc import Callable

import pytest

from node.amqp.field_table import Field, boolean, longstr
from node.amqp.methods import BasicConsume, BasicConsumeOk
from node.amqp.properties import Properties
from tests.conformance.stomp.conftest import Open
from tests.kit.amqp_client import Channel

VERSIONS = ("1.0", "1.1", "1.2")
Name = Callable[[str], str]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_comes_back(stomp: Open, name: Name, version: str) -> None:
    client, queue = stomp(version), name("q")
    client.done("SUBSCRIBE", destination=f"/queue/{queue}", id="1", ack="client")
    client.send("SEND", b"hello", destination=f"/queue/{queue}", foo="bar", content_length=5)
    message = client.frame()
    assert message.command == "MESSAGE"
    assert message.body == b"hello"
    headers = message.headers
    assert headers["subscription"] == "1"
    assert headers["destination"] == f"/queue/{queue}"
    assert headers["redelivered"] == "false"
    assert headers["foo"] == "bar"
    assert headers["message-id"].startswith("T_1@@session-")
    assert headers["message-id"].endswith("@@1")
    assert headers.get("ack") == (headers["message-id"] if version == "1.2" else None)


@pytest.mark.parametrize("body", [b"", b"a\0b", b"\n\n", bytes(range(256)), b"x" * 500_000])
def test_bodies_are_octets(stomp: Open, name: Name, body: bytes) -> None:
    client, queue = stomp(), name("q")
    client.done("SUBSCRIBE", destination=f"/queue/{queue}", id="1")
    client.send("SEND", body, destination=f"/queue/{queue}", content_length=len(body))
    assert client.messages(1) == [body]


def test_headers_are_escaped(stomp: Open, name: Name) -> None:
    client, queue = stomp(), name("q")
    client.done("SUBSCRIBE", destination=f"/queue/{queue}", id="1")
    client.send_pairs("SEND", [("destination", f"/queue/{queue}"), ("a:b\\", "c\nd\r:e")], b"m")
    assert client.frame().headers["a:b\\"] == "c\nd\r:e"


def test_lines_may_end_with_crlf(stomp: Open, name: Name) -> None:
    client, queue = stomp(), name("q")
    client.send_raw(f"SUBSCRIBE\r\ndestination:/queue/{queue}\r\nid:1\r\nreceipt:a\r\n\r\n\0\r\n".encode())
    assert client.frame().headers == {"receipt-id": "a"}
    client.send_raw(f"SEND\r\ndestination:/queue/{queue}\r\n\r\nm\0".encode())
    assert client.messages(1) == [b"m"]


def test_headers_become_properties(stomp: Open, channel: Channel, name: Name) -> None:
    client, queue = stomp(), name("q")
    properties = {
        "content-type": "text/plain",
        "content-encoding": "utf-8",
        "persistent": "true",
        "priority": "3",
        "correlation-id": "c",
        "reply-to": "/queue/replies",
        "expiration": "100000",
        "amqp-message-id": "m",
        "timestamp": "1700000000",
        "type": "t",
        "user-id": "guest",
        "app-id": "a",
    }
    client.send_pairs(
        "SEND",
        [("destination", f"/queue/{queue}"), ("receipt", "r"), ("x", "y"), *properties.items()],
        b"m",
    )
    assert client.frame().command == "RECEIPT"
    content = channel.get(queue)
    assert content is not None
    found = content.properties
    assert found == Properties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers=found.headers,
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="/queue/replies",
        expiration="100000",
        message_id="m",
        timestamp=1700000000,
        type="t",
        user_id="guest",
        app_id="a",
    )
    assert found.headers == {"receipt": longstr("r"), "x": longstr("y")}


def test_properties_become_headers(stomp: Open, channel: Channel, name: Name) -> None:
    client, queue = stomp(), name("q")
    client.done("SUBSCRIBE", destination=f"/queue/{queue}", id="1")
    headers = {
        "text": longstr("t"),
        "int": Field("I", -1),
        "long": Field("l", 1 << 40),
        "short": Field("s", 1),
        "flag": boolean(True),
    }
    properties = Properties(
        content_type="text/plain",
        headers=headers,
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="replies",
        expiration="100000",
        message_id="m",
        timestamp=1700000000,
        type="t",
        user_id="guest",
        app_id="a",
    )
    channel.publish("", queue, b"m", properties)
    found = client.frame().headers
    for expected in ("subscription", "destination", "message-id", "redelivered"):
        assert found.pop(expected)
    assert found == {
        "text": "t",
        "int": "-1",
        "long": str(1 << 40),
        "content-type": "text/plain",
        "persistent": "true",
        "priority": "3",
        "correlation-id": "c",
        "reply-to": "/reply-queue/replies",
        "expiration": "100000",
        "amqp-message-id": "m",
        "timestamp": "1700000000",
        "type": "t",
        "user-id": "guest",
        "app-id": "a",
    }


def test_a_message_is_transient_unless_it_is_persistent(stomp: Open, channel: Channel, name: Name) -> None:
    client, queue = stomp(), name("q")
    client.done("SEND", b"m", destination=f"/queue/{queue}")
    content = channel.wait_get(queue)
    assert content.properties.delivery_mode is None


@pytest.mark.parametrize(
    ("destination", "shown"),
    [
        ("/topic/{0}.b", "/topic/{0}.b"),
        ("/exchange/amq.direct/{0}.b", "/exchange/amq.direct/{0}.b"),
        ("/exchange/amq.fanout", "/exchange/amq.fanout"),
        ("/exchange/amq.topic/{0}.b", "/topic/{0}.b"),
        ("/topic/{0}%2Fb", "/topic/{0}%2Fb"),
        ("{0}", "/queue/{0}"),
    ],
)
def test_destinations(stomp: Open, name: Name, destination: str, shown: str) -> None:
    client, word = stomp(), name("d")
    text = destination.format(word)
    client.done("SUBSCRIBE", destination=text, id="1")
    client.send("SEND", b"m", destination=text)
    message = client.frame()
    assert message.headers["destination"] == shown.format(word)
    assert message.body == b"m"


def test_topics_have_wildcards(stomp: Open, name: Name) -> None:
    client, word = stomp(), name("t")
    client.done("SUBSCRIBE", destination=f"/topic/{word}.*.c", id="star")
    client.done("SUBSCRIBE", destination=f"/topic/{word}.#", id="hash")
    client.send("SEND", b"both", destination=f"/topic/{word}.b.c")
    assert {client.frame().headers["subscription"] for _ in range(2)} == {"star", "hash"}
    client.send("SEND", b"one", destination=f"/topic/{word}")
    assert client.frame().headers["subscription"] == "hash"


def test_an_amq_queue_is_not_declared(stomp: Open, channel: Channel, name: Name) -> None:
    client, queue = stomp(), name("q")
    client.done("SEND", b"lost", destination=f"/amq/queue/{queue}")
    channel.declare(queue, auto_delete=True)
    client.done("SUBSCRIBE", destination=f"/amq/queue/{queue}", id="1")
    client.send("SEND", b"m", destination=f"/amq/queue/{queue}")
    assert client.messages(1) == [b"m"]


@pytest.mark.parametrize("header", ["durable", "persistent"])
def test_a_transient_queue_is_the_clients_alone(stomp: Open, name: Name, header: str) -> None:
    """A SEND frame with `persistent:false` declares such a queue, too."""
    client, other, queue = stomp(), stomp(), name("q")
    client.send_pairs("SEND", [("destination", f"/queue/{queue}"), (header, "false"), ("receipt", "r")])
    assert client.frame().command == "RECEIPT"
    message, _ = other.ask("SUBSCRIBE", destination=f"/queue/{queue}", id="1").told
    assert message == "resource_locked"


def test_queues_have_arguments(stomp: Open, channel: Channel, name: Name) -> None:
    client, queue = stomp(), name("q")
    client.send_pairs(
        "SEND", [("destination", f"/queue/{queue}"), ("x-max-length", "1"), ("receipt", "r")], b"one"
    )
    assert client.frame().command == "RECEIPT"
    arguments = {"x-max-length": Field("l", 1)}
    assert channel.declare(queue, durable=True, arguments=arguments) == queue


def test_replies_come_to_a_temporary_queue(stomp: Open, name: Name) -> None:
    client, server, queue = stomp(), stomp(), name("q")
    server.done("SUBSCRIBE", destination=f"/queue/{queue}", id="1")
    for body in (b"one", b"two"):
        client.send("SEND", body, destination=f"/queue/{queue}", reply_to="/temp-queue/answers")
    requests = [server.frame(), server.frame()]
    assert requests[0].headers["reply-to"] == requests[1].headers["reply-to"]
    assert requests[0].headers["reply-to"].startswith("/reply-queue/amq.gen-")
    for request in requests:
        server.send("SEND", b"re " + request.body, destination=request.headers["reply-to"])
    replies = [client.frame(), client.frame()]
    assert [reply.body for reply in replies] == [b"re one", b"re two"]
    assert {reply.headers["subscription"] for reply in replies} == {"/temp-queue/answers"}


def test_amqp_clients_answer(stomp: Open, channel: Channel, name: Name) -> None:
    client, queue = stomp(), name("q")
    client.done("SEND", b"m", destination=f"/queue/{queue}", reply_to="/temp-queue/r")
    request = channel.wait_get(queue)
    assert request.properties.reply_to is not None
    channel.publish("", request.properties.reply_to, b"re")
    assert client.messages(1) == [b"re"]


# --- transactions ---


def test_a_transaction_is_carried_out_at_commit(stomp: Open, name: Name) -> None:
    client, other, queue = stomp(), stomp(), name("q")
    other.done("SUBSCRIBE", destination=f"/queue/{queue}", id="1")
    client.done("BEGIN", transaction="t")
    client.send("SEND", b"a", destination=f"/queue/{queue}", transaction="t")
    client.send("SEND", b"outside", destination=f"/queue/{queue}")
    client.send("SEND", b"b", destination=f"/queue/{queue}", transaction="t")
    assert other.messages(1) == [b"outside"]
    client.done("COMMIT", transaction="t")
    assert other.messages(2) == [b"a", b"b"]


def test_an_aborted_transaction_leaves_nothing(stomp: Open, name: Name) -> None:
    client, queue = stomp(), name("q")
    client.done("SUBSCRIBE", destination=f"/queue/{queue}", id="1")
    client.done("BEGIN", transaction="t")
    client.send("SEND", b"a", destination=f"/queue/{queue}", transaction="t")
    client.done("ABORT", transaction="t")
    assert client.nothing_more()


def test_acks_belong_to_transactions(stomp: Open, channel: Channel, name: Name) -> None:
    client, queue = stomp(), name("q")
    client.done("SUBSCRIBE", destination=f"/queue/{queue}", id="1", ack="client-individual")
    client.send("SEND", b"a", destination=f"/queue/{queue}")
    ack = client.frame().headers["ack"]
    client.done("BEGIN", transaction="t")
    client.send("ACK", id=ack, transaction="t")
    client.done("ABORT", transaction="t")
    client.done("BEGIN", transaction="t")
    client.send("ACK", id=ack, transaction="t")
    client.done("COMMIT", transaction="t")
    client.done("DISCONNECT")
    assert client.is_closed()
    assert channel.get(queue) is None


def test_a_receipt_within_a_transaction_comes_after_commit(stomp: Open) -> None:
    client = stomp()
    client.done("BEGIN", transaction="t")
    client.send("SEND", b"a", destination="/topic/nobody", transaction="t", receipt="of send")
    assert client.nothing_more()
    client.send("COMMIT", transaction="t", receipt="of commit")
    assert {client.frame().headers["receipt-id"] for _ in range(2)} == {"of send", "of commit"}


# --- the end ---


def test_a_client_says_goodbye_after_its_messages(stomp: Open, channel: Channel, name: Name) -> None:
    client, queue = stomp(), name("q")
    channel.declare(queue, durable=True)
    channel.send(BasicConsume, queue=queue, no_ack=True)
    channel.expect(BasicConsumeOk)
    for number in range(200):
        client.send("SEND", b"%d" % number, destination=f"/queue/{queue}")
    client.done("DISCONNECT")
    assert client.is_closed()
    assert [channel.deliver().body for _ in range(200)] == [b"%d" % number for number in range(200)]
