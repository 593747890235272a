"""Workloads of delayed exchanges: into the waiting queue, out of it at the right time, and ten million that wait.

RabbitMQ 3.10.8 has no delayed exchanges without its archived plug-in, so Fluffle runs alone. docs/benchmark.md,
"Delayed messages", has the requirement of each row.
"""

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from bench import frames as f
from bench.client import BenchError, Connection
from bench.durability import WATERMARK_MB, WATERMARK_QUICK_MB
from bench.flow import STALL_S, Bed
from bench.report import Below, NotBelow, Row, percentile
from bench.servers import MemoryWatch, Meter, Server
from bench.workloads import FULL, SETTLE_S, Outcome, Scale, Workload

EXCHANGE, QUEUE = "bench.later", "bench.fired"
TOGETHER = 100
"""The messages that follow each other with one delay, as an application sends them that plans a batch."""
WINDOW = 2000
"""The most unconfirmed publishes."""
BODY_BYTES = 100
LEAD_MS = 15_000
"""The shortest delay where messages are to fire: all are published by then."""
SPREAD_MS = 50_000
"""A million messages over so many milliseconds are 20,000 a second."""
HOUR_MS = 3_600_000
PROBE_MS = 3_000
"""The delay of the message that shows when a restarted node knows what is due: it is down that long, about."""

_NUMBER = struct.Struct(">Q")


def properties(delay_ms: int) -> f.Properties:
    """Return persistent properties with a delay."""
    table = f.long_string(f.short_string("x-delay") + b"I" + struct.pack(">i", delay_ms))
    return f.Properties(1 << 13 | 1 << 12, table + b"\x02")


class Batch(NamedTuple):
    """Publishes with one delay.   first: the number of the first one; their bodies begin with it."""

    first: int
    size: int
    delay_ms: int

    @property
    def data(self) -> bytes:
        """The bytes of all publishes."""
        head = f.Message(EXCHANGE, QUEUE, bytes(BODY_BYTES), properties(self.delay_ms)).publish()
        stem, tail = head[: -BODY_BYTES - 1], head[-BODY_BYTES - 1 + _NUMBER.size :]
        numbers = range(self.first, self.first + self.size)
        return b"".join([part for number in numbers for part in (stem, _NUMBER.pack(number), tail)])


