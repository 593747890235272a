"""A few rounds of the kill loop and of the stop loop. `make faults` runs as many as one likes."""

import pytest

from tests.durability.kill_loop import run

pytestmark = pytest.mark.slow


def test_kill_under_load() -> None:
    """`kill -9` at any moment: what was confirmed is there, nothing comes back that was gone, all of it redelivered."""
    assert [result.count.problems for result in run(5, seed=1)] == [[]] * 5


def test_stop_under_load() -> None:
    """SIGTERM at any moment: the same, and only what a client had says redelivered."""
    assert [result.count.problems for result in run(3, seed=1, stops=True)] == [[]] * 3
