"""The targets of publishes whose headers decide where they go, remembered by the octets of their properties.

A route whose exchanges look at headers has one `HeaderRoutes`. It is valid as long as the route is.
Source: docs/internals/message.md.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.amqp.properties import Traits
from node.queue.alike import headers_in, stretches
from node.queue.content import chosen_headers
from node.queue.intake import Targets
from node.queue.live_queue import LiveQueue
from node.queue.run import Envelope

KNOWN_MAX: Final = 512
"""The most properties whose targets a route remembers; with more it starts over."""

KNOWN_MAX_BYTES: Final = 512
"""The longest properties whose targets are remembered: a route keeps at most a quarter of a megabyte of them."""

LOOKED_UP_MAX: Final = 16
"""The cost of looking up targets between two looks at the clock: 1 each, and more for long properties and for exchanges
that look at many headers.
"""

_COST_BYTES: Final = 512
_COST_NAMES: Final = 64
"""The bytes of properties, and the names of headers, that make a look-up twice as long."""

NAMES_MAX: Final = 8
"""The most names whose headers are remembered with the properties: a headers exchange may ask for thousands."""

AT_ONCE_MAX: Final = 4096
"""The most messages that are published between two looks at the clock."""


class Part(NamedTuple):
    """Messages with the same targets: the first index, and the one behind the last."""

    targets: Targets
    first: int
    stop: int


class HeaderRoutes:
    """The targets of one route's messages.

    asked: the names of the headers that decide.   find: returns the queues for some headers; it is given a content
        with them, too. It may raise ProtocolError.
    traits, envelope: of the last messages, used again while the traits stay the same.
    """

    __slots__ = ("_asked", "_find", "_known", "_last", "_names", "_queues", "envelope", "traits")

    def __init__(self, asked: Collection[bytes], find: Callable[[Table, bytes], Sequence[LiveQueue]]) -> None:
        self._asked = asked
        self._names = tuple(sorted(asked)) if len(asked) <= NAMES_MAX else None
        self._find = find
        self._known: dict[bytes, Targets] = {}
        self._last: Targets | None = None
        self._queues: Sequence[LiveQueue] = ()  # of the last targets
        self.traits: Traits | None = None
        self.envelope: Envelope | None = None

    def parts(self, contents: list[bytes], first: int) -> list[Part]:
        """Return messages from an index on, at least one, by their targets; as many as cost little to look up.

        Raises: ProtocolError if the first one cannot be routed.
        """
        found: list[Part] = []
        left = LOOKED_UP_MAX
        end = first + AT_ONCE_MAX
        for octets, start, stop in stretches(contents, first):
            targets = self._known.get(octets)
            if targets is None:
                if left <= 0:
                    break
                left -= 1 + len(octets) // _COST_BYTES + len(self._asked) // _COST_NAMES
                try:
                    targets = self._look_up(octets, contents[start])
                except ProtocolError:
                    if found:
                        break  # those before it are published first
                    raise
            if found and found[-1].targets is targets:
                found[-1] = found[-1]._replace(stop=stop)
            else:
                found.append(Part(targets, start, stop))
            if stop >= end:
                break
        return found

    def _look_up(self, octets: bytes, content: bytes) -> Targets:
        names = self._names
        headers = chosen_headers(content, self._asked) if names is None else headers_in(octets, names)
        queues = self._find(headers, content)
        targets = self._last
        if targets is None or queues != self._queues:
            # Else messages for the same queues stay together, whatever else is in their headers.
            targets = self._last = Targets(queues)
            self._queues = queues
        if len(octets) <= KNOWN_MAX_BYTES:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[octets] = targets
        return targets
