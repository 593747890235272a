"""From the protocol header to connection.open, and what is met with silence (amqp-behaviour §1.1–§1.5)."""

import pytest

from node.amqp.connection_state import ConnectionState
from node.amqp.constants import PROTOCOL_HEADER
from node.amqp.field_table import Table, boolean, encode_table, longstr, table
from node.amqp.frames import frame, method_frame
from node.amqp.methods import (
    BasicPublish,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)
from node.catalogue.commands import PutVhost, SetParameter, SetUserLimits
from node.catalogue.records import UserLimits
from node.client.endpoint import ClientEndpoint
from node.client.settings import BrokerSettings
from tests.kit.world import LOGIN, Client, World

DEMO = BrokerSettings(mechanisms=("PLAIN", "AMQPLAIN", "EXTERNAL", "RABBIT-CR-DEMO", "NONSENSE"))
FAILURE_CLOSE = {"authentication_failure_close": boolean(True)}


def started(settings: BrokerSettings | None = None, peer: ClientEndpoint | None = None) -> Client:
    """A client that has connection.start."""
    client = World(settings).connect(peer)
    client.feed(PROTOCOL_HEADER)
    client.received()
    return client


def tuned() -> Client:
    """A client that has connection.tune."""
    client = started()
    client.send(0, ConnectionStartOk({}, "PLAIN", LOGIN))
    client.received()
    return client


def is_silent_and_reset_after(client: Client, seconds: float) -> bool:
    """Whether nothing is said, and the socket is reset just then."""
    assert client.received() == []
    client.world.advance(seconds - 0.01)
    assert not client.is_reset
    assert not client.connection.is_reading
    client.world.advance(0.02)
    return client.is_reset and client.received() == []


# --- §1.1, §1.2: header and start -------------------------------------------------------------------------


@pytest.mark.parametrize("header", [PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09"])
def test_the_protocol_header_is_answered_by_start(header: bytes) -> None:
    """§1.1 rows 1 and 2, §1.2."""
    client = World().connect()
    for octet in header:
        assert client.received() == []
        client.feed(bytes([octet]))
    (start,) = client.methods()
    assert isinstance(start, ConnectionStart)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert (start.mechanisms, start.locales) == (b"PLAIN AMQPLAIN", b"en_US")
    capabilities = start.server_properties["capabilities"].value
    assert isinstance(capabilities, dict)
    assert set(capabilities) == {
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    }
    assert start.server_properties["cluster_name"] == longstr("rabbit@localhost")


@pytest.mark.parametrize(
    "header", [b"HTTP/1.1", b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00", b"AMQP\0\0\x09\x02"]
)
def test_another_header_is_told_ours(header: bytes) -> None:
    """§1.1 rows 4 and 5."""
    client = World().connect()
    client.feed(header + b"more")
    assert client.connection.take_output() == [PROTOCOL_HEADER]
    client.world.settle()
    assert client.is_reset


def test_fewer_than_8_bytes_wait_for_the_time_out() -> None:
    """§1.1 below the table, §1.3, `handshake_timeout`: nothing is written."""
    client = World().connect()
    client.feed(b"AMQP")
    client.world.advance(9.9)
    assert not client.is_reset
    client.world.advance(0.2)
    assert client.is_reset
    assert client.received() == []
    assert "handshake timed out" in client.world.diary.entries


def test_the_handshake_time_out_counts_up_to_open() -> None:
    """§1.3: from accept to the running state."""
    client = tuned()
    client.world.advance(9)
    client.send(0, ConnectionTuneOk(2047, 131072, 0))
    client.world.advance(1.1)
    assert client.is_reset


def test_an_open_connection_has_no_time_out() -> None:
    client = World().client()
    client.world.advance(100)
    assert not client.is_reset


# --- §1.3: logging in -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", LOGIN),
        ("AMQPLAIN", encode_table({"LOGIN": longstr("guest"), "PASSWORD": longstr("guest")})[4:]),
    ],
)
def test_logging_in(mechanism: str, response: bytes) -> None:
    """§1.3: authentication is answered by tune; the locale is ignored."""
    client = started()
    assert client.ask(0, ConnectionStartOk({}, mechanism, response, "xx_XX")) == ConnectionTune(
        2047, 131072, 60
    )
    assert client.connection.user_name == "guest"


def test_the_demo_mechanism_in_two_steps() -> None:
    """§1.3 row `RABBIT-CR-DEMO`."""
    client = started(DEMO)
    secure = client.ask(0, ConnectionStartOk({}, "RABBIT-CR-DEMO", b"guest"))
    assert secure == ConnectionSecure(b"Please tell me your password")
    assert isinstance(client.ask(0, ConnectionSecureOk(b"My password is guest")), ConnectionTune)


def test_a_certificate_for_external() -> None:
    """§1.3 row `EXTERNAL`."""
    client = started(DEMO, ClientEndpoint(is_tls=True, certificate_user="guest"))
    assert isinstance(client.ask(0, ConnectionStartOk({}, "EXTERNAL")), ConnectionTune)


def test_mechanisms_are_offered_where_they_can_work() -> None:
    for peer, offered in (
        (ClientEndpoint(), b"PLAIN AMQPLAIN RABBIT-CR-DEMO"),
        (ClientEndpoint(is_tls=True), b"PLAIN AMQPLAIN EXTERNAL RABBIT-CR-DEMO"),
    ):
        client = World(DEMO).connect(peer)
        client.feed(PROTOCOL_HEADER)
        (start,) = client.methods()
        assert isinstance(start, ConnectionStart)
        assert start.mechanisms == offered


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"guest"),
        ("PLAIN", b"me\0guest\0guest"),
        ("AMQPLAIN", b"\x01"),
        ("NOPE", b""),
        ("plain", LOGIN),
        ("EXTERNAL", b""),
    ],
)
@pytest.mark.parametrize("capabilities", [{}, FAILURE_CLOSE])
def test_malformed_and_unknown_is_met_with_silence(
    mechanism: str, response: bytes, capabilities: Table
) -> None:
    """§1.3 rows `malformed`, `unknown mechanism`: 3 s, no close frame."""
    client = started()
    client.send(0, ConnectionStartOk({"capabilities": table(capabilities)}, mechanism, response))
    assert is_silent_and_reset_after(client, 3.0)
    assert any(
        entry.startswith(("handshake failed: ", "login refused: ")) for entry in client.world.diary.entries
    )


