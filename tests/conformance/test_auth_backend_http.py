"""The plug-in rabbitmq_auth_backend_http: which requests a server makes, and what each answer means to clients."""

from collections.abc import Callable, Iterator

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.field_table import boolean, table
from node.amqp.methods import (
    BasicConsume,
    ConnectionClose,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueuePurge,
)
from tests.conformance.entities import publish_refused, refused
from tests.kit.amqp_client import Channel, Connection
from tests.kit.auth_service import AuthService
from tests.kit.servers import Server, start_server

pytestmark = pytest.mark.slow

PLUGIN = "rabbitmq_auth_backend_http"
ADA = {"username": "ada", "tags": "monitoring"}
Name = Callable[[str], str]


@pytest.fixture(scope="module")
def service() -> Iterator[AuthService]:
    service = AuthService()
    yield service
    service.stop()


@pytest.fixture(scope="module", params=["get", "post"])
def guarded(service: AuthService, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server whose users are those of the catalogue, then those of the service."""
    settings = {
        **service.settings,
        "auth_http.http_method": request.param,
        "auth_backends.1": "internal",
        "auth_backends.2": "http",
    }
    server = start_server(settings, plugins=(PLUGIN,))
    yield server
    server.stop()


@pytest.fixture
def ada(guarded: Server, service: AuthService, connect: Callable[..., Connection]) -> Channel:
    """A channel of the service's user `ada`; the service's list of requests begins behind it."""
    channel = connect("ada", "ada", to=guarded).channel(1)
    service.requests.clear()
    return channel


def resource(name: str, permission: str, kind: str = "queue") -> tuple[str, dict[str, str]]:
    return "resource", {**ADA, "vhost": "/", "resource": kind, "name": name, "permission": permission}


def test_a_login_asks_for_the_user_and_then_for_the_vhost(
    guarded: Server, service: AuthService, connect: Callable[..., Connection]
) -> None:
    service.requests.clear()
    connect("ada", "ada", to=guarded).channel(1)
    assert service.requests == [
        ("user", {"username": "ada", "password": "ada"}),
        ("vhost", {**ADA, "vhost": "/", "ip": "127.0.0.1"}),
    ]


def test_users_of_the_catalogue_are_not_asked_about(
    guarded: Server, service: AuthService, connect: Callable[..., Connection], name: Name
) -> None:
    service.requests.clear()
    channel = connect(to=guarded).channel(1)
    channel.declare(name("forbidden"), exclusive=True)
    assert service.requests == []


def test_a_denied_login_is_refused(guarded: Server) -> None:
    capabilities = table({"authentication_failure_close": boolean(True)})
    connection = Connection(
        guarded, "nobody", "nobody", client_properties={"capabilities": capabilities}, open=False
    )
    connection.start()
    connection.send_start_ok()
    close = connection.expect(ConnectionClose)
    assert close.reply_code == ReplyCode.ACCESS_REFUSED
    connection.abandon()


def test_declarations_are_asked_about(ada: Channel, service: AuthService, name: Name) -> None:
    queue = ada.declare(name("q"), exclusive=True)
    assert service.requests == [resource(queue, "configure")]
    ada.call(QueuePurge, queue=queue)
    ada.call(BasicConsume, queue=queue)
    assert service.requests[1:] == [resource(queue, "read")]


def test_a_refused_declaration_closes_its_channel(ada: Channel, name: Name) -> None:
    queue = name("forbidden")
    text = f"access to queue '{queue}' in vhost '/' refused for user 'ada'"
    refused(ada, ReplyCode.ACCESS_REFUSED, text, QueueDeclare, queue=queue)


def test_publishes_are_asked_about_once(ada: Channel, service: AuthService, name: Name) -> None:
    queue = ada.declare(name("q"), exclusive=True)
    service.requests.clear()
    for body in (b"1", b"2"):
        ada.publish("", queue, body)
    assert ada.wait_get(queue).body == b"1"
    assert service.requests == [resource("amq.default", "write", "exchange"), resource(queue, "read")]


def test_a_refused_publish_closes_its_channel(ada: Channel, name: Name) -> None:
    exchange = name("forbidden")
    text = f"access to exchange '{exchange}' in vhost '/' refused for user 'ada'"
    publish_refused(ada, ReplyCode.ACCESS_REFUSED, text, exchange, "k")


def test_keys_of_topic_exchanges_are_asked_about(ada: Channel, service: AuthService, name: Name) -> None:
    exchange = name("t")
    ada.call(ExchangeDeclare, exchange=exchange, type="topic", auto_delete=True)
    queue = ada.declare(exclusive=True)
    service.requests.clear()
    ada.call(QueueBind, queue=queue, exchange=exchange, routing_key="a.#")
    ada.publish(exchange, "a.b", b"m")
    assert ada.wait_get(queue).body == b"m"
    topic = {**ADA, "vhost": "/", "resource": "topic", "name": exchange}
    variables = {"variable_map.username": "ada", "variable_map.vhost": "/"}
    assert service.requests == [
        resource(queue, "write"),
        resource(exchange, "read", "exchange"),
        ("topic", {**topic, "permission": "read", "routing_key": "a.#", **variables}),
        resource(exchange, "write", "exchange"),
        ("topic", {**topic, "permission": "write", "routing_key": "a.b", **variables}),
        resource(queue, "read"),
    ]
    text = f"access to topic 'no' in exchange '{exchange}' in vhost '/' refused for user 'ada'"
    publish_refused(ada, ReplyCode.ACCESS_REFUSED, text, exchange, "no")
