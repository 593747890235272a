"""Clients of plug-ins' protocols go to nodes that nothing is done to, and leave in peace or without a word."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.chaos.cluster import ChaosNode
from tests.chaos.plugin_load import PluginLoad, RoamingClient


class Lost(Exception):
    """The connection has ended, or was refused."""


class Link:
    """A connection.   said: what its client has done with it."""

    def __init__(self) -> None:
        self.lost: Exception | None = None
        self.said: list[str] = []

    def abort(self) -> None:
        self.said.append("abort")


class Roamer(RoamingClient[Link]):
    """A client whose goodbye is answered, or not.   fails: what is raised instead of an answer."""

    def __init__(self, random: Random, fails: Exception | None = None) -> None:
        super().__init__(random)
        self._fails = fails

    async def _say_goodbye(self, connection: Link) -> None:
        connection.said.append("goodbye")
        if self._fails is not None:
            raise self._fails

    def leave(self, link: Link) -> list[str]:
        """End a connection. Returns: what was done with it."""
        asyncio.run(self._leave(link, Lost))
        return link.said


class Fixed(Random):
    """Chance that is always the same."""

    def __init__(self, value: float) -> None:
        super().__init__(1)
        self._value = value

    def random(self) -> float:
        return self._value


def load(victims: set[int], seed: int = 1) -> PluginLoad:
    """A load of three nodes, of which something is done to some."""
    made = PluginLoad.__new__(PluginLoad)
    made.load = cast(Any, SimpleNamespace(victims=victims))
    made._cluster = cast(Any, SimpleNamespace(nodes=["n1", "n2", "n3"]))
    made._random = Random(seed)
    return made


@pytest.mark.parametrize("seed", range(8))
def test_a_node_that_something_is_done_to_is_tried_last(seed: int) -> None:
    tried: list[object] = []

    async def connect(node: ChaosNode) -> Link:
        tried.append(node)
        if len(tried) < 3:
            raise (Lost if len(tried) == 1 else TimeoutError)("not here")
        return Link()

    joined = asyncio.run(load({1}, seed).join_any(connect, Lost))
    assert joined is not None
    assert joined.node == 1
    assert tried[-1] == "n2"
    assert set(tried) == {"n1", "n2", "n3"}


def test_no_node_accepts() -> None:
    async def connect(node: ChaosNode) -> Link:
        raise Lost("not here")

    assert asyncio.run(load(set()).join_any(connect, Lost)) is None


def test_a_fault_of_the_test_is_not_taken_for_a_node_that_refuses() -> None:
    async def connect(node: ChaosNode) -> Link:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        asyncio.run(load(set()).join_any(connect, Lost))


def test_half_of_the_connections_end_in_peace() -> None:
    assert Roamer(Fixed(0.4)).leave(Link()) == ["goodbye", "abort"]
    assert Roamer(Fixed(0.6)).leave(Link()) == ["abort"]


def test_a_connection_that_is_lost_gets_no_goodbye() -> None:
    link = Link()
    link.lost = Lost("gone")
    assert Roamer(Fixed(0.0)).leave(link) == ["abort"]


@pytest.mark.parametrize("fails", [Lost("gone"), TimeoutError()])
def test_a_goodbye_that_fails_still_closes_the_connection(fails: Exception) -> None:
    assert Roamer(Fixed(0.0), fails).leave(Link()) == ["goodbye", "abort"]
