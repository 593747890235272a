"""Evidence made of rows in plain Python, the slow and plain way: rules are tested with it, and Spark against it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

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
    RowsSeen,
)
from spark_ops.health.forecast import Growth, Sums, fit
from spark_ops.telemetry.schema import HISTOGRAM_BUCKETS, bucket_limit_us

LIMITS = tuple(bucket_limit_us(bucket) for bucket in range(HISTOGRAM_BUCKETS))
Row = dict[str, Any]


def minute_of(row: Mapping[str, Any]) -> int:
    """By the clock of the others, where it is known how far they are apart."""
    skew, error = row.get("skew_ms"), row.get("skew_err_ms")
    ts: int = row["ts"]
    return (ts - skew if skew is not None and error is not None and error <= 1000 else ts) // 60_000


def _latest(rows: list[Row]) -> Row:
    return max(rows, key=lambda row: (row["mono_ms"], row["seq"]))


def _most(rows: list[Row], name: str, key: Any = None) -> Any:
    values = [row[name] if key is None else key(row[name]) for row in rows if row.get(name) is not None]
    return max(values, default=None)


def _values(of: type, row: Row, **others: Any) -> Any:
    given = {}
    for field in fields(of):
        value = row.get(field.name)
        if isinstance(value, dict):
            value = sorted(value.items())
        given[field.name] = tuple(value) if isinstance(value, list) else value
    return of(**{**given, **others})


def node_minute(rows: list[Row]) -> NodeMinute:
    last = _latest(rows)
    user, system = last.get("cpu_user_ms_total"), last.get("cpu_sys_ms_total")
    return _values(
        NodeMinute,
        last,
        minute=minute_of(last),
        boot=last["boot_id"],
        mono_first=min(row["mono_ms"] for row in rows),
        seq_first=min(row["seq"] for row in rows),
        loop_lag_ms_max=_most(rows, "loop_lag_ms_max"),
        skew_abs_ms=_most(rows, "skew_ms", abs),
        cpu_ms_total=None if user is None or system is None else user + system,
        view_first=min((row["view_id"] for row in rows if row.get("view_id") is not None), default=None),
        group=(last.get("labels") or {}).get("group"),
    )


def evidence(
    rows: Iterable[Row], start: int, end: int, cluster: str = "synthetic", **others: Any
) -> Evidence:
    """Return evidence of the rows of minutes [start, end): all queues and links are taken as suspicious."""
    unique: dict[Any, Row] = {}
    counts: dict[Any, int] = defaultdict(int)
    for row in rows:
        if row["kind"] != "topology" and start <= minute_of(row) < end:
            key = row["node"], row["boot_id"], row["kind"], row["seq"]
            unique[key] = row
            counts[key] += 1
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in unique.values():
        names = {"node": ("node",), "queue": ("vhost", "queue", "node"), "link": ("from_node", "to_node")}
        if row["kind"] in names:
            subject = tuple(row[name] for name in names[row["kind"]])
            groups[row["kind"], subject, row["boot_id"], minute_of(row)].append(row)
    facts: dict[Any, list[Any]] = defaultdict(list)
    for (kind, subject, boot, minute), members in sorted(groups.items()):
        last = _latest(members)
        if kind == "node":
            fact = node_minute(members)
        elif kind == "queue":
            lag = _most(members, "mirror_lag_ms")
            fact = _values(ReplicaMinute, last, minute=minute, boot=boot, lag_ms_max=lag)
        else:
            fact = _values(LinkMinute, last, minute=minute, boot=boot)
        facts[kind, subject].append(fact)
    for members in facts.values():
        members.sort(key=lambda fact: (fact.minute, fact.mono_ms, fact.boot))
    copies: dict[Any, dict[str, list[ReplicaMinute]]] = defaultdict(dict)
    for (kind, subject), members in sorted(facts.items()):
        if kind == "queue":
            copies[subject[:2]][subject[2]] = members
    used = {key: sum(_cpu_us(members) for members in by_node.values()) for key, by_node in copies.items()}
    total = sum(used.values())
    return Evidence(
        cluster,
        start,
        end,
        nodes={subject[0]: members for (kind, subject), members in facts.items() if kind == "node"},
        queues=tuple(
            QueueHistory(*key, by_node, used[key] / total if total else 1 / len(copies))
            for key, by_node in copies.items()
        ),
        links={subject: members for (kind, subject), members in facts.items() if kind == "link"},
        events=tuple(_events(unique.values())),
        rows=tuple(_rows_seen(counts)),
        loads=tuple(_loads(copies, start, end)),
        memory=tuple(_memory(unique.values(), start, end)),
        depths=tuple(_depths(copies)),
        bucket_limits_us=LIMITS,
        **others,
    )


def _cpu_us(facts: list[ReplicaMinute]) -> int:
    """Between the first and the last minute of each process."""
    by_boot: dict[str, list[int]] = defaultdict(list)
    for fact in facts:
        if fact.cpu_us_total is not None:
            by_boot[fact.boot].append(fact.cpu_us_total)
    return sum(max(values) - min(values) for values in by_boot.values())


def _events(rows: Iterable[Row]) -> list[EventFact]:
    by_id = {row["event_id"]: row for row in rows if row["kind"] == "event"}
    found = [_values(EventFact, row) for row in by_id.values()]
    return sorted(found, key=lambda event: (event.ts, event.node, event.event))


def _rows_seen(counts: dict[Any, int]) -> list[RowsSeen]:
    groups: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for (node, boot, kind, seq), count in counts.items():
        groups[node, boot, kind].append((seq, count))
    return [
        RowsSeen(*key, min(seqs)[0], max(seqs)[0], len(seqs), sum(count for _, count in seqs))
        for key, seqs in sorted(groups.items())
    ]


def _loads(copies: dict[Any, dict[str, list[ReplicaMinute]]], start: int, end: int) -> list[NodeHour]:
    used: dict[tuple[str, int], int] = defaultdict(int)
    for by_node in copies.values():
        for node, facts in by_node.items():
            hours: dict[int, list[ReplicaMinute]] = defaultdict(list)
            for fact in facts:
                if fact.role == "master":
                    hours[(end - 1 - fact.minute) // 60].append(fact)
            for hour, members in hours.items():
                used[node, hour] += _cpu_us(members)
    found = []
    for (node, hour), cpu_us in sorted(used.items()):
        first = end - 60 * (hour + 1)
        found.append(NodeHour(node, first, cpu_us / 1e6 / (60 * (end - 60 * hour - max(first, start)))))
    return found


def _memory(rows: Iterable[Row], start: int, end: int) -> list[MemoryGrowth]:
    last: dict[Any, Row] = {}
    for row in rows:
        if row["kind"] == "queue" and row.get("mem_bytes") is not None:
            key = row["node"], row["vhost"], row["queue"], minute_of(row), row["boot_id"]
            if key not in last or _latest([row, last[key]]) is row:
                last[key] = row
    points: dict[Any, list[tuple[float, float]]] = defaultdict(list)
    middle = (start + end) / 2
    for (node, vhost, queue, minute, _), row in last.items():
        points[node, vhost, queue].append(((minute - middle) * 60.0, float(row["mem_bytes"])))
    by_node: dict[str, list[Any]] = defaultdict(list)
    for (node, vhost, queue), own in points.items():
        line = fit(Sums.of(own))
        if line is None:
            continue
        halves = [
            fit(Sums.of([point for point in own if (point[0] < 0) is early])) for early in (True, False)
        ]
        span = max(x for x, _ in own) - min(x for x, _ in own)
        by_node[node].append((vhost, queue, line, [half.slope if half else 0.0 for half in halves], span))
    found = []
    for node, parts in sorted(by_node.items()):
        slope = sum(line.slope for _, _, line, _, _ in parts)
        residual = sum(line.residual * (line.n - 2) for _, _, line, _, _ in parts)
        explained = slope * slope * max(line.sxx for _, _, line, _, _ in parts)
        growth = Growth(
            0.0,
            slope,
            sum(line.se**2 for _, _, line, _, _ in parts) ** 0.5,
            explained / (explained + residual) if explained else 0.0,
            max(span for *_, span in parts),
            halves=(sum(h[0] for *_, h, _ in parts), sum(h[1] for *_, h, _ in parts)),
        )
        top = sorted(parts, key=lambda part: (-part[2].slope, part[0], part[1]))[:5]
        queues = tuple(QueueGrowth(v, q, line.slope) for v, q, line, _, _ in top if line.slope > 0)
        found.append(MemoryGrowth(node, growth, queues))
    return found


def _depths(copies: dict[Any, dict[str, list[ReplicaMinute]]]) -> list[Depth]:
    found = []
    for (vhost, queue), by_node in copies.items():
        points: dict[int, int] = {}
        for facts in by_node.values():
            for fact in facts:
                if fact.role == "master" and fact.ready is not None:
                    points[fact.minute] = max(points.get(fact.minute, 0), fact.ready)
        if points:
            found.append(Depth(vhost, queue, tuple(sorted(points.items()))))
    return sorted(found, key=lambda depth: (-max(n for _, n in depth.points), depth.vhost, depth.queue))[:10]
