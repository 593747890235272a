"""Made-up telemetry of a large fleet, such as a million queues on a thousand nodes, as `compact` leaves it.

    python -m tests.kit.synthetic.fleet ROOT --nodes 1000 --queues 1000000 --hours 24 --interval-s 1800

Columns of queues are numpy's, and nothing is done in Python for a row of a queue. Each hour has one file of each kind,
written block by block, so that memory does not grow with the time. What a figure of the plan needs is as in `files`;
histograms of confirms are left out, which no plan reads. The last hour has a snapshot of the topology.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from spark_ops.documents import content_hash
from spark_ops.telemetry import arrow, layout, manifest
from spark_ops.telemetry.manifest import Manifest
from spark_ops.telemetry.schema import VERSION, Kind
from spark_ops.telemetry.segments import Row
from tests.kit.synthetic.files import Hour, hours, write_parquet
from tests.kit.synthetic.model import (
    MASTER_CPU_US,
    MIRROR_CPU_US,
    NODE_MESSAGES,
    Model,
    NodeState,
    Setup,
    queue_id,
)
from tests.kit.synthetic.telemetry import QUEUES_A_PART, envelope, rows, topology_document

BLOCK_ROWS: Final = 250_000
"""So many rows of queues are in memory at a time."""
COPY_BYTES: Final = 200_000
"""The memory of a copy without messages."""
UNACKED: Final = 20
DEPTH_MAX: Final = 16

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fleet:
    """The placement and the rates of all queues.

    ring: the nodes of each queue's copies, the master first.   rank: of each copy among those of its node.
    counts: copies of each node.   rate: messages per second of each queue.   size: bytes of its messages.
    names, vhosts, ids, uids: of each queue.
    """

    setup: Setup
    nodes: list[NodeState]
    ring: Longs
    rank: Longs
    counts: Longs
    rate: Floats
    size: Longs
    names: pa.Array
    vhosts: pa.Array
    ids: pa.Array
    uids: list[str]

    @property
    def spent(self) -> Floats:
        """The cores that the copies of each node use."""
        cost = np.full(self.ring.shape, MIRROR_CPU_US)
        cost[:, 0] = MASTER_CPU_US
        return np.bincount(self.ring.ravel(), (cost * self.rate[:, None]).ravel(), len(self.nodes)) / 1e6

    @property
    def masters(self) -> Longs:
        """The number of masters of each node."""
        return np.bincount(self.ring[:, 0], minlength=len(self.nodes))


def fleet(setup: Setup) -> Fleet:
    """Place the queues, and share out the messages, as `Model` does for a few of them."""
    assert not setup.idle_share, "all queues have a row in each interval"
    count, nodes = setup.queues, list(Model(replace(setup, queues=0), has_counters=False).nodes.values())
    random = np.random.default_rng(setup.seed)
    masters: Longs = np.arange(count) % setup.nodes
    if setup.uneven:
        shares = (np.arange(setup.nodes) + 1.0) ** -setup.uneven
        masters = random.choice(setup.nodes, count, p=shares / shares.sum())
    copies = min(setup.replicas, setup.nodes)
    # Nodes take turns in zones, so that the next ones are in others.
    ring = (masters[:, None] + np.arange(copies)) % setup.nodes
    weight = (np.arange(count) + 1.0) ** -setup.uneven * random.uniform(0.8, 1.2, count)
    if setup.uneven:
        rate = NODE_MESSAGES * setup.nodes * weight / weight.sum()
    else:
        rate = NODE_MESSAGES * weight / np.bincount(masters, weight, setup.nodes)[masters]
    counts = np.bincount(ring.ravel(), minlength=setup.nodes)
    order = np.argsort(ring.ravel(), kind="stable")
    rank = np.empty(count * copies, dtype=np.int64)
    rank[order] = np.arange(count * copies) - np.repeat(np.cumsum(counts) - counts, counts)
    names = [f"queue-{number:07d}" for number in range(count)]
    vhosts = ["sales" if number % 4 == 3 else "/" for number in range(count)]
    return Fleet(
        setup,
        nodes,
        ring,
        rank.reshape(ring.shape),
        counts,
        rate,
        random.choice(np.array([200, 1000, 4000]), count),
        pa.array(names),
        pa.array(vhosts),
        pa.array([queue_id(*each) for each in zip(vhosts, names, strict=True)], pa.int64()),
        [f"{each:016x}" for each in random.integers(0, 1 << 63, count).tolist()],
    )


def write_large(setup: Setup, root: Path) -> int:
    """Write the telemetry of a fleet. Returns: the number of rows of queues. Raises: OSError."""
    made = fleet(setup)
    count = 0
    for hour in hours(setup):
        tables = (_queues(made, hour, first, last) for first, last in _blocks(made, hour))
        count += _write(root, "queue", hour, setup.cluster, tables)
    _write_nodes(made, root)
    last = list(hours(setup))[-1]
    write_parquet(_topology(made, round(last.begin.timestamp() * 1000) + 60_000), root, unique=True)
    return count


def _blocks(made: Fleet, hour: Hour) -> Iterator[tuple[int, int]]:
    """Yield ranges of queues that have at most `BLOCK_ROWS` rows in an hour."""
    step = max(1, BLOCK_ROWS // (made.ring.shape[1] * (hour.last - hour.first)))
    for first in range(0, len(made.ring), step):
        yield first, min(len(made.ring), first + step)


def _write(root: Path, kind: Kind, hour: Hour, cluster: str, tables: Iterable[pa.Table]) -> int:
    """Write the merged file of an hour, and its manifest. Returns: the number of rows. Raises: OSError."""
    folder = layout.hour_directory(root, kind, hour.begin)
    target = layout.cluster_directory(folder, cluster) / f"node={layout.MERGED_NODE}"
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"{layout.MERGED_PREFIX}{hour.begin:%Y%m%d%H}.parquet"
    own = arrow.SCHEMAS[kind]
    schema = own.with_metadata({**(own.metadata or {}), arrow.UNIQUE: b"1"})
    count = 0
    with path.open("wb") as file, pq.ParquetWriter(file, schema, **arrow.options(schema)) as writer:
        for table in tables:
            writer.write_table(table.replace_schema_metadata(schema.metadata), arrow.ROW_GROUP_ROWS)
            count += table.num_rows
    manifest.write(folder, Manifest((str(path.relative_to(folder)),), frozenset(), count))
    return count


# --- queues ---


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one copy of each of some queues.   queue, node, tick, rank: of each row.   noise: 0 to 1.

    slot: the place of the copies in their rings, 0 for masters.
    """

    queue: Longs
    node: Longs
    tick: Longs
    rank: Longs
    slot: int
    noise: Floats

    def __len__(self) -> int:
        return len(self.queue)


