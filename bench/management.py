"""Workloads on brokers with the HTTP API on: the cost of lists and of statistics, and their effect on AMQP clients.

docs/benchmark.md, "Results", has the requirement of each row. RabbitMQ runs with its rabbitmq_management plug-in.
"""

import http.client
import json
import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from bench.client import BenchError, Connection
from bench.flow import Acks, Bed
from bench.loops import steady_latency
from bench.report import Below, NotAbove, NotBelow, Row, percentile
from bench.servers import Fluffle, ManagedFluffle, Server
from bench.workloads import OneQueue, Outcome, Scale, Workload, outcome

QUEUE_COUNT = 10_000
QUEUES = "bench.listed."
PAGE_SIZE = 100
SEEN_S = 30.0
"""The longest time until the API shows all queues: RabbitMQ collects statistics every 5 s."""
REQUEST_RATE = 4
"""Requests per second, as of a few dashboards. A broker that can't keep up gets the next request immediately."""
LATENCY_RATE = 500
"""Messages per second beside the requests."""
ANSWER_S = 120.0
STATISTICS_ROUNDS = 7
HEADERS = {"authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}


class Api:
    """A client of the HTTP API with a persistent connection."""

    def __init__(self, server: Server) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=ANSWER_S)

    def get(self, path: str) -> tuple[float, Any]:
        """Return the seconds until the complete response, and its JSON. Raises: BenchError unless its status is 200."""
        started_at = time.perf_counter()
        self._connection.request("GET", path, headers=HEADERS)
        response = self._connection.getresponse()
        body = response.read()
        elapsed_s = time.perf_counter() - started_at
        if response.status != 200:
            raise BenchError(f"GET {path}: {response.status} {body[:200]!r}")
        return elapsed_s, json.loads(body)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


@dataclass
class _Asking:
    """A thread that sends requests at a steady rate from `start` to `end`."""

    server: Server
    path: str
    expected: int
    """The number of rows of each response."""
    waits_s: list[float] = field(default_factory=list)
    _is_ended: threading.Event = field(default_factory=threading.Event)
    _error: Exception | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop the thread. Raises: errors of the requests."""
        self._is_ended.set()
        self._thread.join(ANSWER_S)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        api, number, started_at = Api(self.server), 0, time.perf_counter()
        try:
            while not self._is_ended.wait(started_at + number / REQUEST_RATE - time.perf_counter()):
                number += 1
                page = number * 7 % (QUEUE_COUNT // PAGE_SIZE) + 1
                elapsed_s, answer = api.get(self.path.format(page=page))
                rows = answer["items"] if isinstance(answer, dict) else answer
                if len(rows) < self.expected:
                    raise BenchError(f"{len(rows)} rows instead of {self.expected}")
                self.waits_s.append(elapsed_s)
        except (BenchError, OSError, http.client.HTTPException) as error:
            self._error = error
        finally:
            api.close()


@dataclass(frozen=True)
class Listing:
    """A client requests a list of 10,000 queues repeatedly, beside a steady flow of messages.

    p50, p99: latency of the responses.   amqp_p50, amqp_p99: of the messages, from publish to receipt.
    """

    path: str
    expected: int = PAGE_SIZE

    def __call__(self, server: Server, scale: Scale) -> Outcome:
        make_queues(server)
        queue = "bench.beside"
        with Bed(server) as bed:
            bed.queue(queue)
            consumer, publisher = bed.connect(), bed.connect()
            consumer.consume(queue, "c", no_ack=True)
            asking = _Asking(server, self.path, self.expected)
            asking.start()
            flow, waits = steady_latency(
                server, publisher, consumer, queue, rate=LATENCY_RATE, seconds=scale.seconds * 3
            )
            asking.end()
            consumer.cancel("c")
        answers = asking.waits_s
        return outcome(
            flow,
            p50=percentile(answers, 50) * 1e3,
            p99=percentile(answers, 99) * 1e3,
            amqp_p50=percentile(waits, 50) * 1e3,
            amqp_p99=percentile(waits, 99) * 1e3,
        )


def make_queues(server: Server) -> None:
    """Make the queues on the server, and wait until its API shows them."""
    api = Api(server)
    _, found = api.get(f"/api/queues?page=1&page_size=1&name={QUEUES}")
    if found["filtered_count"] < QUEUE_COUNT:
        with Connection(server.ports[0]) as connection:
            for number in range(QUEUE_COUNT):
                connection.declare_queue(f"{QUEUES}{number:05}", durable=True)
            connection.close()
        api.close()
        api = Api(server)  # an older connection may have been closed as idle
        deadline = time.perf_counter() + SEEN_S
        while api.get(f"/api/queues?page=1&page_size=1&name={QUEUES}")[1]["filtered_count"] < QUEUE_COUNT:
            if time.perf_counter() > deadline:
                raise BenchError(f"the API does not show {QUEUE_COUNT} queues")
            time.sleep(0.5)
    api.close()


@dataclass(frozen=True)
class StatisticsShare:
    """Results of a workload on a node with management on, relative to those on a node without.

    share: ratio of rates.   cpu: ratio of CPU seconds per message. Medians of STATISTICS_ROUNDS alternating rounds.
    """

    workload: OneQueue

    def __call__(self, server: Server, scale: Scale) -> Outcome:
        pairs: list[tuple[Outcome, Outcome]] = []
        with Fluffle() as plain, ManagedFluffle() as managed:
            plain.start()
            managed.start()
            for _ in range(STATISTICS_ROUNDS):
                pairs.append((self.workload(plain, scale), self.workload(managed, scale)))
        shares = [managed.metrics["rate"] / plain.metrics["rate"] for plain, managed in pairs]
        cpu = [_cpu_s(managed) / _cpu_s(plain) for plain, managed in pairs]
        return pairs[-1][1]._replace(
            metrics={"share": statistics.median(shares), "cpu": statistics.median(cpu)}
        )


def _cpu_s(round_: Outcome) -> float:
    return round_.server_cpu_s / round_.message_count


def _listing(name: str, path: str, expected: int = PAGE_SIZE, *, is_judged: bool = True) -> Workload:
    required = NotAbove() if is_judged else None
    rows = [
        Row("p50", "ms", required),
        Row("p99", "ms"),
        Row("amqp_p50", "ms", required),
        Row("amqp_p99", "ms"),
    ]
    return Workload(f"management-{name}", Listing(path, expected), rows, managed=True)


MANAGEMENT_WORKLOADS: tuple[Workload, ...] = (
    _listing("page", f"/api/queues?page={{page}}&page_size={PAGE_SIZE}"),
    _listing(
        "page-sorted", f"/api/queues?page={{page}}&page_size={PAGE_SIZE}&sort=messages&sort_reverse=true"
    ),
    _listing("page-search", f"/api/queues?page=1&page_size={PAGE_SIZE}&name=listed.09&use_regex=true"),
    _listing("all", "/api/queues", QUEUE_COUNT),
    Workload(
        "management-statistics",
        StatisticsShare(OneQueue()),
        [Row("share", "×", NotBelow(0.95)), Row("cpu", "×", Below(1.05))],
        managed=True,
        alone=True,
    ),
    Workload(
        "management-statistics-confirms",
        StatisticsShare(OneQueue(confirm_window=1000, acks=Acks.EACH, prefetch=500, gather_count=100)),
        [Row("share", "×", NotBelow(0.95)), Row("cpu", "×", Below(1.05))],
        managed=True,
        alone=True,
    ),
)
