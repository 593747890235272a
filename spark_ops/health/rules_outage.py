"""Rules about outages: nodes that are down or cut off, alarms, blocked publishers, and queues without a master.

Nodes that are down report nothing, so these rules compare a node's last row with the end of the window and with what
the other nodes say. A window ends with the present when no node reports (`spark_ops.jobs.health.choose_window`).
Source: spark §2.2, §2.5, §3.2.
"""

from collections import defaultdict
from collections.abc import Iterator

from spark_ops.health.context import MINUTE_S, Context, masters
from spark_ops.health.facts import EventFact, NodeMinute, QueueHistory, ReplicaMinute
from spark_ops.health.finding import Finding, Subject
from spark_ops.health.minutes import percentile

PAUSED = "paused"
"""The cause of a `node_stop` of a node that does not reach a majority: nobody has stopped it."""
NAMED_MAX = 20
"""The most pairs of nodes and alarms that the evidence of a finding names."""


def judge_outage(context: Context) -> Iterator[Finding]:
    """Yield all findings about outages."""
    yield from _cluster_down(context)
    yield from _nodes_down(context)
    yield from _partition(context)
    for node, facts in sorted(context.evidence.nodes.items()):
        yield from _alarms(context, node, facts)
    yield from _publishers_blocked(context)
    yield from _queues_without_master(context)


def _ended(context: Context) -> tuple[set[str], dict[str, int]]:
    """Return the nodes that were stopped cleanly and did not start again, and those that have paused and since when.

    A node pauses when it does not reach a majority of the nodes. Times are ms since 1970.
    """
    last: dict[str, EventFact] = {}
    for event in sorted(context.evidence.events, key=lambda event: event.ts):
        if event.event in ("node_start", "node_stop"):
            last[event.node] = event
    ended = {node: event for node, event in last.items() if event.event == "node_stop"}
    paused = {node: event.ts for node, event in ended.items() if event.cause == PAUSED}
    return ended.keys() - paused.keys(), paused


def _is_majority_stopped(context: Context, stopped: set[str]) -> bool:
    """True if so many nodes were stopped that the others had to pause."""
    nodes = [node for node, facts in context.evidence.nodes.items() if facts]
    return 2 * len(stopped.intersection(nodes)) >= len(nodes)


def _cluster_down(context: Context) -> Iterator[Finding]:
    """Yield a finding if no node reports any more. It is a warning if all of them were stopped cleanly."""
    nodes = [node for node, facts in context.evidence.nodes.items() if facts]
    quiet = context.silent
    if not nodes or len(quiet) < len(nodes):
        return
    last = max(quiet.values())
    stopped, paused = _ended(context)
    is_willed = set(nodes) <= stopped | paused.keys() and _is_majority_stopped(context, stopped)
    how = (
        "all of them were stopped" if is_willed else "the cluster is down, or its telemetry is not collected"
    )
    yield context.finding(
        "cluster-down",
        Subject(),
        f"none of {len(nodes)} nodes has reported for {context.evidence.end - last - 1} min: {how}",
        severity="warn" if is_willed else "crit",
        share=1.0,
        since=(last + 1) * MINUTE_S,
        nodes=sorted(nodes),
    )


def _nodes_down(context: Context) -> Iterator[Finding]:
    """Yield a finding for each node that the reporting nodes no longer count as up, if it was not stopped cleanly."""
    kind = "node-down"
    end, least = context.evidence.end, context.minutes(kind, "silent_minutes")
    up = context.up
    if not up:
        return
    stopped, paused = _ended(context)
    ended = stopped | paused.keys()  # a node that has paused is told by the partition
    for node, facts in sorted(context.evidence.nodes.items()):
        if not facts or node in up or node in ended or end - facts[-1].minute - 1 < least:
            continue
        last = facts[-1]
        yield context.finding(
            kind,
            Subject(node=node),
            f"{node} is down: it has not reported for {end - last.minute - 1} min, and the other nodes do not see it",
            share=context.node_share(node),
            since=(last.minute + 1) * MINUTE_S,
            masters=last.queues_master,
            mirrors=last.queues_mirror,
        )


def _partition(context: Context) -> Iterator[Finding]:
    """Yield one finding for all pairs of nodes of which one is up and cannot be reached by the other one, and for all
    nodes that have paused because they reach no majority."""
    since: dict[tuple[str, str], int] = {}
    for event in sorted(context.evidence.events, key=lambda event: event.ts):
        if event.event == "node_start":
            since = {pair: ts for pair, ts in since.items() if event.node not in pair}
        elif event.to_node is None:
            continue
        elif event.event == "partition_suspected":
            since.setdefault((event.node, event.to_node), event.ts)
        elif event.event == "partition_healed":
            since.pop((event.node, event.to_node), None)
    stopped, paused = _ended(context)
    if _is_majority_stopped(context, stopped):
        paused = {}  # as was to be expected of the nodes that are left
    if not since and not paused:
        return
    pairs = sorted(since)
    told = [f"{node} has paused, as it does not reach most of the nodes" for node in sorted(paused)]
    told += [f"{one} cannot reach {other}" for one, other in pairs]
    more = f", and {len(told) - 3} more" if len(told) > 3 else ""
    yield context.finding(
        "partition",
        Subject(),
        f"nodes that are up are cut off from each other: {', '.join(told[:3])}{more}",
        share=1.0,
        since=min([*since.values(), *paused.values()]) / 1000,
        pairs=[f"{one} → {other}" for one, other in pairs[:NAMED_MAX]],
        paused=sorted(paused)[:NAMED_MAX],
        count=len(told),
    )


