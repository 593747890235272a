"""The services of plug-ins that run on a node by themselves, such as links to other brokers.

A service begins when its plug-in is enabled and the node serves clients, and follows the catalogue. Its code is
imported then, and not before. While no such plug-in is enabled nothing here costs anything.

    plug-in enabled ─► service.start ─► service.changed(events) ─► service.stop
"""

import asyncio
from collections.abc import Callable
from typing import Final

from node.broker.broker import Broker
from node.catalogue.events import Event
from node.client.observer import Observer, Observers
from node.config.config import Config
from node.io.plugin_service import PluginService, ServiceHost
from node.override import override

STOP_S: Final = 2.0
"""The longest time that a node which stops waits for its services: a shovel awaits confirms for 1 s."""

STOP_POLL_S: Final = 0.01


def _service(plugin: str, host: ServiceHost) -> PluginService | None:
    """Return the service of a plug-in, and import it; None: it has none."""
    match plugin:
        case "rabbitmq_shovel":
            from node.io.shovels import ShovelService

            return ShovelService(host)
        case "rabbitmq_federation":
            from node.io.federation import FederationService

            return FederationService(host)
        case _:
            return None


class PluginServices:
    """The services of the enabled plug-ins of one node, from now until `stop`."""

    def __init__(self, broker: Broker, config: Config) -> None:
        self._broker = broker
        self._host = ServiceHost(broker, config)
        self._running: dict[str, PluginService] = {}
        self._events: list[Event] = []
        self._observer: Observer | None = None
        """The broker's own observer, while another one stands in its place."""
        broker.exchange_types.watchers.append(self._renew)
        self._renew()

    def find(self, plugin: str) -> PluginService | None:
        """Return the service of a plug-in; None: it does not run."""
        return self._running.get(plugin)

    async def stop(self) -> None:
        """End all services, as the node stops, and wait for a while until nothing of them is under way."""
        self._broker.exchange_types.watchers.remove(self._renew)
        ending = list(self._running.values())
        for service in ending:
            service.stop(is_removed=False)
        self._running.clear()
        self._follow_no_more()
        deadline = self._host.loop.time() + STOP_S
        while not all(service.is_idle for service in ending) and self._host.loop.time() < deadline:
            await asyncio.sleep(STOP_POLL_S)
        if ending:
            await asyncio.sleep(STOP_POLL_S)  # their last words are written in this time

    def _renew(self) -> None:
        enabled = {name for name, plugin in self._broker.exchange_types.plugins if plugin is not None}
        for name in [each for each in self._running if each not in enabled]:
            self._running.pop(name).stop(is_removed=True)
        for name in sorted(enabled - self._running.keys()):
            service = _service(name, self._host)
            if service is not None:
                self._running[name] = service
                self._follow()
                service.start()
        if not self._running:
            self._follow_no_more()

    def _follow(self) -> None:
        if self._observer is None:
            self._observer = self._broker.observer
            self._broker.observer = Observers(self._observer, _Changes(self._note))

    def _follow_no_more(self) -> None:
        if self._observer is not None:
            self._broker.observer, self._observer = self._observer, None

    def _note(self, event: Event) -> None:
        """Note a change; services are told when the broker has followed all of them."""
        if not self._events:
            self._host.loop.call_soon(self._tell)
        self._events.append(event)

    def _tell(self) -> None:
        events, self._events = self._events, []
        for service in list(self._running.values()):
            service.changed(events)


class _Changes(Observer):
    """Passes on changes of the catalogue."""

    def __init__(self, note: Callable[[Event], None]) -> None:
        self._note = note

    @override
    def changed(self, change: Event) -> None:
        self._note(change)
