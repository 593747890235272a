"""Deduplicating exchanges: type `x-message-deduplication`, its arguments, and the headers of messages.

The exchange routes like a fanout. A message whose header `x-deduplication-header` has the value of an earlier one is
not routed, while that value is among the last `x-cache-size` and not older than `x-cache-ttl` milliseconds.
Source: documentation and code of RabbitMQ's community plug-in rabbitmq_message_deduplication; docs/deduplication.md.
"""

import re
from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Field, Table

DEDUPLICATION_TYPE: Final = "x-message-deduplication"

CACHE_SIZE: Final = "x-cache-size"
CACHE_TTL: Final = "x-cache-ttl"
CACHE_PERSISTENCE: Final = "x-cache-persistence"
"""Arguments of the exchange. `x-cache-ttl` is a header of messages, too, which comes before the argument."""

CACHE_SIZE_MAX: Final = 100_000_000
"""The largest window: some 15 GB of memory."""

CACHE_TTL_MAX_MS: Final = 315360000000
"""Ten years, RabbitMQ's limit for every time to live."""

_INTEGERS: Final = frozenset("bBsuIil")
_DIGITS: Final = re.compile(rb"[+-]?[0-9]{1,18}")
_PERSISTENCES: Final = (b"memory", b"disk")


def check_arguments(arguments: Table) -> None:
    """Check the arguments of a new exchange. Raises: ProtocolError 406."""
    size, ttl = arguments.get(CACHE_SIZE), arguments.get(CACHE_TTL)
    persistence = arguments.get(CACHE_PERSISTENCE)
    if not _is_number_up_to(size, CACHE_SIZE_MAX):
        raise _refused(f"Missing or invalid argument, '{CACHE_SIZE}' must be an integer greater than 0")
    if ttl is not None and not _is_number_up_to(ttl, CACHE_TTL_MAX_MS):
        raise _refused(f"Invalid argument, '{CACHE_TTL}' must be an integer greater than 0")
    if persistence is not None and (persistence.tag != "S" or persistence.value not in _PERSISTENCES):
        raise _refused(f"Invalid argument, '{CACHE_PERSISTENCE}' must be either 'disk' or 'memory'")


def queue_arguments(arguments: Table) -> Table:
    """Return the arguments that the exchange's queue must know."""
    return {key: arguments[key] for key in (CACHE_SIZE, CACHE_TTL, CACHE_PERSISTENCE) if key in arguments}


def number_of(field: Field | None) -> int | None:
    """Return the number that an argument or a header means, an integer of any type or a text of digits; or None."""
    if field is None:
        return None
    if field.tag in _INTEGERS:
        assert isinstance(field.value, int)
        return field.value
    if isinstance(field.value, bytes) and _DIGITS.fullmatch(field.value):
        return int(field.value)
    return None


def is_on_disk(arguments: Table) -> bool:
    """Return True if the window is to survive a restart of all nodes."""
    persistence = arguments.get(CACHE_PERSISTENCE)
    return persistence is not None and persistence.value == b"disk"


def _is_number_up_to(field: Field | None, maximum: int) -> bool:
    number = number_of(field)
    return number is not None and 0 < number <= maximum


def _refused(text: str) -> ProtocolError:
    return ProtocolError(ReplyCode.PRECONDITION_FAILED, text)
