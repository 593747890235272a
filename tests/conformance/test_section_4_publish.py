"""amqp-behaviour §4.1, what basic.publish checks and keeps, and §4.2, messages that go nowhere.

The table of §4.1 is an order: the test of a row breaks all later rows as well.
"""

import re
from collections.abc import Callable

import pytest

from node.amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_METHOD
from node.amqp.field_table import Field, Table, array, boolean, long, longstr
from node.amqp.method_codec import encode_method
from node.amqp.methods import (
    BasicAck,
    BasicNack,
    BasicPublish,
    BasicReturn,
    ConfirmSelect,
    ExchangeDeclare,
    QueueBind,
)
from node.amqp.properties import Properties
from tests.conformance.queue_steps import drain
from tests.kit.amqp_client import Channel, Connection, content_header, frame
from tests.kit.servers import Admin, Server

Names = Callable[[str], str]

HEADER_HEAD_BYTES = 12
"""Class, weight and body size in a header frame; the property flags follow."""


def broken_from(row: int) -> Properties:
    """Properties that break the rows 7 to 10 of §4.1, except those before `row`."""
    return Properties(
        reply_to="amq.rabbitmq.reply-to" if row <= 7 else None,
        user_id="bob" if row <= 8 else None,
        expiration="abc" if row <= 9 else None,
        delivery_mode=3,
    )


# §4.1, the order of checks.


def test_row_1_immediate(connection: Connection, channel: Channel, name: Names) -> None:
    """§4.1 row 1: immediate is refused first, and ends the connection."""
    channel.publish(name("missing"), "key", b"x", broken_from(7), mandatory=True, immediate=True)
    connection.expect_connection_close(540, "NOT_IMPLEMENTED - immediate=true", BasicPublish)


@pytest.mark.slow
def test_row_2_message_size(
    connect: Callable[..., Connection], server_with: Callable[..., Server], name: Names
) -> None:
    """§4.1 row 2: one byte more than max_message_size; checked before the exchange."""
    channel = connect(to=server_with({"max_message_size": "200000"})).channel()
    channel.publish(name("missing"), "key", bytes(200001), broken_from(7))
    text = "PRECONDITION_FAILED - message size 200001 is larger than configured max size 200000"
    channel.expect_close(406, text, BasicPublish)


@pytest.mark.slow
def test_row_2_largest_message(
    connect: Callable[..., Connection], server_with: Callable[..., Server], name: Names
) -> None:
    """§4.1 row 2: exactly max_message_size is not too much."""
    channel = connect(to=server_with({"max_message_size": "200000"})).channel()
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, bytes(200000))
    content = channel.get(queue)
    assert content is not None
    assert content.body == bytes(200000)


@pytest.mark.slow
def test_row_2_size_counts_when_the_body_is_whole(
    connect: Callable[..., Connection], server_with: Callable[..., Server]
) -> None:
    """§4.1 row 2: a header that announces too much is no error; the last byte of the body makes it one."""
    connection = connect(to=server_with({"max_message_size": "200000"}))
    channel, other = connection.channel(1), connection.channel(2)
    channel.send(BasicPublish, routing_key="nowhere")
    connection.send_frame(FRAME_HEADER, 1, content_header(200001))
    connection.send_frame(FRAME_BODY, 1, bytes(100000))
    connection.send_frame(FRAME_BODY, 1, bytes(100000))
    other.sync()
    channel.expect_nothing(0.05)
    connection.send_frame(FRAME_BODY, 1, b"x")
    text = "PRECONDITION_FAILED - message size 200001 is larger than configured max size 200000"
    channel.expect_close(406, text, BasicPublish)


def test_row_2_huge_announced_body(connection: Connection, channel: Channel) -> None:
    """§4.1 row 2: a header that announces 2^62 bytes is accepted with the default limit too."""
    other = connection.channel(2)
    channel.send(BasicPublish, routing_key="nowhere")
    connection.send_frame(FRAME_HEADER, 1, content_header(2**62))
    connection.send_frame(FRAME_BODY, 1, b"a little of it")
    other.sync()
    channel.expect_nothing(0.05)


def test_row_3_write_permission(
    connect: Callable[..., Connection], make_user: Callable[..., str], name: Names
) -> None:
    """§4.1 row 3: write permission is asked before the exchange is looked for."""
    user, exchange = make_user("/", ".*", "^mine", ".*"), name("missing")
    channel = connect(user, user).channel()
    channel.publish(exchange, "key", b"x", broken_from(7))
    text = f"ACCESS_REFUSED - access to exchange '{exchange}' in vhost '/' refused for user '{user}'"
    channel.expect_close(403, text, BasicPublish)


