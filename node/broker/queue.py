"""A queue: ready messages, those out with clients, its consumers, and the rules on who gets what and what is
dropped.

Messages are numbered as they come and keep number and place until they are settled; a requeue is no event.
What the queue can't do by itself (dead-lettering, being deleted, waking up) it asks of its host.
Source: amqp-behaviour §3.7-3.13, §4.5-4.11, §5.
"""

from typing import Final, Protocol

from node.broker.backlog import RUN_MAX, Backlog, PriorityBacklog
from node.broker.consumer import Consumer, Consumers
from node.broker.policy import QueueSettings
from node.broker.records import QueueRecord
from node.broker.run import NEVER, Envelope, Run
from node.broker.timers import Timer, Timers

EXPIRED: Final = "expired"
REJECTED: Final = "rejected"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"


class QueueHost(Protocol):
    """What a queue needs of the broker around it."""

    timers: Timers

    def touch(self, queue: "Queue") -> None:
        """There may be something to deliver: call `pump` at the end of the turn."""

    def dead_letter(self, queue: "Queue", run: Run, reason: str, now: float) -> None:
        """Publish messages that left the queue to its dead-letter exchange, if it has one."""

    def queue_unused(self, queue: "Queue", now: float) -> None:
        """Delete the queue: its last consumer left an auto-delete queue, or its time without use is over."""


