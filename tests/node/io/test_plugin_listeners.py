"""Listeners of plug-ins' protocols: opened and closed with their plug-in, and never more than a fault of it."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from node.catalogue.commands import DisablePlugin, EnablePlugin
from node.client.endpoint import ClientEndpoint
from node.client.session import SessionConnection
from node.config.values import Address
from node.extension.setting import Settings
from node.io.client_socket import MakeConnection
from node.io.plugin_listeners import OpenListener, PluginListeners
from node.routing.plugins import Plugin
from tests.kit.world import World
from tests.node.client.told_protocol import ToldListener


class Listening(ToldListener):
    """The listener of the plug-in `told`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()


PLUGIN = Plugin("told", "1", "", listeners=(Listening,))
TCP = OpenListener(Address("", 7777), "told", is_tls=False)
TLS = OpenListener(Address("127.0.0.1", 7778), "told", is_tls=True)


class Bench:
    """A broker that has the plug-in, and a server that opens no sockets.

    open_now: the addresses that are open.   changes: what was opened and closed.
    """

    def __init__(self, **settings: str) -> None:
        self.world = World()
        self.broker = self.world.broker
        self.broker.exchange_types._load = lambda name: PLUGIN if name == "told" else None
        self.open_now: list[tuple[Address, bool]] = []
        self.makes: list[MakeConnection] = []
        self.taken: set[int] = set()
        self.changes: list[tuple[list[OpenListener], list[OpenListener]]] = []
        texts = {f"plugin.told.listeners.{key}.default": text for key, text in settings.items()}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.listeners = PluginListeners(
            self, texts, lambda: context, lambda opened, closed: self.changes.append((opened, closed))
        )

    async def open(
        self, address: Address, context: ssl.SSLContext | None, make: MakeConnection
    ) -> asyncio.Server:
        await asyncio.sleep(0)
        if address.port in self.taken:
            raise OSError(98, "Address already in use")
        entry = address, context is not None
        self.open_now.append(entry)
        self.makes.append(make)
        socket = SimpleNamespace(getsockname=lambda: tuple(address))
        server: Any = SimpleNamespace(sockets=[socket], close=lambda: self.open_now.remove(entry))
        return server  # type: ignore[no-any-return]

    def enable(self) -> None:
        self.broker.log.submit(EnablePlugin("told", ()))

    @property
    def failures(self) -> int:
        return self.broker.exchange_types.failures["told"]


def run(use: Callable[[Bench], Awaitable[None]], **settings: str) -> Bench:
    """Run a test with a bench, in a loop."""

    async def whole() -> Bench:
        bench = Bench(**settings)
        await use(bench)
        return bench

    return asyncio.run(whole())


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_listeners_are_open_while_their_plugin_is_enabled() -> None:
    async def use(bench: Bench) -> None:
        await bench.listeners.accept()
        assert bench.open_now == []
        bench.enable()
        await _settle()
        assert bench.open_now == [(TCP.address, False)]
        assert bench.listeners.listeners == [TCP]
        bench.broker.log.submit(DisablePlugin("told"))
        await _settle()
        assert bench.open_now == []
        assert bench.changes == [([TCP], []), ([], [TCP])]

    run(use)


def test_a_plugin_that_is_enabled_before_the_node_accepts_waits_for_that() -> None:
    async def use(bench: Bench) -> None:
        bench.enable()
        await _settle()
        assert bench.open_now == []
        await bench.listeners.accept()
        assert bench.open_now == [(TCP.address, False)]
        bench.listeners.suspend()
        assert bench.open_now == []
        await bench.listeners.accept()
        assert bench.open_now == [(TCP.address, False)]
        bench.listeners.stop()
        assert bench.open_now == []
        assert bench.broker.exchange_types.watchers == []

    run(use)


def test_ports_are_those_of_the_configuration() -> None:
    async def use(bench: Bench) -> None:
        bench.enable()
        await bench.listeners.accept()
        assert bench.open_now == [(TLS.address, True)]
        assert bench.listeners.listeners == [TLS]

    run(use, tcp="none", ssl="127.0.0.1:7778")


def test_a_port_that_is_taken_is_a_fault_of_the_plugin() -> None:
    async def use(bench: Bench) -> None:
        bench.taken.add(7777)
        bench.enable()
        await bench.listeners.accept()
        assert bench.failures == 1
        assert bench.listeners.listeners == []
        bench.taken.clear()
        bench.broker.log.submit(DisablePlugin("told"))
        bench.enable()
        await _settle()
        assert bench.listeners.listeners == [TCP], "it is tried again when the plug-in is enabled again"

    run(use)


def test_a_listener_that_opens_too_late_is_closed() -> None:
    async def use(bench: Bench) -> None:
        bench.enable()
        accepting = asyncio.create_task(bench.listeners.accept())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        bench.listeners.suspend()
        await accepting
        assert bench.open_now == []
        assert bench.listeners.listeners == []

    run(use)


def test_clients_of_a_disabled_plugin_are_disconnected_and_others_are_not() -> None:
    async def use(bench: Bench) -> None:
        bench.enable()
        await bench.listeners.accept()
        other = bench.world.client()
        made = bench.makes[0](bench.broker, ClientEndpoint(), now=bench.world.now, on_change=lambda: None)
        assert isinstance(made, SessionConnection)
        assert (made.plugin, made.protocol) == ("told", "TOLD 1")
        bench.broker.log.submit(DisablePlugin("told"))
        await _settle()
        assert made.is_finished
        assert not other.connection.is_finished

    run(use)
