"""Rules about the copies of a queue: too few, unsynchronised, all in one zone, or lagging behind.

Source: spark §3.2.
"""

from collections.abc import Iterator
from typing import Final

from spark_ops.health.common_causes import of_policy
from spark_ops.health.context import MINUTE_S, Context, masters, name_of, subject_of
from spark_ops.health.facts import EventFact, QueueHistory, ReplicaMinute
from spark_ops.health.finding import Finding
from spark_ops.health.forecast import fit_points
from spark_ops.health.minutes import percentile

PLAN_SETTLES_MINUTES: Final = 3
"""Rules about missing mirrors ignore a queue for this many minutes after a step of a plan."""


def judge_copies(context: Context, queue: QueueHistory) -> Iterator[Finding]:
    """Yield all findings about the copies of one queue."""
    yield from _under_replicated(context, queue)
    yield from _unsynced_mirror(context, queue)
    yield from _single_zone(context, queue)
    yield from _mirror_lagging(context, queue)


def _planned_minutes(context: Context, queue: QueueHistory) -> set[int]:
    """Return the minutes in which a step of a plan changed a queue."""
    found: set[int] = set()
    begun: int | None = None
    for event in sorted(context.evidence.events, key=lambda event: event.ts):
        if (event.vhost, event.queue) != (queue.vhost, queue.queue) or not is_of_plan(event):
            continue
        minute = event.ts // 60_000
        if event.event == "plan_step_start":
            begun = minute
        found.update(range(minute if begun is None else begun, minute + PLAN_SETTLES_MINUTES))
        if event.event != "plan_step_start":
            begun = None
    if begun is not None:
        found.update(range(begun, context.evidence.end))
    return found


def is_of_plan(event: EventFact) -> bool:
    """True if a plan caused the event."""
    return event.event.startswith("plan_step") or (event.cause or "").startswith("plan:")


def _under_replicated(context: Context, queue: QueueHistory) -> Iterator[Finding]:
    kind = "under-replicated"
    planned = _planned_minutes(context, queue)
    bad: list[bool | None] = []
    last: ReplicaMinute | None = None
    for minute, fact in enumerate(context.filled(masters(queue)), context.evidence.start):
        if fact is None or fact.ring is None or fact.want_mirrors is None:
            bad.append(None)
            continue
        bad.append(len(fact.ring) - 1 < fact.want_mirrors and minute not in planned)
        last = fact
    since = context.held_since(kind, bad)
    if since is None or last is None or last.ring is None:
        return
    mirrors, want = len(last.ring) - 1, last.want_mirrors or 0
    synced = len(set(last.synced or ()) & set(last.ring[1:]))
    yield context.finding(
        kind,
        subject_of(queue),
        f"{name_of(queue)} has {mirrors} of {want} mirrors, {synced} of them synchronised",
        severity="warn" if synced else "crit",
        share=queue.share,
        since=since,
        common=of_policy(queue.vhost, last.policy, "have fewer mirrors than it wants"),
        mirrors=mirrors,
        want_mirrors=want,
        synced_mirrors=synced,
        master=last.ring[0] if last.ring else None,
    )


def _unsynced_mirror(context: Context, queue: QueueHistory) -> Iterator[Finding]:
    kind = "unsynced-mirror"
    by_master = context.filled(masters(queue))
    last = next((fact for fact in reversed(by_master) if fact is not None), None)
    for node in (last.ring or ())[1:] if last is not None else ():
        own = context.filled(queue.copies.get(node, []))
        bad: list[bool | None] = []
        for at, (master, mirror) in enumerate(zip(by_master, own, strict=True)):
            if master is None or master.ring is None or node not in master.ring[1:]:
                bad.append(None if master is None else False)
                continue
            lacks = node not in (master.synced or ())
            before = own[max(0, at - context.minutes(kind, "stall_minutes"))]
            bad.append(lacks and not _makes_progress(context, before, mirror))
        since = context.held_since(kind, bad)
        if since is None or last is None:
            continue
        mirror = own[-1]
        progress = mirror.sync_progress if mirror is not None else None
        done = "" if progress is None else f"; {progress:.0%} is synchronised"
        yield context.finding(
            kind,
            subject_of(queue, node),
            f"the mirror of {name_of(queue)} on {node} lacks messages and receives none{done}",
            severity="warn" if set(last.synced or ()) & set((last.ring or ())[1:]) else "crit",
            share=queue.share,
            since=since,
            common=of_policy(
                queue.vhost, last.policy, f"have a mirror on {node} that lacks messages and receives none"
            ),
            sync_state=mirror.sync_state if mirror is not None else None,
            sync_progress=progress,
            copies=len(last.ring or ()),
        )


