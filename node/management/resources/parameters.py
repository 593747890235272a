"""Runtime parameters of vhosts and of the cluster. Source: management §1.10; what RabbitMQ 3.10.8 answers."""

from collections.abc import Iterator
from typing import Final

from node.admin import parameters
from node.catalogue.parameters import POLICY
from node.definitions.rows import Row, parameter_rows, policy_parameters
from node.management.call import Call
from node.management.reply import Reply, no_content, no_such_thing, put
from node.management.resources.bodies import deleting, listed, one, policymaker, require, target_vhost
from node.management.routes import Route

_ORDER: Final = ("vhost", "component", "name")


# --- of vhosts ---


async def list_parameters(call: Call) -> Reply:
    """GET /parameters, /parameters/{component}, /parameters/{component}/{vhost}: policies only by their component."""
    rows = [row for vhost in call.vhosts() for row in _rows(call, vhost, call.path.get("component"))]
    return await listed(call, _as_it_is, rows, _ORDER)


async def get_parameter(call: Call) -> Reply:
    """GET /parameters/{component}/{vhost}/{name}."""
    return one(call, _existing(call))


async def put_parameter(call: Call) -> Reply:
    """PUT /parameters/{component}/{vhost}/{name} `{value}`."""
    vhost, body = target_vhost(call), await call.body()
    require(body, "value")
    admin = call.site.admin(call.user.name)
    where = (call.path["component"], call.path["name"])
    return put(await parameters.set_parameter(admin, vhost, *where, body["value"]))


async def delete_parameter(call: Call) -> Reply:
    """DELETE /parameters/{component}/{vhost}/{name}."""
    _existing(call)
    where = (call.path["vhost"], call.path["component"], call.path["name"])
    await parameters.clear_parameter(call.site.admin(call.user.name), *where)
    return no_content()


def _rows(call: Call, vhost: str, component: str | None) -> Iterator[Row]:
    if component == POLICY:
        yield from policy_parameters(call.catalogue, vhost, is_operator=False)
    for row in parameter_rows(call.catalogue, vhost):
        if component in (None, row["component"]):
            yield row


def _existing(call: Call) -> Row:
    """Return the parameter of the path. Raises: ApiError (404)."""
    for row in _rows(call, call.path["vhost"], call.path["component"]):
        if row["name"] == call.path["name"]:
            return row
    raise no_such_thing()


def _as_it_is(row: Row) -> Row:
    return row


# --- of the cluster ---


async def list_global_parameters(call: Call) -> Reply:
    """GET /global-parameters."""
    rows: list[Row] = [
        {"name": name, "value": value} for name, value in call.catalogue.global_parameters().items()
    ]
    return await listed(call, _as_it_is, rows, ("name",))


async def get_global_parameter(call: Call) -> Reply:
    """GET /global-parameters/{name}."""
    name, known = call.path["name"], call.catalogue.global_parameters()
    if name not in known:
        raise no_such_thing()
    return one(call, {"value": known[name], "name": name})


async def put_global_parameter(call: Call) -> Reply:
    """PUT /global-parameters/{name} `{value}`."""
    body = await call.body()
    require(body, "value")
    admin = call.site.admin(call.user.name)
    return put(await parameters.set_global_parameter(admin, call.path["name"], body["value"]))


ROUTES: Final = (
    Route("GET", "/parameters", policymaker(list_parameters)),
    Route("GET", "/parameters/{component}", policymaker(list_parameters)),
    Route("GET", "/parameters/{component}/{vhost}", policymaker(list_parameters)),
    Route("GET", "/parameters/{component}/{vhost}/{name}", policymaker(get_parameter)),
    Route("PUT", "/parameters/{component}/{vhost}/{name}", policymaker(put_parameter)),
    Route("DELETE", "/parameters/{component}/{vhost}/{name}", policymaker(delete_parameter)),
    Route("GET", "/global-parameters", policymaker(list_global_parameters)),
    Route("GET", "/global-parameters/{name}", policymaker(get_global_parameter)),
    Route("PUT", "/global-parameters/{name}", policymaker(put_global_parameter)),
    Route("DELETE", "/global-parameters/{name}", policymaker(deleting(parameters.clear_global_parameter))),
)
