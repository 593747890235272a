"""STOMP over WebSocket, with two clients: websocket-client, and stomp.py upon it."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import stomp
import websocket

from tests.conformance.stomp.conftest import PLUGIN, start_stomp
from tests.conformance.stomp.test_client_stomp_py import Heard
from tests.kit.client_steps import TIMEOUT_S
from tests.kit.ports import free_port
from tests.kit.servers import Server

Name = Callable[[str], str]
Connect = Callable[..., Any]

CONNECT = "CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0"


class WebServer(NamedTuple):
    """A server and the port of its listener for WebSockets."""

    server: Server
    port: int


@pytest.fixture(scope="session")
def web_server() -> Iterator[WebServer]:
    """The server of these tests, with both plug-ins."""
    port = free_port()
    settings = {"web_stomp.tcp.ip": "127.0.0.1", "web_stomp.tcp.port": str(port)}
    started = start_stomp(settings, (PLUGIN, "rabbitmq_web_stomp"))
    yield WebServer(started.server, port)
    started.server.stop()


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
    client = connect()
    client.send("DISCONNECT\nreceipt:bye\n\n\0")
    assert client.recv().startswith("RECEIPT\nreceipt-id:bye\n")
    opcode, data = client.recv_data(control_frame=True)
    assert opcode == websocket.ABNF.OPCODE_CLOSE
    assert int.from_bytes(data[:2]) == 1000


@pytest.mark.parametrize("path", ["/", "/wsx", "/ws/123/websocket"])
def test_other_paths_are_not_found(web_server: WebServer, path: str) -> None:
    with pytest.raises(websocket.WebSocketBadStatusException) as error:
        websocket.create_connection(f"ws://127.0.0.1:{web_server.port}{path}", timeout=TIMEOUT_S)
    assert error.value.status_code == 404


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
