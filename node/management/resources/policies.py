"""Policies, of users and of operators. Source: management §1.10; what RabbitMQ 3.10.8 answers."""

from typing import Final

from node.admin import policies
from node.catalogue.records import Policy
from node.definitions.rows import policy_row
from node.management.call import Call
from node.management.reply import ApiError, Reply, no_content, no_such_thing, put
from node.management.resources.bodies import check_policymaker, listed, one, require, target_vhost
from node.management.routes import Access, Route

_ORDER: Final = ("vhost", "name")
_JSON: Final = "application/json"


# --- of users ---


async def list_policies(call: Call) -> Reply:
    """GET /policies, /policies/{vhost}."""
    return await _listed(call, is_operator=False)


async def get_policy(call: Call) -> Reply:
    """GET /policies/{vhost}/{name}."""
    check_policymaker(call, call.path["vhost"])
    return one(call, policy_row(_existing(call, is_operator=False)))


async def put_policy(call: Call) -> Reply:
    """PUT /policies/{vhost}/{name} `{pattern, definition, priority, apply-to}`."""
    check_policymaker(call, call.path["vhost"])
    return await _put(call, is_operator=False)


async def delete_policy(call: Call) -> Reply:
    """DELETE /policies/{vhost}/{name}."""
    check_policymaker(call, call.path["vhost"])
    return await _delete(call, is_operator=False)


# --- of operators ---


async def list_operator_policies(call: Call) -> Reply:
    """GET /operator-policies, /operator-policies/{vhost}."""
    return await _listed(call, is_operator=True)


async def get_operator_policy(call: Call) -> Reply:
    """GET /operator-policies/{vhost}/{name}."""
    return one(call, policy_row(_existing(call, is_operator=True)))


async def put_operator_policy(call: Call) -> Reply:
    """PUT /operator-policies/{vhost}/{name}, unless the configuration is against it."""
    _check_restriction(call)
    return await _put(call, is_operator=True)


async def delete_operator_policy(call: Call) -> Reply:
    """DELETE /operator-policies/{vhost}/{name}, unless the configuration is against it."""
    _check_restriction(call)
    return await _delete(call, is_operator=True)


# --- both ---


async def _listed(call: Call, *, is_operator: bool) -> Reply:
    found = [
        policy for vhost in call.vhosts() for policy in call.catalogue.policies(vhost, operator=is_operator)
    ]
    return await listed(call, policy_row, found, _ORDER)


async def _put(call: Call, *, is_operator: bool) -> Reply:
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


async def _delete(call: Call, *, is_operator: bool) -> Reply:
    policy = _existing(call, is_operator=is_operator)
    admin = call.site.admin(call.user.name)
    await policies.clear_policy(admin, policy.vhost, policy.name, is_operator=is_operator)
    return no_content()


def _existing(call: Call, *, is_operator: bool) -> Policy:
    """The policy of the path. Raises: ApiError (404)."""
    for policy in call.catalogue.policies(call.path["vhost"], operator=is_operator):
        if policy.name == call.path["name"]:
            return policy
    raise no_such_thing()


def _check_restriction(call: Call) -> None:
    """`management.restrictions.operator_policy_changes.disabled`. Raises: ApiError (405)."""
    if call.site.config.management.disable_operator_policy_changes:
        raise ApiError(405, headers={"allow": "HEAD, GET, OPTIONS"})


_ADMIN: Final = Access.ADMINISTRATOR

ROUTES: Final = (
    Route("GET", "/policies", list_policies),
    Route("GET", "/policies/{vhost}", list_policies),
    Route("GET", "/policies/{vhost}/{name}", get_policy),
    Route("PUT", "/policies/{vhost}/{name}", put_policy),
    Route("DELETE", "/policies/{vhost}/{name}", delete_policy),
    Route("GET", "/operator-policies", list_operator_policies),
    Route("GET", "/operator-policies/{vhost}", list_operator_policies),
    Route("GET", "/operator-policies/{vhost}/{name}", get_operator_policy, _ADMIN),
    Route("PUT", "/operator-policies/{vhost}/{name}", put_operator_policy, _ADMIN, consumes=_JSON),
    Route("DELETE", "/operator-policies/{vhost}/{name}", delete_operator_policy, _ADMIN),
)
