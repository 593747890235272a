"""An exchange that keeps messages has an argument that says how many."""

from typing import Final, NamedTuple

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.catalogue.arguments import print_value

_INTEGERS: Final = frozenset("bsIl")
"""RabbitMQ's plug-in for recent history takes signed integers only."""


class KeptLength(NamedTuple):
    """The argument with the number of what is kept.   default: the number without it."""

    argument: str
    default: int

    def check(self, arguments: Table) -> None:
        """Check the arguments of a new exchange. Raises: ProtocolError 406."""
        field = arguments.get(self.argument)
        if field is None or (field.tag in _INTEGERS and isinstance(field.value, int) and field.value > 0):
            return
        start = "Invalid argument "
        text = f"{start}{print_value(field, start)}, '{self.argument}' must be a positive integer"
        raise ProtocolError(ReplyCode.PRECONDITION_FAILED, text)

    def only(self, arguments: Table) -> Table:
        """Return the arguments that the exchange's queue must know: this one, if it is there."""
        return {self.argument: arguments[self.argument]} if self.argument in arguments else {}

    def of(self, arguments: Table) -> int:
        """Return the number of what is kept."""
        field = arguments.get(self.argument)
        return field.value if field is not None and isinstance(field.value, int) else self.default
