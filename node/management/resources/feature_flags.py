"""Feature flags. Source: management §1.10."""

from typing import Final

from node.admin.feature_flags import enable, feature_flags
from node.definitions.rows import Row
from node.management.call import Call
from node.management.reply import Reply, no_content
from node.management.resources.bodies import listed
from node.management.routes import Access, Route


async def list_feature_flags(call: Call) -> Reply:
    """GET /feature-flags."""
    return await listed(call, _as_it_is, feature_flags(), ("name",))


async def enable_feature_flag(call: Call) -> Reply:
    """PUT /feature-flags/{name}/enable."""
    enable(call.path["name"])
    return no_content()


def _as_it_is(row: Row) -> Row:
    return row


ROUTES: Final = (
    Route("GET", "/feature-flags", list_feature_flags, Access.ADMINISTRATOR),
    Route(
        "PUT",
        "/feature-flags/{name}/enable",
        enable_feature_flag,
        Access.ADMINISTRATOR,
        consumes="application/json",
    ),
)
