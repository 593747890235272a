"""Helpers for the resources of vhosts, users, permissions and the like: bodies, vhosts of paths, answers.

RabbitMQ crashes (500) over values of a wrong type; here they are a bad request that names them. Source: management
§1.0.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from node.admin.admin import AdminError
from node.management.call import Call
from node.management.listing import Row, narrowed
from node.management.reply import Reply, bad_request, no_content, no_such_thing, not_authorised, not_found, ok
from node.management.routes import Handler
from node.management.slicing import applied, mapped

RecordT = TypeVar("RecordT")

_NO_OBJECT = "User not authorised to access object"


def require(body: Mapping[str, Any], *keys: str) -> None:
    """Check that the keys are there. Raises: ApiError (400) that names the missing ones, as RabbitMQ does."""
    missing = [f"{{key_missing,{key}}}" for key in keys if key not in body]
    if missing:
        raise bad_request(f"[{','.join(missing)}]")


def text(body: Mapping[str, Any], key: str, default: str = "") -> str:
    """Return the text of a key; the default where it is missing or null. Raises: ApiError (400)."""
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise bad_request(f"{key} must be a string")
    return value


def texts(body: Mapping[str, Any], *keys: str) -> list[str]:
    """Return the texts of keys that must be there. Raises: ApiError (400)."""
    require(body, *keys)
    found = []
    for key in keys:
        value = body[key]
        if not isinstance(value, str):
            raise bad_request(f"{key} must be a string")
        found.append(value)
    return found


def target_vhost(call: Call) -> str:
    """Return the vhost of the path, in which something is to be put. Raises: ApiError (404)."""
    name = call.path["vhost"]
    if call.catalogue.vhost(name) is None:
        raise not_found("vhost_not_found")
    return name


def existing_vhost(call: Call) -> str:
    """Return the vhost of the path, for users that may see all. Raises: ApiError (404)."""
    name = call.path["vhost"]
    if call.catalogue.vhost(name) is None:
        raise no_such_thing()
    return name


def existing_user(call: Call) -> str:
    """Return the user of the path. Raises: ApiError (404)."""
    name = call.path["user"]
    if call.catalogue.user(name) is None:
        raise no_such_thing()
    return name


def check_policymaker(call: Call, vhost: str | None = None) -> None:
    """Refuse users that may not set policies, or not in this vhost. A missing vhost is not checked here.

    Raises: ApiError (401).
    """
    if not call.has_tag("policymaker", "administrator"):
        raise not_authorised(_NO_OBJECT)
    if vhost is not None and call.catalogue.vhost(vhost) is not None and not call.can_see(vhost):
        raise not_authorised(_NO_OBJECT)


def policymaker(handler: Handler) -> Handler:
    """Wrap a handler for users that may set policies, in the vhost of the path if there is one."""

    async def checked(call: Call) -> Reply:
        check_policymaker(call, call.path.get("vhost"))
        return await handler(call)

    return checked


def deleting(function: Callable[..., Awaitable[object]], **more: object) -> Handler:
    """Return a handler that calls a function of `node.admin` to remove the path's object; 404 if there is none.

    more: arguments of the function beside the names of the path.
    """

    async def delete(call: Call) -> Reply:
        try:
            await function(call.site.admin(call.user.name), **call.path, **more)
        except AdminError as error:
            raise no_such_thing() if error.kind == "not_found" else error from None
        return no_content()

    return delete


async def listed(
    call: Call, row_of: Callable[[RecordT], Row], records: Iterable[RecordT], order: Sequence[str]
) -> Reply:
    """Answer with a list that has no pages in RabbitMQ 3.10.8.   order: the fields of the default sort order."""
    rows = await mapped(row_of, records)
    return ok(await applied(call.listing(can_page=False), rows, order))


def one(call: Call, row: Row) -> Reply:
    """Answer with a single object, with the columns that are asked for."""
    columns = call.listing(can_page=False).columns
    return ok(row if columns is None else narrowed(row, columns))
