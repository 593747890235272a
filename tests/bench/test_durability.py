"""The workloads on disk: what their counts must satisfy."""

import pytest

from bench.durability import DURABLE_WORKLOADS, PREFETCH
from bench.workloads import FULL, QUICK, Scale


@pytest.mark.parametrize("scale", [FULL, QUICK])
def test_a_paged_queue_holds_more_than_is_taken(scale: Scale) -> None:
    """The consumer must be ended by its prefetch, not by the end of the queue."""
    assert 10_000_000 // scale.divisor > 2 * PREFETCH
    assert PREFETCH < 1 << 16


def test_all_of_them_keep_messages() -> None:
    """That is why the bench syncs before them, and leaves them out beside another version."""
    assert all(workload.keeps for workload in DURABLE_WORKLOADS)
