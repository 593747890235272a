"""The tasks of a load: those that publish and those that take, and their end in that order."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.kit.patience import patience


class Crew:
    """Tasks that go on until they are told to end.

    is_stopping: for publishers.   are_consumers_stopping: for the others.
    """

    is_stopping = False
    are_consumers_stopping = False

    def __init__(self) -> None:
        self._producing: list[asyncio.Task[None]] = []
        self._consuming: list[asyncio.Task[None]] = []

    def produce(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin a task that publishes."""
        self._producing.append(asyncio.create_task(work))

    def consume(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin a task that takes, or looks on."""
        self._consuming.append(asyncio.create_task(work))

    async def end(self, limit_s: float, stuck: Callable[[str], None]) -> None:
        """End all: publishers first, when they have all outcomes; the nodes are up. Raises: what a task has raised.

        limit_s: for either kind.   stuck: is told of each task that does not end in time, which is cancelled.
        """
        self.is_stopping = True
        await self._join(self._producing, limit_s, stuck)
        self.are_consumers_stopping = True
        await self._join(self._consuming, limit_s, stuck)

    async def _join(
        self, tasks: list[asyncio.Task[None]], limit_s: float, stuck: Callable[[str], None]
    ) -> None:
        limit_s *= patience()
        _, late = await asyncio.wait(tasks, timeout=limit_s)
        for task in late:
            stuck(f"{task.get_coro()} does not end within {limit_s:.0f} s")
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome
