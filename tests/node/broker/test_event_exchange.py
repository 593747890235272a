"""Events as messages. Keys, headers, their order and types are those of RabbitMQ 3.10.8, live."""

from collections.abc import Callable

import pytest

from node.amqp.field_table import Field, Table, array, boolean, long, longstr, table
from node.amqp.methods import (
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    ChannelClose,
    ConnectionStartOk,
    ExchangeDeclare,
    ExchangeDelete,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueUnbind,
)
from node.broker.event_exchange import EVENT_EXCHANGE, WAITING_MAX, EventExchange, _place
from node.catalogue import commands
from node.catalogue.commands import Command
from node.catalogue.records import UserLimits
from node.client.endpoint import ClientEndpoint
from node.client.observer import Observer, Observers
from tests.kit.world import EPOCH_S, Client, World


class Events:
    """A world that tells of events, and a client that gets them."""

    def __init__(self) -> None:
        self.world = World()
        self.exchange = EventExchange()
        self.world.broker.observer = Observers(self.world.broker.observer, self.exchange)
        self.world.broker.alarms._observer = self.world.broker.observer
        self.world.submit(self.exchange.declaration)
        self.watcher = self.world.client()
        self.watcher.send(1, QueueDeclare(queue="events"))
        self.watcher.send(1, QueueBind(queue="events", exchange=EVENT_EXCHANGE, routing_key="#"))
        self.watcher.send(1, BasicConsume(queue="events", consumer_tag="w", no_ack=True))
        self.watcher.received()
        self.exchange.attach(self.world.broker)

    def take(self) -> list[tuple[str, Table]]:
        """Keys and headers of what happened since the last time."""
        self.world.settle()
        self.world.advance(0)
        taken = []
        for each in self.watcher.received():
            assert isinstance(each.method, BasicDeliver)
            assert (each.method.exchange, each.body) == (EVENT_EXCHANGE, b"")
            properties = each.properties
            assert properties is not None
            headers = properties.headers
            assert headers is not None
            assert (properties.delivery_mode, properties.timestamp) == (2, int(EPOCH_S))
            assert headers.pop("timestamp_in_ms") == long(int(EPOCH_S * 1000))
            taken.append((each.method.routing_key, headers))
        return taken

    def one(self, key: str) -> Table:
        """The headers of the only event, which has this key."""
        [(found, headers)] = self.take()
        assert found == key
        return headers

    def keys(self) -> list[str]:
        return [key for key, _ in self.take()]

    def client(self) -> Client:
        """A client whose coming is not told of any more."""
        client = self.world.client()
        self.take()
        return client


@pytest.fixture
def events() -> Events:
    return Events()


def same(found: Table, expected: Table) -> None:
    """Check that two tables have the same entries in the same order."""
    assert found == expected
    assert list(found) == list(expected)


UNKNOWN: Table = {"user_who_performed_action": longstr("unknown")}
GUEST: Table = {"user_who_performed_action": longstr("guest")}
SLASH = longstr("/")


# --- connections, channels, consumers ---------------------------------------------------------------------


def test_a_connection(events: Events) -> None:
    client = events.world.client()
    connection = client.connection
    (_, login), (_, created), (_, channel) = events.take()
    assert list(login) == [
        "ssl", "auth_mechanism", "protocol", "peer_port", "peer_host", "connection_name", "host", "name",
        "connection_type",
    ]  # fmt: skip
    assert (login["name"], login["peer_host"]) == (longstr("guest"), longstr("{127,0,0,1}"))
    node = events.world.broker.settings.node_name
    none = longstr("")
    same(
        created,
        {
            **GUEST,
            "node": longstr(node),
            "connected_at": long(connection.connected_at_ms),
            "client_properties": table({}),
            "channel_max": long(connection.channel_max),
            "frame_max": long(131072),
            "timeout": long(0),
            "vhost": SLASH,
            "user": longstr("guest"),
            "protocol": longstr("{0,9,1}"),
            **dict.fromkeys(("ssl_hash", "ssl_cipher", "ssl_key_exchange", "ssl_protocol"), none),
            "auth_mechanism": longstr("PLAIN"),
            **dict.fromkeys(("peer_cert_validity", "peer_cert_issuer", "peer_cert_subject"), none),
            "ssl": boolean(False),
            "peer_host": longstr("{127,0,0,1}"),
            "host": longstr("{127,0,0,1}"),
            "peer_port": long(0),
            "port": long(5672),
            "name": longstr(connection.name),
            "pid": longstr(f"<{connection.id}.0>"),
            "type": longstr("network"),
        },
    )
    same(
        channel,
        {
            **GUEST,
            "vhost": SLASH,
            "user": longstr("guest"),
            "number": long(1),
            "connection": longstr(f"<{connection.id}.0>"),
            "name": longstr(f"{connection.name} (1)"),
            "pid": longstr(f"<{connection.id}.1>"),
        },
    )
    client.lose()
    (_, closed_channel), (key, closed) = events.take()
    assert closed_channel == {**GUEST, "pid": longstr(f"<{connection.id}.1>")}
    assert key == "connection.closed"
    assert list(closed) == ["client_properties", "node", "pid", "name"]


