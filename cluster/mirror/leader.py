"""The master's side of a mirrored queue: tells the ring what happens to its messages, and who waits when they are safe.

    Queue ── enqueued, removed ─► gathered ─ end of the turn ─► Batch ─► ring ─► confirmed, durable ─► waiters settled

What came in and was done with in the same turn never leaves the node: its mirrors need not know that it was there.
Source: reliability §4.4, §4.8; docs/internals/mirrors.md, "A publish".
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from cluster.mirror.batch import Batch, Clock, Handover, Roll, SenderGone, Step, SyncMode, encode_batch
from cluster.mirror.slow_disks import DiskState
from node.amqp.reader import MIXED_SIZES
from node.queue.number_set import NumberSet
from node.queue.operations import Delivered, Enqueue, Remove, enqueues, joined
from node.queue.run import Batch as Published
from node.queue.run import Run
from node.queue.storage import Storage, Waiter

if TYPE_CHECKING:
    from node.queue.live_queue import HeldPublisher

CONGESTED_BYTES: Final = 16 * 1024 * 1024
"""Payloads of one queue that are not at every mirror: with more its publishers are not read from."""

NODE_BYTES: Final = 64 * 1024 * 1024
"""The same of all queues whose master is on this node: with more, those that have something under way hold on."""

BATCH_BYTES: Final = 16 * 1024 * 1024
"""Contents that are broadcast together, unless they came in together."""

_ALL: Final = 1 << 62
"""More than any broadcast's number."""

RUN_MAX: Final = 4096
"""Messages at which an Enqueue grows no more; as a run of the queue."""


class Ring(Protocol):
    """What a leader needs of its group.

    now: the broker's clock.   next_number: of the next broadcast.   is_alone: nobody else is to hear of it.
    pending_bytes: of broadcasts that are not everywhere.   is_node_full: those of all queues are too many.
    """

    @property
    def now(self) -> float: ...

    @property
    def next_number(self) -> int: ...

    @property
    def is_alone(self) -> bool: ...

    @property
    def pending_bytes(self) -> int: ...

    @property
    def is_node_full(self) -> bool: ...

    def broadcast(self, payload: bytes) -> int:
        """Send to all; its number. Marks that go round with it are about the disks of the others."""

    def touch(self) -> None:
        """There is something to broadcast: call `flush` at the end of the turn."""


