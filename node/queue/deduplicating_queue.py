"""A queue that deduplicates, by argument or policy: a second message with an id counts as published, and is dropped.

    enqueue ─► id in the window? ─ yes ─► dropped, counted, confirmed as the first one
                                 └ no ──► Queue.enqueue          ack, reject, expiry, limits ─► the id leaves the window

The window is not written anywhere: it follows from the messages, and each copy has those. A queue that begins with
messages, after a restart or as a mirror that takes over, reads all of them first. A next master is live only when that
is done. After a restart the queue takes messages meanwhile, gives none out, and drops the duplicates among them when it
comes to them. So does a live queue that a policy makes deduplicate: it changes its class, as everything else of it
stays. Messages that were there before the policy all stay, duplicates too.
Source: docs/deduplication.md.
"""

from collections.abc import Callable, Iterable
from typing import Final

from node.catalogue.policy import DEDUPLICATION_ARGUMENT, QueueSettings
from node.override import override
from node.queue.delay_backlog import DelayBacklog
from node.queue.host import Copied
from node.queue.id_window import IdWindow, id_of, pieces_of
from node.queue.live_queue import Asked
from node.queue.metering import MeteredQueue
from node.queue.number_set import NumberSet
from node.queue.paged_backlog import PagedBacklog
from node.queue.priority_backlog import PriorityBacklog
from node.queue.queue import Queue
from node.queue.rules import expiry_of
from node.queue.run import NEVER, Batch, Run
from node.queue.storage import Page
from node.queue.whole_read import WholeRead