def _makes_progress(context: Context, before: ReplicaMinute | None, now: ReplicaMinute | None) -> bool:
    """True if a mirror is being synchronised and its progress rises."""
    if now is None or now.sync_progress is None or now.sync_state != "syncing":
        return False
    if before is None or before.sync_progress is None or before.sync_state != "syncing":
        return True  # the synchronisation has just begun
    return now.sync_progress - before.sync_progress >= context.of("unsynced-mirror", "progress_min")


def _single_zone(context: Context, queue: QueueHistory) -> Iterator[Finding]:
    kind = "single-zone"
    zones = {node: fact.zone for node, fact in context.latest.items()}
    live = {zone for zone in zones.values() if zone is not None}
    if len(live) < 2:
        return
    bad: list[bool | None] = []
    last: ReplicaMinute | None = None
    for fact in context.filled(masters(queue)):
        if fact is None or fact.ring is None:
            bad.append(None)
            continue
        own = {zones.get(node) for node in fact.ring}
        bad.append(len(fact.ring) > 1 and len(own) == 1 and None not in own)
        last = fact
    since = context.held_since(kind, bad)
    if since is None or last is None or not last.ring:
        return
    zone = zones[last.ring[0]]
    copies = "both" if len(last.ring) == 2 else f"all {len(last.ring)}"
    yield context.finding(
        kind,
        subject_of(queue),
        f"{copies} copies of {name_of(queue)} are in zone {zone!r}; there are {len(live)} zones",
        share=queue.share,
        since=since,
        common=of_policy(queue.vhost, last.policy, f"have all their copies in zone {zone!r}"),
        zone=zone,
        zones=sorted(live),
        ring=list(last.ring),
    )


def _mirror_lagging(context: Context, queue: QueueHistory) -> Iterator[Finding]:
    """Yield a finding for each copy whose rows have a large lag. Nodes report the lag of all mirrors in the master's
    rows; other sources of telemetry may report it in the rows of each mirror."""
    kind = "mirror-lagging"
    minutes, limit = context.minutes(kind), context.of(kind, "lag_ms")
    for node, facts in sorted(queue.copies.items()):
        recent = [
            fact
            for fact in facts
            if fact.minute >= context.evidence.end - minutes and fact.lag_ms_max is not None
        ]
        points = [(fact.minute * MINUTE_S, float(fact.lag_ms_max or 0)) for fact in recent]
        if len(points) < 3 or recent[-1].minute < context.evidence.end - minutes / 2:
            continue
        p95 = percentile([lag for _, lag in points], 0.95)
        line = fit_points(points)
        grows = (
            line is not None
            and line.slope > 0
            and line.r2 > context.of(kind, "r2_min")
            and points[-1][0] - points[0][0] >= (minutes - 2) * MINUTE_S
            and points[-1][1] >= context.of(kind, "growing_lag_ms")
        )
        if p95 <= limit and not grows:
            continue
        since = next((at for at, lag in points if lag > limit), points[0][0])
        is_master = recent[-1].role == "master"
        who = (
            f"mirrors of {name_of(queue)} are"
            if is_master
            else f"the mirror of {name_of(queue)} on {node} is"
        )
        yield context.finding(
            kind,
            subject_of(queue, node),
            f"{who} {p95 / 1000:.1f} s behind the master" + (", and the lag grows" if grows else ""),
            share=queue.share,
            since=since,
            lag_p95_ms=p95,
            lag_ms=points[-1][1],
            grows_ms_per_min=line.slope * MINUTE_S if line is not None else 0.0,
        )
