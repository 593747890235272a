"""CPU time that each queue takes on this node, and further counts of queues that only telemetry needs.

A broker without a `Meter` has none of it: `Broker.make_queue` makes plain `Queue`s then, whose paths ask for no meter.
With one it makes `MeteredQueue`s: a subclass that overrides what is to be timed or counted, calls the method of `Queue`
and adds to the account. It times what the queue does while one of the `CpuWindows` is open;
`cluster.mirror.metered_replica` does so with what a copy does. Both write into the *account* of the queue, which stays
while masters come and go. The CPU time of the disk's thread is divided by what the queues had to keep.
Source: spark §2.3 (cpu_us_total).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from operator import add, attrgetter
from typing import TYPE_CHECKING, Final

from node.amqp.reader import MIXED_SIZES
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.override import override
from node.queue.cpu_windows import CpuWindows
from node.queue.dead_letter import EXPIRED, MAXLEN
from node.queue.host import QueueHost
from node.queue.live_queue import Asked
from node.queue.queue import Queue
from node.queue.run import Batch, Run, bytes_of
from node.queue.storage import QueueStorage, Waiter

if TYPE_CHECKING:
    from node.queue.counters import QueueCounters

BUCKETS: Final = 32
"""The buckets of a histogram of times: the first is for less than 100 us, and each further one ends half an octave
higher."""

KEPT_BYTES: Final = 256
"""A message costs the disk's thread as much as so many bytes: its entries in the journal, and its part of a sync."""

CONFIRM_SAMPLE_S: Final = 0.1
"""The least time between two runs of a queue whose confirms are timed: the others are taken to be alike."""

MARK_S: Final = 1.0
"""The precision in seconds with which it is known when a message came."""
MARKS_MAX: Final = 512
"""The most marks of a queue; above it every second mark is forgotten, and ages are known less exactly."""

PUBLISHED_S: Final = 300.0
"""A node counts as publishing to a queue for so long after a message from it was seen: the longest time between two
rows of a queue. Only windows are looked at, so a shorter time would miss nodes that publish a message now and then."""

CONSUMERS_SEEN: Final = 8
"""So many consumers of a queue are asked whether they are of this node."""

SWEEP_SLICE: Final = 1000
"""The number of accounts that are looked at in one go: less than a millisecond."""

COUNTED: Final = ("publish", "deliver", "deliver_no_ack", "get", "get_no_ack", "redeliver", "ack")
_counted: Final[Callable[[object], tuple[int, ...]]] = attrgetter(*COUNTED)

_NONE: Final = (0,) * len(COUNTED)


def _limits() -> list[float]:
    return [100.0 * 2.0 ** (bucket / 2) for bucket in range(BUCKETS - 1)]


_LIMITS_US: Final = _limits()


def bucket_of(us: float) -> int:
    """Return the bucket of a histogram that counts a time."""
    return bisect_right(_LIMITS_US, us)


class Account:
    """The account of one queue on this node since the broker's start, as a master or a mirror.

    cpu_ns: CPU time of the broker's thread for this copy.   client_ns: the same for this node's clients of the queue.
    disk_ns: CPU time of the disk's thread.   pub_bytes, dlv_bytes: bodies that came in and went out.
    expired, dropped: messages that left because of their age, and because of a length limit.
    dead_lettered: messages that left unacknowledged while the queue had a dead-letter exchange.
    letters_lost: those of them that no queue has, by cause (`node.queue.dead_letter`); None: there are none.
    confirm_us: the times of confirms, as a histogram; None: none was timed.
    published_s: when a message was last seen to come, by node; an empty name is this node; None: never. At most one
        entry for each node of the cluster.
    past: `COUNTED` of former masters here.
    """

    __slots__ = (
        "client_ns",
        "confirm_due_s",
        "confirm_us",
        "cpu_ns",
        "dead_lettered",
        "disk_ns",
        "dlv_bytes",
        "dropped",
        "expired",
        "letters_lost",
        "name",
        "past",
        "pub_bytes",
        "published_s",
        "vhost",
    )

    def __init__(self, vhost: str, name: str) -> None:
        self.vhost = vhost
        self.name = name
        self.cpu_ns = 0
        self.client_ns = 0
        self.disk_ns = 0
        self.pub_bytes = 0
        self.dlv_bytes = 0
        self.expired = 0
        self.dropped = 0
        self.dead_lettered = 0
        self.letters_lost: Counter[str] | None = None
        self.confirm_us: list[int] | None = None
        self.confirm_due_s = 0.0
        self.published_s: dict[str, float] | None = None
        self.past: tuple[int, ...] = _NONE

    def counts(self, counters: "QueueCounters | None" = None) -> tuple[int, ...]:
        """Return `COUNTED`, summed over all masters here.   counters: those of the present one."""
        return self.past if counters is None else tuple(map(add, self.past, _counted(counters)))

    def publishers(self, now: float) -> list[str]:
        """Return the nodes from which messages came in the last `PUBLISHED_S`, and forget the others.

        An empty name is this node.
        """
        if self.published_s is None:
            return []
        self.published_s = {
            node: at for node, at in self.published_s.items() if now - at <= PUBLISHED_S
        } or None
        return sorted(self.published_s or ())


