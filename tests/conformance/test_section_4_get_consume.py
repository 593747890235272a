"""amqp-behaviour §4.5 get, §4.6 consume, §4.7 cancel by the server, §4.8 who gets the next message."""

import re
from collections.abc import Callable

import pytest

from node.amqp.field_table import Field, Table, array, boolean, long, longstr, table
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    QueueDelete,
)
from tests.conformance.queue_steps import (
    consumer_count,
    drain,
    publish_burst,
    publish_each,
    ready_count,
    take,
)
from tests.kit.amqp_client import Channel, Connection
from tests.kit.patience import wait_until

Names = Callable[[str], str]

WANTS_CANCEL = {"capabilities": table({"consumer_cancel_notify": boolean(True)})}
SINGLE_ACTIVE = {"x-single-active-consumer": boolean(True)}


def in_exclusive_use(queue: str) -> str:
    return f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"


# §4.5.


def test_get_ok(channel: Channel) -> None:
    """§4.5: tag, redelivered, exchange, key, and how many ready messages are left after this one."""
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2", b"3")
    for tag, body, left in ((1, b"1", 2), (2, b"2", 1), (3, b"3", 0)):
        content = channel.get(queue, no_ack=False)
        assert content is not None
        assert content.method == BasicGetOk(
            delivery_tag=tag, redelivered=False, exchange="", routing_key=queue, message_count=left
        )
        assert content.body == body


def test_get_empty(channel: Channel) -> None:
    """§4.5: cluster-id is the empty string."""
    queue = channel.declare(exclusive=True)
    channel.send(BasicGet, queue=queue)
    assert channel.expect(BasicGetEmpty) == BasicGetEmpty(cluster_id="")


def test_message_count_excludes_the_unacked(channel: Channel) -> None:
    """§4.5: only ready messages are counted."""
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2", b"3")
    channel.get(queue, no_ack=False)
    assert ready_count(channel, queue) == 2


@pytest.mark.parametrize("shared", [False, True])
def test_get_ignores_the_prefetch(channel: Channel, shared: bool) -> None:
    """§4.5: a limit of one stops no get."""
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2")
    channel.call(BasicQos, prefetch_count=1, global_=shared)
    assert channel.get(queue, no_ack=False) is not None
    assert channel.get(queue, no_ack=False) is not None


def test_get_beside_an_exclusive_consumer(connection: Connection, channel: Channel) -> None:
    """§4.5: a get takes from a queue with an exclusive consumer (that is busy)."""
    queue = channel.declare(exclusive=True)
    consumer = connection.channel(2)
    consumer.call(BasicQos, prefetch_count=1)
    consumer.consume(queue, exclusive=True)
    publish_each(channel, queue, b"1", b"2")
    assert consumer.deliver().body == b"1"
    assert drain(channel, queue) == [b"2"]


def test_get_beside_a_single_active_consumer(connection: Connection, channel: Channel) -> None:
    """§4.5: classic queues allow get with x-single-active-consumer."""
    queue = channel.declare(exclusive=True, arguments=SINGLE_ACTIVE)
    consumer = connection.channel(2)
    consumer.call(BasicQos, prefetch_count=1)
    consumer.consume(queue)
    publish_each(channel, queue, b"1", b"2")
    assert consumer.deliver().body == b"1"
    assert drain(channel, queue) == [b"2"]


def test_tags_are_shared_by_gets_and_deliveries(channel: Channel) -> None:
    """§4.5, §4.10: one sequence for the channel; a no_ack get or delivery uses a number too."""
    queue, other = channel.declare(exclusive=True), channel.declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2", b"5")
    got = [channel.get(queue, no_ack=no_ack) for no_ack in (False, True)]
    assert [content.method.delivery_tag for content in got if content] == [1, 2]
    channel.consume(other, no_ack=True)
    channel.publish("", other, b"3")
    channel.publish("", other, b"4")
    assert [content.method.delivery_tag for content in take(channel, 2)] == [3, 4]
    content = channel.get(queue)
    assert content is not None
    assert content.method.delivery_tag == 5


