"""Rules about a node: event loop and CPU, connections, clock, duplicate node names, and resources.

Source: spark §2.7, §3.2.
"""

from collections.abc import Callable, Iterator

from spark_ops.health.context import MINUTE_S, Context
from spark_ops.health.facts import NodeMinute
from spark_ops.health.finding import Finding, Severity, Subject
from spark_ops.health.forecast import Eta, Growth, eta, growth_of
from spark_ops.health.minutes import bucket_percentile, bucket_rises, percentile, rises, running

RESOURCES = ("memory", "disk", "fd", "socket")


def judge_node(context: Context, node: str) -> Iterator[Finding]:
    """Yield all findings about one node except those about its resources."""
    facts = context.evidence.nodes[node]
    if not facts:
        return
    yield from _hot_node(context, node, facts)
    yield from _host_without_cpu(context, node, facts)
    yield from _slow_syncs(context, node, facts)
    yield from _conn_churn(context, node, facts)
    yield from _clock_skew(context, node, facts)
    yield from _duplicate_id(context, node, facts)


def cpu_cores(facts: list[NodeMinute]) -> list[float | None]:
    """Return the cores that the process used between its previous fact and each fact; None for its first fact."""
    used = rises(facts, lambda fact: fact.cpu_ms_total)
    ran = running(facts)
    return [spent / passed if passed > 0 else None for spent, passed in zip(used, ran, strict=True)]


def _hot_node(context: Context, node: str, facts: list[NodeMinute]) -> Iterator[Finding]:
    kind = "hot-node"
    end, minutes = context.evidence.end, context.minutes(kind)
    recent = [fact for fact in facts if fact.minute >= end - minutes]
    if len(recent) < minutes / 2:
        return
    longest = [fact.loop_lag_ms_max for fact in recent if fact.loop_lag_ms_max is not None]
    lag_ms = loop_lag_ms(context, facts) or 0.0
    held = [each for each in longest if each > context.of(kind, "held_ms")]
    used = [
        cores
        for fact, cores in zip(facts, cpu_cores(facts), strict=True)
        if cores is not None and fact in recent
    ]
    capacity = min(float(recent[-1].cores or 1), context.of(kind, "cores_usable"))
    cpu = sum(used) / len(used) / capacity if used else 0.0
    reasons = []
    if lag_ms > context.of(kind, "loop_lag_ms"):
        reasons.append(f"the event loop has a lag of {lag_ms:.0f} ms (p95)")
    elif len(held) >= context.of(kind, "held_minutes"):
        reasons.append(
            f"the event loop was held for up to {max(held):.0f} ms in {len(held)} of {len(recent)} min"
        )
    if cpu > context.of(kind, "cpu"):
        reasons.append(f"the broker uses {cpu:.0%} of the CPU that it can use")
    if not reasons:
        return
    is_crit = lag_ms > context.of(kind, "loop_lag_crit_ms") or cpu > context.of(kind, "cpu_crit")
    yield context.finding(
        kind,
        Subject(node=node),
        f"{node}: {' and '.join(reasons)}",
        severity="crit" if is_crit else "warn",
        share=context.node_share(node),
        since=recent[0].minute * MINUTE_S,
        loop_lag_p95_ms=lag_ms,
        loop_held_ms=max(longest, default=0.0),
        cpu=cpu,
    )


def loop_lag_ms(context: Context, facts: list[NodeMinute]) -> float | None:
    """Return how late a node's event loop is, in ms: the p95 of the last minutes; None if unknown."""
    end, minutes = context.evidence.end, context.minutes("hot-node")
    counts = bucket_rises(facts, lambda fact: fact.loop_lag_us, end - minutes, end)
    lag_us = bucket_percentile(counts, context.evidence.bucket_limits_us, 0.95)
    if lag_us is not None:
        return lag_us / 1000
    longest = [
        fact.loop_lag_ms_max
        for fact in facts
        if fact.minute >= end - minutes and fact.loop_lag_ms_max is not None
    ]
    return percentile(longest, 0.95) if longest else None


