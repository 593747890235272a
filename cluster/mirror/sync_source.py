"""The master's side of a synchronisation: gives mirrors the messages that they ask for, beside the queue's own traffic.

    Pull ─► ranges wanted by a mirror ── a turn: the first of them ─► QueueReader ─► Chunk

One chunk leaves in a turn, for one mirror; two may be on their way to each. Nothing is kept but numbers, and the queue
never waits: messages that leave it meanwhile are left out, and new ones go by the ring.
Source: reliability §4.5; amqp-behaviour §9.3.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from cluster.errors import Malformed
from cluster.mirror.side import Chunk, Pull, encode_side
from node.queue.mirroring import SyncProgress
from node.queue.operations import Enqueue, expires_at_ms
from node.queue.reader import Found, QueueReader, Source
from node.queue.run import Run, bytes_of

CHUNK_BYTES: Final = 1024 * 1024
"""The most contents of a chunk; only a single larger message makes a larger one."""

BUSY_CHUNK_BYTES: Final = 256 * 1024
"""The same in a turn in which the queue had something else to do: a chunk costs no more than that, about."""

CHUNKS_MAX: Final = 2
"""The most chunks on the way to one mirror: one travels while the other is put in its place."""

DEFAULT_BATCH: Final = 4096
"""The messages of a chunk unless a policy says something else."""

BATCH_MAX: Final = 65536
"""The most that a policy can make of it: more small messages than that don't fit a chunk."""

BUSY_S: Final = 0.05
"""The queue counts as busy for so long after it had something else to do: most turns of a busy one have nothing."""

BUSY_PAUSE_S: Final = 0.01
"""The pause between two chunks beside that: a queue that is synchronised keeps more than half of its rate."""

_NEVER: Final = float("inf")


class SyncQueue(Source, Protocol):
    """The queue that is synchronised.   next_seq, delivered_count: rise with the queue's own traffic."""

    next_seq: int
    delivered_count: int


class SyncSource:
    """Serves the mirrors of one queue.

    unsettled: see `QueueReader`.   send: takes a side message for a member.   wake: called when there is work
    outside of a turn.   epoch_s: see `Storage.epoch_s`.
    max_bytes_per_s: of contents, for all mirrors together; 0: no limit (RabbitMQ's `mirroring_sync_max_throughput`).
    """

    def __init__(
        self,
        queue: SyncQueue,
        unsettled: Callable[[], Iterable[Run]],
        send: Callable[[int, bytes], None],
        *,
        epoch_s: Callable[[], float],
        wake: Callable[[], None] = lambda: None,
        max_bytes_per_s: int = 0,
    ) -> None:
        self._queue = queue
        self._reader = QueueReader(queue, unsettled)
        self._send = send
        self._wake = wake
        self._epoch_s = epoch_s
        self._max_bytes_per_s = max_bytes_per_s
        self._services: dict[int, _Service] = {}  # by member; the one served last is at the end
        self._progress: dict[int, SyncProgress] = {}
        self._reading: _Service | None = None
        self._now = 0.0
        self._traffic: int | None = None
        self._busy_until = -_NEVER
        self.due_at = _NEVER
        """The latest time for the next call of `turn`: a limit holds back the next chunk."""

    def pull(self, member: int, message: Pull) -> None:
        """Take a mirror's request, or its receipt of chunks. A turn has to follow. Raises: Malformed."""
        service = self._services.get(member)
        if service is not None and service.request == message.request:
            if not service.taken <= message.taken <= service.sent:
                raise Malformed("a mirror that took chunks which were not sent")
            service.taken = message.taken
        elif message.ranges:
            self._services[member] = _Service(member, message)
        else:
            self._services.pop(member, None)
        is_running = member in self._services
        if is_running or member in self._progress:
            total = message.installed + message.missing
            self._progress[member] = SyncProgress(message.installed, total, is_running)
        self._rest_if_idle()

    def forget(self, member: int) -> None:
        """Stop serving a member that is gone, or is synchronised."""
        self._services.pop(member, None)
        self._progress.pop(member, None)
        self._rest_if_idle()

    def close(self) -> None:
        """Stop serving: the queue has another master, or is gone."""
        self._services.clear()
        self._progress.clear()
        self._rest_if_idle()

    @property
    def progress(self) -> dict[int, SyncProgress]:
        """The progress of all mirrors that ever asked, by member."""
        return self._progress

    @property
    def has_work(self) -> bool:
        """True if `turn` has something to send, or to look for."""
        return self._reading is None and self._next() is not None and self.due_at == _NEVER

    def turn(self, now: float) -> None:
        """Look for the next chunk of the mirror that has waited longest."""
        self._now = now
        if now >= self.due_at:
            self.due_at = _NEVER
        traffic = self._queue.next_seq + self._queue.delivered_count
        if traffic != self._traffic:
            if self._traffic is not None:
                self._busy_until = now + BUSY_S
            self._traffic = traffic
        is_busy = now < self._busy_until
        service = self._next() if self.has_work else None
        if service is None:
            return
        self._services[service.member] = self._services.pop(service.member)
        self._reading = service
        is_turn = True

        def done(found: Found) -> None:
            self._reading = None
            if self._services.get(service.member) is service:
                self._answer(service, found)
            self._rest_if_idle()
            if not is_turn and self.has_work:
                self._wake()

        wanted = service.first(batch_size(self._queue.settings.ha_sync_batch_size))
        self._reader.read(wanted, BUSY_CHUNK_BYTES if is_busy else CHUNK_BYTES, now, done)
        is_turn = False

    def _next(self) -> "_Service | None":
        return next((service for service in self._services.values() if service.is_ready), None)

    def _answer(self, service: "_Service", found: Found) -> None:
        service.found(found.upto)
        if not found.runs and service.wanted:
            return  # none of these numbers is here any more
        service.sent += 1
        epoch_s = self._epoch_s()
        entries = tuple(entry_of(run, epoch_s) for run in found.runs)
        self._send(service.member, encode_side(Chunk(service.request, entries, is_end=not service.wanted)))
        if self._now < self._busy_until:
            self.due_at = self._now + BUSY_PAUSE_S
        if self._max_bytes_per_s:
            sent_bytes = sum(sum(map(len, entry.contents)) for entry in entries)
            self.due_at = self._now + pause_s(sent_bytes, self._max_bytes_per_s)

    def _rest_if_idle(self) -> None:
        if not any(service.wanted for service in self._services.values()):
            self._reader.rest()


