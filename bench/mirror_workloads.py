"""Workloads on mirrored queues: three nodes of each broker, `ha-mode: all` unless stated otherwise.

docs/benchmark.md, "Results", has the requirement of each row.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from bench.balanced import Balanced
from bench.cluster_servers import Cluster, Policy, Span
from bench.flow import Acks, Bed
from bench.frames import NO_PROPERTIES, PERSISTENT, DeliveryShape, Properties, chunks
from bench.paced import Paced, Strike, paced
from bench.report import AtLeast, Below, NotAbove, NotBelow, Row
from bench.servers import Meter
from bench.workloads import (
    ACKS_GATHERED,
    PACED_ROWS,
    OneQueue,
    Outcome,
    Scale,
    Workload,
    await_count,
    fill,
    flow_outcome,
    steady,
)

A, B, C = range(3)
NODES = (A, B, C)
QUEUE = "bench.mirrored"
ALL = Policy("bench-mirrors", r"^bench\.mirrored", {"ha-mode": "all", "ha-sync-mode": "automatic"})
MIRROR_COUNT = 2

STRIKE_RATE = 400
STRIKE_AFTER_S = 1.0
KILL_SECONDS = 4.0
FREEZE_SECONDS = 12.0
"""The duration of publishing. It is longer with a frozen master, which is declared down only after some seconds."""
FAILOVER_ROUNDS = 9

SYNCED_QUEUE = "bench.synced"
ONE_MIRROR = Policy(
    "bench-synced", r"^bench\.synced", {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"}
)
TWO_MIRRORS = ONE_MIRROR._replace(definition={"ha-mode": "all", "ha-sync-mode": "automatic"})
TRAFFIC_S = 4.0
"""The time for which a queue's traffic is measured after a synchronisation, half a second after its end."""
SETTLE_S = 0.5


@dataclass(frozen=True)
class Mirrored:
    """A workload on one or more mirrored queues at once. All mirrors are synchronised before the clock starts."""

    workloads: Sequence[OneQueue]

    def __call__(self, cluster: Cluster, scale: Scale) -> Outcome:
        cluster.set_policy(ALL)
        # Numbers of equal length, since all deliveries of a workload must have equal length.
        queues = [f"{QUEUE}{number:02}" for number in range(len(self.workloads))]
        with Bed(cluster) as bed:
            for queue, workload in zip(queues, self.workloads, strict=True):
                workload.set_up(bed, queue)
            cluster.await_mirrors(queues, MIRROR_COUNT)
            return flow_outcome(bed, bed.run(scale.seconds))


@dataclass(frozen=True)
class Steady:
    """Publish single messages, `rate` a second, with confirms and acks, all at the master's node."""

    rate: int
    properties: Properties = PERSISTENT

    def __call__(self, cluster: Cluster, scale: Scale) -> Outcome:
        cluster.set_policy(ALL)
        return steady(
            cluster,
            scale,
            QUEUE,
            self.rate,
            self.properties,
            await_copies=lambda: cluster.await_mirrors([QUEUE], MIRROR_COUNT),
        )


@dataclass(frozen=True)
class Failover:
    """A workload that kills or freezes the master's node while clients of the other two publish and consume.

    leads: whether that node is the Raft leader, too (if the broker has one).
    The figures are the longest gaps between two confirms and between two deliveries after the strike.
    """

    leads: bool = False
    frozen: bool = False

    def __call__(self, cluster: Cluster, scale: Scale) -> Outcome:
        cluster.set_policy(ALL)
        leader = cluster.metadata_leader()
        master = leader if leader is not None and self.leads else next(n for n in NODES if n != leader)
        node = cluster.nodes[master]
        started_at = time.perf_counter()
        generator_cpu_s = -time.process_time()
        try:
            seen = self._watch(cluster, master)
        finally:
            node.kill()
            cluster.relaunch(master)
        return Outcome(
            {
                "confirms": seen.longest_gap_s(seen.confirmed_at),
                "deliveries": seen.longest_gap_s(seen.delivered_at),
                "repeated": seen.repeated_count,
                "nacked": seen.nacked_count,
            },
            0,  # the CPU time of a node that has ended is not known
            time.perf_counter() - started_at,
            0.0,
            generator_cpu_s + time.process_time(),
        )

    def _watch(self, cluster: Cluster, master: int) -> Paced:
        node = cluster.nodes[master]
        first, second = (other for other in NODES if other != master)
        strike = Strike(STRIKE_AFTER_S, node.freeze if self.frozen else node.kill)
        seconds = FREEZE_SECONDS if self.frozen else KILL_SECONDS
        with cluster.connect(master) as owner, cluster.connect(first) as publisher:
            owner.declare_queue(QUEUE, durable=True)
            cluster.await_mirrors([QUEUE], MIRROR_COUNT)
            with cluster.connect(second) as consumer:
                consumer.consume(QUEUE, "c", no_ack=False)
                cluster.wait_until_quiet()
                seen = paced(publisher, consumer, QUEUE, rate=STRIKE_RATE, seconds=seconds, strike=strike)
                consumer.close()
        with cluster.connect(first) as admin:
            admin.delete_queue(QUEUE)
            admin.close()
        return seen


