"""Message groups: messages of one group go to the same consumer, in order, while any of them is unsettled.

A queue with `x-group-header` has this rule in its `Consumers`. A consumer *holds* a group from its first delivery until
all messages of the group that it was given are settled or have come back. Messages of a group whose holder can take
none now are *blocked*: they stay in the backlog in their place, and later messages of other groups pass them.

    backlog ─ looked at, up to a cursor ─► not held, or held and the holder has credit ─► consumer
                                        └► blocked: known by number, until the holder has credit or the group is free

Nothing is kept of a group without unsettled or blocked messages, and nothing of it is on disk or on mirrors: a next
master gets all messages back, and makes its groups by what it delivers.
Source: docs/groups.md.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from node.catalogue.arguments import Comparable, comparable
from node.queue.content import chosen_headers
from node.queue.paged_backlog import PagedBacklog
from node.queue.run import Run

BLOCKED_MAX: Final = 4096
"""The most blocked messages of a queue: then no further message is looked at until one of them has left."""

KEY_MAX: Final = 32
"""The longest text that is kept as the key of a group, in bytes; of a longer one there is a digest of this size."""

MESSAGE_COST: Final = 16
"""The cost to deliver one message by this rule, as `Consumers.dispatch` counts: as much as so many of a long run."""

Key: TypeAlias = Comparable | None
"""The value of the group header; None: messages without a group, which nobody holds."""


class Holder(Protocol):
    """A consumer, as far as groups see it."""

    is_waiting: bool
    no_ack: bool


HolderT = TypeVar("HolderT", bound=Holder)


class Takers(Protocol[HolderT]):
    """The consumers of a queue, as far as groups use them."""

    @property
    def are_waiting(self) -> bool:
        """True if any consumer may take a message, as far as is known."""

    def next_with_room(self, backlog: PagedBacklog) -> HolderT | None:
        """Return the consumer whose turn it is, None if no consumer can take a message."""

    def has_room(self, consumer: HolderT, backlog: PagedBacklog) -> bool:
        """Return True if a consumer can take a message; else it is left out until it can."""

    def give(self, consumer: HolderT, run: Run, now: float) -> None:
        """Deliver one message to a consumer, whose next turn comes after those of the others."""


class _Group(Generic[HolderT]):
    """A group with unsettled or blocked messages.   holder: None: it is free.   unsettled: what its holder was given.

    blocked: a heap of (rank, number); the rank is lower for a higher priority.
    """

    __slots__ = ("blocked", "holder", "key", "unsettled")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.holder: HolderT | None = None
        self.unsettled = 0
        self.blocked: list[tuple[int, int]] = []


class _Cursor:
    """The progress in one level.   at: messages up to it were looked at.   highest: the highest blocked message."""

    __slots__ = ("at", "highest")

    def __init__(self) -> None:
        self.at = self.highest = 0


class Groups(Generic[HolderT]):
    """The groups of one queue.   header: names the header with the group."""

    def __init__(self, header: str) -> None:
        self.header = header
        self._names = (header.encode("utf-8", "surrogateescape"),)
        self._groups: dict[Key, _Group[HolderT]] = {}
        self._unsettled: dict[int, _Group[HolderT]] = {}
        self._owing: dict[HolderT, dict[_Group[HolderT], None]] = {}
        """The held groups with blocked messages, by their holder, in the order in which they are served."""
        self._free: dict[_Group[HolderT], None] = {}
        """The groups with blocked messages that nobody holds, and the messages without a group that came back."""
        self._cursors: dict[PagedBacklog, _Cursor] = {}
        self._blocked = 0
        self._heads: list[int] = []  # of all levels, at the last look for messages that are gone

    @property
    def held(self) -> int:
        """The number of groups that a consumer holds."""
        return sum(1 for group in self._groups.values() if group.holder is not None)

    @property
    def blocked(self) -> int:
        """The number of ready messages that were looked at and wait for a consumer, at most: some may be gone."""
        return self._blocked

    def close(self) -> None:
        """Let go of the queue's backlog, as the queue has no groups any more."""
        for level in self._cursors:
            level.near.came_back = None

    # --- deliveries ---

    def dispatch(
        self,
        consumers: Takers[HolderT],
        levels: Sequence[PagedBacklog],
        now: float,
        drop_expired: Callable[[float], None] | None,
        cost_max: int,
    ) -> bool:
        """Give out messages until there are no more or no consumer can take one: see `Consumers.dispatch`.

        A message behind the head whose time is over is not given out; it is dropped when it comes to the head.
        """
        if drop_expired is not None:
            drop_expired(now)
        for level in levels:
            self._begin(level)
        expired_by = now if drop_expired is not None else None
        for level, number, group, consumer in self._choices(consumers, levels):
            found = level.near.peek(number)
            if found is not None and found[0] == number and not _is_over(found[2], now, expired_by):
                run = level.take_number(number)
                assert run is not None, number
                if group.key is not None and not consumer.no_ack:
                    self._hold(group, consumer, number)
                consumers.give(consumer, run, now)
                cost_max -= MESSAGE_COST
            self._list(group)
            if cost_max <= 0:
                return True
        return False

    def _begin(self, level: PagedBacklog) -> None:
        """Note which messages have come back to a level since the last look, and which have left memory."""
        cursor = self._cursors.get(level)
        if cursor is None:
            cursor = self._cursors[level] = _Cursor()
        near = level.near
        if near.came_back is None:
            near.came_back = []
        elif near.came_back:
            came_back, near.came_back = near.came_back, []
            for number in sorted(number for seqs in came_back for number in seqs if number <= cursor.at):
                found = near.peek(number)
                if found is not None and found[0] == number:
                    self._block(self._group(found[1]), level, number)
        last = near.last_seq
        if cursor.at > last:
            # The messages behind the last one are new, or were on disk meanwhile: they are looked at again.
            cursor.at = last
            if cursor.highest > last:
                self._forget_gone()

    def _choices(
        self, consumers: Takers[HolderT], levels: Sequence[PagedBacklog]
    ) -> "Iterator[tuple[PagedBacklog, int, _Group[HolderT], HolderT]]":
        """Yield each message that can go out now, by its level and number, with its group and consumer.

        The caller has to `_list` its group again.
        """
        ranks = {_rank(level): level for level in levels}
        while consumers.are_waiting:
            found = self._next_blocked(consumers, ranks)
            if found is not None:
                group, consumer = found
                self._blocked -= 1
                rank, number = heappop(group.blocked)
                yield ranks[rank], number, group, consumer
                continue
            choice = self._look(consumers, levels)
            if choice is None:
                return
            yield choice

    def _next_blocked(
        self, consumers: Takers[HolderT], ranks: dict[int, PagedBacklog]
    ) -> tuple[_Group[HolderT], HolderT] | None:
        """Return a group of which a blocked message can go out, and to which consumer."""
        for holder in list(self._owing):
            if holder.is_waiting and holder in self._owing:
                group = next(iter(self._owing[holder]))
                level = self._level_of(group, ranks)
                if level is not None and consumers.has_room(holder, level):
                    return group, holder
        while self._free and consumers.are_waiting:
            group = next(iter(self._free))
            level = self._level_of(group, ranks)
            if level is not None:
                consumer = consumers.next_with_room(level)
                return None if consumer is None else (group, consumer)
        return None

    def _level_of(self, group: _Group[HolderT], ranks: dict[int, PagedBacklog]) -> PagedBacklog | None:
        """Return the level of the group's next blocked message; None: all messages of that level are gone."""
        level = ranks[group.blocked[0][0]]
        if level.at_hand:
            return level
        self._forget_gone()
        return None

    def _look(
        self, consumers: Takers[HolderT], levels: Sequence[PagedBacklog]
    ) -> tuple[PagedBacklog, int, _Group[HolderT], HolderT] | None:
        """Look at messages behind the cursor, until one can go out; note those that can't."""
        for level in levels:
            cursor, near = self._cursors[level], level.near
            while (found := near.peek(cursor.at + 1)) is not None:
                number, content, _ = found
                group = self._group(content)
                holder = group.holder
                if holder is None:
                    taker = consumers.next_with_room(level)
                    if taker is None:
                        return None
                    cursor.at = number
                    return level, number, group, taker
                if holder.is_waiting and not group.blocked and consumers.has_room(holder, level):
                    cursor.at = number
                    return level, number, group, holder
                if not consumers.are_waiting or (
                    self._blocked >= BLOCKED_MAX and not self._made_room(levels)
                ):
                    return None
                cursor.at = number
                self._block(group, level, number)
        return None

    def _group(self, content: bytes) -> _Group[HolderT]:
        """Return the group of a message, a new one if nothing is known of it."""
        field = chosen_headers(content, self._names).get(self.header)
        key = None if field is None or field.value is None else comparable(field)
        if isinstance(key, bytes) and len(key) > KEY_MAX:
            key = blake2b(key, digest_size=KEY_MAX).digest()
        return self._groups.get(key) or _Group(key)

    # --- groups ---

    def _hold(self, group: _Group[HolderT], consumer: HolderT, number: int) -> None:
        if group.holder is None:
            self._unlist(group)
            group.holder = consumer
            self._groups[group.key] = group
        group.unsettled += 1
        self._unsettled[number] = group

    def settled(self, seqs: range) -> bool:
        """Note messages that are settled or have come back. True: a group is free of which messages are blocked."""
        is_free = False
        for number in seqs:
            group = self._unsettled.pop(number, None)
            if group is None:
                continue
            group.unsettled -= 1
            if not group.unsettled:
                self._unlist(group)
                group.holder = None
                self._list(group)
                is_free = is_free or bool(group.blocked)
        return is_free

    def _block(self, group: _Group[HolderT], level: PagedBacklog, number: int) -> None:
        heappush(group.blocked, (_rank(level), number))
        self._blocked += 1
        cursor = self._cursors[level]
        cursor.highest = max(cursor.highest, number)
        self._groups[group.key] = group
        if len(group.blocked) == 1:
            self._list(group)

    def _list(self, group: _Group[HolderT]) -> None:
        """Put a group to the end of the list where it belongs; forget it if nothing of it is unsettled or blocked."""
        self._unlist(group)
        if group.blocked:
            listed = self._free if group.holder is None else self._owing.setdefault(group.holder, {})
            listed[group] = None
        elif not group.unsettled:
            self._groups.pop(group.key, None)

    def _unlist(self, group: _Group[HolderT]) -> None:
        self._free.pop(group, None)
        owing = None if group.holder is None else self._owing.get(group.holder)
        if owing is not None and group.holder is not None:
            owing.pop(group, None)
            if not owing:
                del self._owing[group.holder]

    # --- messages that are gone ---

    def _made_room(self, levels: Sequence[PagedBacklog]) -> bool:
        """Forget blocked messages that were dropped, unless nothing was since the last time. True: there is room."""
        heads = [head[0] for level in levels if (head := level.near.peek(0)) is not None]
        if heads != self._heads:
            self._heads = heads
            self._forget_gone()
        return self._blocked < BLOCKED_MAX

    def _forget_gone(self) -> None:
        """Forget all blocked messages that are not at hand any more: they were dropped, purged or paged out."""
        levels = {_rank(level): level for level in self._cursors}
        for cursor in self._cursors.values():
            cursor.highest = 0
        self._blocked = 0
        for group in list(self._groups.values()):
            group.blocked = [each for each in group.blocked if self._is_at_hand(levels[each[0]], each[1])]
            heapify(group.blocked)
            self._blocked += len(group.blocked)
            self._list(group)

    def _is_at_hand(self, level: PagedBacklog, number: int) -> bool:
        cursor, found = self._cursors[level], level.near.peek(number)
        if found is None or found[0] != number or number > cursor.at:
            return False
        cursor.highest = max(cursor.highest, number)
        return True


def _is_over(expiry: float, now: float, expired_by: float | None) -> bool:
    """Return True if a message must not be given out.   expired_by: None: one whose time ends right now may be."""
    return expiry < now or (expired_by is not None and expiry <= expired_by)


def _rank(level: PagedBacklog) -> int:
    return -(level.priority or 0)
