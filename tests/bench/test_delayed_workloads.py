"""The workloads of delayed exchanges: what they publish, and how lateness is told."""

import pytest

from bench.client import BenchError
from bench.delayed_workloads import BODY_BYTES, DELAYED_WORKLOADS, Batch, Fired, Published, batches, lateness
from bench.frames import FrameReader


class Silent:
    """A connection from which a test feeds what comes."""

    def take_received(self) -> bytes:
        return b""


def fired(count: int, *times: float) -> Fired:
    found = Fired(Silent(), count)  # type: ignore[arg-type]
    found.delivered_at = list(times)
    return found


def test_a_plan_spreads_delays_evenly_and_in_no_order() -> None:
    plan = batches(1000, 10, 5000, 2000)
    assert [batch.first for batch in plan] == list(range(0, 1000, 10))
    delays = [batch.delay_ms for batch in plan]
    assert sorted(delays) == list(range(5000, 7000, 20))
    assert delays != sorted(delays)


def test_publishes_of_a_batch_have_one_length_and_their_numbers() -> None:
    data = Batch(7, 3, 60_000).data
    assert len(data) % 3 == 0
    frames = FrameReader().feed(data)
    bodies = [payload for kind, payload in frames if kind == 3]
    assert [int.from_bytes(body[:8], "big") for body in bodies] == [7, 8, 9]
    assert {len(body) for body in bodies} == {BODY_BYTES}
    assert all(b"x-delayI" + (60_000).to_bytes(4, "big") in payload for kind, payload in frames if kind == 2)


def test_lateness_counts_from_the_sending_of_the_buffer() -> None:
    plan = [Batch(0, 2, 1000), Batch(2, 2, 500)]
    published = Published([(0, 10.0), (2, 10.5)], 1.0)
    late = lateness(plan, published, fired(4, 11.0, 11.25, 11.0, 11.5))
    assert late == [0.0, 0.25, 0.0, 0.5]
    with pytest.raises(BenchError, match="early"):
        lateness(plan, published, fired(4, 10.9, 11.25, 11.0, 11.5))


def test_all_run_on_fluffle_alone_and_from_a_disk() -> None:
    """RabbitMQ 3.10.8 has no such exchange."""
    assert all(workload.alone and workload.keeps for workload in DELAYED_WORKLOADS)
