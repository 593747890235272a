"""Messages that wait in a delayed exchange, as JSON: in the HTTP API, for the command line, and between nodes."""

from typing import Any, Final

from node.admin.delayed import WaitingMessage, WaitingPage
from node.management.shown import encoded, shown_properties
from node.queue.content import decode_content

PAYLOAD_MAX: Final = 1024
"""The bytes of a payload that are shown, unless more are asked for."""

PAYLOADS_MAX: Final = 64 * 1024
"""The most bytes of a payload that are shown, so that an answer of 500 messages stays below 64 MiB."""


def page_row(page: WaitingPage, truncate: int) -> dict[str, Any]:
    """Return a page.   truncate: the most bytes of each payload."""
    messages = [message_row(message, min(truncate, PAYLOADS_MAX)) for message in page.messages]
    return {"messages": messages, "next": page.following}


def message_row(message: WaitingMessage, truncate: int) -> dict[str, Any]:
    """Return a message.   due: in milliseconds since 1970."""
    properties, body = decode_content(message.content)
    payload, encoding = encoded(body[:truncate], "auto")
    return {
        "id": message.id,
        "due": message.due_ms,
        "exchange": message.envelope.exchange,
        "routing_key": message.envelope.routing_key,
        "properties": shown_properties(properties),
        "payload_bytes": len(body),
        "payload": payload,
        "payload_encoding": encoding,
    }
