"""The evidence of a small window is gathered on the driver from rows that are in memory, without Spark.

It is the evidence of `spark_ops.jobs.evidence`, so that the rules find the same: tests compare the documents. A start
of Spark takes more CPU than all of this, and so does each query that it plans.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from spark_ops.health.facts import (
    Depth,
    EventFact,
    Evidence,
    LinkMinute,
    MemoryGrowth,
    NodeHour,
    NodeMinute,
    QueueGrowth,
    QueueHistory,
    ReplicaMinute,
)
from spark_ops.health.forecast import Growth
from spark_ops.health.rules_confirms import first_minute
from spark_ops.health.settings import Settings
from spark_ops.jobs.evidence import (
    DEPTHS_MAX,
    EVENTS_MAX,
    GROWING_MAX,
    QUEUES_MAX,
    SILENT_MINUTES,
    Intake,
    with_torn,
)
from spark_ops.jobs.small_columns import Floats, Groups, Numbers, are, codes, numbers
from spark_ops.jobs.small_facts import Flat, events_of, in_order, reduced, rows_seen, within
from spark_ops.jobs.small_suspicion import Totals, lines, queue_totals, suspicious_links
from spark_ops.jobs.usual import Usual
from spark_ops.telemetry.schema import HISTOGRAM_BUCKETS, Kind, bucket_limit_us

_LIMITS: Final = tuple(bucket_limit_us(at) for at in range(HISTOGRAM_BUCKETS))


def gather(
    tables: Mapping[Kind, pa.Table],
    cluster: str,
    start: int,
    end: int,
    settings: Settings,
    intake: Intake,
    usual: Callable[[Sequence[tuple[str, str]]], Usual],
) -> Evidence:
    """Gather the evidence of a cluster in the minutes [start, end).

    tables: rows by kind, in any order and with duplicates.   usual: returns the usual figures of given queues.
    """
    kept = {kind: within(table, cluster, start, end) for kind, table in tables.items()}
    flat = reduced("queue", *kept["queue"])
    nodes = _nodes(reduced("node", *kept["node"]))
    events = events_of(kept["event"][0], EVENTS_MAX)
    latest = {node: own[-1] for node, own in nodes.items() if own[-1].minute >= end - 6}
    cores = min([float(fact.cores or 1) for fact in latest.values()] or [1.0])
    usable = min(cores, settings.of("hot-single-queue", "cores_usable"))
    zones = {node: fact.zone for node, fact in latest.items()}
    silent = {node: own[-1].minute for node, own in nodes.items() if own[-1].minute < end - SILENT_MINUTES}
    totals = queue_totals(flat, settings, end, zones, usable, silent)
    since = first_minute(end, round(settings.of("slow-confirms", "minutes")))
    queues, skipped = _queues(flat, totals, events, since)
    known = usual([(each.vhost, each.queue) for each in queues]) if queues else Usual()
    return Evidence(
        cluster,
        start,
        end,
        nodes=nodes,
        queues=queues,
        links=_links(reduced("link", *kept["link"]), settings),
        events=events,
        rows=with_torn(rows_seen({kind: rows for kind, (rows, _) in kept.items()}), intake.torn_rows),
        loads=_loads(flat, start, end),
        memory=memory_growth(flat, (start + end) / 2),
        depths=_depths(flat, totals),
        before=known.sizes,
        confirms_before=known.confirms,
        torn=intake.torn,
        torn_lines=intake.torn_lines,
        late=intake.late,
        duplicates=intake.duplicates,
        unknown_versions=intake.unknown_versions,
        skipped=skipped,
        bucket_limits_us=_LIMITS,
    )


def gather_growth(tables: Mapping[Kind, pa.Table], cluster: str, start: int, end: int) -> Evidence:
    """Gather only the part of the evidence that forecasts need."""
    nodes = _nodes(reduced("node", *within(tables["node"], cluster, start, end)))
    flat = reduced("queue", *within(tables["queue"], cluster, start, end))
    return Evidence(cluster, start, end, nodes=nodes, memory=memory_growth(flat, (start + end) / 2))


def _nodes(flat: Flat) -> dict[str, list[NodeMinute]]:
    found: dict[str, list[NodeMinute]] = defaultdict(list)
    for (node,), fact in flat.facts():
        found[node].append(fact)
    return {node: in_order(found[node]) for node in sorted(found)}


def _links(flat: Flat, settings: Settings) -> dict[tuple[str, str], list[LinkMinute]]:
    found: dict[tuple[str, str], list[LinkMinute]] = defaultdict(list)
    for (one, other), fact in flat.facts():
        found[one, other].append(fact)
    return {name: in_order(found[name]) for name in sorted(suspicious_links(found, settings))}


def _queues(
    flat: Flat, totals: Totals, events: Sequence[EventFact], confirms_since: int
) -> tuple[tuple[QueueHistory, ...], int]:
    """Return the suspicious queues, and the number of those that are left out."""
    told = {(event.vhost, event.queue) for event in events if event.unsynced_promotion}
    is_told = np.array([name in told for name in totals.names], dtype=np.bool_)
    suspicious = np.flatnonzero(totals.is_suspicious | is_told)
    ready = np.where(totals.ready_max.known, totals.ready_max.values, -1)
    used = sorted(suspicious.tolist(), key=lambda at: (-totals.cpu_us[at], -ready[at], totals.names[at]))[
        :QUEUES_MAX
    ]
    some = flat.taken(np.isin(totals.of_fact, used))
    histogram = some.table.column("confirm_us")
    is_read = pa.array(some.minute >= confirms_since)
    # No rule reads the older histograms, and they are large.
    own = pc.if_else(is_read, histogram, pa.scalar(None, histogram.type))
    at = some.table.schema.get_field_index("confirm_us")
    some = Flat(some.kind, some.table.set_column(at, "confirm_us", own), some.minute, some.extremes)
    copies: dict[tuple[str, str], dict[str, list[ReplicaMinute]]] = defaultdict(lambda: defaultdict(list))
    for (node, vhost, queue), fact in some.facts():
        copies[vhost, queue][node].append(fact)
    cpu_us, count = int(totals.cpu_us.sum()), len(totals.names)
    shares = {
        totals.names[at]: int(totals.cpu_us[at]) / cpu_us if cpu_us else 1 / max(1, count) for at in used
    }
    histories = tuple(
        QueueHistory(
            *name, {node: in_order(copies[name][node]) for node in sorted(copies[name])}, shares[name]
        )
        for name in sorted(copies)
    )
    return histories, len(suspicious) - len(histories)


def _depths(flat: Flat, totals: Totals) -> tuple[Depth, ...]:
    """Return the depths of the longest queues."""
    ready_max = totals.ready_max
    longest = sorted(
        np.flatnonzero(ready_max.known).tolist(), key=lambda at: (-ready_max.values[at], totals.names[at])
    )[:DEPTHS_MAX]
    ready = numbers(flat.table, "ready")
    is_own = are(flat.table, "role", "master") & ready.known & np.isin(totals.of_fact, longest)
    points: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for at, minute, count in zip(
        totals.of_fact[is_own].tolist(),
        flat.minute[is_own].tolist(),
        ready.values[is_own].tolist(),
        strict=True,
    ):
        own = points[totals.names[at]]
        own[minute] = max(own.get(minute, 0), count)
    found = [Depth(*name, tuple(sorted(own.items()))) for name, own in points.items()]
    return tuple(
        sorted(found, key=lambda depth: (-max(n for _, n in depth.points), depth.vhost, depth.queue))
    )


def _loads(flat: Flat, start: int, end: int) -> tuple[NodeHour, ...]:
    """Return the CPU time of each node's masters in each hour, counted back from the end."""
    master = flat.taken(are(flat.table, "role", "master"))
    if not len(master.minute):
        return ()
    back = (end - 1 - master.minute) // 60
    process = codes(master.table, ("node", "vhost", "queue", "boot_id"))
    of_hour = process * (int(back.max()) + 1) + back
    order = np.argsort(of_hour, kind="stable")
    groups = Groups(of_hour[order])
    spent = groups.rise(numbers(master.table, "cpu_us_total").take(order))
    firsts = order[groups.starts]
    nodes = master.table.column("node").take(pa.array(firsts)).to_pylist()
    used: dict[tuple[str, int], int] = defaultdict(int)
    for node, hour, cpu_us in zip(nodes, back[firsts].tolist(), spent.tolist(), strict=True):
        used[node, hour] += cpu_us
    found = []
    for (node, hour), cpu_us in sorted(used.items()):
        first = end - 60 * (hour + 1)
        found.append(NodeHour(node, first, cpu_us / 1e6 / (60 * (end - 60 * hour - max(first, start)))))
    return tuple(found)


