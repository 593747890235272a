"""Any bytes give calls or a ProtocolError, and how they were cut into reads never shows.

Streams are built from valid frames of several channels, interleaved as clients interleave them, and then damaged:
pure noise would hardly ever get beyond the first frame.
"""

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from node.amqp.field_table import Table, array, longstr
from node.amqp.frames import HEARTBEAT, content_frames, frame, method_frame
from node.amqp.methods import BasicAck, BasicNack, BasicPublish, ConnectionClose, TxSelect
from node.amqp.properties import Properties, content_header
from tests.kit.recorder import ContentFrame, Event, Fault, Publish, Recorder

FRAME_MAX = 64
CONTENT_MAX = 70
CHANNELS = (1, 2, 3)
CLOSED = (3,)
"""Channels that are being closed, so that contents on them are dropped."""

properties = st.sampled_from(
    [
        Properties(),
        Properties(delivery_mode=2),
        Properties(priority=3, expiration="5"),
        Properties(content_type="a", message_id="b"),
        Properties(headers={"k": longstr("v")}),
        Properties(headers={"CC": array([longstr("c")])}),
    ]
)
channel = st.sampled_from(CHANNELS)


@st.composite
def publishes(draw: st.DrawFn) -> list[bytes]:
    """The frames of some publishes on one channel: alike, so that they make runs, with keys in turn, so that they make
    series, or with bodies cut at will."""
    number = draw(channel)
    frames = []
    heads = [
        method_frame(number, BasicPublish(routing_key=key))
        for key in draw(st.lists(st.sampled_from(["", "q", "kk"]), min_size=1, max_size=3))
    ]
    props = draw(properties)
    body = draw(st.binary(max_size=8) | st.binary(min_size=FRAME_MAX - 9, max_size=CONTENT_MAX + 5))
    for index in range(draw(st.integers(1, 6))):
        frames += [heads[index % len(heads)], frame(2, number, content_header(len(body), props))]
        sizes = draw(st.just([]) | st.lists(st.integers(0, 20), max_size=4))
        for piece in _cut(body, sizes):
            frames += [frame(3, number, part) for part in _cut(piece, [FRAME_MAX])]
        if draw(st.booleans()):
            body = draw(st.binary(max_size=6))
    return frames


@st.composite
def acks(draw: st.DrawFn) -> list[bytes]:
    """Acknowledgements, mostly with rising tags."""
    number, tag = draw(channel), draw(st.sampled_from([0, 1, 7, 2**64 - 2]))
    frames = []
    for step in draw(st.lists(st.sampled_from([1, 1, 1, 2, 0]), min_size=1, max_size=6)):
        frames.append(method_frame(number, BasicAck(tag, draw(st.sampled_from([False, False, False, True])))))
        tag = (tag + step) % 2**64
    return frames


other = st.one_of(
    st.just(HEARTBEAT),
    st.builds(method_frame, st.sampled_from((0, *CHANNELS)), st.just(TxSelect())),
    st.builds(method_frame, channel, st.builds(BasicNack, st.integers(0, 9), st.booleans(), st.booleans())),
    st.just(method_frame(0, ConnectionClose(200, "bye"))),
    st.builds(
        frame, st.sampled_from([1, 2, 3, 8, 9]), st.sampled_from((0, *CHANNELS)), st.binary(max_size=20)
    ),
    st.builds(frame, st.just(3), channel, st.just(b"")),
)


def _cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """The data in pieces of these sizes while it lasts, the rest in one; a size of 0 makes an empty piece."""
    for size in sizes:
        if not data:
            return
        yield data[:size]
        data = data[size:]
    if data:
        yield data


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Frames of several sources, merged: each source keeps its order."""
    sources = draw(st.lists(publishes() | acks() | other.map(lambda one: [one]), min_size=1, max_size=5))
    if draw(st.booleans()):
        return b"".join(one for source in sources for one in source)
    merged = []
    while any(sources):
        source = draw(st.sampled_from([source for source in sources if source]))
        taken = draw(st.integers(1, len(source)))
        merged += source[:taken]
        del source[:taken]
    return b"".join(merged)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A stream with some octets replaced, inserted or removed."""
    raw = bytearray(draw(streams()))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(raw)))
        raw[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(raw)


stream = st.one_of(streams(), damaged(), st.binary(max_size=80))
cuts = st.lists(st.integers(0, 60) | st.integers(60, 150), max_size=12)


def calls(pieces: list[bytes], *, pauses: bool = False) -> list[Event]:
    """Return the events that the reader makes of a stream."""
    recorder = Recorder(closed=CLOSED, pauses=pauses, frame_max=FRAME_MAX, content_max=CONTENT_MAX)
    recorder.reader.assembled_max_bytes = 1 << 40  # a limit on what is unfinished has to depend on the cut
    recorder.feed(*pieces)
    return recorder.events


@given(stream, cuts)
@settings(max_examples=300)
def test_the_cut_never_shows(raw: bytes, sizes: list[int]) -> None:
    whole = calls([raw])
    assert calls([raw[at : at + 1] for at in range(len(raw))]) == whole
    assert calls(list(_cut(raw, sizes))) == whole


@given(stream, cuts)
def test_a_pause_never_shows(raw: bytes, sizes: list[int]) -> None:
    pieces = list(_cut(raw, sizes))
    assert calls(pieces, pauses=True) == calls(pieces)


@given(stream, cuts, st.integers(0, 12))
def test_watching_contents_changes_nothing_else(raw: bytes, sizes: list[int], start: int) -> None:
    """Runs or frame by frame, and wherever an alarm begins: the same is handed on."""
    recorder = Recorder(closed=CLOSED, frame_max=FRAME_MAX, content_max=CONTENT_MAX)
    recorder.reader.assembled_max_bytes = 1 << 40
    for number, piece in enumerate(_cut(raw, sizes)):
        if number == start:
            recorder.reader.watch_contents()
        recorder.feed(piece)
    assert [event for event in recorder.events if not isinstance(event, ContentFrame)] == calls([raw])


@given(streams())
def test_valid_frames_are_told_apart_whatever_they_carry(raw: bytes) -> None:
    assert not any(isinstance(event, Fault) and event.is_fatal for event in calls([raw]))


tables = st.dictionaries(st.sampled_from(["a", "CC", "BCC"]), st.builds(longstr, st.text("ab", max_size=2)))


@given(st.lists(st.tuples(channel, st.binary(max_size=90), tables), max_size=6))
def test_what_was_published_is_what_is_handed_on(messages: list[tuple[int, bytes, Table]]) -> None:
    """The content handed on is the very bytes, header and bodies, that the client sent."""
    sent, raw = [], b""
    for number, body, headers in messages:
        content = content_frames(
            number, content_header(len(body), Properties(headers=headers)), body, FRAME_MAX
        )
        sent.append((number, content, len(body)))
        raw += method_frame(number, BasicPublish()) + content
    recorder = Recorder(frame_max=FRAME_MAX)
    recorder.feed(raw)
    assert [
        (event.channel, event.content, event.size) for event in recorder.events if isinstance(event, Publish)
    ] == sent
    assert recorder.reader.buffered_bytes == 0
