"""Frames in: runs, contents in pieces, and the frame errors of amqp-behaviour §1.7."""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import array, longstr
from node.amqp.frames import HEARTBEAT, content_frames, frame, method_frame
from node.amqp.methods import BasicPublish, QueueDeclare, TxSelect
from node.amqp.properties import PERSISTENT, TRANSIENT, Properties, Traits, content_header
from node.amqp.reader import FrameReader
from tests.kit.recorder import (
    Ack,
    ContentFrame,
    Fault,
    Heartbeat,
    OtherMethod,
    Publish,
    Recorder,
    ack,
    publish,
)

TX_SELECT = method_frame(1, TxSelect())
TX_SELECTED = OtherMethod(1, b"\0\x5a\0\x0a")
PUBLISH_METHOD = method_frame(1, BasicPublish(routing_key="q"))


def header(size: int, channel: int = 1, properties: Properties | None = None) -> bytes:
    return frame(2, channel, content_header(size, properties or Properties()))


def body(data: bytes, channel: int = 1) -> bytes:
    return frame(3, channel, data)


def read(*pieces: bytes, closed: tuple[int, ...] = (), content_max: int = 1 << 40) -> Recorder:
    recorder = Recorder(closed=closed, content_max=content_max)
    recorder.feed(*pieces)
    return recorder


def bodies(recorder: Recorder) -> list[bytes]:
    """The contents without the header frame that `header` made."""
    return [event.content[22:] for event in recorder.events if isinstance(event, Publish)]


# --- the fast path ----------------------------------------------------------------------------------------


def test_publishes_with_the_same_method_are_one_run() -> None:
    recorder = read(publish(body=b"one") + publish(body=b"two") + publish(body=b"six"))
    assert recorder.runs == [3]
    assert recorder.asked == []
    assert bodies(recorder) == [body(b"one"), body(b"two"), body(b"six")]


def keys_in_turn(*keys: str) -> bytes:
    return b"".join(publish(key=key, body=b"%04d" % number) for number, key in enumerate(keys))


def test_publishes_with_keys_in_turn_are_a_series_once_their_keys_are_known() -> None:
    recorder = read(keys_in_turn("a", "bb", "c"), keys_in_turn("a", "bb", "c", "a", "bb"))
    assert recorder.runs == [1, 1, 1, 1]
    assert recorder.series == [4]
    keys = [event.method_frame for event in recorder.events if isinstance(event, Publish)]
    in_turn = ["a", "bb", "c", "a", "bb", "c", "a", "bb"]
    assert keys == [method_frame(1, BasicPublish(routing_key=key)) for key in in_turn]


def test_a_series_ends_before_a_key_that_is_not_known() -> None:
    recorder = read(keys_in_turn("a", "b"), keys_in_turn("a", "b", "a", "new", "b", "a", "b"))
    assert recorder.series == [2, 3]
    assert bodies(recorder)[2:] == [body(b"%04d" % number) for number in range(7)]


def test_a_series_has_one_size_and_one_set_of_properties() -> None:
    other = publish(key="b", body=b"longer") + publish(key="a", body=b"2") + publish(key="b", body=b"3")
    recorder = read(keys_in_turn("a", "b"), keys_in_turn("a", "b", "a") + other)
    assert recorder.series == [2, 1]
    persistent = b"".join(publish(key=key, properties=Properties(delivery_mode=2)) for key in "abab")
    assert read(keys_in_turn("a", "b"), persistent).series == [2]


def test_a_long_run_is_no_series() -> None:
    recorder = read(keys_in_turn("a", "b"), keys_in_turn(*"aaaaaabbbbbb"))
    assert recorder.series == []
    assert recorder.runs == [1, 1, 6, 6]


def test_a_series_ends_where_a_frame_does_not() -> None:
    damaged = bytearray(keys_in_turn("a", "b", "a", "b"))
    damaged[-1] = 0
    recorder = read(keys_in_turn("a", "b"), bytes(damaged))
    assert recorder.series == [2]
    assert isinstance(recorder.events[-1], Fault)
    assert recorder.events[-1].code == ReplyCode.FRAME_ERROR


