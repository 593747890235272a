"""amqp-behaviour §6.5–6.9: limits, users, permissions, topic permissions and vhosts."""

import re
from collections.abc import Callable, Iterator

import pytest

from node.amqp.field_table import Table, array, boolean, longstr, table
from node.amqp.method_codec import decode_method
from node.amqp.methods import (
    BasicConsume,
    BasicGet,
    BasicGetEmpty,
    BasicPublish,
    ChannelOpen,
    ConnectionClose,
    ConnectionOpen,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from node.amqp.properties import Properties
from tests.conformance.entities import (
    access_refused,
    exchange_exists,
    is_routed,
    limited_channel,
    publish_refused,
    queue_exists,
    refused,
)
from tests.conformance.queue_steps import drain
from tests.kit.amqp_client import Channel, Connection
from tests.kit.patience import wait_until
from tests.kit.servers import Admin

Name = Callable[[str], str]
Connect = Callable[..., Connection]
MakeUser = Callable[..., str]
MakeVhost = Callable[[], str]


@pytest.fixture
def limited(make_user: MakeUser, connect: Connect) -> Channel:
    return limited_channel(make_user, connect)


def ask_to_open(connect: Connect, **options: str) -> Connection:
    """Send connection.open, leave its answer to the test."""
    connection = connect(open=False, **options)
    connection.start()
    connection.send_start_ok()
    connection.tune()
    connection.send(ConnectionOpen, virtual_host=connection.vhost)
    return connection


def refused_open(connect: Connect, explanation: str, **options: str) -> None:
    """connection.open gets connection.close 530 with this text, and the handshake of it."""
    connection = ask_to_open(connect, **options)
    connection.expect_connection_close(530, f"NOT_ALLOWED - {explanation}", ConnectionOpen)


def wait_until_counted(connect: Connect, **options: str) -> None:
    """Open connections until one is refused: RabbitMQ counts a connection a little after open-ok."""

    def is_refused() -> bool:
        connection = ask_to_open(connect, **options)
        method = decode_method(connection.next_frame(0).payload)
        connection.abandon()
        return isinstance(method, ConnectionClose)

    wait_until(is_refused, "a connection is refused")


# §6.5 Limits


def vhost_limit_text(vhost: str, user: str, limit: int) -> str:
    return f"access to vhost '{vhost}' refused for user '{user}': connection limit ({limit}) is reached"


def user_limit_text(user: str, limit: int) -> str:
    return f"connection refused for user '{user}': user connection limit ({limit}) is reached"


def test_vhost_max_connections(connect: Connect, admin: Admin, make_vhost: MakeVhost) -> None:
    """§6.5 row vhost max-connections; connections over a lowered limit are left alone."""
    vhost = make_vhost()
    old = connect(vhost=vhost)
    admin.set_vhost_limits(vhost, {"max-connections": 1})
    wait_until_counted(connect, vhost=vhost)
    refused_open(connect, vhost_limit_text(vhost, "guest", 1), vhost=vhost)
    admin.set_vhost_limits(vhost, {"max-connections": 0})
    refused_open(connect, vhost_limit_text(vhost, "guest", 0), vhost=vhost)
    old.channel().sync()


@pytest.mark.parametrize("limit", [-1, -5])
def test_negative_vhost_max_connections(
    connect: Connect, admin: Admin, make_vhost: MakeVhost, limit: int
) -> None:
    """§6.5: negative = none."""
    vhost = make_vhost()
    admin.set_vhost_limits(vhost, {"max-connections": 0})
    refused_open(connect, vhost_limit_text(vhost, "guest", 0), vhost=vhost)
    admin.set_vhost_limits(vhost, {"max-connections": limit})
    for _ in range(2):
        connect(vhost=vhost)


def test_user_max_connections(connect: Connect, admin: Admin, make_user: MakeUser) -> None:
    """§6.5 row user max-connections: counted over all vhosts; connections there already are left alone."""
    user = make_user()
    old = connect(user, user)
    admin.set_user_limits(user, {"max-connections": 1})
    wait_until_counted(connect, user=user, password=user)
    refused_open(connect, user_limit_text(user, 1), user=user, password=user)
    admin.set_user_limits(user, {"max-connections": 0})
    refused_open(connect, user_limit_text(user, 0), user=user, password=user)
    old.channel().sync()
    admin.set_user_limits(user, {"max-connections": -1})
    connect(user, user)


def channel_limit_text(user: str, limit: int) -> str:
    return (
        f"NOT_ALLOWED - number of channels opened for user '{user}' "
        f"has reached the maximum allowed user limit of ({limit})"
    )


def test_user_max_channels(connect: Connect, admin: Admin, make_user: MakeUser) -> None:
    """§6.5 row user max-channels: 530 with ids 0,0 (§2.1)."""
    user = make_user()
    admin.set_user_limits(user, {"max-channels": 0})
    connection = connect(user, user)
    connection.send(ChannelOpen, 1)
    connection.expect_connection_close(530, channel_limit_text(user, 0), None)


def test_user_max_channels_of_two_connections(connect: Connect, admin: Admin, make_user: MakeUser) -> None:
    """§6.5: counted over the user's connections; open channels over a lowered limit are left alone."""
    user = make_user()
    old = [connect(user, user).channel(number) for number in (1, 2)]
    admin.set_user_limits(user, {"max-channels": 2})

    def is_refused() -> bool:
        """RabbitMQ counts a channel, too, a little after open-ok."""
        new = connect(user, user)
        new.send(ChannelOpen, 3)
        refusal = new.read_frame().channel == 0
        new.abandon()
        return refusal

    wait_until(is_refused, "a channel is refused")
    new = connect(user, user)
    new.send(ChannelOpen, 3)
    new.expect_connection_close(530, channel_limit_text(user, 2), None)
    admin.set_user_limits(user, {"max-channels": 1})
    for channel in old:
        channel.sync()
    admin.set_user_limits(user, {"max-channels": -1})
    connect(user, user).channel().sync()


def test_vhost_max_queues(connect: Connect, admin: Admin, make_vhost: MakeVhost, name: Name) -> None:
    """§6.5 row vhost max-queues: queues over a lowered limit are left alone; a deleted one makes room."""
    vhost = make_vhost()
    channel = connect(vhost=vhost).channel()
    queues = [channel.declare(name("q")) for _ in range(3)]
    new = name("q")

    def text(limit: int) -> str:
        return f"cannot declare queue '{new}': queue limit in vhost '{vhost}' ({limit}) is reached"

    admin.set_vhost_limits(vhost, {"max-queues": 2})
    assert all(channel.declare(queue) for queue in queues)
    refused(channel, 406, text(2), QueueDeclare, queue=new)
    for queue in queues[:2]:
        channel.call(QueueDelete, queue=queue)
    channel.declare(new)
    channel.call(QueueDelete, queue=new)
    admin.set_vhost_limits(vhost, {"max-queues": 0})
    refused(channel, 406, text(0), QueueDeclare, queue=new)
    admin.set_vhost_limits(vhost, {"max-queues": -1})
    channel.declare(new)


# §6.6 Users and tags


@pytest.mark.parametrize("tags", [["administrator"], ["management", "monitoring", "policymaker"], ["any"]])
def test_tags_grant_no_access(connect: Connect, admin: Admin, make_user: MakeUser, tags: list[str]) -> None:
    """§6.6: tags never grant vhost access."""
    user = make_user(None)
    admin.delete_user(user)
    admin.add_user(user, user, tags)
    refused_open(connect, f"access to vhost '/' refused for user '{user}'", user=user, password=user)


@pytest.mark.parametrize("tags", [[], ["administrator"]])
def test_user_id_of_another(connect: Connect, admin: Admin, make_user: MakeUser, tags: list[str]) -> None:
    """§6.6: user_id must be the user's own, whatever the tags."""
    channel = tagged(connect, admin, make_user, tags)
    user = channel.connection.user
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"own", Properties(user_id=user))
    assert drain(channel, queue) == [b"own"]
    channel.publish("", queue, b"forged", Properties(user_id="guest"))
    text = f"PRECONDITION_FAILED - user_id property set to 'guest' but authenticated user was '{user}'"
    channel.expect_close(406, text, BasicPublish)


