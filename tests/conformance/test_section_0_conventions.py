"""amqp-behaviour §0: error texts, ids, field values and how connections end."""

import struct
from collections.abc import Callable

import pytest

from node.amqp.constants import FRAME_HEADER, FRAME_METHOD
from node.amqp.field_table import decode_table, encode_table, long, longstr
from node.amqp.method_codec import encode_method
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicReturn,
    ConfirmSelect,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueDeclare,
)
from node.amqp.properties import Properties
from tests.kit.amqp_client import Channel, Connection, content_header

Name = Callable[[str], str]

FIELD_VALUES = {
    "S": struct.pack(">I", 3) + b"abc",
    "T": struct.pack(">Q", 1_700_000_000),
    "I": struct.pack(">i", -2),
    "i": struct.pack(">I", 4_000_000_000),
    "b": b"\xff",
    "B": b"\xff",
    "s": struct.pack(">h", -3),
    "u": struct.pack(">H", 65000),
    "l": struct.pack(">q", -4),
    "L": struct.pack(">q", -5),
    "d": struct.pack(">d", 1.5),
    "f": struct.pack(">f", 2.5),
    "t": b"\x02",
    "D": b"\x02" + struct.pack(">I", 314),
    "F": struct.pack(">I", 4) + b"\x01kt\x01",
    "A": struct.pack(">I", 4) + b"t\x00b\x07",
    "x": struct.pack(">I", 2) + b"\x00\xff",
    "V": b"",
}


def _headers(tag: str, extra: bytes = b"") -> bytes:
    """Flags and values of properties whose headers are one field of this type, and `extra` fields."""
    fields = b"\x01k" + tag.encode() + FIELD_VALUES[tag] + extra
    return struct.pack(">H", 1 << 13) + struct.pack(">I", len(fields)) + fields


# §0.1


def test_long_reply_text_is_cut(channel: Channel) -> None:
    """§0.1: at most 255 bytes; longer text is its first 252 bytes and three dots."""
    queue = "q" * 255
    channel.send(QueueDeclare, queue=queue, passive=True)
    whole = f"NOT_FOUND - no queue '{queue}' in vhost '/'"
    channel.expect_close(404, whole[:252] + "...", QueueDeclare)


def test_reply_text_of_255_bytes_is_whole(channel: Channel) -> None:
    """§0.1: 255 bytes are not too many."""
    around = "NOT_FOUND - no queue '' in vhost '/'"
    queue = "q" * (255 - len(around))
    channel.send(QueueDeclare, queue=queue, passive=True)
    channel.expect_close(404, f"NOT_FOUND - no queue '{queue}' in vhost '/'", QueueDeclare)


def test_return_carries_only_the_name(channel: Channel, name: Name) -> None:
    """§0.1: basic.return is 312 `NO_ROUTE`, without dash or explanation."""
    key = name("nobody")
    channel.publish("", key, b"x", mandatory=True)
    returned = channel.expect_content(BasicReturn).method
    assert returned == BasicReturn(reply_code=312, reply_text="NO_ROUTE", exchange="", routing_key=key)


def test_ids_are_those_of_the_failed_method(connection: Connection, name: Name) -> None:
    """§0.1: class-id and method-id of the method that failed; resources are `queue 'Q' in vhost 'V'`."""
    missing = name("missing")
    failures: list[tuple[Method, str]] = [
        (QueueDeclare(queue=missing, passive=True), "queue"),
        (BasicGet(queue=missing), "queue"),
        (BasicConsume(queue=missing), "queue"),
        (ExchangeDeclare(exchange=missing, passive=True), "exchange"),
        (QueueBind(queue=missing, exchange="amq.direct"), "queue"),
    ]
    for number, (failed, kind) in enumerate(failures, start=1):
        channel = connection.channel(number)
        channel.send(failed)
        channel.expect_close(404, f"NOT_FOUND - no {kind} '{missing}' in vhost '/'", type(failed))


# §0.4


@pytest.mark.parametrize("tag", FIELD_VALUES)
def test_headers_are_forwarded_byte_for_byte(tag: str, channel: Channel) -> None:
    """§0.4: every type of field is taken, and comes out as it went in (so `L` stays `L`, true stays 2)."""
    queue = channel.declare(exclusive=True)
    properties = _headers(tag)
    channel.publish("", queue, b"body", properties)
    content = channel.wait_get(queue)
    assert content.header == content_header(4, properties)


def test_order_of_headers_is_kept(channel: Channel) -> None:
    """§0.4: order stays, even of a key that comes twice."""
    queue = channel.declare(exclusive=True)
    fields = b"\x01zt\x01" + b"\x01at\x00" + b"\x01zt\x00"
    properties = struct.pack(">HI", 1 << 13, len(fields)) + fields
    channel.publish("", queue, b"", properties)
    assert channel.wait_get(queue).header == content_header(0, properties)


