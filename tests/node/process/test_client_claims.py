"""Claims of names are asked of the other nodes, many in one question."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from node.client.client_names import Claim
from node.io.control import ControlError
from node.process.client_claims import CLAIMS_MAX, ClientClaims, released
from tests.kit.world import World
from tests.node.client.told_protocol import ToldClient


class Others:
    """The other nodes.   older: the names of which they have later claims."""

    def __init__(self, older: set[str]) -> None:
        self.older = older
        self.sizes: list[int] = []

    async def ask_all(self, question: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        assert question == "release_clients"
        claims = arguments["claims"]
        self.sizes.append(len(claims))
        await asyncio.sleep(0)
        return {"n2": [], "n3": [place for place, each in enumerate(claims) if each[2] in self.older]}


def test_claims_that_come_meanwhile_are_one_question() -> None:
    async def run() -> None:
        others = Others({"c5"})
        claims = ClientClaims(others)
        answers: dict[str, bool] = {}
        for number in range(CLAIMS_MAX + 10):
            name = f"c{number}"
            claim = Claim("mqtt", "/", name, (1, "n1", number))
            claims.ask(claim, lambda is_older, name=name: answers.update({name: is_older}))
        while len(answers) < CLAIMS_MAX + 10:
            await asyncio.sleep(0)
        assert others.sizes == [CLAIMS_MAX, 10]
        assert [name for name, is_older in answers.items() if is_older] == ["c5"]

    asyncio.run(run())


def test_another_nodes_claims_release_the_names_here() -> None:
    world = World()
    clients = [ToldClient.opened(world) for _ in range(2)]
    for number, client in enumerate(clients):
        client.session.claim_name(f"c{number}", lambda: None)
    names = world.broker.client_names
    claims = [
        ["told", "/", "c0", 1 << 60, "n2", 1],
        ["told", "/", "c1", 0, "n2", 2],
        ["told", "/", "c9", 1, "n2", 3],
    ]
    assert released(names, claims) == [1]
    assert clients[0].told() == ["replaced", "lost"]
    assert clients[1].told() == []


@pytest.mark.parametrize("claims", [None, [1], [["a", "b", "c"]], [["a", "b", "c", "d", "e", "f"]]])
def test_malformed_claims_are_refused(claims: object) -> None:
    with pytest.raises(ControlError):
        released(World().broker.client_names, claims)
