"""The resource `/mirroring`: rings and their state, events, and the plan of a rebalancing. Not RabbitMQ's.

Rings are sorted and cut by the metadata; nodes are asked about progress only for the rings that are shown.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, get_args

from node.catalogue.mirrors.mirror_nodes import copies_wanted, nodes_wanted
from node.catalogue.mirrors.rebalance import Move, QueueKind, plan, selected
from node.catalogue.mirrors.views import View
from node.catalogue.patterns import PatternInvalid, compile_pattern
from node.catalogue.policy import queue_settings
from node.catalogue.records import ClusterMember, QueueRecord
from node.io.turns import next_slice
from node.management.call import Call
from node.management.reply import Reply, bad_request, no_such_thing, ok
from node.management.routes import Access, Route
from node.statistics.query import IDS_MAX, Query
from node.statistics.queue_facts import copies_of
from node.statistics.rows import Row

EVENTS_MAX: Final = 1000
"""The most events of all nodes together; the newest count."""

SAFE: Final = 3
"""The `danger` of a ring that has all copies that it should have."""
_SLICE: Final = 200
_STATISTICS: Final = frozenset({"mirrors", "messages"})


async def rings(call: Call) -> Reply:
    """GET /mirroring/rings and /mirroring/rings/{vhost}: the mirrored queues, as a list that can be paged."""
    listing = call.listing()
    rows = [ring_facts(record, *about) async for record, about in _judged(call)]
    chosen = listing.chosen(rows)
    if listing.page is None:
        return ok(listing.apply(await _with_progress(call, chosen), ("vhost", "name")))
    # To sort by a statistic, all rows need it.
    if listing.sort and listing.sort.partition(".")[0] in ("messages", "lag", "sync"):
        chosen = await _with_progress(call, chosen)
        shown = listing.cut(listing.ordered(chosen, ("vhost", "name")))
    else:
        shown = await _with_progress(call, listing.cut(listing.ordered(chosen, ("vhost", "name"))))
    return ok(listing.shown(shown, len(chosen), len(rows)))


async def ring(call: Call) -> Reply:
    """GET /mirroring/rings/{vhost}/{name}."""
    vhost = call.vhost(call.path["vhost"])
    record = call.catalogue.queue(vhost, call.path["name"])
    if record is None or record.view is None:
        raise no_such_thing()
    [row] = await _with_progress(call, [ring_facts(record, *_about(call, record, _hosts(call)))])
    return ok(row)


async def summary(call: Call) -> Reply:
    """GET /mirroring/summary: how many rings are in which danger, and what the nodes have of them."""
    dangers, count = [0] * (SAFE + 1), 0
    nodes = {member.name: {"masters": 0, "mirrors": 0, "alone": 0} for member in call.site.members()}
    async for record, about in _judged(call):
        row = ring_facts(record, *about)
        count += 1
        dangers[row["danger"]] += 1
        for name in row["mirrors"]:
            nodes.setdefault(name, {"masters": 0, "mirrors": 0, "alone": 0})["mirrors"] += 1
        if row["master"] is not None:
            of_master = nodes.setdefault(row["master"], {"masters": 0, "mirrors": 0, "alone": 0})
            of_master["masters"] += 1
            of_master["alone"] += row["complete"] == 1
    return ok({"rings": count, "danger": dangers, "nodes": nodes})


async def events(call: Call) -> Reply:
    """GET /mirroring/events, of all queues or those of `vhost` and `name`: the newest first."""
    vhost, name = call.query.get("vhost"), call.query.get("name")
    answers = await call.site.ask_all("mirroring_events", {"vhost": vhost, "name": name})
    found = [each for told in answers.values() for each in told]
    found.sort(key=lambda each: each["time"], reverse=True)
    visible = {vhost.name for vhost in call.catalogue.vhosts() if call.can_see(vhost.name)}
    chosen = [
        each
        for each in found
        if each["vhost"] in visible and vhost in (None, each["vhost"]) and name in (None, each["name"])
    ]
    return ok(chosen[:EVENTS_MAX])


async def rebalance_plan(call: Call) -> Reply:
    """GET /mirroring/rebalance-plan: what POST /rebalance/queues would do now.

    Parameters: type (all, classic, quorum), vhost_pattern, queue_pattern.
    """
    kind: QueueKind = "all"
    for known in get_args(QueueKind):
        if known == call.query.get("type"):
            kind = known
    patterns = [call.query.get(name, ".*") for name in ("vhost_pattern", "queue_pattern")]
    for pattern in patterns:
        try:
            compile_pattern(pattern)
        except PatternInvalid as error:
            raise bad_request(f"the pattern '{pattern}' is invalid: {error}") from None
    records = [record async for record, _ in _judged(call)]
    meant = selected(records, kind, *patterns)
    counts = await _counts(call, meant)
    hosts = [
        member.name
        for member in call.catalogue.members.values()
        if member.is_up and member.type != "witness" and not member.is_draining
    ] or [call.site.config.node_name]
    moves = plan([(record, counts.get(record.uid, 0)) for record in meant], hosts)
    return ok(shown_plan(meant, moves, hosts, counts))


# --- parts ---


def ring_facts(
    record: QueueRecord, policy: str | None, wanted: int, places: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the metadata of a mirrored queue.

    places: nodes that are to have a copy, where that is known; `absent` are those of them that have none.
    complete: copies that are there and lack nothing, the master's among them.
    danger: 0 without a master, 1 with a single complete copy, 2 with fewer than are wanted or than there are, else
    3.
    """
    view = record.view
    assert view is not None
    mirrors = copies_of(view)
    complete = sum(member.id in view.synced for member in view.ring)
    if view.master_node is None:
        danger = 0
    elif complete <= 1:
        danger = 1
    else:
        danger = 2 if complete < max(wanted, len(view.ring)) else SAFE
    return {
        "id": record.uid,
        "vhost": record.vhost,
        "name": record.name,
        "type": record.type,
        "policy": policy,
        "master": view.master_node,
        "mirrors": [member.node for member in mirrors],
        "synchronised": [member.node for member in mirrors if member.id in view.synced],
        "joining": [member.node for member in view.ring if member.status == "joining"],
        "dead": [member.node for member in view.members if member.status == "dead"],
        "ring": [member.node for member in view.ring],
        "version": view.version,
        "state": _state(view),
        "recoverable": list(view.recoverable),
        "absent": [name for name in places if all(member.node != name for member in view.ring)],
        "complete": complete,
        "wanted": wanted,
        "danger": danger,
    }


