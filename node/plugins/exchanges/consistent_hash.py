"""The exchange type `x-consistent-hash`: a message goes to one destination by a hash, and few move when one more comes.

It hashes the routing key of the publish, or what the exchange's argument `hash-header` or `hash-property` names
(`correlation_id`, `message_id`, `timestamp`). The routing key of a binding is its weight: so many of the buckets are
its destination's. Buckets are numbered in the order in which the destinations were bound, and stay so over restarts.
A destination has the weight of its oldest binding; more bindings to it change nothing while that one exists.

Weights cost no memory: destinations are found by the sums of the weights before them.
Source: RabbitMQ 3.10.8, `rabbit_exchange_type_consistent_hash`, and live; docs/differences.md has the differences.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from itertools import accumulate
from typing import Final

from node.plugins import (
    VERSION,
    Binding,
    BindingKey,
    Destination,
    ExchangeIndex,
    ExchangeType,
    Message,
    Plugin,
    Surroundings,
    Table,
    binary_literal,
    binding_key,
    destination_of,
)
from node.plugins.exchanges.erlang_hash import UNDEFINED, Term, jump, phash2, term_of

HASH_HEADER: Final = "hash-header"
HASH_PROPERTY: Final = "hash-property"

WEIGHT_MAX: Final = 2**31 - 1
"""The largest weight: with as many destinations as there can be, the sum is exact in a jump's floating numbers."""

REMEMBERED_MAX: Final = 8192
"""The most keys whose destinations an exchange remembers, at some 200 bytes each; with more it starts over."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


class ConsistentHashIndex:
    """The destinations of an exchange, with their weights.

    value_of: returns the part of a message that is hashed.   varies: it is neither the routing key nor a header.
    """

    def __init__(self, value_of: Callable[[Message], Term], *, varies: bool) -> None:
        self.varies = varies
        self._value_of = value_of
        self._bound: dict[Destination, dict[BindingKey, tuple[int, int]]] = {}
        """The numbers, which rise, and weights of the bindings to each destination, the oldest first."""
        self._next_number = 0
        self._destinations: list[Destination] = []
        self._ends: list[int] = []
        """The bucket after the last one of each destination, in the order of the destinations."""
        self._is_current = True
        self._remembered: dict[bytes, Destination] = {}

    def bind(self, binding: Binding) -> None:
        """Give a new destination its buckets, after all others."""
        destination, weight = destination_of(binding), int(binding.routing_key)
        bindings = self._bound.setdefault(destination, {})
        bindings[_key(binding)] = self._next_number, weight
        self._next_number += 1
        if len(bindings) == 1 and self._is_current:
            self._destinations.append(destination)
            self._ends.append((self._ends[-1] if self._ends else 0) + weight)
            self._remembered.clear()

    def unbind(self, binding: Binding) -> None:
        """Forget a binding. If the destination's place or weight hung on it, the buckets are numbered anew."""
        destination = destination_of(binding)
        bindings = self._bound[destination]
        is_oldest = next(iter(bindings)) == _key(binding)
        del bindings[_key(binding)]
        if not bindings:
            del self._bound[destination]
        if is_oldest:
            self._is_current = False

    def route(self, message: Message) -> Iterable[Destination]:
        """Return the destination that the hashed part of the message leads to."""
        if not self._is_current:
            self._number_anew()
        if not self._ends:
            return ()
        value = self._value_of(message)
        if not isinstance(value, bytes):  # a table cannot be looked up
            return (self._find(value),)
        found = self._remembered.get(value)
        if found is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            found = self._remembered[value] = self._find(value)
        return (found,)

    def _find(self, value: Term) -> Destination:
        """Return the destination of a value; takes some 20 us."""
        return self._destinations[bisect_right(self._ends, jump(phash2(value), self._ends[-1]))]

    def _number_anew(self) -> None:
        """Give all destinations buckets in the order of their oldest bindings. Only bindings make this necessary."""
        oldest = sorted(
            (next(iter(bindings.values())), destination) for destination, bindings in self._bound.items()
        )
        self._destinations = [destination for _, destination in oldest]
        self._ends = list(accumulate(weight for (_, weight), _ in oldest))
        self._remembered.clear()
        self._is_current = True


class ConsistentHash(ExchangeType):
    """The exchange type `x-consistent-hash`."""

    name = "x-consistent-hash"
    description = "Consistent Hashing Exchange"

    def check_exchange(self, arguments: Table) -> str | None:
        """Refuse to hash two things, or what messages do not have."""
        for name in (HASH_HEADER, HASH_PROPERTY):
            if name in arguments and arguments[name].tag != "S":
                return f"{name} must be a longstr"
        if HASH_PROPERTY not in arguments:
            return None
        if HASH_HEADER in arguments:
            return "hash-header and hash-property are mutually exclusive"
        value = arguments[HASH_PROPERTY].value
        text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else ""
        return None if text in _PROPERTIES else f"Unsupported property: {text}"

    def check_binding(self, routing_key: str, arguments: Table) -> str | None:
        """Refuse a routing key that is no weight."""
        if _INTEGER.fullmatch(routing_key) is None:
            prefix = "The binding key must be an integer: "
            return f"{prefix}{binary_literal(routing_key.encode('utf-8', 'surrogateescape'), prefix)}"
        if int(routing_key) < 1:
            return "The binding key must be greater than 0"
        if int(routing_key) > WEIGHT_MAX:
            return f"The binding key must be at most {WEIGHT_MAX}"
        return None

    def headers_asked(self, arguments: Table) -> Collection[str]:
        """Return the name of the header that is hashed, if there is one."""
        header = arguments.get(HASH_HEADER)
        if header is None or not isinstance(header.value, bytes):
            return ()
        return (header.value.decode("utf-8", "surrogateescape"),)

    def index(self, arguments: Table, surroundings: Surroundings) -> ExchangeIndex:
        """Return an index without bindings."""
        if (header := arguments.get(HASH_HEADER)) is not None:
            assert isinstance(header.value, bytes)
            name = header.value.decode("utf-8", "surrogateescape")
            return ConsistentHashIndex(lambda message: _header(message, name), varies=False)
        if (asked := arguments.get(HASH_PROPERTY)) is not None:
            assert isinstance(asked.value, bytes)
            return ConsistentHashIndex(_PROPERTIES[asked.value.decode()], varies=True)
        return ConsistentHashIndex(lambda message: _binary(message.routing_keys[0]), varies=False)


def _key(binding: Binding) -> BindingKey:
    return binding_key(
        binding.source, binding.destination_kind, binding.destination, binding.routing_key, binding.arguments
    )


def _binary(text: str | None) -> Term:
    return UNDEFINED if text is None else text.encode("utf-8", "surrogateescape")


def _header(message: Message, name: str) -> Term:
    field = message.headers.get(name)
    return UNDEFINED if field is None else term_of(field)


def _timestamp(message: Message) -> Term:
    time_s = message.properties.timestamp
    return UNDEFINED if time_s is None else b"%d" % time_s


_PROPERTIES: Final[dict[str, Callable[[Message], Term]]] = {
    "correlation_id": lambda message: _binary(message.properties.correlation_id),
    "message_id": lambda message: _binary(message.properties.message_id),
    "timestamp": _timestamp,
}

PLUGIN: Final = Plugin(
    "rabbitmq_consistent_hash_exchange", VERSION, "exchange type x-consistent-hash", (ConsistentHash(),)
)
