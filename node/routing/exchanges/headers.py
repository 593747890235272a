"""The headers exchange: the arguments of a binding are a pattern for the headers of a message.

Routing keys are ignored. A binding is compiled once into a `Pattern`; bindings with equal patterns share one,
so a match evaluates each different pattern once. It is linear in them: there is no order among headers that
an index could use. Of a message only those headers are read that some pattern asks for.

Source: amqp-behaviour §3.17; values compare as `node.catalogue.arguments.comparable` says.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import ClassVar, Final, NamedTuple

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Field, Table, longstr, type_name
from node.catalogue.arguments import Comparable, comparable, print_value
from node.catalogue.records import Binding
from node.routing.exchanges import Destination, Destinations, destination_of

_X_MATCH: Final = "x-match"
_ALL: Final = longstr("all")
_ALL_WITH_X: Final = longstr("all-with-x")
_ANY: Final = longstr("any")
_ANY_WITH_X: Final = longstr("any-with-x")


class Pattern(NamedTuple):
    """The conditions of a binding on a message's headers."""

    needs_all: bool
    """True if every condition must hold, False if one must."""
    conditions: tuple[tuple[str, Comparable | None], ...]
    """The conditions, sorted by key. A value of None asks only that the header is there."""

    def selects(self, headers: dict[str, Comparable]) -> bool:
        """True if a message with these headers matches: without conditions always under `all`, never under `any`."""
        for key, wanted in self.conditions:
            value = headers.get(key)
            holds = value is not None and (wanted is None or value == wanted)
            if holds is not self.needs_all:
                return holds
        return self.needs_all

    def names(self) -> Iterator[bytes]:
        """Return the names of the headers that the conditions ask for."""
        return (key.encode("utf-8", "surrogateescape") for key, _ in self.conditions)


def check_binding_arguments(arguments: Table) -> None:
    """Refuse an `x-match` that is none of the four words: ProtocolError 406, at bind (§3.17)."""
    mode = arguments.get(_X_MATCH, _ALL)
    if mode.tag != "S":
        prefix = f"Invalid x-match field type {type_name(mode.tag)} (value "
        text = f"{prefix}{print_value(mode, after=prefix)}); expected longstr"
        raise ProtocolError(ReplyCode.PRECONDITION_FAILED, text)
    if mode not in (_ALL, _ANY, _ALL_WITH_X, _ANY_WITH_X):
        prefix = "Invalid x-match field value "
        text = f"{prefix}{print_value(mode, after=prefix)}; expected all, any, all-with-x, or any-with-x"
        raise ProtocolError(ReplyCode.PRECONDITION_FAILED, text)


def compile_pattern(arguments: Table) -> Pattern:
    """Return the pattern of a binding whose arguments passed `check_binding_arguments`."""
    mode = arguments.get(_X_MATCH, _ALL)
    with_x = mode in (_ALL_WITH_X, _ANY_WITH_X)
    conditions = tuple(
        (key, _wanted(arguments[key]))
        for key in sorted(arguments)
        if key != _X_MATCH and (with_x or not key.startswith("x-"))
    )
    return Pattern(mode in (_ALL, _ALL_WITH_X), conditions)


def _wanted(field: Field) -> Comparable | None:
    return None if field.tag == "V" else comparable(field)


class HeadersIndex:
    """An index of destinations by pattern."""

    uses_routing_key: ClassVar[bool] = False
    states: ClassVar[int] = 0

    def __init__(self) -> None:
        self._by_pattern: dict[Pattern, Destinations] = {}
        self._asked: Counter[bytes] = Counter()
        """The number of patterns that ask for each header."""

    @property
    def headers_asked(self) -> Collection[bytes]:
        """The names of all headers that patterns ask for."""
        return self._asked

    def bind(self, binding: Binding) -> None:
        """Count the binding under its pattern; the arguments passed `check_binding_arguments`."""
        pattern = compile_pattern(binding.arguments)
        destinations = self._by_pattern.get(pattern)
        if destinations is None:
            destinations = self._by_pattern[pattern] = Destinations()
            self._asked.update(pattern.names())
        destinations.add(destination_of(binding))

    def unbind(self, binding: Binding) -> None:
        """Count one binding less under its pattern; a pattern without bindings is forgotten."""
        pattern = compile_pattern(binding.arguments)
        destinations = self._by_pattern[pattern]
        destinations.remove(destination_of(binding))
        if not destinations:
            del self._by_pattern[pattern]
            for name in pattern.names():
                self._asked[name] -= 1
                if not self._asked[name]:
                    del self._asked[name]

    def match(self, routing_key: str, headers: Table | None = None) -> Iterable[Destination]:
        """Yield the destinations of each pattern that selects the headers."""
        values = {key: comparable(field) for key, field in headers.items()} if headers else {}
        for pattern, destinations in self._by_pattern.items():
            if pattern.selects(values):
                yield from destinations
