"""Hostile clients: what somebody else on the same node notices while one asks for as much work as a few bytes can.

A bystander declares its queue passively every 2 ms, first by itself, then beside the load. Each load runs on a broker
that was started for it alone, and keeps on until the bystander is done.
"""

import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from bench import frames as f
from bench.client import BenchError, Connection
from bench.cluster_servers import Cluster, Policy
from bench.report import Below, Row, percentile
from bench.servers import Meter, Server
from bench.workloads import Outcome, Scale, Workload

QUEUE = "bench.bystander"
PAUSE_S = 0.002
FLOODERS = 5
HEADERS = 8000
"""Of one message: as many as fit into a frame of 128 KiB."""
WIDE = 1500
"""Queues that one message goes to."""
BINDINGS = 50_000

PREPARED_S = 60.0
"""How long a load may prepare."""


class Flood(NamedTuple):
    """begun: set by a load once it has made what it needs.   ended: set when it is to stop."""

    begun: threading.Event
    ended: threading.Event


Load = Callable[[Server, Flood], None]


@dataclass(frozen=True)
class Bystander:
    """idle_p99, p99, longest: milliseconds until its answers.   times: p99 as a multiple of idle_p99."""

    load: Load

    def __call__(self, server: Server, scale: Scale) -> Outcome:
        flood = Flood(threading.Event(), threading.Event())
        thread = threading.Thread(target=self.load, args=(server, flood), daemon=True)
        with Connection(server.ports[0]) as connection:
            connection.declare_queue(QUEUE)
            idle = _waits(connection, scale.seconds)
            thread.start()
            if not flood.begun.wait(PREPARED_S):
                raise BenchError("the load was not prepared in time")
            with Meter(server) as meter:
                beside = _waits(connection, 2 * scale.seconds)
            flood.ended.set()
            thread.join()
            connection.delete_queue(QUEUE)
        idle_p99, p99 = percentile(idle, 99) * 1e3, percentile(beside, 99) * 1e3
        metrics = {"idle_p99": idle_p99, "p99": p99, "longest": max(beside) * 1e3, "times": p99 / idle_p99}
        return Outcome(metrics, len(beside), meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


def _waits(connection: Connection, seconds: float) -> list[float]:
    waits, end = list[float](), time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        connection.declare_queue(QUEUE, passive=True)
        waits.append(time.perf_counter() - began)
        time.sleep(PAUSE_S)
    return waits


def many_headers(server: Server, flood: Flood) -> None:
    """Messages of thousands of headers for a headers exchange."""
    headers = f.header_properties({f"k{n}": "v" for n in range(HEADERS)})
    _send_all(server, flood, f.Message("amq.headers", "", b"m", headers).publish())


def wide_fanout(server: Server, flood: Flood) -> None:
    """Empty messages for very many queues of one client."""
    with Connection(server.ports[0]) as owner:
        for number in range(WIDE):
            name = f"bench.wide{number:04}"
            owner.declare_queue(name)
            owner.bind_queue(name, "amq.fanout")
        _send_all(server, flood, f.Message("amq.fanout", "", b"").publish() * 5)
        for number in range(WIDE):
            owner.delete_queue(f"bench.wide{number:04}")


def mass_deletion(server: Server, flood: Flood) -> None:
    """A queue with very many bindings is deleted, again and again."""
    name = "bench.bound"
    with Connection(server.ports[0]) as owner:
        while not flood.ended.is_set():
            owner.declare_queue(name)
            owner.socket.sendall(b"".join(_binds(name)))
            owner.declare_queue(name, passive=True)
            flood.begun.set()
            owner.delete_queue(name)


def _binds(queue: str) -> Iterator[bytes]:
    for number in range(BINDINGS):
        names = f.short_string(queue) + f.short_string("amq.direct") + f.short_string(str(number))
        yield f.method(1, f.QUEUE_BIND, b"\0\0" + names + b"\1" + f.string_table({}))


def _send_all(server: Server, flood: Flood, data: bytes) -> None:
    """Several clients send this for as long as it lasts, and read nothing."""
    with _connections(server, FLOODERS) as connections:
        threads = [threading.Thread(target=_send, args=(each, flood.ended, data)) for each in connections]
        for thread in threads:
            thread.start()
        flood.begun.set()
        for thread in threads:
            thread.join()


@contextmanager
def _connections(server: Server, count: int) -> Iterator[Sequence[Connection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Connection(server.ports[0])) for _ in range(count)]


def _send(connection: Connection, ended: threading.Event, data: bytes) -> None:
    connection.socket.settimeout(0.2)
    left = memoryview(data)
    while not ended.is_set():
        with suppress(TimeoutError):
            left = left[connection.socket.send(left) :] or memoryview(data)


_ROWS = [Row("idle_p99", "ms"), Row("p99", "ms"), Row("longest", "ms"), Row("times", "× idle", Below(3.0))]

CROWD = 100
"""Publishers that wake the node at once."""
_EXCLUSIVE = bytes([4])
_CHANNEL_CLOSE_OK = (20, 41)


def beside_a_crowd(cluster: Cluster, scale: Scale) -> Outcome:
    """A crowd publishes to very many exclusive queues of one client, which takes all and acknowledges nothing. Half-way
    it closes its channel. A bystander asks for a mirrored queue of that node meanwhile; who is cut off is a BenchError.

    closed: milliseconds until the channel's close was answered.
    """
    cluster.set_policy(Policy("bench.all", f"^{QUEUE}", {"ha-mode": "all", "ha-sync-mode": "automatic"}))
    with ExitStack() as clients:
        bystander, owner = (clients.enter_context(cluster.connect(0)) for _ in range(2))
        bystander.declare_queue(QUEUE)
        idle = _waits(bystander, scale.seconds)
        _declare_and_consume(owner)
        crowd = [clients.enter_context(cluster.connect(0)) for _ in range(CROWD)]
        ended = threading.Event()
        data = f.Message("amq.fanout", "", b"").publish() * 1000
        reader = threading.Thread(target=_read_until_closed, args=(owner,), daemon=True)
        reader.start()
        threads = [threading.Thread(target=_send, args=(each, ended, data), daemon=True) for each in crowd]
        with Meter(cluster) as meter:
            for thread in threads:
                thread.start()
            beside = _waits(bystander, scale.seconds)
            closing_at = time.perf_counter()
            owner.socket.sendall(f.method(1, f.CHANNEL_CLOSE, struct.pack(">HBHH", 200, 0, 0, 0)))
            while reader.is_alive():
                beside += _waits(bystander, _LOOK_S)
            closed_s = time.perf_counter() - closing_at
        ended.set()
        for thread in threads:
            thread.join()
        bystander.delete_queue(QUEUE)
    idle_p99, p99 = percentile(idle, 99) * 1e3, percentile(beside, 99) * 1e3
    metrics = {"idle_p99": idle_p99, "p99": p99, "longest": max(beside) * 1e3, "closed": closed_s * 1e3}
    return Outcome(metrics, len(beside), meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


def _declare_and_consume(owner: Connection) -> None:
    """All at once: one after the other they would wait for the whole cluster each."""
    names = [f.short_string(f"bench.wide{number:04}") for number in range(WIDE)]
    table = f.string_table({})
    where = f.short_string("amq.fanout") + f.short_string("")
    for frames in (
        [f.method(1, f.QUEUE_DECLARE, b"\0\0" + name + _EXCLUSIVE + table) for name in names],
        [f.method(1, f.QUEUE_BIND, b"\0\0" + name + where + b"\1" + table) for name in names],
        [f.method(1, f.CONSUME, b"\0\0" + name + f.short_string("") + b"\0" + table) for name in names],
    ):
        owner.socket.sendall(b"".join(frames))
    for ids in (f.QUEUE_DECLARE_OK, f.CONSUME_OK):
        for _ in names:
            owner._read(1, ids)


def _read_until_closed(owner: Connection) -> None:
    """Take all deliveries, up to the answer to the channel's close."""
    end = f.method(1, _CHANNEL_CLOSE_OK)
    tail = b""
    while not tail.endswith(end):
        data = owner.socket.recv(1 << 18)
        if not data:
            raise BenchError("the broker closed the connection of the consumer")
        tail = (tail + data)[-len(end) :]


_LOOK_S = 0.1
_CROWD_ROWS = [
    Row("idle_p99", "ms"),
    Row("p99", "ms"),
    Row("longest", "ms", Below(2000.0)),
    Row("closed", "ms", Below(5000.0)),
]

HOSTILE_WORKLOADS: Sequence[Workload] = (
    Workload("hostile-headers", Bystander(many_headers), _ROWS, fresh=True),
    Workload("hostile-fanout", Bystander(wide_fanout), _ROWS, fresh=True),
    Workload("hostile-deletion", Bystander(mass_deletion), _ROWS, fresh=True),
    Workload("hostile-fanout-cluster", beside_a_crowd, _CROWD_ROWS, fresh=True, clustered=True),
)