def _host_without_cpu(context: Context, node: str, facts: list[NodeMinute]) -> Iterator[Finding]:
    """Yield a finding if tasks of the node's host wait for a CPU most of the time, or its hypervisor takes CPU away."""
    kind = "host-without-cpu"
    end, minutes = context.evidence.end, context.minutes(kind)
    recent = [at for at, fact in enumerate(facts) if fact.minute >= end - minutes]
    ran_ms = sum(running(facts)[at] for at in recent)
    if len(recent) < minutes / 2 or ran_ms < minutes / 2 * MINUTE_S * 1000:
        return
    waited_us = rises(facts, lambda fact: fact.cpu_wait_us_total, is_of_host=True)
    stolen_ms = rises(facts, lambda fact: fact.cpu_steal_ms_total, is_of_host=True)
    waiting = sum(waited_us[at] for at in recent) / 1000 / ran_ms
    stolen = sum(stolen_ms[at] for at in recent) / ran_ms
    reasons = []
    if waiting > context.of(kind, "waiting"):
        reasons.append(f"tasks wait for a CPU for {waiting:.0%} of the time")
    if stolen > context.of(kind, "stolen_cores"):
        reasons.append(f"the hypervisor takes {stolen:.2f} cores away")
    if reasons:
        yield context.finding(
            kind,
            Subject(node=node),
            f"the host of {node} has too little CPU: {' and '.join(reasons)}",
            share=context.node_share(node),
            since=facts[recent[0]].minute * MINUTE_S,
            waiting_share=waiting,
            stolen_cores=stolen,
        )


def _slow_syncs(context: Context, node: str, facts: list[NodeMinute]) -> Iterator[Finding]:
    """Yield a finding if syncs are slow for some minutes.

    Each minute counts alike: a slow disk syncs less often, so a mean of all syncs would be that of the time before.
    """
    kind = "slow-syncs"
    limit_us, first = context.of(kind, "sync_ms") * 1000, context.evidence.end - context.minutes(kind)
    counts = rises(facts, lambda fact: fact.fsync_count_total)
    spent_us = rises(facts, lambda fact: fact.fsync_us_total)
    bad: list[bool | None] = [None] * (context.evidence.end - context.evidence.start)
    syncs, slow_us = 0, 0
    for fact, count, took_us in zip(facts, counts, spent_us, strict=True):
        at = fact.minute - context.evidence.start
        if not count or not 0 <= at < len(bad):
            continue  # a minute without a sync says nothing about the disk
        bad[at] = took_us > limit_us * count
        if bad[at] and fact.minute >= first:
            syncs, slow_us = syncs + count, slow_us + took_us
    since = context.held_since(kind, bad)
    if since is None or syncs < context.of(kind, "syncs_min"):
        return
    mean_ms = slow_us / 1000 / syncs
    yield context.finding(
        kind,
        Subject(node=node),
        f"{node}: a sync of the disk takes {mean_ms:.0f} ms on average, and confirms wait for it",
        severity="crit" if mean_ms > context.of(kind, "sync_crit_ms") else "warn",
        share=context.node_share(node),
        since=since,
        sync_ms=mean_ms,
        syncs=syncs,
    )


def _conn_churn(context: Context, node: str, facts: list[NodeMinute]) -> Iterator[Finding]:
    kind = "conn-churn"
    minutes = context.minutes(kind)
    opened = rises(facts, lambda fact: fact.conns_opened_total)
    closed = rises(facts, lambda fact: fact.conns_closed_total)
    ran = running(facts)
    by_minute = {
        fact.minute: (opened[at] + closed[at], ran[at], fact.conns or 0) for at, fact in enumerate(facts)
    }
    bad: list[bool | None] = []
    rate, conns = 0.0, 0.0
    for minute, state in enumerate(context.filled(facts), context.evidence.start):
        parts = [by_minute[at] for at in range(minute - minutes + 1, minute + 1) if at in by_minute]
        ran_s = sum(part[1] for part in parts) / 1000
        if state is None or ran_s < (minutes - 1) * MINUTE_S:
            bad.append(None)
            continue
        rate, conns = sum(part[0] for part in parts) / ran_s, sum(part[2] for part in parts) / len(parts)
        bad.append(rate > max(context.of(kind, "per_s_min"), context.of(kind, "share_per_s") * conns))
    since = context.held_since(kind, bad)
    if since is not None:
        yield context.finding(
            kind,
            Subject(node=node),
            f"{node}: {rate:.1f} connections are opened or closed per second, with {conns:.0f} open",
            share=context.node_share(node),
            since=since,
            per_s=rate,
            connections=conns,
        )


def _clock_skew(context: Context, node: str, facts: list[NodeMinute]) -> Iterator[Finding]:
    kind = "clock-skew"
    sure = context.of(kind, "skew_err_ms")
    known = [fact for fact in facts if fact.skew_ms is not None and (fact.skew_err_ms or 0) <= sure]
    wrong = [fact for fact in known if abs(fact.skew_ms or 0) > context.of(kind, "skew_ms")]
    recent = [
        fact
        for fact in wrong
        if fact.minute >= context.evidence.end - context.settings.health["clear_minutes"]
    ]
    if len(recent) < context.minutes(kind):
        return
    skew_ms = recent[-1].skew_ms or 0
    apart = abs(skew_ms) > context.of(kind, "skew_quarantine_ms")
    yield context.finding(
        kind,
        Subject(node=node),
        f"the clock of {node} is {abs(skew_ms) / 1000:.1f} s {'ahead of' if skew_ms > 0 else 'behind'} the others"
        + ("; its figures cannot be compared with those of other nodes by time" if apart else ""),
        share=context.node_share(node),
        since=wrong[0].minute * MINUTE_S,
        skew_ms=skew_ms,
    )


