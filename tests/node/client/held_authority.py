"""An authority whose answers come when a test gives them."""

from collections.abc import Callable
from typing import Any

from node.catalogue.access import LoginRefused
from node.catalogue.records import User
from node.client.authority import BackendUser
from node.extension.auth_backend import Login, Question

USER = BackendUser("ada", "", "", ("monitoring",), authoriser="held")


class HeldAuthority:
    """Keeps all questions.   asked: those without an answer, in their order.   answers_s: as `Authority`."""

    answers_s = 15.0

    def __init__(self) -> None:
        self.asked: list[Login | Question] = []
        self.remembers = False
        """True if all further questions are answered at once, by yes."""
        self._waiting: list[Callable[[Any], None]] = []

    def log_in(self, login: Login, on_done: Callable[[User | LoginRefused], None]) -> None:
        self.asked.append(login)
        self._waiting.append(on_done)

    def ask(self, user: BackendUser, question: Question, on_done: Callable[[bool], None]) -> None:
        assert user == USER
        if self.remembers:
            on_done(True)
            return
        self.asked.append(question)
        self._waiting.append(on_done)

    def answer(self, answer: User | LoginRefused | bool) -> Login | Question:
        """Answer the question that has waited longest, and return it."""
        self._waiting.pop(0)(answer)
        return self.asked.pop(0)