def _alarms(context: Context, node: str, facts: list[NodeMinute]) -> Iterator[Finding]:
    """Yield a finding if a node's last row has an alarm."""
    if not facts or not facts[-1].alarms or node not in context.latest:
        return
    last, begun = facts[-1], facts[-1].minute
    for fact in reversed(facts):
        if not fact.alarms:
            break
        begun = fact.minute
    alarms = list(last.alarms or ())
    what = " and ".join(alarms)
    figures = {
        "memory": f"{_gb(last.mem_rss)} of {_gb(last.mem_limit)} used",
        "disk": f"{_gb(last.disk_free)} free, at least {_gb(last.disk_limit)} must be free",
    }
    told = "; ".join(figures[alarm] for alarm in alarms if alarm in figures)
    yield context.finding(
        "alarm-active",
        Subject(node=node),
        f"{node} has a {what} alarm, which blocks the publishers of the whole cluster"
        + (f" ({told})" if told else ""),
        share=1.0,
        since=begun * MINUTE_S,
        alarms=alarms,
    )


def _gb(size: int | None) -> str:
    if size is None:
        return "?"
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _publishers_blocked(context: Context) -> Iterator[Finding]:
    """Yield one finding for the cluster if connections are blocked by an alarm for some minutes."""
    kind = "publishers-blocked"
    by_minute: dict[int, tuple[int, int]] = {}
    known = [context.filled(facts) for _, facts in sorted(context.evidence.nodes.items())]
    bad: list[bool | None] = []
    for at in range(context.evidence.end - context.evidence.start):
        facts = [fact for own in known if (fact := own[at]) is not None and fact.blocked_conns is not None]
        if not facts:
            bad.append(None)
            continue
        blocked = sum(fact.blocked_conns or 0 for fact in facts)
        by_minute[at] = blocked, sum(fact.conns or 0 for fact in facts)
        bad.append(blocked > 0)
    since = context.held_since(kind, bad)
    if since is None:
        return
    # The figures are of the last minute in which connections were blocked: the finding outlasts it.
    blocked, conns = next(by_minute[at] for at in sorted(by_minute, reverse=True) if by_minute[at][0])
    yield context.finding(
        kind,
        Subject(),
        f"{blocked} of {conns} connections are blocked by an alarm",
        share=blocked / conns if conns else 1.0,
        since=since,
        blocked=blocked,
        connections=conns,
    )


def _queues_without_master(context: Context) -> Iterator[Finding]:
    """Yield a finding for each node that had the last masters of queues without a master.

    A queue's rows end when it is deleted, too. So a queue counts only if its last master was on a node that is silent,
    or if a live node still reports a mirror of it. Exclusive queues, and transient queues without mirrors, end with
    their node.
    """
    kind = "queue-without-master"
    quiet = context.silent
    lost: dict[str, list[tuple[QueueHistory, int | None]]] = defaultdict(list)
    for queue in context.evidence.queues:
        found = _lost_master(context, queue, quiet)
        if found is not None:
            lost[found[0]].append((queue, found[1]))
    for node, parts in sorted(lost.items()):
        names = [f"{queue.queue!r} in {queue.vhost!r}" for queue, _ in parts]
        moments = [last + 1 for _, last in parts if last is not None]
        where = (
            f"their last master was on {node}" if node else "no node reported a master of them in the window"
        )
        if len(parts) == 1:
            where = where.replace("their", "its").replace("of them", "of it")
        what = f"queue {names[0]} has no master" if len(parts) == 1 else f"{len(parts)} queues have no master"
        yield context.finding(
            kind,
            Subject(node=node or None),
            f"{what}: {where}",
            share=sum(queue.share for queue, _ in parts),
            since=percentile(moments, 0.0) * MINUTE_S if moments else None,
            queues=sorted(names)[: context.minutes(kind, "queues_named")],
            count=len(parts),
        )


def _lost_master(
    context: Context, queue: QueueHistory, quiet: dict[str, int]
) -> tuple[str, int | None] | None:
    """Return the node of a queue's last master and that master's last minute, if the queue has no master any more.

    The node is empty if the window has no row of a master.
    """
    stale = round(context.settings.health["stale_minutes"])
    up = context.up
    if not up:
        return None  # no node reports, which is a finding of its own
    mirrors: list[ReplicaMinute] = [
        facts[-1]
        for node, facts in queue.copies.items()
        if facts and facts[-1].role == "mirror" and node not in quiet
    ]
    newest = max(mirrors, key=lambda fact: fact.minute, default=None)
    is_told = newest is not None and newest.minute >= context.evidence.end - 2 * stale
    # A master on a node that is up is not gone because its rows are missing.
    home = newest.master_node if newest is not None else None
    is_unseen = home in up and (home not in context.latest or not _is_whole(context, home))
    of_masters = masters(queue)
    if not of_masters:
        return ("", None) if is_told and not is_unseen else None
    last = of_masters[-1]
    if last.exclusive or (last.durable is False and len(last.ring or ()) < 2):
        return None
    node = next(node for node, facts in queue.copies.items() if any(fact is last for fact in facts))
    if node in quiet:
        # A row that is older than the node's last ones by more than the longest interval is of a deleted queue.
        return (node, last.minute) if node not in up and last.minute >= quiet[node] - stale else None
    is_older = newest is not None and last.minute < newest.minute - stale
    return (node, last.minute) if is_told and is_older and not is_unseen else None


def _is_whole(context: Context, node: str | None) -> bool:
    """True if all rows about queues that a node wrote were read."""
    return all(
        each.seen == each.seq_max - each.seq_min + 1
        for each in context.evidence.rows
        if each.node == node and each.kind == "queue"
    )
