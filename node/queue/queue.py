"""A queue: ready messages, those out with clients, its consumers, and the rules by which messages are delivered and
dropped.

Messages are numbered as they come and keep number and place until they are settled; a requeue is no event.
Its host does what the queue cannot do alone: dead-lettering, deletion, wake-ups.
Source: amqp-behaviour §3.7-3.13, §4.5-4.11, §5.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.catalogue.commands import DeleteQueue, Refused
from node.catalogue.names import resource
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.backlog import RUN_MAX
from node.queue.consumer import PUMPED_MAX, Consumer, Consumers
from node.queue.counters import QueueCounters
from node.queue.dead_letter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from node.queue.delay_backlog import DelayBacklog
from node.queue.host import Copied, QueueHost
from node.queue.letters import NO_LETTERS, Letters
from node.queue.live_queue import Asked, Counts, Handoff, HeldPublisher, LiveQueue, at_once
from node.queue.mirroring import QueueReplicator
from node.queue.number_set import NumberSet
from node.queue.paged_backlog import PagedBacklog
from node.queue.pending_publish import PublishWaiter
from node.queue.priority_backlog import PriorityBacklog
from node.queue.retries import Retries
from node.queue.rules import expiry_of, is_full_for, is_over_limit
from node.queue.run import NEVER, Batch, Run
from node.queue.storage import NO_STORE_ID, Page, QueueStorage
from node.queue.tail import to_tail
from node.scheduling.timers import Timer


class Queue:
    """One live queue of this node, a `LiveQueue`.

    record: its entry in the catalogue.   settings: the result of its arguments and policies.
    storage: its disk side.
    """

    is_local = True
    is_out_of_reach = False
    letters: Letters = NO_LETTERS
    retries: Retries | None = None  # of few queues, as `letters`, so they are in no other's dict

    def __init__(
        self,
        record: QueueRecord,
        settings: QueueSettings,
        host: QueueHost,
        storage: QueueStorage,
        now: float,
    ) -> None:
        self.record = record
        self.settings = settings
        self.storage = storage
        self.is_durable = record.durable and record.exclusive_owner is None
        """True if persistent messages in it survive a restart of the node."""
        self.backlog = self._new_backlog(settings)
        self.consumers = Consumers(single_active=settings.single_active_consumer)
        self.unacked_count = self.unacked_bytes = 0
        self.delivered_count = self.settled_count = 0
        """The numbers of messages delivered to be settled, and of those settled, since the queue is live."""
        self._counters = QueueCounters()
        self._unpublished = 0  # numbers without a client's publish, less such publishes without a number
        self._returned_count = 0  # those of settled_count that were not acknowledged
        self.is_deleted = False
        self.count_at_deletion = 0
        """The number of ready messages that were deleted with the queue."""
        self._host = host
        self.replicator: QueueReplicator | None = None
        """The copies on other nodes, which are told of all changes."""
        self.received: dict[int, int] = {}
        """The last publish of each front end that may send some again, since the queue was mirrored until lately."""
        self.mastership = record.mastership
        self.successor: LiveQueue | None = None
        self._next_publish = 1  # the number of this node's next publish, once another node is the master
        self.next_seq = 1
        self._had_consumer = False
        self.is_plain = True
        """True if no rule looks at messages as they come in."""
        self._is_lazy = False
        self._may_expire = False  # True once the queue had a message that may expire
        self._heads_awaited: list[Callable[[Any], None]] = []
        self._head_timer: Timer | None = None
        self._unused_timer: Timer | None = None
        self.apply_settings(settings, now)
        storage.belong_to(self)

    def _new_backlog(self, settings: QueueSettings) -> PagedBacklog | PriorityBacklog | DelayBacklog:
        if settings.max_priority is None:
            return PagedBacklog(self.storage, self._loaded, owner=self)
        return PriorityBacklog(self.storage, self._loaded, settings.max_priority, self)

    @property
    def counters(self) -> QueueCounters:
        """The counts since the queue is live."""
        counters = self._counters
        counters.publish = self.next_seq - 1 - self._unpublished
        counters.deliver = self.delivered_count - counters.get
        counters.ack = self.settled_count - self._returned_count
        counters.disk_reads, counters.disk_writes = self.storage.disk_reads, self.storage.disk_writes
        return counters

    def apply_settings(self, settings: QueueSettings, now: float) -> None:
        """Apply changed settings; limits affect present messages, times to live only later ones (§6.2)."""
        self.settings = settings
        self.is_plain = settings.is_plain
        if self.consumers.group_by(settings.group_header) and self.consumers.all:
            self._host.touch(self)
        is_lazy = settings.queue_mode == "lazy" and self.storage.can_page
        if is_lazy is not self._is_lazy:
            self._is_lazy = is_lazy
            self.backlog.set_lazy(is_lazy)
        self._drop_excess(now)
        self._arm_head_timer()
        self.used(now)
        if self._is_lazy:
            self._host.touch(self)

    def restore(self, next_seq: int, pages: Iterable[Page]) -> None:
        """Take the messages that a recovery found on disk. The storage may not be asked for any of them yet."""
        self.next_seq = next_seq
        self._unpublished = next_seq - 1
        self._may_expire = True
        self.backlog.restore(pages)
        self._host.touch(self)

    # --- messages in ---

    @property
    def leaves_node(self) -> bool:
        """True if other nodes must have its messages."""
        return self.replicator is not None

    @property
    def is_congested(self) -> bool:
        """True if too much is on its way to the mirrors."""
        return self.replicator is not None and self.replicator.is_congested

    def await_relief(self, publisher: HeldPublisher) -> None:
        """Call a publisher back when the mirrors have caught up."""
        assert self.replicator is not None, "only the way to mirrors is congested"
        self.replicator.await_relief(publisher)

    def publish(self, batch: Batch, waiter: PublishWaiter | None) -> Collection[int]:
        """Take messages, as `LiveQueue.publish` does."""
        return self._host.publish_here(self, batch, waiter)

    def enqueue(self, batch: Batch, now: float) -> list[int]:
        """Enqueue new messages whose place on disk is known: the direct way in, see `node.queue.intake`.

        Returns: the indexes of those that were refused for a length limit.
        """
        envelope = batch.envelope
        if self.is_plain and envelope.expiration_ms is None and not self.is_deleted:
            if self.replicator is not None or (envelope.persistent and self.is_durable):
                self._append(batch, NEVER)
            else:
                self.backlog.tail.append(batch, self.next_seq)
                self.next_seq += len(batch.contents)
            if self.consumers.all or self._is_lazy:
                self._host.touch(self)
            return []
        return self._enqueue_by_rules(batch, now)

    def _append(self, batch: Batch, expiry: float) -> None:
        first_seq = self.next_seq
        self.next_seq = first_seq + len(batch.contents)
        if self.replicator is not None:
            self.replicator.enqueued(batch, first_seq, expiry)
        if batch.envelope.persistent and self.is_durable:
            self.storage.keep(batch, first_seq, expiry)
            self.backlog.tail.append(batch, first_seq, expiry, is_indexed=True)
        else:
            self.backlog.tail.append(batch, first_seq, expiry)

    def _enqueue_by_rules(self, batch: Batch, now: float) -> list[int]:
        """Enqueue by §5.1: refuse, hand to a waiting consumer, enqueue, drop for length, drop expired ones."""
        if self.is_deleted:
            return []
        self.drop_expired(now)
        settings, envelope = self.settings, batch.envelope
        expiry = expiry_of(settings, envelope, now)
        self._may_expire = self._may_expire or expiry != NEVER
        if self._is_lazy:
            self._host.touch(self)
        if settings.overflow == "drop-head":
            self._enqueue(batch, expiry, now)
            return []
        refused: list[int] = []
        for index in range(len(batch.contents)):
            # One by one: each may go to a consumer at once and leave the room to the next.
            message = Run(envelope, range(1), batch.contents[index : index + 1], batch.size)
            if not is_full_for(message, settings, self.backlog, self.letters):
                own_id = batch.store_id + index if batch.store_id else NO_STORE_ID
                self._enqueue(Batch(envelope, message.contents, batch.size, own_id), expiry, now)
                continue
            refused.append(index)
            self._unpublished -= 1
            if settings.overflow == "reject-publish-dlx":
                self._host.dead_letter(self, message, MAXLEN, now)
        return refused

    def _enqueue(self, batch: Batch, expiry: float, now: float) -> None:
        self._append(batch, expiry)
        self.consumers.dispatch(self.backlog, now)
        self._drop_excess(now)
        self.drop_expired(now)
        self._touch_if_short()

    # --- messages out ---

    def pump(self, now: float) -> None:
        """Deliver what can be delivered."""
        if self.is_deleted:
            return
        backlog = self.backlog
        if backlog.is_paged:
            self._read_ahead(now)
        drop_expired = self.drop_expired if self._may_expire else None
        if self.consumers.dispatch(backlog, now, drop_expired, cost_max=PUMPED_MAX):
            self._host.touch(self)
        if backlog.is_paged and backlog.is_short:
            before = backlog.at_hand
            self._read_ahead(now)
            if backlog.at_hand > before:  # it was in memory
                self._host.touch(self)
        self._arm_head_timer()
        if self._is_lazy and backlog.page_new() and self._may_expire:
            self._host.touch(self)  # the head must come back from disk, as its expiry must be known

    def deliver_due(self) -> None:
        """Give consumers at once what they can take, so that later operations find these messages gone (§4.8)."""
        if self.consumers.are_waiting and self.backlog.count:
            self.pump(self._host.now)

    def _read_ahead(self, now: float) -> None:
        # A lazy queue keeps nothing in memory unless it has consumers, or rules that look at its head.
        if not self._is_lazy or self.consumers.all or self._may_expire or not self.is_plain:
            self.backlog.refill()
            self._drop_excess(now)

    def _loaded(self) -> None:
        """Continue after messages came from disk to the head."""
        self._drop_excess(self._host.now)
        self._host.touch(self)
        awaited, self._heads_awaited = self._heads_awaited, []
        for on_loaded in awaited:
            on_loaded(None)

    def _touch_if_short(self) -> None:
        if self.backlog.is_paged and self.backlog.is_short:
            self._host.touch(self)

    def seek_head(self, now: float) -> bool:
        """Return True if the message at the head is on its way from disk, so that waiting helps."""
        self.drop_expired(now)
        if self.backlog.is_paged:
            self.backlog.refill()
        return not self.backlog.at_hand and self.backlog.count > 0

    def await_head(self, on_loaded: Callable[[Any], None]) -> None:
        """Call back when the message at the head, which is on its way from disk, is here."""
        self._heads_awaited.append(on_loaded)

    def fetch(self, *, no_ack: bool) -> Asked[tuple[Run, int] | None]:
        """Return the message at the head and how many are left; None if the queue is empty."""
        self.deliver_due()
        while self.seek_head(self._host.now):
            yield self.await_head
            if self.successor is not None:
                return (yield from self.successor.fetch(no_ack=no_ack))
        run = self.get(self._host.now)
        counters = self._counters
        if run is None:
            counters.get_empty += 1
            return None
        left = self.backlog.count
        if no_ack:
            counters.get_no_ack += 1
            counters.redeliver += run.deliveries > 0
            self.forget(run)
        else:
            counters.get += 1
            self.delivered(run)
        return run, left

    def get(self, now: float) -> Run | None:
        """Take the message at the head for `basic.get`."""
        self.used(now)
        self.drop_expired(now)
        run = self.backlog.take(1) if self.backlog.at_hand and not self.letters.is_full else None
        self._touch_if_short()
        self._arm_head_timer()
        return run

    def delivered(self, run: Run) -> None:
        """Count messages that went to a client that will settle them."""
        count = len(run.contents)
        self.unacked_count += count
        self.unacked_bytes += run.body_bytes
        self.delivered_count += count
        if run.deliveries:
            self._counters.redeliver += count

    def consumed(self, run: Run) -> None:
        """Count and forget messages that went to a client that will not settle them."""
        count = len(run.contents)
        self._counters.deliver_no_ack += count
        if run.deliveries:
            self._counters.redeliver += count
        if run.is_indexed or self.replicator is not None:
            self.forget(run)

    def count_consumed(self, run: Run) -> None:
        """Count messages that went to a client that will not settle them; the caller forgets them later."""
        count = len(run.contents)
        self._counters.deliver_no_ack += count
        if run.deliveries:
            self._counters.redeliver += count

    def not_delivered(self, run: Run) -> None:
        """Count messages as unacknowledged that were counted as consumed and have come back."""
        self.unacked_count += len(run.contents)
        self.unacked_bytes += run.body_bytes

    def count_letters(self, count: int) -> None:
        """Leave so many messages out of the count of publishes: they were dead letters, not publishes of clients."""
        self._unpublished += count

    def ack(self, run: Run) -> None:
        """Forget messages that a client has acknowledged."""
        self._returned(run)
        if run.is_indexed or self.replicator is not None:
            self.forget(run)

    def _returned(self, run: Run) -> None:
        self.settled_count += len(run.contents)
        self.unacked_count -= len(run.contents)
        self.unacked_bytes -= run.body_bytes
        if self.consumers.groups is not None and self.consumers.groups.settled(run.seqs):
            self._host.touch(self)

    def forget(self, run: Run) -> None:
        """Have disk and mirrors forget messages that have left the queue."""
        if self.replicator is not None:
            self.replicator.removed(run.seqs)
        if run.is_indexed and not self.is_deleted:
            self.storage.forget(run.seqs, run.store_id)

    def reject(self, run: Run, now: float) -> None:
        """Dead-letter messages that a client rejects without requeueing them."""
        self._returned(run)
        self._returned_count += len(run.contents)
        run.deliveries += 1  # it may be here again until its dead letter has been taken
        if not self.is_deleted:
            self._host.dead_letter(self, run, REJECTED, now)

    def requeue(self, runs: list[Run], now: float, *, is_asked: bool = False) -> None:
        """Return messages of a client to their old places; then limits and expiry apply (§4.11, §5.4).

        A quorum queue without a delivery limit puts them at its tail if `is_asked`.   runs: the latest delivery first.
        """
        limit = self.settings.delivery_limit
        is_at_tail = is_asked and limit is None and self.record.type == "quorum"
        delays = self.settings.delays_retries(is_asked=is_asked)
        exceeded: list[Run] = []
        for run in reversed(runs) if is_at_tail or delays else runs:
            self._returned(run)
            self._returned_count += len(run.contents)
            run.deliveries += 1
            if limit is not None and self.replicator is not None:
                self.replicator.returned(run.seqs, run.deliveries)
            if limit is not None and run.deliveries > limit:
                exceeded.append(run)
            elif not self.is_deleted and not (delays and self._its_retries().hold(run, now)):
                self._put_at_tail(run) if is_at_tail else self.backlog.put_back(run)
        if self.is_deleted:
            return
        for run in reversed(exceeded):
            self._host.dead_letter(self, run, DELIVERY_LIMIT, now)
        self.went_on(now)

    def went_on(self, now: float) -> None:
        """Go on after messages came back: limits and expiry apply, and consumers may get them."""
        self._drop_excess(now)
        self._arm_head_timer()
        self._host.touch(self)

    def _put_at_tail(self, run: Run) -> None:
        for new in to_tail(self, run, run.envelope, run.expiry):
            self.backlog.add(new)

    def _its_retries(self) -> Retries:
        self.retries = self.retries or Retries(self, self._host.timers)
        return self.retries

    def renumbered(self, old: Run, new: Run) -> None:
        """Note that messages get other numbers; those of `old` are forgotten next."""

    def came_back(self, run: Run) -> None:
        """Take messages that have waited and are ready again; their numbers are above all others."""
        self._may_expire = self._may_expire or run.expiry != NEVER
        self.backlog.add(run)

    @property
    def waiting_numbers(self) -> NumberSet:
        """The numbers of the messages that wait to be ready again. Not to be changed."""
        return self._its_retries().numbers

    def take_waiting(self, run: Run) -> None:
        """Take messages that wait, which the backlog has found on disk or in a copy."""
        self._its_retries().add(run, self._host.now)

    def purge(self) -> Asked[int]:
        """Drop all ready messages; return how many there were."""
        self.deliver_due()
        count = self.backlog.clear(self.replicator.removed if self.replicator is not None else None)
        count += self.retries.clear() if self.retries is not None else 0
        self._loaded()
        return at_once(count)

    def unreadable(self, reason: str) -> None:
        """Report messages that the disk cannot read to the broker."""
        self._host.unreadable(self, reason)

    # --- drops ---

    def _drop_excess(self, now: float) -> None:
        """Drop messages above the limits from the head, one after the other (§5.4); only with drop-head."""
        backlog, max_length = self.backlog, self.settings.max_length
        while is_over_limit(self.settings, backlog):
            if not backlog.at_hand:
                backlog.refill()
            if not backlog.at_hand:
                return  # the head is on its way from disk: `_loaded` will continue
            excess = backlog.count - max_length if max_length is not None else 1
            self._host.dead_letter(self, backlog.take(max(excess, 1)), MAXLEN, now)

    def drop_expired(self, now: float) -> None:
        """Drop what has expired at the head (§5.2)."""
        if not self._may_expire:
            return
        while self.backlog.head_expiry <= now and not self.letters.is_full:
            self._host.dead_letter(self, self.backlog.take(RUN_MAX), EXPIRED, now)
        self._touch_if_short()
        self._arm_head_timer()

    def _arm_head_timer(self) -> None:
        if not self._may_expire or self.is_deleted or self.letters.is_full:
            return
        expiry = self.backlog.head_expiry
        if expiry == NEVER:
            return
        if self._head_timer is not None:
            if self._head_timer.when <= expiry:
                return  # the timer will set the next one when it goes off
            self._head_timer.cancel()
        self._head_timer = self._host.timers.at(expiry, self._head_expired)

    def _head_expired(self, now: float) -> None:
        self._head_timer = None
        self.drop_expired(now)

    # --- consumers and use ---

    def add_consumer(self, consumer: Consumer, now: float) -> None:
        """Add a consumer."""
        self.consumers.add(consumer)
        self._had_consumer = True
        self.used(now)
        self._host.touch(self)

    def subscribe(self, consumer: Consumer) -> Asked[None]:
        """Add a consumer.

        Raises: ProtocolError 403 if an exclusive consumer would not be the only one, or would join a queue with a
        single active consumer; not for a quorum queue, where the flag means nothing.
        """
        consumers = self.consumers
        is_taken = consumers.exclusive or (consumer.exclusive and (len(consumers) or consumers.single_active))
        if is_taken and self.record.type != "quorum":
            where = resource("queue", self.record.name, self.record.vhost)
            raise ProtocolError(ReplyCode.ACCESS_REFUSED, f"{where} in exclusive use")
        self.deliver_due()
        self.add_consumer(consumer, self._host.now)
        return at_once(None)

    def resume(self, consumer: Consumer) -> None:
        """Serve a consumer again that was blocked."""
        self.consumers.rejoin(consumer)
        self._host.touch_last(self)

    def limit_changed(self, consumer: Consumer) -> None:
        """Do nothing: the queue asks the channel for its limit at each delivery."""

    def unsubscribe(self, consumer: Consumer, now: float) -> None:
        """Remove a consumer; an auto-delete queue is deleted with its last one (§3.12)."""
        self.consumers.remove(consumer)
        self._host.touch(self)
        if self.consumers.all:
            return
        self.used(now)
        if self.record.auto_delete and self._had_consumer:
            self._host.queue_unused(self, now)

    def heard(self) -> Asked[None]:
        """Deliver what consumers can take; a queue here has carried out all earlier operations."""
        self.deliver_due()
        return at_once(None)

    def counts(self) -> Asked[Counts]:
        """Return the numbers of ready messages and consumers; this counts as a use (§5.3)."""
        self.deliver_due()
        self.used(self._host.now)
        return at_once(Counts(self.backlog.count, len(self.consumers)))

    def delete(self, *, if_unused: bool, if_empty: bool) -> Asked[int]:
        """Delete the queue; return how many ready messages it had. Raises: ProtocolError 406 (§3.11)."""
        self.deliver_due()
        where = resource("queue", self.record.name, self.record.vhost)
        if if_empty and self.backlog.count:
            raise ProtocolError(ReplyCode.PRECONDITION_FAILED, f"{where} not empty")
        if if_unused and len(self.consumers):
            raise ProtocolError(ReplyCode.PRECONDITION_FAILED, f"{where} in use")
        deleted = yield DeleteQueue(self.record.vhost, self.record.name, uid=self.record.uid)
        if isinstance(deleted, Refused):
            raise deleted.error
        return self.count_at_deletion

    def used(self, now: float) -> None:
        """Note a use of the queue: its time without use begins anew (§5.3)."""
        if self._unused_timer is not None:
            self._unused_timer.cancel()
            self._unused_timer = None
        if self.settings.expires is not None and not self.is_deleted:
            unused_at = now + self.settings.expires / 1000
            self._unused_timer = self._host.timers.at(unused_at, self._unused_for_long)

    def _unused_for_long(self, now: float) -> None:
        self._unused_timer = None
        if not self.consumers.all:
            self._host.queue_unused(self, now)

    # --- moving ---

    def begin_with(self, copy: Copied, on_done: Callable[[], None]) -> None:
        """Begin with the messages of a copy; all of them may have been delivered before (reliability §4.6)."""
        self.next_seq = copy.next_seq
        self._unpublished = copy.next_seq - 1
        self._may_expire = True

        def filled() -> None:
            on_done()
            self._drop_excess(self._host.now)
            self._host.touch(self)

        copy.fill(self.backlog, filled)

    def hand_off(self) -> Handoff:
        """Hand over the consumers and questions of this node's clients to the next live queue."""
        awaited, self._heads_awaited = self._heads_awaited, []
        consumers = self.consumers.take_near()
        return Handoff(next_number=self._next_publish, consumers=consumers, questions=awaited)

    def adopt(self, handoff: Handoff) -> None:
        """Take the publishes, consumers and questions of the live queue before this one."""
        self._next_publish = handoff.next_number
        self._host.adopt(self, handoff)

    def retire(self) -> None:
        """End the queue, whose messages have moved: later settlements by clients are accepted and ignored (§9.4)."""
        self.is_deleted = True
        self.replicator = None
        self._stop_timers()
        self.backlog.close()

    def _stop_timers(self) -> None:
        if self.retries is not None:
            self.retries.close()
        for timer in (self._head_timer, self._unused_timer):
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """End the queue, which was deleted: drop all messages, dead-letter none (§3.11), and cancel the consumers."""
        self.is_deleted = True
        self.count_at_deletion = self.backlog.count
        self._host.discard(self.backlog.hand_over().runs)
        self.storage.drop()
        self._loaded()
        self.backlog.close()
        self._stop_timers()
        self._host.begin(self.consumers.cancel_all())
