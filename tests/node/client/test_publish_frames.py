"""The frames of publishes are those of `basic.publish` and its content, whatever was published before."""

from hypothesis import given
from hypothesis import strategies as st

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