class Leader:
    """A `Mirror`.

    live: numbers of all messages that are in the queue or with clients.
    senders: the last publish of each front end.   mastership: names it.
    epoch_s: see `Storage.epoch_s`.
    """

    def __init__(
        self,
        ring: Ring,
        storage: Storage,
        *,
        mastership: int,
        next_seq: int,
        live: NumberSet,
        senders: Mapping[int, int],
        is_durable: bool,
    ) -> None:
        self.live = live
        self.senders = dict(senders)
        self.mastership = mastership
        self.next_seq = next_seq
        self._ring = ring
        self._storage = storage
        self._is_durable = is_durable
        self._fresh: list[Run] = []
        self._fresh_bytes = 0
        self._gone: list[range] = []
        self._returned: list[tuple[range, int]] = []
        self._new_senders: dict[int, int] = {}
        self._steps: list[Step] = []
        self._sent: deque[tuple[int, float]] = deque()
        """Broadcasts that are not everywhere, and when they were made."""
        self.is_due = False
        """Whether there is a batch to send, be it an empty one."""
        self.first_number = ring.next_number
        """Of this mastership's broadcasts."""
        self._confirmed = self._mark = self._durable = self.first_number - 1
        self._waiting: deque[_Waiting] = deque()
        self._keeping: deque[_Waiting] = deque()
        self.is_own_disk_enough = False
        """Whether persistent messages are confirmed without the disks of mirrors: `ha-confirm` is `master`."""
        self._is_broken = False
        """Whether our own disk keeps nothing any more."""
        self._disk_asked = self._disk_done = self.first_number - 1
        self._relief: dict[HeldPublisher, None] = {}

    # --- a `Mirror` ---

    @property
    def is_congested(self) -> bool:
        """See `Mirror.is_congested`."""
        pending_bytes = self._ring.pending_bytes
        return pending_bytes > (0 if self._ring.is_node_full else CONGESTED_BYTES)

    def await_relief(self, publisher: "HeldPublisher") -> None:
        """See `Mirror.await_relief`."""
        self._relief[publisher] = None
        self.relieve()

    def relieve(self) -> None:
        """Let those go on who wait for it, if there is room."""
        if self._relief and self._ring.pending_bytes <= (
            0 if self._ring.is_node_full else CONGESTED_BYTES // 2
        ):
            self.release()

    def release(self) -> None:
        """Let them go on: there is room, or the queue has moved."""
        relief, self._relief = self._relief, {}
        for publisher in relief:
            publisher.peer_relieved()

    def enqueued(self, batch: Published, first_seq: int, expiry: float) -> None:
        """See `Mirror.enqueued`."""
        envelope, contents, size = batch.envelope, batch.contents, batch.size
        new_bytes = size * len(contents) if size != MIXED_SIZES else sum(map(len, contents))
        if self._fresh and self._fresh_bytes + new_bytes > BATCH_BYTES:
            self.flush()  # all that belongs to those that came before has been told
        self._fresh_bytes += new_bytes
        fresh, stop = self._fresh, first_seq + len(contents)
        self.next_seq = stop
        if fresh:
            last = fresh[-1]
            if (
                last.envelope is envelope
                and last.seqs.stop == first_seq
                and last.expiry == expiry
                and len(last.contents) < RUN_MAX
            ):
                last.contents += contents
                last.seqs = range(last.seqs.start, stop)
                if last.size != size:
                    last.size = MIXED_SIZES
                return
        else:
            self._touch()
        fresh.append(Run(envelope, range(first_seq, stop), contents.copy(), size, expiry))

    def removed(self, seqs: range) -> None:
        """See `Mirror.removed`."""
        if not self._gone:
            self._touch()
        if seqs.step == 1:
            self._gone.append(seqs)
        else:
            self._gone += _solid(seqs)

    def returned(self, seqs: range, deliveries: int) -> None:
        """See `Mirror.returned`."""
        self._returned.append((seqs, deliveries))
        self._touch()

    def received(self, sender: int, number: int) -> None:
        """See `Mirror.received`."""
        self._new_senders[sender] = number
        self._touch()

    def last_received(self, sender: int) -> int:
        """See `Mirror.last_received`."""
        return self._new_senders.get(sender) or self.senders.get(sender, 0)

    @property
    def last_received_of_all(self) -> dict[int, int]:
        """The same for each front end of which one came in."""
        return self.senders | self._new_senders

    def await_stable(self, waiter: Waiter, first: int, last: int, *, is_kept: bool) -> None:
        """See `Mirror.await_stable`."""
        is_kept = is_kept and self._is_durable
        number = self._ring.next_number - (0 if self.is_due else 1)
        if number <= (self._durable if is_kept else self._confirmed):
            waiter.settle(first, last, is_safe=True)
            return
        waiting = self._keeping if is_kept else self._waiting
        if waiting:
            latest = waiting[-1]
            if latest.number == number and latest.waiter is waiter and latest.last == first - 1:
                latest.last = last
                return
        waiting.append(_Waiting(number, waiter, first, last))

    # --- what the group says ---

    def say(self, step: Step) -> None:
        """Tell the mirrors something beside what happens to messages."""
        self._steps.append(step)
        self._touch()

    def begin(self) -> None:
        """Have become master. A first batch goes out in any case: who waits for what came before waits for it."""
        self._touch()

    def roll(self, member: int) -> None:
        """A member that is not synchronised is to know what there is. Everything gathered so far comes before it."""
        self.flush()
        self.say(Roll(member, tuple(self.live.ranges()), self.senders))
        self.flush()

    def forget_senders(self, up: Collection[int]) -> None:
        """Only the front ends with these incarnations are up."""
        for sender in [sender for sender in self.senders if sender not in up]:
            del self.senders[sender]
            self.say(SenderGone(sender))

    def set_sync(self, *, is_on: bool) -> None:
        """An operator wants the mirrors synchronised, or not any more."""
        self.say(SyncMode(is_on))

    def hand_over(self, version: int) -> None:
        """Say the last word, as the view of this version wants."""
        self.say(Handover(version))
        self.flush()

    def progress(self, confirmed: int, durable: int) -> None:
        """Our broadcasts up to these are at every member, and on every other member's disk that counts."""
        if confirmed > self._confirmed:
            self._confirmed = confirmed
            sent = self._sent
            while sent and sent[0][0] <= confirmed:
                sent.popleft()
            _settle(self._waiting, confirmed)
            self.relieve()
        self._mark = durable
        self._settle_kept()

    def _settle_kept(self) -> None:
        durable = min(self._disk_done, self._confirmed)
        if not self.is_own_disk_enough:
            durable = min(durable, self._mark)
        if durable > self._durable:
            self._durable = durable
            _settle(self._keeping, durable)

    def abandon(self, *, is_safe: bool) -> None:
        """Nothing more will be heard of what is under way: tell who waits that it `is_safe`, or that nobody knows.

        It is safe when the queue is gone; then whatever is still published to it counts as safe, too.
        """
        if is_safe:
            self._confirmed = self._durable = _ALL
        for waiting in (self._waiting, self._keeping):
            while waiting:
                each = waiting.popleft()
                each.waiter.settle(each.first, each.last, is_safe=is_safe)
        self.release()

    def go_on_alone(self) -> None:
        """There are no mirrors any more: who waits for disks waits for our own."""
        keeping, self._keeping = self._keeping, deque()
        for each in keeping:
            self._storage.await_safety(each.waiter, each.first, each.last)

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return not (self._waiting or self._keeping or self.is_due)

    @property
    def gathered_count(self) -> int:
        """Messages that came in since the last broadcast."""
        return self.next_seq - self._fresh[0].seqs.start if self._fresh else 0

    @property
    def is_disk_awaited(self) -> bool:
        """Whether somebody waits for disks."""
        return bool(self._keeping)

    @property
    def disk_state(self) -> DiskState:
        """How far disks are, and whether that matters."""
        awaited = self._keeping[0].number if self._keeping else None
        return DiskState(awaited, self._confirmed, self._mark, self._disk_done, self.is_own_disk_enough)

    @property
    def oldest_number(self) -> int | None:
        """The first broadcast that is not everywhere."""
        return self._sent[0][0] if self._sent else None

    def oldest_age_s(self, now: float) -> float:
        """How long it has been under way; 0: there is none."""
        return now - self._sent[0][1] if self._sent else 0.0

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """See `Waiter.settle`: our own disk has these broadcasts, or never will. Then this node ends, and who waits is
        answered by the next master.
        """
        if is_safe:
            self._disk_done = last
            self._settle_kept()
            return
        self._is_broken = True

    # --- the end of a turn ---

    def _touch(self) -> None:
        if not self.is_due:
            self.is_due = True
            self._ring.touch()

    def flush(self) -> None:
        """Broadcast what has gathered."""
        if not self.is_due:
            return
        self.is_due = False
        is_large = self._fresh_bytes > BATCH_BYTES
        steps, has_kept = self._take_steps()
        self.senders.update(self._new_senders)
        is_first = self._ring.next_number == self.first_number
        if is_large:
            steps = self._send_large(steps)
        batch = Batch(self.next_seq, self.mastership, self._new_senders, steps)
        self._new_senders = {}
        number = self._broadcast(batch)
        if self._is_durable and (has_kept or is_first or self._disk_done < self._disk_asked):
            # The first one stands for all that this node kept before it was master, too.
            self._disk_asked = number
            self._storage.await_safety(self, number, number)
        elif not self._is_broken:
            self._disk_asked = self._disk_done = number

    def _broadcast(self, batch: Batch) -> int:
        if any(map(_needs_clock, batch.steps)):
            batch.steps.insert(0, Clock(round((self._ring.now + self._storage.epoch_s) * 1000)))
        number = self._ring.broadcast(b"" if self._ring.is_alone else encode_batch(batch))
        self._sent.append((number, self._ring.now))
        return number

    def _send_large(self, steps: list[Step]) -> list[Step]:
        """Broadcast messages that came in together and are too large for that, but for the last ones.

        Returns: these, and what else there is to tell: who sent them is told with them, so nobody sends them again.
        """
        pieces = [piece for step in steps if isinstance(step, Enqueue) for piece in _pieces(step)]
        expected = self._ring.next_number
        for piece in pieces[:-1]:
            self._broadcast(Batch(piece.seqs.stop, self.mastership, {}, [piece]))
        for waiting in (*self._waiting, *self._keeping):
            if waiting.number == expected:
                waiting.number = self._ring.next_number  # for all of it
        return [*pieces[-1:], *(step for step in steps if not isinstance(step, Enqueue))]

    def _take_steps(self) -> tuple[list[Step], bool]:
        """What has gathered, and whether any of it has to be on disk. What came and went meanwhile is left out."""
        fresh, self._fresh, self._fresh_bytes = self._fresh, [], 0
        first = fresh[0].seqs.start if fresh else self.next_seq
        for run in fresh:
            self.live.add(run.seqs)
        old: list[range] = []
        new: list[range] = []
        if self._gone:
            gone, self._gone = joined(self._gone), []
            for part in gone:
                self.live.discard(part)
                if part.start < first:
                    old.append(range(part.start, min(part.stop, first)))
                if part.stop > first:
                    new.append(range(max(part.start, first), part.stop))
        if new:
            fresh = _without(fresh, new)
        steps: list[Step] = [entry for run in fresh for entry in enqueues(run, self._storage.epoch_s)]
        if old:
            steps.append(Remove(tuple(old)))
        if self._returned:
            returned, self._returned = self._returned, []
            steps += [Delivered(tuple(_solid(seqs)), count) for seqs, count in returned]
        steps += self._steps
        self._steps = []
        return steps, self._is_durable and any(run.envelope.persistent for run in fresh)


