"""An unmodified oslo.messaging (OpenStack's): RPC call, cast and fanout with time-outs; notifications."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg
from oslo_messaging import NotificationResult, Target

from tests.kit.client_steps import TIMEOUT_S, free_address, oslo_url, relay_to
from tests.kit.patience import wait_until
from tests.kit.servers import Admin, Server

pytestmark = pytest.mark.slow  # A server of oslo.messaging takes up to a second to stop.

FAST = "?kombu_reconnect_delay=0.05&heartbeat_timeout_threshold=2"
"""Options of the driver, which a transport URL may carry."""


class Calculator:
    """An RPC endpoint; keeps what it was told."""

    target = Target(namespace="calculator", version="1.1")

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: queue.Queue[str] = queue.Queue()
        self.go_on = threading.Event()

    def add(self, context: dict[str, Any], x: int, y: int) -> int:
        return x + y

    def whoami(self, context: dict[str, Any]) -> list[str]:
        return [self.name, context.get("user", "")]

    def divide(self, context: dict[str, Any], x: int, y: int) -> float:
        return x / y

    def tell(self, context: dict[str, Any], text: str) -> None:
        self.told.put(text)

    def wait(self, context: dict[str, Any]) -> str:
        self.go_on.wait(TIMEOUT_S)
        return "waited"


class Oslo:
    """Transports, servers and clients of one test; all end with it."""

    def __init__(self, ending: contextlib.ExitStack) -> None:
        self._ending = ending
        self._servers: list[Any] = []

    def stop_servers(self) -> None:
        for server in self._servers:
            server.stop()
        for server in self._servers:
            server.wait()

    def transport(self, url: str, make: Callable[..., Any] = oslo_messaging.get_rpc_transport) -> Any:
        # The global configuration, as in OpenStack's programs: not all options are known to another.
        cfg.CONF([], project="conformance", default_config_files=[])
        transport = make(cfg.CONF, url=url)
        self._ending.callback(transport.cleanup)
        return transport

    def serve(self, url: str, topic: str, name: str) -> Calculator:
        """Start an RPC server with a calculator."""
        calculator = Calculator(name)
        target = Target(topic=topic, server=name)
        server = oslo_messaging.get_rpc_server(
            self.transport(url),
            target,
            [calculator],
            access_policy=oslo_messaging.DefaultRPCAccessPolicy,
        )
        self.start(server)
        return calculator

    def start(self, server: Any) -> None:
        server.start()
        # A server ends within a second of its stop: first all are told, then all are waited for.
        self._servers.append(server)

    def client(self, url: str, topic: str, timeout_s: float = TIMEOUT_S, **options: Any) -> Any:
        target = Target(topic=topic, namespace="calculator", version="1.0")
        return oslo_messaging.get_rpc_client(self.transport(url), target, timeout=timeout_s, **options)


@contextlib.contextmanager
def running_oslo() -> Iterator[Oslo]:
    with contextlib.ExitStack() as ending:
        made = Oslo(ending)
        ending.callback(made.stop_servers)
        yield made


@pytest.fixture
def oslo() -> Iterator[Oslo]:
    with running_oslo() as made:
        yield made


@pytest.fixture
def url(server: Server, make_vhost: Callable[[], str]) -> str:
    """The transport URL of a vhost of the test's own."""
    return oslo_url(server, vhost=make_vhost()) + FAST


def options_of(url: str, **options: object) -> str:
    """The URL with more options of the driver."""
    return url + "".join(f"&{key}={value}" for key, value in options.items())


# RPC.


def test_call(oslo: Oslo, url: str) -> None:
    """A result, None, and an exception of the server, which is raised here by name."""
    oslo.serve(url, "topic", "one")
    client = oslo.client(url, "topic")
    assert client.call({}, "add", x=1, y=2) == 3
    assert client.call({}, "tell", text="news") is None
    assert client.call({"user": "somebody"}, "whoami") == ["one", "somebody"]
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        client.call({}, "divide", x=1, y=0)
    with pytest.raises(oslo_messaging.RemoteError, match="Endpoint does not support RPC method"):
        client.call({}, "no_such_method")


