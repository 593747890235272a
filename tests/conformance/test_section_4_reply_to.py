"""amqp-behaviour §4.12, direct reply-to: answers that go from a publisher to a channel without a queue."""

import re
from collections.abc import Callable

import pytest

from node.amqp.field_table import array, long, longstr
from node.amqp.method_codec import decode_method
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicPublish,
    BasicQos,
    BasicReturn,
    ConfirmSelect,
    ConnectionClose,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
)
from node.amqp.properties import Properties
from tests.kit.amqp_client import Channel, Connection
from tests.kit.patience import wait_until

REPLY_TO = "amq.rabbitmq.reply-to"
NO_QUEUE = "NOT_FOUND - no queue '{}' in vhost '/'"


@pytest.fixture
def responder(connect: Callable[..., Connection]) -> Channel:
    """A channel of another connection, which answers."""
    return connect().channel()


def request_name(requester: Channel) -> str:
    """Start the reply consumer with tag `replies`, send a request, give the reply name that it carries."""
    requester.consume(REPLY_TO, consumer_tag="replies", no_ack=True)
    return next_name(requester)


def next_name(requester: Channel) -> str:
    """Send a request, give the reply name that it carries."""
    requests = requester.declare(exclusive=True)
    requester.publish("", requests, b"request", Properties(reply_to=REPLY_TO))
    name = requester.wait_get(requests).properties.reply_to
    assert name is not None
    return name


# Consuming.


def test_consume(channel: Channel) -> None:
    """§4.12 row consume: consume-ok, with a tag of one's own or a made-up one."""
    assert channel.consume(REPLY_TO, no_ack=True).startswith("amq.ctag-")


def test_consume_with_nowait(channel: Channel, responder: Channel) -> None:
    """§4.12 row consume: nowait is honoured."""
    channel.send(BasicConsume, queue=REPLY_TO, consumer_tag="t", no_ack=True, nowait=True)
    responder.publish("", next_name(channel), b"reply")
    assert channel.deliver().method.consumer_tag == "t"


def test_exclusive_and_arguments_are_ignored(connection: Connection, channel: Channel) -> None:
    """§4.12 row consume: neither has a meaning, also bad ones."""
    arguments = {"x-priority": longstr("high"), "x": long(1)}
    channel.consume(REPLY_TO, no_ack=True, exclusive=True, arguments=arguments)
    connection.channel(2).consume(REPLY_TO, no_ack=True)


def test_no_permissions_are_needed(connect: Callable[..., Connection], make_user: Callable[..., str]) -> None:
    """§4.12 row consume: a user who may do nothing may wait for replies."""
    user = make_user("/", "^$", "^$", "^$")
    connect(user, user).channel().consume(REPLY_TO, no_ack=True)


def test_one_reply_consumer_for_a_channel(channel: Channel) -> None:
    """§4.12 row consume: the second is refused."""
    channel.consume(REPLY_TO, no_ack=True)
    channel.send(BasicConsume, queue=REPLY_TO, no_ack=True)
    channel.expect_close(406, "PRECONDITION_FAILED - reply consumer already set", BasicConsume)


def test_replies_cannot_be_acked(channel: Channel) -> None:
    """§4.12 row consume: no_ack is a must."""
    channel.send(BasicConsume, queue=REPLY_TO)
    channel.expect_close(406, "PRECONDITION_FAILED - reply consumer cannot acknowledge", BasicConsume)


def test_tag_of_the_reply_consumer_in_use(connection: Connection, channel: Channel) -> None:
    """§4.6 row tag in use, for the reply consumer: the tag of a real consumer is taken."""
    channel.consume(channel.declare(exclusive=True), consumer_tag="t")
    channel.send(BasicConsume, queue=REPLY_TO, consumer_tag="t", no_ack=True)
    connection.expect_connection_close(530, "NOT_ALLOWED - attempt to reuse consumer tag 't'", BasicConsume)


