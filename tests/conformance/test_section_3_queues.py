"""amqp-behaviour §3.8 and §3.11–3.13: the last declared queue, and how queues end."""

from collections.abc import Callable

import pytest

from node.amqp.field_table import boolean, long, table
from node.amqp.methods import (
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicQos,
    BasicReject,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
)
from tests.conformance.entities import (
    access_refused,
    is_routed,
    limited_channel,
    locked,
    no_queue,
    queue_exists,
    refused,
    take_unacked,
)
from tests.conformance.queue_steps import dead_letters_to, drain, publish_each
from tests.kit.amqp_client import Channel, Connection
from tests.kit.patience import wait_until

Name = Callable[[str], str]
Connect = Callable[..., Connection]

CANCEL_NOTIFY = {"capabilities": table({"consumer_cancel_notify": boolean(True)})}


@pytest.fixture
def limited(make_user: Callable[..., str], connect: Connect) -> Channel:
    return limited_channel(make_user, connect)


@pytest.fixture
def other(connect: Connect) -> Channel:
    """A channel of another connection than `channel`."""
    return connect().channel()


# §3.8 "Last declared queue" shorthand


@pytest.mark.parametrize("how", [{}, {"passive": True}, {"nowait": True}, {"passive": True, "nowait": True}])
def test_last_declared_queue(channel: Channel, other: Channel, name: Name, how: dict[str, bool]) -> None:
    """§3.8: the name of the channel's last successful declare, active or passive, also nowait."""
    channel.declare(exclusive=True)
    queue = other.declare(name("q"))
    channel.send(QueueDeclare, queue=queue, **how)
    if "nowait" not in how:
        channel.expect(QueueDeclareOk)
    publish_each(channel, queue, b"0")
    assert drain(channel, "") == [b"0"]


def test_shorthand_of_each_method(channel: Channel, other: Channel, name: Name) -> None:
    """§3.8: an empty name in get, consume, purge, bind, unbind and delete."""
    queue, key = channel.declare(name("q")), name("key")
    channel.call(QueueBind, exchange="amq.direct", routing_key=key)
    assert is_routed(other, "amq.direct", key)
    assert channel.wait_get("", no_ack=False).body == b"probe"
    channel.call(QueueUnbind, exchange="amq.direct", routing_key=key)
    assert not is_routed(other, "amq.direct", key)
    publish_each(channel, queue, b"0")
    assert channel.call(QueuePurge) == QueuePurgeOk(1)
    channel.consume("")
    assert other.call(QueueDeclare, queue=queue, passive=True).consumer_count == 1
    assert channel.call(QueueDelete) == QueueDeleteOk(0)
    assert not queue_exists(other, queue)


@pytest.mark.parametrize("method", [BasicGet, BasicConsume, QueuePurge, QueueDelete, QueueBind, QueueUnbind])
def test_no_last_declared_queue(channel: Channel, name: Name, method: type[Method]) -> None:
    """§3.8: none yet on this channel, though another channel of the connection has one."""
    channel.connection.channel(2).declare(name("q"), exclusive=True)
    refused(channel, 404, "no previously declared queue", method)


@pytest.mark.parametrize("method", [BasicGet, BasicConsume, QueuePurge, QueueBind])
def test_last_declared_queue_is_forgotten_never(channel: Channel, method: type[Method]) -> None:
    """§3.8: it survives deletion of the queue and then yields the normal 404."""
    queue = channel.declare(exclusive=True)
    channel.call(QueueDelete, queue=queue)
    fields = {"exchange": "amq.direct"} if method is QueueBind else {}
    refused(channel, 404, no_queue(queue), method, **fields)


def test_last_declared_queue_ends_with_the_channel(channel: Channel) -> None:
    """§3.8: per channel: the number opened again starts without one."""
    channel.declare(exclusive=True)
    channel.close()
    again = channel.connection.channel(channel.number)
    refused(again, 404, "no previously declared queue", BasicGet)


def test_empty_routing_key_of_shorthand(channel: Channel, name: Name) -> None:
    """§3.8: bind and unbind with empty queue and empty routing key: the key becomes the queue's name."""
    queue = channel.declare(name("q"), exclusive=True)
    channel.call(QueueBind, exchange="amq.direct")
    assert is_routed(channel, "amq.direct", queue)
    assert not is_routed(channel, "amq.direct", "")
    channel.call(QueueUnbind, exchange="amq.direct")
    assert not is_routed(channel, "amq.direct", queue)


def test_empty_routing_key_of_named_queue(channel: Channel, name: Name) -> None:
    """§3.8: with a named queue an empty routing key stays empty."""
    exchange, queue = name("x"), channel.declare(name("q"), exclusive=True)
    channel.call(ExchangeDeclare, exchange=exchange, type="direct")
    channel.call(QueueBind, queue=queue, exchange=exchange)
    assert is_routed(channel, exchange, "")
    assert not is_routed(channel, exchange, queue)
    channel.call(QueueUnbind, queue=queue, exchange=exchange)
    assert not is_routed(channel, exchange, "")


