"""Contents taken apart and put together again (amqp-behaviour §0.4, §10)."""

from hypothesis import given
from hypothesis import strategies as st

from node.amqp.field_table import long, longstr
from node.amqp.frames import split_content
from node.amqp.properties import Properties
from node.queue.content import chosen_headers, decode_content, encode_content, properties_of, with_header

properties = st.builds(
    Properties,
    content_type=st.none() | st.text(max_size=9),
    delivery_mode=st.none() | st.integers(1, 2),
    headers=st.none()
    | st.dictionaries(st.text(max_size=4), st.builds(longstr, st.text(max_size=4)), max_size=3),
    timestamp=st.none() | st.integers(0, 2**64 - 1),
)


@given(properties, st.binary(max_size=300), st.integers(1, 65535), st.sampled_from([0, 64, 4096]))
def test_what_is_encoded_is_what_is_decoded(
    value: Properties, body: bytes, channel: int, frame_max_bytes: int
) -> None:
    content = encode_content(value, body, channel, frame_max_bytes)
    assert decode_content(content) == (value, body)
    assert properties_of(content) == value
    assert int.from_bytes(content[1:3]) == channel


@given(properties, st.binary(max_size=300), st.sets(st.text(max_size=2)))
def test_some_headers_are_chosen(value: Properties, body: bytes, names: set[str]) -> None:
    content = encode_content(value, body, 1, 64)
    expected = {name: field for name, field in (value.headers or {}).items() if name in names}
    assert chosen_headers(content, {name.encode() for name in names}) == expected


@given(properties, st.binary(max_size=300))
def test_a_header_is_set_beside_the_others(value: Properties, body: bytes) -> None:
    content = encode_content(value, body, 1, 0)
    changed, same_body = decode_content(with_header(content, "x-delivery-count", long(3), 7, 64))
    assert changed.headers == {**(value.headers or {}), "x-delivery-count": long(3)}
    changed.headers = value.headers
    assert (changed, same_body) == (value, body)


def test_a_header_replaces_its_namesake() -> None:
    content = encode_content(Properties(headers={"n": long(1)}), b"body", 1, 0)
    changed = with_header(content, "n", long(2), 1, 0)
    assert decode_content(changed)[0].headers == {"n": long(2)}
    assert split_content(changed)[1] == b"body"
