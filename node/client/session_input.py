"""Requests of a plug-in's session in the form in which the broker works on them: frames, or runs that need no frames.

Publishes and settlements come many at a time, and are known to be well formed. They are carried out as they are where
the connection's input is not held up; else they become frames, which wait with all others in their order.
`pass_on` is hot: called for each read and each turn of a plug-in's client.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from node.amqp.connection_state import ConnectionState
from node.amqp.frames import method_frame
from node.amqp.methods import BasicAck
from node.amqp.properties import Traits
from node.client.connection import Connection, ConnectionHost
from node.client.endpoint import ClientEndpoint

_ACK_BYTES: Final = 21


class PublishRun:
    """Publishes with the same address and traits.   contents, size: as `node.amqp.reader.Sink.on_publish`."""

    __slots__ = ("channel", "contents", "method_frame", "size", "traits")

    def __init__(
        self, channel: int, method_frame: bytes, traits: Traits, contents: list[bytes], size: int
    ) -> None:
        self.channel = channel
        self.method_frame = method_frame
        self.traits = traits
        self.contents = contents
        self.size = size

    def frames(self) -> bytes:
        """Return the frames of the publishes."""
        return b"".join([self.method_frame + content for content in self.contents])

    @property
    def frames_bytes(self) -> int:
        """About how many bytes the frames would have."""
        return len(self.contents) * (len(self.method_frame) + len(self.contents[0]))

    def carry_out(self, connection: Connection) -> None:
        """Publish the messages."""
        connection.on_publish(self.channel, self.method_frame, self.traits, self.contents, self.size)


class AckRuns:
    """Acknowledgements, each of one delivery.   runs: the first and the last tag of each run of tags in a row."""

    __slots__ = ("channel", "runs")

    def __init__(self, channel: int, tags: Sequence[int]) -> None:
        self.channel = channel
        self.runs: list[tuple[int, int]] = []
        first = last = tags[0]
        for tag in tags[1:]:
            if tag != last + 1:
                self.runs.append((first, last))
                first = tag
            last = tag
        self.runs.append((first, last))

    def add(self, tag: int) -> None:
        """Acknowledge one more delivery, behind all others."""
        first, last = self.runs[-1]
        if tag == last + 1:
            self.runs[-1] = first, tag
        else:
            self.runs.append((tag, tag))

    def frames(self) -> bytes:
        """Return the frames of the acknowledgements."""
        tags = [tag for first, last in self.runs for tag in range(first, last + 1)]
        return b"".join([method_frame(self.channel, BasicAck(tag)) for tag in tags])

    @property
    def frames_bytes(self) -> int:
        """How many bytes the frames would have."""
        return _ACK_BYTES * sum(last + 1 - first for first, last in self.runs)

    def carry_out(self, connection: Connection) -> None:
        """Acknowledge the deliveries."""
        for first, last in self.runs:
            connection.on_acks(self.channel, first, last)


Asked: TypeAlias = bytes | PublishRun | AckRuns


class AskedConnection(Connection):
    """A connection whose input is what a plug-in asks for."""

    def __init__(
        self, broker: ConnectionHost, peer: ClientEndpoint, *, now: float, on_change: Callable[[], None]
    ) -> None:
        super().__init__(broker, peer, now=now, on_change=on_change)
        self._asked: list[Asked] = []
        self._is_gathering = False
        """The plug-in is given bytes, or told what the broker has said: what it asks for is one batch."""

    @property
    def last_asked(self) -> Asked | None:
        """The last request that the broker has not taken; None: it has taken all."""
        return self._asked[-1] if self._asked else None

    def ask_broker(self, request: Asked) -> None:
        """Have the broker take a request: with all others of this read or flush, or at the end of the turn."""
        self._asked.append(request)
        if not self._is_gathering:
            self.broker.has_output(self)

    def _pass_on(self) -> None:
        """Have the broker take all requests, in their order. Their bytes are not the client's, and not counted."""
        if not self._asked:
            return
        received, reads = self.recv_oct, self.recv_cnt
        asked, self._asked = self._asked, []
        frames: list[bytes] = []
        for each in asked:
            if isinstance(each, bytes):
                frames.append(each)
                continue
            self._take_frames(frames)
            if self.state is not ConnectionState.OPEN:
                break
            if self._reader.is_free and not self._share.has_to_wait(each.frames_bytes):
                self._share.begin()
                each.carry_out(self)
                self._share.end()
                self._flush_confirms()
            else:  # what was asked before is held up
                frames.append(each.frames())
        self._take_frames(frames)
        self.recv_oct, self.recv_cnt = received, reads

    def _take_frames(self, frames: list[bytes]) -> None:
        if frames and self.state is ConnectionState.OPEN:
            super().receive_data(b"".join(frames), self.broker.now)
        frames.clear()
