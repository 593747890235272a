"""How a handler waits for the replicated log: by yielding a command and getting its result."""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from node.amqp.methods import Method
from node.broker.commands import Command, Refused

if TYPE_CHECKING:
    from node.broker.channel import Channel

Steps: TypeAlias = Generator[Command[Any], Any, None]

Handler: TypeAlias = "Callable[[Channel, Any], Steps | None]"
Handlers: TypeAlias = dict[type[Method], Handler]

ResultT = TypeVar("ResultT")


def submit(command: Command[ResultT]) -> Generator[Command[Any], Any, ResultT]:
    """`result = yield from submit(command)`; raises ProtocolError if the command is refused."""
    result: ResultT | Refused = yield command
    if isinstance(result, Refused):
        raise result.error
    return result
