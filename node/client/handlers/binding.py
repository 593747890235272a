"""The checks that binding and unbinding share, whatever the destination. Source: amqp-behaviour §3.14."""

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.catalogue.delayed import DELAYED_TYPE, routing_type
from node.catalogue.limits import check_bindings, check_pattern, check_plugged_bindings
from node.catalogue.names import check_not_default_exchange, not_found, resource
from node.catalogue.records import EXCHANGE_TYPES, ResourceKind
from node.catalogue.retained import RETAINED_TYPE
from node.client.channel import Channel
from node.client.handlers.steps import Steps
from node.routing.exchanges.headers import check_binding_arguments


def check_binding(
    channel: Channel,
    source: str,
    kind: ResourceKind,
    destination: str,
    routing_key: str,
    arguments: Table | None = None,
) -> Steps:
    """Check a binding before it is made, or (arguments None) removed: in that case its ends may be missing."""
    catalogue, vhost = channel.broker.catalogue, channel.connection.vhost
    yield from channel.check(kind, destination, "write")
    if kind == "exchange":
        check_not_default_exchange(destination)
    check_not_default_exchange(source)
    yield from channel.check("exchange", source, "read")
    exchange = catalogue.exchange(vhost, source)
    if exchange is not None and exchange.type == "topic":
        yield from channel.check_topic(source, routing_key)
    if arguments is None:
        return
    if exchange is None:
        raise not_found("exchange", source, vhost)
    find = catalogue.exchange if kind == "exchange" else catalogue.queue
    if find(vhost, destination) is None:
        raise not_found(kind, destination, vhost)
    if exchange.type == RETAINED_TYPE:
        # Its messages were published to other exchanges, whose topic permissions would not be looked at.
        where = resource("exchange", source, vhost)
        raise ProtocolError(ReplyCode.ACCESS_REFUSED, f"{where} is bound by its protocol alone")
    routes_as = routing_type(exchange.arguments) if exchange.type == DELAYED_TYPE else exchange.type
    if routes_as == "headers":
        check_binding_arguments(arguments)
    elif routes_as == "topic":
        check_pattern(routing_key)
    elif exchange.type not in EXCHANGE_TYPES:
        channel.broker.exchange_types.check_binding(exchange.type, routing_key, arguments)
        check_plugged_bindings(
            resource("exchange", source, vhost), len(catalogue.bindings_from(vhost, source))
        )
    to_destination = len(catalogue.bindings_to(vhost, kind, destination))
    check_bindings(vhost, resource(kind, destination, vhost), catalogue.binding_count(vhost), to_destination)
