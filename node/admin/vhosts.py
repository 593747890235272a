"""Create, describe, trace and delete vhosts.

Source: management §1.9, §2.7; what RabbitMQ 3.10.8 answers.
"""

from collections.abc import Sequence
from typing import Final, get_args

from node.admin.admin import Admin, AdminError, check_name
from node.catalogue.commands import DeleteVhost, PutVhost, SetPermission
from node.catalogue.records import QueueType, Vhost
from node.log import admin as log_admin

TRACING: Final = "tracing"
"""The key of a vhost's metadata that says whether its messages are traced (management §2.7)."""

_EVERYTHING: Final = ".*"


async def put_vhost(
    admin: Admin,
    name: str,
    *,
    description: str = "",
    tags: Sequence[str] = (),
    tracing: bool | None = None,
    default_queue_type: str = "",
    owner: str | None = None,
) -> bool:
    """Create a vhost, or replace description and tags; True: it is new. Raises: AdminError.

    tracing: as it was unless given.
    default_queue_type: of a new one; it never changes.
    owner: a user who may do everything in a new one.
    """
    check_name(name, "virtual host")
    before = admin.catalogue.vhost(name)
    if before is None and default_queue_type not in ("", *get_args(QueueType)):
        raise AdminError("invalid", ["invalid_queue_type", default_queue_type])
    queue_type = default_queue_type if before is None else before.default_queue_type
    metadata = {} if before is None else dict(before.metadata)
    if tracing is not None:
        metadata[TRACING] = tracing
    is_new = await admin.submit(PutVhost(name, description, tuple(tags), queue_type, metadata, admin.by))
    if is_new:
        admin.logger.info(log_admin.vhost_added(name, description, tags))
        if owner is not None:
            await admin.submit(SetPermission(name, owner, _EVERYTHING, _EVERYTHING, _EVERYTHING))
            everything = (_EVERYTHING, _EVERYTHING, _EVERYTHING)
            admin.logger.info(log_admin.permissions_set(owner, name, *everything))
    if tracing is not None:
        _tell_tracing(admin, name, was_on=before is not None and is_traced(before), is_on=tracing)
    return is_new


async def add_vhost(
    admin: Admin, vhost: str, *, description: str = "", tags: Sequence[str] = (), default_queue_type: str = ""
) -> bool:
    """Create a vhost unless it is there; True: it is new. Raises: AdminError."""
    if admin.catalogue.vhost(vhost) is not None:
        return False
    return await put_vhost(
        admin, vhost, description=description, tags=tags, default_queue_type=default_queue_type
    )


async def delete_vhost(admin: Admin, vhost: str) -> None:
    """Delete a vhost and all that is in it; its connections are closed. Raises: AdminError."""
    existing(admin, vhost)
    admin.logger.info(log_admin.vhost_deleted(vhost))
    if not await admin.submit(DeleteVhost(vhost)):
        raise _no_such_vhost(vhost)


async def set_vhost_tags(admin: Admin, vhost: str, tags: Sequence[str]) -> None:
    """Replace a vhost's tags. Raises: AdminError."""
    before = existing(admin, vhost)
    await admin.submit(
        PutVhost(vhost, before.description, tuple(tags), before.default_queue_type, before.metadata)
    )
    admin.logger.info(log_admin.vhost_tags_set(vhost, tags))


async def set_tracing(admin: Admin, vhost: str, *, is_on: bool) -> None:
    """Begin or end to copy the vhost's messages to `amq.rabbitmq.trace`. Raises: AdminError."""
    before = existing(admin, vhost)
    if is_traced(before) != is_on:
        metadata = {**before.metadata, TRACING: is_on}
        described = (before.description, before.tags, before.default_queue_type)
        await admin.submit(PutVhost(vhost, *described, metadata))
    _tell_tracing(admin, vhost, was_on=is_traced(before), is_on=is_on)


def restart_vhost(admin: Admin, vhost: str) -> None:
    """Check that the vhost exists: it runs wherever its node does. Raises: AdminError if there is none."""
    existing(admin, vhost)


def check_virtual_hosts(admin: Admin) -> dict[str, list[str]]:
    """Return the vhosts that do not run on this node."""
    live = admin.broker.vhosts
    return {"down": sorted(each.name for each in admin.catalogue.vhosts() if each.name not in live)}


def is_traced(vhost: Vhost) -> bool:
    """True if the vhost's messages are traced."""
    return vhost.metadata.get(TRACING) is True


def existing(admin: Admin, name: str) -> Vhost:
    """Return the vhost of that name. Raises: AdminError."""
    vhost = admin.catalogue.vhost(name)
    if vhost is None:
        raise _no_such_vhost(name)
    return vhost


def _no_such_vhost(name: str) -> AdminError:
    return AdminError("not_found", ["no_such_vhost", name])


def _tell_tracing(admin: Admin, name: str, *, was_on: bool, is_on: bool) -> None:
    if not is_on:
        admin.logger.info(log_admin.tracing_disabled(name))
    elif was_on:
        admin.logger.info(log_admin.tracing_is_enabled(name))
    else:
        admin.logger.info(log_admin.tracing_enabled(name))
