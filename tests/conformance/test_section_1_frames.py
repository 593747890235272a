"""amqp-behaviour §1.6 (frames only) and §1.7: wrong frames after open, and what is just tolerated."""

import struct
from collections.abc import Callable

import pytest

from node.amqp import methods
from node.amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD
from node.amqp.method_codec import encode_method
from node.amqp.methods import (
    BasicGetOk,
    BasicPublish,
    BasicQos,
    ChannelOpen,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    ExchangeDeclare,
    Method,
    QueueDeclare,
)
from tests.kit.amqp_client import Channel, Connection, content_header, frame

Connect = Callable[..., Connection]

CHANNEL_OPEN = encode_method(ChannelOpen())
QUEUE_OF_ONE_BYTE = b"\x00\x32\x00\x0a\x00"


def _octets(data: bytes) -> str:
    return "<<" + ",".join(str(octet) for octet in data) + ">>"


# Frames as such


@pytest.mark.parametrize("heartbeat_payload", [b"x", b"xy"])
def test_heartbeat_with_payload(heartbeat_payload: bytes, connection: Connection) -> None:
    """§1.6: 501."""
    connection.send_frame(FRAME_HEARTBEAT, 0, heartbeat_payload)
    text = f'FRAME_ERROR - type 8, all octets = <<"{heartbeat_payload.decode()}">>: unknown_frame'
    connection.expect_connection_close(501, text, None)


def test_heartbeat_on_a_channel(connection: Connection) -> None:
    """§1.6: 505."""
    connection.send_frame(FRAME_HEARTBEAT, 1, b"")
    text = "UNEXPECTED_FRAME - type 8, all octets = <<>>"
    connection.expect_connection_close(505, text, None)


def test_heartbeats_are_taken(connection: Connection, channel: Channel) -> None:
    """§1.6: a heartbeat is welcome at any time, also between the frames of a content."""
    queue = channel.declare(exclusive=True)
    connection.send(BasicPublish, 1, routing_key=queue)
    connection.send_frame(FRAME_HEARTBEAT, 0, b"")
    connection.send_frame(FRAME_HEADER, 1, content_header(2))
    connection.send_frame(FRAME_HEARTBEAT, 0, b"")
    connection.send_frame(FRAME_BODY, 1, b"ab")
    assert channel.wait_get(queue).body == b"ab"


@pytest.mark.parametrize("end", [0, 205, 207])
def test_end_octet(end: int, connection: Connection) -> None:
    """§1.7 row end octet: the text has the payload and the octet. Then: test_section_1_timing.py."""
    connection.send_bytes(frame(FRAME_METHOD, 1, CHANNEL_OPEN[:4], end=end))
    text = f"FRAME_ERROR - type 1, all octets = <<0,20,0,10>>: {{invalid_frame_end_marker,{end}}}"
    connection.expect_connection_close(501, text, None, answer=False)


@pytest.mark.parametrize(
    ("payload", "octets"),
    [
        (b"abc", 'all octets = <<"abc">>'),
        (b"", "all octets = <<>>"),
        (b"a\nb", 'all octets = <<"a\\nb">>'),
        (b"\x01\x02", "all octets = <<1,2>>"),
        (b"0123456789abcdef", 'all octets = <<"0123456789abcdef">>'),
        (b"0123456789abcdefg", 'first 16 octets = <<"0123456789abcdef">>'),
    ],
)
def test_payload_in_text(payload: bytes, octets: str, connection: Connection) -> None:
    """§1.7, head: how the payload is written; at most 16 octets of it."""
    connection.send_frame(9, 1, payload)
    connection.expect_connection_close(501, f"FRAME_ERROR - type 9, {octets}: unknown_frame", None)


