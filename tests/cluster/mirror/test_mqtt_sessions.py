"""MQTT sessions in a cluster of simulated nodes: a client goes on at another node, whatever was on its way.

The rings, the disks and the brokers are the real ones; the links are the test's, and a node is lost after any number of
hops of them. The client keeps its session as the standard asks (`tests.kit.mqtt_session`), so each message that is
missing or there twice in the end is the broker's doing.
"""

from collections import Counter

import pytest

from node.catalogue.commands import Bind, SetPolicy
from node.client.endpoint import ClientEndpoint
from node.client.session import SessionConnection
from node.mqtt.constants import Version
from node.mqtt.names import QOS_2_EXCHANGE
from node.mqtt.packets import Connack, Connect, Subscription, Will
from node.mqtt.plugin import MqttListener
from tests.kit.disk_cluster import DiskCluster, DiskNode
from tests.kit.mqtt_session import Confirmed, Message, MqttSession

NODES = ("n1", "n2", "n3")
HOPS = pytest.mark.parametrize("hops", range(0, 40, 3))


class Roamer:
    """A client that connects to one node after the other.   got: the payloads of messages.   confirmed: so many."""

    def __init__(
        self, cluster: DiskCluster, client_id: str, *, clean: bool = False, will: Will | None = None
    ) -> None:
        self.cluster = cluster
        self.session = MqttSession(Connect(Version.MQTT_3_1_1, client_id, clean, will=will))
        self.got: list[bytes] = []
        self.retained: list[bytes] = []
        self.confirmed = 0
        self.present: list[bool] = []
        self.is_reset = False
        self.node: DiskNode | None = None
        self.connection: SessionConnection | None = None

    def connect(self, node: str) -> "Roamer":
        """Connect to a node."""
        self.node = found = self.cluster[node]
        self.is_reset = False
        self.connection = SessionConnection(
            found.broker,
            ClientEndpoint(),
            plugin="rabbitmq_mqtt",
            listener=MqttListener({}),
            now=found.now,
            on_change=lambda: None,
        )
        found.clients[self.connection] = self  # type: ignore[assignment]
        self.session.connect()
        self.pump()
        self.cluster.settle()
        return self

    def pump(self) -> None:
        """Send what the session has to send."""
        data = self.session.take()
        if data and not self.is_reset and self.connection is not None and self.node is not None:
            self.connection.receive_data(data, self.node.now)

    def flush(self) -> None:
        """Flush the connection as the shell does after a turn."""
        assert self.connection is not None
        data = b"".join(self.connection.take_output())
        if self.connection.is_finished:
            self.lose()
        elif self.connection.is_writable:
            self.connection.flushed()
        for event in self.session.received(data):
            match event:
                case Message():
                    (self.retained if event.retain else self.got).append(event.payload)
                case Confirmed():
                    self.confirmed += 1
                case Connack():
                    assert event.code == 0, event
                    self.present.append(event.session_present)
        self.pump()

    def lose(self) -> None:
        """Close the socket."""
        if not self.is_reset:
            self.is_reset = True
            assert self.node is not None
            assert self.connection is not None
            del self.node.clients[self.connection]
            self.connection.lost(self.node.now)

    def subscribe(self, *filters: str, qos: int = 2) -> None:
        """Subscribe."""
        self.session.subscribe(*(Subscription(each, qos) for each in filters))
        self.pump()
        self.cluster.settle()

    def publish(self, topic: str, *payloads: bytes, qos: int = 2, retain: bool = False) -> None:
        """Publish messages."""
        for payload in payloads:
            self.session.publish(topic, payload, qos, retain)
        self.pump()


def mirrored() -> DiskCluster:
    """Return a cluster whose MQTT queues have copies on all nodes."""
    cluster = DiskCluster(*NODES)
    policy = {"ha-mode": "all", "ha-sync-mode": "automatic"}
    cluster.submit(SetPolicy("/", "mqtt", "^mqtt-subscription-", policy))
    return cluster