@dataclass(frozen=True)
class Synchronisation:
    """A workload that copies a million messages to a new mirror of an idle queue, then to another beside traffic.

    share: the rate of the traffic meanwhile, divided by its rate afterwards with as many mirrors.
    """

    properties: Properties = NO_PROPERTIES
    durable: bool = False

    def __call__(self, cluster: Cluster, scale: Scale) -> Outcome:
        count = 1_000_000 // scale.divisor
        cluster.clear_policy(ONE_MIRROR.name)
        with Bed(cluster) as bed:
            messages, _ = fill(bed, SYNCED_QUEUE, count, durable=self.durable, properties=self.properties)
            cluster.wait_until_quiet()
            with Meter(cluster) as meter:
                resting = cluster.synchronise(ONE_MIRROR, SYNCED_QUEUE, 1, 1)
            cycle = chunks(messages, [1] * len(messages), chunk_bytes=1 << 30)[0]
            shape = DeliveryShape(messages, consumer_tag="c")
            publisher, consumer = bed.connect(), bed.connect()
            traffic = Balanced(publisher, consumer, cycle, shape, SYNCED_QUEUE)
            busy, after = _beside(traffic, cluster)
            consumer.abandon()
            bed.forget(consumer)
            await_count(bed.admin(A), SYNCED_QUEUE, count)
            bed.discard(SYNCED_QUEUE, count)
        rate, rate_after = traffic.rate(busy), traffic.rate(after)
        metrics = {
            "rate": count / resting.seconds,
            "busy": count / busy.seconds,
            "traffic": rate,
            "share": rate / rate_after,
        }
        return Outcome(metrics, count, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


def _beside(traffic: Balanced, cluster: Cluster) -> tuple[Span, Span]:
    """Return the span in which a mirror was synchronised beside the traffic, and a span after it."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(traffic.run)
        try:
            time.sleep(2 * SETTLE_S)
            busy = cluster.synchronise(TWO_MIRRORS, SYNCED_QUEUE, 1, 2)
            time.sleep(SETTLE_S)
            after_at = time.time()
            time.sleep(TRAFFIC_S)
            after = Span(after_at, time.time())
        finally:
            traffic.ended.set()
        running.result()
    return busy, after


def _persistent(_index: int) -> Properties:
    return PERSISTENT


def _mirrored(
    name: str, run: Callable[[Cluster, Scale], Outcome], rows: Sequence[Row], *, keeps: bool = False
) -> Workload:
    return Workload(f"mirrors-{name}", run, rows, clustered=True, keeps=keeps)


_AUTO = OneQueue()
_TRANSIENT = OneQueue(confirm_window=1000, prefetch=500, acks=Acks.EACH, gather_count=ACKS_GATHERED)
_KEPT = replace(_TRANSIENT, properties_of=_persistent, durable=True)
_TWENTY = [
    replace(
        _KEPT,
        confirm_window=100,
        prefetch=50,
        gather_count=10,
        home_node=number % 3,
        publisher_node=number // 3 % 3,
        consumer_node=number // 7 % 3,
    )
    for number in range(20)
]
_CONFIRMS = [Row("p50", "ms", NotAbove(0.5)), Row("p99", "ms", NotAbove(0.5))]
_RATE = Row("rate", "msg/s", AtLeast(4))
_SYNC_ROWS = [
    Row("rate", "msg/s", AtLeast(3)),
    Row("busy", "msg/s"),
    Row("traffic", "msg/s"),
    Row("share", "of its own", NotBelow(0.5)),
]


def _gaps(limit_s: float) -> list[Row]:
    limit = Below(limit_s)
    return [Row("confirms", "s", limit), Row("deliveries", "s", limit), Row("repeated", "messages")]


def _failover(name: str, failover: Failover, limit_s: float, *, alone: bool) -> Workload:
    workload = _mirrored(name, failover, _gaps(limit_s), keeps=True)
    return replace(workload, rounds=FAILOVER_ROUNDS, alone=alone)


MIRROR_WORKLOADS: Sequence[Workload] = (
    _mirrored("deliver", Mirrored([_AUTO]), [_RATE]),
    _mirrored("confirms", Mirrored([_TRANSIENT]), [_RATE, *_CONFIRMS]),
    _mirrored("persistent", Mirrored([_KEPT]), [_RATE, *_CONFIRMS], keeps=True),
    _mirrored(
        "remote",
        Mirrored([replace(_KEPT, publisher_node=B, consumer_node=C)]),
        [Row("rate", "msg/s"), Row("p50", "ms"), Row("p99", "ms")],
        keeps=True,
    ),
    _mirrored("20-queues", Mirrored(_TWENTY), [_RATE, Row("p50", "ms"), Row("p99", "ms")], keeps=True),
    _mirrored("paced-1000", Steady(1000), [*PACED_ROWS, Row("cores", "cores", NotAbove(0.5))], keeps=True),
    _mirrored("paced-100", Steady(100), PACED_ROWS, keeps=True),
    _mirrored("paced-100-transient", Steady(100, NO_PROPERTIES), PACED_ROWS, keeps=True),
    _mirrored("sync-1m", Synchronisation(), _SYNC_ROWS),
    replace(
        _mirrored("sync-1m-persistent", Synchronisation(PERSISTENT, durable=True), _SYNC_ROWS, keeps=True),
        rounds=1,  # of minutes each
    ),
    _failover("kill", Failover(), 0.3, alone=False),
    _failover("kill-leader", Failover(leads=True), 1.0, alone=True),
    _failover("freeze", Failover(frozen=True), 5.0, alone=True),
)
