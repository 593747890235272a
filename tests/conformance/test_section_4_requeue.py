"""amqp-behaviour §4.11, where and how a requeued message comes back."""

from collections.abc import Callable

import pytest

from node.amqp.field_table import long, longstr
from node.amqp.methods import BasicAck, BasicNack, BasicQos, BasicRecover, BasicReject, QueueDelete
from node.amqp.properties import Properties
from tests.conformance.queue_steps import (
    dead_letters_to,
    drain,
    expect_no_delivery,
    hold,
    let_pass,
    publish_each,
    ready_count,
    take,
)
from tests.kit.amqp_client import Channel, Connection


def test_requeued_to_the_old_place(connection: Connection, channel: Channel) -> None:
    """§4.11: 1 and 3 go back while 0 and 2 are unacked: the order is 1, 3, 4, 5."""
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, b"0", b"1", b"2", b"3", b"4", b"5")
    for _ in range(4):
        channel.get(queue, no_ack=False)
    channel.send(BasicNack, delivery_tag=4)
    channel.send(BasicReject, delivery_tag=2)
    contents = [channel.get(queue) for _ in range(4)]
    assert [(content.body, content.method.redelivered) for content in contents if content] == [
        (b"1", True),
        (b"3", True),
        (b"4", False),
        (b"5", False),
    ]


def test_later_messages_never_overtake(connection: Connection, channel: Channel) -> None:
    """§4.11: messages published after a delivery stay behind it, requeued or not."""
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2")
    channel.get(queue, no_ack=False)
    publish_each(channel, queue, b"3")
    channel.send(BasicNack, delivery_tag=1)
    assert drain(channel, queue) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("how", ["close", "recover", "nack", "connection"])
def test_bulk_requeue_keeps_the_order(
    connect: Callable[..., Connection], name: Callable[[str], str], how: str
) -> None:
    """§4.11: close of the channel or connection, recover and nack multiple keep the original order."""
    holder, other = connect(), connect().channel()
    queue = other.declare(name("q"), arguments={"x-expires": long(60000)})
    publish_each(other, queue, *(b"%d" % number for number in range(1, 7)))
    channel = holder.channel()
    for _ in range(4):
        channel.get(queue, no_ack=False)
    channel.send(BasicAck, delivery_tag=2)
    if how == "close":
        channel.close()
    elif how == "recover":
        channel.call(BasicRecover, requeue=True)
    elif how == "nack":
        channel.send(BasicNack, delivery_tag=4, multiple=True)
        ready_count(channel, queue)
    else:
        holder.close()
    assert drain(other, queue) == [b"1", b"3", b"4", b"5", b"6"]
    other.call(QueueDelete, queue=queue)


def test_a_single_consumer_gets_it_back_at_once(channel: Channel) -> None:
    """§4.11: nack with requeue and one idle consumer: a busy loop."""
    queue = hold(channel, 1)
    for tag in range(1, 6):
        channel.send(BasicNack, delivery_tag=tag)
        again = channel.deliver()
        assert (again.body, again.method.delivery_tag, again.method.redelivered) == (b"1", tag + 1, True)
    expect_no_delivery(channel, queue)


def test_redelivered_after_a_close(connection: Connection, channel: Channel) -> None:
    """§4.11: true for what was sent to a client, also when it never answered; false for the rest."""
    queue = connection.channel(2).declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2", b"3")
    channel.call(BasicQos, prefetch_count=2)
    channel.consume(queue)
    take(channel, 2)
    channel.close()
    channel = connection.channel(1)
    channel.consume(queue)
    flags = [(content.body, content.method.redelivered) for content in take(channel, 3)]
    assert flags == [(b"1", True), (b"2", True), (b"3", False)]


def test_dead_lettered_copies_are_not_redelivered(channel: Channel) -> None:
    """§4.11: in the queue of dead letters a message is new, even if it had been redelivered."""
    grave = channel.declare(exclusive=True)
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    publish_each(channel, queue, b"x")
    channel.get(queue, no_ack=False)
    channel.send(BasicNack, delivery_tag=1)
    content = channel.get(queue, no_ack=False)
    assert content is not None
    assert content.method.redelivered
    channel.send(BasicNack, delivery_tag=2, requeue=False)
    assert not channel.wait_get(grave).method.redelivered


def test_unacked_messages_do_not_expire(channel: Channel) -> None:
    """§4.11: with the client a message doesn't expire: it can be acked late, and isn't dead-lettered."""
    grave = channel.declare(exclusive=True)
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave, ttl_ms=50))
    channel.consume(queue)
    channel.publish("", queue, b"x")
    channel.deliver()
    let_pass(channel, 80)
    channel.send(BasicAck, delivery_tag=1)
    assert drain(channel, queue) == []
    assert drain(channel, grave) == []


@pytest.mark.parametrize("dead_letters", [False, True])
def test_expired_on_requeue(channel: Channel, dead_letters: bool) -> None:
    """§4.11: on requeue an expired message is dropped or dead-lettered, and its followers are not held up."""
    grave = channel.declare(exclusive=True)
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave) if dead_letters else {})
    channel.publish("", queue, b"dies", Properties(expiration="50"))
    publish_each(channel, queue, b"stays")
    channel.get(queue, no_ack=False)
    let_pass(channel, 80)
    channel.send(BasicNack, delivery_tag=1)
    assert drain(channel, queue) == [b"stays"]
    if dead_letters:
        death = channel.wait_get(grave)
        assert death.body == b"dies"
        assert death.headers["x-first-death-reason"] == longstr("expired")
