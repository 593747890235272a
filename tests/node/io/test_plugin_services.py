"""Services of plug-ins: they begin and end with their plug-in, and a node that stops waits for them for a while."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from node.broker.broker import Broker
from node.catalogue.events import Event
from node.client.observer import Observer
from node.config.config import Config
from node.io import plugin_services
from node.io.plugin_services import PluginServices


class _Service:
    """A service that has something under way for so many looks after its end."""

    def __init__(self, looks: int) -> None:
        self.calls: list[str] = []
        self._looks = looks

    def start(self) -> None:
        self.calls.append("start")

    def changed(self, events: Sequence[Event]) -> None:
        self.calls.append("changed")

    def answer(self, question: str, arguments: Mapping[str, Any]) -> Any:
        raise LookupError(question)

    @property
    def is_idle(self) -> bool:
        self._looks -= 1
        return self._looks < 0

    def stop(self, *, is_removed: bool) -> None:
        self.calls.append(f"stop {is_removed}")


def _broker() -> Any:
    plugins = SimpleNamespace(watchers=[], plugins=[("one", object()), ("none", object())])
    return SimpleNamespace(exchange_types=plugins, observer=Observer())


def test_a_node_that_stops_waits_until_its_services_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    service, broker = _Service(3), _broker()
    monkeypatch.setattr(plugin_services, "_service", lambda name, host: service if name == "one" else None)

    async def live() -> None:
        services = PluginServices(cast(Broker, broker), cast(Config, None))
        assert services.find("one") is service
        assert services.find("none") is None
        await services.stop()

    asyncio.run(live())
    assert service.calls == ["start", "stop False"]
    assert service._looks == -1
    assert broker.exchange_types.watchers == []


def test_a_service_ends_with_its_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    service, broker = _Service(0), _broker()
    monkeypatch.setattr(plugin_services, "_service", lambda name, host: service if name == "one" else None)
    observer = broker.observer

    async def live() -> None:
        services = PluginServices(cast(Broker, broker), cast(Config, None))
        assert broker.observer is not observer
        broker.exchange_types.plugins = []
        broker.exchange_types.watchers[0]()
        assert services.find("one") is None
        assert broker.observer is observer

    asyncio.run(live())
    assert service.calls == ["start", "stop True"]


def test_a_service_that_is_never_idle_does_not_hold_the_node_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_services, "STOP_S", 0.0)
    service, broker = _Service(1_000_000), _broker()
    monkeypatch.setattr(plugin_services, "_service", lambda name, host: service)

    async def live() -> None:
        await PluginServices(cast(Broker, broker), cast(Config, None)).stop()

    asyncio.run(live())
    assert service.calls[-1] == "stop False"
