"""A balancer names the client of each connection by the PROXY protocol, versions 1 and 2.

A header is read only from peers in the configured networks, and required from them; from other peers it
would let a client lie about its address. The parser is pure and incremental: whole or byte by byte, the
answer is the same. Source: HAProxy's proxy-protocol.txt (2020/03/05), management §6.1.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from node.config.values import Network

V1_BYTES_MAX: Final = 107
"""The longest line that version 1 allows, CR and LF included."""
V2_BYTES_MAX: Final = 4096
"""The most bytes that we accept after version 2's first 16: addresses, and values (TLVs) that we skip.

The protocol allows 65,535; what HAProxy sends about a certificate stays below 2,000.
"""

HEADER_BYTES_MAX: Final = 16 + V2_BYTES_MAX
"""The length of the longest header of either version."""

_V1_START: Final = b"PROXY "
_V2_START: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_V2_FIXED_BYTES: Final = 16
_V2_LOCAL, _V2_PROXY = 0x20, 0x21
_V2_ADDRESS_BYTES: Final = {0x11: 4, 0x21: 16}  # TCP over IPv4, TCP over IPv6
_V2_WITHOUT_ADDRESS: Final = frozenset({0x00, 0x31})  # unspecified, UNIX stream
_V1_PORT: Final = re.compile(rb"0|[1-9][0-9]{0,4}")
_PORT_MAX: Final = 65535


class ProxyProtocolError(Exception):
    """The peer sent no PROXY header, or a bad one: the connection must be closed."""


class Endpoint(NamedTuple):
    """The address of one end of a connection."""

    host: str
    port: int


class ProxyHeader(NamedTuple):
    """The addresses in a header. Without source and destination the connection's own addresses hold."""

    source: Endpoint | None = None
    destination: Endpoint | None = None


class ProxyHeaderParser:
    """The parser of one header at the start of a connection. `rest` has the bytes after it."""

    def __init__(self) -> None:
        self._buffer = b""
        self.rest = b""

    def feed(self, data: bytes) -> ProxyHeader | None:
        """Take more bytes. Returns the header, or None while it is incomplete; not to be called after that.

        Raises: ProxyProtocolError at the first byte that no header can have.
        """
        self._buffer += data
        found = _parse(self._buffer)
        if found is None:
            return None
        header, end = found
        self.rest = self._buffer[end:]
        self._buffer = b""
        return header


def is_trusted(host: str, networks: Iterable[Network]) -> bool:
    """Return whether a peer's address lies in one of the networks; IPv4 inside IPv6 counts as IPv4."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in networks)


def _parse(data: bytes) -> tuple[ProxyHeader, int] | None:
    """Return the header at the start of `data`, and its length; None while it is incomplete."""
    if _begins(data, _V1_START):
        return _parse_v1(data)
    if _begins(data, _V2_START):
        return _parse_v2(data)
    raise ProxyProtocolError("no PROXY header")


def _begins(data: bytes, start: bytes) -> bool:
    """Return whether `data` starts with `start`, as far as `data` goes."""
    return data[: len(start)] == start[: len(data)]


def _parse_v1(data: bytes) -> tuple[ProxyHeader, int] | None:
    end = data.find(b"\n", 0, V1_BYTES_MAX)
    if end < 0:
        if len(data) >= V1_BYTES_MAX:
            raise ProxyProtocolError("PROXY header longer than 107 bytes")
        return None
    line = data[: end + 1]
    if not line.endswith(b"\r\n"):
        raise ProxyProtocolError("PROXY header without CR LF")
    words = line[:-2].split(b" ")
    if words[1] == b"UNKNOWN":
        return ProxyHeader(), end + 1
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise ProxyProtocolError("bad PROXY header")
    version = 4 if words[1] == b"TCP4" else 6
    source, destination = (_v1_endpoint(version, words[n], words[n + 2]) for n in (2, 3))
    return ProxyHeader(source, destination), end + 1


def _v1_endpoint(version: int, host: bytes, port: bytes) -> Endpoint:
    try:
        address = ipaddress.ip_address(host.decode("ascii"))
    except ValueError as error:
        raise ProxyProtocolError("bad address in PROXY header") from error
    if address.version != version or "%" in str(address):
        raise ProxyProtocolError("bad address in PROXY header")
    if not _V1_PORT.fullmatch(port) or int(port) > _PORT_MAX:
        raise ProxyProtocolError("bad port in PROXY header")
    return Endpoint(str(address), int(port))


def _parse_v2(data: bytes) -> tuple[ProxyHeader, int] | None:
    if len(data) > 12 and data[12] not in (_V2_LOCAL, _V2_PROXY):
        raise ProxyProtocolError("bad version or command in PROXY header")
    if len(data) < _V2_FIXED_BYTES:
        return None
    command, family = data[12], data[13]
    length = int.from_bytes(data[14:16], "big")
    if length > V2_BYTES_MAX:
        raise ProxyProtocolError(f"PROXY header longer than {V2_BYTES_MAX} bytes")
    width = _V2_ADDRESS_BYTES.get(family, 0)
    if command == _V2_PROXY:
        if not width and family not in _V2_WITHOUT_ADDRESS:
            raise ProxyProtocolError("bad address family in PROXY header")
        if width and length < 2 * width + 4:
            raise ProxyProtocolError("PROXY header too short for its addresses")
    end = _V2_FIXED_BYTES + length
    if len(data) < end:
        return None
    if command == _V2_LOCAL or not width:
        return ProxyHeader(), end
    return _v2_addresses(data[_V2_FIXED_BYTES:end], width), end


def _v2_addresses(block: bytes, width: int) -> ProxyHeader:
    hosts = [str(ipaddress.ip_address(block[at : at + width])) for at in (0, width)]
    ports = [int.from_bytes(block[at : at + 2], "big") for at in (2 * width, 2 * width + 2)]
    return ProxyHeader(Endpoint(hosts[0], ports[0]), Endpoint(hosts[1], ports[1]))