class _Service:
    """The request of one mirror.

    wanted: the numbers that were not looked for yet.   sent, taken: chunks of this request.
    """

    __slots__ = ("member", "request", "sent", "taken", "wanted")

    def __init__(self, member: int, pull: Pull) -> None:
        self.member = member
        self.request = pull.request
        self.wanted = deque(pull.ranges)
        self.sent = self.taken = 0

    @property
    def is_ready(self) -> bool:
        """True if there is something to look for, and room for it on the way."""
        return bool(self.wanted) and self.sent - self.taken < CHUNKS_MAX

    def first(self, count: int) -> list[range]:
        """Return the first so many of the wanted numbers, as ranges."""
        return first_of(self.wanted, count)

    def found(self, upto: int) -> None:
        """Note that numbers below this one have been looked for."""
        wanted = self.wanted
        while wanted and wanted[0].stop <= upto:
            wanted.popleft()
        if wanted and wanted[0].start < upto:
            wanted[0] = range(upto, wanted[0].stop)


def refusal(pull: Pull) -> bytes:
    """Encode the answer of a node that is not the master (any more)."""
    return encode_side(Chunk(pull.request, is_end=True, is_refused=True))


def first_of(wanted: Iterable[range], count: int) -> list[range]:
    """Return the first so many of these numbers."""
    ranges: list[range] = []
    for part in wanted:
        ranges.append(part[:count])
        count -= len(ranges[-1])
        if not count:
            break
    return ranges


def batch_size(policy: int) -> int:
    """Return the messages of a chunk, by `ha-sync-batch-size`: 1 counts as the default (§9.3)."""
    return DEFAULT_BATCH if policy == 1 else min(policy, BATCH_MAX)


def pause_s(sent_bytes: int, max_bytes_per_s: int) -> float:
    """Return how long to wait after so many bytes so that no more than the limit pass in a second."""
    return sent_bytes / max_bytes_per_s


def entry_of(run: Run, epoch_s: float) -> Enqueue:
    """Return a run with its contents, wherever these are here."""
    body_bytes = bytes_of(run.contents, run.size)
    return Enqueue(
        run.envelope,
        run.seqs.start,
        run.contents,
        len(run),
        body_bytes if len(run) == 1 else run.size,
        body_bytes,
        expires_at_ms(run.expiry, epoch_s),
        run.deliveries,
    )
