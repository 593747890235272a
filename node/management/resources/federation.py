"""The resource `/federation-links`: the links of all nodes, and a restart of one.

Lists are empty while the plug-in is not enabled, as monitors ask for them; a restart needs the plug-in
`rabbitmq_federation_management`.
Source: RabbitMQ 3.10.8, `rabbit_federation_mgmt`.
"""

from collections.abc import Callable
from typing import Any, Final

from node.io.control import ControlError
from node.management.call import Call
from node.management.reply import Reply, no_content, no_such_thing, unavailable
from node.management.resources.bodies import listed
from node.management.routes import Access, Handler, Route

MANAGEMENT_PLUGIN: Final = "rabbitmq_federation_management"
PLUGIN: Final = "rabbitmq_federation"

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
        return await listed(call, _as_it_is, found, _ORDER)

    return handler


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
