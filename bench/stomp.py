"""Workloads of STOMP: messages that are sent to a queue and come back, with both brokers' plug-ins for it.

The plug-in is enabled by the file of enabled plug-ins, and the server starts again with a port for it. A MESSAGE frame
is as long as the number of its delivery has digits, so messages are counted by the NUL at their end.
"""

import select
import socket
import threading
import time
from collections.abc import Sequence

from bench.client import BenchError
from bench.flow import AHEAD_COUNT_MAX, RECEIVE_BUFFER_BYTES, RECEIVE_TIMEOUT_S, STALL_S
from bench.frames import numbered_body
from bench.report import AtLeast, NotAbove, Row, percentile
from bench.servers import Meter, Server, free_port
from bench.workloads import CHUNK_BYTES, Outcome, Scale, Workload

QUEUE = "/queue/bench.stomp"
READ_BYTES = 262_144
PACED_RATE = 1000
"""Messages a second of `stomp-paced`."""
RECEIPT_WINDOW = 1000
"""The most messages whose receipts have not come."""


class StompSocket:
    """A connection that is logged in."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=STALL_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self.socket.sendall(b"CONNECT\naccept-version:1.2\nlogin:guest\npasscode:guest\n\n\0")
        self.expect(b"CONNECTED\n")

    def ask(self, frame: bytes) -> None:
        """Send a frame that wants the receipt `r`, and wait for it."""
        self.socket.sendall(frame)
        self.expect(b"RECEIPT\nreceipt-id:r\n")

    def expect(self, begin: bytes) -> None:
        """Read one frame, which has to begin so. Raises: BenchError."""
        data = b""
        while b"\0" not in data:
            received = self.socket.recv(READ_BYTES)
            if not received:
                break
            data += received
        if not data.lstrip(b"\n").startswith(begin):
            raise BenchError(f"{begin!r} was expected, and {data[:500]!r} came")

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


class Counter:
    """Counts the frames that come, in a thread.   count: so far.   fault: an ERROR frame, or the connection's end."""

    def __init__(self, connection: StompSocket) -> None:
        self.count = 0
        self.fault: str | None = None
        self.last_at = 0.0
        self._socket = connection.socket
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._socket.settimeout(RECEIVE_TIMEOUT_S)
        while not self._is_over:
            try:
                data = self._socket.recv(READ_BYTES)
            except TimeoutError:
                continue
            if not data:
                self.fault = "the broker closed the connection"
                return
            if b"ERROR\n" in data:
                self.fault = repr(data[data.index(b"ERROR\n") :][:500])
                return
            self.count += data.count(b"\0")
            self.last_at = time.perf_counter()

    def wait_for(self, count: int) -> None:
        """Wait until so many frames have come. Raises: BenchError if no more come."""
        seen, seen_at = self.count, time.perf_counter()
        while self.count < count:
            time.sleep(0.0005)
            if self.fault is not None:
                raise BenchError(self.fault)
            if self.count != seen:
                seen, seen_at = self.count, time.perf_counter()
            elif time.perf_counter() > seen_at + STALL_S:
                raise BenchError(f"{count} frames were expected, and {seen} came")
        if self.count > count:
            raise BenchError(f"{count} frames were expected, and {self.count} came")

    def end(self) -> None:
        """Stop counting."""
        self._is_over = True
        self._thread.join()


def enable_stomp(server: Server) -> int:
    """Start a server again with its plug-in for STOMP; return the port."""
    port = free_port()
    (server.directory / "enabled_plugins").write_text("[rabbitmq_stomp].\n")
    server.restart(settings=[*server.settings, f"stomp.listeners.tcp.default = 127.0.0.1:{port}"])
    return port


def _sends(count: int, more: bytes = b"") -> bytes:
    """Return SEND frames with numbered bodies of 100 bytes."""
    head = b"SEND\ndestination:%b\n%bcontent-length:100\n\n" % (QUEUE.encode(), more)
    return b"".join(b"%b%b\0\n" % (head, numbered_body(number, 100)) for number in range(count))


