"""Operators' changes of users, vhosts, permissions, policies, limits and definitions have these log messages.

The rules are those of `node.log.phrases`, which has the messages of the first boot, too: RabbitMQ's words, all names
escaped, no secret. Source: management §6.3, the log of RabbitMQ 3.10.8.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from node.log.log import escape
from node.log.phrases import (
    permissions_set,
    policy_set,
    user_created,
    user_deleted,
    user_tags_set,
    vhost_deleted,
)

__all__ = [
    "permissions_set",
    "policy_set",
    "user_created",
    "user_deleted",
    "user_tags_set",
    "vhost_deleted",
]


def _names(names: Sequence[str]) -> str:
    return f"[{','.join(map(escape, names))}]"


def failed(action: str, user: str, reason: str) -> str:
    """Return a line about a refused change of a user. warning, default. `reason`: one of those below.

    `action`: such as "set permissions for".
    """
    return f"Failed to {action} '{escape(user)}': {reason}"


USER_EXISTS: Final = "the user already exists"
NO_USER: Final = "the user does not exist"


def no_vhost(vhost: str) -> str:
    """Return the reason for `failed` that a vhost does not exist."""
    return f"virtual host '{escape(vhost)}' does not exist"


def no_pattern(pattern: str) -> str:
    """Return the reason for `failed` that an expression of a permission is invalid."""
    return f"regular expression '{escape(pattern)}' is invalid"


# ---- users ----


def password_changed(user: str) -> str:
    """Return a line. info, default."""
    return f"Successfully changed password for user '{escape(user)}'"


def password_cleared(user: str) -> str:
    """Return a line. info, default."""
    return f"Clearing password for '{escape(user)}'"


def user_limits_set(user: str, limits: Mapping[str, object]) -> str:
    """Return a line. info, default."""
    return f"Set limits of user '{escape(user)}' to {escape(json.dumps(limits))}"


def user_limits_cleared(user: str, limit: str) -> str:
    """Return a line. info, default. `limit`: its name, or all."""
    return f"Cleared limit '{escape(limit)}' of user '{escape(user)}'"


# ---- vhosts ----


def vhost_added(vhost: str, description: str, tags: Sequence[str]) -> str:
    """Return a line. info, default."""
    return f"Adding vhost '{escape(vhost)}' (description: '{escape(description)}', tags: {_names(tags)})"


def vhost_tags_set(vhost: str, tags: Sequence[str]) -> str:
    """Return a line. info, default."""
    return f"Successfully set tags for virtual host '{escape(vhost)}' to {_names(tags)}"


def tracing_enabled(vhost: str) -> str:
    """Return a line. info, default."""
    return f"Enabling tracing for vhost '{escape(vhost)}'"


def tracing_is_enabled(vhost: str) -> str:
    """Return a line about tracing that was enabled once more. info, default."""
    return f"Tracing is already enabled for vhost '{escape(vhost)}'"


def tracing_disabled(vhost: str) -> str:
    """Return a line. info, default."""
    return f"Disabling tracing for vhost '{escape(vhost)}'"


# ---- permissions ----


def permissions_cleared(user: str, vhost: str) -> str:
    """Return a line. info, default."""
    return f"Successfully cleared permissions for '{escape(user)}' in virtual host '{escape(vhost)}'"


def topic_permissions_set(user: str, vhost: str, exchange: str, write: str, read: str) -> str:
    """Return a line. info, default."""
    return (
        f"Successfully set topic permissions on exchange '{escape(exchange)}' for '{escape(user)}' "
        f"in virtual host '{escape(vhost)}' to '{escape(write)}', '{escape(read)}'"
    )


def topic_permissions_cleared(user: str, vhost: str, exchange: str | None) -> str:
    """Return a line. info, default. Without an exchange the permissions of all were cleared."""
    where = "" if exchange is None else f" on exchange '{escape(exchange)}'"
    return f"Successfully cleared topic permissions{where} for '{escape(user)}' in virtual host '{escape(vhost)}'"


# ---- policies, parameters, limits ----


def policy_cleared(name: str, vhost: str, *, is_operator: bool) -> str:
    """Return a line. info, default."""
    kind = "operator policy" if is_operator else "policy"
    return f"Cleared {kind} '{escape(name)}' in virtual host '{escape(vhost)}'"


def parameter_set(component: str, name: str, vhost: str) -> str:
    """Return a line. info, default. The value is left out, as it may be a secret."""
    return (
        f"Set parameter '{escape(name)}' of component '{escape(component)}' in virtual host '{escape(vhost)}'"
    )


def parameter_cleared(component: str, name: str, vhost: str) -> str:
    """Return a line. info, default."""
    return (
        f"Cleared parameter '{escape(name)}' of component '{escape(component)}' "
        f"in virtual host '{escape(vhost)}'"
    )


def global_parameter_set(name: str) -> str:
    """Return a line. info, default."""
    return f"Set global parameter '{escape(name)}'"


def global_parameter_cleared(name: str) -> str:
    """Return a line. info, default."""
    return f"Cleared global parameter '{escape(name)}'"


def vhost_limits_set(vhost: str, limits: Mapping[str, object]) -> str:
    """Return a line. info, default."""
    return f"Set limits of virtual host '{escape(vhost)}' to {escape(json.dumps(limits))}"


# ---- definitions ----


def importing(by: str, vhost: str | None = None) -> str:
    """Return a line. info, default. Without a vhost everything is imported."""
    if vhost is None:
        return f"Asked to import definitions. Acting user: {escape(by)}"
    return (
        f"Asked to import definitions for a virtual host. Virtual host: '{escape(vhost)}', "
        f"acting user: '{escape(by)}'"
    )


def importing_items(count: int, noun: str) -> str:
    """Return a line. info, default. `noun`: users, vhosts …"""
    how = "sequentially" if noun in _ONE_BY_ONE else "concurrently"
    return f"Importing {how} {count} {noun}..."


_ONE_BY_ONE: Final = ("policies", "runtime parameters", "global runtime parameters")


def import_unsupported(what: str, by: str) -> str:
    """Return a line about an object that this broker does not have. warning, default."""
    return f"Skipping the import of unsupported definitions: {escape(what)}, acting user: {escape(by)}"


def import_skipped(noun: str, name: str, by: str) -> str:
    """Return a line. warning, default. `noun`: queue or exchange."""
    if not name:
        return f"Not importing the default exchange, acting user: {escape(by)}"
    article = "an" if noun == "exchange" else "a"
    return (
        f"Skipping import of {article} {noun} whose name begins with 'amq.', "
        f"name: {escape(name)}, acting user: {escape(by)}"
    )


def binding_skipped(reason: str) -> str:
    """Return a line about a binding with an end that does not exist. warning, default."""
    return f"Skipping import of a binding: {escape(reason)}"


def applying_directory(path: str) -> str:
    """Return a line for the start. info, default."""
    return f"Applying definitions from directory {escape(path)}"


def applying_file(path: str) -> str:
    """Return a line for the start. info, default."""
    return f"Applying definitions from file at '{escape(path)}'"


def definitions_unchanged() -> str:
    """Return a line for a start with the definitions that were imported last. info, default."""
    return "Skipping definitions import: they have not changed since the last import"
