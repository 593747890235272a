"""The frames that the workloads of STOMP send and read."""

import time

import pytest

from bench.client import BenchError
from bench.stomp import _read_timed, _sends, _timed_send


def test_prepared_frames_have_numbered_bodies() -> None:
    first, second, rest = _sends(2).split(b"\0")
    assert rest == b"\n"
    assert len(first.partition(b"\n\n")[2]) == len(second.partition(b"\n\n")[2]) == 100
    assert first.partition(b"\n\n")[2] != second.partition(b"\n\n")[2]


def test_the_time_of_a_message_is_in_its_body() -> None:
    before = time.perf_counter_ns()
    frame = _timed_send(7).removesuffix(b"\0\n")
    message = b"\nMESSAGE\nsubscription:1\n\n" + frame.partition(b"\n\n")[2]
    number, sent_ns = _read_timed(message)
    assert number == 7
    assert before <= sent_ns <= time.perf_counter_ns()


@pytest.mark.parametrize("frame", [b"ERROR\nmessage:x\n\n" + b"1" * 100, b"MESSAGE\n\n" + b"x" * 100])
def test_other_frames_are_faults(frame: bytes) -> None:
    with pytest.raises(BenchError):
        _read_timed(frame)
