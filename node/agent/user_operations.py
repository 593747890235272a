"""What the command line asks about users, limits and permissions. Source: management §3.2; RabbitMQ 3.10.8's output."""

from typing import TYPE_CHECKING, Any

from node.admin import permissions, users
from node.admin.admin import AdminError
from node.agent.admin_operations import (
    AdminOperations,
    Arguments,
    Operation,
    as_control_error,
    no_user,
    no_user_plain,
    no_user_term,
    parsed,
    text,
    text_or_none,
    texts,
)
from node.catalogue.patterns import PatternInvalid, compile_pattern
from node.definitions.users import limits_row
from node.io.control import EX_DATAERR, EX_SOFTWARE, EX_UNAVAILABLE, ControlError

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.app import Node
    from node.process.agent import Agent


class UserOperations(AdminOperations):
    """See `AdminOperations`."""

    def __init__(self, agent: "Agent", running: "Callable[[], Node]") -> None:
        super().__init__(agent, running)
        self.asking: dict[str, Operation] = {
            "add_user": self._add,
            "authenticate_user": self._authenticate,
            "change_password": self._change_password,
            "clear_password": self._clear_password,
            "clear_user_limits": self._clear_limits,
            "delete_user": self._delete,
            "list_user_limits": self._list_limits,
            "list_users": self._list,
            "set_user_limits": self._set_limits,
            "set_user_tags": self._set_tags,
            "clear_permissions": self._clear_permissions,
            "clear_topic_permissions": self._clear_topic_permissions,
            "list_permissions": self._list_permissions,
            "list_topic_permissions": self._list_topic_permissions,
            "list_user_permissions": self._list_user_permissions,
            "list_user_topic_permissions": self._list_user_topic_permissions,
            "set_permissions": self._set_permissions,
            "set_topic_permissions": self._set_topic_permissions,
        }

    # --- users ---

    async def _list(self, arguments: Arguments, timeout_s: float) -> Any:
        found = sorted(self._catalogue.users(), key=lambda each: each.name)
        return {"rows": [{"user": each.name, "tags": list(each.tags)} for each in found]}

    async def _add(self, arguments: Arguments, timeout_s: float) -> Any:
        name, password = text(arguments, "user"), text(arguments, "password")
        if self._catalogue.user(name) is not None:
            raise ControlError(EX_SOFTWARE, f'User "{name}" already exists')
        with as_control_error():
            await users.add_user(self._admin, name, password)
        return {}

    async def _delete(self, arguments: Arguments, timeout_s: float) -> Any:
        user = self._user(arguments, no_user)
        with as_control_error():
            await users.delete_user(self._admin, user.name)
        return {}

    async def _change_password(self, arguments: Arguments, timeout_s: float) -> Any:
        user = self._user(arguments, no_user)
        with as_control_error():
            await users.change_password(self._admin, user.name, text(arguments, "password"))
        return {}

    async def _clear_password(self, arguments: Arguments, timeout_s: float) -> Any:
        user = self._user(arguments, no_user_term)
        with as_control_error():
            await users.clear_password(self._admin, user.name)
        return {}

    async def _set_tags(self, arguments: Arguments, timeout_s: float) -> Any:
        user = self._user(arguments, no_user)
        with as_control_error():
            await users.set_tags(self._admin, user.name, texts(arguments, "tags"))
        return {}

    async def _authenticate(self, arguments: Arguments, timeout_s: float) -> Any:
        name = text(arguments, "user")
        try:
            await users.authenticate(self._admin, name, text(arguments, "password"))
        except AdminError:
            said = (
                f"Error:\nError: failed to authenticate user \"{name}\"\nuser '{name}' - invalid credentials"
            )
            raise ControlError(EX_DATAERR, said) from None
        return {}

    # --- limits ---

    async def _list_limits(self, arguments: Arguments, timeout_s: float) -> Any:
        if text_or_none(arguments, "user") is not None:
            meant = [self._user(arguments, no_user_term)]
        else:
            meant = sorted(self._catalogue.users(), key=lambda each: each.name)
        rows = [(user.name, limits_row(user.limits)) for user in meant]
        is_one = len(meant) == 1 and arguments.get("user") is not None
        return {"rows": [{"name": name, "limits": limits} for name, limits in rows if limits or is_one]}

    async def _set_limits(self, arguments: Arguments, timeout_s: float) -> Any:
        limits = parsed(text(arguments, "limits"))
        user = self._user(arguments, no_user_term)
        with as_control_error():
            await users.set_limits(self._admin, user.name, limits)
        return {}

    async def _clear_limits(self, arguments: Arguments, timeout_s: float) -> Any:
        user = self._user(arguments, no_user_term)
        with as_control_error():
            await users.clear_limits(self._admin, user.name, text(arguments, "limit"))
        return {}

    # --- permissions ---

    def _place(self, arguments: Arguments) -> tuple[str, str]:
        """User and vhost. Raises: ControlError as the commands that change permissions do."""
        vhost = text(arguments, "vhost")
        if self._catalogue.vhost(vhost) is None:
            raise ControlError(EX_UNAVAILABLE, f"Virtual host {vhost} does not exist")
        return self._user(arguments, no_user_plain).name, vhost

    async def _set_permissions(self, arguments: Arguments, timeout_s: float) -> Any:
        user, vhost = self._place(arguments)
        patterns = [text(arguments, name) for name in ("configure", "write", "read")]
        _check_patterns(patterns, "'")
        with as_control_error():
            await permissions.set_permissions(self._admin, user, vhost, *patterns)
        return {}

    async def _clear_permissions(self, arguments: Arguments, timeout_s: float) -> Any:
        user, vhost = self._place(arguments)
        with as_control_error():
            await permissions.clear_permissions(self._admin, user, vhost)
        return {}

    async def _set_topic_permissions(self, arguments: Arguments, timeout_s: float) -> Any:
        user, vhost = self._place(arguments)
        patterns = [text(arguments, name) for name in ("write", "read")]
        _check_patterns(patterns, '"')
        with as_control_error():
            await permissions.set_topic_permissions(
                self._admin, user, vhost, text(arguments, "exchange"), *patterns
            )
        return {}

    async def _clear_topic_permissions(self, arguments: Arguments, timeout_s: float) -> Any:
        user, vhost = self._place(arguments)
        with as_control_error():
            await permissions.clear_topic_permissions(
                self._admin, user, vhost, text_or_none(arguments, "exchange")
            )
        return {}

    async def _list_permissions(self, arguments: Arguments, timeout_s: float) -> Any:
        vhost = self._vhost(arguments)
        return {"rows": [each for each in self._permissions() if each["vhost"] == vhost]}

    async def _list_user_permissions(self, arguments: Arguments, timeout_s: float) -> Any:
        user = self._user(arguments, no_user_term).name
        return {"rows": [each for each in self._permissions() if each["user"] == user]}

    def _permissions(self) -> list[dict[str, str]]:
        found = sorted(self._catalogue.permissions(), key=lambda each: (each.vhost, each.user))
        return [
            {
                "vhost": each.vhost,
                "user": each.user,
                "configure": each.configure,
                "write": each.write,
                "read": each.read,
            }
            for each in found
        ]

    async def _list_topic_permissions(self, arguments: Arguments, timeout_s: float) -> Any:
        vhost = self._vhost(arguments)
        return {"rows": [each for each in self._topic_permissions() if each["vhost"] == vhost]}

    async def _list_user_topic_permissions(self, arguments: Arguments, timeout_s: float) -> Any:
        user = self._user(arguments, no_user_term).name
        return {"rows": [each for each in self._topic_permissions() if each["user"] == user]}

    def _topic_permissions(self) -> list[dict[str, str]]:
        found = sorted(
            self._catalogue.topic_permissions(), key=lambda each: (each.vhost, each.user, each.exchange)
        )
        return [
            {
                "vhost": each.vhost,
                "user": each.user,
                "exchange": each.exchange,
                "write": each.write,
                "read": each.read,
            }
            for each in found
        ]


def _check_patterns(patterns: list[str], quote: str) -> None:
    """Raises: ControlError for what is no regular expression, with the term that RabbitMQ shows then."""
    for pattern in patterns:
        try:
            compile_pattern(pattern)
        except PatternInvalid as invalid:
            term = f"{{:invalid_regexp, {quote}{pattern}{quote}, {{'{invalid.reason}', {invalid.position}}}}}"
            raise ControlError(EX_UNAVAILABLE, term) from None
