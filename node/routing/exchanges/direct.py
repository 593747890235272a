"""The direct exchange: a binding selects the messages whose routing key is its own, byte for byte.

Source: amqp-behaviour §3.15.
"""

from collections.abc import Collection, Iterable
from typing import ClassVar

from node.amqp.field_table import Table
from node.catalogue.records import Binding
from node.routing.exchanges import Destination, Destinations, destination_of


class DirectIndex:
    """An index of destinations by routing key."""

    uses_routing_key: ClassVar[bool] = True
    headers_asked: ClassVar[Collection[bytes]] = ()
    states: ClassVar[int] = 0

    def __init__(self) -> None:
        self._by_key: dict[str, Destinations] = {}

    def bind(self, binding: Binding) -> None:
        """Count the binding under its routing key."""
        self._by_key.setdefault(binding.routing_key, Destinations()).add(destination_of(binding))

    def unbind(self, binding: Binding) -> None:
        """Count one binding less under the routing key; a key without bindings is forgotten."""
        destinations = self._by_key[binding.routing_key]
        destinations.remove(destination_of(binding))
        if not destinations:
            del self._by_key[binding.routing_key]

    def match(self, routing_key: str, headers: Table | None = None) -> Iterable[Destination]:
        """Return the destinations that are bound with this very routing key."""
        return self._by_key.get(routing_key, ())
