"""Requests in requests: where a balancer in front of the HTTP API and the API could see different ends of a message.

Whatever is ambiguous is refused, and the connection ends with it: nothing behind it is ever taken for a request.
"""

import re
import socket
from collections.abc import Iterator

import pytest

from tests.kit.node_process import NodeProcess, TemporaryNode

SMUGGLED = b"GET /api/smuggled HTTP/1.1\r\nhost: x\r\n\r\n"

AMBIGUOUS = {
    "length and chunks": b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"content-length: 5\r\ncontent-length: 0\r\n\r\n",
    "a list of lengths": b"content-length: 0, 5\r\n\r\n",
    "a length with a sign": b"content-length: +5\r\n\r\nabcde",
    "a length of letters": b"content-length: 0x5\r\n\r\n",
    "a negative length": b"content-length: -5\r\n\r\n",
    "chunked twice": b"transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked, but not last": b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "another encoding": b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"content-length : 5\r\n\r\n",
    "a folded header": b"x: a\r\n b\r\ncontent-length: 5\r\n\r\n",
    "a bare line feed in a header": b"x: a\ncontent-length: 5\r\n\r\n",
    "a null in a header": b"x: a\0b\r\n\r\n",
    "a chunk of a negative size": b"transfer-encoding: chunked\r\n\r\n-1\r\n",
    "a chunk of letters": b"transfer-encoding: chunked\r\n\r\nxyz\r\n",
    "a chunk of 2^64": b"transfer-encoding: chunked\r\n\r\n10000000000000000\r\n",
}


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    with TemporaryNode(management="127.0.0.1:0") as started:
        yield started
        assert "Traceback" not in started.log_text()


def answers(node: NodeProcess, sent: bytes) -> bytes:
    """All that comes back until the node ends the connection."""
    host, _, port = node.management_url.removeprefix("http://").rpartition(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=20.0) as client:
        try:
            client.sendall(sent)
            while data := client.recv(65536):
                received += data
        except ConnectionError:
            pass
    return received


@pytest.mark.parametrize("headers", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_an_ambiguous_request_is_the_last(node: NodeProcess, headers: bytes) -> None:
    opening = b"PUT /api/vhosts/x HTTP/1.1\r\nhost: x\r\nauthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
    received = answers(node, opening + headers + SMUGGLED)
    assert re.fullmatch(rb"HTTP/1\.[01] 400 .*", received, re.DOTALL), received
    assert received.count(b"HTTP/1.") == 1, received


def test_what_is_not_ambiguous_is_answered(node: NodeProcess) -> None:
    """Two requests, one with chunks, get two answers, without which the test above proves nothing."""
    first = b"PUT /api/vhosts/x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    last = SMUGGLED.replace(b"host: x", b"host: x\r\nconnection: close")
    received = answers(node, first + last)
    assert received.startswith(b"HTTP/1.1 401")
    assert received.count(b"HTTP/1.1 ") == 2
    assert b"HTTP/1.1 404" in received
