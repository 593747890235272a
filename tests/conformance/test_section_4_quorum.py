"""Quorum queues don't have some features, as seen live at RabbitMQ 3.10.8."""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.field_table import long, longstr
from node.amqp.methods import BasicConsume, BasicConsumeOk, BasicNack, BasicQos, BasicQosOk, QueueDelete
from tests.kit.amqp_client import Channel, Connection

QUORUM = {"x-queue-type": longstr("quorum")}


@pytest.fixture
def queue(connection: Connection, name: object) -> str:
    assert callable(name)
    declared = connection.channel(9).declare(name("quorum"), durable=True, arguments=QUORUM)
    return str(declared)


def test_no_prefetch_limit_of_the_channel(connection: Connection, channel: Channel, queue: str) -> None:
    channel.send(BasicQos(prefetch_count=3, global_=True))
    channel.expect(BasicQosOk)
    channel.send(BasicConsume, queue=queue)
    text = f"NOT_IMPLEMENTED - queue '{queue}' in vhost '/' does not support global qos"
    connection.expect_connection_close(ReplyCode.NOT_IMPLEMENTED, text, BasicConsume)


@pytest.mark.parametrize(
    ("flags", "flag"), [({"if_empty": True}, "if-empty"), ({"if_unused": True}, "if-unused")]
)
def test_no_deletion_with_conditions(
    connection: Connection, channel: Channel, queue: str, flags: dict[str, bool], flag: str
) -> None:
    channel.send(QueueDelete, queue=queue, **flags)
    text = (
        f"NOT_IMPLEMENTED - cannot delete queue '{queue}' in vhost '/'. "
        f"queue.delete operations with {flag} flag set are not supported by quorum queues"
    )
    connection.expect_connection_close(ReplyCode.NOT_IMPLEMENTED, text, QueueDelete)


def test_an_exclusive_consumer_is_not_alone(connection: Connection, channel: Channel, queue: str) -> None:
    channel.send(BasicConsume, queue=queue, consumer_tag="a", exclusive=True)
    channel.expect(BasicConsumeOk)
    for exclusive in (False, True):
        other = connection.channel(2 + exclusive)
        other.send(BasicConsume, queue=queue, exclusive=exclusive)
        other.expect(BasicConsumeOk)


def test_a_get_tells_how_often_the_message_came_back_and_a_first_delivery_does_not(
    connection: Connection, channel: Channel, queue: str
) -> None:
    for _ in range(2):
        channel.publish(routing_key=queue, body=b"m")
    got = channel.wait_get(queue)
    assert got.headers == {"x-delivery-count": long(0)}
    channel.consume(queue)
    assert channel.deliver().headers == {}


def test_what_is_requeued_without_a_delivery_limit_goes_to_the_end(channel: Channel, queue: str) -> None:
    for body in (b"a", b"b", b"c"):
        channel.publish(routing_key=queue, body=body)
    tag = channel.wait_get(queue, no_ack=False).method.delivery_tag
    channel.send(BasicNack(tag, requeue=True))
    assert [channel.wait_get(queue).body for _ in range(3)] == [b"b", b"c", b"a"]


def test_what_a_closed_channel_had_goes_to_its_old_place(
    connection: Connection, channel: Channel, queue: str
) -> None:
    for body in (b"a", b"b", b"c"):
        channel.publish(routing_key=queue, body=body)
    holder = connection.channel(2)
    assert holder.wait_get(queue, no_ack=False).body == b"a"
    holder.close()
    assert [channel.wait_get(queue).body for _ in range(3)] == [b"a", b"b", b"c"]
