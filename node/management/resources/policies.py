"""Policies, of users and of operators. Source: management §1.10; what RabbitMQ 3.10.8 answers."""

from collections.abc import Awaitable, Callable
from typing import Final

from node.admin import policies
from node.definitions.rows import policy_row
from node.management.call import Call
from node.management.reply import ApiError, Reply, no_such_thing, put
from node.management.resources.bodies import deleting, listed, one, policymaker, require, target_vhost
from node.management.routes import Access, Handler, Route

_ORDER: Final = ("vhost", "name")
_JSON: Final = "application/json"


async def _list(call: Call, is_operator: bool) -> Reply:
    """GET /policies, /policies/{vhost}."""
    found = [
        policy for vhost in call.vhosts() for policy in call.catalogue.policies(vhost, operator=is_operator)
    ]
    return await listed(call, policy_row, found, _ORDER)


async def _get(call: Call, is_operator: bool) -> Reply:
    """GET /policies/{vhost}/{name}."""
    for policy in call.catalogue.policies(call.path["vhost"], operator=is_operator):
        if policy.name == call.path["name"]:
            return one(call, policy_row(policy))
    raise no_such_thing()


async def _put(call: Call, is_operator: bool) -> Reply:
    """PUT /policies/{vhost}/{name} `{pattern, definition, priority, apply-to}`."""
    vhost, body = target_vhost(call), await call.body()
    require(body, "pattern", "definition")
    is_new = await policies.set_policy(
        call.site.admin(call.user.name),
        vhost,
        call.path["name"],
        pattern=body["pattern"],
        definition=body["definition"],
        priority=body.get("priority", 0),
        apply_to=body.get("apply-to", "all"),
        is_operator=is_operator,
    )
    return put(is_new)


def _handler(do: Callable[[Call, bool], Awaitable[Reply]], *, is_operator: bool) -> Handler:
    async def handler(call: Call) -> Reply:
        return await do(call, is_operator)

    return handler


def _unrestricted(handler: Handler) -> Handler:
    """Wrap a handler that `management.restrictions.operator_policy_changes.disabled` forbids (405)."""

    async def checked(call: Call) -> Reply:
        if call.site.config.management.disable_operator_policy_changes:
            raise ApiError(405, headers={"allow": "HEAD, GET, OPTIONS"})
        return await handler(call)

    return checked


_ADMIN: Final = Access.ADMINISTRATOR
_delete: Final = deleting(policies.clear_policy)
_delete_operators: Final = deleting(policies.clear_policy, is_operator=True)
_list_users, _get_users, _put_users = (_handler(do, is_operator=False) for do in (_list, _get, _put))
_list_operators, _get_operators, _put_operators = (
    _handler(do, is_operator=True) for do in (_list, _get, _put)
)

_ONE: Final = "/policies/{vhost}/{name}"
_ONE_OPERATORS: Final = "/operator-policies/{vhost}/{name}"

ROUTES: Final = (
    Route("GET", "/policies", _list_users),
    Route("GET", "/policies/{vhost}", _list_users),
    Route("GET", _ONE, policymaker(_get_users)),
    Route("PUT", _ONE, policymaker(_put_users)),
    Route("DELETE", _ONE, policymaker(_delete)),
    Route("GET", "/operator-policies", _list_operators),
    Route("GET", "/operator-policies/{vhost}", _list_operators),
    Route("GET", _ONE_OPERATORS, _get_operators, _ADMIN),
    Route("PUT", _ONE_OPERATORS, _unrestricted(_put_operators), _ADMIN, consumes=_JSON),
    Route("DELETE", _ONE_OPERATORS, _unrestricted(_delete_operators), _ADMIN),
)
