"""STOMP over WebSocket, with two clients: websocket-client, and stomp.py upon it."""

import socket
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import stomp
import websocket

from tests.conformance.stomp.conftest import WebServer
from tests.conformance.stomp.test_client_stomp_py import Heard
from tests.kit.client_steps import TIMEOUT_S
from tests.kit.patience import patience
from tests.kit.server_cluster import is_rabbitmq
from tests.kit.websocket_frames import TEXT, client_frame, deflated_message, request

Name = Callable[[str], str]
Connect = Callable[..., Any]

CONNECT = "CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0"


@pytest.fixture
def connect(web_server: WebServer) -> Iterator[Connect]:
    """WebSockets that are open; `login=True` connects them to STOMP as well."""
    opened: list[Any] = []

    def make(*, login: bool = True, **options: Any) -> Any:
        options = {"subprotocols": ["v12.stomp"], "timeout": TIMEOUT_S, **options}
        opened.append(websocket.create_connection(f"ws://127.0.0.1:{web_server.port}/ws", **options))
        if login:
            opened[-1].send(CONNECT)
            assert opened[-1].recv().startswith("CONNECTED\n")
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def test_messages_over_a_websocket(connect: Connect, name: Name) -> None:
    client, destination = connect(), f"/queue/{name('q')}"
    client.send(f"SUBSCRIBE\ndestination:{destination}\nid:1\nreceipt:r\n\n\0")
    assert client.recv().startswith("RECEIPT\nreceipt-id:r\n")
    client.send(f"SEND\ndestination:{destination}\n\ngrün\0")
    message = client.recv()
    assert message.startswith("MESSAGE\nsubscription:1\n")
    assert "\n\ngrün\0" in message


def test_a_frame_may_be_cut(connect: Connect, name: Name) -> None:
    client, destination = connect(), f"/queue/{name('q')}"
    client.send(f"SUBSCRIBE\ndestination:{destination}\nid:1\n\n\0SEND\ndestination:{destination}\n\nha")
    client.send_binary(b"lf\0\n")
    assert "\n\nhalf\0" in client.recv()


@pytest.mark.parametrize(
    ("offered", "chosen"), [(["v10.stomp", "v11.stomp"], "v11.stomp"), (["v12.stomp", "soap"], "v12.stomp")]
)
def test_a_sub_protocol_is_chosen(connect: Connect, offered: list[str], chosen: str) -> None:
    assert connect(login=False, subprotocols=offered).getsubprotocol() == chosen


def test_a_client_may_offer_no_sub_protocol(connect: Connect) -> None:
    assert connect(subprotocols=None).getsubprotocol() is None


def test_pings_are_answered(connect: Connect) -> None:
    client = connect()
    client.ping("are you there")
    opcode, data = client.recv_data(control_frame=True)
    assert (opcode, data) == (websocket.ABNF.OPCODE_PONG, b"are you there")


def test_the_end_is_a_close_frame(connect: Connect) -> None:
    """RabbitMQ's comes without the receipt before it."""
    client = connect()
    client.send("DISCONNECT\nreceipt:bye\n\n\0")
    if not is_rabbitmq():
        assert client.recv().startswith("RECEIPT\nreceipt-id:bye\n")
    opcode, data = client.recv_data(control_frame=True)
    assert opcode == websocket.ABNF.OPCODE_CLOSE
    assert int.from_bytes(data[:2]) == 1000


@pytest.mark.parametrize("path", ["/", "/wsx", "/ws/123/websocket"])
def test_other_paths_are_not_found(web_server: WebServer, path: str) -> None:
    with pytest.raises(websocket.WebSocketBadStatusException) as error:
        websocket.create_connection(f"ws://127.0.0.1:{web_server.port}{path}", timeout=TIMEOUT_S)
    assert error.value.status_code == 404


