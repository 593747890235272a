"""This module computes the planner's input: the newest topology of a cluster, and the loads from a window of rollups.

A load is the greater of an exponentially weighted mean (the half-life of a value is about four hours) and the 95th
percentile of hourly means, so that a nightly peak counts. Sums are of integers and results are rounded, so that the
plan does not depend on how the telemetry was partitioned.
Source: spark §3.1, §6.8.
"""

import math
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_ops.jobs.damaged_files import without_damaged
from spark_ops.jobs.reading import read
from spark_ops.jobs.rollup import added
from spark_ops.jobs.rollup_store import Hours, hours
from spark_ops.jobs.topology_snapshots import Snapshot, latest
from spark_ops.planning.rows import ClusterRows, NodeRow, QueueRow
from spark_ops.planning.topology import rows_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TAU_S: Final = 6 * 3600
"""The time constant of the weighted mean in seconds: a value of this age has the weight 1/e."""
SHARE: Final = 0.95
CPU_DIGITS: Final = 4
"""The number of decimals to which cores are rounded; bytes are rounded to integers."""
FRESH_MS: Final = 600_000
"""A mirror's lag is used only if its row is at most this old, in ms."""
MOVES_S: Final = 86_400
"""The time before the window's end in which moves by plans are looked up, in seconds."""

_STATE: Final = ("publishers_on", "consumers_on", "msg_bytes")
"""The fields of a queue's last row that the driver needs. The whole row has a histogram, too."""
_WEIGHT: Final = 10_000
_GREATEST: Final = 10**13
"""Greater values are reduced to this one, so that weighted sums over a week fit into 64 bits."""


def cluster_rows(
    spark: "SparkSession",
    root: str | Path,
    *,
    since: float,
    until: float,
    now: float,
    cluster: str | None = None,
) -> ClusterRows:
    """Return a cluster with the loads of [since, until).   since, until, now: s since 1970; now: the plan's time.

    Coverage is the share of the time and of the copies for which there is telemetry. If the cluster's telemetry begins
    later than `since`, the time before it is ignored. Raises: FileNotFoundError, TopologyMissing, and TopologyError of
    `spark_ops.planning.topology`.
    """
    root = Path(root).absolute()
    return without_damaged(
        root,
        ("queue", "node", "event"),
        min(since, until - MOVES_S),
        until,
        lambda: _cluster_rows(spark, root, since=since, until=until, now=now, cluster=cluster),
    )


def _cluster_rows(
    spark: "SparkSession", root: Path, *, since: float, until: float, now: float, cluster: str | None
) -> ClusterRows:
    snapshot = latest(root, cluster=cluster, until=max(now, until))
    placed = rows_of(snapshot.document, now=now)
    queue_hours = _only(hours(spark, root, "queue", since=since, until=until), snapshot.cluster)
    node_hours = _only(hours(spark, root, "node", since=since, until=until), snapshot.cluster)
    moved = _moves(spark, root, snapshot.cluster, until)
    by_name = {(row.vhost, row.queue): row for row in placed.queues}
    loaded: dict[tuple[str, str], QueueRow] = {}
    seen: dict[tuple[str, str], tuple[str, ...]] = {}
    # Each load becomes a row at once: those of a million queues would take gigabytes as they come.
    for load in _rows(_queue_loads(queue_hours.frame, until)):
        name = (load["vhost"], load["queue"])
        if name in by_name:
            loaded[name] = _with_loads(by_name[name], load, moved.get(name, 0.0))
            seen[name] = tuple(sys.intern(node) for node in load["seen"])
    nodes = {row["node"]: row for row in _rows(_node_loads(node_hours.frame, queue_hours.frame, until))}
    begin = min((row["first_ts"] / 1000 for row in nodes.values()), default=until)
    window = (min(max(since, begin), until), until)
    return replace(
        placed,
        window=window,
        coverage=_coverage(placed, seen, nodes, window),
        nodes=tuple(_with_base(row, nodes.get(row.node)) for row in placed.nodes),
        queues=tuple(
            loaded.get(name) or replace(row, moved_at=moved.get(name, 0.0)) for name, row in by_name.items()
        ),
        facts={
            **placed.facts,
            **_facts(snapshot, queue_hours, node_hours),
            "cpu_known": _cpu_known(nodes.values()),
            "rows_at": _rows_at(placed, nodes),
        },
    )


