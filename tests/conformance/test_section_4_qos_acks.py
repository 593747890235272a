"""amqp-behaviour §4.9 prefetch, §4.10 acknowledgements."""

import os
import time
from collections.abc import Callable

import pytest

from node.amqp.constants import FRAME_METHOD
from node.amqp.method_codec import decode_method
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicDeliver,
    BasicNack,
    BasicQos,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
    QueueDelete,
)
from tests.conformance.queue_steps import drain, expect_no_delivery, hold, let_pass, publish_each, take
from tests.kit.amqp_client import Channel, Connection, Content
from tests.kit.rabbit_server import RabbitServer
from tests.kit.servers import Server

Settling = BasicAck | BasicNack | BasicReject


def bodies(contents: list[Content]) -> list[bytes]:
    return [content.body for content in contents]


def expect_deliveries(channel: Channel, queue: str, *expected: bytes) -> None:
    """Exactly these are delivered now."""
    assert bodies(take(channel, len(expected))) == list(expected)
    expect_no_delivery(channel, queue)


# §4.9.


@pytest.mark.parametrize("shared", [False, True])
def test_prefetch_size(connection: Connection, channel: Channel, shared: bool) -> None:
    """§4.9: a limit in bytes is not implemented, which ends the connection."""
    channel.send(BasicQos, prefetch_size=10, global_=shared)
    connection.expect_connection_close(540, "NOT_IMPLEMENTED - prefetch_size!=0 (10)", BasicQos)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("count", [0, 1, 65535])
def test_prefetch_count(channel: Channel, count: int, shared: bool) -> None:
    """§4.9: 0 to 65535; 0 is no limit."""
    channel.call(BasicQos, prefetch_count=count, global_=shared)
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2", b"3")
    channel.consume(queue)
    expect_deliveries(channel, queue, *[b"1", b"2", b"3"][: count or 3])


def test_consumer_limit_is_for_later_consumers(channel: Channel) -> None:
    """§4.9: global=false is for consumers created after it; existing ones keep theirs."""
    queues = [channel.declare(exclusive=True) for _ in range(3)]
    for queue in queues:
        publish_each(channel, queue, b"1", b"2", b"3")
    channel.call(BasicQos, prefetch_count=1)
    channel.consume(queues[0])
    expect_deliveries(channel, queues[0], b"1")
    channel.call(BasicQos, prefetch_count=2)
    expect_no_delivery(channel, queues[0])
    channel.consume(queues[1])
    expect_deliveries(channel, queues[1], b"1", b"2")
    channel.call(BasicQos, prefetch_count=0)
    expect_no_delivery(channel, queues[1])
    channel.consume(queues[2])
    expect_deliveries(channel, queues[2], b"1", b"2", b"3")


def test_consumer_limit_counts_for_each_consumer(channel: Channel) -> None:
    """§4.9: global=false counts that consumer's unacked, whatever others of the channel hold."""
    queue = channel.declare(exclusive=True)
    channel.call(BasicQos, prefetch_count=2)
    channel.consume(queue, consumer_tag="a")
    channel.consume(queue, consumer_tag="b")
    publish_each(channel, queue, b"1", b"2", b"3", b"4", b"5")
    came = take(channel, 4)
    expect_no_delivery(channel, queue)
    assert sorted(content.method.consumer_tag for content in came) == ["a", "a", "b", "b"]


@pytest.mark.parametrize("tag", ["a", "b"])
def test_consumer_limit_ignores_what_a_cancelled_one_has(channel: Channel, tag: str) -> None:
    """§4.9: global=false counts for the consumer that got it; whoever comes after it begins anew, whatever its tag."""
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2", b"3")
    channel.call(BasicQos, prefetch_count=1)
    channel.consume(queue, consumer_tag="a")
    expect_deliveries(channel, queue, b"1")
    channel.call(BasicCancel, consumer_tag="a")
    channel.consume(queue, consumer_tag=tag)
    expect_deliveries(channel, queue, b"2")


def test_consumer_limit_ignores_unacked_gets(channel: Channel) -> None:
    """§4.9: global=false doesn't count what basic.get took."""
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2", b"3")
    channel.get(queue, no_ack=False)
    channel.call(BasicQos, prefetch_count=1)
    channel.consume(queue)
    expect_deliveries(channel, queue, b"2")


