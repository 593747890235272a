"""Users and their permissions: the part of the catalogue about access rights.

Each change appends what it did to the catalogue's events.

Source: amqp-behaviour §6.6-§6.8; rabbit_auth_backend_internal.erl v3.10 (invalid expressions are refused when
set).
"""

from dataclasses import replace
from typing import Any

from node.amqp.constants import ReplyCode
from node.catalogue.commands import (
    ChangePassword,
    ClearPermission,
    ClearTopicPermission,
    DeleteUser,
    PutUser,
    Refused,
    SetPermission,
    SetTopicPermission,
    SetUserLimits,
    SetUserTags,
)
from node.catalogue.events import (
    Event,
    PermissionsChanged,
    TopicPermissionsChanged,
    UserDeleted,
    UserPut,
)
from node.catalogue.patterns import PatternInvalid, compile_pattern
from node.catalogue.records import Permission, TopicPermission, User, UserLimits


class Accounts:
    """The users and permissions of the catalogue, with the handlers of the commands that change them.

    events: the catalogue's list of events, to which each change is appended.
    """

    def __init__(self, events: list[Event]) -> None:
        self.users: dict[str, User] = {}
        self.permissions: dict[tuple[str, str], Permission] = {}
        """Permission rows by vhost and user."""
        self.topic_permissions: dict[tuple[str, str, str], TopicPermission] = {}
        """Topic permission rows by vhost, user and exchange."""
        self._events = events

    def put_user(self, command: PutUser) -> bool:
        """Create the user or replace its password, tags and, if given, limits; return True if the user is new."""
        existing = self.users.get(command.name)
        limits = command.limits or (existing.limits if existing else UserLimits())
        self._store(
            User(command.name, command.password_hash, command.hashing_algorithm, command.tags, limits)
        )
        return existing is None

    def change_password(self, command: ChangePassword) -> Refused | None:
        """Replace the user's password hash. Refused (404) when there is no such user."""
        return self._change(
            command.name, password_hash=command.password_hash, hashing_algorithm=command.hashing_algorithm
        )

    def set_tags(self, command: SetUserTags) -> Refused | None:
        """Replace the user's tags. Refused (404) when there is no such user."""
        return self._change(command.name, tags=command.tags)

    def set_limits(self, command: SetUserLimits) -> Refused | None:
        """Replace the user's limits. Refused (404) when there is no such user."""
        return self._change(command.name, limits=command.limits)

    def delete_user(self, command: DeleteUser) -> bool:
        """Delete the user and its permission rows; return False when there is no such user."""
        if command.name not in self.users:
            return False
        self._drop_permissions(user=command.name)
        del self.users[command.name]
        self._events.append(UserDeleted(command.name))
        return True

    def set_permission(self, command: SetPermission) -> bool | Refused:
        """Store the user's row for the vhost, which exists; return True if the row is new.

        Refused (404) for an unknown user, (406) for an invalid expression.
        """
        refused = self._check(command.user, command.configure, command.write, command.read)
        if refused is not None:
            return refused
        key = (command.vhost, command.user)
        is_new = key not in self.permissions
        permission = Permission(*key, command.configure, command.write, command.read)
        self.permissions[key] = permission
        self._events.append(PermissionsChanged(*key, permission))
        return is_new

    def clear_permission(self, command: ClearPermission) -> bool:
        """Remove the user's row for the vhost; return False when there is none."""
        key = (command.vhost, command.user)
        if self.permissions.pop(key, None) is None:
            return False
        self._events.append(PermissionsChanged(*key, None))
        return True

    def set_topic_permission(self, command: SetTopicPermission) -> bool | Refused:
        """Store the user's row for the exchange in the vhost, which exists; return True if the row is new.

        Refused (404) for an unknown user, (406) for an invalid expression.
        """
        refused = self._check(command.user, command.write, command.read)
        if refused is not None:
            return refused
        key = (command.vhost, command.user, command.exchange)
        is_new = key not in self.topic_permissions
        permission = TopicPermission(*key, command.write, command.read)
        self.topic_permissions[key] = permission
        self._events.append(TopicPermissionsChanged(*key, permission))
        return is_new

    def clear_topic_permission(self, command: ClearTopicPermission) -> bool:
        """Remove the user's row for the exchange, or with None all its rows in the vhost; return True if any was."""
        keys = [
            key
            for key in self.topic_permissions
            if key[:2] == (command.vhost, command.user) and command.exchange in (None, key[2])
        ]
        for key in keys:
            self._drop_topic_permission(key)
        return bool(keys)

    def forget_vhost(self, vhost: str) -> None:
        """Remove all rows for a vhost that is being deleted."""
        self._drop_permissions(vhost=vhost)

    def _change(self, name: str, **fields: Any) -> Refused | None:
        user = self.users.get(name)
        if user is None:
            return _no_such_user(name)
        self._store(replace(user, **fields))
        return None

    def _store(self, user: User) -> None:
        self.users[user.name] = user
        self._events.append(UserPut(user))

    def _check(self, user: str, *patterns: str) -> Refused | None:
        if user not in self.users:
            return _no_such_user(user)
        for pattern in patterns:
            try:
                compile_pattern(pattern)
            except PatternInvalid as invalid:
                text = f"invalid regular expression '{pattern}': {invalid.reason} at {invalid.position}"
                return Refused(ReplyCode.PRECONDITION_FAILED, text)
        return None

    def _drop_permissions(self, *, vhost: str | None = None, user: str | None = None) -> None:
        """Remove all permission and topic permission rows of a vhost or of a user."""
        for key in [key for key in self.permissions if vhost in (None, key[0]) and user in (None, key[1])]:
            del self.permissions[key]
            self._events.append(PermissionsChanged(*key, None))
        for topic_key in [
            key for key in self.topic_permissions if vhost in (None, key[0]) and user in (None, key[1])
        ]:
            self._drop_topic_permission(topic_key)

    def _drop_topic_permission(self, key: tuple[str, str, str]) -> None:
        del self.topic_permissions[key]
        self._events.append(TopicPermissionsChanged(*key, None))


def _no_such_user(name: str) -> Refused:
    return Refused(ReplyCode.NOT_FOUND, f"no user '{name}'")