def test_a_publish_is_handed_on_with_its_method_frame_and_traits() -> None:
    recorder = read(publish(2, "k", b"x", Properties(delivery_mode=2)))
    assert recorder.events == [
        Publish(
            2,
            method_frame(2, BasicPublish(routing_key="k")),
            PERSISTENT,
            header(1, 2, Properties(delivery_mode=2)) + body(b"x", 2),
            1,
        )
    ]


def test_bodies_of_different_size_share_a_run() -> None:
    recorder = read(publish(body=b"a") + publish(body=b"bb") + publish(body=b"") + publish(body=b""))
    assert recorder.runs == [4]
    assert [event.size for event in recorder.events if isinstance(event, Publish)] == [1, 2, 0, 0]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(publish(1, "other"), id="routing key"),
        pytest.param(publish(2, "q"), id="channel"),
        pytest.param(publish(1, "q", properties=Properties(priority=1)), id="traits"),
    ],
)
def test_what_differs_is_a_run_of_its_own(other: bytes) -> None:
    recorder = read(publish() + publish() + other + other + publish())
    assert [*recorder.runs, *recorder.series] == [2, 2, 1]


def test_properties_that_mean_nothing_to_a_broker_do_not_part_a_run() -> None:
    recorder = read(b"".join(publish(properties=Properties(message_id=str(n))) for n in range(5)))
    assert recorder.runs == [5]


def test_acks_with_rising_tags_are_one_run() -> None:
    recorder = read(b"".join(ack(1, tag) for tag in (4, 5, 6, 9, 10, 8)) + ack(2, 9))
    assert recorder.runs == [3, 2, 1, 1]
    assert recorder.events == [Ack(1, 4), Ack(1, 5), Ack(1, 6), Ack(1, 9), Ack(1, 10), Ack(1, 8), Ack(2, 9)]


def test_ack_multiple_is_an_ordinary_method() -> None:
    recorder = read(ack(1, 1) + ack(1, 2, multiple=True) + ack(1, 3))
    assert [type(event) for event in recorder.events] == [Ack, OtherMethod, Ack]


def test_order_is_kept_between_runs_and_other_methods() -> None:
    recorder = read(publish() + TX_SELECT + ack(1, 1) + HEARTBEAT + publish())
    assert [type(event) for event in recorder.events] == [Publish, OtherMethod, Ack, Heartbeat, Publish]


# --- contents in pieces -----------------------------------------------------------------------------------


def test_a_body_in_several_frames_stays_as_it_came() -> None:
    recorder = read(PUBLISH_METHOD + header(6) + body(b"abc") + body(b"") + body(b"def"))
    assert bodies(recorder) == [body(b"abc") + body(b"def")]


def test_zero_length_body_frames_are_tolerated() -> None:
    """§1.7 row `zero-length body frames in the middle`."""
    recorder = read(PUBLISH_METHOD + header(2) + body(b"") + body(b"a") + body(b"") + body(b"") + body(b"b"))
    assert [event.size for event in recorder.events if isinstance(event, Publish)] == [2]


def test_body_size_0_expects_no_body_frame() -> None:
    """§1.7 row `body size 0`."""
    recorder = read(PUBLISH_METHOD, header(0), TX_SELECT)
    assert bodies(recorder) == [b""]
    assert recorder.events[1:] == [TX_SELECTED]


def test_contents_of_two_channels_interleave() -> None:
    second = method_frame(2, BasicPublish(routing_key="q"))
    recorder = read(
        PUBLISH_METHOD + header(4) + second + header(4, 2) + body(b"ab") + body(b"AB", 2) + body(b"CD", 2),
        body(b"cd"),
    )
    assert [(event.channel, event.size) for event in recorder.events if isinstance(event, Publish)] == [
        (2, 4),
        (1, 4),
    ]


def test_other_channels_go_on_beside_an_unfinished_content() -> None:
    recorder = read(PUBLISH_METHOD + header(4) + publish(2) + ack(2, 1) + body(b"abcd"))
    assert [type(event) for event in recorder.events] == [Publish, Ack, Publish]


