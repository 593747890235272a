"""The resource `/federation-links`: the links of all nodes, and a restart of one.

Lists are empty while the plug-in is not enabled, as monitors ask for them; a restart needs the plug-in
`rabbitmq_federation_management`.
Source: RabbitMQ 3.10.8, `rabbit_federation_mgmt`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from node.io.control import ControlError
from node.management import values
from node.management.call import Call
from node.management.live_lists import without_id
from node.management.reply import Reply, no_content, no_such_thing, unavailable
from node.management.resources.bodies import listed
from node.management.routes import Access, Handler, Route
from node.statistics.query import IDS_MAX, Query

MANAGEMENT_PLUGIN: Final = "rabbitmq_federation_management"
PLUGIN: Final = "rabbitmq_federation"

LOCAL_CHANNEL: Final = 1
"""The number of a link's channel here. The plug-in has it too, whose code is imported only while it is enabled."""

Row = dict[str, Any]

_GOOD: Final = ("running", "starting")
_ORDER: Final = ("vhost", "type", "exchange", "queue", "upstream", "id")


def _listing(is_wanted: Callable[[Row], bool]) -> Handler:
    async def handler(call: Call) -> Reply:
        vhosts = set(call.vhosts())
        is_enabled = PLUGIN in call.catalogue.plugins.by_name
        question = {"plugin": PLUGIN, "question": "links"}
        answers = await call.site.ask_all("plugin", question) if is_enabled else {}
        rows = [row for answer in answers.values() for row in answer or ()]
        found = [row for row in rows if row["vhost"] in vhosts and is_wanted(row)]
        await _add_local_channels(call, found)
        return await listed(call, _as_it_is, found, _ORDER)

    return handler


async def _add_local_channels(call: Call, rows: list[Row]) -> None:
    """Give each link that runs the row of the channel over which it publishes here, as RabbitMQ does.

    The nodes are asked for those channels alone, and for no more than one question may name.
    """
    names = dict.fromkeys(
        f"{row['local_connection']} ({LOCAL_CHANNEL})" for row in rows if "local_connection" in row
    )
    if not names or values.is_without_statistics(call):
        return
    nodes = {row["node"] for row in rows}
    channels: Sequence[Row] = await call.site.rows("channels", Query(ids=tuple(names)[:IDS_MAX]), nodes)
    by_connection = {(each["node"], each["connection_details"]["name"]): each for each in channels}
    for row in rows:
        channel = by_connection.get((row["node"], row.get("local_connection")))
        if channel is not None:
            row["local_channel"] = without_id(channel)


async def restart(call: Call) -> Reply:
    """DELETE /federation-links/vhost/{vhost}/{id}/{node}/restart."""
    if MANAGEMENT_PLUGIN not in call.catalogue.plugins.by_name:
        raise no_such_thing()
    call.vhost(call.path["vhost"])
    arguments = {"plugin": PLUGIN, "question": "restart", "arguments": {"id": call.path["id"]}}
    if all(member.name != call.path["node"] for member in call.site.members()):
        raise no_such_thing()
    try:
        is_known = await call.site.ask(call.path["node"], "plugin", arguments)
    except ControlError as error:
        raise unavailable(error.text) from None
    if not is_known:
        raise no_such_thing()
    return no_content()


def _as_it_is(row: Row) -> Row:
    return row


_ALL: Final = _listing(lambda row: True)
_DOWN: Final = _listing(lambda row: row["status"] not in _GOOD)

ROUTES: Final = (
    Route("GET", "/federation-links", _ALL, Access.MONITORING),
    Route("GET", "/federation-links/{vhost}", _ALL, Access.MONITORING),
    Route("GET", "/federation-links/state/down", _DOWN, Access.MONITORING),
    Route("GET", "/federation-links/{vhost}/state/down", _DOWN, Access.MONITORING),
    Route("DELETE", "/federation-links/vhost/{vhost}/{id}/{node}/restart", restart, Access.MONITORING),
)
