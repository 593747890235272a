"""The properties of a message, in two readings.

    content header = short:class-id(60) short:weight(0) longlong:body-size short:flags values
    flags          = a bit for each property, content-type in bit 15; the two lowest mean nothing

`Properties` has all of them, to show or to rewrite a message. `Traits` has the few that a broker needs to
route and keep one: the publish path reads only these, checks the rest, and hands on the bytes as they came.
RabbitMQ looks at the properties when the channel handles the message, and a malformed list crashes that
channel: hence 541 without a word of explanation. It ignores the continuation bit: no class has more of them.
Property strings may be any bytes.
Source: amqp-behaviour §0.4, §1.7, §4.1, §10.
"""

from collections.abc import Collection
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple

from node.amqp.constants import CLASS_BASIC, ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import (
    Field,
    Table,
    check_table,
    decode_table,
    encode_table,
    pick_fields,
    type_name,
)

PERSISTENT_MODE: Final = 2
TRANSIENT_MODE: Final = 1

REPLY_TO_PSEUDO_QUEUE: Final = "amq.rabbitmq.reply-to"
"""The one `reply_to` that the broker acts on: direct reply-to (§4.12)."""

_CONTENT_HEADER: Final = Struct(">HHQ")
_FLAGS: Final = Struct(">H")
_TIMESTAMP: Final = Struct(">Q")


