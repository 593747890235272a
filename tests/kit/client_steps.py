"""Steps that the tests with real clients share: addresses, bounded waiting, child processes, a cable to cut."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import quote

from tests.kit.ports import HOST, free_port
from tests.kit.server_process import ROOT

TIMEOUT_S: Final = 20.0
"""For any one thing that must happen; a worker's start on a busy machine is the slowest."""

POLL_S: Final = 0.01

T = TypeVar("T")


class Address(Protocol):
    """The address on which a server listens."""

    host: str
    port: int


def amqp_url(
    server: Address, vhost: str = "/", *, user: str = "guest", scheme: str = "amqp", query: str = ""
) -> str:
    """Return the server's URL for a user whose password is the user's name, such as guest."""
    return f"{scheme}://{user}:{user}@{server.host}:{server.port}/{quote(vhost, safe='')}{query}"


def oslo_url(*servers: Address, vhost: str = "/") -> str:
    """Return the transport URL of oslo.messaging, which accepts several hosts."""
    hosts = ",".join(f"guest:guest@{server.host}:{server.port}" for server in servers)
    return f"rabbit://{hosts}/{quote(vhost, safe='')}"


def free_address() -> Address:
    """Return an address of this machine on which no process listens, in the place of a host that is down."""
    return _Endpoint(HOST, free_port())


class _Endpoint:
    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port


class Process:
    """A Python program in a process of its own, in the repository's root; its output goes to a file."""

    def __init__(
        self,
        log: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for_output(self, text: str) -> None:
        """Wait until the process has printed the text; fail with its whole output if it ends before."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.output:
            ended = self._process.poll() is not None
            assert not ended, f"ended before it printed {text!r}:\n{self.output}"
            assert time.monotonic() < deadline, f"did not print {text!r}:\n{self.output}"
            time.sleep(POLL_S)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        """Wait for the end of the process. Returns: the exit code."""
        return self._process.wait(TIMEOUT_S)

    def end(self) -> None:
        """End the process, with SIGTERM if that works. It may have ended before."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(TIMEOUT_S / 2)
        if self._process.poll() is None:
            self.kill()


class Relay:
    """A TCP address that leads to a server, which can be changed or unplugged: a restart as clients see it."""

    def __init__(self, server: Address) -> None:
        self._server: Address | None = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def unplug(self) -> None:
        """Close all sockets at once, without a close of AMQP, and refuse new connections."""
        self.plug_into(None)

    def plug_into(self, server: Address | None) -> None:
        """Lead new connections to the server; end the old ones."""
        with self._lock:
            self._server = server
            pairs, self._pairs = self._pairs, []
        for each in pairs:
            _hang_up(each)

    def close(self) -> None:
        self.unplug()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                upstream = _dial(self._server)
                if upstream is None:
                    client.close()
                    continue
                self._pairs.append((client, upstream))
            thread = threading.Thread(target=_pump, args=(client, upstream), daemon=True)
            self._threads.append(thread)
            thread.start()


@contextlib.contextmanager
def relay_to(server: Address) -> Iterator[Relay]:
    """Yield a relay for the time of the block."""
    relay = Relay(server)
    try:
        yield relay
    finally:
        relay.close()


def _dial(server: Address | None) -> socket.socket | None:
    """Return a connection to the server; None if no server is set or it is down."""
    if server is None:
        return None
    try:
        return socket.create_connection((server.host, server.port))
    except ConnectionRefusedError:
        return None


def _pump(client: socket.socket, upstream: socket.socket) -> None:
    """Carry bytes both ways until one side ends."""
    other = {client: upstream, upstream: client}
    try:
        while True:
            for readable in select.select([client, upstream], [], [])[0]:
                data = readable.recv(65536)
                if not data:
                    return
                other[readable].sendall(data)
    except OSError:
        return
    finally:
        _hang_up((client, upstream))
        client.close()
        upstream.close()


def _hang_up(pair: tuple[socket.socket, socket.socket]) -> None:
    for each in pair:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
