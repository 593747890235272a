"""Permissions of users in vhosts, and on topic exchanges. Source: management §1.9; what RabbitMQ 3.10.8 answers."""

from collections.abc import Iterable
from typing import Final, TypeVar

from node.admin import permissions
from node.admin.admin import AdminError
from node.catalogue.records import Permission, TopicPermission
from node.definitions.rows import permission_row, topic_permission_row
from node.management.call import Call
from node.management.reply import Reply, bad_request, no_content, no_such_thing, put
from node.management.resources.bodies import existing_user, existing_vhost, listed, one, texts
from node.management.routes import Access, Route

RowT = TypeVar("RowT", Permission, TopicPermission)

_ORDER: Final = ("vhost", "user")
_TOPIC_ORDER: Final = ("vhost", "user", "exchange")
_NO_VHOST_OR_USER: Final = "vhost_or_user_not_found"


# --- in vhosts ---


async def list_permissions(call: Call) -> Reply:
    """GET /permissions, /vhosts/{vhost}/permissions, /users/{user}/permissions."""
    return await listed(call, permission_row, _of_path(call, call.catalogue.permissions()), _ORDER)


async def get_permission(call: Call) -> Reply:
    """GET /permissions/{vhost}/{user}."""
    found = call.catalogue.permission(call.path["vhost"], call.path["user"])
    if found is None:
        raise no_such_thing()
    return one(call, permission_row(found))


async def put_permission(call: Call) -> Reply:
    """PUT /permissions/{vhost}/{user} `{configure, write, read}`."""
    configure, write, read = texts(await call.body(), "configure", "write", "read")
    vhost, user = call.path["vhost"], call.path["user"]
    admin = call.site.admin(call.user.name)
    try:
        return put(await permissions.set_permissions(admin, user, vhost, configure, write, read))
    except AdminError as error:
        raise _bad(error) from None


async def delete_permission(call: Call) -> Reply:
    """DELETE /permissions/{vhost}/{user}."""
    vhost, user = call.path["vhost"], call.path["user"]
    if call.catalogue.permission(vhost, user) is None:
        raise no_such_thing()
    await permissions.clear_permissions(call.site.admin(call.user.name), user, vhost)
    return no_content()


# --- on topic exchanges ---


async def list_topic_permissions(call: Call) -> Reply:
    """GET /topic-permissions, /vhosts/{vhost}/topic-permissions, /users/{user}/topic-permissions."""
    found = _of_path(call, call.catalogue.topic_permissions())
    return await listed(call, topic_permission_row, found, _TOPIC_ORDER)


async def get_topic_permissions(call: Call) -> Reply:
    """GET /topic-permissions/{vhost}/{user}: a list, of all exchanges even where one is named."""
    return await listed(call, topic_permission_row, _topics(call), _TOPIC_ORDER)


async def put_topic_permission(call: Call) -> Reply:
    """PUT /topic-permissions/{vhost}/{user} `{exchange, write, read}`: 201 for a user's first one."""
    exchange, write, read = texts(await call.body(), "exchange", "write", "read")
    vhost, user = call.path["vhost"], call.path["user"]
    is_first = not any((row.vhost, row.user) == (vhost, user) for row in call.catalogue.topic_permissions())
    admin = call.site.admin(call.user.name)
    try:
        await permissions.set_topic_permissions(admin, user, vhost, exchange, write, read)
    except AdminError as error:
        raise _bad(error) from None
    return put(is_first)


async def delete_topic_permissions(call: Call) -> Reply:
    """DELETE /topic-permissions/{vhost}/{user}, or only of one exchange: /{exchange}."""
    _topics(call)
    vhost, user = call.path["vhost"], call.path["user"]
    admin = call.site.admin(call.user.name)
    await permissions.clear_topic_permissions(admin, user, vhost, call.path.get("exchange"))
    return no_content()


def _of_path(call: Call, rows: Iterable[RowT]) -> list[RowT]:
    """Return the rows of the vhost or the user that the path names, if it does. Raises: ApiError (404)."""
    vhost = existing_vhost(call) if "vhost" in call.path else None
    user = existing_user(call) if "user" in call.path else None
    return [row for row in rows if vhost in (None, row.vhost) and user in (None, row.user)]


def _topics(call: Call) -> list[TopicPermission]:
    """Return the user's rows for the vhost. Raises: ApiError (404) without any."""
    where = (call.path["vhost"], call.path["user"])
    found = [row for row in call.catalogue.topic_permissions() if (row.vhost, row.user) == where]
    if not found:
        raise no_such_thing()
    return found


def _bad(error: AdminError) -> Exception:
    """Convert the error of a missing vhost or user: RabbitMQ says 400, and not which of them is missing."""
    return bad_request(_NO_VHOST_OR_USER) if error.kind == "not_found" else error


_ADMIN: Final = Access.ADMINISTRATOR

ROUTES: Final = (
    Route("GET", "/permissions", list_permissions, _ADMIN, is_long=True),
    Route("GET", "/permissions/{vhost}/{user}", get_permission, _ADMIN),
    Route("PUT", "/permissions/{vhost}/{user}", put_permission, _ADMIN),
    Route("DELETE", "/permissions/{vhost}/{user}", delete_permission, _ADMIN),
    Route("GET", "/vhosts/{vhost}/permissions", list_permissions, _ADMIN, is_long=True),
    Route("GET", "/users/{user}/permissions", list_permissions, _ADMIN, is_long=True),
    Route("GET", "/topic-permissions", list_topic_permissions, _ADMIN, is_long=True),
    Route("GET", "/topic-permissions/{vhost}/{user}", get_topic_permissions, _ADMIN),
    Route("PUT", "/topic-permissions/{vhost}/{user}", put_topic_permission, _ADMIN),
    Route("DELETE", "/topic-permissions/{vhost}/{user}", delete_topic_permissions, _ADMIN),
    Route("GET", "/topic-permissions/{vhost}/{user}/{exchange}", get_topic_permissions, _ADMIN, is_long=True),
    Route("DELETE", "/topic-permissions/{vhost}/{user}/{exchange}", delete_topic_permissions, _ADMIN),
    Route("GET", "/vhosts/{vhost}/topic-permissions", list_topic_permissions, _ADMIN, is_long=True),
    Route("GET", "/users/{user}/topic-permissions", list_topic_permissions, _ADMIN, is_long=True),
)
