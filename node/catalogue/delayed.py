"""Delayed exchanges: type `x-delayed-message`, the header `x-delay`, and the queue in which messages wait.

The exchange routes as the type in its argument `x-delayed-type` does. Messages with a delay wait in a queue of the
broker's own, which is made and deleted with the exchange.

Numbers of all integer types count as delay, floats and decimals without their fraction, and texts of digits. A message
without such a header, or with a delay of 0, below 0 or above `DELAY_MAX_MS`, is not delayed.
Source: the documentation and the tests of RabbitMQ's archived plug-in; docs/delayed.md.
"""

import re
from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Field, Table
from node.catalogue.holding import check_hold_argument
from node.catalogue.records import PLAIN_EXCHANGE_TYPES

DELAYED_TYPE: Final = "x-delayed-message"

DELAYED_ARGUMENT: Final = "x-delayed-type"
"""The argument with the exchange type by which messages are routed."""

DELAY_HEADER: Final = "x-delay"

DELAY_MAX_MS: Final = 315360000000
"""Ten years, RabbitMQ's limit for every time to live. Its plug-in ends at 2^32 - 1 ms, some 49 days."""

WAITING_PREFIX: Final = "amq.delayed."
"""The start of the names of waiting queues: clients can't declare names that start with `amq.`."""

_INTEGERS: Final = frozenset("bBsuIil")
_DIGITS: Final = re.compile(rb"[+-]?[0-9]{1,18}")


def waiting_queue(exchange: str) -> str:
    """Return the name of the queue in which the messages of a delayed exchange wait."""
    return WAITING_PREFIX + exchange


def routing_type(arguments: Table) -> str:
    """Return the exchange type by which a delayed exchange routes; empty if its arguments name none."""
    argument = arguments.get(DELAYED_ARGUMENT)
    value = None if argument is None else argument.value
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else ""


def check_arguments(arguments: Table) -> None:
    """Check the arguments of a new delayed exchange.

    Raises: ProtocolError 406 without the argument, where it names the delayed type itself, or for a bad name of a
    header; 503 for an unknown type.
    """
    found = routing_type(arguments)
    if found == DELAYED_TYPE:
        text = f"Invalid argument, '{DELAYED_TYPE}' can't be used for '{DELAYED_ARGUMENT}'"
        raise ProtocolError(ReplyCode.PRECONDITION_FAILED, text)
    if not found:
        text = f"Invalid argument, '{DELAYED_ARGUMENT}' must be an existing exchange type"
        raise ProtocolError(ReplyCode.PRECONDITION_FAILED, text)
    if found not in PLAIN_EXCHANGE_TYPES:
        raise ProtocolError(ReplyCode.COMMAND_INVALID, f"unknown exchange type '{found}'")
    check_hold_argument(arguments)


def delay_ms(headers: Table | None) -> int | None:
    """Return the milliseconds for which a message with these headers is to wait; None: it is not delayed."""
    delay = None if headers is None else delay_number(headers.get(DELAY_HEADER))
    return delay if delay is not None and 0 < delay <= DELAY_MAX_MS else None


def delay_number(field: Field | None) -> int | None:
    """Return the number that a header `x-delay` means; None: it means none."""
    if field is None:
        return None
    tag, value = field
    if tag in _INTEGERS:
        assert isinstance(value, int)
        return value
    if tag in "df":
        assert isinstance(value, float)
        return int(value)
    if tag == "D":
        assert isinstance(value, tuple)
        scale, unscaled = value
        return int(unscaled // 10**scale)
    if tag == "S":
        assert isinstance(value, bytes)
        return int(value) if _DIGITS.fullmatch(value) else None
    return None
