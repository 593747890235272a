"""How a handler waits: by yielding a command for the replicated log, or something else that calls back, and
getting the result.
"""

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
    """`result = yield from submit(command)`; raises ProtocolError if the command is refused."""
    result: ResultT | Refused = yield command
    if isinstance(result, Refused):
        raise result.error
    return result


def assert_durable(channel: "Channel") -> Generator[Command[Any] | Wait, Any, None]:
    """Before a client is told that something is there already, or gone: what made it so may be on its way to disk."""
    if not (yield channel.broker.log.await_safety):
        raise NOT_WRITTEN.error
