"""Peer discovery by a plug-in: which one is asked, and what faults of it cost."""

import asyncio
import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from node.clustering import discovery
from node.clustering.discovery import PEERS_MAX, PluginDiscovery
from node.extension.peer_discovery import ClusterPeer, PeerDiscovery
from node.extension.setting import Setting, Settings
from node.routing.plugins import Plugin


class Told(PeerDiscovery):
    """Returns what the test says, or raises it."""

    name = "told"
    answer: ClassVar[Any] = ()
    seen: ClassVar[list[str]] = []

    def __init__(self, settings: Settings, node: str) -> None:
        super().__init__(settings, node)
        if settings["mood"] == "bad":
            raise KeyError("a bug")

    async def announce(self, address: str) -> None:
        self.seen.append(f"{self.node} at {address}")

    async def peers(self) -> Sequence[ClusterPeer]:
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            await asyncio.Event().wait()
        return self.answer

    async def close(self) -> None:
        self.seen.append("closed")


TOLD = Plugin("teller", "1", "", settings=(Setting("mood", "good"),), peer_discovery=(Told,))


def config(wanted: str = "told", **settings: str) -> Any:
    """Return a configuration with the plug-in."""
    return SimpleNamespace(
        cluster=SimpleNamespace(formation_plugin=wanted),
        enabled_plugins=("rabbitmq_management", "absent", "broken", "teller"),
        plugin_settings={f"plugin.teller.{name}": value for name, value in settings.items()},
        node_name="n1@h",
    )


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Plugin | None:
        if name == "broken":
            raise KeyError("a bug")
        return TOLD if name == "teller" else None

    monkeypatch.setattr(discovery, "load_plugin", load)
    monkeypatch.setattr(Told, "seen", [])
    monkeypatch.setattr(Told, "answer", ())


def made(**settings: str) -> PluginDiscovery:
    return PluginDiscovery.of(config(**settings), logging.getLogger("test"))


def test_a_plugin_is_told_of_this_node_and_asked_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = [ClusterPeer("h:1", "n1@h"), ClusterPeer("[::1]:25672"), ClusterPeer("b.example:65535")]
    monkeypatch.setattr(Told, "answer", peers)

    async def ask() -> list[tuple[str, str]]:
        found = made()
        await found.announce("h:1")
        places = await found.places()
        await found.close()
        return places

    assert asyncio.run(ask()) == [("n1@h", "h:1"), ("", "[::1]:25672"), ("", "b.example:65535")]
    assert Told.seen == ["n1@h at h:1", "closed"]


def test_so_many_nodes_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Told, "answer", [ClusterPeer(f"h:{port}") for port in range(1, PEERS_MAX + 9)])
    assert len(asyncio.run(made().places())) == PEERS_MAX


@pytest.mark.parametrize(
    "answer",
    [
        KeyError("a bug"),
        [ClusterPeer("h")],
        [ClusterPeer("h:0")],
        [ClusterPeer("h:99999")],
        [ClusterPeer("::1:5")],
        [ClusterPeer("h:1", 5)],  # type: ignore[arg-type]
        5,
    ],
)
def test_a_fault_is_logged_once_and_leads_to_no_node(
    answer: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = made()
    monkeypatch.setattr(Told, "answer", answer)
    for _ in range(3):
        assert asyncio.run(found.places()) == []
    assert sum("failed to find nodes" in record.message for record in caplog.records) == 1
    monkeypatch.setattr(Told, "answer", [ClusterPeer("h:1")])
    assert asyncio.run(found.places()) == [("", "h:1")]


def test_a_late_answer_is_a_fault(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(discovery, "ANSWER_S", 0.001)
    monkeypatch.setattr(Told, "answer", None)
    assert asyncio.run(made().places()) == []
    assert "no answer within 0.001 s" in caplog.text


def test_without_the_plugin_no_cluster_is_created() -> None:
    with pytest.raises(OSError, match="no enabled plug-in of this node brings 'other'"):
        PluginDiscovery.of(config("other"), logging.getLogger("test"))


def test_a_plugin_that_cannot_be_made_stops_the_node() -> None:
    with pytest.raises(OSError, match="the peer discovery 'told' cannot be made"):
        made(mood="bad")
    with pytest.raises(OSError, match=r"plugin\.teller\.color: there is no such setting"):
        made(color="red")
