"""Two brokers of one make, and the wait for messages that move between them."""

from pathlib import Path

import pytest

from bench.client import BenchError
from bench.pairs import another, uri, wait_for_length
from bench.servers import Fluffle, RabbitMQ


class Queue:
    """A connection to a queue that has these lengths, one after the other, the last one for ever."""

    def __init__(self, *lengths: int) -> None:
        self._lengths = list(lengths)

    def declare_queue(self, queue: str, *, durable: bool, passive: bool) -> int:
        assert (queue, durable, passive) == ("q", True, True)
        return self._lengths.pop(0) if len(self._lengths) > 1 else self._lengths[0]


@pytest.mark.real
def test_the_other_broker_is_of_the_same_make_and_checkout(tmp_path: Path) -> None:
    ours = Fluffle(checkout=tmp_path)
    other = another(ours)
    assert isinstance(other, Fluffle)
    assert other is not ours
    assert (other.checkout, other.name) == (tmp_path, ours.name)
    assert type(another(RabbitMQ())) is RabbitMQ
    other.port = 7
    assert uri(other) == "amqp://guest:guest@127.0.0.1:7"


@pytest.mark.real
def test_the_wait_ends_with_the_last_message() -> None:
    queue = Queue(0, 3, 3, 5)
    wait_for_length(queue, "q", 5)  # type: ignore[arg-type]
    assert queue._lengths == [5]


@pytest.mark.real
def test_a_queue_that_stalls_is_told() -> None:
    with pytest.raises(BenchError, match="5 messages were expected, and 3 came"):
        wait_for_length(Queue(3), "q", 5, stall_s=0.0)  # type: ignore[arg-type]