def _only(rolled: Hours, cluster: str) -> Hours:
    from pyspark.sql import functions as F

    return replace(rolled, frame=rolled.frame.where(F.col("cluster") == cluster))


def _facts(snapshot: Snapshot, *rolled: Hours) -> dict[str, Any]:
    """Return facts about the sources of the figures, which the plan records."""
    return {
        "topology_at": snapshot.ts / 1000,
        "topologies_passed": snapshot.passed,
        "torn": sorted({name for each in rolled for name in each.torn}),
        "unknown_versions": sum(each.unknown_versions for each in rolled),
    }


def _cpu_known(nodes: Collection[dict[str, Any]]) -> float | None:
    """Return the share of the nodes' CPU time that is known to be for queues and their clients; None: it is unknown.

    The remainder is the nodes' own: timers, heartbeats, metadata, management.
    """
    whole = sum(node["cpu"] or 0.0 for node in nodes)
    if not whole or any(node["clients_cpu"] is None for node in nodes):
        return None
    own = sum(max(0.0, (node["base_cpu"] or 0.0) - node["clients_cpu"]) for node in nodes)
    return float(round(1.0 - own / whole, 3))


def _rows_at(placed: ClusterRows, nodes: dict[str, dict[str, Any]]) -> float | None:
    """Return the time of the newest row of the node that is up and has been silent for the longest time, s since 1970.

    A node without any row counts in the coverage alone. Times are those of the nodes' clocks.
    """
    known = [nodes[row.node]["last_ts"] / 1000 for row in placed.nodes if row.is_up and row.node in nodes]
    return min(known, default=None)


# --- queues ---


def _queue_loads(frame: "DataFrame", until: float) -> "DataFrame":
    """Return one row for each queue: the load of its master and that of its busiest mirror."""
    from pyspark.sql import functions as F

    is_master = F.col("role") == "master"
    by_hour = frame.groupBy("vhost", "queue", "role", "hour").agg(
        F.sum(added("mono_ms")).alias("ms"),
        F.sum(_cpu_us()).alias("cpu_us"),
        *(F.sum(added(name)).alias(name) for name in ("pub_bytes_total", "dlv_bytes_total")),
        *(F.sum(f"{name}_fit.y").alias(f"{name}_y") for name in ("mem_bytes", "disk_bytes")),
        *(F.sum(f"{name}_fit.n").alias(f"{name}_n") for name in ("mem_bytes", "disk_bytes")),
    )
    values = {
        "cpu": _rate("cpu_us"),
        "in_bytes": _rate("pub_bytes_total"),
        "out_bytes": _rate("dlv_bytes_total"),
        "memory": F.try_divide(F.col("mem_bytes_y").cast("double"), F.col("mem_bytes_n").cast("double")),
        "disk": F.try_divide(F.col("disk_bytes_y").cast("double"), F.col("disk_bytes_n").cast("double")),
    }
    loads = _estimates(by_hour, ("vhost", "queue", "role"), values, until)
    per_queue = loads.groupBy("vhost", "queue").agg(
        *(F.max(F.when(is_master, F.col(name))).alias(name) for name in ("cpu", "in_bytes", "out_bytes")),
        F.max(F.when(is_master, F.col("cpu_p95"))).alias("cpu_p95"),
        F.max(F.when(~is_master, F.col("cpu"))).alias("mirror_cpu"),
        *(F.max(name).alias(name) for name in ("memory", "disk")),
    )
    return per_queue.join(_latest(frame, until), ["vhost", "queue"])


def _cpu_us() -> "Column":
    """Return the CPU time that a copy took of the broker's thread and of the disk's, which older nodes did not tell.

    What this node's clients of the queue took is left out: it stays here when the master moves.
    """
    from pyspark.sql import functions as F

    return added("cpu_us_total") + F.coalesce(added("disk_us_total"), F.lit(0))


def _latest(frame: "DataFrame", until: float) -> "DataFrame":
    """Return each queue's last state from its master.   lag: maximum of its mirrors.   seen: nodes with a row of it."""
    from pyspark.sql import functions as F

    is_master = F.col("role") == "master"
    lag = (F.col("role") == "mirror") & (F.col("last.sync_state") == "synced")
    lag &= F.col("last_ts") >= F.lit(round(until * 1000) - FRESH_MS)
    state = F.struct(*(F.col(f"last.{name}").alias(name) for name in _STATE))
    newest = F.max_by(state, F.when(is_master, F.struct("last_ts", "node")))
    return frame.groupBy("vhost", "queue").agg(
        newest.alias("now"),
        F.max(F.when(lag, F.col("last.mirror_lag_ops"))).alias("lag"),
        F.collect_set("node").alias("seen"),
    )


