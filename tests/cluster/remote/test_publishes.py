"""Publishes to a queue on another node go in frames of a size that the other node can work off in one go."""

import pytest

from cluster.remote.frames import FRAME_MAX_BYTES, RULED_MAX_BYTES
from cluster.remote.publishes import frame_limit, pieces
from node.catalogue.delayed import waiting_queue
from node.queue.run import Batch
from tests.kit.messages import envelope


@pytest.mark.parametrize(
    ("queue", "is_plain", "limit"),
    [
        ("q", True, FRAME_MAX_BYTES),
        ("q", False, RULED_MAX_BYTES),
        (waiting_queue("later"), True, RULED_MAX_BYTES),
    ],
)
def test_a_queue_that_looks_at_each_message_gets_small_frames(queue: str, is_plain: bool, limit: int) -> None:
    """A run is one piece for a queue that takes it as one, and several for others."""
    assert frame_limit(queue, is_plain=is_plain) == limit
    contents = [bytes(1000)] * 100
    parts = [batch.contents for batch, _ in pieces(Batch(envelope(), contents, 1000), None, limit)]
    assert [content for part in parts for content in part] == contents
    assert (len(parts) == 1) == (limit == FRAME_MAX_BYTES)
    assert all(sum(map(len, part)) <= limit for part in parts)
