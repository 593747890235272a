"""An HAProxy process before the nodes, which tests start, kill and reload, and ask for the state of each node.

Its configuration is `deploy/haproxy.cfg` cut down to one frontend and any servers: the same balancing, checks and cuts.
A server with a `check_port` is asked for `/health/ready` there, one without for an AMQP greeting, as RabbitMQ's are.
It is asked over a socket in its directory, so that it may be in any network namespace.
"""

import asyncio
import csv
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.kit.network import HOST
from tests.kit.patience import patience
from tests.kit.ports import free_ports

PROGRAM: Final = shutil.which("haproxy", path="/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin")
"""HAProxy's program has this path; None if there is none."""
LIMIT_S: Final = 20.0
"""A start, a reload or a change of state may take this long; only a failing test waits so long."""

CONFIG: Final = """\
global
    log stdout format raw local0 info
    fd-hard-limit 20000
    hard-stop-after {hard_stop_s}s
    stats socket {socket} level admin expose-fd listeners
defaults
    mode tcp
    log global
    option tcplog
    option dontlognull
    option redispatch
    retries 2
    timeout connect 2s
    timeout client 3h
    timeout server 3h
    timeout check {check_ms}ms
frontend amqp
    bind {host}:{port}
    default_backend brokers
backend brokers
    balance leastconn
    {check}
    default-server check inter 500ms fastinter 200ms downinter 500ms fall 2 rise 2 on-marked-down shutdown-sessions
"""
READY_CHECK: Final = "option httpchk GET /health/ready\n    http-check expect status 200"
AMQP_CHECK: Final = (
    "option tcp-check\n    tcp-check connect default\n"
    "    tcp-check send-binary 414d515000000901\n    tcp-check expect binary 000a000a"
)
"""The header of AMQP 0-9-1 goes out; in what comes back class 10, method 10 is connection.start."""


class HaproxyFailed(AssertionError):
    """HAProxy does not start, or does not report the expected states."""


class Server(NamedTuple):
    """A node as a balancer sees it.   check_port: of its management; None: it is checked by AMQP on `port`."""

    name: str
    host: str
    port: int
    check_port: int | None = None


class Haproxy:
    """An HAProxy. Its process may be started repeatedly, with the same address and servers.

    directory: for its configuration, socket and log; it must exist, and its path be short (a socket's: 108 bytes).
    servers: all with a `check_port`, or all without.   port: where clients connect; 0: a free one.
    sends_proxy: whether nodes get a PROXY header, version 2.   check_ms: how long a check may take.
    hard_stop_s: how long connections through a process that was reloaded away go on.
    command: makes of a command the one that runs it elsewhere, as `Network.command` does.
    """

    def __init__(
        self,
        directory: Path,
        servers: Sequence[Server],
        *,
        host: str = HOST,
        port: int = 0,
        sends_proxy: bool = False,
        check_ms: int = 2000,
        hard_stop_s: int = 5,
        command: Callable[[list[str]], list[str]] = lambda command: command,
    ) -> None:
        assert PROGRAM is not None, "haproxy is not installed"
        kinds = {server.check_port is None for server in servers}
        assert len(kinds) == 1, "one kind of check for all"
        self.host = host
        self.port = port or free_ports(1)[0]
        self.log_path = directory / "haproxy.log"
        self._directory = directory
        self._socket = directory / "haproxy.sock"
        self._config = directory / "haproxy.cfg"
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._former: list[subprocess.Popen[bytes]] = []
        check = AMQP_CHECK if kinds == {True} else READY_CHECK
        values = {"socket": self._socket, "host": host, "port": self.port, "hard_stop_s": hard_stop_s}
        lines = [CONFIG.format(**values, check=check, check_ms=check_ms)]
        for server in servers:
            own = f" port {server.check_port}" if server.check_port is not None else ""
            # Checks begin with the header only where they go to the server's own port: management reads none.
            own += " send-proxy-v2" * sends_proxy
            lines.append(f"    server {server.name} {server.host}:{server.port}{own}\n")
        self._config.write_text("".join(lines))

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def log_text(self) -> str:
        """Return the log of all its processes."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self) -> None:
        """Start HAProxy, and wait until it accepts clients. Raises: HaproxyFailed."""
        assert not self.is_running, "one at a time"
        self._launch()

    def reload(self) -> None:
        """Have a new process take the listener over. The old one keeps its connections for `hard_stop_s` at most.

        Raises: HaproxyFailed.
        """
        assert self._process is not None
        old = self._process
        self._former.append(old)
        self._launch("-x", str(self._socket), "-sf", str(old.pid))

    async def stop(self) -> None:
        """Stop HAProxy by SIGTERM, which cuts all connections, and wait."""
        assert self._process is not None
        for process in (*self._former, self._process):
            process.terminate()
            await asyncio.to_thread(process.wait)
        self._former.clear()
        self._process = None

    def kill(self) -> None:
        """Kill HAProxy (SIGKILL), including the processes that a reload replaced."""
        for process in (*self._former, self._process):
            if process is not None:
                process.kill()
                process.wait()
        self._former.clear()
        self._process = None

    def close(self) -> None:
        """End all processes."""
        self.kill()

    def states(self) -> dict[str, str]:
        """Return the state of each server: UP, DOWN, "UP 1/2" on the way down, MAINT, … Empty: no answer."""
        return {name: row["status"] for name, row in self.rows().items()}

    def rows(self) -> dict[str, dict[str, str]]:
        """Return the statistics of each server, with the names of the CSV: scur, stot, check_status, lastchg, …

        Empty: it does not answer.
        """
        try:
            text = self.ask("show stat")
        except OSError:
            return {}
        rows = csv.DictReader(text.removeprefix("# ").splitlines())
        own = [row for row in rows if row["pxname"] == "brokers"]
        return {row["svname"]: row for row in own if row["svname"] != "BACKEND"}

    def ask(self, command: str) -> str:
        """Send a command of HAProxy's runtime API: `disable server brokers/n1`. Raises: OSError."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(5)
            asking.connect(str(self._socket))
            asking.sendall(command.encode() + b"\n")
            parts = iter(lambda: asking.recv(65536), b"")
            return b"".join(parts).decode()

    async def await_up(self, *names: str, limit_s: float = LIMIT_S) -> None:
        """Wait until exactly these servers are UP. Raises: HaproxyFailed."""
        deadline = time.monotonic() + limit_s * patience()
        while True:
            states = await asyncio.to_thread(self.states)
            up = {name for name, state in states.items() if state == "UP"}
            if states and up == set(names):
                return
            if time.monotonic() > deadline:
                raise HaproxyFailed(f"{sorted(names)} are to be UP, and it is {states}\n{self._log_end()}")
            await asyncio.sleep(0.1)

    def _launch(self, *options: str) -> None:
        assert PROGRAM is not None
        with self.log_path.open("ab") as log:
            process = subprocess.Popen(
                self._command([PROGRAM, "-db", "-f", str(self._config), *options]),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._process = process
        deadline = time.monotonic() + LIMIT_S * patience()
        while f"Pid: {process.pid}\n" not in self._info():
            if process.poll() is not None or time.monotonic() > deadline:
                raise HaproxyFailed(f"haproxy does not start\n{self._log_end()}")
            time.sleep(0.02)

    def _info(self) -> str:
        try:
            return self.ask("show info")
        except OSError:
            return ""

    def _log_end(self) -> str:
        return "\n".join(self.log_text().splitlines()[-30:])