def memory_growth(flat: Flat, middle: float) -> tuple[MemoryGrowth, ...]:
    """Fit a line to the memory of each copy, and add the slopes and residual variances by node."""
    size = numbers(flat.table, "mem_bytes")
    own = flat.taken(size.known)
    if not len(own.minute):
        return ()
    x: Floats = (own.minute.astype(np.float64) - middle) * 60.0
    y: Floats = size.values[size.known].astype(np.float64)
    _, firsts, of = np.unique(
        codes(own.table, ("node", "vhost", "queue")), return_index=True, return_inverse=True
    )
    of, count = of.reshape(-1), len(firsts)
    whole = lines(of, x, y, count)
    slope = whole.slopes
    left = np.maximum(0.0, whole.syy - slope * whole.sxy)
    variance = np.zeros(count)
    is_line = (whole.n >= 3) & (whole.sxx > 0)
    variance[is_line] = left[is_line] / (whole.n[is_line] - 2) / whole.sxx[is_line]
    order = np.argsort(of, kind="stable")
    span = Groups(of[order]).rise(Numbers(x[order], np.ones(len(x), dtype=np.bool_)))
    halves = []
    for is_half in (x < 0, x >= 0):
        half = lines(of[is_half], x[is_half], y[is_half], count)
        halves.append(np.where(half.n >= 3, half.slopes, 0.0))
    names = own.table.select(["node", "vhost", "queue"]).take(pa.array(firsts)).to_pylist()
    by_node: dict[str, list[int]] = defaultdict(list)
    for at in np.flatnonzero(is_line).tolist():
        by_node[names[at]["node"]].append(at)
    found = []
    for node, lot in sorted(by_node.items()):
        rise, rest = float(slope[lot].sum()), float(left[lot].sum())
        explained = rise * rise * float(whole.sxx[lot].max())
        top = sorted(lot, key=lambda at: (-slope[at], names[at]["vhost"], names[at]["queue"]))[:GROWING_MAX]
        growth = Growth(
            0.0,
            rise,
            float(variance[lot].sum()) ** 0.5,
            explained / (explained + rest) if explained else 0.0,
            float(span[lot].max()),
            halves=(float(halves[0][lot].sum()), float(halves[1][lot].sum())),
        )
        queues = tuple(
            QueueGrowth(names[at]["vhost"], names[at]["queue"], float(slope[at]))
            for at in top
            if slope[at] > 0
        )
        found.append(MemoryGrowth(node, growth, queues))
    return tuple(found)
