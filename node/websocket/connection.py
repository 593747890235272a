"""A client over WebSocket: its payloads are what another protocol reads, and what that writes goes out in frames.

    class WebStompListener(WebSocketListener): ...          # names sub-protocols, and makes the connection within
The other protocol's connection is made when the handshake is done; its session is this one's, but for `write`, `close`
and `hold_reading`. The opening request and all frames have bounds; a message of any size is passed on as it comes. Of
compressed messages so much is inflated as a turn takes, and nothing while the other protocol wants nothing: the rest
waits as it came, and nothing more is read meanwhile.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final, cast

from node.override import override
from node.plugins import (
    Delivery,
    ProtocolConnection,
    ProtocolListener,
    Refusal,
    Session,
    Setting,
    Settings,
)
from node.websocket.deflate import Agreement, agree, deflated
from node.websocket.frames import (
    GOING_AWAY,
    NORMAL,
    Closing,
    Event,
    FrameDecoder,
    Opcode,
    Payload,
    Ping,
    WebSocketError,
    close_frame,
    frame,
)
from node.websocket.handshake import Refused, Request, accepted, check_request, parse_request
from node.websocket.settings import addresses, port_settings

TEXT: Final = "text"
BINARY: Final = "binary"

CLOSING_S: Final = 5.0
"""The time that a client has to answer a close frame; then the socket is closed."""

INFLATED_IN_A_TURN_BYTES: Final = 64 * 1024
"""So much of what compressed messages inflate to is passed on in a turn; then others have theirs."""


class InnerSession:
    """The session of the protocol within: all is the outer session's, but for bytes, their pauses and the end."""

    def __init__(
        self,
        session: Session,
        write: Callable[[bytes], None],
        close: Callable[[], None],
        hold_reading: Callable[[bool], None],
    ) -> None:
        self._session = session
        self.write = write
        self.close = close
        self.hold_reading = hold_reading
        self.publish = session.publish  # without the way round by `__getattr__`
        self.publish_run = session.publish_run
        self.ack = session.ack
        self.ack_all = session.ack_all

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class WebSocketConnection(ProtocolConnection):
    """One client."""

    def __init__(self, session: Session, listener: "WebSocketListener") -> None:
        self._session = session
        self._listener = listener
        self._request = b""
        self._deflate: Agreement | None = None
        self._decoder = FrameDecoder(takes_text=listener.takes_text)
        self._events: Iterator[Event] = iter(())  # what the last read means
        self._is_resting = False  # and much of that waits for another turn
        self._is_asking = False
        self._is_held_within = False  # the other protocol wants nothing now
        self._inner: ProtocolConnection | None = None  # None until the handshake is done
        self._is_closing = False  # a close frame was sent
        self._is_deaf = False  # nothing more is read

    @override
    def received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        if self._inner is None:
            data = self._shake_hands(self._request + data)
        if data and self._inner is not None:
            self._events = self._decoder.feed(data)
            self._read(self._inner)

    def _shake_hands(self, data: bytes) -> bytes:
        """Answer the opening request; return the bytes behind it."""
        listener = self._listener
        try:
            found = parse_request(data)
            if found is None:
                self._request = data
                return b""
            request, end = found
            check_request(request, listener.path, listener.origins)
            protocol = listener.chosen(request.tokens("sec-websocket-protocol"))
        except Refused as refused:
            self._is_deaf = True
            self._session.write(refused.answer)
            self._session.close()
            return b""
        self._request = b""
        if listener.compresses:
            self._deflate = agree(request.tokens("sec-websocket-extensions"))
        self._decoder = FrameDecoder(can_inflate=self._deflate is not None, takes_text=listener.takes_text)
        extension = None if self._deflate is None else self._deflate.header
        self._session.write(accepted(request, protocol, extension))
        inner = InnerSession(self._session, self._write, self._close, self._hold_within)
        self._inner = listener.connection_within(cast(Session, inner), request)
        return data[end:]

    def _read(self, inner: ProtocolConnection) -> None:
        """Pass on what was read, unless it is compressed and becomes too much for this turn."""
        left = INFLATED_IN_A_TURN_BYTES
        try:
            for event in self._events:
                match event:
                    case Payload(payload, is_inflated):
                        if payload and not self._is_closing:
                            inner.received(payload)
                        if is_inflated:
                            left -= len(payload)
                            if left <= 0 or self._is_held_within:
                                self._rest()
                                return
                    case Ping(payload):
                        self._session.write(frame(Opcode.PONG, payload))
                    case Closing():
                        self._finish(inner, NORMAL)
        except WebSocketError as error:
            self._finish(inner, error.code, error.text)

    def _rest(self) -> None:
        """Read nothing more, and go on in another turn, when the other protocol goes on, too."""
        self._is_resting = True
        self._session.hold_reading(True)
        if not self._is_held_within:
            self._await_turn()

    def _await_turn(self) -> None:
        """Go on once the broker has carried out what was asked, in another turn."""
        self._is_asking = True
        self._session.after_requests(self._carried_out)
        self._is_asking = False

    def _carried_out(self, is_safe: bool) -> None:
        if self._is_asking:  # the client is not logged in
            self._session.after(0.0, self._go_on)
        else:
            self._go_on()

    def _go_on(self) -> None:
        if not self._is_resting or self._is_held_within or self._inner is None:
            return
        self._is_resting = False
        if not self._is_deaf:
            self._read(self._inner)
        if not self._is_resting:
            self._session.hold_reading(self._is_held_within)

    def _finish(self, inner: ProtocolConnection, code: int, text: str = "") -> None:
        """Say that the connection ends, and close the socket when all that has come is carried out."""
        self._is_deaf = True
        self._end(code, text)
        inner.finish(lambda: self._session.after_requests(lambda is_safe: self._session.close()))
        self._session.after(CLOSING_S, self._session.close)

    # --- the protocol within ---

    def _hold_within(self, is_held: bool) -> None:
        """Read nothing more, or read on; what rests comes in another turn, as the protocol is at work."""
        self._is_held_within = is_held
        if not self._is_resting:
            self._session.hold_reading(is_held)
        elif not is_held:
            self._await_turn()

    def _write(self, data: bytes) -> None:
        """Send what the protocol has written, as one message."""
        if self._is_closing:
            return
        opcode = self._listener.opcode(data)
        packed = None if self._deflate is None else deflated(data, self._deflate.bits)
        if packed is None:
            self._session.write(frame(opcode, data))
        else:
            self._session.write(frame(opcode, packed, is_deflated=True))

    def _close(self) -> None:
        """Say that the connection ends, and give the client a moment to say so, too."""
        if not self._is_closing:
            self._end(NORMAL)
            self._session.after(CLOSING_S, self._session.close)

    def _end(self, code: int, text: str = "") -> None:
        if not self._is_closing:
            self._is_closing = True
            self._session.write(close_frame(code, text))

    # --- the node ---

    @override
    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        if self._inner is not None:
            self._inner.delivered(deliveries)

    @override
    def flush(self) -> None:
        if self._inner is not None:
            self._inner.flush()

    @override
    def leaving(self) -> Sequence[int]:
        return () if self._inner is None else self._inner.leaving()

    @override
    def replaced(self) -> None:
        if self._inner is not None:
            self._inner.replaced()
            self._end(GOING_AWAY)

    @override
    def cancelled(self, consumer: str) -> None:
        if self._inner is not None:
            self._inner.cancelled(consumer)

    @override
    def ended(self, reason: Refusal) -> None:
        if self._inner is not None:
            self._inner.ended(reason)
            self._end(GOING_AWAY)

    @override
    def lost(self) -> None:
        self._is_closing = self._is_deaf = True
        self._events = iter(())
        inner, self._inner = self._inner, None  # whose session refers back to here
        if inner is not None:
            inner.lost()


