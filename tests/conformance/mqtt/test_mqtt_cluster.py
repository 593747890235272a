"""Sessions in a cluster of three processes: a client goes on at another node after the loss of the one it was on.

RabbitMQ's plug-in loses QoS 2, retained messages and wills with the node: what is promised here is docs/mqtt.md's.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from node.io.control import request
from tests.conformance.mqtt.paho_client import V5, V311, PahoClient
from tests.kit.fluffle_cluster import FluffleNode
from tests.kit.mirror_steps import await_shape, set_mirroring
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster, ClusterNode, is_rabbitmq, start_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ's plug-in keeps less"),
]

Name = Callable[[str], str]
On = Callable[..., PahoClient]

WILL_S = 90.0
"""A will is published some 60 s after the loss of its node (`WILL_TTL_S`, node/mqtt/wills.py)."""


@pytest.fixture(scope="module")
def mqtt_cluster() -> Iterator[Cluster]:
    """A cluster with the plug-in, whose MQTT queues are all mirrored on all nodes."""
    cluster = start_cluster({"mqtt.listeners.tcp.default": "127.0.0.1:0"})
    cluster[0].admin.enable_plugin("rabbitmq_mqtt")  # type: ignore[attr-defined]
    set_mirroring(cluster[0], "mqtt-subscription-", "all", ha_sync_mode="automatic")
    yield cluster
    cluster.stop()


@pytest.fixture
def nodes(mqtt_cluster: Cluster) -> Iterator[Cluster]:
    """Give the cluster to a test that kills nodes; they are brought back after the test."""
    mqtt_cluster.heal()
    yield mqtt_cluster
    mqtt_cluster.heal()


@pytest.fixture(autouse=True)
def no_other_connection_notices() -> None:
    """Stand in for the conformance tests' bystander, who has a server of its own."""


def mqtt_port(node: ClusterNode) -> int:
    """Return the port of a node's listener for MQTT, once it is open."""

    def found() -> int:
        listeners = request(cast(FluffleNode, node).data, "status", {}, timeout_s=10.0)["listeners"]
        return next((int(each["port"]) for each in listeners if each["protocol"] == "mqtt"), 0)

    return wait_until(found, f"{node.name} listens for MQTT")


