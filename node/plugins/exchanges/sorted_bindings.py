"""The destinations of bindings, in an order that depends on the bindings alone.

It is the order in which RabbitMQ's plug-ins number them: by routing key, then exchanges before queues, then by name.
A destination comes once for each binding.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from node.plugins import Binding, Destination, destination_of

_Entry = tuple[bytes, str, bytes, Destination]


class SortedBindings:
    """The destinations of bindings, sorted."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Destination]:
        return (entry[3] for entry in self._entries)

    def __getitem__(self, number: int) -> Destination:
        return self._entries[number][3]

    def add(self, binding: Binding) -> None:
        """Add the destination of a binding."""
        insort(self._entries, _entry(binding))

    def remove(self, binding: Binding) -> None:
        """Remove the destination of a binding, which was added. One that differs in arguments alone is as good."""
        entry = _entry(binding)
        at = bisect_left(self._entries, entry)
        assert self._entries[at] == entry, binding
        del self._entries[at]


def _entry(binding: Binding) -> _Entry:
    key, name = (
        text.encode("utf-8", "surrogateescape") for text in (binding.routing_key, binding.destination)
    )
    return key, binding.destination_kind, name, destination_of(binding)
