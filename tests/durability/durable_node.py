"""A node in a process of its own whose data directory outlives it: killed, stopped, started again."""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.adversity.node_process import ROOT

HOST: Final = "127.0.0.1"
START_S: Final = 60.0
"""How long a start may take. Long, since the machine may be busy; only a failing test waits so long."""
STOP_S: Final = 60.0


class StartFailed(AssertionError):
    """The node ended before it was ready, or did not get ready in time."""


def copy_data(source: Path, target: Path) -> None:
    """Copy a data directory, of a node that runs or was killed too. Its control socket cannot be copied."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("control.sock"))


class DurableNode:
    """`python -m node start`, again and again, in one directory: `data/`, `fluffle.conf` and a log for each start.

    directory: made and removed by who calls.   data: of the data directory, where it isn't `directory/data`.
    name: the node's.   environment: added to what the process gets.
    """

    def __init__(
        self,
        directory: Path,
        *,
        data: Path | None = None,
        name: str = "t1",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data or directory / "data"
        self.host = HOST
        self.port = 0
        self.start_s = 0.0
        """How long the last start took, until clients were accepted."""
        self.exit_code: int | None = None
        """Of the last process that ended; negative: the signal that ended it."""
        self._name = name
        self._directory = directory
        self._environment = dict(environment or {})
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Start it and wait until clients are accepted. Raises: StartFailed."""
        self.launch(settings)
        self.wait_ready()

    def launch(self, settings: Mapping[str, str] | None = None) -> None:
        """Start the process and return at once.   settings: lines of its fluffle.conf."""
        assert self._process is None, "one at a time"
        config = self._directory / "fluffle.conf"
        config.write_text("".join(f"{key} = {value}\n" for key, value in (settings or {}).items()))
        self._starts += 1
        command = [sys.executable, "-m", "node", "start", "--name", self._name, "--data", str(self.data)]
        command += ["--listen", f"{HOST}:0", "--management", "off", "--config", str(config)]
        self._launched_at = time.monotonic()
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], **self._environment},
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def wait_ready(self) -> None:
        """Wait until clients are accepted. Raises: StartFailed."""
        process = self._running()
        assert process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            left_s = self._launched_at + START_S - time.monotonic()
            readable, _, _ = select.select([process.stdout], [], [], max(0, left_s))
            byte = os.read(process.stdout.fileno(), 1) if readable else b""
            if not byte:
                why = "the node ended" if readable else f"not ready within {START_S} s"
                if not readable:
                    process.kill()
                self._end()
                raise StartFailed(f"{why}: {self.log_text()[-4000:]}")
            line += byte
        self.start_s = time.monotonic() - self._launched_at
        self.port = int(line.decode().strip().rpartition(":")[2])

    @property
    def pid(self) -> int:
        """The process id."""
        return self._running().pid

    def peak_bytes(self) -> int:
        """The most resident memory that the process ever had."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    @property
    def log_path(self) -> Path:
        """The log of the last start."""
        return self._directory / f"log.{self._starts}"

    def log_text(self) -> str:
        """What the last start has logged so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._end()

    def terminate(self) -> None:
        """Ask it to stop."""
        self._running().send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Stop it as an operator does. Returns: the exit code."""
        self.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait for the end. Returns: the exit code."""
        try:
            self._running().wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the node did not end: {self.log_text()[-4000:]}") from None
        return self._end()

    def check_store(self) -> tuple[int, str]:
        """`fluffle store check`, while it doesn't run. Returns: the exit code and what it prints."""
        command = [sys.executable, "-m", "node", "store", "check", str(self.data)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was not started"
        return self._process

    def _end(self) -> int:
        process = self._running()
        code = self.exit_code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._process = None
        return code
