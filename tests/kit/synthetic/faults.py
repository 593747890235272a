"""Faults for made-up telemetry: each makes a clean cluster show what one kind of finding looks for, and no more.

    rows_with_fault = inject(Setup(), "hot-node")

Unless a fault says otherwise it concerns the first queue (`/`, `queue-00000`), the node `node2`, or the link from
`node1` to `node2`, and lasts from `at_s` to the end. `HARMLESS` are events that healthy clusters have too.
Source: spark §3.2, §6.18.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from spark_ops.telemetry.schema import HISTOGRAM_BUCKETS
from tests.kit.synthetic.model import Model, QueueState, Setup
from tests.kit.synthetic.telemetry import Row, event_row, rows

NODE: Final = "node2"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    finding: the kind that it has to show; None: it must show nothing.   severity: at least.
    begin: changes the cluster once.   run: changes it before each interval from then on; its arguments are the seconds
    since it began and those of the interval, and it returns events.   rows: changes each row from then on.
    needs: values that the setup must have; `setup_for` sets them.
    """

    finding: str | None
    severity: str = "warn"
    begin: Callable[[Model], None] | None = None
    run: Callable[[Model, float, float], Iterable[tuple[str, str, dict[str, Any]]]] | None = None
    rows: Callable[[Row, float], Iterable[Row]] | None = None
    needs: dict[str, Any] = field(default_factory=dict)


class _Injector:
    """The hook that brings a fault into `telemetry.rows` from `at_s` seconds on."""

    def __init__(self, fault: Fault, at_s: float) -> None:
        self.fault = fault
        self.at_s = at_s
        self.has_begun = False

    def tick(self, model: Model, elapsed_s: float) -> Iterable[Row]:
        if elapsed_s < self.at_s:
            return
        if not self.has_begun:
            self.has_begun = True
            if self.fault.begin is not None:
                self.fault.begin(model)
        if self.fault.run is None:
            return
        ts = round((model.setup.start_s + elapsed_s) * 1000)
        for node, event, fields in self.fault.run(model, elapsed_s - self.at_s, model.setup.interval_s):
            yield event_row(model, node, event, ts, **fields)

    def row(self, row: Row, elapsed_s: float) -> Iterable[Row]:
        if self.fault.rows is None or elapsed_s < self.at_s:
            return (row,)
        return self.fault.rows(row, elapsed_s - self.at_s)


def setup_for(setup: Setup, name: str) -> Setup:
    """Return the setup, changed where the fault requires it. Raises: KeyError if there is no such fault."""
    needs = dict(FAULTS[name].needs)
    if "hours" in needs:
        needs["hours"] = max(needs["hours"], setup.hours)
    return replace(setup, **needs)


def inject(setup: Setup, name: str, *, at_s: float = 600.0) -> Iterator[Row]:
    """Yield all rows of a time in which a fault begins after `at_s` seconds; the setup is that of `setup_for`.

    Raises: KeyError if there is no such fault.
    """
    return rows(setup_for(setup, name), _Injector(FAULTS[name], at_s))


def drop(source: Iterable[Row], share: float, seed: int = 0) -> Iterator[Row]:
    """Return the rows without a random share of them."""
    random = Random(seed)
    return (row for row in source if random.random() >= share)


def duplicate(source: Iterable[Row], share: float, seed: int = 0) -> Iterator[Row]:
    """Yield the rows, a random share of them twice."""
    random = Random(seed)
    for row in source:
        yield row
        if random.random() < share:
            yield dict(row)


def shuffle(source: Iterable[Row], seed: int = 0) -> list[Row]:
    """Return all rows in a random order."""
    found = list(source)
    Random(seed).shuffle(found)
    return found


def _queue(change: Callable[[QueueState], None]) -> Callable[[Model], None]:
    return lambda model: change(model.queues[0])


def _node(**values: Any) -> Callable[[Model], None]:
    def begin(model: Model) -> None:
        for name, value in values.items():
            setattr(model.nodes[NODE], name, value)

    return begin


