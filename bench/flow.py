"""Publishers and consumers that run concurrently, and the test bed that sets them up and checks the result.

The generator shares two cores with the broker, so it must use little CPU: a publisher sends prepared buffers
with blocking sends; a consumer reads with one system call per 64 KiB or so (SO_RCVLOWAT makes the kernel gather
them) and counts deliveries by their bytes. Each connection has a thread, which spends nearly all of its time in
the kernel, outside the GIL.
"""

import contextlib
import enum
import itertools
import socket
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import NamedTuple, Self

from bench.client import BenchError, Connection
from bench.frames import AckFrames, Chunk, ConfirmTracker, ConfirmWaits, DeliveryShape, ack
from bench.servers import Broker, Meter

RECEIVE_BUFFER_BYTES = 1 << 20
RECEIVE_LOW_WATER_BYTES = 65_536
# The longest time that a read waits for its low-water mark; the last deliveries may be noticed that late.
RECEIVE_TIMEOUT_S = 0.02
STALL_S = 30.0
# A publisher waits when it is this far ahead of the consumers. Without this limit the brokers would be measured with
# ever longer queues, which is what the workload queue-200k is for.
AHEAD_COUNT_MAX = 50_000
# One confirm per this number of publishes is timed: ten in a window of 1,000, so that timing costs almost nothing.
CONFIRMS_TIMED_EACH = 100


class Acks(enum.Enum):
    NONE = "auto-ack"
    EACH = "one basic.ack per delivery"
    MULTIPLE = "basic.ack with multiple"


class Progress:
    """State that the threads of a run share. Plain attributes suffice: each has one writer; late reads do no harm."""

    def __init__(self, publishers: "Sequence[Publisher]", sinks: "Sequence[Sink]") -> None:
        self.publishers, self.sinks = publishers, sinks
        self.deadline = float("inf")
        self.failed = False

    def expected_count(self) -> int:
        return sum(p.delivery_count for p in self.publishers)

    def received_count(self) -> int:
        return sum(s.delivery_count for s in self.sinks)

    def finished(self) -> bool:
        """True if all published messages have arrived and no more will be published."""
        if self.failed:
            return True
        return all(p.done for p in self.publishers) and self.received_count() >= self.expected_count()


class Publisher:
    """A publisher as a run sees it: the number of publishes so far, and of the deliveries that they must cause."""

    def __init__(self) -> None:
        self.message_count = self.delivery_count = 0
        self.done = False
        self.finished_at = 0.0

    @classmethod
    def finished(cls, count: int) -> "Publisher":
        """Return a publisher whose `count` messages are in the queue already."""
        publisher = Publisher()
        publisher.message_count = publisher.delivery_count = count
        publisher.done = True
        return publisher

    def run(self, progress: Progress) -> None:
        """Publish. The base class publishes nothing."""


class PlainPublisher(Publisher):
    """A publisher without confirms that sends prepared buffers in a loop: `cycles` times, or until the deadline."""

    def __init__(
        self,
        connection: Connection,
        chunks: Sequence[Chunk],
        *,
        ahead_count_max: int,
        cycles: int | None = None,
    ) -> None:
        super().__init__()
        self.connection, self.chunks = connection, chunks
        self.ahead_count_max, self.cycles = ahead_count_max, cycles

    def run(self, progress: Progress) -> None:
        sock = self.connection.socket
        sock.settimeout(None)
        repeat = itertools.repeat
        rounds = repeat(self.chunks) if self.cycles is None else repeat(self.chunks, self.cycles)
        for chunk in itertools.chain.from_iterable(rounds):
            while (
                progress.sinks
                and progress.expected_count() - progress.received_count() > self.ahead_count_max
            ):
                if progress.failed:
                    return
                _expect_silence(sock)
                time.sleep(0.0005)
            if time.perf_counter() >= progress.deadline:
                break
            sock.sendall(chunk.data)
            self.message_count += chunk.message_count
            self.delivery_count += chunk.delivery_count
        self.finished_at = time.perf_counter()
        self.done = True


