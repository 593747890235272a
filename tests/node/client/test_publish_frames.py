"""The frames of publishes are those of `basic.publish` and its content, whatever was published before."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from node.amqp.field_table import longstr
from node.amqp.frames import method_frame
from node.amqp.methods import BasicPublish
from node.amqp.properties import Properties, Traits
from node.amqp.reader import FrameReader
from node.client.publish_frames import PublishFrames
from node.client.session_input import PublishRun
from node.queue.content import encode_content

CHANNEL = 3


class Read:
    """Takes what a reader reads from frames."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, bytes, Traits, list[bytes], int]] = []

    def on_publish(
        self, channel: int, method_frame: bytes, traits: Traits, contents: list[bytes], size: int
    ) -> None:
        self.runs.append((channel, method_frame, traits, contents, size))


def check_as_read(run: PublishRun) -> None:
    """Check that a run is what the broker would read from its frames."""
    sink = Read()
    FrameReader(sink, frame_max_bytes=0, content_max_bytes=1 << 20).feed(run.frames())  # type: ignore[arg-type]
    assert sink.runs == [(run.channel, run.method_frame, run.traits, run.contents, run.size)]


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
        ),
        min_size=1,
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
    run = made.run("e", "k", properties, [b for b, _ in messages], [v for _, v in messages])
    assert run.frames() == expected
    check_as_read(run)
    assert made.frames("e", "k", properties, b"a") == method_frame(
        CHANNEL, BasicPublish(0, "e", "k")
    ) + encode_content(properties, b"a", CHANNEL, 0)


@given(
    st.sampled_from(PROPERTIES),
    st.lists(st.sampled_from([b"", b"a", b"b", b"cc"]), min_size=1),
)
def test_runs_are_what_the_broker_would_read(properties: Properties, bodies: list[bytes]) -> None:
    made = PublishFrames(CHANNEL)
    for key in ("k", "l", "k"):
        run = made.run("e", key, properties, bodies)
        assert run.frames() == b"".join(
            PublishFrames(CHANNEL).frames("e", key, properties, b) for b in bodies
        )
        check_as_read(run)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "k"]),
            st.sampled_from(PROPERTIES),
            st.sampled_from([b"", b"a", b"b", b"cc"]),
        ),
        min_size=1,
    )
)
def test_messages_that_are_added_to_a_run_are_like_those_before(
    messages: list[tuple[str, Properties, bytes]],
) -> None:
    made, runs, expected = PublishFrames(CHANNEL), list[PublishRun](), b""
    for key, properties, body in messages:
        is_alike = runs and made.adds_to(runs[-1], "e", key, properties, body)
        if not is_alike:
            runs.append(made.run_of_one("e", key, properties, body))
        expected += PublishFrames(CHANNEL).frames("e", key, properties, body)
    assert b"".join(run.frames() for run in runs) == expected
    for run in runs:
        check_as_read(run)
    changes = sum(one[:1] != other[:1] or one[1] is not other[1] for one, other in pairwise(messages))
    assert len(runs) == 1 + changes


def test_nothing_is_added_to_a_run_with_a_header_that_varies() -> None:
    made, plain = PublishFrames(CHANNEL, "id"), Properties()
    run = made.run("e", "k", plain, [b"a"], [b"1"])
    assert not made.adds_to(run, "e", "k", plain, b"b")
    assert len(run.contents) == 1
