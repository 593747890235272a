"""Rules about the traffic of a queue: growth, consumers, acknowledgements, redeliveries, too much load for one node.

Source: spark §3.2.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from spark_ops.health.common_causes import of_policy
from spark_ops.health.context import MINUTE_S, Context, masters, name_of, subject_of
from spark_ops.health.facts import NodeMinute, QueueHistory, ReplicaMinute
from spark_ops.health.finding import Cause, Finding, Subject
from spark_ops.health.forecast import eta, fit_points, growth_of
from spark_ops.health.minutes import percentile, rise, rises, running

_LOSSES: Final[Mapping[str, tuple[str, str]]] = {
    "no-exchange": (
        "the dead-letter exchange does not exist",
        "Declare the exchange that the queue's dead-letter-exchange names, or correct the name.",
    ),
    "no-route": (
        "the dead-letter exchange has no queue for them",
        "Bind a queue to the dead-letter exchange, or let dead-letter-routing-key name a queue that exists.",
    ),
    "refused": (
        "the dead-letter queues are full and refused them",
        "Consume the dead letters, or raise the length limit of the queue that refuses them.",
    ),
    "cycle": (
        "they would have come back to their queue in a cycle",
        "Change the dead-letter routing: messages that expire must not come back to the same queue by themselves.",
    ),
}
"""What each cause of lost dead letters means, and the advice, by cause (`LOST_CAUSES` of the schema)."""


def judge_work(context: Context, queue: QueueHistory) -> Iterator[Finding]:
    """Yield all findings about the traffic of one queue."""
    facts = masters(queue)
    if not facts:
        return
    yield from _runaway(context, queue, facts)
    yield from _starvation(context, queue, facts)
    yield from _unacked_stuck(context, queue, facts)
    yield from _redelivery_loop(context, queue, facts)
    yield from _messages_dropped(context, queue, facts)
    yield from _dead_letters_lost(context, queue, facts)
    yield from _hot_single(context, queue)


def _runaway(context: Context, queue: QueueHistory, facts: list[ReplicaMinute]) -> Iterator[Finding]:
    kind = "runaway-queue"
    end, minutes = context.evidence.end, context.minutes(kind)
    first = end - max(minutes, context.minutes(kind, "fit_minutes"))
    known = [(fact.minute, float(fact.msg_bytes)) for fact in facts if fact.msg_bytes is not None]
    points = [(minute * MINUTE_S, size) for minute, size in known if minute >= first]
    growth = growth_of(points)
    line = fit_points(points)
    stale = context.settings.health["stale_minutes"]
    if growth is None or line is None or known[-1][0] < end - stale:
        return
    if (
        growth.span_s < (minutes - 1) * MINUTE_S
        or growth.slope <= 0
        or growth.r2 <= context.of(kind, "r2_min")
    ):
        return
    if growth.slope * growth.span_s < context.of(kind, "rise_min_bytes"):
        return
    if growth.halves is not None and min(growth.halves) <= 0:
        return
    earlier = [size for minute, size in known if minute < first]
    usual = context.evidence.before.get((queue.vhost, queue.queue))
    if usual is None and earlier:
        usual = percentile(earlier, 0.95)
    if usual is not None and points[-1][1] <= usual:
        return
    node = (facts[-1].ring or (None,))[0]
    at = context.latest.get(node) if node is not None else None
    left = _room(at) if at is not None else None
    expected = eta(
        None if left is None else growth,
        None if left is None else growth.now + left,
        span_min_s=(minutes - 1) * MINUTE_S,
        r2_min=context.of(kind, "r2_min"),
    )
    soon = expected.eta_s is not None and expected.eta_s < context.of(kind, "eta_crit_s")
    when = (
        ""
        if expected.eta_s is None
        else f"; {node} reaches its memory limit in about {_span(expected.eta_s)}"
    )
    yield context.finding(
        kind,
        subject_of(queue),
        f"{name_of(queue)} grows by {growth.slope * 60 / 1e6:.2f} MB per minute (R² {growth.r2:.2f}){when}",
        severity="crit" if soon else "warn",
        share=queue.share,
        since=points[0][0],
        bytes=points[-1][1],
        bytes_per_s=growth.slope,
        r2=growth.r2,
        usual_p95_bytes=usual,
        eta_s=expected.eta_s,
        node=node,
    )


def _room(node: NodeMinute) -> float | None:
    """Return the bytes of memory that a node can use until it reaches its watermark; None if unknown."""
    if node.mem_rss is None or not node.mem_limit:
        return None
    return max(0.0, float(node.mem_limit - node.mem_rss))


def _span(seconds: float) -> str:
    """Return a duration as text, in minutes, hours or days."""
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def _starvation(context: Context, queue: QueueHistory, facts: list[ReplicaMinute]) -> Iterator[Finding]:
    """Yield at most one finding: for a queue without consumers, else for slow consumers, else for messages too old."""
    kind = "consumer-starvation"
    states = context.filled(facts)

    def held(is_bad: Callable[[ReplicaMinute], bool]) -> float | None:
        return context.held_since(kind, [None if fact is None else is_bad(fact) for fact in states])

    last = facts[-1]
    figures: dict[str, Any] = {
        "ready": last.ready,
        "consumers": last.consumers,
        "head_age_ms": last.head_age_ms,
    }
    since = held(lambda fact: fact.consumers == 0 and (fact.ready or 0) > 0)
    if since is not None:
        text = f"{name_of(queue)} has {last.ready} messages and no consumer"
        yield context.finding(
            kind, subject_of(queue), text, share=queue.share, since=since, why="no-consumer", **figures
        )
        return
    util = context.of(kind, "util")
    since = held(
        lambda fact: bool(fact.consumers) and fact.consumer_util is not None and fact.consumer_util < util
    )
    if since is not None and _ready_grows(context, facts):
        text = (
            f"{_consumers(last)} of {name_of(queue)} could take messages for "
            f"{last.consumer_util or 0:.0%} of the time only, and {last.ready} messages are waiting"
        )
        figures["consumer_util"] = last.consumer_util
        yield context.finding(
            kind, subject_of(queue), text, share=queue.share, since=since, why="consumer-bound", **figures
        )
        return
    slo_ms = context.of(kind, "head_age_slo_s") * 1000
    recent = [
        fact.head_age_ms for fact in facts if fact.minute >= context.evidence.end - context.minutes(kind)
    ]
    ages = [age for age in recent if age is not None]
    if slo_ms and last.consumers and len(ages) >= 2 and percentile(ages, 0.95) > slo_ms:
        text = f"the oldest message of {name_of(queue)} has waited for {_span(percentile(ages, 0.95) / 1000)}"
        yield context.finding(kind, subject_of(queue), text, share=queue.share, why="old-messages", **figures)


def _ready_grows(context: Context, facts: list[ReplicaMinute]) -> bool:
    """True if the number of ready messages grows linearly."""
    kind = "consumer-starvation"
    first = context.evidence.end - context.minutes(kind) - 1
    line = fit_points(
        [(fact.minute * MINUTE_S, float(fact.ready or 0)) for fact in facts if fact.minute >= first]
    )
    return line is not None and line.slope > 0 and line.r2 > context.of(kind, "r2_min")


def _unacked_stuck(context: Context, queue: QueueHistory, facts: list[ReplicaMinute]) -> Iterator[Finding]:
    kind = "unacked-stuck"
    minutes, filled_share = context.minutes(kind), context.of(kind, "filled")
    acked_at = [
        fact.minute
        for fact, risen in zip(facts, rises(facts, lambda fact: fact.ack_total), strict=True)
        if risen > 0
    ]
    begun = facts[0].minute
    bad: list[bool | None] = []
    latest = 0  # number of items of acked_at up to this minute
    for minute, fact in enumerate(context.filled(facts), context.evidence.start):
        while latest < len(acked_at) and acked_at[latest] <= minute:
            latest += 1
        quiet_since = acked_at[latest - 1] if latest else begun
        if fact is None or fact.unacked is None:
            bad.append(None)
            continue
        is_full = bool(fact.prefetch_sum) and fact.unacked >= filled_share * (fact.prefetch_sum or 0)
        bad.append(is_full and minute - quiet_since >= minutes)
    since = context.held_since(kind, bad)
    if since is None:
        return
    last = facts[-1]
    yield context.finding(
        kind,
        subject_of(queue),
        f"{_consumers(last)} of {name_of(queue)} {'holds' if last.consumers == 1 else 'hold'} {last.unacked} "
        "messages, nearly all that the prefetch allows, with no acknowledgement",
        share=queue.share,
        since=since,
        unacked=last.unacked,
        prefetch_sum=last.prefetch_sum,
        ready=last.ready,
    )


def _redelivery_loop(context: Context, queue: QueueHistory, facts: list[ReplicaMinute]) -> Iterator[Finding]:
    kind = "redelivery-loop"
    minutes, ratio = context.minutes(kind), context.of(kind, "ratio")
    by_minute: dict[int, tuple[int, int]] = {}
    for fact, again, pushed, pulled in zip(
        facts,
        rises(facts, lambda fact: fact.redeliver_total),
        rises(facts, lambda fact: fact.dlv_total),
        rises(facts, lambda fact: fact.get_total),
        strict=True,
    ):
        by_minute[fact.minute] = (again, pushed + pulled)
    bad: list[bool | None] = []
    worst = 0.0  # of the last minutes in which the rule's condition held
    for minute, state in enumerate(context.filled(facts), context.evidence.start):
        parts = [by_minute.get(at, (0, 0)) for at in range(minute - minutes + 1, minute + 1)]
        again, delivered = sum(part[0] for part in parts), sum(part[1] for part in parts)
        is_bad = delivered >= context.of(kind, "deliveries_min") and again > ratio * delivered
        if is_bad:
            worst = again / delivered
        bad.append(None if state is None else is_bad)
    since = context.held_since(kind, bad)
    if since is None:
        return
    yield context.finding(
        kind,
        subject_of(queue),
        f"{worst:.0%} of the deliveries of {name_of(queue)} {'are' if bad[-1] else 'were'} redeliveries",
        share=queue.share,
        since=since,
        redelivered_share=worst,
    )


def _messages_dropped(context: Context, queue: QueueHistory, facts: list[ReplicaMinute]) -> Iterator[Finding]:
    """Yield a finding if a queue's length limit dropped messages that no dead-letter exchange got."""
    kind = "messages-dropped"
    start, end = context.evidence.end - context.minutes(kind), context.evidence.end
    dropped = rise(facts, lambda fact: fact.dropped_total, start, end)
    kept = rise(facts, lambda fact: fact.dead_lettered_total, start, end)
    published = rise(facts, lambda fact: fact.pub_total, start, end)
    lost = dropped - kept
    if lost < max(1.0, context.of(kind, "dropped_min")):
        return
    share = lost / published if published else 1.0
    yield context.finding(
        kind,
        subject_of(queue),
        f"{name_of(queue)} dropped {lost} messages in {end - start} min, {min(1.0, share):.0%} of the published "
        "messages, because it is full",
        severity="warn" if share >= context.of(kind, "warn_share") else "info",
        share=queue.share,
        common=of_policy(queue.vhost, facts[-1].policy, "drop messages because they are full"),
        dropped=lost,
        published=published,
    )


