"""The planner's input from raw rows, in plain Python: every row, every hour, nothing clever. And rollups of such rows.

Source: spark §3.1.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_ops.jobs.files import find, hour_folder
from spark_ops.jobs.loads import FRESH_MS, GREATEST, MOVES_S, SHARE, TAU_S, WEIGHT
from spark_ops.jobs.rollup_store import FORMAT, RECORD, inputs_hash, kind_of
from spark_ops.planning.rows import ClusterRows
from spark_ops.telemetry import arrow
from tests.kit.synthetic.telemetry import Row

HOUR_MS = 3_600_000
COUNTERS = {
    "queue": ("cpu_us_total", "disk_us_total", "pub_bytes_total", "dlv_bytes_total"),
    "node": ("cpu_user_ms_total", "cpu_sys_ms_total", "clients_us_total"),
}
FITS = {"queue": ("mem_bytes", "disk_bytes"), "node": ("mem_rss", "fd_used")}
SUBJECT = {
    "queue": ("cluster", "vhost", "queue", "node", "boot_id", "role"),
    "node": ("cluster", "node", "boot_id"),
}
LAST = {
    "queue": (
        *("sync_state", "mirror_lag_ops", "disk_bytes", "msg_bytes", "publishers_on", "consumers_on"),
        "mem_bytes",
    ),
    "node": ("mem_limit", "disk_free", "disk_limit", "fd_limit", "capacity_hints", "zone"),
}


def rolled(rows: Iterable[Row], kind: str, since: float, until: float) -> list[dict[str, Any]]:
    """Return rollups as dictionaries: of each group of rows, what loads need of it."""
    once = {}
    for row in rows:
        if row["kind"] == kind and 0 <= row["v"] <= 2 and since * 1000 <= row["ts"] < until * 1000:
            once[row["node"], row["boot_id"], row["seq"]] = row
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in once.values():
        groups[(*(row.get(name) for name in SUBJECT[kind]), row["ts"] // HOUR_MS)].append(row)
    found = []
    for (*subject, hour), own in groups.items():
        own.sort(key=lambda row: row["seq"])
        made: dict[str, Any] = dict(zip(SUBJECT[kind], subject, strict=True))
        made |= {"hour": hour * 3600, "first_ts": min(row["ts"] for row in own)}
        made |= {"last_ts": max(row["ts"] for row in own), "n": len(own)}
        made["covered_ms"] = sum(row.get("interval_ms") or 0 for row in own)
        for name in ("mono_ms", *COUNTERS[kind]):
            values = [row[name] for row in own if row.get(name) is not None]
            made |= {f"{name}_min": min(values, default=None), f"{name}_max": max(values, default=None)}
        for name in FITS[kind]:
            values = [row[name] for row in own if row.get(name) is not None]
            made[f"{name}_fit"] = {"n": len(values), "y": sum(values)}
        made["last"] = {name: own[-1].get(name) for name in LAST[kind]}
        found.append(made)
    return found


def _added(row: dict[str, Any], name: str) -> int | None:
    high, low = row[f"{name}_max"], row[f"{name}_min"]
    return None if high is None else high - low


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _rate(own: list[dict[str, Any]], amount: Any) -> float | None:
    used, ms = _sum(amount(row) for row in own), _sum(_added(row, "mono_ms") for row in own)
    return None if used is None or not ms else float(used) * 1000.0 / float(ms)


def _mean(own: list[dict[str, Any]], name: str) -> float | None:
    count = sum(row[f"{name}_fit"]["n"] for row in own)
    return float(sum(row[f"{name}_fit"]["y"] for row in own)) / float(count) if count else None


def _cpu(row: dict[str, Any]) -> int | None:
    cpu = _added(row, "cpu_us_total")
    return None if cpu is None else cpu + (_added(row, "disk_us_total") or 0)


def _busy(row: dict[str, Any]) -> int | None:
    both = [_added(row, name) for name in ("cpu_user_ms_total", "cpu_sys_ms_total")]
    return None if None in both else sum(both) * 1000  # type: ignore[arg-type]


def _round(value: float) -> int:
    return min(math.floor(value) + (value - math.floor(value) >= 0.5), GREATEST)


def _estimate(values: dict[int, float | None], until: float) -> tuple[float | None, float | None]:
    """Return load and percentile of values by hour."""
    known = {hour: _round(value) for hour, value in values.items() if value is not None}
    if not known:
        return None, None
    weights = {
        hour: max(_round(math.exp(-max(until - hour - 1800.0, 0.0) / TAU_S) * WEIGHT), 1) for hour in known
    }
    mean = float(sum(known[hour] * weights[hour] for hour in known)) / float(sum(weights.values()))
    ordered = sorted(known.values())
    position = (len(ordered) - 1) * SHARE
    low, high = math.floor(position), math.ceil(position)
    percentile = float(ordered[low])
    if ordered[low] != ordered[high]:
        percentile = (high - position) * ordered[low] + (position - low) * ordered[high]
    return max(mean, percentile), percentile


def _by(rows: Iterable[dict[str, Any]], *names: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return found


def _cores(value: float | None) -> float:
    return round((value or 0.0) / 1e6, 4)


def _whole(value: float | None) -> float:
    return float(round(value or 0.0))


def cluster_rows(rows: list[Row], placed: ClusterRows, since: float, until: float) -> ClusterRows:
    """Return the loads of a cluster, without facts about sources."""
    rows = [row for row in rows if row["cluster"] == placed.cluster]
    queues, nodes = (rolled(rows, kind, since, until) for kind in ("queue", "node"))
    moved: dict[tuple[str, str], float] = {}
    for row in rows:
        if (
            row["kind"] == "event"
            and (row.get("cause") or "").startswith("plan:")
            and row["event"] in ("promotion", "plan_step_done")
            and (until - MOVES_S) * 1000 <= row["ts"] < until * 1000
        ):
            name = (row["vhost"], row["queue"])
            moved[name] = max(moved.get(name, 0.0), row["ts"] / 1000)
    of_queue = _by(queues, "vhost", "queue")
    made = []
    for queue in placed.queues:
        name = (queue.vhost, queue.queue)
        made.append(replace(queue, moved_at=moved.get(name, 0.0), **_queue(of_queue[name], until)))
    up = {node.node for node in placed.nodes if node.is_up}
    begin = min((row["first_ts"] / 1000 for row in nodes), default=until)
    window = (min(max(since, begin), until), until)
    told = sum(
        min(1.0, sum(row["covered_ms"] for row in nodes if row["node"] == node) / (until - window[0]) / 1000)
        for node in sorted(up)
    ) / len(up)
    wanted = [(q.vhost, q.queue, node) for q in placed.queues for node in q.ring if node in up]
    seen = {(row["vhost"], row["queue"], row["node"]) for row in queues}
    share = told * (len(seen.intersection(wanted)) / len(wanted) if wanted else 1.0)
    return replace(
        placed,
        window=window,
        coverage=math.floor(share * 10_000) / 10_000,
        nodes=tuple(
            replace(
                node, **_node([row for row in nodes if row["node"] == node.node], node.node, queues, until)
            )
            for node in placed.nodes
        ),
        queues=tuple(made),
    )


def _queue(own: list[dict[str, Any]], until: float) -> dict[str, Any]:
    if not own:
        return {}
    loads: dict[str, dict[str, tuple[float | None, float | None]]] = defaultdict(dict)
    for (role,), of_role in _by(own, "role").items():
        hours = _by(of_role, "hour")
        values: dict[str, dict[int, float | None]] = {
            "cpu": {hour: _rate(some, _cpu) for (hour,), some in hours.items()},
            "memory": {hour: _mean(some, "mem_bytes") for (hour,), some in hours.items()},
            "disk": {hour: _mean(some, "disk_bytes") for (hour,), some in hours.items()},
        }
        for name, counter in (("in_bytes", "pub_bytes_total"), ("out_bytes", "dlv_bytes_total")):
            values[name] = {
                hour: _rate(some, lambda row, counter=counter: _added(row, counter))
                for (hour,), some in hours.items()
            }
        loads[role] = {name: _estimate(of_hour, until) for name, of_hour in values.items()}
    masters = [row for row in own if row["role"] == "master"]
    last = max(masters, key=lambda row: (row["last_ts"], row["node"]))["last"] if masters else {}
    clients: dict[str, int] = defaultdict(int)
    for side in ("publishers_on", "consumers_on"):
        for node, count in (last.get(side) or {}).items():
            clients[node] += count
    lags = [
        row["last"]["mirror_lag_ops"] or 0
        for row in own
        if row["role"] == "mirror"
        and row["last"]["sync_state"] == "synced"
        and row["last_ts"] >= until * 1000 - FRESH_MS
    ]
    master, mirror = (loads.get(role, {}) for role in ("master", "mirror"))
    none = (None, None)
    disk = max((of["disk"][0] or 0.0 for of in loads.values()), default=0.0)
    size = last.get("msg_bytes")
    return {
        "cpu": _cores(master.get("cpu", none)[0]),
        "cpu_p95": _cores(master.get("cpu", none)[1]),
        "mirror_cpu": _cores(mirror.get("cpu", none)[0]),
        "in_bytes": _whole(master.get("in_bytes", none)[0]),
        "out_bytes": _whole(master.get("out_bytes", none)[0]),
        "memory": _whole(max((of["memory"][0] or 0.0 for of in loads.values()), default=0.0)),
        "disk": _whole(disk),
        "size": _whole(size if size is not None else disk),
        "lag": max(lags, default=0),
        "clients": dict(sorted(clients.items())),
    }


def _node(own: list[dict[str, Any]], name: str, queues: list[dict[str, Any]], until: float) -> dict[str, Any]:
    if not own:
        return {}
    copies = [row for row in queues if row["node"] == name]
    cpu: dict[int, int] = defaultdict(int)
    memory: dict[int, int] = defaultdict(int)
    for (hour, _, _), some in _by(copies, "hour", "vhost", "queue").items():
        rate, mean = _rate(some, _cpu), _mean(some, "mem_bytes")
        cpu[hour] += _round(rate) if rate is not None else 0
        memory[hour] += _round(mean) if mean is not None else 0
    base: dict[str, dict[int, float | None]] = {"cpu": {}, "memory": {}, "fds": {}}
    for (hour,), some in _by(own, "hour").items():
        rate, mean = _rate(some, _busy), _mean(some, "mem_rss")
        base["cpu"][hour] = None if rate is None else max(rate - cpu[hour], 0.0)
        base["memory"][hour] = None if mean is None else max(mean - memory[hour], 0.0)
        base["fds"][hour] = _mean(some, "fd_used")
    now = max(own, key=lambda row: row["last_ts"])["last"]
    disk = sum(
        max(some, key=lambda row: row["last_ts"])["last"]["disk_bytes"] or 0
        for some in _by(copies, "vhost", "queue").values()
    )
    free = (now["disk_free"] or 0) - (now["disk_limit"] or 0)
    return {
        "cores": (now["capacity_hints"] or {}).get("cpu_millicores", 1000) / 1000,
        "memory": _whole(now["mem_limit"]),
        "disk": max(0.0, _whole(free + disk)),
        "fds": _whole(now["fd_limit"]),
        "base_cpu": _cores(_estimate(base["cpu"], until)[0]),
        "base_memory": _whole(_estimate(base["memory"], until)[0]),
        "base_fds": _whole(_estimate(base["fds"], until)[0]),
    }


# --- rollups as files ---


def write_rollups(root: Path, rows: list[Row], *, group_rows: int = 7, without: Iterable[str] = ()) -> int:
    """Write the rollup of each hour that has raw files, with the columns that loads need.

    group_rows: rows of a row group.   without: columns that are left out, as in rollups of an earlier version.
    Returns: the number of files.
    """
    count = 0
    for kind in ("queue", "node"):
        made = rolled(rows, kind, 0, 1e12)
        for hour in find(root, kind, None, None).hours:  # type: ignore[arg-type]
            own = [row for row in made if row["hour"] == hour.hour_s]
            own.sort(key=lambda row: tuple(row[name] or "" for name in SUBJECT[kind]))
            folder = hour_folder(root, kind_of(kind), hour.hour_s)  # type: ignore[arg-type]
            folder.mkdir(parents=True, exist_ok=True)
            inputs = inputs_hash(root, hour)
            path = folder / f"rollup-{inputs[:16]}.parquet"
            table = pa.Table.from_pylist([_as_stored(row, kind) for row in own], schema=_schema(kind))
            pq.write_table(
                table.select([name for name in table.schema.names if name not in without]),
                path,
                row_group_size=group_rows,
            )
            record = {"format": FORMAT, "file": path.name, "inputs": inputs, "rows": len(own)}
            (folder / RECORD).write_text(json.dumps(record))
            count += 1
    return count


def _as_stored(row: dict[str, Any], kind: str) -> dict[str, Any]:
    last = {
        name: list(value.items()) if isinstance(value, dict) else value for name, value in row["last"].items()
    }
    fits = {
        f"{name}_fit": {"n": row[f"{name}_fit"]["n"], "y": Decimal(row[f"{name}_fit"]["y"])}
        for name in FITS[kind]
    }
    return {**row, **fits, "last": last}


def _schema(kind: str) -> pa.Schema:
    of_kind = arrow.SCHEMAS[kind]  # type: ignore[index]
    fit = pa.struct([("n", pa.int64()), ("y", pa.decimal128(38, 0))])
    extremes = ("mono_ms", *COUNTERS[kind])
    return pa.schema(
        [
            *(of_kind.field(name) for name in SUBJECT[kind]),
            *((name, pa.int64()) for name in ("hour", "n", "covered_ms", "first_ts", "last_ts")),
            *((f"{name}_{end}", of_kind.field(name).type) for name in extremes for end in ("min", "max")),
            *((f"{name}_fit", fit) for name in FITS[kind]),
            ("last", pa.struct([of_kind.field(name) for name in LAST[kind]])),
        ]
    )
