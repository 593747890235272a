"""A copy over a real store on a disk that may lose power, and what must be in it."""

from collections.abc import Callable
from random import Random
from typing import Any

from cluster.mirror.copy import Copy, numbers_of
from node.amqp.frames import body_size
from node.amqp.reader import MIXED_SIZES
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.number_set import NumberSet
from node.queue.operations import Enqueue
from node.queue.queue import Queue
from node.queue.run import Envelope, Run
from node.scheduling.timers import Timers
from node.store.directory import claim
from node.store.options import StoreOptions
from node.store.recovery import recover
from node.store.store import Store
from tests.kit.disk import SimulatedDisk
from tests.kit.messages import FakeHost, content

OPTIONS = StoreOptions(
    embed_max_bytes=250,
    segment_entries=8,
    journal_file_bytes=3000,
    store_file_bytes=3000,
    commit_interval_s=0.025,
)
EPOCH_S = 1_000_000.0

ENVELOPES = [
    Envelope("", "q", channel=1, frame_max_bytes=0, persistent=persistent, priority=priority)
    for persistent in (True, False)
    for priority in (0, 1)
]


class Message:
    """A message was enqueued under a number with these properties."""

    def __init__(self, content: bytes, envelope: Envelope, expires_at_ms: int, deliveries: int) -> None:
        self.content = content
        self.envelope = envelope
        self.expires_at_ms = expires_at_ms
        self.deliveries = deliveries
        self.is_safe = False


