"""Workloads that wait for each message: many closed loops at once, and latency at a steady rate.

One thread drives all sockets that are timed, so that the figures are of the broker and not of the GIL.
"""

import select
import selectors
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from bench.client import BenchError, Connection
from bench.flow import STALL_S, FlowOutcome, Progress, Publisher, Sink
from bench.frames import NO_PROPERTIES, DeliveryShape, Message, Properties, ack
from bench.servers import Meter, Server


class LoopPublisher:
    """A publisher in a closed loop: it publishes, waits for the confirm, and publishes again."""

    def __init__(self, connection: Connection, message: Message) -> None:
        self.connection = connection
        self.data = message.publish(connection.channel)
        self.sent_at = 0.0
        self.message_count = 0
        connection.select_confirms()

    def publish(self) -> None:
        self.message_count += 1
        self.sent_at = time.perf_counter()
        self.connection.socket.send(self.data)

    def receive_confirm(self) -> float:
        """Return the seconds until the confirm, which must be the only frame that has arrived."""
        data = self.connection.socket.recv(4096)
        took_s = time.perf_counter() - self.sent_at
        tag = self.message_count
        if data not in (ack(1, tag, multiple=False), ack(1, tag, multiple=True)):
            raise BenchError(f"not the confirm of publish {tag}: {data[:64]!r}")
        return took_s


def closed_loops(
    server: Server, publishers: Sequence[LoopPublisher], sink: Sink, seconds: float
) -> tuple[FlowOutcome, list[float]]:
    """Run all publishers at once for `seconds`. Returns: the outcome, and the seconds until each confirm."""
    tally = Publisher()
    progress = Progress([tally], [sink])
    with Meter(server) as meter, ThreadPoolExecutor(1) as pool:
        draining = pool.submit(sink.run, progress)
        try:
            waits = _turn(publishers, meter.started_at + seconds)
        except BaseException:
            progress.failed = True
            raise
        end = time.perf_counter()
        tally.delivery_count = len(waits)
        tally.done = True
        if wait([draining], STALL_S).not_done:
            progress.failed = True
            raise BenchError(f"{len(waits)} publishes confirmed, {sink.delivery_count} delivered")
        draining.result()
    if sink.delivery_count != len(waits):
        raise BenchError(f"{len(waits)} publishes confirmed, {sink.delivery_count} delivered")
    return FlowOutcome(len(waits), sink.delivery_count, end - meter.started_at, meter), waits


def _turn(publishers: Sequence[LoopPublisher], deadline: float) -> list[float]:
    """Publish again on every confirm until the deadline, then wait for the last confirms."""
    waits: list[float] = []
    with selectors.DefaultSelector() as selector:
        for publisher in publishers:
            selector.register(publisher.connection.socket, selectors.EVENT_READ, publisher)
            publisher.connection.socket.setblocking(False)
            publisher.publish()
        open_count = len(publishers)
        while open_count:
            ready = selector.select(STALL_S)
            if not ready:
                raise BenchError(f"no confirm for {STALL_S:.0f} s, {open_count} open")
            publishing = time.perf_counter() < deadline
            for key, _ in ready:
                waits.append(key.data.receive_confirm())
                if publishing:
                    key.data.publish()
                else:
                    open_count -= 1
    return waits


class TimedMessage:
    """A publish whose body has a number and the time of sending, rewritten for each message."""

    STAMP = struct.Struct("=qq")

    def __init__(self, queue: str, size_bytes: int, properties: Properties = NO_PROPERTIES) -> None:
        self.message = Message("", queue, bytes(size_bytes), properties)
        self._data = bytearray(self.message.publish())
        self._at = len(self._data) - 1 - size_bytes

    def stamped(self, number: int, now_ns: int) -> bytearray:
        self.STAMP.pack_into(self._data, self._at, number, now_ns)
        return self._data


def steady_latency(
    server: Server, publisher: Connection, consumer: Connection, queue: str, *, rate: int, seconds: float
) -> tuple[FlowOutcome, list[float]]:
    """Publish a message every 1/rate seconds. Returns: the seconds from each publish to its receipt.

    The first tenth is not counted. A message that is late because the machine was busy is sent immediately and
    timed from its actual sending.
    """
    timed = TimedMessage(queue, 100)
    size = DeliveryShape([timed.message], consumer_tag="c").size_bytes
    stamp_at = size - 1 - len(timed.message.body)
    count = int(rate * seconds)
    waits: list[float] = []
    received = b""
    arrived = sent = 0
    publisher.socket.settimeout(None)
    consumer.socket.settimeout(None)
    clock = time.perf_counter_ns
    with Meter(server) as meter:
        start_ns = end_ns = clock()
        while arrived < count:
            due_ns = start_ns + sent * 1_000_000_000 // rate
            now_ns = clock()
            if sent < count and now_ns >= due_ns:
                publisher.socket.sendall(timed.stamped(sent, now_ns))
                sent += 1
            pause_s = max(0.0, (due_ns - now_ns) / 1e9) if sent < count else STALL_S
            if not select.select([consumer.socket], [], [], pause_s)[0]:
                if sent == count or sent - arrived > rate * STALL_S:
                    raise BenchError(f"{sent} published, {arrived} delivered, nothing more comes")
                continue
            data = consumer.socket.recv(1 << 18)
            end_ns = clock()
            if not data:
                raise BenchError("the broker closed the consumer's connection")
            received += data
            whole = len(received) - len(received) % size
            for at in range(stamp_at, whole, size):
                number, sent_ns = TimedMessage.STAMP.unpack_from(received, at)
                if number != arrived:
                    raise BenchError(f"message {arrived} expected, {number} delivered")
                arrived += 1
                waits.append((end_ns - sent_ns) / 1e9)
            received = received[whole:]
        consumer.socket.settimeout(STALL_S)
    return FlowOutcome(count, arrived, (end_ns - start_ns) / 1e9, meter), waits[count // 10 :]
