"""A store on a simulated disk, which the test drives step by step, and the contents of its files after a crash."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from node.catalogue.records import QueueRecord
from node.queue.operations import Operation, decode
from node.queue.run import NEVER, Batch, Envelope
from node.scheduling.timers import Timers
from node.store.disk import Append, Disk, Step
from node.store.journal import CLEAN, file_numbers, file_path, split
from node.store.message_store import MessageStore
from node.store.options import StoreOptions
from node.store.queue_index import QueueIndex
from node.store.records import HEADER_BYTES, read_records
from node.store.store import Store
from tests.kit.disk import SimulatedDisk
from tests.kit.messages import content
from tests.kit.stored import Image

ENVELOPES = [Envelope("", key, channel=1, frame_max_bytes=0, persistent=True) for key in ("q", "r")]
ENVELOPE = ENVELOPES[0]
EMBED_MAX_BYTES = 1000
INTERVAL_S = 0.025


def uid_of(number: int) -> str:
    return f"{number:032x}"


@dataclass(eq=False)
class Recorder:
    """A waiter that records its calls."""

    safe: list[tuple[int, int]] = field(default_factory=list)
    unsafe: list[tuple[int, int]] = field(default_factory=list)
    on_settled: Callable[[], None] = lambda: None

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        (self.safe if is_safe else self.unsafe).append((first, last))
        self.on_settled()


class RecordingDisk(SimulatedDisk):
    """A disk that records the submitted jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[list[Step]] = []

    def submit(self, steps: Any, done: Any, failed: Any) -> None:
        self.submitted.append(list(steps))
        super().submit(steps, done, failed)

    @property
    def journal_jobs(self) -> list[list[Step]]:
        """Return the jobs that wrote to the journal."""
        return [
            steps
            for steps in self.submitted
            if any(isinstance(step, Append) and step.path.startswith("journal/") for step in steps)
        ]


class Bench:
    """A store with its queues, and their next numbers."""

    def __init__(self, disk: RecordingDisk | None = None, **options: Any) -> None:
        self.disk = disk or RecordingDisk()
        self.timers = Timers()
        self.now = 100.0
        options = {"embed_max_bytes": EMBED_MAX_BYTES, "commit_interval_s": INTERVAL_S, **options}
        self.reports: list[tuple[str, int, str]] = []
        self.store = Store(
            self.disk,
            StoreOptions(**options),
            self.timers,
            report=lambda *what: self.reports.append(what),
        )
        self.errors: list[OSError] = []
        self.store.on_broken = self.errors.append
        self.relieved = 0
        self.store.on_relieved = self._relieved
        self.store.begin()
        self.next_seqs: dict[int, int] = {}
        self.store_ids: dict[tuple[int, int], int] = {}

    def _relieved(self) -> None:
        self.relieved += 1

    def queue(self, number: int, *, durable: bool = True) -> QueueIndex:
        return self.store.open(QueueRecord("/", f"q{number}", uid_of(number), durable=durable))

    def keep(self, queue: int, *bodies: bytes) -> range:
        """Add messages of one size to a queue. Returns: their numbers."""
        contents = [content(body) for body in bodies]
        first = self.next_seqs.get(queue, 1)
        self.next_seqs[queue] = first + len(bodies)
        store_id = 0
        if len(contents[0]) >= EMBED_MAX_BYTES:
            store_id = self.store.place(contents, persistent=True)
        # Two by turns, as messages with the same one that come together become one entry.
        envelope = ENVELOPES[first % 2]
        self.queue(queue).keep(Batch(envelope, contents, len(bodies[0]), store_id), first, NEVER)
        seqs = range(first, first + len(bodies))
        if store_id:
            self.store_ids.update({(queue, seq): store_id + seq - first for seq in seqs})
        return seqs

    def forget(self, queue: int, *seqs: int) -> None:
        for seq in seqs:
            self.queue(queue).forget(range(seq, seq + 1), self.store_ids.get((queue, seq), 0))

    def turn(self, after_s: float = 0.0) -> None:
        self.now += after_s
        self.timers.run(self.now)
        self.store.turn(self.now)

    def settle(self) -> None:
        """Run turns and disk until nothing is left to do."""
        for _ in range(1000):
            self.turn(INTERVAL_S)
            self.disk.settle()
            if not self.store.has_work and not len(self.timers):
                return
        raise AssertionError("the store does not come to rest")


@dataclass
class Remains:
    """The contents of the files of a disk.   images: by uid.   is_clean: whether the journal ends cleanly."""

    images: dict[str, Image]
    is_clean: bool

    def seqs(self, queue: int) -> list[int]:
        image = self.images.get(uid_of(queue), Image())
        return [seq for entry in image.entries for seq in entry.seqs]


def remains(disk: Disk) -> Remains:
    """Return the contents of the segments with the rest of the journal applied."""
    images: dict[str, Image] = {}

    def apply(uid: str, operation: Operation) -> None:
        images.setdefault(uid, Image()).apply(operation)

    def payloads(path: str) -> list[bytes]:
        data = disk.content(path)  # type: ignore[attr-defined]
        return [payload for _, payload in read_records(data, HEADER_BYTES)]

    for uid in disk.names("queues"):
        for name in disk.names(f"queues/{uid}"):
            for payload in payloads(f"queues/{uid}/{name}"):
                apply(uid, decode(payload))
    is_clean = False
    for number in file_numbers(disk.names("journal")):
        is_clean = False
        for payload in payloads(file_path(number)):
            is_clean = payload == CLEAN
            if not is_clean:
                uid, raw = split(payload)
                apply(uid, decode(raw))
    return Remains(images, is_clean)


def lost_contents(disk: Disk, found: Remains) -> list[tuple[str, int]]:
    """Return uid and number of messages whose contents are missing."""
    store = MessageStore("messages", disk)
    store.recover(disk, lambda *what: None)
    return [
        (uid, entry.first_seq + store_id - entry.store_id)
        for uid, image in found.images.items()
        for entry in image.entries
        if entry.store_id
        for store_id in store.missing(entry.store_id, entry.count)
    ]
