"""The health document is the result for a window of a cluster as JSON, for programs, reports and the next run.

    {"format":"spark-ops-health/1","cluster","created","window":[iso,iso],"coverage":{…},"verdict","score",
     "nodes":[…],"findings":[…],"forecasts":[…],"series":{"nodes":{…},"queues":[…]}}

Shares and the figures of nodes are from 0 to 1, where 1 is all that a broker can use. Times are ISO 8601 in UTC. A
series has at most 300 points; each is the maximum of its interval. Source: spark §3.2, §3.6.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from spark_ops.health.context import MINUTE_S, Context
from spark_ops.health.coverage import Coverage
from spark_ops.health.facts import NodeMinute
from spark_ops.health.finding import Finding
from spark_ops.health.judge import Judged
from spark_ops.health.rules_node import cpu_cores, loop_lag_ms, resource_eta, used_and_limit
from spark_ops.health.score import node_score

FORMAT: Final = "spark-ops-health/1"
POINTS_MAX: Final = 300
MISSING_MAX: Final = 100
RECENT_MINUTES: Final = 10
"""The CPU of nodes is the mean of this many last minutes."""
FORECASTS: Final = ("memory", "disk", "fd")


def iso(seconds: float | None) -> str | None:
    """Return a time in the format of documents: ISO 8601 in UTC, in s.   seconds: since 1970; None gives None."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def health_document(judged: Judged, created: float) -> dict[str, Any]:
    """Return the health document of a judged window.   created: s since 1970."""
    context, evidence = judged.context, judged.context.evidence
    nodes = sorted(set(evidence.nodes) | set(judged.coverage.by_node))
    return {
        "format": FORMAT,
        "cluster": evidence.cluster,
        "created": iso(created),
        "window": [iso(evidence.start * MINUTE_S), iso(evidence.end * MINUTE_S)],
        "coverage": _coverage(context, judged.coverage),
        "verdict": judged.verdict,
        "score": judged.score,
        "nodes": [_node(context, node, judged.findings) for node in nodes],
        "findings": [finding_document(finding) for finding in judged.findings],
        "forecasts": forecasts(context),
        "series": {
            "nodes": {node: _node_series(context, facts) for node, facts in sorted(evidence.nodes.items())},
            "queues": [_queue_series(depth.vhost, depth.queue, depth.points) for depth in evidence.depths],
        },
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON."""
    subject = finding.subject
    return {
        "id": finding.id,
        "kind": finding.kind,
        "severity": finding.severity,
        "subject": {
            "node": subject.node,
            "vhost": subject.vhost,
            "queue": subject.queue,
            "to_node": subject.to_node,
            "cause": subject.cause,
        },
        "since": iso(finding.since),
        "text": finding.text,
        "advice": finding.advice,
        "share": finding.share,
        "evidence": dict(finding.evidence),
    }


def _coverage(context: Context, coverage: Coverage) -> dict[str, Any]:
    evidence = context.evidence
    return {
        "expected": coverage.expected,
        "seen": coverage.seen,
        "share": round(coverage.share, 4),
        "minutes": coverage.minutes,
        "missing": [
            {"node": hole.node, "from": iso(hole.first * MINUTE_S), "to": iso(hole.end * MINUTE_S)}
            for hole in coverage.missing[:MISSING_MAX]
        ],
        "torn": list(evidence.torn),
        "torn_lines": evidence.torn_lines,
        "late": evidence.late,
        "duplicates": coverage.duplicates,
        "unknown_versions": evidence.unknown_versions,
        "skipped_queues": evidence.skipped,
    }


def _node(context: Context, node: str, findings: Sequence[Finding]) -> dict[str, Any]:
    facts = context.evidence.nodes.get(node, [])
    last = context.latest.get(node)
    known = last is not None
    recent = [value for _, value in _shares(context, facts, "cpu")[-RECENT_MINUTES:] if value is not None]
    lag_ms = loop_lag_ms(context, facts)

    def share(resource: str) -> float | None:
        return None if last is None else _share(last, resource)

    return {
        "node": node,
        "score": node_score(context, node, findings) if known else None,
        "cpu": round(sum(recent) / len(recent), 4) if recent and known else None,
        "memory": share("memory"),
        "disk": share("disk"),
        "fds": share("fd"),
        "masters": last.queues_master if last is not None else None,
        "mirrors": last.queues_mirror if last is not None else None,
        "loop_lag_ms": round(lag_ms, 3) if lag_ms is not None and known else None,
    }


def _share(fact: NodeMinute, resource: str) -> float | None:
    """Return the used share of a resource, 0 to 1; for the disk, the limit divided by the free space."""
    now, limit = used_and_limit(fact, resource)
    if now is None or not limit:
        return None
    if limit < 0:
        return round(min(1.0, limit / now), 4) if now else 1.0
    return round(now / limit, 4)


def _shares(context: Context, facts: Sequence[NodeMinute], what: str) -> list[tuple[int, float | None]]:
    """Return a figure for each minute: a lag in ms, or the used share of a resource."""
    if what == "cpu":
        usable = context.of("hot-node", "cores_usable")
        used = cpu_cores(list(facts))
        return [
            (fact.minute, None if cores is None else round(cores / min(float(fact.cores or 1), usable), 4))
            for fact, cores in zip(facts, used, strict=True)
        ]
    if what == "loop_lag_ms":
        return [(fact.minute, fact.loop_lag_ms_max) for fact in facts]
    return [(fact.minute, _share(fact, what)) for fact in facts]


def _node_series(context: Context, facts: Sequence[NodeMinute]) -> dict[str, Any]:
    metrics = ("cpu", "memory", "disk", "loop_lag_ms")
    columns = {metric: _shares(context, facts, metric) for metric in metrics}
    stretches = _stretches([fact.minute for fact in facts])
    found: dict[str, Any] = {"ts": [iso(facts[first].minute * MINUTE_S) for first, _ in stretches]}
    for metric, points in columns.items():
        found[metric] = [_largest([value for _, value in points[first:end]]) for first, end in stretches]
    return found


def _queue_series(vhost: str, queue: str, points: Sequence[tuple[int, int]]) -> dict[str, Any]:
    stretches = _stretches([minute for minute, _ in points])
    return {
        "vhost": vhost,
        "queue": queue,
        "ts": [iso(points[first][0] * MINUTE_S) for first, _ in stretches],
        "ready": [max(value for _, value in points[first:end]) for first, end in stretches],
    }


def _stretches(minutes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the positions [first, end) of at most `POINTS_MAX` intervals of about the same length."""
    count = min(POINTS_MAX, len(minutes))
    bounds = [at * len(minutes) // count for at in range(count)] + [len(minutes)] if count else []
    return list(pairwise(bounds))


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def forecasts(context: Context) -> list[dict[str, Any]]:
    """Return the forecasts of when memory, disk and file descriptors of each node reach their limits.

    For the disk, `now` is the free space, `limit` is the space that must stay free, and growth is a negative slope.
    """
    found = []
    memory = {each.node: each for each in context.evidence.memory}
    for node in sorted(context.evidence.nodes):
        for resource in FORECASTS:
            now, limit, growth, expected = resource_eta(context, node, resource)
            causes = memory[node].queues if resource == "memory" and node in memory else ()
            sign = -1 if resource == "disk" else 1
            found.append(
                {
                    "node": node,
                    "resource": resource,
                    "now": None if now is None else sign * now,
                    "limit": None if limit is None else sign * limit,
                    "slope_per_s": None if growth is None else _rounded(sign * growth.slope),
                    "eta_s": None if expected.eta_s is None else round(expected.eta_s),
                    "band": None if expected.band is None else [round(end) for end in expected.band],
                    "r2": None if growth is None else round(growth.r2, 4),
                    "why_not": expected.why_not,
                    "queues": [
                        {"vhost": queue.vhost, "queue": queue.queue, "slope_per_s": _rounded(queue.slope)}
                        for queue in causes
                    ],
                }
            )
    return found


def _rounded(value: float) -> float:
    """Return a value rounded to six digits, since the last digits of a sum of floats depend on the order."""
    return float(f"{value:.6g}")
