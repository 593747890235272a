"""PROXY protocol headers, whole and byte by byte."""

import ipaddress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from node.io.proxy_protocol import (
    V1_BYTES_MAX,
    V2_BYTES_MAX,
    Endpoint,
    ProxyHeader,
    ProxyHeaderParser,
    ProxyProtocolError,
    is_trusted,
)

V2_START = b"\r\n\r\n\0\r\nQUIT\n"
V4_BLOCK = bytes([192, 0, 2, 7, 10, 0, 0, 1]) + (40000).to_bytes(2, "big") + (5672).to_bytes(2, "big")
V4_HEADER = ProxyHeader(Endpoint("192.0.2.7", 40000), Endpoint("10.0.0.1", 5672))
V6_BLOCK = ipaddress.ip_address("2001:db8::7").packed + ipaddress.ip_address("::1").packed + V4_BLOCK[8:]
V6_HEADER = ProxyHeader(Endpoint("2001:db8::7", 40000), Endpoint("::1", 5672))
OWN_ADDRESSES = ProxyHeader()


def v2(command: int, family: int, block: bytes, length: int | None = None) -> bytes:
    size = len(block) if length is None else length
    return V2_START + bytes([command, family]) + size.to_bytes(2, "big") + block


def read(data: bytes, sizes: list[int] | None = None) -> tuple[ProxyHeader, bytes] | str | None:
    """The header and the rest, the text of the error, or None when incomplete. `sizes`: of the pieces."""
    parser = ProxyHeaderParser()
    pieces: list[bytes] = []
    for size in sizes or []:
        pieces.append(data[:size])
        data = data[size:]
    pieces.append(data)
    for number, piece in enumerate(pieces):
        try:
            header = parser.feed(piece)
        except ProxyProtocolError as error:
            return str(error)
        if header is not None:
            return header, parser.rest + b"".join(pieces[number + 1 :])
    return None


