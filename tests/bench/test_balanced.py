"""Traffic with a backlog that stays: rates within a span of time."""

import threading

import pytest

from bench.balanced import Balanced
from bench.cluster_servers import Span


def test_rate_is_of_what_was_acknowledged_in_that_time() -> None:
    """As of the last sample before each end of it."""
    traffic = Balanced.__new__(Balanced)
    traffic.ended = threading.Event()
    traffic._samples = [(0.0, 0), (1.0, 100), (2.0, 100), (3.0, 400), (4.0, 800)]
    assert traffic.rate(Span(1.5, 3.5)) == pytest.approx(150)
    assert traffic.rate(Span(1.1, 2.9)) == 0
    assert traffic.rate(Span(3.0, 4.5)) == pytest.approx(400 / 1.5)
