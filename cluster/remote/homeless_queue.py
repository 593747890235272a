"""A mirrored queue that has no master now, as the channels of every node see it.

    flushing: a master will be there at once. Publishes wait, as many as the window of a queue on another node lets,
              and are nacked after half a minute. Who asks waits.
    down:     no copy that is there may be promoted. Publishes are nacked at once; who asks waits, for a minute.

Consumers stay, without a word; whoever takes the place of this one goes on with all that.
Source: amqp-behaviour §9.4; reliability §2.2 (force_delete_if_no_master, promote_on_shutdown), §4.4.
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from cluster.remote.publishes import WINDOW_BYTES, Publishes, pieces, settle_all
from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.catalogue.commands import DeleteQueue, Refused
from node.catalogue.names import not_found, resource
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.acceptance import Party
from node.queue.consumer import Consumer
from node.queue.live_queue import Asked, Belongings, Counts, HeldPublisher, LiveQueue, at_once
from node.queue.run import Batch, Run
from node.scheduling.timers import Timer

if TYPE_CHECKING:
    from node.broker.broker import Broker

RESEND_S: Final = 30.0
"""How long publishes wait for another master."""

ANSWER_S: Final = 60.0
"""How long a question waits for another master."""


class HomelessQueue:
    """See `LiveQueue`.

    is_down: there won't be a master before a node is back.
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
        )  # with their ends; as many as channels
        self._since = broker.now
        self._is_closed = False
        self._publish_timer: Timer | None = None
        self._question_timer: Timer | None = None
        self.apply_settings(settings, broker.now)

    def apply_settings(self, settings: QueueSettings, now: float) -> None:
        """See `LiveQueue.apply_settings`: the next master does the work."""
        self.settings = settings
        self.is_plain = (
            settings.message_ttl is None and settings.max_length is None and settings.max_length_bytes is None
        )

    # --- publishing ---

    def publish(self, batch: Batch, party: Party | None) -> Collection[int]:
        """See `LiveQueue.publish`. To a queue that is down they are nacked, not returned (§9.4)."""
        if self._is_closed or self._is_late:
            if party is not None:
                party.accept() if self._is_closed else party.fail()
            return ()
        for piece, waiting in pieces(batch, party):
            self._publishes.add(piece, waiting, is_kept=True, is_sent=False)
        self._arm()
        return ()

    @property
    def is_out_of_reach(self) -> bool:
        """See `LiveQueue.is_out_of_reach`."""
        return self._is_late or self.is_congested

    @property
    def _is_late(self) -> bool:
        """Whether nobody waits for a master to publish to."""
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
        """Whether too much waits for the queue's answer."""
        return self._publishes.size > WINDOW_BYTES

    def await_relief(self, publisher: HeldPublisher) -> None:
        """Call a publisher back when there is room again."""
        self._awaiting[publisher] = None
        if not self.is_congested:
            self._relieve()

    def _relieve(self) -> None:
        awaiting, self._awaiting = self._awaiting, {}
        for publisher in awaiting:
            publisher.peer_relieved()

    # --- deliveries: there are none ---

    def delivered(self, run: Run) -> None:
        """See `LiveQueue.delivered`."""

    def consumed(self, run: Run) -> None:
        """See `LiveQueue.consumed`."""

    def ack(self, run: Run) -> None:
        """See `LiveQueue.ack`."""

    def reject(self, run: Run, now: float) -> None:
        """See `LiveQueue.reject`."""

    def requeue(self, runs: list[Run], now: float, *, is_asked: bool = False) -> None:
        """See `LiveQueue.requeue`."""

    # --- consumers ---

    def subscribe(self, consumer: Consumer) -> Asked[None]:
        """See `LiveQueue.subscribe`."""
        successor = yield from self._another_master()
        consumer.queue = successor
        yield from successor.subscribe(consumer)

    def unsubscribe(self, consumer: Consumer, now: float) -> None:
        """See `LiveQueue.unsubscribe`. As the next master has never known it, no auto-delete queue goes for that."""
        self._consumers.pop(consumer, None)

    def resume(self, consumer: Consumer) -> None:
        """See `LiveQueue.resume`."""

    def limit_changed(self, consumer: Consumer) -> None:
        """See `LiveQueue.limit_changed`."""

    # --- asking ---

    def heard(self) -> Asked[None]:
        """See `LiveQueue.heard`: there is nobody."""
        return at_once(None)

    def counts(self) -> Asked[Counts]:
        """See `LiveQueue.counts`."""
        successor = yield from self._another_master()
        return (yield from successor.counts())

    def fetch(self, *, no_ack: bool) -> Asked[tuple[Run, int] | None]:
        """See `LiveQueue.fetch`."""
        successor = yield from self._another_master()
        return (yield from successor.fetch(no_ack=no_ack))

    def purge(self) -> Asked[int]:
        """See `LiveQueue.purge`."""
        successor = yield from self._another_master()
        return (yield from successor.purge())

    def delete(self, *, if_unused: bool, if_empty: bool) -> Asked[int]:
        """See `LiveQueue.delete`. One that is down goes at once, unless it should be empty: nobody knows (§9.4)."""
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
        """Wait for whoever takes the place of this one. Raises: ProtocolError 404 if it takes too long."""
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

    def take_leave(self) -> Belongings:
        """See `LiveQueue.take_leave`."""
        since = None if self.is_down else self._since
        belongings = Belongings(self._publishes.next_number, homeless_since=since)
        if self._is_closed:
            return belongings
        self._stop()
        belongings.publishes = self._publishes.take()
        belongings.consumers = list(self._consumers)
        belongings.awaiting = list(self._awaiting)
        belongings.questions = [on_done for _, on_done in self._questions]
        self._consumers.clear()
        self._awaiting.clear()
        self._questions.clear()
        return belongings

    def take_over(self, belongings: Belongings) -> None:
        """See `LiveQueue.take_over`."""
        if belongings.homeless_since is not None:
            self._since = belongings.homeless_since
        for publish in belongings.publishes:
            if publish.run:
                self._publishes.put(publish)
        self._publishes.next_number = belongings.next_number
        settle_all((each for each in belongings.publishes if not each.run), is_lost=True)
        for consumer in belongings.consumers:
            successor = consumer.channel.reattached(consumer, self)
            if successor is not None:
                self._consumers[successor] = None
        for publisher in belongings.awaiting:
            self.await_relief(publisher)
        if self._is_late:
            self._fail_publishes()
        elif self._publishes:
            self._arm()
        for ask in belongings.questions:
            ask(self)

    def close(self) -> None:
        """See `LiveQueue.close`. No master has ever had the messages that wait here: they are lost (reliability L5)."""
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
