"""Retaining exchanges: type `x-retained`, which keeps the last message of each routing key.

A new binding from the exchange gets the messages that it keeps and whose routing keys match the binding's, as a topic
exchange matches; an empty message ends what is kept for its key. The exchange routes nothing: MQTT's retained messages
are published to it beside the exchange of the subscriptions. The plug-in for MQTT declares it.
Source: MQTT 5.0, chapter 3.3.1.3; docs/mqtt.md.
"""

from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.catalogue.arguments import print_value

RETAINED_TYPE: Final = "x-retained"

LENGTH: Final = "x-max-length"
"""The argument with the number of routing keys for which a message is kept."""

DEFAULT_LENGTH: Final = 1_000_000

_INTEGERS: Final = frozenset("bsIl")


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
    """Return the number of routing keys for which a message is kept."""
    field = arguments.get(LENGTH)
    return field.value if field is not None and isinstance(field.value, int) else DEFAULT_LENGTH


def words_of(key: str) -> tuple[str, ...]:
    """Return the words of a routing key or binding key; an empty one has none."""
    return tuple(key.split(".")) if key else ()


def matches(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """True if the words of a routing key match those of a binding key: `*` is one word, `#` any number of them."""
    if "#" not in pattern:
        return len(pattern) == len(words) and all(
            want in ("*", word) for want, word in zip(pattern, words, strict=True)
        )
    first = pattern.index("#")
    if first == len(pattern) - 1:  # the only `#` that MQTT's filters have
        return len(words) >= first and all(
            want in ("*", word) for want, word in zip(pattern[:first], words, strict=False)
        )
    # Which lengths of the key's beginning the pattern's beginning can match; a step for each of its words.
    reached = {0}
    for want in pattern:
        if want == "#":
            reached = set(range(min(reached), len(words) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(words) and want in ("*", words[at])}
    return len(words) in reached
