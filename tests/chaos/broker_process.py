"""The process of a node, of either broker: started, killed, frozen, stopped; name, addresses and data stay."""

import abc
import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.chaos.broker import NodeFailed
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.network import NAMES, Network
from tests.kit.patience import patience
from tests.kit.server_process import ServerProcess

TRACES_S: Final = 1.0
"""A node that is told to abort may write for this long where its threads are (faulthandler does it at once)."""


class Launch(NamedTuple):
    """A launch is a command that starts a node, with its environment.   directory: where."""

    command: Sequence[str]
    directory: Path
    environ: Mapping[str, str]


class BrokerProcess(ServerProcess, abc.ABC):
    """A process does here what `BrokerNode` asks for.

    index: among the nodes.   directory: where its data, configuration and logs are.
    disk: what makes its disk fail and hang, if that is wanted; from the next start on.
    """

    disk: FaultyDisk | None = None

    def __init__(self, index: int, directory: Path, network: Network) -> None:
        super().__init__(directory, NAMES[index])
        self.index = index
        self.short_name = NAMES[index]
        self.place = network.place(self.short_name)
        self.name = self.place.node
        self.data = directory / self.short_name
        self._network = network

    @abc.abstractmethod
    def _how_to_launch(self) -> Launch:
        """Return the launch that starts the node."""

    def log_end(self) -> str:
        """The last lines of it."""
        return "\n".join(self.log_text().splitlines()[-30:])

    def launch(self) -> None:
        """Start the process, and don't wait."""
        command, directory, environ = self._how_to_launch()
        faults = {} if self.disk is None else self.disk.environment
        self._network.starts(self.short_name)
        self._fork(
            self._network.command(self.short_name, command),
            {**environ, **faults},
            cwd=directory,
            start_new_session=True,
        )
        self._network.started(self.short_name, self.pid)

    def kill(self) -> None:
        """kill -9, of what it has started too; frozen or not."""
        if self._process is not None:
            if self.is_running:
                self._network.ends(self.short_name)
            with contextlib.suppress(ProcessLookupError):  # a forked node has no group of its own
                os.killpg(self.pid, signal.SIGKILL)
            self._process.kill()
            self._end()

    async def stop(self) -> int:  # type: ignore[override]
        """SIGTERM, and wait. Returns: the exit code. Raises: NodeFailed if it has to be killed."""
        process = self._process
        assert process is not None
        process.terminate()
        deadline = time.monotonic() + self.stop_s * patience()
        while process.poll() is None:
            if time.monotonic() > deadline:
                process.send_signal(signal.SIGABRT)
                await asyncio.sleep(TRACES_S)
                self.kill()
                raise NodeFailed(f"{self.name} does not end after SIGTERM: {self.log_end()}")
            await asyncio.sleep(0.02)
        self.kill()
        return process.returncode

    def usage(self) -> tuple[int, int]:
        """Resident memory in bytes, and open file descriptors."""
        return self.rss_bytes(), self.open_files()