@pytest.mark.parametrize("method", [BasicGet, BasicConsume])
def test_reading_needs_read(
    connect: Callable[..., Connection],
    channel: Channel,
    make_user: Callable[..., str],
    name: Names,
    method: type[BasicGet | BasicConsume],
) -> None:
    """§4.5, §6.7: read permission, asked before the queue is looked for."""
    user, queue = make_user("/", ".*", ".*", "^mine"), name("missing")
    other = connect(user, user).channel()
    other.send(method, queue=queue)
    text = f"ACCESS_REFUSED - access to queue '{queue}' in vhost '/' refused for user '{user}'"
    other.expect_close(403, text, method)


@pytest.mark.parametrize("method", [BasicGet, BasicConsume])
def test_reading_a_missing_queue(
    channel: Channel, name: Names, method: type[BasicGet | BasicConsume]
) -> None:
    """§4.5, §4.6: 404."""
    queue = name("missing")
    channel.send(method, queue=queue)
    channel.expect_close(404, f"NOT_FOUND - no queue '{queue}' in vhost '/'", method)


@pytest.mark.parametrize("method", [BasicGet, BasicConsume])
def test_reading_without_a_declared_queue(channel: Channel, method: type[BasicGet | BasicConsume]) -> None:
    """§3.8 for get and consume: the empty name means the last declared queue; there is none."""
    channel.send(method)
    channel.expect_close(404, "NOT_FOUND - no previously declared queue", method)


@pytest.mark.parametrize("method", [BasicGet, BasicConsume])
def test_reading_the_exclusive_queue_of_another(
    connect: Callable[..., Connection], channel: Channel, method: type[BasicGet | BasicConsume]
) -> None:
    """§4.5, §4.6, §0.2: 405, the lock of another connection."""
    queue = channel.declare(exclusive=True)
    other = connect().channel()
    other.send(method, queue=queue)
    pattern = rf"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{re.escape(queue)}' .*"
    other.expect_close(405, re.compile(pattern), method)


# §4.6.


def test_server_named_consumer(channel: Channel) -> None:
    """§4.6 row empty tag: the server makes one up."""
    queue = channel.declare(exclusive=True)
    first, second = channel.consume(queue), channel.consume(queue)
    assert re.fullmatch(r"amq\.ctag-[A-Za-z0-9_-]{22}", first)
    assert re.fullmatch(r"amq\.ctag-[A-Za-z0-9_-]{22}", second)
    assert first != second


def test_server_named_consumer_with_nowait(channel: Channel) -> None:
    """§4.6 row empty tag: with nowait only a delivery tells the tag."""
    queue = channel.declare(exclusive=True)
    channel.send(BasicConsume, queue=queue, nowait=True, no_ack=True)
    channel.publish("", queue, b"x")
    assert channel.deliver().method.consumer_tag.startswith("amq.ctag-")


def test_client_named_consumer(channel: Channel) -> None:
    """§4.6: a client's tag is used as it is, in consume-ok and deliver."""
    queue = channel.declare(exclusive=True)
    assert channel.consume(queue, consumer_tag="my tag é", no_ack=True) == "my tag é"
    channel.publish("", queue, b"x")
    delivery = channel.deliver().method
    assert (delivery.consumer_tag, delivery.delivery_tag, delivery.redelivered) == ("my tag é", 1, False)
    assert (delivery.exchange, delivery.routing_key) == ("", queue)


def test_tag_in_use(connection: Connection, channel: Channel) -> None:
    """§4.6 row tag in use: the connection ends."""
    channel.consume(channel.declare(exclusive=True), consumer_tag="t")
    channel.send(BasicConsume, queue=channel.declare(exclusive=True), consumer_tag="t")
    connection.expect_connection_close(530, "NOT_ALLOWED - attempt to reuse consumer tag 't'", BasicConsume)


def test_same_tag_on_another_channel(connection: Connection, channel: Channel) -> None:
    """§4.6 row same tag on another channel: fine; each gets its messages."""
    queue, other = channel.declare(exclusive=True), connection.channel(2)
    channel.consume(queue, consumer_tag="t", no_ack=True)
    other.consume(queue, consumer_tag="t", no_ack=True)
    publisher = connection.channel(3)
    publish_each(publisher, queue, b"1", b"2")
    assert channel.deliver().body == b"1"
    assert other.deliver().body == b"2"