def test_impersonator(connect: Connect, admin: Admin, make_user: MakeUser) -> None:
    """§6.6: only the tag impersonator matters for AMQP."""
    channel = tagged(connect, admin, make_user, ["impersonator"])
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"forged", Properties(user_id="guest"))
    content = channel.get(queue)
    assert content
    assert content.properties.user_id == "guest"


def tagged(connect: Connect, admin: Admin, make_user: MakeUser, tags: list[str]) -> Channel:
    """A channel of a new user with these tags and all permissions."""
    user = make_user(None)
    admin.delete_user(user)
    admin.add_user(user, user, tags)
    admin.set_permissions(user, "/", ".*", ".*", ".*")
    return connect(user, user).channel()


def test_user_deleted(connect: Connect, admin: Admin, make_user: MakeUser) -> None:
    """§6.6, §1.8: deleting a user closes its connections."""
    user = make_user()
    connection = connect(user, user)
    connection.channel()
    admin.delete_user(user)
    connection.expect_connection_close(320, f"CONNECTION_FORCED - user '{user}' is deleted", None)


def test_password_changed(connect: Connect, admin: Admin, make_user: MakeUser) -> None:
    """§6.6: changing the password closes nothing; from then on only the new one is taken."""
    user = make_user()
    channel = connect(user, user).channel()
    admin.change_password(user, "new")
    channel.sync()
    connect(user, "new").channel().sync()
    # Clients with this capability get the refusal as a close, at once (§1.3).
    notify: Table = {"capabilities": table({"authentication_failure_close": boolean(True)})}
    late = connect(user, user, open=False, client_properties=notify)
    late.start()
    late.send_start_ok()
    text = (
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
        "For details see the broker logfile."
    )
    late.expect_connection_close(403, text, None, answer=False)