class Meter:
    """The accounts of one broker by the queues' uids.

    clock: in ns, monotonic.   cpu_clock: CPU time of the broker's thread in ns.
    """

    def __init__(self, clock: Callable[[], int], cpu_clock: Callable[[], int]) -> None:
        self.clock = clock
        self.windows = CpuWindows(cpu_clock)
        self.accounts: dict[str, Account] = {}
        self._kept: dict[Account, int] = {}
        """What the disk has to keep for each queue, in bytes of the windows since `share_disk`."""

    def account(self, record: QueueRecord) -> Account:
        """Return the account of a queue; it is made when there is none."""
        found = self.accounts.get(record.uid)
        if found is None:
            found = self.accounts[record.uid] = Account(record.vhost, record.name)
        return found

    def sweep(self, queue: Callable[[str, str], QueueRecord | None]) -> Iterator[None]:
        """Forget the accounts of deleted queues, slice by slice. A queue that only moved keeps its account, as
        counters rise.

        queue: finds a queue by vhost and name.
        """
        for number, (uid, account) in enumerate(list(self.accounts.items()), 1):
            record = queue(account.vhost, account.name)
            if record is None or record.uid != uid:
                del self.accounts[uid]
            if not number % SWEEP_SLICE:
                yield

    def used_away(self, record: QueueRecord, size: int) -> None:
        """Note that a client of this node used a queue that lives elsewhere. Called in windows only.

        size: bytes of bodies that it moved.
        """
        self.windows.enter()
        self.windows.worked(self.account(record), size, for_client=True)

    def kept(self, account: Account, count: int, size: int) -> None:
        """Note messages that the disk has to keep. Called in windows only.   size: bytes of all their bodies."""
        self._kept[account] = self._kept.get(account, 0) + count * KEPT_BYTES + size

    def share_disk(self, spent_ns: int) -> Iterator[None]:
        """Divide CPU time of the disk's thread among the queues that it kept messages of since last time, slice by
        slice. If there are none, it is no queue's.
        """
        kept, self._kept = self._kept, {}
        weights = sum(kept.values())
        for number, (account, weight) in enumerate(kept.items(), 1):
            account.disk_ns += spent_ns * weight // weights
            if not number % SWEEP_SLICE:
                yield

    def died(self, queue: Queue, count: int, reason: str) -> None:
        """Count messages that left a queue unacknowledged."""
        account = self.account(queue.record)
        account.expired += count * (reason == EXPIRED)
        account.dropped += count * (reason == MAXLEN)
        account.dead_lettered += count * (queue.settings.dead_letter_exchange is not None)

    def letters_lost(self, queue: Queue, causes: Mapping[str, int]) -> None:
        """Count dead letters of a queue that no queue has.   causes: how many, by cause."""
        account = self.account(queue.record)
        if account.letters_lost is None:
            account.letters_lost = Counter()
        account.letters_lost.update(causes)

    def timed(self, waiter: Waiter, queues: Iterable[Queue], now: float) -> Waiter:
        """Return the waiter for a run that was published to queues: now and then one that measures the time."""
        queue = next(iter(queues), None)
        if queue is None:
            return waiter
        account = self.account(queue.record)
        if now < account.confirm_due_s:
            return waiter
        account.confirm_due_s = now + CONFIRM_SAMPLE_S
        return _Timed(waiter, account, self.clock)


class _Timed:
    """A waiter that measures how long a confirm took."""

    __slots__ = ("_account", "_clock", "_started", "_waiter")

    def __init__(self, waiter: Waiter, account: Account, clock: Callable[[], int]) -> None:
        self._waiter = waiter
        self._account = account
        self._clock = clock
        self._started = clock()

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """Measure how long the confirm took, and pass it on."""
        histogram = self._account.confirm_us
        if histogram is None:
            histogram = self._account.confirm_us = [0] * BUCKETS
        histogram[bucket_of((self._clock() - self._started) / 1000)] += 1
        self._waiter.settle(first, last, is_safe)


_enqueue: Final = Queue.enqueue
_pump: Final = Queue.pump
_ack: Final = Queue.ack
_delivered: Final = Queue.delivered
_consumed: Final = Queue.consumed
"""The methods that are called for each run: `super()` would take as long as the queue's own additions."""


