"""Messages that are held until the time in one of their headers: which header, and what time it means.

    queue with x-hold-until-header ──► the exchange `amq.hold.HEADER` of its vhost, whose waiting queue keeps them
    delayed exchange with the same ──► its own waiting queue

Such a header may have a text by ISO 8601 (`2026-11-28T12:00:00+01:00`; without an offset it is UTC), as Celery's `eta`
is, or a number of seconds since 1970. Any other value, and no such header, hold nothing.
Source: docs/delayed.md, "Hold until a time".
"""

import re
from datetime import UTC, datetime
from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Field, Table

HOLD_ARGUMENT: Final = "x-hold-until-header"
"""The argument of queues and of delayed exchanges with the name of the header; `hold-until-header` in policies."""

HEADER_MAX_BYTES: Final = 128
"""The longest name of a header: the names of an exchange and a queue are made of it, and have 255 octets at most."""

_PREFIX: Final = "amq.hold."
"""The start of the names of holding exchanges: clients can't declare names that start with `amq.`."""

_INTEGERS: Final = frozenset("bBsuIilT")
_TEXT_MAX_BYTES: Final = 64
_SECONDS_MAX: Final = 1 << 40
"""Numbers above this, some 35,000 years, are no times."""

_ISO: Final = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,+-]{2,40}Z?")


def holding_exchange(header: str) -> str:
    """Return the name of the exchange that keeps messages for queues until the time in this header."""
    return _PREFIX + header


def is_holding_exchange(exchange: str) -> bool:
    """True if an exchange of this name keeps messages for queues."""
    return exchange.startswith(_PREFIX)


def is_header_name(name: str) -> bool:
    """True if a header of this name may hold messages."""
    return 0 < len(name.encode("utf-8", "surrogateescape")) <= HEADER_MAX_BYTES


def hold_header(arguments: Table) -> str | None:
    """Return the name of the header in the arguments of a queue or an exchange."""
    field = arguments.get(HOLD_ARGUMENT)
    if field is None or not isinstance(field.value, bytes):
        return None
    return field.value.decode("utf-8", "surrogateescape")


def check_hold_argument(arguments: Table) -> None:
    """Check the argument of a new delayed exchange. Raises: ProtocolError 406."""
    field = arguments.get(HOLD_ARGUMENT)
    if field is None:
        return
    name = hold_header(arguments)
    if field.tag != "S" or name is None or not is_header_name(name):
        text = f"Invalid argument, '{HOLD_ARGUMENT}' must be the name of a header"
        raise ProtocolError(ReplyCode.PRECONDITION_FAILED, text)


def hold_time_ms(field: Field | None) -> int | None:
    """Return the time that a header means, in milliseconds since 1970, rounded up; None: it means none."""
    if field is None:
        return None
    tag, value = field
    if tag in _INTEGERS or tag in "df":
        assert isinstance(value, int | float)
        return -int(-value * 1000 // 1) if 0 <= value <= _SECONDS_MAX else None
    if tag != "S" or not isinstance(value, bytes) or len(value) > _TEXT_MAX_BYTES:
        return None
    if _ISO.fullmatch(value) is None:
        return None
    try:
        found = datetime.fromisoformat(value.decode("ascii"))
    except ValueError:
        return None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    seconds = found - datetime(1970, 1, 1, tzinfo=UTC)
    return -((-seconds.days * 86_400_000_000 - seconds.seconds * 1_000_000 - seconds.microseconds) // 1000)