def test_row_3_default_exchange(connect: Callable[..., Connection], make_user: Callable[..., str]) -> None:
    """§4.1 row 3: the default exchange is asked for as amq.default."""
    refused = make_user("/", ".*", "^$", ".*")
    channel = connect(refused, refused).channel()
    channel.publish("", "key", b"x", broken_from(7))
    text = f"ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user '{refused}'"
    channel.expect_close(403, text, BasicPublish)
    allowed = make_user("/", ".*", r"^amq\.default$", ".*")
    other = connect(allowed, allowed).channel()
    other.publish("", "nowhere", b"x")
    other.sync()


def test_row_4_missing_exchange(channel: Channel, name: Names) -> None:
    """§4.1 row 4: 404."""
    exchange = name("missing")
    channel.publish(exchange, "key", b"x", broken_from(7))
    channel.expect_close(404, f"NOT_FOUND - no exchange '{exchange}' in vhost '/'", BasicPublish)


@pytest.fixture
def denied_topic(
    channel: Channel, admin: Admin, make_user: Callable[..., str], name: Names
) -> Callable[[bool], tuple[str, str]]:
    """Make a topic exchange, internal or not, and a user who may not write its topics: (exchange, user)."""

    def make(internal: bool) -> tuple[str, str]:
        exchange, user = name("topic"), make_user()
        channel.call(ExchangeDeclare, exchange=exchange, type="topic", internal=internal, auto_delete=True)
        admin.set_topic_permissions(user, "/", exchange, "^$", ".*")
        return exchange, user

    return make


def test_row_5_internal_exchange(
    connect: Callable[..., Connection], denied_topic: Callable[[bool], tuple[str, str]]
) -> None:
    """§4.1 row 5: an internal exchange is refused before the topic is looked at."""
    exchange, user = denied_topic(True)
    other = connect(user, user).channel()
    other.publish(exchange, "some.topic", b"x", broken_from(7))
    text = f"ACCESS_REFUSED - cannot publish to internal exchange '{exchange}' in vhost '/'"
    other.expect_close(403, text, BasicPublish)


def test_row_6_topic_permission(
    connect: Callable[..., Connection], denied_topic: Callable[[bool], tuple[str, str]]
) -> None:
    """§4.1 row 6: the topic is refused before the properties are looked at."""
    exchange, user = denied_topic(False)
    other = connect(user, user).channel()
    other.publish(exchange, "some.topic", b"x", broken_from(7))
    text = (
        f"ACCESS_REFUSED - access to topic 'some.topic' in exchange '{exchange}' in vhost '/'"
        f" refused for user '{user}'"
    )
    other.expect_close(403, text, BasicPublish)


def test_row_7_reply_to_without_reply_consumer(channel: Channel) -> None:
    """§4.1 row 7: direct reply-to needs its consumer."""
    channel.publish("", "nowhere", b"x", broken_from(7))
    text = "PRECONDITION_FAILED - fast reply consumer does not exist"
    channel.expect_close(406, text, BasicPublish)


def test_row_8_user_id(channel: Channel) -> None:
    """§4.1 row 8: the user that is claimed must be the connection's."""
    channel.publish("", "nowhere", b"x", broken_from(8))
    text = "PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'guest'"
    channel.expect_close(406, text, BasicPublish)


def test_row_8_empty_user_id(channel: Channel) -> None:
    """§4.1 row 8: the empty string is a claim too."""
    channel.publish("", "nowhere", b"x", Properties(user_id=""))
    text = "PRECONDITION_FAILED - user_id property set to '' but authenticated user was 'guest'"
    channel.expect_close(406, text, BasicPublish)


def test_row_8_own_user_id(channel: Channel) -> None:
    """§4.1 row 8: one's own name passes, and arrives."""
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"x", Properties(user_id="guest"))
    content = channel.get(queue)
    assert content is not None
    assert content.properties.user_id == "guest"


