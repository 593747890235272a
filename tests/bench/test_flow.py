"""A run's publishers and consumers, without a broker."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from bench.client import BenchError
from bench.flow import PlainPublisher, Progress
from bench.frames import Chunk


@pytest.mark.parametrize("said", [b"connection.close", b""])
def test_a_publisher_that_waits_notices_that_the_broker_ended_its_connection(said: bytes) -> None:
    """A publisher that is as far ahead as it may be notices the end of its connection, or would wait for ever."""
    ours, theirs = socket.socketpair()
    consumer: Any = SimpleNamespace(delivery_count=0)
    connection: Any = SimpleNamespace(socket=ours)
    with ours, theirs:
        publisher = PlainPublisher(connection, [Chunk(b"publish", 10, 10)], ahead_count_max=5)
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(BenchError, match="ended the publisher's connection"):
            publisher.run(Progress([publisher], [consumer]))
        assert publisher.message_count == 10