class Deflating:
    """A client whose messages are compressed: websocket-client cannot do so.   extension: the server's answer."""

    def __init__(self, port: int, offer: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S * patience())
        self._socket.sendall(request(Sec_WebSocket_Extensions=offer))
        self._inflater = zlib.decompressobj(-15)  # a server may refer to its earlier messages
        self._data = b""
        while b"\r\n\r\n" not in self._data:
            self._receive()
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        lines = [line.partition(": ") for line in head.decode().split("\r\n")]
        self.extension = next(
            (text for name, _, text in lines if name.lower() == "sec-websocket-extensions"), ""
        )

    def _receive(self) -> None:
        received = self._socket.recv(65536)
        assert received, "the server has closed the connection"
        self._data += received

    def send(self, data: bytes) -> None:
        """Send a message, compressed without a window of earlier ones."""
        self._socket.sendall(client_frame(TEXT, deflated_message(data), is_deflated=True))

    def frame(self) -> tuple[bool, bytes]:
        """Return whether the next frame of the server was compressed, and its payload."""
        while (found := self._whole()) is None:
            self._receive()
        is_deflated, payload = found
        return is_deflated, self._inflater.decompress(payload + b"\0\0\xff\xff") if is_deflated else payload

    def _whole(self) -> tuple[bool, bytes] | None:
        if len(self._data) < 10:
            return None
        first, size, at = self._data[0], self._data[1], 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(self._data[at : at + width]), at + width
        if len(self._data) < at + size:
            return None
        payload, self._data = self._data[at : at + size], self._data[at + size :]
        return bool(first & 0x40), payload

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


@pytest.mark.parametrize(
    "offer",
    [
        "permessage-deflate",
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
        "permessage-deflate; server_max_window_bits=10",
    ],
)
def test_messages_are_compressed(web_server: WebServer, name: Name, offer: str) -> None:
    client, destination = Deflating(web_server.port, offer), f"/queue/{name('q')}"
    assert client.extension.startswith("permessage-deflate")
    client.send(CONNECT.encode())
    assert client.frame()[1].startswith(b"CONNECTED\n")
    client.send(f"SUBSCRIBE\ndestination:{destination}\nid:1\n\n\0".encode())
    for number in range(3):
        body = b"%d" % number * 10_000
        client.send(f"SEND\ndestination:{destination}\n\n".encode() + body + b"\0")
        is_deflated, message = client.frame()
        assert is_deflated
        assert message.rstrip(b"\n").endswith(b"\n\n%b\0" % body)
    client.close()


@pytest.mark.parametrize("offer", ["x-unknown", "permessage-deflate; unknown"])
def test_other_extensions_are_declined(web_server: WebServer, offer: str) -> None:
    client = Deflating(web_server.port, offer)
    assert client.extension == ""
    client.close()


def test_large_messages(connect: Connect, name: Name) -> None:
    client, destination = connect(), f"/queue/{name('q')}"
    client.send(f"SUBSCRIBE\ndestination:{destination}\nid:1\n\n\0")
    body = "x" * 1_000_000
    client.send(f"SEND\ndestination:{destination}\n\n{body}\0")
    assert client.recv().count("x") >= len(body)


def test_stomp_py_over_a_websocket(web_server: WebServer, name: Name) -> None:
    connection = stomp.WSStompConnection(
        [("127.0.0.1", web_server.port)], vhost="/", ws_path="/ws", reconnect_attempts_max=1
    )
    heard = Heard()
    connection.set_listener("heard", heard)
    connection.connect("guest", "guest", wait=True)
    destination = f"/queue/{name('q')}"
    connection.subscribe(destination, id="1", ack="client-individual")
    connection.send(destination, "m")
    headers, body = heard.next("message")
    assert body == "m"
    connection.ack(headers["ack"] if "ack" in headers else headers["message-id"], "1")
    connection.disconnect()


def test_nothing_is_lost_between_tcp_and_websocket(
    web_server: WebServer, connect: Connect, name: Name
) -> None:
    """Many messages come in order however they share WebSocket messages."""
    client, destination = connect(), f"/queue/{name('q')}"
    client.send(f"SUBSCRIBE\ndestination:{destination}\nid:1\n\n\0")
    for number in range(500):
        client.send(f"SEND\ndestination:{destination}\n\n{number}!\0")
    received = ""
    while received.count("MESSAGE\n") < 500 or not received.rstrip("\n").endswith("\0"):
        received += client.recv()
    numbers = [
        int(part.rpartition("\n\n")[2].rstrip("!")) for part in received.split("\0") if "MESSAGE" in part
    ]
    assert numbers == list(range(500))
