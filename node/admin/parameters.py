"""Runtime parameters of vhosts and of the cluster.

Source: management §1.10; what RabbitMQ 3.10.8 answers.
"""

from collections.abc import Collection
from typing import Final

from node.admin.admin import Admin, AdminError, check_name
from node.admin.policies import NO_PARAMETER, invalid
from node.admin.vhosts import existing
from node.catalogue import federation_parameters, shovel_parameters
from node.catalogue.commands import (
    ClearGlobalParameter,
    ClearParameter,
    SetGlobalParameter,
    SetParameter,
)
from node.catalogue.federation_parameters import UPSTREAM, UPSTREAM_SET
from node.catalogue.parameters import POLICY, validate_parameter
from node.catalogue.records import Json
from node.catalogue.shovel_parameters import SHOVEL
from node.definitions.reading import DefinitionsInvalid, check_depth
from node.definitions.rows import Row, parameter_rows
from node.log import admin as log_admin

NO_POLICIES: Final = "policies may not be set using this method"
KEEPS_POLICIES: Final = "policies may not be cleared using this method"


def list_parameters(admin: Admin, vhost: str) -> list[Row]:
    """Return the parameters of a vhost, operator policies among them, by component and name. Raises: AdminError."""
    existing(admin, vhost)
    rows = parameter_rows(admin.catalogue, vhost)
    return sorted(rows, key=lambda row: (str(row["component"]), str(row["name"])))


def list_global_parameters(admin: Admin) -> list[Row]:
    """Return the parameters of the whole cluster, by name."""
    return [
        {"name": name, "value": value} for name, value in sorted(admin.catalogue.global_parameters().items())
    ]


async def set_parameter(admin: Admin, vhost: str, component: str, name: str, value: Json) -> bool:
    """Set a parameter of a vhost, operator policies among them; True: it is new. Raises: AdminError."""
    existing(admin, vhost)
    plugins = admin.catalogue.plugins.by_name
    command = parameter_command(vhost, component, name, value, plugins)
    if component == SHOVEL:
        _check_local_access(admin, shovel_parameters.local_vhosts(value))
    elif component in (UPSTREAM, UPSTREAM_SET):
        _check_local_access(admin, federation_parameters.local_vhosts(vhost, value))
    is_new = await admin.submit(command)
    admin.logger.info(log_admin.parameter_set(component, name, vhost))
    return is_new


def _check_local_access(admin: Admin, vhosts: Collection[str]) -> None:
    """Check that who sets a shovel or an upstream may use the vhosts here in which it has all rights.

    Raises: AdminError.

    Tools on the node's own machine are no user, and may use all that there are.
    """
    user = admin.catalogue.user(admin.by)
    for vhost in sorted(vhosts):
        is_there = admin.catalogue.vhost(vhost) is not None
        if not is_there or (user is not None and admin.catalogue.permission(vhost, user.name) is None):
            raise invalid(f'user "{admin.by}" may not connect to vhost "{vhost}"')


def parameter_command(
    vhost: str, component: str, name: str, value: Json, plugins: Collection[str] | None = None
) -> SetParameter:
    """Return the command that sets a parameter, after checking it.   plugins: as `validate_parameter`.

    Raises: AdminError.
    """
    check_name(name, "parameter")
    if component == POLICY:
        raise AdminError("invalid", NO_POLICIES)
    problem = validate_parameter(component, name, value, plugins)
    if problem is not None:
        raise invalid(problem)
    return SetParameter(vhost, component, name, value)


async def clear_parameter(admin: Admin, vhost: str, component: str, name: str) -> None:
    """Remove a parameter of a vhost, or an operator policy. Raises: AdminError, `not_found` without one."""
    if admin.catalogue.vhost(vhost) is None:
        raise AdminError("not_found", NO_PARAMETER)
    if component == POLICY:
        raise AdminError("invalid", KEEPS_POLICIES)
    if not await admin.submit(ClearParameter(vhost, component, name)):
        raise AdminError("not_found", NO_PARAMETER)
    admin.logger.info(log_admin.parameter_cleared(component, name, vhost))


async def set_global_parameter(admin: Admin, name: str, value: Json) -> bool:
    """Set a parameter of the whole cluster; True: it is new. Raises: AdminError."""
    check_name(name, "global parameter")
    try:
        check_depth(value)
    except DefinitionsInvalid as invalid_value:
        raise AdminError("invalid", invalid_value.reason) from None
    is_new = await admin.submit(SetGlobalParameter(name, value))
    admin.logger.info(log_admin.global_parameter_set(name))
    return is_new


async def clear_global_parameter(admin: Admin, name: str) -> None:
    """Remove a parameter of the whole cluster. Raises: AdminError, `not_found` without one."""
    if not await admin.submit(ClearGlobalParameter(name)):
        raise AdminError("not_found", NO_PARAMETER)
    admin.logger.info(log_admin.global_parameter_cleared(name))
