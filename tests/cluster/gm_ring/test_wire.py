"""Packets as bytes: decoding gives what was encoded, frames join, and invalid packets are reported."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cluster.gm_ring.messages import NOTHING, Activity, CatchUp, Item
from cluster.gm_ring.ring_pb2 import Frame
from cluster.gm_ring.wire import RingPacket, decode_frame, encode_packet

NUMBERS = st.integers(1, 2**63 - 1)


@st.composite
def items(draw: st.DrawFn) -> Item:
    payloads = draw(st.lists(st.binary(max_size=20), max_size=4))
    upto = draw(st.integers(len(payloads) - 1, 2**63 - 2))
    ack, mark = draw(st.integers(NOTHING, upto)), draw(st.integers(NOTHING, upto))
    return Item(draw(NUMBERS), upto, payloads, ack, mark)


@st.composite
def packets(draw: st.DrawFn) -> RingPacket:
    version = draw(NUMBERS)
    kind = draw(st.sampled_from([Activity, CatchUp, bytes]))
    message: Any
    if kind is bytes:
        edge, message = 0, draw(st.binary(max_size=50))
    else:
        edge = draw(st.integers(0, version))
        message = kind(version, edge, draw(st.lists(items(), max_size=4)))
    return RingPacket(
        draw(st.text(min_size=1, max_size=40)), draw(NUMBERS), draw(NUMBERS), version, edge, message
    )


def encoded(packet: RingPacket) -> bytes:
    return encode_packet(packet.uid, packet.sender, packet.receiver, packet.message, packet.version)


@settings(
    suppress_health_check=[HealthCheck.too_slow], deadline=None
)  # on a busy machine any one draw may take long
@given(st.lists(packets(), max_size=4))
@example([RingPacket("q", 1, 2, 3, 3, Activity(3, 3, []))])
@example([RingPacket("q", 1, 2, 3, 3, CatchUp(3, 3, []))])
@example([RingPacket("q", 1, 2, 3, 0, b"")])
def test_what_is_written_is_what_is_read(sent: Sequence[RingPacket]) -> None:
    assert decode_frame(b"".join(map(encoded, sent)), []) == list(sent)


def test_payloads_are_relayed_as_they_are() -> None:
    payloads = [b"", b"\x00" * 3, bytes(range(256)), b"x" * 300_000]
    (packet,) = decode_frame(
        encode_packet("q", 1, 2, Activity(3, 3, [Item(1, 3, payloads, NOTHING, NOTHING)])), []
    )
    assert isinstance(packet.message, Activity)
    assert packet.message.items[0].payloads == payloads


@given(st.binary(max_size=200))
def test_any_bytes_are_packets_or_nonsense(data: bytes) -> None:
    check(data)


@given(packets(), st.data())
def test_damaged_frames_are_packets_or_nonsense(packet: RingPacket, data: st.DataObject) -> None:
    raw = bytearray(encoded(packet))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    check(bytes(raw[: data.draw(st.integers(0, len(raw)))]))


def check(data: bytes) -> None:
    """Check that a frame that can be read can be written, and is the same when it is read again."""
    found = decode_frame(data, [])
    for packet in found:
        for item in getattr(packet.message, "items", getattr(packet.message, "origins", ())):
            assert item.origin > 0
            assert max(len(item.payloads) - 1, item.ack, item.mark) <= item.upto
            assert min(item.ack, item.mark) >= NOTHING
    faults: list[str] = []
    assert decode_frame(b"".join(map(encoded, found)), faults) == found
    assert faults == []


def frame(**fields: object) -> bytes:
    """A frame whose one packet differs from a good one in these fields."""
    whole = Frame()
    whole.parcels.add(**{"uid": "q", "sender": 1, "receiver": 2, "version": 3, "edge": 3} | fields)  # type: ignore[arg-type]
    return whole.SerializeToString()


def news(**fields: object) -> dict[str, object]:
    return {"items": [{"origin": 1, "upto": 2, "payloads": [b"a"]} | fields]}


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        frame(),
        frame(uid="", side=b"x"),
        frame(sender=0, side=b"x"),
        frame(receiver=0, side=b"x"),
        frame(sender=2**63, side=b"x"),
        frame(version=2**63, side=b"x"),
        frame(edge=4, side=b"x"),
        frame(edge=1, side=b"x"),
        frame(activity=news(origin=0)),
        frame(activity=news(upto=2**63)),
        frame(activity=news(upto=0)),
        frame(catch_up=news(ack=3)),
        frame(catch_up=news(mark=3)),
    ],
)
def test_what_makes_no_sense_is_told(data: bytes) -> None:
    faults: list[str] = []
    assert decode_frame(data, faults) == []
    assert len(faults) == 1


def test_a_packet_that_makes_no_sense_takes_no_other_with_it() -> None:
    faults: list[str] = []
    packets = decode_frame(
        frame(activity=news()) + frame(edge=4, side=b"x") + frame(edge=0, side=b"y"), faults
    )
    assert [type(packet.message) for packet in packets] == [Activity, bytes]
    assert len(faults) == 1


def test_a_good_one_is_fine() -> None:
    assert len(decode_frame(frame(activity=news()) + frame(edge=0, side=b"x"), [])) == 2
