"""A protocol over WebSocket in a world: STOMP, which is the first to be carried so."""

import weakref

import pytest

from node.client.endpoint import ClientEndpoint
from node.client.session import SessionConnection
from node.stomp.web_plugin import PLUGIN, WebStompListener
from node.websocket.connection import INFLATED_IN_A_TURN_BYTES, WebSocketConnection
from node.websocket.deflate import INFLATED_PIECE_BYTES
from tests.kit.memory import assert_gone, no_search_for_cycles
from tests.kit.websocket_frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    ServerFrame,
    client_frame,
    deflated_message,
    request,
    server_frames,
)
from tests.kit.world import World

CONNECT = b"CONNECT\naccept-version:1.2\nlogin:guest\npasscode:guest\n\n\0"
SEND = b"SEND\ndestination:/queue/a\n\nm\0"


class WebClient:
    """A client's socket.   written: what the node has sent and no test has read."""

    def __init__(self, world: World | None = None, **settings: str) -> None:
        self.world = world or World()
        given = {key.replace("__", "."): value for key, value in settings.items()}
        self.connection = SessionConnection(
            self.world.broker,
            ClientEndpoint(),
            plugin=PLUGIN.name,
            listener=WebStompListener(PLUGIN.listener_settings(given)),
            now=self.world.now,
            on_change=lambda: None,
        )
        self.world.clients[self.connection] = self  # type: ignore[assignment]
        self.written = b""
        self.is_reset = False

    @classmethod
    def opened(cls, world: World | None = None, **settings: str) -> "WebClient":
        """Return a client whose WebSocket is open, and which is logged in."""
        client = cls(world, **settings)
        assert client.ask(request()).startswith(b"HTTP/1.1 101 ")
        (frame,) = client.frames(client_frame(TEXT, CONNECT))
        assert frame.payload.startswith(b"CONNECTED\n")
        return client

    def feed(self, data: bytes) -> None:
        """Send bytes."""
        if not self.is_reset:
            self.connection.receive_data(data, self.world.now)

    def ask(self, data: bytes) -> bytes:
        """Send bytes, and return what is answered."""
        self.feed(data)
        self.world.settle()
        answer, self.written = self.written, b""
        return answer

    def frames(self, data: bytes = b"") -> list[ServerFrame]:
        """Send bytes, and return the frames that come."""
        return server_frames(self.ask(data))

    def flush(self) -> None:
        """Flush the connection as the shell does after a turn."""
        self.written += b"".join(self.connection.take_output())
        if self.connection.is_finished:
            self.lose()
        elif self.connection.is_writable:
            self.connection.flushed()

    def lose(self) -> None:
        """Close the socket."""
        if not self.is_reset:
            self.is_reset = True
            del self.world.clients[self.connection]
            self.connection.lost(self.world.now)


def test_operators_see_the_protocol() -> None:
    client = WebClient()
    assert client.connection.protocol == "Web STOMP"
    client = WebClient.opened()
    assert client.connection.protocol == "Web STOMP 1.2"


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("v12.stomp", b"v12.stomp"),
        ("v10.stomp, v11.stomp", b"v11.stomp"),
        ("soap, v10.stomp", b"v10.stomp"),
        ("soap", None),
        ("", None),
    ],
)
def test_a_sub_protocol_is_chosen(offered: str, chosen: bytes | None) -> None:
    answer = WebClient().ask(request(protocols=offered))
    assert answer.startswith(b"HTTP/1.1 101 ")
    if chosen is None:
        assert b"Sec-WebSocket-Protocol" not in answer
    else:
        assert b"Sec-WebSocket-Protocol: %b\r\n" % chosen in answer


def test_a_refused_request_ends_the_connection() -> None:
    client = WebClient()
    assert client.ask(request("/elsewhere")).startswith(b"HTTP/1.1 404 ")
    assert client.is_reset


def test_the_path_and_the_origins_are_set() -> None:
    settings = {
        "web_stomp__ws_path": "/stomp",
        "web_stomp__allow_origins": "https://a.example, https://b.example",
    }
    assert WebClient(**settings).ask(request("/ws")).startswith(b"HTTP/1.1 404 ")
    assert (
        WebClient(**settings).ask(request("/stomp", Origin="https://b.example")).startswith(b"HTTP/1.1 101 ")
    )
    assert (
        WebClient(**settings).ask(request("/stomp", Origin="https://c.example")).startswith(b"HTTP/1.1 403 ")
    )


