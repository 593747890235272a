"""amqp-behaviour §2: channels open, fail and close."""

import time
from collections.abc import Callable

import pytest

from node.amqp import methods
from node.amqp.methods import (
    AccessRequest,
    AccessRequestOk,
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicPublish,
    BasicQos,
    BasicRecover,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueuePurge,
)
from tests.kit.amqp_client import Channel, Connection
from tests.kit.servers import Admin

Connect = Callable[..., Connection]
Name = Callable[[str], str]
MakeUser = Callable[..., str]

SECOND_OPEN = "CHANNEL_ERROR - second 'channel.open' seen"
NOT_OPEN = "CHANNEL_ERROR - expected 'channel.open'"


def _no_queue(queue: str) -> str:
    return f"NOT_FOUND - no queue '{queue}' in vhost '/'"


def _fail(channel: Channel, missing: str) -> None:
    """Make the channel fail; its channel.close is left unread."""
    channel.send(QueueDeclare, queue=missing, passive=True)


def _message_count(channel: Channel, queue: str) -> int:
    count: int = channel.call(QueueDeclare, queue=queue, passive=True).message_count
    return count


# §2.1 Open and close


def test_open(connection: Connection) -> None:
    """§2.1 row channel.open: open-ok with an empty longstr; out-of-band is ignored."""
    connection.send(ChannelOpen, 1, out_of_band="anything")
    assert connection.expect(ChannelOpenOk, 1) == ChannelOpenOk(channel_id=b"")


def test_second_open(channel: Channel) -> None:
    """§2.1 row second open on same number."""
    channel.send(ChannelOpen)
    channel.connection.expect_connection_close(504, SECOND_OPEN, ChannelOpen)


@pytest.mark.parametrize(
    "method",
    [
        QueueDeclare(queue="q"),
        BasicAck(delivery_tag=1),
        ChannelClose(reply_code=200, reply_text="bye"),
        ChannelCloseOk(),
        ChannelFlow(),
        AccessRequest(),
        methods.TxSelect(),
        methods.ConnectionClose(reply_code=200, reply_text="bye"),
        methods.QueueDeclareOk(),
    ],
    ids=lambda method: method.name,
)
def test_method_on_a_number_never_opened(method: Method, connection: Connection) -> None:
    """§2.1 row any other method on a never-opened number, incl. channel.close / close-ok."""
    connection.send(method, 1)
    connection.expect_connection_close(504, NOT_OPEN, type(method))


def test_publish_on_a_number_never_opened(connection: Connection) -> None:
    """§2.1 the same for a content: seen when it is complete."""
    connection.publish(1, "", "nobody", b"x")
    connection.expect_connection_close(504, NOT_OPEN, BasicPublish)


def test_method_on_a_closed_number(channel: Channel) -> None:
    """§2.1: a number that was closed is not open."""
    channel.close()
    channel.send(QueueDeclare, queue="q")
    channel.connection.expect_connection_close(504, NOT_OPEN, QueueDeclare)


def test_close_ok_on_an_open_channel(channel: Channel) -> None:
    """§2.1 row channel.close-ok on an open channel not closing."""
    channel.send(ChannelCloseOk)
    text = "COMMAND_INVALID - unimplemented method"
    channel.connection.expect_connection_close(503, text, ChannelCloseOk)


def test_number_above_channel_max(connect: Connect) -> None:
    """§2.1 row channel number > channel_max but count below: the limit counts, numbers are free."""
    connection = connect(channel_max=2)
    connection.channel(65535).sync()
    connection.channel(3).sync()


def test_one_channel_too_many(connect: Connect) -> None:
    """§2.1 row open channels = channel_max and one more."""
    connection = connect(channel_max=2)
    connection.channel(1)
    connection.channel(2)
    connection.send(ChannelOpen, 3)
    text = "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
    connection.expect_connection_close(530, text, None)


