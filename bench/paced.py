"""Confirmed persistent messages at a steady rate, each of them tracked, while a fault strikes the broker.

One thread drives publisher and consumer, and records the time of each confirm and each delivery.
"""

import itertools
import select
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from bench import frames as f
from bench.client import BenchError, Connection
from bench.flow import STALL_S
from bench.loops import TimedMessage

BODY_BYTES = 100
QUIET_S = 0.3
"""The time without deliveries that ends a run: a message that is redelivered later would be left in the queue."""


class Strike(NamedTuple):
    """The fault, called in its own thread `after_s` seconds from the start."""

    after_s: float
    run: Callable[[], None]


@dataclass
class Paced:
    """The result of a run; times are seconds by `time.perf_counter`.

    confirm_waits_s: of each confirmed publish.   repeated_count: deliveries of messages that were delivered before.
    nacked_count: publishes that the broker refused.   struck_at: time of the strike; 0: there was none.
    """

    message_count: int
    struck_at: float = 0.0
    confirm_waits_s: list[float] = field(default_factory=list)
    confirmed_at: list[float] = field(default_factory=list)
    delivered_at: list[float] = field(default_factory=list)
    repeated_count: int = 0
    nacked_count: int = 0

    def longest_gap_s(self, times: list[float]) -> float:
        """Return the longest gap between consecutive times of which the later one is after the strike."""
        pairs = itertools.pairwise(times)
        return max((later - earlier for earlier, later in pairs if later >= self.struck_at), default=0.0)


def paced(
    publisher: Connection,
    consumer: Connection,
    queue: str,
    *,
    rate: int,
    seconds: float,
    properties: f.Properties = f.PERSISTENT,
    strike: Strike | None = None,
) -> Paced:
    """Publish `rate` messages a second to a queue that the consumer consumes with acks.

    Ends when each publish is answered and what was confirmed is delivered. A message whose turn comes late (the
    machine was busy) is sent at once and timed from its real sending. Errors: BenchError when a confirmed message
    is lost, or nothing more comes for STALL_S.
    """
    run = _Run(publisher, consumer, queue, int(rate * seconds), properties)
    with ThreadPoolExecutor(1) as pool:
        start = time.perf_counter()
        heard_at = start
        struck = None
        while not run.is_complete or time.perf_counter() < heard_at + QUIET_S:
            now = time.perf_counter()
            if strike and not struck and now >= start + strike.after_s:
                run.seen.struck_at = now
                struck = pool.submit(strike.run)
            due = start + run.sent_count / rate
            if not run.is_sent and now >= due:
                run.publish(now)
                continue
            pause_s = QUIET_S if run.is_sent else max(0.0, due - now)
            if run.receive(pause_s):
                heard_at = time.perf_counter()
            elif time.perf_counter() > heard_at + STALL_S:
                raise BenchError(f"nothing for {STALL_S:.0f} s: {run.state()}")
        if struck:
            struck.result()
    return run.seen


class _Run:
    """The state of a run: open publishes, and the results so far."""

    def __init__(
        self,
        publisher: Connection,
        consumer: Connection,
        queue: str,
        count: int,
        properties: f.Properties = f.PERSISTENT,
    ) -> None:
        self.seen = Paced(count)
        self.sent_count = 0
        self._publisher, self._consumer, self._count = publisher, consumer, count
        self._timed = TimedMessage(queue, BODY_BYTES, properties)
        self._open: dict[int, float] = {}
        self._confirmed: set[int] = set()
        self._delivered: set[int] = set()
        self._publisher_frames, self._consumer_frames = f.FrameReader(), f.FrameReader()
        self._tag = 0
        publisher.select_confirms()
        for connection in (publisher, consumer):
            connection.socket.settimeout(STALL_S)

    @property
    def is_sent(self) -> bool:
        return self.sent_count == self._count

    @property
    def is_complete(self) -> bool:
        return self.is_sent and not self._open and self._confirmed <= self._delivered

    def state(self) -> str:
        lost = len(self._confirmed - self._delivered)
        return f"{self.sent_count} sent, {len(self._open)} not answered, {lost} confirmed but not delivered"

    def publish(self, now: float) -> None:
        self.sent_count += 1
        self._open[self.sent_count] = now
        self._publisher.socket.sendall(self._timed.stamped(self.sent_count, 0))

    def receive(self, pause_s: float) -> bool:
        """Read data that arrives within `pause_s`. Returns: True if any did."""
        sockets = [self._publisher.socket, self._consumer.socket]
        ready = select.select(sockets, [], [], pause_s)[0]
        for sock in ready:
            data = sock.recv(1 << 18)
            if not data:
                raise BenchError(f"the broker closed a connection: {self.state()}")
            now = time.perf_counter()
            if sock is self._publisher.socket:
                self._take_answers(data, now)
            else:
                self._take_deliveries(data, now)
        return bool(ready)

    def _take_answers(self, data: bytes, now: float) -> None:
        for frame_type, payload in self._publisher_frames.feed(data):
            ids = struct.unpack_from(">HH", payload) if frame_type == f.FRAME_METHOD else ()
            if ids not in (f.ACK, f.NACK):
                raise BenchError(f"neither ack nor nack: {payload[:64]!r}")
            tag, bits = struct.unpack_from(">QB", payload, 4)
            for number in [each for each in self._open if each <= tag] if bits & 1 else [tag]:
                if number not in self._open:
                    raise BenchError(f"publish {number} is answered twice")
                sent_at = self._open.pop(number)
                if ids == f.NACK:
                    self.seen.nacked_count += 1
                    continue
                self._confirmed.add(number)
                self.seen.confirm_waits_s.append(now - sent_at)
                self.seen.confirmed_at.append(now)

    def _take_deliveries(self, data: bytes, now: float) -> None:
        acks = []
        for frame_type, payload in self._consumer_frames.feed(data):
            if frame_type == f.FRAME_METHOD:
                if struct.unpack_from(">HH", payload) != f.DELIVER:
                    raise BenchError(f"no delivery: {payload[:64]!r}")
                (self._tag,) = struct.unpack_from(">Q", payload, 5 + payload[4])
            elif frame_type == f.FRAME_BODY:
                number = TimedMessage.STAMP.unpack_from(payload)[0]
                if len(payload) != BODY_BYTES or not 0 < number <= self.sent_count:
                    raise BenchError(f"not what was published: {payload[:64]!r}")
                if number in self._delivered:
                    self.seen.repeated_count += 1
                self._delivered.add(number)
                self.seen.delivered_at.append(now)
                acks.append(f.ack(self._consumer.channel, self._tag, multiple=False))
        if acks:
            self._consumer.socket.sendall(b"".join(acks))