def test_the_name_that_a_client_gives_itself(events: Events) -> None:
    client = events.client()
    client.connection.client_name = "mine"
    client.lose()
    assert events.take()[-1][1]["user_provided_name"] == longstr("mine")


def test_a_refused_login(events: Events) -> None:
    stranger = events.world.connect()
    stranger.feed(b"AMQP\0\0\x09\x01")
    stranger.received()
    stranger.send(0, ConnectionStartOk({}, "PLAIN", b"\0eve\0wrong"))
    headers = events.one("user.authentication.failure")
    assert (headers["name"], headers["error"]) == (
        longstr("eve"),
        longstr("user 'eve' - invalid credentials"),
    )


def test_who_never_spoke_was_no_connection(events: Events) -> None:
    events.world.connect().lose()
    assert events.take() == []


def test_requests_over_http_are_no_connections(events: Events) -> None:
    direct = events.world.connect(ClientEndpoint(address="", local=""))
    direct.shake_hands()
    direct.lose()
    assert events.keys() == ["user.authentication.success"]


def test_a_channel(events: Events) -> None:
    client = events.client()
    client.send(1, ChannelClose(200, "", 0, 0))
    headers = events.one("channel.closed")
    same(headers, {**GUEST, "pid": longstr(f"<{client.connection.id}.1>")})


def test_a_consumer(events: Events) -> None:
    client = events.client()
    client.send(1, QueueDeclare(queue="q"))
    events.take()
    client.send(1, BasicConsume(queue="q", consumer_tag="t", arguments={"x-priority": long(1)}))
    channel = longstr(f"<{client.connection.id}.1>")
    same(
        events.one("consumer.created"),
        {
            **GUEST,
            "arguments": table({"x-priority": long(1)}),
            "prefetch_count": long(0),
            "queue": longstr("q"),
            "vhost": SLASH,
            "channel": channel,
            "ack_required": boolean(True),
            "exclusive": boolean(False),
            "consumer_tag": longstr("t"),
        },
    )
    client.send(1, BasicCancel("t"))
    place = {"queue": longstr("q"), "vhost": SLASH, "channel": channel, "consumer_tag": longstr("t")}
    same(events.one("consumer.deleted"), {**GUEST, **place})


@pytest.mark.parametrize("end", [lambda client: client.send(1, QueueDelete(queue="q")), Client.lose])
def test_a_consumer_that_loses_its_queue_or_its_channel(
    events: Events, end: Callable[[Client], None]
) -> None:
    client = events.client()
    client.send(1, QueueDeclare(queue="q"))
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    events.take()
    end(client)
    assert events.keys().count("consumer.deleted") == 1


def test_alarms_of_this_node(events: Events) -> None:
    node = events.world.broker.settings.node_name
    events.world.broker.alarms.set("memory", "other@host")
    events.world.broker.alarms.set("disk")
    events.world.broker.alarms.clear("disk")
    events.world.broker.alarms.clear("memory", "other@host")
    name = longstr(f"{{resource_limit,disk,'{node}'}}")
    expected = {"name": name, "node": longstr(node)}
    assert events.take() == [("alarm.set", expected), ("alarm.cleared", expected)]


# --- the catalogue ----------------------------------------------------------------------------------------


def test_queues(events: Events) -> None:
    client = events.client()
    client.send(1, QueueDeclare(queue="q", durable=True, arguments={"x-max-length": long(5)}))
    client.send(1, QueueDeclare(queue="own", exclusive=True))
    client.send(1, QueueDelete(queue="q"))
    (_, created), (_, own), (key, deleted) = events.take()
    same(
        created,
        {
            **UNKNOWN,
            "exclusive": boolean(False),
            "owner_pid": longstr(""),
            "arguments": table({"x-max-length": long(5)}),
            "auto_delete": boolean(False),
            "durable": boolean(True),
            "name": longstr("q"),
            "vhost": SLASH,
        },
    )
    assert (own["owner_pid"], own["arguments"]) == (longstr(f"<{client.connection.id}.0>"), array([]))
    assert key == "queue.deleted"
    same(deleted, {**UNKNOWN, "name": longstr("q"), "vhost": SLASH})


