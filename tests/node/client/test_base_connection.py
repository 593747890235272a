"""The output of a connection, as the shell takes it."""

import pytest

from node.amqp.frames import HEARTBEAT
from node.client.base_connection import PART_BYTES
from tests.kit.world import World


@pytest.mark.parametrize(("size", "pieces"), [(PART_BYTES, 3), (1, 1)])
def test_large_pieces_are_not_joined(size: int, pieces: int) -> None:
    connection = World().client().connection
    parts = [bytes([number]) * size for number in range(3)]
    connection.send_parts(list(parts), 3 * size)
    sent = connection.send_oct
    output = connection.take_output()
    assert len(output) == pieces
    assert b"".join(output) == b"".join(parts)
    assert connection.send_oct - sent == 3 * size
    assert connection.take_output() == []


def test_a_heartbeat_alone_does_not_put_off_the_next() -> None:
    connection = World().client().connection
    connection.take_output()
    connection.heartbeat.has_spoken = False
    connection.send(HEARTBEAT)
    assert connection.take_output() == [HEARTBEAT]
    assert not connection.heartbeat.has_spoken
    connection.send_parts([HEARTBEAT, bytes(10)], 18)
    connection.take_output()
    assert connection.heartbeat.has_spoken
