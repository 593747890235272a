"""Waiting in a handler: it yields a command for the replicated log, or another call, and gets the result."""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from node.amqp.methods import Method
from node.catalogue.commands import Command, Refused
from node.catalogue.replicated_log import NOT_WRITTEN
from node.queue.live_queue import Asked, Wait

if TYPE_CHECKING:
    from node.client.channel import Channel

Steps: TypeAlias = Asked[None]

Handler: TypeAlias = "Callable[[Channel, Any], Steps | None]"
Handlers: TypeAlias = dict[type[Method], Handler]

ResultT = TypeVar("ResultT")


def submit(command: Command[ResultT]) -> Generator[Command[Any], Any, ResultT]:
    """Submit a command in a handler: `result = yield from submit(command)`; raises ProtocolError if it is refused."""
    result: ResultT | Refused = yield command
    if isinstance(result, Refused):
        raise result.error
    return result


def assert_durable(channel: "Channel") -> Generator[Command[Any] | Wait, Any, None]:
    """Wait until all applied commands are safe, before a client is told that something exists already, or is gone.

    Raises ProtocolError 541 if they never will be.
    """
    if not (yield channel.broker.log.await_safety):
        raise NOT_WRITTEN.error