def test_payload_of_latin_1_in_text(connection: Connection) -> None:
    """§1.7, head: RabbitMQ quotes printable Latin-1 too, so the text isn't UTF-8; numbers are fine too."""
    connection.send_frame(9, 1, b"\xe9t\xe9")
    payload = connection.next_frame(0).payload
    assert payload.startswith(b"\x00\x0a\x00\x32" + struct.pack(">H", 501))
    assert any(each in payload for each in (b'<<"\xe9t\xe9">>', b"<<233,116,233>>"))


@pytest.mark.parametrize("number", [0, 1, 77])
@pytest.mark.parametrize("frame_type", [0, 4, 9, 255])
def test_unknown_type(frame_type: int, number: int, connection: Connection) -> None:
    """§1.7 row unknown frame type, any channel."""
    connection.send_frame(frame_type, number, b"abc")
    text = f'FRAME_ERROR - type {frame_type}, all octets = <<"abc">>: unknown_frame'
    connection.expect_connection_close(501, text, None)


@pytest.mark.parametrize("payload", [b"", b"\0", b"\0\x14\0"])
@pytest.mark.parametrize("number", [0, 1])
def test_short_method_frame(number: int, payload: bytes, connection: Connection) -> None:
    """§1.7 row method frame payload < 4 bytes."""
    connection.send_frame(FRAME_METHOD, number, payload)
    text = f"FRAME_ERROR - type 1, all octets = {_octets(payload)}: unknown_frame"
    connection.expect_connection_close(501, text, None)


def test_frame_above_frame_max(connect: Connect) -> None:
    """§1.7 row payload length > frame_max: seen in the head; the payload need not come."""
    connection = connect(frame_max=4096)
    connection.send_bytes(struct.pack(">BHI", FRAME_METHOD, 0, 4097))
    text = "FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,4097,4088}"
    connection.expect_connection_close(501, text, None, answer=False)


def test_frame_above_default_frame_max(connection: Connection) -> None:
    """§1.7 row payload length > frame_max, with 131072; and a length of nearly 2³² is not waited for."""
    connection.send_bytes(struct.pack(">BHI", FRAME_BODY, 1, 0xFFFFFFFF))
    text = "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,4294967295,131064}"
    connection.expect_connection_close(501, text, None, answer=False)


@pytest.mark.parametrize("size", [4088, 4089, 4096])
def test_frame_within_the_slack(size: int, connect: Connect) -> None:
    """§1.7 row payload length between frame_max-7 and frame_max: accepted."""
    connection = connect(frame_max=4096)
    channel = connection.channel()
    queue = channel.declare(exclusive=True)
    connection.send(BasicPublish, 1, routing_key=queue)
    connection.send_frame(FRAME_HEADER, 1, content_header(size))
    connection.send_frame(FRAME_BODY, 1, b"x" * size)
    assert len(channel.wait_get(queue).body) == size


# Content


@pytest.mark.parametrize(
    ("frame_type", "payload"),
    [(FRAME_HEADER, b"\x00\x3c" + bytes(12)), (FRAME_BODY, b"ab"), (FRAME_BODY, b"")],
)
def test_content_on_channel_0(frame_type: int, payload: bytes, connection: Connection) -> None:
    """§1.7 row header/body frame on channel 0: 505."""
    connection.send_frame(frame_type, 0, payload)
    printed = f'<<"{payload.decode()}">>' if payload == b"ab" else _octets(payload)
    text = f"UNEXPECTED_FRAME - type {frame_type}, all octets = {printed}"
    connection.expect_connection_close(505, text, None)


@pytest.mark.parametrize(
    ("frame_type", "payload"), [(FRAME_HEADER, content_header(0)), (FRAME_BODY, b"ab"), (FRAME_BODY, b"")]
)
def test_content_where_a_method_is_expected(
    frame_type: int, payload: bytes, connection: Connection, channel: Channel
) -> None:
    """§1.7 row header/body when method expected."""
    connection.send_frame(frame_type, 1, payload)
    text = "UNEXPECTED_FRAME - expected method frame, got non method frame instead"
    connection.expect_connection_close(505, text, None)


