"""What the operations of the command line that change metadata have in common: the running broker, arguments, refusals.

Each kind of thing is in a file of its own. RabbitMQ 3.10.8's tools say the same thing in several ways; which command
says it how stands beside the command. Source: management §3.1; RabbitMQ 3.10.8's output.
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from node.admin.admin import OPERATOR, Admin, AdminError
from node.agent import errors
from node.catalogue.catalogue import Catalogue
from node.catalogue.records import Json, User
from node.io.control import EX_DATAERR, EX_SOFTWARE, EX_UNAVAILABLE, EX_USAGE, ControlError

if TYPE_CHECKING:
    from node.app import Node
    from node.process.agent import Agent

Arguments = dict[str, Any]
Operation = Callable[[Arguments, float], Awaitable[Any]]
Refusal = Callable[[str], ControlError]
"""Gets the name of what is not there."""

EX_NOUSER: Final = 67


class AdminOperations:
    """Of one agent.   running: gives its broker. Raises ControlError unless it runs."""

    def __init__(self, agent: "Agent", running: "Callable[[], Node]") -> None:
        self._agent = agent
        self._running = running

    @property
    def _admin(self) -> Admin:
        """Raises: ControlError."""
        node = self._running()
        return Admin(node.broker, node.config, self._agent.logger, OPERATOR)

    @property
    def _catalogue(self) -> Catalogue:
        """Raises: ControlError."""
        return self._running().broker.catalogue

    def _vhost(self, arguments: Arguments) -> str:
        """The vhost that is meant. Raises: ControlError as most commands do when there is none of that name."""
        name = text(arguments, "vhost")
        if self._catalogue.vhost(name) is None:
            raise errors.no_vhost(name)
        return name

    def _user(self, arguments: Arguments, refusal: Refusal) -> User:
        """The user who is meant. Raises: ControlError."""
        name = text(arguments, "user")
        user = self._catalogue.user(name)
        if user is None:
            raise refusal(name)
        return user


# --- arguments ---


def text(arguments: Arguments, name: str) -> str:
    """Raises: ControlError."""
    value = arguments.get(name)
    if not isinstance(value, str):
        raise ControlError(EX_USAGE, f"the argument '{name}' is missing or no text")
    return value


def texts(arguments: Arguments, name: str) -> list[str]:
    """A list of texts; empty if there is none. Raises: ControlError."""
    value = arguments.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ControlError(EX_USAGE, f"the argument '{name}' is no list of texts")
    return value


def text_or_none(arguments: Arguments, name: str) -> str | None:
    """Raises: ControlError."""
    return None if arguments.get(name) is None else text(arguments, name)


def number(arguments: Arguments, name: str, default: int) -> int:
    """Raises: ControlError unless it is 0 or more."""
    value = arguments.get(name, default)
    if type(value) is not int or value < 0:
        raise ControlError(EX_USAGE, f"the argument '{name}' is no number")
    return value


def parsed(value: str) -> Json:
    """JSON that somebody typed. Raises: ControlError."""

    def refuse(constant: str) -> Json:
        raise ValueError(f"{constant} is no JSON")

    try:
        found: Json = json.loads(value, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise errors.unavailable(errors.NO_JSON) from None
    return found


# --- refusals ---


@contextmanager
def as_control_error() -> Iterator[None]:
    """Have what `node.admin` refuses end a command as RabbitMQ ends most."""
    try:
        yield
    except AdminError as error:
        code = {"exists": EX_SOFTWARE, "refused": EX_DATAERR}.get(error.kind, EX_UNAVAILABLE)
        raise ControlError(code, error.text) from None


def no_user(name: str) -> ControlError:
    """For changes of a user."""
    return ControlError(EX_NOUSER, f'User "{name}" does not exist')


def no_user_plain(name: str) -> ControlError:
    """For permissions."""
    return ControlError(EX_NOUSER, f"User {name} does not exist")


def no_user_term(name: str) -> ControlError:
    """Where RabbitMQ shows an Erlang term."""
    return ControlError(EX_UNAVAILABLE, f'{{:no_such_user, "{name}"}}')