def _dead_letters_lost(
    context: Context, queue: QueueHistory, facts: list[ReplicaMinute]
) -> Iterator[Finding]:
    """Yield a finding if no queue has dead letters of this queue. The advice is about the most frequent cause."""
    kind = "dead-letters-lost"
    start, end = context.evidence.end - context.minutes(kind), context.evidence.end
    lost = rise(facts, lambda fact: fact.dead_letters_lost_total, start, end)
    if lost < max(1.0, context.of(kind, "lost_min")):
        return
    causes = sorted({cause for fact in facts for cause, _ in fact.dead_letters_lost_by or ()})
    by_cause = {cause: rise(facts, lambda fact, of=cause: _lost_by(fact, of), start, end) for cause in causes}  # type: ignore[misc]
    told = sorted((cause for cause in causes if by_cause[cause]), key=lambda cause: (-by_cause[cause], cause))
    whys = [
        f"{by_cause[cause]} because {_LOSSES[cause][0]}" if len(told) > 1 else f"{_LOSSES[cause][0]}"
        for cause in told
        if cause in _LOSSES
    ]
    why = f": {'; '.join(whys)}" if whys else ""
    figures: dict[str, Any] = {f"lost_{cause.replace('-', '_')}": by_cause[cause] for cause in told}
    count = "1 dead letter" if lost == 1 else f"{lost} dead letters"
    yield context.finding(
        kind,
        subject_of(queue),
        f"{count} of {name_of(queue)} {'was' if lost == 1 else 'were'} lost in {end - start} min{why}",
        share=queue.share,
        advice=next((_LOSSES[cause][1] for cause in told if cause in _LOSSES), None),
        common=_of_exchange(queue, facts[-1], told),
        lost=lost,
        causes=told,
        **figures,
    )


