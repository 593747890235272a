"""Policies: those of users and those of operators.

Source: management §1.10; what RabbitMQ 3.10.8 answers.
"""

import json
from collections.abc import Collection
from typing import cast, get_args

from node.admin.admin import Admin, AdminError, check_name
from node.admin.vhosts import existing
from node.catalogue.commands import ClearPolicy, SetPolicy
from node.catalogue.holding import HOLD_ARGUMENT
from node.catalogue.policy_validation import validate_policy
from node.catalogue.records import ApplyTo, Json, JsonObject
from node.definitions.rows import Row, policy_row
from node.log import admin as log_admin

NO_PARAMETER = "Parameter does not exist"


def invalid(problem: str) -> AdminError:
    """Return RabbitMQ's error for an invalid policy or parameter.   problem: a line for each fault."""
    return AdminError("invalid", f"Validation failed\n\n{problem}\n")


def list_policies(admin: Admin, vhost: str, *, is_operator: bool = False) -> list[Row]:
    """Return the policies of a vhost by name, their definitions as JSON. Raises: AdminError."""
    existing(admin, vhost)
    found = sorted(admin.catalogue.policies(vhost, operator=is_operator), key=lambda each: each.name)
    return [{**policy_row(each), "definition": _compact(each.definition)} for each in found]


def _compact(definition: object) -> str:
    return json.dumps(definition, sort_keys=True, separators=(",", ":"))


async def set_policy(
    admin: Admin,
    vhost: str,
    name: str,
    *,
    pattern: Json,
    definition: Json,
    priority: Json = 0,
    apply_to: Json = "all",
    is_operator: bool = False,
) -> bool:
    """Set a policy; True: it is new. The values may be any JSON. Raises: AdminError."""
    existing(admin, vhost)
    command = policy_command(
        vhost,
        name,
        pattern=pattern,
        definition=definition,
        priority=priority,
        apply_to=apply_to,
        is_operator=is_operator,
        plugins=admin.catalogue.plugins.by_name,
    )
    await put_holding(admin, vhost, command.definition)
    is_new = await admin.submit(command)
    admin.logger.info(log_admin.policy_set(name, command.apply_to, vhost, command.pattern))
    return is_new


async def put_holding(admin: Admin, vhost: str, definition: JsonObject) -> None:
    """Make the exchange that keeps messages for queues with such a policy, if it needs one. Raises: AdminError."""
    header = definition.get(HOLD_ARGUMENT.removeprefix("x-"))
    holding = admin.broker.holding(vhost, header) if isinstance(header, str) else None
    if holding is not None:
        await admin.submit(holding)


def policy_command(
    vhost: str,
    name: str,
    *,
    pattern: Json,
    definition: Json,
    priority: Json = 0,
    apply_to: Json = "all",
    is_operator: bool = False,
    plugins: Collection[str] | None = None,
) -> SetPolicy:
    """Return the command that sets a policy, after checking it.   plugins: as `validate_policy`. Raises: AdminError."""
    check_name(name, "policy")
    value: Json = {"pattern": pattern, "definition": definition, "priority": priority, "apply-to": apply_to}
    problem = validate_policy(name, value, operator=is_operator, plugins=plugins)
    if problem is not None:
        raise invalid(problem)
    assert isinstance(pattern, str)
    assert isinstance(definition, dict)
    assert isinstance(priority, int | float)
    assert apply_to in get_args(ApplyTo)
    return SetPolicy(
        vhost, name, pattern, definition, priority, cast(ApplyTo, apply_to), operator=is_operator
    )


async def clear_policy(admin: Admin, vhost: str, name: str, *, is_operator: bool = False) -> None:
    """Remove a policy. Raises: AdminError, `not_found` without one."""
    was_there = admin.catalogue.vhost(vhost) is not None and await admin.submit(
        ClearPolicy(vhost, name, operator=is_operator)
    )
    if not was_there:
        raise AdminError("not_found", NO_PARAMETER)
    admin.logger.info(log_admin.policy_cleared(name, vhost, is_operator=is_operator))
