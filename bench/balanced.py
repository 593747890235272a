"""Traffic through a queue with a backlog that neither grows nor shrinks: as many acks as confirms."""

import bisect
import select
import threading
import time
from collections.abc import Sequence
from operator import itemgetter

from bench.client import BenchError, Connection
from bench.cluster_servers import Span
from bench.frames import AckFrames, Chunk, ConfirmTracker, DeliveryShape

WINDOW = 1000
PREFETCH = 500
BURST = 100
"""The number of publishes, or of acks, that are sent together."""
SAMPLE_S = 0.02
STALL_S = 300.0
"""The longest time without progress. It is long because a RabbitMQ queue serves no clients while it synchronises a
mirror."""


class Balanced:
    """One publisher with a window of unconfirmed publishes, and one consumer that acknowledges as many messages as were
    confirmed.

    chunk: publishes of equal length, sent in a loop.   ended: set by the caller to stop.
    """

    def __init__(
        self, publisher: Connection, consumer: Connection, chunk: Chunk, shape: DeliveryShape, queue: str
    ) -> None:
        self.ended = threading.Event()
        self._publisher, self._consumer = publisher, consumer
        self._data, self._cycle_count = memoryview(chunk.data), chunk.message_count
        self._each_bytes = len(chunk.data) // chunk.message_count
        self._delivery_bytes = shape.size_bytes
        self._sent_count = self._acked_count = self._received_bytes = 0
        self._tracker = ConfirmTracker(publisher.channel)
        self._ack_frames = AckFrames(consumer.channel)
        self._samples: list[tuple[float, int]] = [(time.time(), 0)]
        publisher.select_confirms()
        consumer.set_prefetch(PREFETCH)
        consumer.consume(queue, "c", no_ack=False)
        self._received_bytes = len(consumer.take_received())

    def rate(self, span: Span) -> float:
        """Return the messages per second that were acknowledged in a span of time."""
        return (self._count_at(span.end_s) - self._count_at(span.start_s)) / span.seconds

    def _count_at(self, at_s: float) -> int:
        return self._samples[bisect.bisect(self._samples, at_s, key=itemgetter(0)) - 1][1]

    def run(self) -> None:
        """Run until `ended` is set and all sent messages are confirmed and acknowledged."""
        sockets = [self._publisher.socket, self._consumer.socket]
        for sock in sockets:
            sock.settimeout(STALL_S)
        moved_at = time.time()
        while not (self.ended.is_set() and self._acked_count == self._sent_count):
            if not self.ended.is_set():
                self._publish()
            ready = select.select(sockets, [], [], SAMPLE_S)[0]
            self._receive(ready)
            self._acknowledge()
            now = time.time()
            if ready:
                moved_at = now
            elif now > moved_at + STALL_S:
                raise BenchError(f"{self._sent_count} sent, {self._acked_count} acknowledged, no progress")
            if now >= self._samples[-1][0] + SAMPLE_S:
                self._samples.append((now, self._acked_count))

    def _publish(self) -> None:
        room = WINDOW - (self._sent_count - self._tracker.confirmed_count)
        while room >= BURST:
            at = self._sent_count % self._cycle_count
            count = min(room, self._cycle_count - at)
            self._publisher.socket.sendall(
                self._data[at * self._each_bytes : (at + count) * self._each_bytes]
            )
            self._sent_count += count
            room -= count

    def _receive(self, ready: Sequence[object]) -> None:
        if self._publisher.socket in ready:
            self._tracker.feed(_received(self._publisher), self._sent_count)
        if self._consumer.socket in ready:
            self._received_bytes += len(_received(self._consumer))

    def _acknowledge(self) -> None:
        received_count = self._received_bytes // self._delivery_bytes
        count = min(received_count, self._tracker.confirmed_count) - self._acked_count
        if count >= BURST or (count and self.ended.is_set()):
            self._consumer.socket.sendall(self._ack_frames.frames(self._acked_count + 1, count))
            self._acked_count += count


def _received(connection: Connection) -> bytes:
    if data := connection.socket.recv(1 << 20):
        return data
    raise BenchError("the broker closed a connection")
