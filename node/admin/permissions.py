"""Permissions of users in vhosts, and on topic exchanges.

Source: management §1.9; what RabbitMQ 3.10.8 answers.
"""

from node.admin.admin import Admin, AdminError
from node.admin.users import existing_user
from node.admin.vhosts import existing
from node.catalogue.commands import (
    ClearPermission,
    ClearTopicPermission,
    SetPermission,
    SetTopicPermission,
)
from node.definitions.reading import DefinitionsInvalid, check_patterns
from node.definitions.rows import Row, permission_row, topic_permission_row
from node.log import admin as log_admin
from node.log.log import escape


async def set_permissions(admin: Admin, user: str, vhost: str, configure: str, write: str, read: str) -> bool:
    """Set a user's permissions in a vhost: three expressions; True: there were none. Raises: AdminError."""
    _check(admin, "set permissions for", user, vhost, configure, write, read)
    is_new = await admin.submit(SetPermission(vhost, user, configure, write, read))
    admin.logger.info(log_admin.permissions_set(user, vhost, configure, write, read))
    return is_new


async def clear_permissions(admin: Admin, user: str, vhost: str) -> bool:
    """Remove a user's permissions in a vhost; False: there were none. Raises: AdminError."""
    _check(admin, "clear permissions for", user, vhost)
    was_there = await admin.submit(ClearPermission(vhost, user))
    admin.logger.info(log_admin.permissions_cleared(user, vhost))
    return was_there


async def set_topic_permissions(
    admin: Admin, user: str, vhost: str, exchange: str, write: str, read: str
) -> bool:
    """Set the routing keys that a user may use with an exchange: two expressions; True: none were set. Raises:
    AdminError.
    """
    action = f"set topic permissions on exchange '{escape(exchange)}' for"
    _check(admin, action, user, vhost, write, read)
    is_new = await admin.submit(SetTopicPermission(vhost, user, exchange, write, read))
    admin.logger.info(log_admin.topic_permissions_set(user, vhost, exchange, write, read))
    return is_new


async def clear_topic_permissions(admin: Admin, user: str, vhost: str, exchange: str | None = None) -> bool:
    """Remove a user's topic permissions on one exchange, or on all; False: there were none. Raises: AdminError."""
    _check(admin, "clear topic permissions for", user, vhost)
    was_there = await admin.submit(ClearTopicPermission(vhost, user, exchange))
    admin.logger.info(log_admin.topic_permissions_cleared(user, vhost, exchange))
    return was_there


def list_permissions(admin: Admin, vhost: str) -> list[Row]:
    """Return the permissions of all users in a vhost. Raises: AdminError."""
    existing(admin, vhost)
    return [row for row in _permissions(admin) if row["vhost"] == vhost]


def list_user_permissions(admin: Admin, user: str) -> list[Row]:
    """Return the permissions of a user in all vhosts. Raises: AdminError."""
    existing_user(admin, user)
    return [row for row in _permissions(admin) if row["user"] == user]


def list_topic_permissions(admin: Admin, vhost: str) -> list[Row]:
    """Return the topic permissions of all users in a vhost. Raises: AdminError."""
    existing(admin, vhost)
    return [row for row in _topic_permissions(admin) if row["vhost"] == vhost]


def list_user_topic_permissions(admin: Admin, user: str) -> list[Row]:
    """Return the topic permissions of a user, by vhost and exchange. Raises: AdminError."""
    existing_user(admin, user)
    return [row for row in _topic_permissions(admin) if row["user"] == user]


def _permissions(admin: Admin) -> list[Row]:
    found = sorted(admin.catalogue.permissions(), key=lambda each: (each.vhost, each.user))
    return [permission_row(each) for each in found]


def _topic_permissions(admin: Admin) -> list[Row]:
    found = sorted(
        admin.catalogue.topic_permissions(), key=lambda each: (each.vhost, each.user, each.exchange)
    )
    return [topic_permission_row(each) for each in found]


def _check(admin: Admin, action: str, user: str, vhost: str, *patterns: str) -> None:
    """Check vhost, user and expressions. Raises: AdminError if one is missing or invalid.   action: for the log."""
    if admin.catalogue.vhost(vhost) is None:
        admin.logger.warning(log_admin.failed(action, user, log_admin.no_vhost(vhost)))
        raise AdminError("not_found", ["no_such_vhost", vhost])
    if admin.catalogue.user(user) is None:
        admin.logger.warning(log_admin.failed(action, user, log_admin.NO_USER))
        raise AdminError("not_found", ["no_such_user", user])
    for pattern in patterns:
        try:
            check_patterns([pattern])
        except DefinitionsInvalid as invalid:
            admin.logger.warning(log_admin.failed(action, user, log_admin.no_pattern(pattern)))
            raise AdminError("invalid", invalid.reason) from None
