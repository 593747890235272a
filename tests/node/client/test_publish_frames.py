"""The frames of publishes are those of `basic.publish` and its content, whatever was published before."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from node.amqp.field_table import longstr
from node.amqp.frames import method_frame
from node.amqp.methods import BasicPublish
from node.amqp.properties import Properties
from node.client.publish_frames import PublishFrames
from node.queue.content import encode_content

CHANNEL = 3
PROPERTIES = (Properties(), Properties(delivery_mode=2), Properties(delivery_mode=2), Properties(type="t"))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "e"]),
            st.sampled_from(["", "k"]),
            st.sampled_from(PROPERTIES),
            st.sampled_from([b"", b"a", b"b", b"cc"]),
        )
    )
)
def test_frames_are_those_of_each_message(messages: list[tuple[str, str, Properties, bytes]]) -> None:
    made = PublishFrames(CHANNEL)
    for exchange, key, properties, body in messages:
        method = method_frame(CHANNEL, BasicPublish(0, exchange, key))
        content = encode_content(properties, body, CHANNEL, 0)
        assert made.frames(exchange, key, properties, body) == method + content


@given(
    st.sampled_from([*PROPERTIES, Properties(headers={"a": longstr("id1")})]),
    st.lists(
        st.tuples(
            st.sampled_from([b"", b"a", b"b", b"cc"]),
            st.sampled_from([b"", b"id1", b"id2", b"k", b"t", b"longer"]),
        )
    ),
)
def test_frames_of_a_run_have_a_header_of_each_message(
    properties: Properties, messages: list[tuple[bytes, bytes]]
) -> None:
    """A value may stand elsewhere in the frames, too: in the routing key, another header or another property."""
    made = PublishFrames(CHANNEL, "id")
    expected = b"".join(
        method_frame(CHANNEL, BasicPublish(0, "e", "k"))
        + encode_content(
            replace(properties, headers={"id": longstr(value), **(properties.headers or {})}),
            body,
            CHANNEL,
            0,
        )
        for body, value in messages
    )
    assert made.run("e", "k", properties, [b for b, _ in messages], [v for _, v in messages]) == expected
    assert made.frames("e", "k", properties, b"a") == method_frame(
        CHANNEL, BasicPublish(0, "e", "k")
    ) + encode_content(properties, b"a", CHANNEL, 0)
