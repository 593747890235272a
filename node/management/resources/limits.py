"""Limits of vhosts and users. Source: management §1.10; what RabbitMQ 3.10.8 answers."""

from collections.abc import Iterable
from typing import Final

from node.admin import limits, users
from node.catalogue.parameters import VHOST_LIMITS, VHOST_LIMITS_NAME
from node.catalogue.records import User
from node.definitions.rows import Row
from node.definitions.users import limits_row
from node.management.call import Call
from node.management.reply import Reply, bad_request, no_content
from node.management.resources.bodies import (
    deleting,
    existing_user,
    existing_vhost,
    listed,
    require,
    target_vhost,
)
from node.management.routes import Access, Route

_JSON: Final = "application/json"


# --- of vhosts ---


async def list_vhost_limits(call: Call) -> Reply:
    """GET /vhost-limits, /vhost-limits/{vhost}: vhosts that ever had limits; monitoring sees all of them."""
    vhosts: Iterable[str] = call.vhosts()
    if call.is_monitor:
        chosen = existing_vhost(call) if "vhost" in call.path else None
        vhosts = [each.name for each in call.catalogue.vhosts() if chosen in (None, each.name)]
    found = {
        vhost: call.catalogue.parameters(vhost)[VHOST_LIMITS, VHOST_LIMITS_NAME]
        for vhost in vhosts
        if (VHOST_LIMITS, VHOST_LIMITS_NAME) in call.catalogue.parameters(vhost)
    }
    return await listed(call, lambda vhost: {"vhost": vhost, "value": found[vhost]}, list(found), ("vhost",))


async def put_vhost_limit(call: Call) -> Reply:
    """PUT /vhost-limits/{vhost}/{limit} `{value}`."""
    vhost, body = target_vhost(call), await call.body()
    require(body, "value")
    await limits.set_vhost_limit(call.site.admin(call.user.name), vhost, call.path["limit"], body["value"])
    return no_content()


# --- of users ---


async def list_user_limits(call: Call) -> Reply:
    """GET /user-limits: users that have any limits."""
    found = [user for user in call.catalogue.users() if limits_row(user.limits)]
    return await listed(call, _row, found, ("user",))


async def list_limits_of_user(call: Call) -> Reply:
    """GET /user-limits/{user}: a list with one object, or none."""
    user = call.catalogue.user(existing_user(call))
    assert user is not None
    return await listed(call, _row, [user] if limits_row(user.limits) else [], ("user",))


async def put_user_limit(call: Call) -> Reply:
    """PUT /user-limits/{user}/{limit} `{value}`."""
    name, body = call.path["user"], await call.body()
    require(body, "value")
    if call.catalogue.user(name) is None:
        raise bad_request(["no_such_user", name])
    admin = call.site.admin(call.user.name)
    await users.set_user_limits(admin, name, {call.path["limit"]: body["value"]})
    return no_content()


def _row(user: User) -> Row:
    return {"user": user.name, "value": limits_row(user.limits)}


_ADMIN: Final = Access.ADMINISTRATOR

ROUTES: Final = (
    Route("GET", "/vhost-limits", list_vhost_limits),
    Route("GET", "/vhost-limits/{vhost}", list_vhost_limits),
    Route("PUT", "/vhost-limits/{vhost}/{limit}", put_vhost_limit, _ADMIN, consumes=_JSON),
    Route("DELETE", "/vhost-limits/{vhost}/{limit}", deleting(limits.clear_vhost_limit), _ADMIN),
    Route("GET", "/user-limits", list_user_limits),
    Route("GET", "/user-limits/{user}", list_limits_of_user),
    Route("PUT", "/user-limits/{user}/{limit}", put_user_limit, _ADMIN, consumes=_JSON),
    Route("DELETE", "/user-limits/{user}/{limit}", deleting(users.clear_user_limits), _ADMIN),
)