class MeteredQueue(Queue):
    """A queue that keeps an account. The time of an operation within another one counts once."""

    def __init__(
        self,
        record: QueueRecord,
        settings: QueueSettings,
        host: QueueHost,
        storage: QueueStorage,
        now: float,
        meter: Meter,
    ) -> None:
        self.account = meter.account(record)
        self._meter = meter
        self._windows = meter.windows
        self._marks: list[tuple[int, float]] = []
        """Numbers of messages, rising, with the times at which they came."""
        self._mark_at = 0.0
        super().__init__(record, settings, host, storage, now)

    # --- timed ---

    @override
    def enqueue(self, batch: Batch, now: float) -> list[int]:
        account, size = self.account, batch.size
        if now >= self._mark_at:
            self._mark(now)
        if self._windows.is_open:
            return self._enqueue_timed(batch, now)
        if size != MIXED_SIZES:
            account.pub_bytes += size * len(batch.contents)
        elif self.is_plain and batch.envelope.expiration_ms is None:
            # No message leaves during this call, so the backlog's sum tells their bytes.
            bytes_before = self.backlog.body_bytes
            refused = _enqueue(self, batch, now)
            account.pub_bytes += self.backlog.body_bytes - bytes_before
            return refused
        else:
            account.pub_bytes += bytes_of(batch.contents, size)
        return _enqueue(self, batch, now)

    def _enqueue_timed(self, batch: Batch, now: float) -> list[int]:
        account, windows = self.account, self._windows
        mark = windows.enter()
        size = bytes_of(batch.contents, batch.size)
        account.pub_bytes += size
        if account.published_s is None:
            account.published_s = {}
        account.published_s[windows.remote_node] = now
        refused = _enqueue(self, batch, now)
        windows.leave(account, mark)
        windows.worked(account, size, for_client=not windows.remote_node)
        if batch.envelope.persistent and self.is_durable:
            windows.worked(account, size, for_client=False)
            self._meter.kept(account, len(batch.contents), size)
        if self.leaves_node:
            windows.worked(account, size, for_client=False)
        return refused

    @override
    def pump(self, now: float) -> None:
        windows = self._windows
        if not windows.is_open:
            _pump(self, now)
            return
        account = self.account
        before = account.dlv_bytes
        mark = windows.enter()
        _pump(self, now)
        windows.leave(account, mark)
        for_client = any(not consumer.incarnation for consumer in islice(self.consumers.all, CONSUMERS_SEEN))
        windows.worked(account, account.dlv_bytes - before, for_client=for_client)

    @override
    def ack(self, run: Run) -> None:
        windows = self._windows
        if not windows.is_open:
            _ack(self, run)
            return
        mark = windows.enter()
        _ack(self, run)
        windows.leave(self.account, mark)
        windows.worked(self.account, 0, for_client=not windows.remote_node)

    @override
    def get(self, now: float) -> Run | None:
        with self._timed():
            return super().get(now)

    @override
    def reject(self, run: Run, now: float) -> None:
        with self._timed():
            super().reject(run, now)

    @override
    def requeue(self, runs: list[Run], now: float, *, is_asked: bool = False) -> None:
        with self._timed():
            super().requeue(runs, now, is_asked=is_asked)

    @override
    def purge(self) -> Asked[int]:
        with self._timed():
            return super().purge()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Time an operation that is not on the path of most messages."""
        windows = self._windows
        if not windows.is_open:
            yield
            return
        mark = windows.enter()
        yield
        windows.leave(self.account, mark)
        windows.worked(self.account, 0, for_client=not windows.remote_node)

    # --- counted only ---

    @override
    def fetch(self, *, no_ack: bool) -> Asked[tuple[Run, int] | None]:
        found = yield from super().fetch(no_ack=no_ack)
        if found is not None and no_ack and self.successor is None:
            self.account.dlv_bytes += found[0].body_bytes  # else `delivered` has counted it
        return found

    @override
    def delivered(self, run: Run) -> None:
        before = self.unacked_bytes
        _delivered(self, run)
        self.account.dlv_bytes += self.unacked_bytes - before

    @override
    def consumed(self, run: Run) -> None:
        size = run.size
        self.account.dlv_bytes += size * len(run.contents) if size != MIXED_SIZES else run.body_bytes
        _consumed(self, run)

    @override
    def count_consumed(self, run: Run) -> None:
        self.account.dlv_bytes += run.body_bytes
        super().count_consumed(run)

    @override
    def retire(self) -> None:
        account = self.account
        account.past = account.counts(self.counters)
        super().retire()

    # --- the age of messages ---

    def _mark(self, now: float) -> None:
        self._mark_at = now + MARK_S
        marks = self._marks
        if not self.backlog.count and not self.unacked_count:
            marks.clear()  # the queue has no earlier messages
        elif len(marks) >= MARKS_MAX:
            del marks[1::2]
        marks.append((self.next_seq, now))

    def head_age_s(self, now: float) -> float | None:
        """Return for how many seconds the first ready message has been in the queue; 0 if there is none.

        None: the message is on disk only, or was here before this broker was its master.
        """
        backlog = self.backlog
        if not backlog.count:
            return 0.0
        heads = (next(iter(islice(level.in_memory(0), 1)), None) for level in backlog.levels if level.count)
        numbers = [run.seqs.start for run in heads if run is not None]
        if not numbers or not backlog.at_hand:
            return None
        at = bisect_right(self._marks, (min(numbers), float("inf"))) - 1
        return None if at < 0 else max(0.0, now - self._marks[at][1])
