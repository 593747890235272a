"""amqp-behaviour §0.3, §1.1, §1.3, §1.4, §1.6, §1.7: what takes the protocol's seconds.

Each case is a connection that misbehaves and is then watched until its end. All run at once, each in a thread
of its own, and the tests look at what came out: so the file takes as long as its slowest case, 13 seconds.
"""

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pytest

from node.amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD, PROTOCOL_HEADER
from node.amqp.field_table import Table, boolean, encode_table, long, longstr, table
from node.amqp.method_codec import decode_method, encode_method
from node.amqp.methods import (
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionSecureOk,
    ConnectionTuneOk,
    Method,
    QueueDeclare,
)
from tests.kit.amqp_client import Channel, Connection, content_header, frame
from tests.kit.patience import patience
from tests.kit.servers import Server

pytestmark = pytest.mark.slow

PAUSE_S: Final = 3.0
"""The server keeps silent for this long after a failed handshake or a broken frame."""

HANDSHAKE_TIMEOUT_S: Final = 10.0
EARLY_S: Final = 0.1
LATE_S: Final = 1.5
"""An answer may come so much sooner or later than the reference says."""

WATCH_S: Final = 13.0

HEARTBEAT_FRAME: Final = frame(FRAME_HEARTBEAT, 0, b"")
TELLS_OF_FAILURE: Table = {"capabilities": table({"authentication_failure_close": boolean(True)})}


@dataclass(frozen=True, slots=True)
class Ending:
    """Holds what a connection saw after it misbehaved."""

    received: bytes
    seconds: float | None
    """The server ended the connection after this time; None: it did not."""


Case = Callable[[Server], Ending]
CASES: dict[str, Case] = {}
SILENT_PAUSE: list[str] = []
"""The cases that see nothing, and the end after three seconds."""
SILENT_AFTER_TUNE: Final = ("open_before_tune_ok", "close_before_tune_ok")
"""These cases end in silence as well, but connection.tune was on its way before."""

TUNE_BYTES: Final = 20


def _watch(connection: Connection) -> Ending:
    """Read until the server ends the connection."""
    began = time.monotonic()
    received = b""
    while (left := began + WATCH_S - time.monotonic()) > 0:
        connection.socket.settimeout(left)
        try:
            data = connection.socket.recv(65536)
        except TimeoutError:
            break
        except ConnectionError:
            data = b""
        if not data:
            return Ending(received, time.monotonic() - began)
        received += data
    return Ending(received, None)


def _silent(case: str, misbehave: Callable[[Connection], None]) -> None:
    """Enter a case of §1.3 or §1.4: done before open, nothing sent, the end after three seconds."""

    def run(server: Server) -> Ending:
        connection = Connection(server, open=False)
        misbehave(connection)
        return _watch(connection)

    CASES[case] = run
    SILENT_PAUSE.append(case)


def _start_ok(case: str, mechanism: str, response: bytes, client_properties: Table | None = None) -> None:
    def misbehave(connection: Connection) -> None:
        connection.client_properties = client_properties or {}
        connection.start()
        connection.send_start_ok(mechanism, response)

    _silent(case, misbehave)


def _tune_ok(case: str, channel_max: int, frame_max: int) -> None:
    def misbehave(connection: Connection) -> None:
        connection.channel_max, connection.frame_max = channel_max, frame_max
        connection.start()
        connection.send_start_ok()
        connection.tune()

    _silent(case, misbehave)


def _instead_of_start_ok(case: str, raw: bytes) -> None:
    def misbehave(connection: Connection) -> None:
        connection.start()
        connection.send_bytes(raw)

    _silent(case, misbehave)


def _method(method: Method, channel: int = 0) -> bytes:
    return frame(FRAME_METHOD, channel, encode_method(method))