def _queues(made: Fleet, hour: Hour, first: int, last: int) -> pa.Table:
    """Return the rows of a range of queues in an hour."""
    ticks = np.arange(hour.first, hour.last)
    queue = np.repeat(np.arange(first, last), len(ticks))
    tick = np.tile(ticks, last - first)
    tables = []
    for slot in range(made.ring.shape[1]):
        random = np.random.default_rng((made.setup.seed, slot, first, hour.first))
        some = _Rows(
            queue, made.ring[queue, slot], tick, made.rank[queue, slot], slot, random.random(len(queue))
        )
        tables.append(_table(made, some))
    return pa.concat_tables(tables)


def _table(made: Fleet, some: _Rows) -> pa.Table:
    """Return the rows of one copy of each of some queues."""
    columns: dict[str, Callable[[], pa.Array]] = {**_places(made, some), **_figures(made, some)}
    arrays = []
    for field in arrow.SCHEMAS["queue"]:
        make = columns.get(field.name)
        found = pa.nulls(len(some), field.type) if make is None else make()
        arrays.append(found if found.type == field.type else found.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=arrow.SCHEMAS["queue"])


def _same(some: _Rows, value: Any) -> Callable[[], pa.Array]:
    return lambda: pa.repeat(pa.scalar(value), len(some))


