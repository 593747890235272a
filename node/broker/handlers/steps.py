"""How a handler waits for the replicated log: by yielding a command and getting its result."""

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

from node.broker.commands import Command, Refused

Steps: TypeAlias = Generator[Command[Any], Any, None]

ResultT = TypeVar("ResultT")


def submit(command: Command[ResultT]) -> Generator[Command[Any], Any, ResultT]:
    """`result = yield from submit(command)`; raises ProtocolError if the command is refused."""
    result: ResultT | Refused = yield command
    if isinstance(result, Refused):
        raise result.error
    return result
