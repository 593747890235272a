"""Contents of messages whose time has come: the delay is negative, and all else is as it was."""

import pytest

from node.amqp.field_table import Field, Table, long, longstr, table
from node.amqp.properties import Properties
from node.queue.content import decode_content
from node.queue.delay import due_copy, due_envelope, negated
from node.queue.run import Envelope
from tests.kit.messages import content

DELAY = Field("I", 1000)


@pytest.mark.parametrize(
    "headers",
    [
        {"x-delay": DELAY},
        {"a": long(1), "x-delay": DELAY, "z": longstr("x-delay")},
        {"x-delay": Field("I", (1 << 31) - 1)},
        {"inner": table({"x-delay": Field("I", 5)}), "x-delay": DELAY},
    ],
)
@pytest.mark.parametrize("frame_max", [0, 4096])
def test_the_number_is_replaced_where_it_stands(headers: Table, frame_max: int) -> None:
    """As if the content had been written anew; frames and other properties stay."""
    properties = Properties(headers=headers, delivery_mode=2, message_id="m", timestamp=5)
    old = content(b"body" * 5000, 1, frame_max, properties)
    negatives = negated([old])
    assert negatives is not None
    (new,) = negatives
    assert len(new) == len(old)
    assert sum(before != after for before, after in zip(old, new, strict=True)) <= 4
    assert decode_content(new) == decode_content(due_copy(old, 1)[0])
    found, body = decode_content(new)
    assert found.headers == {**headers, "x-delay": Field("I", -headers["x-delay"].value)}  # type: ignore[operator]
    assert body == b"body" * 5000


@pytest.mark.parametrize(
    "headers",
    [
        {"x-delay": long(1000)},
        {"x-delay": longstr("1000")},
        {"x-delay": Field("d", 1000.5)},
        {"copy": longstr(b"\x07x-delayI\x00\x00\x03\xe8"), "x-delay": DELAY},
        {"inner": table({"x-delay": DELAY}), "x-delay": DELAY},
    ],
)
def test_what_is_of_another_type_or_stands_twice_is_written_anew(headers: Table) -> None:
    old = content(b"body", properties=Properties(headers=headers))
    assert negated([old]) is None
    new, told = due_copy(old, 1)
    found, body = decode_content(new)
    assert found.headers == told == {**headers, "x-delay": Field("I", -1000)}
    assert body == b"body"


@pytest.mark.parametrize("headers", [None, {}, {"x-delay": Field("I", -5)}, {"x-delay": longstr("soon")}])
def test_a_message_without_a_delay_stays_as_it_is(headers: Table | None) -> None:
    """Such a message may be in the queue if it came there without the exchange."""
    old = content(b"body", properties=Properties(headers=headers))
    assert negated([old]) is None
    assert decode_content(due_copy(old, 1)[0]) == decode_content(old)


def test_octets_in_the_body_are_not_the_header() -> None:
    old = content(b"\x07x-delayI\x00\x00\x03\xe8", properties=Properties(headers={"x-delay": DELAY}))
    negatives = negated([old])
    assert negatives is not None
    (new,) = negatives
    assert decode_content(new)[1] == b"\x07x-delayI\x00\x00\x03\xe8"


def test_the_envelope_is_as_published_but_for_the_frames() -> None:
    old = Envelope(
        "x",
        "k",
        channel=3,
        frame_max_bytes=4096,
        persistent=True,
        priority=2,
        expiration_ms=5,
        cc=("a",),
        bcc=("b",),
    )
    new = due_envelope(old)
    for name in Envelope.__slots__:
        assert getattr(new, name) == (0 if name == "frame_max_bytes" else getattr(old, name)), name
