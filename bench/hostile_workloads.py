"""Hostile clients: their effect on the latency of another client of the node, and on the node's memory.

A bystander declares its queue passively every 2 ms, first alone, then beside the load; in a cluster each node has a
bystander. Each load runs on a broker that was started for it alone, and continues until the bystander has finished.
"""

import struct
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from bench import frames as f
from bench import hostile_loads as loads
from bench.client import BenchError, Connection
from bench.cluster_servers import Cluster, FluffleNode, Policy
from bench.hostile_loads import Flood
from bench.management import make_queues
from bench.report import Below, Row, percentile
from bench.servers import MemoryWatch, Meter, Server
from bench.workloads import Outcome, Scale, Workload

QUEUE: Final = "bench.bystander"
PAUSE_S: Final = 0.002
PREPARED_S: Final = 240.0
"""The longest preparation of a load."""
OVER_S: Final = 120.0
"""The longest run of a load that ends without being stopped."""
AFTER_S: Final = 40.0
"""The time for memory to return to the system: longer than the longest interval at which a node releases memory."""
BACK_RATIO: Final = 1.1
"""Memory counts as returned when it is at most this multiple of the memory before the load."""
POLL_S: Final = 0.2


@dataclass(frozen=True)
class Bystander:
    """A workload that measures a bystander's latency.

    idle_p99, p99, longest: milliseconds until a reply, on the worst node.   times: p99 as a multiple of idle_p99.
    rss_before, rss_top, rss_after: resident memory in MB, if watched; the last when it has returned, or after AFTER_S.
    prepare: makes objects before the bystander begins.   watches_memory: only for a single node.
    is_once: the load ends without being stopped, and the bystander waits for that.
    """

    load: Callable[[Any, Flood], None]
    prepare: Callable[[Any], None] | None = None
    watches_memory: bool = False
    is_once: bool = False

    def __call__(self, broker: Any, scale: Scale) -> Outcome:
        flood = Flood(threading.Event(), threading.Event(), scale.divisor)
        seconds = OVER_S if self.is_once else 2 * scale.seconds
        metrics: dict[str, float] = {}
        if self.prepare is not None:
            self.prepare(broker)
        with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
            watching = [stack.enter_context(Connection(port)) for port in broker.ports]
            for number, connection in enumerate(watching):
                connection.declare_queue(f"{QUEUE}{number}")
            idle = _all_wait(watching, partial(_is_over, time.perf_counter() + scale.seconds))
            load = pool.submit(self.load, broker, flood)
            try:
                _await_begin(flood, load)
                memory = stack.enter_context(_Memory(broker)) if self.watches_memory else None
                with Meter(broker) as meter:
                    over = partial(_is_over, time.perf_counter() + seconds, flood.ended)
                    beside = _all_wait(watching, over)
            finally:
                flood.ended.set()
            load.result(OVER_S)
            if memory is not None:
                metrics = memory.rows(AFTER_S / scale.divisor)
        worst = max(percentile(waits, 99) for waits in beside) * 1e3
        idle_worst = max(percentile(waits, 99) for waits in idle) * 1e3
        longest = max(map(max, beside)) * 1e3
        metrics |= {"idle_p99": idle_worst, "p99": worst, "longest": longest, "times": worst / idle_worst}
        answers = sum(map(len, beside))
        return Outcome(metrics, answers, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


class _Memory:
    """The resident memory of a broker before a load, at most, and afterwards."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._before_bytes = server.rss_bytes()
        self._watch = MemoryWatch(server)

    def __enter__(self) -> "_Memory":
        self._watch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.__exit__()

    def rows(self, seconds: float) -> dict[str, float]:
        """Return the memory in MB.   seconds: the longest wait for the memory to return."""
        deadline = time.perf_counter() + seconds
        after = top = self._server.rss_bytes()
        while after > BACK_RATIO * self._before_bytes and time.perf_counter() < deadline:
            time.sleep(POLL_S)
            after = self._server.rss_bytes()
        top = max(top, self._watch.max_bytes)
        found = {"rss_before": self._before_bytes, "rss_top": top, "rss_after": after}
        return {name: value / 1e6 for name, value in found.items()}


def _await_begin(flood: Flood, load: Future[None]) -> None:
    """Wait until a load is prepared. Raises: BenchError; errors of the load."""
    deadline = time.perf_counter() + PREPARED_S
    while not flood.begun.wait(POLL_S):
        if load.done():
            load.result()
        if load.done() or time.perf_counter() > deadline:
            raise BenchError("the load was not prepared in time")


def _is_over(ends_at: float, ended: threading.Event | None = None) -> bool:
    return time.perf_counter() >= ends_at or (ended is not None and ended.is_set())


def _all_wait(connections: Sequence[Connection], is_over: Callable[[], bool]) -> list[list[float]]:
    """Return by connection the seconds until each reply."""
    with ThreadPoolExecutor(len(connections)) as pool:
        waits = [
            pool.submit(_waits, connection, f"{QUEUE}{number}", is_over)
            for number, connection in enumerate(connections)
        ]
        return [each.result() for each in waits]


def _waits(connection: Connection, queue: str, is_over: Callable[[], bool]) -> list[float]:
    waits = list[float]()
    while not waits or not is_over():
        began = time.perf_counter()
        connection.declare_queue(queue, passive=True)
        waits.append(time.perf_counter() - began)
        time.sleep(PAUSE_S)
    return waits


def _waits_for(connection: Connection, seconds: float) -> list[float]:
    ends_at = time.perf_counter() + seconds
    return _waits(connection, QUEUE, lambda: time.perf_counter() >= ends_at)


_ROWS: Final = (
    Row("idle_p99", "ms"),
    Row("p99", "ms"),
    Row("longest", "ms"),
    Row("times", "× idle", Below(3.0)),
)
_MEMORY: Final = (Row("rss_before", "MB"), Row("rss_top", "MB"), Row("rss_after", "MB"))


def _hostile(name: str, load: Callable[[Any, Flood], None]) -> Workload:
    return Workload(f"hostile-{name}", Bystander(load), _ROWS, fresh=True)


def _filling(
    name: str, load: Callable[[Any, Flood], None], prepare: Callable[[Any], None] | None = None
) -> Workload:
    """Return the workload of a load that also uses much memory."""
    run = Bystander(load, prepare, watches_memory=True)
    return Workload(f"hostile-{name}", run, (*_ROWS, *_MEMORY), fresh=True, managed=prepare is not None)


def _clustered(name: str, load: Callable[[Any, Flood], None]) -> Workload:
    run = Bystander(load, is_once=True)
    return Workload(f"hostile-cluster-{name}", run, _ROWS, fresh=True, clustered=True)


CROWD: Final = 100
"""The number of publishers that send at the same time."""
_EXCLUSIVE: Final = bytes([4])
_CHANNEL_CLOSE_OK: Final = (20, 41)
_LOOK_S: Final = 0.1


def beside_a_crowd(cluster: Cluster, scale: Scale) -> Outcome:
    """Publish from a crowd of clients to very many exclusive queues of one client.

    That client acknowledges nothing and closes its channel half-way. A bystander declares a mirrored queue of that node
    meanwhile. Raises: BenchError if the broker closes a connection.

    closed: milliseconds until the channel's close was answered.
    """
    cluster.set_policy(Policy("bench.all", f"^{QUEUE}", {"ha-mode": "all", "ha-sync-mode": "automatic"}))
    with ExitStack() as clients:
        bystander, owner = (clients.enter_context(cluster.connect(0)) for _ in range(2))
        bystander.declare_queue(QUEUE)
        idle = _waits_for(bystander, scale.seconds)
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
            beside = _waits_for(bystander, scale.seconds)
            closing_at = time.perf_counter()
            owner.socket.sendall(f.method(1, f.CHANNEL_CLOSE, struct.pack(">HBHH", 200, 0, 0, 0)))
            while reader.is_alive():
                beside += _waits_for(bystander, _LOOK_S)
            closed_s = time.perf_counter() - closing_at
        ended.set()
        for thread in threads:
            thread.join()
        bystander.delete_queue(QUEUE)
    idle_p99, p99 = percentile(idle, 99) * 1e3, percentile(beside, 99) * 1e3
    metrics = {"idle_p99": idle_p99, "p99": p99, "longest": max(beside) * 1e3, "closed": closed_s * 1e3}
    return Outcome(metrics, len(beside), meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


def _send(connection: Connection, ended: threading.Event, data: bytes) -> None:
    """Send data repeatedly until the flood ends, and read nothing."""
    connection.socket.settimeout(0.2)
    left = memoryview(data)
    while not ended.is_set():
        with suppress(TimeoutError):
            left = left[connection.socket.send(left) :] or memoryview(data)


def _declare_and_consume(owner: Connection) -> None:
    """Make the queues in three writes: if each waited for its reply, each would wait for the whole cluster."""
    names = [f.short_string(f"bench.wide{number:04}") for number in range(loads.WIDE)]
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
    """Read all deliveries, up to the reply to the channel's close."""
    end = f.method(1, _CHANNEL_CLOSE_OK)
    tail = b""
    while not tail.endswith(end):
        data = owner.socket.recv(1 << 18)
        if not data:
            raise BenchError("the broker closed the connection of the consumer")
        tail = (tail + data)[-len(end) :]


_CROWD_ROWS: Final = (
    Row("idle_p99", "ms"),
    Row("p99", "ms"),
    Row("longest", "ms", Below(2000.0)),
    Row("closed", "ms"),
)

BACK_S: Final = 30.0
"""The longest time in which a member must rejoin beside a flood of handshakes."""


def beside_handshakes(cluster: Cluster, scale: Scale) -> Outcome:
    """Kill and restart a member, first alone, then beside half-open handshakes at the cluster ports of the others.

    quiet, back: seconds from its start until all three nodes form a cluster again, without and with the handshakes.
    """
    ports = [node.peer_port for node in (cluster.nodes[0], cluster.nodes[2]) if isinstance(node, FluffleNode)]
    ended = threading.Event()
    flooder = threading.Thread(target=loads.half_open_handshakes, args=(ports, ended), daemon=True)
    with Meter(cluster) as meter:
        quiet_s = _come_back(cluster)
        flooder.start()
        try:
            time.sleep(scale.seconds)
            back_s = _come_back(cluster)
        finally:
            ended.set()
            flooder.join()
    metrics = {"quiet": quiet_s, "back": back_s}
    return Outcome(metrics, 2, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


def _come_back(cluster: Cluster) -> float:
    cluster.nodes[1].kill()
    began = time.perf_counter()
    cluster.relaunch(1)
    return time.perf_counter() - began


_HANDSHAKE_ROWS: Final = (Row("quiet", "s"), Row("back", "s", Below(BACK_S)))

HOSTILE_WORKLOADS: Sequence[Workload] = (
    _hostile("headers", loads.many_headers),
    _filling("fanout", loads.wide_fanout),
    _hostile("deletion", loads.mass_deletion),
    _hostile("topic", loads.topic_patterns),
    _hostile("regexes", loads.backtracking),
    _filling("strangers", loads.strangers),
    _filling("metrics", loads.unread_metrics, make_queues),
    _filling("lists", loads.unread_lists, make_queues),
    _clustered("deletion", loads.one_deletion),
    _clustered("vhost", loads.vhost_deletion),
    Workload(
        "hostile-handshakes", beside_handshakes, _HANDSHAKE_ROWS, fresh=True, clustered=True, alone=True
    ),
    Workload("hostile-fanout-cluster", beside_a_crowd, _CROWD_ROWS, fresh=True, clustered=True),
)
