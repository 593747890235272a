"""The way of each queue: by a shovel from the start on, by one that waits for the queue's consumers to leave, or not.

A shovel that runs beside consumers takes every other message from them, and the order of the queue is gone. So a queue
that has consumers is moved when they have left. A queue that is deleted with its last consumer is the exception: its
messages would be deleted, too, so that the shovel comes before the consumers go.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from node.catalogue.names import RESERVED_PREFIX
from node.catalogue.patterns import compile_pattern, encode_name
from node.migrate.findings import Finding
from node.migrate.queues import Key, Queue

Way = Literal["now", "after-consumers", "stays"]

DOWN: Final = frozenset({"down", "crashed", "stopped", "minority"})
"""States of queues from which nothing can be consumed."""


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """The way of one queue.

    reason: why it stays, or why the shovel does not wait for its consumers.   consumers: connections of clients.
    """

    queue: Queue
    way: Way
    reason: str = ""
    consumers: int = 0

    @property
    def key(self) -> Key:
        """The queue's vhost and name."""
        return self.queue.key


@dataclass(frozen=True, slots=True)
class Selection:
    """The queues that are to move at a time.

    vhosts: names; none for all.   pattern: a regular expression that finds names of queues; empty for all.
    """

    vhosts: tuple[str, ...] = ()
    pattern: str = ""

    def takes(self, queues: Iterable[Queue]) -> Iterator[Queue]:
        """Yield the queues that are selected. Raises: PatternInvalid."""
        is_found = compile_pattern(self.pattern) if self.pattern else None
        for queue in queues:
            if self.vhosts and queue.vhost not in self.vhosts:
                continue
            if is_found is None or is_found(encode_name(queue.name)):
                yield queue


def queue_plan(queue: Queue, consumers: int, left: Collection[Key]) -> QueuePlan:
    """Return the way of a queue.   consumers: the connections of clients that consume.   left: not in the import."""
    if queue.exclusive:
        return QueuePlan(
            queue, "stays", "is exclusive: it goes with its connection, and its client declares it anew"
        )
    if queue.name.startswith(RESERVED_PREFIX):
        return QueuePlan(
            queue, "stays", "has a name of the broker's: its client declares one of its own anew"
        )
    if queue.type == "stream":
        return QueuePlan(queue, "stays", "is a stream, which is not supported")
    if queue.key in left:
        return QueuePlan(queue, "stays", "is not taken by the import")
    if queue.state in DOWN:
        return QueuePlan(queue, "stays", f"is {queue.state} at RabbitMQ")
    if queue.auto_delete and consumers:
        reason = "is deleted with its last consumer, so the shovel comes before"
        return QueuePlan(queue, "now", reason, consumers)
    return QueuePlan(queue, "after-consumers" if consumers else "now", consumers=consumers)


def way_findings(plans: Iterable[QueuePlan]) -> Iterator[Finding]:
    """Yield a finding for each queue that stays; the messages in it are what is lost."""
    for plan in plans:
        queue = plan.queue
        if plan.way == "stays":
            own = queue.exclusive or queue.name.startswith(RESERVED_PREFIX)
            loses = queue.messages > 0 or not own
            what = f"; {queue.messages:,} messages are in it" if queue.messages else ""
            yield Finding(
                "note" if own else "blocks" if loses else "note",
                "queue",
                queue.name,
                f"stays: {plan.reason}{what}",
                queue.vhost,
            )
        elif plan.reason:
            yield Finding("differs", "queue", queue.name, f"{plan.reason}: order may suffer", queue.vhost)