@dataclass(slots=True)
class Properties:
    """All properties of the basic class, in wire order; None when absent.

    timestamp: seconds since 1970.   expiration: milliseconds, as text.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


class Traits(NamedTuple):
    """The properties of a message on which the broker acts, besides its address.

    delivery_mode: as sent, but 1 counts as absent: both are transient, and plain messages share one object.
    reply_to: None unless it is REPLY_TO_PSEUDO_QUEUE.
    cc, bcc: the sender-selected routing keys; entries of other types than longstr don't count. bcc is None
        when there is no such header, which would have to be taken out.
    bad_sender_selected: the first of the headers CC and BCC that is no array, with the name of its type.
    """

    delivery_mode: int | None = None
    priority: int | None = None
    expiration: str | None = None
    user_id: str | None = None
    reply_to: str | None = None
    cc: tuple[str, ...] = ()
    bcc: tuple[str, ...] | None = None
    bad_sender_selected: tuple[str, str] | None = None

    @property
    def persistent(self) -> bool:
        """True if the message is to survive a restart in a durable queue."""
        return self.delivery_mode == PERSISTENT_MODE


TRANSIENT: Final = Traits()
PERSISTENT: Final = Traits(delivery_mode=PERSISTENT_MODE)
_PLAIN: Final = {TRANSIENT: TRANSIENT, PERSISTENT: PERSISTENT}

_NAMES: Final = tuple(Properties.__dataclass_fields__)
_BITS: Final = {name: 1 << (15 - place) for place, name in enumerate(_NAMES)}
_OCTETS: Final = ("delivery_mode", "priority")
_BEFORE_HEADERS: Final = ("content_type", "content_encoding")

# What `read_traits` does at a property. The hot ones come first in its chain of comparisons.
_SKIP: Final = 0  # a shortstr of no interest
_DELIVERY_MODE: Final = 1
_HEADERS: Final = 2
_PRIORITY: Final = 3
_REPLY_TO: Final = 4
_EXPIRATION: Final = 5
_TIMESTAMP_STEP: Final = 6
_USER_ID: Final = 7

_STEPS: Final = {
    "headers": _HEADERS,
    "delivery_mode": _DELIVERY_MODE,
    "priority": _PRIORITY,
    "reply_to": _REPLY_TO,
    "expiration": _EXPIRATION,
    "timestamp": _TIMESTAMP_STEP,
    "user_id": _USER_ID,
}


def _steps_by_octet(names: tuple[str, ...]) -> list[tuple[int, ...]]:
    """Return for each value of an octet of the flags the steps for the properties that it announces."""
    steps = [_STEPS.get(name, _SKIP) for name in names]
    return [tuple(step for place, step in enumerate(steps) if octet & 0x80 >> place) for octet in range(256)]


_FIRST_STEPS: Final = _steps_by_octet(_NAMES[:8])
_SECOND_STEPS: Final = _steps_by_octet(_NAMES[8:])
_FIRST_OF_INTEREST: Final = (_BITS["priority"] | _BITS["reply_to"] | _BITS["expiration"]) >> 8
_SECOND_OF_INTEREST: Final = _BITS["user_id"]
_SECOND_LOWEST: Final = _BITS["cluster_id"]


def content_header(body_size: int, properties: Properties) -> bytes:
    """Return the payload of a header frame."""
    return _CONTENT_HEADER.pack(CLASS_BASIC, 0, body_size) + encode_properties(properties)


def encode_properties(properties: Properties) -> bytes:
    """Return flags and values as bytes. Strings must have at most 255 bytes."""
    flags = 0
    parts: list[bytes] = []
    for name, bit in _BITS.items():
        value = getattr(properties, name)
        if value is None:
            continue
        flags |= bit
        if name == "headers":
            parts.append(encode_table(value))
        elif name == "timestamp":
            parts.append(_TIMESTAMP.pack(value))
        elif name in _OCTETS:
            parts.append(bytes((value,)))
        else:
            raw = value.encode("utf-8", "surrogateescape")
            assert len(raw) <= 255, f"{name} is a shortstr"
            parts += (bytes((len(raw),)), raw)
    return _FLAGS.pack(flags) + b"".join(parts)


def decode_properties(data: bytes, pos: int, end: int) -> Properties:
    """Read flags and values between `pos` and `end`.

    Errors: ProtocolError INTERNAL_ERROR if they aren't well-formed or don't end at `end`.
    """
    found: dict[str, Any] = {}
    try:
        (flags,) = _FLAGS.unpack_from(data, pos)
        pos += 2
        for name, bit in _BITS.items():
            if not flags & bit:
                continue
            if name == "headers":
                found[name], pos = decode_table(data, pos, end)
            elif name == "timestamp":
                (found[name],) = _TIMESTAMP.unpack_from(data, pos)
                pos += 8
            elif name in _OCTETS:
                found[name] = data[pos]
                pos += 1
            else:
                found[name], pos = _shortstr(data, pos)
    except (IndexError, struct_error, ProtocolError):
        raise _malformed() from None
    if pos != end:
        raise _malformed()
    return Properties(**found)


def read_headers(data: bytes, pos: int, names: Collection[bytes]) -> Table:
    """Return the headers with these names, from the flags and values at `pos`, which passed `read_traits`."""
    (flags,) = _FLAGS.unpack_from(data, pos)
    if not flags & _BITS["headers"]:
        return {}
    pos += 2
    for name in _BEFORE_HEADERS:
        if flags & _BITS[name]:
            pos += 1 + data[pos]
    return pick_fields(data, pos, names)


def read_traits(data: bytes, pos: int, end: int) -> Traits:
    """Return the traits from the flags and values between `pos` and `end`, and check them all.

    Returns the very objects TRANSIENT or PERSISTENT if the message has no other traits.
    Errors: as `decode_properties`, for the same bytes.
    """
    selected: Traits | None = None
    delivery_mode = priority = expiration = user_id = reply_to = None
    try:
        first, second = data[pos], data[pos + 1]
        pos += 2
        if pos == end and not first and second < _SECOND_LOWEST:
            return TRANSIENT
        for step in _FIRST_STEPS[first]:
            if step == _SKIP:
                pos += 1 + data[pos]
            elif step == _DELIVERY_MODE:
                delivery_mode = data[pos]
                pos += 1
            elif step == _HEADERS:
                start = pos
                pos = check_table(data, start, end)
                # Finds BCC as well, and mostly spares the decoding.
                if data.find(b"CC", start, pos) >= 0:
                    selected = _sender_selected(decode_table(data, start, end)[0])
            elif step == _PRIORITY:
                priority = data[pos]
                pos += 1
            elif step == _REPLY_TO:
                reply_to, pos = _shortstr(data, pos)
            else:
                expiration, pos = _shortstr(data, pos)
        for step in _SECOND_STEPS[second]:
            if step == _SKIP:
                pos += 1 + data[pos]
            elif step == _TIMESTAMP_STEP:
                pos += 8
            else:
                user_id, pos = _shortstr(data, pos)
    except (IndexError, ProtocolError):
        raise _malformed() from None
    if pos != end:
        raise _malformed()
    if delivery_mode == TRANSIENT_MODE:
        delivery_mode = None
    if selected is None and not first & _FIRST_OF_INTEREST and not second & _SECOND_OF_INTEREST:
        if delivery_mode is None:
            return TRANSIENT
        if delivery_mode == PERSISTENT_MODE:
            return PERSISTENT
    direct_reply = reply_to if reply_to == REPLY_TO_PSEUDO_QUEUE else None
    cc, bcc, bad = (selected or TRANSIENT)[5:]
    traits = Traits(delivery_mode, priority, expiration, user_id, direct_reply, cc, bcc, bad)
    return _PLAIN.get(traits, traits)


def _sender_selected(headers: Table) -> Traits:
    """Return the part of the traits that the headers CC and BCC decide."""
    keys: dict[str, tuple[str, ...]] = {}
    for name in ("CC", "BCC"):
        field = headers.get(name)
        if field is None:
            continue
        if not isinstance(field.value, list):
            return Traits(bad_sender_selected=(name, type_name(field.tag)))
        keys[name] = tuple(_text(entry) for entry in field.value if entry.tag == "S")
    return Traits(cc=keys.get("CC", ()), bcc=keys.get("BCC"))


def _text(field: Field) -> str:
    assert isinstance(field.value, bytes)
    return field.value.decode("utf-8", "surrogateescape")


def _shortstr(data: bytes, pos: int) -> tuple[str, int]:
    end = pos + 1 + data[pos]
    return data[pos + 1 : end].decode("utf-8", "surrogateescape"), end


def _malformed() -> ProtocolError:
    return ProtocolError(ReplyCode.INTERNAL_ERROR)