def test_exclusive_consumer_beside_others(connection: Connection, channel: Channel) -> None:
    """§4.6 row exclusive: not while others consume; the name of the row's text."""
    queue, other = channel.declare(exclusive=True), connection.channel(2)
    channel.consume(queue)
    other.send(BasicConsume, queue=queue, exclusive=True)
    other.expect_close(403, in_exclusive_use(queue), BasicConsume)


@pytest.mark.parametrize("exclusive", [False, True])
def test_consumer_beside_an_exclusive_one(connection: Connection, channel: Channel, exclusive: bool) -> None:
    """§4.6 row exclusive: nobody else while there is one; after its cancel anybody."""
    queue, other = channel.declare(exclusive=True), connection.channel(2)
    tag = channel.consume(queue, exclusive=True)
    other.send(BasicConsume, queue=queue, exclusive=exclusive)
    other.expect_close(403, in_exclusive_use(queue), BasicConsume)
    channel.call(BasicCancel, consumer_tag=tag)
    connection.channel(2).consume(queue, exclusive=exclusive)


def test_exclusive_consumer_of_another_connection(connect: Callable[..., Connection], name: Names) -> None:
    """§4.6 row exclusive: 403 across connections too, until the holder's connection ends."""
    holder = connect()
    queue = holder.channel().declare(name("q"), arguments={"x-expires": long(60000)})
    holder.channel(2).consume(queue, exclusive=True)
    other = connect()
    refused = other.channel()
    refused.send(BasicConsume, queue=queue)
    refused.expect_close(403, in_exclusive_use(queue), BasicConsume)
    holder.close()
    channel = other.channel()
    channel.consume(queue, exclusive=True)
    channel.call(QueueDelete, queue=queue)


def test_exclusive_on_a_single_active_consumer_queue(channel: Channel) -> None:
    """§4.6 row exclusive on a SAC queue: the same 403."""
    queue = channel.declare(exclusive=True, arguments=SINGLE_ACTIVE)
    channel.send(BasicConsume, queue=queue, exclusive=True)
    channel.expect_close(403, in_exclusive_use(queue), BasicConsume)


def test_no_local_is_ignored(channel: Channel) -> None:
    """§4.6 row no_local: one's own messages come all the same."""
    queue = channel.declare(exclusive=True)
    channel.consume(queue, no_local=True, no_ack=True)
    channel.publish("", queue, b"mine")
    assert channel.deliver().body == b"mine"


@pytest.mark.parametrize("tag", ["b", "B", "s", "u", "I", "i", "l"])
def test_consumer_priority_of_any_width(connection: Connection, channel: Channel, tag: str) -> None:
    """§4.6 row x-priority: any integer counts, negatives too."""
    queue, other = channel.declare(exclusive=True), connection.channel(2)
    lower = Field(tag, 1) if tag in "Bui" else Field(tag, -1)
    channel.consume(queue, no_ack=True, arguments={"x-priority": lower})
    other.consume(queue, no_ack=True, arguments={"x-priority": Field(tag, 2)})
    other.publish("", queue, b"x")
    assert other.deliver().body == b"x"


@pytest.mark.parametrize(
    ("value", "type_name"),
    [
        (longstr("1"), "longstr"),
        (boolean(True), "bool"),
        (Field("d", 1.0), "double"),
        (Field("f", 1.0), "float"),
        (Field("V", None), "void"),
        (Field("D", (0, 1)), "decimal"),
        (Field("T", 1), "timestamp"),
        (Field("x", b"1"), "binary"),
        (table({}), "table"),
        (array([]), "array"),
    ],
)
def test_consumer_priority_of_another_type(channel: Channel, value: Field, type_name: str) -> None:
    """§4.6 row x-priority: what is no integer is refused by the name of its type."""
    queue = channel.declare(exclusive=True)
    channel.send(BasicConsume, queue=queue, arguments={"x-priority": value})
    text = (
        f"PRECONDITION_FAILED - invalid arg 'x-priority' for queue '{queue}' in vhost '/':"
        f' "expected integer, got {type_name}"'
    )
    channel.expect_close(406, text, BasicConsume)


@pytest.mark.parametrize("value", [True, False])
def test_cancel_on_ha_failover(channel: Channel, value: bool) -> None:
    """§4.6 row x-cancel-on-ha-failover: a bool."""
    queue = channel.declare(exclusive=True)
    channel.consume(queue, arguments={"x-cancel-on-ha-failover": boolean(value)})