# §6.7 Permissions

NEEDS: list[tuple[type[Method], dict[str, str], dict[str, object]]] = [
    (ExchangeDeclare, {"exchange": "c"}, {"type": "direct"}),
    (ExchangeDelete, {"exchange": "c"}, {}),
    (QueueDeclare, {"queue": "c"}, {}),
    (QueueDelete, {"queue": "c"}, {}),
    (QueueBind, {"queue": "w", "exchange": "r"}, {}),
    (QueueUnbind, {"queue": "w", "exchange": "r"}, {}),
    (ExchangeBind, {"destination": "w", "source": "r"}, {}),
    (ExchangeUnbind, {"destination": "w", "source": "r"}, {}),
    (BasicConsume, {"queue": "r"}, {}),
    (QueuePurge, {"queue": "r"}, {}),
]
"""The table of §6.7: method, what each entity named in a field must allow, and further fields."""


@pytest.mark.parametrize(("method", "needs", "fields"), NEEDS, ids=[row[0].name for row in NEEDS])
def test_permissions_needed(
    channel: Channel,
    limited: Channel,
    name: Name,
    method: type[Method],
    needs: dict[str, str],
    fields: dict[str, object],
) -> None:
    """§6.7, the row of this method: with no more than it needs it succeeds, with all else it is refused."""

    def entities(letters: dict[str, str]) -> dict[str, str]:
        """Existing entities with these rights, by field."""
        return {field: make_entity(channel, field, name(rights)) for field, rights in letters.items()}

    limited.call(method, **entities(needs), **fields)
    for field, needed in needs.items():
        named = entities(needs | {field: "cwr".replace(needed, "")})
        kind = "queue" if field == "queue" else "exchange"
        text = access_refused(limited, f"{kind} '{named[field]}'")
        refused(limited, 403, text, method, **named, **fields)


def make_entity(channel: Channel, field: str, entity: str) -> str:
    if field == "queue":
        return channel.declare(entity)
    channel.call(ExchangeDeclare, exchange=entity, type="direct")
    return entity


def test_get_needs_read(channel: Channel, limited: Channel, name: Name) -> None:
    """§6.7 row basic.get."""
    limited.send(BasicGet, queue=channel.declare(name("r")))
    limited.expect(BasicGetEmpty)
    queue = channel.declare(name("cw"))
    refused(limited, 403, access_refused(limited, f"queue '{queue}'"), BasicGet, queue=queue)


