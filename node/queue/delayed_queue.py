"""The queue in which the messages of a delayed exchange wait until they are due.

    publish ─► enqueue: due = now + x-delay ─► DelayBacklog ─ due ─► the host publishes them ─► forget

Clients don't reach it. It is a `Queue` with another order, so that disk, paging, mirrors, synchronisation and recovery
treat its messages like any others; a message's `expiry` is the time at which it is due. It leaves the queue when it is
due and is forgotten when the queues that it was routed to have it. In between another master or a restart brings it
back, and it goes out again: twice perhaps, but not never.
Source: docs/delayed.md.
"""

from collections.abc import Callable, Iterator
from math import ceil
from typing import Final

from node.amqp.field_table import Table
from node.catalogue.delayed import DELAY_HEADER, DELAY_MAX_MS, delay_ms
from node.catalogue.holding import hold_header, hold_time_ms
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.override import override
from node.queue.alike import headers_in, stretches
from node.queue.delay_backlog import ROUNDING_S, TIMER_MAX_S, DelayBacklog
from node.queue.host import QueueHost
from node.queue.queue import Queue
from node.queue.run import NEVER, Absent, Batch, Run
from node.queue.storage import NO_STORE_ID, QueueStorage

_SLACK_MS: Final = 0.001
"""A microsecond less, as the sum of a time and a delay is not exact. `ROUNDING_S` is a thousand times more."""


class DelayedQueue(Queue):
    """The queue of one delayed exchange."""

    def __init__(
        self,
        record: QueueRecord,
        settings: QueueSettings,
        host: QueueHost,
        storage: QueueStorage,
        now: float,
    ) -> None:
        self._hold = hold_header(record.arguments)
        names = (DELAY_HEADER,) if self._hold is None else (DELAY_HEADER, self._hold)
        self._headers = tuple(name.encode("utf-8", "surrogateescape") for name in names)
        super().__init__(record, settings.of_copies, host, storage, now)

    @override
    def _new_backlog(self, settings: QueueSettings) -> DelayBacklog:
        self._waiting = DelayBacklog(self.storage, self._loaded)
        return self._waiting

    @override
    def apply_settings(self, settings: QueueSettings, now: float) -> None:
        super().apply_settings(settings.of_copies, now)

    @override
    def enqueue(self, batch: Batch, now: float) -> list[int]:
        """Take messages, each until its own time."""
        if self.is_deleted:
            return []
        first = 0
        for due, count in self._dues(batch, now):
            part = batch
            if count < len(batch.contents):
                store_id = batch.store_id + first if batch.store_id else NO_STORE_ID
                part = Batch(batch.envelope, batch.contents[first : first + count], batch.size, store_id)
            self._append(part, due)
            first += count
            if due <= now:
                self._host.touch(self)
        self._arm_head_timer()
        return []

    def _dues(self, batch: Batch, now: float) -> Iterator[tuple[float, int]]:
        """Yield when the messages of a batch are due, and how many that follow each other are due at that time."""
        last, count = -1.0, 0
        for octets, first, stop in stretches(batch.contents):
            due = self._due(headers_in(octets, self._headers), now)
            if count and due != last:
                yield last, count
                count = 0
            last = due
            count += stop - first
        yield last, count

    def _due(self, headers: Table, now: float) -> float:
        """Return when a message is due: by its delay, by the time until which it is held, or by the later of both."""
        delay = delay_ms(headers)
        due = now if delay is None else due_at(now, delay)
        if self._hold is not None:
            time_ms = hold_time_ms(headers.get(self._hold))
            wait_ms = 0.0 if time_ms is None else time_ms - (now + self._host.epoch_s) * 1000
            if 0 < wait_ms <= DELAY_MAX_MS:
                due = max(due, due_at(now, wait_ms))
        return due

    @override
    def pump(self, now: float) -> None:
        """Hand out what is due, as much as the host takes, and fetch what is due soon."""
        if self.is_deleted:
            return
        self._waiting.fetch(now)
        self.drop_expired(now)

    @override
    def drop_expired(self, now: float) -> None:
        """Hand out what is due, as much as the host takes; it touches the queue when it takes more."""
        waiting, host = self._waiting, self._host
        while waiting.head_expiry <= now:
            room = host.due_room(self)
            if room <= 0:
                return
            host.due(self, waiting.take(room), now)
        self._arm_head_timer()

    def take_back(self, run: Run, due: float) -> None:
        """Take messages back that were due and cannot go out.   due: the time at which they are due again.

        Mirrors and disk keep the time at which they were due first: another master tries them at once.
        """
        if self.is_deleted:
            return
        run.expiry = due
        self._waiting.put_back(run)
        self._arm_head_timer()

    def withdraw(self, seq: int, done: Callable[[bool], None]) -> bool:
        """Drop a single message that waits; `done` is called with whether it waited here, now or later.

        Returns: False if that cannot be told now, and `done` is not called; see `DelayBacklog.withdraw`.
        """

        def forget(message: Run | Absent | None) -> None:
            if isinstance(message, Absent):
                message = Run(
                    message.envelope,
                    message.seqs,
                    [],
                    message.size,
                    store_id=message.store_id,
                    is_indexed=True,
                )
            if message is not None:
                self.forget(message)
            self._arm_head_timer()
            done(message is not None)

        return self._waiting.withdraw(seq, forget)

    @override
    def _arm_head_timer(self) -> None:
        when = self._waiting.look_again_at
        if self.is_deleted or when == NEVER:
            return
        now = self._host.now
        when = min(max(when, now), now + TIMER_MAX_S)
        if self._head_timer is not None:
            if self._head_timer.when <= when:
                return  # the timer will set the next one when it goes off
            self._head_timer.cancel()
        self._head_timer = self._host.timers.at(when, self._head_expired)

    @override
    def _head_expired(self, now: float) -> None:
        self._head_timer = None
        self.pump(now)


def due_at(now: float, delay: float) -> float:
    """Return when a message is due that is to wait for so many milliseconds: at the end of a millisecond of the clock.

    So messages that came in the same millisecond, and those that are due in the same one, go out together.
    """
    return ceil(now * 1000 + delay - _SLACK_MS) / 1000 + ROUNDING_S