def test_cancel(channel: Channel, responder: Channel) -> None:
    """§4.12 row cancel: cancel-ok; one may consume again, with a new reply name; the old one is dead."""
    old = request_name(channel)
    channel.call(BasicCancel, consumer_tag="replies")
    new = request_name(channel)
    assert new != old
    responder.call(ConfirmSelect)
    responder.publish("", old, b"to the old one")
    responder.expect(BasicAck)
    responder.publish("", new, b"to the new one")
    assert channel.deliver().body == b"to the new one"


def test_request_after_the_cancel(channel: Channel) -> None:
    """§4.12 row cancel, §4.1 row 7: without the consumer a request is refused again."""
    channel.consume(REPLY_TO, consumer_tag="t", no_ack=True)
    channel.call(BasicCancel, consumer_tag="t")
    channel.publish("", "nowhere", b"x", Properties(reply_to=REPLY_TO))
    channel.expect_close(406, "PRECONDITION_FAILED - fast reply consumer does not exist", BasicPublish)


# Requests.


def test_the_reply_name(channel: Channel) -> None:
    """§4.12 row publish: the property becomes a name under the base name, about 87 characters."""
    name = request_name(channel)
    assert re.fullmatch(r"amq\.rabbitmq\.reply-to\.[A-Za-z0-9+/=]+\.[A-Za-z0-9+/=]+", name)
    assert 60 < len(name) < 200


def test_the_reply_name_is_the_consumers(channel: Channel) -> None:
    """§4.12 row publish: all requests of one reply consumer carry the same name."""
    assert request_name(channel) == next_name(channel)


def test_the_reply_name_is_for_the_same_channel(connection: Connection, channel: Channel) -> None:
    """§4.12 row publish: another channel of the connection has no reply consumer."""
    channel.consume(REPLY_TO, no_ack=True)
    other = connection.channel(2)
    other.publish("", "nowhere", b"x", Properties(reply_to=REPLY_TO))
    other.expect_close(406, "PRECONDITION_FAILED - fast reply consumer does not exist", BasicPublish)


def test_other_reply_to_values_are_left_alone(channel: Channel) -> None:
    """§4.12 row publish: exactly the base name is rewritten, nothing else."""
    channel.consume(REPLY_TO, no_ack=True)
    queue = channel.declare(exclusive=True)
    for reply_to in ("", "amq.rabbitmq.reply-to.", "amq.rabbitmq.reply-to.abc", "AMQ.rabbitmq.reply-to"):
        channel.publish("", queue, b"x", Properties(reply_to=reply_to))
        assert channel.wait_get(queue).properties.reply_to == reply_to


def test_the_other_properties_stay(channel: Channel) -> None:
    """§4.12 row publish: only reply_to is rewritten."""
    channel.consume(REPLY_TO, no_ack=True)
    queue = channel.declare(exclusive=True)
    headers = {"b": long(1), "a": array([longstr("x")])}
    sent = Properties(
        content_type="t", headers=headers, correlation_id="c", reply_to=REPLY_TO, expiration="60000"
    )
    channel.publish("", queue, b"request", sent)
    content = channel.wait_get(queue)
    came = content.properties
    assert list(content.headers.items()) == list(headers.items())
    assert (came.content_type, came.correlation_id, came.expiration) == ("t", "c", "60000")
    assert came.message_id is None


# Replies.


def test_replies(channel: Channel, responder: Channel) -> None:
    """§4.12 row responder: consumer tag, no exchange, the name as key, not redelivered, a tag that stays."""
    name = request_name(channel)
    # The request was fetched by the same channel, so the next tag there is 2.
    for body in (b"1", b"2", b"3"):
        responder.publish("", name, body, Properties(correlation_id="c"))
        reply = channel.deliver()
        assert reply.method == BasicDeliver(
            consumer_tag="replies", delivery_tag=2, redelivered=False, exchange="", routing_key=name
        )
        assert (reply.body, reply.properties.correlation_id) == (body, "c")
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"x")
    assert channel.wait_get(queue, no_ack=False).method.delivery_tag == 2


