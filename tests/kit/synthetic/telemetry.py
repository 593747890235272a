"""Made-up telemetry: the rows that a healthy cluster would write, for tests, benchmarks and demos.

Equal setups give equal rows, in the order of time. Faults come in by a `Hook`, see `faults`;
`files` writes big amounts straight to Parquet.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from spark_ops.documents import content_hash
from spark_ops.telemetry.schema import VERSION, Kind
from tests.kit.synthetic.model import LinkState, Model, NodeState, QueueState, Setup, queue_id

__all__ = ["Hook", "Row", "Setup", "rows", "topology_document"]

Row: TypeAlias = dict[str, Any]

TOPOLOGY_EVERY_S: Final = 300
QUEUES_A_PART: Final = 500
IDLE_EVERY_S: Final = 300


class Hook(Protocol):
    """The interface by which a fault changes the cluster and its rows."""

    def tick(self, model: Model, elapsed_s: float) -> Iterable[Row]:
        """Change the cluster before it makes its rows. Returns: events, made by `event_row`."""

    def row(self, row: Row, elapsed_s: float) -> Iterable[Row]:
        """Change a row. Returns: the rows to write instead of it."""


def rows(setup: Setup, hook: Hook | None = None) -> Iterator[Row]:
    """Yield all rows of a setup's time: interval by interval, and in each one node by node."""
    model = Model(setup)
    interval_ms = round(setup.interval_s * 1000)
    for tick in range(setup.ticks):
        elapsed_s = tick * setup.interval_s
        base_ms = setup.start_s * 1000 + tick * interval_ms
        model.now_s = base_ms / 1000
        made: list[Row] = []
        if hook is not None:
            made.extend(hook.tick(model, elapsed_s))
        model.advance(interval_ms)
        of_node, links = model.queues_by_node(), _links_by_node(model)
        members = [node.name for node in model.nodes.values() if node.is_up]
        for node in model.nodes.values():
            if node.is_up:
                own = _Own(of_node[node.name], links.get(node.name, []), members)
                made.extend(_rows_of_node(model, node, own, base_ms + node.phase_ms, tick))
        if elapsed_s % TOPOLOGY_EVERY_S < setup.interval_s:
            made.extend(topology_rows(model, base_ms))
        if hook is None:
            yield from made
        else:
            for row in made:
                yield from hook.row(row, elapsed_s)


class _Own(NamedTuple):
    """The subjects of a node's rows.   queues: with their numbers.   members: the nodes that are up."""

    queues: list[tuple[int, QueueState]]
    links: list[LinkState]
    members: list[str]


def _links_by_node(model: Model) -> dict[str, list[LinkState]]:
    found: dict[str, list[LinkState]] = {}
    for link in model.links:
        found.setdefault(link.from_node, []).append(link)
    return found


def _rows_of_node(model: Model, node: NodeState, own: _Own, ts: int, tick: int) -> Iterator[Row]:
    """Yield the rows of one node in one interval."""
    setup = model.setup
    interval_ms = round(setup.interval_s * 1000)
    yield _node_row(model, node, own, ts, interval_ms)
    every = max(1, round(IDLE_EVERY_S / setup.interval_s))
    for index, queue in own.queues:
        if not queue.is_idle:
            yield _queue_row(model, node, queue, ts, interval_ms)
        elif (tick + index) % every == 0:
            yield _queue_row(model, node, queue, ts, every * interval_ms)
    for link in own.links:
        yield _link_row(model, node, link, ts, interval_ms)


def envelope(model: Model, node: NodeState, kind: Kind, ts: int, interval_ms: int | None) -> Row:
    """Return the envelope, with which each row begins, and count the row."""
    seq = node.seqs.get(kind, 0)
    node.seqs[kind] = seq + 1
    mono_ms = ts - node.boot_ms
    alone = len(model.nodes) < 2
    return {
        "v": VERSION,
        "kind": kind,
        "cluster": model.setup.cluster,
        "node": node.name,
        "boot_id": node.boot_id,
        "seq": seq,
        "ts": ts + node.skew_ms,
        "mono_ms": mono_ms,
        "skew_ms": None if alone else node.skew_ms,
        "skew_err_ms": None if alone else 2,
        "interval_ms": None if interval_ms is None or mono_ms < interval_ms else interval_ms,
    }