def _set(**values: Any) -> Callable[[Model], None]:
    def begin(model: Model) -> None:
        for name, value in values.items():
            setattr(model.queues[0], name, value)

    return begin


def _lose_mirrors(count: int | None) -> Callable[[Model], None]:
    """Return a change that removes so many mirrors of the first queue; None: all of them."""

    def change(queue: QueueState) -> None:
        stay = 1 if count is None else len(queue.ring) - count
        del queue.ring[stay:]
        queue.synced = list(queue.ring)

    return _queue(change)


def _unsynchronise(queue: QueueState) -> None:
    queue.synced.remove(queue.ring[-1])


def _one_zone(model: Model) -> None:
    """Move all copies of the first queue to nodes of its master's zone."""
    queue = model.queues[0]
    zone = model.nodes[queue.master].zone
    queue.ring = [node.name for node in model.nodes.values() if node.zone == zone][: len(queue.ring)]
    queue.synced = list(queue.ring)


def _all_masters_to_first(model: Model) -> None:
    first = next(iter(model.nodes))
    for queue in model.queues:
        if first in queue.synced and queue.master != first:
            model.promote(queue, first)


def _grow(bytes_per_s: float | None, messages_per_s: float = 0.0) -> Any:
    def run(model: Model, _since_s: float, interval_s: float) -> Iterable[Any]:
        queue = model.queues[0]
        per_s = messages_per_s if bytes_per_s is None else bytes_per_s / queue.size
        queue.ready += per_s * interval_s
        return ()

    return run


def _age(model: Model, since_s: float, _interval_s: float) -> Iterable[Any]:
    model.queues[0].head_age_ms = round(since_s * 1000)
    return ()


def _shrink_disk(model: Model, _since_s: float, interval_s: float) -> Iterable[Any]:
    model.nodes[NODE].disk_free -= 5e6 * interval_s
    return ()


def _is_time(since_s: float, interval_s: float, every_s: float) -> bool:
    return since_s % every_s < interval_s


def _reconnect(model: Model, since_s: float, interval_s: float) -> Iterable[Any]:
    if _is_time(since_s, interval_s, 120):
        counters = model.links[0].counters
        counters["reconnects_total"] = counters.get("reconnects_total", 0.0) + 1
        model.links[0].last_error = "connection reset"
    return ()


def _promotions(event: str, cause: str, every_s: float) -> Any:
    """Return a fault in which the first queue's master moves to its heir every `every_s` seconds."""

    def run(model: Model, since_s: float, interval_s: float) -> Iterator[tuple[str, str, dict[str, Any]]]:
        queue = model.queues[0]
        heir = queue.heir
        if heir is None or not _is_time(since_s, interval_s, every_s):
            return
        before, old = queue.epoch, queue.master
        model.promote(queue, heir)
        subject = {"vhost": queue.vhost, "queue": queue.name, "from_node": old, "to_node": heir}
        epochs = {"epoch_before": before, "epoch_after": queue.epoch}
        yield heir, event, {**subject, **epochs, "cause": cause, "unsynced_promotion": False}

    return run


