"""The process of a node, of either broker: started, killed, frozen, stopped; name, addresses and data stay."""

import abc
import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from tests.chaos.broker import NodeFailed
from tests.chaos.network import NAMES, Network
from tests.durability.faulty_disk import FaultyDisk
from tests.kit.patience import patience

TRACES_S: Final = 1.0
"""How long a node that is told to abort may write where its threads are (faulthandler does it at once)."""


class Launch(NamedTuple):
    """How a node is started.   directory: where."""

    command: Sequence[str]
    directory: Path
    environ: Mapping[str, str]


class BrokerProcess(abc.ABC):
    """What `BrokerNode` asks of a process.

    index: among the nodes.   directory: where its data, configuration and logs are.
    disk: what makes its disk fail and hang, if that is wanted; from the next start on.
    """

    disk: FaultyDisk | None = None

    stop_s: ClassVar[float]
    """How long it may take to end when it is asked to."""

    def __init__(self, index: int, directory: Path, network: Network) -> None:
        self.index = index
        self.short_name = NAMES[index]
        self.place = network.place(self.short_name)
        self.name = self.place.node
        self.data = directory / self.short_name
        self.starts = 0
        self._directory = directory
        self._network = network
        self._process: subprocess.Popen[bytes] | None = None

    @abc.abstractmethod
    def _how_to_launch(self) -> Launch:
        """What starts it."""

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Of the process that has ended by itself; None: it runs, or was killed by us."""
        return None if self._process is None else self._process.poll()

    @property
    def log_path(self) -> Path:
        """The log of the last start."""
        return self._directory / f"{self.short_name}.{self.starts}.log"

    def log_text(self) -> str:
        """What the last start has logged so far."""
        return self.log_path.read_text(errors="replace") if self.starts else ""

    def log_end(self) -> str:
        """The last lines of it."""
        return "\n".join(self.log_text().splitlines()[-30:])

    def launch(self) -> None:
        """Start the process, and don't wait."""
        assert not self.is_running, "one at a time"
        self.starts += 1
        command, directory, environ = self._how_to_launch()
        faults = {} if self.disk is None else self.disk.environment
        self._network.starts(self.short_name)
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                self._network.command(self.short_name, command),
                cwd=directory,
                env={**environ, **faults},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._network.started(self.short_name, self._process.pid)

    def kill(self) -> None:
        """kill -9, of what it has started too; frozen or not."""
        if self._process is not None:
            if self.is_running:
                self._network.ends(self.short_name)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        if self.is_running:
            os.kill(self.pid, signal.SIGCONT)

    async def stop(self) -> int:
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
        status = Path(f"/proc/{self.pid}/status").read_text()
        rss = int(status.partition("VmRSS:")[2].split()[0]) * 1024
        return rss, len(os.listdir(f"/proc/{self.pid}/fd"))
