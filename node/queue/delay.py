"""The content of a message whose time has come: its header `x-delay` is negative from then on.

So no further exchange delays it again, and consumers see for how long it has waited.
Source: the documentation and the tests of RabbitMQ's archived plug-in; docs/delayed.md.
"""

from struct import Struct
from typing import Final

from node.amqp.constants import FRAME_OVERHEAD_BYTES
from node.amqp.field_table import Field, Table
from node.amqp.frames import FRAME_HEADER_STRUCT
from node.catalogue.delayed import DELAY_HEADER, delay_number
from node.queue.content import chosen_headers, decode_content, encode_content
from node.queue.run import Envelope

_SIGNED_INT_MAX: Final = (1 << 31) - 1
_INT: Final = Struct(">i")
_NAME: Final = DELAY_HEADER.encode()
_NAMES: Final = (_NAME,)
_ENTRY: Final = bytes([len(_NAME)]) + _NAME + b"I"
"""The octets before the number of a header x-delay, as most clients write it."""


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


def negated(content: bytes) -> bytes | None:
    """Return a content with a negative delay, its frames as they were; None: that takes `due_copy`.

    The number is replaced where it stands, which takes a third of the time. It must be of the usual type, and its
    octets must not stand anywhere else in the header frame, as in a header's value.
    """
    delay = chosen_headers(content, _NAMES).get(DELAY_HEADER)
    if delay is None or delay.tag != "I":
        return None
    assert isinstance(delay.value, int)
    entry = _ENTRY + _INT.pack(delay.value)
    size: int = FRAME_HEADER_STRUCT.unpack_from(content)[2]
    end = FRAME_OVERHEAD_BYTES + size
    at = content.find(entry, 0, end)
    if delay.value <= 0 or at < 0 or content.find(entry, at + 1, end) >= 0:
        return None
    at += len(_ENTRY)
    return b"".join((content[:at], _INT.pack(-delay.value), content[at + _INT.size :]))


def due_copy(content: bytes, channel: int) -> tuple[bytes, Table]:
    """Return a content as it goes out, its body in one frame, and its headers.   channel: as in `Envelope`."""
    properties, body = decode_content(content)
    headers = dict(properties.headers or {})
    delay = delay_number(headers.get(DELAY_HEADER))
    if delay is not None and delay > 0:
        headers[DELAY_HEADER] = Field("I" if delay <= _SIGNED_INT_MAX else "l", -delay)
        properties.headers = headers
    return encode_content(properties, body, channel, 0), headers
