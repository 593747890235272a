"""The data stream between two incarnations: every frame once and in order, whatever happens to connections.

    Sender    push ─► waiting ─► next_batch ─► sent ─► acknowledged
                         ▲                      │
                         └── resume: a session ─┘
                             begins after what
                             the receiver has
    Receiver  receive ─► frames, `received` rises; pieces that came before are skipped

Pieces of frames are numbered from 1. A session begins with the number that the receiver has; the sender goes on
after it. A batch carries both incarnations and means nothing to any other pair; so does an acknowledgement. When
either incarnation ends the stream has ended, with all frames on it.

Source: reliability §4.0 (both incarnations on each frame); docs/internals/links.md, "Two streams in each direction".
"""

from collections import deque

from google.protobuf.message import DecodeError

from cluster.transport.interface import FRAME_BYTES_MAX, Topic
from cluster.transport.peer_pb2 import Ack, Batch, Open
from cluster.transport.pieces import PIECE_COST, Joiner, Piece, PieceFault, split, take_message


class StreamEnded(Exception):
    """A stream is over; the text says why.

    is_silence: nothing was heard of the other side for too long.   is_distrust: one side does not accept the other's
    certificate.
    """

    def __init__(self, text: str, *, is_silence: bool = False, is_distrust: bool = False) -> None:
        super().__init__(text)
        self.is_silence = is_silence
        self.is_distrust = is_distrust


class StreamFault(Exception):
    """The other side broke the rules of the stream; the text says how. The session must end."""


class Sender:
    """Keeps sent frames until they are acknowledged.

    own, peer: the incarnations.   congested_bytes: see `is_congested`. Nothing is refused: the caller must ask
    `is_congested`, which bounds what is kept by that amount and what one turn may add.
    """

    def __init__(self, own: int, peer: int, congested_bytes: int) -> None:
        assert own > 0
        assert peer > 0
        self.own = own
        self.peer = peer
        self._congested_bytes = congested_bytes
        self._waiting: deque[Piece] = deque()
        self._sent: deque[Piece] = deque()
        self._acknowledged = 0
        self._was_congested = False
        self.unacknowledged_bytes = 0

    def opening(self) -> bytes:
        """Return the first message of a session."""
        return Open(from_incarnation=self.own, to_incarnation=self.peer).SerializeToString()

    def push(self, topic: Topic, frame: bytes) -> None:
        """Send a frame."""
        assert len(frame) <= FRAME_BYTES_MAX, f"a frame of {len(frame):,} bytes"
        for piece in split(topic, frame):
            self._waiting.append(piece)
            self.unacknowledged_bytes += len(piece[1]) + PIECE_COST
        self._was_congested = self._was_congested or self.is_congested

    @property
    def is_congested(self) -> bool:
        """True if more bytes are unacknowledged than should be."""
        return self.unacknowledged_bytes > self._congested_bytes

    def take_relieved(self) -> bool:
        """True, once, after a congestion when half of the limit is free again."""
        is_relieved = self._was_congested and self.unacknowledged_bytes <= self._congested_bytes // 2
        if is_relieved:
            self._was_congested = False
        return is_relieved

    def next_batch(self) -> bytes:
        """Return the bytes to write next; empty when nothing waits."""
        if not self._waiting:
            return b""
        first = self._acknowledged + len(self._sent) + 1
        taken = take_message(self._waiting)
        self._sent.extend(taken)
        batch = Batch(
            from_incarnation=self.own,
            to_incarnation=self.peer,
            first=first,
            marks=bytes([mark for mark, _ in taken]),
            pieces=[content for _, content in taken],
        )
        return batch.SerializeToString()

    def resume(self, message: bytes) -> None:
        """Begin a session: continue after the pieces that its first acknowledgement names. Raises: StreamFault."""
        received = self._received(message)
        if received is None:
            raise StreamFault("the answer to the opening is for other incarnations")
        if received < self._acknowledged:
            raise StreamFault(f"it has forgotten pieces {received + 1} to {self._acknowledged}")
        self._sent.extend(self._waiting)
        self._waiting, self._sent = self._sent, deque()
        self._forget(received)

    def acknowledge(self, message: bytes) -> None:
        """Forget pieces that have arrived. Acknowledgements of earlier sessions change nothing. Raises: StreamFault."""
        received = self._received(message)
        if received is not None:
            self._forget(received)

    def _received(self, message: bytes) -> int | None:
        try:
            ack = Ack.FromString(message)
        except DecodeError as error:
            raise StreamFault("an acknowledgement that cannot be read") from error
        if (ack.from_incarnation, ack.to_incarnation) != (self.own, self.peer):
            return None
        last = self._acknowledged + len(self._sent) + len(self._waiting)
        if ack.received > last:
            raise StreamFault(f"it acknowledges piece {ack.received}, {last} is the last one")
        return ack.received

    def _forget(self, received: int) -> None:
        while self._acknowledged < received:
            # A late acknowledgement of the session before may be about what is to be sent again.
            _, content = self._sent.popleft() if self._sent else self._waiting.popleft()
            self.unacknowledged_bytes -= len(content) + PIECE_COST
            self._acknowledged += 1


class Receiver:
    """Hands on each frame once.   peer, own: the incarnations of the sender and of this node."""

    def __init__(self, peer: int, own: int) -> None:
        assert own > 0
        assert peer > 0
        self.peer = peer
        self.own = own
        self.received = 0
        """The number of the last piece that came."""
        self._joiner = Joiner(FRAME_BYTES_MAX)

    def opens(self, message: bytes) -> bool:
        """True if a session's opening is for this stream. Raises: StreamFault."""
        try:
            opening = Open.FromString(message)
        except DecodeError as error:
            raise StreamFault("an opening that cannot be read") from error
        return (opening.from_incarnation, opening.to_incarnation) == (self.peer, self.own)

    def acknowledgement(self) -> bytes:
        """Encode the number of the last piece received; a session's first one says where to continue."""
        return Ack(
            from_incarnation=self.peer, to_incarnation=self.own, received=self.received
        ).SerializeToString()

    def receive(self, message: bytes) -> list[tuple[Topic, bytes]]:
        """Return the frames that a batch completes. Raises: StreamFault."""
        try:
            batch = Batch.FromString(message)
        except DecodeError as error:
            raise StreamFault("a batch that cannot be read") from error
        if (batch.from_incarnation, batch.to_incarnation) != (self.peer, self.own):
            return []
        marks, pieces = batch.marks, batch.pieces
        if len(marks) != len(pieces):
            raise StreamFault(f"a batch with {len(marks)} marks and {len(pieces)} pieces")
        skipped = self.received + 1 - batch.first
        if skipped < 0 or batch.first == 0:
            raise StreamFault(f"piece {batch.first} follows piece {self.received}")
        if skipped >= len(marks):
            return []
        try:
            frames = self._joiner.join(marks[skipped:], pieces[skipped:])
        except PieceFault as error:
            raise StreamFault(str(error)) from error
        self.received += len(marks) - skipped
        return frames
