"""The planner's input is computed on the driver from rollups, hour by hour as columns, without Spark.

The figures are those of `spark_ops.jobs.loads`, which lets Spark compute them; tests compare the two. A rollup has a
row for each copy and hour: for Spark that is many small groups, which it shuffles four times. Here an hour is in memory
at a time, and of the hours before only sums (`queue_hours`). So a day of a million queues takes some gigabytes.

Left to Spark is a window with an hour without rollup that has more than `RAW_ROWS_MAX` raw rows, and one with a file
that cannot be read and is not damaged.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from spark_ops.jobs.damaged_files import TRIES, damaged_of
from spark_ops.jobs.files import HourFiles, find
from spark_ops.jobs.loads import FRESH_MS, MOVES_S, source_facts
from spark_ops.jobs.node_hours import NodeHour, node_loads, raw_nodes, rollup_nodes
from spark_ops.jobs.node_load import NodeLoad, cores, coverage, cpu_known, rows_at, with_base
from spark_ops.jobs.numbered_names import Nodes, Queues
from spark_ops.jobs.queue_clients import Clients
from spark_ops.jobs.queue_hours import MASTER, MIRROR, NODES_MAX, QueueLoads
from spark_ops.jobs.raw_hours import Misplaced, raw_queue_hour, raw_rows
from spark_ops.jobs.rollup_hours import rollup_hour
from spark_ops.jobs.rollup_store import Sources, sources
from spark_ops.jobs.small_columns import Longs, Numbers
from spark_ops.jobs.small_files import rows_of_file
from spark_ops.jobs.topology_snapshots import latest
from spark_ops.planning.rows import ClusterRows, QueueRow
from spark_ops.planning.topology import rows_of
from spark_ops.telemetry import damage
from spark_ops.telemetry.schema import Kind

RAW_ROWS_MAX: Final = 8_000_000
"""The maximal number of raw rows of an hour that are rolled up here, with some 300 bytes each; they take ten CPU
seconds, and more are work for all cores, which Spark uses."""

_KINDS: Final[tuple[Kind, ...]] = ("queue", "node", "event")


class _LeftToSpark(Exception):
    """The window is left to Spark."""


def array_cluster_rows(
    root: Path, *, since: float, until: float, now: float, cluster: str | None = None
) -> ClusterRows | None:
    """Return what `loads.cluster_rows` does; None if Spark has to.

    Raises: FileNotFoundError, OSError, TopologyMissing, and TopologyError of `spark_ops.planning.topology`.
    """
    with _without_collector():
        return _cluster_rows(root.absolute(), since, until, now, cluster)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep Python from looking for cycles: it would go through millions of new objects again and again, and none of
    them is part of a cycle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _cluster_rows(
    root: Path, since: float, until: float, now: float, cluster: str | None
) -> ClusterRows | None:
    snapshot = latest(root, cluster=cluster, until=max(now, until))
    placed = rows_of(snapshot.document, now=now, known_hash=snapshot.topology_hash)
    # A million queues have two gigabytes as a document.
    snapshot = replace(snapshot, document={})
    for _ in range(TRIES):
        try:
            loads = _Loads(root, placed, since, until)
        except (pa.ArrowException, OSError):
            damaged = damaged_of(root, _KINDS, min(since, until - MOVES_S), until)
            if not damaged:
                return None
            damage.record(root, damaged)
            continue
        except (_LeftToSpark, Misplaced):
            return None
        return loads.rows(source_facts(snapshot, loads.torn, loads.unknown_versions))
    return None


@dataclass(frozen=True, slots=True)
class _Columns:
    """Loads of the queues in their order, as values of `QueueRow`."""

    cpu: list[float]
    cpu_p95: list[float]
    mirror_cpu: list[float]
    in_bytes: list[float]
    out_bytes: list[float]
    memory: list[float]
    disk: list[float]
    size: list[float]
    lag: list[int]


class _Loads:
    """The loads of a cluster's queues and nodes in [since, until), s since 1970."""

    def __init__(self, root: Path, placed: ClusterRows, since: float, until: float) -> None:
        self._root, self._placed, self._since, self._until = root, placed, since, until
        # Rollups are sorted by name, so that numbers rise in their rows.
        self._order = sorted(
            range(len(placed.queues)),
            key=lambda at: (placed.queues[at].vhost, placed.queues[at].queue),
        )
        self.unknown_versions = 0
        of_queues, of_nodes = (sources(root, kind, since, until) for kind in ("queue", "node"))
        if any(hour.rows > RAW_ROWS_MAX for hour in (*of_queues.raw, *of_nodes.raw)):
            raise _LeftToSpark
        self.torn = (*of_queues.torn, *of_nodes.torn)
        self._node_hours = self._read_nodes(of_nodes)
        told = {row.node for rows in self._node_hours.values() for row in rows}
        self._nodes = Nodes(sorted(told | {row.node for row in placed.nodes}))
        self._clients = Clients(self._nodes)
        self._size = Numbers(
            np.zeros(len(placed.queues), np.int64), np.zeros(len(placed.queues), dtype=np.bool_)
        )
        self._queues = self._read_queues(of_queues)
        self._moved = moves(root, placed.cluster, until)

    def _read_nodes(self, read: Sources) -> dict[int, list[NodeHour]]:
        cluster = self._placed.cluster
        hours = {hour_s: rollup_nodes(path, cluster) for hour_s, path in read.stored.items()}
        for hour in read.raw:
            raw = raw_rows("node", hour, cluster, self._since, self._until)
            self.unknown_versions += raw.unknown_versions
            hours[hour.hour_s] = raw_nodes(raw)
        return hours

    def _read_queues(self, read: Sources) -> QueueLoads:
        placed = self._placed.queues
        names = Queues([(placed[at].vhost, placed[at].queue) for at in self._order])
        every: dict[int, Path | HourFiles] = {**read.stored, **{hour.hour_s: hour for hour in read.raw}}
        loads = QueueLoads(len(placed), len(every), self._until)
        lag_since_ms = round(self._until * 1000) - FRESH_MS
        cluster = self._placed.cluster
        for hour_s in sorted(every, reverse=True):
            of_hour = every[hour_s]
            if isinstance(of_hour, Path):
                hour, states = rollup_hour(of_hour, hour_s, cluster, names, self._nodes, lag_since_ms)
            else:
                raw = raw_rows("queue", of_hour, cluster, self._since, self._until)
                self.unknown_versions += raw.unknown_versions
                hour, states = raw_queue_hour(raw, names, self._nodes, lag_since_ms)
            newest = loads.add(hour, len(self._nodes))
            if len(newest):
                self._keep_states(hour.queue[newest], states(newest))
        return loads

    def _keep_states(self, queue: Longs, table: pa.Table) -> None:
        sizes = table.column("msg_bytes")
        known = np.asarray(pc.is_valid(sizes).to_numpy(), dtype=np.bool_)
        self._size.values[queue] = np.asarray(pc.fill_null(sizes, 0).to_numpy())
        self._size.known[queue] = known
        for side in ("publishers_on", "consumers_on"):
            self._clients.add(queue, table.column(side))

    def rows(self, facts: dict[str, Any]) -> ClusterRows:
        """Return the cluster with its loads.   facts: further facts about the sources."""
        placed, numbers = self._placed, {name: at for at, name in enumerate(self._nodes.names)}
        loads = self._queues
        nodes = node_loads(
            self._node_hours,
            loads.of_nodes,
            Numbers(loads.disk, loads.disk_known),
            numbers,
            self._until,
        )
        begin = min((node.first_ts / 1000 for node in nodes.values()), default=self._until)
        window = (min(max(self._since, begin), self._until), self._until)
        return replace(
            placed,
            window=window,
            coverage=self._coverage(nodes, numbers, window),
            nodes=tuple(with_base(row, nodes.get(row.node)) for row in placed.nodes),
            queues=self._queue_rows(),
            facts={
                **placed.facts,
                **facts,
                "cpu_known": cpu_known(nodes.values()),
                "rows_at": rows_at(placed, nodes),
            },
        )

    def _coverage(
        self, nodes: dict[str, NodeLoad], numbers: dict[str, int], window: tuple[float, float]
    ) -> float:
        up = {row.node for row in self._placed.nodes if row.is_up}
        wanted = [
            number * NODES_MAX + numbers[node]
            for number, at in enumerate(self._order)
            for node in self._placed.queues[at].ring
            if node in up
        ]
        seen = int(np.isin(np.array(wanted, dtype=np.int64), self._queues.copies, kind="sort").sum())
        return coverage(up, (seen, len(wanted)), nodes, window)

    def _queue_rows(self) -> tuple[QueueRow, ...]:
        columns, clients = self._columns(), self._clients.of_queues()
        number = [0] * len(self._order)
        for own, at in enumerate(self._order):
            number[at] = own
        # `replace` would take twice the time.
        return tuple(
            QueueRow(
                row.vhost,
                row.queue,
                row.uid,
                row.type,
                row.master,
                row.ring,
                row.synced,
                row.epoch,
                row.policy,
                row.want_mirrors,
                row.fixed_nodes,
                row.is_exclusive,
                columns.cpu[at],
                columns.cpu_p95[at],
                columns.mirror_cpu[at],
                columns.in_bytes[at],
                columns.out_bytes[at],
                columns.memory[at],
                columns.disk[at],
                columns.size[at],
                columns.lag[at],
                clients.get(at) or {},
                self._moved.get((row.vhost, row.queue), 0.0),
                row.members,
            )
            for at, row in zip(number, self._placed.queues, strict=True)
        )

    def _columns(self) -> _Columns:
        loads = self._queues
        disk = loads.greatest("disk")
        size = Numbers(np.where(self._size.known, self._size.values, disk.values), disk.known)
        return _Columns(
            _all_cores(loads.load(MASTER, "cpu")),
            _all_cores(loads.percentile(MASTER, "cpu")),
            _all_cores(loads.load(MIRROR, "cpu")),
            _all_whole(loads.load(MASTER, "in_bytes")),
            _all_whole(loads.load(MASTER, "out_bytes")),
            _all_whole(loads.greatest("memory")),
            _all_whole(disk),
            _all_whole(size),
            loads.lag.tolist(),
        )


