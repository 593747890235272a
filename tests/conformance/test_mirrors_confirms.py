"""reliability §2.2 publisher_confirms_parallel, confirms_rejects, confirm_minority, crashing_queues: mirrored queues.

amqp-behaviour §9.4 "Confirms", §9.5. The master is on the first node, publishers are on the second.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import aio_pika
import pika
import pytest
from aio_pika.exceptions import DeliveryError
from pika.exceptions import NackError, UnroutableError

from node.amqp.constants import FRAME_METHOD
from node.amqp.field_table import Table, long, longstr
from node.amqp.method_codec import decode_method
from node.amqp.methods import (
    BasicAck,
    BasicNack,
    BasicReturn,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueueDelete,
)
from tests.conformance.aio_pika_steps import opened
from tests.conformance.cluster_story import PERSISTENT, TRANSIENT, publish
from tests.conformance.pika_steps import parameters
from tests.conformance.queue_steps import message
from tests.kit.amqp_client import Channel, NothingArrived
from tests.kit.mirror_steps import Mirrored, await_shape, bodies, end, numbered
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster

On = Callable[..., Channel]
Name = Callable[[str], str]
slow = pytest.mark.slow

REJECTS: Final[Table] = {"x-max-length": long(1), "x-overflow": longstr("reject-publish")}


@pytest.fixture
def queue(cluster: Cluster, on: On, mirrored: Mirrored) -> str:
    """A durable queue on the first node, mirrored on all."""
    return on(cluster[0]).declare(mirrored(), durable=True)


@pytest.fixture
def publisher(cluster: Cluster, on: On) -> Channel:
    """A channel in confirm mode to the second node."""
    channel = on(cluster[1])
    channel.call(ConfirmSelect)
    return channel


def answers(channel: Channel, count: int) -> list[bool]:
    """For the publishes 1 to `count`: whether it was acked; one answer for each, never two."""
    said: dict[int, bool] = {}
    while len(said) < count:
        arrived = channel.connection.next_frame(channel.number, 30)
        assert arrived.type == FRAME_METHOD
        method = decode_method(arrived.payload)
        assert isinstance(method, BasicAck | BasicNack), method
        tags = range(1, method.delivery_tag + 1) if method.multiple else [method.delivery_tag]
        new = [tag for tag in tags if tag not in said]
        assert new, f"{method} says nothing new"
        for tag in new:
            said[tag] = isinstance(method, BasicAck)
    assert sorted(said) == list(range(1, count + 1))
    return [said[tag] for tag in range(1, count + 1)]


# --- publisher_confirms_parallel ---


def test_publisher_confirms(cluster: Cluster, queue: str) -> None:
    """§2.2 publisher_confirms: wait_for_confirms with pika."""
    connection = pika.BlockingConnection(parameters(cluster[1]))
    channel = connection.channel()
    channel.confirm_delivery()
    for number in range(100):
        channel.basic_publish(
            "", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2), mandatory=True
        )
    assert channel.queue_declare(queue, passive=True).method.message_count == 100
    with pytest.raises(UnroutableError):
        channel.basic_publish("", f"{queue}-no", b"", mandatory=True)
    connection.close()


def test_publisher_confirms_with_deleted_queue(
    cluster: Cluster, on: On, queue: str, publisher: Channel
) -> None:
    """§2.2 publisher_confirms_with_deleted_queue: acked or not there any more; never nacked."""
    deleter = on(cluster[2])
    publisher.connection.send_bytes(b"".join(message(publisher, queue, b"x") for _ in range(500)))
    deleter.call(QueueDelete, queue=queue)
    publisher.connection.send_bytes(b"".join(message(publisher, queue, b"x") for _ in range(500)))
    assert all(answers(publisher, 1000))


def test_confirm_ack(queue: str, publisher: Channel) -> None:
    """§2.2 confirm_ack: one."""
    publisher.publish("", queue, b"1", PERSISTENT)
    assert publisher.expect(BasicAck).delivery_tag == 1


@pytest.mark.parametrize("properties", [PERSISTENT, TRANSIENT], ids=["persistent", "transient"])
def test_confirm_acks(queue: str, publisher: Channel, properties: Any) -> None:
    """§2.2 confirm_acks: many; each answered once."""
    publisher.connection.send_bytes(
        b"".join(message(publisher, queue, b"x", properties) for _ in range(2000))
    )
    assert all(answers(publisher, 2000))


def test_confirm_after_mandatory_bug(queue: str, publisher: Channel) -> None:
    """§2.2 confirm_after_mandatory_bug: a mandatory one, then one that is not."""
    publisher.publish("", f"{queue}-no", b"1", mandatory=True)
    publisher.expect_content(BasicReturn)
    assert publisher.expect(BasicAck).delivery_tag == 1
    publisher.publish("", queue, b"2")
    assert publisher.expect(BasicAck).delivery_tag == 2
    publisher.publish("", queue, b"3", mandatory=True)
    assert publisher.expect(BasicAck).delivery_tag == 3


def test_confirm_mandatory_unroutable(queue: str, publisher: Channel) -> None:
    """§2.2 confirm_mandatory_unroutable: the return comes first."""
    publisher.publish("", f"{queue}-no", b"1", mandatory=True)
    assert publisher.expect_content(BasicReturn).method.reply_code == 312
    assert publisher.expect(BasicAck).delivery_tag == 1


def test_confirm_unroutable_message(queue: str, publisher: Channel) -> None:
    """§2.2 confirm_unroutable_message: acked."""
    publisher.publish("", f"{queue}-no", b"1")
    assert publisher.expect(BasicAck).delivery_tag == 1


def test_confirm_nowait(cluster: Cluster, on: On, queue: str) -> None:
    """§2.2 confirm_nowait, confirm_select_ok."""
    channel = on(cluster[1])
    channel.send(ConfirmSelect, nowait=True)
    channel.publish("", queue, b"1")
    assert channel.expect(BasicAck).delivery_tag == 1
    channel.send(ConfirmSelect)
    channel.expect(ConfirmSelectOk)


def test_many_mirrored_queues(cluster: Cluster, on: On, mirrored: Mirrored, name: Name) -> None:
    """§9.4: a message is acked when all its queues have it everywhere; each node has a master."""
    prefix, exchange = mirrored(), name("x")
    for node in cluster.nodes:
        channel = on(node)
        channel.call(ExchangeDeclare, exchange=exchange, type="fanout")
        channel.call(QueueBind, queue=channel.declare(f"{prefix}-{node.name}"), exchange=exchange)
    publish(channel, "", *numbered(200), exchange=exchange)
    for node in cluster.nodes:
        assert bodies(channel, f"{prefix}-{node.name}") == list(numbered(200))


# --- confirms_rejects ---


@slow
def test_dead_queue_rejects(shaken_cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§2.2 confirms_rejects dead_queue_rejects, confirm_nack: the only copy is away in mid-stream: nack, once."""
    queue = on(shaken_cluster[0]).declare(mirrored("nodes", (shaken_cluster[0].name,)), durable=True)
    publisher = on(shaken_cluster[1])
    publisher.call(ConfirmSelect)
    publisher.publish("", queue, b"1", PERSISTENT)
    publisher.expect(BasicAck)
    shaken_cluster[0].freeze()
    for _ in range(10):
        publisher.publish("", queue, b"2", PERSISTENT)
    with pytest.raises(NothingArrived):
        publisher.connection.next_frame(1, 0.5)
    shaken_cluster[0].kill()
    for tag in range(2, 12):
        nacked = publisher.expect(BasicNack, 40)
        assert nacked.delivery_tag == (11 if nacked.multiple else tag)
        if nacked.multiple:
            break
    publisher.expect_nothing()


