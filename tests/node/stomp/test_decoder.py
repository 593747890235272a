"""The decoder: frames of all versions however they are cut, and bytes that are no frames."""

import pytest

from node.stomp.decoder import HEADS_MAX, Decoder, Limits
from node.stomp.errors import FramingError
from node.stomp.frame import Frame, encode
from node.stomp.versions import VERSIONS

LIMITS = Limits(head_max_bytes=2000, headers_max=10, body_max_bytes=300)


def decode(data: bytes, version: str = "1.2") -> list[Frame]:
    decoder = Decoder(LIMITS, version)
    decoder.feed(data)
    return list(iter(decoder.next, None))


def one(data: bytes, version: str = "1.2") -> Frame:
    (frame,) = decode(data, version)
    return frame


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_frames_may_be_cut_anywhere(size: int) -> None:
    data = (
        b"\n\r\nSEND\ndestination:/queue/a\n\nto the NUL\0\n"
        b"SEND\r\ncontent-length:6\r\n\r\na\0b\n\nc\0\n\n"
        b"ACK\nid:1\n\n\0"
        b"SEND\ncontent-length:0\n\n\0"
    )
    decoder, found = Decoder(LIMITS, "1.2"), []
    for at in range(0, len(data), size):
        decoder.feed(data[at : at + size])
        found += list(iter(decoder.next, None))
    assert [(frame.head.command, frame.body) for frame in found] == [
        ("SEND", b"to the NUL"),
        ("SEND", b"a\0b\n\nc"),
        ("ACK", b""),
        ("SEND", b""),
    ]
    assert found == decode(data)
    assert decoder.buffered_bytes == 0


def test_of_several_headers_with_one_name_the_first_counts() -> None:
    assert one(b"SEND\na:1\na:2\n\n\0").head.headers == {"a": "1"}


def test_a_value_may_have_colons_and_blanks() -> None:
    assert one(b"SEND\na: 1:2 \n\n\0").head.headers == {"a": " 1:2 "}
    assert one(b"SEND\na: 1:2 \n\n\0", "1.0").head.headers == {"a": "1:2 "}


@pytest.mark.parametrize(
    ("version", "value"), [("1.0", r"\c\n\r\\\t"), ("1.1", ":\n\r\\"), ("1.2", ":\n\r\\")]
)
def test_escapes_belong_to_versions(version: str, value: str) -> None:
    text = r"\c\n\r\\" if version != "1.0" else r"\c\n\r\\\t"
    assert one(f"SEND\na:{text}\n\n\0".encode(), version).head.headers == {"a": value}


@pytest.mark.parametrize("command", ["CONNECT", "STOMP", "CONNECTED"])
def test_connect_is_never_escaped(command: str) -> None:
    assert one(f"{command}\npasscode:a\\tb\\c\n\n\0".encode()).head.headers == {"passcode": "a\\tb\\c"}


@pytest.mark.parametrize("text", [r"a:\t", r"\t:a", "a:\\"])
def test_an_escape_that_is_not_defined_is_a_fault(text: str) -> None:
    with pytest.raises(FramingError, match="is not defined"):
        decode(f"SEND\n{text}\n\n\0".encode())


def test_a_carriage_return_stands_at_the_end_of_a_line_only() -> None:
    with pytest.raises(FramingError, match="carriage return"):
        decode(b"SEND\na:b\rc\n\n\0")
    assert one(b"SEND\na:b\rc\n\n\0", "1.1").head.headers == {"a": "b\rc"}
    assert one(b"SEND\r\na:b\r\n\r\n\0", "1.1").head.headers == {"a": "b"}


def test_octets_that_are_no_text_are_kept() -> None:
    headers = one(b"SEND\n\xff:\xc3\n\n\0").head.headers
    assert encode("SEND", headers.items()) == b"SEND\n\xff:\xc3\n\n\0\n"


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"SEND\nno colon\n\n\0", "no name and value"),
        (b"SEND\n:nothing before\n\n\0", "no name and value"),
        (b"SEND\ncontent-length:x\n\n\0", "content-length"),
        (b"SEND\ncontent-length:-1\n\n\0", "content-length"),
        (b"SEND\ncontent-length:" + b"1" * 19 + b"\n\n\0", "content-length"),
        (b"SEND\ncontent-length:1\n\nab\0", "no NUL"),
        (b"SEND\ncontent-length:301\n\n", "body is larger than 300"),
        (b"SEND\n\n" + b"a" * 301, "body is larger than 300"),
        (b"SEND\n\n" + b"a" * 301 + b"\0", "body is larger than 300"),
        (b"SEND\na:" + b"a" * 2000, "head of the frame is larger than 2000"),
        (b"SEND\n" + b"a:b\n" * 11 + b"\n\0", "more than 10 headers"),
    ],
)
def test_bounds_and_faults(data: bytes, fault: str) -> None:
    with pytest.raises(FramingError) as found:
        decode(data)
    assert fault in found.value.detail


@pytest.mark.parametrize("count", [300, 299])
def test_the_largest_body_is_taken(count: int) -> None:
    body = b"a" * count
    assert one(b"SEND\n\n" + body + b"\0").body == body
    assert one(b"SEND\ncontent-length:%d\n\n%b\0" % (count, body)).body == body


def test_a_head_that_comes_again_is_the_same_object() -> None:
    frame, again, other = decode(b"SEND\na:1\n\nx\0" * 2 + b"SEND\na:2\n\nx\0")
    assert frame.head is again.head
    assert frame.head is not other.head


def test_heads_are_remembered_up_to_a_number() -> None:
    decoder = Decoder(LIMITS, "1.2")
    for number in range(3 * HEADS_MAX):
        decoder.feed(b"SEND\na:%d\n\n\0" % number)
        assert decoder.next() is not None
    assert len(decoder._heads) <= HEADS_MAX


def test_another_version_reads_a_head_again() -> None:
    decoder = Decoder(LIMITS)
    decoder.feed(b"SEND\na: \\c\n\n\0" * 2)
    first = decoder.next()
    decoder.version = "1.2"
    second = decoder.next()
    assert first is not None
    assert second is not None
    assert (first.head.headers, second.head.headers) == ({"a": "\\c"}, {"a": " :"})


def test_long_bodies_in_small_pieces_are_searched_once() -> None:
    decoder = Decoder(Limits(100, 10, 1 << 20), "1.2")
    decoder.feed(b"SEND\n\n")
    for _ in range(5000):
        decoder.feed(b"a" * 100)
        assert decoder.next() is None
    assert decoder._searched == len(decoder._more) + 1
    decoder.feed(b"\0\nACK\n\n\0")
    frame, ack = iter(decoder.next, None)
    assert (len(frame.body), ack.head.command) == (500_000, "ACK")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_encoded_is_decoded(version: str) -> None:
    headers = {"a:b": "c\\d:e", "f": "", "g": "h\ni"} if version != "1.0" else {"a": "c\\d:e", "f": ""}
    frame = one(encode("MESSAGE", headers.items(), b"\0body", version), version)
    assert frame.head.headers == {**headers, "content-length": "5"}
    assert frame.body == b"\0body"