def test_publish_needs_write(channel: Channel, limited: Channel, name: Name) -> None:
    """§6.7 row basic.publish: the exchange, not the queue; before existence."""
    assert not is_routed(limited, make_entity(channel, "exchange", name("w")))
    for exchange in (make_entity(channel, "exchange", name("cr")), name("cr")):
        publish_refused(limited, 403, access_refused(limited, f"exchange '{exchange}'"), exchange)


def test_default_exchange_in_permissions(
    channel: Channel, limited: Channel, connect: Connect, make_user: MakeUser
) -> None:
    """§6.7: the default exchange appears as `amq.default`."""
    publish_refused(limited, 403, access_refused(limited, "exchange 'amq.default'"))
    user = make_user("/", "", "^amq\\.default$", "")
    queue = channel.declare(exclusive=True)
    writer = connect(user, user).channel()
    assert is_routed(writer, "", queue)
    publish_refused(writer, 403, access_refused(writer, "exchange 'amq.direct'"), "amq.direct")


@pytest.mark.parametrize("method", [ExchangeDeclare, QueueDeclare])
def test_passive_declare_needs_nothing(
    channel: Channel, limited: Channel, name: Name, method: type[Method]
) -> None:
    """§6.7 row passive: an existing entity is found without any permission, a missing one is 404."""
    if method is QueueDeclare:
        assert queue_exists(limited, make_entity(channel, "queue", name("none")))
        assert not queue_exists(limited, name("none"))
    else:
        assert exchange_exists(limited, make_entity(channel, "exchange", name("none")))
        assert not exchange_exists(limited, name("none"))


def test_reply_to_needs_nothing(limited: Channel) -> None:
    """§6.7 row reply-to pseudo queue."""
    limited.consume("amq.rabbitmq.reply-to", no_ack=True)


def test_patterns_are_unanchored(connect: Connect, make_user: MakeUser, name: Name) -> None:
    """§6.7: PCRE, unanchored: `bx` matches `zzbxzz`."""
    user = make_user("/", "bx", "", "")
    channel = connect(user, user).channel()
    queue = f"{name('zz')}bxzz"
    assert channel.declare(queue, exclusive=True) == queue
    other = name("bzx")
    refused(channel, 403, access_refused(channel, f"queue '{other}'"), QueueDeclare, queue=other)


@pytest.mark.parametrize("pattern", ["^(?!secret)", "(?i)^PUB", "^(pub|sub)-", "ub-"])
def test_patterns_are_pcre(connect: Connect, make_user: MakeUser, name: Name, pattern: str) -> None:
    """§6.7: PCRE, with look-ahead and inline flags."""
    user = make_user("/", pattern, "", "")
    channel = connect(user, user).channel()
    channel.declare(name("pub"), exclusive=True)
    secret = name("secret")
    refused(channel, 403, access_refused(channel, f"queue '{secret}'"), QueueDeclare, queue=secret)


def test_empty_pattern(connect: Connect, make_user: MakeUser, name: Name) -> None:
    """§6.7: the empty string behaves as `^$`: nothing is allowed."""
    user = make_user("/", "", "", "")
    channel = connect(user, user).channel()
    queue = name("q")
    text = access_refused(channel, f"queue '{queue}'")
    for method in (QueueDeclare, QueueDelete, QueueBind, BasicGet):
        refused(channel, 403, text, method, queue=queue)


def test_permissions_are_of_their_vhost(
    connect: Connect, admin: Admin, make_user: MakeUser, make_vhost: MakeVhost, name: Name
) -> None:
    """§6.7: a row for each (user, vhost)."""
    vhost, user = make_vhost(), make_user("/", ".*", ".*", ".*")
    refused_open(
        connect, f"access to vhost '{vhost}' refused for user '{user}'", user=user, password=user, vhost=vhost
    )
    admin.set_permissions(user, vhost, "^a", "", "")
    channel = connect(user, user, vhost).channel()
    queue = name("b")
    refused(channel, 403, access_refused(channel, f"queue '{queue}'"), QueueDeclare, queue=queue)
    connect(user, user).channel().declare(queue, exclusive=True)