def test_closed_channels_do_not_count(connect: Connect) -> None:
    """§2.1: the limit is on what is open now."""
    connection = connect(channel_max=1)
    for number in range(1, 6):
        connection.channel(number).close()


def test_failed_channels_count_until_close_ok(connect: Connect, name: Name) -> None:
    """§2.1, §2.2: after the answered channel.close the place is free."""
    connection = connect(channel_max=1)
    for number in (1, 2, 3):
        channel = connection.channel(number)
        missing = name("missing")
        _fail(channel, missing)
        channel.expect_close(404, _no_queue(missing), QueueDeclare)


@pytest.mark.slow
def test_all_2047_channels(connect: Connect) -> None:
    """§2.1: 2047 channels can be open at once; the next is refused."""
    connection = connect()
    for number in range(1, 2048):
        connection.send(ChannelOpen, number)
    for number in range(1, 2048):
        connection.expect(ChannelOpenOk, number)
    connection.send(ChannelOpen, 2048)
    text = "NOT_ALLOWED - number of channels opened (2047) has reached the negotiated channel_max (2047)"
    connection.expect_connection_close(530, text, None)


def test_user_channel_limit(connect: Connect, make_user: MakeUser, admin: Admin) -> None:
    """§2.1 row user max-channels reached: over all connections of the user."""
    user = make_user()
    admin.set_user_limits(user, {"max-channels": 1})
    connect(user, user).channel()
    text = (
        f"NOT_ALLOWED - number of channels opened for user '{user}' has reached"
        " the maximum allowed user limit of (1)"
    )
    deadline = time.monotonic() + 5
    while True:  # RabbitMQ counts a little late
        other = connect(user, user)
        other.send(ChannelOpen, 1)
        try:
            other.expect(ChannelOpenOk, 1)
        except AssertionError:
            break
        assert time.monotonic() < deadline
        other.close()
        time.sleep(0.1)
    other.expect_connection_close(530, text, None)


def test_user_channel_limit_of_zero(connect: Connect, make_user: MakeUser, admin: Admin) -> None:
    """§2.1 row user max-channels reached: 0 refuses the first."""
    user = make_user()
    admin.set_user_limits(user, {"max-channels": 0})
    connection = connect(user, user)
    connection.send(ChannelOpen, 1)
    text = (
        f"NOT_ALLOWED - number of channels opened for user '{user}' has reached"
        " the maximum allowed user limit of (0)"
    )
    connection.expect_connection_close(530, text, None)


def test_close_requeues_before_close_ok(connection: Connection, channel: Channel) -> None:
    """§2.1 row client channel.close: unacked requeued before close-ok."""
    queue = channel.declare(exclusive=True)
    other = connection.channel(2)
    for body in (b"1", b"2", b"3"):
        channel.publish("", queue, body)
        channel.wait_get(queue, no_ack=False)
    channel.close()
    assert _message_count(other, queue) == 3
    assert [other.wait_get(queue).body for _ in range(3)] == [b"1", b"2", b"3"]


def test_close_ends_consumers_before_close_ok(connection: Connection, channel: Channel) -> None:
    """§2.1 row client channel.close: consumers gone."""
    queue = channel.declare(exclusive=True)
    channel.consume(queue)
    other = connection.channel(2)
    assert other.call(QueueDeclare, queue=queue, passive=True).consumer_count == 1
    channel.close()
    assert other.call(QueueDeclare, queue=queue, passive=True).consumer_count == 0


def test_close_deletes_auto_delete_queues_before_close_ok(connection: Connection, name: Name) -> None:
    """§2.1 row client channel.close: auto-delete queues of its last consumers removed."""
    other = connection.channel(100)
    for _ in range(5):
        channel = connection.channel(1)
        queue = channel.declare(name("q"), auto_delete=True)
        channel.consume(queue)
        channel.close()
        other.send(QueueDeclare, queue=queue, passive=True)
        other.expect_close(404, _no_queue(queue), QueueDeclare)
        other = connection.channel(100)


