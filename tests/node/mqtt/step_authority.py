"""An authority for tests: it authenticates ada in two steps by the method `TWICE`, at once or when a test says so."""

from collections.abc import Callable
from typing import Any

from node.catalogue.access import LoginRefused
from node.catalogue.records import User
from node.client.authority import Admitted, BackendUser, Conversation
from node.extension.auth_backend import AuthExchange, AuthStart, Challenge, Login, Question

METHOD = "TWICE"
ADA = BackendUser("ada", "", "", (), authoriser="steps")
EVE = BackendUser("eve", "", "", (), authoriser="steps")


class _Unused(AuthExchange):
    async def answer(self, data: bytes) -> None:
        raise AssertionError


class StepAuthority:
    """Answers `ada` and `eve` with the challenge `again`, and `again NAME` with that user; refuses all else.

    is_slow: answers wait for `release`.   started: the authentications that have begun.   challenges: how often `more`
    is answered with a challenge.
    """

    answers_s = 15.0

    def __init__(self, *, is_slow: bool = False) -> None:
        self.is_slow = is_slow
        self.started: list[AuthStart] = []
        self._held: list[Callable[[], None]] = []

    def offers(self, method: str) -> bool:
        return method == METHOD

    def begin(self, start: AuthStart) -> Conversation | None:
        self.started.append(start)
        return Conversation(start, "steps", "steps", _Unused())

    def go_on(
        self,
        conversation: Conversation,
        data: bytes,
        on_done: Callable[[Challenge | Admitted | LoginRefused], None],
    ) -> None:
        found: Challenge | Admitted | LoginRefused = LoginRefused("no")
        if data in (b"ada", b"eve", b"more"):
            found = Challenge(b"again")
        elif data in (b"again ada", b"again eve"):
            found = Admitted(ADA if data.endswith(b"ada") else EVE, b"welcome")
        if self.is_slow:
            self._held.append(lambda: on_done(found))
        else:
            on_done(found)

    def release(self) -> None:
        """Give the answer that has waited longest."""
        self._held.pop(0)()

    def log_in(self, login: Login, on_done: Callable[[User | LoginRefused], None]) -> None:
        on_done(LoginRefused("by steps only"))

    def ask(self, user: BackendUser, question: Question, on_done: Callable[[Any], None]) -> None:
        on_done(True)
