"""Cut frames in pieces, so that no message on the wire is big, and put them together again.

A big message would hold up the messages behind it, and memory for it would have to be promised before its sender has
said who it is. A piece has a *mark*: the topic, with bit 7 set when the frame continues in the next piece.

Source: ring §1a (64 to 256 KiB a message are cheapest), §1d.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from cluster.transport.interface import Topic

PIECE_BYTES: Final = 256 * 1024

PIECES_PER_MESSAGE: Final = 16 * 1024
"""The most small frames that share a message: some milliseconds of work."""

PIECE_COST: Final = 64
"""Bytes that each piece counts for besides its content, so that empty frames are bounded too."""

_GOES_ON: Final = 0x80

_TOPICS: Final = {int(topic): topic for topic in Topic}

Piece = tuple[int, bytes]
"""The mark and the content of a piece."""


class PieceFault(Exception):
    """The other side sent pieces that make no frames; the text says why."""


def split(topic: Topic, frame: bytes) -> Iterator[Piece]:
    """Yield the pieces of a frame; an empty frame is one empty piece."""
    size = len(frame)
    if size <= PIECE_BYTES:
        yield topic, frame
        return
    for start in range(0, size, PIECE_BYTES):
        end = start + PIECE_BYTES
        yield (topic if end >= size else topic | _GOES_ON), frame[start:end]


def take_message(waiting: deque[Piece]) -> list[Piece]:
    """Take the pieces of the next message on the wire: up to PIECE_BYTES together, at least one piece."""
    taken = [waiting.popleft()]
    size = len(taken[0][1])
    while waiting and len(taken) < PIECES_PER_MESSAGE:
        size += len(waiting[0][1])
        if size > PIECE_BYTES:
            break
        taken.append(waiting.popleft())
    return taken


class Joiner:
    """Puts pieces together to frames.   frame_bytes_max: a bigger frame is a fault."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._begun: list[bytes] = []  # pieces of an incomplete frame
        self._begun_bytes = 0
        self._begun_topic = 0

    def join(self, marks: bytes, pieces: Iterable[bytes]) -> list[tuple[Topic, bytes]]:
        """Return the frames that are complete now. Raises: PieceFault."""
        frames = []
        for mark, piece in zip(marks, pieces, strict=True):
            topic = _TOPICS.get(mark & ~_GOES_ON)
            if topic is None:
                raise PieceFault(f"there is no topic {mark & ~_GOES_ON}")
            if mark & _GOES_ON or self._begun:
                self._go_on(topic, piece)
                if mark & _GOES_ON:
                    continue
                piece = b"".join(self._begun)
                self._begun = []
                self._begun_bytes = 0
            frames.append((topic, piece))
        return frames

    def _go_on(self, topic: Topic, piece: bytes) -> None:
        if self._begun and topic != self._begun_topic:
            raise PieceFault("a frame continues with another topic")
        if not piece:
            # Pieces without content would not count against the limit.
            raise PieceFault("an empty piece of a frame")
        self._begun_topic = topic
        self._begun_bytes += len(piece)
        if self._begun_bytes > self._frame_bytes_max:
            raise PieceFault(f"a frame of more than {self._frame_bytes_max:,} bytes")
        self._begun.append(piece)
