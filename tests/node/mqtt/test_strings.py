"""The data types of MQTT 3.1.1 and 5.0 §1.5, by numbered statement."""

from collections.abc import Callable

import pytest

from node.mqtt.errors import MqttError
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.strings import (
    binary,
    read_binary,
    read_byte,
    read_four_bytes,
    read_string,
    read_two_bytes,
    read_variable,
    string,
    variable,
    variable_bytes,
)

VARIABLES = {
    0: b"\x00",
    127: b"\x7f",
    128: b"\x80\x01",
    16_383: b"\xff\x7f",
    16_384: b"\x80\x80\x01",
    2_097_151: b"\xff\xff\x7f",
    2_097_152: b"\x80\x80\x80\x01",
    268_435_455: b"\xff\xff\xff\x7f",
}
"""The bounds of each length, as the standard's table has them."""


@pytest.mark.parametrize(("value", "raw"), VARIABLES.items())
def test_variable_byte_integers(value: int, raw: bytes) -> None:
    assert variable(value) == raw
    assert variable_bytes(value) == len(raw)
    assert read_variable(b"." + raw + b".", 1, len(raw) + 2) == (value, len(raw) + 1)


@pytest.mark.parametrize("raw", [b"\x80\x00", b"\xff\x80\x00", b"\x80\x80\x80\x00"])
def test_a_variable_byte_integer_is_as_short_as_it_can_be(raw: bytes) -> None:
    """The standard asks for the least number of bytes [MQTT-1.5.5-1]."""
    with pytest.raises(MqttError, match="longer than needed"):
        read_variable(raw, 0, len(raw))


def test_a_variable_byte_integer_has_four_bytes_at_most() -> None:
    with pytest.raises(MqttError, match="more than four bytes"):
        read_variable(b"\xff\xff\xff\xff\x01", 0, 5)


READERS: list[tuple[Callable[[bytes, int, int], tuple[object, int]], bytes]] = [
    (read_byte, b"\x01"),
    (read_two_bytes, b"\x01\x02"),
    (read_four_bytes, b"\x01\x02\x03\x04"),
    (read_variable, b"\x80\x01"),
    (read_binary, b"\x00\x02ab"),
    (read_string, b"\x00\x02ab"),
]


@pytest.mark.parametrize(("reader", "raw"), READERS)
def test_no_reader_goes_beyond_the_end_of_the_packet(
    reader: Callable[[bytes, int, int], tuple[object, int]], raw: bytes
) -> None:
    """The bytes behind the end belong to the next packet, even if they are there."""
    assert reader(raw, 0, len(raw))[1] == len(raw)
    for end in range(len(raw)):
        with pytest.raises(MqttError) as caught:
            reader(raw, 0, end)
        assert caught.value.code is ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\xed\xa0\x80", id="the surrogate U+D800"),
        pytest.param(b"\xed\xbf\xbf", id="the surrogate U+DFFF"),
        pytest.param(b"\xc0\x80", id="an overlong U+0000"),
        pytest.param(b"\xe2\x82", id="cut off"),
        pytest.param(b"\xff", id="no beginning of a character"),
        pytest.param(b"\xf4\x90\x80\x80", id="beyond U+10FFFF"),
    ],
)
def test_a_string_is_well_formed_utf_8(raw: bytes) -> None:
    """Ill-formed UTF-8 and surrogates are malformed [MQTT-1.5.4-1] (3.1.1: [MQTT-1.5.3-1])."""
    with pytest.raises(MqttError, match="not well-formed") as caught:
        read_string(binary(raw), 0, 2 + len(raw))
    assert caught.value.code is ReasonCode.MALFORMED_PACKET


def test_a_string_has_no_null_character() -> None:
    """U+0000 is malformed [MQTT-1.5.4-2] (3.1.1: [MQTT-1.5.3-2])."""
    with pytest.raises(MqttError, match="U\\+0000"):
        read_string(b"\0\3a\0b", 0, 5)


def test_a_byte_order_mark_is_a_character() -> None:
    """0xEF 0xBB 0xBF is U+FEFF and stays, wherever it is [MQTT-1.5.4-3] (3.1.1: [MQTT-1.5.3-3])."""
    assert read_string(b"\0\7\xef\xbb\xbfa\xef\xbb\xbf", 0, 9) == ("\ufeffa\ufeff", 9)
    assert string("\ufeffa") == b"\0\4\xef\xbb\xbfa"


@pytest.mark.parametrize("text", ["\x01", "\x7f", "\x9f", "\ufdd0", "\uffff", "\U0010ffff"])
def test_control_and_non_characters_are_let_through(text: str) -> None:
    """The standard lets a receiver choose, and RabbitMQ takes them."""
    raw = string(text)
    assert read_string(raw, 0, len(raw)) == (text, len(raw))


def test_what_cannot_be_written_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        string("a\0b")
    with pytest.raises(AssertionError):
        binary(bytes(65_536))
    with pytest.raises(AssertionError):
        variable(268_435_456)