def with_progress(facts: Mapping[str, Any], statistics: Mapping[str, Any]) -> Row:
    """Add the facts of the master's node: how far mirrors are behind, what they lack, and which are synchronising."""
    mirrors = statistics.get("mirrors") or []
    lag = {each["node"]: each["behind"] for each in mirrors if each.get("behind") is not None}
    lacks = {each["node"]: each["lacks"] for each in mirrors if each.get("lacks") is not None}
    sync = {each["node"]: each["sync"] for each in mirrors if each.get("sync")}
    found = {key: value for key, value in facts.items() if key != "id"}
    return {**found, "messages": statistics.get("messages"), "lag": lag, "lacks": lacks, "sync": sync}


def shown_plan(
    records: Sequence[QueueRecord], moves: Sequence[Move], hosts: Sequence[str], counts: Mapping[str, int]
) -> dict[str, Any]:
    """Return a plan with the number of masters of each node before and after it."""
    before = dict.fromkeys(sorted(hosts), 0)
    for record in records:
        node = None if record.view is None else record.view.master_node
        if node is not None:
            before[node] = before.get(node, 0) + 1
    after = dict(before)
    rows = []
    for move in moves:
        after[move.source[0]] -= 1
        after[move.target[0]] += 1
        rows.append(
            {
                "vhost": move.vhost,
                "name": move.name,
                "from": move.source[0],
                "to": move.target[0],
                "messages": counts.get(move.uid, 0),
            }
        )
    return {"moves": rows, "before": before, "after": after}


def _state(view: View) -> str:
    return "transferring" if view.previous else view.state


def _hosts(call: Call) -> list[ClusterMember]:
    return [member for member in call.catalogue.members.values() if member.type != "witness"]


def _about(
    call: Call, record: QueueRecord, hosts: Sequence[ClusterMember]
) -> tuple[str | None, int, tuple[str, ...]]:
    """Return the policy of a queue, how many copies that wants, and on which nodes if that is known."""
    effective = call.catalogue.effective_policy(record)
    settings = queue_settings(record.arguments, effective)
    return effective.policy, copies_wanted(settings, record, hosts), nodes_wanted(settings, record, hosts)


async def _judged(call: Call) -> AsyncIterator[tuple[QueueRecord, tuple[str | None, int, tuple[str, ...]]]]:
    """Yield the mirrored queues of the vhosts that are to be listed, each with its `_about`."""
    hosts = _hosts(call)
    for vhost in call.vhosts():
        for number, record in enumerate(list(call.catalogue.queues(vhost))):
            if number % _SLICE == _SLICE - 1:
                await next_slice()
            if record.view is not None:
                yield record, _about(call, record, hosts)


async def _with_progress(call: Call, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    found = await _statistics(call, [str(row["id"]) for row in rows], _STATISTICS)
    return await _sliced(rows, lambda row: with_progress(dict(row), found.get(str(row["id"]), {})))


async def _counts(call: Call, records: Sequence[QueueRecord]) -> dict[str, int]:
    found = await _statistics(call, [record.uid for record in records], frozenset({"messages_ready"}))
    return {uid: int(row.get("messages_ready") or 0) for uid, row in found.items()}


async def _statistics(call: Call, ids: Sequence[str], fields: frozenset[str]) -> dict[str, dict[str, Any]]:
    if not ids:
        return {}
    query = Query(ids=tuple(ids) if len(ids) <= IDS_MAX else None, fields=fields)
    return {str(row["id"]): row for row in await call.site.rows("queues", query)}


async def _sliced(rows: Sequence[Mapping[str, Any]], change: Callable[[Mapping[str, Any]], Row]) -> list[Row]:
    found = []
    for at in range(0, len(rows), _SLICE):
        found += [change(row) for row in rows[at : at + _SLICE]]
        await next_slice()
    return found


ROUTES: Final = (
    Route("GET", "/mirroring/rings", rings, is_long=True),
    Route("GET", "/mirroring/rings/{vhost}", rings, is_long=True),
    Route("GET", "/mirroring/rings/{vhost}/{name}", ring),
    Route("GET", "/mirroring/summary", summary),
    Route("GET", "/mirroring/events", events),
    Route("GET", "/mirroring/rebalance-plan", rebalance_plan, Access.MONITORING),
)