def test_row_8_impersonator(
    connect: Callable[..., Connection], admin: Admin, name: Names, request: pytest.FixtureRequest
) -> None:
    """§4.1 row 8: the tag impersonator lets a user claim any name."""
    user = name("user")
    admin.add_user(user, user, ["impersonator"])
    request.addfinalizer(lambda: admin.delete_user(user))
    admin.set_permissions(user, "/", ".*", ".*", ".*")
    channel = connect(user, user).channel()
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"x", Properties(user_id="bob"))
    content = channel.get(queue)
    assert content is not None
    assert content.properties.user_id == "bob"


@pytest.mark.parametrize(
    ("expiration", "why"),
    [
        ("abc", "no_integer"),
        ("", "no_integer"),
        ("-", "no_integer"),
        (" 10", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("1.5", '{leftover_string,".5"}'),
        ("10 ", '{leftover_string," "}'),
        ("0x10", '{leftover_string,"x10"}'),
        ('1"', r'{leftover_string,"\""}'),
        ("1\n", r'{leftover_string,"\n"}'),
        ("1\x01", "{leftover_string,[1]}"),
        ("315360000001", "{value_too_large,315360000001}"),
        ("1é", '{leftover_string,"é"}'),
    ],
)
def test_row_9_bad_expiration(channel: Channel, expiration: str, why: str) -> None:
    """§4.1 row 9: the expiration is a whole number of milliseconds, 0 to ten years; the text says why not."""
    channel.publish("", "nowhere", b"x", Properties(expiration=expiration, delivery_mode=3))
    text = f"PRECONDITION_FAILED - invalid expiration '{expiration}': {why}"
    channel.expect_close(406, text, BasicPublish)


def test_row_9_enormous_expiration(channel: Channel) -> None:
    """§4.1 row 9: a number of any length is a number; RabbitMQ breaks the line of a long text."""
    channel.publish("", "nowhere", b"x", Properties(expiration="9" * 30))
    pattern = r"PRECONDITION_FAILED - invalid expiration '9{30}': \{value_too_large,\s*9{30}\}"
    channel.expect_close(406, re.compile(pattern), BasicPublish)


@pytest.mark.parametrize("expiration", ["315360000000", "+60000", "0060000", "+0060000"])
def test_row_9_good_expiration(channel: Channel, expiration: str) -> None:
    """§4.1 row 9: a sign and leading zeros are part of an integer; the property stays as it was written."""
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"x", Properties(expiration=expiration))
    content = channel.get(queue)
    assert content is not None
    assert content.properties.expiration == expiration


@pytest.mark.parametrize("expiration", ["0", "-0", "+0", "000"])
def test_row_9_zero_expiration(channel: Channel, expiration: str) -> None:
    """§4.1 row 9: zero in every spelling is allowed; with nobody waiting the message is gone at once."""
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"x", Properties(expiration=expiration))
    assert channel.get(queue) is None


@pytest.mark.parametrize("mode", [0, 3, 255])
def test_row_10_delivery_mode(channel: Channel, mode: int) -> None:
    """§4.1 row 10: 1, 2 or nothing."""
    channel.publish("", "nowhere", b"x", Properties(delivery_mode=mode))
    text = f"PRECONDITION_FAILED - invalid message: {{delivery_mode_unknown,{mode}}}"
    channel.expect_close(406, text, BasicPublish)


@pytest.mark.parametrize("mode", [None, 1, 2])
def test_row_10_good_delivery_mode(channel: Channel, mode: int | None) -> None:
    """§4.1 row 10: 1, 2 and nothing arrive as they were."""
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"x", Properties(delivery_mode=mode))
    content = channel.get(queue)
    assert content is not None
    assert content.properties.delivery_mode == mode


@pytest.mark.parametrize("key", ["CC", "BCC"])
@pytest.mark.parametrize(
    ("value", "type_name"),
    [
        (longstr("a"), "longstr"),
        (Field("I", 1), "signedint"),
        (boolean(True), "bool"),
        (Field("V", None), "void"),
    ],
)
def test_row_10_sender_selected_keys_are_no_array(
    channel: Channel, key: str, value: Field, type_name: str
) -> None:
    """§4.1 row 10: CC and BCC must be arrays."""
    channel.publish("", "nowhere", b"x", Properties(headers={key: value}))
    text = f'PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,"{key}",{type_name}}}'
    channel.expect_close(406, text, BasicPublish)


def test_a_refused_publish_is_not_confirmed(connection: Connection, channel: Channel) -> None:
    """§4.1: each of these closes the channel, so the publish never gets a confirm."""
    channel.call(ConfirmSelect)
    channel.publish("", "nowhere", b"x", Properties(delivery_mode=3))
    text = "PRECONDITION_FAILED - invalid message: {delivery_mode_unknown,3}"
    channel.expect_close(406, text, BasicPublish)
    connection.channel(1)