def test_changed_permissions(connect: Connect, admin: Admin, make_user: MakeUser, name: Name) -> None:
    """§6.7, §1.8: new resources are checked at once, on channels that are open too."""
    user = make_user("/", "^a", "", "")
    channel = connect(user, user).channel()
    channel.declare(name("a"), exclusive=True)
    admin.set_permissions(user, "/", "^b", "", "")
    channel.declare(name("b"), exclusive=True)
    queue = name("a")
    refused(channel, 403, access_refused(channel, f"queue '{queue}'"), QueueDeclare, queue=queue)
    admin.clear_permissions(user, "/")
    queue = name("b")
    refused(channel, 403, access_refused(channel, f"queue '{queue}'"), QueueDeclare, queue=queue)
    assert not queue_exists(channel, queue)


# §6.8 Topic permissions


@pytest.fixture
def topic_exchange(channel: Channel, name: Name) -> Iterator[str]:
    exchange = name("topic")
    channel.call(ExchangeDeclare, exchange=exchange, type="topic")
    yield exchange
    channel.connection.channel(100).call(ExchangeDelete, exchange=exchange)


@pytest.fixture
def topical(admin: Admin, connect: Connect, make_user: MakeUser, topic_exchange: str) -> Channel:
    """A user who may publish `w.…` and bind `r.…` at the topic exchange."""
    user = make_user()
    admin.set_topic_permissions(user, "/", topic_exchange, "^w\\.", "^r\\.")
    return connect(user, user).channel()


def topic_refused(channel: Channel, key: str, exchange: str) -> str:
    return (
        f"access to topic '{key}' in exchange '{exchange}' in vhost '/' "
        f"refused for user '{channel.connection.user}'"
    )


def test_topic_write(topical: Channel, topic_exchange: str) -> None:
    """§6.8: write regexp on publish key."""
    assert not is_routed(topical, topic_exchange, "w.a")
    for key in ("other.z", "r.a", ""):
        publish_refused(topical, 403, topic_refused(topical, key, topic_exchange), topic_exchange, key)


@pytest.mark.parametrize("method", [QueueBind, QueueUnbind])
def test_topic_read_of_queue(topical: Channel, topic_exchange: str, method: type[Method]) -> None:
    """§6.8: read regexp on binding key, bind and unbind."""
    queue = topical.declare(exclusive=True)
    topical.call(method, queue=queue, exchange=topic_exchange, routing_key="r.#")
    fields = {"queue": queue, "exchange": topic_exchange, "routing_key": "w.#"}
    refused(topical, 403, topic_refused(topical, "w.#", topic_exchange), method, **fields)


@pytest.mark.parametrize("method", [ExchangeBind, ExchangeUnbind])
def test_topic_read_of_exchange(topical: Channel, topic_exchange: str, method: type[Method]) -> None:
    """§6.8: the same of exchange bindings."""
    topical.call(method, destination="amq.fanout", source=topic_exchange, routing_key="r.a")
    fields = {"destination": "amq.fanout", "source": topic_exchange, "routing_key": "#"}
    refused(topical, 403, topic_refused(topical, "#", topic_exchange), method, **fields)


def test_topic_permission_is_of_its_exchange(topical: Channel, channel: Channel, name: Name) -> None:
    """§6.8: no row = allowed."""
    other = name("topic")
    channel.call(ExchangeDeclare, exchange=other, type="topic")
    topical.call(QueueBind, queue=topical.declare(exclusive=True), exchange=other, routing_key="other.z")
    assert is_routed(topical, other, "other.z")


def test_topic_permission_is_for_topic_exchanges(
    topical: Channel, channel: Channel, admin: Admin, name: Name
) -> None:
    """§6.8: for topic-type exchanges only."""
    exchange = make_entity(channel, "exchange", name("direct"))
    admin.set_topic_permissions(topical.connection.user, "/", exchange, "^$", "^$")
    topical.call(QueueBind, queue=topical.declare(exclusive=True), exchange=exchange, routing_key="key")
    assert is_routed(topical, exchange, "key")


