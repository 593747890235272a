"""Recent-history exchanges: type `x-recent-history`, which gives the last messages to each new binding.

The exchange routes like a fanout. It keeps the last `x-recent-history-length` messages, 20 by default, without those
that have the header `x-recent-history-no-store`, and publishes them to the destination of each new binding.
Source: RabbitMQ's plug-in rabbitmq_recent_history_exchange, code and live; docs/recent_history.md.
"""

from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Field, Table
from node.catalogue.arguments import print_value

HISTORY_TYPE: Final = "x-recent-history"

LENGTH: Final = "x-recent-history-length"
"""The argument with the number of messages that are kept."""

NO_STORE: Final = "x-recent-history-no-store"
"""The header of a message that is not to be kept: a boolean, true."""

DEFAULT_LENGTH: Final = 20

_INTEGERS: Final = frozenset("bsIl")
"""RabbitMQ takes signed integers only."""


def check_arguments(arguments: Table) -> None:
    """Check the arguments of a new exchange. Raises: ProtocolError 406."""
    field = arguments.get(LENGTH)
    if field is None or (field.tag in _INTEGERS and isinstance(field.value, int) and field.value > 0):
        return
    start = "Invalid argument "
    text = f"{start}{print_value(field, start)}, '{LENGTH}' must be a positive integer"
    raise ProtocolError(ReplyCode.PRECONDITION_FAILED, text)


def queue_arguments(arguments: Table) -> Table:
    """Return the arguments that the exchange's queue must know."""
    return {LENGTH: arguments[LENGTH]} if LENGTH in arguments else {}


def length_of(arguments: Table) -> int:
    """Return the number of messages that are kept."""
    field: Field | None = arguments.get(LENGTH)
    return field.value if field is not None and isinstance(field.value, int) else DEFAULT_LENGTH
