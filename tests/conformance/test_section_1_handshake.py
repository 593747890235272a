"""amqp-behaviour §1.1-§1.5: the handshake.

Frames are in test_section_1_frames.py, whatever takes the protocol's seconds is in test_section_1_timing.py.
"""

import socket
import time
from collections.abc import Callable

import pytest

from node.amqp.constants import FRAME_HEARTBEAT, FRAME_METHOD
from node.amqp.field_table import Table, boolean, encode_table, longstr, table
from node.amqp.method_codec import encode_method
from node.amqp.methods import (
    BasicGet,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Method,
    QueueDeclare,
)
from tests.kit.amqp_client import Connection, frame
from tests.kit.patience import patience
from tests.kit.servers import Admin

Connect = Callable[..., Connection]
Name = Callable[[str], str]
MakeUser = Callable[..., str]
MakeVhost = Callable[[], str]

TELLS_OF_FAILURE: Table = {"capabilities": table({"authentication_failure_close": boolean(True)})}


# §1.1 Protocol header


@pytest.mark.parametrize("version", [b"\x00\x00\x09\x01", b"\x01\x01\x00\x09"])
def test_header_of_0_9_1(version: bytes, connect: Connect) -> None:
    """§1.1 rows `00 00 09 01` and `01 01 00 09`: connection.start 0-9."""
    connection = connect(open=False)
    connection.send_bytes(b"AMQP" + version)
    start = connection.expect(ConnectionStart)
    assert (start.version_major, start.version_minor) == (0, 9)


def test_header_byte_by_byte(connect: Connect) -> None:
    """§1.1: the header may come in pieces."""
    connection = connect(open=False)
    for octet in b"AMQP\x00\x00\x09\x01":
        connection.send_bytes(bytes([octet]))
        time.sleep(0.002)
    connection.expect(ConnectionStart)


@pytest.mark.parametrize("version", [b"\x01\x01\x08\x00", b"\x01\x01\x09\x01"])
def test_header_of_0_8(version: bytes, connect: Connect) -> None:
    """§1.1 row 0-8 mode, optional for us: connection.start 8-0, or refused like an unknown version."""
    connection = connect(open=False)
    connection.send_bytes(b"AMQP" + version)
    wanted = b"AMQP\x00\x00\x09\x01"
    if connection.socket.recv(8, socket.MSG_PEEK) == wanted:
        connection.expect_end(after=wanted)
    else:
        start = connection.expect(ConnectionStart)
        assert (start.version_major, start.version_minor) == (8, 0)
        assert start.server_properties["capabilities"].value == {}


