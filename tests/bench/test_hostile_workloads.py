"""The bystander: when it looks, what it says, and how it hears of a load that fails."""

from types import TracebackType
from typing import Any, Self

import pytest

from bench import hostile_workloads as hostile
from bench.client import BenchError
from bench.hostile_loads import Flood
from bench.hostile_workloads import HOSTILE_WORKLOADS, Bystander
from bench.workloads import Scale

SHORT = Scale(0.01, 10)


class Answering:
    """A connection that answers at once. Each has the port that it was made for."""

    asked: list[tuple[int, str]]

    def __init__(self, port: int) -> None:
        self.port = port

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open."""

    def declare_queue(self, queue: str, *, passive: bool = False) -> int:
        self.asked.append((self.port, queue))
        return 0


class Broker:
    """Has memory as it is told, and no process."""

    def __init__(self, *ports: int, rss_mb: tuple[int, ...] = (1,)) -> None:
        self.ports = ports
        self._rss_mb = list(rss_mb)

    def cpu_s(self) -> float:
        return 0.0

    def rss_bytes(self) -> int:
        return 10**6 * (self._rss_mb.pop(0) if len(self._rss_mb) > 1 else self._rss_mb[0])


@pytest.fixture(autouse=True)
def _answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answering, "asked", [], raising=False)
    monkeypatch.setattr(hostile, "Connection", Answering)
    monkeypatch.setattr(hostile, "PAUSE_S", 0.0)
    monkeypatch.setattr(hostile, "POLL_S", 0.0)


def until_the_end(broker: Any, flood: Flood) -> None:
    flood.begun.set()
    assert flood.ended.wait(10.0)


def test_each_node_has_a_bystander() -> None:
    """With a queue of its own."""
    outcome = Bystander(until_the_end)(Broker(1, 2, 3), SHORT)
    assert set(Answering.asked) == {(port, f"bench.bystander{port - 1}") for port in (1, 2, 3)}
    assert set(outcome.metrics) == {"idle_p99", "p99", "longest", "times"}
    assert outcome.metrics["p99"] <= outcome.metrics["longest"]
    assert outcome.message_count >= 3


def test_a_load_that_is_over_ends_the_looking() -> None:
    """Long before the time that it may take."""

    def once(broker: Any, flood: Flood) -> None:
        flood.begun.set()
        flood.ended.set()

    assert Bystander(once, is_once=True)(Broker(1), SHORT).elapsed_s < hostile.OVER_S / 2


def test_a_load_that_fails_is_told() -> None:
    """While it prepares, and afterwards."""

    def broken(broker: Any, flood: Flood) -> None:
        raise BenchError("refused")

    def breaks(broker: Any, flood: Flood) -> None:
        flood.begun.set()
        raise BenchError("cut off")

    for load, text in ((broken, "refused"), (breaks, "cut off")):
        with pytest.raises(BenchError, match=text):
            Bystander(load)(Broker(1), SHORT)


def test_a_load_that_never_begins_is_told() -> None:
    with pytest.raises(BenchError, match="not prepared"):
        Bystander(lambda broker, flood: None)(Broker(1), SHORT)


def test_memory_before_at_the_top_and_after() -> None:
    """After: when it is back, which is a tenth more than before at most."""

    class Watched(Broker):
        """Goes up while it is flooded, and down by and by."""

        level = 100

        def rss_bytes(self) -> int:
            self.level = max(100, self.level - 50)
            return 10**6 * self.level

    watched = Watched(1)

    def flood_it(broker: Any, flood: Flood) -> None:
        flood.begun.set()
        assert flood.ended.wait(10.0)
        watched.level = 550

    metrics = Bystander(flood_it, watches_memory=True)(watched, Scale(0.01, 1)).metrics
    assert metrics["rss_before"] == metrics["rss_after"] == 100
    assert metrics["rss_top"] == 500


def test_memory_that_does_not_come_back_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hostile, "AFTER_S", 0.05)
    metrics = Bystander(until_the_end, watches_memory=True)(Broker(1, rss_mb=(100, 500)), SHORT).metrics
    assert (metrics["rss_before"], metrics["rss_top"], metrics["rss_after"]) == (100, 500, 500)


def test_what_rows_say_is_measured() -> None:
    """Memory where it is watched; all rows have brokers that were started for them alone."""
    assert all(workload.fresh for workload in HOSTILE_WORKLOADS)
    watched = [
        (workload, workload.run) for workload in HOSTILE_WORKLOADS if isinstance(workload.run, Bystander)
    ]
    assert len(watched) > 5
    for workload, run in watched:
        assert ("rss_top" in {row.metric for row in workload.rows}) is run.watches_memory
        assert workload.clustered is run.is_once
        assert workload.managed is (run.prepare is not None)