def event_row(model: Model, node: str, event: str, ts: int, **fields: Any) -> Row:
    """Return a row of the kind event."""
    return {
        **envelope(model, model.nodes[node], "event", ts, None),
        "event_id": f"{model.random.getrandbits(64):016x}",
        "event": event,
        **fields,
    }


def _whole(counters: dict[str, float]) -> Row:
    return {name: int(value) for name, value in counters.items()}


def _node_row(model: Model, node: NodeState, own: _Own, ts: int, interval_ms: int) -> Row:
    masters = sum(queue.master == node.name for _, queue in own.queues)
    in_queues = sum(200_000 + queue.bytes for _, queue in own.queues)
    noise = model.random.uniform(-1.0, 1.0)
    return {
        **envelope(model, node, "node", ts, interval_ms),
        "fd_used": round(node.fd_used + 3 * noise),
        "fd_limit": 65536,
        "sock_used": node.conns + len(own.members) - 1,
        "sock_limit": 58000,
        "mem_rss": round(node.mem_base + in_queues + 2e6 * noise),
        "mem_limit": node.mem_limit,
        "mem_by": {"queues": in_queues, "connections": node.conns * 60_000},
        "disk_free": round(node.disk_free + 5e6 * noise),
        "disk_limit": 1_000_000_000,
        **_whole({"fsync_count_total": 0.0, **node.counters}),
        "gc_pause_ms_total": round(node.counters.get("gc_pause_ms_total", 0.0), 3),
        "loop_lag_ms_max": round(node.loop_lag_ms * (1.5 + 0.2 * noise), 3),
        "loop_lag_us": list(node.loop_lag),
        "alarms": list(node.alarms),
        "blocked_conns": node.conns if node.alarms else 0,
        "conns": node.conns,
        "channels": node.conns * 2,
        "queues_master": masters,
        "queues_mirror": len(own.queues) - masters,
        "uptime_ms": ts - node.boot_ms,
        "view_id": model.view_id,
        "view_members": list(own.members),
        "zone": node.zone,
        "labels": {},
        "cores": node.cores,
        "capacity_hints": {},
        "maintenance": False,
        "version": "synthetic",
        "segments_dropped_total": 0,
    }


def _queue_row(model: Model, node: NodeState, queue: QueueState, ts: int, interval_ms: int) -> Row:
    """Return the row of a copy; a mirror's has only the columns that every copy has."""
    is_master = node.name == queue.master
    lag = queue.lag_ms + model.random.randrange(0, 3) if node.name in queue.synced and queue.rate else 0
    copy = queue.copies[node.name]
    row = {
        **envelope(model, node, "queue", ts, interval_ms),
        **queue_columns(queue, node),
        "mirror_lag_ops": None if is_master else round(queue.rate * lag / 1000),
        "mirror_lag_ms": None if is_master else lag,
        "mem_bytes": 200_000 + queue.bytes,
        "disk_bytes": queue.bytes,
        "cpu_us_total": int(copy.counters.get("cpu_us_total", 0.0)),
    }
    if is_master:
        row |= {
            **_whole(copy.counters),
            "ready": queue.ready_now,
            "msg_bytes": queue.bytes,
            "head_age_ms": queue.head_age_ms if queue.ready_now else 0,
            "confirm_us": list(copy.confirm),
        }
    return row