@slow
def test_mixed_dead_alive_queues_reject(
    shaken_cluster: Cluster, on: On, mirrored: Mirrored, name: Name
) -> None:
    """§2.2 mixed_dead_alive_queues_reject: one of two queues is lost: nack, though the other has it."""
    alive, exchange = mirrored(), name("x")
    dead = mirrored("nodes", (shaken_cluster[0].name,))
    for queue in (alive, dead):
        on(shaken_cluster[0]).declare(queue, durable=True)
    publisher = on(shaken_cluster[1])
    publisher.call(ExchangeDeclare, exchange=exchange, type="fanout")
    for queue in (alive, dead):
        publisher.call(QueueBind, queue=queue, exchange=exchange)
    publisher.call(ConfirmSelect)
    publisher.publish(exchange, "", b"1", PERSISTENT)
    publisher.expect(BasicAck)
    shaken_cluster[0].freeze()
    publisher.publish(exchange, "", b"2", PERSISTENT)
    with pytest.raises(NothingArrived):
        publisher.connection.next_frame(1, 0.5)
    shaken_cluster[0].kill()
    assert publisher.expect(BasicNack, 40).delivery_tag == 2
    assert bodies(on(shaken_cluster[1]), alive) == [b"1", b"2"]


@slow
def test_confirms_rejects_conflict(cluster: Cluster, on: On, mirrored: Mirrored, publisher: Channel) -> None:
    """§2.2 confirms_rejects_conflict: acks and nacks of many never contradict; what is acked is what came."""
    queue = mirrored()
    on(cluster[0]).declare(queue, arguments=REJECTS)
    consumer = on(cluster[2])
    consumer.consume(queue, no_ack=True)
    total = 20_000
    sent, said = 0, []
    while sent < total:
        batch = b"".join(message(publisher, queue, b"%d" % number) for number in range(sent, sent + 500))
        publisher.connection.send_bytes(batch)
        sent += 500
    said = answers(publisher, total)
    accepted = [number for number, is_acked in enumerate(said) if is_acked]
    came = [int(consumer.deliver().body) for _ in accepted]
    assert came == accepted
    consumer.expect_nothing()