@pytest.mark.parametrize("settle", [BasicAck(1), BasicNack(1, requeue=False), BasicReject(1, requeue=False)])
def test_settling_resumes_delivery(channel: Channel, settle: Settling) -> None:
    """§4.9: acking makes room, as do nack and reject."""
    queue = channel.declare(exclusive=True)
    channel.call(BasicQos, prefetch_count=1)
    channel.consume(queue)
    publish_each(channel, queue, b"1", b"2", b"3")
    expect_deliveries(channel, queue, b"1")
    channel.send(settle)
    expect_deliveries(channel, queue, b"2")


def test_consumer_limit_ignores_no_ack(channel: Channel) -> None:
    """§4.9: a no_ack consumer has no limit of its own."""
    queue = channel.declare(exclusive=True)
    channel.call(BasicQos, prefetch_count=1)
    channel.consume(queue, no_ack=True)
    publish_each(channel, queue, b"1", b"2", b"3")
    expect_deliveries(channel, queue, b"1", b"2", b"3")


def test_channel_limit_applies_at_once(channel: Channel) -> None:
    """§4.9: global=true is shared by all consumers of the channel, also those that are there."""
    queue = channel.declare(exclusive=True)
    channel.consume(queue, consumer_tag="a")
    channel.consume(queue, consumer_tag="b")
    channel.call(BasicQos, prefetch_count=3, global_=True)
    publish_each(channel, queue, b"1", b"2", b"3", b"4", b"5")
    expect_deliveries(channel, queue, b"1", b"2", b"3")
    channel.send(BasicAck, delivery_tag=2, multiple=True)
    expect_deliveries(channel, queue, b"4", b"5")


def test_channel_limit_counts_what_is_unacked_already(channel: Channel) -> None:
    """§4.9: deliveries from before the limit count."""
    queue = channel.declare(exclusive=True)
    channel.consume(queue)
    publish_each(channel, queue, b"1", b"2")
    expect_deliveries(channel, queue, b"1", b"2")
    channel.call(BasicQos, prefetch_count=2, global_=True)
    publish_each(channel, queue, b"3")
    expect_no_delivery(channel, queue)
    channel.send(BasicAck, delivery_tag=1)
    expect_deliveries(channel, queue, b"3")


def test_channel_limit_counts_unacked_gets(channel: Channel) -> None:
    """§4.9: so do the unacked gets from before it.

    RabbitMQ counts them even after they are acked; what an ack of theirs does isn't tested.
    """
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2", b"3")
    channel.get(queue, no_ack=False)
    channel.call(BasicQos, prefetch_count=1, global_=True)
    channel.consume(queue)
    expect_no_delivery(channel, queue)
    channel.call(BasicQos, prefetch_count=2, global_=True)
    expect_deliveries(channel, queue, b"2")


def test_channel_limit_does_not_count_later_gets(channel: Channel) -> None:
    """§4.9: a get made under the limit takes nothing of it: only deliveries count."""
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2", b"3")
    channel.call(BasicQos, prefetch_count=1, global_=True)
    channel.get(queue, no_ack=False)
    channel.consume(queue)
    expect_deliveries(channel, queue, b"2")


def test_channel_limit_spans_queues(channel: Channel) -> None:
    """§4.9: the unacked of the whole channel count, from any queue."""
    queues = [channel.declare(exclusive=True) for _ in range(2)]
    channel.call(BasicQos, prefetch_count=1, global_=True)
    for queue in queues:
        channel.consume(queue)
    publish_each(channel, queues[0], b"1")
    expect_deliveries(channel, queues[0], b"1")
    publish_each(channel, queues[1], b"2")
    expect_no_delivery(channel, queues[1])
    channel.send(BasicAck, delivery_tag=1)
    expect_deliveries(channel, queues[1], b"2")


def test_channel_limit_stops_no_ack_consumers(channel: Channel) -> None:
    """§4.9: once it is reached even no_ack consumers of that channel stop."""
    acked, no_ack = channel.declare(exclusive=True), channel.declare(exclusive=True)
    channel.call(BasicQos, prefetch_count=1, global_=True)
    channel.consume(acked)
    channel.consume(no_ack, no_ack=True)
    publish_each(channel, no_ack, b"1", b"2")
    expect_deliveries(channel, no_ack, b"1", b"2")
    publish_each(channel, acked, b"3")
    expect_deliveries(channel, acked, b"3")
    publish_each(channel, no_ack, b"4")
    expect_no_delivery(channel, no_ack)
    channel.send(BasicAck, delivery_tag=3)
    expect_deliveries(channel, no_ack, b"4")


