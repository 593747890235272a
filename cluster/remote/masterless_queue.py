"""A mirrored queue that has no master at the moment, as the channels of every node see it.

    flushing: a new master will begin soon. Publishes wait, as many as the window of a queue on another node allows,
              and are nacked after half a minute. Questions wait.
    down:     no copy on a running node may be promoted. Publishes are nacked at once; questions wait for a minute.

Consumers stay, and their clients are told nothing. The next live queue takes over publishes, questions and consumers.
Source: amqp-behaviour §9.4; reliability §2.2 (force_delete_if_no_master, promote_on_shutdown), §4.4.
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from cluster.remote.publishes import WINDOW_BYTES, Publishes, frame_limit, pieces, settle_all
from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.catalogue.commands import DeleteQueue, Refused
from node.catalogue.names import not_found, resource
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.consumer import Consumer
from node.queue.live_queue import Asked, Counts, Handoff, HeldPublisher, LiveQueue, at_once
from node.queue.pending_publish import PublishWaiter
from node.queue.run import Batch, Run
from node.scheduling.timers import Timer

if TYPE_CHECKING:
    from node.broker.broker import Broker

RESEND_S: Final = 30.0
"""For how many seconds publishes wait for another master."""

ANSWER_S: Final = 60.0
"""For how many seconds a question waits for another master."""


class MasterlessQueue:
    """The `LiveQueue` of a mirrored queue without a master.

    is_down: there won't be a master before another node is up.
    """

    def __init__(self, record: QueueRecord, settings: QueueSettings, broker: "Broker") -> None:
        assert record.view is not None
        self.record = record
        self.is_local = False
        self.leaves_node = True
        self.is_durable = record.durable and record.exclusive_owner is None
        self.is_down = record.view.state == "down"
        self.successor: LiveQueue | None = None
        self._broker = broker
        self._publishes = Publishes()
        self._awaiting: dict[HeldPublisher, None] = {}
        self._consumers: dict[Consumer, None] = {}
        self._questions: deque[tuple[float, Callable[[Any], None]]] = (
            deque()
        )  # with their deadlines; at most one for each channel
        self._since = broker.now
        self._is_closed = False
        self._publish_timer: Timer | None = None
        self._question_timer: Timer | None = None
        self.apply_settings(settings, broker.now)

    def apply_settings(self, settings: QueueSettings, now: float) -> None:
        """Note changed settings; the next master applies them."""
        self.settings = settings
        self.is_plain = (
            settings.message_ttl is None and settings.max_length is None and settings.max_length_bytes is None
        )

    # --- publishing ---

    def publish(self, batch: Batch, waiter: PublishWaiter | None) -> Collection[int]:
        """Keep publishes for the next master. A queue that is down nacks them, without a basic.return (§9.4)."""
        if self._is_closed or self._is_late:
            if waiter is not None:
                waiter.accept() if self._is_closed else waiter.fail()
            return ()
        for piece, waiting in pieces(batch, waiter, frame_limit(self.record.name, is_plain=self.is_plain)):
            self._publishes.add(piece, waiting, is_kept=True, is_sent=False)
        self._arm()
        return ()

    @property
    def is_out_of_reach(self) -> bool:
        """True if publishers that can wait should try again later: publishes would be nacked, or too many wait
        already.
        """
        return self._is_late or self.is_congested

    @property
    def _is_late(self) -> bool:
        """True if publishes are nacked instead of waiting for a master."""
        return self.is_down or self._broker.now - self._since >= RESEND_S

    def _arm(self) -> None:
        if self._publish_timer is None:
            self._publish_timer = self._broker.timers.at(self._since + RESEND_S, self._give_up)

    def _give_up(self, now: float) -> None:
        self._publish_timer = None
        self._fail_publishes()

    def _fail_publishes(self) -> None:
        settle_all(self._publishes.take(), is_lost=True)
        self._relieve()

    @property
    def is_congested(self) -> bool:
        """True if so many publishes wait for a master that publishers should hold on."""
        return self._publishes.size > WINDOW_BYTES

    def await_relief(self, publisher: HeldPublisher) -> None:
        """Call `publisher.peer_relieved()` when there is room again."""
        self._awaiting[publisher] = None
        if not self.is_congested:
            self._relieve()

    def _relieve(self) -> None:
        awaiting, self._awaiting = self._awaiting, {}
        for publisher in awaiting:
            publisher.peer_relieved()

    # --- deliveries: there are none ---

    def delivered(self, run: Run) -> None:
        """Do nothing: a queue without a master delivers nothing."""

    def consumed(self, run: Run) -> None:
        """Do nothing: a queue without a master delivers nothing."""

    def ack(self, run: Run) -> None:
        """Ignore the acknowledgement: the next master requeues what an earlier one delivered."""

    def reject(self, run: Run, now: float) -> None:
        """Ignore the rejection: the next master requeues what an earlier one delivered."""

    def requeue(self, runs: list[Run], now: float, *, is_asked: bool = False) -> None:
        """Do nothing: the next master requeues what an earlier one delivered."""

    # --- consumers ---

    def subscribe(self, consumer: Consumer) -> Asked[None]:
        """Wait for the next master, and add the consumer there."""
        successor = yield from self._another_master()
        consumer.queue = successor
        yield from successor.subscribe(consumer)

    def unsubscribe(self, consumer: Consumer, now: float) -> None:
        """Forget a consumer. An auto-delete queue stays: the next master never had this consumer."""
        self._consumers.pop(consumer, None)

    def resume(self, consumer: Consumer) -> None:
        """Do nothing: a queue without a master delivers nothing."""

    def limit_changed(self, consumer: Consumer) -> None:
        """Do nothing: a queue without a master delivers nothing."""

    # --- asking ---

    def heard(self) -> Asked[None]:
        """Return at once: there is no master that could have work left to do."""
        return at_once(None)

    def counts(self) -> Asked[Counts]:
        """Wait for the next master, and ask it for the counts."""
        successor = yield from self._another_master()
        return (yield from successor.counts())

    def fetch(self, *, no_ack: bool) -> Asked[tuple[Run, int] | None]:
        """Wait for the next master, and fetch a message from it."""
        successor = yield from self._another_master()
        return (yield from successor.fetch(no_ack=no_ack))

    def purge(self) -> Asked[int]:
        """Wait for the next master, and have it purge the queue."""
        successor = yield from self._another_master()
        return (yield from successor.purge())

    def delete(self, *, if_unused: bool, if_empty: bool) -> Asked[int]:
        """Wait for the next master, and have it delete the queue. A queue that is down is deleted at once, unless
        `if_empty` is set: the number of its messages is not known (§9.4).
        """
        record = self.record
        if not self.is_down:
            try:
                successor = yield from self._another_master()
            except ProtocolError:
                if self._is_closed:
                    return 0
                raise
            return (yield from successor.delete(if_unused=if_unused, if_empty=if_empty))
        if if_empty:
            where = resource("queue", record.name, record.vhost)
            raise ProtocolError(ReplyCode.PRECONDITION_FAILED, f"{where} not empty")
        deleted = yield DeleteQueue(record.vhost, record.name, uid=record.uid)
        if isinstance(deleted, Refused):
            raise deleted.error
        return 0

    def _another_master(self) -> Asked[LiveQueue]:
        """Wait for the live queue that replaces this one. Raises: ProtocolError 404 if it takes too long."""
        if self.successor is not None:
            return self.successor
        if self._is_closed:
            raise self._gone
        found = yield self._await_master
        if isinstance(found, ProtocolError):
            raise found
        return found  # type: ignore[no-any-return]

    def _await_master(self, on_done: Callable[[Any], None]) -> None:
        self._questions.append((self._broker.now + ANSWER_S, on_done))
        self._arm_questions()

    def _arm_questions(self) -> None:
        if self._question_timer is None and self._questions:
            self._question_timer = self._broker.timers.at(self._questions[0][0], self._give_answers)

    def _give_answers(self, now: float) -> None:
        self._question_timer = None
        where = resource("queue", self.record.name, self.record.vhost)
        text = (
            f"{where} process is stopped by supervisor"
            if self.is_down
            else f"failed to perform operation on {where} due to timeout"
        )
        while self._questions and self._questions[0][0] <= now:
            _, on_done = self._questions.popleft()
            on_done(ProtocolError(ReplyCode.NOT_FOUND, text))
        self._arm_questions()

    # --- a master, or the end ---

    def hand_off(self) -> Handoff:
        """Hand over the publishes, consumers and questions that wait here to the next live queue."""
        since = None if self.is_down else self._since
        handoff = Handoff(self._publishes.next_number, masterless_since=since)
        if self._is_closed:
            return handoff
        self._stop()
        handoff.publishes = self._publishes.take()
        handoff.consumers = list(self._consumers)
        handoff.awaiting = list(self._awaiting)
        handoff.questions = [on_done for _, on_done in self._questions]
        self._consumers.clear()
        self._awaiting.clear()
        self._questions.clear()
        return handoff

    def adopt(self, handoff: Handoff) -> None:
        """Take the publishes, consumers and questions of the live queue before this one."""
        if handoff.masterless_since is not None:
            self._since = handoff.masterless_since
        for publish in handoff.publishes:
            if publish.run:
                self._publishes.put(publish)
        self._publishes.next_number = handoff.next_number
        settle_all((each for each in handoff.publishes if not each.run), is_lost=True)
        for consumer in handoff.consumers:
            successor = consumer.channel.reattached(consumer, self)
            if successor is not None:
                self._consumers[successor] = None
        for publisher in handoff.awaiting:
            self.await_relief(publisher)
        if self._is_late:
            self._fail_publishes()
        elif self._publishes:
            self._arm()
        for ask in handoff.questions:
            ask(self)

    def close(self) -> None:
        """End the queue, which was deleted. The publishes that wait here are nacked: no master has ever had them
        (reliability §1.1 L5).
        """
        if self._is_closed or self.successor is not None:
            return
        self._is_closed = True
        self._stop()
        settle_all(self._publishes.take(), is_lost=True)
        consumers, self._consumers = self._consumers, {}
        for consumer in consumers:
            consumer.channel.cancelled_by_server(consumer)
        questions, self._questions = self._questions, deque()
        for _, on_done in questions:
            on_done(self._gone)
        self._relieve()

    @property
    def _gone(self) -> ProtocolError:
        return not_found("queue", self.record.name, self.record.vhost)

    def _stop(self) -> None:
        for timer in (self._publish_timer, self._question_timer):
            if timer is not None:
                timer.cancel()
        self._publish_timer = self._question_timer = None
