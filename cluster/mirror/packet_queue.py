"""Packets between the members of rings: gathered by node until the end of the turn, and kept if they come too early.

Source: reliability §4.3 R1; docs/internals/links.md, "Two streams in each direction".
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from cluster.gm_ring.messages import Activity, CatchUp
from cluster.gm_ring.wire import RingPacket, decode_frame
from node.override import override

FRAME_MAX_BYTES: Final = 128 * 1024
"""The most bytes of packets that share a frame, as a node works it off in one go; a single larger packet has a frame
of its own.
"""

EARLY_MAX_BYTES: Final = 64 * 1024 * 1024
"""The most that is kept for members that this node hasn't heard of yet. Beyond it the oldest packet is dropped,
as its queue may be deleted.
"""

EARLY_AGE_MAX: Final = 60
"""A packet is kept for so many calls of `age`, one a second: a queue that is still unknown then was deleted."""

_PACKET_BYTES: Final = 100
"""The size of a packet, or an item in it, beside its payloads."""


class PacketQueue:
    """The packets that one broker's members send and get.   send: hands a frame for a node to the transport."""

    def __init__(self, send: Callable[[str, bytes], None]) -> None:
        self._send = send
        self._outboxes: dict[str, list[bytes]] = {}
        self._early: deque[tuple[int, str, RingPacket]] = deque()
        self._early_bytes = 0
        self._age = 0

    def add(self, node: str, packet: bytes) -> None:
        """Send a packet with the next frame."""
        self._outboxes.setdefault(node, []).append(packet)

    def __len__(self) -> int:
        return len(self._outboxes)

    def flush(self) -> None:
        """Send all gathered packets."""
        outboxes, self._outboxes = self._outboxes, {}
        for node, packets in outboxes.items():
            for frame in _joined(packets):
                self._send(node, frame)

    @staticmethod
    def open(frame: bytes, faults: list[str]) -> Iterable[RingPacket]:
        """Return the packets of a frame.   faults: gets a text for each malformed packet."""
        return decode_frame(frame, faults)

    def put_by(self, node: str, packet: RingPacket) -> None:
        """Keep a packet for a member that this node has not heard of yet."""
        self._early.append((self._age, node, packet))
        self._early_bytes += _size(packet)
        while self._early_bytes > EARLY_MAX_BYTES:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._early_bytes -= _size(self._early.popleft()[2])

    def age(self) -> None:
        """Drop the packets that have been kept for too long; called each second."""
        if self._early:
            self._age += 1
            while self._early and self._early[0][0] < self._age - EARLY_AGE_MAX:
                self._drop_oldest()

    def take_early(self) -> Sequence[tuple[str, RingPacket]]:
        """Remove and return the packets that were kept."""
        if not self._early:
            return ()
        early, self._early, self._early_bytes = self._early, deque(), 0
        return [(node, packet) for _, node, packet in early]


class CountedPacketQueue(PacketQueue):
    """A packet queue that tells how many packets it sends.   count: gets a node and a number at each flush."""

    def __init__(self, send: Callable[[str, bytes], None], count: Callable[[str, int], None]) -> None:
        super().__init__(send)
        self._count = count

    @override
    def flush(self) -> None:
        for node, packets in self._outboxes.items():
            self._count(node, len(packets))
        super().flush()


def _size(packet: RingPacket) -> int:
    """Return a packet's size in memory, about."""
    match packet.message:
        case bytes() as side:
            return _PACKET_BYTES + len(side)
        case Activity(items=items) | CatchUp(origins=items):
            return _PACKET_BYTES + sum(sum(map(len, item.payloads)) + _PACKET_BYTES for item in items)


def _joined(packets: list[bytes]) -> list[bytes]:
    """Join packets to frames."""
    if len(packets) == 1:
        return packets
    frames: list[bytes] = []
    start = size = 0
    for at, packet in enumerate(packets):
        if size and size + len(packet) > FRAME_MAX_BYTES:
            frames.append(b"".join(packets[start:at]))
            start, size = at, 0
        size += len(packet)
    frames.append(b"".join(packets[start:]))
    return frames
