"""Connections of clients: listed, shown, closed. Source: management §1.6."""

from typing import Any, Final

from node.management import values
from node.management.call import Call
from node.management.listing import narrowed
from node.management.live_lists import live_list, one_by_name
from node.management.reply import Reply, no_content, not_authorised, ok
from node.management.routes import Route

DEFAULT_SORT: Final = ("vhost", "name")
TRACKED: Final = frozenset({"name", "vhost", "user", "node"})
"""The fields that are shown of a user's connections."""
REASON: Final = "Closed via management plugin"
REASON_CHARACTERS_MAX: Final = 200
"""The longest reason, as a reply text is a shortstr."""


async def list_connections(call: Call) -> Reply:
    """GET /connections, /vhosts/{vhost}/connections."""
    only = TRACKED if values.is_without_statistics(call) else None
    return await live_list(call, "connections", DEFAULT_SORT, only=only)


async def list_of_user(call: Call) -> Reply:
    """GET /connections/username/{user}."""
    _check_own_or(call, call.path["user"], may=call.is_monitor)
    return await live_list(call, "connections", DEFAULT_SORT, user=call.path["user"], only=TRACKED)


async def get_connection(call: Call) -> Reply:
    """GET /connections/{name}."""
    listing = call.listing(can_page=False)
    row = await one_by_name(call, "connections", call.path["name"])
    return ok(row if listing.columns is None else narrowed(row, listing.columns))


async def close_connection(call: Call) -> Reply:
    """DELETE /connections/{name}: the client gets a 320 with the reason of the header `X-Reason`."""
    row = await one_by_name(call, "connections", call.path["name"])
    _check_own_or(call, row["user"], may=call.is_administrator)
    await _close(call, names=[row["name"]])
    return no_content()


async def close_of_user(call: Call) -> Reply:
    """DELETE /connections/username/{user}."""
    _check_own_or(call, call.path["user"], may=call.is_administrator)
    await _close(call, user=call.path["user"])
    return no_content()


def _check_own_or(call: Call, user: Any, *, may: bool) -> None:
    """Raise ApiError (401) if the connection is another user's, unless the caller may do that."""
    if user != call.user.name and not may:
        raise not_authorised("User not authorised to access object")


async def _close(call: Call, *, names: list[Any] | None = None, user: str | None = None) -> None:
    reason = call.headers.get("x-reason") or REASON
    arguments = {"names": names, "user": user, "vhost": None, "reason": reason[:REASON_CHARACTERS_MAX]}
    await call.site.ask_all("close_connections", arguments)


ROUTES: Final = (
    Route("GET", "/connections", list_connections, is_long=True),
    Route("GET", "/vhosts/{vhost}/connections", list_connections, is_long=True),
    Route("GET", "/connections/{name}", get_connection),
    Route("DELETE", "/connections/{name}", close_connection),
    Route("GET", "/connections/username/{user}", list_of_user, is_long=True),
    Route("DELETE", "/connections/username/{user}", close_of_user),
)