def test_the_content_of_a_closed_channel_is_dropped() -> None:
    recorder = read(PUBLISH_METHOD, header(4) + body(b"abcd") + TX_SELECT, closed=(1,))
    assert recorder.events == [TX_SELECTED]


def test_a_closed_reader_holds_nothing() -> None:
    recorder = Recorder()
    recorder.feed(PUBLISH_METHOD + header(4) + body(b"ab") + b"\x03\0\x01")
    recorder.reader.close()
    assert recorder.reader.buffered_bytes == 0


def test_a_publish_whose_body_is_cut_off_is_taken_up_whole() -> None:
    """A big body that comes in several reads is not copied frame by frame."""
    recorder = Recorder()
    stream = publish(body=b"one") + publish(body=b"two")
    recorder.feed(stream[:-2])
    assert recorder.runs == [1]
    recorder.feed(stream[-2:])
    assert (recorder.runs, recorder.asked) == ([1, 1], [])
    recorder.feed(publish(body=b"six"))
    recorder.feed(TX_SELECT)
    assert len(recorder.events) == 4


def test_a_forgotten_content_is_forgotten() -> None:
    recorder = Recorder()
    recorder.feed(PUBLISH_METHOD + header(4) + body(b"ab"))
    assert recorder.reader.buffered_bytes > 0
    recorder.reader.forget(1)
    recorder.reader.forget(9)
    assert recorder.reader.buffered_bytes == 0
    recorder.feed(TX_SELECT)
    assert recorder.events == [TX_SELECTED]


def test_what_the_reader_holds_is_counted() -> None:
    recorder = Recorder()
    recorder.feed(PUBLISH_METHOD + header(4) + body(b"ab") + b"\x03\0\x01")
    assert recorder.reader.buffered_bytes >= len(header(4) + body(b"ab")) + 3
    recorder.feed(body(b"cd")[3:])
    assert recorder.reader.buffered_bytes == 0


# --- limits -----------------------------------------------------------------------------------------------


def test_a_body_beyond_the_limit_is_reported_whole_but_not_kept() -> None:
    """§4.1 step 2: checked only once the whole body has arrived."""
    recorder = Recorder(content_max=100)
    recorder.feed(PUBLISH_METHOD + header(101) + body(b"x" * 100))
    assert recorder.events == []
    assert recorder.reader.buffered_bytes < len(header(101)) + 100
    recorder.feed(body(b"x"))
    assert [event.size for event in recorder.events if isinstance(event, Publish)] == [101]


def test_the_fast_path_leaves_big_bodies_alone() -> None:
    recorder = read(publish(body=b"x" * 100) + publish(body=b"x" * 101), content_max=100)
    assert recorder.asked == [1]
    assert [event.size for event in recorder.events if isinstance(event, Publish)] == [100, 101]


def test_unfinished_contents_together_are_limited() -> None:
    """No client can make us keep much more than twice the largest message, in however small frames: 506."""
    recorder = Recorder(content_max=1000)
    assert recorder.reader.assembled_max_bytes >= 2000
    recorder.reader.assembled_max_bytes = 2000
    recorder.feed(PUBLISH_METHOD + header(1000) + body(b"x" * 900))
    recorder.feed(method_frame(2, BasicPublish()) + header(1000, 2) + body(b"x" * 800, 2))
    assert recorder.events == []
    recorder.feed(body(b"x" * 150, 2))
    (fault,) = recorder.events
    assert isinstance(fault, Fault)
    assert (fault.code, fault.is_fatal) == (ReplyCode.RESOURCE_ERROR, False)


def test_small_frames_cost_more_than_their_bytes() -> None:
    recorder = Recorder()
    recorder.feed(PUBLISH_METHOD + header(100) + body(b"x") * 50)
    assert recorder.reader.buffered_bytes > len(header(100)) + 50 * 40