def test_number_is_reusable_at_once(connection: Connection) -> None:
    """§2.1 row client channel.close: number reusable at once."""
    for _ in range(20):
        connection.channel(1).close()


def test_flow_on(channel: Channel) -> None:
    """§2.1 row channel.flow active=true."""
    assert channel.call(ChannelFlow, active=True) == ChannelFlowOk(active=True)


def test_flow_off(channel: Channel) -> None:
    """§2.1 row channel.flow active=false, §2.4."""
    channel.send(ChannelFlow, active=False)
    channel.connection.expect_connection_close(540, "NOT_IMPLEMENTED - active=false", ChannelFlow)


def test_access_request(channel: Channel) -> None:
    """§2.1 row access.request: ticket 1, whatever is asked."""
    assert channel.call(AccessRequest) == AccessRequestOk(ticket=1)
    assert channel.call(AccessRequest, realm="", exclusive=True, passive=False) == AccessRequestOk(ticket=1)


# §2.2 After a server channel.close


def test_failed_channel_is_cleaned_up_first(connection: Connection, channel: Channel, name: Name) -> None:
    """§2.2: consumers removed and unacked requeued, then channel.close."""
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"once")
    channel.wait_get(queue, no_ack=False)
    channel.consume(queue, consumer_tag="tag")
    other = connection.channel(2)
    missing = name("missing")
    _fail(channel, missing)
    channel.expect(ChannelClose)
    declared = other.call(QueueDeclare, queue=queue, passive=True)
    assert declared == QueueDeclareOk(queue=queue, message_count=1, consumer_count=0)


def test_failed_channel_drops_everything(connection: Connection, channel: Channel, name: Name) -> None:
    """§2.2: every method and content is silently dropped until close-ok."""
    missing, queue = name("missing"), name("q")
    target = connection.channel(2).declare(exclusive=True)
    _fail(channel, missing)
    channel.expect(ChannelClose)
    channel.send(QueueDeclare, queue=queue)
    channel.publish("", target, b"dropped")
    channel.send(QueueDelete, queue=target)
    channel.send(BasicAck, delivery_tag=99)
    channel.expect_nothing(0.1)
    channel.send(ChannelCloseOk)
    other = connection.channel(2 + 1)
    assert _message_count(other, target) == 0
    other.send(QueueDeclare, queue=queue, passive=True)
    other.expect_close(404, _no_queue(queue), QueueDeclare)


def test_content_in_flight_when_the_channel_fails(
    connection: Connection, channel: Channel, name: Name
) -> None:
    """§2.2: what was sent in the same write as the failing method is dropped too."""
    missing, exchange = name("missing"), name("exchange")
    target = connection.channel(2).declare(exclusive=True)
    channel.publish(exchange, "k", b"x")
    channel.publish("", target, b"dropped")
    channel.send(QueueDeclare, queue=missing, passive=True)
    channel.expect_close(404, f"NOT_FOUND - no exchange '{exchange}' in vhost '/'", BasicPublish)
    assert _message_count(connection.channel(3), target) == 0


def test_close_on_a_failed_channel(connection: Connection, channel: Channel, name: Name) -> None:
    """§2.2: channel.close is answered with close-ok; the state still waits for our close-ok."""
    missing = name("missing")
    _fail(channel, missing)
    channel.expect(ChannelClose)
    channel.send(ChannelClose, reply_code=200, reply_text="bye")
    channel.expect(ChannelCloseOk)
    channel.send(QueueDeclare, queue=missing, passive=True)
    channel.expect_nothing(0.1)
    channel.send(ChannelCloseOk)
    connection.channel(1).sync()


def test_open_on_a_failed_channel(connection: Connection, channel: Channel, name: Name) -> None:
    """§2.2: channel.open before close-ok."""
    _fail(channel, name("missing"))
    channel.expect(ChannelClose)
    channel.send(ChannelOpen)
    connection.expect_connection_close(504, SECOND_OPEN, ChannelOpen)


