"""For how long the loop is held: each who watches has the longest time, and nobody takes it from the others."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.io.loop_lag import SAMPLE_S, LoopLag


def test_the_longest_until_it_is_taken() -> None:
    """The longest lag, of what was told and of a late timer, stays until it is taken."""

    async def story() -> None:
        lag = LoopLag()
        longest = lag.watch()
        lag.held(0.010)
        lag.held(0.002)
        lag.late(0.00005)
        assert longest.ms == 10.0
        assert longest.take_ms() == 10.0
        assert longest.take_ms() == 0.0
        lag.late(0.003)
        assert longest.take_ms() == 3.0
        assert sum(lag.histogram) == 2  # of the timer alone: a piece of work is no sample
        lag.leave(longest)

    asyncio.run(story())


@given(st.lists(st.floats(0, 10) | st.sampled_from(["first", "second"]), max_size=30))
def test_each_who_watches_misses_nothing(steps: list[float | str]) -> None:
    """However often the others look."""

    async def story() -> None:
        lag = LoopLag()
        watching = {"first": lag.watch(), "second": lag.watch()}
        expected = dict.fromkeys(watching, 0.0)
        for step in steps:
            if isinstance(step, str):
                assert watching[step].take_ms() == round(expected[step] * 1000, 3)
                expected[step] = 0.0
            else:
                lag.held(step)
                expected = {name: max(known, step) for name, known in expected.items()}
        for each in watching.values():
            lag.leave(each)

    asyncio.run(story())


def test_what_was_before_counts_for_nobody() -> None:
    """A watcher sees only what comes after it began, and the timer ends with the last watcher."""

    async def story() -> None:
        lag = LoopLag()
        lag.held(5.0)
        first = lag.watch()
        assert first.ms == 0.0
        lag.leave(first)
        lag.leave(first)
        await asyncio.sleep(0)
        assert not sum(lag.histogram)

    asyncio.run(story())


@pytest.mark.real
def test_a_loop_that_is_held_is_seen() -> None:
    """By the timer, whoever holds it and says nothing."""

    async def story() -> None:
        lag = LoopLag()
        longest = lag.watch()
        time.sleep(2 * SAMPLE_S)
        while not sum(lag.histogram):
            await asyncio.sleep(0)
        assert longest.take_ms() >= SAMPLE_S * 1000 * 0.9
        lag.leave(longest)

    asyncio.run(story())