def test_a_big_content_header_is_no_message_body() -> None:
    """A small `max_message_size` limits bodies alone, however the bytes are cut; frame_max limits properties."""
    message = publish(body=b"x", properties=Properties(headers={"h": longstr("v" * 3000)}))
    whole, pieces = read(message, content_max=100), read(message[:-1], message[-1:], content_max=100)
    assert whole.events == pieces.events
    assert [type(event) for event in pieces.events] == [Publish]


# --- pausing ----------------------------------------------------------------------------------------------


def test_a_paused_reader_keeps_what_follows_the_present_frame() -> None:
    recorder = Recorder(pauses=True)
    recorder.reader.feed(TX_SELECT + TX_SELECT + publish())
    assert recorder.events == [TX_SELECTED]
    recorder.reader.feed(ack(1, 1))
    assert recorder.events == [TX_SELECTED]
    recorder.pauses = False
    recorder.reader.resume()
    assert [type(event) for event in recorder.events] == [OtherMethod, OtherMethod, Publish, Ack]


def test_a_run_that_pauses_ends_the_walk() -> None:
    recorder = Recorder(pauses=True)
    recorder.reader.feed(publish(1) + publish(2) + publish(3))
    assert recorder.runs == [1]
    recorder.reader.resume()
    assert recorder.runs == [1, 1]


def test_resuming_with_nothing_kept_is_nothing() -> None:
    recorder = Recorder()
    recorder.reader.resume()
    assert recorder.events == []


# --- §1.7: frame errors -----------------------------------------------------------------------------------


def fatal(*pieces: bytes) -> str:
    recorder = read(*pieces)
    fault = recorder.events[-1]
    assert isinstance(fault, Fault)
    assert fault.is_fatal
    assert fault.code == ReplyCode.FRAME_ERROR
    assert fault.ids == (0, 0)
    return fault.explanation


def test_bad_end_octet() -> None:
    """§1.7 row `end octet not 206`."""
    assert fatal(b"\x01\0\x01\0\0\0\x04\0\x14\0\x0a\0") == (
        "type 1, all octets = <<0,20,0,10>>: {invalid_frame_end_marker,0}"
    )


def test_too_large() -> None:
    """§1.7 row `payload length > frame_max`: known from the first seven octets."""
    reader = FrameReader(Recorder(), frame_max_bytes=131072, content_max_bytes=1 << 40)
    with pytest.raises(ProtocolError) as raised:
        reader.feed(b"\x01\0\x01" + (131073).to_bytes(4))
    assert raised.value.explanation == "type 1, all octets = <<>>: {frame_too_large,131073,131064}"


@pytest.mark.parametrize("slack", range(8))
def test_eight_bytes_of_slack(slack: int) -> None:
    """§1.7 row `payload length between frame_max-7 and frame_max`; a consumer gets no frame beyond frame_max."""
    payload = method_frame(1, QueueDeclare())[7:-1].ljust(4096 - slack, b"\0")
    assert read(frame(1, 1, payload)).events == [OtherMethod(1, payload)]
    big = b"x" * (4096 - slack)
    recorder = read(PUBLISH_METHOD + header(len(big)) + body(big))
    assert bodies(recorder) == [body(b"x" * 4088) + body(b"x" * (8 - slack))]


def test_no_frame_max_means_no_limit() -> None:
    recorder = Recorder(frame_max=0)
    recorder.feed(publish(body=b"x" * 200_000, frame_max=0), PUBLISH_METHOD + header(9), body(b"123456789"))
    assert [event.size for event in recorder.events if isinstance(event, Publish)] == [200_000, 9]


def fault_of(*frames: bytes) -> tuple[int, str, tuple[int, int]]:
    """The one fault of a stream, which is read on behind it."""
    recorder = read(*frames, HEARTBEAT)
    assert recorder.events[-1] == Heartbeat()
    (fault,) = (event for event in recorder.events if isinstance(event, Fault))
    assert not fault.is_fatal
    return fault.code, fault.explanation, fault.ids


@pytest.mark.parametrize("channel", [0, 1, 77])
def test_unknown_frame_type(channel: int) -> None:
    """§1.7 row `unknown frame type, any channel`."""
    assert fault_of(frame(9, channel, b"abc")) == (
        501,
        'type 9, all octets = <<"abc">>: unknown_frame',
        (0, 0),
    )


