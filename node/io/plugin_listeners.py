"""The listeners of plug-ins' protocols: opened when a plug-in is enabled and while clients are accepted.

A listener that cannot be opened is a fault of its plug-in, as is one that raises: it is logged and counted, and the
node goes on without it. Clients of a plug-in that is disabled are disconnected.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from node.broker.broker import Broker
from node.client.connection import Connection
from node.client.endpoint import ClientEndpoint
from node.config.values import LISTENER, Address
from node.extension.protocol import ProtocolListener
from node.extension.setting import Settings
from node.io.client_socket import MakeConnection
from node.routing.plugins import Plugin

Open = Callable[[Address, ssl.SSLContext | None, MakeConnection], Awaitable[asyncio.Server]]


class OpenListener(NamedTuple):
    """An address on which clients of a plug-in's protocol are accepted.   protocol: the listener's name."""

    address: Address
    protocol: str
    is_tls: bool


class Host(Protocol):
    """The server, as this module uses it."""

    broker: Broker

    async def open(
        self, address: Address, context: ssl.SSLContext | None, make: MakeConnection
    ) -> asyncio.Server:
        """Open a listener. Raises: OSError."""


@dataclass(slots=True)
class _Opened:
    plugin: Plugin
    servers: list[asyncio.Server] = field(default_factory=list)
    listeners: list[OpenListener] = field(default_factory=list)


class PluginListeners:
    """The listeners of the enabled plug-ins of one node.

    settings: all plug-ins' texts of the configuration file.   tls: makes the node's context; it may raise.
    on_change: told of the listeners that were opened, and of those that were closed.
    """

    def __init__(
        self,
        host: Host,
        settings: Mapping[str, str],
        tls: Callable[[], ssl.SSLContext],
        on_change: Callable[[list[OpenListener], list[OpenListener]], None],
    ) -> None:
        self._host = host
        self._broker = host.broker
        self._settings = settings
        self._tls = tls
        self._on_change = on_change
        self._opened: dict[str, _Opened] = {}
        self._is_accepting = False
        self._following: asyncio.Task[None] | None = None
        self._has_changed = False
        host.broker.exchange_types.watchers.append(self._changed)

    @property
    def listeners(self) -> list[OpenListener]:
        """The listeners that are open."""
        return [listener for opened in self._opened.values() for listener in opened.listeners]

    async def accept(self) -> None:
        """Open the listeners of all enabled plug-ins, and follow changes from now on."""
        self._is_accepting = True
        self._changed()
        if self._following is not None:
            await self._following

    def suspend(self) -> None:
        """Stop accepting; connections stay."""
        self._is_accepting = False
        for name in list(self._opened):
            self._close(name)

    def stop(self) -> None:
        """Stop accepting, and follow no more changes."""
        self._broker.exchange_types.watchers.remove(self._changed)
        if self._following is not None:
            self._following.cancel()
        self.suspend()

    def _changed(self) -> None:
        self._has_changed = True
        if self._is_accepting and self._following is None:
            self._following = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        try:
            while self._has_changed and self._is_accepting:
                self._has_changed = False
                await self._follow_once()
        finally:
            self._following = None

    async def _follow_once(self) -> None:
        enabled = {name: plugin for name, plugin in self._broker.exchange_types.plugins if plugin is not None}
        for name, opened in list(self._opened.items()):
            if enabled.get(name) is not opened.plugin:
                self._close(name)
                self._broker.close_connections(f"plug-in '{name}' is disabled", _of(name))
        for name, plugin in enabled.items():
            if plugin.listeners and name not in self._opened and self._is_accepting:
                self._opened[name] = opened = _Opened(plugin)
                await self._open(name, opened)

    async def _open(self, name: str, opened: _Opened) -> None:
        for kind in opened.plugin.listeners:
            try:
                settings = opened.plugin.listener_settings(self._settings)
                await self._open_kind(name, opened, kind(settings), settings)
            except Exception as error:  # noqa: BLE001 - whatever foreign code raises, or a port that is taken
                self._broker.exchange_types.failed(name, f"listen for '{kind.name}'", error)
        if not opened.servers and self._opened.get(name) is opened:
            del self._opened[name]  # it is tried again at the next change of plug-ins

    async def _open_kind(
        self, name: str, opened: _Opened, listener: ProtocolListener, settings: Settings
    ) -> None:
        from node.client.session import SessionConnection

        def make(
            broker: Broker, peer: ClientEndpoint, /, *, now: float, on_change: Callable[[], None]
        ) -> SessionConnection:
            return SessionConnection(
                broker, peer, plugin=name, listener=listener, now=now, on_change=on_change
            )

        for text, is_tls in listener.addresses(settings):
            context = self._tls() if is_tls else None
            server = await self._host.open(LISTENER.parse(text), context, make)
            if self._opened.get(name) is not opened:  # the node has stopped accepting meanwhile
                server.close()
                return
            opened.servers.append(server)
            found = [
                OpenListener(Address(*sock.getsockname()[:2]), listener.name, is_tls)
                for sock in server.sockets
            ]
            opened.listeners += found
            self._on_change(found, [])

    def _close(self, name: str) -> None:
        opened = self._opened.pop(name)
        for server in opened.servers:
            server.close()
        self._on_change([], opened.listeners)


def _of(plugin: str) -> Callable[[Connection], bool]:
    return lambda connection: connection.plugin == plugin
