"""The limits of a queue: when a message in it expires, and when there is no room for one more.

Source: amqp-behaviour §5.1, §5.2, §5.4.
"""

from typing import Protocol

from node.catalogue.policy import QueueSettings
from node.queue.letters import Letters
from node.queue.run import NEVER, Envelope, Run


class Measured(Protocol):
    """The ready messages of a queue, as far as they are counted."""

    @property
    def count(self) -> int:
        """The number of messages."""

    @property
    def body_bytes(self) -> int:
        """The number of bytes of their bodies."""


def expiry_of(settings: QueueSettings, envelope: Envelope, now: float) -> float:
    """Return when messages expire that come into the queue now; `NEVER` if they don't."""
    ttl = settings.message_ttl
    if envelope.expiration_ms is not None:
        ttl = envelope.expiration_ms if ttl is None else min(ttl, envelope.expiration_ms)
    return NEVER if ttl is None else now + ttl / 1000


def is_full_for(message: Run, settings: QueueSettings, ready: Measured, letters: Letters) -> bool:
    """Return True if a queue that refuses messages for its length has no room for one more."""
    count, body_bytes = ready.count + letters.count, ready.body_bytes + letters.body_bytes
    return (settings.max_length is not None and count + 1 > settings.max_length) or (
        settings.max_length_bytes is not None and body_bytes + message.body_bytes > settings.max_length_bytes
    )


def is_over_limit(settings: QueueSettings, ready: Measured) -> bool:
    """Return True if a queue that drops messages for its length has too many."""
    return settings.overflow == "drop-head" and (
        (settings.max_length is not None and ready.count > settings.max_length)
        or (settings.max_length_bytes is not None and ready.body_bytes > settings.max_length_bytes)
    )
