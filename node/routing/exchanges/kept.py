"""The index of an exchange that routes nothing: its own queue gets its messages, and gives them to new bindings.

Source: docs/mqtt.md.
"""

from collections.abc import Collection, Iterable
from typing import ClassVar

from node.amqp.field_table import Table
from node.catalogue.records import Binding
from node.routing.exchanges import Destination


class KeptIndex:
    """No bindings, however many there are."""

    uses_routing_key: ClassVar[bool] = False
    headers_asked: ClassVar[Collection[bytes]] = ()
    states: ClassVar[int] = 0

    def bind(self, binding: Binding) -> None:
        """Do nothing: the exchange's queue sees the binding."""

    def unbind(self, binding: Binding) -> None:
        """Do nothing."""

    def match(self, routing_key: str, headers: Table | None = None) -> Iterable[Destination]:
        """Return no destination."""
        return ()
