"""MQTT 3.1.1 with paho, against Fluffle's plug-in and RabbitMQ 3.10.8's.

Where the standard asks for more than RabbitMQ's plug-in does, the test says what each does.
"""

from collections.abc import Callable

import pytest

from node.amqp.field_table import Field
from node.amqp.methods import QueueBind, QueueDeclare, QueueDelete
from node.amqp.properties import Properties
from tests.conformance.mqtt.paho_client import Connect
from tests.kit.amqp_client import Channel
from tests.kit.server_cluster import is_rabbitmq
from tests.kit.servers import Admin

Name = Callable[[str], str]

QOS_MAX = 1 if is_rabbitmq() else 2
"""RabbitMQ's plug-in grants QoS 1 for QoS 2."""


# --- publish and subscribe ---


@pytest.mark.parametrize("wanted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_the_lower_qos_of_publish_and_subscription(
    mqtt: Connect, name: Name, wanted: int, published: int
) -> None:
    topic = name("t") + "/x"
    client = mqtt(name("s"))
    assert client.subscribe((topic, wanted)) == [min(wanted, QOS_MAX)]
    mqtt(name("p")).publish(topic, b"m", published)
    assert client.await_messages(1) == [(topic, b"m", min(wanted, published, QOS_MAX), False)]


@pytest.mark.parametrize(
    ("filter_", "topic", "is_match"),
    [
        ("a/b", "a/b", True),
        ("a/+", "a/b", True),
        ("a/+", "a/", True),
        ("a/+", "a", False),
        ("a/+", "a/b/c", False),
        ("+", "a", True),
        ("+/+", "/a", True),
        ("/+", "/a", True),
        ("#", "a/b/c", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab/c", False),
        ("a/+/c", "a//c", True),
        ("A", "a", False),
        ("a.b", "a/b", True),
        ("a/b", "a.b", True),
    ],
)
def test_filters(mqtt: Connect, name: Name, filter_: str, topic: str, is_match: bool) -> None:
    """Topics are routing keys, so a dot is a slash to both servers."""
    client = mqtt(name("s"))
    end = name("end")
    client.subscribe((filter_, 1))
    client.subscribe((end, 1))
    publisher = mqtt(name("p"))
    publisher.publish(topic, b"m")
    publisher.publish(end, b"end")
    payloads = []
    while b"end" not in payloads:
        payloads += [payload for _, payload, _, _ in client.await_messages(1)]
    assert (b"m" in payloads) is is_match


def test_unsubscribe(mqtt: Connect, name: Name) -> None:
    client, topic, other = mqtt(name("s")), name("t"), name("u")
    client.subscribe((topic, 1), (other, 1))
    client.unsubscribe(topic)
    publisher = mqtt(name("p"))
    publisher.publish(topic, b"1")
    publisher.publish(other, b"2")
    assert [payload for _, payload, _, _ in client.await_messages(1)] == [b"2"]


def test_messages_come_in_order(mqtt: Connect, name: Name) -> None:
    client, topic = mqtt(name("s")), name("t")
    client.subscribe((topic, 1))
    publisher = mqtt(name("p"))
    for number in range(200):
        publisher.paho.publish(topic, b"%d" % number, 1)
    found = client.await_messages(200)
    assert [int(payload) for _, payload, _, _ in found] == list(range(200))


def test_a_large_message(mqtt: Connect, name: Name) -> None:
    client, topic, payload = mqtt(name("s")), name("t"), bytes(range(256)) * 8192
    client.subscribe((topic, 1))
    mqtt(name("p")).publish(topic, payload)
    assert client.await_messages(1) == [(topic, payload, 1, False)]


# --- with AMQP ---


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_amqps_clients_get_messages(mqtt: Connect, channel: Channel, name: Name, qos: int) -> None:
    queue, first = channel.declare(exclusive=True), name("t")
    channel.call(QueueBind, queue=queue, exchange="amq.topic", routing_key=f"{first}.*")
    mqtt(name("p")).publish(f"{first}/x", b"m", qos)
    channel.consume(queue, no_ack=True)
    found = channel.deliver()
    assert (found.method.exchange, found.method.routing_key, found.body) == ("amq.topic", f"{first}.x", b"m")
    headers = found.properties.headers or {}
    assert headers["x-mqtt-publish-qos"] == Field("b", min(qos, QOS_MAX))
    assert headers["x-mqtt-dup"] == Field("t", False)
    assert found.properties.delivery_mode == (2 if qos else 1)


@pytest.mark.parametrize("qos", [0, 1])
def test_amqps_clients_send_messages(mqtt: Connect, channel: Channel, name: Name, qos: int) -> None:
    client, first = mqtt(name("s")), name("t")
    client.subscribe((f"{first}/+/x", qos))
    channel.publish("amq.topic", f"{first}.a.x", b"m", Properties(content_type="text/plain", headers={}))
    assert client.await_messages(1) == [(f"{first}/a/x", b"m", qos, False)]


def test_a_sessions_queues(mqtt: Connect, channel: Channel, name: Name) -> None:
    """Both servers name and declare the queues alike, so policies and permissions hold for both.

    But for the queue of a session that ends with its connection: nothing of that outlives Fluffle's node.
    """
    clean, kept = name("clean"), name("kept")
    mqtt(clean).subscribe((name("t"), 0), (name("u"), 1))
    mqtt(kept, clean=False).subscribe((name("u"), 1))
    for queue, durable, auto_delete, arguments in (
        (f"mqtt-subscription-{clean}qos0", False, True, {}),
        (f"mqtt-subscription-{clean}qos1", is_rabbitmq(), True, {}),
        (f"mqtt-subscription-{kept}qos1", True, False, {"x-expires": Field("l", 86_400_000)}),
    ):
        channel.call(QueueDeclare, queue=queue, durable=durable, auto_delete=auto_delete, arguments=arguments)
    channel.call(QueueDelete, queue=f"mqtt-subscription-{kept}qos1")


# --- sessions ---


def test_messages_wait_for_a_persistent_session(mqtt: Connect, name: Name) -> None:
    client_id, topic = name("c"), name("t")
    client = mqtt(client_id, clean=False)
    assert not client.present
    client.subscribe((topic, 1))
    client.disconnect()
    mqtt(name("p")).publish(topic, b"m")
    client = mqtt(client_id, clean=False)
    assert client.present
    assert client.await_messages(1) == [(topic, b"m", 1, False)]
    client.disconnect()
    client = mqtt(client_id, clean=True)
    assert not client.present
    client.disconnect()
    assert not mqtt(client_id, clean=False).present


def test_a_second_connection_takes_over(mqtt: Connect, name: Name) -> None:
    client_id, topic = name("c"), name("t")
    first = mqtt(client_id, clean=False)
    first.subscribe((topic, 1))
    second = mqtt(client_id, clean=False)
    first.await_end()
    mqtt(name("p")).publish(topic, b"m")
    assert second.await_messages(1) == [(topic, b"m", 1, False)]


# --- retained messages and wills ---


def test_retained_messages(mqtt: Connect, name: Name) -> None:
    topic = name("t")
    publisher = mqtt(name("p"))
    publisher.publish(topic, b"1", retain=True)
    publisher.publish(topic, b"2", retain=True)
    client = mqtt(name("s"))
    client.subscribe((topic, 1))
    assert client.await_messages(1) == [(topic, b"2", 1, True)]
    publisher.publish(topic, b"3", retain=True)
    assert client.await_messages(1) == [(topic, b"3", 1, False)]
    publisher.publish(topic, b"", retain=True)
    assert client.await_messages(1) == [(topic, b"", 1, False)]
    late = mqtt(name("l"))
    late.subscribe((topic, 1))
    publisher.publish(topic, b"live")
    assert late.await_messages(1) == [(topic, b"live", 1, False)]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("retain", [False, True])
def test_a_will(mqtt: Connect, name: Name, qos: int, retain: bool) -> None:
    topic = name("t")
    watcher = mqtt(name("s"))
    watcher.subscribe((topic, 1))
    mqtt(name("c"), will=(topic, b"gone", qos, retain)).cut()
    assert watcher.await_messages(1) == [(topic, b"gone", qos, False)]
    mqtt(name("c"), will=(topic, b"gone", qos, retain)).disconnect()
    watcher.paho.publish(topic, b"next", 1)
    assert watcher.await_messages(1) == [(topic, b"next", 1, False)]
    if retain:
        late = mqtt(name("l"))
        late.subscribe((topic, 1))
        assert late.await_messages(1) == [(topic, b"gone", qos, True)]


@pytest.mark.slow
def test_a_silent_client_is_disconnected(mqtt: Connect, name: Name) -> None:
    topic = name("t")
    watcher = mqtt(name("s"))
    watcher.subscribe((topic, 1))
    silent = mqtt(name("c"), will=(topic, b"gone", 1, False), keep_alive_s=2)
    silent.paho.loop_stop()
    assert watcher.await_messages(1) == [(topic, b"gone", 1, False)]


# --- access ---


def test_a_wrong_password(mqtt: Connect, name: Name) -> None:
    client = mqtt(name("c"), password="wrong")
    assert client.connects == [0x86]  # paho's name for return code 4


def test_an_unknown_vhost(mqtt: Connect, name: Name) -> None:
    client = mqtt(name("c"), user="nowhere:guest")
    assert client.connects in ([0x86], [0x87])


def test_a_vhost_in_the_user_name(mqtt: Connect, name: Name, make_vhost: Callable[[], str]) -> None:
    vhost, topic = make_vhost(), name("t")
    inside = mqtt(name("c"), user=f"{vhost}:guest")
    outside = mqtt(name("d"))
    for client in (inside, outside):
        client.subscribe((topic, 1))
    outside.publish(topic, b"outside")
    inside.publish(topic, b"inside")
    assert [payload for _, payload, _, _ in inside.await_messages(1)] == [b"inside"]
    assert [payload for _, payload, _, _ in outside.await_messages(1)] == [b"outside"]


def test_a_client_without_a_name_is_the_default_user(mqtt: Connect, name: Name) -> None:
    assert mqtt(name("c"), user=None).connects == [0]


@pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ neither acknowledges it nor closes the connection")
def test_a_publish_without_permission_ends_the_connection(
    mqtt: Connect, name: Name, make_user: Callable[..., str]
) -> None:
    user = make_user("/", ".*", "^mqtt-subscription", ".*")
    client = mqtt(name("c"), user=user, password=user)
    client.paho.publish(name("t"), b"m", 1)
    client.await_end()


def test_topic_permissions(mqtt: Connect, name: Name, make_user: Callable[..., str], admin: Admin) -> None:
    user = make_user()
    admin.set_topic_permissions(user, "/", "amq.topic", "^allowed", ".*")
    watcher = mqtt(name("s"))
    topic = f"allowed/{name('t')}"
    watcher.subscribe((topic, 1))
    client = mqtt(name("c"), user=user, password=user)
    client.publish(topic, b"m")
    assert len(watcher.await_messages(1)) == 1
    client.paho.publish(name("refused"), b"m", 1)
    client.await_end()