def test_cancel_on_ha_failover_of_another_type(channel: Channel) -> None:
    """§4.6 row x-cancel-on-ha-failover: nothing but a bool."""
    queue = channel.declare(exclusive=True)
    channel.send(BasicConsume, queue=queue, arguments={"x-cancel-on-ha-failover": longstr("true")})
    text = (
        f"PRECONDITION_FAILED - invalid arg 'x-cancel-on-ha-failover' for queue '{queue}' in vhost '/':"
        " {unacceptable_type,longstr}"
    )
    channel.expect_close(406, text, BasicConsume)


def test_stream_offset(channel: Channel) -> None:
    """§4.6 row x-stream-offset: not for a classic queue."""
    queue = channel.declare(exclusive=True)
    channel.send(BasicConsume, queue=queue, arguments={"x-stream-offset": longstr("first")})
    text = (
        f"PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue '{queue}' in vhost '/'"
        " of queue type rabbit_classic_queue"
    )
    channel.expect_close(406, text, BasicConsume)


def test_unknown_consumer_arguments(channel: Channel) -> None:
    """§4.6 row unknown args: ignored."""
    queue = channel.declare(exclusive=True)
    arguments: Table = {"x-whatever": long(1), "y": table({"z": array([])})}
    channel.consume(queue, no_ack=True, arguments=arguments)
    channel.publish("", queue, b"x")
    assert channel.deliver().body == b"x"


def test_consume_ok_comes_first(channel: Channel) -> None:
    """§4.6: consume-ok precedes the first delivery, also when the queue is full already."""
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, *[b"x"] * 50)
    channel.send(BasicConsume, queue=queue, consumer_tag="t", no_ack=True)
    assert channel.expect(BasicConsumeOk) == BasicConsumeOk(consumer_tag="t")
    take(channel, 50)


def test_nothing_comes_after_cancel_ok(connection: Connection, channel: Channel) -> None:
    """§4.6: cancel-ok is the last of that tag; what was not delivered stays in the queue, nothing is lost."""
    queue, publisher = channel.declare(exclusive=True), connection.channel(2)
    publish_each(publisher, queue, *(b"%d" % number for number in range(1, 1001)))
    channel.consume(queue, consumer_tag="t", no_ack=True)
    channel.send(BasicCancel, consumer_tag="t")
    delivered = 0
    cancel_ok = b"\0\x3c\0\x1f\x01t"
    while (arrived := connection.next_frame(1)).payload != cancel_ok:
        delivered += arrived.payload.startswith(b"\0\x3c\0\x3c")
    assert ready_count(channel, queue) == 1000 - delivered
    assert drain(publisher, queue) == [b"%d" % number for number in range(delivered + 1, 1001)]
    channel.sync()


def test_cancel_of_an_unknown_tag(channel: Channel) -> None:
    """§4.6: cancel-ok."""
    assert channel.call(BasicCancel, consumer_tag="nobody") == BasicCancelOk(consumer_tag="nobody")


def test_cancel_on_another_channel(connection: Connection, channel: Channel) -> None:
    """§2.4 traps: cancel-ok on the wrong channel, but the consumer goes on."""
    queue = channel.declare(exclusive=True)
    tag = channel.consume(queue, no_ack=True)
    connection.channel(2).call(BasicCancel, consumer_tag=tag)
    channel.publish("", queue, b"x")
    assert channel.deliver().method.consumer_tag == tag


def test_cancel_with_nowait(channel: Channel) -> None:
    """§4.6: nowait is honoured, and the tag free."""
    queue = channel.declare(exclusive=True)
    channel.consume(queue, consumer_tag="t")
    channel.send(BasicCancel, consumer_tag="t", nowait=True)
    assert consumer_count(channel, queue) == 0
    channel.consume(queue, consumer_tag="t")


def test_unacked_survive_the_cancel(channel: Channel) -> None:
    """§4.6: deliveries stay outstanding after the cancel: not requeued, ackable, nackable."""
    queue = channel.declare(exclusive=True)
    tag = channel.consume(queue)
    publish_burst(channel, queue, 2)
    take(channel, 2)
    channel.call(BasicCancel, consumer_tag=tag)
    assert ready_count(channel, queue) == 0
    channel.send(BasicAck, delivery_tag=1)
    channel.send(BasicNack, delivery_tag=2)
    content = channel.get(queue)
    assert content is not None
    assert (content.body, content.method.redelivered) == (b"2", True)
    assert channel.get(queue) is None


