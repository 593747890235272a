"""Nodes ask each other: what is refused, what cannot be asked, and who is asked next."""

import asyncio
from typing import Any

import pytest

from cluster.transport.interface import Unreachable
from node.clustering import requests
from node.clustering.calls import Calls
from node.clustering.errors import NO_ONLINE_NODES, Unreached
from node.clustering.requests import Applicant
from node.io.control import EX_SOFTWARE, EX_UNAVAILABLE, ControlError, refused


def applicant(name: str) -> Applicant:
    return Applicant(name, f"{name}:1", f"id-{name}", "disc")


class Net:
    """Nodes by their addresses. `asked`: the addresses, in order."""

    def __init__(self, *names: str) -> None:
        self.asked: list[str] = []
        self.nodes = {f"{name}:1": Calls(name, self.call) for name in names}
        self.asking = Calls("a", self.call)

    async def call(self, address: str, body: bytes, timeout_s: float) -> bytes:
        self.asked.append(address)
        if address not in self.nodes:
            raise Unreachable(address)
        return await self.nodes[address].answer("a", body)


async def name_of(name: str, body: dict[str, Any]) -> str:
    return f"{name}, {body['what']}"


async def refuse(name: str, body: dict[str, Any]) -> None:
    raise refused("no")


def test_an_answer_comes_with_who_asked() -> None:
    net = Net("b")
    net.nodes["b:1"].offer({"say": name_of})
    assert asyncio.run(net.asking.ask("b:1", {"do": "say", "what": "x"})) == "a, x"


def test_what_is_not_known_and_what_is_refused() -> None:
    net = Net("b")
    net.nodes["b:1"].offer({"refuse": refuse})
    with pytest.raises(ControlError, match="node 'b' does not know the request 'say'"):
        asyncio.run(net.asking.ask("b:1", {"do": "say"}))
    with pytest.raises(ControlError, match="no") as caught:
        asyncio.run(net.asking.ask("b:1", {"do": "refuse"}))
    assert caught.value.exit_code == EX_SOFTWARE
    assert "error" in requests.decode(asyncio.run(net.nodes["b:1"].answer("a", b"nonsense")))


def test_who_cannot_be_asked() -> None:
    with pytest.raises(Unreached) as caught:
        asyncio.run(Net().asking.ask("b:1", {"do": "say"}))
    assert caught.value.exit_code == EX_UNAVAILABLE


def test_one_after_the_other_is_asked_until_one_answers_or_refuses() -> None:
    net = Net("c", "d")
    net.nodes["c:1"].offer({"say": name_of, "refuse": refuse})
    all_three = [applicant(name) for name in "bcd"]
    assert asyncio.run(net.asking.ask_any(all_three, {"do": "say", "what": "x"})) == "a, x"
    with pytest.raises(ControlError, match="no"):
        asyncio.run(net.asking.ask_any(all_three, {"do": "refuse"}))
    assert net.asked == ["b:1", "c:1"] * 2
    with pytest.raises(ControlError, match=NO_ONLINE_NODES):
        asyncio.run(net.asking.ask_any([], {"do": "say"}))
