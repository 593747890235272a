"""The opening handshake of a WebSocket: one HTTP request, and its answer.

Source: RFC 6455 §4.2; RFC 9112 for the request.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from hashlib import sha1
from typing import Final, NamedTuple

REQUEST_MAX_BYTES: Final = 16 * 1024
"""The size of a request; a larger one is refused with 431."""

HEADERS_MAX: Final = 100
"""The number of a request's headers."""

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES: Final = 16
_VERSION: Final = "13"

_REASONS: Final = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
}


class Request(NamedTuple):
    """A request.   path: without a query.   headers: by their names in small letters; those of a name are one list."""

    method: str
    path: str
    headers: dict[str, str]

    def tokens(self, name: str) -> list[str]:
        """Return the elements of a header that is a list."""
        return [token.strip() for token in self.headers.get(name, "").split(",") if token.strip()]


class Refused(Exception):
    """A request that opens no WebSocket.   status: of HTTP."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    @property
    def answer(self) -> bytes:
        """The bytes of the answer."""
        more = f"Upgrade: websocket\r\nSec-WebSocket-Version: {_VERSION}\r\n" if self.status == 426 else ""
        return (
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n"
        ).encode()


def parse_request(data: bytes) -> tuple[Request, int] | None:
    """Return the request that data begins with, and its length; None if its end has not come. Raises: Refused."""
    end = data.find(b"\r\n\r\n", 0, REQUEST_MAX_BYTES)
    if end < 0:
        if len(data) >= REQUEST_MAX_BYTES:
            raise Refused(431)
        return None
    first, *lines = data[:end].decode("latin-1").split("\r\n")
    match first.split(" "):
        case [method, target, "HTTP/1.1"]:
            pass
        case _:
            raise Refused(400)
    if len(lines) > HEADERS_MAX:
        raise Refused(431)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip():
            raise Refused(400)
        value = value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Request(method, target.partition("?")[0], headers), end + 4


def check_request(request: Request, path: str, origins: Sequence[str]) -> None:
    """Refuse a request that is no opening handshake. Raises: Refused.

    path: where the WebSocket is.   origins: of pages that may open it; empty: any.
    """
    if request.path != path:
        raise Refused(404)
    if request.method != "GET":
        raise Refused(405)
    upgrades = [token.lower() for token in request.tokens("upgrade")]
    connection = [token.lower() for token in request.tokens("connection")]
    if "websocket" not in upgrades or "upgrade" not in connection:
        raise Refused(426)
    if request.headers.get("sec-websocket-version") != _VERSION:
        raise Refused(426)
    if "host" not in request.headers or not _is_key(request.headers.get("sec-websocket-key", "")):
        raise Refused(400)
    origin = request.headers.get("origin")
    if origins and origin is not None and origin not in origins:
        raise Refused(403)


def _is_key(text: str) -> bool:
    try:
        return len(b64decode(text, validate=True)) == _KEY_BYTES
    except (Base64Error, ValueError):
        return False


def accepted(request: Request, protocol: str | None, extension: str | None = None) -> bytes:
    """Return the answer that opens the WebSocket.

    protocol: the sub-protocol; None: none was agreed on.   extension: the same, with its parameters.
    """
    key = request.headers["sec-websocket-key"].encode("latin-1")
    accept = b64encode(sha1(key + _GUID, usedforsecurity=False).digest()).decode()
    chosen = "" if protocol is None else f"Sec-WebSocket-Protocol: {protocol}\r\n"
    chosen += "" if extension is None else f"Sec-WebSocket-Extensions: {extension}\r\n"
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n{chosen}\r\n"
    ).encode()


def basic_credentials(request: Request) -> tuple[str, bytes] | None:
    """Return user and password of the header Authorization; None without them."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = b64decode(text.strip(), validate=True).partition(b":")
    except (Base64Error, ValueError):
        return None
    return (user.decode("utf-8", "surrogateescape"), password) if colon else None
