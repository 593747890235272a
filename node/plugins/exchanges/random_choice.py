"""The exchange types `x-random` and `x-local-random`: each message goes to one binding by chance.

`x-random` chooses among all bindings, so a queue with two of them gets twice as much. `x-local-random` chooses among
those of queues on the node where the message was published, which saves the way to another node; without any such
queue the message is unroutable. Both leave out queues out of reach. Routing keys do not matter.
Source: RabbitMQ 3.10.8, `rabbit_exchange_type_random`, and live; RabbitMQ 4.0 for `x-local-random`, which is no
plug-in there and takes only bindings with an empty key.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar, Final

from node.plugins import (
    VERSION,
    Binding,
    Destination,
    ExchangeIndex,
    ExchangeType,
    Message,
    Plugin,
    Surroundings,
    Table,
)
from node.plugins.exchanges.sorted_bindings import SortedBindings

_TRIES_MAX: Final = 4
"""So many bindings are drawn before all are looked at: with most queues within reach one draw is enough."""


class RandomIndex:
    """The bindings of an exchange, to be chosen from.   may_take: True if a queue may be chosen now."""

    varies: ClassVar[bool] = True

    def __init__(self, surroundings: Surroundings, may_take: Callable[[str], bool]) -> None:
        self._bindings = SortedBindings()
        self._random_below = surroundings.random_below
        self._may_take = may_take

    def bind(self, binding: Binding) -> None:
        """Add a binding."""
        self._bindings.add(binding)

    def unbind(self, binding: Binding) -> None:
        """Remove a binding."""
        self._bindings.remove(binding)

    def route(self, message: Message) -> Iterable[Destination]:
        """Return the destination of a binding by chance. All bindings are looked at if few may be chosen."""
        bindings = self._bindings
        if not bindings:
            return ()
        for _ in range(_TRIES_MAX):
            drawn = bindings[self._random_below(len(bindings))]
            if self._may_choose(drawn):
                return (drawn,)
        left = [each for each in bindings if self._may_choose(each)]
        return (left[self._random_below(len(left))],) if left else ()

    def _may_choose(self, destination: Destination) -> bool:
        return destination.kind == "exchange" or self._may_take(destination.name)


class Random(ExchangeType):
    """The exchange type `x-random`."""

    name = "x-random"
    description = "Randomly picks a binding (queue) to route via (to)."

    def index(self, arguments: Table, surroundings: Surroundings) -> ExchangeIndex:
        """Return an index without bindings."""
        return RandomIndex(surroundings, surroundings.is_within_reach)


class LocalRandom(ExchangeType):
    """The exchange type `x-local-random`."""

    name = "x-local-random"
    description = "Picks one random local binding (queue) to route via (to)."

    def check_binding(self, routing_key: str, arguments: Table) -> str | None:
        """Refuse a routing key, which could only mislead."""
        if not routing_key:
            return None
        return f"Non-empty binding key '{routing_key}' not permitted"

    def index(self, arguments: Table, surroundings: Surroundings) -> ExchangeIndex:
        """Return an index without bindings."""
        return RandomIndex(surroundings, surroundings.is_local)


PLUGIN: Final = Plugin(
    "rabbitmq_random_exchange",
    VERSION,
    "exchange types x-random and x-local-random",
    (Random(), LocalRandom()),
)
