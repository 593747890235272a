"""The delayed exchange: messages with a delay go to the queue where they wait, all others as its routing type says.

A message whose time has come passes here once more, with a negative delay, and without the header that held it.
Source: docs/delayed.md.
"""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from typing import ClassVar, Final

from node.amqp.field_table import Table
from node.catalogue.delayed import DELAY_HEADER, delay_ms
from node.catalogue.exchange_queues import exchange_of
from node.catalogue.holding import hold_time_ms
from node.catalogue.records import Binding
from node.routing.exchanges import BindingIndex, Destination

_ASKED: Final = frozenset({DELAY_HEADER.encode()})


class DelayedIndex:
    """The index of the routing type, and the queue in which messages wait.

    queues: the names of all queues within reach. While the waiting queue is not among them, a message with a delay
    leads back to the exchange itself, where it has been already: it goes nowhere, not even to the alternate exchange.
    header: one that holds messages until a time; None: there is none. Messages with such a time go to the waiting
    queue though it may be over, as the index reads no clock.
    """

    uses_routing_key: ClassVar[bool] = True

    def __init__(
        self, inner: BindingIndex, waiting: str, queues: AbstractSet[str], header: str | None = None
    ) -> None:
        self._inner = inner
        self._header = header
        own = () if header is None else (header.encode("utf-8", "surrogateescape"),)
        self._own = _ASKED.union(own)
        self._waiting = Destination("queue", waiting)
        self._itself = Destination("exchange", exchange_of(waiting))
        self._queues = queues

    @property
    def headers_asked(self) -> Collection[bytes]:
        """The headers that delay, and those that bindings of the routing type ask for."""
        return self._own.union(self._inner.headers_asked)

    @property
    def states(self) -> int:
        """The cost of the last match."""
        return self._inner.states

    def bind(self, binding: Binding) -> None:
        """Take in a new binding from this exchange."""
        self._inner.bind(binding)

    def unbind(self, binding: Binding) -> None:
        """Forget a binding that was bound."""
        self._inner.unbind(binding)

    def match(self, routing_key: str, headers: Table | None = None) -> Iterable[Destination]:
        """Return the waiting queue for a message with a delay, else what the routing type says."""
        if delay_ms(headers) is None and not self._holds(headers):
            return self._inner.match(routing_key, headers)
        return (self._waiting,) if self._waiting.name in self._queues else (self._itself,)

    def _holds(self, headers: Table | None) -> bool:
        if self._header is None or headers is None:
            return False
        return hold_time_ms(headers.get(self._header)) is not None
