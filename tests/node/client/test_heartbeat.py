"""amqp-behaviour §1.6, without a connection around it."""

import pytest

from node.client.heartbeat import Heartbeat
from node.scheduling.timers import Timers


class Line:
    """Records what a heartbeat of two seconds does, by the second; time runs in half intervals."""

    def __init__(self, *, excused: bool = False) -> None:
        self.timers = Timers()
        self.now = 100.0
        self.beats: list[float] = []
        self.lost_at: float | None = None
        self.heartbeat = Heartbeat(
            self.timers,
            beat=lambda: self.beats.append(self.now - 100),
            excuses=lambda: excused,
            lost=self._lose,
        )

    def _lose(self) -> None:
        self.lost_at = self.now - 100

    def second(self) -> None:
        self.now += 1
        self.timers.run(self.now)


def test_a_beat_each_half_interval_when_nothing_is_said() -> None:
    """§1.6: a check each heartbeat/2 from the first on; dropped at the second whole interval without octets."""
    line = Line()
    line.heartbeat.has_spoken = True  # open-ok went out before the first check, which beats all the same
    line.heartbeat.start(2, line.now)
    for _ in range(4):
        line.second()
    assert line.beats == [1, 2, 3]
    assert line.lost_at == 4
    assert line.timers.next_deadline() is None


def test_no_beat_after_we_said_something() -> None:
    """§1.6: only if no octets were sent since the last check."""
    line = Line()
    line.heartbeat.start(2, line.now)
    line.second()
    line.heartbeat.has_heard = line.heartbeat.has_spoken = True
    line.second()
    line.second()
    assert line.beats == [1, 3]


@pytest.mark.parametrize("heard", [(1, 3, 5), (0, 3, 4, 7)])
def test_any_octets_in_each_interval_keep_the_connection(heard: tuple[int, ...]) -> None:
    """§1.6: any octets count; one silent interval is forgiven."""
    line = Line()
    line.heartbeat.start(2, line.now)
    for second in range(8):
        if second in heard:
            line.heartbeat.has_heard = True
        line.second()
    assert line.lost_at is None


def test_silence_of_our_doing_is_excused() -> None:
    """§1.6: the client isn't watched while we don't read from it; we go on beating."""
    line = Line(excused=True)
    line.heartbeat.start(2, line.now)
    for _ in range(10):
        line.second()
    assert line.lost_at is None
    assert len(line.beats) == 10


@pytest.mark.parametrize("stopped", [False, True])
def test_no_timers_without_an_interval_or_after_the_end(stopped: bool) -> None:
    """§1.4 row heartbeat: 0 disables both directions."""
    line = Line()
    line.heartbeat.start(2 if stopped else 0, line.now)
    if stopped:
        line.heartbeat.stop()
    for _ in range(10):
        line.second()
    assert line.beats == []
    assert line.lost_at is None