@pytest.mark.parametrize("tag", FIELD_VALUES)
def test_rewritten_headers_keep_their_values(tag: str, channel: Channel) -> None:
    """§0.4: when the broker takes BCC out, the others keep type and value; only `L` may become `l`."""
    queue = channel.declare(exclusive=True)
    bcc = b"\x03BCCA" + struct.pack(">I", 5) + b"S\0\0\0\0"
    channel.publish("", queue, b"", _headers(tag, bcc))
    content = channel.wait_get(queue)
    table, _ = decode_table(content.header, 14)
    sent, _ = decode_table(_headers(tag), 2)
    assert table.keys() == {"k"}
    assert table["k"].value == sent["k"].value
    assert table["k"].tag in ("lL" if tag == "L" else tag)


@pytest.mark.parametrize("tag", FIELD_VALUES)
def test_arguments_of_every_type_are_taken(tag: str, channel: Channel, name: Name) -> None:
    """§0.4: each type in a method's arguments; an argument nobody knows is no error."""
    fields = b"\x01k" + tag.encode() + FIELD_VALUES[tag]
    table, _ = decode_table(struct.pack(">I", len(fields)) + fields)
    channel.declare(name("q"), exclusive=True, arguments=table)


def test_unknown_type_in_arguments_ends_the_connection(
    connection: Connection, channel: Channel, name: Name
) -> None:
    """§0.4: an unknown tag byte drops the connection; a close frame before it is allowed (501 or 541)."""
    raw = encode_method(QueueDeclare(queue=name("q"), arguments={"k": longstr("v")}))
    assert raw.count(b"\x01kS") == 1
    connection.send_frame(FRAME_METHOD, 1, raw.replace(b"\x01kS", b"\x01k?"))
    connection.expect_end(may_close=True)


def test_unknown_type_in_headers_ends_the_connection(connection: Connection, channel: Channel) -> None:
    """§0.4: the same in a message's headers, when the broker must look into them."""
    queue = channel.declare(exclusive=True)
    connection.send(BasicPublish, 1, routing_key=queue)
    table = encode_table({"k": longstr("v")}).replace(b"\x01kS", b"\x01k?")
    connection.send_frame(FRAME_HEADER, 1, content_header(0, struct.pack(">H", 1 << 13) + table))
    connection.expect_end(may_close=True)


@pytest.mark.parametrize(
    "method",
    [
        QueueDeclare(queue="@@"),
        QueueDeclare(queue="@@", passive=True),
        ExchangeDeclare(exchange="@@"),
        ExchangeDeclare(exchange="x", type="@@"),
        BasicConsume(consumer_tag="@@"),
        BasicCancel(consumer_tag="@@"),
    ],
    ids=lambda method: method.name,
)
def test_shortstr_must_be_utf8(method: Method, connection: Connection, channel: Channel) -> None:
    """§0.4: else 501 with ids 0, 0."""
    connection.send_frame(FRAME_METHOD, 1, encode_method(method).replace(b"@@", b"\xc3\x28"))
    connection.expect_connection_close(501, "FRAME_ERROR - Malformed UTF-8 in shortstr", None)


def test_routing_key_of_a_publish_may_be_any_bytes(connection: Connection, channel: Channel) -> None:
    """§0.4: short strings of basic.publish are not checked."""
    raw = encode_method(BasicPublish(routing_key="@@", mandatory=True))
    connection.send_frame(FRAME_METHOD, 1, raw.replace(b"@@", b"\xc3\x28"))
    connection.send_frame(FRAME_HEADER, 1, content_header(0))
    returned = connection.next_frame(1)
    assert returned.payload.endswith(b"\x08NO_ROUTE\x00\x02\xc3\x28")
    assert connection.next_frame(1).type == FRAME_HEADER


# §0.4, trap


def test_nack_of_the_server_has_requeue_set(channel: Channel) -> None:
    """§0.4, trap: basic.nack sent by the server has its requeue bit set."""
    arguments = {"x-max-length": long(1), "x-overflow": longstr("reject-publish")}
    queue = channel.declare(exclusive=True, arguments=arguments)
    channel.call(ConfirmSelect)
    channel.publish("", queue, b"1", Properties())
    channel.expect(BasicAck)
    channel.publish("", queue, b"2", Properties())
    nack = channel.expect(BasicNack)  # §4.3: `multiple` may be set even for a single one
    assert (nack.delivery_tag, nack.requeue) == (2, True)