def test_frames_may_come_with_the_request_and_in_pieces() -> None:
    client = WebClient()
    data = request() + client_frame(TEXT, CONNECT) + client_frame(TEXT, SEND)
    for octet in data:
        client.feed(bytes([octet]))
    client.world.settle()
    assert client.world.queue("a").backlog.count == 1
    client = WebClient(client.world)
    client.ask(data)
    assert client.world.queue("a").backlog.count == 2


def test_a_frame_of_stomp_may_be_cut_in_messages() -> None:
    client = WebClient.opened()
    half = len(SEND) // 2
    client.ask(client_frame(TEXT, SEND[:half]) + client_frame(BINARY, SEND[half:] + SEND))
    assert client.world.queue("a").backlog.count == 2


def test_deliveries_of_a_run_are_one_message() -> None:
    client = WebClient.opened()
    client.ask(client_frame(TEXT, b"SUBSCRIBE\ndestination:/queue/a\nid:1\n\n\0"))
    frames = client.frames(client_frame(TEXT, SEND * 5))
    assert [frame.opcode for frame in frames] == [TEXT]
    assert frames[0].payload.count(b"MESSAGE\n") == 5


def test_octets_that_are_no_text_are_sent_as_binary() -> None:
    client = WebClient.opened()
    client.ask(client_frame(TEXT, b"SUBSCRIBE\ndestination:/queue/a\nid:1\n\n\0"))
    (frame,) = client.frames(client_frame(BINARY, b"SEND\ndestination:/queue/a\n\n\xff\0"))
    assert frame.opcode == BINARY
    (frame,) = client.frames(client_frame(TEXT, SEND))
    assert frame.opcode == TEXT
    client = WebClient(web_stomp__ws_frame="binary")
    client.ask(request())
    (frame,) = client.frames(client_frame(TEXT, CONNECT))
    assert frame.opcode == BINARY


def test_pings_are_answered() -> None:
    client = WebClient.opened()
    assert client.frames(client_frame(PING, b"x")) == [ServerFrame(PONG, b"x")]


def test_a_client_closes_after_its_messages() -> None:
    client = WebClient.opened()
    code = (1000).to_bytes(2, "big")
    frames = client.frames(client_frame(TEXT, SEND * 50) + client_frame(CLOSE, code))
    assert frames == [ServerFrame(CLOSE, code)]
    assert client.is_reset
    assert client.world.queue("a").backlog.count == 50


def test_a_client_may_close_before_it_logs_in() -> None:
    client = WebClient()
    client.ask(request())
    assert [frame.opcode for frame in client.frames(client_frame(CLOSE, b""))] == [CLOSE]
    assert client.is_reset


def test_the_protocol_closes_with_a_close_frame() -> None:
    client = WebClient.opened()
    frames = client.frames(client_frame(TEXT, b"DISCONNECT\nreceipt:r\n\n\0"))
    assert [frame.opcode for frame in frames] == [TEXT, CLOSE]
    assert not client.is_reset, "the client may answer"
    client.ask(client_frame(CLOSE, (1000).to_bytes(2, "big")))
    assert client.is_reset


def test_a_client_that_does_not_answer_a_close_frame_is_closed() -> None:
    client = WebClient.opened()
    client.ask(client_frame(TEXT, b"DISCONNECT\n\n\0"))
    client.world.advance(5.1)
    assert client.is_reset


def test_the_node_says_why_it_closes() -> None:
    client = WebClient.opened()
    client.connection.force_close("shutdown")
    text, close = client.frames()
    assert text.payload.startswith(b"ERROR\nmessage:connection_forced\n")
    assert close == ServerFrame(CLOSE, (1001).to_bytes(2, "big"))
    assert client.is_reset


def test_what_stands_before_a_fault_is_carried_out() -> None:
    client = WebClient.opened()
    client.ask(client_frame(TEXT, SEND) + client_frame(3, b""))
    assert client.is_reset
    assert client.world.queue("a").backlog.count == 1


