"""Paced traffic: what is noted of confirms, deliveries and their order, and what counts as an error."""

import struct
from typing import Any

import pytest

from bench import frames as f
from bench.client import BenchError
from bench.loops import TimedMessage
from bench.paced import BODY_BYTES, Paced, _Run


class Wire:
    """Stands for a connection and its socket. `sent`: all bytes."""

    channel = 1

    def __init__(self) -> None:
        self.sent = b""
        self.socket = self

    def settimeout(self, seconds: float) -> None:
        """Nothing waits here."""

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def select_confirms(self) -> None:
        """Return at once, as confirms are on."""


def run_of(count: int) -> tuple[Any, Wire]:
    """A run that has published all, number n at time n; and the consumer's side."""
    consumer = Wire()
    run = _Run(Wire(), consumer, "q", count)  # type: ignore[arg-type]
    for number in range(1, count + 1):
        run.publish(float(number))
    return run, consumer


def answer(tag: int, *, multiple: bool = False, ids: tuple[int, int] = f.ACK) -> bytes:
    return f.method(1, ids, struct.pack(">QB", tag, multiple))


def delivery(tag: int, number: int) -> bytes:
    head = f.short_string("c") + struct.pack(">QB", tag, 1) + f.short_string("") + f.short_string("q")
    body = TimedMessage.STAMP.pack(number, 0).ljust(BODY_BYTES, b"\0")
    return f.method(1, f.DELIVER, head) + f.content(1, f.PERSISTENT, body)


def test_each_confirm_is_timed_from_its_publish() -> None:
    """Each confirm is timed from its publish, also where one answer is for several; a nack is no confirm."""
    run, _ = run_of(4)
    run._take_answers(answer(3, multiple=True), 10.0)
    run._take_answers(answer(4, ids=f.NACK), 11.0)
    assert run.seen.confirm_waits_s == [9.0, 8.0, 7.0]
    assert run.seen.confirmed_at == [10.0] * 3
    assert run.seen.nacked_count == 1


def test_a_publish_is_answered_once() -> None:
    run, _ = run_of(2)
    run._take_answers(answer(1), 3.0)
    with pytest.raises(BenchError, match="publish 1 is answered twice"):
        run._take_answers(answer(1), 4.0)


def test_deliveries_are_acknowledged_and_counted() -> None:
    """In whatever pieces they come; one that came before is told apart."""
    run, consumer = run_of(2)
    data = delivery(1, 1) + delivery(2, 1) + delivery(3, 2)
    run._take_deliveries(data[:150], 5.0)
    run._take_deliveries(data[150:], 6.0)
    assert run.seen.delivered_at == [6.0] * 3 or run.seen.delivered_at == [5.0, 6.0, 6.0]
    assert run.seen.repeated_count == 1
    assert consumer.sent == b"".join(f.ack(1, tag, multiple=False) for tag in (1, 2, 3))


def test_it_is_complete_when_what_was_confirmed_is_delivered() -> None:
    """A run is complete when its confirmed messages are delivered; nacked ones may be delivered or not."""
    run, _ = run_of(2)
    run._take_answers(answer(1) + answer(2, ids=f.NACK), 3.0)
    assert not run.is_complete
    assert "1 confirmed but not delivered" in run.state()
    run._take_deliveries(delivery(1, 1), 4.0)
    assert run.is_complete


def test_what_was_not_published_is_an_error() -> None:
    run, _ = run_of(1)
    with pytest.raises(BenchError, match="not what was published"):
        run._take_deliveries(delivery(1, 2), 2.0)
    with pytest.raises(BenchError, match="no delivery"):
        run._take_deliveries(f.method(1, f.CANCEL, f.short_string("c") + b"\0"), 2.0)
    with pytest.raises(BenchError, match="neither ack nor nack"):
        run._take_answers(f.method(1, f.CHANNEL_CLOSE, b"\0" * 8), 2.0)


def test_the_longest_gap_is_one_that_ends_after_the_strike() -> None:
    """The one in which the strike was counts from before it."""
    seen = Paced(0, struck_at=10.0)
    assert seen.longest_gap_s([1.0, 9.0, 9.8, 10.2, 10.3, 10.9]) == pytest.approx(0.6)
    assert seen.longest_gap_s([9.0, 10.5, 10.6]) == pytest.approx(1.5)
    assert seen.longest_gap_s([1.0]) == 0.0