def _rate(counter: str) -> "Column":
    """Return a counter's rise per second; null if no time passed."""
    from pyspark.sql import functions as F

    return F.try_divide(F.col(counter).cast("double") * 1000.0, F.col("ms").cast("double"))


def _estimates(
    by_hour: "DataFrame", subject: Sequence[str], values: "dict[str, Column]", until: float
) -> "DataFrame":
    """Return the load from each value's hours, and its percentile as `_p95`; sums are of integers."""
    from pyspark.sql import functions as F

    age_s = F.greatest(F.lit(float(until)) - F.col("hour") - F.lit(1800.0), F.lit(0.0))
    weight = F.round(F.exp(-age_s / TAU_S) * _WEIGHT).cast("bigint")
    whole = by_hour.select(
        *subject,
        # The weight is at least 1, so that a queue that was last seen a week ago has a load.
        F.greatest(weight, F.lit(1)).alias("weight"),
        *(
            F.when(value.isNotNull(), F.least(F.round(value), F.lit(_GREATEST)).cast("bigint")).alias(name)
            for name, value in values.items()
        ),
    )
    made = []
    for name in values:
        weights = F.sum(F.when(F.col(name).isNotNull(), F.col("weight")))
        forgetting = F.try_divide(F.sum(F.col(name) * F.col("weight")).cast("double"), weights.cast("double"))
        high = F.percentile(name, F.lit(SHARE))
        made += [F.greatest(forgetting, high).alias(name), high.alias(f"{name}_p95")]
    return whole.groupBy(*subject).agg(*made)


def _with_loads(row: QueueRow, load: dict[str, Any], moved_at: float) -> QueueRow:
    now = load["now"] or {}
    clients: dict[str, int] = {}
    for side in ("publishers_on", "consumers_on"):
        for node, count in now.get(side) or ():
            clients[node] = clients.get(node, 0) + count
    size = now.get("msg_bytes")
    return replace(
        row,
        cpu=_cores(load["cpu"]),
        cpu_p95=_cores(load["cpu_p95"]),
        mirror_cpu=_cores(load["mirror_cpu"]),
        in_bytes=_whole(load["in_bytes"]),
        out_bytes=_whole(load["out_bytes"]),
        memory=_whole(load["memory"]),
        disk=_whole(load["disk"]),
        size=_whole(size if size is not None else load["disk"]),
        lag=load["lag"] or 0,
        clients=dict(sorted(clients.items())),
        moved_at=moved_at,
    )


# --- nodes ---


def _node_loads(nodes: "DataFrame", queues: "DataFrame", until: float) -> "DataFrame":
    """Return one row for each node: its capacities, and its base load, which is not caused by queues."""
    from pyspark.sql import functions as F

    busy_us = (added("cpu_user_ms_total") + added("cpu_sys_ms_total")) * 1000
    own = nodes.groupBy("node", "hour").agg(
        F.sum(added("mono_ms")).alias("ms"),
        F.sum(busy_us).alias("cpu_us"),
        F.sum(added("clients_us_total")).alias("clients_us"),
        F.sum("mem_rss_fit.y").alias("mem_y"),
        F.sum("mem_rss_fit.n").alias("mem_n"),
        F.sum("fd_used_fit.y").alias("fd_y"),
        F.sum("fd_used_fit.n").alias("fd_n"),
    )
    per_queue = queues.groupBy("node", "hour", "vhost", "queue").agg(
        F.sum(added("mono_ms")).alias("ms"),
        F.sum(_cpu_us()).alias("cpu_us"),
        F.sum("mem_bytes_fit.y").alias("mem_y"),
        F.sum("mem_bytes_fit.n").alias("mem_n"),
    )
    of_queues = (
        per_queue.select(
            "node",
            "hour",
            F.round(_rate("cpu_us")).cast("bigint").alias("cpu"),
            F.round(_quotient("mem_y", "mem_n")).cast("bigint").alias("memory"),
        )
        .groupBy("node", "hour")
        .agg(F.sum("cpu").alias("queues_cpu"), F.sum("memory").alias("queues_memory"))
    )
    values = {
        "base_cpu": _rest(_rate("cpu_us"), "queues_cpu"),
        "cpu": _rate("cpu_us"),
        "clients_cpu": _rate("clients_us"),
        "base_memory": _rest(_quotient("mem_y", "mem_n"), "queues_memory"),
        "base_fds": _quotient("fd_y", "fd_n"),
    }
    loads = _estimates(own.join(of_queues, ["node", "hour"], "left"), ("node",), values, until)
    seen = nodes.groupBy("node").agg(
        F.min("first_ts").alias("first_ts"),
        F.max("last_ts").alias("last_ts"),
        F.sum("covered_ms").alias("covered_ms"),
        F.max_by("last", "last_ts").alias("now"),
    )
    disk = queues.groupBy("vhost", "queue", "node").agg(
        F.max_by(F.col("last.disk_bytes"), F.col("last_ts")).alias("disk")
    )
    disk = disk.groupBy("node").agg(F.sum("disk").alias("queues_disk"))
    return seen.join(loads, "node").join(disk, "node", "left")