@pytest.mark.parametrize(
    ("data", "code"), [(client_frame(TEXT, b"\xff"), 1007), (client_frame(0x40 | TEXT, b"a"), 1002)]
)
def test_bytes_that_are_no_frames_end_the_connection(data: bytes, code: int) -> None:
    client = WebClient.opened()
    (frame,) = client.frames(data)
    assert frame.opcode == CLOSE
    assert int.from_bytes(frame.payload[:2]) == code
    assert client.is_reset


@pytest.mark.parametrize(
    ("header", "is_let_in"),
    [("Basic Z3Vlc3Q6Z3Vlc3Q=", True), ("Basic Z3Vlc3Q6d3Jvbmc=", False), (None, True)],
)
def test_the_login_may_be_that_of_http(header: str | None, is_let_in: bool) -> None:
    """Without a header the default user counts, and the login of CONNECT never does."""
    client = WebClient(web_stomp__use_http_auth="true")
    client.ask(request(Authorization=header))
    connect = b"CONNECT\naccept-version:1.2\nlogin:nobody\npasscode:x\n\n\0"
    frame = client.frames(client_frame(TEXT, connect))[0]
    assert frame.payload.startswith(b"CONNECTED\n" if is_let_in else b"ERROR\n")


def test_settings_of_stomp_hold_here_too() -> None:
    client = WebClient(stomp__default_user="", web_stomp__tcp__port="1")
    client.ask(request())
    frame = client.frames(client_frame(TEXT, b"CONNECT\naccept-version:1.2\n\n\0"))[0]
    assert frame.payload.startswith(b"ERROR\nmessage:Bad CONNECT\n")


@pytest.mark.parametrize(
    ("settings", "addresses"),
    [
        ({}, [("15674", False)]),
        ({"tcp.port": "1", "tcp.ip": "127.0.0.1"}, [("127.0.0.1:1", False)]),
        ({"tcp.port": "1", "tcp.ip": "::1"}, [("[::1]:1", False)]),
        ({"port": "5"}, [("5", False)]),
        ({"tcp.listener": "127.0.0.1:2", "ssl.port": "3"}, [("127.0.0.1:2", False), ("3", True)]),
        ({"tcp.listener": "none", "ssl.listener": "127.0.0.1:4"}, [("127.0.0.1:4", True)]),
    ],
)
def test_where_it_listens(settings: dict[str, str], addresses: list[tuple[str, bool]]) -> None:
    given = {f"web_stomp.{key}": value for key, value in settings.items()}
    assert WebStompListener.addresses(PLUGIN.listener_settings(given)) == addresses


class DeflatingClient(WebClient):
    """A client whose messages are compressed both ways."""

    def frames(self, data: bytes = b"") -> list[ServerFrame]:
        return server_frames(self.ask(data), can_inflate=True)


def test_compression_is_agreed_on() -> None:
    answer = WebClient().ask(
        request(Sec_WebSocket_Extensions="x-unknown, permessage-deflate; client_max_window_bits")
    )
    assert (
        b"\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; "
        b"client_no_context_takeover\r\n"
    ) in answer
    for settings, offer in (
        ({}, "x-unknown"),
        ({"web_stomp__ws_opts__compress": "false"}, "permessage-deflate"),
    ):
        assert b"Extensions" not in WebClient(**settings).ask(request(Sec_WebSocket_Extensions=offer))


def test_messages_are_compressed_both_ways() -> None:
    client = DeflatingClient()
    client.ask(request(Sec_WebSocket_Extensions="permessage-deflate"))
    client.frames(deflated(CONNECT))
    client.ask(deflated(b"SUBSCRIBE\ndestination:/queue/a\nid:1\n\n\0"))
    body = b"abc" * 1000
    answer = client.ask(deflated(b"SEND\ndestination:/queue/a\n\n%b\0" % body))
    assert len(answer) < 300
    (frame,) = server_frames(answer, can_inflate=True)
    assert frame.payload.endswith(b"\n\n%b\0\n" % body)
    (frame,) = server_frames(client.ask(deflated(SEND)))
    assert frame.payload.endswith(b"\n\nm\0\n"), "a short one is sent as it is"


def deflated(data: bytes) -> bytes:
    """Return a message that is compressed."""
    return client_frame(TEXT, deflated_message(data), is_deflated=True)


