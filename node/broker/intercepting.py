"""Interceptors of plug-ins come and go: what leads to them, and away from them, on a broker with clients."""

from collections.abc import Sequence

from node.broker.broker import Broker
from node.client.delivery_interception import DeliveryInterception, OutgoingInterceptor
from node.client.interception import Interceptor


def intercept_publishes(broker: Broker, interceptors: Sequence[Interceptor]) -> None:
    """Have these interceptors look at all messages that are published from now on."""
    if interceptors != broker.interceptors:
        broker.interceptors = interceptors
        for connection in broker.connections.values():
            connection.forget_routes()


def intercept_deliveries(broker: Broker, interceptors: Sequence[OutgoingInterceptor]) -> None:
    """Have these interceptors look at all messages that are delivered from now on."""
    found = broker.delivery_interception
    if interceptors == (() if found is None else found.interceptors):
        return
    broker.delivery_interception = (
        DeliveryInterception(interceptors, broker.turns, broker.exchange_types.failed)
        if interceptors
        else None
    )
    for channel in broker.channels:
        channel.follow_interceptors()
