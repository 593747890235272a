"""Messages as the HTTP API shows them: their properties, and their payloads as text."""

import base64
from typing import Any, Final

from node.amqp.plain import plain_table
from node.amqp.properties import Properties

PROPERTIES: Final = tuple(Properties.__dataclass_fields__)
"""The names of all properties."""


def shown_properties(value: Properties) -> dict[str, Any]:
    """Return the properties that a message has."""
    found = {key: getattr(value, key) for key in PROPERTIES if getattr(value, key) is not None}
    if value.headers is not None:
        found["headers"] = plain_table(value.headers)
    return found


def encoded(payload: bytes, encoding: str) -> tuple[str, str]:
    """Return the payload as text, and its encoding.   encoding: as asked for: `auto` or `base64`."""
    if encoding == "auto":
        try:
            return payload.decode(), "string"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(payload).decode(), "base64"