def test_exchanges_and_bindings(events: Events) -> None:
    client = events.client()
    client.send(1, QueueDeclare(queue="q"))
    events.take()
    client.send(1, ExchangeDeclare(exchange="x", type="topic"))
    client.send(1, QueueBind(queue="q", exchange="x", routing_key="k"))
    client.send(1, QueueUnbind(queue="q", exchange="x", routing_key="k"))
    client.send(1, ExchangeDelete(exchange="x"))
    (_, created), (bound, binding), (unbound, former), (key, deleted) = events.take()
    same(
        created,
        {
            **UNKNOWN,
            "policy": longstr(""),
            "arguments": array([]),
            "internal": boolean(False),
            "auto_delete": boolean(False),
            "durable": boolean(False),
            "type": longstr("topic"),
            "name": longstr("x"),
            "vhost": SLASH,
        },
    )
    assert (bound, unbound, key) == ("binding.created", "binding.deleted", "exchange.deleted")
    expected: Table = {
        **UNKNOWN,
        "vhost": SLASH,
        "arguments": array([]),
        "routing_key": longstr("k"),
        "destination_kind": longstr("queue"),
        "destination_name": longstr("q"),
        "source_kind": longstr("exchange"),
        "source_name": longstr("x"),
    }
    same(binding, expected)
    same(former, expected)
    same(deleted, {**UNKNOWN, "name": longstr("x"), "vhost": SLASH})


LIMITS = {"max-connections": 3}
POLICY = commands.SetPolicy("v", "p", "^a", {"max-length": 3}, priority=2, apply_to="queues")
POLICY_HEADERS: Table = {
    "apply-to": longstr("queues"),
    "priority": long(2),
    "definition": table({"max-length": long(3)}),
    "pattern": longstr("^a"),
    "vhost": longstr("v"),
    "name": longstr("p"),
}
USER_IN_VHOST: Table = {"vhost": longstr("v"), "user": longstr("u")}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (commands.PutUser("n", "hash", "a"), [("user.created", {"name": longstr("n")})]),
        (commands.PutUser("u", "new", "a"), [("user.password.changed", {"name": longstr("u")})]),
        (commands.PutUser("u", "", "a"), [("user.password.cleared", {"name": longstr("u")})]),
        (
            commands.PutUser("u", "hash", "a", ("management",)),
            [("user.tags.set", {"tags": array([longstr("management")]), "name": longstr("u")})],
        ),
        (
            commands.PutUser("u", "hash", "a", limits=UserLimits(max_connections=3)),
            [
                (
                    "user.limits.set",
                    {"max-connections": long(3), "username": longstr("u"), "name": longstr("limits")},
                )
            ],
        ),
        (commands.DeleteUser("u"), [("user.deleted", {"name": longstr("u")})]),
        (
            commands.SetPermission("v", "u", "c", "w", "r"),
            [
                (
                    "permission.created",
                    {"read": longstr("r"), "write": longstr("w"), "configure": longstr("c"), **USER_IN_VHOST},
                )
            ],
        ),
        (
            commands.SetTopicPermission("v", "u", "amq.topic", "w", "r"),
            [
                (
                    "topic.permission.created",
                    {
                        "read": longstr("r"),
                        "write": longstr("w"),
                        "exchange": longstr("amq.topic"),
                        **USER_IN_VHOST,
                    },
                )
            ],
        ),
        (POLICY, [("policy.set", POLICY_HEADERS)]),
        (
            commands.SetPolicy(
                "v", "p", "^a", {"max-length": 3}, priority=2, apply_to="queues", operator=True
            ),
            [("policy.set", POLICY_HEADERS)],
        ),
        (
            commands.SetParameter("v", "vhost-limits", "limits", LIMITS),
            [
                (
                    "parameter.set",
                    {
                        "value": table({"max-connections": long(3)}),
                        "name": longstr("limits"),
                        "component": longstr("vhost-limits"),
                        "vhost": longstr("v"),
                    },
                ),
                ("vhost.limits.set", {"max-connections": long(3), "name": longstr("limits")}),
            ],
        ),
        (
            commands.SetGlobalParameter("g", {"a": [1, 1.5, True, None, "s"]}),
            [
                (
                    "parameter.set",
                    {
                        "value": table(
                            {
                                "a": array(
                                    [long(1), Field("d", 1.5), boolean(True), Field("V", None), longstr("s")]
                                )
                            }
                        ),
                        "name": longstr("g"),
                        "component": longstr("global"),
                    },
                )
            ],
        ),
    ],
)
def test_what_is_set(events: Events, command: Command[object], expected: list[tuple[str, Table]]) -> None:
    events.world.submit(commands.PutVhost("v"))
    events.world.submit(commands.PutUser("u", "hash", "a"))
    events.take()
    events.world.submit(command)
    found = events.take()
    assert found == [(key, {**UNKNOWN, **headers}) for key, headers in expected]


