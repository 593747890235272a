"""A node in a process of its own, as an operator runs it, and what can be seen of it from outside.

Hostile clients must not share a process with their victim: the memory that counts is the node's alone, and
so is the time that its event loop is busy.
"""

import os
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

ROOT: Final = Path(__file__).parents[2]
START_S: Final = 30.0
STOP_S: Final = 20.0
LOG_S: Final = 10.0
MIB: Final = 1024 * 1024


class NodeProcess:
    """`python -m node start` on a free port of 127.0.0.1, in a directory that goes away with it.

    settings: lines of its fluffle.conf.   file_limit: how many files it may have open.
    management: where its HTTP API is, HOST:PORT.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        listen: str = "127.0.0.1:0",
        file_limit: int | None = None,
        management: str = "off",
    ) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="fluffle-adversity-")
        directory = Path(self._directory.name)
        config = directory / "fluffle.conf"
        config.write_text("".join(f"{key} = {value}\n" for key, value in (settings or {}).items()))
        self._log = directory / "log"
        self._last_log = ""
        command = [sys.executable, "-m", "node", "start", "--name", "t1", "--data", str(directory / "data")]
        command += ["--listen", listen, "--management", management, "--config", str(config)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={"PATH": os.environ["PATH"]},
                stdout=subprocess.PIPE,
                stderr=log,
            )
        if file_limit is not None:
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (file_limit, file_limit))
        try:
            self.ready_line = self._read_ready_line()
        except BaseException:
            self.kill()
            raise
        # Of several listeners the first counts: the plain ones come before those with TLS.
        places = dict(reversed(re.findall(r"(amqp|http) on (\S+:\d+)", self.ready_line)))
        self.management_url = f"http://{places['http']}" if "http" in places else ""
        self.host, _, port = places["amqp"].rpartition(":")
        self.port = int(port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            assert self.stop() == 0, self.log_text()[-4000:]
        else:
            self.kill()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def rss_bytes(self) -> int:
        """Resident memory now."""
        return self._status("VmRSS") * 1024

    def peak_bytes(self) -> int:
        """The most resident memory since the last `reset_peak`."""
        return self._status("VmHWM") * 1024

    def reset_peak(self) -> None:
        """Begin to measure the peak anew (see proc(5), clear_refs)."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def cpu_s(self) -> float:
        """Processor time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def open_files(self) -> int:
        """Open file descriptors, sockets among them."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def log_text(self) -> str:
        """What it has logged so far, also after its end."""
        return self._log.read_text(errors="replace") if self._log.exists() else self._last_log

    def has_logged(self, text: str, times: int = 1) -> bool:
        """Whether it has said this so often; a thread writes the log, so for LOG_S it may still come."""
        deadline = time.monotonic() + LOG_S
        while self.log_text().count(text) < times and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.log_text().count(text) == times

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def stop(self) -> int:
        """Stop it as an operator does. Returns: the exit code."""
        if self._process.poll() is None:
            self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait for the end of the process and tidy up. Returns: the exit code."""
        try:
            return self._process.wait(STOP_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._last_log = self.log_text()
        self._directory.cleanup()

    def _status(self, key: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1])
        raise AssertionError(f"the node is gone: {self.log_text()[-4000:]}")

    def _read_ready_line(self) -> str:
        assert self._process.stdout is not None
        deadline = time.monotonic() + START_S
        line = b""
        while not line.endswith(b"\n"):
            readable, _, _ = select.select(
                [self._process.stdout], [], [], max(0, deadline - time.monotonic())
            )
            assert readable, f"not ready within {START_S} s: {self.log_text()}"
            byte = os.read(self._process.stdout.fileno(), 1)
            assert byte, f"the node ended: {self.log_text()}"
            line += byte
        return line.decode().strip()
