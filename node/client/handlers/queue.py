"""The handlers of the queue class. Source: amqp-behaviour §3.1, §3.7-3.14."""

from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.methods import (
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)
from node.catalogue.arguments import (
    check_queue_equivalence,
    check_server_named,
    dead_letter_exchange,
    validate_queue_arguments,
    with_default_queue_type,
)
from node.catalogue.commands import Bind, DeclareQueue, Unbind
from node.catalogue.holding import hold_header
from node.catalogue.limits import check_vhost_queues
from node.catalogue.names import (
    GENERATED_QUEUE_PREFIX,
    GENERATED_RANDOM_BYTES,
    check_not_reserved,
    generated_name,
    not_found,
    resource,
    strip_line_breaks,
)
from node.catalogue.records import Binding, QueueRecord
from node.client.channel import Channel
from node.client.handlers.binding import check_binding
from node.client.handlers.steps import Handlers, Steps, assert_durable, submit
from node.client.reply_to import REPLY_TO, is_reply_name

_UID_BYTES: Final = 16


def declare(channel: Channel, method: QueueDeclare) -> Steps:
    """Handle queue.declare, in the order of checks of §3.7."""
    vhost = channel.connection.vhost
    name = strip_line_breaks(method.queue)
    if is_reply_name(name):
        yield from _declare_reply(channel, name, method)
        return
    if method.passive:
        record = channel.broker.catalogue.queue(vhost, name)
        if record is None:
            raise not_found("queue", name, vhost)
        channel.check_exclusive(record)
        if record.durable:
            yield from assert_durable(channel)
    else:
        record = yield from _declare(channel, name, method)
    channel.last_queue = record.name
    counts = yield from channel.broker.live_queue(vhost, record.name).counts()
    channel.broker.counters.queue_declared += 1
    if not method.nowait:
        channel.send(QueueDeclareOk(record.name, counts.messages, counts.consumers))


def _declare(channel: Channel, name: str, method: QueueDeclare):  # type: ignore[no-untyped-def]
    broker, connection = channel.broker, channel.connection
    catalogue, vhost = broker.catalogue, connection.vhost
    described = catalogue.vhost(vhost)
    assert described is not None
    arguments = with_default_queue_type(
        method.arguments, described.default_queue_type, method.durable, method.exclusive, method.auto_delete
    )
    durable = method.durable and not method.exclusive
    if not name:
        check_server_named(arguments)
        name = generated_name(GENERATED_QUEUE_PREFIX, broker.entropy(GENERATED_RANDOM_BYTES))
    else:
        check_not_reserved("queue", name)
    yield from channel.check("queue", name, "configure")
    known = catalogue.queue(vhost, name)
    if known is not None:
        broker.live_queue(vhost, name)
    else:
        check_vhost_queues(catalogue.vhost_limits(vhost), vhost, name, len(catalogue.queues(vhost)))
        dead_letters = dead_letter_exchange(arguments, name, vhost)
        if dead_letters is not None:
            yield from channel.check("queue", name, "read")
            yield from channel.check("exchange", dead_letters, "write")
        queue_type = validate_queue_arguments(
            arguments, name, vhost, durable, method.exclusive, method.auto_delete, broker.settings.node_name
        )
        command = DeclareQueue(
            vhost,
            name,
            broker.entropy(_UID_BYTES).hex(),
            durable=durable,
            auto_delete=method.auto_delete,
            exclusive_owner=connection.id if method.exclusive else None,
            arguments=arguments,
            type=queue_type,
        )
        header = hold_header(arguments)
        holding = None if header is None else broker.holding(vhost, header)
        if holding is not None:
            yield from submit(holding)
        declared = yield from submit(broker.placed(command))
        if declared.created:
            return declared.queue
        known = declared.queue
    channel.check_exclusive(known, declared_exclusive=method.exclusive)
    check_queue_equivalence(known, durable, method.auto_delete, arguments)
    if known.durable:
        yield from assert_durable(channel)
    return known