def test_what_is_cleared(events: Events) -> None:
    submit = events.world.submit
    submit(commands.PutVhost("v"))
    submit(commands.PutUser("u", "hash", "a", limits=UserLimits(max_channels=1)))
    submit(commands.SetPermission("v", "u", "c", "w", "r"))
    submit(commands.SetTopicPermission("v", "u", "amq.topic", "w", "r"))
    submit(commands.SetParameter("v", "vhost-limits", "limits", LIMITS))
    submit(commands.SetGlobalParameter("g", 1))
    submit(POLICY)
    submit(commands.SetPolicy("v", "p", "^a", {"max-length": 3}, apply_to="queues", operator=True))
    events.take()
    for command in (
        commands.PutUser("u", "hash", "a", limits=UserLimits()),
        commands.ClearTopicPermission("v", "u"),
        commands.ClearPermission("v", "u"),
        commands.ClearParameter("v", "vhost-limits", "limits"),
        commands.ClearGlobalParameter("g"),
        commands.ClearPolicy("v", "p"),
        commands.ClearPolicy("v", "p", operator=True),
    ):
        submit(command)
    assert events.keys() == [
        "user.limits.cleared",
        "topic.permission.deleted",
        "permission.deleted",
        "parameter.cleared",
        "vhost.limits.cleared",
        "parameter.cleared",
        "policy.cleared",
        "operator.policy.cleared",
    ]


def test_vhosts(events: Events) -> None:
    events.world.submit(commands.PutVhost("v", "words", ("a", "b")))
    (key, headers), *exchanges = events.take()
    assert key == "vhost.created"
    expected = {
        "tags": array([longstr("a"), longstr("b")]),
        "description": longstr("words"),
        "name": longstr("v"),
    }
    same(headers, {**UNKNOWN, **expected})
    assert [key for key, _ in exchanges] == ["exchange.created"] * 7
    events.world.submit(commands.DeleteVhost("v"))
    assert events.keys() == ["exchange.deleted"] * 7 + ["vhost.deleted"]


# --- the whole --------------------------------------------------------------------------------------------


def test_nothing_is_told_before_the_start() -> None:
    exchange = EventExchange()
    exchange.alarm_set("n", "disk")
    world = World()
    world.broker.observer = Observers(Observer(), exchange)
    world.submit(commands.PutVhost("v"))
    assert not exchange._waiting


def test_one_node_tells_of_what_all_know(events: Events) -> None:
    own = events.world.broker.settings.node_name
    for name in (own, "a@host"):
        events.world.submit(commands.PutMember(name, "h:1", name))
        events.world.submit(commands.NodeUp(name, name, "h:1"))
    events.take()
    client = events.client()
    client.send(1, QueueDeclare(queue="q"))
    events.world.submit(commands.PutUser("u", "hash", "a"))
    assert events.take() == []
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    assert events.keys() == ["consumer.created"]


def test_nobody_listens(events: Events) -> None:
    client = events.client()
    events.watcher.send(1, QueueDelete(queue="events"))
    client.send(1, QueueDeclare(queue="q"))
    events.world.advance(0)
    assert not events.exchange._waiting


def test_the_exchange_or_its_vhost_is_gone(events: Events) -> None:
    events.world.submit(commands.DeleteExchange("/", EVENT_EXCHANGE))
    events.world.advance(0)
    events.world.submit(commands.DeleteVhost("/"))
    events.world.advance(0)
    assert not events.exchange._waiting


def test_what_waits_is_bounded(events: Events) -> None:
    for number in range(WAITING_MAX + 10):
        events.world.submit(commands.SetGlobalParameter("g", number))
    assert len(events.exchange._waiting) == WAITING_MAX


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.1:80", ("{10,0,0,1}", 80)),
        ("::1:80", ("{0,0,0,0,0,0,0,1}", 80)),
        ("fe80::1%eth0:5672", ("{65152,0,0,0,0,0,0,1}", 5672)),
        ("name:1", ("name", 1)),
        ("", ("", 0)),
    ],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert _place(address) == expected
