"""The session of a data stream that another node has opened: its opening, then frames in and acknowledgements out."""

import asyncio
from collections.abc import Callable

from cluster.transport.inbox import Frames, Inbox
from cluster.transport.interface import LinkOptions
from cluster.transport.link_stream import LinkStream
from cluster.transport.stream import Receiver, StreamFault


class IncomingData:
    """One session.   opened: called when the opening has come."""

    def __init__(
        self,
        stream: LinkStream,
        options: LinkOptions,
        opened: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._options = options
        self._opened = opened
        self._opening: bytes | None = None
        self._receiver: Receiver | None = None
        self._inbox: Inbox | None = None
        self._unacknowledged_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, receiver: Receiver, inbox: Inbox) -> None:
        """Begin to receive, if the opening has come and is for this receiver. Raises: StreamFault.

        inbox: gets its frames.
        """
        if self._receiver is None and self._opening is not None and receiver.opens(self._opening):
            self._receiver, self._inbox = receiver, inbox
            self._acknowledge()
            self._follow(inbox)  # a former connection may have left it work

    def take(self, messages: list[bytes]) -> None:
        """Take the messages of one read. Raises: StreamFault."""
        if self._opening is None:
            self._opening = messages.pop(0)
            self._opened()
            if not messages:
                return
        receiver, inbox = self._receiver, self._inbox
        if receiver is None or inbox is None:
            raise StreamFault("a batch before its opening was answered")
        frames: Frames = []
        for message in messages:
            frames += receiver.receive(message)
            self._unacknowledged_bytes += len(message)
        if self._unacknowledged_bytes >= self._options.ack_bytes:
            self._acknowledge()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._options.ack_after_s, self._acknowledge)
        if frames:
            inbox.put(frames)
            self._follow(inbox)

    def _follow(self, inbox: Inbox) -> None:
        """Read nothing more while the broker has enough to do with what has come."""
        if inbox.is_busy:
            self._stream.rest()
            inbox.on_empty = self._stream.read_on

    def end(self) -> None:
        """Acknowledge nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _acknowledge(self) -> None:
        assert self._receiver is not None
        self.end()
        self._unacknowledged_bytes = 0
        self._stream.send(self._receiver.acknowledgement())
