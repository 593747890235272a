"""The content of a message whose time has come: its header `x-delay` is negative from then on.

So no further exchange delays it again, and consumers see for how long it has waited.
Source: the documentation and the tests of RabbitMQ's archived plug-in; docs/delayed.md.
"""

from typing import Final

from node.amqp.field_table import Field, Table
from node.catalogue.delayed import DELAY_HEADER, delay_number
from node.queue.content import decode_content, encode_content
from node.queue.run import Envelope

_SIGNED_INT_MAX: Final = (1 << 31) - 1


def due_envelope(old: Envelope) -> Envelope:
    """Return the envelope of messages that are due: as published, but for the frames of their bodies."""
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


def due_copy(content: bytes, channel: int) -> tuple[bytes, Table]:
    """Return a content as it goes out, its body in one frame, and its headers.   channel: as in `Envelope`."""
    properties, body = decode_content(content)
    headers = dict(properties.headers or {})
    delay = delay_number(headers.get(DELAY_HEADER))
    if delay is not None and delay > 0:
        headers[DELAY_HEADER] = Field("I" if delay <= _SIGNED_INT_MAX else "l", -delay)
        properties.headers = headers
    return encode_content(properties, body, channel, 0), headers
