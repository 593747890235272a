"""The queue that keeps the last message of each routing key of a retaining exchange.

    publish ─► enqueue ─► backlog: a log of messages, of which the index names those that count
                  └► index: routing key ─► number          an empty message takes its key out
    a new binding ─► replay ─► a copy of each message in the index whose key matches

Messages that count no more leave at the head of the log. When they are more than half of it, messages that count go
from the head to the tail, so that those between them can leave. The index is not written anywhere: it follows from the
messages, which all copies have, and a queue that begins with messages reads them first.
Source: docs/mqtt.md.
"""

from collections.abc import Callable, Iterable
from typing import Final

from node.amqp.frames import body_size
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.catalogue.retained import KEPT
from node.override import override
from node.queue.host import Copied, QueueHost
from node.queue.id_window import pieces_of
from node.queue.key_pattern import KeyPattern
from node.queue.learning import Learning
from node.queue.queue import Queue
from node.queue.reader import Found, QueueReader
from node.queue.run import NEVER, Batch, Run
from node.queue.storage import Page, QueueStorage
from node.queue.whole_read import READ_BYTES
from node.scheduling.chores import Chore

SLACK: Final = 64
"""The messages that count no more which may stay, however few count."""

CLEANED_MAX: Final = 512
"""The most messages that leave the head, or go to the tail, in one turn: some 2 ms."""

LOOKED_MAX: Final = 1024
"""The routing keys that are compared with a binding's between two looks at the clock, some 1 ms."""

READ_MAX: Final = 256
"""The most messages that are looked for in one read."""


class RetainedQueue(Queue):
    """The queue of one retaining exchange."""

    def __init__(
        self,
        record: QueueRecord,
        settings: QueueSettings,
        host: QueueHost,
        storage: QueueStorage,
        now: float,
    ) -> None:
        self._length = KEPT.of(record.arguments)
        self._index: dict[str, int] = {}
        self._learning = Learning(self, host, self._learn, self._learnt)
        self._waiting: list[Callable[[], None]] = []  # replays that wait for the index
        super().__init__(record, settings.of_copies, host, storage, now)

    @override
    def apply_settings(self, settings: QueueSettings, now: float) -> None:
        super().apply_settings(settings.of_copies, now)

    @property
    def kept(self) -> int:
        """The number of routing keys for which a message is kept."""
        return len(self._index)

    # --- messages in ---

    @override
    def enqueue(self, batch: Batch, now: float) -> list[int]:
        """Keep the last of the messages, which all have one routing key."""
        if self.is_deleted:
            return []
        last = len(batch.contents) - 1
        store_id = batch.store_id + last if batch.store_id else 0
        number = self.next_seq
        # A message's time to live is looked at when it is given to a session.
        self._append(Batch(batch.envelope, batch.contents[last:], batch.size, store_id), NEVER)
        self._note(batch.envelope.routing_key, number, batch.contents[last])
        self._unpublished -= last
        self._host.touch(self)
        return []

    def _note(self, key: str, number: int, content: bytes) -> None:
        """Note the last message of a key. An empty one ends what is kept; it stays in the log as long as any other."""
        index = self._index
        index.pop(key, None)
        if _is_empty(content):
            return
        index[key] = number
        if len(index) > self._length:
            del index[next(iter(index))]  # the key that was published to longest ago

    # --- messages out ---

    @override
    def pump(self, now: float) -> None:
        """Learn what the queue has begun with, and clean the log."""
        if self.is_deleted:
            return
        if self._learning.is_due:
            self._learning.begin()
        else:
            self._clean()

    def _clean(self) -> None:
        """Have messages leave that count no more, from the head on."""
        backlog, index, left = self.backlog, self._index, CLEANED_MAX
        while left > 0 and backlog.count - len(index) > max(SLACK, len(index)):
            if not backlog.at_hand:
                backlog.refill()
            if not backlog.at_hand:
                return  # the head is on its way from disk: `_loaded` will continue
            run = backlog.take(min(left, backlog.count))
            left -= len(run)
            key = run.envelope.routing_key
            counting = [at for at, number in enumerate(run.seqs) if index.get(key) == number]
            at = 0
            for start, stop in [*pieces_of(counting), (len(run), len(run))]:
                if start > at:
                    self.forget(run[at:start])
                if stop > start:
                    self._put_at_tail(run[start:stop])
                    index[key] = self.next_seq - 1
                at = stop
        if left <= 0:
            self._host.touch(self)

    @override
    def drop_expired(self, now: float) -> None:
        """Do nothing: no message here has an age."""

    def replay(self, pattern: str, give: Callable[[Run], None]) -> None:
        """Give a copy of each message that is kept and whose routing key matches.   pattern: a binding key."""
        if self._learning.is_due:
            self._waiting.append(lambda: self.replay(pattern, give))
            self._learning.begin()
            return
        self._host.begin(self._replay(pattern, give))

    def _replay(self, pattern: str, give: Callable[[Run], None]) -> Chore:
        index = self._index
        wanted = KeyPattern(pattern)
        if wanted.key is not None:
            found = [wanted.key] if wanted.key in index else []
        else:
            found = []
            keys = list(index)
            for at in range(0, len(keys), LOOKED_MAX):
                part = keys[at : at + LOOKED_MAX]
                found += [key for key in part if wanted.matches(key)]
                yield
        if found:
            _Reading(self, self._host, index, found, give).go_on()

    # --- a queue that begins with messages ---

    @override
    def restore(self, next_seq: int, pages: Iterable[Page]) -> None:
        super().restore(next_seq, pages)
        self._learning.require()

    @override
    def begin_with(self, copy: Copied, on_done: Callable[[], None]) -> None:
        self._learning.require()
        super().begin_with(copy, on_done)

    def _learn(self, run: Run) -> None:
        key = run.envelope.routing_key
        for number, content in zip(run.seqs, run.contents, strict=True):
            if number > self._index.get(key, 0):
                self._note(key, number, content)

    def _learnt(self) -> None:
        waiting, self._waiting = self._waiting, []
        for replay in waiting:
            replay()


