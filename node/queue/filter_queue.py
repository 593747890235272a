"""The queue through which the messages of a deduplicating exchange pass, on their way to the bound queues.

    publish ─► enqueue ─► backlog ─ pump: id known? ─ yes ─► dropped and counted
                             │                      └ no ──► the host publishes them to the bound queues ─► forget
                             └ entry of the cache: stays until its ids are forgotten ◄─ one for all ids of a pump

Clients don't reach it. It is a `Queue` without consumers, so disk, paging, mirrors and recovery treat its messages
like any others, and its master decides for the whole cluster in one order. Messages are looked at in order, up to a
*cursor*. The ids that have passed are in the same queue, as messages of its own: the entries. An entry is written in
the turn in which its messages leave for the bound queues, and these are forgotten only when those queues have them. So
a next master knows each id whose message has gone, and sends again what was on its way.
Source: docs/deduplication.md.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from node.amqp.constants import FRAME_OVERHEAD_BYTES
from node.amqp.properties import Properties
from node.catalogue.arguments import comparable
from node.catalogue.deduplication import CACHE_SIZE, CACHE_TTL, CACHE_TTL_MAX_MS, is_on_disk, number_of
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.override import override
from node.queue.content import chosen_headers, decode_content, encode_content
from node.queue.delay_backlog import TIMER_MAX_S, DelayBacklog
from node.queue.host import Copied, QueueHost
from node.queue.id_cache import NO_EXPIRY, CachedId, IdCache, decode_ids, digest_of, encode_ids, text_digest
from node.queue.id_window import ID_HEADER, first_text_id, pieces_of
from node.queue.learning import Learning
from node.queue.live_queue import Asked
from node.queue.number_set import NumberSet
from node.queue.paged_backlog import PagedBacklog
from node.queue.priority_backlog import PriorityBacklog
from node.queue.queue import Queue
from node.queue.run import NEVER, Batch, Envelope, Run
from node.queue.storage import Page, QueueStorage

LOOKED_MAX: Final = 1024
"""The messages that are looked at in one turn, some 4 ms; the others come in the next turns."""

FORGOTTEN_MAX: Final = 4096
"""The ids that are forgotten in one turn, some 4 ms."""

SMALL_IDS: Final = 1024
"""An entry with fewer ids is a small one."""

SMALL_MAX: Final = 64
"""So many small entries that follow each other become one: else each single publish would cost a message for good."""

EXPIRY_STEP_S: Final = 1.0
"""The least time between two looks for ids that are too old: they count as forgotten before that anyway."""

_NAMES: Final = (ID_HEADER.encode(), CACHE_TTL.encode())

_TTL_ENTRY: Final = bytes([len(CACHE_TTL)]) + CACHE_TTL.encode()
"""The octets of a header with a time of its own, before its value; where they are not, there is none."""


class FilterQueue(Queue):
    """The queue of one deduplicating exchange.

    duplicates: how many messages were dropped since the queue is live here.
    """

    def __init__(
        self,
        record: QueueRecord,
        settings: QueueSettings,
        host: QueueHost,
        storage: QueueStorage,
        now: float,
    ) -> None:
        self._cache = IdCache(number_of(record.arguments.get(CACHE_SIZE)) or 1)
        self._ttl_ms = number_of(record.arguments.get(CACHE_TTL))
        self._entry_envelope = Envelope(
            "", record.name, channel=1, frame_max_bytes=0, persistent=is_on_disk(record.arguments)
        )
        self._cursor = 0
        self._gone: deque[int] = deque()  # entries of which no id is left
        self._small = 0  # small entries at the end
        self._owners: dict[bytes, int] = {}
        """The ids that messages in the queue have passed with, under the former master, with these messages."""
        self._present = NumberSet()
        self._learning = Learning(self, host, self._learn, self._present.clear)
        self.duplicates = 0
        super().__init__(record, settings.of_copies, host, storage, now)

    @override
    def _new_backlog(self, settings: QueueSettings) -> PagedBacklog | PriorityBacklog | DelayBacklog:
        self._waiting = PagedBacklog(self.storage, self._loaded)
        return self._waiting

    @property
    def ids(self) -> int:
        """The number of ids in the cache."""
        return len(self._cache)

    @override
    def apply_settings(self, settings: QueueSettings, now: float) -> None:
        super().apply_settings(settings.of_copies, now)

    @override
    def enqueue(self, batch: Batch, now: float) -> list[int]:
        """Take messages, to look at them at the end of the turn."""
        if not self.is_deleted:
            self._append(batch, NEVER)  # a message's time to live begins in the queue that it is routed to
            self._host.touch(self)
        return []

    # --- the cursor ---

    @override
    def pump(self, now: float) -> None:
        """Look at messages, as many as the host takes, and forget old ids."""
        if self.is_deleted:
            return
        if self._learning.is_due:
            self._learning.begin()
            return
        waiting, host = self._waiting, self._host
        if waiting.is_paged:
            waiting.refill()
        now_ms = self._now_ms(now)
        ids: list[CachedId] = []
        left = LOOKED_MAX
        while left > 0:
            number = self._next_message()
            if number is None:
                break
            room = min(left, host.due_room(self))
            if room <= 0:
                break
            run = waiting.take_number(number, room)
            assert run is not None, number
            self._cursor = run.seqs[-1]
            left -= len(run)
            self._look(run, ids, now, now_ms)
        if ids:
            self._keep(ids)
        self._forget_old(now)
        if left <= 0:
            host.touch(self)

    def _next_message(self) -> int | None:
        """Return the number of the next message that is no entry; None: there is none at hand."""
        near = self._waiting.near
        while (run := near.run_from(self._cursor + 1)) is not None:
            if not self._is_entry(run):
                found = near.peek(self._cursor + 1)
                assert found is not None, self._cursor
                return found[0]
            self._cursor = run.seqs[-1]
        return None

    def _is_entry(self, run: Run) -> bool:
        # No client can publish with this address.
        return not run.envelope.exchange and run.envelope.routing_key == self.record.name

    def _look(self, run: Run, ids: list[CachedId], now: float, now_ms: int) -> None:
        """Drop what is known, and publish the rest.   ids: those of the rest are appended."""
        cache, owners, default_ms = self._cache, self._owners, self._ttl_ms
        first, default_expiry = run.seqs.start, now_ms + default_ms if default_ms else NO_EXPIRY
        kept: list[int] = []
        for index, content in enumerate(run.contents):
            text = first_text_id(content)
            if text is not None and content.find(_TTL_ENTRY, 0, _header_end(content)) < 0:
                own, digest = None, text_digest(text)
            else:
                headers = chosen_headers(content, _NAMES)
                field, own = headers.get(ID_HEADER), headers.get(CACHE_TTL)
                if field is None:
                    kept.append(index)
                    continue
                digest = digest_of(comparable(field))
            if owners and owners.get(digest) == first + index:
                del owners[digest]  # it has passed, and goes out again
                kept.append(index)
            elif not cache.has(digest, now_ms):
                kept.append(index)
                own_ms = None if own is None else number_of(own)
                expiry = default_expiry if own_ms is None else _expiry_ms(now_ms, own_ms)
                cache.put(digest, expiry)
                ids.append(CachedId(digest, first + index, expiry))
        if len(kept) == len(run):
            self._host.due(self, run, now)
            return
        at = 0
        for start, stop in [*pieces_of(kept), (len(run), len(run))]:
            if start > at:
                self._drop(run[at:start])
            if stop > start:
                self._host.due(self, run[start:stop], now)
            at = stop

    def _drop(self, run: Run) -> None:
        self.duplicates += len(run)
        self._host.duplicates(self, len(run))
        self.forget(run)

    # --- the entries ---

    def _keep(self, ids: list[CachedId]) -> None:
        """Put ids that have passed into the queue, as an entry."""
        self._add_entry(encode_ids(ids))
        self._small = self._small + 1 if len(ids) < SMALL_IDS else 0
        if self._small >= SMALL_MAX:
            self._small = 0
            last = self._cache.last(SMALL_MAX)
            if len(last) == SMALL_MAX:
                self._cache.replace_last(SMALL_MAX)
                self._add_entry(b"".join(body for _, body in last))
                self._gone.extend(seq for seq, _ in last)

    def _add_entry(self, body: bytes) -> None:
        seq = self.next_seq
        content = encode_content(Properties(), body, self._entry_envelope.channel, 0)
        self._append(Batch(self._entry_envelope, [content], len(body)), NEVER)
        self.count_letters(1)
        self._cache.add_entry(seq, body)

    def _forget_old(self, now: float) -> None:
        gone = self._gone
        gone.extend(self._cache.forget(self._now_ms(now), FORGOTTEN_MAX))
        while gone and (run := self._waiting.take_number(gone[0])) is not None:
            self.forget(run)
            gone.popleft()
        self._arm_head_timer()

    def _now_ms(self, now: float) -> int:
        return int((now + self._host.epoch_s) * 1000)

    @override
    def drop_expired(self, now: float) -> None:
        """Do nothing: no message here has an age."""

    @override
    def _arm_head_timer(self) -> None:
        expiry_ms = self._cache.next_expiry_ms
        if self.is_deleted or (expiry_ms == NO_EXPIRY and len(self._cache) <= self._cache.size_max):
            return
        now = self._host.now
        when = expiry_ms / 1000 - self._host.epoch_s
        when = min(max(when, now + EXPIRY_STEP_S), now + TIMER_MAX_S)
        if self._head_timer is not None:
            if self._head_timer.when <= when:
                return  # the timer will set the next one when it goes off
            self._head_timer.cancel()
        self._head_timer = self._host.timers.at(when, self._head_expired)

    @override
    def _head_expired(self, now: float) -> None:
        self._head_timer = None
        self.pump(now)

    @override
    def purge(self) -> Asked[int]:
        count = yield from super().purge()
        if self.successor is None:
            self._cache.clear()
            self._gone.clear()
            self._owners.clear()
            self._small = 0
        return count

    # --- a queue that begins with messages ---

    @override
    def restore(self, next_seq: int, pages: Iterable[Page]) -> None:
        super().restore(next_seq, pages)
        self._learning.require()

    @override
    def begin_with(self, copy: Copied, on_done: Callable[[], None]) -> None:
        """Begin with the messages of a copy, whose entries are read before any message is looked at."""
        self._learning.require()
        super().begin_with(copy, on_done)

    def _learn(self, run: Run) -> None:
        if not self._is_entry(run):
            self._present.add(range(run.seqs.start, run.seqs[-1] + 1))
            return
        for seq, content in zip(run.seqs, run.contents, strict=True):
            _, body = decode_content(content)
            self._cache.learn(seq, body)
            for each in decode_ids(body):
                if each.number in self._present:
                    self._owners[each.digest] = each.number


def _header_end(content: bytes) -> int:
    """Return where the content header ends."""
    return FRAME_OVERHEAD_BYTES + int.from_bytes(content[3:7])


def _expiry_ms(now_ms: int, ttl_ms: int) -> int:
    """Return when an id with a time to live of its own is forgotten; with 0 or less at once."""
    return now_ms + min(max(ttl_ms, 0), CACHE_TTL_MAX_MS)