_start_ok("PLAIN without a NUL", "PLAIN", b"guest")
_start_ok("PLAIN empty", "PLAIN", b"")
_start_ok("PLAIN with an authzid", "PLAIN", b"guest\0guest\0guest")
_start_ok("PLAIN with one field", "PLAIN", b"\0guest")
_start_ok("PLAIN with three fields", "PLAIN", b"\0guest\0guest\0")
_start_ok("PLAIN malformed, with the capability", "PLAIN", b"guest", TELLS_OF_FAILURE)
_start_ok("AMQPLAIN without PASSWORD", "AMQPLAIN", encode_table({"LOGIN": longstr("guest")})[4:])
_start_ok("AMQPLAIN without LOGIN", "AMQPLAIN", encode_table({"PASSWORD": longstr("guest")})[4:])
_start_ok(
    "AMQPLAIN with a number for LOGIN",
    "AMQPLAIN",
    encode_table({"LOGIN": long(1), "PASSWORD": longstr("guest")})[4:],
)
_start_ok("AMQPLAIN with a bad table", "AMQPLAIN", b"\x05LOGINS\0\0\0\xffguest")
_start_ok("AMQPLAIN empty", "AMQPLAIN", b"")
_start_ok("mechanism EXTERNAL", "EXTERNAL", b"")
_start_ok("mechanism NOPE", "NOPE", b"\0guest\0guest")
_start_ok("mechanism in lower case", "plain", b"\0guest\0guest")
_start_ok("mechanism with the capability", "NOPE", b"\0guest\0guest", TELLS_OF_FAILURE)
_start_ok("wrong password without the capability", "PLAIN", b"\0guest\0wrong")
_start_ok("unknown user without the capability", "PLAIN", b"\0nobody-knows\0guest")
_start_ok("empty password without the capability", "PLAIN", b"\0guest\0")
_start_ok(
    "wrong password with the capability false",
    "PLAIN",
    b"\0guest\0wrong",
    {"capabilities": table({"authentication_failure_close": boolean(False)})},
)
_start_ok("start-ok of 5000 bytes", "PLAIN", b"\0guest\0guest", {"p": longstr(b"x" * 4900)})
_instead_of_start_ok("channel.open before start-ok", _method(ChannelOpen(), 1))
_instead_of_start_ok("channel.open on channel 0 before start-ok", _method(ChannelOpen()))
_instead_of_start_ok("connection.open before start-ok", _method(ConnectionOpen()))
_instead_of_start_ok("tune-ok before start-ok", _method(ConnectionTuneOk(2047, 131072, 60)))
_instead_of_start_ok("close before start-ok", _method(ConnectionClose(200, "bye")))
_instead_of_start_ok("close-ok before start-ok", _method(ConnectionCloseOk()))
_instead_of_start_ok("start-ok with a bad table", frame(FRAME_METHOD, 0, b"\0\x0a\0\x0b\0\0\0\xff"))
_instead_of_start_ok("secure-ok before start-ok", _method(ConnectionSecureOk(b"x")))
_instead_of_start_ok("header frame before start-ok", frame(FRAME_HEADER, 0, content_header(0)))
_instead_of_start_ok("body frame before start-ok", frame(FRAME_BODY, 1, b"x"))
_instead_of_start_ok("unknown frame before start-ok", frame(9, 0, b"abc"))
_instead_of_start_ok("bad frame end before start-ok", frame(FRAME_METHOD, 0, b"\0\x0a\0\x0b", end=0))
_tune_ok("frame_max 0", 2047, 0)
_tune_ok("frame_max 131073", 2047, 131073)
_tune_ok("frame_max 4095", 2047, 4095)
_tune_ok("frame_max 1", 2047, 1)
_tune_ok("channel_max 0", 0, 131072)
_tune_ok("channel_max 2048", 2048, 131072)
_tune_ok("channel_max 65535", 65535, 131072)


def case(made: Case) -> Case:
    """Enter a case by its function's name."""
    CASES[made.__name__] = made
    return made


def _after_tune(server: Server) -> Connection:
    connection = Connection(server, open=False)
    connection.start()
    connection.send_start_ok()
    connection.tune()
    return connection


@case
def open_before_tune_ok(server: Server) -> Ending:
    connection = Connection(server, open=False)
    connection.start()
    connection.send_start_ok()
    connection.send(ConnectionOpen)
    return _watch(connection)


@case
def close_before_tune_ok(server: Server) -> Ending:
    connection = Connection(server, open=False)
    connection.start()
    connection.send_start_ok()
    connection.send(ConnectionClose, reply_code=200, reply_text="bye")
    return _watch(connection)


@case
def wrong_password_with_capability(server: Server) -> Ending:
    connection = Connection(server, password="wrong", client_properties=TELLS_OF_FAILURE, open=False)
    connection.start()
    connection.send_start_ok()
    return _watch(connection)


@case
def no_header(server: Server) -> Ending:
    return _watch(Connection(server, open=False))


@case
def part_of_a_header(server: Server) -> Ending:
    connection = Connection(server, open=False)
    connection.send_bytes(PROTOCOL_HEADER[:7])
    return _watch(connection)


@case
def nothing_after_start(server: Server) -> Ending:
    connection = Connection(server, open=False)
    connection.start()
    return _watch(connection)


