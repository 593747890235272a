"""The master's side of a mirrored queue: broadcasts changes of its messages, and settles waiters once they are safe.

    Queue ── enqueued, removed ─► gathered ─ end of the turn ─► Batch ─► ring ─► confirmed, durable ─► waiters settled

A message that came in and was settled in the same turn never leaves the node: its mirrors need not know of it.
Source: reliability §4.4, §4.8; docs/internals/mirrors.md, "A publish".
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from cluster.mirror.batch import Batch, Clock, Handover, Inventory, SenderGone, Step, SyncMode, encode_batch
from cluster.mirror.pacing import LAZY_S
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
"""The bytes of one queue's payloads that some mirror still lacks; above it the queue's publishers are not read from."""

NODE_BYTES: Final = 64 * 1024 * 1024
"""The same for all queues together whose master is on this node; above it each queue with payloads under way holds back
its publishers."""

BATCH_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of contents in one broadcast; what gathers beyond it begins another one."""

_ALL: Final = 1 << 62
"""A number above that of any broadcast."""

REMOVALS_MAX: Final = 1000
"""The gathered ranges of removed messages at which the next broadcast is urgent: so many take a millisecond to join."""

RUN_MAX: Final = 4096
"""The most messages of an Enqueue to which more are joined; the same limit as for a queue's runs."""


class ReplicatorHost(Protocol):
    """The part of a replica that its replicator uses.

    now: the broker's clock.   next_number: of the next broadcast.   is_alone: the ring has no other member.
    pending_bytes: of broadcasts that have not come round.   is_node_full: all queues together have too many of these
        bytes.
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
        """Send a payload to all members; return its number. Its marks tell how far the others' disks are."""

    def touch(self) -> None:
        """Note that there is something to broadcast: the replica calls `flush` at the end of the turn."""


