"""Percent-encode names for paths and URIs (RFC 3986)."""

from typing import Final

_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def encoded(name: str) -> str:
    """Return a name as one segment of a path, or as a part of a URI: all but unreserved characters is encoded."""
    octets = name.encode("utf-8", "surrogatepass")
    return "".join(chr(octet) if octet in _UNRESERVED else f"%{octet:02X}" for octet in octets)
