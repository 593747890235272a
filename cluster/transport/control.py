"""The control stream of one session: messages in order; those not sent when the session ends are lost."""

from collections import deque
from typing import Final

from google.protobuf.message import DecodeError

from cluster.transport.interface import CONTROL_BYTES_MAX, Topic
from cluster.transport.peer_pb2 import Control
from cluster.transport.pieces import PIECE_COST, Joiner, Piece, PieceFault, split, take_message
from cluster.transport.stream import StreamFault

PENDING_BYTES_MAX: Final = 4 * CONTROL_BYTES_MAX
"""The most that may wait for a slow peer: a snapshot in pieces, and the heartbeats behind it."""


class ControlSender:
    """The messages that wait to be written to a control stream."""

    def __init__(self) -> None:
        self._waiting: deque[Piece] = deque()
        self.waiting_bytes = 0

    def push(self, topic: Topic, message: bytes) -> bool:
        """Send a message. False: too much waits already, and the message is dropped."""
        assert len(message) <= CONTROL_BYTES_MAX, f"a message of {len(message):,} bytes"
        if self.waiting_bytes + len(message) > PENDING_BYTES_MAX:
            return False
        for piece in split(topic, message):
            self._waiting.append(piece)
            self.waiting_bytes += len(piece[1]) + PIECE_COST
        return True

    def next_batch(self) -> bytes:
        """Return the bytes to write next; empty when nothing waits."""
        if not self._waiting:
            return b""
        taken = take_message(self._waiting)
        self.waiting_bytes -= sum(len(content) + PIECE_COST for _, content in taken)
        control = Control(marks=bytes([mark for mark, _ in taken]), pieces=[content for _, content in taken])
        return control.SerializeToString()


class ControlReceiver:
    """Puts the received pieces of a control stream together to messages."""

    def __init__(self) -> None:
        self._joiner = Joiner(CONTROL_BYTES_MAX)

    def receive(self, data: bytes) -> list[tuple[Topic, list[bytes]]]:
        """Return messages in order; consecutive ones of one topic come together. Raises: StreamFault."""
        try:
            control = Control.FromString(data)
        except DecodeError as error:
            raise StreamFault("a control message that cannot be read") from error
        if len(control.marks) != len(control.pieces):
            raise StreamFault(f"{len(control.marks)} marks and {len(control.pieces)} pieces")
        try:
            messages = self._joiner.join(control.marks, control.pieces)
        except PieceFault as error:
            raise StreamFault(str(error)) from error
        runs: list[tuple[Topic, list[bytes]]] = []
        for topic, message in messages:
            if runs and runs[-1][0] is topic:
                runs[-1][1].append(message)
            else:
                runs.append((topic, [message]))
        return runs
