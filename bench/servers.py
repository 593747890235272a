"""The brokers under test: processes on private ports with private data, which are measured from outside.

RabbitMQ is run from its own scripts, not by Debian's wrapper: that changes to the user rabbitmq and to
/var/lib/rabbitmq. It gets its own epmd, cookie, node name and directories, so that an installed RabbitMQ,
running or not, is never touched. Processes are stopped by the id of the group that they were started in.
A server's data is in a TemporaryDirectory, and only that object ever removes anything: no path is deleted
that was not created here.
"""

import contextlib
import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

from bench.client import BenchError, Connection

REPOSITORY = Path(__file__).resolve().parent.parent
RABBITMQ_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
RABBITMQ_CTL = RABBITMQ_SCRIPT.with_name("rabbitmqctl")
RABBITMQ_PLUGINS = RABBITMQ_SCRIPT.with_name("rabbitmq-plugins")
"""RabbitMQ's own scripts: Debian's wrapper requires the user root or rabbitmq."""
CTL_TIMEOUT_S = 400.0
"""The longest run of a command; one of them waits for a synchronisation."""
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
QUIET_TIMEOUT_S = 5.0
QUIET_POLL_S = 0.2
QUIET_SHARE = 0.1
"""A node that uses at most this share of one core is quiet."""
RESTART_TIMEOUT_S = 300.0
"""The timeout of each half of a restart: RabbitMQ needs tens of seconds with a million messages."""
WRITTEN_POLL_S = 2.0
"""The time without writes after which the disk counts as settled. Brokers' timers are shorter."""
WRITTEN_TIMEOUT_S = 120.0
MEMORY_WATCH_S = 0.1
LISTEN_PORTS = (20_000, 32_768)
"""Ports below the range that Linux uses for outgoing connections."""

_given_ports: set[int] = set()
"""The ports that `free_port` has returned: their processes may not listen yet."""


def free_port() -> int:
    """Return a free port of 127.0.0.1 outside of the range for outgoing connections."""
    while True:
        port = random.randrange(*LISTEN_PORTS)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            if port not in _given_ports:
                _given_ports.add(port)
                return port