# §4.1, what is kept.


@pytest.mark.parametrize("priority", [0, 1, 10, 255])
def test_priority_is_forwarded(channel: Channel, priority: int) -> None:
    """§4.1: any octet."""
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"x", Properties(priority=priority))
    content = channel.get(queue)
    assert content is not None
    assert content.properties.priority == priority


def test_all_properties_arrive_byte_for_byte(channel: Channel) -> None:
    """§4.1, §0.4, §10: properties are not inspected, and forwarded byte for byte."""
    queue = channel.declare(exclusive=True)
    every_property = Properties(
        content_type="no such type",
        content_encoding="é",
        headers={"z": long(1), "a": longstr(b"\xff\0"), "x-death": boolean(True)},
        delivery_mode=1,
        priority=200,
        correlation_id="",
        reply_to="amq.rabbitmq.reply-to.not-exactly",
        expiration="60000",
        message_id="i" * 255,
        timestamp=2**63,
        type="t",
        user_id="guest",
        app_id="a",
        cluster_id="c",
    )
    channel.publish("", queue, b"x", every_property)
    content = channel.get(queue)
    assert content is not None
    assert content.header == content_header(1, every_property)


def test_table_types_arrive_byte_for_byte(channel: Channel) -> None:
    """§0.4: L stays L, and keys that come twice or out of order stay so, where nothing is rewritten."""
    queue = channel.declare(exclusive=True)
    entries = b"\x01bL" + bytes(7) + b"\x05" + b"\x01bI" + bytes(4) + b"\x01at\x07" + b"\x00V"
    raw = b"\x20\x00" + len(entries).to_bytes(4, "big") + entries
    channel.publish("", queue, b"x", raw)
    content = channel.get(queue)
    assert content is not None
    assert content.header[HEADER_HEAD_BYTES:] == raw


def bind_keys(channel: Channel, exchange: str, *keys: str) -> list[str]:
    """Declare a queue for each key and bind it."""
    queues = []
    for key in keys:
        queues.append(channel.declare(exclusive=True))
        channel.call(QueueBind, queue=queues[-1], exchange=exchange, routing_key=key)
    return queues


def keys(*values: str) -> Field:
    return array([longstr(value) for value in values])


def test_cc_and_bcc(channel: Channel, name: Names) -> None:
    """§4.1: CC stays, BCC is removed; the routing key that is delivered is always the publish key."""
    exchange = name("x")
    channel.call(ExchangeDeclare, exchange=exchange, auto_delete=True)
    headers: Table = {"first": long(1), "BCC": keys("bcc"), "CC": keys("cc"), "last": long(2)}
    for queue in bind_keys(channel, exchange, "key", "cc", "bcc"):
        channel.publish(exchange, "key", b"x", Properties(headers=headers, app_id="app"))
        content = channel.get(queue)
        assert content is not None
        assert (content.method.exchange, content.method.routing_key) == (exchange, "key")
        assert list(content.headers.items()) == [
            ("first", long(1)),
            ("CC", keys("cc")),
            ("last", long(2)),
        ]
        assert content.properties.app_id == "app"


def test_cc_and_bcc_by_the_default_exchange(channel: Channel) -> None:
    """§4.1, §3.15: CC and BCC name queues on the default exchange; delivered with the publish key."""
    cc, bcc = channel.declare(exclusive=True), channel.declare(exclusive=True)
    channel.publish("", "nowhere", b"x", Properties(headers={"CC": keys(cc), "BCC": keys(bcc)}))
    for queue in (cc, bcc):
        content = channel.get(queue)
        assert content is not None
        assert content.method.routing_key == "nowhere"


def test_entries_of_cc_that_are_no_strings(channel: Channel) -> None:
    """§4.1: non-longstr entries of CC and BCC are ignored."""
    queue = channel.declare(exclusive=True)
    mixed = array([Field("I", 1), Field("V", None), longstr(queue), Field("x", queue.encode())])
    channel.publish("", "nowhere", b"x", Properties(headers={"CC": mixed, "BCC": array([boolean(True)])}))
    content = channel.get(queue)
    assert content is not None
    assert content.headers == {"CC": mixed}
    assert channel.get(queue) is None