def _needs_clock(step: Step) -> bool:
    return step.expires_at_ms > 0 if isinstance(step, Enqueue) else isinstance(step, Roll)


def _pieces(entry: Enqueue) -> Iterator[Enqueue]:
    """The same messages, so many together as are not too large."""
    begin = size = 0
    for at, content in enumerate(entry.contents):
        if size and size + len(content) > BATCH_BYTES:
            yield entry[begin:at]
            begin, size = at, 0
        size += len(content)
    yield entry[begin : entry.count] if begin else entry


def _solid(seqs: range) -> list[range]:
    """The same numbers in ranges of step 1."""
    return [seqs] if seqs.step == 1 else [range(seq, seq + 1) for seq in seqs]


def _without(runs: list[Run], gone: list[range]) -> list[Run]:
    """What is left of runs without some numbers. Both rise."""
    left: list[Run] = []
    waiting = deque(gone)
    for run in runs:
        start, stop = run.seqs.start, run.seqs.stop
        at = start
        while waiting and waiting[0].start < stop:
            part = waiting[0]
            if part.start > at:
                left.append(run[at - start : part.start - start])
            at = max(at, part.stop)
            if part.stop > stop:
                break
            waiting.popleft()
        if at < stop:
            left.append(run[at - start :])
    return left


class _Waiting:
    """Who waits for a broadcast."""

    __slots__ = ("first", "last", "number", "waiter")

    def __init__(self, number: int, waiter: Waiter, first: int, last: int) -> None:
        self.number = number
        self.waiter = waiter
        self.first = first
        self.last = last


def _settle(waiting: deque[_Waiting], upto: int) -> None:
    while waiting and waiting[0].number <= upto:
        each = waiting.popleft()
        each.waiter.settle(each.first, each.last, is_safe=True)
