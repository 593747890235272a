"""Read values of definitions documents, with RabbitMQ's texts for faulty ones.

RabbitMQ's command line exports nested objects as lists of pairs, and empty ones as empty lists; where an object is
due, both are taken for one. Source: management §2.2.
"""

from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from node.catalogue.patterns import PatternInvalid, compile_pattern
from node.catalogue.records import Json

Item: TypeAlias = Mapping[str, Any]
"""An object of a document: one user, one queue …"""

DEPTH_MAX: Final = 64
"""How deep objects and lists may be nested in a value that the broker does not interpret."""

ReturnT = TypeVar("ReturnT")

NAME_BYTES_MAX: Final = 255
"""The longest name in AMQP's short strings."""


class DefinitionsInvalid(Exception):
    """The document cannot be imported.   reason: a text, or what RabbitMQ has in its place: `["not_base64", "#"]`."""

    def __init__(self, reason: "str | list[Json]") -> None:
        super().__init__(reason)
        self.reason = reason


class Unsupported(DefinitionsInvalid):
    """An item needs a feature that RabbitMQ, or a plug-in of it, has and this broker has not."""


def finish(steps: Generator[None, None, ReturnT]) -> ReturnT:
    """Run a generator of steps to its end at once, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: ReturnT = end.value
            return found


def items(document: Item, section: str) -> list[Item]:
    """Return the objects of a section; none without one. Raises: DefinitionsInvalid."""
    found = document.get(section)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise DefinitionsInvalid(f"{section} must be a list of objects")
    return found


def text(item: Item, key: str, noun: str) -> str:
    """Return the text of a key that must be there. Raises: DefinitionsInvalid.   noun: the kind of the item."""
    value = item.get(key)
    if not isinstance(value, str):
        raise DefinitionsInvalid(f"{key} of a {noun} must be a string: {shown(item)}")
    return value


def name(item: Item, key: str, noun: str) -> str:
    """Return a text, like `text`, that fits AMQP's short strings. Raises: DefinitionsInvalid."""
    value = text(item, key, noun)
    if not value or len(value.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        raise DefinitionsInvalid(f"{key} of a {noun} must have 1 to {NAME_BYTES_MAX} bytes: {shown(item)}")
    return value


def flag(item: Item, key: str, noun: str, default: bool | None = None) -> bool:
    """Return true or false; the key must be there unless there is a default. Raises: DefinitionsInvalid."""
    value = item.get(key, default)
    if not isinstance(value, bool):
        raise DefinitionsInvalid(f"{key} of a {noun} must be true or false: {shown(item)}")
    return value


def check_depth(value: Json) -> None:
    """Refuse a value that is nested too deep to be written or sent on. Raises: DefinitionsInvalid."""
    if is_deeper(value, DEPTH_MAX):
        raise DefinitionsInvalid("the value is nested too deep")


def is_deeper(value: object, depth_max: int) -> bool:
    """True if objects and arrays are nested deeper than that."""
    level = [value]
    for _ in range(depth_max):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return any(isinstance(each, dict | list) for each in level)


def check_patterns(patterns: Iterable[str]) -> None:
    """Refuse texts that are no regular expressions. Raises: DefinitionsInvalid."""
    for pattern in patterns:
        try:
            compile_pattern(pattern)
        except PatternInvalid as invalid:
            reason: list[Json] = ["invalid_regexp", pattern, [invalid.reason, invalid.position]]
            raise DefinitionsInvalid(reason) from None


def plain_object(value: Json) -> Json:
    """Return an empty list and a list of pairs as the objects that they stand for; all else as it is."""
    if isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    ):
        return {str(pair[0]): pair[1] for pair in value if isinstance(pair, list)}
    return value


def shown(item: Item) -> str:
    """Return a text that identifies an item, for a message."""
    found = {key: item[key] for key in ("name", "vhost", "user", "source", "destination") if key in item}
    return str(found)[:300]
