"""The client's side of a WebSocket, for tests without sockets: requests, masked frames, and the server's frames."""

import zlib
from typing import NamedTuple

MASK = b"\x01\x80\xfe\x00"
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The answer to `KEY`, of RFC 6455 §1.3."""

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class ServerFrame(NamedTuple):
    """A frame of the server."""

    opcode: int
    payload: bytes


def request(
    path: str = "/ws", protocols: str = "v12.stomp", method: str = "GET", **headers: str | None
) -> bytes:
    """Return an opening request; `None` leaves a header out, and `_` in a name is a hyphen."""
    given: dict[str, str | None] = {
        "Host": "localhost",
        "Upgrade": "websocket",
        "Connection": "keep-alive, Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": protocols or None,
    }
    names = {name.lower(): name for name in given}
    for name, value in headers.items():
        name = name.replace("_", "-")
        given[names.get(name.lower(), name)] = value
    lines = [f"{name}: {value}\r\n" for name, value in given.items() if value is not None]
    return f"{method} {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1")


def client_frame(
    opcode: int, payload: bytes, *, final: bool = True, mask: bytes = MASK, is_deflated: bool = False
) -> bytes:
    """Return a masked frame.   is_deflated: the payload is compressed; of the first frame of a message."""
    size = len(payload)
    first = (0x80 if final else 0) | (0x40 if is_deflated else 0) | opcode
    if size < 126:
        head = bytes((first, 0x80 | size))
    elif size < 1 << 16:
        head = bytes((first, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + mask + bytes(octet ^ mask[at % 4] for at, octet in enumerate(payload))


def deflated_message(data: bytes) -> bytes:
    """Return the payload of a compressed message: RFC 7692 §7.2.1."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\0\0\xff\xff")


def inflated_message(data: bytes) -> bytes:
    """Return what the payload of a compressed message means: RFC 7692 §7.2.2."""
    return zlib.decompressobj(-15).decompress(data + b"\0\0\xff\xff")


def server_frames(data: bytes, *, can_inflate: bool = False) -> list[ServerFrame]:
    """Return the frames of the server, which have to be whole, final and not masked.

    can_inflate: their payloads may be compressed.
    """
    found, at = [], 0
    while at < len(data):
        first, size = data[at], data[at + 1]
        is_deflated = can_inflate and bool(first & 0x40)
        assert first & 0xF0 == (0xC0 if is_deflated else 0x80), "final, and without reserved bits"
        assert size < 0x80, "a server masks nothing"
        at += 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size = int.from_bytes(data[at : at + width])
            at += width
        assert len(data) >= at + size, "the frame is whole"
        payload = data[at : at + size]
        found.append(ServerFrame(first & 0x0F, inflated_message(payload) if is_deflated else payload))
        at += size
    return found
