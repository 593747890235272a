"""A server in its own process, which a test starts, stops and measures from outside.

Hostile clients must not share a process with their victim: the memory that counts is the server's alone, and so is the
time that its event loop is busy.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Final

from tests.kit.forked_process import ForkedProcess, forked

ROOT: Final = Path(__file__).parents[2]
MIB: Final = 1024 * 1024


class ServerProcess:
    """A process that can be started repeatedly, with the same name and directory.

    directory: for a log of each start, made and removed by the caller.   name: how the names of the logs begin.
    """

    stop_s: ClassVar[float] = 60.0
    """An end that was asked for may take this long. Only a failing test waits so long."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.starts = 0
        self._log_name = name
        self._process: subprocess.Popen[Any] | ForkedProcess | None = None
        self._ended_with: int | None = None

    def _spawn(
        self, command: Sequence[str], environ: Mapping[str, str], *, cwd: Path = ROOT, **options: Any
    ) -> "subprocess.Popen[Any]":
        """Start the process.   options: of `Popen`; both outputs go to the log unless these say otherwise."""
        assert not self.is_running, "one at a time"
        self.starts += 1
        with self.log_path.open("wb") as log:
            outputs = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **options}
            process = subprocess.Popen(command, cwd=cwd, env=dict(environ), **outputs)
        self._process = process
        return process

    def _fork(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        cwd: Path = ROOT,
        stdout: IO[bytes] | None = None,
        has_pipes: bool = False,
        **options: Any,
    ) -> None:
        """Start a node as a fork of a process that has imported all it needs (tests/kit/fork_server.py), if it can be.

        stdout: where its output goes, instead of the log.   has_pipes: standard input and output are pipes of text.
        options: of `Popen`, for a node that cannot be forked.
        """
        assert not self.is_running, "one at a time"
        process = None
        if cwd == ROOT:
            log_path = self.directory / f"{self._log_name}.{self.starts + 1}.log"
            with log_path.open("wb") as log:
                process = forked(command, environ, log, output=stdout, has_pipes=has_pipes)
        if process is not None:
            self.starts += 1
            self._process = process
            return
        if has_pipes:
            options |= {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        elif stdout is not None:
            options["stdout"] = stdout
        self._spawn(command, environ, cwd=cwd, **options)

    # --- what it says ---

    @property
    def log_path(self) -> Path:
        """The log of the last start."""
        return self.directory / f"{self._log_name}.{self.starts}.log"

    def log_text(self) -> str:
        """Return the log of the last start."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_texts(self) -> list[str]:
        """Return the logs of all starts, that of the first one first."""
        paths = [self.directory / f"{self._log_name}.{number}.log" for number in range(1, self.starts + 1)]
        return [path.read_text(errors="replace") for path in paths if path.exists()]

    # --- its life ---

    @property
    def pid(self) -> int:
        """The process id."""
        return self._started().pid

    @property
    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that has ended; None: it runs, or `wait`, `stop` or `kill` saw its end."""
        return None if self._process is None else self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._started().send_signal(number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Freeze the process (SIGSTOP)."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the process run again (SIGCONT), if it exists."""
        if self.is_running:
            self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process (SIGKILL), frozen or not. It may have ended before."""
        if self._process is not None:
            self._process.kill()
            self._end()

    def stop(self) -> int:
        """Stop the process with SIGTERM, as an operator does, unless it has ended. Returns: the exit code."""
        if self.is_running:
            self.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait for the end. Returns: the exit code."""
        if self._process is not None:
            try:
                self._process.wait(self.stop_s)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"it did not end: {self.log_text()[-4000:]}") from None
            self._end()
        assert self._ended_with is not None, "it was not started"
        return self._ended_with

    def _started(self) -> "subprocess.Popen[Any] | ForkedProcess":
        assert self._process is not None, "it was not started"
        return self._process

    def _end(self) -> None:
        process, self._process = self._started(), None
        self._ended_with = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    # --- what the system knows of it ---

    def rss_bytes(self) -> int:
        """Resident memory now."""
        return self._status("VmRSS") * 1024

    def peak_bytes(self) -> int:
        """Return the largest resident memory since the start or the last `reset_peak`."""
        return self._status("VmHWM") * 1024

    def reset_peak(self) -> None:
        """Reset the peak of resident memory (see proc(5), clear_refs)."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def cpu_s(self) -> float:
        """Return the processor time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def open_files(self) -> int:
        """Return the number of open file descriptors, including sockets."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def _status(self, key: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1])
        raise AssertionError(f"the process is gone: {self.log_text()[-4000:]}")
