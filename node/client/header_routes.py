"""The targets of publishes whose headers decide where they go, remembered by the octets of their properties.

Messages with none of the headers have the same targets, whatever else is among their properties.
A route whose exchanges look at headers has one `HeaderRoutes`. It is valid as long as the route is.
Source: docs/internals/message.md.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.amqp.properties import Traits
from node.client.holding import held_or
from node.queue.alike import headers_in, stretches
from node.queue.content import chosen_headers
from node.queue.intake import Targets
from node.queue.live_queue import LiveQueue
from node.queue.run import Envelope

KNOWN_MAX: Final = 512
"""The most properties whose targets a route remembers; with more it starts over."""

KNOWN_MAX_BYTES: Final = 512
"""The longest properties whose targets are remembered: a route keeps at most a quarter of a megabyte of them."""

ROOM_BYTES: Final = 1024 * 1024
"""The memory for all that the routes of one connection remember: with many routing keys it has thousands of routes."""

_ENTRY_BYTES: Final = 150
"""The memory for properties that are remembered, besides their octets."""

LOOKED_UP_MAX: Final = 16
"""The cost of looking up targets between two looks at the clock: 1 each, and more for long properties and for exchanges
that look at many headers.
"""

HITS_PER_LOOK_UP: Final = 32
"""So many messages without the headers that are asked for cost what one look-up does."""

_ALIKE_PER_LOOK_UP: Final = 4
"""So many messages whose headers are those of the last look-up cost what one look-up does."""

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


class Room:
    """The memory that routes of one connection share for what they remember, in bytes.   left: what is free."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = ROOM_BYTES

    @property
    def is_full(self) -> bool:
        """True if the longest properties have no place."""
        return self.left < KNOWN_MAX_BYTES + _ENTRY_BYTES


class HeaderRoutes:
    """The targets of one route's messages.

    asked: the names of the headers that decide.   find: returns the queues for some headers; it is given a content
        with them, too. It may raise ProtocolError.   live: all queues of the vhost within reach, by name: some of
        those that are found may hold messages until a time.   room: for what is remembered.
    traits, envelope: of the last messages, used again while the traits stay the same.
    """

    __slots__ = (
        "_asked",
        "_find",
        "_headers",
        "_known",
        "_last",
        "_live",
        "_names",
        "_queues",
        "_room",
        "_taken",
        "_without",
        "envelope",
        "traits",
    )

    def __init__(
        self,
        asked: Collection[bytes],
        find: Callable[[Table, bytes], Sequence[LiveQueue]],
        live: Mapping[str, LiveQueue],
        room: Room,
    ) -> None:
        self._asked = asked
        self._names = tuple(sorted(asked)) if len(asked) <= NAMES_MAX else None
        self._find = find
        self._live = live
        self._room = room
        self._taken = 0
        self._known: dict[bytes, Targets] = {}
        self._without: Targets | None = None
        """The targets of messages with none of the headers; None: not known, or a queue among them holds messages."""
        self._last: Targets | None = None
        self._headers: Table | None = None
        """The headers of the last look-up; None: there was none, or its targets depend on more than these."""
        self._queues: Sequence[LiveQueue] = ()  # of the last targets
        self.traits: Traits | None = None
        self.envelope: Envelope | None = None

    def parts(self, contents: list[bytes], first: int) -> list[Part]:
        """Return messages from an index on, at least one, by their targets; as many as cost little to look up.

        Raises: ProtocolError if the first one cannot be routed.
        """
        found: list[Part] = []
        left = LOOKED_UP_MAX * HITS_PER_LOOK_UP
        end = first + AT_ONCE_MAX
        last: Targets | None = None
        last_from = last_to = first
        for octets, start, stop in stretches(contents, first):
            targets = self._known.get(octets)
            if targets is None:
                if left <= 0:
                    break
                has_none = self._has_none(octets)
                if has_none and self._without is not None:
                    targets = self._without
                    left -= 1 + len(octets) // _COST_BYTES
                else:
                    cost = 1 + len(octets) // _COST_BYTES + len(self._asked) // _COST_NAMES
                    try:
                        targets, is_known = self._look_up(octets, contents[start], has_none=has_none)
                    except ProtocolError:
                        if last is None:
                            raise
                        break  # those before it are published first
                    left -= cost * HITS_PER_LOOK_UP // (_ALIKE_PER_LOOK_UP if is_known else 1)
            if targets is not last:
                if last is not None:
                    found.append(Part(last, last_from, start))
                last, last_from = targets, start
            last_to = stop
            if stop >= end:
                break
        if last is not None:
            found.append(Part(last, last_from, last_to))
        return found

    def _has_none(self, octets: bytes) -> bool:
        """True if properties have surely none of the headers, as none of their names is among the octets."""
        if self._names is None:
            return False
        for name in self._names:  # noqa: SIM110 - a generator costs as much as the search
            if name in octets:
                return False
        return True

    def _look_up(self, octets: bytes, content: bytes, *, has_none: bool) -> tuple[Targets, bool]:
        """Return the targets of properties, and whether they were known by the headers."""
        names = self._names
        headers = chosen_headers(content, self._asked) if names is None else headers_in(octets, names)
        targets, is_known = self._last, headers == self._headers
        holds_some = False
        if not is_known or targets is None:
            queues = self._find(headers, content)
            holds_some = any(queue.settings.hold_until_header is not None for queue in queues)
            if holds_some:
                queues = held_or(self._live, queues, content)
            self._headers = None if holds_some else headers
            if targets is None or queues != self._queues:
                # Else messages for the same queues stay together, whatever else is in their headers.
                targets = self._last = Targets(queues)
                self._queues = queues
        if has_none and not holds_some:
            self._without = targets
        elif (size := len(octets)) <= KNOWN_MAX_BYTES:
            room = self._room
            if len(self._known) >= KNOWN_MAX or room.left < size + _ENTRY_BYTES:
                self._forget()
            if room.left >= size + _ENTRY_BYTES:
                room.left -= size + _ENTRY_BYTES
                self._taken += size + _ENTRY_BYTES
                self._known[octets] = targets
        return targets, is_known

    def _forget(self) -> None:
        """Forget the properties that are known, as there are too many, or other routes need the room."""
        self._known.clear()
        self._room.left += self._taken
        self._taken = 0