@pytest.mark.parametrize("first", [b"", b"SUBSCRIBE\ndestination:/topic/a\nid:1\n\n\0"])
def test_a_message_that_becomes_large_is_read_a_part_a_turn(first: bytes) -> None:
    """The rest waits compressed, and nothing is read meanwhile; a frame that waits for the node holds it up, too."""
    client = DeflatingClient()
    client.ask(request(Sec_WebSocket_Extensions="permessage-deflate"))
    client.ask(deflated(CONNECT))
    count = 8 * INFLATED_IN_A_TURN_BYTES // len(SEND)
    client.feed(deflated(first + SEND * count) + deflated(SEND))
    assert not client.connection.is_reading
    web = client.connection._client
    assert isinstance(web, WebSocketConnection)
    within = web._inner
    assert within._decoder.buffered_bytes < 2 * INFLATED_PIECE_BYTES
    turns = 0
    while client.world.broker.has_work:
        turns += 1
        for connection in client.world.broker.turn(client.world.now):
            client.world.clients[connection].flush()
        assert within._decoder.buffered_bytes < 2 * INFLATED_PIECE_BYTES
    assert turns > 6
    assert client.world.queue("a").backlog.count == count + 1
    assert client.connection.is_reading


def test_what_is_blocked_is_not_inflated() -> None:
    """A publisher that an alarm blocks has its message waiting as it came."""
    client = DeflatingClient()
    client.ask(request(Sec_WebSocket_Extensions="permessage-deflate"))
    client.ask(deflated(CONNECT + SEND))
    client.world.broker.alarms.set("memory", "node")
    client.ask(deflated(SEND * (8 * INFLATED_IN_A_TURN_BYTES // len(SEND))))
    assert client.world.queue("a").backlog.count == 1
    assert client.connection._reader.kept_bytes < 4 * INFLATED_IN_A_TURN_BYTES, "a frame of AMQP's is longer"
    client.world.broker.alarms.clear("memory", "node")
    client.world.settle()
    assert client.world.queue("a").backlog.count == 1 + 8 * INFLATED_IN_A_TURN_BYTES // len(SEND)


def test_a_bomb_before_the_login_ends_the_connection() -> None:
    client = DeflatingClient()
    client.ask(request(Sec_WebSocket_Extensions="permessage-deflate"))
    frames = client.frames(deflated(b"CONNECT\na:" + b"b" * 4 * INFLATED_IN_A_TURN_BYTES))
    assert frames[0].payload.startswith(b"ERROR\nmessage:Bad frame\n")


def test_blank_lines_before_the_login_leave_others_their_turns() -> None:
    client = DeflatingClient()
    client.ask(request(Sec_WebSocket_Extensions="permessage-deflate"))
    client.feed(deflated(b"\n" * 4 * INFLATED_IN_A_TURN_BYTES + CONNECT))
    assert not client.connection.is_reading
    client.world.advance(0.001)
    (frame,) = client.frames()
    assert frame.payload.startswith(b"CONNECTED\n")
    assert client.connection.is_reading


def test_a_close_frame_after_a_large_message_is_in_order() -> None:
    client = DeflatingClient()
    client.ask(request(Sec_WebSocket_Extensions="permessage-deflate"))
    client.ask(deflated(CONNECT))
    count = 4 * INFLATED_IN_A_TURN_BYTES // len(SEND)
    code = (1000).to_bytes(2, "big")
    frames = client.frames(deflated(SEND * count) + client_frame(CLOSE, code))
    assert frames == [ServerFrame(CLOSE, code)]
    assert client.is_reset
    assert client.world.queue("a").backlog.count == count


def test_a_client_that_goes_leaves_nothing_of_its_message() -> None:
    with no_search_for_cycles():
        client = DeflatingClient()
        client.ask(request(Sec_WebSocket_Extensions="permessage-deflate"))
        client.ask(deflated(CONNECT))
        client.feed(deflated(SEND * (4 * INFLATED_IN_A_TURN_BYTES // len(SEND))))
        found = weakref.ref(client.connection._client)
        client.lose()
        client.world.settle()
        del client
        assert_gone(found)


def test_a_connection_is_freed_with_its_last_reference() -> None:
    with no_search_for_cycles():
        client = WebClient.opened()
        found = weakref.ref(client.connection._client)
        client.lose()
        client.world.settle()
        del client
        assert_gone(found)