# §4.7.


def test_cancel_when_the_queue_is_deleted(connect: Callable[..., Connection]) -> None:
    """§4.7: a client with the capability is told, for each consumer; no answer is due, the channel stays."""
    connection = connect(client_properties=WANTS_CANCEL)
    channel, other = connection.channel(1), connection.channel(2)
    queue = other.declare(exclusive=True)
    for tag in ("a", "b"):
        channel.consume(queue, consumer_tag=tag)
    other.call(QueueDelete, queue=queue)
    cancels = [channel.expect(BasicCancel) for _ in range(2)]
    assert sorted((each.consumer_tag, each.nowait) for each in cancels) == [("a", True), ("b", True)]
    channel.sync()
    channel.consume(other.declare(exclusive=True), consumer_tag="a")


def test_cancel_on_the_channel_that_deletes(connect: Callable[..., Connection]) -> None:
    """§4.7: the cancel comes also to the channel that deleted the queue itself."""
    channel = connect(client_properties=WANTS_CANCEL).channel()
    queue = channel.declare(exclusive=True)
    channel.consume(queue, consumer_tag="t")
    channel.send(QueueDelete, queue=queue)
    came = {channel.connection.next_frame(1).payload for _ in range(2)}
    assert came == {b"\0\x3c\0\x1e\x01t\x01", b"\0\x32\0\x29" + bytes(4)}
    channel.sync()


def test_cancel_ok_of_a_client(connect: Callable[..., Connection]) -> None:
    """§4.7: a cancel-ok from the client is an error, so it can never be required."""
    connection = connect(client_properties=WANTS_CANCEL)
    channel, other = connection.channel(1), connection.channel(2)
    queue = other.declare(exclusive=True)
    channel.consume(queue, consumer_tag="t")
    other.call(QueueDelete, queue=queue)
    channel.expect(BasicCancel)
    channel.send(BasicCancelOk, consumer_tag="t")
    connection.expect_connection_close(503, "COMMAND_INVALID - unimplemented method", BasicCancelOk)


def test_no_cancel_without_the_capability(connection: Connection, channel: Channel) -> None:
    """§4.7: silent; the tag is free for reuse."""
    other = connection.channel(2)
    queue = other.declare(exclusive=True)
    channel.consume(queue, consumer_tag="t")
    other.call(QueueDelete, queue=queue)
    channel.expect_nothing(0.1)
    channel.consume(other.declare(exclusive=True), consumer_tag="t")


# §4.8.


def test_fifo(channel: Channel) -> None:
    """§4.8: first in, first out."""
    queue = channel.declare(exclusive=True)
    channel.consume(queue, no_ack=True)
    publish_burst(channel, queue, 100)
    assert [content.body for content in take(channel, 100)] == [b"%d" % number for number in range(1, 101)]


def receivers(channel: Channel, count: int) -> list[str]:
    """The consumer tags of the next deliveries."""
    return [content.method.consumer_tag for content in take(channel, count)]


def test_round_robin(channel: Channel) -> None:
    """§4.8: each delivery moves that consumer to the back."""
    queue = channel.declare(exclusive=True)
    for tag in "abc":
        channel.consume(queue, consumer_tag=tag, no_ack=True)
    publish_burst(channel, queue, 7)
    assert receivers(channel, 7) == list("abcabca")


def test_lower_priority_waits_for_blocked_ones(channel: Channel) -> None:
    """§4.8: lower priorities get a message only while all higher are blocked."""
    queue = channel.declare(exclusive=True)
    channel.call(BasicQos, prefetch_count=1)
    channel.consume(queue, consumer_tag="low", arguments={"x-priority": long(-1)})
    channel.consume(queue, consumer_tag="high", arguments={"x-priority": long(5)})
    channel.consume(queue, consumer_tag="none")
    publish_burst(channel, queue, 3)
    assert receivers(channel, 3) == ["high", "none", "low"]
    channel.send(BasicAck, delivery_tag=0, multiple=True)
    publish_burst(channel, queue, 2)
    assert receivers(channel, 2) == ["high", "none"]