def _view_changes(
    model: Model, since_s: float, interval_s: float
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if _is_time(since_s, interval_s, 240):
        model.view_id += 1
        yield "node1", "view_change", {"cause": "crash", "detail": {"view": str(model.view_id)}}


def _promote_unsynced(
    model: Model, since_s: float, _interval_s: float
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if since_s:
        return
    queue = model.queues[0]
    old, to = queue.master, queue.ring[-1]
    model.promote(queue, to)
    subject = {"vhost": queue.vhost, "queue": queue.name, "from_node": old, "to_node": to}
    epochs = {"epoch_before": queue.epoch - 1, "epoch_after": queue.epoch}
    yield to, "failover", {**subject, **epochs, "cause": "crash", "unsynced_promotion": True}


def _restart(model: Model, since_s: float, _interval_s: float) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if not since_s:
        yield NODE, "node_start", {"cause": "operator"}


def _restart_now(model: Model) -> None:
    """Restart the node, one second before its next row."""
    node = model.nodes[NODE]
    model.restart(NODE, round(model.now_s * 1000) + node.phase_ms - 1000)


def _gap(row: Row, since_s: float) -> Iterable[Row]:
    return () if row["node"] == NODE and since_s < 180 else (row,)


def _second_process(row: Row, _since_s: float) -> Iterator[Row]:
    yield row
    if row["kind"] == "node" and row["node"] == NODE:
        other = "ffffffff" + row["boot_id"][8:]
        yield row | {"boot_id": other, "queues_master": 0, "queues_mirror": 0}


def _silence(_row: Row, _since_s: float) -> Iterable[Row]:
    return ()


def _lose_node(model: Model) -> None:
    """Take the node away: its masters are promoted elsewhere, and its copies leave their rings."""
    model.nodes[NODE].is_up = False
    model.view_id += 1
    for queue in model.queues:
        if queue.master == NODE and queue.heir is not None:
            model.promote(queue, queue.heir)
        queue.ring = [node for node in queue.ring if node != NODE]
        queue.synced = [node for node in queue.synced if node != NODE]


def _suspect(_model: Model, since_s: float, _interval_s: float) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if not since_s:
        yield "node1", "partition_suspected", {"to_node": NODE}


def _block(row: Row, _since_s: float) -> Iterator[Row]:
    yield row | {"blocked_conns": row["conns"]} if row["kind"] == "node" else row


def _demote(row: Row, _since_s: float) -> Iterator[Row]:
    """Make the first queue's master a mirror, so that the queue has no master."""
    is_it = row["kind"] == "queue" and row["queue"] == "queue-00000"
    yield row | {"role": "mirror", "master_node": None, "ready": None, "msg_bytes": None} if is_it else row


def _node_rows(change: Callable[[Row, float], Row]) -> Callable[[Row, float], Iterable[Row]]:
    """Return a change of the node's own rows.   change: takes a row and the seconds since the fault began."""

    def changed(row: Row, since_s: float) -> Iterator[Row]:
        yield row | change(row, since_s) if row["kind"] == "node" and row["node"] == NODE else row

    return changed


def _drop_messages(row: Row, since_s: float) -> Iterator[Row]:
    is_it = row["kind"] == "queue" and row["queue"] == "queue-00000" and row["role"] == "master"
    yield row | {"dropped_total": round(300 * since_s)} if is_it else row


def _lose_dead_letters(row: Row, since_s: float) -> Iterator[Row]:
    """Let the first queue's dead letters go to an exchange that no queue is bound to, one a second."""
    is_it = row["kind"] == "queue" and row["queue"] == "queue-00000" and row["role"] == "master"
    lost = round(since_s)
    counted = {"dead_lettered_total": lost, "dead_letters_lost_total": lost}
    yield row | counted | {"dead_letters_lost_by": {"no-route": lost} if lost else None} if is_it else row


def _all_idle_masters_to_first(model: Model) -> None:
    _all_masters_to_first(model)
    for queue in model.queues:
        queue.rate = 0.0


def _slow_link(model: Model) -> None:
    model.links[0].centre = min(model.links[0].centre + 9, HISTOGRAM_BUCKETS - 3)


FAULTS: Final[dict[str, Fault]] = {
    "cluster-down": Fault("cluster-down", "crit", rows=_silence),
    "node-down": Fault("node-down", begin=_lose_node),
    "partition": Fault("partition", "crit", run=_suspect),
    "alarm": Fault("alarm-active", "crit", begin=_node(alarms=["memory"])),
    "publishers-blocked": Fault("publishers-blocked", "crit", rows=_block),
    "queue-without-master": Fault("queue-without-master", "crit", rows=_demote),
    "under-replicated": Fault("under-replicated", begin=_lose_mirrors(1)),
    "under-replicated-alone": Fault("under-replicated", "crit", begin=_lose_mirrors(None)),
    "unsynced-mirror": Fault("unsynced-mirror", begin=_queue(_unsynchronise)),
    "unsynced-only-mirror": Fault(
        "unsynced-mirror", "crit", begin=_queue(_unsynchronise), needs={"replicas": 2}
    ),
    "single-zone": Fault(
        "single-zone", begin=_one_zone, needs={"nodes": 4, "zones": 2, "replicas": 2, "queues": 12}
    ),
    "mirror-lagging": Fault("mirror-lagging", begin=_set(lag_ms=1800)),
    "master-imbalance": Fault("master-imbalance", begin=_all_masters_to_first, needs={"hours": 4.5}),
    "all-masters-on-one": Fault("master-imbalance", begin=_all_idle_masters_to_first),
    "hot-node": Fault("hot-node", begin=_node(base_cpu=0.59, loop_lag_ms=400.0)),
    "loop-held": Fault("hot-node", rows=_node_rows(lambda _row, _since_s: {"loop_lag_ms_max": 1500.0})),
    "host-without-cpu": Fault(
        "host-without-cpu", rows=_node_rows(lambda _row, since_s: {"cpu_wait_us_total": round(6e5 * since_s)})
    ),
    "slow-syncs": Fault(
        "slow-syncs",
        rows=_node_rows(
            lambda row, since_s: {"fsync_us_total": row["fsync_us_total"] + round(5e6 * since_s)}
        ),
    ),
    "slow-confirms": Fault("slow-confirms", begin=_set(confirm_centre=25)),
    "confirms-stand-still": Fault("slow-confirms", "crit", begin=_set(confirm_centre=28)),
    "messages-dropped": Fault("messages-dropped", rows=_drop_messages),
    "dead-letters-lost": Fault("dead-letters-lost", rows=_lose_dead_letters),
    "runaway-queue": Fault("runaway-queue", run=_grow(1e6 / 60), begin=_set(ready_noise=2.0)),
    "consumer-starvation": Fault(
        "consumer-starvation",
        begin=_set(consumers=0, rate=0.0, ready=500.0, ready_noise=0.0, unacked=0),
        run=_age,
    ),
    "consumer-bound": Fault(
        "consumer-starvation",
        begin=_set(util=0.1, size=200, ready_noise=2.0),
        run=_grow(None, messages_per_s=0.5),
    ),
    "old-messages": Fault("consumer-starvation", begin=_set(head_age_ms=7_200_000, ready=50.0)),
    "unacked-stuck": Fault(
        "unacked-stuck", begin=_set(acks=False, rate=0.0, unacked=400, util=0.0, ready=20.0, ready_noise=0.0)
    ),
    "redelivery-loop": Fault("redelivery-loop", begin=_set(redeliver_share=0.5)),
    "flapping-link": Fault("flapping-link", run=_reconnect),
    "slow-link": Fault("flapping-link", begin=_slow_link),
    "unstable-failover": Fault("unstable-failover", run=_promotions("failover", "crash", 900)),
    "view-changes": Fault("unstable-failover", run=_view_changes),
    "unsynced-promotion": Fault("unsynced-promotion", "crit", run=_promote_unsynced),
    "fd-near-limit": Fault("resource-near-limit", begin=_node(fd_used=0.85 * 65536)),
    "memory-near-limit": Fault("resource-near-limit", begin=_node(mem_base=0.85 * 4e9)),
    "disk-shrinking": Fault("resource-near-limit", run=_shrink_disk),
    "conn-churn": Fault("conn-churn", begin=_node(churn_per_s=6.0)),
    "clock-skew": Fault("clock-skew", begin=_node(skew_ms=5000)),
    "telemetry-gap": Fault("telemetry-gap", rows=_gap),
    "duplicate-node-id": Fault("duplicate-node-id", rows=_second_process),
    "hot-single-queue": Fault("hot-single-queue", begin=_set(rate=6500.0), needs={"nodes": 3, "queues": 3}),
    "node-restart": Fault(None, begin=_restart_now, run=_restart),
    "planned-moves": Fault(None, run=_promotions("promotion", "plan:sha256-0:s1", 600)),
}
"""All faults by name. Torn files are made by `files.tear`."""

HARMLESS: Final = tuple(name for name, fault in FAULTS.items() if fault.finding is None)