def test_concurrent_calls(oslo: Oslo, url: str) -> None:
    """Many threads share a transport; each gets its own answer."""
    for name in ("one", "two"):
        oslo.serve(url, "topic", name)
    client = oslo.client(url, "topic")
    answers: dict[int, int] = {}

    def call(number: int) -> None:
        for _ in range(5):
            answers[number] = client.call({}, "add", x=number, y=number)

    threads = [threading.Thread(daemon=True, target=call, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert answers == {number: 2 * number for number in range(10)}


def test_servers_of_a_topic(oslo: Oslo, url: str) -> None:
    """A topic's servers share its calls; `server=` chooses one; fanout tells all."""
    one, two = oslo.serve(url, "topic", "one"), oslo.serve(url, "topic", "two")
    client = oslo.client(url, "topic")
    assert {client.call({}, "whoami")[0] for _ in range(10)} == {"one", "two"}
    for name in ("one", "two"):
        assert client.prepare(server=name).call({}, "whoami")[0] == name
    client.prepare(fanout=True).cast({}, "tell", text="to all")
    assert one.told.get(timeout=TIMEOUT_S) == two.told.get(timeout=TIMEOUT_S) == "to all"


def test_cast(oslo: Oslo, url: str) -> None:
    """No answer; the casts to one server come in order."""
    calculator = oslo.serve(options_of(url, rabbit_qos_prefetch_count=1), "topic", "one")
    client = oslo.client(url, "topic")
    for number in range(10):
        client.cast({}, "tell", text=str(number))
    told = [calculator.told.get(timeout=TIMEOUT_S) for _ in range(10)]
    assert sorted(told) == [str(number) for number in range(10)]


def test_timeout(oslo: Oslo, url: str) -> None:
    """An answer that does not come in time, and a call that nobody serves."""
    calculator = oslo.serve(url, "topic", "one")
    client = oslo.client(url, "topic")
    with pytest.raises(oslo_messaging.MessagingTimeout):
        client.prepare(timeout=0.2).call({}, "wait")
    calculator.go_on.set()
    with pytest.raises(oslo_messaging.MessagingTimeout):
        client.prepare(server="nobody", timeout=0.2).call({}, "add", x=1, y=1)
    assert client.call({}, "add", x=1, y=1) == 2


def test_call_monitor(oslo: Oslo, url: str) -> None:
    """call_monitor_timeout: the server's heartbeats keep a long call alive."""
    calculator = oslo.serve(url, "topic", "one")
    client = oslo.client(url, "topic", call_monitor_timeout=2)
    threading.Timer(2.5, calculator.go_on.set).start()
    assert client.call({}, "wait") == "waited"


@pytest.mark.parametrize(
    "options",
    [
        {"rabbit_quorum_queue": True, "rabbit_quorum_delivery_limit": 3},
        {"rabbit_transient_quorum_queue": True, "rabbit_quorum_queue": True},
        {"rabbit_ha_queues": True, "rabbit_transient_queues_ttl": 60},
        {"kombu_compression": "gzip", "direct_mandatory_flag": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_driver_options(oslo: Oslo, url: str, options: dict[str, object]) -> None:
    """The driver works with options that deployments set: quorum queues, mirrored-queue arguments, compression."""
    url = options_of(url, **options)
    calculator = oslo.serve(url, "topic", "one")
    client = oslo.client(url, "topic")
    assert client.call({}, "add", x=1, y=2) == 3
    client.prepare(fanout=True).cast({}, "tell", text="news")
    assert calculator.told.get(timeout=TIMEOUT_S) == "news"


# Several hosts, lost connections.


def test_several_hosts(oslo: Oslo, server: Server, make_vhost: Callable[[], str]) -> None:
    """A URL of two hosts, of which one is down."""
    vhost = make_vhost()
    url = oslo_url(free_address(), server, vhost=vhost) + FAST
    oslo.serve(url, "topic", "one")
    assert oslo.client(url, "topic").call({}, "add", x=1, y=2) == 3


@pytest.mark.disturbs_everyone
def test_forced_close(oslo: Oslo, url: str, admin: Admin) -> None:
    """All connections are closed by an operator: server and client come back."""
    oslo.serve(url, "topic", "one")
    client = oslo.client(url, "topic")
    assert client.call({}, "add", x=1, y=2) == 3
    admin.close_all_connections("maintenance")
    assert call_until_answered(client) == 3


def test_cut_connections(server: Server, make_vhost: Callable[[], str]) -> None:
    """Connections break without a word and the address is dead for a while."""
    with relay_to(server) as relay, running_oslo() as inside:
        url = oslo_url(relay, vhost=make_vhost()) + FAST
        inside.serve(url, "topic", "one")
        client = inside.client(url, "topic")
        assert client.call({}, "add", x=1, y=2) == 3
        relay.unplug()
        with pytest.raises(oslo_messaging.MessagingException):
            client.prepare(timeout=0.3, retry=0).call({}, "add", x=1, y=2)
        relay.plug_into(server)
        assert call_until_answered(client) == 3


def call_until_answered(client: Any) -> Any:
    """Call until it works: both sides reconnect by themselves."""
    answers: list[Any] = []

    def call() -> bool:
        with contextlib.suppress(oslo_messaging.MessagingTimeout, oslo_messaging.MessageDeliveryFailure):
            answers.append(client.prepare(timeout=1).call({}, "add", x=1, y=2))
        return bool(answers)

    wait_until(call, "an answer")
    return answers[0]


# Notifications.


class Inbox:
    """A notification endpoint: takes `info` and `error`; gives back the first error."""

    def __init__(self) -> None:
        self.got: queue.Queue[tuple[str, str, Any]] = queue.Queue()
        self.refused = False

    def info(self, context: Any, publisher_id: str, event_type: str, payload: Any, metadata: Any) -> None:
        self.got.put(("info", event_type, payload))

    def error(self, context: Any, publisher_id: str, event_type: str, payload: Any, metadata: Any) -> Any:
        if not self.refused:
            self.refused = True
            return NotificationResult.REQUEUE
        self.got.put(("error", event_type, payload))
        return NotificationResult.HANDLED


def notifier(oslo: Oslo, url: str) -> Any:
    transport = oslo.transport(url, oslo_messaging.get_notification_transport)
    return oslo_messaging.Notifier(transport, "publisher", driver="messaging", topics=["notifications"])


def test_notifications(oslo: Oslo, url: str) -> None:
    """By priority to listeners; what a listener requeues comes again."""
    inbox = Inbox()
    oslo.start(
        oslo_messaging.get_notification_listener(
            oslo.transport(url, oslo_messaging.get_notification_transport),
            [Target(topic="notifications")],
            [inbox],
            allow_requeue=True,
        )
    )
    send = notifier(oslo, url)
    send.info({}, "instance.created", {"id": 1})
    assert inbox.got.get(timeout=TIMEOUT_S) == ("info", "instance.created", {"id": 1})
    send.error({}, "instance.failed", {"id": 2})
    assert inbox.got.get(timeout=TIMEOUT_S) == ("error", "instance.failed", {"id": 2})
    assert inbox.refused


def test_notifications_wait_for_a_listener(oslo: Oslo, url: str) -> None:
    """Published before anybody listens: the notifier makes the queue; two pools each get all."""
    send = notifier(oslo, url)
    for number in range(3):
        send.info({}, "early", {"number": number})
    inbox = Inbox()
    oslo.start(
        oslo_messaging.get_batch_notification_listener(
            oslo.transport(url, oslo_messaging.get_notification_transport),
            [Target(topic="notifications")],
            [BatchInbox(inbox)],
            batch_size=3,
            batch_timeout=1,
        )
    )
    got = [inbox.got.get(timeout=TIMEOUT_S) for _ in range(3)]
    assert got == [("info", "early", {"number": number}) for number in range(3)]


class BatchInbox:
    """An endpoint for batches."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def info(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            self._inbox.got.put(("info", message["event_type"], message["payload"]))
