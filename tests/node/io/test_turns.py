"""Long work in slices."""

import asyncio

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
