"""WebSocket frames of a server: payloads out of masked frames, and frames around payloads.

    FIN RSV opcode | MASK length | [longer length] | mask | payload
Payloads are given out as they come, in pieces of frames, too: what they mean is a stream. The text of text messages is
checked all the same. A message that is compressed (`node.websocket.deflate`) has the bit RSV1 in its first frame.
`feed` is hot: called for each read.
Source: RFC 6455 §5, §8.1; RFC 7692 §6.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from node.websocket.deflate import DamagedData, Inflater

CONTROL_MAX_BYTES: Final = 125

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED: Final = 1003
BAD_DATA: Final = 1007

_FIN: Final = 0x80
_RESERVED: Final = 0x70
_DEFLATED: Final = 0x40
_OPCODE: Final = 0x0F
_MASK: Final = 0x80
_LENGTH: Final = 0x7F
_SHORT_MAX: Final = 125
_TWO_BYTES: Final = 126
_EIGHT_BYTES: Final = 127
_MASK_BYTES: Final = 4

_CODES: Final = frozenset({*range(1000, 1004), *range(1007, 1015)})
_OWN_CODES: Final = range(3000, 5000)


class Opcode(IntEnum):
    """The kinds of frames."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class WebSocketError(Exception):
    """Bytes that are no frames of a client.   code: for the close frame."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class Payload(NamedTuple):
    """A piece of a message.   is_inflated: it was compressed, so it may be far larger than the bytes of its frames."""

    data: bytes
    is_inflated: bool = False


class Ping(NamedTuple):
    """A ping, which wants a pong with the same data."""

    data: bytes


class Closing(NamedTuple):
    """The client's close frame.   code: 1005 if it has none."""

    code: int


Event: TypeAlias = Payload | Ping | Closing
NO_CODE: Final = 1005


def frame(opcode: Opcode, payload: bytes, *, is_deflated: bool = False) -> bytes:
    """Return a whole frame of the server, which is not masked.   is_deflated: the payload is compressed."""
    size, first = len(payload), _FIN | opcode | (_DEFLATED if is_deflated else 0)
    if size <= _SHORT_MAX:
        head = bytes((first, size))
    elif size < 1 << 16:
        head = bytes((first, _TWO_BYTES)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, _EIGHT_BYTES)) + size.to_bytes(8, "big")
    return head + payload


def close_frame(code: int, text: str = "") -> bytes:
    """Return a close frame."""
    return frame(Opcode.CLOSE, code.to_bytes(2, "big") + text.encode()[: CONTROL_MAX_BYTES - 2])


