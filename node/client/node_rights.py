"""The rights of a node itself, which may do everything in a vhost: of connections that no user has asked for.

Source: RabbitMQ 3.10.8, `amqp_params_direct` without a user, and `rabbit_direct`.
"""

from collections.abc import Callable
from typing import Final, Literal

from node.catalogue.access import Operation
from node.catalogue.records import ResourceKind
from node.client.authority import BackendUser
from node.client.rights import Rights
from node.extension.auth_backend import Question
from node.override import override
from node.queue.live_queue import Asked
from node.scheduling.timers import Timers

NODE: Final = BackendUser("none", "", "", ("impersonator",))
"""The node as a user, named as RabbitMQ names it: it may publish messages with any `user-id`."""


class NodeRights(Rights):
    """The rights of the node itself in one vhost."""

    def __init__(self, vhost: str) -> None:
        super().__init__(_NoAuthority(), NODE, vhost, "")

    @override
    def start(self, timers: Timers, now: float, on_forget: Callable[[], None]) -> None:
        """Do nothing: there are no answers to forget."""

    @override
    def open_vhost(self, on_done: Callable[[bool], None]) -> None:
        on_done(True)

    @override
    def check_resource(self, kind: ResourceKind, name: str, operation: Operation) -> Asked[None]:
        return
        yield  # a generator that asks nothing

    @override
    def check_topic(
        self, exchange: str, routing_key: str, operation: Literal["write", "read"]
    ) -> Asked[None]:
        return
        yield  # a generator that asks nothing

    @override
    def unanswered(self, exchange: str, routing_key: str, *, is_topic: bool) -> Question | None:
        return None

    @override
    def require_exchange(self, exchange: str) -> None:
        """Allow it."""

    @override
    def require_topic(self, exchange: str, routing_key: str) -> None:
        """Allow it."""


class _NoAuthority:
    """An authority that is never asked, as `NodeRights` knows all answers."""

    @property
    def answers_s(self) -> float:
        """Return 0, as there are no answers."""
        return 0.0

    def ask(self, user: BackendUser, question: Question, on_done: Callable[[bool], None]) -> None:
        """Fail: nothing is to be asked."""
        raise AssertionError(question)