NO_HEADER = "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead"


@pytest.mark.parametrize(
    ("frame_type", "payload"),
    [
        (FRAME_METHOD, encode_method(QueueDeclare(queue="q"))),
        (FRAME_METHOD, encode_method(BasicPublish())),
        (FRAME_BODY, b"ab"),
        (FRAME_HEADER, content_header(0, weight=1)),
    ],
    ids=["queue.declare", "basic.publish", "body", "weight 1"],
)
def test_no_header_where_one_is_expected(
    frame_type: int, payload: bytes, connection: Connection, channel: Channel
) -> None:
    """§1.7 row method (or body) when content header expected; header weight ≠ 0."""
    channel.send(BasicPublish)
    connection.send_frame(frame_type, 1, payload)
    connection.expect_connection_close(505, NO_HEADER, BasicPublish)


@pytest.mark.parametrize("payload", [b"", b"\x00\x3c", content_header(0)[:11]])
def test_short_header(payload: bytes, connection: Connection, channel: Channel) -> None:
    """§1.7: a header frame that ends within its fixed part is no header."""
    channel.send(BasicPublish)
    connection.send_frame(FRAME_HEADER, 1, payload)
    octets = _octets(payload)
    text = f"FRAME_ERROR - type 2, all octets = {octets}: unknown_frame"
    connection.expect_connection_close(501, text, None)


@pytest.mark.parametrize("class_id", [50, 0, 65535])
def test_header_of_another_class(class_id: int, connection: Connection, channel: Channel) -> None:
    """§1.7 row header with other class."""
    channel.send(BasicPublish)
    connection.send_frame(FRAME_HEADER, 1, content_header(0, class_id=class_id))
    text = f"UNEXPECTED_FRAME - expected content header for class 60, got one for class {class_id} instead"
    connection.expect_connection_close(505, text, BasicPublish)


NO_BODY = "UNEXPECTED_FRAME - expected content body, got non content body frame instead"


@pytest.mark.parametrize(
    ("frame_type", "payload"),
    [(FRAME_METHOD, encode_method(QueueDeclare(queue="q"))), (FRAME_HEADER, content_header(0))],
    ids=["method", "header"],
)
def test_no_body_where_one_is_expected(
    frame_type: int, payload: bytes, connection: Connection, channel: Channel
) -> None:
    """§1.7 row method when body expected (a header too)."""
    channel.send(BasicPublish)
    connection.send_frame(FRAME_HEADER, 1, content_header(3))
    connection.send_frame(FRAME_BODY, 1, b"ab")
    connection.send_frame(frame_type, 1, payload)
    connection.expect_connection_close(505, NO_BODY, BasicPublish)


def test_body_longer_than_announced(connection: Connection, channel: Channel) -> None:
    """§1.7 row body longer than announced: seen at the next method."""
    channel.send(BasicPublish)
    connection.send_frame(FRAME_HEADER, 1, content_header(2))
    connection.send_frame(FRAME_BODY, 1, b"abc")
    channel.send(QueueDeclare, queue="q")
    connection.expect_connection_close(505, NO_BODY, BasicPublish)


def test_empty_body_frames(connection: Connection, channel: Channel) -> None:
    """§1.7 row zero-length body frames in the middle: tolerated."""
    queue = channel.declare(exclusive=True)
    channel.send(BasicPublish, routing_key=queue)
    connection.send_frame(FRAME_HEADER, 1, content_header(4))
    for part in (b"", b"ab", b"", b"", b"cd"):
        connection.send_frame(FRAME_BODY, 1, part)
    assert channel.wait_get(queue).body == b"abcd"


def test_body_of_size_0(connection: Connection, channel: Channel) -> None:
    """§1.7 row body size 0: no body frame expected or sent."""
    queue = channel.declare(exclusive=True)
    channel.send(BasicPublish, routing_key=queue)
    connection.send_frame(FRAME_HEADER, 1, content_header(0))
    assert channel.wait_get(queue).body == b""
    channel.sync()


