"""The rights of a user whom an auth backend of a plug-in authorises, on one connection.

Handlers of methods wait for each answer. A publish waits only for the first one: the answers that publishes need are
kept here for the time that the authority allows, as a route is looked up without waiting.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Literal

from node.amqp.errors import ProtocolError
from node.catalogue.access import Operation, resource_refused, shown_name, topic_refused, vhost_refused
from node.catalogue.records import ResourceKind
from node.client.authority import Authoriser, BackendUser
from node.extension.auth_backend import Question, ResourceAccess, TopicAccess, VhostAccess
from node.queue.live_queue import Asked
from node.scheduling.timers import Timer, Timers

ANSWERS_MAX: Final = 1024
"""The most answers that a connection keeps for its publishes; with more it starts over, and asks again."""


def _nothing() -> None:
    """Do nothing: there is no connection."""


class Rights:
    """The rights of one user in one vhost.   host: the client's IP address."""

    def __init__(self, authority: Authoriser, user: BackendUser, vhost: str, host: str) -> None:
        self._authority = authority
        self._user = user
        self._vhost = vhost
        self._host = host
        self._answers: dict[Question, bool] = {}
        self._timers: Timers | None = None
        self._timer: Timer | None = None
        self._on_forget: Callable[[], None] = _nothing

    def start(self, timers: Timers, now: float, on_forget: Callable[[], None]) -> None:
        """Forget what publishes were answered each time that the answers have served their time, and tell of it."""
        self._on_forget = on_forget
        self._timers = timers
        self._timer = timers.at(now + self._authority.answers_s, self._forget)

    def _forget(self, now: float) -> None:
        assert self._timers is not None
        self._answers.clear()
        self._on_forget()
        self._timer = self._timers.at(now + self._authority.answers_s, self._forget)

    def stop(self) -> None:
        """Forget nothing more: the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._on_forget = _nothing

    # --- waiting ---

    def open_vhost(self, on_done: Callable[[bool], None]) -> None:
        """Ask whether the user may open the vhost."""
        question = VhostAccess(self._user.name, self._user.tags, self._vhost, self._host)
        self._authority.ask(self._user, question, on_done)

    def vhost_refusal(self) -> ProtocolError:
        """Return the error for a user who may not open the vhost."""
        return vhost_refused(self._user.name, self._vhost)

    def check_resource(self, kind: ResourceKind, name: str, operation: Operation) -> Asked[None]:
        """Ask whether the user may do that, and wait. Raises: ProtocolError 403."""
        question = self._resource(kind, name, operation)
        if not (yield partial(self._authority.ask, self._user, question)):
            raise resource_refused(self._user.name, self._vhost, kind, name)

    def check_topic(
        self, exchange: str, routing_key: str, operation: Literal["write", "read"]
    ) -> Asked[None]:
        """Ask whether the user may use a key on a topic exchange, and wait. Raises: ProtocolError 403."""
        question = self._topic(exchange, routing_key, operation)
        if not (yield partial(self._authority.ask, self._user, question)):
            raise topic_refused(self._user.name, self._vhost, exchange, routing_key)

    # --- publishing ---

    def unanswered(self, exchange: str, routing_key: str, *, is_topic: bool) -> Question | None:
        """Return what has to be asked before a publish can be checked; None: everything is known."""
        questions: list[Question] = [self._resource("exchange", exchange, "write")]
        if is_topic:
            questions.append(self._topic(exchange, routing_key, "write"))
        return next((each for each in questions if each not in self._answers), None)

    def ask(self, question: Question, on_done: Callable[[bool], None]) -> None:
        """Ask a question, and keep the answer for publishes."""
        self._authority.ask(self._user, question, partial(self._keep, question, on_done))

    def _keep(self, question: Question, on_done: Callable[[bool], None], is_allowed: bool) -> None:
        if len(self._answers) >= ANSWERS_MAX:
            self._answers.clear()
        self._answers[question] = is_allowed
        on_done(is_allowed)

    def require_exchange(self, exchange: str) -> None:
        """Check a publish by an answer that was asked for. Raises: ProtocolError 403."""
        if not self._answers[self._resource("exchange", exchange, "write")]:
            raise resource_refused(self._user.name, self._vhost, "exchange", exchange)

    def require_topic(self, exchange: str, routing_key: str) -> None:
        """Check the key of a publish by an answer that was asked for. Raises: ProtocolError 403."""
        if not self._answers[self._topic(exchange, routing_key, "write")]:
            raise topic_refused(self._user.name, self._vhost, exchange, routing_key)

    # --- questions ---

    def _resource(self, kind: ResourceKind, name: str, operation: Operation) -> ResourceAccess:
        shown = shown_name(kind, name)
        return ResourceAccess(self._user.name, self._user.tags, self._vhost, kind, shown, operation)

    def _topic(self, exchange: str, routing_key: str, operation: Literal["write", "read"]) -> TopicAccess:
        return TopicAccess(self._user.name, self._user.tags, self._vhost, exchange, operation, routing_key)
