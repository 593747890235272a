"""Made-up telemetry as files: segments as nodes write them, Parquet as the collector writes it, and big amounts.

    python -m tests.kit.synthetic.files ROOT --queues 200 --hours 24

makes some 5 million rows in half a minute: the columns of a queue's rows are computed whole, not row by row.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from spark_ops.telemetry import arrow, layout
from spark_ops.telemetry.schema import HISTOGRAM_BUCKETS, VERSION
from spark_ops.telemetry.segments import Row
from tests.kit.synthetic.model import (
    MASTER_CPU_US,
    MIRROR_CPU_US,
    Model,
    NodeState,
    QueueState,
    Setup,
    spread,
)
from tests.kit.synthetic.telemetry import (
    IDLE_EVERY_S,
    queue_columns,
    rows,
    topology_rows,
)

HOUR_S: Final = 3600


def write_segments(source: Iterable[Row], directory: Path, *, rotate_s: int = 60) -> list[Path]:
    """Write rows, in the order of time, as closed segments of their nodes. Returns: the segments. Raises: OSError."""
    lines: defaultdict[tuple[str, str, int], list[str]] = defaultdict(list)
    for row in source:
        begin = row["ts"] // 1000 // rotate_s * rotate_s
        lines[row["node"], row["boot_id"], begin].append(
            json.dumps(row, separators=(",", ":"), ensure_ascii=False)
        )
    written = []
    for number, ((node, boot_id, begin), texts) in enumerate(lines.items()):
        when = datetime.fromtimestamp(begin, UTC).strftime("%Y%m%dT%H%M%S")
        path = directory / node / f"{boot_id}-{when}-{number}.ndjson"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(texts) + "\n", encoding="utf-8")
        written.append(path)
    return written


def write_parquet(source: Iterable[Row], root: Path, *, unique: bool = False) -> list[Path]:
    """Write rows as Parquet, a file for each kind, hour and process. Returns: the files. Raises: OSError, ValueError.

    unique: no row comes twice, and the files say so.
    """
    groups: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in source:
        hour = layout.hour_of(row["ts"])
        groups[row["kind"], hour, row["cluster"], row["node"], row["boot_id"]].append(row)
    written = []
    for group, members in groups.items():
        numbers = [row["seq"] for row in members]
        kind, hour, cluster, node, boot_id = group
        file = layout.DataFile(kind, hour, cluster, node, boot_id, min(numbers), max(numbers))
        converted = arrow.convert(kind, members)
        if converted.bad:
            raise ValueError(f"a row has a wrong {converted.bad[0][1]}")
        arrow.write(converted.table, file.path(root), unique=unique)
        written.append(file.path(root))
    return written


def tear(path: Path, share: float = 0.5) -> None:
    """Leave only the beginning of a file, as a crash of a machine may. Raises: OSError."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


class _StandIn:
    """The hook that gives nodes without queues the figures of nodes that have them."""

    def __init__(self, full: Model) -> None:
        self.full = full
        self.queues = full.queues_by_node()

    def tick(self, model: Model, elapsed_s: float) -> Iterable[Row]:
        """Add the CPU and memory of the queues to each node, once before the first interval."""
        if elapsed_s:
            return ()
        for name, node in model.nodes.items():
            node.boot_id = self.full.nodes[name].boot_id
            for _, queue in self.queues[name]:
                node.base_cpu += queue.rate * _cpu_us(queue, name) / 1e6
                node.mem_base += 200_000 + queue.bytes
        return ()

    def row(self, row: Row, _elapsed_s: float) -> Iterable[Row]:
        """Set the numbers of queues in a node's row, and drop rows of topology, which `_topology` writes."""
        if row["kind"] == "topology":
            return ()
        if row["kind"] == "node":
            masters = sum(queue.master == row["node"] for _, queue in self.queues[row["node"]])
            row["queues_master"] = masters
            row["queues_mirror"] = len(self.queues[row["node"]]) - masters
        return (row,)


def write_fleet(setup: Setup, root: Path) -> int:
    """Write a clean cluster of any size straight to Parquet. Returns: rows of queues. Raises: OSError."""
    full = Model(setup, has_counters=False)
    stand_in = _StandIn(full)
    write_parquet(rows(replace(setup, queues=0), stand_in), root, unique=True)
    write_parquet(_topology(full), root, unique=True)
    counts = 0
    for name, node in full.nodes.items():
        seq = 0
        for hour in hours(setup):
            table = _hour_of_node(full, name, stand_in.queues[name], hour, seq)
            if table.num_rows == 0:
                continue
            last = seq + table.num_rows - 1
            file = layout.DataFile("queue", hour.begin, setup.cluster, name, node.boot_id, seq, last)
            arrow.write(table, file.path(root), unique=True)
            counts += table.num_rows
            seq = last + 1
    return counts


