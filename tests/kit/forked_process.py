"""A process that a fork server made (tests/kit/fork_server.py), with the interface of `subprocess.Popen`.

Some processes cannot be forked: other programs, and those whose environment a library or the interpreter reads when it
is loaded (a wrong clock, a path with modules of a test). `forked` gives None for them, and for all if
FLUFFLE_TEST_FORK=0 says so. A fork server can have loaded a library that asks for its environment each time that it is
called, as that of a faulty disk does: `share_library`.
"""

import atexit
import contextlib
import functools
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from tests.kit.fork_server import PROGRAMS, REQUEST_BYTES

ROOT: Final = Path(__file__).parents[2]
SERVERS: Final = 3
"""The nodes of a cluster take turns at them, so that each node has another order of its sets, as processes have."""
READ_AT_LOAD: Final = ("LD_", "PYTHON", "MALLOC_", "GLIBC_")
"""Variables whose names begin so count when a process is loaded, which is too late for a forked one."""
PRELOAD: Final = "LD_PRELOAD"
START_S: Final = 120.0
"""A fork server, which imports first, answers within this time. Only a failing test waits so long."""
END_S: Final = 10.0


class ForkedProcess:
    """A forked process, of which the tests' process is not the parent.

    end: a pipe, on which its exit code is told.   stdin, stdout: pipes to it, where it has them.
    """

    def __init__(self, pid: int, end: int, stdin: IO[str] | None, stdout: IO[str] | None) -> None:
        self.pid = pid
        self.stdin, self.stdout = stdin, stdout
        self.returncode: int | None = None
        self._end = os.fdopen(end, "rb", buffering=0)
        try:
            self._handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:  # it has ended already
            self._handle = None

    def poll(self) -> int | None:
        """Return the exit code, the negative number of a signal, or None while the process runs."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Returns: the exit code. Raises: TimeoutExpired."""
        code = self._look(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"the forked process {self.pid}", timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None and self._handle is not None:
            try:
                signal.pidfd_send_signal(self._handle, number)
            except ProcessLookupError:
                return

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def _look(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            waits = select.poll()
            waits.register(self._end, select.POLLIN | select.POLLHUP)
            if not waits.poll(None if timeout_s is None else timeout_s * 1000):
                return None
            told = self._end.read(16)
            self.returncode = int(told) if told else -signal.SIGKILL  # no word: its server has been killed
            self._end.close()
            if self._handle is not None:
                os.close(self._handle)
        return self.returncode


class ForkServer:
    """The tests' end of a fork server, which is started at once and ends with this process.

    environment: what the server, and so each of its children, is loaded with.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                env=dict(environment),
            )
        self._control.settimeout(START_S)
        atexit.register(self._stop)

    def fork(
        self, program: str, arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[int]
    ) -> tuple[int, int]:
        """Start a program.   files: its standard input, output and error.

        Returns: the id of its process, and a pipe on which its end is told. Raises: TimeoutError.
        """
        request = json.dumps([program, list(arguments), dict(environment)]).encode()
        assert len(request) <= REQUEST_BYTES
        end, theirs = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._control, [request], [*files, theirs])
                pid = int(self._control.recv(16))
        finally:
            os.close(theirs)
        return pid, end

    def _stop(self) -> None:
        self._control.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Servers:
    """The fork servers of this process with the same environment, each started when it is needed.

    added: to the environment of this process.
    """

    def __init__(self, added: Mapping[str, str]) -> None:
        self.environment: Final = {**os.environ, **added}
        self._turns = itertools.cycle(range(SERVERS))
        self._started: dict[int, ForkServer] = {}

    def next(self) -> ForkServer:
        turn = next(self._turns)
        if turn not in self._started:
            self._started[turn] = ForkServer(self.environment)
        return self._started[turn]


@functools.cache
def _servers(library: str | None = None) -> _Servers:
    """Return the servers that have loaded a library, or none."""
    return _Servers({} if library is None else {PRELOAD: library})


_SHARED: Final[set[str]] = set()


def share_library(path: Path) -> None:
    """Let nodes whose LD_PRELOAD is this library be forks of servers that have loaded it.

    The library must not read the environment before its functions are called, and must stay while this process lasts.
    """
    _SHARED.add(str(path))


def forked(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: IO[bytes],
    *,
    output: IO[bytes] | None = None,
    has_pipes: bool = False,
) -> ForkedProcess | None:
    """Start `python -m PROGRAM …` in a fork server's child, in the root of the repository; None: it cannot be forked.

    log: its standard error, and its standard output if `output` is None.   has_pipes: its standard input and output are
    pipes of text instead.
    """
    python, option, program, *arguments = command
    if (python, option) != (sys.executable, "-m") or program not in PROGRAMS:
        return None
    if os.environ.get("FLUFFLE_TEST_FORK") == "0":
        return None
    library = environment.get(PRELOAD)
    servers = _servers(library if library in _SHARED else None)
    if not _can_go_on(environment, servers.environment):
        return None
    into = out = None
    with contextlib.ExitStack() as theirs:  # these descriptors, once the child has them, are its alone
        if has_pipes:
            reads, writes = os.pipe()
            into = os.fdopen(writes, "w")
            out_reads, out_writes = os.pipe()
            out = os.fdopen(out_reads)
            theirs.callback(os.close, out_writes)
        else:
            reads, out_writes = os.open(os.devnull, os.O_RDONLY), (output or log).fileno()
        theirs.callback(os.close, reads)
        pid, end = servers.next().fork(program, arguments, environment, [reads, out_writes, log.fileno()])
    return ForkedProcess(pid, end, into, out)


def run_command(
    command: Sequence[str], environment: Mapping[str, str], timeout_s: float
) -> "subprocess.CompletedProcess[str]":
    """Run a command until its end, forked if it can be, in the root of the repository. Raises: TimeoutExpired."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = forked(command, environment, errors, output=output)
        if process is None:
            return subprocess.run(
                command,
                env=environment,
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        told = []
        for file in (output, errors):
            file.seek(0)
            told.append(file.read().decode())
    return subprocess.CompletedProcess(command, code, *told)


def _can_go_on(environment: Mapping[str, str], loaded_with: Mapping[str, str]) -> bool:
    """Return whether a process that was loaded with one environment can go on with the other."""
    counts = {name: value for name, value in environment.items() if name.startswith(READ_AT_LOAD)}
    return counts.items() <= loaded_with.items()
