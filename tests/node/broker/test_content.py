"""Contents taken apart and put together again."""

import pytest

from node.amqp.field_table import long, longstr
from node.amqp.frames import body_size
from node.amqp.properties import Properties
from node.broker.content import decode_content, encode_content, with_header
from tests.node.broker.messages import content

FULL = Properties(content_type="text", headers={"a": longstr("b")}, delivery_mode=2, timestamp=7, app_id="x")


@pytest.mark.parametrize("frame_max", [0, 20])
@pytest.mark.parametrize("body", [b"", b"x" * 50])
def test_there_and_back(body: bytes, frame_max: int) -> None:
    encoded = encode_content(FULL, body, channel=3, frame_max_bytes=frame_max)
    assert encoded == content(body, channel=3, frame_max=frame_max, properties=FULL)
    assert decode_content(encoded) == (FULL, body)


@pytest.mark.parametrize("before", [None, {}, {"n": long(1)}, {"other": long(1)}])
def test_a_header_is_added_or_replaced(before: dict[str, object] | None) -> None:
    raw = content(b"body", properties=Properties(headers=before, app_id="x"))  # type: ignore[arg-type]
    changed = with_header(raw, "n", long(2), 5, 0)
    properties, body = decode_content(changed)
    assert properties == Properties(headers={**(before or {}), "n": long(2)}, app_id="x")  # type: ignore[dict-item]
    assert (body, body_size(changed), changed[1:3]) == (b"body", 4, b"\0\x05")
