"""A queue rebuilt from its operations equals the queue (docs/internals/disk.md, "Operations"): what it kept and did
not forget is what it has, ready or with clients.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.consumer import Consumer
from node.queue.operations import Delivered, Remove, decode, encode, enqueues
from node.queue.queue import Queue
from node.queue.run import Batch, Envelope, Run
from node.queue.storage import MemoryStorage
from tests.kit.messages import FakeHost, FakeOutlet, bodies_of, body_of, content, envelope
from tests.kit.stored import Image

EPOCH_S = 1_700_000_000.0


class RecordingStorage(MemoryStorage):
    """Turns what a queue asks of its storage into operations, and these into an image, by way of their bytes."""

    def __init__(self) -> None:
        self.image = Image()

    def _record(self, operation: object) -> None:
        self.image.apply(decode(b"".join(encode(operation))))  # type: ignore[arg-type]

    def keep(self, batch: Batch, first_seq: int, expiry: float) -> None:
        seqs = range(first_seq, first_seq + len(batch.contents))
        run = Run(batch.envelope, seqs, batch.contents, batch.size, expiry, 0, batch.store_id)
        for operation in enqueues(run, EPOCH_S):
            self._record(operation)

    def forget(self, seqs: range, store_id: int) -> None:
        self._record(Remove(tuple(range(seq, seq + 1) for seq in seqs)))

    def delivered(self, seqs: range, count: int) -> None:
        self._record(Delivered((seqs,), count))


class ForgettingHost(FakeHost):
    """A host without a dead-letter exchange."""

    def dead_letter(self, queue: Queue, run: Run, reason: str, now: float) -> None:
        queue.forget(run)


PERSISTENT = [Envelope("", key, channel=1, frame_max_bytes=0, persistent=True) for key in ("a", "b")]
TRANSIENT = envelope("a")

SETTINGS = st.sampled_from(
    [
        QueueSettings(),
        QueueSettings(max_length=5),
        QueueSettings(max_length=5, overflow="reject-publish"),
        QueueSettings(max_length_bytes=9),
        QueueSettings(message_ttl=3000),
        QueueSettings(max_priority=3),
        QueueSettings(delivery_limit=1),
    ]
)


class QueueMachine(RuleBasedStateMachine):
    """Clients at work on one durable queue."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = RecordingStorage()
        self.queue = Queue(
            QueueRecord("/", "q", "uid", durable=True), QueueSettings(), ForgettingHost(), self.storage, 0.0
        )
        self.outlet = FakeOutlet()
        self.now = 0.0

    @precondition(lambda self: self.queue.next_seq == 1)
    @rule(settings_=SETTINGS)
    def configure(self, settings_: QueueSettings) -> None:
        self.queue = Queue(self.queue.record, settings_, ForgettingHost(), self.storage, 0.0)

    @rule(bodies=st.lists(st.binary(max_size=3), min_size=1, max_size=6), which=st.integers(0, 2))
    def publish(self, bodies: list[bytes], which: int) -> None:
        chosen = [*PERSISTENT, TRANSIENT][which]
        sizes = set(map(len, bodies))
        size = sizes.pop() if len(sizes) == 1 else -1
        self.queue.enqueue(Batch(chosen, [content(body) for body in bodies], size), self.now)

    @rule(no_ack=st.booleans(), prefetch=st.integers(1, 4))
    def consume(self, no_ack: bool, prefetch: int) -> None:
        consumer = Consumer("t", self.outlet, self.queue, no_ack=no_ack, prefetch=prefetch)
        self.queue.add_consumer(consumer, self.now)
        taken = len(self.outlet.runs)
        self.queue.pump(self.now)
        self.queue.unsubscribe(consumer, self.now)
        if no_ack:
            for _, run in self.outlet.runs[taken:]:
                self.queue.forget(run)
            del self.outlet.runs[taken:]

    @precondition(lambda self: self.outlet.runs)
    @rule(part=st.integers(0, 3), what=st.sampled_from(["ack", "reject", "requeue"]))
    def settle(self, part: int, what: str) -> None:
        consumer, run = self.outlet.runs.pop()
        rest, run = run[part:], run[:part]
        if len(rest):
            self.outlet.runs.append((consumer, rest))
        if not len(run):
            return
        if what == "ack":
            self.queue.ack(run)
        elif what == "reject":
            self.queue.reject(run, self.now)
        else:
            self.queue.requeue([run], self.now)

    @rule()
    def purge(self) -> None:
        self.queue.purge()

    @rule(seconds=st.sampled_from([1.0, 4.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.queue.drop_expired(self.now)

    @invariant()
    def the_image_is_the_queue(self) -> None:
        backlog = self.queue.backlog
        ready: list[Run] = []
        while backlog.at_hand:
            ready.append(backlog.take(100))
        for run in ready:
            backlog.put_back(run)
        runs = ready + [run for _, run in self.outlet.runs]
        present = {
            seq: body
            for run in runs
            if run.is_indexed
            for seq, body in zip(run.seqs, bodies_of(run), strict=True)
        }
        told = {
            seq: body_of(raw)
            for entry in self.storage.image.entries
            for seq, raw in zip(entry.seqs, entry.contents, strict=True)
        }
        assert told == present


TestQueueAgainstItsImage = QueueMachine.TestCase
TestQueueAgainstItsImage.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
