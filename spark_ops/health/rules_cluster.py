"""Rules about events, the distribution of masters, and telemetry files.

Source: spark §2.7, §3.2.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spark_ops.health.context import MINUTE_S, Context
from spark_ops.health.facts import EventFact
from spark_ops.health.finding import Finding, Severity, Subject
from spark_ops.health.rules_copies import is_of_plan
from spark_ops.health.rules_node import cpu_cores
from spark_ops.health.rules_outage import PAUSED

MINUTES_OF_HOUR = 60
MASTER_CHANGES = frozenset({"failover", "promotion"})


def judge_events(context: Context) -> Iterator[Finding]:
    """Yield findings about promotions that may have lost messages, and masters and members that change too often."""
    yield from _unsynced_promotions(context)
    yield from _unstable_queues(context)
    yield from _unstable_members(context)


def _unsynced_promotions(context: Context) -> Iterator[Finding]:
    found: dict[tuple[str, str], list[EventFact]] = defaultdict(list)
    for event in context.evidence.events:
        if event.unsynced_promotion:
            found[event.vhost or "", event.queue or ""].append(event)
    shares = {(queue.vhost, queue.queue): queue.share for queue in context.evidence.queues}
    for (vhost, queue), events in sorted(found.items()):
        last = max(events, key=lambda event: event.ts)
        yield context.finding(
            "unsynced-promotion",
            Subject(vhost=vhost, queue=queue),
            f"queue {queue!r} in {vhost!r} got a master ({last.to_node}) that lacked messages: messages may be lost",
            share=shares.get((vhost, queue), 0.0),
            since=min(event.ts for event in events) / 1000,
            times=len(events),
            from_node=last.from_node,
            to_node=last.to_node,
            cause=last.cause,
        )


def _busiest(moments: Sequence[float], span: float) -> tuple[int, float]:
    """Return the largest number of moments within any interval of length `span`, and the first of these moments."""
    ordered = sorted(moments)
    most, since, first = 0, 0.0, 0
    for last, moment in enumerate(ordered):
        while moment - ordered[first] >= span:
            first += 1
        if last - first + 1 > most:
            most, since = last - first + 1, ordered[first]
    return most, since


def _unstable_queues(context: Context) -> Iterator[Finding]:
    """Yield a finding for each queue whose master changes too often.

    Rows and events of the same epoch count as one change. Changes by plans do not count.
    """
    kind = "unstable-failover"
    span = context.minutes(kind)
    changes: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    planned: dict[tuple[str, str], set[int]] = defaultdict(set)
    for event in context.evidence.events:
        if event.event in MASTER_CHANGES and event.vhost is not None and event.queue is not None:
            key = event.vhost, event.queue
            epoch = -event.ts if event.epoch_after is None else event.epoch_after  # no epoch is negative
            changes[key].setdefault(epoch, event.ts / 60_000)
            if is_of_plan(event):
                planned[key].add(epoch)
    shares = {}
    for queue in context.evidence.queues:
        key = queue.vhost, queue.queue
        shares[key] = queue.share
        first: dict[int, int] = {}
        for facts in queue.copies.values():
            for fact in facts:
                if fact.epoch is not None and fact.role == "master":
                    first[fact.epoch] = min(first.get(fact.epoch, fact.minute), fact.minute)
        for epoch in sorted(first)[1:]:
            changes[key].setdefault(epoch, float(first[epoch]))
    for (vhost, name), found in sorted(changes.items()):
        moments = [moment for epoch, moment in found.items() if epoch not in planned[vhost, name]]
        most, since = _busiest(moments, span)
        if most < context.of(kind, "changes"):
            continue
        severity: Severity = "crit" if most >= context.of(kind, "changes_crit") else "warn"
        yield context.finding(
            kind,
            Subject(vhost=vhost, queue=name),
            f"queue {name!r} in {vhost!r} changed its master {most} times within {span} min",
            severity=severity,
            share=shares.get((vhost, name), 0.0),
            since=since * MINUTE_S,
            changes=most,
        )


def _unstable_members(context: Context) -> Iterator[Finding]:
    """Yield a finding if the members change too often. Clean stops, starts after them and first starts are ignored."""
    kind = "unstable-failover"
    span = context.minutes(kind, "view_minutes")
    first: dict[int, int] = {}
    for facts in context.evidence.nodes.values():
        for fact in facts:
            for view in (fact.view_first, fact.view_id):
                if view is not None:
                    first[view] = min(first.get(view, fact.minute), fact.minute)
    told: dict[str, list[float]] = defaultdict(list)  # each node reports each change
    for event in context.evidence.events:
        if event.event == "view_change":
            told[event.node].append(event.ts / 60_000)
    moments = max([[float(first[view]) for view in sorted(first)[1:]], *told.values()], key=len)
    for minute in _willed(context):
        near = [each for each in moments if -1 <= each - minute <= 3]
        if near:
            moments.remove(near[0])
    most, since = _busiest(moments, span)
    if most >= context.of(kind, "views"):
        severity: Severity = "crit" if most >= context.of(kind, "views_crit") else "warn"
        yield context.finding(
            kind,
            Subject(),
            f"the members of the cluster changed {most} times within {span} min",
            severity=severity,
            share=1.0,
            since=since * MINUTE_S,
            view_changes=most,
        )


def _willed(context: Context) -> list[int]:
    """Return the minutes of clean stops, of the starts that follow them, and of first starts."""
    minutes = []
    down: dict[str, str] = {}
    for event in sorted(context.evidence.events, key=lambda event: event.ts):
        if event.event == "node_stop" and event.cause == PAUSED:
            down[event.node] = "paused"
        elif event.event == "node_stop":
            minutes.append(event.ts // 60_000)
            down[event.node] = "stopped"
        elif event.event == "node_start":
            if down.get(event.node, "new") in ("stopped", "new"):
                minutes.append(event.ts // 60_000)
            down[event.node] = "runs"
    return minutes


@dataclass(frozen=True, slots=True)
class _Uneven:
    """The most loaded node of an hour.   first: the hour's first minute.   ratio: of its load to the mean load; None:
    there is too little load to compare."""

    first: int
    node: str
    ratio: float | None


def judge_balance(context: Context) -> Iterator[Finding]:
    """Yield a finding if the masters' load is uneven for hours, or if one node has all masters; it is `info` for a
    shorter time or an uneven number."""
    groups: dict[str, list[str]] = defaultdict(list)
    for node, fact in context.latest.items():
        groups[fact.group or ""].append(node)
    for group, nodes in sorted(groups.items()):
        if len(nodes) > 1:
            yield from _judge_group(context, group, nodes)


def _judge_group(context: Context, group: str, nodes: list[str]) -> Iterator[Finding]:
    kind = "master-imbalance"
    hours = _load_ratios(context, nodes)
    counts = {node: context.latest[node].queues_master or 0 for node in nodes}
    total, mean = sum(counts.values()), sum(counts.values()) / len(nodes)
    fullest = max(nodes, key=lambda node: (counts[node], node))
    by_count = counts[fullest] / mean if mean else 0.0
    uneven_hours = 0
    for hour in reversed(hours):
        if hour.ratio is None or hour.ratio <= context.of(kind, "ratio"):
            break
        uneven_hours += 1
    now = hours[-1] if hours else None
    ratio = now.ratio if now is not None else None
    is_long = uneven_hours >= context.of(kind, "hours")
    is_hint = ratio is not None and ratio > context.of(kind, "hint_ratio")
    is_count = by_count > context.of(kind, "count_ratio") and counts[fullest] - mean >= context.of(
        kind, "count_min"
    )
    has_all = total >= context.of(kind, "count_min") and _has_all(context, nodes, fullest)
    if not (is_long or is_hint or is_count or has_all):
        return
    by_load = is_long or is_hint
    worst = now.node if by_load and now is not None else fullest
    where = f" of group {group!r}" if group else ""
    reasons = []
    if by_load and ratio is not None:
        reasons.append(f"its masters use {ratio:.2f} times the mean CPU of masters")
    if is_count or has_all:
        of = "all" if counts[worst] == total else f"{counts[worst]} of"
        reasons.append(f"it has {of} {total} masters")
    if ratio is None:
        reasons.append("they have too little load to compare")
    yield context.finding(
        kind,
        Subject(),
        f"masters are spread unevenly over the nodes{where}: {worst} has too many ({', '.join(reasons)})",
        severity="warn" if is_long or has_all else "info",
        share=context.node_share(worst),
        since=hours[-uneven_hours].first * MINUTE_S if uneven_hours else None,
        load_ratio=ratio,
        count_ratio=counts[worst] / mean if mean else 0.0,
        hours=uneven_hours,
        node=worst,
        masters=counts[worst],
    )


def _has_all(context: Context, nodes: list[str], fullest: str) -> bool:
    """True if one node had all masters throughout the last minutes, while all nodes of the group were up."""
    first = context.evidence.end - context.minutes("master-imbalance", "count_minutes")
    for node in nodes:
        recent = [fact for fact in context.evidence.nodes[node] if fact.minute >= first]
        if len(recent) < (context.evidence.end - first) / 2:
            return False
        if any(bool(fact.queues_master) != (node == fullest) for fact in recent):
            return False
    return True


def _load_ratios(context: Context, nodes: list[str]) -> list[_Uneven]:
    """Return for each hour the most loaded node, and its load divided by the mean load.

    The ratio of a node is the lower one of its masters' load and of its total CPU use: if clients keep the other nodes
    busy, it is right that this node has more masters. Hours with almost no load have no ratio.
    """
    by_hour: dict[int, dict[str, float]] = defaultdict(dict)
    for load in context.evidence.loads:
        if load.node in nodes:
            by_hour[load.first][load.node] = load.cores
    found = []
    for first, loads in sorted(by_hour.items()):
        # A node that has masters but no rows is unknown, not idle.
        known = [node for node in nodes if node in loads or not context.latest[node].queues_master]
        mean = sum(loads.values()) / len(known)
        whole = {node: _whole_cores(context, node, first) for node in known}
        mean_whole = sum(whole.values()) / len(known)
        if mean < context.of("master-imbalance", "cores_min"):
            found.append(_Uneven(first, _largest(loads), None))
            continue
        ratios = {
            node: min(cores / mean, whole[node] / mean_whole if mean_whole > 0 else math.inf)
            for node, cores in loads.items()
        }
        worst = _largest(ratios)
        found.append(_Uneven(first, worst, ratios[worst]))
    return found


def _largest(values: dict[str, float]) -> str:
    """Return the node with the largest value; of equal ones the last by name."""
    return max(values.items(), key=lambda item: (item[1], item[0]))[0]


def _whole_cores(context: Context, node: str, first: int) -> float:
    """Return the mean number of cores that a node's process used in the hour that begins at `first`; 0 if unknown."""
    facts = context.evidence.nodes.get(node, [])
    used = [
        cores
        for fact, cores in zip(facts, cpu_cores(facts), strict=True)
        if cores is not None and first <= fact.minute < first + MINUTES_OF_HOUR
    ]
    return sum(used) / len(used) if used else 0.0


def judge_files(context: Context) -> Iterator[Finding]:
    """Yield a finding if telemetry files or lines of segments cannot be read."""
    kind = "torn-files"
    torn, lines = context.evidence.torn, context.evidence.torn_lines
    if not torn and not lines:
        return
    what = [f"{len(torn)} telemetry files"] if torn else []
    what += [f"{lines} lines of segments"] if lines else []
    yield context.finding(
        kind,
        Subject(),
        f"{' and '.join(what)} cannot be read",
        severity="warn" if len(torn) >= context.of(kind, "files_warn") else "info",
        files=list(torn[:20]),
        count=len(torn),
        lines=lines,
    )