def test_declare_of_empty_name_is_always_new(channel: Channel, name: Name) -> None:
    """§3.8: queue.declare '' creates a new server-named queue, whatever was declared last."""
    channel.declare(name("q"), exclusive=True)
    assert channel.declare("", exclusive=True).startswith("amq.gen-")


# §3.11 queue.delete and purge


def test_delete_of_missing_queue(limited: Channel, name: Name) -> None:
    """§3.11 row delete missing: count 0; configure is checked first."""
    queue = name("wr")
    refused(limited, 403, access_refused(limited, f"queue '{queue}'"), QueueDelete, queue=queue)
    assert limited.call(QueueDelete, queue=name("c")) == QueueDeleteOk(0)
    assert limited.call(QueueDelete, queue=name("c"), if_unused=True, if_empty=True) == QueueDeleteOk(0)


def test_delete_if_unused(channel: Channel, name: Name) -> None:
    """§3.11 row if-unused."""
    queue = channel.declare(name("q"), exclusive=True)
    tag = channel.consume(queue)
    second = channel.connection.channel(2)
    refused(second, 406, f"queue '{queue}' in vhost '/' in use", QueueDelete, queue=queue, if_unused=True)
    channel.call(BasicCancel, consumer_tag=tag)
    channel.call(QueueDelete, queue=queue, if_unused=True)
    assert not queue_exists(channel, queue)


def test_delete_if_empty(channel: Channel, name: Name) -> None:
    """§3.11 row if-empty: unacked messages do not count."""
    queue = channel.declare(name("q"), exclusive=True)
    publish_each(channel, queue, b"0")
    text = f"queue '{queue}' in vhost '/' not empty"
    refused(channel, 406, text, QueueDelete, queue=queue, if_empty=True)
    take_unacked(channel, queue)
    assert channel.call(QueueDelete, queue=queue, if_empty=True) == QueueDeleteOk(0)
    assert not queue_exists(channel, queue)


def test_delete_with_both_flags(channel: Channel, name: Name) -> None:
    """§3.11 row both flags: which is checked first, not-empty or in-use."""
    queue = channel.declare(name("q"), exclusive=True)
    publish_each(channel, queue, b"0", b"1")
    # One delivery that stays unacked blocks the consumer, so that the other message stays ready.
    second = channel.connection.channel(2)
    second.call(BasicQos, prefetch_count=1)
    second.consume(queue)
    second.deliver()
    text = f"queue '{queue}' in vhost '/' not empty"
    refused(channel, 406, text, QueueDelete, queue=queue, if_unused=True, if_empty=True)


def test_delete_ok_counts_ready_messages(channel: Channel, name: Name) -> None:
    """§3.11 row delete-ok count."""
    queue = channel.declare(name("q"), exclusive=True)
    publish_each(channel, queue, b"0", b"1", b"2")
    take_unacked(channel, queue)
    assert channel.call(QueueDelete, queue=queue) == QueueDeleteOk(2)


def test_purge_takes_ready_messages(channel: Channel, name: Name) -> None:
    """§3.11 row purge: removes and counts ready only; unacked untouched."""
    queue = channel.declare(name("q"), exclusive=True)
    publish_each(channel, queue, b"0", b"1", b"2")
    tag = take_unacked(channel, queue)
    assert channel.call(QueuePurge, queue=queue) == QueuePurgeOk(2)
    assert channel.call(QueuePurge, queue=queue) == QueuePurgeOk(0)
    channel.send(BasicReject, delivery_tag=tag, requeue=True)
    assert channel.wait_get(queue).body == b"0"


@pytest.mark.parametrize("method", [QueuePurge, BasicGet, BasicConsume])
def test_missing_queue(channel: Channel, name: Name, method: type[Method]) -> None:
    """§3.11 row purge/get/consume missing."""
    queue = name("q")
    refused(channel, 404, no_queue(queue), method, queue=queue)


def test_delete_cancels_consumers_of_others(connect: Connect, channel: Channel, name: Name) -> None:
    """§3.11: each consumer's channel gets basic.cancel, if its client can take it (§4.7)."""
    queue = channel.declare(name("q"))
    able, unable = connect(client_properties=CANCEL_NOTIFY).channel(), connect().channel()
    tags = [able.consume(queue), able.consume(queue)]
    unable.consume(queue)
    channel.call(QueueDelete, queue=queue)
    cancels = [able.expect(BasicCancel) for _ in tags]
    assert {cancel.consumer_tag for cancel in cancels} == set(tags)
    assert all(cancel.nowait for cancel in cancels)
    able.sync()
    unable.sync()
    unable.expect_nothing(0.05)