def test_only_bcc_in_the_headers(channel: Channel) -> None:
    """§4.1: when BCC was the only header an empty table is left, not no table."""
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"x", Properties(headers={"BCC": keys("nowhere")}))
    content = channel.get(queue)
    assert content is not None
    assert content.properties.headers == {}


# §4.2.


def test_mandatory_is_returned(channel: Channel) -> None:
    """§4.2: 312 with the exchange, the key, the properties without BCC, and the body."""
    properties = Properties(
        content_type="text/plain",
        headers={"BCC": keys("nowhere-2"), "CC": keys("nowhere-3"), "n": long(1)},
        message_id="m",
    )
    channel.publish("amq.direct", "nowhere", b"a body", properties, mandatory=True)
    returned = channel.expect_content(BasicReturn)
    assert returned.method == BasicReturn(
        reply_code=312, reply_text="NO_ROUTE", exchange="amq.direct", routing_key="nowhere"
    )
    assert returned.body == b"a body"
    assert list(returned.headers.items()) == [("CC", keys("nowhere-3")), ("n", long(1))]
    assert (returned.properties.content_type, returned.properties.message_id) == ("text/plain", "m")
    channel.sync()


def test_returned_properties_byte_for_byte(channel: Channel) -> None:
    """§4.2, §0.4: without BCC the properties come back as they were; an empty body has no body frame."""
    raw = b"\x20\x00" + (11).to_bytes(4, "big") + b"\x01bL" + bytes(7) + b"\x05"
    channel.publish("", "nowhere", b"", raw, mandatory=True)
    returned = channel.expect_content(BasicReturn)
    assert returned.header == content_header(0, raw)
    channel.sync()


def test_large_return(channel: Channel) -> None:
    """§4.2: the whole body comes back, in as many frames as it takes."""
    body = bytes(range(256)) * 2000
    channel.publish("", "nowhere", body, mandatory=True)
    assert channel.expect_content(BasicReturn).body == body


def test_unroutable_is_dropped_silently(channel: Channel) -> None:
    """§4.2: not mandatory, so nothing is said."""
    channel.publish("", "nowhere", b"x")
    channel.sync()


def test_mandatory_and_routed(channel: Channel) -> None:
    """§4.2: routable means a queue matched: nothing comes back."""
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"x", mandatory=True)
    assert drain(channel, queue) == [b"x"]


def test_mandatory_and_routed_by_cc_only(channel: Channel) -> None:
    """§4.2: a queue that only CC names is a route."""
    queue = channel.declare(exclusive=True)
    channel.publish("", "nowhere", b"x", Properties(headers={"CC": keys(queue)}), mandatory=True)
    assert drain(channel, queue) == [b"x"]


def test_return_comes_before_the_confirm(channel: Channel) -> None:
    """§4.2: the return is sent before the ack of that message; unroutable messages are acked."""
    channel.call(ConfirmSelect)
    channel.publish("", "nowhere", b"1", mandatory=True)
    assert channel.expect_content(BasicReturn).body == b"1"
    assert channel.expect(BasicAck) == BasicAck(delivery_tag=1, multiple=False)


def test_returns_of_a_burst_come_before_their_confirms(connection: Connection, channel: Channel) -> None:
    """§4.2: also when ten are published at once, no ack covers a message whose return has not come."""
    channel.call(ConfirmSelect)
    method = encode_method(BasicPublish(routing_key="nowhere", mandatory=True))
    message = frame(FRAME_METHOD, 1, method) + frame(FRAME_HEADER, 1, content_header(0))
    connection.send_bytes(message * 10)
    returned = acked = 0
    while acked < 10:
        arrived = connection.next_frame(1)
        if arrived.payload.startswith(b"\0\x3c\0\x32"):
            connection.next_frame(1)
            returned += 1
        else:
            assert arrived.payload.startswith(b"\0\x3c\0\x50"), str(arrived)
            acked = int.from_bytes(arrived.payload[4:12], "big")
            assert acked <= returned
    assert returned == 10


def test_rejection_by_length_is_no_return(channel: Channel) -> None:
    """§4.2: a matching queue that then refuses the message is a nack, not a return."""
    arguments = {"x-max-length": long(0), "x-overflow": longstr("reject-publish")}
    queue = channel.declare(exclusive=True, arguments=arguments)
    channel.call(ConfirmSelect)
    channel.publish("", queue, b"x", mandatory=True)
    assert channel.expect(BasicNack).delivery_tag == 1
    assert drain(channel, queue) == []
