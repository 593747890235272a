"""Exchange types: one index of bindings per type, which gives the destinations of a message.

An index knows the bindings *from* one exchange and nothing of other exchanges; `node.routing.router` walks
from exchange to exchange. The rules are those of amqp-behaviour §3.15-§3.17.
"""

from collections.abc import Collection, Iterable
from typing import ClassVar, Final, NamedTuple, Protocol

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.catalogue.records import Binding

STATES_MAX: Final = 20_000
"""The limit of nodes in topic exchanges' patterns that one message may reach with all its keys: some 2 ms.

A thousand patterns that are all matched in each word of a key of ten words come to half of that.
"""


def too_many_ways(routing_key: str) -> ProtocolError:
    """Return the error for a message whose routing would cost more than `STATES_MAX`."""
    return ProtocolError(
        ReplyCode.PRECONDITION_FAILED,
        f"too many ways to match patterns of topic exchanges with routing key '{routing_key}'",
    )


class Destination(NamedTuple):
    """The queue or exchange to which a binding leads."""

    kind: str
    """The word `queue` or `exchange`."""
    name: str


def destination_of(binding: Binding) -> Destination:
    """Return the destination of a binding record."""
    return Destination(binding.destination_kind, binding.destination)


class Destinations(dict[Destination, int]):
    """A set of destinations that counts.

    Two bindings may lead to one destination in the same way (they differ only in what the type of the
    exchange does not look at); the destination stays until both are gone.
    """

    __slots__ = ()

    def add(self, destination: Destination) -> None:
        """Count one more binding to `destination`."""
        self[destination] = self.get(destination, 0) + 1

    def remove(self, destination: Destination) -> None:
        """Count one binding less to `destination`; there must be one."""
        count = self[destination] - 1
        if count:
            self[destination] = count
        else:
            del self[destination]


class BindingIndex(Protocol):
    """The bindings from one exchange, arranged for its type.

    `bind` and `unbind` are called once for each binding record: that a repeated queue.bind changes nothing is
    the catalogue's knowledge (§3.14). Unbinding what was not bound is our own mistake and fails with
    KeyError.
    """

    uses_routing_key: ClassVar[bool]

    @property
    def headers_asked(self) -> Collection[bytes]:
        """The names of all headers that bindings ask for; good until the next change of the index."""

    @property
    def states(self) -> int:
        """The cost of the last match, as `STATES_MAX` counts."""

    def bind(self, binding: Binding) -> None:
        """Take in a new binding from this exchange."""

    def unbind(self, binding: Binding) -> None:
        """Forget a binding: one with the same destination, routing key and arguments was bound before."""

    def match(self, routing_key: str, headers: Table | None = None) -> Iterable[Destination]:
        """Return the destinations whose binding selects the message; a destination may come more than once.

        headers: the message's headers, at least those of `headers_asked`; None when it has none.
        The result must be consumed before the next change of the index.
        Raises: ProtocolError 406 for a message that passes `STATES_MAX`.
        """
