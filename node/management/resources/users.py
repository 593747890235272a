"""Users. Source: management §1.9, §2.3; what RabbitMQ 3.10.8 answers."""

from typing import Final

from node.admin import permissions, users
from node.definitions.reading import DefinitionsInvalid
from node.definitions.users import UserItem, read_user, user_row
from node.management.call import Call
from node.management.reply import Reply, bad_request, no_content, put
from node.management.resources.bodies import deleting, existing_user, listed, one, require
from node.management.routes import Access, Route

_ORDER: Final = ("name",)


async def list_users(call: Call) -> Reply:
    """GET /users: without pages, as in RabbitMQ 3.10.8."""
    return await listed(call, user_row, list(call.catalogue.users()), _ORDER)


async def list_without_permissions(call: Call) -> Reply:
    """GET /users/without-permissions: users without a permission in any vhost."""
    permitted = {permission.user for permission in call.catalogue.permissions()}
    found = [user for user in call.catalogue.users() if user.name not in permitted]
    return await listed(call, user_row, found, _ORDER)


async def get_user(call: Call) -> Reply:
    """GET /users/{user}."""
    user = call.catalogue.user(existing_user(call))
    assert user is not None
    return one(call, user_row(user))


async def put_user(call: Call) -> Reply:
    """PUT /users/{user}: create a user, or replace password and tags."""
    item = _read(await call.body(), call.path["user"])
    _check_permissions(call, item)
    admin = call.site.admin(call.user.name)
    is_new = await users.put_item(admin, item)
    if is_new:
        for vhost, patterns in (item.permissions or {}).items():
            await permissions.set_permissions(admin, item.name, vhost, *patterns)
    return put(is_new)


async def delete_users(call: Call) -> Reply:
    """POST /users/bulk-delete `{"users": […]}`: up to the first that does not exist."""
    body = await call.body()
    require(body, "users")
    names = body["users"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise bad_request("users must be a list of names")
    await users.delete_users(call.site.admin(call.user.name), names)
    return no_content()


def _read(body: dict[str, object], name: str) -> UserItem:
    try:
        return read_user(body, name)
    except DefinitionsInvalid as invalid:
        raise bad_request(invalid.reason) from None


def _check_permissions(call: Call, item: UserItem) -> None:
    """Refuse missing vhosts before the user is made; RabbitMQ finds them after that. Raises: ApiError."""
    for vhost in item.permissions or {}:
        if call.catalogue.vhost(vhost) is None:
            raise bad_request(["no_such_vhost", vhost])


_ADMIN: Final = Access.ADMINISTRATOR

ROUTES: Final = (
    Route("GET", "/users", list_users, _ADMIN, is_long=True),
    Route("GET", "/users/without-permissions", list_without_permissions, _ADMIN, is_long=True),
    Route("POST", "/users/bulk-delete", delete_users, _ADMIN),
    Route("GET", "/users/{user}", get_user, _ADMIN),
    Route("PUT", "/users/{user}", put_user, _ADMIN),
    Route("DELETE", "/users/{user}", deleting(users.delete_user), _ADMIN),
)
