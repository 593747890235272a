"""The resource `/shovels`: the shovels of all nodes, and the restart and the end of one.

It answers `[]` and 404 unless the plug-in `rabbitmq_shovel_management` is enabled.
Source: RabbitMQ 3.10.8, `rabbit_shovel_mgmt`.
"""

from typing import Any, Final

from node.admin import parameters
from node.catalogue.shovel_parameters import PLUGIN, SHOVEL
from node.management.call import Call
from node.management.reply import Reply, no_content, no_such_thing, ok
from node.management.resources.bodies import listed, policymaker
from node.management.routes import Access, Route

MANAGEMENT_PLUGIN: Final = "rabbitmq_shovel_management"

Row = dict[str, Any]

_ORDER: Final = ("vhost", "name", "node")


async def shovels(call: Call) -> Reply:
    """GET /shovels and /shovels/{vhost}: static shovels have no vhost, and are in the first list only."""
    rows = await _rows(call)
    if "vhost" in call.path:
        vhost = call.vhost(call.path["vhost"])
        found = [row for row in rows if row.get("vhost") == vhost]
    else:
        vhosts = set(call.vhosts())  # those of the header, or all that the caller may see
        found = [row for row in rows if row.get("vhost") is None or row["vhost"] in vhosts]
    return await listed(call, _as_it_is, found, _ORDER)


async def shovel(call: Call) -> Reply:
    """GET /shovels/vhost/{vhost}/{name}."""
    return ok(_one(call, await _rows(call)))


async def delete(call: Call) -> Reply:
    """DELETE /shovels/vhost/{vhost}/{name}: delete the shovel's parameter."""
    row = _one(call, await _rows(call))
    await parameters.clear_parameter(call.site.admin(call.user.name), row["vhost"], SHOVEL, row["name"])
    return no_content()


async def restart(call: Call) -> Reply:
    """DELETE /shovels/vhost/{vhost}/{name}/restart."""
    row = _one(call, await _rows(call))
    arguments = {"vhost": row["vhost"], "name": row["name"]}
    question = {"plugin": PLUGIN, "question": "restart", "arguments": arguments}
    answers = await call.site.ask_all("plugin", question)
    if not any(answers.values()):
        raise no_such_thing()
    return no_content()


async def _rows(call: Call) -> list[Row]:
    if MANAGEMENT_PLUGIN not in call.catalogue.plugins.by_name:
        return []
    answers = await call.site.ask_all("plugin", {"plugin": PLUGIN, "question": "shovels"})
    return [row for answer in answers.values() for row in answer or ()]


def _one(call: Call, rows: list[Row]) -> Row:
    """Return the shovel that the path names. Raises: ApiError 404."""
    vhost, name = call.vhost(call.path["vhost"]), call.path["name"]
    found = next((row for row in rows if row.get("vhost") == vhost and row["name"] == name), None)
    if found is None:
        raise no_such_thing()
    return found


def _as_it_is(row: Row) -> Row:
    return row


ROUTES: Final = (
    Route("GET", "/shovels", shovels, Access.MONITORING),
    Route("GET", "/shovels/{vhost}", shovels, Access.MONITORING),
    Route("GET", "/shovels/vhost/{vhost}/{name}", shovel, Access.MONITORING),
    Route("DELETE", "/shovels/vhost/{vhost}/{name}", policymaker(delete)),
    Route("DELETE", "/shovels/vhost/{vhost}/{name}/restart", restart, Access.MONITORING),
)