def masked(data: bytes, mask: bytes) -> bytes:
    """Return data with its mask put on, or taken off.   mask: four octets."""
    size = len(data)
    key = (mask * (size // _MASK_BYTES + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")


class FrameDecoder:
    """Decodes the frames of one client.   can_inflate: messages may be compressed.

    takes_text: messages may be texts.
    """

    def __init__(self, *, can_inflate: bool = False, takes_text: bool = True) -> None:
        self._can_inflate = can_inflate
        self._takes_text = takes_text
        self._inflater: Inflater | None = None  # of the message, if it is compressed
        self._rest = b""  # of a frame whose head, or whose control payload, has not come
        self._left = 0  # of the payload of a data frame, so many bytes are to come
        self._mask = b""  # for the next of them
        self._is_final = True
        self._message: Opcode | None = None  # of which a frame has come, but not the last one
        self._text = b""  # the beginning of a character at the end of a piece
        self._has_closed = False

    def feed(self, data: bytes) -> Iterator[Event]:
        """Take bytes, and yield what they mean, which has to be read to its end before more is fed.

        Nothing comes after a close frame. Raises: WebSocketError, after what stood before the fault.
        """
        data, self._rest, at = self._rest + data, b"", 0
        while at < len(data) and not self._has_closed:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                if self._inflater is None:
                    yield Payload(self._unmasked(piece))
                else:
                    yield from self._inflated(self._inflater, piece)
                continue
            read = self._head(data, at)
            if read is None:
                self._rest = data[at:]
                break
            at, event = read
            if event is not None:
                yield event
            elif not self._left and self._inflater is not None:
                yield from self._inflated(self._inflater, b"")

    def _unmasked(self, piece: bytes) -> bytes:
        """Return a piece of a data frame's payload."""
        found = self._taken(piece)
        self._note(found, is_end=self._is_final and not self._left)
        return found

    def _inflated(self, inflater: Inflater, piece: bytes) -> Iterator[Payload]:
        """Yield what a piece of a data frame's payload is inflated to."""
        found = self._taken(piece)
        is_end = self._is_final and not self._left
        try:
            for inflated in inflater.feed(found, is_end=is_end):
                self._note(inflated, is_end=False)
                yield Payload(inflated, is_inflated=True)
        except DamagedData as error:
            raise WebSocketError(BAD_DATA, "a message cannot be inflated") from error
        self._note(b"", is_end=is_end)

    def _taken(self, piece: bytes) -> bytes:
        """Return a piece of a data frame's payload without its mask."""
        found = masked(piece, self._mask)
        turn = len(piece) % _MASK_BYTES
        self._mask = self._mask[turn:] + self._mask[:turn]
        self._left -= len(piece)
        return found

    def _note(self, piece: bytes, *, is_end: bool) -> None:
        """Check a piece of a message."""
        if self._message is Opcode.TEXT:
            self._check_text(piece, is_end=is_end)
        if is_end:
            self._message = self._inflater = None

    def _head(self, data: bytes, at: int) -> tuple[int, Event | None] | None:
        """Read the head of a frame, or all of a control frame; return its end, and what it means.

        None: its end has not come.
        """
        if len(data) < at + 2:
            return None
        first, second = data[at], data[at + 1]
        opcode = first & _OPCODE
        is_deflated = bool(first & _DEFLATED) and self._can_inflate and opcode in (Opcode.TEXT, Opcode.BINARY)
        if first & _RESERVED != (_DEFLATED if is_deflated else 0):
            raise WebSocketError(PROTOCOL_ERROR, "a reserved bit is set")
        if not second & _MASK:
            raise WebSocketError(PROTOCOL_ERROR, "a client's frames are masked")
        if opcode not in Opcode.__members__.values():
            raise WebSocketError(PROTOCOL_ERROR, "the opcode is not defined")
        if opcode == Opcode.TEXT and not self._takes_text:
            raise WebSocketError(UNSUPPORTED, "the protocol has binary frames only")
        is_control = opcode >= Opcode.CLOSE
        size = second & _LENGTH
        if is_control and (size > CONTROL_MAX_BYTES or not first & _FIN):
            raise WebSocketError(PROTOCOL_ERROR, "a control frame is short and whole")
        mask_at = at + 2
        if size >= _TWO_BYTES:
            mask_at += 2 if size == _TWO_BYTES else 8
            if len(data) < mask_at:
                return None
            size = int.from_bytes(data[at + 2 : mask_at])
            if size >> 63:
                raise WebSocketError(PROTOCOL_ERROR, "the length has its highest bit set")
        payload_at = mask_at + _MASK_BYTES
        if len(data) < payload_at + (size if is_control else 0):
            return None
        mask = data[mask_at:payload_at]
        if is_control:
            end = payload_at + size
            return end, self._control(Opcode(opcode), masked(data[payload_at:end], mask))
        if is_deflated:
            self._inflater = Inflater()
        self._begin(Opcode(opcode), size, mask, is_final=bool(first & _FIN))
        return payload_at, None

    def _begin(self, opcode: Opcode, size: int, mask: bytes, *, is_final: bool) -> None:
        if (opcode is Opcode.CONTINUATION) == (self._message is None):
            raise WebSocketError(PROTOCOL_ERROR, "the frames of a message follow each other")
        if opcode is not Opcode.CONTINUATION:
            self._message = opcode
        self._left, self._mask, self._is_final = size, mask, is_final
        if not size and self._inflater is None:
            self._unmasked(b"")

    def _control(self, opcode: Opcode, payload: bytes) -> Event | None:
        if opcode is Opcode.PING:
            return Ping(payload)
        if opcode is Opcode.CLOSE:
            self._has_closed = True
            return Closing(_close_code(payload))
        return None

    def _check_text(self, piece: bytes, *, is_end: bool) -> None:
        text = self._text + piece
        self._text = b""
        try:
            text.decode()
        except UnicodeDecodeError as error:
            is_cut = error.reason == "unexpected end of data" and error.end == len(text)
            if is_end or not is_cut:
                raise WebSocketError(BAD_DATA, "a text message is no UTF-8") from None
            self._text = text[error.start :]


def _close_code(payload: bytes) -> int:
    if not payload:
        return NO_CODE
    code = int.from_bytes(payload[:2])
    if len(payload) == 1 or (code not in _CODES and code not in _OWN_CODES):
        raise WebSocketError(PROTOCOL_ERROR, "the code of a close frame is not defined")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise WebSocketError(BAD_DATA, "the reason of a close frame is no UTF-8") from None
    return code
