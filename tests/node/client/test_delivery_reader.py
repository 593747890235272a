"""Deliveries are read as `method_at` and `decode_content` read them, whatever came before."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from node.amqp.field_table import Field, longstr
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
    Properties(headers={"n": Field("F", {"v": longstr("1")})}, message_id="1"),
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
    st.none() | st.binary(max_size=3),
)

VARYING = "v"


def frames(delivery: Delivery, frame_max: int) -> bytes:
    consumer, tag, exchange, key, redelivered, properties, body, value = delivery
    if value is not None:
        properties = replace(properties, headers={**(properties.headers or {}), VARYING: longstr(value)})
    method = BasicDeliver(consumer, tag, redelivered, exchange, key)
    return method_frame(CHANNEL, method) + encode_content(properties, body, CHANNEL, frame_max)


def read(data: bytes) -> list[Delivery | Sent]:
    reader, at, found = DeliveryReader(VARYING), 0, list[Delivery | Sent]()
    while (sent := reader.read(data, at)) is not None:
        if isinstance(sent, Sent):
            at = sent.end
            found.append(sent)
        else:
            start, (delivery, at) = at, sent
            run = [delivery]
            at = reader.more(data, start, at, run)
            found += run
    assert at == len(data)
    return found


def shown(delivery: Delivery) -> Delivery:
    """Return a delivery without an empty table of headers, which is left of one with the header that varies."""
    properties = delivery.properties
    return delivery._replace(properties=replace(properties, headers=properties.headers or None))


@given(st.lists(st.tuples(deliveries, st.sampled_from([0, 18])), max_size=12))
def test_deliveries_are_read(sent: list[tuple[Delivery, int]]) -> None:
    """The body comes in one frame, or in several of at most ten octets."""
    data = b"".join(frames(delivery, frame_max) for delivery, frame_max in sent)
    found = [each for each in read(data) if isinstance(each, Delivery)]
    assert [shown(each) for each in found] == [delivery for delivery, _ in sent]


@given(
    deliveries,
    st.lists(st.tuples(st.booleans(), st.none() | st.binary(min_size=1, max_size=2), st.binary(max_size=2))),
)
def test_runs_of_deliveries_are_read(first: Delivery, others: list[tuple[bool, bytes | None, bytes]]) -> None:
    """Deliveries that differ in tag, value and body only are read at once, up to the first one that is longer."""
    sent = [first]
    for again, value, body in others:
        tag = sent[-1].tag % 1000 + 1
        sent.append(first._replace(tag=tag, redelivered=again, varying=value, body=body))
    found = [each for each in read(b"".join(frames(each, 0) for each in sent)) if isinstance(each, Delivery)]
    assert [shown(each) for each in found] == sent


def test_the_value_of_each_message_stands_beside_shared_properties() -> None:
    values = [b"%04d" % number for number in range(20)]
    one = Delivery("c", 1, "", "k", False, PROPERTIES[2], b"m")
    found = read(b"".join(frames(one._replace(varying=value), 0) for value in values))
    assert [each.varying for each in found if isinstance(each, Delivery)] == values
    assert {id(each.properties) for each in found if isinstance(each, Delivery)} == {id(found[0].properties)}  # type: ignore[union-attr]
    assert found[0].properties == PROPERTIES[2]  # type: ignore[union-attr]


def test_a_text_that_looks_like_the_value_is_not_taken_for_it() -> None:
    """A client may send a header whose text has the octets of the other one."""
    fake = longstr(b"\x01vS\0\0\0\x011")
    sent = [
        Delivery("c", tag, "", "k", False, Properties(headers={"a": fake}), b"m", value)
        for tag, value in enumerate([b"1", b"2", b"1", b"3", b"4"], 1)
    ]
    assert read(b"".join(frames(each, 0) for each in sent)) == sent


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
