"""A `Server` with its broker in a thread with an event loop of its own, so that tests can be plain blocking clients."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import uvloop

from node.app import broker_settings
from node.broker.broker import Broker
from node.catalogue.commands import Command, seed_commands
from node.catalogue.passwords import DEFAULT_ALGORITHM, SALT_BYTES, hash_password
from node.config.config import Config
from node.config.values import Address
from node.io.client_socket import ClientSocket
from node.io.server import Listener, Server

TIMEOUT_S: Final = 20.0
LOOPBACK: Final = Address("127.0.0.1", 0)

T = TypeVar("T")


@dataclass
class Place:
    """The address to which a client connects."""

    host: str
    port: int


def config(**changes: Any) -> Config:
    """Return a configuration with one listener on a free port of 127.0.0.1."""
    return replace(
        Config(node_name="io@test", data_dir="", cluster_name="io@test", tcp_listeners=(LOOPBACK,)), **changes
    )


class ServerThread:
    """A server that runs within a `with` block.

    refusals: what was said of sockets refused before AMQP.   problems: what the loop's exception handler was told.
    """

    def __init__(self, options: Config | None = None) -> None:
        self.config = options or config()
        self.refusals: list[str] = []
        self.held: list[float] = []
        self.problems: list[dict[str, Any]] = []
        self._loop = uvloop.new_event_loop()
        self._loop.set_exception_handler(lambda loop, context: self.problems.append(context))
        self._thread = threading.Thread(target=self._loop.run_forever, name="server", daemon=True)
        self._is_stopped = False

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._end()
        if kind is None:
            assert not self.problems, self.problems

    async def _start(self) -> None:
        self.broker = Broker(
            broker_settings(self.config),
            entropy=os.urandom,
            epoch_s=time.time() - time.monotonic(),
            clock=time.monotonic,
        )
        self.broker.start(time.monotonic())
        for command in seed_commands(
            vhost="/",
            user="guest",
            password_hash=hash_password("guest", os.urandom(SALT_BYTES), DEFAULT_ALGORITHM),
            hashing_algorithm=DEFAULT_ALGORITHM,
            tags=(),
            permissions=(".*", ".*", ".*"),
        ):
            self.broker.log.submit(command)
        self.server = Server(
            self.broker, self.config, on_refused=self.refusals.append, on_held=self.held.append
        )
        try:
            self.listeners: list[Listener] = list(await self.server.listen())
        except BaseException:
            await self.server.stop()
            raise
        self.host, self.port = self.listeners[0].address

    def stop(self) -> float:
        """Stop the server as a node does. Returns: how long it took, in seconds."""
        begin = time.monotonic()
        if not self._is_stopped:
            self._is_stopped = True
            self._run(self.server.stop())
            self.call(self.server.end)
        return time.monotonic() - begin

    def submit(self, *commands: Command[Any]) -> None:
        """Change the catalogue."""
        for command in commands:
            self.call(partial(self.broker.log.submit, command))

    def call(self, action: Callable[[], T]) -> T:
        """Run `action` in the loop's thread. Returns: its result."""
        future: Future[T] = Future()

        def act() -> None:
            try:
                future.set_result(action())
            except Exception as error:  # noqa: BLE001 - handed on to whoever asked
                future.set_exception(error)

        self._loop.call_soon_threadsafe(act)
        return future.result(TIMEOUT_S)

    def names(self) -> list[str]:
        """The names of all connections."""
        return self.call(lambda: [connection.name for connection in self.broker.connections.values()])

    def wait_until(self, condition: Callable[[], bool], within: float = TIMEOUT_S) -> None:
        """Wait until a condition, checked in the loop's thread, is true."""
        deadline = time.monotonic() + within
        while not self.call(condition):
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.01)

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


def accepted_socket(client_socket: ClientSocket) -> socket.socket:
    """Return the operating system's socket of a client socket."""
    transport = client_socket._transport
    assert transport is not None
    sock: socket.socket = transport.get_extra_info("socket")
    return sock


def unsent_bytes(client_socket: ClientSocket) -> int:
    """Return the bytes that wait in the transport for a peer that does not read."""
    transport = client_socket._transport
    assert transport is not None
    return transport.get_write_buffer_size()