def _expect_silence(sock: socket.socket) -> None:
    """Check that the broker has sent nothing to a publisher without confirms. Raises: BenchError, also if it closed the
    connection."""
    try:
        said = sock.recv(256, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return
    raise BenchError(f"the broker ended the publisher's connection: {said!r}")


class ConfirmPublisher(Publisher):
    """A publisher that keeps at most `window` publishes unconfirmed, and ends when all are confirmed."""

    def __init__(self, connection: Connection, chunk: Chunk, *, window: int) -> None:
        super().__init__()
        self.connection, self.window = connection, window
        self._data = memoryview(chunk.data)
        self._cycle_count = chunk.message_count
        self._message_bytes, rest = divmod(len(chunk.data), chunk.message_count)
        assert not rest, "all publishes must have one length"
        self._timed = ConfirmWaits(CONFIRMS_TIMED_EACH)
        connection.select_confirms()

    @property
    def waits_s(self) -> list[float]:
        """Return the seconds from publish to confirm of a sample of the publishes."""
        return self._timed.waits_s

    def run(self, progress: Progress) -> None:
        sock = self.connection.socket
        sock.settimeout(STALL_S)
        tracker = ConfirmTracker(self.connection.channel)
        publishing = True
        while publishing or tracker.confirmed_count < self.message_count:
            publishing = publishing and time.perf_counter() < progress.deadline
            room = self.window - (self.message_count - tracker.confirmed_count)
            while publishing and room:
                at = self.message_count % self._cycle_count
                count = min(room, self._cycle_count - at)
                self._timed.sent(self.message_count + 1, count, time.perf_counter())
                sock.sendall(self._data[at * self._message_bytes : (at + count) * self._message_bytes])
                self.message_count += count
                self.delivery_count += count
                room -= count
            if tracker.confirmed_count == self.message_count:
                break
            acks = sock.recv(RECEIVE_LOW_WATER_BYTES)
            received_at = time.perf_counter()
            if not acks:
                raise BenchError("the broker closed the publisher's connection")
            tracker.feed(acks, self.message_count)
            self._timed.take(tracker, received_at)
        self.finished_at = time.perf_counter()
        self.done = True


class Sink:
    """A consumer that counts the deliveries of its connection by bytes, checks samples, and acknowledges."""

    def __init__(
        self,
        connection: Connection,
        shape: DeliveryShape,
        consumer_tags: Sequence[str],
        *,
        acks: Acks = Acks.NONE,
        gather_count: int | None = None,
    ) -> None:
        """Make a consumer.   gather_count: the number of deliveries that are read, and acknowledged, together."""
        self.connection, self.shape, self.consumer_tags, self.acks = connection, shape, consumer_tags, acks
        self.low_water_bytes = RECEIVE_LOW_WATER_BYTES
        if gather_count is not None:
            self.low_water_bytes = gather_count * shape.size_bytes
        self.received_bytes = self.checked_count = self.acked_count = 0
        self.last_at = 0.0
        self._ack_frames = AckFrames(connection.channel)

    @property
    def delivery_count(self) -> int:
        return self.received_bytes // self.shape.size_bytes

    def run(self, progress: Progress) -> None:
        sock = self.connection.socket
        buffer = bytearray(RECEIVE_BUFFER_BYTES)
        view = memoryview(buffer)
        early = self.connection.take_received()
        if early:
            view[: len(early)] = early
            self._take(view, len(early))
        sock.settimeout(None)
        timeout = struct.pack("@ll", 0, int(RECEIVE_TIMEOUT_S * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self.low_water_bytes)
        while not progress.finished():
            try:
                size = sock.recv_into(buffer)
            except BlockingIOError:  # SO_RCVTIMEO: nothing came
                continue
            if not size:
                raise BenchError("the broker closed the consumer's connection")
            self._take(view, size)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        sock.settimeout(STALL_S)
        if self.received_bytes % self.shape.size_bytes:
            raise BenchError(f"{self.received_bytes % self.shape.size_bytes} bytes after the last delivery")

    def _take(self, view: memoryview, size: int) -> None:
        """Count `size` new bytes; check the first delivery that begins in them and the last complete one."""
        self.last_at = time.perf_counter()
        each = self.shape.size_bytes
        before = self.received_bytes
        self.received_bytes = before + size
        whole_count = self.delivery_count
        first = -(-before // each)
        for index in {first, max(first, whole_count - 1)}:
            at = index * each - before
            if at < size:
                self._check(bytes(view[at : min(at + each, size)]), index + 1)
        if self.acks is not Acks.NONE and whole_count > self.acked_count:
            self._acknowledge(whole_count)

    def _acknowledge(self, delivery_tag: int) -> None:
        """Acknowledge all deliveries up to `delivery_tag`."""
        if self.acks is Acks.EACH:
            data = self._ack_frames.frames(self.acked_count + 1, delivery_tag - self.acked_count)
        else:
            data = ack(self.connection.channel, delivery_tag, multiple=True)
        self.connection.socket.sendall(data)
        self.acked_count = delivery_tag

    def _check(self, data: bytes, delivery_tag: int) -> None:
        self.checked_count += 1
        if not self.shape.check(data, delivery_tag):
            raise BenchError(f"delivery {delivery_tag} differs from the published message: {data[:80]!r}…")


class FlowOutcome(NamedTuple):
    """The result of a run.   elapsed_s: until the last confirm and delivery; the meter ran a little longer."""

    message_count: int
    delivery_count: int
    elapsed_s: float
    meter: Meter


class Bed:
    """The test bed: queues, exchanges and connections of one workload on one broker.

    In a cluster, queues are declared on the first node and live there, unless a client of another node declares them.

    On exit without an error it cancels the consumers, closes the connections, and deletes the queues. A surplus
    delivery, or a message that is left in a queue or was requeued, is an error.
    """

    def __init__(self, server: Broker) -> None:
        self.server = server
        self.publishers: list[Publisher] = []
        self.sinks: list[Sink] = []
        self._admin = Connection(server.ports[0])
        self._admins = {0: self._admin}
        self._connections: list[Connection] = []
        self._queues: list[str] = []
        self._exchanges: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._check_and_clean()
        finally:
            for connection in (*self._connections, *self._admins.values()):
                connection.socket.close()

    def _check_and_clean(self) -> None:
        for sink in self.sinks:
            if not sink.checked_count:
                raise BenchError("no delivery was checked")
            for tag in sink.consumer_tags:
                sink.connection.cancel(tag)
        for connection in self._connections:
            connection.socket.settimeout(STALL_S)
            connection.close()
        for queue in self._queues:
            left = self._admin.delete_queue(queue)
            if left:
                raise BenchError(f"{left} messages left in {queue}")
        for exchange in self._exchanges:
            self._admin.delete_exchange(exchange)

    def connect(self, *, node: int = 0, channel: int = 1, heartbeat: bool = False) -> Connection:
        """Open a connection.   node: the number of the node in a cluster, from 0."""
        connection = Connection(self.server.ports[node], channel=channel, heartbeat=heartbeat)
        self._connections.append(connection)
        return connection

    def admin(self, node: int) -> Connection:
        """Return a connection to a node that is idle while messages flow."""
        if node not in self._admins:
            self._admins[node] = Connection(self.server.ports[node])
        return self._admins[node]

    def queue(self, name: str, *, durable: bool = False, client: Connection | None = None) -> None:
        """Declare a queue.   client: the connection that declares it; None: the admin's."""
        (client or self._admin).declare_queue(name, durable=durable)
        self._queues.append(name)

    def exchange(
        self,
        name: str,
        kind: str,
        *,
        client: Connection | None = None,
        arguments: bytes | None = None,
    ) -> None:
        """Declare an exchange.   client: the connection that declares it; None: the admin's."""
        (client or self._admin).declare_exchange(name, kind, arguments=arguments)
        self._exchanges.append(name)

    def bind(self, queue: str, exchange: str, routing_key: str = "") -> None:
        self._admin.bind_queue(queue, exchange, routing_key)

    def forget(self, connection: Connection) -> None:
        """Exclude a connection that is already closed from the closing at the end."""
        self._connections.remove(connection)

    def leave(self, queue: str) -> None:
        """Exclude a queue, whose messages are to stay, from the checks and the deletion at the end."""
        self._queues.remove(queue)

    def discard(self, queue: str, count: int) -> None:
        """Delete a queue that holds `count` messages on purpose."""
        self._queues.remove(queue)
        found = self._admin.delete_queue(queue)
        if found != count:
            raise BenchError(f"{count} messages expected in {queue}, {found} found")

    def run(
        self,
        seconds: float,
        *,
        begin: Callable[[], None] = lambda: None,
        settle: Callable[[], None] = lambda: None,
    ) -> FlowOutcome:
        """Publish for `seconds`, or up to the publishers' limits, and wait until all messages have arrived.

        begin: called when the clock has started.   settle: called before the clock stops.
        """
        progress = Progress(self.publishers, self.sinks)
        with Meter(self.server) as meter:
            progress.deadline = meter.started_at + seconds
            begin()
            parts = [*(sink.run for sink in self.sinks), *(publisher.run for publisher in self.publishers)]
            run_threads(parts, progress, self._abort)
            settle()
            settled_at = time.perf_counter()
        expected, received = progress.expected_count(), progress.received_count()
        if self.sinks and received != expected:
            raise BenchError(f"{expected} deliveries expected, {received} received")
        ends = [p.finished_at for p in self.publishers] + [s.last_at for s in self.sinks]
        end = max(ends) if self.sinks else settled_at
        message_count = sum(p.message_count for p in self.publishers)
        return FlowOutcome(message_count, received, end - meter.started_at, meter)

    def _abort(self) -> None:
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)


def run_threads(
    parts: Sequence[Callable[[Progress], None]], progress: Progress, abort: Callable[[], None]
) -> None:
    """Run all parts to their end. The first error, or STALL_S without progress, stops all parts and is raised."""
    pool = ThreadPoolExecutor(len(parts))
    try:
        waiting = {pool.submit(part, progress) for part in parts}
        seen, seen_at = -1, time.perf_counter()
        while waiting:
            done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            now = progress.received_count() + progress.expected_count()
            if now != seen:
                seen, seen_at = now, time.perf_counter()
            elif time.perf_counter() - seen_at > STALL_S:
                got, due = progress.received_count(), progress.expected_count()
                raise BenchError(f"no progress for {STALL_S:.0f} s: {got} of {due} deliveries received")
    except BaseException:
        progress.failed = True
        abort()
        raise
    finally:
        pool.shutdown()
