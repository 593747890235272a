"""Deliveries are read as `method_at` and `decode_content` read them, whatever came before."""

from hypothesis import given
from hypothesis import strategies as st

from node.amqp.field_table import longstr
from node.amqp.frames import method_frame
from node.amqp.methods import BasicAck, BasicDeliver
from node.amqp.properties import Properties
from node.client.delivery_reader import DeliveryReader
from node.client.method_stream import Sent
from node.extension.protocol import Delivery
from node.queue.content import encode_content

CHANNEL = 1
PROPERTIES = (
    Properties(),
    Properties(delivery_mode=2),
    Properties(headers={"a": longstr("b")}, delivery_mode=2),
    Properties(headers={"a": longstr("c")}, delivery_mode=2),
    Properties(message_id="1"),
)

deliveries = st.builds(
    Delivery,
    st.sampled_from(["c", "c2", "d" * 255]),
    st.integers(1, (1 << 64) - 1),
    st.sampled_from(["", "e"]),
    st.sampled_from(["k", "key", "kex"]),
    st.booleans(),
    st.sampled_from(PROPERTIES),
    st.binary(max_size=30),
)


def frames(delivery: Delivery, frame_max: int) -> bytes:
    consumer, tag, exchange, key, redelivered, properties, body = delivery
    method = BasicDeliver(consumer, tag, redelivered, exchange, key)
    return method_frame(CHANNEL, method) + encode_content(properties, body, CHANNEL, frame_max)


def read(data: bytes) -> list[Delivery | Sent]:
    reader, at, found = DeliveryReader(), 0, list[Delivery | Sent]()
    while (sent := reader.read(data, at)) is not None:
        if isinstance(sent, Sent):
            at = sent.end
            found.append(sent)
        else:
            delivery, at = sent
            found.append(delivery)
    assert at == len(data)
    return found


@given(st.lists(st.tuples(deliveries, st.sampled_from([0, 18])), max_size=12))
def test_deliveries_are_read(sent: list[tuple[Delivery, int]]) -> None:
    """The body comes in one frame, or in several of at most ten octets."""
    data = b"".join(frames(delivery, frame_max) for delivery, frame_max in sent)
    assert read(data) == [delivery for delivery, _ in sent]


def test_other_methods_come_between() -> None:
    one = Delivery("c", 1, "e", "k", False, Properties(), b"m")
    ack = BasicAck(7)
    found = read(frames(one, 0) + method_frame(CHANNEL, ack) + frames(one, 0))
    assert [each.method if isinstance(each, Sent) else each for each in found] == [one, ack, one]


def test_equal_properties_are_one_object() -> None:
    data = b"".join(frames(Delivery("c", tag, "", "k", False, PROPERTIES[2], b"m"), 0) for tag in (1, 2))
    first, second = read(data)
    assert isinstance(first, Delivery)
    assert isinstance(second, Delivery)
    assert first.properties is second.properties