def _of_exchange(queue: QueueHistory, last: ReplicaMinute, told: list[str]) -> Cause | None:
    """Return the dead-letter exchange as the cause. A cycle depends on the queue, and not on its exchange."""
    exchange = last.dead_letter_exchange
    why = next((cause for cause in told if cause in _LOSSES), "cycle")
    if exchange is None or why == "cycle":
        return None
    return Cause(
        queue.vhost,
        f"dead-letter exchange {exchange!r}",
        f"lose their dead letters because {_LOSSES[why][0]}",
    )


def _lost_by(fact: ReplicaMinute, cause: str) -> int | None:
    """Return how many dead letters were lost by a cause; None if the node does not count them."""
    return (
        None if fact.dead_letters_lost_total is None else dict(fact.dead_letters_lost_by or ()).get(cause, 0)
    )


def _consumers(fact: ReplicaMinute) -> str:
    return "1 consumer" if fact.consumers == 1 else f"{fact.consumers} consumers"


def _hot_single(context: Context, queue: QueueHistory) -> Iterator[Finding]:
    kind = "hot-single-queue"
    first = context.evidence.end - context.minutes(kind)
    for node, facts in sorted(queue.copies.items()):
        at = context.latest.get(node)
        if at is None or facts[-1].role != "master":
            continue
        used_us = rises(facts, lambda fact: fact.cpu_us_total)
        ran_ms = running(facts)
        recent = [pos for pos, fact in enumerate(facts) if fact.minute >= first and fact.role == "master"]
        cpu_s, ran_s = sum(used_us[pos] for pos in recent) / 1e6, sum(ran_ms[pos] for pos in recent) / 1e3
        if ran_s < (context.minutes(kind, "history_minutes") - 1) * MINUTE_S:
            continue
        capacity = min(float(at.cores or 1), context.of(kind, "cores_usable"))
        cores = cpu_s / ran_s
        if cores <= context.of(kind, "share") * capacity:
            continue
        yield context.finding(
            kind,
            Subject(node=node, vhost=queue.vhost, queue=queue.queue),
            f"{name_of(queue)} alone uses {cores / capacity:.0%} of the usable CPU of {node}; moving it will not help",
            share=queue.share,
            since=facts[recent[0]].minute * MINUTE_S,
            cores=cores,
            capacity_cores=capacity,
        )
