"""Workloads on clusters of three nodes, A, B and C. The queues are on A; clients connect to A, B or C.

docs/benchmark.md, "Results", has the requirement of each row.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.cluster_servers import Cluster
from bench.flow import Acks, Bed
from bench.report import AtLeast, Below, NotBelow, Row, percentile
from bench.servers import Broker, Meter
from bench.workloads import ACKS_GATHERED, OneQueue, Outcome, Scale, Workload

A, B, C = range(3)

DECLARED_COUNT = 500
DECLARE_INTERVAL_S = 0.02
COMMITS_MIN = 50
"""The number of commits for a percentile, independent of the scale: at 20 ms each they take a second."""
BOUND_EXCHANGE = "amq.direct"
"""The exchange of the bindings: a durable one, so that the bindings of durable queues are durable, too."""


def declares(cluster: Cluster, scale: Scale) -> Outcome:
    """Declare and bind 500 durable queues, from one client on A that waits for each reply.

    All nodes must know the last queue immediately. The rate counts declares and binds.
    """
    count = DECLARED_COUNT // scale.divisor
    names = [f"bench.declared{i:03}" for i in range(count)]
    with Bed(cluster) as bed:
        client = bed.connect(node=A)
        with Meter(cluster) as meter:
            for name in names:
                bed.queue(name, durable=True, client=client)
                client.bind_queue(name, BOUND_EXCHANGE, name)
        for node in (B, C):
            bed.connect(node=node).declare_queue(names[-1], passive=True)
    operation_count = 2 * count
    rate = operation_count / meter.elapsed_s
    return Outcome(
        {"rate": rate}, operation_count, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s
    )


def idle_commits(cluster: Cluster, scale: Scale) -> Outcome:
    """Declare a transient exchange every 20 ms, on A, B and C in turn; measure the milliseconds until the reply."""
    count = max(COMMITS_MIN, int(scale.seconds / DECLARE_INTERVAL_S))
    waits_s = []
    with Bed(cluster) as bed:
        clients = [bed.connect(node=node) for node in (A, B, C)]
        with Meter(cluster) as meter:
            for i, client in zip(range(count), itertools.cycle(clients), strict=False):
                time.sleep(max(0.0, meter.started_at + i * DECLARE_INTERVAL_S - time.perf_counter()))
                asked_at = time.perf_counter()
                bed.exchange(f"bench.commit{i}", "direct", client=client)
                waits_s.append(time.perf_counter() - asked_at)
    metrics = {f"p{percent}": percentile(waits_s, percent) * 1e3 for percent in (50, 99)}
    return Outcome(metrics, count, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


@dataclass(frozen=True)
class Home:
    """A workload with all clients on A, compared with the same workload on a node outside of any cluster.

    The order is alone, cluster, cluster, alone, so that neither always runs first. The CPU is that of the cluster.
    """

    workload: OneQueue

    def __call__(self, cluster: Cluster, scale: Scale) -> Outcome:
        single = cluster.single()
        half = scale._replace(seconds=scale.seconds / 2)
        order: Sequence[Broker] = (single, cluster, cluster, single)
        outcomes: dict[bool, list[Outcome]] = {True: [], False: []}
        for broker in order:
            broker.wait_until_quiet()
            outcomes[broker is cluster].append(self.workload(broker, half))
        ours = outcomes[True]
        clustered, alone = _mean_rate(ours), _mean_rate(outcomes[False])
        return Outcome(
            {"rate": clustered, "alone": alone, "share": clustered / alone},
            sum(each.message_count for each in ours),
            sum(each.elapsed_s for each in ours),
            sum(each.server_cpu_s for each in ours),
            sum(each.generator_cpu_s for each in ours),
        )


def _mean_rate(outcomes: Sequence[Outcome]) -> float:
    return sum(outcome.metrics["rate"] for outcome in outcomes) / len(outcomes)


def _remote(workload: OneQueue, *, publisher_node: int = A, consumer_node: int = A) -> OneQueue:
    return replace(workload, publisher_node=publisher_node, consumer_node=consumer_node)


def _clustered(name: str, run: Callable[[Cluster, Scale], Outcome], rows: Sequence[Row]) -> Workload:
    return Workload(name, run, rows, clustered=True)


_PLAIN = OneQueue()
_ACKED = OneQueue(prefetch=500, acks=Acks.EACH, gather_count=ACKS_GATHERED)
_CONFIRMED = OneQueue(confirm_window=1000)
_TWICE = [Row("rate", "msg/s", AtLeast(2))]
_HOME = [Row("rate", "msg/s"), Row("alone", "msg/s"), Row("share", "of alone", NotBelow(0.9))]

CLUSTER_WORKLOADS: Sequence[Workload] = (
    _clustered("cluster-deliver", _remote(_PLAIN, consumer_node=B), _TWICE),
    _clustered("cluster-deliver-acks", _remote(_ACKED, consumer_node=B), _TWICE),
    _clustered("cluster-publish", _remote(_PLAIN, publisher_node=B), _TWICE),
    _clustered("cluster-publish-confirms", _remote(_CONFIRMED, publisher_node=B), _TWICE),
    _clustered(
        "cluster-both-remote", _remote(_PLAIN, publisher_node=B, consumer_node=C), [Row("rate", "msg/s")]
    ),
    _clustered("cluster-declare-500", declares, [Row("rate", "operations/s", AtLeast(1))]),
    _clustered("cluster-commit-idle", idle_commits, [Row("p50", "ms", Below(5.0)), Row("p99", "ms")]),
    _clustered("cluster-home", Home(_PLAIN), _HOME),
    _clustered("cluster-home-confirms", Home(replace(_ACKED, confirm_window=1000)), _HOME),
)
