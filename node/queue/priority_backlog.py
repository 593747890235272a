"""The ready messages of a queue with `x-max-priority`: one backlog a level, highest first.

Source: amqp-behaviour §4.8, §5.6.
"""

from collections.abc import Callable, Iterable, Sequence

from node.queue.number_set import NumberSet
from node.queue.paged_backlog import KEPT_BYTES, Holdings, PagedBacklog, nobody
from node.queue.run import NEVER, Batch, Run
from node.queue.storage import Page, QueueStorage


class PriorityBacklog:
    """Ready messages by level, each level in its own order, behind the methods of `PagedBacklog`."""

    __slots__ = (
        "_is_lazy",
        "_levels",
        "_max_priority",
        "_on_loaded",
        "_ordered",
        "_redelivered_below",
        "_storage",
    )

    def __init__(self, storage: QueueStorage, on_loaded: Callable[[], None], max_priority: int) -> None:
        self._storage = storage
        self._on_loaded = on_loaded
        self._max_priority = max_priority
        self._is_lazy = False
        self._redelivered_below = 0
        self._levels: dict[int, PagedBacklog] = {}
        self._ordered: list[PagedBacklog] = []  # the levels that were ever used, highest first

    @property
    def count(self) -> int:
        """Messages of all levels."""
        return sum(level.count for level in self._ordered)

    @property
    def at_hand(self) -> int:
        """How many can be taken now: of the highest level with messages, for which the others wait."""
        top = self._top
        return 0 if top is None else top.at_hand

    @property
    def mean_bytes(self) -> int:
        """See `PagedBacklog.mean_bytes`."""
        top = self._top
        assert top is not None
        return top.mean_bytes

    @property
    def body_bytes(self) -> int:
        """Bytes of all bodies."""
        return sum(level.body_bytes for level in self._ordered)

    @property
    def memory_bytes(self) -> int:
        """See `PagedBacklog.memory_bytes`."""
        return sum(level.memory_bytes for level in self._ordered)

    @property
    def _top(self) -> PagedBacklog | None:
        return next((level for level in self._ordered if level.count), None)

    def lengths(self) -> dict[str, int]:
        """See `PagedBacklog.lengths`: of all levels together."""
        totals = dict.fromkeys(("q1", "q2", "delta", "q3", "q4"), 0)
        for level in self._ordered:
            for name, count in level.lengths().items():
                totals[name] += count
        return totals

    def priority_lengths(self) -> dict[int, int]:
        """Messages of each level."""
        return {
            priority: self._levels[priority].count if priority in self._levels else 0
            for priority in range(self._max_priority + 1)
        }

    def _level(self, priority: int) -> PagedBacklog:
        priority = self._cap(priority)
        level = self._levels.get(priority)
        if level is None:
            level = PagedBacklog(self._storage, self._on_loaded, priority, self._cap)
            level.redelivered_below(self._redelivered_below)
            if self._is_lazy:
                level.set_lazy(True)
            self._levels[priority] = level
            self._ordered = [self._levels[known] for known in sorted(self._levels, reverse=True)]
        return level

    def _cap(self, priority: int) -> int:
        return min(priority, self._max_priority)

    def append(self, batch: Batch, first_seq: int, expiry: float = NEVER, is_indexed: bool = False) -> None:
        """See `Backlog.append`."""
        self._level(batch.envelope.priority).append(batch, first_seq, expiry, is_indexed)

    def take(self, limit: int) -> Run:
        """See `PagedBacklog.take`."""
        top = self._top
        assert top is not None
        return top.take(limit)

    def put_back(self, run: Run) -> None:
        """See `PagedBacklog.put_back`."""
        self._level(run.envelope.priority).put_back(run)

    @property
    def head_expiry(self) -> float:
        """See `PagedBacklog.head_expiry`: the head is that of the highest level with messages (§5.2, live)."""
        top = self._top
        return NEVER if top is None else top.head_expiry

    def clear(self, on_gone: Callable[[range], None] | None = None) -> int:
        """See `PagedBacklog.clear`."""
        return sum(level.clear(on_gone) for level in self._ordered)

    @property
    def levels(self) -> Sequence[PagedBacklog]:
        """The backlogs of each priority, highest first."""
        return self._ordered

    def add(self, run: Run) -> None:
        """See `PagedBacklog.add`: above all others of its priority."""
        self._level(run.envelope.priority).add(run)

    def redelivered_below(self, number: int) -> None:
        """See `PagedBacklog.redelivered_below`."""
        self._redelivered_below = number
        for level in self._ordered:
            level.redelivered_below(number)

    def ready_ranges(self) -> list[range]:
        """See `PagedBacklog.ready_ranges`."""
        return [seqs for level in self._ordered for seqs in level.ready_ranges()]

    def hand_over(self) -> Holdings:
        """See `PagedBacklog.hand_over`."""
        had = [level.hand_over() for level in self._ordered]
        return Holdings(
            [run for each in had for run in each.runs],
            [absent for each in had for absent in each.absents],
            [page for each in had for page in each.pages],
        )

    def go_on(self, lost: NumberSet) -> None:
        """See `PagedBacklog.go_on`."""
        for level in self._ordered:
            level.go_on(lost)

    def abandon(self) -> None:
        """See `PagedBacklog.abandon`."""
        for level in self._ordered:
            level.abandon()

    def close(self) -> None:
        """See `PagedBacklog.close`."""
        for level in self._ordered:
            level.close()
        self._levels.clear()
        self._ordered.clear()
        self._on_loaded = nobody

    def delivered_before(self) -> Iterable[Run]:
        """See `PagedBacklog.delivered_before`."""
        return [run for level in self._ordered for run in level.delivered_before()]

    def restore(self, pages: Iterable[Page]) -> None:
        """See `PagedBacklog.restore`."""
        by_level: dict[int, list[Page]] = {}
        for page in pages:
            by_level.setdefault(self._cap(page.priority), []).append(page)
        for priority, own in by_level.items():
            self._level(priority).restore(own)

    @property
    def is_paged(self) -> bool:
        """See `PagedBacklog.is_paged`."""
        top = self._top
        return top is not None and top.is_paged

    @property
    def is_short(self) -> bool:
        """See `PagedBacklog.is_short`."""
        top = self._top
        return top is not None and top.is_short

    def refill(self) -> None:
        """See `PagedBacklog.refill`: of the highest level with messages."""
        top = self._top
        if top is not None:
            top.refill()

    def set_lazy(self, is_lazy: bool) -> None:
        """See `PagedBacklog.set_lazy`."""
        self._is_lazy = is_lazy
        for level in self._ordered:
            level.set_lazy(is_lazy)

    def page_new(self) -> bool:
        """See `PagedBacklog.page_new`."""
        paged = [level.page_new() for level in self._ordered]
        return any(paged)

    def page_out(self, limit_bytes: int, keep_bytes: int = KEPT_BYTES) -> int:
        """See `PagedBacklog.page_out`: the lowest levels first."""
        freed = 0
        for level in reversed(self._ordered):
            if freed >= limit_bytes:
                break
            freed += level.page_out(limit_bytes - freed, keep_bytes)
        return freed