def test_policy_resets_to_default(cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§2.2 policy_resets_to_default: reject-publish goes with its policy, and old messages are dropped again."""
    queue = mirrored("all", max_length=1, overflow="reject-publish")
    connection = pika.BlockingConnection(parameters(cluster[1]))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"1")
    with pytest.raises(NackError):
        channel.basic_publish("", queue, b"2")
    cluster[0].admin.set_policy("/", queue, f"^{queue}", {"ha-mode": "all", "max-length": 1})

    def replaces() -> bool:
        try:
            channel.basic_publish("", queue, b"3")
        except NackError:
            return False
        return True

    wait_until(replaces, "nothing is rejected any more")
    wait_until(lambda: channel.queue_declare(queue, passive=True).method.message_count == 1, "one is there")
    assert channel.basic_get(queue, auto_ack=True)[2] == b"3"
    connection.close()


def test_reject_publish(cluster: Cluster, mirrored: Mirrored) -> None:
    """§9.5 with aio-pika: the master alone decides; nacked one by one, the rest acked."""
    queue = mirrored()

    async def steps() -> None:
        async with opened(cluster[1]) as channel:
            arguments = {"x-max-length": 5, "x-overflow": "reject-publish"}
            await channel.declare_queue(queue, arguments=arguments)
            said = await asyncio.gather(
                *(
                    channel.default_exchange.publish(aio_pika.Message(b"%d" % number), queue)
                    for number in range(20)
                ),
                return_exceptions=True,
            )
            assert [isinstance(each, DeliveryError) for each in said] == [False] * 5 + [True] * 15

    asyncio.run(asyncio.wait_for(steps(), 30))


# --- when nodes are away ---


@slow
def test_confirms_go_on_without_a_mirror(shaken_cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§9.4: each is confirmed when the master and all mirrors that live have it; a dead one is not waited for."""
    queue = on(shaken_cluster[0]).declare(mirrored(), durable=True)
    publisher = on(shaken_cluster[1])
    publisher.call(ConfirmSelect)
    publisher.connection.send_bytes(
        b"".join(message(publisher, queue, b"x", PERSISTENT) for _ in range(2000))
    )
    shaken_cluster[2].kill()
    assert all(answers(publisher, 2000))
    publisher.publish("", queue, b"x", PERSISTENT)
    assert publisher.expect(BasicAck).delivery_tag == 2001
    await_shape(shaken_cluster[0], queue, mirrors={shaken_cluster[1].name})


@slow
def test_a_frozen_mirror(shaken_cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§9.6 a frozen node: no confirm meanwhile; when it thaws in time all are acked."""
    queue = on(shaken_cluster[0]).declare(mirrored(), durable=True)
    publisher = on(shaken_cluster[1])
    publisher.call(ConfirmSelect)
    publisher.publish("", queue, b"1", PERSISTENT)
    publisher.expect(BasicAck)
    shaken_cluster[2].freeze()
    publisher.publish("", queue, b"2", PERSISTENT)
    with pytest.raises(NothingArrived):
        publisher.connection.next_frame(1, 0.4)
    shaken_cluster[2].thaw()
    assert publisher.expect(BasicAck, 20).delivery_tag == 2
    assert bodies(on(shaken_cluster[2]), queue) == [b"1", b"2"]


@slow
def test_confirm_minority(shaken_cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§2.2 confirm_minority, mirrored: two of three are away: never an ack of what is not kept; then acks again.

    With pause_minority the node that is left ends its connections; before that it says nothing.
    """
    queue = on(shaken_cluster[0]).declare(mirrored(), durable=True)
    publisher = on(shaken_cluster[0])
    publisher.call(ConfirmSelect)
    publisher.publish("", queue, b"before", PERSISTENT)
    publisher.expect(BasicAck)
    shaken_cluster[1].freeze()
    publisher.publish("", queue, b"frozen", PERSISTENT)
    with pytest.raises(NothingArrived):
        publisher.connection.next_frame(1, 0.5)
    shaken_cluster[2].kill()
    shaken_cluster[1].kill()
    acked = [b"before"]
    try:
        publisher.expect(BasicAck, 3)
        acked.append(b"frozen")
    except AssertionError:
        pass  # ended, or said something else
    shaken_cluster.heal()
    publish(on(shaken_cluster[0]), queue, b"after")
    found = bodies(on(shaken_cluster[1]), queue)
    assert [body for body in found if body in (*acked, b"after")] == [*acked, b"after"]


@slow
@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "transient"])
def test_crashing_mirrored(shaken_cluster: Cluster, on: On, mirrored: Mirrored, is_durable: bool) -> None:
    """§2.2 crashing_mirrored: the master's process is killed: both messages survive, and there is a mirror again.

    RabbitMQ's kills the Erlang process of the queue; here the node's dies, which is more.
    """
    queue = on(shaken_cluster[0]).declare(mirrored("exactly", 2), durable=is_durable)
    await_shape(shaken_cluster[0], queue, mirrors=1, synced=1)
    publish(on(shaken_cluster[1]), queue, b"persistent")
    publish(on(shaken_cluster[1]), queue, b"transient", properties=TRANSIENT)
    end(shaken_cluster[0], "kill", shaken_cluster)
    await_shape(shaken_cluster[1], queue, mirrors=1)
    channel = on(shaken_cluster[1])
    assert channel.call(QueueDeclare, queue=queue, passive=True).message_count == 2
    assert bodies(channel, queue) == [b"persistent", b"transient"]
