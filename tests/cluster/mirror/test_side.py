"""Side messages there and back, and what no mirror would send."""

import pytest

from cluster.errors import Malformed
from cluster.mirror import mirror_pb2 as wire
from cluster.mirror.side import RANGES_MAX, Chunk, Probe, Pull, Report, Side, decode_side, encode_side
from node.queue.operations import Enqueue
from tests.kit.messages import content, envelope

ENTRY = Enqueue(envelope(), 7, [content(b"a"), content(b"b")], 2, 1, 2, 1234, 3)


@pytest.mark.parametrize(
    "message",
    [
        Pull(3, (range(1, 5), range(9, 1 << 40)), 0, 10, 20),
        Pull(3, (), 2),
        Chunk(4, is_end=True),
        Chunk(4, is_end=True, is_refused=True),
        Probe(1 << 40),
        Report(17),
    ],
    ids=str,
)
def test_there_and_back(message: Side) -> None:
    assert decode_side(encode_side(message)) == message


def test_messages_keep_expiry_and_deliveries() -> None:
    chunk = decode_side(encode_side(Chunk(1, (ENTRY,))))
    assert isinstance(chunk, Chunk)
    [entry] = chunk.entries
    assert entry.contents == ENTRY.contents
    assert (entry.first_seq, entry.expires_at_ms, entry.deliveries, entry.store_id) == (7, 1234, 3, 0)


def test_a_pull_stays_small() -> None:
    """A million fragments are asked for bit by bit."""
    ranges = tuple(range(seq, seq + 1) for seq in range(10**9, 10**9 + 2 * RANGES_MAX, 2))
    assert len(encode_side(Pull(1, ranges))) < 4096


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff",
        b"\x0a\x05",
        wire.Side(pull=wire.Pull(request=1, steps=[1])).SerializeToString(),
        wire.Side(pull=wire.Pull(request=1, steps=[1, 0])).SerializeToString(),
        wire.Side(pull=wire.Pull(request=1, steps=[1, 1 << 63])).SerializeToString(),
        wire.Side(pull=wire.Pull(request=1, steps=[1, 1] * (RANGES_MAX + 1))).SerializeToString(),
        wire.Side(chunk=wire.Chunk(request=1, runs=[b"nonsense"])).SerializeToString(),
    ],
)
def test_nonsense_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        decode_side(raw)
