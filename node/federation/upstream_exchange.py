"""The exchange type `x-federation-upstream`: a fanout that drops messages which have come too far or went round.

A downstream broker declares such an exchange here, binds it to the exchange that it federates, and a queue to it.

    x-max-hops            the most links that a message may pass on its way to the downstream
    x-downstream-name     the cluster of the downstream      x-downstream-vhost    its vhost

Source: RabbitMQ 3.10.8, `rabbit_federation_upstream_exchange`.
"""

from collections.abc import Collection, Iterable
from typing import ClassVar

from node.amqp.field_table import type_name
from node.federation.hops import RECEIVED_FROM, may_go_on
from node.federation.names import INTERNAL_TYPE
from node.override import override
from node.plugins import Binding, Destination, ExchangeIndex, ExchangeType, Message, Surroundings, Table
from node.plugins.exchanges.sorted_bindings import SortedBindings

_MAX_HOPS = "x-max-hops"


class UpstreamIndex:
    """The bindings of an exchange."""

    varies: ClassVar[bool] = False

    def __init__(self, max_hops: int, cluster: str | None, vhost: str | None) -> None:
        self._bindings = SortedBindings()
        self._max_hops = max_hops
        self._cluster = cluster
        self._vhost = vhost

    def bind(self, binding: Binding) -> None:
        """Add a binding."""
        self._bindings.add(binding)

    def unbind(self, binding: Binding) -> None:
        """Remove a binding."""
        self._bindings.remove(binding)

    def route(self, message: Message) -> Iterable[Destination]:
        """Return all destinations, or none for a message that the downstream does not take."""
        if not may_go_on(message.headers, self._max_hops, self._cluster, self._vhost):
            return ()
        return tuple(self._bindings)


class UpstreamExchange(ExchangeType):
    """The exchange type `x-federation-upstream`."""

    name = INTERNAL_TYPE
    description = "Federation upstream helper exchange"

    def check_exchange(self, arguments: Table) -> str | None:
        """Refuse an exchange without a limit of hops, with RabbitMQ's texts."""
        hops = arguments.get(_MAX_HOPS)
        if hops is None:
            return f"Argument {_MAX_HOPS} missing"
        return None if type_name(hops.tag) == "long" else f"Argument {_MAX_HOPS} must be of type long"

    @override
    def headers_asked(self, arguments: Table) -> Collection[str]:
        return (RECEIVED_FROM,)

    def index(self, arguments: Table, surroundings: Surroundings) -> ExchangeIndex:
        """Return an index without bindings."""
        hops = arguments[_MAX_HOPS].value if _MAX_HOPS in arguments else 0
        cluster, vhost = (_text(arguments, f"x-downstream-{key}") for key in ("name", "vhost"))
        return UpstreamIndex(hops if isinstance(hops, int) else 0, cluster, vhost)


def _text(arguments: Table, key: str) -> str | None:
    field = arguments.get(key)
    if field is None or not isinstance(field.value, bytes):
        return None
    return field.value.decode("utf-8", "surrogateescape")