class Broker(ABC):
    """A broker to measure: a node or a cluster. Stop and start give a fresh, empty broker.

    `settings` are lines of configuration in RabbitMQ's format.
    """

    name = ""

    def __init__(self) -> None:
        self.settings: Sequence[str] = ()
        self.running = False
        self.used = False
        self.version = ""

    @property
    @abstractmethod
    def ports(self) -> Sequence[int]:
        """Return each node's AMQP port."""

    @abstractmethod
    def start(self) -> None:
        """Start, and wait until clients are served. Raises: BenchError with the last output."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the broker, by SIGTERM first, and remove its data. May be called twice."""

    @abstractmethod
    def cpu_s(self) -> float:
        """Return user and system seconds of all nodes and their living children since they started."""

    @abstractmethod
    def last_words(self) -> str:
        """Return the end of the broker's stdout and stderr."""

    def wait_until_quiet(self) -> None:
        """Wait until the broker has finished work that an earlier workload left, at most QUIET_TIMEOUT_S."""
        deadline = time.perf_counter() + QUIET_TIMEOUT_S
        while self.running and time.perf_counter() < deadline:
            before = self.cpu_s()
            time.sleep(QUIET_POLL_S)
            if self.cpu_s() - before <= QUIET_SHARE * QUIET_POLL_S * len(self.ports):
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Server(Broker):
    """A broker process and its children. `restart` starts it again with the same data."""

    ready_words = ""
    config_name = ""
    checkout = REPOSITORY

    def __init__(self) -> None:
        super().__init__()
        self.port = 0
        self.http_port = 0
        """The port of the HTTP API; 0: none."""
        self.metrics_port = 0
        """The port of the metrics; 0: none."""
        self.ready_s = 0.0
        self._data: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._tree: list[psutil.Process] = []
        self._output: deque[str] = deque(maxlen=40)

    @property
    def ports(self) -> Sequence[int]:
        return [self.port]

    @property
    def directory(self) -> Path:
        """The data directory of the running server. There is none before `start` and after `stop`."""
        assert self._data is not None, "not started"
        return Path(self._data.name)

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {}

    def ctl_command(self) -> Sequence[str]:
        """Return the operator's command line for this node, without the command's name."""
        raise NotImplementedError

    def plugins_command(self) -> Sequence[str]:
        """Return the command line for the plug-ins of this node, without the command's name."""
        raise NotImplementedError

    def enable_plugin(self, name: str) -> None:
        """Enable a plug-in on the running server, until its data are gone. Raises: BenchError if it fails."""
        self._operate(self.plugins_command(), "enable", name)

    def ctl(self, *words: str) -> str:
        """Run an operator's command, and return its output. Raises: BenchError if it fails."""
        return self._operate(self.ctl_command(), *words)

    def _operate(self, command: Sequence[str], *words: str) -> str:
        try:
            done = subprocess.run(
                [*command, "--quiet", *words],
                cwd=self.checkout,
                env={**os.environ, **self.environment()},
                capture_output=True,
                text=True,
                timeout=CTL_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{words[0]} of {self.name} takes more than {CTL_TIMEOUT_S:.0f} s") from error
        if done.returncode:
            raise BenchError(f"{words[0]} of {self.name} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def configuration(self) -> Sequence[str]:
        """Return the lines of the configuration file `config_name` in `directory`."""
        return self.settings

    def start(self) -> None:
        """Start, and wait for the ready line and a successful handshake.

        `ready_s` is the time to the ready line. Raises: BenchError with the last output.
        """
        assert self._data is None, "already started"
        prefix = f"fluffle-bench-{self.name.lower()}-"
        self._data = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        self.port = free_port()
        try:
            self._prepare()
            self._launch((), READY_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise
        self.used = False

    def restart(self, *, kill: bool = False, settings: Sequence[str] = ()) -> None:
        """Stop the broker, cleanly or with `kill`, and start it on the same data and port, as `start` does.

        `settings` replace the earlier ones. After an error the caller must call `stop`.
        """
        assert self._process is not None, "not started"
        if kill:
            self.kill()
        else:
            self.running = False
            # Only the leader gets the signal: RabbitMQ's script forwards it. The runtime crashes if its helper ends.
            self._process.terminate()
            self._await_end(self._process)
        self._launch(settings, RESTART_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the broker and its children (SIGKILL). The data stay, and `relaunch` starts it on them."""
        assert self._process is not None, "not started"
        self.running = False
        with contextlib.suppress(ProcessLookupError):  # it has ended before
            os.killpg(self._process.pid, signal.SIGKILL)
        self._await_end(self._process)

    def relaunch(self) -> None:
        """Start a killed broker again on its data, as `start` does."""
        self._launch(self.settings, RESTART_TIMEOUT_S)

    def freeze(self) -> None:
        """Freeze the broker and its children (SIGSTOP). Only `kill` may follow."""
        assert self._process is not None, "not started"
        os.killpg(self._process.pid, signal.SIGSTOP)

    def _await_end(self, process: subprocess.Popen[str]) -> None:
        try:
            process.wait(RESTART_TIMEOUT_S)
            self._await_end_of_tree()
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{self.name} did not stop within {RESTART_TIMEOUT_S:.0f} s") from error

    def _await_end_of_tree(self) -> None:
        """Wait for the children of an ended leader, which hold the port and the data until they end."""
        deadline = time.perf_counter() + RESTART_TIMEOUT_S
        while any(_lives(process) for process in self._tree):
            if time.perf_counter() > deadline:
                raise BenchError(f"processes of {self.name} live on after its end")
            time.sleep(0.01)

    def _launch(self, settings: Sequence[str], timeout_s: float) -> None:
        """Start the process in the existing directory, with these settings."""
        self.settings = settings
        (self.directory / self.config_name).write_text("".join(f"{line}\n" for line in self.configuration()))
        self._output.clear()
        ready = threading.Event()
        command = self.command()
        started_at = time.perf_counter()
        self._process = process = self._spawn(command)
        threading.Thread(target=self._read_output, args=(process, ready), daemon=True).start()
        while not ready.wait(0.002):
            if process.poll() is not None or time.perf_counter() - started_at > timeout_s:
                raise BenchError(f"{self.name} did not become ready:\n{self.last_words()}")
        self.ready_s = time.perf_counter() - started_at
        try:
            self.version = self._greeted_version()
        except OSError as error:
            raise BenchError(f"{self.name} serves no clients: {error}\n{self.last_words()}") from error
        parent = psutil.Process(process.pid)
        self._tree = [parent, *parent.children(recursive=True)]
        self.running = True

    def _greeted_version(self) -> str:
        """Connect once, and return the version that the broker tells. Raises: OSError if it serves no clients."""
        with Connection(self.port) as connection:
            version = server_version(connection.server_properties)
            connection.close()
        return version

    def stop(self) -> None:
        self.running = False
        if self._process is not None:
            _stop_group(self._process)
            self._process = None
        self._end_helpers()
        if self._data is not None:
            self._data.cleanup()
            self._data = None

    def cpu_s(self) -> float:
        total = 0.0
        for process in self._tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def rss_bytes(self) -> int:
        total = 0
        for process in self._tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total

    def written_bytes(self) -> int:
        """Return the bytes that the broker and its living children have written towards the disk since they started.

        Linux counts a page of 4 KiB when it is first changed after it was last written back. Files in memory
        (tmpfs) count as nothing.
        """
        total = 0
        for process in self._tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.io_counters().write_bytes
        return total

    def settled_written_bytes(self) -> int:
        """Return `written_bytes` when it has stopped growing, or after WRITTEN_TIMEOUT_S."""
        deadline = time.perf_counter() + WRITTEN_TIMEOUT_S
        before = -1
        while (now := self.written_bytes()) != before and time.perf_counter() < deadline:
            before = now
            time.sleep(WRITTEN_POLL_S)
        return now

    def last_words(self) -> str:
        errors = ""
        if self._data is not None:
            with contextlib.suppress(OSError):
                errors = (self.directory / "stderr").read_text(errors="replace")[-4000:]
        return "\n".join(("".join(self._output) + errors).splitlines()[-12:])

    def _prepare(self) -> None:
        """Make the files that the command needs in `directory`, once."""

    def _end_helpers(self) -> None:
        """Stop the helper processes of the command."""

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[str]:
        with (self.directory / "stderr").open("a") as errors:
            return subprocess.Popen(
                command,
                cwd=self.checkout,
                env={**os.environ, **self.environment()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # its own group, so that Ctrl-C reaches the bench alone
            )

    def _read_output(self, process: subprocess.Popen[str], ready: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._output.append(line)
            if re.search(self.ready_words, line):
                ready.set()


class Fluffle(Server):
    name = "Fluffle"
    ready_words = r"\bready\b"
    config_name = "fluffle.conf"
    node_name = "bench"

    def __init__(self, *, profile: Path | None = None, checkout: Path = REPOSITORY) -> None:
        """Make a node, not started.   profile: the file for cProfile's data when the node stops; None: no profile.

        `checkout`: where the node's sources are. Elsewhere than here it is named by its commit.
        """
        super().__init__()
        self.profile = profile
        self.checkout = checkout
        if checkout != REPOSITORY:
            self.name = commit(checkout) or checkout.name

    def command(self) -> Sequence[str]:
        profiler = ["-m", "cProfile", "-o", str(self.profile)] if self.profile else []
        data = ["--data", str(self.directory / "data")]
        listen = ["--listen", f"127.0.0.1:{self.port}"]
        config = ["--config", str(self.directory / self.config_name)]
        name = ["--name", self.node_name, "--management", "off"]
        return [sys.executable, *profiler, "-m", "node", "start", *name, *data, *listen, *config]

    def ctl_command(self) -> Sequence[str]:
        return [sys.executable, "-m", "node", "ctl", "--data", str(self.directory / "data")]

    def plugins_command(self) -> Sequence[str]:
        return [sys.executable, "-m", "node", "plugins", "--data", str(self.directory / "data")]

    def environment(self) -> Mapping[str, str]:
        # Otherwise Python might import the checkout that is installed in this environment.
        return {"PYTHONPATH": str(self.checkout)}


class ManagedFluffle(Fluffle):
    """A node of Fluffle with its HTTP API on."""

    def command(self) -> Sequence[str]:
        return [*super().command(), "--management", f"127.0.0.1:{self.http_port}"]

    def configuration(self) -> Sequence[str]:
        return [*_metrics_listener(self.metrics_port), *super().configuration()]

    def _prepare(self) -> None:
        self.http_port, self.metrics_port = free_port(), free_port()


class Erlang:
    """The parts that clustered nodes of RabbitMQ share: a private epmd, and a cookie."""

    def __init__(self) -> None:
        self.port = 0
        self.cookie = secrets.token_hex(16)
        self._epmd: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.port = free_port()
        # Started here, since otherwise the first node would start an epmd that outlives it.
        self._epmd = subprocess.Popen(
            ["epmd", "-port", str(self.port), "-address", "127.0.0.1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self) -> None:
        """Stop the broker and its epmd. It may be called twice, and without a start."""
        if self._epmd is not None:
            _stop_group(self._epmd)
            self._epmd = None


class RabbitMQ(Server):
    name = "RabbitMQ"
    ready_words = "completed with"
    config_name = "rabbitmq.conf"
    plugins = "[]."

    def __init__(self) -> None:
        super().__init__()
        self.node_name = f"bench-{os.getpid()}@localhost"
        self.erlang = Erlang()

    @staticmethod
    def installed() -> bool:
        return RABBITMQ_SCRIPT.exists() and shutil.which("epmd") is not None

    def command(self) -> Sequence[str]:
        return [str(RABBITMQ_SCRIPT)]

    def ctl_command(self) -> Sequence[str]:
        return [str(RABBITMQ_CTL), "-n", self.node_name]

    def plugins_command(self) -> Sequence[str]:
        return [str(RABBITMQ_PLUGINS), "-n", self.node_name]

    def environment(self) -> Mapping[str, str]:
        here = self.directory
        return {
            "HOME": str(here),  # the Erlang cookie
            "ERL_EPMD_PORT": str(self.erlang.port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",  # not the installed instance's settings
            "RABBITMQ_NODENAME": self.node_name,
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(here / "mnesia"),
            "RABBITMQ_LOG_BASE": str(here / "log"),
            "RABBITMQ_CONFIG_FILE": str(here / self.config_name),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(here / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "enabled_plugins"),
        }

    def configuration(self) -> Sequence[str]:
        return [f"listeners.tcp.1 = 127.0.0.1:{self.port}", *self.settings]

    def _prepare(self) -> None:
        self._write_files()
        self.erlang.start()

    def _write_files(self) -> None:
        cookie = self.directory / ".erlang.cookie"
        cookie.write_text(self.erlang.cookie)
        cookie.chmod(0o400)
        (self.directory / "enabled_plugins").write_text(f"{self.plugins}\n")

    def _end_helpers(self) -> None:
        self.erlang.stop()


class ManagedRabbitMQ(RabbitMQ):
    """A node of RabbitMQ with its plug-ins for management and metrics."""

    plugins = "[rabbitmq_management,rabbitmq_prometheus]."

    def configuration(self) -> Sequence[str]:
        return [
            *super().configuration(),
            "management.tcp.ip = 127.0.0.1",
            f"management.tcp.port = {self.http_port}",
            *_metrics_listener(self.metrics_port),
        ]

    def _prepare(self) -> None:
        self.http_port, self.metrics_port = free_port(), free_port()
        super()._prepare()


def _metrics_listener(port: int) -> Sequence[str]:
    """Return the configuration of the metrics' listener, which is the same for both brokers."""
    return ["prometheus.tcp.ip = 127.0.0.1", f"prometheus.tcp.port = {port}"]


class Meter:
    """A meter of the CPU seconds of broker and generator, and of wall time, within a `with` block."""

    def __init__(self, server: Broker) -> None:
        self._server = server
        self.started_at = self.elapsed_s = self.server_cpu_s = self.generator_cpu_s = 0.0

    def __enter__(self) -> Self:
        self.server_cpu_s = -self._server.cpu_s()
        self.generator_cpu_s = -time.process_time()
        self.started_at = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.elapsed_s = time.perf_counter() - self.started_at
        self.generator_cpu_s += time.process_time()
        self.server_cpu_s += self._server.cpu_s()


class MemoryWatch:
    """The largest resident memory of a broker within a `with` block, sampled every MEMORY_WATCH_S."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.max_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.max_bytes = max(self.max_bytes, self._server.rss_bytes())
            if self._end.wait(MEMORY_WATCH_S):
                return


def commit(checkout: Path) -> str:
    """Return the output of `git describe` for a checkout; empty if it fails."""
    describe = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(describe, cwd=checkout, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def server_version(start: bytes) -> str:
    """Return product, version and platform from the arguments of connection.start."""

    def field(name: bytes) -> str:
        match = re.search(re.escape(bytes([len(name)]) + name + b"S") + rb"\0\0\0(.)", start, re.DOTALL)
        return start[match.end() : match.end() + match[1][0]].decode() if match else "?"

    return f"{field(b'product')} {field(b'version')}, {field(b'platform')}"


def _stop_group(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Send SIGTERM, then SIGKILL, to the session that `process` leads."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            # Also if the leader has ended, since a child of it may still live in its group.
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
