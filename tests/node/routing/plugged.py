"""A plug-in for tests, whose exchange types do what a test tells them."""

from collections.abc import Callable, Collection, Iterable

from node.amqp.field_table import Table
from node.catalogue.records import Binding
from node.routing.exchange_types import ExchangeTypes, Failure
from node.routing.exchanges import Destination, destination_of
from node.routing.plugins import ExchangeIndex, ExchangeType, Message, Plugin, Surroundings


class EachIndex:
    """The index of a type that leads to all bindings, in their order, or does what `told` does with a message."""

    def __init__(self, told: Callable[[Message], None], *, varies: bool) -> None:
        self.varies = varies
        self.bindings: list[Binding] = []
        self._told = told

    def bind(self, binding: Binding) -> None:
        if binding.routing_key == "raise":
            raise ValueError("a binding")
        self.bindings.append(binding)

    def unbind(self, binding: Binding) -> None:
        self.bindings.remove(binding)

    def route(self, message: Message) -> Iterable[Destination]:
        self._told(message)
        for binding in self.bindings:
            yield destination_of(binding)


class Each(ExchangeType):
    """A type whose indexes are `EachIndex`; it refuses the exchange argument and the key `no`.

    asks: the headers that it states; an exchange argument `raise-names` has it raise instead.
    """

    name = "x-each"
    description = "to all bindings"

    def __init__(
        self,
        told: Callable[[Message], None] = lambda message: None,
        *,
        varies: bool = True,
        asks: Collection[str] = (),
    ) -> None:
        self._told = told
        self._varies = varies
        self._asks = asks
        self.indexes: list[EachIndex] = []
        self.surroundings: list[Surroundings] = []

    def check_exchange(self, arguments: Table) -> str | None:
        return "no such exchange" if "no" in arguments else None

    def check_binding(self, routing_key: str, arguments: Table) -> str | None:
        return "no such binding" if routing_key == "no" else None

    def headers_asked(self, arguments: Table) -> Collection[str]:
        if "raise-names" in arguments:
            raise ValueError("names")
        return self._asks

    def index(self, arguments: Table, surroundings: Surroundings) -> ExchangeIndex:
        if "raise" in arguments:
            raise ValueError("an exchange")
        self.indexes.append(EachIndex(self._told, varies=self._varies))
        self.surroundings.append(surroundings)
        return self.indexes[-1]


def registry(*types: ExchangeType, failures: list[Failure] | None = None) -> ExchangeTypes:
    """Return a registry with the plug-in `each`, which brings these types and is enabled."""
    told = [] if failures is None else failures
    plugin = Plugin("each", "1.0", "for tests", types)
    found = ExchangeTypes(lambda name: plugin if name == "each" else None, on_failure=told.append)
    found.enable("each", tuple(each.name for each in types))
    return found
