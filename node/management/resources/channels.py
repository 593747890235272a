"""Channels: listed and shown. Source: management §1.7."""

from collections.abc import Sequence
from typing import Final

from node.management import values
from node.management.call import Call
from node.management.listing import Row, narrowed
from node.management.live_lists import live_list, one_by_name, rows_of
from node.management.reply import Reply, bad_request, ok
from node.management.routes import Route
from node.management.slicing import applied, mapped, wanted_fields
from node.statistics.query import IDS_MAX, Query

DEFAULT_SORT: Final = ("vhost", "name")
_OF_CONNECTION: Final = frozenset({"connection_details"})


async def list_channels(call: Call) -> Reply:
    """GET /channels, /vhosts/{vhost}/channels."""
    _check_statistics(call)
    return await live_list(call, "channels", DEFAULT_SORT)


async def list_of_connection(call: Call) -> Reply:
    """GET /connections/{name}/channels."""
    _check_statistics(call)
    listing, ranges = call.listing(), call.ranges()
    connection = await one_by_name(call, "connections", call.path["name"])
    name = connection["name"]
    query = Query(vhost=str(connection["vhost"]), user=str(connection["user"]), fields=_OF_CONNECTION)
    rows: Sequence[Row] = await call.site.rows("channels", query)
    found = await mapped(lambda row: row["id"] if row["connection_details"]["name"] == name else "", rows)
    ids = [each for each in found if each]
    fields = wanted_fields(listing, DEFAULT_SORT)
    query = Query(ids=tuple(ids[:IDS_MAX]), fields=fields, ranges=ranges)
    return ok(await applied(listing, await rows_of(call, "channels", query), DEFAULT_SORT))


async def get_channel(call: Call) -> Reply:
    """GET /channels/{name}."""
    _check_statistics(call)
    listing = call.listing(can_page=False)
    row = {
        "consumer_details": [],
        "publishes": [],
        "deliveries": [],
        **await one_by_name(call, "channels", call.path["name"]),
    }
    return ok(row if listing.columns is None else narrowed(row, listing.columns))


def _check_statistics(call: Call) -> None:
    """Refuse the call without statistics, as channels have no metadata. Raises: ApiError (400)."""
    if values.is_without_statistics(call):
        raise bad_request("Stats in management UI are disabled on this node")


ROUTES: Final = (
    Route("GET", "/channels", list_channels, is_long=True),
    Route("GET", "/vhosts/{vhost}/channels", list_channels, is_long=True),
    Route("GET", "/channels/{name}", get_channel),
    Route("GET", "/connections/{name}/channels", list_of_connection, is_long=True),
)
