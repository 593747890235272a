"""Rows of amqp-behaviour §9.1 for `test_section_9_home_down.py`: 404 and unroutable."""

import itertools
import secrets
from collections.abc import Iterator
from typing import Any, Final

from node.amqp import methods
from node.amqp.field_table import long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicReturn,
    ConfirmSelect,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    TxCommit,
    TxSelect,
)
from tests.conformance.cluster_story import PERSISTENT, Row, Story, drain, home_is_down, publish
from tests.conformance.entities import queue_exists

ROWS: Final[dict[str, Row]] = {}

names = (f"home-{secrets.token_hex(2)}-{number}" for number in itertools.count(1))


def row(function: Row) -> Row:
    """Make a generator one of the rows."""
    ROWS[function.__name__] = function
    return function


def durable(story: Story, **fields: Any) -> str:
    """A durable queue whose home is the node that will end."""
    queue = next(names)
    story.channel(story.home).declare(queue, durable=True, **fields)
    return queue


def _refused(story: Story, method: type[methods.Method], **fields: Any) -> Iterator[None]:
    """The method on a durable queue is 404 on both nodes that are left, and works again at the end."""
    queue = durable(story)
    story.channel().call(QueueBind, queue=queue, exchange="amq.direct", routing_key="bound")
    yield
    for node in (story.near, story.far):
        channel = story.channel(node)
        channel.send(method, queue=queue, **fields)
        channel.expect_close(404, home_is_down(story, queue), method)
    yield
    story.channel().send(method, queue=queue, **fields)
    assert queue_exists(story.channel(), queue)


@row
def declare_is_404(story: Story) -> Iterator[None]:
    """§9.1 row 1."""
    return _refused(story, QueueDeclare, durable=True)


@row
def passive_is_404(story: Story) -> Iterator[None]:
    """§9.1 row 1."""
    return _refused(story, QueueDeclare, passive=True)


@row
def get_is_404(story: Story) -> Iterator[None]:
    """§9.1 row 1."""
    return _refused(story, BasicGet)


@row
def consume_is_404(story: Story) -> Iterator[None]:
    """§9.1 row 1."""
    return _refused(story, BasicConsume)


@row
def purge_is_404(story: Story) -> Iterator[None]:
    """§9.1 row 1."""
    return _refused(story, QueuePurge)


@row
def bind_is_404(story: Story) -> Iterator[None]:
    """§9.1 row 1."""
    return _refused(story, QueueBind, exchange="amq.direct", routing_key="new")


@row
def unbind_is_404(story: Story) -> Iterator[None]:
    """§9.1 row 1."""
    return _refused(story, QueueUnbind, exchange="amq.direct", routing_key="bound")


@row
def delete_is_404(story: Story) -> Iterator[None]:
    """§9.1 row 1; whatever its conditions."""
    queue = durable(story)
    yield
    for conditions in ({}, {"if_unused": True}, {"if_empty": True}):
        channel = story.channel()
        channel.send(QueueDelete, queue=queue, **conditions)
        channel.expect_close(404, home_is_down(story, queue), QueueDelete)
    yield
    assert story.channel().call(QueueDelete, queue=queue).message_count == 0


@row
def declare_with_other_fields_is_404_too(story: Story) -> Iterator[None]:
    """§9.1 row 1: whether the declaration is equal cannot matter."""
    queue = durable(story)
    yield
    channel = story.channel()
    channel.send(QueueDeclare, queue=queue, durable=True, arguments={"x-expires": long(60000)})
    channel.expect_close(404, home_is_down(story, queue), QueueDeclare)
    yield
    channel = story.channel()
    channel.send(QueueDeclare, queue=queue, durable=True, arguments={"x-expires": long(60000)})
    close = channel.expect(methods.ChannelClose)
    assert close.reply_code == 406