def batches(count: int, together: int, lead_ms: int, spread_ms: int) -> list[Batch]:
    """Return `count` publishes, so many with one delay, whose delays are spread evenly and in no order."""
    dice = random.Random(1)
    delays = [lead_ms + index * spread_ms * together // count for index in range(count // together)]
    dice.shuffle(delays)
    return [Batch(index * together, together, delay) for index, delay in enumerate(delays)]


def _gathered(plan: Sequence[Batch], count: int) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes of at least `count` publishes at a time, with their number."""
    parts: list[bytes] = []
    gathered = 0
    for batch in plan:
        parts.append(batch.data)
        gathered += batch.size
        if gathered >= count:
            yield gathered, b"".join(parts)
            parts, gathered = [], 0
    if parts:
        yield gathered, b"".join(parts)


class Published(NamedTuple):
    """The result of publishing.   sent_at: when the sending of each buffer began, with the number of publishes before.

    elapsed_s: from the first byte to the last confirm.
    """

    sent_at: list[tuple[int, float]]
    elapsed_s: float


def publish(connection: Connection, plan: Sequence[Batch], *, prepared: bool = True) -> Published:
    """Publish with confirms, at most `WINDOW` unconfirmed.   prepared: all buffers are made before the clock starts."""
    connection.select_confirms()
    sock = connection.socket
    sock.settimeout(STALL_S)
    tracker = f.ConfirmTracker(connection.channel)
    buffers: Iterator[tuple[int, bytes]] = _gathered(plan, WINDOW // 4)
    if prepared:
        buffers = iter(list(buffers))
    sent = 0
    sent_at: list[tuple[int, float]] = []
    began = time.perf_counter()

    def read() -> None:
        acks = sock.recv(65_536)
        if not acks:
            raise BenchError("the broker closed the publisher's connection")
        tracker.feed(acks, sent)

    for count, data in buffers:
        while sent - tracker.confirmed_count > WINDOW - count:
            read()
        sent_at.append((sent, time.perf_counter()))
        sent += count
        sock.sendall(data)
    while tracker.confirmed_count < sent:
        read()
    return Published(sent_at, time.perf_counter() - began)


class Fired:
    """A consumer that notes when each message comes.   delivered_at: by number; 0: it has not come."""

    def __init__(self, connection: Connection, count: int) -> None:
        self.delivered_at = [0.0] * count
        self.left = count
        self.repeated = 0
        self._connection = connection
        sample = f.Message(EXCHANGE, QUEUE, bytes(BODY_BYTES), properties(1))
        arguments = f.short_string("c") + bytes(9) + f.short_string(EXCHANGE) + f.short_string(QUEUE)
        body_at = len(f.content(1, sample.properties, sample.body)) - BODY_BYTES - 1
        self._size = len(f.method(1, f.DELIVER, arguments)) + body_at + BODY_BYTES + 1
        self._number_at = self._size - BODY_BYTES - 1
        self._rest = self._connection.take_received()
        self.error: Exception | None = None

    def run(self) -> None:
        """Read until all have come, or nothing comes for two minutes."""
        sock = self._connection.socket
        sock.settimeout(120.0)
        try:
            while self.left:
                data = sock.recv(1 << 18)
                if not data:
                    raise BenchError("the broker closed the consumer's connection")
                self._take(self._rest + data, time.perf_counter())
        except (OSError, BenchError) as error:
            self.error = error

    def _take(self, data: bytes, now: float) -> None:
        whole = len(data) - len(data) % self._size
        delivered_at = self.delivered_at
        for at in range(self._number_at, whole, self._size):
            (number,) = _NUMBER.unpack_from(data, at)
            if delivered_at[number]:
                self.repeated += 1
            else:
                delivered_at[number] = now
                self.left -= 1
        self._rest = data[whole:]


def lateness(plan: Sequence[Batch], published: Published, fired: Fired) -> list[float]:
    """Return by how many seconds each message came late, from the time at which the sending of its buffer began.

    Raises: BenchError if one came early.
    """
    found: list[float] = []
    times = [*published.sent_at, (1 << 62, 0.0)]
    at = 0
    for batch in plan:
        while times[at + 1][0] <= batch.first:
            at += 1
        due_at = times[at][1] + batch.delay_ms / 1000
        found += [each - due_at for each in fired.delivered_at[batch.first : batch.first + batch.size]]
    if min(found) < 0:
        raise BenchError(f"a message came {-min(found):.6f} s early")
    return found


def _set_up(bed: Bed) -> None:
    arguments = f.string_table({"x-delayed-type": "direct"})
    bed.admin(0).declare_exchange(EXCHANGE, "x-delayed-message", durable=True, arguments=arguments)
    bed.queue(QUEUE, durable=True)
    bed.bind(QUEUE, EXCHANGE, QUEUE)


def _outcome(meter: Meter, count: int, **metrics: float) -> Outcome:
    return Outcome(metrics, count, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


def fill(server: Server, scale: Scale, *, together: int, count: int) -> Outcome:
    """Publish messages that are due in an hour, with confirms; then they are dropped with their exchange."""
    count //= scale.divisor
    plan = batches(count, together, HOUR_MS, HOUR_MS)
    with Bed(server) as bed:
        _set_up(bed)
        connection = bed.connect()
        with Meter(server) as meter:
            published = publish(connection, plan)
        _await_waiting(server, count)
        bed.admin(0).delete_exchange(EXCHANGE)
    return _outcome(meter, count, rate=count / published.elapsed_s)


def fire(server: Server, scale: Scale, *, together: int, count: int) -> Outcome:
    """Publish messages that are due over some time, and note when each one comes to a consumer.

    Raises: BenchError if one is lost, comes early or comes twice.
    """
    count //= scale.divisor
    spread_ms = SPREAD_MS * count // 1_000_000
    plan = batches(count, together, LEAD_MS if scale == FULL else LEAD_MS // 5, spread_ms)
    with Bed(server) as bed:
        _set_up(bed)
        connection, consumer = bed.connect(), bed.connect()
        consumer.consume(QUEUE, "c", no_ack=True)
        fired = Fired(consumer, count)
        reader = threading.Thread(target=fired.run)
        reader.start()
        try:
            published = publish(connection, plan)
            with Meter(server) as meter:
                reader.join()
        finally:
            if fired.left:  # the consumer's thread must end
                consumer.socket.shutdown(socket.SHUT_RDWR)
                reader.join()
        if fired.error is not None or fired.repeated:
            raise BenchError(f"{fired.left} lost, {fired.repeated} twice: {fired.error}")
        consumer.cancel("c")
        bed.admin(0).delete_exchange(EXCHANGE)
    late = lateness(plan, published, fired)
    return _outcome(
        meter,
        count,
        p50=percentile(late, 50) * 1e3,
        p99=percentile(late, 99) * 1e3,
        max=max(late) * 1e3,
        rate=count / (spread_ms / 1000),
    )


def wait(server: Server, scale: Scale) -> Outcome:
    """Publish ten million messages that are due in an hour or later on a node that may use 400 MB, and restart it.

    `restart` is the time from the spawn to the ready line, `first` that until a message comes that was due meanwhile.
    """
    count = 10_000_000 // scale.divisor
    watermark_mb = WATERMARK_MB if scale == FULL else WATERMARK_QUICK_MB
    settings = [f"vm_memory_high_watermark.absolute = {watermark_mb}MB"]
    server.restart(settings=settings)
    plan = batches(count, TOGETHER, HOUR_MS, HOUR_MS)
    with MemoryWatch(server) as memory, Bed(server) as bed:
        _set_up(bed)
        connection = bed.connect()
        with Meter(server) as meter:
            published = publish(connection, plan, prepared=False)
        time.sleep(SETTLE_S)
        settled_bytes = server.rss_bytes()
        bed.leave(QUEUE)
    _await_waiting(server, count)
    with Connection(server.port) as connection:
        publish(connection, [Batch(0, 1, PROBE_MS)])
        connection.close()
    server.restart(settings=settings)
    began = time.perf_counter() - server.ready_s
    with Bed(server) as bed:
        bed.queue(QUEUE, durable=True)
        consumer = bed.connect()
        consumer.consume(QUEUE, "c", no_ack=True)
        fired = Fired(consumer, 1)
        fired.run()
        if fired.error is not None:
            raise BenchError(f"nothing came after the restart: {fired.error}")
        first_s = fired.delivered_at[0] - began
        restarted_bytes = server.rss_bytes()
        _await_waiting(server, count)
        consumer.cancel("c")
        bed.admin(0).delete_exchange(EXCHANGE)
    return _outcome(
        meter,
        count,
        rate=count / published.elapsed_s,
        rss=settled_bytes / 1e6,
        rss_max=memory.max_bytes / 1e6,
        rss_restarted=restarted_bytes / 1e6,
        restart=server.ready_s,
        first=first_s,
    )


def _await_waiting(server: Server, count: int) -> None:
    """Check that so many messages wait. Raises: BenchError."""
    words = server.ctl("list_exchanges", "name", "messages_delayed", "--quiet").split()
    if EXCHANGE not in words or words[words.index(EXCHANGE) + 1] != str(count):
        raise BenchError(f"{count} messages should wait: {words}")


DELAYED_WORKLOADS: Sequence[Workload] = (
    Workload(
        "delayed-publish",
        partial(fill, together=TOGETHER, count=1_000_000),
        [Row("rate", "msg/s", NotBelow(200_000))],
        keeps=True,
        alone=True,
    ),
    Workload(
        "delayed-publish-each",
        partial(fill, together=1, count=200_000),
        [Row("rate", "msg/s")],
        keeps=True,
        alone=True,
    ),
    Workload(
        "delayed-fire",
        partial(fire, together=TOGETHER, count=1_000_000),
        [Row("p50", "ms"), Row("p99", "ms", Below(20.0)), Row("max", "ms"), Row("rate", "msg/s")],
        keeps=True,
        alone=True,
        rounds=1,
    ),
    Workload(
        "delayed-fire-each",
        partial(fire, together=1, count=200_000),
        [Row("p50", "ms"), Row("p99", "ms"), Row("max", "ms"), Row("rate", "msg/s")],
        keeps=True,
        alone=True,
        rounds=1,
    ),
    Workload(
        "delayed-waiting",
        wait,
        [
            Row("rate", "msg/s"),
            Row("rss", "MB", Below(400.0)),
            Row("rss_max", "MB"),
            Row("rss_restarted", "MB", Below(400.0)),
            Row("restart", "s", Below(10.0)),
            Row("first", "s"),
        ],
        fresh=True,
        keeps=True,
        alone=True,
        rounds=1,
    ),
)
