"""The handlers of the exchange class. Source: amqp-behaviour §3.1-3.6, §3.14."""

from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
)
from node.catalogue.arguments import alternate_exchange, check_exchange_equivalence
from node.catalogue.commands import Bind, DeclareExchange, DeleteExchange, Unbind
from node.catalogue.exchange_queues import check_exchange_arguments
from node.catalogue.names import (
    check_not_default_exchange,
    check_not_reserved,
    check_not_system_exchange,
    not_found,
    strip_line_breaks,
)
from node.client.channel import Channel
from node.client.handlers.binding import check_binding
from node.client.handlers.steps import Handlers, Steps, assert_durable, submit


def declare(channel: Channel, method: ExchangeDeclare) -> Steps:
    """Handle exchange.declare, in the order of checks of §3.3."""
    catalogue, vhost = channel.broker.catalogue, channel.connection.vhost
    name = strip_line_breaks(method.exchange)
    if method.passive:
        check_not_default_exchange(name)
        known = catalogue.exchange(vhost, name)
        if known is None:
            raise not_found("exchange", name, vhost)
        if known.durable:
            yield from assert_durable(channel)
    else:
        yield from _declare(channel, name, method)
    if not method.nowait:
        channel.send(ExchangeDeclareOk())


def _declare(channel: Channel, name: str, method: ExchangeDeclare) -> Steps:
    catalogue, vhost = channel.broker.catalogue, channel.connection.vhost
    if method.type not in catalogue.plugins.exchange_types:
        raise ProtocolError(ReplyCode.COMMAND_INVALID, f"unknown exchange type '{method.type}'")
    check_exchange_arguments(method.type, method.arguments)
    check_not_default_exchange(name)
    yield from channel.check("exchange", name, "configure")
    known = catalogue.exchange(vhost, name)
    if known is None:
        check_not_reserved("exchange", name)
        alternate = alternate_exchange(method.arguments, name, vhost)
        if alternate is not None:
            yield from channel.check("exchange", name, "read")
            yield from channel.check("exchange", alternate, "write")
        channel.broker.exchange_types.check_exchange(method.type, method.arguments)
        command = DeclareExchange(
            vhost,
            name,
            method.type,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=method.arguments,
            declared_by=channel.connection.user_name,
        )
        declared = yield from submit(channel.broker.with_waiting_queue(command))
        if declared.created:
            return
        known = declared.exchange
    check_exchange_equivalence(
        known, method.type, method.durable, method.auto_delete, method.internal, method.arguments
    )
    if known.durable:
        yield from assert_durable(channel)


def delete(channel: Channel, method: ExchangeDelete) -> Steps:
    """Handle exchange.delete (§3.4); for a missing exchange it succeeds."""
    name = strip_line_breaks(method.exchange)
    check_not_default_exchange(name)
    check_not_system_exchange(name, channel.connection.vhost)
    yield from channel.check("exchange", name, "configure")
    yield from submit(DeleteExchange(channel.connection.vhost, name, if_unused=method.if_unused))
    if not method.nowait:
        channel.send(ExchangeDeleteOk())


def bind(channel: Channel, method: ExchangeBind) -> Steps:
    """Handle exchange.bind (§3.14)."""
    source, destination = strip_line_breaks(method.source), strip_line_breaks(method.destination)
    yield from check_binding(channel, source, "exchange", destination, method.routing_key, method.arguments)
    yield from submit(
        Bind(channel.connection.vhost, source, "exchange", destination, method.routing_key, method.arguments)
    )
    if not method.nowait:
        channel.send(ExchangeBindOk())


def unbind(channel: Channel, method: ExchangeUnbind) -> Steps:
    """Handle exchange.unbind (§3.14); for a missing binding it succeeds."""
    source, destination = strip_line_breaks(method.source), strip_line_breaks(method.destination)
    yield from check_binding(channel, source, "exchange", destination, method.routing_key)
    yield from submit(
        Unbind(
            channel.connection.vhost, source, "exchange", destination, method.routing_key, method.arguments
        )
    )
    if not method.nowait:
        channel.send(ExchangeUnbindOk())


HANDLERS: Final[Handlers] = {
    ExchangeDeclare: declare,
    ExchangeDelete: delete,
    ExchangeBind: bind,
    ExchangeUnbind: unbind,
}