@case
def nothing_after_tune(server: Server) -> Ending:
    connection = Connection(server, open=False)
    connection.start()
    connection.send_start_ok()
    return _watch(connection)


@case
def nothing_after_tune_ok(server: Server) -> Ending:
    return _watch(_after_tune(server))


@case
def slow_header(server: Server) -> Ending:
    """One byte a second does not stretch the time: it counts from the accept."""
    connection = Connection(server, open=False)
    for octet in PROTOCOL_HEADER[:3]:
        time.sleep(1)
        connection.send_bytes(bytes([octet]))
    return _watch(connection)


@case
def bad_frame_end(server: Server) -> Ending:
    connection = Connection(server)
    connection.send_bytes(frame(FRAME_METHOD, 1, b"\0\x14\0\x0a\0", end=0))
    connection.send(ConnectionCloseOk)
    return _watch(connection)


@case
def frame_too_large(server: Server) -> Ending:
    connection = Connection(server, frame_max=4096)
    connection.send_frame(FRAME_BODY, 1, b"x" * 4097)
    connection.send(ConnectionCloseOk)
    return _watch(connection)


@case
def close_not_answered(server: Server) -> Ending:
    connection = Connection(server, heartbeat=3)
    connection.send(QueueDeclare, 1)
    return _watch(connection)


@case
def socket_left_open_after_close_ok(server: Server) -> Ending:
    connection = Connection(server, heartbeat=3)
    connection.send(ConnectionClose, reply_code=200, reply_text="bye")
    return _watch(connection)


@case
def silent_with_heartbeat_of_two(server: Server) -> Ending:
    return _watch(Connection(server, heartbeat=2))


@case
def silent_without_heartbeat(server: Server) -> Ending:
    return _watch(Connection(server, heartbeat=0))


@case
def heartbeats_from_the_client_only(server: Server) -> Ending:
    return _stay_busy(Connection(server, heartbeat=2), HEARTBEAT_FRAME)


@case
def methods_instead_of_heartbeats(server: Server) -> Ending:
    connection = Connection(server, heartbeat=2)
    Channel(connection, 1).call(ChannelOpen)
    return _stay_busy(connection, _method(QueueDeclare(queue="amq.nothing", passive=True), 1))


@case
def part_of_a_frame_instead_of_heartbeats(server: Server) -> Ending:
    return _stay_busy(Connection(server, heartbeat=2), b"\x08", 7)


def _stay_busy(connection: Connection, data: bytes, times: int = 8) -> Ending:
    """Send something each second for longer than the server waits, then look whether it is still there."""
    for _ in range(times):
        connection.send_bytes(data)
        time.sleep(1)
    connection.socket.setblocking(False)
    received = connection.socket.recv(65536)
    try:
        ended = connection.socket.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        ended = False
    connection.socket.close()
    return Ending(received, times if ended else None)


@pytest.fixture(scope="module")
def endings(server: Server) -> dict[str, Ending]:
    """Run all cases at once."""
    with ThreadPoolExecutor(len(CASES)) as pool:
        running = {name: pool.submit(run, server) for name, run in CASES.items()}
    return {name: each.result() for name, each in running.items()}


def _ended_after(ending: Ending, least: float, most: float | None = None) -> None:
    assert ending.seconds is not None, "the server did not end the connection"
    assert least - EARLY_S <= ending.seconds <= (most or least) + LATE_S * patience(), ending


def _close_frame(received: bytes) -> tuple[int, str]:
    method = decode_method(received[7:-1])
    assert isinstance(method, ConnectionClose)
    assert (method.failed_class_id, method.failed_method_id) == (0, 0)
    return method.reply_code, method.reply_text


@pytest.mark.parametrize("name_of_case", [*SILENT_PAUSE, *SILENT_AFTER_TUNE])
def test_handshake_fails_in_silence(name_of_case: str, endings: dict[str, Ending]) -> None:
    """§1.3, §1.4: bad SASL, wrong method, large frame, bad tune: nothing, three seconds, the end."""
    ending = endings[name_of_case]
    assert len(ending.received) == (TUNE_BYTES if name_of_case in SILENT_AFTER_TUNE else 0)
    _ended_after(ending, PAUSE_S)


def test_refused_login_ends_after_the_pause(endings: dict[str, Ending]) -> None:
    """§1.3 row wrong password, with the capability: 403 at once, then the end without a close-ok."""
    ending = endings["wrong_password_with_capability"]
    text = (
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."
        " For details see the broker logfile."
    )
    assert _close_frame(ending.received) == (403, text)
    _ended_after(ending, PAUSE_S)