def send_and_subscribe(server: Server, scale: Scale) -> Outcome:
    """Send to a queue and receive from it, without receipts and acks; the rate is that of the messages received."""
    port = enable_stomp(server)
    sender, receiver = StompSocket(port), StompSocket(port)
    receiver.ask(b"SUBSCRIBE\ndestination:%b\nid:1\nack:auto\nreceipt:r\n\n\0" % QUEUE.encode())
    in_chunk = max(1, CHUNK_BYTES // len(_sends(1)))
    chunk = _sends(in_chunk)
    counter = Counter(receiver)
    sent = 0
    with Meter(server) as meter:
        deadline = time.perf_counter() + scale.seconds
        while time.perf_counter() < deadline:
            while sent - counter.count > AHEAD_COUNT_MAX and counter.fault is None:
                time.sleep(0.0005)
            sender.socket.sendall(chunk)
            sent += in_chunk
        counter.wait_for(sent)
    elapsed_s = counter.last_at - meter.started_at
    counter.end()
    sender.close()
    receiver.close()
    return Outcome(
        {"rate": sent / elapsed_s}, sent, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s
    )


def send_with_receipts(server: Server, scale: Scale) -> Outcome:
    """Send persistent messages with receipts, of which at most `RECEIPT_WINDOW` have not come."""
    port = enable_stomp(server)
    sender = StompSocket(port)
    batch = RECEIPT_WINDOW // 10
    frames = _sends(batch, b"persistent:true\nreceipt:r\n")
    sender.ask(_sends(1, b"persistent:true\nreceipt:r\n"))
    counter = Counter(sender)
    sent = 0
    with Meter(server) as meter:
        deadline = time.perf_counter() + scale.seconds
        while time.perf_counter() < deadline:
            while sent - counter.count > RECEIPT_WINDOW - batch and counter.fault is None:
                time.sleep(0.0001)
            sender.socket.sendall(frames)
            sent += batch
        counter.wait_for(sent)
    elapsed_s = counter.last_at - meter.started_at
    counter.end()
    sender.close()
    return Outcome(
        {"rate": sent / elapsed_s}, sent, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s
    )


def paced(server: Server, scale: Scale) -> Outcome:
    """Send 1,000 messages a second, one at a time; measure the time from each SEND to its MESSAGE frame.

    The first tenth is not counted. A message that is late because the machine was busy is timed from its sending.
    """
    port = enable_stomp(server)
    count = int(PACED_RATE * scale.seconds)
    waits: list[float] = []
    sender, receiver = StompSocket(port), StompSocket(port)
    receiver.ask(b"SUBSCRIBE\ndestination:%b\nid:1\nack:auto\nreceipt:r\n\n\0" % QUEUE.encode())
    server.wait_until_quiet()
    sent, rest = 0, b""
    with Meter(server) as meter:
        while len(waits) < count:
            due_s, now = meter.started_at + sent / PACED_RATE, time.perf_counter()
            if sent < count and now >= due_s:
                sender.socket.sendall(_timed_send(sent))
                sent += 1
                continue
            pause_s = due_s - now if sent < count else STALL_S
            if not select.select([receiver.socket], [], [], pause_s)[0]:
                if sent == count or sent - len(waits) > PACED_RATE * STALL_S:
                    raise BenchError(f"{sent} messages were sent, and {len(waits)} came")
                continue
            data = receiver.socket.recv(READ_BYTES)
            now_ns = time.perf_counter_ns()
            if not data:
                raise BenchError("the broker closed the connection")
            *frames, rest = (rest + data).split(b"\0")
            for frame in frames:
                number, sent_ns = _read_timed(frame)
                if number != len(waits):
                    raise BenchError(f"message {len(waits)} was expected, and {number} came")
                waits.append((now_ns - sent_ns) / 1e9)
    sender.close()
    receiver.close()
    counted = waits[count // 10 :]
    metrics = {"p50": percentile(counted, 50) * 1e3, "p99": percentile(counted, 99) * 1e3}
    return Outcome(metrics, count, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


def _timed_send(number: int) -> bytes:
    """Return a SEND frame whose body of 100 bytes begins with its number and the time."""
    body = b"%020d%020d" % (number, time.perf_counter_ns())
    return b"SEND\ndestination:%b\ncontent-length:100\n\n%b\0\n" % (QUEUE.encode(), body.ljust(100, b"x"))


def _read_timed(frame: bytes) -> tuple[int, int]:
    """Return number and time of a MESSAGE frame."""
    body = frame[-100:]
    if not frame.lstrip(b"\n").startswith(b"MESSAGE\n") or not body[:40].isdigit():
        raise BenchError(f"no message of ours: {frame[:500]!r}")
    return int(body[:20]), int(body[20:40])


STOMP_WORKLOADS: Sequence[Workload] = (
    Workload("stomp-queue", send_and_subscribe, [Row("rate", "msg/s", AtLeast(4.0))], fresh=True),
    Workload("stomp-receipts", send_with_receipts, [Row("rate", "msg/s")], fresh=True, keeps=True),
    Workload("stomp-paced", paced, [Row("p50", "ms", NotAbove()), Row("p99", "ms", NotAbove())], fresh=True),
)