def test_contents_of_channels_may_interleave(connection: Connection) -> None:
    """§1.7: what is expected next is a matter of each channel."""
    first, second = connection.channel(1), connection.channel(2)
    queue = first.declare(exclusive=True)
    first.send(BasicPublish, routing_key=queue)
    second.send(BasicPublish, routing_key=queue)
    connection.send_frame(FRAME_HEADER, 2, content_header(2))
    connection.send_frame(FRAME_HEADER, 1, content_header(1))
    connection.send_frame(FRAME_BODY, 2, b"2")
    connection.send_frame(FRAME_BODY, 1, b"1")
    assert first.wait_get(queue).body == b"1"
    connection.send_frame(FRAME_BODY, 2, b"2")
    assert second.wait_get(queue).body == b"22"


@pytest.mark.parametrize(
    "properties",
    [b"", b"\x80", b"\x80\x00\x05ab", b"\x80\x00", b"\x20\x00\x00\x00\xff\xff", b"\x00\x00junk"],
)
def test_garbage_properties(properties: bytes, connection: Connection, channel: Channel) -> None:
    """§1.7 row garbage property list: 541 with the bare name and ids 0, 0 (§0.1)."""
    queue = channel.declare(exclusive=True)
    channel.send(BasicPublish, routing_key=queue)
    connection.send_frame(FRAME_HEADER, 1, content_header(0, properties))
    connection.expect_connection_close(541, "INTERNAL_ERROR", None)


@pytest.mark.parametrize("flags", [b"\x00\x01", b"\x00\x02", b"\x00\x03"])
def test_unused_property_flags(flags: bytes, connection: Connection, channel: Channel) -> None:
    """§10: the two lowest bits are not looked at."""
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"", flags)
    assert channel.wait_get(queue).header == content_header(0, flags)


# Methods


@pytest.mark.parametrize(
    ("payload", "failed"),
    [
        (b"\x00\x32\x00\x0a", QueueDeclare),
        (b"\x00\x32\x00\x0a\x00", QueueDeclare),
        (b"\x00\x28\x00\x0a\x00\x00\x05abc", ExchangeDeclare),
        (encode_method(BasicQos()) + b"\x00", BasicQos),
        (encode_method(QueueDeclare(queue="q")) + b"junk", QueueDeclare),
        (encode_method(QueueDeclare(queue="q"))[:-1], QueueDeclare),
    ],
    ids=["nothing", "one byte", "short shortstr", "one byte more", "junk after", "short table"],
)
def test_truncated_or_trailing(
    payload: bytes, failed: type[Method], connection: Connection, channel: Channel
) -> None:
    """§1.7 row truncated args / trailing bytes: 501 with the ids of the method."""
    connection.send_frame(FRAME_METHOD, 1, payload)
    text = f"FRAME_ERROR - cannot decode {_octets(payload[4:])}"
    connection.expect_connection_close(501, text, failed)


@pytest.mark.parametrize(
    ("class_id", "method_id"), [(50, 99), (99, 10), (0, 0), (65535, 65535), (60, 0), (40, 41)]
)
@pytest.mark.parametrize("number", [0, 1])
def test_unknown_method(
    number: int, class_id: int, method_id: int, connection: Connection, channel: Channel
) -> None:
    """§1.7 row unknown class/method id: the end; a 503 or 540 before it is harmless."""
    connection.send_frame(FRAME_METHOD, number, struct.pack(">HH", class_id, method_id) + b"anything")
    connection.expect_end(may_close=True)


@pytest.mark.parametrize(
    "method", [QueueDeclare(queue="q"), ChannelOpen(), BasicPublish()], ids=lambda method: method.name
)
def test_method_of_another_class_on_channel_0(method: Method, connection: Connection) -> None:
    """§1.7 row method of non-connection class on channel 0: 504."""
    connection.send(method, 0)
    text = "CHANNEL_ERROR - unexpected method in connection state running"
    connection.expect_connection_close(504, text, type(method))


