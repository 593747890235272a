"""The model of a made-up cluster: nodes, queues, links, and what one interval does to their counters and gauges.

An interval takes time in proportion to nodes plus copies: nothing goes through all queues for each node.
`telemetry` makes rows of it. The model is mutable, so that a fault (`faults`) can change what a node or
a queue does from some moment on. Equal setups give equal clusters: all chance comes from the seed.
"""

import random
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import chain, permutations
from typing import Final

from spark_ops.telemetry.schema import HISTOGRAM_BUCKETS

MASTER_CPU_US: Final = 100.0
"""CPU time that a message costs its master, in us."""
MIRROR_CPU_US: Final = 30.0
NODE_MESSAGES: Final = 2000.0
"""Messages per second of all masters of a node together, if the setup is even."""
START_S: Final = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())


@dataclass(frozen=True, slots=True)
class Setup:
    """The size of a made-up cluster, and for how long it runs.

    replicas: copies of each queue, the master included.   interval_s: time between two rows of a subject.
    start_s: seconds since 1970.   zones: number of zones; 0: none.
    idle_share: share of the queues that are idle, with a row every five minutes.
    uneven: 0: each node has the same load; 1: a few queues and nodes have most of it.
    uptime_s: the nodes' uptime at the start.
    """

    nodes: int = 3
    queues: int = 12
    replicas: int = 3
    hours: float = 1.0
    interval_s: float = 10.0
    seed: int = 0
    start_s: int = START_S
    cluster: str = "synthetic"
    zones: int = 3
    idle_share: float = 0.0
    uneven: float = 0.0
    uptime_s: float = 3600.0

    @property
    def ticks(self) -> int:
        """The number of rows of a busy subject."""
        return round(self.hours * 3600 / self.interval_s)


def queue_id(vhost: str, queue: str) -> int:
    """Return a number for a queue that is the same on each node and in each run; signed, 64 bits."""
    text = f"{vhost}\0{queue}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


def spread(histogram: list[int], count: int, centre: int) -> None:
    """Count `count` values around the bucket `centre`."""
    for offset, share in ((-2, 0.1), (-1, 0.25), (1, 0.15), (2, 0.05)):
        part = int(count * share)
        histogram[min(max(centre + offset, 0), HISTOGRAM_BUCKETS - 1)] += part
        count -= part
    histogram[min(max(centre, 0), HISTOGRAM_BUCKETS - 1)] += count


@dataclass(slots=True)
class LinkState:
    """A hop of the ring from one node to another."""

    from_node: str
    to_node: str
    centre: int = 4
    """The histogram's bucket of a usual round trip."""
    rtt: list[int] = field(default_factory=lambda: [0] * HISTOGRAM_BUCKETS)
    counters: dict[str, float] = field(default_factory=dict)
    send_q_bytes: int = 0
    last_error: str | None = None


@dataclass(slots=True)
class NodeState:
    """A node: what it is, what it has, and its counters since it started."""

    name: str
    zone: str | None
    boot_id: str
    boot_ms: int
    phase_ms: int
    """The offset in the interval at which the node samples, in ms."""
    is_up: bool = True
    cores: int = 4
    mem_base: float = 200e6
    mem_limit: int = 4_000_000_000
    disk_free: float = 100e9
    fd_used: float = 120.0
    conns: int = 40
    churn_per_s: float = 0.02
    base_cpu: float = 0.02
    loop_lag_ms: float = 2.0
    skew_ms: int = 0
    alarms: list[str] = field(default_factory=list)
    seqs: dict[str, int] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    loop_lag: list[int] = field(default_factory=lambda: [0] * HISTOGRAM_BUCKETS)


@dataclass(slots=True)
class Copy:
    """The counters of one replica; mirrors use `cpu_us_total` only."""

    counters: dict[str, float] = field(default_factory=dict)
    confirm: list[int] = field(default_factory=lambda: [0] * HISTOGRAM_BUCKETS)


