"""Watches over queues of a node: each is called after a turn in which its queue delivered, or could have delivered.

So a watch sees that a queue has become empty, or that a consumer can take messages again. It is found by the name of
the queue, whose live object changes with its master.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from node.queue.queue import Queue

Watch: TypeAlias = Callable[[], None]


class QueueWatches(dict[tuple[str, str], Watch]):
    """The watches by vhost and name of their queues; false while there are none."""

    __slots__ = ()

    def over(self, queues: Iterable[Queue]) -> list[Watch]:
        """Return the watches over these queues."""
        names = ((queue.record.vhost, queue.record.name) for queue in queues)
        return [self[name] for name in names if name in self]