def _all_cores(column: Numbers) -> list[float]:
    return [cores(value) for value in column.values.tolist()]


def _all_whole(column: Numbers) -> list[float]:
    rounded: list[float] = np.rint(column.values).tolist()  # as `whole` does
    return rounded


def moves(root: Path, cluster: str, until: float) -> dict[tuple[str, str], float]:
    """Return the time at which a plan last moved each queue, s since 1970, by vhost and queue.

    Raises: OSError; pyarrow.ArrowException if a file cannot be read.
    """
    from spark_ops.jobs.files import VERSIONS
    from spark_ops.telemetry.arrow import SCHEMAS

    names: Sequence[str] = ("v", "cluster", "ts", "event", "vhost", "queue", "cause")
    wanted = pa.schema([SCHEMAS["event"].field(name) for name in names])
    since_ms, until_ms = round((until - MOVES_S) * 1000), round(until * 1000)
    found: dict[tuple[str, str], float] = {}
    for hour in find(root, "event", until - MOVES_S, until).hours:
        for path in hour.paths:
            table = rows_of_file(path, wanted)
            planned = pc.starts_with(table.column("cause"), "plan:")
            for row in table.filter(pc.fill_null(planned, False)).to_pylist():
                is_known = not hour.has_unknown or (
                    row["v"] is not None and VERSIONS[0] <= row["v"] <= VERSIONS[1]
                )
                if (
                    is_known
                    and row["cluster"] == cluster
                    and row["event"] in ("promotion", "plan_step_done")
                    and row["queue"] is not None
                    and row["ts"] is not None
                    and since_ms <= row["ts"] < until_ms
                ):
                    name = (row["vhost"], row["queue"])
                    found[name] = max(found.get(name, 0.0), row["ts"] / 1000)
    return found