class DeduplicatingQueue(Queue):
    """A queue without two messages of the same id.

    duplicates: how many messages were dropped since the queue is live here.
    """

    @override
    def _new_backlog(self, settings: QueueSettings) -> PagedBacklog | PriorityBacklog | DelayBacklog:
        self._begin_window()
        return super()._new_backlog(settings)

    def _begin_window(self) -> None:
        self._window = IdWindow()
        self._on_learnt: Callable[[], None] | None = None
        """Called when the window is complete; None: it is."""
        self._is_learning = False
        self._renumbered = NumberSet()
        """Numbers that messages no longer have, while the window is made: a read may find them all the same."""
        self._since = 0
        """Messages from this number on are dropped if they are found to be duplicates; earlier ones stay."""
        self._spared = NumberSet()
        """Numbers from there on that earlier messages have got since."""
        self.duplicates = 0

    def begin_to_deduplicate(self) -> None:
        """Begin as a live queue that a policy has made deduplicate: give nothing out until all ids are learnt."""
        self._begin_window()
        self._since = self.next_seq
        self._on_learnt = self._give_out
        self.consumers.hold()
        self._host.touch(self)

    def end_deduplicating(self) -> None:
        """Become a plain queue again, as a policy wants it: at once, or in the turn after all ids are learnt.

        No method of this class may use `super` after that.
        """
        if self._on_learnt is None:
            self._window = IdWindow()
            self.__class__ = _PLAIN[type(self)]  # type: ignore[assignment]

    def _spare(self, next_seq: int) -> None:
        """Keep all messages below a number: under a policy they may have come before it, and be duplicates."""
        if DEDUPLICATION_ARGUMENT not in self.record.arguments:
            self._since = next_seq

    @property
    def ids(self) -> int:
        """The number of ids in the window."""
        return len(self._window)

    # --- messages in ---

    @override
    def enqueue(self, batch: Batch, now: float) -> list[int]:
        """Enqueue messages, without duplicates.   Returns: the indexes of those refused for a length limit."""
        if self.is_deleted or self._on_learnt is not None:
            return super().enqueue(batch, now)
        settings = self.settings
        limit = 1 if settings.overflow != "drop-head" and not settings.is_plain else len(batch.contents)
        refused: list[int] = []
        at = 0
        while at < len(batch.contents):
            # A message that is refused gets no number, so these are taken one by one.
            part = _part(batch, at, min(at + limit, len(batch.contents)))
            refused += [at + index for index in self._enqueue_new(part, now)]
            at += len(part.contents)
        return refused

    def _enqueue_new(self, batch: Batch, now: float) -> list[int]:
        """Enqueue messages of which all or none are refused; return the indexes of those that are."""
        window, expiry = self._window, expiry_of(self.settings, batch.envelope, now)
        kept: list[int] = []
        number = self.next_seq
        for index, content in enumerate(batch.contents):
            id_ = id_of(content)
            if id_ is not None:
                if window.has(id_, now):
                    continue
                window.add(id_, number, expiry)
            kept.append(index)
            number += 1
        dropped = len(batch.contents) - len(kept)
        if not dropped:
            parts = [(0, len(kept))]
        else:
            self._count_duplicates(dropped)
            self._unpublished -= dropped  # they were published, but have no number
            parts = pieces_of(kept)
        refused: list[int] = []
        for first, stop in parts:
            refused += [first + index for index in super().enqueue(_part(batch, first, stop), now)]
        if refused:
            assert len(batch.contents) == 1, "messages that may be refused come one by one"
            window.left(range(number - 1, number))
        return refused

    def _count_duplicates(self, count: int) -> None:
        self.duplicates += count
        self._host.duplicates(self, count)

    # --- messages out ---

    @override
    def delivered(self, run: Run) -> None:
        self._window.went_out(run.seqs)
        super().delivered(run)

    @override
    def consumed(self, run: Run) -> None:
        self._window.left(run.seqs)
        super().consumed(run)

    @override
    def ack(self, run: Run) -> None:
        self._window.left(run.seqs)
        super().ack(run)

    @override
    def forget(self, run: Run) -> None:
        self._window.left(run.seqs)
        super().forget(run)

    @override
    def requeue(self, runs: list[Run], now: float, *, is_asked: bool = False) -> None:
        for run in runs:
            self._window.came_back(run.seqs)
        super().requeue(runs, now, is_asked=is_asked)

    @override
    def renumbered(self, old: Run, new: Run) -> None:
        self._window.renumbered(old.seqs, new.seqs, _expiry(new))
        if self._on_learnt is not None:
            self._renumbered.add(old.seqs)
            if old.seqs[0] < self._since or old.seqs[0] in self._spared:
                self._spared.add(new.seqs)

    @override
    def purge(self) -> Asked[int]:
        count = yield from super().purge()
        if self.successor is None:
            self._window.purged()
        return count

    def lost(self, seqs: Iterable[range]) -> None:
        """Forget messages that the disk cannot read and that were given up."""
        for numbers in seqs:
            self._window.left(numbers)

    @override
    def retire(self) -> None:
        self._window = IdWindow()
        super().retire()

    # --- the window of a queue that begins with messages ---

    @override
    def restore(self, next_seq: int, pages: Iterable[Page]) -> None:
        self._spare(next_seq)
        super().restore(next_seq, pages)
        self._on_learnt = self._give_out
        self.consumers.hold()

    @override
    def pump(self, now: float) -> None:
        if self._on_learnt is not None and not self._is_learning and not self.is_deleted:
            self._begin_to_learn(self._on_learnt)
        super().pump(now)
        if not self.settings.is_deduplicating:  # the policy has gone while the ids were learnt
            self.end_deduplicating()

    @override
    def begin_with(self, copy: Copied, on_done: Callable[[], None]) -> None:
        self._spare(copy.next_seq)
        super().begin_with(_Learnt(copy, self._begin_to_learn), on_done)

    @override
    def seek_head(self, now: float) -> bool:
        return self._on_learnt is not None or super().seek_head(now)

    def _give_out(self) -> None:
        self.consumers.release()
        self._loaded()

    def _begin_to_learn(self, on_learnt: Callable[[], None]) -> None:
        self._on_learnt = on_learnt
        self._is_learning = True
        WholeRead(self, self._host, self._learn, self._learnt).begin()

    def _learn(self, run: Run) -> None:
        for index in range(len(run)):
            if run.seqs[index] not in self._renumbered and not self._is_new(run, index):
                self._drop_duplicate(run[index : index + 1])

    def _is_new(self, run: Run, index: int) -> bool:
        """Take the id of a message into the window. Returns: False: another message has it."""
        id_, number = id_of(run.contents[index]), run.seqs[index]
        if id_ is None or self._window.is_of(id_, number):
            return True
        if number >= self._since and number not in self._spared and self._window.has(id_, self._host.now):
            return False
        self._window.add(id_, number, _expiry(run))
        return True

    @override
    def take_waiting(self, run: Run) -> None:
        # No read of the queue comes by these.
        new = [index for index in range(len(run)) if self._is_new(run, index)]
        for first, stop in pieces_of(sorted(set(range(len(run))).difference(new))):
            super().forget(run[first:stop])
            self._count_duplicates(stop - first)
        for first, stop in pieces_of(new):
            super().take_waiting(run[first:stop])

    def _learnt(self) -> None:
        on_learnt, self._on_learnt = self._on_learnt, None
        self._renumbered, self._spared = NumberSet(), NumberSet()
        assert on_learnt is not None, "the window is complete"
        on_learnt()

    def _drop_duplicate(self, run: Run) -> None:
        """Drop a message that came while the window was made."""
        number = run.seqs[0]
        if self.retries is not None:
            self.retries.drop(number)
        for level in self.backlog.levels:
            if not isinstance(level, PagedBacklog):
                continue
            taken = level.near.take_number(number) or level.tail.take_number(number)
            if taken is not None:
                super().forget(taken)
                break
        else:
            super().forget(run)  # it is on disk only: the backlog counts it until it comes to it
        self._count_duplicates(1)


class _Learnt:
    """A copy whose messages count as placed when the queue has learnt their ids.   learn: does so, and calls back."""

    def __init__(self, copy: Copied, learn: Callable[[Callable[[], None]], None]) -> None:
        self.next_seq = copy.next_seq
        self._copy = copy
        self._learn = learn

    def fill(
        self, backlog: PagedBacklog | PriorityBacklog | DelayBacklog, on_done: Callable[[], None]
    ) -> None:
        """Put all messages into an empty backlog, and have the queue learn their ids."""
        self._copy.fill(backlog, lambda: self._learn(on_done))


class MeteredDeduplicatingQueue(DeduplicatingQueue, MeteredQueue):
    """A queue without duplicates that keeps an account."""


def _expiry(run: Run) -> float:
    """Return when messages expire: those that wait to be retried do not, and their `expiry` is another time."""
    return NEVER if run.envelope.waits else run.expiry


_PLAIN: Final[dict[type[Queue], type[Queue]]] = {
    DeduplicatingQueue: Queue,
    MeteredDeduplicatingQueue: MeteredQueue,
}
"""The class of a queue that deduplicates no longer."""


def _part(batch: Batch, first: int, stop: int) -> Batch:
    if not first and stop == len(batch.contents):
        return batch
    store_id = batch.store_id + first if batch.store_id else 0
    return Batch(batch.envelope, batch.contents[first:stop], batch.size, store_id)
