"""The output of a plug-in's session keeps what the broker says and what the plug-in writes until the end of the turn.

    broker ─► frames ───┐
    broker ─► confirms ─┴─► take_output: the plug-in is told ─► write ─► the same output

The plug-in is told while the output is taken, so no further turn has to come for what it writes then. Confirms are no
frames: each would be made to be parsed at once, and where nobody waits for one, no flush is asked for.
`take_output` and `_flush_confirms` are hot: called for each turn with output, and for each read with publishes.
"""

from abc import abstractmethod
from collections.abc import Callable

from node.amqp.connection_state import ConnectionState
from node.amqp.methods import BasicAck, BasicNack
from node.client.base_connection import REPLIES_MAX_BYTES
from node.client.connection import ConnectionHost
from node.client.endpoint import ClientEndpoint
from node.client.session_input import AskedConnection
from node.override import override


class ToldConnection(AskedConnection):
    """A connection whose output a plug-in makes of what the broker says."""

    def __init__(
        self, broker: ConnectionHost, peer: ClientEndpoint, *, now: float, on_change: Callable[[], None]
    ) -> None:
        super().__init__(broker, peer, now=now, on_change=on_change)
        self._frames: list[bytes] = []  # of the broker, for the plug-in
        self._frames_bytes = 0
        self._confirms_said: list[BasicAck | BasicNack] = []
        self._is_telling = False
        """The plug-in is told what the broker has said; its output is taken then."""

    # --- of the broker ---

    @override
    def send_parts(self, parts: list[bytes], size: int) -> None:
        """Take frames of the broker, which are for the plug-in."""
        if not self._frames:
            self.broker.has_output(self)
        self._frames += parts
        self._frames_bytes += size

    @override
    def room_bytes(self) -> int:
        return super().room_bytes() - self._frames_bytes

    @override
    def _flush_confirms(self) -> None:
        if not self.confirming:
            return
        confirming, self.confirming = self.confirming, {}
        for channel in confirming:
            if channel.confirms is None:
                continue
            said = channel.confirms.flush()
            if said and self._awaits_confirms:
                self._confirms_said += said
                self.broker.has_output(self)

    @property
    @abstractmethod
    def _awaits_confirms(self) -> bool:
        """True if the plug-in is to be told of a confirm."""

    # --- to the client ---

    @override
    def take_output(self) -> list[bytes]:
        """Tell the plug-in what the broker has said, and return the bytes for the client.

        The plug-in is told here, at the end of the turn, and not while the broker is at work: it may close the
        connection, and a delivery has to be noted as one by then.
        """
        self._flush_confirms()
        self._is_gathering = self._is_telling = True
        try:
            self._tell_all()
        finally:
            self._is_gathering = self._is_telling = False
        self._pass_on()
        return super().take_output()

    @abstractmethod
    def _tell_all(self) -> None:
        """Tell the plug-in all that the broker has said."""

    def write(self, data: bytes) -> None:
        """Send bytes to the client."""
        if self.state is ConnectionState.CLOSED:
            return
        if not self._is_telling:
            super().send_parts([data], len(data))
            return
        # As that does, but that it asks for no flush: the output is about to be taken.
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > REPLIES_MAX_BYTES:
            self._is_output_full = self._reader.paused = True