def test_failed_number_is_reusable(connection: Connection, name: Name) -> None:
    """§2.2: after close-ok the same number can be opened again immediately, with a new state."""
    for _ in range(10):
        channel = connection.channel(1)
        missing = name("missing")
        _fail(channel, missing)
        channel.expect_close(404, _no_queue(missing), QueueDeclare)
    connection.channel(1).sync()


def test_nothing_is_sent_after_the_close(connection: Connection, channel: Channel, name: Name) -> None:
    """§2.2: no deliveries, confirms or returns on it after the close frame."""
    queue = channel.declare(exclusive=True)
    other = connection.channel(2)
    channel.call(ConfirmSelect)
    channel.consume(queue, no_ack=True)
    missing = name("missing")
    _fail(channel, missing)
    channel.publish("", name("nobody"), b"unroutable", mandatory=True)
    channel.publish("", queue, b"routable")
    channel.expect(ChannelClose)
    other.publish("", queue, b"for nobody")
    channel.expect_nothing(0.2)
    assert _message_count(other, queue) == 1


def test_other_channels_live_on(connection: Connection, channel: Channel, name: Name) -> None:
    """§2.2: the failure is the channel's alone."""
    other = connection.channel(2)
    queue = other.declare(exclusive=True)
    other.consume(queue, no_ack=True)
    missing = name("missing")
    _fail(channel, missing)
    channel.expect_close(404, _no_queue(missing), QueueDeclare)
    other.publish("", queue, b"alive")
    assert other.deliver().body == b"alive"


def test_connection_close_after_a_failure(connection: Connection, channel: Channel, name: Name) -> None:
    """§2.2: connection.close works without answering the channel.close."""
    _fail(channel, name("missing"))
    channel.expect(ChannelClose)
    connection.close()


# §2.3 Pipelining


def test_replies_come_in_order(channel: Channel, name: Name) -> None:
    """§2.3: synchronous methods may be pipelined.

    Except basic.consume: RabbitMQ's consume-ok comes from the queue's process, so later ones may overtake it.
    """
    queues = [name("q") for _ in range(20)]
    for queue in queues:
        channel.send(QueueDeclare, queue=queue, exclusive=True)
        channel.send(QueueBind, queue=queue, exchange="amq.direct", routing_key=queue)
        channel.send(QueuePurge, queue=queue)
    for queue in queues:
        assert channel.expect(QueueDeclareOk).queue == queue
        channel.expect(methods.QueueBindOk)
        channel.expect(methods.QueuePurgeOk)


def test_nowait_is_silent(channel: Channel, name: Name) -> None:
    """§2.3: nowait=true suppresses the reply of every method that has it."""
    queue, exchange = name("q"), name("x")
    for method in (
        ExchangeDeclare(exchange=exchange, nowait=True),
        QueueDeclare(queue=queue, nowait=True),
        QueueBind(queue=queue, exchange=exchange, nowait=True),
        methods.ExchangeBind(destination=exchange, source="amq.direct", nowait=True),
        methods.ExchangeUnbind(destination=exchange, source="amq.direct", nowait=True),
        BasicConsume(queue=queue, consumer_tag="t", nowait=True),
        BasicCancel(consumer_tag="t", nowait=True),
        QueuePurge(queue=queue, nowait=True),
        ConfirmSelect(nowait=True),
        QueueDelete(queue=queue, nowait=True),
        methods.ExchangeDelete(exchange=exchange, nowait=True),
    ):
        channel.send(method)
    channel.sync()


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (QueueDeclare(queue="@", passive=True, nowait=True), "queue"),
        (QueueBind(queue="@", exchange="amq.direct", nowait=True), "queue"),
        (QueuePurge(queue="@", nowait=True), "queue"),
        (BasicConsume(queue="@", nowait=True), "queue"),
        (ExchangeDeclare(exchange="@", passive=True, nowait=True), "exchange"),
        (methods.ExchangeBind(destination="@", source="amq.direct", nowait=True), "exchange"),
    ],
    ids=lambda value: value.name if isinstance(value, Method) else value,
)
def test_nowait_errors_are_not_silent(method: Method, kind: str, channel: Channel) -> None:
    """§2.3: errors still close the channel."""
    channel.send(method)
    channel.expect_close(404, f"NOT_FOUND - no {kind} '@' in vhost '/'", type(method))