class Replicator:
    """Replicates a queue from its master's node. A `QueueReplicator` for the queue.

    live: numbers of all messages that are in the queue or with clients.
    senders: the number of the last publish of each front end.   mastership: the number of the queue's mastership.
    epoch_s: see `Storage.epoch_s`.
    """

    def __init__(
        self,
        host: ReplicatorHost,
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
        self._host = host
        self._storage = storage
        self._is_durable = is_durable
        self._fresh: list[Run] = []
        self._fresh_bytes = 0
        self._gone: list[range] = []
        self._returned: list[tuple[range, int]] = []
        self._new_senders: dict[int, int] = {}
        self._steps: list[Step] = []
        self._sent: deque[tuple[int, float]] = deque()
        """The numbers of broadcasts that have not come round, and when each was made."""
        self.is_due = False
        """True if `flush` has a batch to send, even an empty one."""
        self.is_urgent = False
        """True if that batch should go soon. Removals alone may wait for what comes next: nobody waits for them."""
        self._removals_at: float | None = None
        """When a batch of removals alone goes; None: not known, or there is none."""
        self.first_number = host.next_number
        """The number of this mastership's first broadcast."""
        self._confirmed = self._mark = self._durable = self.first_number - 1
        self._waiting: deque[_Waiting] = deque()
        self._keeping: deque[_Waiting] = deque()
        self.is_own_disk_enough = False
        """True if confirms of persistent messages do not wait for the mirrors' disks: `ha-confirm` is `master`."""
        self._is_broken = False
        """True if this node's disk has failed."""
        self._disk_asked = self._disk_done = self.first_number - 1
        self._relief: dict[HeldPublisher, None] = {}

    # --- a `QueueReplicator` ---

    @property
    def is_congested(self) -> bool:
        """True if publishers should hold on, as too many bytes are on their way to the mirrors."""
        pending_bytes = self._host.pending_bytes
        return pending_bytes > (0 if self._host.is_node_full else CONGESTED_BYTES)

    def await_relief(self, publisher: "HeldPublisher") -> None:
        """Call `publisher.peer_relieved()` once the congestion is over, or the queue has moved."""
        self._relief[publisher] = None
        self.relieve()

    def relieve(self) -> None:
        """Call the publishers back that wait for relief, if there is room again."""
        if self._relief and self._host.pending_bytes <= (
            0 if self._host.is_node_full else CONGESTED_BYTES // 2
        ):
            self.release()

    def release(self) -> None:
        """Call all publishers back that wait for relief: there is room, or the queue has moved."""
        relief, self._relief = self._relief, {}
        for publisher in relief:
            publisher.peer_relieved()

    def enqueued(self, batch: Published, first_seq: int, expiry: float) -> None:
        """Gather messages that came into the queue, with numbers from `first_seq` on."""
        envelope, contents, size = batch.envelope, batch.contents, batch.size
        new_bytes = size * len(contents) if size != MIXED_SIZES else sum(map(len, contents))
        if self._fresh and self._fresh_bytes + new_bytes > BATCH_BYTES:
            self.flush()  # the queue has reported everything about the earlier messages
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
        """Gather the numbers of messages that have left the queue and will not come back."""
        if seqs.step == 1:
            self._gone.append(seqs)
        else:
            self._gone += _solid(seqs)
        if len(self._gone) >= REMOVALS_MAX:
            self._touch()
        elif not self.is_due:
            self.is_due = True
            self._host.touch()

    def returned(self, seqs: range, deliveries: int) -> None:
        """Gather how often messages have come back from clients."""
        self._returned.append((seqs, deliveries))
        self._touch()

    def received(self, sender: int, number: int) -> None:
        """Note the number of the last publish that came from a front end."""
        self._new_senders[sender] = number
        self._touch()

    def last_received(self, sender: int) -> int:
        """Return the number of a front end's last publish, here or at an earlier master; 0 if there was none."""
        return self._new_senders.get(sender) or self.senders.get(sender, 0)

    @property
    def last_received_of_all(self) -> dict[int, int]:
        """The number of the last publish of each front end, by its incarnation."""
        return self.senders | self._new_senders

    def await_stable(self, waiter: Waiter, first: int, last: int, *, is_kept: bool) -> None:
        """Settle (first, last) once all that came into the queue so far is at every member; is_kept: and on disks."""
        is_kept = is_kept and self._is_durable
        number = self._host.next_number - (0 if self.is_due else 1)
        if number <= (self._durable if is_kept else self._confirmed):
            waiter.settle(first, last, is_safe=True)
            return
        if self.is_due:
            self._touch()
        waiting = self._keeping if is_kept else self._waiting
        if waiting:
            latest = waiting[-1]
            if latest.number == number and latest.waiter is waiter and latest.last == first - 1:
                latest.last = last
                return
        waiting.append(_Waiting(number, waiter, first, last))

    # --- what the replica says ---

    def say(self, step: Step) -> None:
        """Add a step for the mirrors that is not about messages."""
        self._steps.append(step)
        self._touch()

    def begin(self) -> None:
        """Begin as master. A first batch goes out even if it is empty: waiters for earlier messages wait for it."""
        self._touch()

    def send_inventory(self, member: int) -> None:
        """Send the inventory to a member that is not synchronised, after everything that has gathered so far."""
        self.flush()
        self.say(Inventory(member, tuple(self.live.ranges()), self.senders))
        self.flush()

    def forget_senders(self, up: Collection[int]) -> None:
        """Forget the front ends that are gone.   up: the incarnations of those that are not."""
        for sender in [sender for sender in self.senders if sender not in up]:
            del self.senders[sender]
            self.say(SenderGone(sender))

    def set_sync(self, *, is_on: bool) -> None:
        """Tell the mirrors to synchronise, or to stop that, as an operator asked."""
        self.say(SyncMode(is_on))

    def hand_over(self, version: int) -> None:
        """Broadcast the last batch of this mastership, as the view of this version says."""
        self.say(Handover(version))
        self.flush()

    def progress(self, confirmed: int, durable: int) -> None:
        """Settle the waiters of broadcasts that have come round.

        confirmed: up to this number every member has our broadcasts.   durable: up to this number they are on the
            disk of each other member that counts.
        """
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
        """Settle all waiters, since no more broadcasts will come round.

        is_safe: the queue is gone, so all publishes to it count as safe, later ones too; else their outcome is
            unknown.
        """
        if is_safe:
            self._confirmed = self._durable = _ALL
        for waiting in (self._waiting, self._keeping):
            while waiting:
                each = waiting.popleft()
                each.waiter.settle(each.first, each.last, is_safe=is_safe)
        self.release()

    def go_on_alone(self) -> None:
        """Wait for this node's disk in place of the mirrors' disks: the last mirror has left."""
        keeping, self._keeping = self._keeping, deque()
        for each in keeping:
            self._storage.await_safety(each.waiter, each.first, each.last)

    @property
    def is_idle(self) -> bool:
        """True if nothing waits for a broadcast, and none is due."""
        return not (self._waiting or self._keeping or self.is_due)

    @property
    def gathered_count(self) -> int:
        """The number of messages that came in since the last broadcast."""
        return self.next_seq - self._fresh[0].seqs.start if self._fresh else 0

    @property
    def is_disk_awaited(self) -> bool:
        """True if a confirm waits for disks."""
        return bool(self._keeping)

    @property
    def disk_state(self) -> DiskState:
        """The numbers up to which disks have the broadcasts, and the first one that a confirm waits for."""
        awaited = self._keeping[0].number if self._keeping else None
        return DiskState(awaited, self._confirmed, self._mark, self._disk_done, self.is_own_disk_enough)

    @property
    def under_way(self) -> int:
        """The number of broadcasts that have not come round."""
        return len(self._sent)

    def oldest_age_s(self, now: float) -> float:
        """Return for how many seconds the oldest broadcast has been under way; 0 if none is."""
        return now - self._sent[0][1] if self._sent else 0.0

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """Note that this node's disk has these broadcasts, or has failed.

        After a failure this node ends, and the next master answers the publishers.
        """
        if is_safe:
            self._disk_done = last
            self._settle_kept()
            return
        self._is_broken = True

    # --- the end of a turn ---

    def _touch(self) -> None:
        if not self.is_urgent:
            self.is_due = self.is_urgent = True
            self._host.touch()

    def due_at(self, now: float) -> float:
        """Return when the batch is to go that is due, unless something urgent comes."""
        if self.is_urgent:
            return now
        if self._removals_at is None:
            self._removals_at = now + LAZY_S
        return self._removals_at

    def flush(self) -> None:
        """Broadcast what has gathered."""
        if not self.is_due:
            return
        self._removals_at = None
        self.is_due = self.is_urgent = False
        is_large = self._fresh_bytes > BATCH_BYTES
        steps, has_kept = self._take_steps()
        self.senders.update(self._new_senders)
        is_first = self._host.next_number == self.first_number
        if is_large:
            steps = self._send_large(steps)
        batch = Batch(self.next_seq, self.mastership, self._new_senders, steps)
        self._new_senders = {}
        number = self._broadcast(batch)
        if self._is_durable and (has_kept or is_first or self._disk_done < self._disk_asked):
            # The first broadcast also stands for all that this node kept before it became master.
            self._disk_asked = number
            self._storage.await_safety(self, number, number)
        elif not self._is_broken:
            self._disk_asked = self._disk_done = number

    def _broadcast(self, batch: Batch) -> int:
        if any(map(_needs_clock, batch.steps)):
            batch.steps.insert(0, Clock(round((self._host.now + self._storage.epoch_s) * 1000)))
        number = self._host.broadcast(b"" if self._host.is_alone else encode_batch(batch))
        self._sent.append((number, self._host.now))
        return number

    def _send_large(self, steps: list[Step]) -> list[Step]:
        """Broadcast messages that came in together and are too large for one broadcast, except for the last part.

        Returns: the last part, and the steps that are not about messages. The publish numbers of front ends go out
        with these, so no front end sends a publish again of which only some parts came.
        """
        pieces = [piece for step in steps if isinstance(step, Enqueue) for piece in _pieces(step)]
        expected = self._host.next_number
        for piece in pieces[:-1]:
            self._broadcast(Batch(piece.seqs.stop, self.mastership, {}, [piece]))
        for waiting in (*self._waiting, *self._keeping):
            if waiting.number == expected:
                waiting.number = self._host.next_number  # the last part of the messages it waits for
        return [*pieces[-1:], *(step for step in steps if not isinstance(step, Enqueue))]

    def _take_steps(self) -> tuple[list[Step], bool]:
        """Take the gathered steps, and whether any of them has to be on disk. Messages that came and left meanwhile
        are not in them.
        """
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
    return step.expires_at_ms > 0 if isinstance(step, Enqueue) else isinstance(step, Inventory)


def _pieces(entry: Enqueue) -> Iterator[Enqueue]:
    """Yield an Enqueue in parts of at most `BATCH_BYTES` of contents each."""
    begin = size = 0
    for at, content in enumerate(entry.contents):
        if size and size + len(content) > BATCH_BYTES:
            yield entry[begin:at]
            begin, size = at, 0
        size += len(content)
    yield entry[begin : entry.count] if begin else entry


def _solid(seqs: range) -> list[range]:
    """Return the same numbers in ranges of step 1."""
    return [seqs] if seqs.step == 1 else [range(seq, seq + 1) for seq in seqs]


def _without(runs: list[Run], gone: list[range]) -> list[Run]:
    """Return the runs without some numbers. Both arguments are in rising order."""
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
    """A waiter, and the broadcast that it waits for."""

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
