"""Messages for tests that have no client: contents as they come off the wire, envelopes, and a queue's surroundings."""

from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from node.amqp.frames import content_frames, split_content
from node.amqp.properties import Properties, content_header
from node.amqp.reader import MIXED_SIZES
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.consumer import UNLIMITED, Consumer
from node.queue.live_queue import Asked
from node.queue.priority_backlog import PriorityBacklog
from node.queue.queue import Queue
from node.queue.run import NEVER, Envelope, Run
from node.queue.storage import MemoryStorage
from node.scheduling.chores import Chore
from node.scheduling.timers import Timers

T = TypeVar("T")


def content(body: bytes, channel: int = 1, frame_max: int = 0, properties: Properties | None = None) -> bytes:
    """Return a content as the reader passes it on."""
    return content_frames(channel, content_header(len(body), properties or Properties()), body, frame_max)


def body_of(raw: bytes) -> bytes:
    """Return the body of a content."""
    return split_content(raw)[1]


def bodies_of(run: Run) -> list[bytes]:
    """Return the bodies of a run."""
    return [body_of(raw) for raw in run.contents]


def envelope(
    routing_key: str = "q", *, exchange: str = "", priority: int = 0, expiration_ms: int | None = None
) -> Envelope:
    """Return the envelope of a publish on channel 1."""
    return Envelope(
        exchange, routing_key, channel=1, frame_max_bytes=0, priority=priority, expiration_ms=expiration_ms
    )


def run_of(
    *bodies: bytes, first_seq: int = 1, step: int = 1, expiry: float = NEVER, deliveries: int = 0
) -> Run:
    """Return a run with these bodies."""
    seqs = range(first_seq, first_seq + step * len(bodies), step)
    sizes = {len(body) for body in bodies}
    size = sizes.pop() if len(sizes) == 1 else MIXED_SIZES
    return Run(envelope(), seqs, [content(body) for body in bodies], size, expiry, deliveries)


def answer(asked: Asked[T]) -> T:
    """Return the answer of a request to a queue that need not wait."""
    with pytest.raises(StopIteration) as answered:
        next(asked)
    value: T = answered.value.value
    return value


@dataclass
class FakeHost:
    """The host of a queue, which records the requests that it gets."""

    timers: Timers = field(default_factory=Timers)
    touched: list[Queue] = field(default_factory=list)
    dead: list[tuple[str, bytes]] = field(default_factory=list)
    unused: list[Queue] = field(default_factory=list)
    duplicate_count: int = 0

    def duplicates(self, queue: Queue, count: int) -> None:
        self.duplicate_count += count

    def touch(self, queue: Queue) -> None:
        self.touched.append(queue)

    touch_last = touch

    def dead_letter(self, queue: Queue, run: Run, reason: str, now: float) -> None:
        self.dead += [(reason, body) for body in bodies_of(run)]

    now = 0.0
    epoch_s = 0.0

    def begin(self, chore: Chore) -> None:
        for _ in chore:
            pass

    def discard(self, runs: list[Run]) -> None:
        pass

    def queue_unused(self, queue: Queue, now: float) -> None:
        self.unused.append(queue)


class FakeOutlet:
    """A channel for a queue: it accepts messages and never sends them.

    room: bytes it takes; each message costs 96 and its body, as `Consumers` reckons.
    """

    def __init__(self, *, prefetch_limit: int = 0, room: int = 1 << 40) -> None:
        self.prefetch_limit = prefetch_limit
        self.room = room
        self.unacked = 0
        self.taken: list[tuple[str, int, bytes]] = []
        """Consumer tag, number in the queue and body of each message, in the order of delivery tags."""
        self.runs: list[tuple[Consumer, Run]] = []
        self.blocked: list[Consumer] = []
        self.cancelled: list[Consumer] = []

    def credit(self, consumer: Consumer) -> int:
        own = consumer.prefetch - consumer.unacked if consumer.prefetch else UNLIMITED
        return min(own, self.prefetch_limit - self.unacked) if self.prefetch_limit else own

    def room_bytes(self) -> int:
        return self.room

    def deliver(self, consumer: Consumer, run: Run, now: float) -> None:
        self.taken += [(consumer.tag, seq, body) for seq, body in zip(run.seqs, bodies_of(run), strict=True)]
        self.runs.append((consumer, run))
        self.room -= run.body_bytes
        if not consumer.no_ack:
            consumer.unacked += len(run)
            self.unacked += len(run)
            consumer.queue.delivered(run)

    def deliver_runs(self, consumer: Consumer, runs: list[Run], now: float) -> None:
        for run in runs:
            self.deliver(consumer, run, now)

    def block(self, consumer: Consumer) -> None:
        self.blocked.append(consumer)

    def cancelled_by_server(self, consumer: Consumer) -> None:
        self.cancelled.append(consumer)


def make_queue(
    host: FakeHost | None = None,
    *,
    now: float = 0.0,
    auto_delete: bool = False,
    type: str = "classic",
    settings: QueueSettings | None = None,
) -> Queue:
    """Return a queue without a broker."""
    record = QueueRecord("/", "q", "uid", auto_delete=auto_delete, type=type)
    return Queue(record, settings or QueueSettings(), host or FakeHost(), MemoryStorage(), now)


def priority_backlog(max_priority: int) -> PriorityBacklog:
    """Return the ready messages in memory by priority."""
    return PriorityBacklog(MemoryStorage(), lambda: None, max_priority)
