"""amqp-behaviour §9.7: what holds for the cluster as one broker."""

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from node.amqp import methods
from node.amqp.field_table import Table, boolean, table
from node.amqp.methods import (
    BasicAck,
    ConfirmSelect,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionUnblocked,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueUnbind,
)
from tests.conformance.cluster_story import PERSISTENT, drain, publish
from tests.conformance.entities import exchange_exists, is_routed, queue_exists
from tests.conformance.queue_steps import DEADLINE_S
from tests.kit.amqp_client import Channel, Connection, ConnectionEnded
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster, ClusterNode

On = Callable[..., Channel]
Name = Callable[[str], str]

WANTS_TO_KNOW: Final[Table] = {"capabilities": table({"connection.blocked": boolean(True)})}
WANTS_THE_REASON: Final[Table] = {"capabilities": table({"authentication_failure_close": boolean(True)})}
"""A client with these properties is refused at once, not after 3 s."""
SILENCE_S: Final = 0.3
KNOWN_S: Final = 0.6
"""All nodes know after this time that one has an alarm, where it cannot be seen."""


@pytest.fixture
def vhost(cluster: Cluster, name: Name) -> Iterator[str]:
    """A vhost that goes with the test."""
    made = name("vhost")
    cluster[0].admin.add_vhost(made)
    cluster[0].admin.set_permissions("guest", made, ".*", ".*", ".*")
    yield made
    if made in vhosts_left:
        vhosts_left.discard(made)
    else:
        cluster[0].admin.delete_vhost(made)


vhosts_left: Final[set[str]] = set()
"""Vhosts that their tests have deleted."""