GOOD = [
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 40000 5672\r\n", V4_HEADER),
    (b"PROXY TCP6 2001:db8::7 ::1 40000 5672\r\n", V6_HEADER),
    (
        b"PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n",
        ProxyHeader(Endpoint("0.0.0.0", 0), Endpoint("255.255.255.255", 65535)),
    ),
    (b"PROXY UNKNOWN\r\n", OWN_ADDRESSES),
    (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", OWN_ADDRESSES),
    (v2(0x21, 0x11, V4_BLOCK), V4_HEADER),
    (v2(0x21, 0x21, V6_BLOCK), V6_HEADER),
    (v2(0x21, 0x11, V4_BLOCK + b"\x04\x00\x03abc"), V4_HEADER),  # a TLV
    (v2(0x21, 0x11, V4_BLOCK + bytes(V2_BYTES_MAX - 12)), V4_HEADER),
    (v2(0x20, 0x00, b""), OWN_ADDRESSES),  # LOCAL: the balancer's own health check
    (v2(0x20, 0x11, V4_BLOCK), OWN_ADDRESSES),
    (v2(0x20, 0xFF, b"abc"), OWN_ADDRESSES),
    (v2(0x21, 0x00, b""), OWN_ADDRESSES),  # unspecified
    (v2(0x21, 0x31, bytes(216)), OWN_ADDRESSES),  # a UNIX socket
]
BAD = [
    (b"AMQP\0\0\x09\x01", "no PROXY header"),
    (b"proxy TCP4", "no PROXY header"),
    (b"\r\n\r\n\0\r\nQUIX", "no PROXY header"),
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 40000 5672\n", "PROXY header without CR LF"),
    (b"PROXY " + b"x" * 101, "PROXY header longer than 107 bytes"),
    (b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n", "PROXY header longer than 107 bytes"),
    (b"PROXY \r\n", "bad PROXY header"),
    (b"PROXY TCP4\r\n", "bad PROXY header"),
    (b"PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n", "bad PROXY header"),
    (b"PROXY TCP4  192.0.2.7 10.0.0.1 1 2\r\n", "bad PROXY header"),
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2 3\r\n", "bad PROXY header"),
    (b"PROXY TCP4 ::1 ::1 1 2\r\n", "bad address in PROXY header"),
    (b"PROXY TCP6 10.0.0.1 ::1 1 2\r\n", "bad address in PROXY header"),
    (b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", "bad address in PROXY header"),
    (b"PROXY TCP4 256.0.0.1 10.0.0.1 1 2\r\n", "bad address in PROXY header"),
    (b"PROXY TCP4 \xff 10.0.0.1 1 2\r\n", "bad address in PROXY header"),
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 2\r\n", "bad port in PROXY header"),
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 +1 2\r\n", "bad port in PROXY header"),
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 01 2\r\n", "bad port in PROXY header"),
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 \xb2 2\r\n", "bad port in PROXY header"),
    (v2(0x11, 0x11, V4_BLOCK), "bad version or command in PROXY header"),
    (v2(0x22, 0x11, V4_BLOCK), "bad version or command in PROXY header"),
    (v2(0x21, 0x12, V4_BLOCK), "bad address family in PROXY header"),
    (v2(0x21, 0x41, V4_BLOCK), "bad address family in PROXY header"),
    (v2(0x21, 0x11, V4_BLOCK[:-1]), "PROXY header too short for its addresses"),
    (v2(0x21, 0x21, V4_BLOCK), "PROXY header too short for its addresses"),
    (v2(0x21, 0x11, b"", V2_BYTES_MAX + 1), f"PROXY header longer than {V2_BYTES_MAX} bytes"),
]


@pytest.mark.parametrize(("data", "header"), GOOD)
def test_a_header_and_what_follows_it(data: bytes, header: ProxyHeader) -> None:
    assert read(data) == (header, b"")
    assert read(data + b"AMQP\0\0\x09\x01") == (header, b"AMQP\0\0\x09\x01")


@pytest.mark.parametrize(("data", "header"), GOOD)
def test_no_header_before_its_last_byte(data: bytes, header: ProxyHeader) -> None:
    for end in range(len(data)) if len(data) < 300 else (0, 11, 16, 28, len(data) - 1):
        assert read(data[:end]) is None


@pytest.mark.parametrize(("data", "error"), BAD)
def test_a_bad_header(data: bytes, error: str) -> None:
    assert read(data) == error
    assert read(data, [1] * len(data)) == error


def test_the_longest_line_is_accepted() -> None:
    line = b"PROXY UNKNOWN " + b"x" * 91 + b"\r\n"
    assert len(line) == V1_BYTES_MAX
    assert read(line) == (OWN_ADDRESSES, b"")


STARTS = st.sampled_from(
    [b"", b"PROXY ", b"PROXY TCP4 ", V2_START, V2_START + b"\x21\x11\0", V2_START + b"\x20"]
)
MIXED = st.tuples(STARTS, st.binary(max_size=120)).map(b"".join) | st.sampled_from([d for d, _ in GOOD + BAD])


@given(MIXED, st.lists(st.integers(1, 40), max_size=20))
@example(b"PROXY TCP4 192.0.2.7 10.0.0.1 40000 5672\r\nAMQP", [1] * 46)
def test_whole_or_in_pieces_alike(data: bytes, sizes: list[int]) -> None:
    whole, pieces = read(data), read(data, sizes)
    assert (whole is None) == (pieces is None)
    # A piece may show the first fault before a later one; that there is one is what counts.
    assert isinstance(whole, str) == isinstance(pieces, str)
    if isinstance(whole, tuple):
        assert whole == pieces


@given(st.binary(max_size=300))
def test_memory_is_bounded(data: bytes) -> None:
    """However it comes, no more than the bound is kept waiting."""
    parser = ProxyHeaderParser()
    for start in (b"PROXY ", V2_START + b"\x21\x11\x10\x00"):
        parser = ProxyHeaderParser()
        sent = start
        try:
            while parser.feed(sent) is None:
                sent = data or b"x"
                assert len(parser._buffer) <= 16 + V2_BYTES_MAX + len(sent)
        except ProxyProtocolError:
            pass


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("11.1.2.3", False),
        ("fd00::1", True),
        ("fd00::1%eth0", True),
        ("fe80::1", False),
    ],
)
def test_trusted_sources(host: str, expected: bool) -> None:
    networks = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/16"))
    assert is_trusted(host, networks) is expected
    assert is_trusted(host, ()) is False
