"""Bindings, messages and surroundings for tests of exchange types."""

from collections.abc import Iterable

from node.plugins import Binding, Destination, ExchangeIndex, Message, Surroundings, Table


def to_queue(name: str, key: str = "", arguments: Table | None = None) -> Binding:
    return Binding("/", "e", "queue", name, key, arguments or {})


def to_exchange(name: str, key: str = "") -> Binding:
    return Binding("/", "e", "exchange", name, key)


def surroundings(draws: Iterable[int] = (), reachable: str = "", local: str = "") -> Surroundings:
    """Surroundings with queues of single letters.   draws: the numbers of random choices, modulo their bounds."""
    numbers = iter(draws)
    return Surroundings(
        lambda bound: next(numbers) % bound, lambda name: name in reachable, lambda name: name in local
    )


def names(index: ExchangeIndex, message: Message) -> list[str]:
    """Return the names of the destinations of a message."""
    found = list(index.route(message))
    assert all(isinstance(each, Destination) for each in found)
    return [each.name for each in found]