def test_the_tag_of_a_reply_cannot_be_acked(channel: Channel, responder: Channel) -> None:
    """§4.12 row responder, §4.10: no_ack, so its tag is unknown."""
    responder.publish("", request_name(channel), b"reply")
    tag = channel.deliver().method.delivery_tag
    channel.send(BasicAck, delivery_tag=tag)
    channel.expect_close(406, f"PRECONDITION_FAILED - unknown delivery tag {tag}", BasicAck)


def test_replies_to_two_channels(connection: Connection, channel: Channel, responder: Channel) -> None:
    """§4.12 row responder: each channel gets what was sent to its name."""
    other = connection.channel(2)
    first, second = request_name(channel), request_name(other)
    assert first != second
    responder.publish("", second, b"second")
    responder.publish("", first, b"first")
    assert channel.deliver().body == b"first"
    assert other.deliver().body == b"second"


def test_reply_of_the_channel_itself(channel: Channel) -> None:
    """§4.12 row responder: a channel may answer itself."""
    channel.publish("", request_name(channel), b"reply")
    assert channel.deliver().body == b"reply"


def test_large_reply(channel: Channel, responder: Channel) -> None:
    """§4.12 row responder: of any size."""
    body = bytes(range(256)) * 2000
    responder.publish("", request_name(channel), body)
    assert channel.deliver().body == body


def test_replies_ignore_the_prefetch(channel: Channel, responder: Channel) -> None:
    """§4.12: not a queue, so no limits."""
    channel.call(BasicQos, prefetch_count=1)
    name = request_name(channel)
    for body in (b"1", b"2", b"3"):
        responder.publish("", name, body)
        assert channel.deliver().body == body


def test_confirm_and_return_of_a_reply(channel: Channel, responder: Channel) -> None:
    """§4.12 row confirm: acked at once; a mandatory one is returned before that, though delivered."""
    name = request_name(channel)
    responder.call(ConfirmSelect)
    responder.publish("", name, b"1")
    assert responder.expect(BasicAck) == BasicAck(delivery_tag=1)
    responder.publish("", name, b"2", mandatory=True)
    returned = responder.expect_content(BasicReturn)
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.routing_key, returned.body) == (name, b"2")
    assert responder.expect(BasicAck) == BasicAck(delivery_tag=2)
    assert [channel.deliver().body for _ in range(2)] == [b"1", b"2"]


def test_a_reply_by_another_exchange(channel: Channel, responder: Channel) -> None:
    """§4.12 row via another exchange: not routed."""
    name = request_name(channel)
    responder.publish("amq.direct", name, b"lost", mandatory=True)
    responder.expect_content(BasicReturn)
    responder.publish("", name, b"reply")
    assert channel.deliver().body == b"reply"


def test_a_reply_by_cc(channel: Channel, responder: Channel) -> None:
    """§4.12 row CC: on the default exchange it works; the key delivered is the publish key."""
    name = request_name(channel)
    headers = {"CC": array([longstr(name)])}
    responder.publish("", "elsewhere", b"reply", Properties(headers=headers))
    reply = channel.deliver()
    assert (reply.body, reply.method.routing_key) == (b"reply", "elsewhere")


@pytest.mark.parametrize(
    "key",
    [
        "amq.rabbitmq.reply-to.bogus",
        "amq.rabbitmq.reply-to.",
        "amq.rabbitmq.reply-to..",
        REPLY_TO,
    ],
)
def test_a_reply_to_a_bogus_name(responder: Channel, key: str) -> None:
    """§4.12 rows bogus and base name: unroutable: acked, and returned if mandatory."""
    responder.call(ConfirmSelect)
    responder.publish("", key, b"x")
    assert responder.expect(BasicAck).delivery_tag == 1
    responder.publish("", key, b"x", mandatory=True)
    assert responder.expect_content(BasicReturn).method.routing_key == key
    assert responder.expect(BasicAck).delivery_tag == 2


