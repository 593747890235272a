"""A plug-in for Fluffle: the exchange type x-first-bound sends each message to the destination that was bound first."""

from collections.abc import Iterable

from node.plugins import (
    Binding,
    Destination,
    ExchangeIndex,
    ExchangeType,
    Message,
    Plugin,
    Surroundings,
    Table,
    destination_of,
)


class FirstBoundIndex:
    """The bindings from one exchange."""

    varies = False  # the same routing keys always lead to the same destinations until a binding changes

    def __init__(self) -> None:
        self.bindings: list[Binding] = []

    def bind(self, binding: Binding) -> None:
        """Take in a new binding."""
        self.bindings.append(binding)

    def unbind(self, binding: Binding) -> None:
        """Forget a binding."""
        self.bindings.remove(binding)

    def route(self, message: Message) -> Iterable[Destination]:
        """Return the destinations of a message."""
        return [destination_of(binding) for binding in self.bindings[:1]]


class FirstBound(ExchangeType):
    """The exchange type x-first-bound."""

    name = "x-first-bound"
    description = "To the destination that was bound first"

    def index(self, arguments: Table, surroundings: Surroundings) -> ExchangeIndex:
        """Return the index of an exchange without bindings."""
        return FirstBoundIndex()


PLUGIN = Plugin("first_bound", "1.0", "exchange type x-first-bound", (FirstBound(),))
