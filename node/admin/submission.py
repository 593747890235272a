"""Commands for the replicated log, awaited."""

import asyncio
from typing import Any, TypeVar

from node.catalogue.commands import Command, Refused
from node.catalogue.replicated_log import ReplicatedLog

ResultT = TypeVar("ResultT")


async def submit(log: ReplicatedLog, command: Command[ResultT]) -> ResultT | Refused:
    """Have a command applied, and return its result."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def on_applied(result: object) -> None:
        if not answer.done():
            answer.set_result(result)

    log.submit(command, on_applied)
    found: ResultT | Refused = await answer
    return found