def test_delete_on_the_consumers_channel(connect: Connect, name: Name) -> None:
    """§3.11: on the deleting channel itself: delete-ok first, then basic.cancel."""
    channel = connect(client_properties=CANCEL_NOTIFY).channel()
    queue = channel.declare(name("q"), exclusive=True)
    tag = channel.consume(queue)
    channel.call(QueueDelete, queue=queue)
    assert channel.expect(BasicCancel) == BasicCancel(tag, True)


def test_deleted_and_purged_messages_are_not_dead_lettered(channel: Channel, name: Name) -> None:
    """§3.11: never. A rejected message shows that the queue does dead-letter."""
    target = channel.declare(name("q"), exclusive=True)
    queue = channel.declare(name("q"), exclusive=True, arguments=dead_letters_to("", target))
    channel.publish("", queue, b"purged")
    channel.call(QueuePurge, queue=queue)
    channel.publish("", queue, b"rejected")
    channel.publish("", queue, b"deleted")
    channel.send(BasicReject, delivery_tag=take_unacked(channel, queue), requeue=False)
    assert channel.wait_get(target).body == b"rejected"
    assert channel.call(QueueDelete, queue=queue) == QueueDeleteOk(1)
    assert channel.get(target) is None


def test_messages_of_an_expired_queue_are_not_dead_lettered(channel: Channel, name: Name) -> None:
    """§3.11: nor do they when x-expires ends their queue."""
    target = channel.declare(exclusive=True)
    queue = channel.declare(name("q"), arguments=dead_letters_to("", target) | {"x-expires": long(50)})
    publish_each(channel, queue, b"expired with its queue")
    wait_until(lambda: not is_routed(channel, "", queue), "the queue expires")
    assert channel.get(target) is None


# §3.12 auto-delete queue


def test_auto_delete_after_cancel(channel: Channel, name: Name) -> None:
    """§3.12: when the count falls to 0; cancel-ok comes first, a following declare sees 404."""
    queue = channel.declare(name("q"), auto_delete=True)
    tags = [channel.consume(queue) for _ in range(2)]
    channel.call(BasicCancel, consumer_tag=tags[0])
    assert queue_exists(channel, queue)
    channel.call(BasicCancel, consumer_tag=tags[1])
    assert not queue_exists(channel, queue)


def test_auto_delete_after_channel_close(channel: Channel, other: Channel, name: Name) -> None:
    """§3.12, §2.1: before close-ok."""
    queue = channel.declare(name("q"), auto_delete=True)
    channel.consume(queue)
    channel.close()
    assert not queue_exists(other, queue)


def test_auto_delete_after_connection_close(connect: Connect, channel: Channel, name: Name) -> None:
    """§3.12."""
    queue = channel.declare(name("q"), auto_delete=True)
    other = connect()
    other.channel().consume(queue)
    other.close()
    assert not queue_exists(channel, queue)


def test_auto_delete_needs_to_have_had_a_consumer(connect: Connect, channel: Channel, name: Name) -> None:
    """§3.12: never if it never had one; basic.get does not count."""
    queue, declarer = name("q"), connect()
    first = declarer.channel()
    first.declare(queue, auto_delete=True)
    publish_each(first, queue, b"0")
    assert first.get(queue)
    declarer.close()
    assert queue_exists(channel, queue)
    channel.call(QueueDelete, queue=queue)


# §3.13 exclusive queue


@pytest.mark.parametrize("durable", [False, True])
def test_exclusive_queue_ends_with_its_connection(
    connect: Connect, channel: Channel, name: Name, durable: bool
) -> None:
    """§3.13, §1.8: even if durable was asked, and before close-ok."""
    owner = connect()
    queue = owner.channel().declare(name("q"), exclusive=True, durable=durable)
    owner.channel(2).close()
    refused(channel, 405, locked(queue), QueueDeclare, queue=queue, passive=True)
    owner.close()
    assert not queue_exists(channel, queue)


def test_exclusive_queue_outlives_its_channel(channel: Channel) -> None:
    """§3.13: the owner is the connection."""
    second = channel.connection.channel(2)
    queue = second.declare(exclusive=True)
    second.close()
    assert queue_exists(channel, queue)


def test_exclusive_queue_ends_with_a_lost_connection(connect: Connect, channel: Channel, name: Name) -> None:
    """§3.13, §1.8: after an abrupt end of TCP it goes in its own time; the name is free then."""
    owner = connect()
    queue = owner.channel().declare(name("q"), exclusive=True)
    owner.socket.close()
    wait_until(lambda: not is_routed(channel, "", queue), "the queue goes")
    channel.declare(queue, exclusive=True)