def test_channel_limit_is_only_this_channels(connection: Connection, channel: Channel) -> None:
    """§4.9: another channel gets what this one may not."""
    queue, other = channel.declare(exclusive=True), connection.channel(2)
    channel.call(BasicQos, prefetch_count=1, global_=True)
    channel.consume(queue)
    publish_each(channel, queue, b"1", b"2")
    expect_deliveries(channel, queue, b"1")
    other.consume(queue)
    expect_deliveries(other, queue, b"2")


def test_zero_lifts_the_channel_limit(channel: Channel) -> None:
    """§4.9: global=true with 0."""
    queue = channel.declare(exclusive=True)
    channel.call(BasicQos, prefetch_count=1, global_=True)
    channel.consume(queue)
    publish_each(channel, queue, b"1", b"2", b"3")
    expect_deliveries(channel, queue, b"1")
    channel.call(BasicQos, prefetch_count=0, global_=True)
    expect_deliveries(channel, queue, b"2", b"3")


def test_raising_the_channel_limit_resumes_delivery(channel: Channel) -> None:
    """§4.9: raising the limit makes room at once."""
    queue = channel.declare(exclusive=True)
    channel.call(BasicQos, prefetch_count=1, global_=True)
    channel.consume(queue)
    publish_each(channel, queue, b"1", b"2", b"3")
    expect_deliveries(channel, queue, b"1")
    channel.call(BasicQos, prefetch_count=2, global_=True)
    expect_deliveries(channel, queue, b"2")


def test_a_consumer_limit_lifts_the_channel_limit(channel: Channel) -> None:
    """§4.9: global=false removes a channel-wide limit that was set earlier."""
    queue = channel.declare(exclusive=True)
    channel.call(BasicQos, prefetch_count=1, global_=True)
    channel.consume(queue)
    publish_each(channel, queue, b"1", b"2", b"3")
    expect_deliveries(channel, queue, b"1")
    channel.call(BasicQos, prefetch_count=1)
    expect_deliveries(channel, queue, b"2", b"3")


def test_both_limits(channel: Channel) -> None:
    """§4.9: both are in force when that of consumers is set first, then the channel's."""
    first, second = channel.declare(exclusive=True), channel.declare(exclusive=True)
    channel.call(BasicQos, prefetch_count=2)
    channel.call(BasicQos, prefetch_count=3, global_=True)
    channel.consume(first)
    channel.consume(second)
    publish_each(channel, first, b"1", b"2", b"more")
    expect_deliveries(channel, first, b"1", b"2")
    publish_each(channel, second, b"3", b"more")
    expect_deliveries(channel, second, b"3")


# §4.10.


@pytest.fixture(params=["ack", "nack", "reject"])
def settle(request: pytest.FixtureRequest) -> Callable[[int], Settling]:
    """The three methods that settle one delivery, by tag."""
    makers: dict[str, Callable[[int], Settling]] = {
        "ack": lambda tag: BasicAck(tag),
        "nack": lambda tag: BasicNack(tag, requeue=False),
        "reject": lambda tag: BasicReject(tag, requeue=False),
    }
    return makers[request.param]


def expect_unknown_tag(channel: Channel, settle: Settling) -> None:
    channel.send(settle)
    text = f"PRECONDITION_FAILED - unknown delivery tag {settle.delivery_tag}"
    channel.expect_close(406, text, type(settle))


@pytest.mark.parametrize("tag", [0, 3, 2**63])
def test_unknown_tag(channel: Channel, settle: Callable[[int], Settling], tag: int) -> None:
    """§4.10: a tag that was never given, and 0 without multiple."""
    hold(channel, 2)
    expect_unknown_tag(channel, settle(tag))


def test_settled_tag(channel: Channel, settle: Callable[[int], Settling]) -> None:
    """§4.10: a tag that was settled before; tags are never reused."""
    hold(channel, 3)
    channel.send(BasicAck, delivery_tag=2)
    expect_unknown_tag(channel, settle(2))


def test_no_ack_tag(channel: Channel, settle: Callable[[int], Settling]) -> None:
    """§4.10: the tag of a no_ack delivery."""
    queue = channel.declare(exclusive=True)
    channel.consume(queue, no_ack=True)
    channel.publish("", queue, b"x")
    expect_unknown_tag(channel, settle(channel.deliver().method.delivery_tag))