def _topology(full: Model) -> Iterator[Row]:
    """Yield one snapshot for each hour; nothing changes in between."""
    for hour in hours(full.setup):
        yield from topology_rows(full, round(hour.begin.timestamp() * 1000) + 60_000)


@dataclass(frozen=True, slots=True)
class Hour:
    """The intervals of an hour: [first, last)."""

    begin: datetime
    first: int
    last: int


def hours(setup: Setup) -> Iterator[Hour]:
    """Yield the hours of a setup; all samples of an interval count to the hour in which it begins."""
    tick = 0
    while tick < setup.ticks:
        at_s = setup.start_s + tick * setup.interval_s
        end_s = at_s // HOUR_S * HOUR_S + HOUR_S
        last = min(setup.ticks, -int(-(end_s - setup.start_s) // setup.interval_s))
        yield Hour(layout.hour_of(int(at_s * 1000)), tick, last)
        tick = last


def _cpu_us(queue: QueueState, node: str) -> float:
    return MASTER_CPU_US if node == queue.master else MIRROR_CPU_US


class _Grid:
    """The rows of some queues on a node in an hour, tick by tick; columns are computed from it.

    index: for each row, the place of its queue.   tick: for each row, intervals since the start of the setup.
    """

    def __init__(self, setup: Setup, queues: list[tuple[int, QueueState]], hour: Hour) -> None:
        every = max(1, round(IDLE_EVERY_S / setup.interval_s))
        cells = [
            (place, tick)
            for tick in range(hour.first, hour.last)
            for place, (number, queue) in enumerate(queues)
            if not queue.is_idle or (tick + number) % every == 0
        ]
        self.index = pa.array((place for place, _ in cells), pa.int32())
        self.tick = pa.array((tick for _, tick in cells), pa.int64())
        self.intervals = [every if queue.is_idle else 1 for _, queue in queues]

    def of_queue(self, values: list[Any], data_type: pa.DataType) -> pa.Array:
        """Return a constant column from one value for each queue."""
        return pa.array(values, data_type).take(self.index)

    def rising(self, per_tick: list[float], start: list[float], noise: pa.Array) -> pa.Array:
        """Return a counter's column.   start: values at the setup's start, one for each queue.   noise: 0 to 1."""
        ticks = pc.add(pc.cast(self.tick, pa.float64()), pc.multiply(noise, 0.9))
        amount = pc.multiply(self.of_queue(per_tick, pa.float64()), ticks)
        return pc.cast(pc.floor(pc.add(amount, self.of_queue(start, pa.float64()))), pa.int64())


def _hour_of_node(
    full: Model, name: str, own: list[tuple[int, QueueState]], hour: Hour, seq: int
) -> pa.Table:
    setup, node = full.setup, full.nodes[name]
    tables = []
    for is_master in (True, False):
        queues = [each for each in own if (each[1].master == name) == is_master]
        if queues:
            tables.append(_table(full, node, queues, _Grid(setup, queues, hour), is_master))
    if not tables:
        return arrow.SCHEMAS["queue"].empty_table()
    table = pa.concat_tables(tables).sort_by(
        [("ts", "ascending"), ("vhost", "ascending"), ("queue", "ascending")]
    )
    numbers = pa.array(range(seq, seq + table.num_rows), pa.int64())
    table = table.set_column(table.schema.get_field_index("seq"), pa.field("seq", pa.int64()), numbers)
    return table.sort_by([(column, "ascending") for column in arrow.ORDER["queue"]])


def _table(
    full: Model, node: NodeState, queues: list[tuple[int, QueueState]], grid: _Grid, is_master: bool
) -> pa.Table:
    """Return the rows of masters, or of mirrors; the caller fills in `seq`."""
    setup, length = full.setup, len(grid.index)
    interval_ms = round(setup.interval_s * 1000)
    noise = pc.random(length, initializer=setup.seed + hash_of(node.name) + is_master)
    ts = pc.add(pc.multiply(grid.tick, interval_ms), setup.start_s * 1000 + node.phase_ms)
    constant = [queue_columns(queue, node) for _, queue in queues]
    columns: dict[str, pa.Array] = {
        "v": pa.repeat(pa.scalar(VERSION, pa.int32()), length),
        "kind": pa.repeat("queue", length),
        "cluster": pa.repeat(setup.cluster, length),
        "node": pa.repeat(node.name, length),
        "boot_id": pa.repeat(node.boot_id, length),
        "ts": ts,
        "mono_ms": pc.subtract(ts, node.boot_ms),
        "skew_ms": pa.repeat(pa.scalar(0, pa.int32()), length),
        "skew_err_ms": pa.repeat(pa.scalar(2, pa.int32()), length),
        "interval_ms": grid.of_queue([each * interval_ms for each in grid.intervals], pa.int32()),
    }
    per_tick = [queue.rate * setup.interval_s for _, queue in queues]
    start = [queue.rate * setup.uptime_s for _, queue in queues]
    cost = [_cpu_us(queue, node.name) for _, queue in queues]
    columns["cpu_us_total"] = grid.rising(_times(per_tick, cost), _times(start, cost), noise)
    amplitude = grid.of_queue([2 * queue.ready_noise for _, queue in queues], pa.float64())
    depth = pc.cast(pc.floor(pc.multiply(noise, amplitude)), pa.int64())
    size = grid.of_queue([queue.size for _, queue in queues], pa.int64())
    unacked = grid.of_queue([queue.unacked for _, queue in queues], pa.int64())
    columns["disk_bytes"] = pc.multiply(pc.add(depth, unacked), size)
    columns["mem_bytes"] = pc.add(columns["disk_bytes"], 200_000)
    if is_master:
        columns |= {"ready": depth, "msg_bytes": columns["disk_bytes"]}
        columns |= _master_counters(grid, [queue for _, queue in queues], per_tick, start, noise)
    else:
        lag = pc.cast(pc.floor(pc.multiply(noise, 3)), pa.int64())
        columns["mirror_lag_ms"] = pc.add(lag, 3)
        columns["mirror_lag_ops"] = lag
    for name, data_type in ((field.name, field.type) for field in arrow.SCHEMAS["queue"]):
        if name not in columns:
            columns[name] = grid.of_queue([_pairs(row.get(name)) for row in constant], data_type)
    return pa.table([columns[name] for name in arrow.SCHEMAS["queue"].names], schema=arrow.SCHEMAS["queue"])


def _master_counters(
    grid: _Grid, queues: list[QueueState], per_tick: list[float], start: list[float], noise: pa.Array
) -> dict[str, pa.Array]:
    sizes = [float(queue.size) for queue in queues]
    again = [queue.redeliver_share for queue in queues]
    count = grid.rising(per_tick, start, noise)
    volume = grid.rising(_times(per_tick, sizes), _times(start, sizes), noise)
    columns = {
        "pub_total": count,
        "dlv_total": count,
        "ack_total": count,
        "pub_bytes_total": volume,
        "dlv_bytes_total": volume,
        "redeliver_total": grid.rising(_times(per_tick, again), _times(start, again), noise),
    }
    shares = [0] * HISTOGRAM_BUCKETS
    spread(shares, 1000, 8)
    wide = pc.multiply(pa.array(shares, pa.float64()), 0.001)
    flat = pc.multiply(
        count.cast(pa.float64()).take(_repeated(len(count))),
        wide.take(pa.array(list(range(HISTOGRAM_BUCKETS)) * len(count), pa.int32())),
    )
    offsets = pa.array(range(0, HISTOGRAM_BUCKETS * len(count) + 1, HISTOGRAM_BUCKETS), pa.int32())
    columns["confirm_us"] = pa.ListArray.from_arrays(offsets, pc.cast(pc.floor(flat), pa.int64()))
    return columns


def _repeated(length: int) -> pa.Array:
    """Return 0 0 0 … 1 1 1 …: the number of each row, once for each bucket."""
    flat = pa.array(range(HISTOGRAM_BUCKETS * length), pa.int64())
    return pc.divide(flat, HISTOGRAM_BUCKETS)


def _times(values: list[float], factors: list[float]) -> list[float]:
    return [value * factor for value, factor in zip(values, factors, strict=True)]


def _pairs(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def hash_of(name: str) -> int:
    """Return a small number for a name, the same in each run."""
    return sum(name.encode())


def main(argv: list[str] | None = None) -> int:
    """Write a clean cluster of the size that the command line says."""
    parser = argparse.ArgumentParser(description="Made-up telemetry of a clean cluster as Parquet.")
    parser.add_argument("root", type=Path, help="where to write; existing files stay")
    for field in fields(Setup):
        default = field.default
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(default), default=default)
    arguments = vars(parser.parse_args(argv))
    root = arguments.pop("root")
    count = write_fleet(Setup(**arguments), root)
    print(f"{count} rows of queues in {root}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
