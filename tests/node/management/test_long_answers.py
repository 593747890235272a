"""Long lists: few at a time, and little held of what nobody reads."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from node.management import long_answers
from node.management.long_answers import MADE_AT_ONCE, LongAnswers
from node.management.reply import Reply, no_content, ok


class World:
    """Makes lists and counts them; each takes a while."""

    def __init__(self) -> None:
        self.at_once = self.most_at_once = 0
        self.answers = LongAnswers()
        self.go_on = asyncio.Event()

    async def handler(self) -> Reply:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.go_on.wait()
        finally:
            self.at_once -= 1
        return ok([{"name": str(n)} for n in range(1000)])

    async def ask(self) -> Reply:
        return await self.answers.make(self.handler)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def text(reply: Reply) -> bytes:
    assert reply.body is not None
    assert not isinstance(reply.body, bytes)
    return b"".join(reply.body)


def test_few_are_made_at_once_and_all_are_answered() -> None:
    async def story() -> None:
        world = World()
        asked = [asyncio.create_task(world.ask()) for _ in range(20)]
        await asyncio.sleep(0)
        assert world.at_once == MADE_AT_ONCE
        world.go_on.set()
        replies = await asyncio.gather(*asked)
        assert world.most_at_once == MADE_AT_ONCE
        assert all(len(json.loads(text(reply))) == 1000 for reply in replies[-1:])

    run(story())


def test_who_leaves_makes_room() -> None:
    async def story() -> None:
        world = World()
        asked = [asyncio.create_task(world.ask()) for _ in range(MADE_AT_ONCE + 1)]
        await asyncio.sleep(0)
        for each in asked[:MADE_AT_ONCE]:
            each.cancel()
        while world.most_at_once == 0 or asked[0].done() is False or world.at_once != 1:
            await asyncio.sleep(0)
        world.go_on.set()
        assert text(await asked[-1]).startswith(b'[{"name":"0"}')

    run(story())


def test_what_is_not_read_is_dropped_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        world = World()
        world.go_on.set()
        size = len(text(await world.ask()))
        monkeypatch.setattr(long_answers, "HELD_MAX_BYTES", 3 * size)
        slow = [await world.ask() for _ in range(5)]
        for reply in slow[:2]:
            with pytest.raises(ConnectionResetError):
                text(reply)
        assert [len(text(reply)) for reply in slow[2:]] == [size] * 3

    run(story())


def test_one_is_answered_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        world = World()
        world.go_on.set()
        monkeypatch.setattr(long_answers, "HELD_MAX_BYTES", 1)
        assert json.loads(text(await world.ask()))

    run(story())


@pytest.mark.parametrize("reply", [no_content(), ok([])])
def test_what_has_no_rows_goes_as_it_is(reply: Reply) -> None:
    async def handler() -> Reply:
        return reply

    async def story() -> None:
        assert await LongAnswers().make(handler) is reply

    run(story())