@dataclass(slots=True)
class QueueState:
    """A queue: where its copies are and what its clients do."""

    vhost: str
    name: str
    uid: str
    ring: list[str]
    """The nodes with a copy, the master first."""
    synced: list[str]
    is_idle: bool = False
    rate: float = 0.0
    """Messages per second, both published and delivered."""
    size: int = 1000
    """The size of a message, in bytes."""
    epoch: int = 1
    want_mirrors: int = 0
    consumers: int = 2
    prefetch: int | None = 200
    util: float = 0.98
    ready: float = 10.0
    ready_noise: float = 8.0
    unacked: int = 20
    head_age_ms: int = 20
    redeliver_share: float = 0.001
    acks: bool = True
    confirm_centre: int = 8
    """The histogram's bucket of a usual confirm: 1.6 ms."""
    lag_ms: int = 3
    progress: dict[str, float] = field(default_factory=dict)
    """The progress (0 to 1) of unsynchronised copies, by node."""
    ready_now: int = 0
    copies: dict[str, Copy] = field(default_factory=dict)

    @property
    def master(self) -> str:
        """The node of the master."""
        return self.ring[0]

    @property
    def heir(self) -> str | None:
        """The node that becomes master if the master dies; None if no mirror is synchronised."""
        return next((node for node in self.ring[1:] if node in self.synced), None)

    @property
    def bytes(self) -> int:
        """The bytes of the queue's messages, ready and unacknowledged."""
        return (self.ready_now + self.unacked) * self.size