@pytest.mark.parametrize(
    "header",
    [
        b"HTTP/1.1",
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00",
        b"AMQP\x00\x00\x09\x02",
        b"AMQP\x00\x00\x0a\x00",
        b"AMQX\x00\x00\x09\x01",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_other_header(header: bytes, connect: Connect) -> None:
    """§1.1 rows AMQP 1.0 and "anything else": the server writes the header that it wants, and ends."""
    connection = connect(open=False)
    connection.send_bytes(header)
    connection.expect_end(after=b"AMQP\x00\x00\x09\x01")


def test_connect_and_leave(connect: Connect) -> None:
    """§1.1: a TCP connection closed before any byte is a health check; nobody notices."""
    for _ in range(20):
        connect(open=False).socket.close()


# §1.2 connection.start


def test_start(connect: Connect) -> None:
    """§1.2: version 0-9, mechanisms in any order, locale, server-properties."""
    start = connect(open=False).start()
    assert (start.version_major, start.version_minor) == (0, 9)
    assert set(start.mechanisms.split(b" ")) == {b"PLAIN", b"AMQPLAIN"}
    assert start.locales == b"en_US"
    properties = start.server_properties
    assert properties.keys() >= {
        "capabilities",
        "cluster_name",
        "copyright",
        "information",
        "platform",
        "product",
        "version",
    }
    assert {key: field.tag for key, field in properties.items()} == {
        key: "F" if key == "capabilities" else "S" for key in properties
    }


def test_capabilities_of_the_server(connect: Connect) -> None:
    """§1.2: nine capabilities, all true."""
    start = connect(open=False).start()
    assert start.server_properties["capabilities"].value == {
        "publisher_confirms": boolean(True),
        "exchange_exchange_bindings": boolean(True),
        "basic.nack": boolean(True),
        "consumer_cancel_notify": boolean(True),
        "connection.blocked": boolean(True),
        "consumer_priorities": boolean(True),
        "authentication_failure_close": boolean(True),
        "per_consumer_qos": boolean(True),
        "direct_reply_to": boolean(True),
    }


# §1.3 start-ok; the silent refusals are in test_section_1_timing.py


@pytest.mark.parametrize("locale", ["en_US", "", "tlh_KX"])
def test_locale_is_ignored(locale: str, connect: Connect) -> None:
    """§1.3 row locale: any value."""
    connection = connect(open=False)
    connection.start()
    connection.send_start_ok(locale=locale)
    connection.expect(ConnectionTune)


def test_amqplain(connect: Connect) -> None:
    """§1.3 row AMQPLAIN: a table without its length, LOGIN and PASSWORD."""
    connection = connect(open=False)
    connection.start()
    response = encode_table({"LOGIN": longstr("guest"), "PASSWORD": longstr("guest")})[4:]
    connection.send_start_ok("AMQPLAIN", response)
    connection.tune()
    connection.open_vhost()


def _refused(connection: Connection, mechanism: str = "PLAIN", response: bytes | None = None) -> None:
    connection.client_properties = TELLS_OF_FAILURE
    connection.start()
    connection.send_start_ok(mechanism, response)
    text = (
        f"ACCESS_REFUSED - Login was refused using authentication mechanism {mechanism}."
        " For details see the broker logfile."
    )
    connection.expect_connection_close(403, text, None, answer=False)


def test_wrong_password(connect: Connect) -> None:
    """§1.3 row wrong password, with the capability: 403 at once."""
    before = time.monotonic()
    _refused(connect(password="wrong", open=False))
    assert time.monotonic() - before < 2 * patience()


def test_unknown_user(connect: Connect, name: Name) -> None:
    """§1.3 row unknown user: the same as a wrong password."""
    _refused(connect(user=name("nobody"), open=False))


def test_wrong_password_by_amqplain(connect: Connect) -> None:
    """§1.3 row wrong password: the text has the mechanism."""
    response = encode_table({"LOGIN": longstr("guest"), "PASSWORD": longstr("wrong")})[4:]
    _refused(connect(open=False), "AMQPLAIN", response)


def test_empty_password(connect: Connect) -> None:
    """§1.3 row empty password: refused like a wrong one."""
    _refused(connect(password="", open=False))


def test_tune_comes_with_success(connect: Connect) -> None:
    """§1.3: connection.tune immediately. §1.4: 2047, 131072, 60."""
    connection = connect(open=False)
    connection.start()
    connection.send_start_ok()
    assert connection.expect(ConnectionTune) == ConnectionTune(
        channel_max=2047, frame_max=131072, heartbeat=60
    )


def test_start_ok_of_4096_bytes(connect: Connect) -> None:
    """§1.3: a frame of 4096 bytes before tune-ok is right; 5000 is in test_section_1_timing.py."""
    padding = 4096 - 8 - len(encode_method(_start_ok(0)))
    connection = connect(open=False)
    connection.start()
    raw = frame(FRAME_METHOD, 0, encode_method(_start_ok(padding)))
    assert len(raw) == 4096
    connection.send_bytes(raw)
    connection.expect(ConnectionTune)


def _start_ok(padding: int) -> ConnectionStartOk:
    return ConnectionStartOk(client_properties={"p": longstr(b"x" * padding)}, response=b"\0guest\0guest")


# §1.4 Tune; refused values are in test_section_1_timing.py


@pytest.mark.parametrize("frame_max", [4096, 4097, 65536, 131072])
def test_frame_max(frame_max: int, connect: Connect, name: Name) -> None:
    """§1.4 row frame_max 4096…131072: accepted, and the server's frames keep to it."""
    connection = connect(frame_max=frame_max)
    channel = connection.channel()
    queue = channel.declare(name("q"), exclusive=True)
    body = bytes(range(256)) * 1200
    channel.publish("", queue, body)
    assert channel.wait_get(queue).body == body  # expect_content checks each frame


def test_body_frames_are_as_large_as_they_may_be(connect: Connect) -> None:
    """§1.4, trap: 300 kB arrive as 131064+131064+37872."""
    connection = connect()
    channel = connection.channel()
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"x" * 300_000)
    while channel.call(QueueDeclare, queue=queue, passive=True).message_count == 0:
        time.sleep(0.01)
    channel.send(BasicGet, queue=queue, no_ack=True)
    sizes = [len(connection.next_frame(1).payload) for _ in range(5)]
    assert sizes[2:] == [131064, 131064, 37872]


@pytest.mark.parametrize("channel_max", [1, 2, 2047])
def test_channel_max(channel_max: int, connect: Connect) -> None:
    """§1.4 row channel_max 1…2047."""
    connect(channel_max=channel_max).channel()


@pytest.mark.parametrize("heartbeat", [0, 1, 61, 65535])
def test_heartbeat_of_the_client_wins(heartbeat: int, connect: Connect) -> None:
    """§1.4 row heartbeat: any value is taken."""
    connect(heartbeat=heartbeat).channel()


# §1.3 Between tune-ok and open errors are answered. Before tune-ok there is silence: test_section_1_timing.py.


def _tuned(connection: Connection) -> Connection:
    connection.start()
    connection.send_start_ok()
    connection.tune()
    return connection


@pytest.mark.parametrize(
    "method",
    [
        ChannelOpen(),
        ConnectionClose(reply_code=200, reply_text="bye"),
        ConnectionCloseOk(),
        ConnectionTuneOk(channel_max=2047, frame_max=131072),
        ConnectionStartOk(response=b"\0guest\0guest"),
    ],
    ids=lambda method: method.name,
)
def test_other_method_than_open(method: Method, connect: Connect) -> None:
    """§1.3: 504; connection.close is no exception."""
    connection = _tuned(connect(open=False))
    connection.send(method)
    text = "CHANNEL_ERROR - unexpected method in connection state opening"
    connection.expect_connection_close(504, text, type(method))


def test_channel_before_open(connect: Connect) -> None:
    """§1.3: 505."""
    connection = _tuned(connect(open=False))
    connection.send(ChannelOpen, 1)
    text = "UNEXPECTED_FRAME - type 1, all octets = <<0,20,0,10,0>>"
    connection.expect_connection_close(505, text, None)


def test_unknown_frame_before_open(connect: Connect) -> None:
    """§1.7 row unknown frame type, before open."""
    connection = _tuned(connect(open=False))
    connection.send_frame(9, 0, b"abc")
    text = 'FRAME_ERROR - type 9, all octets = <<"abc">>: unknown_frame'
    connection.expect_connection_close(501, text, None)


def test_heartbeats_before_open(connect: Connect) -> None:
    """§1.6: a heartbeat is welcome at any time after the header."""
    connection = connect(open=False)
    connection.start()
    connection.send_frame(FRAME_HEARTBEAT, 0, b"")
    connection.send_start_ok()
    connection.send_frame(FRAME_HEARTBEAT, 0, b"")
    connection.tune()
    connection.send_frame(FRAME_HEARTBEAT, 0, b"")
    connection.open_vhost()


def test_pipelined_handshake(connect: Connect) -> None:
    """§1.3, §2.3: a client may send start-ok, tune-ok, open and channel.open without waiting."""
    connection = connect(open=False)
    connection.start()
    connection.send_start_ok()
    connection.send(ConnectionTuneOk, channel_max=2047, frame_max=131072)
    connection.send(ConnectionOpen)
    connection.send(ChannelOpen, 1)
    connection.expect(ConnectionTune)
    connection.expect(ConnectionOpenOk)
    connection.expect(ChannelOpenOk, 1)


# §1.5 connection.open


def _open_refused(connection: Connection, text: str, code: int = 530) -> None:
    _tuned(connection).send(ConnectionOpen, virtual_host=connection.vhost)
    connection.expect_connection_close(code, text, ConnectionOpen)


def _open_until_refused(connect: Connect, text: str, **options: object) -> None:
    """Try again while the server hasn't counted the last connection or its end yet."""
    deadline = time.monotonic() + 5
    while True:
        connection = _tuned(connect(open=False, **options))
        connection.send(ConnectionOpen, virtual_host=connection.vhost)
        try:
            connection.expect(ConnectionOpenOk)
        except AssertionError:
            break
        assert time.monotonic() < deadline, "never refused"
        connection.close()
        time.sleep(0.1)
    _open_refused(connect(open=False, **options), text)


def test_open(connect: Connect) -> None:
    """§1.5: open-ok with empty known-hosts; capabilities and insist are ignored."""
    connection = _tuned(connect(open=False))
    connection.send(ConnectionOpen, virtual_host="/", capabilities="anything", insist=True)
    assert connection.expect(ConnectionOpenOk) == ConnectionOpenOk(known_hosts="")


@pytest.mark.parametrize("vhost", ["nowhere", "", "//", "/ "])
def test_open_missing_vhost(vhost: str, connect: Connect) -> None:
    """§1.5 row 1: no quotes round V, no normalisation, the empty name is looked up too."""
    _open_refused(connect(vhost=vhost, open=False), f"NOT_ALLOWED - vhost {vhost} not found")


def test_open_missing_vhost_comes_before_permission(connect: Connect, make_user: MakeUser) -> None:
    """§1.5 order: a user without any permission gets `not found`."""
    user = make_user(None)
    text = "NOT_ALLOWED - vhost nowhere not found"
    _open_refused(connect(user, user, vhost="nowhere", open=False), text)


def test_open_without_permission(connect: Connect, make_user: MakeUser) -> None:
    """§1.5 row 4."""
    user = make_user(None)
    text = f"NOT_ALLOWED - access to vhost '/' refused for user '{user}'"
    _open_refused(connect(user, user, open=False), text)


def test_open_with_empty_permissions(connect: Connect, make_user: MakeUser) -> None:
    """§1.5 row 4: a permission row is enough, whatever it allows."""
    user = make_user("/", "", "", "")
    connect(user, user)


def test_open_vhost_limit_of_zero(connect: Connect, make_vhost: MakeVhost, admin: Admin) -> None:
    """§1.5 row 2: limit 0 refuses all."""
    vhost = make_vhost()
    admin.set_vhost_limits(vhost, {"max-connections": 0})
    text = (
        f"NOT_ALLOWED - access to vhost '{vhost}' refused for user 'guest': connection limit (0) is reached"
    )
    _open_refused(connect(vhost=vhost, open=False), text)


def test_open_vhost_limit(connect: Connect, make_vhost: MakeVhost, admin: Admin) -> None:
    """§1.5 row 2: limit N."""
    vhost = make_vhost()
    admin.set_vhost_limits(vhost, {"max-connections": 1})
    connect(vhost=vhost)
    text = (
        f"NOT_ALLOWED - access to vhost '{vhost}' refused for user 'guest': connection limit (1) is reached"
    )
    _open_until_refused(connect, text, vhost=vhost)


def test_open_vhost_limit_negative(connect: Connect, make_vhost: MakeVhost, admin: Admin) -> None:
    """§1.5 row 2: negative is unlimited."""
    vhost = make_vhost()
    admin.set_vhost_limits(vhost, {"max-connections": -1})
    for _ in range(3):
        connect(vhost=vhost)


def test_open_vhost_limit_comes_before_permission(
    connect: Connect, make_vhost: MakeVhost, make_user: MakeUser, admin: Admin
) -> None:
    """§1.5 order: 2 before 3 and 4."""
    vhost, user = make_vhost(), make_user(None)
    admin.set_vhost_limits(vhost, {"max-connections": 0})
    admin.set_user_limits(user, {"max-connections": 0})
    text = (
        f"NOT_ALLOWED - access to vhost '{vhost}' refused for user '{user}': connection limit (0) is reached"
    )
    _open_refused(connect(user, user, vhost, open=False), text)


def test_open_user_limit_comes_before_permission(connect: Connect, make_user: MakeUser, admin: Admin) -> None:
    """§1.5 row 3, and order: 3 before 4; limit 0 refuses all."""
    user = make_user(None)
    admin.set_user_limits(user, {"max-connections": 0})
    text = f"NOT_ALLOWED - connection refused for user '{user}': user connection limit (0) is reached"
    _open_refused(connect(user, user, open=False), text)


def test_open_user_limit(connect: Connect, make_user: MakeUser, admin: Admin) -> None:
    """§1.5 row 3: limit N."""
    user = make_user()
    admin.set_user_limits(user, {"max-connections": 1})
    connect(user, user)
    text = f"NOT_ALLOWED - connection refused for user '{user}': user connection limit (1) is reached"
    _open_until_refused(connect, text, user=user, password=user)