@pytest.fixture
def alarms(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, with no alarm at the end."""
    yield cluster
    for node in cluster.nodes:
        node.admin.clear_alarm("memory")
        node.admin.clear_alarm("disk")


# Row 1: exchanges, bindings, users, policies replicated everywhere; any node serves any queue.


def test_entities_are_everywhere_at_once(cluster: Cluster, on: On, name: Name) -> None:
    """§9.7 row 1: when a method is answered, what it did holds on every node; there and back, ten times."""
    channels = [on(node) for node in cluster.nodes]
    for turn in range(10):
        here, there = channels[turn % 3], channels[(turn + 1) % 3]
        exchange, inner, queue = name("x"), name("i"), name("q")
        here.call(ExchangeDeclare, exchange=exchange, type="direct")
        assert exchange_exists(there, exchange)
        here.call(ExchangeDeclare, exchange=inner, type="fanout")
        here.declare(queue)
        assert queue_exists(there, queue)
        here.call(ExchangeBind, source=exchange, destination=inner, routing_key="k")
        here.call(QueueBind, queue=queue, exchange=inner)
        assert is_routed(there, exchange, "k")
        there.call(QueueUnbind, queue=queue, exchange=inner)
        assert not is_routed(here, exchange, "k")
        there.call(QueueBind, queue=queue, exchange=inner)
        assert is_routed(here, exchange, "k")
        here.call(ExchangeUnbind, source=exchange, destination=inner, routing_key="k")
        assert not is_routed(there, exchange, "k")
        there.call(QueueDelete, queue=queue)
        assert not queue_exists(here, queue)
        here.call(ExchangeDelete, exchange=exchange)
        assert not exchange_exists(there, exchange)


def test_equivalence_is_checked_everywhere(cluster: Cluster, on: On, name: Name) -> None:
    """§3.3, §3.7: a declaration that differs is refused on another node, word for word."""
    exchange, queue = name("x"), name("q")
    on(cluster[0]).call(ExchangeDeclare, exchange=exchange, type="direct", durable=True)
    on(cluster[0]).declare(queue, durable=True)
    channel = on(cluster[1])
    channel.send(ExchangeDeclare, exchange=exchange, type="fanout", durable=True)
    channel.expect_close(
        406,
        f"PRECONDITION_FAILED - inequivalent arg 'type' for exchange '{exchange}' in vhost '/': "
        "received 'fanout' but current is 'direct'",
        ExchangeDeclare,
    )
    channel = on(cluster[2])
    channel.send(QueueDeclare, queue=queue)
    channel.expect_close(
        406,
        f"PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{queue}' in vhost '/': "
        "received 'false' but current is 'true'",
        QueueDeclare,
    )


def test_two_declare_the_same_at_once(cluster: Cluster, on: On, name: Name) -> None:
    """§9.7 row 1: both get declare-ok, and there is one queue."""
    channels = [on(node) for node in cluster.nodes]
    for _ in range(20):
        queue = name("q")
        for channel in channels:
            channel.send(QueueDeclare, queue=queue, durable=True)
        for channel in channels:
            assert channel.expect(methods.QueueDeclareOk).queue == queue
        assert len({node.home(queue) for node in cluster.nodes}) == 1
        for channel in channels:
            publish(channel, queue, b"one")
        assert len(drain(channels[0], queue)) == 3


def test_users_are_everywhere_at_once(cluster: Cluster, on: On, name: Name) -> None:
    """§9.7 row 1: also their passwords and permissions."""
    user = name("user")
    admins = [node.admin for node in cluster.nodes]
    admins[0].add_user(user, user)
    admins[1].set_permissions(user, "/", "^$", "^$", ".*")
    channel = on(cluster[2], user, user)
    channel.send(QueueDeclare, queue=name("q"))
    channel.expect(methods.ChannelClose)
    admins[1].set_permissions(user, "/", ".*", ".*", ".*")
    on(cluster[0], user, user).declare(name("q"), exclusive=True)
    admins[2].change_password(user, "other")
    on(cluster[1], user, "other")
    admins[1].delete_user(user)
    for node in cluster.nodes:
        with pytest.raises((ConnectionEnded, AssertionError)):
            on(node, user, "other", client_properties=WANTS_THE_REASON)


def test_a_deleted_users_connections_end_everywhere(cluster: Cluster, on: On, name: Name) -> None:
    """§6.6 with §9.7."""
    user = name("user")
    cluster[0].admin.add_user(user, user)
    cluster[0].admin.set_permissions(user, "/", ".*", ".*", ".*")
    channels = [on(node, user, user) for node in cluster.nodes]
    cluster[1].admin.delete_user(user)
    for channel in channels:
        close = channel.connection.expect(ConnectionClose)
        assert (close.reply_code, close.reply_text) == (
            320,
            f"CONNECTION_FORCED - user '{user}' is deleted",
        )


def test_a_vhost_is_everywhere_at_once(cluster: Cluster, on: On, vhost: str, name: Name) -> None:
    """§9.7 row 1; its deletion ends its connections on all nodes, and its queues."""
    queue = name("q")
    channels = [on(node, vhost=vhost) for node in cluster.nodes]
    channels[1].declare(queue, durable=True)
    publish(channels[2], queue, b"to be lost")
    vhosts_left.add(vhost)
    cluster[2].admin.delete_vhost(vhost)
    for channel in channels:
        close = channel.connection.expect(ConnectionClose)
        assert close.reply_code == 320
        # RabbitMQ's other nodes may see it go before they are told why.
        assert re.fullmatch(f"CONNECTION_FORCED - vhost '{vhost}' is (deleted|down)", close.reply_text)
    for node in cluster.nodes:
        with pytest.raises(AssertionError, match=f"vhost {vhost} not found"):
            on(node, vhost=vhost)
    cluster[0].admin.add_vhost(vhost)
    cluster[0].admin.set_permissions("guest", vhost, ".*", ".*", ".*")
    vhosts_left.discard(vhost)
    assert not queue_exists(on(cluster[1], vhost=vhost), queue)


def test_policies_hold_everywhere_at_once(cluster: Cluster, on: On, name: Name) -> None:
    """§9.7 row 1: set on one node, for a queue of the second, seen by a client of the third."""
    queue = name("q")
    on(cluster[1]).declare(queue, durable=True)
    channel = on(cluster[2])
    publish(channel, queue, b"1", b"2", b"3")
    cluster[0].admin.set_policy("/", queue, f"^{queue}$", {"max-length": 2, "overflow": "drop-head"})
    publish(channel, queue, b"4")
    assert [content.body for content in drain(channel, queue)] == [b"3", b"4"]
    cluster[2].admin.clear_policy("/", queue)
    publish(channel, queue, b"1", b"2", b"3")
    assert len(drain(channel, queue)) == 3


def test_queues_are_listed_everywhere(cluster: Cluster, on: On, vhost: str) -> None:
    """§9.7 row 1."""
    for node in cluster.nodes:
        on(node, vhost=vhost).declare(f"on-{node.name}", durable=True)
    for node in cluster.nodes:
        assert sorted(node.admin.list_queues(vhost)) == [f"on-{each.name}" for each in cluster.nodes]


# Row 2: limits and alarms.


def refused_connection(node: ClusterNode, user: str, vhost: str, code: int, text: str) -> None:
    """connection.open is refused with this, once the node knows of the other nodes' connections."""

    def open_one() -> None:
        connection = Connection(node, user, user, vhost, open=False)
        connection.start()
        connection.send_start_ok()
        connection.tune()
        connection.send(methods.ConnectionOpen, virtual_host=vhost)
        with closed_if_it_was_served(connection):
            connection.expect_connection_close(code, text, methods.ConnectionOpen)

    await_no_failure(open_one)


@contextlib.contextmanager
def closed_if_it_was_served(connection: Connection) -> Iterator[None]:
    """A connection that should have been refused must not count itself when the next one is tried."""
    try:
        yield
    except AssertionError:
        with contextlib.suppress(AssertionError, OSError):
            connection.close()
        raise


def is_channel_served(connection: Connection) -> bool:
    """Whether channel 1, which was asked for, is open; else the connection is being closed."""
    try:
        connection.expect(methods.ChannelOpenOk, 1)
    except AssertionError:
        return False
    return True


def await_no_failure(attempt: Callable[[], object], within: float = DEADLINE_S) -> None:
    """Try again and again until no assertion fails."""
    deadline = time.monotonic() + within
    while True:
        try:
            attempt()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def test_connection_limit_of_a_vhost(cluster: Cluster, on: On, vhost: str) -> None:
    """§9.7 row 2, §6.5: counted over all nodes."""
    cluster[1].admin.set_vhost_limits(vhost, {"max-connections": 2})
    first = on(cluster[0], vhost=vhost)
    on(cluster[1], vhost=vhost)
    text = (
        f"NOT_ALLOWED - access to vhost '{vhost}' refused for user 'guest': connection limit (2) is reached"
    )
    for node in cluster.nodes:
        refused_connection(node, "guest", vhost, 530, text)
    first.connection.close()
    await_no_failure(lambda: on(cluster[2], vhost=vhost))  # once what was closed elsewhere is counted no more
    refused_connection(cluster[0], "guest", vhost, 530, text)


def test_connection_limit_of_a_user(cluster: Cluster, on: On, name: Name) -> None:
    """§9.7 row 2, §6.5."""
    user = name("user")
    cluster[0].admin.add_user(user, user)
    cluster[0].admin.set_permissions(user, "/", ".*", ".*", ".*")
    cluster[0].admin.set_user_limits(user, {"max-connections": 2})
    on(cluster[0], user, user)
    on(cluster[1], user, user)
    text = f"NOT_ALLOWED - connection refused for user '{user}': user connection limit (2) is reached"
    for node in cluster.nodes:
        refused_connection(node, user, "/", 530, text)
    cluster[0].admin.delete_user(user)


def test_channel_limit_of_a_user(cluster: Cluster, on: On, name: Name) -> None:
    """§9.7 row 2, §6.5."""
    user = name("user")
    cluster[0].admin.add_user(user, user)
    cluster[0].admin.set_permissions(user, "/", ".*", ".*", ".*")
    cluster[0].admin.set_user_limits(user, {"max-channels": 2})
    kept = [on(node, user, user) for node in cluster.nodes[:2]]
    text = (
        f"NOT_ALLOWED - number of channels opened for user '{user}' "
        "has reached the maximum allowed user limit of (2)"
    )

    def open_one_more() -> None:
        connection = Connection(cluster[2], user, user)
        connection.send(methods.ChannelOpen, 1)
        with closed_if_it_was_served(connection):
            assert not is_channel_served(connection)
            connection.expect_connection_close(530, text, None)

    await_no_failure(open_one_more)
    for channel in kept:
        channel.sync()
    cluster[0].admin.delete_user(user)


def test_queue_limit_of_a_vhost(cluster: Cluster, on: On, vhost: str) -> None:
    """§9.7 row 2, §6.5."""
    cluster[1].admin.set_vhost_limits(vhost, {"max-queues": 2})
    for node in cluster.nodes[:2]:
        on(node, vhost=vhost).declare(f"on-{node.name}", durable=True)
    for node in cluster.nodes:
        channel = on(node, vhost=vhost)
        channel.send(QueueDeclare, queue="third", durable=True)
        channel.expect_close(
            406,
            "PRECONDITION_FAILED - cannot declare queue 'third': "
            f"queue limit in vhost '{vhost}' (2) is reached",
            QueueDeclare,
        )


def until_blocked(channel: Channel) -> None:
    """Publish to nobody until the node blocks it: then the node knows that another one has an alarm."""

    def is_blocked() -> None:
        channel.publish("", "nowhere", b"block me")
        channel.connection.expect(ConnectionBlocked, timeout=0.2)

    await_no_failure(is_blocked)


@pytest.mark.disturbs_everyone
@pytest.mark.parametrize("resource", ["memory", "disk"])
def test_alarms_are_cluster_wide(alarms: Cluster, on: On, name: Name, resource: str) -> None:
    """§9.7 row 2, §7.1: publishers of all nodes are blocked, whatever queue they publish to."""
    queue = name("q")
    channels = [on(node, client_properties=WANTS_TO_KNOW) for node in alarms.nodes]
    channels[1].declare(queue)
    consumer = on(alarms[0])
    consumer.consume(queue, no_ack=True)
    for channel in channels:
        publish(channel, queue, b"before")
        assert consumer.deliver().body == b"before"
    alarms[2].admin.set_alarm(resource)
    for node in alarms.nodes:
        until_blocked(on(node, client_properties=WANTS_TO_KNOW))
    for channel in channels:
        channel.publish("", queue, b"held")
        assert channel.connection.expect(ConnectionBlocked).reason == f"low on {resource}"
    consumer.expect_nothing(SILENCE_S)
    alarms[2].admin.clear_alarm(resource)
    for channel in channels:
        channel.connection.expect(ConnectionUnblocked)
        assert consumer.deliver().body == b"held"


@pytest.mark.disturbs_everyone
def test_all_alarms_must_clear(alarms: Cluster, on: On) -> None:
    """§7.1 with §9.7: two nodes have one; the last to clear unblocks."""
    channel = on(alarms[0], client_properties=WANTS_TO_KNOW)
    alarms[1].admin.set_alarm("memory")
    until_blocked(channel)
    alarms[2].admin.set_alarm("memory")
    time.sleep(KNOWN_S)  # a node that is blocked already shows nothing of a second alarm
    alarms[1].admin.clear_alarm("memory")
    channel.connection.expect_nothing(SILENCE_S, 0)
    alarms[2].admin.clear_alarm("memory")
    channel.connection.expect(ConnectionUnblocked)


@pytest.mark.disturbs_everyone
@pytest.mark.slow
def test_an_alarm_goes_with_its_node(shaken_cluster: Cluster, on: On) -> None:
    """§7.1 with §9.7: a node that is gone is short of nothing; one that starts without it neither."""
    cluster = shaken_cluster
    channel = on(cluster[0], client_properties=WANTS_TO_KNOW)
    cluster[2].admin.set_alarm("memory")
    until_blocked(channel)
    cluster[2].kill()
    channel.connection.expect(ConnectionUnblocked)


@pytest.mark.disturbs_everyone
@pytest.mark.slow
def test_a_node_that_starts_hears_of_alarms(shaken_cluster: Cluster, on: On) -> None:
    """§7.1 with §9.7: its publishers are blocked like all others."""
    cluster = shaken_cluster
    cluster[1].stop_app()
    cluster[0].admin.set_alarm("memory")
    try:
        cluster[1].start_app()
        cluster[1].await_ready()
        channel = on(cluster[1], client_properties=WANTS_TO_KNOW)
        channel.publish("", "nowhere", b"I am a publisher")
        channel.connection.expect(ConnectionBlocked)
    finally:
        cluster[0].admin.clear_alarm("memory")
    channel.connection.expect(ConnectionUnblocked)


# Row 4: maintenance.


@pytest.mark.slow
def test_maintenance_mode(shaken_cluster: Cluster, on: On, name: Name) -> None:
    """§9.7 row 4, reliability §2.5 maintenance_mode: listeners suspended, connections closed, others serve on."""
    cluster = shaken_cluster
    queue = name("q")
    there, here = on(cluster[1]), on(cluster[0])
    there.declare(queue, durable=True)
    cluster[1].drain()
    try:
        close = there.connection.expect(ConnectionClose)
        assert close.reply_code == 320
        assert "Node was put into maintenance mode" in close.reply_text
        with pytest.raises(ConnectionRefusedError):
            Connection(cluster[1])
        publish(here, queue, b"still served")
        assert [content.body for content in drain(here, queue)] == [b"still served"]
        status = cluster[0].ctl("cluster_status", "--formatter", "json")
        assert "marked for maintenance" in json.loads(status.output)["maintenance_status"]["n2@localhost"]
    finally:
        cluster[1].revive()
    on(cluster[1])
    status = cluster[0].ctl("cluster_status", "--formatter", "json")
    assert json.loads(status.output)["maintenance_status"]["n2@localhost"] == "not under maintenance"


# §9.6: a minority pauses.


@pytest.mark.slow
def test_a_minority_pauses(shaken_cluster: Cluster, on: On, name: Name) -> None:
    """§9.6 row pause_minority: 320, then connection refused; all is there once the majority is back."""
    cluster, queue = shaken_cluster, name("q")
    channel = on(cluster[0])
    channel.declare(queue, durable=True)
    publish(channel, queue, b"kept")
    cluster[2].kill()
    cluster.await_members(cluster[0].name, cluster[1].name, seen_by=cluster.nodes[:2])
    publish(channel, queue, b"two of three work")
    cluster[1].kill()
    text = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
    close = channel.connection.expect(ConnectionClose, timeout=20)
    assert (close.reply_code, close.reply_text) == (320, text)
    with pytest.raises(ConnectionRefusedError):
        Connection(cluster[0])
    cluster[1].launch()
    cluster[1].await_ready()
    cluster[0].await_ready()
    channel = on(cluster[1])
    assert [content.body for content in drain(channel, queue)] == [b"kept", b"two of three work"]


@pytest.mark.slow
def test_a_confirm_waits_for_the_majority(shaken_cluster: Cluster, on: On, name: Name) -> None:
    """§9.6, reliability §2.2 confirm_minority: no metadata change and no false promise by a node left alone."""
    cluster, queue = shaken_cluster, name("q")
    channel = on(cluster[0])
    channel.declare(queue, durable=True)
    channel.call(ConfirmSelect)
    for node in cluster.nodes[1:]:
        node.kill()
    confirmed = 0
    try:
        for number in range(200):
            channel.publish("", queue, b"%d" % number, PERSISTENT)
            confirmed = channel.expect(BasicAck).delivery_tag
            time.sleep(0.02)
    except (ConnectionEnded, AssertionError):
        pass  # paused: 320
    cluster[1].launch()
    cluster[2].launch()
    for node in cluster.nodes:
        node.await_ready()
    # The node that was alone may have to begin anew, once it hears from the others: its queues are away meanwhile.
    wait_until(lambda: queue_exists(on(cluster[2]), queue), "the queue is within reach")
    bodies = {content.body for content in drain(on(cluster[2]), queue)}
    assert {b"%d" % number for number in range(confirmed)} <= bodies