def _places(made: Fleet, some: _Rows) -> dict[str, Callable[[], pa.Array]]:
    """Return the columns that say whose row it is, and where the copies are."""
    setup, copies = made.setup, made.ring.shape[1]
    interval_ms = round(setup.interval_s * 1000)
    of_nodes = {
        name: np.array([getattr(node, name) for node in made.nodes], dtype=np.int64)
        for name in ("phase_ms", "boot_ms")
    }
    ts = setup.start_s * 1000 + some.tick * interval_ms + of_nodes["phase_ms"][some.node]
    nodes = pa.array([node.name for node in made.nodes])
    boots = pa.array([node.boot_id for node in made.nodes])

    def ring() -> pa.Array:
        members = nodes.take(pa.array(made.ring[some.queue].ravel()))
        offsets = pa.array(np.arange(0, len(members) + 1, copies), pa.int32())
        return pa.ListArray.from_arrays(offsets, members)

    def at(slot: int) -> Callable[[], pa.Array]:
        return lambda: nodes.take(pa.array(made.ring[some.queue, slot]))

    return {
        "v": _same(some, VERSION),
        "kind": _same(some, "queue"),
        "cluster": _same(some, setup.cluster),
        "node": at(some.slot),
        "boot_id": lambda: boots.take(pa.array(some.node)),
        "seq": lambda: pa.array(some.tick * made.counts[some.node] + some.rank),
        "ts": lambda: pa.array(ts),
        "mono_ms": lambda: pa.array(ts - of_nodes["boot_ms"][some.node]),
        "skew_ms": _same(some, 0),
        "skew_err_ms": _same(some, 2),
        "interval_ms": _same(some, interval_ms),
        "vhost": lambda: made.vhosts.take(pa.array(some.queue)),
        "queue": lambda: made.names.take(pa.array(some.queue)),
        "qid": lambda: made.ids.take(pa.array(some.queue)),
        "type": _same(some, "classic"),
        "durable": _same(some, True),
        "exclusive": _same(some, False),
        "want_mirrors": _same(some, copies - 1),
        "role": _same(some, "mirror" if some.slot else "master"),
        "master_node": at(0),
        "epoch": _same(some, 1),
        "ring": ring,
        "synced": ring,
        "ring_pos": _same(some, some.slot),
        "ring_size": _same(some, copies),
        "sync_state": _same(some, "synced"),
        "sync_progress": _same(some, 1.0),
        **({"policy": _same(some, "ha"), "heir": at(1)} if copies > 1 else {}),
    }


def _figures(made: Fleet, some: _Rows) -> dict[str, Callable[[], pa.Array]]:
    """Return the columns of counters and gauges."""
    setup, rate, size = made.setup, made.rate[some.queue], made.size[some.queue]
    # The noise is less than an interval, so that counters only rise.
    count = rate * (setup.uptime_s + (some.tick + 0.9 * some.noise) * setup.interval_s)
    depth = np.floor(some.noise * DEPTH_MAX).astype(np.int64)
    held = (depth + UNACKED) * size

    def whole(values: Floats | Longs) -> Callable[[], pa.Array]:
        return lambda: pa.array(np.floor(values).astype(np.int64))

    both = {
        "mem_bytes": whole(held + COPY_BYTES),
        "disk_bytes": whole(held),
        "cpu_us_total": whole(count * (MIRROR_CPU_US if some.slot else MASTER_CPU_US)),
    }
    if some.slot:
        return {**both, "mirror_lag_ops": whole(some.noise * 3), "mirror_lag_ms": whole(some.noise * 3 + 3)}
    masters = pa.array([node.name for node in made.nodes]).take(pa.array(some.node))

    def clients(number: int) -> Callable[[], pa.Array]:
        """Return a map of one entry: all clients are on the master's node."""
        offsets = pa.array(np.arange(len(some) + 1), pa.int32())
        numbers = pa.repeat(pa.scalar(number, pa.int64()), len(some))
        return lambda: pa.MapArray.from_arrays(offsets, masters, numbers)

    none = (
        "get_total",
        "dead_lettered_total",
        "dead_letters_lost_total",
        "expired_total",
        "dropped_total",
    )
    return {
        **both,
        "ready": whole(depth),
        "unacked": _same(some, UNACKED),
        "msg_bytes": whole(held),
        **dict.fromkeys(("pub_total", "dlv_total", "ack_total"), whole(count)),
        **dict.fromkeys(("pub_bytes_total", "dlv_bytes_total"), whole(count * size)),
        "redeliver_total": whole(count * 0.001),
        **dict.fromkeys(none, _same(some, 0)),
        "consumers": _same(some, 2),
        "consumer_util": _same(some, 0.98),
        "prefetch_sum": _same(some, 400),
        "head_age_ms": _same(some, 20),
        "publishers_on": clients(1),
        "consumers_on": clients(2),
    }


# --- nodes and topology ---


