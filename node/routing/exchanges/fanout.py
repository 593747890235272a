"""The fanout exchange: every binding selects every message, whatever its routing key.

Source: amqp-behaviour §3.15.
"""

from collections.abc import Collection, Iterable
from typing import ClassVar

from node.amqp.field_table import Table
from node.catalogue.records import Binding
from node.routing.exchanges import Destination, Destinations, destination_of


class FanoutIndex:
    """The set of all destinations. Bindings that differ only in routing key or arguments are counted."""

    uses_routing_key: ClassVar[bool] = False
    headers_asked: ClassVar[Collection[bytes]] = ()
    states: ClassVar[int] = 0

    def __init__(self) -> None:
        self._destinations = Destinations()

    def bind(self, binding: Binding) -> None:
        """Count the binding to its destination."""
        self._destinations.add(destination_of(binding))

    def unbind(self, binding: Binding) -> None:
        """Count one binding less to the destination."""
        self._destinations.remove(destination_of(binding))

    def match(self, routing_key: str, headers: Table | None = None) -> Iterable[Destination]:
        """Return all destinations."""
        return self._destinations