class Model:
    """The state of the cluster at one moment."""

    def __init__(self, setup: Setup, *, has_counters: bool = True) -> None:
        """Make the cluster.   has_counters: without, it is placements and rates only, in a fifth of the memory."""
        self.setup = setup
        self.random = random.Random(setup.seed)
        self.view_id = 7
        self.now_s: float = setup.start_s
        start_ms = setup.start_s * 1000
        width = max(1, setup.interval_s * 1000 / max(setup.nodes, 1))
        self.nodes = {
            name: NodeState(
                name,
                f"zone-{index % setup.zones + 1}" if setup.zones else None,
                self.new_boot_id(),
                start_ms - round(setup.uptime_s * 1000) - index * 7000,
                min(round(index * width * 0.9), 9000),
            )
            for index, name in enumerate(f"node{number + 1}" for number in range(setup.nodes))
        }
        names = list(self.nodes)
        self.queues = [self._queue(index, names) for index in range(setup.queues)]
        self._set_rates(names)
        self.links = [
            LinkState(name, names[(index + 1) % len(names)])
            for index, name in enumerate(names)
            if len(names) > 1
        ]
        if has_counters:
            self.advance(round(setup.uptime_s * 1000))

    def new_boot_id(self) -> str:
        """Return the boot id of a process that starts now."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def _queue(self, index: int, names: list[str]) -> QueueState:
        """Make a queue. Masters go round the nodes (if uneven: by chance), mirrors to other zones if possible."""
        setup = self.setup
        first = index % len(names)
        if setup.uneven:
            weights = [(place + 1.0) ** -setup.uneven for place in range(len(names))]
            first = self.random.choices(range(len(names)), weights)[0]
        ring = [names[first]]
        while len(ring) < min(setup.replicas, len(names)):
            zones = {self.nodes[node].zone for node in ring}
            after = (names[(first + step) % len(names)] for step in range(1, len(names)))
            others = (node for node in after if node not in ring)
            fallback = next(others)
            chosen = (node for node in chain((fallback,), others) if self.nodes[node].zone not in zones)
            ring.append(next(chosen, fallback))
        return QueueState(
            vhost="sales" if index % 4 == 3 else "/",
            name=f"queue-{index:05d}",
            uid=f"{self.random.getrandbits(64):016x}",
            ring=ring,
            synced=list(ring),
            is_idle=index >= setup.queues - round(setup.queues * setup.idle_share),
            want_mirrors=len(ring) - 1,
            size=self.random.choice((200, 1000, 4000)),
        )

    def _set_rates(self, names: list[str]) -> None:
        """Share out each node's messages, or, if the setup is uneven, the cluster's."""
        weights = {
            id(queue): (index + 1.0) ** -self.setup.uneven * self.random.uniform(0.8, 1.2)
            for index, queue in enumerate(self.queues)
        }
        of_master: dict[str, list[QueueState]] = {name: [] for name in names}
        for queue in self.queues:
            if not queue.is_idle:
                of_master[queue.master].append(queue)
        groups = list(of_master.values())
        messages = NODE_MESSAGES
        if self.setup.uneven:
            groups = [[queue for queue in self.queues if not queue.is_idle]]
            messages *= len(names)
        for group in groups:
            total = sum(weights[id(queue)] for queue in group)
            for queue in group:
                queue.rate = messages * weights[id(queue)] / total
        for queue in self.queues:
            if queue.is_idle:
                queue.ready, queue.ready_noise, queue.unacked, queue.head_age_ms = 0.0, 0.0, 0, 0

    def restart(self, name: str, now_ms: int) -> None:
        """Start a node's process again: a new boot id, and all of its counters from 0."""
        node = self.nodes[name]
        node.boot_id, node.boot_ms, node.seqs, node.counters = self.new_boot_id(), now_ms, {}, {}
        node.loop_lag = [0] * HISTOGRAM_BUCKETS
        for queue in self.queues:
            queue.copies.pop(name, None)
        for link in self.links:
            if link.from_node == name:
                link.rtt, link.counters = [0] * HISTOGRAM_BUCKETS, {}

    def promote(self, queue: QueueState, to: str) -> None:
        """Make another copy the master."""
        queue.ring.remove(to)
        queue.ring.insert(0, to)
        queue.epoch += 1

    def queues_by_node(self) -> dict[str, list[tuple[int, QueueState]]]:
        """Return the number and the state of each queue with a copy on a node, for all nodes."""
        found: dict[str, list[tuple[int, QueueState]]] = {name: [] for name in self.nodes}
        for number, queue in enumerate(self.queues):
            for name in queue.ring:
                found[name].append((number, queue))
        return found

    def advance(self, elapsed_ms: int) -> None:
        """Advance the cluster by some ms: counters rise, gauges change a little."""
        cpu_us = {name: node.base_cpu * elapsed_ms * 1000 for name, node in self.nodes.items()}
        written = dict.fromkeys(self.nodes, 0.0)
        sent = {(link.from_node, link.to_node): [0.0, 0.0] for link in self.links}
        for queue in self.queues:
            self._advance_queue(queue, elapsed_ms, cpu_us)
            for name in queue.ring:
                written[name] += queue.rate * queue.size
            for pair in permutations(queue.ring, 2):
                if pair in sent:
                    sent[pair][0] += queue.rate
                    sent[pair][1] += queue.rate * queue.size
        for link in self.links:
            self._advance_link(link, elapsed_ms, *sent[link.from_node, link.to_node])
        for node in self.nodes.values():
            if node.is_up:
                self._advance_node(node, elapsed_ms, cpu_us[node.name], written[node.name])

    def _advance_queue(self, queue: QueueState, elapsed_ms: int, cpu_us: dict[str, float]) -> None:
        wobble = self.random.uniform(-1.0, 1.0)
        queue.ready_now = max(0, round(queue.ready + queue.ready_noise * wobble))
        count = queue.rate * elapsed_ms / 1000 * (1 + 0.05 * wobble)
        for node in queue.ring:
            if not self.nodes[node].is_up:
                continue
            copy = queue.copies.setdefault(node, Copy())
            spent = count * (MASTER_CPU_US if node == queue.master else MIRROR_CPU_US)
            cpu_us[node] += spent
            if node != queue.master:
                _add(copy.counters, cpu_us_total=spent)
                continue
            delivered = count if queue.consumers else 0.0
            _add(
                copy.counters,
                cpu_us_total=spent,
                pub_total=count,
                pub_bytes_total=count * queue.size,
                dlv_total=delivered,
                dlv_bytes_total=delivered * queue.size,
                ack_total=delivered if queue.acks else 0.0,
                redeliver_total=delivered * queue.redeliver_share,
            )
            spread(copy.confirm, int(count), queue.confirm_centre)

    def _advance_link(self, link: LinkState, elapsed_ms: int, rate: float, bytes_per_s: float) -> None:
        spread(link.rtt, elapsed_ms // 1000, link.centre)
        count = rate * elapsed_ms / 1000
        _add(
            link.counters,
            batches_total=count / 20,
            batch_msgs_total=count,
            batch_bytes_total=bytes_per_s * elapsed_ms / 1000,
        )
        link.send_q_bytes = self.random.randrange(0, 4096)

    def _advance_node(self, node: NodeState, elapsed_ms: int, cpu_us: float, bytes_per_s: float) -> None:
        written = bytes_per_s * elapsed_ms / 1000
        churn = node.churn_per_s * elapsed_ms / 1000
        _add(
            node.counters,
            disk_write_bytes_total=written,
            disk_read_bytes_total=written * 0.01,
            fsync_count_total=elapsed_ms / 100,
            fsync_us_total=elapsed_ms / 100 * 900,
            cpu_user_ms_total=cpu_us / 1000 * 0.85,
            cpu_sys_ms_total=cpu_us / 1000 * 0.15,
            gc_pause_ms_total=elapsed_ms / 1000 * 0.2,
            gc_count_total=elapsed_ms / 2000,
            conns_opened_total=churn,
            conns_closed_total=churn,
        )
        bucket, limit = 0, 100.0
        while limit < node.loop_lag_ms * 1000 / 2 and bucket < HISTOGRAM_BUCKETS - 1:
            bucket, limit = bucket + 1, limit * 2**0.5
        spread(node.loop_lag, elapsed_ms // 100, bucket)


def _add(counters: dict[str, float], **amounts: float) -> None:
    for name, amount in amounts.items():
        counters[name] = counters.get(name, 0.0) + amount
