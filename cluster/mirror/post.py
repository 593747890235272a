"""Parcels between the members of rings: gathered by node until the end of the turn, and kept if they come too early.

Source: reliability §4.3 R1; docs/internals/links.md, "Two streams in each direction".
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from cluster.gm_ring.messages import Activity, CatchUp
from cluster.gm_ring.wire import Parcel, decode_frame

FRAME_MAX_BYTES: Final = 1024 * 1024
"""The most bytes of parcels that share a frame; a single larger parcel has a frame of its own."""

EARLY_MAX_BYTES: Final = 64 * 1024 * 1024
"""The most that is kept for members that this node hasn't heard of yet. Beyond it the oldest parcel is dropped,
as its queue may be deleted.
"""

EARLY_AGE_MAX: Final = 60
"""A parcel is kept for so many calls of `age`, one a second: a queue that is still unknown then was deleted."""

_PARCEL_BYTES: Final = 100
"""The size of a parcel, or an item in it, beside its payloads."""


class Post:
    """The parcels that one broker's members send and get.   send: hands a frame for a node to the transport."""

    def __init__(self, send: Callable[[str, bytes], None]) -> None:
        self._send = send
        self._outboxes: dict[str, list[bytes]] = {}
        self._early: deque[tuple[int, str, Parcel]] = deque()
        self._early_bytes = 0
        self._age = 0

    def add(self, node: str, parcel: bytes) -> None:
        """Send a parcel with the next frame."""
        self._outboxes.setdefault(node, []).append(parcel)

    def __len__(self) -> int:
        return len(self._outboxes)

    def flush(self) -> None:
        """Send all gathered parcels."""
        outboxes, self._outboxes = self._outboxes, {}
        for node, parcels in outboxes.items():
            for frame in _joined(parcels):
                self._send(node, frame)

    @staticmethod
    def open(frame: bytes, faults: list[str]) -> Iterable[Parcel]:
        """Return the parcels of a frame.   faults: gets a text for each malformed parcel."""
        return decode_frame(frame, faults)

    def put_by(self, node: str, parcel: Parcel) -> None:
        """Keep a parcel for a member that this node has not heard of yet."""
        self._early.append((self._age, node, parcel))
        self._early_bytes += _size(parcel)
        while self._early_bytes > EARLY_MAX_BYTES:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._early_bytes -= _size(self._early.popleft()[2])

    def age(self) -> None:
        """Drop the parcels that have been kept for too long; called each second."""
        if self._early:
            self._age += 1
            while self._early and self._early[0][0] < self._age - EARLY_AGE_MAX:
                self._drop_oldest()

    def take_early(self) -> Sequence[tuple[str, Parcel]]:
        """Remove and return the parcels that were kept."""
        if not self._early:
            return ()
        early, self._early, self._early_bytes = self._early, deque(), 0
        return [(node, parcel) for _, node, parcel in early]


def _size(parcel: Parcel) -> int:
    """Return a parcel's size in memory, about."""
    match parcel.message:
        case bytes() as side:
            return _PARCEL_BYTES + len(side)
        case Activity(items=items) | CatchUp(origins=items):
            return _PARCEL_BYTES + sum(sum(map(len, item.payloads)) + _PARCEL_BYTES for item in items)


def _joined(parcels: list[bytes]) -> list[bytes]:
    """Join parcels to frames."""
    if len(parcels) == 1:
        return parcels
    frames: list[bytes] = []
    start = size = 0
    for at, parcel in enumerate(parcels):
        if size and size + len(parcel) > FRAME_MAX_BYTES:
            frames.append(b"".join(parcels[start:at]))
            start, size = at, 0
        size += len(parcel)
    frames.append(b"".join(parcels[start:]))
    return frames
