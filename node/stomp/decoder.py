"""The incremental decoder of STOMP frames: bytes as they come, cut anywhere, become frames.

    decoder.feed(data)      while (frame := decoder.next()) is not None: ...

A frame is looked for when `next` is called, so its caller may stop in between, or change version and limits. It costs
time in proportion to its bytes however it is cut. Heads of SEND frames are remembered: one that comes again is not read
again, and is the same object.
`next` is hot: called for each frame.
Source: STOMP 1.2 "Augmented BNF"; RabbitMQ 3.10.8's parser for what the standard leaves open: blank lines and NULs
between frames are skipped, and a line may end with CR LF in all versions.
"""

import re
from dataclasses import dataclass
from typing import Final

from node.stomp.errors import FramingError, bad_frame
from node.stomp.frame import Frame, Head
from node.stomp.versions import UNESCAPED, V1_0, V1_2, unescape

CONTENT_LENGTH: Final = "content-length"

HEADS_MAX: Final = 64
"""The most heads that are remembered; at the next one all are forgotten."""

HEAD_REMEMBERED_BYTES: Final = 1024
"""The size up to which a head is remembered."""

_BLANK: Final = re.compile(rb"[\r\n\0]*")
_DIGITS_MAX: Final = 18
"""The most digits of a content-length: more are no sensible length, and would cost time to read."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a frame.   head_max_bytes: of command and headers.   headers_max: their number."""

    head_max_bytes: int
    headers_max: int
    body_max_bytes: int


class Decoder:
    """Decodes the frames of one connection.   version: how heads are escaped; it is set when it is negotiated."""

    def __init__(self, limits: Limits, version: str = V1_0) -> None:
        self.limits = limits
        self._version = version
        self._data = b""
        self._at = 0  # where the next frame, or the body of `_head`, begins
        self._more: list[bytes] = []  # the bytes behind `_data`
        self._more_bytes = 0
        self._head: Head | None = None  # of a frame whose body has not come
        self._searched = 0  # so many of `_data` and all `_more` have been searched for the NUL after a body
        self._heads: dict[bytes, Head] = {}

    @property
    def version(self) -> str:
        """The version that is decoded."""
        return self._version

    @version.setter
    def version(self, version: str) -> None:
        self._version = version
        self._heads.clear()

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes that have not become a frame."""
        return len(self._data) - self._at + self._more_bytes

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer."""
        if self._at == len(self._data) and not self._more:
            self._data, self._at = data, 0
            self._searched = 0
        else:
            self._more.append(data)
            self._more_bytes += len(data)

    def next(self) -> Frame | None:
        """Return the next frame; None if its end has not come. Raises: FramingError, and then nothing more is read."""
        head = self._head
        if head is None:
            head = self._next_head()
            if head is None:
                return None
        length = head.content_length
        if length is None:
            body = self._body_to_nul()
        else:
            body = self._body(length)
        if body is None:
            self._head = head
            return None
        self._head = None
        return Frame(head, body)

    # --- the body ---

    def _body(self, length: int) -> bytes | None:
        if length > self.limits.body_max_bytes:
            raise self._too_large()
        if self.buffered_bytes <= length:
            return None
        self._join()
        end = self._at + length
        if self._data[end]:
            raise bad_frame("there is no NUL after the octets that content-length says\n")
        body = self._data[self._at : end]
        self._at = end + 1
        return body

    def _body_to_nul(self) -> bytes | None:
        """Search what was not searched before: a body that comes in small pieces costs no more than another one."""
        is_here = False
        while not is_here and self._searched <= len(self._more):
            piece = self._more[self._searched - 1] if self._searched else self._data
            is_here = piece.find(0, 0 if self._searched else self._at) >= 0
            self._searched += 1
        if not is_here:
            if self.buffered_bytes > self.limits.body_max_bytes:
                raise self._too_large()
            return None
        self._searched = 0
        self._join()
        end = self._data.index(0, self._at)
        if end - self._at > self.limits.body_max_bytes:
            raise self._too_large()
        body = self._data[self._at : end]
        self._at = end + 1
        return body

    def _too_large(self) -> FramingError:
        return bad_frame(f"the body is larger than {self.limits.body_max_bytes} bytes\n")

    # --- the head ---

    def _next_head(self) -> Head | None:
        self._join()
        data = self._data
        blank = _BLANK.match(data, self._at)
        assert blank is not None, "the pattern matches nothing, too"
        self._at = start = blank.end()
        limit = start + self.limits.head_max_bytes
        end = data.find(b"\n\n", start, limit)
        with_cr = data.find(b"\n\r\n", start, end + 1 if end >= 0 else limit)
        if with_cr >= 0:
            end, after = with_cr, with_cr + 3
        elif end >= 0:
            after = end + 2
        elif len(data) >= limit:
            raise bad_frame(f"the head of the frame is larger than {self.limits.head_max_bytes} bytes\n")
        else:
            return None
        self._at = after
        block = data[start:end]
        return self._heads.get(block) or self._read(block)

    def _read(self, block: bytes) -> Head:
        """Return the head that a block of lines is."""
        text = block.decode("utf-8", "surrogateescape")
        if "\r" in text:
            text = text.replace("\r\n", "\n").removesuffix("\r")
            if "\r" in text and self._version == V1_2:
                raise bad_frame("a carriage return stands within a line\n")
        command, *lines = text.split("\n")
        if len(lines) > self.limits.headers_max:
            raise bad_frame(f"the frame has more than {self.limits.headers_max} headers\n")
        is_plain = self._version == V1_0 or command in UNESCAPED
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name:
                raise bad_frame("a header has no name and value\n")
            if not is_plain:
                name, value = unescape(name), unescape(value)
            elif command not in UNESCAPED:
                value = value.lstrip(" ")  # as RabbitMQ does for 1.0
            headers.setdefault(name, value)
        head = Head(command, headers, self._length(headers.get(CONTENT_LENGTH)))
        if command == "SEND" and "receipt" not in headers and len(block) <= HEAD_REMEMBERED_BYTES:
            if len(self._heads) >= HEADS_MAX:
                self._heads.clear()
            self._heads[block] = head
        return head

    def _length(self, text: str | None) -> int | None:
        if text is None:
            return None
        digits = text.strip(" ")
        if not digits.isascii() or not digits.isdigit() or len(digits) > _DIGITS_MAX:
            raise bad_frame("content-length is no number\n")
        return int(digits)

    def _join(self) -> None:
        if self._more:
            self._data = b"".join((self._data[self._at :], *self._more))
            self._at = 0
            self._more, self._more_bytes = [], 0