class WebSocketListener(ProtocolListener):
    """A protocol over WebSocket; a plug-in derives its own from it.

    subprotocols: those that it speaks, the best one first.   needs_subprotocol: a client has to name one of them.
    takes_text: whether text frames may carry it.
    frame_type: of what it writes: `TEXT` or `BINARY`. A text that is no UTF-8 is sent as binary.
    compresses: messages are compressed for a client that offers it.
    Its settings have `WEB_SETTINGS`. Where it listens is said by RabbitMQ's names, such as `tcp.port` and `tcp.ip`.
    """

    subprotocols: ClassVar[tuple[str, ...]]
    needs_subprotocol: ClassVar[bool] = False
    takes_text: ClassVar[bool] = True

    @classmethod
    @override
    def port_settings(cls) -> tuple[Setting, ...]:
        return port_settings(cls.default_port)

    @classmethod
    @override
    def addresses(cls, settings: Settings) -> Sequence[tuple[str, bool]]:
        return addresses(settings)

    def __init__(self, settings: Settings, frame_type: str) -> None:
        super().__init__(settings)
        self.path = str(settings["ws_path"])
        self.compresses = bool(settings["ws_opts.compress"])
        self.origins = [each.strip() for each in str(settings["allow_origins"]).split(",") if each.strip()]
        self._frame_type = frame_type

    @override
    def connection(self, session: Session) -> ProtocolConnection:
        return WebSocketConnection(session, self)

    @abstractmethod
    def connection_within(self, session: Session, request: Request) -> ProtocolConnection:
        """Return the connection of the protocol within.   request: the one that opened the WebSocket."""

    def chosen(self, offered: Sequence[str]) -> str | None:
        """Return the sub-protocol that is spoken, of those that a client offers; None: none. Raises: Refused."""
        common = [protocol for protocol in self.subprotocols if protocol in offered]
        if not common and self.needs_subprotocol:
            raise Refused(400)
        return common[0] if common else None

    def opcode(self, data: bytes) -> Opcode:
        """Return the kind of frame for data."""
        if self._frame_type == BINARY:
            return Opcode.BINARY
        try:
            data.decode()
        except UnicodeDecodeError:
            return Opcode.BINARY
        return Opcode.TEXT
