"""The content of a message whose time has come: its header `x-delay` is negative from then on.

So no further exchange delays it again, and consumers see for how long it has waited.
Source: the documentation and the tests of RabbitMQ's archived plug-in; docs/delayed.md.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from node.amqp.field_table import Field, Table
from node.amqp.properties import read_headers
from node.catalogue.delayed import DELAY_HEADER, delay_number
from node.queue.alike import CACHED_MAX_BYTES, PROPERTIES_AT, stretches
from node.queue.content import decode_content, encode_content
from node.queue.run import Envelope

_SIGNED_INT_MAX: Final = (1 << 31) - 1
_INT: Final = Struct(">i")
_NAME: Final = DELAY_HEADER.encode()
_NAMES: Final = (_NAME,)
_ENTRY: Final = bytes([len(_NAME)]) + _NAME + b"I"
"""The octets before the number of a header x-delay, as most clients write it."""

_CHANGES_MAX: Final = 1024
"""The most properties for which it is remembered where the number stands, at up to a kilobyte each."""


def due_envelope(old: Envelope) -> Envelope:
    """Return the envelope of messages that `due_copy` has written anew: their bodies are in one frame."""
    return Envelope(
        old.exchange,
        old.routing_key,
        channel=old.channel,
        frame_max_bytes=0,
        persistent=old.persistent,
        priority=old.priority,
        expiration_ms=old.expiration_ms,
        cc=old.cc,
        bcc=old.bcc,
    )


def negated(contents: Sequence[bytes]) -> list[bytes] | None:
    """Return contents with negative delays, their frames as they were; None: some of them take `due_copy`.

    The number is replaced where it stands, which takes a tenth of the time. It must be of the usual type, and its
    octets must not stand anywhere else in the header frame, as in a header's value.
    """
    found: list[bytes] = []
    for octets, first, stop in stretches(contents):
        change = _change(octets) if len(octets) <= CACHED_MAX_BYTES else _find_change(octets)
        if change is None:
            return None
        at, number = change
        behind = at + _INT.size
        if stop - first == 1:
            content = contents[first]
            found.append(b"".join((content[:at], number, content[behind:])))
        else:
            found += [b"".join((content[:at], number, content[behind:])) for content in contents[first:stop]]
    return found


def _find_change(octets: bytes) -> tuple[int, bytes] | None:
    """Return the offset of the delay's number in contents with these properties, and the octets to put there."""
    delay = read_headers(octets, 0, _NAMES).get(DELAY_HEADER)
    if delay is None or delay.tag != "I":
        return None
    assert isinstance(delay.value, int)
    entry = _ENTRY + _INT.pack(delay.value)
    at = octets.find(entry)
    if delay.value <= 0 or at < 0 or octets.find(entry, at + 1) >= 0:
        return None
    return PROPERTIES_AT + at + len(_ENTRY), _INT.pack(-delay.value)


_change: Final = lru_cache(_CHANGES_MAX)(_find_change)


def due_copy(content: bytes, channel: int) -> tuple[bytes, Table]:
    """Return a content as it goes out, its body in one frame, and its headers.   channel: as in `Envelope`."""
    properties, body = decode_content(content)
    headers = dict(properties.headers or {})
    delay = delay_number(headers.get(DELAY_HEADER))
    if delay is not None and delay > 0:
        headers[DELAY_HEADER] = Field("I" if delay <= _SIGNED_INT_MAX else "l", -delay)
        properties.headers = headers
    return encode_content(properties, body, channel, 0), headers
