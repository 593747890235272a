"""Limits of vhosts. Those of users are a part of the user: `node.admin.users`.

Source: management §1.10; what RabbitMQ 3.10.8 answers.
"""

from node.admin.admin import Admin, AdminError
from node.admin.parameters import parameter_command
from node.admin.policies import NO_PARAMETER
from node.admin.vhosts import existing
from node.catalogue.commands import ClearParameter
from node.catalogue.parameters import VHOST_LIMITS, VHOST_LIMITS_NAME
from node.catalogue.records import Json
from node.log import admin as log_admin


async def set_vhost_limits(admin: Admin, vhost: str, limits: Json) -> None:
    """Replace all limits of a vhost: `{"max-queues": 5, "max-connections": -1}`. Raises: AdminError."""
    existing(admin, vhost)
    await admin.submit(parameter_command(vhost, VHOST_LIMITS, VHOST_LIMITS_NAME, limits))
    shown = limits if isinstance(limits, dict) else {}
    admin.logger.info(log_admin.vhost_limits_set(vhost, shown))


async def set_vhost_limit(admin: Admin, vhost: str, limit: str, value: Json) -> None:
    """Set one limit of a vhost; the others stay. Raises: AdminError."""
    existing(admin, vhost)
    await set_vhost_limits(admin, vhost, {**vhost_limits(admin, vhost), limit: value})


async def clear_vhost_limit(admin: Admin, vhost: str, limit: str) -> None:
    """Remove one limit of a vhost; one that is not there is no error. Raises: AdminError."""
    existing(admin, vhost)
    known = vhost_limits(admin, vhost)
    if limit in known:
        await set_vhost_limits(admin, vhost, {name: known[name] for name in known if name != limit})


async def clear_vhost_limits(admin: Admin, vhost: str) -> None:
    """Remove all limits of a vhost. Raises: AdminError, `not_found` if none was ever set."""
    if not await admin.submit(ClearParameter(vhost, VHOST_LIMITS, VHOST_LIMITS_NAME)):
        raise AdminError("not_found", NO_PARAMETER)
    admin.logger.info(log_admin.vhost_limits_set(vhost, {}))


def list_vhost_limits(admin: Admin, vhost: str | None) -> list[dict[str, Json]]:
    """Return a vhost's limits, or those of all; without vhosts that have none. Raises: AdminError."""
    if vhost is not None:
        existing(admin, vhost)
    names = sorted(each.name for each in admin.catalogue.vhosts()) if vhost is None else [vhost]
    rows = [(name, vhost_limits(admin, name)) for name in names]
    return [{"name": name, "limits": found} for name, found in rows if found]


def vhost_limits(admin: Admin, vhost: str) -> dict[str, Json]:
    """Return the limits that are set, by name."""
    found = admin.catalogue.parameter(vhost, VHOST_LIMITS, VHOST_LIMITS_NAME)
    return dict(found) if isinstance(found, dict) else {}