def hop(cluster: DiskCluster, hops: int) -> None:
    """Let each link bring a frame, so many times."""
    for _ in range(hops):
        for pair in list(cluster.frames):
            cluster.deliver(*pair, 1)
        cluster.settle()


def lose_after(cluster: DiskCluster, node: str, hops: int) -> None:
    """Lose a node after so many hops, and let the others go on."""
    hop(cluster, hops)
    cluster.crash(node)
    cluster.is_held = False
    cluster.settle()
    cluster.advance(2.0)
    cluster.advance(2.0)


def rest(cluster: DiskCluster) -> None:
    """Let everything come to its end."""
    for _ in range(4):
        cluster.advance(1.0)


def once(payloads: list[bytes], expected: list[bytes]) -> None:
    """Check that each message has come, and none twice."""
    assert Counter(payloads) == Counter(expected)


MESSAGES = [b"%d" % number for number in range(5)]
WARM = [b"first", b"second"]


@HOPS
@pytest.mark.parametrize("filters_on", ["n1", "n3"])
def test_a_publishers_node_is_lost(filters_on: str, hops: int) -> None:
    """A message with QoS 2 arrives once, wherever on its way its publisher's node was lost [MQTT-4.3.3-2].

    filters_on: the node with the master of the exchange that lets each message pass once. If that is lost, too, a queue
    of AMQP's, which drops no second message, may have two: docs/mqtt.md.
    """
    cluster = mirrored()
    cluster.declare_mirrored("plain", "n2", "n3")
    cluster.submit(Bind("/", "amq.topic", "queue", "plain", "t"))
    maker = Roamer(cluster, "m").connect(filters_on)
    maker.publish("t", WARM[0])
    subscriber = Roamer(cluster, "s").connect("n2")
    rest(cluster)
    assert cluster.view(f"amq.deduplication.{QOS_2_EXCHANGE}").master_node == filters_on
    subscriber.subscribe("t")
    publisher = Roamer(cluster, "p").connect("n1")
    publisher.publish("t", WARM[1])
    rest(cluster)
    once(subscriber.got, WARM[1:])
    cluster.is_held = True
    publisher.publish("t", *MESSAGES)
    lose_after(cluster, "n1", hops)
    publisher.connect("n3")
    rest(cluster)
    once(subscriber.got, WARM[1:] + MESSAGES)
    assert publisher.session.unconfirmed == 0
    assert publisher.present == [False, True]
    count = cluster.queue("n2", "plain").backlog.count
    if filters_on != "n1":
        assert count == len(WARM + MESSAGES)
    assert len(WARM + MESSAGES) <= count <= len(WARM) + 2 * len(MESSAGES)
    publisher.publish("t", b"last")
    rest(cluster)
    once(subscriber.got, [*WARM[1:], *MESSAGES, b"last"])


@HOPS
def test_a_subscribers_node_is_lost(hops: int) -> None:
    """A message with QoS 2 is taken once by a client whose node was lost anywhere in its handshake."""
    cluster = mirrored()
    subscriber = Roamer(cluster, "s").connect("n1")
    subscriber.subscribe("t")
    publisher = Roamer(cluster, "p").connect("n2")
    publisher.publish("t", *WARM)
    rest(cluster)
    cluster.is_held = True
    publisher.publish("t", *MESSAGES)
    lose_after(cluster, "n1", hops)
    subscriber.connect("n3")
    rest(cluster)
    once(subscriber.got, WARM + MESSAGES)
    assert subscriber.present == [False, True]
    assert publisher.session.unconfirmed == 0
    publisher.publish("t", b"last")
    rest(cluster)
    once(subscriber.got, [*WARM, *MESSAGES, b"last"])


@HOPS
def test_the_node_of_both_is_lost(hops: int) -> None:
    cluster = mirrored()
    subscriber = Roamer(cluster, "s").connect("n1")
    subscriber.subscribe("t")
    publisher = Roamer(cluster, "p").connect("n1")
    publisher.publish("t", *WARM)
    rest(cluster)
    cluster.is_held = True
    publisher.publish("t", *MESSAGES)
    lose_after(cluster, "n1", hops)
    subscriber.connect("n2")
    publisher.connect("n3")
    rest(cluster)
    once(subscriber.got, WARM + MESSAGES)
    assert publisher.session.unconfirmed == 0


