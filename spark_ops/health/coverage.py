"""Coverage is the share of the nodes' rows that the job has read. A cluster is called healthy only if it is sufficient.

Rows have sequence numbers, so missing rows can be counted. If a node is silent at the end or in the whole window, the
number of its rows is estimated by time. No rows are expected of a node before it started in the window, after a clean
stop, or after it went down according to the other nodes, until it starts again. Source: spark §2.1, §3.2.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from spark_ops.health.context import MINUTE_S, Context
from spark_ops.health.facts import NodeMinute
from spark_ops.health.finding import Finding, Subject
from spark_ops.health.minutes import rise

TAIL_MINUTES: Final = 5
"""Rows of a node count as missing at the end only after this many silent minutes: they may not be collected yet."""


@dataclass(frozen=True, slots=True)
class Missing:
    """The minutes [first, end) in which a node has no row."""

    node: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """The number of rows that were expected and that were seen.   by_node: expected and seen rows of each node."""

    expected: int
    seen: int
    duplicates: int
    minutes: int
    missing: tuple[Missing, ...]
    by_node: Mapping[str, tuple[int, int]]

    @property
    def share(self) -> float:
        """The share of the expected rows that were seen, 0 to 1; 0 if no rows are expected."""
        return min(1.0, self.seen / self.expected) if self.expected else 0.0


def measure(context: Context) -> Coverage:
    """Return the coverage of a window."""
    evidence = context.evidence
    numbered: dict[str, int] = defaultdict(int)
    seen: dict[str, int] = defaultdict(int)
    rows: dict[str, int] = defaultdict(int)
    first_ones: dict[str, set[str]] = defaultdict(set)
    for each in evidence.rows:
        numbered[each.node] += each.seq_max - each.seq_min + 1
        seen[each.node] += each.seen
        rows[each.node] += each.rows
        if each.kind == "node" and each.seq_min == 0:
            first_ones[each.node].add(each.boot)
    missing: list[Missing] = []
    expected: dict[str, int] = {}
    silent = []
    for node in sorted(_members(context) | set(evidence.nodes) | set(seen)):
        facts = evidence.nodes.get(node, [])
        if not facts:
            missing.append(Missing(node, evidence.start, evidence.end))
            silent.append(node)
            continue
        holes, wanted = _holes(context, node, facts, first_ones[node])
        missing.extend(holes)
        told = wanted - sum(hole.end - hole.first for hole in holes)
        by_time = -(-seen[node] * wanted // told) if told > 0 else seen[node]
        expected[node] = max(numbered[node], by_time)
    for node in silent:
        others = list(expected.values())
        expected[node] = max(1, sum(others) // len(others)) if others else evidence.end - evidence.start
    told_minutes = {fact.minute for facts in evidence.nodes.values() for fact in facts}
    return Coverage(
        sum(expected.values()),
        sum(seen.values()),
        sum(rows.values()) - sum(seen.values()) + evidence.duplicates,
        len(told_minutes),
        tuple(missing),
        {node: (expected[node], seen[node]) for node in expected},
    )


def _members(context: Context) -> set[str]:
    """Return the nodes that are in the last view of any node."""
    return {
        member
        for facts in context.evidence.nodes.values()
        for fact in facts[-1:]
        for member in fact.view_members or ()
    }


def _holes(
    context: Context, node: str, facts: list[NodeMinute], first_ones: set[str]
) -> tuple[list[Missing], int]:
    """Return a node's gaps, and the number of minutes in which the node should have written rows."""
    evidence = context.evidence
    minutes = sorted({fact.minute for fact in facts})
    begin, end = evidence.start, evidence.end
    earliest = min(facts, key=lambda fact: fact.minute)
    if earliest.boot in first_ones:
        begin = earliest.minute  # the node started in the window
    stops = [e.ts // 60_000 for e in evidence.events if e.node == node and e.event == "node_stop"]
    is_stopped = bool(stops) and max(stops) >= minutes[-1] - 1
    is_down = node in context.silent and bool(context.up) and node not in context.up
    if is_stopped or is_down:
        end = minutes[-1] + 1
    at_least = context.minutes("telemetry-gap", "gap_minutes")
    holes, down = [], 0
    before = begin - 1
    for minute in [*minutes, end]:
        is_tail = minute == end
        if minute - before - 1 >= (max(at_least, TAIL_MINUTES) if is_tail else at_least):
            hole = Missing(node, before + 1, minute)
            if not is_tail and _was_down(context, hole, facts):
                down += hole.end - hole.first
            else:
                holes.append(hole)
        before = max(before, minute)
    return holes, end - begin - down


def _was_down(context: Context, hole: Missing, facts: list[NodeMinute]) -> bool:
    """True if a node's process did not run in a gap between its rows: it ended when the gap began, as the node itself
    or another one says, and another process began when the gap ended."""
    before = {fact.boot for fact in facts if fact.minute < hole.first}
    if any(fact.boot in before for fact in facts if fact.minute >= hole.end):
        return False
    ends = (
        event.ts // 60_000
        for event in context.evidence.events
        if (event.event == "node_stop" and event.node == hole.node)
        or (event.event == "view_change" and event.from_node == hole.node)
    )
    return any(hole.first - 1 <= minute < hole.end for minute in ends)


def judge_gaps(context: Context, coverage: Coverage) -> Iterator[Finding]:
    """Yield a finding for each node whose telemetry is missing."""
    kind = "telemetry-gap"
    window = max(1, context.evidence.end - context.evidence.start)
    for node, (expected, seen) in coverage.by_node.items():
        holes = [hole for hole in coverage.missing if hole.node == node]
        minutes = sum(hole.end - hole.first for hole in holes)
        share = 1 - seen / expected if expected else 1.0
        facts = context.evidence.nodes.get(node, [])
        dropped = rise(
            facts, lambda fact: fact.segments_dropped_total, context.evidence.start, context.evidence.end
        )
        is_little = share < 1 - context.settings.health["coverage_min"]
        if not holes and not dropped and is_little:
            continue
        what = f"{minutes} minutes and " if minutes else ""
        told = f"; it dropped {dropped} segments that no collector read" if dropped else ""
        yield context.finding(
            kind,
            Subject(node=node),
            f"{node}: {what}{max(0.0, share):.1%} of the rows are missing{told}",
            severity="info"
            if minutes / window < context.of(kind, "gap_info_share") and is_little
            else "warn",
            share=context.node_share(node) * max(0.0, min(1.0, share)),
            since=holes[0].first * MINUTE_S if holes else None,
            missing_minutes=minutes,
            missing_share=share,
            segments_dropped=dropped,
        )
