"""Pages of metrics: shared, few, and dropped where they are not read."""

import asyncio
import gc
import weakref
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from node.management import expositions
from node.management.expositions import Expositions, Page


class World:
    """Makes pages and counts them; a page takes a while."""

    def __init__(self) -> None:
        self.now = 0.0
        self.made = self.at_once = self.most_at_once = 0
        self.pages = Expositions(lambda: self.now)

    async def make(self) -> Sequence[bytes]:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.made += 1
        self.at_once -= 1
        return [b"page %d" % self.made, b"rest"]

    async def ask(self, wanted: str = "sums") -> Page:
        return await self.pages.page(wanted, self.make)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_a_page_is_shared_for_a_second() -> None:
    async def story() -> None:
        world = World()
        pages = await asyncio.gather(*(world.ask() for _ in range(100)))
        assert len({id(page) for page in pages}) == 1
        world.now = 0.9
        assert await world.ask() is pages[0]
        world.now = 1.0
        assert (await world.ask())[0] == b"page 2"

    run(story())


def test_pages_are_made_one_at_a_time() -> None:
    async def story() -> None:
        world = World()
        await asyncio.gather(*(world.ask(f"vhost {number}") for number in range(20)))
        assert (world.made, world.most_at_once) == (20, 1)

    run(story())


def test_a_slow_readers_page_is_dropped_for_a_third_one() -> None:
    async def story() -> None:
        world = World()
        pages = [await world.ask(kind) for kind in ("a", "b", "c")]
        with pytest.raises(ConnectionResetError):
            list(pages[0])
        assert [list(page)[1] for page in pages[1:]] == [b"rest"] * 2
        assert (await world.ask("a"))[0] == b"page 4", "what was dropped is shared with nobody"

    run(story())


def test_nothing_is_held_when_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        world = World()
        page = weakref.ref(await world.ask())
        while page() is not None:
            await asyncio.sleep(0)
            gc.collect()
        assert not world.pages._shared

    monkeypatch.setattr(expositions, "SHARED_S", 0.0)
    run(story())


def test_who_asked_first_may_leave() -> None:
    """A page is made for those who still wait, though the first to ask has left."""

    async def story() -> None:
        world = World()
        first, second = asyncio.ensure_future(world.ask()), asyncio.ensure_future(world.ask())
        await asyncio.sleep(0)
        first.cancel()
        assert len(await second) == 2

    run(story())