@pytest.mark.parametrize(
    "method",
    [
        ConnectionOpen(),
        ConnectionStartOk(response=b"\0guest\0guest"),
        ConnectionTuneOk(channel_max=1, frame_max=4096),
        methods.ConnectionSecureOk(),
        methods.ConnectionBlocked(),
        methods.ConnectionUnblocked(),
        methods.ConnectionOpenOk(),
        methods.ConnectionTune(),
    ],
    ids=lambda method: method.name,
)
def test_connection_method_out_of_its_state(method: Method, connection: Connection) -> None:
    """§1.7 row second open / start-ok while running: 504, likewise what only a server sends."""
    connection.send(method)
    text = "CHANNEL_ERROR - unexpected method in connection state running"
    connection.expect_connection_close(504, text, type(method))


@pytest.mark.parametrize(
    "method",
    [
        methods.ConnectionClose(reply_code=200, reply_text="bye"),
        methods.ConnectionCloseOk(),
        ConnectionOpen(),
        methods.ConnectionUpdateSecret(),
    ],
    ids=lambda method: method.name,
)
def test_connection_method_on_a_channel(method: Method, connection: Connection, channel: Channel) -> None:
    """§1.7 row connection-class method on channel ≥ 1 (open): 503."""
    channel.send(method)
    connection.expect_connection_close(503, "COMMAND_INVALID - unimplemented method", type(method))


@pytest.mark.parametrize(
    "method",
    [
        methods.BasicCancelOk(),
        methods.BasicConsumeOk(),
        methods.BasicGetEmpty(),
        methods.BasicQosOk(),
        methods.BasicRecoverOk(),
        methods.ChannelFlowOk(),
        methods.ChannelOpenOk(),
        methods.ConfirmSelectOk(),
        methods.ExchangeBindOk(),
        methods.ExchangeDeclareOk(),
        methods.ExchangeDeleteOk(),
        methods.ExchangeUnbindOk(),
        methods.QueueBindOk(),
        methods.QueueDeclareOk(),
        methods.QueueDeleteOk(),
        methods.QueuePurgeOk(),
        methods.QueueUnbindOk(),
        methods.TxCommitOk(),
        methods.TxRollbackOk(),
        methods.TxSelectOk(),
    ],
    ids=lambda method: method.name,
)
def test_method_that_only_a_server_sends(method: Method, connection: Connection, channel: Channel) -> None:
    """§1.7 row client sends deliver, declare-ok, cancel-ok, flow-ok…: 503."""
    channel.send(method)
    connection.expect_connection_close(503, "COMMAND_INVALID - unimplemented method", type(method))


@pytest.mark.parametrize(
    "method", [methods.BasicDeliver(), BasicGetOk(), methods.BasicReturn()], ids=lambda method: method.name
)
def test_content_that_only_a_server_sends(method: Method, connection: Connection, channel: Channel) -> None:
    """§1.7 row client sends deliver: 503, when its content is complete."""
    channel.send(method)
    connection.send_frame(FRAME_HEADER, 1, content_header(1))
    connection.send_frame(FRAME_BODY, 1, b"x")
    connection.expect_connection_close(503, "COMMAND_INVALID - unimplemented method", type(method))


def test_frames_byte_by_byte(connection: Connection, channel: Channel) -> None:
    """§1.7: what arrives byte by byte is the same as what arrives whole."""
    queue = channel.declare(exclusive=True)
    raw = b"".join(
        [
            frame(FRAME_METHOD, 1, encode_method(BasicPublish(routing_key=queue))),
            frame(FRAME_HEADER, 1, content_header(3)),
            frame(FRAME_BODY, 1, b"abc"),
        ]
    )
    for octet in raw:
        connection.send_bytes(bytes([octet]))
    assert channel.wait_get(queue).body == b"abc"
