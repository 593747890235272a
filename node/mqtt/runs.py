"""Runs: what follows a packet and is like it, read without an object for each.

Each function begins behind a packet that was read and checked, takes all complete packets that follow and differ in
payload and packet identifier only, and returns where the first other one begins. A packet that is unusual in any way
is another one: the decoder reads it by itself, where each fault has its error. A run ends at `RUN_MAX` packets, so that
the connection can let others have their turn.
"""

from struct import iter_unpack
from typing import Final

from node.mqtt.constants import VARIABLE_INTEGER_MAX_BYTES

RUN_MAX: Final = 1024
"""The limit of packets in a run: the messages of a long read of tiny ones come in several."""

_ALIKE_MIN: Final = 4
"""So many packets of one length in a row are unpacked at once; for fewer the format costs more than it saves."""


def _length(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Return a remaining length of two to four bytes, and where it ends; 0, 0, which fits nothing, if it is unusual."""
    value = shift = 0
    for at in range(pos, min(end, pos + VARIABLE_INTEGER_MAX_BYTES)):
        octet = data[at]
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return (value, at + 1) if octet else (0, 0)
        shift += 7
    return 0, 0


def _count(data: bytes, head: bytes, pos: int, size: int, most: int) -> int:
    """Return how many packets of a size to unpack at once: 0, or all that there is room for, but not above `most`."""
    count = min((len(data) - pos) // size, most)
    if count < _ALIKE_MIN or not data.startswith(head, pos + (_ALIKE_MIN - 1) * size):
        return 0
    return count if data.startswith(head, pos) else 0


def more_publishes(
    data: bytes, pos: int, first: int, fields: bytes, size_max: int, payloads: list[bytes]
) -> int:
    """Take PUBLISH packets with QoS 0.   first: their first byte.   fields: the bytes from the topic to the payload."""
    end, fields_bytes = len(data), len(fields)
    take = payloads.append
    while end - pos > fields_bytes and data[pos] == first and len(payloads) < RUN_MAX:
        length, start = data[pos + 1], pos + 2
        if length >= 0x80:
            length, start = _length(data, pos + 1, end)
        after, payload_at = start + length, start + fields_bytes
        size = after - pos
        if after > end or payload_at > after or size > size_max or not data.startswith(fields, start):
            break
        take(data[payload_at:after])
        head, pos = data[pos:payload_at], after
        count = _count(data, head, pos, size, RUN_MAX - len(payloads))
        if count:
            view = memoryview(data)[pos : pos + count * size]
            for begin, payload in iter_unpack(f"{len(head)}s{size - len(head)}s", view):
                if begin != head:
                    break
                take(payload)
                pos += size
    return pos


def more_with_ids(
    data: bytes,
    pos: int,
    first: int,
    topic: bytes,
    properties: bytes,
    size_max: int,
    payloads: list[bytes],
    packet_ids: list[int],
) -> int:
    """Take PUBLISH packets with QoS 1 or 2.

    topic, properties: their bytes, with the length in front; no properties before 5.0.
    """
    end, topic_bytes, properties_bytes = len(data), len(topic), len(properties)
    fields_bytes = topic_bytes + 2 + properties_bytes
    while end - pos > fields_bytes and data[pos] == first and len(payloads) < RUN_MAX:
        length, start = data[pos + 1], pos + 2
        if length >= 0x80:
            length, start = _length(data, pos + 1, end)
        after, payload_at, id_at = start + length, start + fields_bytes, start + topic_bytes
        size = after - pos
        if after > end or payload_at > after or size > size_max:
            break
        packet_id = data[id_at] << 8 | data[id_at + 1]
        if not packet_id or not data.startswith(topic, start) or not data.startswith(properties, id_at + 2):
            break
        packet_ids.append(packet_id)
        payloads.append(data[payload_at:after])
        head, pos = data[pos:id_at], after
        count = _count(data, head, pos, size, RUN_MAX - len(payloads))
        if count:
            view = memoryview(data)[pos : pos + count * size]
            payload_bytes = after - payload_at
            layout = f">{len(head)}sH{properties_bytes}s{payload_bytes}s"
            for begin, packet_id, middle, payload in iter_unpack(layout, view):
                if begin != head or middle != properties or not packet_id:
                    break
                packet_ids.append(packet_id)
                payloads.append(payload)
                pos += size
    return pos


def more_acks(data: bytes, pos: int, head: bytes, rest: bytes, packet_ids: list[int]) -> int:
    """Take acknowledgements.   head: their fixed header.   rest: what follows their packet identifier."""
    size = len(head) + 2 + len(rest)
    count = min((len(data) - pos) // size, RUN_MAX - len(packet_ids))
    if not count or not data.startswith(head, pos):
        return pos
    view = memoryview(data)[pos : pos + count * size]
    for begin, packet_id, end in iter_unpack(f">{len(head)}sH{len(rest)}s", view):
        if begin != head or end != rest or not packet_id:
            break
        packet_ids.append(packet_id)
        pos += size
    return pos
