"""Changes of properties without a look at bodies."""

import pytest

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table, long, longstr
from node.amqp.frames import content_frames, split_content
from node.amqp.properties import Properties, content_header, decode_properties, encode_properties
from node.amqp_client.contents import (
    PropertyChange,
    encoded_fields,
    properties,
    raw_properties,
    with_headers,
    with_properties,
)

BODY = b"b" * 10_000


def _content(of: Properties, channel: int = 7) -> bytes:
    return content_frames(channel, content_header(len(BODY), of), BODY, 4096)


def test_properties_are_replaced() -> None:
    before = _content(Properties(content_type="text/plain"))
    after = with_properties(before, encode_properties(Properties(app_id="me", priority=3)))
    assert properties(after) == Properties(app_id="me", priority=3)
    assert split_content(after)[1] == BODY
    assert after == _content(Properties(app_id="me", priority=3))


@pytest.mark.parametrize(
    "before",
    [
        Properties(),
        Properties(content_type="a", content_encoding="b", delivery_mode=2, cluster_id="c"),
        Properties(headers={}),
        Properties(content_type="a", headers={"h": long(1)}, timestamp=5),
    ],
)
def test_headers_are_added_behind_those_that_are_there(before: Properties) -> None:
    added: Table = {"x-one": longstr("1"), "x-two": long(2)}
    raw = with_headers(encode_properties(before), encoded_fields(added))
    after = decode_properties(raw, 0, len(raw))
    assert after.headers == (before.headers or {}) | added
    before.headers = after.headers
    assert after == before


def test_a_change_is_kept_for_alike_properties() -> None:
    calls = []

    def change(of: Properties) -> None:
        calls.append(of.message_id)
        of.app_id = f"changed {len(calls)}"

    changed = PropertyChange(change)
    contents = [_content(Properties(message_id=name)) for name in ("a", "a", "b", "b")]
    assert [properties(changed.of(each)).app_id for each in contents] == [
        "changed 1",
        "changed 1",
        "changed 2",
        "changed 2",
    ]
    changed.forget()
    assert properties(changed.of(contents[-1])).app_id == "changed 3"
    assert calls == ["a", "b", "b"]


def test_malformed_properties_are_a_fault() -> None:
    broken = with_properties(_content(Properties()), b"\xff\xff\x05ab")
    assert raw_properties(broken) == b"\xff\xff\x05ab"
    with pytest.raises(ProtocolError):
        PropertyChange(lambda of: None).of(broken)


@pytest.mark.parametrize(
    "raw", [b"\x80\x00", b"\x80\x00\x05ab", b"\xc0\x00\x01a", b"\x20\x00", b"\x20\x00\x00\x00\x00\x09abc"]
)
def test_no_headers_are_added_to_malformed_properties(raw: bytes) -> None:
    """A message with such properties would end the connection to the next broker."""
    with pytest.raises(ProtocolError):
        with_headers(raw, encoded_fields({"x": long(1)}))