def test_topic_permission_ignores_carbon_copies(
    topical: Channel, channel: Channel, topic_exchange: str
) -> None:
    """§6.8: checked against the main routing key only, not CC/BCC."""
    queue = channel.declare(exclusive=True)
    channel.call(QueueBind, queue=queue, exchange=topic_exchange, routing_key="other.#")
    for header in ("CC", "BCC"):
        properties = Properties(headers={header: array([longstr("other.z")])})
        topical.publish(topic_exchange, "w.a", header.encode(), properties)
    topical.sync()
    assert drain(channel, queue) == [b"CC", b"BCC"]


def test_topic_variables(topical: Channel, admin: Admin, topic_exchange: str) -> None:
    """§6.8: `{username}` and `{vhost}` are substituted."""
    user = topical.connection.user
    admin.set_topic_permissions(user, "/", topic_exchange, "^{username}\\.", "^{vhost}-{username}$")
    assert not is_routed(topical, topic_exchange, f"{user}.a")
    for key in ("guest.a", "{username}.a"):
        publish_refused(topical, 403, topic_refused(topical, key, topic_exchange), topic_exchange, key)
    queue = topical.declare(exclusive=True)
    topical.call(QueueBind, queue=queue, exchange=topic_exchange, routing_key=f"/-{user}")
    fields = {"queue": queue, "exchange": topic_exchange, "routing_key": "/-guest"}
    refused(topical, 403, topic_refused(topical, "/-guest", topic_exchange), QueueBind, **fields)


# §6.9 vhosts


@pytest.mark.parametrize("odd", ["two words", "a/b/", "žluťoučký", "%2F", "'"])
def test_vhost_name_is_any_string(connect: Connect, admin: Admin, name: Name, odd: str) -> None:
    """§6.9: name is any string."""
    vhost = name(odd)
    admin.add_vhost(vhost)
    admin.set_permissions("guest", vhost, ".*", ".*", ".*")
    channel = connect(vhost=vhost).channel()
    refused(channel, 404, f"no queue 'q' in vhost '{vhost}'", BasicGet, queue="q")
    channel.connection.close()
    admin.delete_vhost(vhost)


def test_vhost_deleted(connect: Connect, admin: Admin, make_vhost: MakeVhost, name: Name) -> None:
    """§6.9, §1.8: delete closes connections, and deletes everything."""
    vhost, queue, exchange = make_vhost(), name("q"), name("x")
    connection = connect(vhost=vhost)
    channel = connection.channel()
    channel.declare(queue, durable=True)
    channel.call(ExchangeDeclare, exchange=exchange, type="direct", durable=True)
    admin.delete_vhost(vhost)
    text = re.compile(f"CONNECTION_FORCED - vhost '{vhost}' is (deleted|down)")
    connection.expect_connection_close(320, text, None)
    refused_open(connect, f"vhost {vhost} not found", vhost=vhost)
    admin.add_vhost(vhost)
    refused_open(connect, f"access to vhost '{vhost}' refused for user 'guest'", vhost=vhost)
    admin.set_permissions("guest", vhost, ".*", ".*", ".*")
    channel = connect(vhost=vhost).channel()
    assert not queue_exists(channel, queue)
    assert not exchange_exists(channel, exchange)
    assert exchange_exists(channel, "amq.topic")


def test_vhosts_are_apart(connect: Connect, channel: Channel, make_vhost: MakeVhost, name: Name) -> None:
    """§6.9: names of one vhost mean nothing in another."""
    queue = channel.declare(name("q"), exclusive=True)
    other = connect(vhost=make_vhost()).channel()
    assert not queue_exists(other, queue)
    assert not is_routed(other, "", queue)
    assert other.declare(queue, durable=True) == queue


def test_vhost_creation_is_idempotent(
    connect: Connect, admin: Admin, make_vhost: MakeVhost, name: Name
) -> None:
    """§6.9: creating it again changes nothing in it."""
    vhost = make_vhost()
    channel = connect(vhost=vhost).channel()
    queue = channel.declare(name("q"), exclusive=True)
    admin.add_vhost(vhost)
    assert queue_exists(channel, queue)