@pytest.mark.parametrize("response", [b"\0guest\0wrong", b"\0nobody\0guest", b"\0guest\0"])
def test_a_refused_login_without_the_capability(response: bytes) -> None:
    """§1.3 rows `same without the capability`, `empty password`."""
    client = started()
    client.send(0, ConnectionStartOk({}, "PLAIN", response))
    assert is_silent_and_reset_after(client, 3.0)


def test_a_refused_login_with_the_capability() -> None:
    """§1.3 row `wrong password …`: 403 at once, reset after 3 s whatever the client answers."""
    client = started()
    answer = client.ask(
        0, ConnectionStartOk({"capabilities": table(FAILURE_CLOSE)}, "PLAIN", b"\0guest\0wrong")
    )
    assert answer == ConnectionClose(
        403,
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
        "For details see the broker logfile.",
        0,
        0,
    )
    client.send(0, ConnectionCloseOk())
    assert is_silent_and_reset_after(client, 3.0)


def test_guest_comes_from_loopback_only() -> None:
    """§1.3 row `user in loopback_users`."""
    client = started(peer=ClientEndpoint(is_loopback=False))
    client.send(0, ConnectionStartOk({}, "PLAIN", LOGIN))
    assert is_silent_and_reset_after(client, 3.0)


def test_a_certificate_of_guest_comes_from_loopback_only_too() -> None:
    """§1.3 rows `EXTERNAL` and `user in loopback_users`."""
    client = started(DEMO, ClientEndpoint(is_loopback=False, is_tls=True, certificate_user="guest"))
    client.send(0, ConnectionStartOk({}, "EXTERNAL"))
    assert is_silent_and_reset_after(client, 3.0)
    assert (
        "login refused: EXTERNAL: user 'guest' can only connect via localhost" in client.world.diary.entries
    )


def test_no_certificate_for_external() -> None:
    client = started(DEMO, ClientEndpoint(is_tls=True, certificate_problem="no peer certificate"))
    client.send(0, ConnectionStartOk({}, "EXTERNAL"))
    assert is_silent_and_reset_after(client, 3.0)
    assert "login refused: EXTERNAL: no peer certificate" in client.world.diary.entries


