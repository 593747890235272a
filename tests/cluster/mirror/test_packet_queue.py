"""Packets are joined to frames, and those that come too early are kept, within bounds."""

import pytest

from cluster.gm_ring.messages import Activity, Item
from cluster.gm_ring.wire import RingPacket, decode_frame, encode_packet
from cluster.mirror import packet_queue
from cluster.mirror.packet_queue import CountedPacketQueue, PacketQueue


def packet(uid: str, payload: bytes = b"") -> RingPacket:
    return RingPacket(uid, 1, 2, 3, 3, Activity(3, 3, [Item(1, 0, [payload], -1, -1)]))


def test_one_frame_a_node_and_turn() -> None:
    sent: list[tuple[str, bytes]] = []
    mail = PacketQueue(lambda node, frame: sent.append((node, frame)))
    for number in range(3):
        mail.add("n2", encode_packet(f"q{number}", 1, 2, b"side", 3))
    mail.add("n3", encode_packet("q", 1, 3, b"side", 3))
    assert len(mail) == 2
    mail.flush()
    assert [node for node, _ in sent] == ["n2", "n3"]
    assert [each.uid for each in decode_frame(sent[0][1], [])] == ["q0", "q1", "q2"]
    assert not len(mail)


def test_a_frame_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a single larger packet makes a larger frame."""
    monkeypatch.setattr(packet_queue, "FRAME_MAX_BYTES", 100)
    sent: list[bytes] = []
    mail = PacketQueue(lambda node, frame: sent.append(frame))
    for size in (40, 40, 40, 300, 10):
        mail.add("n2", encode_packet("q", 1, 2, b"x" * size, 3))
    mail.flush()
    sizes = [
        [len(each.message) for each in decode_frame(frame, []) if isinstance(each.message, bytes)]
        for frame in sent
    ]
    assert [size for frame in sizes for size in frame] == [40, 40, 40, 300, 10]
    assert [300] in sizes
    assert all(len(frame) <= 100 or len(decode_frame(frame, [])) == 1 for frame in sent)


def test_early_packets_come_back_in_order() -> None:
    mail = PacketQueue(lambda node, frame: None)
    early = [("n2", packet("q1")), ("n3", packet("q2")), ("n2", packet("q1"))]
    for node, each in early:
        mail.put_by(node, each)
    assert list(mail.take_early()) == early
    assert list(mail.take_early()) == []


def test_the_oldest_early_packet_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest early packet is dropped first, as one for a deleted queue is never fetched and must not pile up."""
    monkeypatch.setattr(packet_queue, "EARLY_MAX_BYTES", 2500)
    mail = PacketQueue(lambda node, frame: None)
    for number in range(5):
        mail.put_by("n2", packet(f"q{number}", b"x" * 1000))
    assert [each.uid for _, each in mail.take_early()] == ["q3", "q4"]


def test_packets_are_counted_by_node_when_they_are_sent() -> None:
    """Each counts once, in however many frames they go."""
    counted: list[tuple[str, int]] = []
    sent: list[str] = []
    mail = CountedPacketQueue(
        lambda node, frame: sent.append(node), lambda node, count: counted.append((node, count))
    )
    for node in ("n2", "n3", "n2"):
        mail.add(node, encode_packet("q", 1, 2, b"side", 3))
    assert counted == []
    mail.flush()
    mail.flush()
    assert counted == [("n2", 2), ("n3", 1)]
    assert sent == ["n2", "n3"]
