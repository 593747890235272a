"""Runtime parameters: which components there are and which values they take.

Source: amqp-behaviour §6.4; rabbit_runtime_parameters.erl and rabbit_vhost_limit.erl v3.10. Components of
plug-ins that Fluffle does not have are unknown. Global parameters are not checked: RabbitMQ takes any name
and value.
"""

from collections.abc import Collection
from typing import Final

from node.catalogue.components import find_component
from node.catalogue.parameter_validation import check_integer, check_object
from node.catalogue.policy_validation import validate_policy
from node.catalogue.records import Json

POLICY: Final = "policy"
OPERATOR_POLICY: Final = "operator_policy"
VHOST_LIMITS: Final = "vhost-limits"
VHOST_LIMITS_NAME: Final = "limits"
"""The one name of a `vhost-limits` parameter."""

"""The global parameter with the name of the cluster."""


def validate_parameter(
    component: str, name: str, value: Json, plugins: Collection[str] | None = None
) -> str | None:
    """Return the problems with a parameter of a vhost, a line for each, or None.

    plugins: the enabled ones; None: whichever are, as the catalogue keeps what was set before.
    """
    if component == POLICY:
        return "policies may not be set using this method"
    if component == OPERATOR_POLICY:
        return validate_policy(name, value, operator=True)
    of_plugin = find_component(component, plugins)
    if of_plugin is not None:
        return "\n".join(of_plugin.validate(name, value)) or None
    if component != VHOST_LIMITS:
        return f"component {component} not found"
    if name != VHOST_LIMITS_NAME:
        # RabbitMQ stores it, and then crashes in telling of the change.
        return f"{VHOST_LIMITS} must be named {VHOST_LIMITS_NAME}"
    checks = {"max-connections": check_integer, "max-queues": check_integer}
    return "\n".join(check_object(name, value, checks)) or None


def validate_user_limits(value: Json) -> str | None:
    """Return the problems with a user's limits as the HTTP API and definitions give them, or None."""
    checks = {"max-connections": check_integer, "max-channels": check_integer}
    return "\n".join(check_object("user-limits", value, checks)) or None
