"""The ready messages of a queue with `x-max-priority`: one backlog for each level, highest first.

Source: amqp-behaviour §4.8, §5.6.
"""

from collections.abc import Callable, Iterable, Sequence

from node.queue.holdings import Holdings
from node.queue.number_set import NumberSet
from node.queue.paged_backlog import KEPT_BYTES, PagedBacklog, nobody
from node.queue.run import NEVER, Batch, Run
from node.queue.storage import Page, QueueStorage
from node.queue.waiting import WaitingOwner


class PriorityBacklog:
    """Ready messages by level, each level in its own order. It has the methods of `PagedBacklog`.   owner: as there."""

    __slots__ = (
        "_is_lazy",
        "_levels",
        "_max_priority",
        "_on_loaded",
        "_ordered",
        "_owner",
        "_redelivered_below",
        "_storage",
    )

    def __init__(
        self,
        storage: QueueStorage,
        on_loaded: Callable[[], None],
        max_priority: int,
        owner: WaitingOwner | None = None,
    ) -> None:
        self._storage = storage
        self._owner = owner
        self._on_loaded = on_loaded
        self._max_priority = max_priority
        self._is_lazy = False
        self._redelivered_below = 0
        self._levels: dict[int, PagedBacklog] = {}
        self._ordered: list[PagedBacklog] = []  # the levels that were ever used, highest first

    @property
    def count(self) -> int:
        """The number of ready messages of all levels."""
        return sum(level.count for level in self._ordered)

    @property
    def at_hand(self) -> int:
        """The number of messages that can be taken now from the highest level with messages; the other levels wait
        for it.
        """
        top = self._top
        return 0 if top is None else top.at_hand

    @property
    def mean_bytes(self) -> int:
        """The mean size in bytes of the bodies at hand, of which there must be some."""
        top = self._top
        assert top is not None
        return top.mean_bytes

    @property
    def body_bytes(self) -> int:
        """The number of bytes of all bodies."""
        return sum(level.body_bytes for level in self._ordered)

    @property
    def memory_bytes(self) -> int:
        """The bytes that the messages in memory cost, about."""
        return sum(level.memory_bytes for level in self._ordered)

    @property
    def _top(self) -> PagedBacklog | None:
        return next((level for level in self._ordered if level.count), None)

    def lengths(self) -> dict[str, int]:
        """Return the number of messages of each sub-queue, by its name, over all levels."""
        totals = dict.fromkeys(("q1", "q2", "delta", "q3", "q4"), 0)
        for level in self._ordered:
            for name, count in level.lengths().items():
                totals[name] += count
        return totals

    def priority_lengths(self) -> dict[int, int]:
        """Return the number of messages of each level."""
        return {
            priority: self._levels[priority].count if priority in self._levels else 0
            for priority in range(self._max_priority + 1)
        }

    def _level(self, priority: int) -> PagedBacklog:
        priority = self._cap(priority)
        level = self._levels.get(priority)
        if level is None:
            level = PagedBacklog(self._storage, self._on_loaded, priority, self._cap, self._owner)
            level.redelivered_below(self._redelivered_below)
            if self._is_lazy:
                level.set_lazy(True)
            self._levels[priority] = level
            self._ordered = [self._levels[known] for known in sorted(self._levels, reverse=True)]
        return level

    def _cap(self, priority: int) -> int:
        return min(priority, self._max_priority)

    @property
    def tail(self) -> "PriorityBacklog":
        """The backlog itself: each level has a tail of its own."""
        return self

    def append(self, batch: Batch, first_seq: int, expiry: float = NEVER, is_indexed: bool = False) -> None:
        """Add new messages at the tail of their level; see `Run`."""
        self._level(batch.envelope.priority).tail.append(batch, first_seq, expiry, is_indexed)

    def take(self, limit: int) -> Run:
        """Remove and return up to `limit` messages at hand; fewer where they don't share a run."""
        top = self._top
        assert top is not None
        return top.take(limit)

    def take_runs(self, limit: int) -> list[Run]:
        """Remove and return runs at hand of the highest level, as `Backlog.take_runs`."""
        top = self._top
        assert top is not None
        return top.take_runs(limit)

    def put_back(self, run: Run) -> None:
        """Return messages to their place in their level."""
        self._level(run.envelope.priority).put_back(run)

    @property
    def head_expiry(self) -> float:
        """The time at which the message at the head of the highest level with messages expires (§5.2, live)."""
        top = self._top
        return NEVER if top is None else top.head_expiry

    def clear(self, on_gone: Callable[[range], None] | None = None) -> int:
        """Drop all messages and have the storage forget them; return how many there were.   on_gone: as in
        `PagedBacklog`.
        """
        return sum(level.clear(on_gone) for level in self._ordered)

    @property
    def levels(self) -> Sequence[PagedBacklog]:
        """The backlogs of each priority, highest first."""
        return self._ordered

    def add(self, run: Run) -> None:
        """Add a run whose numbers are above all others of its level."""
        self._level(run.envelope.priority).add(run)

    def redelivered_below(self, number: int) -> None:
        """Count all messages with lower numbers as delivered before, also those that are on disk."""
        self._redelivered_below = number
        for level in self._ordered:
            level.redelivered_below(number)

    def ready_ranges(self) -> list[range]:
        """Return the numbers of all messages, in no order, with the limits of `PagedBacklog.ready_ranges`."""
        return [seqs for level in self._ordered for seqs in level.ready_ranges()]

    def hand_over(self) -> Holdings:
        """Let go of all messages, which the storage still has, and return what they were."""
        had = [level.hand_over() for level in self._ordered]
        return Holdings(
            [run for each in had for run in each.runs],
            [absent for each in had for absent in each.absents],
            [page for each in had for page in each.pages],
        )

    def go_on(self, lost: NumberSet) -> None:
        """Do not count given-up unreadable messages any more, and fetch the rest.   lost: their numbers."""
        for level in self._ordered:
            level.go_on(lost)

    def abandon(self) -> None:
        """Let go of all messages without telling the storage, which knows what became of them."""
        for level in self._ordered:
            level.abandon()

    def close(self) -> None:
        """Let go of all messages and of the queue, which is gone."""
        for level in self._ordered:
            level.close()
        self._levels.clear()
        self._ordered.clear()
        self._on_loaded, self._owner = nobody, None

    def delivered_before(self) -> Iterable[Run]:
        """Return the runs in memory that came back from a client."""
        return [run for level in self._ordered for run in level.delivered_before()]

    def restore(self, pages: Iterable[Page]) -> None:
        """Begin with the messages that a recovery found, in order."""
        by_level: dict[int, list[Page]] = {}
        for page in pages:
            by_level.setdefault(self._cap(page.priority), []).append(page)
        for priority, own in by_level.items():
            self._level(priority).restore(own)

    @property
    def is_paged(self) -> bool:
        """True if the highest level with messages may have some outside q4."""
        top = self._top
        return top is not None and top.is_paged

    @property
    def is_short(self) -> bool:
        """True if `refill` has something to do."""
        top = self._top
        return top is not None and top.is_short

    def refill(self) -> None:
        """Fetch messages of the highest level with messages, if there is little at hand."""
        top = self._top
        if top is not None:
            top.refill()

    def set_lazy(self, is_lazy: bool) -> None:
        """Set whether new messages are to leave memory at once, as in a lazy queue."""
        self._is_lazy = is_lazy
        for level in self._ordered:
            level.set_lazy(is_lazy)

    def page_new(self) -> bool:
        """Take the newest messages out of memory. Returns: True if there were any."""
        paged = [level.page_new() for level in self._ordered]
        return any(paged)

    def page_out(self, limit_bytes: int, keep_bytes: int = KEPT_BYTES) -> int:
        """Take messages out of memory, from the lowest level on; return how many bytes of memory that was."""
        freed = 0
        for level in reversed(self._ordered):
            if freed >= limit_bytes:
                break
            freed += level.page_out(limit_bytes - freed, keep_bytes)
        return freed
