"""One node at a time may create a cluster, whatever lists of nodes peer discovery gives to each."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import pytest

from node.clustering import formation
from node.clustering.consent import CONSENT_S, LATE, Consent, refusal
from node.clustering.identity import NodeIdentity
from node.clustering.voting import Voting
from node.io.control import unavailable

NAMES: Final = ("n1@h", "n2@h", "n3@h")
SEEDS: Final = range(40)


class Node:
    """A node without a cluster. At its first search, peer discovery tells the nodes in `first`, then all."""

    def __init__(self, world: "World", name: str, first: tuple[str, ...]) -> None:
        self.world, self.name = world, name
        options = SimpleNamespace(
            formation_nodes=(),
            formation_dns_hostname=None,
            formation_plugin=None,
            target_size_hint=len(NAMES),
            discovery_retry_limit=3,
            discovery_retry_interval_s=0.0,
        )
        self.config = SimpleNamespace(cluster=options, node_name=name)
        self.roster = SimpleNamespace(identity=NodeIdentity(name, name, "disc"), members={}, cluster_id="")
        self.links = SimpleNamespace(address=name)
        self.calls = self
        self.logger = logging.getLogger("test")
        self.waited_for: list[str] = []
        self.process = SimpleNamespace(wait_is=self.waited_for.append)
        self.consent = Consent(lambda: 0.0)
        self.answers = Voting(self).answers  # type: ignore[arg-type]
        self._lists = [first]

    async def ask(self, address: str, body: Mapping[str, Any], seconds: float) -> Any:
        """Send a request to another node; both ways take as long as the seed says."""
        await self.world.pause()
        if address in self.world.silent:
            raise unavailable(address)
        answer = await self.world.nodes[address].answers[body["do"]](self.name, body)
        await self.world.pause()
        return answer

    async def places(self) -> list[tuple[str, str]]:
        await self.world.pause()
        return [(name, name) for name in (self._lists.pop() if self._lists else NAMES)]

    async def or_given_up(self, waiting: Awaitable[Any]) -> Any:
        return await waiting

    async def belong_to(self, cluster_id: str) -> None:
        await self.world.pause()
        self.roster.identity = replace(self.roster.identity, cluster_id=cluster_id)
        self.roster.cluster_id = cluster_id
        self.roster.members = {self.name: self}


class World:
    """Three nodes that start at the same time; the order of all that happens follows from a seed."""

    def __init__(self, seed: int, silent: frozenset[str] = frozenset()) -> None:
        self._random = random.Random(seed)
        self.silent = silent
        self.nodes = {
            "n1@h": Node(self, "n1@h", NAMES),
            "n2@h": Node(self, "n2@h", ("n2@h", "n3@h")),
            "n3@h": Node(self, "n3@h", ("n3@h",)),
        }
        self.created: list[str] = []

    async def pause(self) -> None:
        for _ in range(self._random.randrange(8)):
            await asyncio.sleep(0)

    async def create(self, node: Node) -> None:
        self.created.append(node.name)
        await node.belong_to(f"of {node.name}")

    async def join(self, node: Node, address: str, cluster_id: str, _: str) -> None:
        await node.belong_to(cluster_id)

    async def form(self) -> None:
        """Have all nodes that can be reached look for a cluster, until each belongs to one."""
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            for node in self.nodes.values():
                if node.name not in self.silent:
                    tasks.create_task(formation._look_around(node, node))  # type: ignore[arg-type]


def formed(monkeypatch: pytest.MonkeyPatch, seed: int, silent: frozenset[str] = frozenset()) -> list[str]:
    """Return the names of the nodes that created a cluster."""
    world = World(seed, silent)
    monkeypatch.setattr(formation, "create", world.create)
    monkeypatch.setattr(formation, "join", world.join)
    asyncio.run(world.form())
    return world.created


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_with_different_lists_create_one_cluster(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    assert len(formed(monkeypatch, seed)) == 1


def test_without_consent_two_are_created(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(*_: object) -> list[str]:
        return []

    monkeypatch.setattr(formation, "_refusals", none)
    assert any(len(formed(monkeypatch, seed)) == 2 for seed in SEEDS)


def test_a_silent_node_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert formed(monkeypatch, 1, frozenset({"n3@h"})) == ["n1@h"]


def test_a_consent_ends_by_itself() -> None:
    """The node that has it may be gone."""
    now = 0.0
    consent = Consent(lambda: now)
    assert consent.give("n1@h")
    assert consent.give("n1@h")
    assert not consent.give("n2@h")
    now = CONSENT_S
    assert consent.give("n2@h")
    assert not consent.give("n1@h")


def test_a_consent_is_withdrawn_by_the_node_that_has_it() -> None:
    consent = Consent(lambda: 0.0)
    assert consent.give("n1@h")
    consent.withdraw("n2@h")
    assert not consent.give("n2@h")
    consent.withdraw("n1@h")
    assert consent.give("n2@h")


# --- why a node waits ---


def refusals(world: World, name: str) -> list[str]:
    """Have a node ask all others and itself for their consent. Returns: why it must not create a cluster."""
    free = [formation.Found(each, each, each, "") for each in world.nodes]
    return asyncio.run(formation._refusals(world.nodes[name], free))  # type: ignore[arg-type]


def test_the_refusal_of_another_node_names_it_and_the_one_that_it_lets_create_a_cluster() -> None:
    world = World(1)
    assert world.nodes["n2@h"].consent.give("n3@h")
    assert refusals(world, "n1@h") == ["node 'n2@h' lets node 'n3@h' create one"]


def test_a_node_that_has_let_another_one_create_a_cluster_names_it() -> None:
    world = World(1)
    assert world.nodes["n1@h"].consent.give("n3@h")
    assert refusals(world, "n1@h") == ["node 'n1@h' lets node 'n3@h' create one"]


def test_a_node_that_does_not_answer_and_one_that_belongs_to_a_cluster_are_named() -> None:
    world = World(1)
    world.silent = frozenset({"n2@h"})
    world.nodes["n3@h"].roster.cluster_id = "its own"
    first, second = refusals(world, "n1@h")
    assert first.startswith("node 'n2@h' did not answer: ")
    assert second == "node 'n3@h' belongs to a cluster"


def test_consents_that_come_late_are_of_no_use_and_are_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1)
    now = iter((0.0, CONSENT_S / 2))
    monkeypatch.setattr(formation, "boottime", lambda: next(now))
    assert refusals(world, "n1@h") == [LATE]
    assert not any(node.consent.holder for node in world.nodes.values())


def test_a_node_that_all_let_create_a_cluster_waits_for_none() -> None:
    world = World(1)
    assert refusals(world, "n1@h") == []
    assert {node.consent.holder for node in world.nodes.values()} == {"n1@h"}


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"is_given": True}, ""),
        ({"is_given": False}, "node 'n2@h' does not consent"),
        ({"is_given": False, "holder": 7}, "node 'n2@h' does not consent"),
        ({"is_given": False, "holder": "x" * 100_000}, "node 'n2@h' does not consent"),
        ({"is_given": 1, "holder": "n3@h"}, "node 'n2@h' lets node 'n3@h' create one"),
        (None, "node 'n2@h' gave an invalid answer"),
    ],
)
def test_any_answer_of_another_node_is_read(told: object, why: str) -> None:
    """A node of an older version gives no reason."""
    assert refusal("n2@h", told) == why


def test_log_and_status_name_the_node_that_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The node that refuses is asked again, until its consent to the other one ends."""
    world = World(1)
    waits, n1 = world.nodes["n2@h"], world.nodes["n1@h"]
    assert waits.consent.give("n3@h")
    monkeypatch.setattr(formation, "create", world.create)
    for name in ("WAITING_TOLD_S", "RETRY_S"):
        monkeypatch.setattr(f"node.clustering.waiting.{name}", 0.0)

    def note(text: str) -> None:
        n1.waited_for.append(text)
        waits.consent.withdraw("n3@h")

    n1.process = SimpleNamespace(wait_is=note)
    with caplog.at_level(logging.INFO):
        asyncio.run(formation._look_around(n1, n1))  # type: ignore[arg-type]
    reason = "node 'n2@h' lets node 'n3@h' create one"
    assert n1.waited_for == [f"waits for a cluster that another node may be about to create: {reason}"]
    assert reason in caplog.messages
    assert world.created == ["n1@h"]
