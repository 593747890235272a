"""The part of a connection that channels, observers and the broker use: who the client is, and the output to it.

`node.client.connection` adds what comes from the client. Channels know this file only, so they do not know how a
connection reads. Output gathers in pieces and is written once a turn; deliveries stop when it is full, and so does
reading when the client asks without reading the answers.

    channel ─► send_parts ─► broker.has_output ─► at the end of the turn the shell: take_output, then flushed
`send_parts` is called for each run of deliveries and `take_output` once a turn: both are hot.
Source: amqp-behaviour §1.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from node.amqp.connection_state import ConnectionState
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.amqp.frames import HEARTBEAT, method_frame
from node.amqp.methods import ConnectionClose, Method
from node.amqp.reader import FrameReader
from node.catalogue.records import User
from node.client.endpoint import ClientEndpoint
from node.client.heartbeat import Heartbeat
from node.client.host import ClientHost
from node.client.rights import Rights
from node.client.spreading import Spreading
from node.client.throttle import Throttle

if TYPE_CHECKING:
    from node.client.channel import Channel

AMQP_PROTOCOL: Final = "AMQP 0-9-1"

OUT_MAX_BYTES: Final = 512 * 1024
"""The most bytes of deliveries that one connection is given in a turn, which are several socket buffers full."""

PART_BYTES: Final = 4096
"""The average size of pieces from which on they are written as they are: joining them would cost more."""

REPLIES_MAX_BYTES: Final = 16 * 1024 * 1024
"""The bytes of unsent output at which we stop reading from a client that asks without reading the answers."""


class BaseConnection(ABC):
    """The client's identity, and the output to it.

    number: for the log.   id: of this connection alone, for ever.
    vhost, user_name: empty before the connection is open.   auth_mechanism: of SASL.
    protocol: as operators see it.   plugin: the plug-in that speaks it; empty: the node itself.
    protocol_facts: what the plug-in tells operators of the client, by columns of the list of its connections.
    rights: of a user whom a plug-in's auth backend authorises; None: the catalogue does.
    stalled: channels with consumers that wait for room in our output.
    confirming: channels with confirms to flush.
    connected_at_ms: milliseconds since 1970.
    recv_oct, recv_cnt: bytes that were received, in so many reads.   send_oct, send_cnt: sent, in so many writes.
    throttle: stops reading when the client publishes too much.
    is_writable, is_socket_flooded: set by the shell; the socket takes no more for now, and far too much waits for it.
    is_finished: nothing more is awaited: the shell flushes and resets the socket.
    """

    protocol_facts: Mapping[str, str | bool] = {}

    def __init__(
        self,
        broker: ClientHost,
        peer: ClientEndpoint,
        reader: FrameReader,
        *,
        number: int,
        connection_id: str,
        now: float,
    ) -> None:
        self.broker = broker
        self.peer = peer
        self.number = number
        self.id = connection_id
        self.state = ConnectionState.AWAIT_HEADER
        self.user = User("", "", "")
        self.rights: Rights | None = None
        self.vhost = ""
        self.client_properties: Table = {}
        self.client_name: str | None = None
        self.auth_mechanism = ""
        self.protocol = AMQP_PROTOCOL
        self.plugin = ""
        self.capabilities: frozenset[str] = frozenset()
        self.channels: dict[int, Channel] = {}
        self.frame_max_bytes = 0
        self.channel_max = broker.settings.channel_max
        self.heartbeat = Heartbeat(
            broker.timers,
            beat=lambda: self.send(HEARTBEAT),
            excuses=lambda: not self.is_reading,
            lost=self._heartbeats_missed,
        )
        self.connected_at_ms = int((now + broker.epoch_s) * 1000)
        self.recv_oct = self.recv_cnt = 0
        self.send_oct = self.send_cnt = 0
        self.held_bytes = 0
        """The number of bytes of messages in open transactions."""
        self.stalled: dict[Channel, None] = {}
        self.confirming: dict[Channel, None] = {}
        self.is_writable = True
        self.is_socket_flooded = False
        self.is_finished = False
        self._reader = reader
        self.throttle = Throttle(self, reader)
        self.spreading = Spreading()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_output_full = False  # there is more unsent output than a client may let pile up

    # --- the client ---

    @property
    def name(self) -> str:
        """`PEERIP:PORT -> LOCALIP:PORT`, as management and tracing call the connection (§1.10)."""
        return f"{self.peer.address} -> {self.peer.local}"

    @property
    def full_name(self) -> str:
        """The name together with the one that the client gave, for the log."""
        return self.name if self.client_name is None else f"{self.name} - {self.client_name}"

    @property
    def user_name(self) -> str:
        """The name of the user who is logged in."""
        return self.user.name

    def has_capability(self, name: str) -> bool:
        """Return True if the client announced this capability (§1.10)."""
        return name in self.capabilities

    # --- output ---

    def send_method(self, method: Method) -> None:
        """Send a method of the connection class."""
        self.send(method_frame(0, method))

    def send_close(self, error: ProtocolError) -> None:
        """Send connection.close, and nothing else."""
        close = ConnectionClose(error.code, error.reply_text, error.class_id, error.method_id)
        self.send_method(close)

    def send(self, data: bytes) -> None:
        """Add whole frames to the output."""
        self.send_parts([data], len(data))

    def send_parts(self, parts: list[bytes], size: int) -> None:
        """Add whole frames in pieces.   size: their bytes, about."""
        if not self._out:
            self.broker.has_output(self)
        self._out += parts
        self._out_bytes += size
        if self._out_bytes > REPLIES_MAX_BYTES:
            self._is_output_full = self._reader.paused = True

    def take_output(self) -> list[bytes]:
        """Return the pieces to write to the socket now."""
        self._flush_confirms()  # of publishes that the disk has settled
        parts, size = self._out, self._out_bytes
        if not parts:
            return []
        self._out, self._out_bytes = [], 0
        if size < PART_BYTES * len(parts):
            parts = [b"".join(parts)]
        self.send_oct += sum(map(len, parts))
        self.send_cnt += 1
        # A heartbeat alone doesn't put off the next one (§1.6).
        self.heartbeat.has_spoken = self.heartbeat.has_spoken or parts != [HEARTBEAT]
        return parts

    def _flush_confirms(self) -> None:
        if self.confirming:
            confirming, self.confirming = self.confirming, {}
            for channel in confirming:
                channel.flush_confirms()

    def room_bytes(self) -> int:
        """Return how many more bytes of deliveries this connection takes in this turn."""
        return OUT_MAX_BYTES - self._out_bytes if self.is_writable else 0

    @property
    def takes_replies(self) -> bool:
        """True if a direct reply may still be added: a requester that does not read loses replies."""
        return not self.is_socket_flooded and self._out_bytes <= REPLIES_MAX_BYTES

    def flushed(self) -> None:
        """Continue waiting work: the shell has written our output, and the socket takes more."""
        if self.stalled:
            stalled, self.stalled = self.stalled, {}
            for channel in stalled:
                channel.unblock()
        if self._is_output_full:
            self._is_output_full = False
            self.read_on()

    # --- reading, which `Connection` does ---

    @property
    def is_reading(self) -> bool:
        """True if the shell should go on reading from the socket."""
        return not self._reader.paused

    def stop_reading(self) -> None:
        """Read no further until `read_on`."""
        self._reader.paused = True

    @abstractmethod
    def failed(self, error: ProtocolError, number: int, method: type[Method] | None) -> None:
        """Handle the error of a method: its code says whether the channel or the connection is closed."""

    @abstractmethod
    def read_on(self) -> None:
        """Read on, at once or in a coming turn, unless something else still keeps us from it."""

    @property
    @abstractmethod
    def has_unpublished(self) -> bool:
        """True if publishes were read that are to be published in later turns."""

    @abstractmethod
    def shrink(self) -> None:
        """Keep what was read and not published yet in little memory, while an alarm blocks the client."""

    @abstractmethod
    def _heartbeats_missed(self) -> None:
        """End the connection: the client is silent."""