class Queue:
    """One live queue. `record` is what the catalogue says of it, `settings` what arguments and policies come to."""

    def __init__(self, record: QueueRecord, settings: QueueSettings, host: QueueHost, now: float) -> None:
        self.record = record
        self.settings = settings
        self.backlog: Backlog | PriorityBacklog = (
            Backlog() if settings.max_priority is None else PriorityBacklog(settings.max_priority)
        )
        self.consumers = Consumers(single_active=settings.single_active_consumer)
        self.unacked_count = 0
        self.unacked_bytes = 0
        self.is_deleted = False
        self.count_at_deletion = 0
        """Ready messages that went with the queue."""
        self._host = host
        self._next_seq = 1
        self._had_consumer = False
        self.is_plain = True
        """No rule looks at messages as they come in."""
        self._head_timer: Timer | None = None
        self._unused_timer: Timer | None = None
        self.apply_settings(settings, now)

    def apply_settings(self, settings: QueueSettings, now: float) -> None:
        """Take over changed settings; limits act on what is here, times to live on what comes (§6.2)."""
        self.settings = settings
        self.is_plain = (
            settings.message_ttl is None and settings.max_length is None and settings.max_length_bytes is None
        )
        self._drop_excess(now)
        self._arm_head_timer()
        self.used(now)

    # --- messages in ---

    def publish(self, envelope: Envelope, contents: list[bytes], size: int, now: float) -> list[int]:
        """Enqueue new messages.

        size: as in `Run`.   Returns: the indexes of those that were refused for a length limit.
        """
        if self.is_plain and envelope.expiration_ms is None and not self.is_deleted:
            self.backlog.append(envelope, self._next_seq, contents, size)
            self._next_seq += len(contents)
            if self.consumers.all:
                self._host.touch(self)
            return []
        return self._publish_by_rules(envelope, contents, size, now)

    def _publish_by_rules(
        self, envelope: Envelope, contents: list[bytes], size: int, now: float
    ) -> list[int]:
        """The order of §5.1: refuse, hand to a waiting consumer, enqueue, drop for length, drop what expired."""
        if self.is_deleted:
            return []
        self.drop_expired(now)
        settings = self.settings
        expiry = self._expiry(envelope, now)
        if settings.overflow == "drop-head":
            self._enqueue(envelope, contents, size, expiry, now)
            return []
        refused: list[int] = []
        for index in range(len(contents)):
            # One by one: each may go to a consumer at once and leave the room to the next.
            message = Run(envelope, range(1), contents[index : index + 1], size)
            if not self._is_full_for(message):
                self._enqueue(envelope, message.contents, size, expiry, now)
                continue
            refused.append(index)
            if settings.overflow == "reject-publish-dlx":
                self._host.dead_letter(self, message, MAXLEN, now)
        return refused

    def _enqueue(
        self, envelope: Envelope, contents: list[bytes], size: int, expiry: float, now: float
    ) -> None:
        self.backlog.append(envelope, self._next_seq, contents, size, expiry)
        self._next_seq += len(contents)
        self.consumers.dispatch(self.backlog, now)
        self._drop_excess(now)
        self.drop_expired(now)

    def _expiry(self, envelope: Envelope, now: float) -> float:
        ttl = self.settings.message_ttl
        if envelope.expiration_ms is not None:
            ttl = envelope.expiration_ms if ttl is None else min(ttl, envelope.expiration_ms)
        return NEVER if ttl is None else now + ttl / 1000

    def _is_full_for(self, message: Run) -> bool:
        settings, backlog = self.settings, self.backlog
        return (settings.max_length is not None and backlog.count + 1 > settings.max_length) or (
            settings.max_length_bytes is not None
            and backlog.body_bytes + message.body_bytes > settings.max_length_bytes
        )

    # --- messages out ---

    def pump(self, now: float) -> None:
        """Deliver what can be delivered."""
        if not self.is_deleted:
            self.consumers.dispatch(self.backlog, now, self.drop_expired)
            self._arm_head_timer()

    def get(self, now: float) -> Run | None:
        """Take the message at the head for `basic.get`."""
        self.used(now)
        self.drop_expired(now)
        run = self.backlog.take(1) if self.backlog.count else None
        self._arm_head_timer()
        return run

    def delivered(self, run: Run) -> None:
        """Messages went to a client that will settle them."""
        self.unacked_count += len(run)
        self.unacked_bytes += run.body_bytes

    def ack(self, run: Run) -> None:
        """A client has settled messages: they are done with."""
        self.unacked_count -= len(run.contents)
        self.unacked_bytes -= run.body_bytes

    def reject(self, run: Run, now: float) -> None:
        """A client doesn't want messages and doesn't want them requeued: dead-letter them."""
        self.ack(run)
        if not self.is_deleted:
            self._host.dead_letter(self, run, REJECTED, now)

    def requeue(self, runs: list[Run], now: float) -> None:
        """Messages come back from a client, to their old place; limits and expiry then apply (§4.11, §5.4).

        runs: the latest delivery first, so that each finds its place at the head.
        """
        limit = self.settings.delivery_limit
        exceeded: list[Run] = []
        for run in runs:
            self.ack(run)
            run.deliveries += 1
            if limit is not None and run.deliveries > limit:
                exceeded.append(run)
            elif not self.is_deleted:
                self.backlog.put_back(run)
        if self.is_deleted:
            return
        for run in reversed(exceeded):
            self._host.dead_letter(self, run, DELIVERY_LIMIT, now)
        self._drop_excess(now)
        self._arm_head_timer()
        self._host.touch(self)

    def purge(self) -> int:
        """Drop all ready messages; how many there were."""
        return self.backlog.clear()

    # --- what is dropped ---

    def _drop_excess(self, now: float) -> None:
        """Drop from the head what is over the limits, one after the other (§5.4); only with drop-head."""
        settings, backlog = self.settings, self.backlog
        if settings.overflow != "drop-head":
            return
        if settings.max_length is not None:
            while backlog.count > settings.max_length:
                self._host.dead_letter(self, backlog.take(backlog.count - settings.max_length), MAXLEN, now)
        if settings.max_length_bytes is not None:
            while backlog.body_bytes > settings.max_length_bytes:
                self._host.dead_letter(self, backlog.take(1), MAXLEN, now)

    def drop_expired(self, now: float) -> None:
        """Drop what has expired at the head (§5.2)."""
        if self.backlog.head_expiry == NEVER:
            return
        while self.backlog.head_expiry <= now:
            self._host.dead_letter(self, self.backlog.take(RUN_MAX), EXPIRED, now)
        self._arm_head_timer()

    def _arm_head_timer(self) -> None:
        expiry = self.backlog.head_expiry
        if expiry == NEVER or self.is_deleted:
            return
        if self._head_timer is not None:
            if self._head_timer.when <= expiry:
                return  # it will look again when it goes off
            self._head_timer.cancel()
        self._head_timer = self._host.timers.at(expiry, self._head_expired)

    def _head_expired(self, now: float) -> None:
        self._head_timer = None
        self.drop_expired(now)

    # --- consumers and use ---

    def add_consumer(self, consumer: Consumer, now: float) -> None:
        """A consumer joins."""
        self.consumers.add(consumer)
        self._had_consumer = True
        self.used(now)
        self._host.touch(self)

    def remove_consumer(self, consumer: Consumer, now: float) -> None:
        """A consumer leaves; an auto-delete queue goes with its last one (§3.12)."""
        self.consumers.remove(consumer)
        self._host.touch(self)
        if self.consumers.all:
            return
        self.used(now)
        if self.record.auto_delete and self._had_consumer:
            self._host.queue_unused(self, now)

    def used(self, now: float) -> None:
        """Somebody used the queue: its time without use begins anew (§5.3)."""
        if self._unused_timer is not None:
            self._unused_timer.cancel()
            self._unused_timer = None
        if self.settings.expires is not None and not self.is_deleted:
            self._unused_timer = self._host.timers.at(
                now + self.settings.expires / 1000, self._unused_for_long
            )

    def _unused_for_long(self, now: float) -> None:
        self._unused_timer = None
        if not self.consumers.all:
            self._host.queue_unused(self, now)

    def close(self) -> None:
        """The queue was deleted: drop everything, dead-letter nothing (§3.11), cancel the consumers."""
        self.is_deleted = True
        self.count_at_deletion = self.backlog.clear()
        for timer in (self._head_timer, self._unused_timer):
            if timer is not None:
                timer.cancel()
        for consumer in list(self.consumers.all):
            self.consumers.remove(consumer)
            consumer.channel.cancelled_by_server(consumer)