class _Reading:
    """The messages of one replay, read by the numbers that their keys have by then, some at a time."""

    def __init__(
        self,
        queue: "RetainedQueue",
        host: QueueHost,
        index: dict[str, int],
        keys: list[str],
        give: Callable[[Run], None],
    ) -> None:
        self._queue = queue
        self._host = host
        self._index = index
        self._keys = keys
        self._give = give
        self._reader = QueueReader(queue, lambda: ())
        self._asked: dict[int, str] = {}
        self._is_inside = False
        self._is_waiting = False

    def go_on(self) -> None:
        """Read the next messages, until there are none left."""
        self._host.begin(self._read())

    def _read(self) -> Chore:
        queue, index = self._queue, self._index
        while self._keys and not queue.is_deleted and queue.successor is None:
            part, self._keys = self._keys[:READ_MAX], self._keys[READ_MAX:]
            self._asked = {index[key]: key for key in part if key in index}
            if not self._asked:
                continue
            wanted = [range(number, number + 1) for number in sorted(self._asked)]
            self._is_inside = self._is_waiting = True
            self._reader.read(wanted, READ_BYTES, self._host.now, self._found)
            self._is_inside = False
            if self._is_waiting:
                return  # `_found` goes on when the disk has answered
            yield

    def _found(self, found: Found) -> None:
        self._is_waiting = False
        for run in found.runs:
            self._give(run)
            for number in run.seqs:
                self._asked.pop(number, None)
        for number, key in self._asked.items():
            # What the read had no room for, and what has gone to another place meanwhile.
            if number >= found.upto or self._index.get(key, number) != number:
                self._keys.append(key)
        if not self._is_inside:
            self.go_on()


def _is_empty(content: bytes) -> bool:
    return body_size(content) == 0