def _declare_reply(channel: Channel, name: str, method: QueueDeclare) -> Steps:
    """Answer a declaration of a reply name, by which a client asks whether the requester is still there (§4.12)."""
    if name != REPLY_TO and not (yield from channel.broker.has_requester(name)):
        raise not_found("queue", name, channel.connection.vhost)
    channel.last_queue = name
    if not method.nowait:
        channel.send(QueueDeclareOk(name, 0, 1))


def delete(channel: Channel, method: QueueDelete) -> Steps:
    """Handle queue.delete (§3.11); for a missing queue it succeeds."""
    vhost = channel.connection.vhost
    name = strip_line_breaks(channel.named_queue(method.queue))
    yield from channel.check("queue", name, "configure")
    record = channel.broker.catalogue.queue(vhost, name)
    count = 0
    if record is not None:
        channel.check_exclusive(record)
        if record.type == "quorum":
            _check_unconditional(record, method)
        queue = channel.broker.live_queue(vhost, name)
        channel.held_cancels = []
        try:
            count = yield from queue.delete(if_unused=method.if_unused, if_empty=method.if_empty)
        except ProtocolError:
            channel.held_cancels = None
            raise
    else:
        yield from assert_durable(channel)
    if not method.nowait:
        channel.send(QueueDeleteOk(count))
    held, channel.held_cancels = channel.held_cancels or [], None
    for consumer in held:
        channel.notify_cancelled(consumer)


def _check_unconditional(record: QueueRecord, method: QueueDelete) -> None:
    """Raise ProtocolError 540 if the deletion has conditions: quorum queues know none."""
    if method.if_unused or method.if_empty:
        raise ProtocolError(
            ReplyCode.NOT_IMPLEMENTED,
            f"cannot delete {resource('queue', record.name, record.vhost)}. queue.delete operations with "
            f"{'if-unused' if method.if_unused else 'if-empty'} flag set are not supported by quorum queues",
        )


def purge(channel: Channel, method: QueuePurge) -> Steps:
    """Handle queue.purge (§3.11)."""
    name = channel.named_queue(method.queue)
    yield from channel.check("queue", name, "read")
    queue = channel.usable_queue(name)
    count = yield from queue.purge()
    if not method.nowait:
        channel.send(QueuePurgeOk(count))


def bind(channel: Channel, method: QueueBind) -> Steps:
    """Handle queue.bind (§3.14), with the shorthand of §3.8."""
    vhost = channel.connection.vhost
    name, key = _bound(channel, method)
    source = strip_line_breaks(method.exchange)
    yield from check_binding(channel, source, "queue", name, key, method.arguments)
    if channel.broker.catalogue.queue(vhost, name) is not None:
        channel.usable_queue(name)
    yield from submit(Bind(vhost, source, "queue", name, key, method.arguments))
    if not method.nowait:
        channel.send(QueueBindOk())


def unbind(channel: Channel, method: QueueUnbind) -> Steps:
    """Handle queue.unbind (§3.14); for a missing binding it succeeds."""
    vhost = channel.connection.vhost
    name, key = _bound(channel, method)
    source = strip_line_breaks(method.exchange)
    yield from check_binding(channel, source, "queue", name, key)
    catalogue = channel.broker.catalogue
    record = catalogue.queue(vhost, name)
    binding = Binding(vhost, source, "queue", name, key, method.arguments)
    if record is not None and binding in catalogue.bindings_to(vhost, "queue", name):
        channel.usable_queue(name)
    yield from submit(Unbind(vhost, source, "queue", name, key, method.arguments))
    channel.send(QueueUnbindOk())


def _bound(channel: Channel, method: QueueBind | QueueUnbind) -> tuple[str, str]:
    """Return queue and routing key of a method: with both empty, the last declared queue's name for both (§3.8)."""
    name = strip_line_breaks(channel.named_queue(method.queue))
    return name, name if not method.queue and not method.routing_key else method.routing_key


HANDLERS: Final[Handlers] = {
    QueueDeclare: declare,
    QueueDelete: delete,
    QueuePurge: purge,
    QueueBind: bind,
    QueueUnbind: unbind,
}
