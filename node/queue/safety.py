"""What has to wait for the disk, and waiting for it as a handler does."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from node.queue.storage import Storage

if TYPE_CHECKING:
    from node.queue.queue import Queue


def is_any_durable(queues: "Iterable[Queue]") -> bool:
    """Whether persistent messages to these queues have to reach the disk."""
    return any(queue.is_durable for queue in queues)


class Safety:
    """`is_safe = yield Safety(storage)`: waits until all that queues have kept is on disk, or never will be."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._on_settled: Callable[[Any], None] | None = None

    def __call__(self, on_settled: Callable[[Any], None]) -> None:
        """Begin to wait."""
        self._on_settled = on_settled
        self._storage.await_safety(self, 0, 0)

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """See `Waiter.settle`."""
        assert self._on_settled is not None
        self._on_settled(is_safe)
