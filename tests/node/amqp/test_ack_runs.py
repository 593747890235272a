"""Runs of single acknowledgements are one call; what is not one of them ends a run."""

import pytest

from node.amqp.ack_runs import AckRuns
from node.amqp.frames import method_frame
from node.amqp.methods import BasicAck


class _Reader(AckRuns):
    """A reader that is its own sink."""

    def __init__(self) -> None:
        self._sink = self
        self.runs: list[tuple[int, int, int]] = []

    def on_acks(self, channel: int, first: int, last: int) -> None:
        self.runs.append((channel, first, last))

    def read(self, data: bytes, pos: int = 0, channel: int = 1) -> int:
        """Read what begins at `pos`."""
        return self._acks(data, pos, len(data), channel)


def _ack(tag: int, *, channel: int = 1, multiple: bool = False) -> bytes:
    return method_frame(channel, BasicAck(delivery_tag=tag, multiple=multiple))


SIZE = len(_ack(1))


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (_ack(5), 1),
        (_ack(5) + _ack(6) + _ack(7), 3),
        (_ack(5) + _ack(7), 1),
        (_ack(5) + _ack(5), 1),
        (_ack(5) + _ack(6, channel=2), 1),
        (_ack(5) + _ack(6, multiple=True), 1),
        (_ack(5) + _ack(6)[:-1], 1),
        (_ack(5) + _ack(6)[:-1] + b"\0", 1),
        (_ack(5) + _ack(6) + b"more", 2),
    ],
)
def test_a_run_ends_with_the_last_single_ack_with_the_next_number(data: bytes, count: int) -> None:
    reader = _Reader()
    assert reader.read(b"before" + data, 6) == 6 + count * SIZE
    assert reader.runs == [(1, 5, 4 + count)]


@pytest.mark.parametrize("data", [b"", _ack(5)[:-1], _ack(5, multiple=True), _ack(5)[:-1] + b"\0"])
def test_nothing_is_taken_unless_the_first_is_whole_single_and_flawless(data: bytes) -> None:
    reader = _Reader()
    assert reader.read(data) == 0
    assert reader.runs == []
