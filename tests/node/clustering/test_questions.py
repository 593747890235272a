"""Nodes ask each other, and what is long goes in parts."""

import asyncio
import json
import logging
from typing import Any

import pytest

from node.clustering import packing, questions
from node.clustering.questions import Questions
from node.io.control import ControlError


def test_questions_go_to_the_nodes_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two nodes, whose links are a function call here."""
    monkeypatch.setattr(questions, "ANSWER_S", 60.0)
    monkeypatch.setattr(packing, "PART_CHARACTERS", 10_000)

    class Links:
        def __init__(self) -> None:
            self.other: Questions | None = None

        def others(self) -> list[Any]:
            return [Known("b"), Known("down"), Known("w", "witness")]

        async def ask(self, address: str, body: dict[str, Any], timeout_s: float) -> Any:
            assert address == "b:1"
            assert self.other is not None
            return json.loads(json.dumps(await self.other.answers[body["do"]]("a", body)))

    class Known:
        def __init__(self, name: str, node_type: str = "disc") -> None:
            self.name, self.address, self.type, self.is_up = name, f"{name}:1", node_type, name != "down"

    class Cluster:
        def __init__(self) -> None:
            self.voting = self.calls = Links()
            self.roster = self
            self.members = {each.name: each for each in self.voting.others()}

    def questions_of(name: str, cluster: Any) -> Questions:
        async def double(arguments: Any) -> list[str]:
            return [f"{name}{each}" for each in arguments["of"]]

        return Questions(name, {"double": double}, lambda: cluster, logging.getLogger("test"))

    cluster = Cluster()
    asking = questions_of("a", cluster)
    cluster.calls.other = questions_of("b", None)

    async def story() -> None:
        assert await asking.ask("b", "double", {"of": ["1"]}) == ["b1"]
        assert await asking.ask_all("double", {"of": ["1"]}) == {"a": ["a1"], "b": ["b1"]}
        assert await asking.ask_all("double", {"of": []}, ["b", "nowhere"]) == {"b": []}
        numbers = [str(number * 2654435761 % 2**32) for number in range(50_000)]
        assert await asking.ask("b", "double", {"of": numbers}) == [f"b{each}" for each in numbers]
        with pytest.raises(ControlError, match="not running"):
            await asking.ask("down", "double", {})
        with pytest.raises(ControlError, match="no question"):
            await asking.ask("b", "nonsense", {})
        for body in ({}, {"arguments": "x"}, {"arguments": ["x"]}, {"arguments": [1]}):
            with pytest.raises(ControlError):
                await cluster.calls.ask("b:1", {"do": "question", "question": "double", **body}, 1.0)
        with pytest.raises(ControlError):
            await cluster.calls.ask("b:1", {"do": "question_part", "number": 9, "part": 0}, 1.0)

    asyncio.run(story())