def test_an_unblocked_consumer_rejoins_at_the_back(channel: Channel) -> None:
    """§4.8: behind the active ones of its priority."""
    queue = channel.declare(exclusive=True)
    channel.call(BasicQos, prefetch_count=1)
    channel.consume(queue, consumer_tag="a")
    channel.call(BasicQos, prefetch_count=0)
    channel.consume(queue, consumer_tag="b")
    channel.consume(queue, consumer_tag="c")
    publish_burst(channel, queue, 4)
    assert receivers(channel, 4) == ["a", "b", "c", "b"]
    channel.send(BasicAck, delivery_tag=1)
    publish_burst(channel, queue, 6)
    assert receivers(channel, 6) == ["c", "b", "a", "c", "b", "c"]


@pytest.mark.slow
def test_a_consumer_that_does_not_read_is_blocked(connect: Callable[..., Connection], name: Names) -> None:
    """§4.8: with 200 deliveries unsent for its channel a consumer is blocked; another gets the messages."""
    count, body = 1000, bytes(65536)
    stuck, reading = connect(), connect()
    queue = stuck.channel(1).declare(name("q"), arguments={"x-expires": long(60000)})
    stuck.channel(2).consume(queue, no_ack=True)
    reader = reading.channel(1)
    reader.consume(queue, no_ack=True)
    publisher = connect().channel()
    for number in range(count):
        publisher.publish("", queue, body)
        if number % 2:
            reader.deliver()
    # Half of them went the reader's way so far at most; the rest must come since the other one is stuck.
    take(reader, count // 10)
    reader.connection.abandon()
    stuck.socket.close()


def test_single_active_consumer(connection: Connection, channel: Channel) -> None:
    """§4.8: the first consumer is active whatever the priorities; then the next by priority, then age."""
    queue = channel.declare(exclusive=True, arguments=SINGLE_ACTIVE)
    first, publisher = connection.channel(2), connection.channel(3)
    first.consume(queue, consumer_tag="first", no_ack=True)
    for tag, priority in (("old", 0), ("high", 5), ("high, younger", 5)):
        arguments = {"x-priority": long(priority)}
        channel.consume(queue, consumer_tag=tag, no_ack=True, arguments=arguments)
    publish_burst(publisher, queue, 3)
    assert receivers(first, 3) == ["first"] * 3
    first.close()
    for next_tag in ("high", "high, younger", "old"):
        publish_burst(publisher, queue, 2)
        assert receivers(channel, 2) == [next_tag] * 2
        channel.call(BasicCancel, consumer_tag=next_tag)
    publish_burst(publisher, queue, 1)
    wait_until(lambda: ready_count(publisher, queue) == 1, "nobody is left")


def test_unacked_of_a_cancelled_single_active_consumer(connection: Connection, channel: Channel) -> None:
    """§4.8: they stay with it after the cancel; the next consumer gets later messages meanwhile."""
    queue = channel.declare(exclusive=True, arguments=SINGLE_ACTIVE)
    other = connection.channel(2)
    channel.consume(queue, consumer_tag="t")
    other.consume(queue, no_ack=True)
    publish_each(other, queue, b"1")
    assert channel.deliver().body == b"1"
    channel.call(BasicCancel, consumer_tag="t")
    other.publish("", queue, b"2")
    assert other.deliver().body == b"2"
    channel.send(BasicNack, delivery_tag=1)
    again = other.deliver()
    assert (again.body, again.method.redelivered) == (b"1", True)


def test_unacked_of_a_single_active_consumer_whose_channel_closes(
    connection: Connection, channel: Channel
) -> None:
    """§4.8: the close requeues them, the next consumer gets them first."""
    queue = channel.declare(exclusive=True, arguments=SINGLE_ACTIVE)
    other = connection.channel(2)
    channel.call(BasicQos, prefetch_count=2)
    channel.consume(queue)
    other.consume(queue, no_ack=True)
    publish_each(other, queue, b"1", b"2", b"3")
    take(channel, 2)
    channel.close()
    came = [(content.body, content.method.redelivered) for content in take(other, 3)]
    assert came == [(b"1", True), (b"2", True), (b"3", False)]