@HOPS
def test_a_node_with_masters_and_no_client_is_lost(hops: int) -> None:
    """The clients stay where they are: their queues get other masters."""
    cluster = mirrored()
    subscriber = Roamer(cluster, "s").connect("n1")
    subscriber.subscribe("t")
    subscriber.lose()
    cluster.settle()
    publisher = Roamer(cluster, "p").connect("n1")
    publisher.publish("t", b"to make its queues")
    rest(cluster)
    publisher.lose()
    cluster.settle()
    subscriber.connect("n2")
    publisher.connect("n3")
    rest(cluster)
    cluster.is_held = True
    publisher.publish("t", *MESSAGES)
    lose_after(cluster, "n1", hops)
    rest(cluster)
    once(subscriber.got, [b"to make its queues", *MESSAGES])
    assert publisher.session.unconfirmed == 0


@pytest.mark.parametrize("hops", range(0, 30, 5))
def test_messages_with_qos_1_are_not_lost(hops: int) -> None:
    cluster = mirrored()
    subscriber = Roamer(cluster, "s").connect("n1")
    subscriber.subscribe("t", qos=1)
    publisher = Roamer(cluster, "p").connect("n1")
    rest(cluster)
    cluster.is_held = True
    publisher.publish("t", *MESSAGES, qos=1)
    lose_after(cluster, "n1", hops)
    subscriber.connect("n2")
    publisher.connect("n3")
    rest(cluster)
    assert set(subscriber.got) == set(MESSAGES)
    assert publisher.session.unconfirmed == 0


def test_retained_messages_outlive_nodes() -> None:
    cluster = mirrored()
    publisher = Roamer(cluster, "p").connect("n1")
    for topic in ("a/1", "a/2", "b/1"):
        publisher.publish(topic, b"old", qos=1, retain=True)
        publisher.publish(topic, topic.encode(), qos=1, retain=True)
    rest(cluster)
    publisher.publish("a/2", b"", qos=1, retain=True)
    rest(cluster)
    for lost, left in (("n1", "n2"), ("n2", "n3")):
        cluster.crash(lost)
        cluster.settle()
        rest(cluster)
        late = Roamer(cluster, f"late at {left}", clean=True).connect(left)
        late.subscribe("a/#", "b/+", qos=1)
        rest(cluster)
        assert sorted(late.retained) == [b"a/1", b"b/1"]
        cluster.start(lost)
        rest(cluster)


def test_a_will_outlives_the_node_of_its_connection() -> None:
    cluster = mirrored()
    watcher = Roamer(cluster, "w").connect("n2")
    watcher.subscribe("will", qos=1)
    Roamer(cluster, "c", clean=True, will=Will("will", b"gone", 1)).connect("n1")
    rest(cluster)
    cluster.crash("n1")
    cluster.settle()
    for _ in range(70):
        cluster.advance(1.0)
    assert watcher.got == [b"gone"]


def test_a_will_is_not_published_for_a_failover_of_its_queue() -> None:
    cluster = mirrored()
    watcher = Roamer(cluster, "w").connect("n2")
    watcher.subscribe("will", qos=1)
    holder = Roamer(cluster, "c", clean=True, will=Will("will", b"gone", 1)).connect("n3")
    rest(cluster)
    master = cluster.view("mqtt-subscription-cwill0").master_node
    assert master is not None
    for _ in range(65):
        cluster.advance(1.0)  # the first copy of the will would be too old by now
    assert watcher.got == []
    if master == "n3":
        cluster.transfer("mqtt-subscription-cwill0", "n1")
        rest(cluster)
        master = "n1"
    cluster.crash(master)
    cluster.settle()
    rest(cluster)
    if master == "n2":
        watcher.connect("n3")
    assert watcher.got == []
    holder.lose()
    rest(cluster)
    assert watcher.got == [b"gone"]
