"""Rules about links, events, the distribution of masters, and telemetry files.

Source: spark §2.7, §3.2.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from spark_ops.health.context import MINUTE_S, Context
from spark_ops.health.facts import EventFact, LinkMinute
from spark_ops.health.finding import Finding, Severity, Subject
from spark_ops.health.minutes import bucket_percentile, bucket_rises, percentile, rises
from spark_ops.health.rules_copies import is_of_plan
from spark_ops.health.rules_node import cpu_cores

MINUTES_OF_HOUR = 60
MASTER_CHANGES = frozenset({"failover", "promotion"})


def judge_link(context: Context, from_node: str, to_node: str, facts: list[LinkMinute]) -> Iterator[Finding]:
    """Yield a finding if a link is interrupted repeatedly, or is much slower than usual."""
    kind = "flapping-link"
    end, minutes = context.evidence.end, context.minutes(kind)
    by_fact = rises(facts, lambda fact: fact.reconnects_total)
    clear = round(context.settings.health["clear_minutes"])
    most, since = 0, 0
    for last in range(end - clear, end):
        cuts = [
            (fact.minute, n)
            for fact, n in zip(facts, by_fact, strict=True)
            if last - minutes < fact.minute <= last
        ]
        count = sum(n for _, n in cuts)
        if count > most:
            most, since = count, next(minute for minute, n in cuts if n)
    now_us, usual_us = _hop_us(context, facts, end - minutes, end), _usual_hop_us(context, facts)
    is_slow = (
        now_us is not None
        and usual_us is not None
        and now_us > context.of(kind, "hop_factor") * usual_us
        and now_us > context.of(kind, "hop_min_us")
    )
    reasons = []
    if most >= context.of(kind, "reconnects"):
        reasons.append(f"was interrupted {most} times in {minutes} min")
    if is_slow:
        reasons.append(f"takes {(now_us or 0) / 1000:.1f} ms, usually {(usual_us or 0) / 1000:.1f} ms (p99)")
    if reasons:
        yield context.finding(
            kind,
            Subject(node=from_node, to_node=to_node),
            f"the link from {from_node} to {to_node} {' and '.join(reasons)}",
            share=context.node_share(from_node),
            since=(since if most >= context.of(kind, "reconnects") else end - minutes) * MINUTE_S,
            reconnects=most,
            hop_p99_us=now_us,
            hop_usual_us=usual_us,
        )


def _hop_us(context: Context, facts: list[LinkMinute], start: int, end: int) -> float | None:
    """Return the p99 of a link's round trips in the minutes [start, end), in us."""
    counts = bucket_rises(facts, lambda fact: fact.rtt_us, start, end)
    return bucket_percentile(counts, context.evidence.bucket_limits_us, 0.99)


def _usual_hop_us(context: Context, facts: list[LinkMinute]) -> float | None:
    """Return the usual p99 of a link's round trips: the 20th percentile of the intervals before the last one, in us.

    With the median, a link that was bad for most of the window would be compared with itself.
    """
    minutes = context.minutes("flapping-link")
    ends = range(context.evidence.end - minutes, context.evidence.start + minutes - 1, -minutes)
    known = [us for end in ends if (us := _hop_us(context, facts, end - minutes, end)) is not None]
    return percentile(known, 0.2) if known else None


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
        if event.event == "node_stop":
            minutes.append(event.ts // 60_000)
            down[event.node] = "stopped"
        elif event.event == "node_start":
            if down.get(event.node, "new") in ("stopped", "new"):
                minutes.append(event.ts // 60_000)
            down[event.node] = "runs"
    return minutes


def judge_balance(context: Context) -> Iterator[Finding]:
    """Yield a finding if the masters' load is uneven for hours; it is `info` for a shorter time or an uneven number."""
    kind = "master-imbalance"
    groups: dict[str, list[str]] = defaultdict(list)
    for node, fact in context.latest.items():
        groups[fact.group or ""].append(node)
    for group, nodes in sorted(groups.items()):
        if len(nodes) < 2:
            continue
        ratios = _load_ratios(context, nodes)
        counts = {node: context.latest[node].queues_master or 0 for node in nodes}
        mean = sum(counts.values()) / len(nodes)
        by_count = max(counts.values()) / mean if mean else 0.0
        uneven_hours = 0
        for _, ratio in reversed(ratios):
            if ratio <= context.of(kind, "ratio"):
                break
            uneven_hours += 1
        is_long = uneven_hours >= context.of(kind, "hours")
        is_count = by_count > context.of(kind, "count_ratio") and max(counts.values()) - mean >= context.of(
            kind, "count_min"
        )
        is_hint = bool(ratios) and ratios[-1][1] > context.of(kind, "hint_ratio")
        if not is_long and not is_count and not is_hint:
            continue
        worst = max(nodes, key=lambda node: (context.node_share(node), counts[node], node))
        ratio = ratios[-1][1] if ratios else 0.0
        where = f" of group {group!r}" if group else ""
        yield context.finding(
            kind,
            Subject(),
            f"the most loaded node{where} has {ratio:.2f} times the mean load and {by_count:.2f} times the mean "
            f"number of masters ({worst})",
            severity="warn" if is_long else "info",
            share=context.node_share(worst),
            since=ratios[-uneven_hours][0] * MINUTE_S if uneven_hours else None,
            load_ratio=ratio,
            count_ratio=by_count,
            hours=uneven_hours,
            node=worst,
        )


def _load_ratios(context: Context, nodes: list[str]) -> list[tuple[int, float]]:
    """Return for each hour its first minute and the load of the most loaded node, divided by the mean load.

    The ratio of a node is the lower one of its masters' load and of its total CPU use: if clients keep the other nodes
    busy, it is right that this node has more masters. Hours with almost no load have the ratio 1.
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
        is_idle = mean < context.of("master-imbalance", "cores_min")
        whole = {node: _whole_cores(context, node, first) for node in known}
        mean_whole = sum(whole.values()) / len(known)
        ratios = (
            min(cores / mean, whole[node] / mean_whole if mean_whole > 0 else math.inf)
            for node, cores in loads.items()
            if not is_idle
        )
        found.append((first, max(ratios, default=1.0)))
    return found


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