def test_method_frame_without_a_method() -> None:
    """§1.7 row `method frame payload < 4 bytes`."""
    assert fault_of(frame(1, 1, b"\0")) == (501, "type 1, all octets = <<0>>: unknown_frame", (0, 0))


def test_content_frame_on_channel_0() -> None:
    """§1.7 row `header/body frame on channel 0`."""
    octets = "type 2, all octets = <<0,60,0,0,0,0,0,0,0,0,0,1>>"
    assert fault_of(frame(2, 0, b"\0\x3c" + bytes(9) + b"\x01")) == (505, octets, (0, 0))
    assert fault_of(frame(3, 0, b"")) == (505, "type 3, all octets = <<>>", (0, 0))


def test_header_frame_too_short_to_be_one() -> None:
    assert fault_of(frame(2, 1, b"\0\x3c")) == (501, "type 2, all octets = <<0,60>>: unknown_frame", (0, 0))


@pytest.mark.parametrize("stray", [header(1), body(b"x")])
def test_content_frame_without_a_method(stray: bytes) -> None:
    """§1.7 row `header/body when method expected`."""
    assert fault_of(stray) == (505, "expected method frame, got non method frame instead", (0, 0))


NO_HEADER = "expected content header for class 60, got non content header frame instead"


@pytest.mark.parametrize(
    "instead",
    [
        pytest.param(TX_SELECT, id="method"),
        pytest.param(PUBLISH_METHOD, id="another publish"),
        pytest.param(ack(1, 1), id="ack"),
        pytest.param(body(b"x"), id="body"),
        pytest.param(frame(2, 1, b"\0\x3c\0\x01" + bytes(10)), id="weight"),
    ],
)
def test_header_expected(instead: bytes) -> None:
    """§1.7 rows `method (or body) when content header expected` and `header weight ≠ 0`."""
    assert fault_of(PUBLISH_METHOD, instead) == (505, NO_HEADER, (60, 40))


def test_header_of_another_class() -> None:
    """§1.7 row `header with other class`."""
    text = "expected content header for class 60, got one for class 50 instead"
    assert fault_of(PUBLISH_METHOD + frame(2, 1, b"\0\x32" + bytes(12))) == (505, text, (60, 40))


NO_BODY = "expected content body, got non content body frame instead"


@pytest.mark.parametrize("instead", [TX_SELECT, PUBLISH_METHOD, ack(1, 1), header(1)])
def test_body_expected(instead: bytes) -> None:
    """§1.7 row `method when body expected`."""
    assert fault_of(PUBLISH_METHOD + header(5) + body(b"x"), instead) == (505, NO_BODY, (60, 40))


def test_a_body_longer_than_announced_shows_at_the_next_method() -> None:
    """§1.7 row `body longer than announced`."""
    recorder = read(PUBLISH_METHOD + header(2) + body(b"abc"))
    assert recorder.events == []
    recorder.feed(body(b"more"))
    assert recorder.events == []
    recorder.feed(TX_SELECT)
    assert recorder.events == [Fault(505, NO_BODY, (60, 40), False)]


def test_garbage_properties() -> None:
    """§1.7 row `garbage property list`."""
    assert fault_of(PUBLISH_METHOD, frame(2, 1, content_header(0, Properties())[:-2] + b"\xff\xfe")) == (
        541,
        "",
        (0, 0),
    )


def test_faults_before_bad_properties_come_first() -> None:
    """The fast path doesn't run ahead of the frames before it."""
    bad = PUBLISH_METHOD + frame(2, 1, b"\0\x3c" + bytes(10) + b"\x80\0") + frame(9, 1, b"")
    codes = [event.code for event in read(publish() + bad).events if isinstance(event, Fault)]
    assert codes == [541, 501]


def test_heartbeats() -> None:
    """§1.6: without payload, on channel 0."""
    assert read(HEARTBEAT).events == [Heartbeat()]
    assert fault_of(frame(8, 0, b"x")) == (501, 'type 8, all octets = <<"x">>: unknown_frame', (0, 0))
    assert fault_of(frame(8, 3, b"")) == (505, "type 8, all octets = <<>>", (0, 0))


