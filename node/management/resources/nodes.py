"""The resource `/nodes`: each node of the cluster and its usage. Source: management §1.2."""

from typing import Any, Final

from node.io.control import ControlError
from node.management import values
from node.management.call import Call
from node.management.listing import narrowed
from node.management.node_facts import relative, stopped_node
from node.management.reply import Reply, bad_request, no_content, no_such_thing, ok, unavailable
from node.management.routes import Access, Route
from node.management.site import SiteNode
from node.statistics.query import Query

NUMBER_DIGITS_MAX: Final = 18


async def nodes(call: Call) -> Reply:
    """GET /nodes: all nodes, also those that don't run."""
    listing = call.listing(can_page=False)
    query = Query(ranges=call.ranges())
    answers = await call.site.ask_all("node", {"query": query.as_json()})
    rows = [answers.get(member.name) or _without_answer(member) for member in call.site.members()]
    return ok(listing.apply(rows, ("name",)))


async def node(call: Call) -> Reply:
    """GET /nodes/{node}."""
    listing = call.listing(can_page=False)
    is_detailed = call.query.get("memory") == "true"
    row = await _asked(call, Query(ranges=call.ranges(), is_detailed=is_detailed))
    if call.query.get("binary") == "true":
        row["binary"] = {"total": 0}
    return ok(row if listing.columns is None else narrowed(row, listing.columns))


async def memory(call: Call) -> Reply:
    """GET /nodes/{node}/memory: in bytes."""
    return ok({"memory": await _memory(call)})


async def memory_relative(call: Call) -> Reply:
    """GET /nodes/{node}/memory/relative: in per cent."""
    return ok({"memory": relative(await _memory(call))})


async def memory_tables(call: Call) -> Reply:
    """GET /nodes/{node}/memory/ets: there are no such tables."""
    _member(call)
    return ok({"ets_tables_memory": {"total": 0}})


async def log(call: Call) -> Reply:
    """GET /nodes/{node}/log?after=N: the last lines of its log, those after line N. Not RabbitMQ's."""
    member, after = _member(call), call.query.get("after", "0")
    if not (after.isascii() and after.isdigit() and len(after) <= NUMBER_DIGITS_MAX):
        raise bad_request("'after' is not a line number")
    return ok(await call.site.ask(member.name, "log_lines", {"after": int(after)}))


async def act_on_node(call: Call) -> Reply:
    """POST /nodes/{node}/actions: `{"action": "drain"}` or revive, which continue after the answer. Not RabbitMQ's."""
    body = await call.body()
    member = _member(call)
    values.required(body, "action")
    if body["action"] not in ("drain", "revive"):
        raise bad_request(["unknown", body["action"] if isinstance(body["action"], str) else "action"])
    await call.site.ask(member.name, "maintenance", {"is_on": body["action"] == "drain"})
    return no_content()


async def _memory(call: Call) -> dict[str, Any]:
    row = await _asked(call, Query(fields=frozenset({"memory"})))
    if "memory" not in row:
        raise unavailable(f"node '{call.path['node']}' does not answer")
    found: dict[str, Any] = row["memory"]
    return found


async def _asked(call: Call, query: Query) -> dict[str, Any]:
    """Return a node's own facts, or what is known of it when it doesn't answer. Raises: ApiError (404)."""
    member = _member(call)
    if not member.is_running:
        return stopped_node(member.name, member.type)
    try:
        row: dict[str, Any] = await call.site.ask(member.name, "node", {"query": query.as_json()})
    except ControlError:
        return _without_answer(member)
    return row


def _member(call: Call) -> SiteNode:
    """Return the path's node. Raises: ApiError (404)."""
    for member in call.site.members():
        if member.name == call.path["node"]:
            return member
    raise no_such_thing()


def _without_answer(member: SiteNode) -> dict[str, Any]:
    """Return the row of a node that is down, or too busy or new to answer."""
    return stopped_node(member.name, member.type)


_M: Final = Access.MONITORING

ROUTES: Final = (
    Route("GET", "/nodes", nodes, _M),
    Route("GET", "/nodes/{node}", node, _M),
    Route("GET", "/nodes/{node}/log", log, _M),
    Route("POST", "/nodes/{node}/actions", act_on_node, Access.ADMINISTRATOR),
    Route("GET", "/nodes/{node}/memory", memory, _M),
    Route("GET", "/nodes/{node}/memory/relative", memory_relative, _M),
    Route("GET", "/nodes/{node}/memory/ets", memory_tables, _M),
    Route("GET", "/nodes/{node}/memory/ets/relative", memory_tables, _M),
    Route("GET", "/nodes/{node}/memory/ets/{filter}", memory_tables, _M),
    Route("GET", "/nodes/{node}/memory/ets/{filter}/relative", memory_tables, _M),
)