# §2.4 Which scope


@pytest.mark.parametrize(
    ("method", "code", "text"),
    [
        (
            ExchangeDeclare(exchange="x", type="nonsense-type"),
            503,
            "COMMAND_INVALID - unknown exchange type 'nonsense-type'",
        ),
        (BasicQos(prefetch_size=1), 540, "NOT_IMPLEMENTED - prefetch_size!=0 (1)"),
        (BasicRecover(requeue=False), 540, "NOT_IMPLEMENTED - requeue=false"),
    ],
    ids=lambda value: value.name if isinstance(value, Method) else "",
)
def test_connection_scope(method: Method, code: int, text: str, channel: Channel) -> None:
    """§2.4: unknown exchange type, prefetch_size, recover requeue=false."""
    channel.send(method)
    channel.connection.expect_connection_close(code, text, type(method))


def test_duplicate_consumer_tag(channel: Channel) -> None:
    """§2.4 and traps: kills the connection."""
    queue = channel.declare(exclusive=True)
    channel.consume(queue, consumer_tag="twice")
    channel.send(BasicConsume, queue=queue, consumer_tag="twice")
    text = "NOT_ALLOWED - attempt to reuse consumer tag 'twice'"
    channel.connection.expect_connection_close(530, text, BasicConsume)


def test_immediate(channel: Channel) -> None:
    """§2.4: immediate."""
    channel.publish("", "nobody", b"x", immediate=True)
    channel.connection.expect_connection_close(540, "NOT_IMPLEMENTED - immediate=true", BasicPublish)


def test_channel_scope(connect: Connect, make_user: MakeUser, name: Name) -> None:
    """§2.4: all 403, 404, 405 and 406 close the channel only."""
    queue, user = name("q"), make_user("/", "^$", "^$", "^$")
    owner = connect().channel()
    owner.declare(queue, exclusive=True)
    connection = connect(user, user)
    channel = connection.channel()
    channel.send(QueueDeclare, queue="mine")
    text = f"ACCESS_REFUSED - access to queue 'mine' in vhost '/' refused for user '{user}'"
    channel.expect_close(403, text, QueueDeclare)
    channel = connection.channel()
    channel.send(QueueDeclare, queue=queue, passive=True)
    text = (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'. It could"
        " be originally declared on another connection or the exclusive property value does not match that of"
        " the original declaration."
    )
    channel.expect_close(405, text, QueueDeclare)
    channel = connection.channel()
    channel.send(BasicAck, delivery_tag=7)
    channel.expect_close(406, "PRECONDITION_FAILED - unknown delivery tag 7", BasicAck)
    connection.channel().sync()


# §2.4, traps


def test_ack_on_the_wrong_channel(connection: Connection, channel: Channel) -> None:
    """§2.4, traps: delivery tags are per channel."""
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"x")
    tag = channel.wait_get(queue, no_ack=False).method.delivery_tag
    other = connection.channel(2)
    other.send(BasicAck, delivery_tag=tag)
    other.expect_close(406, f"PRECONDITION_FAILED - unknown delivery tag {tag}", BasicAck)


def test_cancel_on_another_channel(connection: Connection, channel: Channel) -> None:
    """§2.4, traps: cancel-ok, but nothing is cancelled."""
    queue = channel.declare(exclusive=True)
    channel.consume(queue, consumer_tag="t", no_ack=True)
    other = connection.channel(2)
    assert other.call(BasicCancel, consumer_tag="t") == BasicCancelOk(consumer_tag="t")
    other.publish("", queue, b"still consumed")
    assert channel.deliver().body == b"still consumed"
