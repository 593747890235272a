"""The command line's operations that change metadata share this base: the running broker, arguments, refusals.

Each kind of object has a file of its own. RabbitMQ 3.10.8's tools word the same error in several ways; the text of each
command stands beside the command. Source: management §3.1; RabbitMQ 3.10.8's output.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from node.admin.admin import OPERATOR, Admin, AdminError
from node.catalogue.catalogue import Catalogue
from node.io.control import EX_DATAERR, EX_SOFTWARE, EX_UNAVAILABLE, ControlError

if TYPE_CHECKING:
    from node.app import Node
    from node.process.agent import Agent


class AdminOperations:
    """The base of the operations of one agent.   running: returns its broker; raises ControlError unless it runs."""

    def __init__(self, agent: "Agent", running: "Callable[[], Node]") -> None:
        self._agent = agent
        self._running = running

    @property
    def _admin(self) -> Admin:
        """The administration of the broker that runs. Raises: ControlError."""
        node = self._running()
        return Admin(node.broker, node.config, self._agent.logger, OPERATOR)

    @property
    def _catalogue(self) -> Catalogue:
        """The metadata of the broker that runs. Raises: ControlError."""
        return self._running().broker.catalogue


# --- refusals ---


@contextmanager
def as_control_error() -> Iterator[None]:
    """Turn an `AdminError` into the ControlError with the exit code that RabbitMQ's commands use for most refusals."""
    try:
        yield
    except AdminError as error:
        code = {"exists": EX_SOFTWARE, "refused": EX_DATAERR}.get(error.kind, EX_UNAVAILABLE)
        raise ControlError(code, error.text) from None