class Sync:
    """Notes which messages are safe once the disk is synced."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        assert is_safe
        for message in self._messages:
            message.is_safe = True


class CopyWorld:
    """model: by number, what the copy must hold.   master: what it lacks and the master has."""

    def __init__(self, *, durable: bool = True, max_priority: int | None = None) -> None:
        self.record = QueueRecord("/", "q", f"{7:032x}", durable=durable)
        self.settings = QueueSettings(max_priority=max_priority)
        self.model: dict[int, Message] = {}
        self.master: dict[int, Message] = {}
        self.next_seq = 1
        self._bodies = 0
        self.disk = SimulatedDisk()
        self._start()
        self.copy = self._new_copy()

    def _start(self) -> None:
        self.now = 50.0
        self.timers = Timers()
        claim(self.disk, "node", OPTIONS.segment_entries)
        self.store = Store(self.disk, OPTIONS, self.timers, EPOCH_S, report=self._report)
        durable = {self.record.uid: self.record} if self.record.durable else {}
        self.found = recover(self.disk, self.store, durable, now=lambda: 0.0)
        self.store.begin()
        self.index = self.store.open(self.record)

    @staticmethod
    def _report(*what: Any) -> None:
        raise AssertionError(what)

    @property
    def means(self) -> tuple[Any, ...]:
        """The last arguments of a copy."""
        return (
            lambda contents, persistent: self.store.place(contents, persistent=persistent),
            lambda: self.store.epoch_s,
            OPTIONS.embed_max_bytes,
        )

    def _new_copy(self) -> Copy:
        return Copy(self.record, self.index, *self.means)

    # --- messages ---

    def make(
        self, first: int, sizes: list[int], kind: int, *, ttl_ms: int = 0, deliveries: int = 0
    ) -> Enqueue:
        """New messages with bodies of these sizes."""
        envelope = ENVELOPES[kind]
        contents = []
        for size in sizes:
            self._bodies += 1
            contents.append(content((b"%04d" % self._bodies).ljust(size, b".")[: max(size, 4)]))
        bodies = list(map(body_size, contents))
        size = bodies[0] if len(set(bodies)) == 1 else MIXED_SIZES
        at_ms = round((EPOCH_S + self.now) * 1000) + ttl_ms if ttl_ms else 0
        return Enqueue(envelope, first, contents, len(contents), size, sum(bodies), at_ms, deliveries)

    def _note(self, entry: Enqueue) -> dict[int, Message]:
        return {
            seq: Message(raw, entry.envelope, entry.expires_at_ms, entry.deliveries)
            for seq, raw in zip(entry.seqs, entry.contents, strict=True)
        }

    def enqueue(self, sizes: list[int], kind: int = 0, *, ttl_ms: int = 0, gap: int = 0) -> range:
        """New messages come; their numbers."""
        entry = self.make(self.next_seq + gap, sizes, kind, ttl_ms=ttl_ms)
        self.model.update(self._note(entry))
        self.next_seq = entry.seqs.stop
        self.copy.enqueue(entry)
        return entry.seqs

    def remove(self, *ranges: range) -> None:
        """The master says that these are done with."""
        for known in (self.model, self.master):
            for seq in [seq for seq in known if any(seq in seqs for seqs in ranges)]:
                del known[seq]
        self.copy.remove(ranges)

    def confirm(self) -> None:
        """Have all that was kept so far called safe, some time."""
        self.store.await_safety(
            Sync([each for each in self.model.values() if each.envelope.persistent]), 1, 1
        )

    # --- time ---

    def turn(self, steps: int = 0) -> None:
        """The end of a turn, and some of the disk's work."""
        self.now += 0.03
        self.timers.run(self.now)
        self.store.turn(self.now)
        for _ in range(steps):
            if not self.disk.step():
                break

    def settle(self) -> None:
        """Run turns and the disk until nothing is left to do."""
        for _ in range(300):
            self.turn()
            self.disk.settle()
            if not self.store.has_work and not self.disk.jobs and not len(self.timers):
                return
        raise AssertionError("the store never comes to rest")

    def crash(self, random: Random) -> None:
        """The power goes; the copy is what the disk has."""
        self.disk = self.disk.crash(random)
        self._start()
        self.copy = self._new_copy()
        found = self.found.queues[self.record.uid]
        self.copy.adopt(found.next_seq, found.pages, self.index.alive)
        held = {seq for seqs in self.copy.held for seq in seqs}
        lost = self.model.keys() - held
        assert not [seq for seq in lost if self.model[seq].is_safe], "what was synced is there"
        for seq in lost:
            del self.model[seq]
        # What was removed may be back: acknowledgements are not synced.
        self.remove(*(range(seq, seq + 1) for seq in held - self.model.keys()))
        for message in self.model.values():
            message.deliveries = 0
        self.master.clear()
        self.next_seq = self.copy.next_seq

    # --- promotion and demotion ---

    def promote(self, meanwhile: Callable[[], None] = lambda: None) -> Queue:
        """The copy becomes a queue, at once if it is all in memory.   meanwhile: called while the disk is read."""
        was_paged = self.copy.memory_bytes == 0 and len(self.copy.held) > 0
        queue = Queue(self.record, self.settings, FakeHost(), self.index, self.now)  # type: ignore[arg-type]
        queue.next_seq = self.copy.next_seq
        live, done = self.copy.held, []
        self.copy.fill(queue.backlog, lambda: done.append(True))
        meanwhile()
        if not was_paged and not self.is_paged:
            assert done
        self.settle()
        assert done == [True]
        assert live.ranges() == NumberSet(range(seq, seq + 1) for seq in self.model).ranges()
        assert queue.backlog.count == len(self.model)
        assert queue.backlog.body_bytes == sum(body_size(each.content) for each in self.model.values())
        assert not self.copy.held
        assert self.copy.memory_bytes == 0
        return queue

    @property
    def is_paged(self) -> bool:
        """Whether any of it is on disk only."""
        return self.copy._paged.count > 0

    def take(self, queue: Queue, limit: int) -> list[Run]:
        """Take messages from the head and look at them."""
        taken: list[Run] = []
        while limit > 0 and queue.backlog.count:
            while not queue.backlog.at_hand:
                queue.backlog.refill()
                self.settle()
            run = queue.backlog.take(min(limit, 3))
            limit -= len(run)
            taken.append(run)
            for seq, raw in zip(run.seqs, run.contents, strict=True):
                self.check(run, seq, raw)
        order = [
            (-(run.envelope.priority if self.settings.max_priority else 0), run.seqs[0]) for run in taken
        ]
        assert order == sorted(order)
        return taken

    def check(self, run: Run, seq: int, raw: bytes) -> None:
        """Check that a message is the one that came, and counts as delivered before."""
        message = self.model[seq]
        assert raw == message.content
        assert run.envelope.persistent is message.envelope.persistent
        assert run.envelope.priority == message.envelope.priority
        assert run.deliveries >= 1
        if self.record.durable:
            assert run.deliveries >= message.deliveries
        assert (
            round((run.expiry + EPOCH_S) * 1000) == message.expires_at_ms if message.expires_at_ms else True
        )

    def demote(self, queue: Queue, loose: list[Run]) -> None:
        """The queue becomes a copy again."""
        live = NumberSet(range(seq, seq + 1) for seq in self.model)
        assert numbers_of(queue, loose, self.index.alive) == live
        self.copy, missing = Copy.taken_from(queue, live, loose, *self.means)
        assert missing == []
        assert not self.copy.missing
        assert queue.backlog.count == 0
        self.next_seq = self.copy.next_seq

    def look(self) -> None:
        """All there is, as a queue would deliver it; it is a copy again afterwards."""
        queue = self.promote()
        loose = self.take(queue, 1 << 30)
        assert sum(map(len, loose)) == len(self.model)
        self.demote(queue, loose)

    def leave_nothing(self, *, is_dropped: bool) -> None:
        """Check that the disk has nothing left but what is being written, all messages or the copy being done with."""
        if is_dropped:
            self.copy.drop()
        else:
            self.remove(range(1, self.next_seq))
        self.settle()
        assert not self.copy.held
        assert not self.copy._paged.count
        assert self.copy.memory_bytes == 0
        assert [path for path in self.disk.paths() if path.endswith(".idx") and path[:8] != "corrupt/"] == []
        for store in (self.store.persistent, self.store.transient):
            assert store.figures().messages == 0
