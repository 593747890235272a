"""The supervisor runs or stops the process's broker, as operators and the cluster want it.

    operator: start_app, stop_app ─► is_wanted ─┐
    cluster: pause, resume          ─► is_held ─┼─► runs, or does not          one change at a time
    cluster: a snapshot, a rejoin   ─► restart ─┘

An operator's request is done when the call returns; the cluster's requests are done soon, by a task.
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from node.app import Node
from node.clustering.errors import GivenUp
from node.config.file import ConfigError

RETRY_S: Final = 5.0
"""The delay after a failed start that no operator waited for, before the next one."""


class Supervisor:
    """Starts and stops brokers, one at a time.

    begin: starts a broker, which may wait for the cluster; it ends early, by `GivenUp`, once `is_giving_up` is set.
    Returns None if the cluster demanded another broker before this one could serve. Raises OSError, ConfigError.
    end: stops a broker. Returns: whether all of its data are on disk.
    on_fault: called when a start or stop that no caller waits for has failed by a fault of ours, or when a broker has
    ended whose disk could not write all: the process has to end.
    on_changed: called when a broker runs or has stopped, and when it is held or released.
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[Node | None]],
        end: Callable[[Node], Awaitable[bool]],
        logger: "logging.Logger | logging.LoggerAdapter[logging.Logger]",
        on_fault: Callable[[], None] = lambda: None,
        on_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._begin = begin
        self._end = end
        self._logger = logger
        self._on_fault = on_fault
        self._on_changed = on_changed
        self.node: Node | None = None
        """The broker that runs."""
        self.is_wanted = False
        self.is_held = False
        self.is_booting = False
        self.is_giving_up = asyncio.Event()
        self.is_written = True
        """True if all data of the last broker are on disk."""
        self._is_stale = False
        self._changing = asyncio.Lock()
        self._started = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """True if the broker that runs, or is stopping, will not be continued."""
        return self._is_stale

    async def start(self) -> None:
        """Start the broker; return once it runs, or once the cluster holds it.

        Raises: OSError, ConfigError, GivenUp.
        """
        self.is_wanted = True
        try:
            await self._settle()
        except (OSError, ConfigError):
            self.is_wanted = False
            raise

    async def stop(self) -> bool:
        """Stop the broker, or cancel a start. Returns True if all data are on disk."""
        self.is_wanted = False
        self.is_giving_up.set()
        await self._settle()
        return self.is_written

    async def close(self) -> bool:
        """Stop the broker, and start none any more. Returns True if all data are on disk."""
        is_written = await self.stop()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        return is_written

    def hold(self) -> None:
        """Stop the broker soon, as the cluster demands, and start none until `release`."""
        self.is_held = True
        self._is_stale = self._is_stale or self.node is not None
        self._on_changed()
        self._soon()

    def release(self) -> None:
        """Let a broker run again, as the cluster permits it."""
        self.is_held = False
        self._on_changed()
        self._soon()

    def restart(self) -> None:
        """Stop the broker soon, as its state is no longer valid, and start another one."""
        self._is_stale = True
        self._soon()

    @property
    def is_changing(self) -> bool:
        """True if a broker is being started or stopped."""
        return self._changing.locked()

    async def await_start(self) -> None:
        """Return once a broker runs."""
        await self._started.wait()

    def _soon(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._settle_soon())
            self._task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._logger.critical("the broker could not be stopped or started: %r", fault, exc_info=fault)
            self._on_fault()

    async def _settle_soon(self) -> None:
        """Start or stop until the state is as wanted. A start that fails is tried again after `RETRY_S`."""
        while not self._is_settled:
            try:
                await self._settle()
            except (OSError, ConfigError) as error:
                self._logger.error("the broker cannot start: %s; next try in %g s", error, RETRY_S)
                await asyncio.sleep(RETRY_S)
            except GivenUp:
                continue

    @property
    def _should_run(self) -> bool:
        return self.is_wanted and not self.is_held

    @property
    def _is_settled(self) -> bool:
        is_running = self.node is not None
        return is_running == self._should_run and not (is_running and self._is_stale)

    async def _settle(self) -> None:
        async with self._changing:
            self.is_giving_up.clear()
            if self.node is not None and (self._is_stale or not self._should_run):
                former, self.node = self.node, None
                self._started.clear()
                self._on_changed()
                self.is_written = await self._end(former)
                del former
                if not self.is_written:
                    # Its disk hangs or has failed, and holds the files open: no other broker here can open them.
                    self.is_wanted = False
                    self._on_fault()
                # A broker is full of cycles, and Python collects such old objects after some 100 million new ones
                # (`node.app`). Now no clients are served, and most objects that the collector visits can be freed.
                gc.collect()
            if self.node is None and self._should_run:
                self.is_booting = True
                try:
                    while self.node is None:
                        # A demand to start anew was for the attempt before. If it stayed, `is_over` would hold for
                        # the next broker too, and the cluster would never let that one serve.
                        self._is_stale = False
                        self.node = await self._begin()
                finally:
                    self.is_booting = False
                self._started.set()
                self._on_changed()
        if not self._is_settled:
            self._soon()