@pytest.mark.parametrize(
    "name_of_case", ["no_header", "part_of_a_header", "nothing_after_start", "nothing_after_tune_ok"]
)
def test_handshake_timeout(name_of_case: str, endings: dict[str, Ending]) -> None:
    """§1.1, §1.3: ten seconds from the accept until running, then the end without a frame."""
    assert endings[name_of_case].received == b""
    _ended_after(endings[name_of_case], HANDSHAKE_TIMEOUT_S)


def test_handshake_timeout_after_tune(endings: dict[str, Ending]) -> None:
    """§1.3: the same; the tune is all that came."""
    assert len(endings["nothing_after_tune"].received) == TUNE_BYTES
    _ended_after(endings["nothing_after_tune"], HANDSHAKE_TIMEOUT_S)


def test_handshake_timeout_counts_from_the_accept(endings: dict[str, Ending]) -> None:
    """§1.3: bytes in between do not stretch it."""
    assert endings["slow_header"].received == b""
    _ended_after(endings["slow_header"], HANDSHAKE_TIMEOUT_S - 3)


def test_bad_frame_end_stops_the_reading(endings: dict[str, Ending]) -> None:
    """§1.7 row end octet: 501, nothing more is read (close-ok neither), the end three seconds later."""
    ending = endings["bad_frame_end"]
    text = "FRAME_ERROR - type 1, all octets = <<0,20,0,10,0>>: {invalid_frame_end_marker,0}"
    assert _close_frame(ending.received) == (501, text)
    _ended_after(ending, PAUSE_S)


def test_frame_too_large_stops_the_reading(endings: dict[str, Ending]) -> None:
    """§1.7 row payload length > frame_max: 501, three seconds, the end."""
    ending = endings["frame_too_large"]
    text = "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,4097,4088}"
    assert _close_frame(ending.received) == (501, text)
    _ended_after(ending, PAUSE_S)


def _without_heartbeats(received: bytes) -> bytes:
    return received.replace(HEARTBEAT_FRAME, b"")


def test_server_waits_for_close_ok(endings: dict[str, Ending]) -> None:
    """§0.3: for `heartbeat` seconds, when they are less than 30."""
    ending = endings["close_not_answered"]
    method = decode_method(_without_heartbeats(ending.received)[7:-1])
    assert isinstance(method, ConnectionClose)
    assert method.reply_code == 504
    _ended_after(ending, 3.0)


def test_server_waits_for_the_client_to_end(endings: dict[str, Ending]) -> None:
    """§0.3: after its close-ok the server keeps the socket just as long."""
    ending = endings["socket_left_open_after_close_ok"]
    assert _without_heartbeats(ending.received) == _method(ConnectionCloseOk())
    _ended_after(ending, 3.0)


def test_silent_client_is_dropped(endings: dict[str, Ending]) -> None:
    """§1.6: two to three intervals after the last octet, without a close frame."""
    ending = endings["silent_with_heartbeat_of_two"]
    assert _without_heartbeats(ending.received) == b""
    _ended_after(ending, 4.0, 6.0)


def test_server_beats_at_half_the_interval(endings: dict[str, Ending]) -> None:
    """§1.6: a check each heartbeat/2, from the first one on: one frame a second for 2 s."""
    ending = endings["silent_with_heartbeat_of_two"]
    assert ending.seconds is not None
    beats = ending.received.count(HEARTBEAT_FRAME)
    assert int(ending.seconds) - 1 <= beats <= int(ending.seconds) + 1


def test_heartbeat_of_zero(endings: dict[str, Ending]) -> None:
    """§1.6: no beats, no end."""
    assert endings["silent_without_heartbeat"] == Ending(b"", None)


@pytest.mark.parametrize(
    "name_of_case", ["heartbeats_from_the_client_only", "part_of_a_frame_instead_of_heartbeats"]
)
def test_any_octets_count(name_of_case: str, endings: dict[str, Ending]) -> None:
    """§1.6: any octets from the client count, whole frames or not."""
    assert endings[name_of_case].seconds is None


def test_no_heartbeat_from_the_server_when_it_is_busy(endings: dict[str, Ending]) -> None:
    """§1.6: it sends one only if nothing was sent since the last check; any octets from the client count."""
    ending = endings["methods_instead_of_heartbeats"]
    assert ending.seconds is None
    assert ending.received.count(HEARTBEAT_FRAME) <= 9
