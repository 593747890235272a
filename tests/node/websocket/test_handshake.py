"""The opening handshake: RFC 6455 §4.2."""

import pytest

from node.websocket.handshake import (
    HEADERS_MAX,
    REQUEST_MAX_BYTES,
    Refused,
    accepted,
    basic_credentials,
    check_request,
    parse_request,
)
from tests.kit.websocket_frames import ACCEPT, request


def opened(data: bytes, origins: tuple[str, ...] = ()) -> bytes:
    found = parse_request(data)
    assert found is not None
    check_request(found[0], "/ws", origins)
    return accepted(found[0], "v12.stomp")


def refused(data: bytes, origins: tuple[str, ...] = ()) -> int:
    with pytest.raises(Refused) as error:
        opened(data, origins)
    assert error.value.answer.startswith(f"HTTP/1.1 {error.value.status} ".encode())
    assert error.value.answer.endswith(b"Connection: close\r\n\r\n")
    return error.value.status


def test_the_key_is_answered() -> None:
    assert opened(request()) == (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + ACCEPT.encode() + b"\r\nSec-WebSocket-Protocol: v12.stomp\r\n\r\n"
    )


def test_without_a_protocol_none_is_named() -> None:
    found = parse_request(request(protocols=""))
    assert found is not None
    assert b"Protocol:" not in accepted(found[0], None)


def test_a_request_comes_in_pieces() -> None:
    data = request("/ws?a=b")
    for size in range(len(data)):
        assert parse_request(data[:size]) is None
    found = parse_request(data + b"rest")
    assert found is not None
    assert found[1] == len(data)
    assert found[0].path == "/ws"


def test_lists_may_be_cut_in_several_headers() -> None:
    data = request(Upgrade="h2c, WebSocket", Connection="close")
    data = data.replace(b"\r\n\r\n", b"\r\nConnection: upgrade\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n")
    found = parse_request(data)
    assert found is not None
    check_request(found[0], "/ws", ())
    assert found[0].tokens("sec-websocket-protocol") == ["v12.stomp", "mqtt"]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request("/"), 404),
        (request(method="POST"), 405),
        (request(Upgrade=None), 426),
        (request(Connection="keep-alive"), 426),
        (request(Sec_WebSocket_Version="8"), 426),
        (request(Sec_WebSocket_Key="short"), 400),
        (request(Sec_WebSocket_Key="not base64!"), 400),
        (request(Host=None), 400),
        (b"GET /ws HTTP/1.0\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /ws HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /ws HTTP/1.1\r\n folded: a\r\n\r\n", 400),
        (b"GET /ws HTTP/1.1\r\n" + b"a: b\r\n" * (HEADERS_MAX + 1) + b"\r\n", 431),
        (b"GET /ws HTTP/1.1\r\na: " + b"b" * REQUEST_MAX_BYTES, 431),
        (b"\x16\x03\x01" + bytes(REQUEST_MAX_BYTES), 431),
    ],
)
def test_other_requests_are_refused(data: bytes, status: int) -> None:
    assert refused(data) == status


def test_pages_of_other_origins_may_be_refused() -> None:
    data = request(Origin="https://a.example")
    assert opened(data)
    assert opened(data, ("https://b.example", "https://a.example"))
    assert refused(data, ("https://b.example",)) == 403
    assert opened(request(), ("https://b.example",)), "what is no page has no origin"


@pytest.mark.parametrize(
    ("header", "credentials"),
    [
        ("Basic Z3Vlc3Q6Z3U6ZXN0", ("guest", b"gu:est")),
        ("basic Z3Vlc3Q6", ("guest", b"")),
        ("Bearer abc", None),
        ("Basic Z3Vlc3Q=", None),
        ("Basic ???", None),
        (None, None),
    ],
)
def test_credentials_of_http(header: str | None, credentials: object) -> None:
    found = parse_request(request(Authorization=header))
    assert found is not None
    assert basic_credentials(found[0]) == credentials