def _duplicate_id(context: Context, node: str, facts: list[NodeMinute]) -> Iterator[Finding]:
    """Yield a finding if two processes with the same node name run at the same time, which a restart does not cause."""
    kind = "duplicate-node-id"
    spans: dict[str, tuple[int, int]] = {}
    for fact in facts:
        first, last = spans.get(fact.boot, (fact.minute, fact.minute))
        spans[fact.boot] = min(first, fact.minute), max(last, fact.minute)
    ordered = sorted(spans.values())
    for at, (first, last) in enumerate(ordered):
        for other, until in ordered[at + 1 :]:
            together = min(last, until) - other
            if first <= other and together >= context.minutes(kind):
                yield context.finding(
                    kind,
                    Subject(node=node),
                    f"{len(spans)} processes wrote telemetry as {node} at the same time",
                    share=context.node_share(node),
                    since=other * MINUTE_S,
                    processes=len(spans),
                    minutes=together,
                )
                return


def resource_eta(
    context: Context, node: str, resource: str
) -> tuple[float | None, float | None, Growth | None, Eta]:
    """Return a resource's used amount, limit and growth, and the estimated time at which it reaches the limit.

    For the disk, used amount and limit are negative bytes of free space, see `used_and_limit`.
    The growth of memory is that of the queues: the memory of the process grows in steps, because of the garbage
    collector (spark §3.2).
    """
    kind = "resource-near-limit"
    facts = context.evidence.nodes.get(node, [])
    last = context.latest.get(node)
    if last is None:
        return None, None, None, Eta(None, None, "there is no recent telemetry of the node")
    growth: Growth | None
    now, limit = used_and_limit(last, resource)
    if resource == "memory":
        told = next((each.growth for each in context.evidence.memory if each.node == node), None)
        growth = None
        if told is not None and now is not None:
            growth = Growth(now, told.slope, told.se, told.r2, told.span_s, told.now_se, told.halves)
    else:
        points = [
            (fact.minute * MINUTE_S, used)
            for fact in facts
            if (used := used_and_limit(fact, resource)[0]) is not None
        ]
        growth = growth_of(points)
    found = eta(
        growth,
        limit,
        span_min_s=(context.minutes(kind) - 1) * MINUTE_S,
        r2_min=context.of(kind, "r2_min"),
    )
    return now, limit, growth, found


def used_and_limit(fact: NodeMinute, resource: str) -> tuple[float | None, float | None]:
    """Return the used amount of a resource and its limit.

    Telemetry does not have the size of the disk. The figures of the disk are therefore negative bytes of free space,
    which rise to the limit.
    """
    pairs: dict[str, Callable[[], tuple[float | None, float | None]]] = {
        "memory": lambda: (fact.mem_rss, fact.mem_limit),
        "disk": lambda: (
            None if fact.disk_free is None else -fact.disk_free,
            None if fact.disk_limit is None else -fact.disk_limit,
        ),
        "fd": lambda: (fact.fd_used, fact.fd_limit),
        "socket": lambda: (fact.sock_used, fact.sock_limit),
    }
    return pairs[resource]()


def judge_resources(context: Context, node: str) -> Iterator[Finding]:
    """Yield a finding if resources of a node are near their limits or will reach them soon."""
    kind = "resource-near-limit"
    names = {"memory": "memory", "fd": "file descriptors", "socket": "sockets"}
    reasons, evidence = [], {}
    severity: Severity = "warn"
    for resource in RESOURCES:
        now, limit, _, expected = resource_eta(context, node, resource)
        if now is None or not limit:
            continue
        used = now / limit if limit > 0 else limit / now if now else 1.0
        is_soon = expected.eta_s is not None and expected.eta_s < context.of(kind, "eta_s")
        if used <= context.of(kind, "used") and not is_soon:
            continue
        if used >= 1.0:
            severity = "crit"
        if resource == "disk":
            what = (
                f"{-now / 1e9:.2f} GB of disk space is free, and at least {-limit / 1e9:.2f} GB must be free"
            )
        else:
            what = f"{names[resource]}: {used:.0%} of the limit"
        if is_soon and expected.eta_s:
            what += f", reached in about {expected.eta_s / 3600:.1f} h"
        reasons.append(what)
        evidence[resource] = {"used": round(used, 4), "eta_s": expected.eta_s}
    if reasons:
        yield context.finding(
            kind,
            Subject(node=node),
            f"{node}: {'; '.join(reasons)}",
            severity=severity,
            share=context.node_share(node),
            resources=evidence,
        )
