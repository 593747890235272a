"""Steps that the tests of queues and messages share.

A queue of RabbitMQ does some things out of turn: it counts its messages before it handles the publishes
and requeues that came earlier, and a count may overtake a delivery on the way to the client. So these
steps publish with confirms, and `expect_no_delivery` makes two round trips. basic.get waits its turn.
"""

from node.amqp import methods
from node.amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_METHOD
from node.amqp.field_table import Table, long, longstr
from node.amqp.method_codec import encode_method
from node.amqp.properties import Properties
from tests.kit.amqp_client import Channel, Content, content_header, frame

POLL_S = 0.02
DEADLINE_S = 10.0
PUBLISHER_CHANNEL = 60000


def publish_each(
    channel: Channel, queue: str, *bodies: bytes, properties: Properties | bytes = b"\0\0"
) -> None:
    """Publish messages to the queue, by a channel of their own; return when the queue has confirmed them."""
    publisher = channel.connection.channel(PUBLISHER_CHANNEL)
    publisher.call(methods.ConfirmSelect)
    publisher.connection.send_bytes(b"".join(message(publisher, queue, body, properties) for body in bodies))
    acked = 0
    while acked < len(bodies):
        ack = publisher.expect(methods.BasicAck)
        acked = ack.delivery_tag if ack.multiple else acked + 1
    publisher.close()


def message(channel: Channel, queue: str, body: bytes, properties: Properties | bytes = b"\0\0") -> bytes:
    """The bytes of a publish to the queue, for many in one write. The body fits a frame."""
    return (
        frame(FRAME_METHOD, channel.number, encode_method(methods.BasicPublish(routing_key=queue)))
        + frame(FRAME_HEADER, channel.number, content_header(len(body), properties))
        + frame(FRAME_BODY, channel.number, body)
    )


def publish_burst(channel: Channel, queue: str, count: int, properties: Properties | bytes = b"\0\0") -> None:
    """Publish the messages `b"1"`, `b"2"`, … to the queue in one write."""
    bodies = (b"%d" % number for number in range(1, count + 1))
    channel.connection.send_bytes(b"".join(message(channel, queue, body, properties) for body in bodies))


def ready_count(channel: Channel, queue: str) -> int:
    """Return how many messages are ready in the queue."""
    count: int = channel.call(methods.QueueDeclare, queue=queue, passive=True).message_count
    return count


def consumer_count(channel: Channel, queue: str) -> int:
    """Return how many consumers the queue has."""
    count: int = channel.call(methods.QueueDeclare, queue=queue, passive=True).consumer_count
    return count


def expect_no_delivery(channel: Channel, queue: str) -> None:
    """The queue has sent nothing to the channel by now: a round trip through the queue, and one behind it."""
    ready_count(channel, queue)
    channel.sync()


def drain(channel: Channel, queue: str) -> list[bytes]:
    """Take all ready messages out of the queue; their bodies."""
    bodies = []
    while (content := channel.get(queue)) is not None:
        bodies.append(content.body)
    return bodies


def take(channel: Channel, count: int) -> list[Content]:
    """The next deliveries of the channel."""
    return [channel.deliver() for _ in range(count)]


def hold(channel: Channel, count: int) -> str:
    """Declare a queue, deliver the messages 1 to `count` of it to the channel; give its name."""
    queue = channel.declare(exclusive=True)
    channel.consume(queue, consumer_tag=queue)
    publish_each(channel, queue, *(b"%d" % number for number in range(1, count + 1)))
    tags = [content.method.delivery_tag for content in take(channel, count)]
    assert tags == list(range(1, count + 1))
    return queue


def let_pass(channel: Channel, milliseconds: int) -> None:
    """Return when the server's clock has gone on so far: a message of that TTL, published now, has died.

    For rows that say that something does not happen in a time, or happens to what is looked at later.
    """
    grave = channel.declare(exclusive=True)
    dying = channel.declare(exclusive=True, arguments=dead_letters_to("", grave, ttl_ms=milliseconds))
    channel.publish("", dying, b"tick")
    channel.wait_get(grave)


def dead_letters_to(exchange: str, routing_key: str | None = None, *, ttl_ms: int | None = None) -> Table:
    """Arguments of a queue that dead-letters, and perhaps expires messages."""
    arguments = {"x-dead-letter-exchange": longstr(exchange)}
    if routing_key is not None:
        arguments["x-dead-letter-routing-key"] = longstr(routing_key)
    if ttl_ms is not None:
        arguments["x-message-ttl"] = long(ttl_ms)
    return arguments