class _Costs:
    """The hook that gives nodes the figures of their queues, which are not in the model."""

    def __init__(self, made: Fleet) -> None:
        self._spent = made.spent
        memory = np.repeat(COPY_BYTES + UNACKED * made.size, made.ring.shape[1])
        self._memory = np.bincount(made.ring.ravel(), memory, len(made.nodes))
        self._masters, self._copies = made.masters, made.counts
        self._number = {node.name: number for number, node in enumerate(made.nodes)}

    def tick(self, model: Model, elapsed_s: float) -> Iterable[Row]:
        """Add the CPU and the memory of queues to each node, once before the first interval."""
        if not elapsed_s:
            for name, node in model.nodes.items():
                number = self._number[name]
                node.base_cpu += float(self._spent[number])
                node.mem_base += float(self._memory[number])
                node.mem_limit = max(node.mem_limit, round(2 * node.mem_base))
                node.cores = max(node.cores, round(2 * node.base_cpu))
        return ()

    def row(self, row: Row, _elapsed_s: float) -> Iterable[Row]:
        """Set the numbers of queues in a node's row, and drop the rows of topology."""
        if row["kind"] == "topology":
            return ()
        if row["kind"] == "node":
            number = self._number[row["node"]]
            row["queues_master"] = int(self._masters[number])
            row["queues_mirror"] = int(self._copies[number] - self._masters[number])
        return (row,)


def _write_nodes(made: Fleet, root: Path) -> None:
    """Write the rows of nodes and links, hour by hour. Raises: OSError."""
    setup = made.setup
    begin_of = {tick: hour for hour in hours(setup) for tick in range(hour.first, hour.last)}
    interval_ms = setup.interval_s * 1000

    def hour_of(row: Row) -> Hour:
        # All samples of an interval count to the hour in which it begins.
        return begin_of[int((row["ts"] - setup.start_s * 1000) // interval_ms)]

    for hour, lot in groupby(rows(replace(setup, queues=0), _Costs(made)), key=hour_of):
        by_kind: dict[Kind, list[Row]] = {"node": [], "link": []}
        for row in lot:
            by_kind[row["kind"]].append(row)
        for kind, own in by_kind.items():
            if own:
                _write(root, kind, hour, setup.cluster, [_converted(kind, own)])


def _converted(kind: Kind, own: list[Row]) -> pa.Table:
    converted = arrow.convert(kind, own)
    assert not converted.bad, converted.bad[0][1]
    return converted.table


def _topology(made: Fleet, ts: int) -> Iterator[Row]:
    """Yield the parts of a snapshot of the placement."""
    model = Model(replace(made.setup, queues=0), has_counters=False)
    head = topology_document(model)
    names = [node.name for node in made.nodes]
    of_queues = zip(
        made.vhosts.to_pylist(), made.names.to_pylist(), made.uids, made.ring.tolist(), strict=True
    )
    queues = [
        {
            "vhost": vhost,
            "queue": queue,
            "uid": uid,
            "type": "classic",
            "epoch": 1,
            "policy": "ha" if len(ring) > 1 else None,
            "want_mirrors": len(ring) - 1,
            "fixed_nodes": None,
            "exclusive": False,
            "master": names[ring[0]],
            "ring": [names[node] for node in ring],
            "synced": [names[node] for node in ring],
            "placement": [],
        }
        for vhost, queue, uid, ring in of_queues
    ]
    whole = content_hash({**head, "queues": queues})
    writer = made.nodes[0]
    parts = max(1, -(-len(queues) // QUEUES_A_PART))
    written = partial(json.dumps, separators=(",", ":"), ensure_ascii=False)
    for part in range(parts):
        some = queues[part * QUEUES_A_PART : (part + 1) * QUEUES_A_PART]
        yield {
            **envelope(model, writer, "topology", ts + writer.phase_ms, None),
            "snapshot": f"{writer.boot_id}-{ts}",
            "part": part,
            "parts": parts,
            "view_id": model.view_id,
            "topology_hash": whole,
            "document": written({**head, "queues": some}),
        }


def main(argv: list[str] | None = None) -> int:
    """Write a fleet of the size that the command line says; its telemetry ends now, unless a start is given."""
    parser = argparse.ArgumentParser(
        description="Made-up telemetry of a large fleet as merged Parquet files."
    )
    parser.add_argument("root", type=Path, help="where to write; existing files stay")
    for field in fields(Setup):
        default = 0 if field.name == "start_s" else field.default
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(default), default=default)
    arguments = vars(parser.parse_args(argv))
    root = arguments.pop("root")
    if not arguments["start_s"]:
        arguments["start_s"] = int(time.time() - arguments["hours"] * 3600) // 60 * 60
    began = os.times()
    count = write_large(Setup(**arguments), root)
    spent = os.times()
    cpu_s = spent.user + spent.system - began.user - began.system
    print(f"{count} rows of queues in {root}, in {cpu_s:.0f} CPU seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