@pytest.mark.parametrize("key", ["bogus.key", "g1h2AA5yZXBseUA.AAAA", "====.====", "é.\x01"])
def test_a_reply_to_a_name_of_the_right_shape(responder: Channel, key: str) -> None:
    """§4.12 row bogus: dropped and acked. RabbitMQ fails to decode it (541), which is no model."""
    responder.call(ConfirmSelect)
    responder.publish("", f"{REPLY_TO}.{key}", b"x")
    answer = responder.connection.read_frame()
    method = decode_method(answer.payload)
    if isinstance(method, ConnectionClose):
        assert (method.reply_code, method.reply_text) == (541, "INTERNAL_ERROR")
    else:
        assert method == BasicAck(delivery_tag=1)


def test_a_reply_to_a_channel_that_is_gone(
    connection: Connection, channel: Channel, responder: Channel
) -> None:
    """§4.12 row gone: dropped, acked; the number may be open again, the name stays dead."""
    name = request_name(channel)
    channel.close()
    channel = connection.channel(1)
    channel.consume(REPLY_TO, no_ack=True)
    responder.call(ConfirmSelect)
    responder.publish("", name, b"late")
    assert responder.expect(BasicAck).delivery_tag == 1
    channel.expect_nothing(0.05)


def test_a_forged_key(channel: Channel, responder: Channel) -> None:
    """§4.12 row bogus: the last part must be the requester's secret."""
    name = request_name(channel)
    forged = name[:-6] + ("AAAAAA" if name[-6:] != "AAAAAA" else "BBBBBB")
    responder.call(ConfirmSelect)
    responder.publish("", forged, b"forged")
    responder.expect(BasicAck)
    responder.publish("", name, b"reply")
    assert channel.deliver().body == b"reply"


# The name as a queue.


@pytest.mark.parametrize("passive", [False, True])
def test_declare_of_the_full_name(
    connection: Connection, channel: Channel, responder: Channel, passive: bool
) -> None:
    """§4.12 row declare: 0 messages, 1 consumer while the requester lives; then 404."""
    name = request_name(channel)
    alive = responder.call(QueueDeclare, queue=name, passive=passive)
    assert alive == QueueDeclareOk(queue=name, message_count=0, consumer_count=1)
    channel.close()
    responder.send(QueueDeclare, queue=name, passive=passive)
    responder.expect_close(404, NO_QUEUE.format(name), QueueDeclare)


@pytest.mark.parametrize("passive", [False, True])
def test_declare_of_the_base_name(responder: Channel, passive: bool) -> None:
    """§4.12 row declare: the base name is always there, with 1 consumer."""
    answer = responder.call(QueueDeclare, queue=REPLY_TO, passive=passive)
    assert answer == QueueDeclareOk(queue=REPLY_TO, message_count=0, consumer_count=1)


def test_declare_needs_no_permission(
    connect: Callable[..., Connection], channel: Channel, make_user: Callable[..., str]
) -> None:
    """§4.12, §6.7 row reply-to pseudo queue: no permission is asked."""
    user = make_user("/", "^$", "^$", "^$")
    other = connect(user, user).channel()
    assert other.call(QueueDeclare, queue=request_name(channel)).consumer_count == 1


def test_get_of_the_base_name(channel: Channel) -> None:
    """§4.12 row get / bind: no queue."""
    channel.send(BasicGet, queue=REPLY_TO)
    channel.expect_close(404, NO_QUEUE.format(REPLY_TO), BasicGet)


def test_bind_of_the_base_name(channel: Channel) -> None:
    """§4.12 row get / bind: no queue."""
    channel.send(QueueBind, queue=REPLY_TO, exchange="amq.direct", routing_key="k")
    channel.expect_close(404, NO_QUEUE.format(REPLY_TO), QueueBind)


def test_the_requester_disconnects(connect: Callable[..., Connection], responder: Channel) -> None:
    """§4.12: replies are lost when the requester is gone, also without a close; its name is then unknown."""
    requester = connect()
    name = request_name(requester.channel())
    requester.socket.close()

    def is_gone() -> bool:
        responder.send(QueueDeclare, queue=name, passive=True)
        arrived = responder.connection.next_frame(1)
        if arrived.payload.startswith(b"\0\x14\0\x28"):
            return True
        assert arrived.payload.startswith(b"\0\x32\0\x0b")
        return False

    wait_until(is_gone, "the reply name is unknown")