@row
def publish_is_unroutable(story: Story) -> Iterator[None]:
    """§9.1 row 2: returned if mandatory, and acked; by the default exchange and by a binding."""
    queue = durable(story)
    story.channel().call(QueueBind, queue=queue, exchange="amq.direct", routing_key=queue)
    yield
    for node in (story.near, story.far):
        channel = story.channel(node)
        channel.call(ConfirmSelect)
        tag = 0
        for exchange in ("", "amq.direct"):
            channel.publish(exchange, queue, b"lost", PERSISTENT, mandatory=True)
            returned = channel.expect_content(BasicReturn)
            assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
            assert (returned.method.exchange, returned.method.routing_key) == (exchange, queue)
            tag += 1
            assert channel.expect(BasicAck).delivery_tag == tag
            channel.publish(exchange, queue, b"lost", PERSISTENT)
            tag += 1
            assert channel.expect(BasicAck).delivery_tag == tag
    yield
    assert drain(story.channel(), queue) == []


@row
def publish_to_one_down_and_one_up_is_routed(story: Story) -> Iterator[None]:
    """§9.1 row 2: nothing is returned, the queue that is there has it."""
    down, up, key = durable(story), next(names), next(names)
    channel = story.channel()
    channel.declare(up, durable=True)
    for queue in (down, up):
        channel.call(QueueBind, queue=queue, exchange="amq.topic", routing_key=key)
    yield
    channel = story.channel(story.far)
    channel.call(ConfirmSelect)
    channel.publish("amq.topic", key, b"to one", PERSISTENT, mandatory=True)
    channel.expect(BasicAck)
    assert [content.body for content in drain(channel, up)] == [b"to one"]
    yield
    channel = story.channel()
    publish(channel, key, b"to both", exchange="amq.topic")
    assert [content.body for content in drain(channel, up)] == [b"to both"]
    assert [content.body for content in drain(channel, down)] == [b"to both"]


@row
def publish_goes_to_the_alternate_exchange(story: Story) -> Iterator[None]:
    """§9.1 row 2 with §3.18: unroutable, so the alternate exchange has it."""
    queue, exchange, alternate, caught = (durable(story), *itertools.islice(names, 3))
    channel = story.channel()
    channel.call(ExchangeDeclare, exchange=alternate, type="fanout", durable=True)
    arguments = {"alternate-exchange": longstr(alternate)}
    channel.call(ExchangeDeclare, exchange=exchange, type="direct", durable=True, arguments=arguments)
    channel.declare(caught, durable=True)
    channel.call(QueueBind, queue=caught, exchange=alternate)
    channel.call(QueueBind, queue=queue, exchange=exchange, routing_key="key")
    yield
    channel = story.channel()
    publish(channel, "key", b"caught", exchange=exchange)
    assert [content.body for content in drain(channel, caught)] == [b"caught"]
    yield
    channel = story.channel()
    publish(channel, "key", b"home again", exchange=exchange)
    assert drain(channel, caught) == []
    assert [content.body for content in drain(channel, queue)] == [b"home again"]


@row
def publish_in_a_transaction_is_unroutable(story: Story) -> Iterator[None]:
    """§9.1 row 2 with §4.4: committed, returned if mandatory."""
    queue = durable(story)
    yield
    channel = story.channel()
    channel.call(TxSelect)
    channel.publish("", queue, b"lost", PERSISTENT, mandatory=True)
    channel.send(TxCommit)
    frames = [channel.connection.next_frame(1) for _ in range(4)]
    names = {str(frame).split(": ")[1].split("(")[0] for frame in frames if frame.type == 1}
    assert names == {"BasicReturn", "TxCommitOk"}
    yield
    assert drain(story.channel(), queue) == []


@row
def dead_letters_to_it_are_dropped(story: Story) -> Iterator[None]:
    """§9.1 row 2 with §5.5: as to any target that is not there."""
    target, source = durable(story), next(names)
    arguments = {
        "x-dead-letter-exchange": longstr(""),
        "x-dead-letter-routing-key": longstr(target),
    }
    story.channel().declare(source, durable=True, arguments=arguments)
    yield
    channel = story.channel(story.far)
    publish(channel, source, b"rejected")
    tag = channel.get(source, no_ack=False).method.delivery_tag  # type: ignore[union-attr]
    channel.send(BasicNack, delivery_tag=tag, requeue=False)
    channel.sync()
    assert channel.call(QueueDeclare, queue=source, passive=True).message_count == 0
    yield
    assert drain(story.channel(), target) == []
