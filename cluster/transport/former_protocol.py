"""Refuse nodes of protocol 1, whose links are streams of gRPC, with a reason that their logs show. No I/O."""

import struct
from typing import Final

from cluster.transport.frames import VERSION as PROTOCOL
from node.version import VERSION

HTTP2_FIRST_BYTE: Final = b"P"
TLS_FIRST_BYTE: Final = b"\x16"
"""The first bytes of a node of protocol 1, and of many a stranger."""

REASON: Final = (
    f"the nodes speak different protocols: its links are of protocol 1, those of version {VERSION} "
    f"of protocol {PROTOCOL}"
)

_SETTINGS: Final = 4
_GOAWAY: Final = 7
_INTERNAL_ERROR: Final = 2
_LAST_STREAM: Final = 0x7FFFFFFF
"""The highest number of a stream: with a lower one gRPC would try its call again and again, and tell nobody."""


def farewell() -> bytes:
    """Encode what a server of HTTP/2 says to a client that it refuses: no settings, and GOAWAY with the reason.

    gRPC shows the reason in the text of its error. Source: RFC 9113 §4.1, §6.5, §6.8.
    """
    goaway = struct.pack(">II", _LAST_STREAM, _INTERNAL_ERROR) + REASON.encode()
    return _frame(_SETTINGS, b"") + _frame(_GOAWAY, goaway)


def _frame(type_: int, payload: bytes) -> bytes:
    """Encode a frame of the connection itself: 24 bits of length, type, no flags, stream 0."""
    return len(payload).to_bytes(3, "big") + bytes([type_, 0]) + bytes(4) + payload
