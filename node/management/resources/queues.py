"""The resource `/queues`: queues are listed, shown, declared, deleted, emptied, looked into.

Every node knows the metadata; only its master's node knows the contents of a queue. So a page is chosen by the
metadata first, and then that node is asked only for the rows on the page.
Source: management §1.3, §2.4, §2.5.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.methods import QueueDeclare, QueueDelete, QueuePurge
from node.catalogue.catalogue import Catalogue
from node.catalogue.records import QueueRecord
from node.io.control import ControlError
from node.management import values
from node.management.call import Call, send
from node.management.listing import Listing, Row, narrowed
from node.management.live_lists import without_id
from node.management.queues_by_name import queues_by_name
from node.management.reply import (
    Reply,
    bad_request,
    no_content,
    no_such_thing,
    ok,
    put,
    unavailable,
)
from node.management.resources.messages import get
from node.management.routes import Access, Route
from node.management.slicing import chosen, mapped, shown, sorted_rows, wanted_fields
from node.statistics.query import Query
from node.statistics.queue_facts import queue_facts

FACTS: Final = frozenset(
    {
        *("name", "vhost", "type", "durable", "auto_delete", "exclusive", "arguments", "node"),
        *("policy", "operator_policy", "effective_policy_definition", "recoverable_slaves"),
        *("slave_nodes", "synchronised_slave_nodes", "leader", "members", "online"),
    }
)
"""The fields that every node knows of every queue."""

LIGHT: Final = ("arguments", "auto_delete", "durable", "exclusive", "name", "node", "type", "vhost")
"""The fields that are shown where statistics are not wanted."""
LIGHT_QUORUM: Final = ("leader", "members", "online")
"""The fields of quorum queues that are shown besides."""
TOTALS: Final = frozenset({"messages", "messages_ready", "messages_unacknowledged", "state"})

DEFAULT_SORT: Final = ("vhost", "name")
SYNCS_MAX: Final = 1000
"""The most synchronisations that were begun here and have not ended."""

_syncs: set[asyncio.Task[None]] = set()


# --- lists ---


async def list_queues(call: Call) -> Reply:
    """GET /queues, /queues/{vhost}."""
    listing, ranges, catalogue = call.listing(), call.ranges(), call.catalogue
    vhosts = list(call.vhosts())
    queues = await queues_by_name(catalogue, vhosts)
    matching = queues
    if listing.matches is not None:
        rows = await mapped(_named, queues)
        matching = [row["record"] for row in await chosen(listing, rows)]
    only = vhosts[0] if len(vhosts) == 1 else None
    on_page = await _current(catalogue, listing.cut(await _sorted(call, listing, matching, only)))
    fields = wanted_fields(listing)
    query = Query(
        ids=None if listing.page is None else tuple(record.uid for record in on_page),
        vhost=only,
        fields=None if fields is None else fields - FACTS,
        ranges=ranges,
    )
    return ok(await shown(listing, await _whole(call, on_page, query), len(matching), len(queues)))


async def _current(catalogue: Catalogue, records: Sequence[QueueRecord]) -> list[QueueRecord]:
    """Return the records as they are now, without those that are gone."""
    found = await mapped(lambda record: catalogue.queue(record.vhost, record.name), records)
    return [record for record in found if record is not None]


def _named(record: QueueRecord) -> dict[str, Any]:
    """Return the fields by which a queue is chosen and sorted."""
    return {"name": record.name, "vhost": record.vhost, "record": record}


async def _sorted(
    call: Call, listing: Listing, records: Sequence[QueueRecord], vhost: str | None
) -> Sequence[QueueRecord]:
    """Sort records in the order that is asked for, by as few fields as that needs.

    records: by vhost and name.   vhost: the only one, if there is just one.
    """
    if listing.sort is None:
        return records[::-1] if listing.is_reverse else records
    rows: Sequence[Row] = await mapped(_named, records)
    top = listing.sort.partition(".")[0]
    if top in FACTS:
        catalogue, own = call.catalogue, call.site.config.node_name
        rows = await mapped(lambda row: {**row, **queue_facts(catalogue, row["record"], own)}, rows)
    elif top:
        known = await call.site.rows("queues", Query(vhost=vhost, fields=frozenset({top})))
        by_uid = {row["id"]: row for row in known}
        rows = await mapped(lambda row: {**by_uid.get(row["record"].uid, {}), **row}, rows)
    return [row["record"] for row in await sorted_rows(listing, rows, DEFAULT_SORT)]


async def _whole(call: Call, records: Sequence[QueueRecord], query: Query) -> list[Row]:
    """Return the rows of these queues, without those that are gone meanwhile."""
    own, rows = call.site.config.node_name, {}
    is_light = values.is_without_statistics(call)
    if is_light:
        with_totals = call.query.get("enable_queue_totals") == "true"
        query = Query(query.ids, query.vhost, fields=TOTALS if with_totals else frozenset())
    if records and query.fields != frozenset():
        nodes = None if query.ids is None else {record.home or own for record in records}
        rows = {row["id"]: row for row in await call.site.rows("queues", query, nodes)}
    catalogue = call.catalogue

    def whole(record: QueueRecord) -> Row | None:
        current = catalogue.queue(record.vhost, record.name)
        if current is None or current.uid != record.uid:
            return None
        statistics = rows.get(record.uid)
        row = merged(catalogue, current, statistics, own)
        if is_light:
            more = LIGHT_QUORUM if current.type == "quorum" else ()
            light = {key: row[key] for key in (*LIGHT, *more)}
            return {**light, "state": "live", **without_id(statistics or {})}
        return row

    return [row for row in await mapped(whole, records) if row is not None]


def merged(catalogue: Catalogue, record: QueueRecord, statistics: Row | None, own: str) -> Row:
    """Return all fields of a queue.   statistics: from its node; None if that did not answer."""
    row = queue_facts(catalogue, record, own)
    if "state" not in row and not _is_up(catalogue, record.home):
        row["state"] = "down"
    row.update(statistics or {})
    del row["id"]
    return row


def _is_up(catalogue: Catalogue, node: str) -> bool:
    member = catalogue.member(node)
    return member is None or member.is_up


# --- one queue ---


def _record(call: Call) -> QueueRecord:
    """Return the queue of the path. Raises: ApiError (404, 401)."""
    vhost = call.vhost(call.path["vhost"])
    record = call.catalogue.queue(vhost, call.path["name"])
    if record is None:
        raise no_such_thing()
    return record


async def get_queue(call: Call) -> Reply:
    """GET /queues/{vhost}/{name}."""
    listing, ranges, record = call.listing(can_page=False), call.ranges(), _record(call)
    if values.is_without_statistics(call):
        row = next(iter(await _whole(call, [record], Query(ids=(record.uid,)))), None)
    else:
        row = await _detailed(call, record, Query(ids=(record.uid,), ranges=ranges, is_detailed=True))
    if row is None:
        raise no_such_thing()
    return ok(row if listing.columns is None else narrowed(row, listing.columns))


async def _detailed(call: Call, record: QueueRecord, query: Query) -> Row | None:
    # All nodes are asked: each knows its own clients among the consumers.
    rows = await call.site.rows("queues", query)
    current = call.catalogue.queue(record.vhost, record.name)
    if current is None:
        return None
    row = merged(call.catalogue, current, rows[0] if rows else None, call.site.config.node_name)
    lists: dict[str, Any] = {"consumer_details": [], "deliveries": [], "incoming": []}
    return {**lists, **row}


async def put_queue(call: Call) -> Reply:
    """PUT /queues/{vhost}/{name}: declare it. By default it is neither durable nor auto-delete."""
    vhost, name = values.vhost_to_change(call), values.name(call.path["name"], "queue")
    body = await call.body()
    method = QueueDeclare(
        queue=name,
        durable=values.boolean(body, "durable"),
        auto_delete=values.boolean(body, "auto_delete"),
        arguments=values.arguments(body),
    )
    node = _node(call, body)
    was_there = call.catalogue.queue(vhost, name) is not None
    if node is None or was_there:
        await send(call, vhost, method)
    else:
        await _declare_at(call, node, vhost, method, body)
    return put(not was_there)


def _node(call: Call, body: Mapping[str, Any]) -> str | None:
    """Return the node where the queue is to live, if not here. Raises: ApiError (400)."""
    node = body.get("node")
    if node is None or node == call.site.config.node_name:
        return None
    if not isinstance(node, str):
        raise bad_request(["not_string", "node"])
    if not any(member.name == node and member.is_running for member in call.site.members()):
        raise bad_request(f"Node {node} could not be contacted")
    return node


async def _declare_at(
    call: Call, node: str, vhost: str, method: QueueDeclare, body: Mapping[str, Any]
) -> None:
    """Have another node declare it, in the name of the same user. Raises: ApiError, ProtocolError."""
    arguments = {
        "user": call.user.name,
        "vhost": vhost,
        "queue": method.queue,
        "durable": method.durable,
        "auto_delete": method.auto_delete,
        "arguments": body.get("arguments") or {},
    }
    try:
        refusal = await call.site.ask(node, "declare_queue", arguments)
    except ControlError:
        raise bad_request(f"Node {node} could not be contacted") from None
    if refusal is not None:
        raise ProtocolError(ReplyCode(refusal["code"]), refusal["explanation"])


async def delete_queue(call: Call) -> Reply:
    """DELETE /queues/{vhost}/{name}?if-empty=true&if-unused=true."""
    record = _record(call)
    if_empty, if_unused = (call.query.get(key) == "true" for key in ("if-empty", "if-unused"))
    await send(call, record.vhost, QueueDelete(queue=record.name, if_empty=if_empty, if_unused=if_unused))
    return no_content()


async def purge_queue(call: Call) -> Reply:
    """DELETE /queues/{vhost}/{name}/contents."""
    record = _record(call)
    await send(call, record.vhost, QueuePurge(queue=record.name))
    return no_content()


# --- synchronisation ---


async def act_on_queue(call: Call) -> Reply:
    """POST /queues/{vhost}/{name}/actions: `{"action": "sync"}` or cancel_sync; it goes on after the answer.

    `{"action": "move", "node": "n2@host"}` is ours: the master goes to the mirror on that node, which is there when the
    answer comes (204, also if it was before). 400 with the reason: no copy there, not synchronised, in maintenance;
    503: there is no master now, or the new one took more than 10 s.
    """
    body = await call.body()
    record = _record(call)
    values.required(body, "action")
    arguments = {"vhost": record.vhost, "queue": record.name}
    match body["action"]:
        case "sync":
            _begin_sync(call, arguments)
        case "cancel_sync":
            with suppress(ControlError, TimeoutError):  # there is nothing to cancel
                await call.site.operate("cancel_sync_queue", arguments)
        case "move":
            values.required(body, "node")
            if not isinstance(body["node"], str):
                raise bad_request(["not_string", "node"])
            await call.site.operate("move_queue", {**arguments, "node": body["node"]})
        case other:
            raise bad_request(["unknown", other if isinstance(other, str) else "action"])
    return no_content()


def _begin_sync(call: Call, arguments: Mapping[str, Any]) -> None:
    if len(_syncs) >= SYNCS_MAX:
        raise unavailable("too many synchronisations are going on")

    async def sync() -> None:
        # That there was nothing to do, or how it went, shows in the queue's state and in the log.
        with suppress(ControlError, TimeoutError):
            await call.site.operate("sync_queue", arguments)

    task = asyncio.get_running_loop().create_task(sync())
    _syncs.add(task)
    task.add_done_callback(_syncs.discard)


ROUTES: Final = (
    Route("GET", "/queues", list_queues, is_long=True),
    Route("GET", "/queues/{vhost}", list_queues, is_long=True),
    Route("GET", "/queues/{vhost}/{name}", get_queue),
    Route("PUT", "/queues/{vhost}/{name}", put_queue),
    Route("DELETE", "/queues/{vhost}/{name}", delete_queue),
    Route("DELETE", "/queues/{vhost}/{name}/contents", purge_queue),
    Route("POST", "/queues/{vhost}/{name}/get", get),
    Route("POST", "/queues/{vhost}/{name}/actions", act_on_queue, Access.ADMINISTRATOR),
)
