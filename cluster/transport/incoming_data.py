"""The session of a data stream that another node has opened: its opening, then frames in and acknowledgements out."""

import asyncio
from collections.abc import Callable

from cluster.transport.interface import LinkOptions, Topic
from cluster.transport.link_stream import LinkStream
from cluster.transport.stream import Receiver, StreamFault


class IncomingData:
    """One session.   deliver: gets the frames of each read together.   opened: called when the opening has come."""

    def __init__(
        self,
        stream: LinkStream,
        options: LinkOptions,
        deliver: Callable[[list[tuple[Topic, bytes]]], None],
        opened: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._options = options
        self._deliver = deliver
        self._opened = opened
        self._opening: bytes | None = None
        self._receiver: Receiver | None = None
        self._unacknowledged_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, receiver: Receiver) -> None:
        """Begin to receive, if the opening has come and is for this receiver. Raises: StreamFault."""
        if self._receiver is None and self._opening is not None and receiver.opens(self._opening):
            self._receiver = receiver
            self._acknowledge()

    def take(self, messages: list[bytes]) -> None:
        """Take the messages of one read. Raises: StreamFault."""
        if self._opening is None:
            self._opening = messages.pop(0)
            self._opened()
            if not messages:
                return
        receiver = self._receiver
        if receiver is None:
            raise StreamFault("a batch before its opening was answered")
        frames: list[tuple[Topic, bytes]] = []
        for message in messages:
            frames += receiver.receive(message)
            self._unacknowledged_bytes += len(message)
        if self._unacknowledged_bytes >= self._options.ack_bytes:
            self._acknowledge()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._options.ack_after_s, self._acknowledge)
        if frames:
            self._deliver(frames)

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