# --- watching contents ------------------------------------------------------------------------------------

CONTENT_FRAME = ContentFrame()


def watching(*pieces: bytes, closed: tuple[int, ...] = ()) -> Recorder:
    recorder = Recorder(closed=closed)
    recorder.reader.watch_contents()
    recorder.feed(*pieces)
    return recorder


def test_each_content_frame_is_told_when_it_was_taken() -> None:
    """§7.1 row 2: header and body frames, not the method; the message of the last one comes before."""
    events = watching(publish() + PUBLISH_METHOD + header(3) + body(b"a") + body(b"bc") + TX_SELECT).events
    told = [type(event) for event in events]
    frames = [ContentFrame, Publish, ContentFrame]
    assert told == [*frames, ContentFrame, ContentFrame, Publish, ContentFrame, OtherMethod]


def test_dropped_content_is_told_too() -> None:
    """§2.2: of a channel that is being closed."""
    assert watching(publish(), closed=(1,)).events == [CONTENT_FRAME] * 2


def test_a_bad_content_frame_is_a_fault_only() -> None:
    """A content frame without its method gives one event, the client's fault."""
    assert [type(event) for event in watching(header(1)).events] == [Fault]


def test_a_pause_at_a_content_frame_keeps_the_rest() -> None:
    """§7.1 row 3: whatever comes behind it waits."""
    recorder = Recorder(pauses=True)
    recorder.reader.watch_contents()
    recorder.reader.feed(publish() + ack(1, 1))
    assert recorder.events == [CONTENT_FRAME]
    recorder.reader.resume()
    assert [type(event) for event in recorder.events] == [ContentFrame, Publish, ContentFrame]
    recorder.reader.resume()
    assert recorder.events[3:] == [Ack(1, 1)]


@pytest.mark.parametrize("cut", [1, 10, 30, 60, 100])
def test_frames_that_came_before_the_watch_are_not_told(cut: int) -> None:
    """§7.1 row 2: an alarm doesn't look back; a frame counts when it is whole."""
    data = publish(body=b"x" * 1000)
    recorder = Recorder()
    recorder.feed(data[:cut])
    recorder.reader.watch_contents()
    recorder.feed(data[cut:])
    told = [ContentFrame] if cut < len(PUBLISH_METHOD) + len(header(1000)) else []
    assert [type(event) for event in recorder.events] == [*told, Publish, ContentFrame]
    assert recorder.reader.buffered_bytes == 0


def test_runs_come_back_after_the_watch() -> None:
    """The fast path is only left for the time of an alarm."""
    recorder = watching(publish() * 3)
    recorder.reader.watches_contents = False
    recorder.feed(publish() * 3)
    assert recorder.runs == [1, 1, 1, 3]


# --- whatever the cut -------------------------------------------------------------------------------------


def test_byte_by_byte_gives_the_same_calls() -> None:
    stream = (
        publish(body=b"one")
        + publish(2, "k", b"two", Properties(headers={"CC": array([longstr("cc")])}))
        + b"".join(ack(1, tag) for tag in range(1, 4))
        + TX_SELECT
        + method_frame(1, BasicPublish())
        + content_frames(1, content_header(10, Properties()), b"0123456789", 12)
        + HEARTBEAT
        + frame(9, 0, b"")
    )
    whole, single = read(stream), read(*(stream[at : at + 1] for at in range(len(stream))))
    assert whole.events == single.events
    traits = [event.traits for event in whole.events if isinstance(event, Publish)]
    assert traits == [TRANSIENT, Traits(cc=("cc",)), TRANSIENT]


def test_a_big_frame_in_small_reads_is_looked_at_once_it_is_whole() -> None:
    """The buffer is joined when it pays: reads of one byte must not cost the square of the frame."""
    recorder = Recorder(frame_max=0)
    stream = publish(body=b"x" * 50_000, frame_max=0)
    for at in range(0, len(stream), 10):
        recorder.feed(stream[at : at + 10])
    assert len(recorder.events) == 1