def test_tag_of_another_channel(
    connection: Connection, channel: Channel, settle: Callable[[int], Settling]
) -> None:
    """§4.10: tags are the channel's; the holder keeps its delivery."""
    queue, other = hold(channel, 1), connection.channel(2)
    expect_unknown_tag(other, settle(1))
    channel.send(BasicAck, delivery_tag=1)
    expect_no_delivery(channel, queue)


def test_close_for_an_unknown_tag_requeues(connection: Connection, channel: Channel) -> None:
    """§2.2 with §4.10: the channel's unacked go back before the close frame."""
    queue = hold(channel, 2)
    expect_unknown_tag(channel, BasicAck(3))
    assert drain(connection.channel(2), queue) == [b"1", b"2"]


def cancel_and_requeue(channel: Channel, queue: str) -> list[bytes]:
    """Stop the channel's consumer, requeue, and return which deliveries weren't settled yet."""
    channel.call(BasicCancel, consumer_tag=queue)
    channel.call(BasicRecover, requeue=True)
    return drain(channel, queue)


def test_multiple(channel: Channel) -> None:
    """§4.10: multiple settles the tag and all before it."""
    queue = hold(channel, 5)
    channel.send(BasicAck, delivery_tag=3, multiple=True)
    assert cancel_and_requeue(channel, queue) == [b"4", b"5"]


def test_multiple_with_gaps(channel: Channel) -> None:
    """§4.10: tags that are settled already don't hinder it."""
    queue = hold(channel, 5)
    channel.send(BasicAck, delivery_tag=2)
    channel.send(BasicNack, delivery_tag=3, multiple=True, requeue=False)
    channel.send(BasicAck, delivery_tag=4, multiple=True)
    assert cancel_and_requeue(channel, queue) == [b"5"]


@pytest.mark.parametrize("method", [BasicAck, BasicNack])
def test_multiple_zero(channel: Channel, method: type[BasicAck | BasicNack]) -> None:
    """§4.10: 0 with multiple is all that is outstanding."""
    queue = hold(channel, 3)
    fields = {} if method is BasicAck else {"requeue": False}
    channel.send(method, delivery_tag=0, multiple=True, **fields)
    assert cancel_and_requeue(channel, queue) == []


@pytest.mark.parametrize("method", [BasicAck, BasicNack])
def test_multiple_zero_with_nothing_outstanding(channel: Channel, method: type[BasicAck | BasicNack]) -> None:
    """§4.10: 0 with multiple is fine when there is nothing."""
    channel.send(method, delivery_tag=0, multiple=True)
    channel.sync()


@pytest.mark.parametrize("method", [BasicAck, BasicNack])
@pytest.mark.parametrize("tag", [2, 4])
def test_multiple_with_a_tag_that_is_not_outstanding(
    channel: Channel, method: type[BasicAck | BasicNack], tag: int
) -> None:
    """§4.10: multiple needs exactly that tag outstanding, even if lower ones are."""
    hold(channel, 3)
    channel.send(BasicAck, delivery_tag=2)
    expect_unknown_tag(channel, method(tag, True))


def test_ack_for_a_deleted_queue(connection: Connection, channel: Channel) -> None:
    """§4.10: silently fine."""
    queue = hold(channel, 3)
    connection.channel(2).call(QueueDelete, queue=queue)
    channel.send(BasicAck, delivery_tag=1)
    channel.send(BasicNack, delivery_tag=2)
    channel.send(BasicReject, delivery_tag=3, requeue=False)
    channel.sync()


def test_tags_go_on_after_settling(channel: Channel) -> None:
    """§4.10: tags rise by one for each delivery and are never used again."""
    queue = hold(channel, 2)
    channel.send(BasicAck, delivery_tag=0, multiple=True)
    channel.publish("", queue, b"3")
    assert channel.deliver().method.delivery_tag == 3
    channel.send(BasicNack, delivery_tag=3)
    assert channel.deliver().method.delivery_tag == 4


@pytest.mark.parametrize("settled_by", [BasicNack(1, requeue=False), BasicReject(1, requeue=False)])
def test_dropped_without_requeue(channel: Channel, settled_by: Settling) -> None:
    """§4.10: without requeue, and without a dead-letter exchange, it is gone."""
    queue = hold(channel, 1)
    channel.send(settled_by)
    assert cancel_and_requeue(channel, queue) == []