@pytest.fixture
def at() -> Iterator[On]:
    """Connect clients to a node, with `PahoClient`'s other arguments: `at(cluster[1], "c")`."""
    made: list[PahoClient] = []

    def connect(node: ClusterNode, client_id: str, *arguments: object, **options: object) -> PahoClient:
        made.append(PahoClient(mqtt_port(node), client_id, *arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield connect
    for each in made:
        each.cut()


def mirrored(node: ClusterNode, queue: str) -> None:
    """Wait until a queue has its three copies."""
    await_shape(node, queue, synced=2)


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_goes_on_at_another_node(
    nodes: Cluster, at: On, name: Name, version: int, qos: int
) -> None:
    client_id, topic = name("c"), name("t")
    options = {"clean": False, **({"expiry_s": 3600} if version == V5 else {})}
    client = at(nodes[0], client_id, version, **options)
    client.subscribe((f"{topic}/#", qos))
    mirrored(nodes[1], f"mqtt-subscription-{client_id}qos{qos}")
    publisher = at(nodes[1], name("p"), version)
    publisher.publish(f"{topic}/1", b"1", qos)
    assert client.await_messages(1) == [(f"{topic}/1", b"1", qos, False)]
    nodes[0].kill()
    publisher.publish(f"{topic}/2", b"2", qos)
    client = at(nodes[2], client_id, version, **options)
    assert client.present
    publisher.publish(f"{topic}/3", b"3", qos)
    found = [payload for _, payload, _, _ in client.await_messages(2)]
    assert found[-2:] == [b"2", b"3"]


def test_exactly_once_while_the_clients_node_is_killed(nodes: Cluster, at: On, name: Name) -> None:
    """Both clients lose their node with messages on their way in both directions; paho sends these again."""
    topic, total = name("t"), 1000
    subscriber = at(nodes[0], name("s"), clean=False)
    subscriber.subscribe((topic, 2))
    publisher = at(nodes[0], name("p"), clean=False)
    publisher.publish(topic, b"0", 2)
    assert subscriber.await_messages(1)
    for number in range(1, total):
        publisher.paho.publish(topic, b"%d" % number, 2)
    wait_until(lambda: len(subscriber.messages) > total // 4, "messages are on their way")
    nodes[0].kill()
    for client, node in ((publisher, nodes[1]), (subscriber, nodes[2])):
        client.await_end()
        client.paho.loop_stop()
        client.paho.connect("127.0.0.1", mqtt_port(node))
        client.paho.loop_start()
    wait_until(
        lambda: len(subscriber.messages) >= total - 1, lambda: f"{len(subscriber.messages)} of {total}", 60.0
    )
    publisher.publish(topic, b"end", 2)
    wait_until(lambda: subscriber.messages[-1].payload == b"end", "the last message")
    counts = Counter(message.payload for message in subscriber.messages)
    assert {payload for payload, count in counts.items() if count > 1} == set()
    assert {b"%d" % number for number in range(1, total)} - counts.keys() == set()


def test_exactly_once_while_the_queues_node_is_killed(nodes: Cluster, at: On, name: Name) -> None:
    topic, total, client_id = name("t"), 1000, name("s")
    subscriber = at(nodes[0], client_id, clean=False)
    subscriber.subscribe((topic, 2))
    subscriber.disconnect()
    mirrored(nodes[1], f"mqtt-subscription-{client_id}qos2")
    subscriber = at(nodes[1], client_id, clean=False)
    publisher = at(nodes[2], name("p"), clean=False)
    for number in range(total):
        publisher.paho.publish(topic, b"%d" % number, 2)
    wait_until(lambda: len(subscriber.messages) > total // 4, "messages are on their way")
    nodes[0].kill()
    wait_until(
        lambda: len(subscriber.messages) >= total, lambda: f"{len(subscriber.messages)} of {total}", 60.0
    )
    publisher.publish(topic, b"end", 2)
    wait_until(lambda: subscriber.messages[-1].payload == b"end", "the last message")
    assert Counter(message.payload for message in subscriber.messages).most_common(1)[0][1] == 1


def test_a_client_id_belongs_to_one_connection_of_the_cluster(nodes: Cluster, at: On, name: Name) -> None:
    client_id = name("c")
    former = at(nodes[0], client_id, V5)
    for node in nodes.nodes[1:]:
        connection = at(node, client_id, V5)
        former.await_end()
        assert former.disconnects == [0x8E]
        former = connection
    assert not former.disconnects


def test_retained_messages_outlive_a_node(nodes: Cluster, at: On, name: Name) -> None:
    topics = [f"{name('t')}/{number}" for number in range(5)]
    publisher = at(nodes[0], name("p"))
    for topic in topics:
        publisher.publish(topic, b"old", retain=True)
        publisher.publish(topic, topic.encode(), retain=True)
    publisher.publish(topics[0], b"", retain=True)
    for node in (nodes[0], nodes[1]):
        node.kill()
        client = at(nodes[2], name("s"))
        client.subscribe(*((f"{topic.partition('/')[0]}/#", 1) for topic in topics))
        assert sorted(payload for _, payload, _, _ in client.await_messages(4)) == sorted(
            topic.encode() for topic in topics[1:]
        )
        node.launch()
        node.await_ready()


def test_a_will_outlives_the_node_of_its_connection(nodes: Cluster, at: On, name: Name) -> None:
    topic, client_id = name("t"), name("c")
    watcher = at(nodes[1], name("s"))
    watcher.subscribe((topic, 1))
    at(nodes[0], client_id, will=(topic, b"gone", 1, False))
    mirrored(nodes[1], f"mqtt-subscription-{client_id}will0")
    nodes[0].kill()
    wait_until(lambda: watcher.messages, "the will", WILL_S)
    assert watcher.await_messages(1) == [(topic, b"gone", 1, False)]


def test_a_will_is_not_published_when_its_queue_has_another_master(
    nodes: Cluster, at: On, name: Name
) -> None:
    topic, client_id = name("t"), name("c")
    watcher = at(nodes[1], name("s"))
    watcher.subscribe((topic, 1))
    queue = f"mqtt-subscription-{client_id}will0"
    client = at(nodes[0], client_id, will=(topic, b"gone", 1, False))
    mirrored(nodes[1], queue)
    client.disconnect()
    client = at(nodes[1], client_id, will=(topic, b"gone", 1, False))
    mirrored(nodes[1], queue)
    master = nodes.node(nodes[1].replicas(queue).master)
    if master is not nodes[1]:
        master.kill()
        await_shape(nodes[1], queue, synced=1)
    at(nodes[1], name("p")).publish(topic, b"next")
    assert [payload for _, payload, _, _ in watcher.await_messages(1)] == [b"next"]
    client.cut()
    assert watcher.await_messages(1) == [(topic, b"gone", 1, False)]
