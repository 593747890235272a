"""Headers of SEND frames to AMQP properties, and back to headers of MESSAGE frames, as RabbitMQ's plug-in maps them.

Every header of a SEND frame that is no property becomes a header of the message, `receipt` and `content-length`
included. Of a message's headers texts and whole numbers of 32 and 64 bits are shown to STOMP clients.
Source: RabbitMQ 3.10.8, `rabbit_stomp_util`.
"""

from collections.abc import Mapping
from typing import Final

from node.plugins import Properties, longstr
from node.stomp.decoder import CONTENT_LENGTH
from node.stomp.destinations import REPLY_PREFIX, SENT_PREFIXES
from node.stomp.errors import StompError, bad_value

PERSISTENT: Final = 2

TEXT_MAX_BYTES: Final = 255
"""The length of a property, of a header's name, and of names of queues and exchanges: the limit of AMQP."""

_TEXTS: Final = {
    "content-type": "content_type",
    "content-encoding": "content_encoding",
    "correlation-id": "correlation_id",
    "reply-to": "reply_to",
    "expiration": "expiration",
    "amqp-message-id": "message_id",
    "type": "type",
    "user-id": "user_id",
    "app-id": "app_id",
}
_NUMBERS: Final = {"priority": ("priority", 255), "timestamp": ("timestamp", (1 << 64) - 1)}
_NO_HEADERS: Final = frozenset({*_TEXTS, *_NUMBERS, "persistent", "destination"})

_SHOWN: Final = (
    ("app-id", "app_id"),
    ("user-id", "user_id"),
    ("type", "type"),
    ("timestamp", "timestamp"),
    ("amqp-message-id", "message_id"),
    ("expiration", "expiration"),
    ("reply-to", "reply_to"),
    ("correlation-id", "correlation_id"),
    ("priority", "priority"),
    ("persistent", "delivery_mode"),
    ("content-encoding", "content_encoding"),
    ("content-type", "content_type"),
)
"""Headers of MESSAGE frames in RabbitMQ's order, and the properties that they have."""

_BOOLEANS: Final = {"true": True, "True": True, "false": False, "False": False}


def boolean_header(headers: Mapping[str, str], name: str) -> bool | None:
    """Return the value of a header that is true or false; None if it is neither."""
    return _BOOLEANS.get(headers.get(name, ""))


def integer_header(headers: Mapping[str, str], name: str, maximum: int) -> int | None:
    """Return the value of a header that is a number; None without it. Raises: StompError."""
    text = headers.get(name)
    if text is None:
        return None
    digits = text.strip(" ")
    if (
        not digits.isascii()
        or not digits.isdigit()
        or len(digits) > len(str(maximum))
        or int(digits) > maximum
    ):
        raise bad_value(name, f"0 to {maximum}")
    return int(digits)


def checked_text(name: str, text: str) -> str:
    """Return a text that AMQP can carry as a property, or as a name. Raises: StompError."""
    if len(text.encode("utf-8", "surrogateescape")) > TEXT_MAX_BYTES:
        raise bad_value(name, f"at most {TEXT_MAX_BYTES} bytes")
    return text


def sent_properties(headers: Mapping[str, str]) -> Properties:
    """Return the properties of a SEND frame. Raises: StompError."""
    properties = Properties()
    others = {}
    for name, value in headers.items():
        if name not in _NO_HEADERS:
            others[checked_text("name of a header", name)] = longstr(value)
        elif name in _TEXTS:
            setattr(properties, _TEXTS[name], checked_text(name, value))
        elif name in _NUMBERS:
            attribute, maximum = _NUMBERS[name]
            setattr(properties, attribute, integer_header(headers, name, maximum))
    properties.headers = others
    if boolean_header(headers, "persistent"):
        properties.delivery_mode = PERSISTENT
    return properties


def shown_headers(properties: Properties) -> list[tuple[str, str]]:
    """Return the headers of a MESSAGE frame that a message's properties have."""
    shown: list[tuple[str, str]] = []
    for name, field in (properties.headers or {}).items():
        if field.tag == "S" and isinstance(field.value, bytes):
            shown.append((name, field.value.decode("utf-8", "surrogateescape")))
        elif field.tag in ("I", "l"):
            shown.append((name, str(field.value)))
    for name, attribute in _SHOWN:
        value = getattr(properties, attribute)
        if value is None:
            continue
        if name == "persistent":
            if value == PERSISTENT:
                shown.append((name, "true"))
        else:
            shown.append((name, str(value)))
    return [
        (name, _reply_to(value) if name == "reply-to" else value)
        for name, value in shown
        if name != CONTENT_LENGTH and "\0" not in name and "\0" not in value and name
    ]


def _reply_to(value: str) -> str:
    return value if value.startswith(SENT_PREFIXES) else REPLY_PREFIX + value


def refused_header(name: str, command: str) -> StompError:
    """Return the fault of a header that a frame must not have."""
    return StompError("Invalid header", f"'{name}' is not allowed on '{command}'.\n")