def queue_columns(queue: QueueState, node: NodeState) -> Row:
    """Return the columns of a copy's row that stay the same from interval to interval while nothing happens."""
    is_master = node.name == queue.master
    synced = node.name in queue.synced
    progress = 1.0 if synced else queue.progress.get(node.name, 0.0)
    row = {
        "vhost": queue.vhost,
        "queue": queue.name,
        "qid": queue_id(queue.vhost, queue.name),
        "type": "classic",
        "durable": True,
        "exclusive": False,
        "policy": "ha" if queue.want_mirrors else None,
        "want_mirrors": queue.want_mirrors,
        "fixed_nodes": None,
        "role": "master" if is_master else "mirror",
        "master_node": queue.master,
        "epoch": queue.epoch,
        "ring": list(queue.ring),
        "synced": list(queue.synced),
        "heir": queue.heir,
        "ring_pos": queue.ring.index(node.name),
        "ring_size": len(queue.ring),
        "sync_state": "synced" if synced else "syncing" if progress else "unsynced",
        "sync_progress": progress,
    }
    return row | _master_columns(queue) if is_master else row


def _master_columns(queue: QueueState) -> Row:
    return {
        "unacked": queue.unacked,
        "get_total": 0,
        "dead_lettered_total": 0,
        "dead_letters_lost_total": 0,
        "expired_total": 0,
        "dropped_total": 0,
        "consumers": queue.consumers,
        "consumer_util": queue.util if queue.consumers else 0.0,
        "prefetch_sum": None if queue.prefetch is None else queue.prefetch * queue.consumers,
        "head_age_ms": queue.head_age_ms,
        "publishers_on": {} if queue.is_idle else {queue.master: 1},
        "consumers_on": {queue.master: queue.consumers} if queue.consumers else {},
    }


def _link_row(model: Model, node: NodeState, link: LinkState, ts: int, interval_ms: int) -> Row:
    return {
        **envelope(model, node, "link", ts, interval_ms),
        "from_node": link.from_node,
        "to_node": link.to_node,
        "rtt_us": list(link.rtt),
        "batches_total": 0,
        "reconnects_total": 0,
        "backpressure_ms_total": 0,
        **_whole(link.counters),
        "send_q_bytes": link.send_q_bytes,
        "last_error": link.last_error,
    }


def topology_document(model: Model) -> Row:
    """Return the placement as a node writes it, in the format `fluffle-topology/1`."""
    return {
        "format": "fluffle-topology/1",
        "cluster": model.setup.cluster,
        "view_id": model.view_id,
        "nodes": [
            {
                "node": node.name,
                "is_up": node.is_up,
                "is_draining": False,
                "type": "disc",
                "zone": node.zone,
                "labels": {},
            }
            for node in model.nodes.values()
        ],
        "queues": [_placement(queue) for queue in model.queues],
    }


def _placement(queue: QueueState) -> Row:
    return {
        "vhost": queue.vhost,
        "queue": queue.name,
        "uid": queue.uid,
        "type": "classic",
        "epoch": queue.epoch,
        "policy": "ha" if queue.want_mirrors else None,
        "want_mirrors": queue.want_mirrors,
        "fixed_nodes": None,
        "exclusive": False,
        "master": queue.master,
        "ring": list(queue.ring),
        "synced": list(queue.synced),
        "placement": [],
    }


def topology_rows(model: Model, ts: int) -> Iterator[Row]:
    """Yield the rows of a snapshot of the placement, by the first live node. Each part has some of the queues."""
    writer = next((node for node in model.nodes.values() if node.is_up), None)
    if writer is None:
        return
    document = topology_document(model)
    queues = document["queues"]
    parts = max(1, -(-len(queues) // QUEUES_A_PART))
    whole = content_hash(document)
    for part in range(parts):
        some = queues[part * QUEUES_A_PART : (part + 1) * QUEUES_A_PART]
        yield {
            **envelope(model, writer, "topology", ts + writer.phase_ms, None),
            "snapshot": f"{writer.boot_id}-{ts}",
            "part": part,
            "parts": parts,
            "view_id": model.view_id,
            "topology_hash": whole,
            "document": json.dumps({**document, "queues": some}, separators=(",", ":"), ensure_ascii=False),
        }
