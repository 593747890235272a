"""The protocol by which connections ask auth backends of plug-ins, and the user whom such a backend authorises.

A node that has no auth backend but its own catalogue has no authority: connections read the catalogue and wait for
nothing. `node.io.auth_backends` is the authority of a node that has others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from node.catalogue.access import LoginRefused
from node.catalogue.records import User
from node.extension.auth_backend import AuthExchange, AuthStart, Challenge, Login, Question


@dataclass(frozen=True, slots=True)
class BackendUser(User):
    """A user whom a backend of a plug-in authorises, whatever the catalogue says.   authoriser: the backend's name."""

    authoriser: str = ""


class Conversation(NamedTuple):
    """An authentication in several steps that has begun.

    authn, authz: the names of the backends that authenticate and authorise.
    """

    start: AuthStart
    authn: str
    authz: str
    exchange: AuthExchange


class Admitted(NamedTuple):
    """The end of such an authentication.   data: the last bytes for the client."""

    user: User
    data: bytes


class Authoriser(Protocol):
    """The auth backends of a node, as rights ask them. Each answer comes once, at once or later."""

    @property
    def answers_s(self) -> float:
        """The seconds for which an answer may be used again."""

    def ask(self, user: BackendUser, question: Question, on_done: Callable[[bool], None]) -> None:
        """Ask whether a user may do something. The answer is False if the backend cannot be asked."""


class Authority(Authoriser, Protocol):
    """The auth backends of a node, in their configured order. Each answer comes once, at once or later.

    No answer comes after the node has stopped.
    """

    def log_in(self, login: Login, on_done: Callable[[User | LoginRefused], None]) -> None:
        """Ask who a client is."""

    def offers(self, method: str) -> bool:
        """True if a backend offers a method of authentication in several steps."""

    def begin(self, start: AuthStart) -> Conversation | None:
        """Begin an authentication in several steps; None: no backend offers the method."""

    def go_on(
        self,
        conversation: Conversation,
        data: bytes,
        on_done: Callable[[Challenge | Admitted | LoginRefused], None],
    ) -> None:
        """Give the backend the client's next bytes."""
