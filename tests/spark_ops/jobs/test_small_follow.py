"""A small cluster is followed without Spark: telemetry comes in minute by minute, late, and sometimes too late."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

from spark_ops.health.settings import Settings
from spark_ops.jobs import small_health
from spark_ops.jobs.small_follow import follow, judge_now
from spark_ops.jobs.streaming import WATERMARK_S, Store
from spark_ops.telemetry.rounds import Rounds
from tests.kit.synthetic.faults import inject
from tests.kit.synthetic.telemetry import Row, Setup, rows
from tests.spark_ops.jobs.roots import write_slices

SETUP = Setup(hours=1.0, queues=2, interval_s=60.0)
START = SETUP.start_s // 60


@dataclass
class Site:
    """A root that fills as a collector fills it.   behind: by so many minutes the collector is late at a minute."""

    root: Path
    made: list[Row]
    behind: Callable[[int], int] = lambda _: 2
    done: int = START - 1
    raised: list[tuple[int, str]] = field(default_factory=list)
    cleared: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = Store(self.root, "synthetic")
        self.rounds = Rounds(self.root, [self.root / "in"], 60.0, START * 60.0)

    def run(self, first: int, last: int) -> None:
        """Let some minutes pass, and judge in each."""
        for minute in range(first, last):
            now_s = minute * 60.0
            until = max(self.done, minute - self.behind(minute))
            some = [row for row in self.made if self.done < row["ts"] // 60_000 <= until]
            if some:
                write_slices(self.root, some, 1)
            self.done = until
            self.rounds.renew(now_s)
            # Nodes close a segment each minute: all that was closed until then has been collected.
            self.rounds.ended(min(now_s, (until + 2) * 60.0), now_s)
            change = judge_now(
                self.root, self.store, "synthetic", window_s=1800, settings=Settings(), now_s=now_s
            )
            assert change is not None
            self.raised += [(minute, each) for each in change.raised]
            self.cleared += [(minute, each) for each in change.cleared]


def fault_begins(made: list[Row], node: str) -> int:
    """The minute after the node's last row."""
    return max(row["ts"] for row in made if row["node"] == node) // 60_000 + 1


@pytest.mark.slow
def test_a_node_that_is_killed_is_told_beside_a_collector_that_is_behind(tmp_path: Path) -> None:
    """The machine is busy: for eight minutes the collector comes to nothing. No cluster is down, and once the rows are
    there, the node that was killed meanwhile is told at once."""
    made = list(inject(SETUP, "node-down"))
    killed = fault_begins(made, "node2" if fault_begins(made, "node2") < START + 59 else "node3")
    node = next(name for name in ("node1", "node2", "node3") if fault_begins(made, name) == killed)
    behind = range(killed - 2, killed + 6)
    site = Site(tmp_path, made, lambda minute: minute - behind[0] + 2 if minute in behind else 2)
    site.run(START + 10, min(killed + 16, START + 60))
    assert [each for _, each in site.raised] == [f"node-down/{node}"]
    (told, _), *_ = site.raised
    assert told <= behind[-1] + 2
    assert not site.cleared


@pytest.mark.slow
def test_a_cluster_that_is_down_is_told_and_cleared_when_nodes_report_again(tmp_path: Path) -> None:
    """All nodes are silent for some minutes, and the collector sees that there is nothing to collect."""
    gap = range(START + 20, START + 30)
    site = Site(tmp_path, [row for row in rows(SETUP) if row["ts"] // 60_000 not in gap])
    site.run(START + 10, START + 50)
    down = [(minute, each) for minute, each in site.raised if each == "cluster-down"]
    assert len(down) == 1
    assert gap[0] + 3 <= down[0][0] <= gap[0] + 6
    cleared = [minute for minute, each in site.cleared if each == "cluster-down"]
    # Rows of the first minute after the gap come two minutes later.
    assert len(cleared) == 1
    assert cleared[0] <= gap[-1] + 2 + WATERMARK_S // 60 + 2


@pytest.mark.slow
def test_following_ends_when_windows_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round judges and waits; then Spark goes on with the same judgements."""
    write_slices(tmp_path, [row for row in rows(SETUP) if row["ts"] // 60_000 < START + 20], 1)
    clock = [(START + 20) * 60.0]

    def wait(seconds: float) -> None:
        clock[0] += seconds
        if len(found) == 2:
            monkeypatch.setattr(small_health, "ROWS_MAX", 10)

    store = Store(tmp_path, "synthetic")
    found: list[str] = []
    changes = follow(
        tmp_path,
        store,
        "synthetic",
        window_s=600,
        settings=Settings(),
        every_s=60.0,
        now=lambda: clock[0],
        wait=wait,
    )
    is_left = None
    while is_left is None:
        try:
            found.append(next(changes).document["verdict"])
        except StopIteration as stop:
            is_left = stop.value
    assert (found, is_left) == (["healthy", "healthy"], True)
    assert store.last() is not None