def _quotient(sum_: str, count: str) -> "Column":
    from pyspark.sql import functions as F

    return F.try_divide(F.col(sum_).cast("double"), F.col(count).cast("double"))


def _rest(whole: "Column", queues: str) -> "Column":
    """Return a node's figure minus that of its queues; at least 0, since the two are sampled at different times."""
    from pyspark.sql import functions as F

    rest = whole - F.coalesce(F.col(queues), F.lit(0))
    return F.when(rest.isNotNull(), F.greatest(rest, F.lit(0.0)))


def _with_base(row: NodeRow, load: dict[str, Any] | None) -> NodeRow:
    if load is None:
        return row
    now = load["now"]
    hints = dict(now["capacity_hints"] or ())
    free = (now["disk_free"] or 0) - (now["disk_limit"] or 0)
    return replace(
        row,
        cores=hints.get("cpu_millicores", 1000)
        / 1000,  # a broker is one event loop, so it uses at most one core
        memory=_whole(now["mem_limit"]),
        disk=max(0.0, _whole(free + (load["queues_disk"] or 0))),
        fds=_whole(now["fd_limit"]),
        base_cpu=_cores(load["base_cpu"]),
        base_memory=_whole(load["base_memory"]),
        base_fds=_whole(load["base_fds"]),
    )


# --- the rest ---


def _moves(spark: "SparkSession", root: Path, cluster: str, until: float) -> dict[tuple[str, str], float]:
    """Return the time at which a plan last moved each queue, s since 1970, by vhost and queue."""
    from pyspark.sql import functions as F

    events = read(spark, root, "event", since=until - MOVES_S, until=until).frame
    planned = events.where(F.col("cause").startswith("plan:") & (F.col("cluster") == cluster))
    made = planned.where(F.col("event").isin("promotion", "plan_step_done") & F.col("queue").isNotNull())
    rows = made.groupBy("vhost", "queue").agg(F.max("ts").alias("ts")).collect()
    return {(row.vhost, row.queue): row.ts / 1000 for row in rows}


def _coverage(
    placed: ClusterRows,
    seen_on: dict[tuple[str, str], tuple[str, ...]],
    nodes: dict[str, dict[str, Any]],
    window: tuple[float, float],
) -> float:
    """Return the share of the time with rows of live nodes, times the share of their copies with rows.

    seen_on: the nodes with rows of each queue.
    """
    up = {row.node for row in placed.nodes if row.is_up}
    length_ms = (window[1] - window[0]) * 1000
    if not up or length_ms <= 0:
        return 0.0
    told = sum(min(1.0, nodes[node]["covered_ms"] / length_ms) for node in sorted(up & nodes.keys())) / len(
        up
    )
    copies = {(row.vhost, row.queue): up & set(row.ring) for row in placed.queues}
    wanted = sum(len(ring) for ring in copies.values())
    seen = sum(len(ring.intersection(seen_on[queue])) for queue, ring in copies.items() if queue in seen_on)
    share: float = told * (seen / wanted if wanted else 1.0)
    return math.floor(share * 10_000) / 10_000


def _rows(frame: "DataFrame") -> Iterator[dict[str, Any]]:
    """Yield the rows of a result by Arrow: a million rows take seconds, not minutes. Maps become lists of pairs."""
    for batch in frame.toArrow().to_batches():
        yield from batch.to_pylist()


def _cores(us_per_s: float | None) -> float:
    return round((us_per_s or 0.0) / 1e6, CPU_DIGITS)


def _whole(value: float | None) -> float:
    return float(round(value or 0.0))
