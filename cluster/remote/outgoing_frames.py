"""The outgoing operations of a turn, gathered by queue: one frame for each queue, or several if it is long.

operation, settle, accept ─► OutgoingFrames (a queue, or all channels) ─► Outbox (a node) ─► send
"""

from collections.abc import Callable
from typing import Final

from cluster.remote.frames import FRAME_MAX_BYTES
from cluster.remote.remote_pb2 import Accepted, Frame, Operation, Settle
from node.catalogue.records import QueueRecord

_OPERATION_BYTES: Final = 64
"""The size of an operation beside its run, about."""

_RANGE_BYTES: Final = 20


class Outbox:
    """The frames for one node.

    send: takes a frame.   wake: called when there is something to send again.
    """

    def __init__(self, send: Callable[[bytes], None], wake: Callable[[], None]) -> None:
        self._send = send
        self._wake = wake
        self._filled: dict[OutgoingFrames, None] = {}

    def add(self, outgoing: "OutgoingFrames") -> None:
        """Add the frames of a queue that has something to send."""
        if not self._filled:
            self._wake()
        self._filled[outgoing] = None

    def __len__(self) -> int:
        return len(self._filled)

    def flush(self) -> None:
        """Send all that has gathered."""
        filled, self._filled = self._filled, {}
        for outgoing in filled:
            for frame in outgoing.take():
                self._send(frame)


class OutgoingFrames:
    """The outgoing operations about one queue; without a record: about channels. They keep their order.

    is_for_front_end: the frames go to the node that has the clients, which knows the queue by its uid.
    mastership: of the home in this conversation, see `QueueRecord`.
    The frames hold what one turn adds: runs, which windows bound, and a few bytes for each range.
    """

    __slots__ = (
        "_accepted",
        "_address",
        "_bytes",
        "_frames",
        "_kind",
        "_outbox",
        "_settle",
        "is_closed",
        "is_used",
        "limit",
    )

    def __init__(
        self,
        outbox: Outbox,
        record: QueueRecord | None,
        mastership: int = 0,
        *,
        is_for_front_end: bool = False,
    ) -> None:
        self._outbox = outbox
        address = Frame(is_for_front_end=is_for_front_end, mastership=mastership)
        if record is not None:
            address.uid = record.uid
            if not is_for_front_end:
                address.vhost, address.name = _raw(record.vhost), _raw(record.name)
        self._address = address.SerializeToString()
        """The beginning of every frame: of messages one behind the other protobuf makes one."""
        self._frames: list[Frame] = []
        self._bytes = 0  # of the last frame, about
        self._settle: Settle | None = None
        self._kind = Settle.ACK
        self._accepted: Accepted | None = None
        self.limit = FRAME_MAX_BYTES
        """The most bytes of contents in a frame."""
        self.is_used = False
        """True if there ever was a frame."""
        self.is_closed = False
        """True if the other side has no use for its frames any more."""

    def operation(self, size: int = 0) -> Operation:
        """Add an operation, which the caller fills in.   size: of the run in it."""
        self._settle = self._accepted = None
        self._bytes += size + _OPERATION_BYTES
        if not self._frames or self._bytes > self.limit:
            self._begin_frame()
            self._bytes = size + _OPERATION_BYTES
        return self._frames[-1].operations.add()

    def _begin_frame(self) -> None:
        self.is_used = True
        if not self._frames and not self.is_closed:
            self._outbox.add(self)
        self._frames.append(Frame())

    def settle(self, kind: Settle.Kind, first: int, last: int) -> None:
        """Settle delivery tags, in one operation with those that were settled the same way just before."""
        settle = self._settle
        if settle is None or kind != self._kind or self._bytes > FRAME_MAX_BYTES:
            settle = self.operation().settle
            settle.kind = kind
            self._settle, self._kind = settle, kind
        bounds = settle.bounds
        if bounds and bounds[-1] == first - 1:
            bounds[-1] = last
        else:
            bounds.extend((first, last))
            self._bytes += _RANGE_BYTES

    def accept(self, first: int, last: int) -> Accepted:
        """Answer publishes, in one operation with those that were answered just before."""
        accepted = self._accepted
        if accepted is None or self._bytes > FRAME_MAX_BYTES:
            accepted = self.operation().accepted
            self._accepted = accepted
        bounds = accepted.bounds
        if bounds and bounds[-1] == first - 1:
            bounds[-1] = last
        else:
            bounds.extend((first, last))
            self._bytes += _RANGE_BYTES
        return accepted

    def take(self) -> list[bytes]:
        """Remove and return the frames."""
        frames, self._frames = self._frames, []
        self._settle = self._accepted = None
        self._bytes = 0
        return [] if self.is_closed else [self._address + frame.SerializeToString() for frame in frames]


def _raw(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
