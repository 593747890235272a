"""The status of a queue: how its messages are spread over memory and disk, and how fast they come and go.

The names are RabbitMQ's, of its queues of version 1. Source: management §1.3 (`backing_queue_status`);
amqp-behaviour §7.3.
"""

from typing import NamedTuple

from node.catalogue.records import Json
from node.queue.priority_backlog import PriorityBacklog
from node.queue.queue import Queue


class _Totals(NamedTuple):
    """The messages since the queue was declared: came in, left ready, went out to be acknowledged, were settled."""

    ingress: int
    egress: int
    ack_ingress: int
    ack_egress: int


class QueueStatus:
    """The status of one queue. Its rates are those between the last two calls of `sample`.   now: seconds."""

    def __init__(self, queue: Queue, now: float) -> None:
        self._queue = queue
        self._at = now
        self._totals = _totals(queue)
        self._rates = (0.0, 0.0, 0.0, 0.0)

    def sample(self, now: float) -> None:
        """Compute the rates since the last call."""
        totals = _totals(self._queue)
        if now > self._at:
            ingress, egress, ack_ingress, ack_egress = (
                max(0, new - old) / (now - self._at) for new, old in zip(totals, self._totals, strict=True)
            )
            self._rates = (ingress, egress, ack_ingress, ack_egress)
        self._at, self._totals = now, totals

    def as_json(self) -> dict[str, Json]:
        """Return the object `backing_queue_status`."""
        queue = self._queue
        lengths = queue.backlog.lengths()
        ingress, egress, ack_ingress, ack_egress = self._rates
        status: dict[str, Json] = {
            "mode": queue.settings.queue_mode,
            "version": 1,
            "q1": lengths["q1"],
            "q2": lengths["q2"],
            # Where it begins and ends isn't told: it is a number of segments, not a range.
            "delta": ["delta", "undefined", lengths["delta"], 0, "undefined"],
            "q3": lengths["q3"],
            "q4": lengths["q4"],
            "len": queue.backlog.count,
            "target_ram_count": "infinity" if queue.settings.queue_mode == "default" else 0,
            "next_seq_id": queue.next_seq,
            "avg_ingress_rate": ingress,
            "avg_egress_rate": egress,
            "avg_ack_ingress_rate": ack_ingress,
            "avg_ack_egress_rate": ack_egress,
        }
        if isinstance(queue.backlog, PriorityBacklog):
            status["priority_lengths"] = {
                str(priority): count for priority, count in queue.backlog.priority_lengths().items()
            }
        return status

    def counts(self) -> dict[str, int]:
        """Return the numbers and bytes of messages, in memory and on disk."""
        queue = self._queue
        lengths = queue.backlog.lengths()
        in_memory, paged = lengths["q1"] + lengths["q4"], lengths["q2"] + lengths["delta"] + lengths["q3"]
        return {
            "messages_ready": queue.backlog.count,
            "messages_unacknowledged": queue.unacked_count,
            "messages_ready_ram": in_memory,
            "messages_unacknowledged_ram": queue.unacked_count,
            "messages_ram": in_memory + queue.unacked_count,
            "messages_paged_out": paged,
            "message_bytes_ready": queue.backlog.body_bytes,
            "message_bytes_unacknowledged": queue.unacked_bytes,
        }


def _totals(queue: Queue) -> _Totals:
    ingress = queue.next_seq - 1
    return _Totals(ingress, ingress - queue.backlog.count, queue.delivered_count, queue.settled_count)
