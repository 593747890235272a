"""Statistics cost little: memory of what is idle; steps of a sample, of rows that hold little, of a page."""

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

import pytest

from node.amqp.methods import QueueDeclare
from node.statistics.query import Query
from tests.kit.statistics_samples import Watched

QUEUES = 2_000
IDLE_BYTES = 1_000
"""A queue and a channel that do nothing take this much memory together."""
SAMPLE_CALLS: Final = 6
ROW_CALLS: Final = 10
PAGE_CALLS: Final = 350
"""An object on a page costs so many calls."""


@pytest.fixture(scope="module")
def found() -> Watched:
    found = Watched()
    for number in range(QUEUES // 100):
        client = found.world.client(*range(1, 101))
        for channel in range(1, 101):
            client.send(channel, QueueDeclare(queue=f"{number}.{channel}"))
        client.received()
    return found


def calls(steps: Callable[[], Iterator[Any]]) -> int:
    """Return how many functions of Python are called on the way: the same number on any machine, however busy."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        for _ in steps():
            pass
    finally:
        sys.setprofile(None)
    return count


def test_what_is_idle_costs_its_last_values(found: Watched) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found.tick(3)
        assert tracemalloc.get_traced_memory()[0] - before < QUEUES * IDLE_BYTES
    finally:
        tracemalloc.stop()
    assert found.statistics._watches.budget.used_bytes < 10_000  # of the totals, which had moved


def test_a_sample_of_what_is_idle(found: Watched) -> None:
    """One of a queue and one of a channel, in slices."""

    def sample() -> Iterator[None]:
        found.world.now += 5
        return found.statistics.sample(found.world.now, found.time_ms)

    list(sample())
    assert calls(sample) < SAMPLE_CALLS * 2 * QUEUES
    assert len(list(sample())) > QUEUES // 500


def test_rows_with_one_field(found: Watched) -> None:
    query = Query(fields=frozenset({"messages"}))
    assert calls(lambda: found.statistics.rows("queues", query)) < ROW_CALLS * QUEUES


def test_a_page_costs_no_more_than_what_is_on_it(found: Watched) -> None:
    ids = tuple(str(row["id"]) for row in found.rows("queues", Query(fields=frozenset()))[:10])
    assert calls(lambda: found.statistics.rows("queues", Query(ids=ids))) < PAGE_CALLS * len(ids)
