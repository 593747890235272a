"""Vhosts. Source: management §1.9; what RabbitMQ 3.10.8 answers."""

from typing import Any, Final

from node.admin import vhosts
from node.catalogue.records import Vhost
from node.definitions.reading import DefinitionsInvalid
from node.definitions.rows import vhost_metadata
from node.definitions.users import tags_of
from node.management.call import Call
from node.management.listing import Listing, Row
from node.management.reply import Reply, bad_request, no_content, ok, put
from node.management.resources.bodies import deleting, existing_vhost, one, text
from node.management.routes import Access, Route
from node.management.slicing import chosen, mapped, shown, sorted_rows, wanted_fields
from node.statistics.query import Query

_ORDER: Final = ("name",)
_UNSET: Final = "undefined"
"""RabbitMQ's word for no default queue type."""
_FACTS: Final = frozenset(
    ("name", "description", "tags", "metadata", "default_queue_type", "tracing", "cluster_state")
)
"""The fields that every node knows of every vhost."""


async def list_vhosts(call: Call) -> Reply:
    """GET /vhosts: those that the user may use, all for monitoring. Statistics are asked for only if they are shown."""
    listing, states = call.listing(), _states(call)
    visible = [vhost for vhost in call.catalogue.vhosts() if call.is_monitor or call.can_see(vhost.name)]
    rows: list[Row] = await mapped(lambda vhost: _facts(vhost, states), visible)
    is_of_facts = not listing.sort or listing.sort.partition(".")[0] in _FACTS
    if not is_of_facts:
        rows = await _with_statistics(call, listing, rows)
    found = await chosen(listing, rows)
    on_page = list(listing.cut(await sorted_rows(listing, found, _ORDER)))
    if is_of_facts:
        on_page = await _with_statistics(call, listing, on_page)
    return ok(await shown(listing, on_page, len(found), len(rows)))


async def get_vhost(call: Call) -> Reply:
    """GET /vhosts/{vhost}."""
    vhost = call.catalogue.vhost(existing_vhost(call))
    assert vhost is not None
    listing = call.listing(can_page=False)
    [row] = await _with_statistics(call, listing, [_facts(vhost, _states(call))])
    return one(call, row)


async def put_vhost(call: Call) -> Reply:
    """PUT /vhosts/{vhost}: create a vhost, which the user may use, or describe it anew."""
    body, name = await call.body(), call.path["vhost"]
    tracing = body.get("tracing")
    if isinstance(tracing, str):
        tracing = {"true": True, "false": False}.get(tracing, tracing)
    if tracing is not None and not isinstance(tracing, bool):
        raise bad_request(["not_boolean", tracing])
    try:
        tags = tags_of(body["tags"] if body.get("tags") is not None else [])
    except DefinitionsInvalid as invalid:
        raise bad_request(invalid.reason) from None
    queue_type = text(body, "defaultqueuetype") or text(body, "default_queue_type")
    is_new = await vhosts.put_vhost(
        call.site.admin(call.user.name),
        name,
        description=text(body, "description"),
        tags=tags,
        tracing=tracing,
        default_queue_type="" if queue_type == _UNSET else queue_type,
        owner=call.user.name,
    )
    return put(is_new)


async def start_vhost(call: Call) -> Reply:
    """POST /vhosts/{vhost}/start/{node}: checks only, as a vhost runs wherever its node does."""
    vhost, node = call.path["vhost"], call.path["node"]
    if _states(call).get(node) != "running":
        raise bad_request(f"Request to node {node} failed with nodedown")
    if call.catalogue.vhost(vhost) is None:
        raise bad_request(f'Request to node {node} failed with {{no_such_vhost,<<"{vhost}">>}}')
    return no_content()


def _states(call: Call) -> dict[str, Any]:
    """Return whether vhosts run, by node."""
    return {member.name: "running" if member.is_running else "stopped" for member in call.site.members()}


def _facts(vhost: Vhost, states: dict[str, Any]) -> Row:
    return {
        "name": vhost.name,
        "description": vhost.description,
        "tags": list(vhost.tags),
        "default_queue_type": vhost.default_queue_type or _UNSET,
        "metadata": vhost_metadata(vhost),
        "tracing": vhosts.is_traced(vhost),
        "cluster_state": states,
    }


async def _with_statistics(call: Call, listing: Listing, rows: list[Row]) -> list[Row]:
    """Return the rows with the statistics of the vhosts, as far as they are asked for."""
    fields = wanted_fields(listing)
    wanted = None if fields is None else fields - _FACTS
    if wanted == frozenset() or call.query.get("disable_stats") == "true" or not rows:
        return rows
    ids = tuple(str(row["name"]) for row in rows)
    query = Query(ids=ids, fields=wanted, ranges=call.ranges())
    known = {row.pop("id"): row for row in await call.site.rows("vhosts", query)}
    return [{**known.get(row["name"], {}), **row} for row in rows]


_ADMIN: Final = Access.ADMINISTRATOR

ROUTES: Final = (
    Route("GET", "/vhosts", list_vhosts, is_long=True),
    Route("GET", "/vhosts/{vhost}", get_vhost, _ADMIN, is_long=True),
    Route("PUT", "/vhosts/{vhost}", put_vhost, _ADMIN),
    Route("DELETE", "/vhosts/{vhost}", deleting(vhosts.delete_vhost), _ADMIN),
    Route("POST", "/vhosts/{vhost}/start/{node}", start_vhost, _ADMIN),
)
