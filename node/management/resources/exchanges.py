"""Exchanges: listed, shown, declared, deleted. Source: management §1.4."""

from collections.abc import Sequence
from typing import Any, Final

from node.amqp.methods import ExchangeDeclare, ExchangeDelete
from node.amqp.plain import plain_table
from node.catalogue.catalogue import Catalogue
from node.catalogue.records import Exchange
from node.management import values
from node.management.call import Call, send
from node.management.listing import Listing, Row, narrowed
from node.management.reply import Reply, no_content, no_such_thing, ok, put
from node.management.resources.messages import publish
from node.management.routes import Route, exchange_name
from node.management.slicing import chosen, mapped, shown, sorted_rows, wanted_fields
from node.statistics.exchanges import declared_by
from node.statistics.query import Query

STATISTICS: Final = frozenset(
    {"message_stats", "messages_delayed", "message_deduplication", "messages_recent"}
)
DETAILS: Final = STATISTICS | {"incoming", "outgoing"}
DEFAULT_SORT: Final = ("vhost", "name")
DEFAULT_TYPE: Final = "direct"


async def list_exchanges(call: Call) -> Reply:
    """GET /exchanges, /exchanges/{vhost}."""
    listing, ranges, catalogue = call.listing(), call.ranges(), call.catalogue
    records = [record for vhost in call.vhosts() for record in catalogue.exchanges(vhost)]
    rows: Sequence[Row] = await mapped(lambda record: exchange_facts(catalogue, record), records)
    found = await chosen(listing, rows)
    is_light = values.is_without_statistics(call)
    if listing.sort is not None and listing.sort.startswith("message_stats"):
        found = await _with_statistics(call, found, Query(fields=STATISTICS))
    on_page = listing.cut(await sorted_rows(listing, found, DEFAULT_SORT))
    if not is_light and _shows_statistics(listing):
        ids = None if listing.page is None else tuple(_id(row) for row in on_page)
        on_page = await _with_statistics(call, on_page, Query(ids=ids, fields=STATISTICS, ranges=ranges))
    return ok(await shown(listing, on_page, len(found), len(rows)))


def _shows_statistics(listing: Listing) -> bool:
    fields = wanted_fields(listing)
    return fields is None or not STATISTICS.isdisjoint(fields)


async def _with_statistics(call: Call, rows: Sequence[Row], query: Query) -> Sequence[Row]:
    """Return the rows with the query's fields of their statistics."""
    if query.ids == ():
        return rows
    assert query.fields is not None
    known = {row["id"]: row for row in await call.site.rows("exchanges", query)}
    fields = query.fields

    def whole(row: Row) -> Row:
        statistics = known.get(_id(row), {})
        return {**row, **{key: statistics[key] for key in fields if key in statistics}}

    return await mapped(whole, rows)


def _id(row: Row) -> str:
    return f"{row['vhost']}\0{row['name']}"


def exchange_facts(catalogue: Catalogue, record: Exchange) -> dict[str, Any]:
    """Return the metadata of an exchange."""
    row = {
        "arguments": plain_table(record.arguments),
        "auto_delete": record.auto_delete,
        "durable": record.durable,
        "internal": record.internal,
        "name": record.name,
        "type": record.type,
        "user_who_performed_action": declared_by(record),
        "vhost": record.vhost,
    }
    policy = catalogue.effective_policy(record).policy
    return row if policy is None else {**row, "policy": policy}


def _record(call: Call) -> Exchange:
    """Return the exchange of the path. Raises: ApiError (404, 401)."""
    record = call.catalogue.exchange(call.vhost(call.path["vhost"]), exchange_name(call.path["name"]))
    if record is None:
        raise no_such_thing()
    return record


async def get_exchange(call: Call) -> Reply:
    """GET /exchanges/{vhost}/{name}."""
    listing, ranges, record = call.listing(can_page=False), call.ranges(), _record(call)
    row: Row = exchange_facts(call.catalogue, record)
    if not values.is_without_statistics(call):
        query = Query(ids=(_id(row),), fields=DETAILS, ranges=ranges, is_detailed=True)
        (row,) = await _with_statistics(call, [row], query)
        row = {"incoming": [], "outgoing": [], **row}
    return ok(row if listing.columns is None else narrowed(row, listing.columns))


async def put_exchange(call: Call) -> Reply:
    """PUT /exchanges/{vhost}/{name}: declare it; its type is direct by default."""
    vhost = values.vhost_to_change(call)
    name = values.name(exchange_name(call.path["name"]), "exchange")
    body = await call.body()
    was_there = call.catalogue.exchange(vhost, name) is not None
    method = ExchangeDeclare(
        exchange=name,
        type=values.text(body, "type", DEFAULT_TYPE),
        durable=values.boolean(body, "durable"),
        auto_delete=values.boolean(body, "auto_delete"),
        internal=values.boolean(body, "internal"),
        arguments=values.arguments(body),
    )
    await send(call, vhost, method)
    return put(not was_there)


async def delete_exchange(call: Call) -> Reply:
    """DELETE /exchanges/{vhost}/{name}?if-unused=true."""
    record = _record(call)
    if_unused = call.query.get("if-unused") == "true"
    await send(call, record.vhost, ExchangeDelete(exchange=record.name, if_unused=if_unused))
    return no_content()


ROUTES: Final = (
    Route("GET", "/exchanges", list_exchanges, is_long=True),
    Route("GET", "/exchanges/{vhost}", list_exchanges, is_long=True),
    Route("GET", "/exchanges/{vhost}/{name}", get_exchange),
    Route("PUT", "/exchanges/{vhost}/{name}", put_exchange),
    Route("DELETE", "/exchanges/{vhost}/{name}", delete_exchange),
    Route("POST", "/exchanges/{vhost}/{name}/publish", publish),
)