def test_recover(connection: Connection, channel: Channel) -> None:
    """§4.10: recover(requeue=true) requeues all unacked of the channel, then answers."""
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2", b"3")
    for _ in range(3):
        channel.get(queue, no_ack=False)
    channel.send(BasicAck, delivery_tag=2)
    assert channel.call(BasicRecover, requeue=True) == BasicRecoverOk()
    assert drain(connection.channel(2), queue) == [b"1", b"3"]


def test_recover_with_a_consumer(connection: Connection, channel: Channel) -> None:
    """§4.10: its consumer gets them again, redelivered; recover-ok may precede that or follow."""
    hold(channel, 2)
    channel.send(BasicRecover, requeue=True)
    frames = [connection.next_frame(1) for _ in range(7)]
    came = [decode_method(each.payload) for each in frames if each.type == FRAME_METHOD]
    assert BasicRecoverOk() in came
    again = [each for each in came if isinstance(each, BasicDeliver)]
    assert [(each.delivery_tag, each.redelivered) for each in again] == [(3, True), (4, True)]


def test_recover_async(channel: Channel) -> None:
    """§4.10: the same without an answer."""
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2")
    for _ in range(2):
        channel.get(queue, no_ack=False)
    channel.send(BasicRecoverAsync, requeue=True)
    again = [channel.get(queue) for _ in range(2)]
    assert [(content.body, content.method.redelivered) for content in again if content] == [
        (b"1", True),
        (b"2", True),
    ]


@pytest.mark.parametrize("method", [BasicRecover, BasicRecoverAsync])
def test_recover_without_requeue(
    connection: Connection, channel: Channel, method: type[BasicRecover | BasicRecoverAsync]
) -> None:
    """§4.10: not implemented, which ends the connection."""
    channel.send(method, requeue=False)
    connection.expect_connection_close(540, "NOT_IMPLEMENTED - requeue=false", method)


TIMED_OUT = (
    "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 400 ms."
    " This timeout value can be configured, see consumers doc guide to learn more"
)


@pytest.fixture
def impatient_server(server_with: Callable[..., Server]) -> Server:
    """A server with a delivery acknowledgement timeout of 400 ms, looked at every 100 ms."""
    if os.environ.get("FLUFFLE_TEST_AGAINST") != "rabbitmq":
        return server_with({"consumer_timeout": "400", "channel_tick_interval": "100"})
    server = server_with({"consumer_timeout": "400"})
    assert isinstance(server, RabbitServer)
    # Not a key of its rabbitmq.conf; the default is a minute.
    server.evaluate("application:set_env(rabbit, channel_tick_interval, 100)")
    return server


@pytest.mark.slow
@pytest.mark.parametrize("by_get", [False, True])
def test_acknowledgement_timeout(
    connect: Callable[..., Connection], impatient_server: Server, by_get: bool
) -> None:
    """§4.10: the oldest unacked delivery or get is too old: 406, ids 0, 0, and all unacked are requeued."""
    connection = connect(to=impatient_server)
    channel, other = connection.channel(1), connection.channel(2)
    queue = other.declare(exclusive=True)
    publish_each(other, queue, b"1", b"2")
    began = time.monotonic()
    if by_get:
        channel.get(queue, no_ack=False)
    else:
        channel.consume(queue)
        take(channel, 2)
    channel.expect_close(406, TIMED_OUT, None)
    assert time.monotonic() - began >= 0.4
    assert drain(other, queue) == [b"1", b"2"]


@pytest.mark.slow
def test_no_acknowledgement_timeout_for_what_is_acked(
    connect: Callable[..., Connection], impatient_server: Server
) -> None:
    """§4.10: acked in time and no_ack never time out, ready messages neither."""
    channel = connect(to=impatient_server).channel()
    queue, idle = channel.declare(exclusive=True), channel.declare(exclusive=True)
    publish_each(channel, idle, b"ready")
    channel.consume(queue)
    channel.consume(channel.declare(exclusive=True), no_ack=True)
    for _ in range(4):
        channel.publish("", queue, b"x")
        tag = channel.deliver().method.delivery_tag
        let_pass(channel, 200)
        channel.send(BasicAck, delivery_tag=tag)
    channel.sync()