@pytest.mark.parametrize(
    "unexpected",
    [
        method_frame(0, ConnectionOpen("/")),
        method_frame(1, ChannelOpen()),
        method_frame(1, BasicPublish()),
        frame(1, 0, b"x" * 4997),
        frame(9, 0, b""),
        b"\x01\0\0\0\0\0\x04abcdX",
    ],
)
def test_anything_unexpected_before_start_ok(unexpected: bytes) -> None:
    """§1.3: what is wrong before tune-ok; a frame may have 4096 bytes."""
    client = started()
    client.feed(unexpected)
    assert is_silent_and_reset_after(client, 3.0)


def test_what_follows_a_fault_of_the_handshake_is_not_read() -> None:
    client = started()
    client.feed(method_frame(0, ConnectionOpen()) + method_frame(0, ConnectionStartOk({}, "PLAIN", LOGIN)))
    client.feed(method_frame(0, ConnectionStartOk({}, "PLAIN", LOGIN)))
    assert client.received() == []
    assert client.connection.state is ConnectionState.FAILED


# --- §1.4: tune -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("channel_max", "frame_max"), [(1, 4096), (2047, 131072), (100, 10_000)])
def test_values_that_may_be_chosen(channel_max: int, frame_max: int) -> None:
    """§1.4: no reply to tune-ok."""
    client = tuned()
    client.send(0, ConnectionTuneOk(channel_max, frame_max, 1000))
    assert client.received() == []
    assert client.ask(0, ConnectionOpen("/")) == ConnectionOpenOk()


@pytest.mark.parametrize(
    ("channel_max", "frame_max"), [(0, 4096), (2048, 4096), (1, 0), (1, 4095), (1, 1), (1, 131073)]
)
def test_values_that_may_not_be_chosen(channel_max: int, frame_max: int) -> None:
    """§1.4: silence, reset after 3 s."""
    client = tuned()
    client.send(0, ConnectionTuneOk(channel_max, frame_max, 60))
    assert is_silent_and_reset_after(client, 3.0)


def test_no_limit_where_we_have_none() -> None:
    """§1.4: if the server's own limit is configured 0 then client 0 is fine."""
    client = World(BrokerSettings(channel_max=0, frame_max_bytes=0)).connect()
    client.shake_hands(frame_max=0)
    for number in (1, 65535):
        assert client.ask(number, ChannelOpen()) == ChannelOpenOk()


# --- §1.5: open -------------------------------------------------------------------------------------------


def open_refused(world: World, vhost: str) -> str:
    client = world.connect()
    client.feed(PROTOCOL_HEADER)
    client.send(0, ConnectionStartOk({}, "PLAIN", LOGIN))
    client.send(0, ConnectionTuneOk(2047, 131072, 0))
    client.received()
    close = client.ask(0, ConnectionOpen(vhost))
    assert isinstance(close, ConnectionClose)
    assert (close.reply_code, close.failed_class_id, close.failed_method_id) == (530, 10, 40)
    client.send(0, ConnectionCloseOk())
    client.world.settle()
    assert client.is_reset
    return close.reply_text


def test_open_refusals() -> None:
    """§1.5 steps 1 to 4."""
    world = World()
    assert open_refused(world, "nope") == "NOT_ALLOWED - vhost nope not found"
    assert open_refused(world, "") == "NOT_ALLOWED - vhost  not found"
    world.submit(PutVhost("other"))
    text = "NOT_ALLOWED - access to vhost 'other' refused for user 'guest'"
    assert open_refused(world, "other") == text
    world.client()
    world.submit(SetUserLimits("guest", UserLimits(max_connections=1)))
    text = "NOT_ALLOWED - connection refused for user 'guest': user connection limit (1) is reached"
    assert open_refused(world, "/") == text
    world.submit(SetParameter("/", "vhost-limits", "limits", {"max-connections": 1}))
    text = "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (1) is reached"
    assert open_refused(world, "/") == text


def test_the_name_and_what_the_client_calls_itself() -> None:
    """§1.10."""
    client = World().connect(ClientEndpoint(address="1.2.3.4:5", local="6.7.8.9:5672"))
    client.feed(PROTOCOL_HEADER)
    assert client.connection.full_name == "1.2.3.4:5 -> 6.7.8.9:5672"
    client.send(0, ConnectionStartOk({"connection_name": longstr("me")}, "PLAIN", LOGIN))
    assert client.connection.full_name == "1.2.3.4:5 -> 6.7.8.9:5672 - me"
