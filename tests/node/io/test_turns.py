"""Long work in slices."""

import asyncio
import gc
import weakref

import pytest

from node.io import turns


def test_what_an_iterator_gives_is_taken_while_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    seen: list[int] = []

    async def other() -> None:
        while True:
            seen.append(1)
            await asyncio.sleep(0)

    async def story() -> list[int]:
        task = asyncio.create_task(other())
        found = await turns.taken(iter(range(1000)))
        task.cancel()
        return found

    assert asyncio.run(story()) == list(range(1000))
    assert len(seen) >= 1000 // turns.BETWEEN_LOOKS - 1


def test_short_work_gives_nothing_away() -> None:
    async def story() -> list[int]:
        coroutine = turns.taken(range(10))
        with pytest.raises(StopIteration) as ended:
            coroutine.send(None)
        found: list[int] = ended.value.value
        return found

    assert asyncio.run(story()) == list(range(10))


def test_all_long_work_has_one_slice_in_a_round_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    done: list[int] = []
    most = 0

    async def long_work(number: int) -> None:
        await turns.next_slice()
        for _ in range(10):
            done.append(number)
            await turns.next_slice()

    async def story() -> None:
        nonlocal most
        tasks = [asyncio.create_task(long_work(number)) for number in range(5)]
        gone = asyncio.create_task(long_work(5))
        await asyncio.sleep(0)
        gone.cancel()
        while not all(task.done() for task in tasks):
            before = len(done)
            await asyncio.sleep(0)
            most = max(most, len(done) - before)

    asyncio.run(story())
    assert most == 1
    assert sorted(done[:5]) == list(range(5))  # none goes twice before all have gone once
    assert [done.count(number) for number in range(6)] == [10] * 5 + [0]


def test_a_loop_that_has_ended_is_freed() -> None:
    async def story() -> "weakref.ref[asyncio.AbstractEventLoop]":
        await turns.next_slice()
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(story())
    gc.collect()
    assert loop() is None
