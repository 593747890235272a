"""Waiting, as a handler does, for the disk."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from node.broker.channel import Channel


class Safety:
    """`is_safe = yield Safety(channel)`: waits until all that queues have kept is on disk, or never will be."""

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._on_settled: Callable[[Any], None] | None = None

    def __call__(self, on_settled: Callable[[Any], None]) -> None:
        """Begin to wait."""
        self._on_settled = on_settled
        self._channel.broker.storage.await_safety(self, 0, 0)

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """See `Waiter.settle`."""
        assert self._on_settled is not None
        self._on_settled(is_safe)
