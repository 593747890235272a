"""The socket of a connection to another broker: TCP and TLS, and all that a connection can fail by."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from cryptography import x509

from node.amqp import methods as m
from node.amqp.properties import Properties
from node.amqp_client.events import Answered, Closed, Event, Opened
from node.amqp_client.phase import Phase
from node.amqp_client.settings import client_properties, settings_of
from node.amqp_client.uri import parse
from node.config.config import TlsOptions
from node.io.amqp_client import AmqpClient, _reason
from tests.kit.authority import Authority
from tests.kit.patience import LIMIT_S, patience
from tests.kit.ports import HOST, free_port
from tests.kit.server_thread import LOOPBACK, ServerThread, config

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that the server's certificate is from."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another authority."""
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture
def server() -> Iterator[ServerThread]:
    """A server without TLS."""
    with ServerThread(config()) as started:
        yield started


@pytest.fixture
def tls_server(authority: Authority) -> Iterator[ServerThread]:
    """A server with a certificate for `localhost`."""
    own = authority.issue([("CN", "server")], [x509.DNSName("localhost")])
    tls = TlsOptions(own.certificate_file, own.key_file)
    with ServerThread(config(tcp_listeners=(), tls_listeners=(LOOPBACK,), tls=tls)) as started:
        yield started


async def _talk(uri: str, *requests: m.Method) -> list[Event]:
    """Connect, make these requests on channel 1, close, and return all events."""
    events: list[Event] = []
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    left = list(requests)

    def take(taken: list[Event]) -> None:
        events.extend(taken)
        for event in taken:
            if isinstance(event, Closed):
                ended.set()
            elif isinstance(event, Opened) and left:
                client.core.open_channel(1)
            elif left:
                client.core.call(1, left.pop(0))
            else:
                client.close()

    target = parse(uri)
    client = AmqpClient(target, settings_of(target, client_properties("test")), loop=loop, on_events=take)
    client.start()
    await asyncio.wait_for(ended.wait(), LIMIT_S * patience())
    return events


def talk(uri: str, *requests: m.Method) -> list[Event]:
    return asyncio.run(_talk(uri, *requests))


def refusal(uri: str) -> tuple[str, Phase]:
    """Return why a connection could not be made, and how far it came."""
    (closed,) = talk(uri)
    assert isinstance(closed, Closed)
    return closed.text, closed.phase


def test_requests_and_a_close_in_good_order(server: ServerThread) -> None:
    opened, *answers, closed = talk(
        f"amqp://{HOST}:{server.port}", m.QueueDeclare(queue="q"), m.BasicGet(queue="q")
    )
    assert isinstance(opened, Opened)
    assert [type(event.answer) for event in answers if isinstance(event, Answered)] == [
        m.ChannelOpenOk,
        m.QueueDeclareOk,
        m.BasicGetEmpty,
    ]
    assert isinstance(closed, Closed)
    assert closed.is_ours


def test_a_large_message_is_sent_while_the_socket_is_full(server: ServerThread) -> None:
    """Messages that are published while `is_writable` is False wait, and are sent in their order."""

    async def publish() -> int:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        body = b"b" * 4_000_000
        confirmed = 0

        def take(taken: list[Event]) -> None:
            nonlocal confirmed
            for event in taken:
                match event:
                    case Opened():
                        client.core.open_channel(1)
                        client.core.call(1, m.QueueDeclare(queue="large"))
                        client.core.call(1, m.ConfirmSelect())
                        for _ in range(5):
                            client.core.publish_body(1, "", "large", body, Properties())
                    case Closed():
                        done.set()
                    case Answered():
                        pass
                    case _:
                        confirmed = 5 - client.core.unconfirmed(1)
                        if confirmed == 5:
                            client.close()

        target = parse(f"amqp://{HOST}:{server.port}")
        client = AmqpClient(target, settings_of(target, {}), loop=loop, on_events=take)
        client.start()
        await asyncio.wait_for(done.wait(), LIMIT_S * patience())
        return confirmed

    assert asyncio.run(publish()) == 5


@pytest.mark.parametrize("name", ["localhost", "disable"])
def test_a_certificate_that_fits(tls_server: ServerThread, authority: Authority, name: str) -> None:
    options = f"verify=verify_peer&cacertfile={authority.ca_file}&server_name_indication={name}"
    events = talk(f"amqps://{HOST}:{tls_server.port}?{options}", m.QueueDeclare(queue="q"))
    assert isinstance(events[0], Opened)


def test_a_certificate_is_not_checked_unless_it_is_asked_for(tls_server: ServerThread) -> None:
    events = talk(f"amqps://{HOST}:{tls_server.port}", m.QueueDeclare(queue="q"))
    assert isinstance(events[0], Opened)


@pytest.mark.parametrize(
    ("of_stranger", "name", "reason"),
    [(True, "localhost", "certificate signature failure"), (False, "other", "Hostname mismatch")],
)
def test_a_certificate_that_does_not_fit(
    tls_server: ServerThread,
    authority: Authority,
    stranger: Authority,
    of_stranger: bool,
    name: str,
    reason: str,
) -> None:
    ca_file = (stranger if of_stranger else authority).ca_file
    options = f"verify=verify_peer&cacertfile={ca_file}&server_name_indication={name}"
    text, phase = refusal(f"amqps://{HOST}:{tls_server.port}?{options}")
    assert phase is Phase.CONNECTING
    assert text.startswith("tls_alert: ")
    assert reason in text


def test_a_file_that_is_not_there(tls_server: ServerThread) -> None:
    text, _ = refusal(f"amqps://{HOST}:{tls_server.port}?verify=verify_peer&cacertfile=/nowhere/ca.pem")
    assert text == "enoent"


def test_a_port_where_nobody_listens() -> None:
    assert refusal(f"amqp://{HOST}:{free_port()}") == ("econnrefused", Phase.CONNECTING)


def test_a_host_that_is_not_known() -> None:
    assert refusal("amqp://nowhere.invalid") == ("nxdomain", Phase.CONNECTING)


def test_a_broker_that_says_nothing() -> None:
    with socket.create_server((HOST, 0)) as silent:
        port = silent.getsockname()[1]
        text, phase = refusal(f"amqp://{HOST}:{port}?connection_timeout=200")
    assert (text, phase) == ("timeout", Phase.STARTING)


def test_tls_is_not_spoken_there(server: ServerThread) -> None:
    text, phase = refusal(f"amqps://{HOST}:{server.port}")
    assert phase is Phase.CONNECTING
    assert text


def test_a_wrong_password(server: ServerThread) -> None:
    text, phase = refusal(f"amqp://guest:wrong@{HOST}:{server.port}")
    assert text.startswith("ACCESS_REFUSED - Login was refused")
    assert phase is Phase.AUTHENTICATING


def test_a_uri_without_a_host_needs_a_node() -> None:
    assert refusal("amqp://")[0] == "a URI without a host needs a node"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 5672)"), "econnrefused"),
        (
            OSError(
                "Multiple exceptions: [Errno 111] Connect call failed ('::1', 5672, 0, 0), "
                "[Errno 111] Connect call failed ('127.0.0.1', 5672)"
            ),
            "econnrefused",
        ),
        (OSError("Multiple exceptions: [Errno 113] No route, [Errno 111] refused"), "ehostunreach"),
        (TimeoutError(), "timeout"),
        (socket.gaierror(-2, "Name or service not known"), "nxdomain"),
        (OSError("something else"), "something else"),
    ],
)
def test_errors_have_the_words_of_erlang(error: OSError, reason: str) -> None:
    """A host with several addresses gives one error for all of them."""
    assert _reason(error) == reason
