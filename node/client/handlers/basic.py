"""The handlers of the basic class, but for publish. Source: amqp-behaviour §4.5-4.12."""

from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
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
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
)
from node.catalogue.arguments import parse_consume_arguments
from node.catalogue.names import (
    GENERATED_CONSUMER_TAG_PREFIX,
    GENERATED_RANDOM_BYTES,
    generated_name,
    not_found,
    resource,
)
from node.client.channel import Channel
from node.client.handlers.steps import Handlers, Steps
from node.client.reply_to import ENTROPY_BYTES, REPLY_TO, is_reply_name
from node.client.unacked import Delivery
from node.queue.consumer import Consumer
from node.queue.live_queue import current


def qos(channel: Channel, method: BasicQos) -> None:
    """Handle basic.qos (§4.9)."""
    if method.prefetch_size:
        raise ProtocolError(ReplyCode.NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        channel.limit_prefetch(method.prefetch_count)
    else:
        channel.prefetch = method.prefetch_count
        channel.limit_prefetch(0)
    channel.unblock()
    channel.send(BasicQosOk())


def consume(channel: Channel, method: BasicConsume) -> Steps:
    """Handle basic.consume (§4.6)."""
    tag = method.consumer_tag or generated_name(
        GENERATED_CONSUMER_TAG_PREFIX, channel.broker.entropy(GENERATED_RANDOM_BYTES)
    )
    if method.queue == REPLY_TO and tag not in channel.consumers:
        _consume_replies(channel, method, tag)
        return
    if tag in channel.consumers or (channel.reply_consumer and channel.reply_consumer.tag == tag):
        raise ProtocolError(ReplyCode.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    name = channel.named_queue(method.queue)
    yield from channel.check("queue", name, "read")
    queue = channel.usable_queue(name)
    if queue.record.type == "quorum" and channel.prefetch_limit:
        where = resource("queue", name, channel.connection.vhost)
        raise ProtocolError(ReplyCode.NOT_IMPLEMENTED, f"{where} does not support global qos")
    arguments = parse_consume_arguments(method.arguments, name, channel.connection.vhost, queue.record.type)
    consumer = Consumer(
        tag,
        channel.outlet,
        queue,
        no_ack=method.no_ack,
        exclusive=method.exclusive,
        priority=arguments.priority,
        prefetch=channel.prefetch,
        arguments=method.arguments,
    )
    yield from queue.subscribe(consumer)
    channel.consumers[tag] = consumer
    channel.broker.observer.consumer_added(channel, consumer)
    if not method.nowait:
        channel.send(BasicConsumeOk(tag))


def _consume_replies(channel: Channel, method: BasicConsume, tag: str) -> None:
    """Subscribe to direct replies (§4.12)."""
    if channel.reply_consumer is not None:
        raise ProtocolError(ReplyCode.PRECONDITION_FAILED, "reply consumer already set")
    if not method.no_ack:
        raise ProtocolError(ReplyCode.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
    broker = channel.broker
    entropy = broker.entropy(ENTROPY_BYTES)
    channel.reply_consumer = broker.reply_consumers.add(tag, channel, entropy, broker.incarnation)
    if not method.nowait:
        channel.send(BasicConsumeOk(tag))


def cancel(channel: Channel, method: BasicCancel) -> Steps:
    """Handle basic.cancel; for an unknown tag it succeeds (§4.6)."""
    tag = method.consumer_tag
    consumer = channel.consumers.get(tag)
    if consumer is not None:
        yield from consumer.queue.heard()  # then its consumer has got all earlier deliveries
        consumer = channel.consumers.get(tag)  # it may have left with its queue, or have moved with it
    if consumer is not None:
        channel.remove_consumer(consumer)
        yield from consumer.queue.heard()
        yield channel.broker.await_deletions
    elif channel.reply_consumer is not None and channel.reply_consumer.tag == tag:
        channel.broker.reply_consumers.remove(channel.reply_consumer)
        channel.reply_consumer = None
    if not method.nowait:
        channel.send(BasicCancelOk(tag))


def get(channel: Channel, method: BasicGet) -> Steps:
    """Handle basic.get (§4.5), which ignores prefetch and exclusive consumers."""
    name = channel.named_queue(method.queue)
    if is_reply_name(name):
        raise not_found("queue", name, channel.connection.vhost)
    yield from channel.check("queue", name, "read")
    queue = channel.usable_queue(name)
    found = yield from queue.fetch(no_ack=method.no_ack)
    shown = None
    if channel.interceptors is not None and found is not None:
        found, shown = yield from channel.interceptors.got(
            queue, found, channel.broker.now, no_ack=method.no_ack
        )
    if channel.pairs is not None:
        channel.pairs.got(queue.record.name, None if found is None else found[0], no_ack=method.no_ack)
    if found is None:
        channel.counters.get_empty += 1
        channel.send(BasicGetEmpty())
        return
    run, left = found
    queue = current(queue)  # the one that answered
    envelope = run.envelope
    is_redelivered = run.deliveries > 0
    channel.counters.got(no_ack=method.no_ack, is_redelivered=is_redelivered)
    tag = channel.take_tag()
    channel.send(BasicGetOk(tag, is_redelivered, envelope.exchange, envelope.routing_key, left))
    channel.connection.send(channel.fit(shown or run, queue, is_got=True)[0])
    if not method.no_ack:
        channel.unacked.add(Delivery(tag, run, queue, None, channel.broker.now))
    if channel.vhost.tracer is not None:
        channel.vhost.tracer.delivered(channel, queue, run)


def ack(channel: Channel, method: BasicAck) -> None:
    """Handle basic.ack (§4.10)."""
    if method.multiple:
        channel.ack(channel.unacked.settle_through(method.delivery_tag))
    else:
        channel.acks(method.delivery_tag, method.delivery_tag)


def nack(channel: Channel, method: BasicNack) -> None:
    """Handle basic.nack (§4.10)."""
    if method.multiple:
        channel.reject(channel.unacked.settle_through(method.delivery_tag), requeue=method.requeue)
    else:
        _reject_one(channel, method.delivery_tag, requeue=method.requeue)


def reject(channel: Channel, method: BasicReject) -> None:
    """Handle basic.reject (§4.10)."""
    _reject_one(channel, method.delivery_tag, requeue=method.requeue)


def _reject_one(channel: Channel, tag: int, *, requeue: bool) -> None:
    settled = channel.unacked.settle(tag, tag)
    channel.require_settled(settled, tag, tag)
    channel.reject(settled, requeue=requeue)


def recover(channel: Channel, method: BasicRecover) -> None:
    """Handle basic.recover: all unacknowledged messages go back to the queues (§4.10)."""
    _recover(channel, requeue=method.requeue)
    channel.send(BasicRecoverOk())


def recover_async(channel: Channel, method: BasicRecoverAsync) -> None:
    """Handle basic.recover-async: as basic.recover, without an answer."""
    _recover(channel, requeue=method.requeue)


def _recover(channel: Channel, *, requeue: bool) -> None:
    if not requeue:
        raise ProtocolError(ReplyCode.NOT_IMPLEMENTED, "requeue=false")
    channel.settle_rejected(channel.unacked.drain(), requeue=True)


HANDLERS: Final[Handlers] = {
    BasicQos: qos,
    BasicConsume: consume,
    BasicCancel: cancel,
    BasicGet: get,
    BasicAck: ack,
    BasicNack: nack,
    BasicReject: reject,
    BasicRecover: recover,
    BasicRecoverAsync: recover_async,
}
