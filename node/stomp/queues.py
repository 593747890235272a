"""The queues of destinations: their names, how they are declared, and their arguments from `x-` headers.

A subscription to a topic or an exchange has a queue of its own. The name of a durable one follows from the destination
and the subscription's id, by RabbitMQ's rule: so a subscription that was made with RabbitMQ finds its queue.
Source: RabbitMQ 3.10.8, `rabbit_stomp_util`, `rabbit_routing_util`; Erlang's external term format.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import md5
from typing import Final

from node.plugins import Field, Table, longstr
from node.stomp.destinations import EXCHANGE, QUEUE, TOPIC, Destination
from node.stomp.errors import StompError
from node.stomp.properties import boolean_header, checked_text, integer_header

SUBSCRIPTION_PREFIX: Final = "stomp-subscription"

_TEXTS: Final = ("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-queue-type")
_NUMBERS: Final = ("x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority", "x-message-ttl")
_LONG_MAX: Final = (1 << 63) - 1

_STRING_MAX: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration of a queue."""

    queue: str
    is_durable: bool
    is_exclusive: bool
    is_auto_delete: bool
    arguments: Table = field(default_factory=dict)


def declaration(destination: Destination, headers: Mapping[str, str], unique: bytes) -> Declaration:
    """Return the declaration of the queue of a destination: a queue, or the one of a subscription.

    unique: random bytes, for the name of a queue that nothing else names.   Raises: StompError.
    """
    is_queue = destination.kind == QUEUE
    durable = is_queue
    for name in headers:  # the last one of the two counts
        if name in ("durable", "persistent"):
            durable = bool(boolean_header(headers, name))
    exclusive, auto_delete = (False, True) if not is_queue else (not durable, not durable)
    if "exclusive" in headers:
        exclusive = _flag(headers, "exclusive", default=not durable)
    if "auto-delete" in headers:
        auto_delete = _flag(headers, "auto-delete", default=not durable)
    queue = destination.name if is_queue else subscription_queue(destination, headers, unique)
    return Declaration(queue, durable, exclusive, auto_delete, queue_arguments(headers))


def _flag(headers: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = boolean_header(headers, name)
    return default if value is None else value


def subscription_queue(destination: Destination, headers: Mapping[str, str], unique: bytes) -> str:
    """Return the name of the queue of a subscription to a topic or an exchange."""
    assert destination.kind in (TOPIC, EXCHANGE)
    given = headers.get("x-queue-name")
    if given is not None:
        return checked_text("x-queue-name", given)
    if is_durable(headers):
        name = destination.name if destination.kind == TOPIC else destination.key or ""
        unique = md5(_term(name, headers["id"]), usedforsecurity=False).digest()
    return f"{SUBSCRIPTION_PREFIX}-{short_text(unique)}"


def is_durable(headers: Mapping[str, str]) -> bool:
    """True if a subscription is to outlive its connection."""
    return bool(boolean_header(headers, "durable") or boolean_header(headers, "persistent"))


def check_durable(headers: Mapping[str, str]) -> None:
    """Refuse a durable subscription without an id. Raises: StompError."""
    if is_durable(headers) and "id" not in headers:
        raise StompError("Missing Header", "Header 'id' is required for durable subscriptions")


def queue_arguments(headers: Mapping[str, str]) -> Table:
    """Return the arguments of a queue that a frame's headers name. Raises: StompError."""
    arguments: Table = {}
    for name in headers:
        if name in _TEXTS:
            arguments[name] = longstr(headers[name].strip(" "))
        elif name in _NUMBERS:
            arguments[name] = Field("l", integer_header(headers, name, _LONG_MAX))
    return arguments


def short_text(data: bytes) -> str:
    """Return bytes as a text that is short and can stand in a name."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _term(*texts: str) -> bytes:
    """Return a tuple of texts as `erlang:term_to_binary` writes it."""
    return b"\x83h" + bytes([len(texts)]) + b"".join(map(_term_of_text, texts))


def _term_of_text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    if not data:
        return b"j"
    if len(data) <= _STRING_MAX:
        return b"k" + len(data).to_bytes(2, "big") + data
    octets = b"".join(b"a" + bytes([octet]) for octet in data)
    return b"l" + len(data).to_bytes(4, "big") + octets + b"j"
