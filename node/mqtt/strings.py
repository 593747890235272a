"""The data types of MQTT: integers, strings, binary data and string pairs, to and from bytes.

Each reader takes the bytes, where the value begins and where its packet ends, and returns the value and where it ends.
Source: MQTT 3.1.1 §1.5, MQTT 5.0 §1.5.
"""

from struct import Struct
from typing import Final

from node.mqtt.constants import STRING_MAX_BYTES, VARIABLE_INTEGER_MAX
from node.mqtt.errors import malformed

TWO_BYTES: Final = Struct(">H")
FOUR_BYTES: Final = Struct(">I")

_TOO_SHORT: Final = "a packet ends within a field"


def read_byte(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read one byte."""
    if pos >= end:
        raise malformed(_TOO_SHORT)
    return data[pos], pos + 1


def read_two_bytes(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read a two byte integer."""
    after = pos + 2
    if after > end:
        raise malformed(_TOO_SHORT)
    return data[pos] << 8 | data[pos + 1], after


def read_four_bytes(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read a four byte integer."""
    after = pos + 4
    if after > end:
        raise malformed(_TOO_SHORT)
    return int.from_bytes(data[pos:after], "big"), after


def read_variable(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read a variable byte integer, which must be written in as few bytes as it needs [MQTT-1.5.5-1]."""
    value = shift = 0
    while True:
        if pos >= end:
            raise malformed(_TOO_SHORT)
        octet = data[pos]
        pos += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            if not octet and shift:
                raise malformed("a variable byte integer is longer than needed")
            return value, pos
        shift += 7
        if shift > 21:
            raise malformed("a variable byte integer has more than four bytes")


def read_binary(data: bytes, pos: int, end: int) -> tuple[bytes, int]:
    """Read binary data."""
    start = pos + 2
    if start > end:
        raise malformed(_TOO_SHORT)
    after = start + (data[pos] << 8 | data[pos + 1])
    if after > end:
        raise malformed(_TOO_SHORT)
    return data[start:after], after


def text_of(raw: bytes) -> str:
    """Return the text of a string's bytes.

    Ill-formed UTF-8, surrogates included, and U+0000 are malformed [MQTT-1.5.4-1, MQTT-1.5.4-2]. Other control
    characters and non-characters are let through, as the standard allows; U+FEFF is kept [MQTT-1.5.4-3].
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise malformed("a string is not well-formed UTF-8") from None
    if "\0" in text:
        raise malformed("a string contains U+0000")
    return text


def read_string(data: bytes, pos: int, end: int) -> tuple[str, int]:
    """Read a string."""
    raw, after = read_binary(data, pos, end)
    return text_of(raw), after


def variable(value: int) -> bytes:
    """Return the bytes of a variable byte integer."""
    assert 0 <= value <= VARIABLE_INTEGER_MAX
    if value < 0x80:
        return bytes((value,))
    octets = bytearray()
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def variable_bytes(value: int) -> int:
    """Return how many bytes a variable byte integer has."""
    return 1 if value < 1 << 7 else 2 if value < 1 << 14 else 3 if value < 1 << 21 else 4


def binary(value: bytes) -> bytes:
    """Return binary data with its length in front."""
    assert len(value) <= STRING_MAX_BYTES
    return TWO_BYTES.pack(len(value)) + value


def string(value: str) -> bytes:
    """Return a string with its length in front."""
    assert "\0" not in value
    return binary(value.encode("utf-8"))
