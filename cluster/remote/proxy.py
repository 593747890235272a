"""A queue's side of one front end: takes the front end's publishes and questions, and keeps what was delivered to it.

Source: amqp-behaviour §4.3, §4.10, §4.11, §9.1; docs/internals/remote-queues.md.
"""

from collections.abc import Callable, Collection
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cluster.errors import Malformed
from cluster.remote.frames import decode_run, encode_run, ranges
from cluster.remote.outgoing_frames import OutgoingFrames
from cluster.remote.outlet import RemoteConsumer, RemoteOutlet
from cluster.remote.remote_pb2 import Answer, Ask, Publish, Settle, Subscribe
from node.amqp.errors import ProtocolError
from node.amqp.field_table import decode_table
from node.broker.handoff import Again, take_once
from node.catalogue.commands import Command
from node.catalogue.names import not_found
from node.client.unacked import Delivery, Unacked, open_runs
from node.queue.live_queue import Asked, Counts
from node.queue.operations import Enqueue
from node.queue.run import Batch, Run

if TYPE_CHECKING:
    from cluster.remote.front_end import FrontEnd
    from node.broker.broker import Broker
    from node.queue.queue import Queue

_T = TypeVar("_T")

_SHORTSTR_MAX: Final = 255


def _tell_counts(answer: Answer, counts: Counts) -> None:
    answer.messages, answer.consumers = counts


def _tell_count(answer: Answer, count: int) -> None:
    answer.messages = count


def _tell_nothing(answer: Answer, result: None) -> None:
    """Put nothing into the answer: it only says that the steps are done."""


class Proxy:
    """Serves one front end at one queue. A `Waiter` for publishes that the queue keeps.

    consumers: by the front end's number.   unacked: deliveries that are not settled, by tags of this pair of nodes.
    mastership: the queue's mastership that frames here belong to, see `QueueRecord`.
    """

    def __init__(
        self,
        queue: "Queue",
        front_end: "FrontEnd",
        broker: "Broker",
        outgoing: OutgoingFrames,
        mastership: int,
    ) -> None:
        self.queue = queue
        self.outgoing = outgoing
        self.mastership = mastership
        self.unacked = Unacked()
        self.consumers: dict[int, RemoteConsumer] = {}
        self._front_end = front_end
        self._broker = broker
        self._next_tag = 1
        self._next_number = 1
        self._refused: dict[int, list[int]] = {}  # by unanswered publish, the messages that the queue refused
        self._sender = front_end.incarnation
        self._waiting: tuple[int, int, bool] | None = None
        """The first and last publish of this frame that wait for mirrors or disk, and whether they must be on disks."""
        self._again: Again | None = None
        self._has_left = False
        self._withheld: list[int] = []  # publishes whose answers wait until our disk keeps up
        self._is_closed = False

    @property
    def sender(self) -> int:
        """The incarnation of the front end's node."""
        return self._sender

    # --- publishing ---

    def publish(self, message: Publish) -> None:
        """Take a run; numbers are consecutive, and rising where an earlier master had some. Raises Malformed."""
        entry = decode_run(message.run)
        number = entry.first_seq
        if number < self._next_number or (number > self._next_number and not self.mastership):
            raise Malformed(f"publish {number} comes where {self._next_number} should")
        self._next_number = number + 1
        if self.queue.is_deleted:
            self._answer(number, number)
            return
        refused = self._take(entry, is_again=message.is_again)
        if refused:
            self._refused[number] = sorted(refused)
        is_kept = entry.envelope.persistent and self.queue.is_durable
        if self.queue.leaves_node or (message.is_confirmed and is_kept):
            self._wait(number, is_kept=is_kept)
        elif message.is_confirmed or not self._broker.storage.is_congested:
            self._answer(number, number)
        else:
            self._withheld.append(number)

    def _take(self, entry: Enqueue, *, is_again: bool) -> Collection[int]:
        """Enqueue a run unless it came before (`take_once`); return the indexes of the messages that the queue
        refused.
        """
        if is_again and self._again is None:
            self._again = Again(self._broker, self.queue)
        elif self._again is not None and not is_again:
            self.end_again()
        assert entry.contents is not None
        envelope = copy(entry.envelope) if is_again else entry.envelope
        batch = Batch(envelope, entry.contents, entry.size)
        return take_once(self.queue, self._sender, entry.first_seq, batch, is_again=is_again)

    def _wait(self, number: int, *, is_kept: bool) -> None:
        """Have a publish answered once it is safe. Consecutive publishes of a frame that wait for the same share a
        wait.
        """
        waiting = self._waiting
        if waiting is not None and (waiting[1] != number - 1 or waiting[2] is not is_kept):
            self.await_safety()
            waiting = None
        self._waiting = number if waiting is None else waiting[0], number, is_kept

    @property
    def is_again(self) -> bool:
        """True while publishes come that an earlier master may have had: `end_again` must follow before anything
        else.
        """
        return self._again is not None

    def end_again(self) -> None:
        """Note that the publishes that follow were sent to no earlier master."""
        if self._again is not None:
            self._again.end()
            self._again = None

    def await_safety(self) -> None:
        """End a frame: wait until its publishes are safe."""
        if self._waiting is not None:
            (first, last, is_kept), self._waiting = self._waiting, None
            self._broker.intake.await_safety(self.queue, self, first, last, is_persistent=is_kept)

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """Answer publishes that the disk or the mirrors have, or have failed to keep."""
        if not self._is_closed:
            self._answer(first, last, is_safe=is_safe)

    def _answer(self, first: int, last: int, *, is_safe: bool = True) -> None:
        accepted = self.outgoing.accept(first, last) if is_safe else self.outgoing.operation().accepted
        if not is_safe:
            accepted.bounds.extend((first, last))
            accepted.is_lost = True
        if self._refused:
            for number in [number for number in self._refused if first <= number <= last]:
                accepted.refusals.add(number=number, indexes=self._refused.pop(number))

    # --- deliveries ---

    def keep(self, run: Run, consumer: RemoteConsumer | None, now: float) -> int:
        """Remember a delivery until the front end settles it; return its first tag."""
        tag = self._next_tag
        self._next_tag += len(run)
        self.unacked.add(Delivery(tag, run, self.queue, consumer, now))
        return tag

    def settled(self, message: Settle) -> None:
        """Settle deliveries as the front end says. Raises Malformed."""
        for first, last in ranges(message.bounds):
            deliveries = self.unacked.settle(first, last)
            self._settle(deliveries, message.kind)
            if sum(delivery.open for delivery in deliveries) < last + 1 - first:
                raise Malformed(f"deliveries from {first} to {last} are settled, which are not open")

    def _settle(self, deliveries: list[Delivery], kind: Settle.Kind) -> None:
        outlets: dict[RemoteOutlet, None] = {}
        now, queue = self._broker.now, self.queue
        returned: list[Run] = []
        for delivery in deliveries:
            consumer, run = delivery.consumer, delivery.run
            if isinstance(consumer, RemoteConsumer):
                outlets[consumer.outlet] = None
                if kind == Settle.RETURN:
                    consumer.outlet.taken(sum(map(len, run.contents)))
                if not consumer.no_ack:
                    consumer.unacked -= delivery.open
                elif kind == Settle.ACK:
                    queue.forget(run)
                    continue
                else:
                    queue.not_delivered(run)
            if kind == Settle.ACK:
                queue.ack(run)
            elif kind == Settle.REJECT:
                queue.reject(run, now)
            else:
                # Messages that never reached a client are marked as redelivered too, as in RabbitMQ: a later message
                # may have been delivered meanwhile, and only first deliveries are in order.
                returned.append(run)
        if returned:
            returned.reverse()
            queue.requeue(returned, now, is_asked=kind == Settle.REQUEUE)
        for outlet in outlets:
            outlet.unblock()

    # --- consumers ---

    def subscribe(self, message: Subscribe) -> None:
        """Add a consumer of the front end to the queue, and answer. Raises Malformed."""
        tag = message.tag.decode("utf-8", "surrogateescape")
        if message.consumer in self.consumers or len(message.tag) > _SHORTSTR_MAX:
            raise Malformed("a subscription that can't be")
        try:
            arguments = decode_table(message.arguments)[0] if message.arguments else {}
        except ProtocolError as error:
            raise Malformed(f"a table is damaged: {error.explanation}") from error
        outlet = self._front_end.outlet(message.channel)
        consumer = RemoteConsumer(
            message.consumer,
            self,
            outlet,
            self.queue,
            tag,
            no_ack=message.no_ack,
            exclusive=message.exclusive,
            priority=message.priority,
            prefetch=message.prefetch,
            is_limited=message.is_limited,
            arguments=arguments,
        )
        outlet.consumers[consumer] = None
        self.consumers[consumer.id] = consumer
        self._begin(
            lambda: self.queue.subscribe(consumer),
            message.request,
            on_refused=partial(self.forget, consumer),
        )

    def unsubscribe(self, number: int) -> None:
        """Remove a consumer that has left."""
        consumer = self.consumers.get(number)
        if consumer is not None:
            self.forget(consumer)
            self.queue.unsubscribe(consumer, self._broker.now)

    def forget(self, consumer: RemoteConsumer) -> None:
        """Drop a consumer, and its outlet if that has no other one."""
        self.consumers.pop(consumer.id, None)
        consumer.outlet.remove(consumer)
        self._front_end.forget_outlet(consumer.outlet)

    # --- questions ---

    def ask(self, message: Ask) -> None:
        """Answer a question of the front end. Raises Malformed."""
        queue, request = self.queue, message.request
        if message.kind == Ask.COUNTS:
            self._begin(queue.counts, request, _tell_counts)
        elif message.kind == Ask.FETCH:
            self._begin(lambda: queue.fetch(no_ack=False), request, self._tell_fetched)
        elif message.kind == Ask.PURGE:
            self._begin(queue.purge, request, _tell_count)
        elif message.kind != Ask.DELETE:
            raise Malformed("a question of an unknown kind")
        elif queue.is_deleted:
            self.outgoing.operation().answer.request = request  # with the count 0: it is deleted already
        else:
            self._begin(
                lambda: queue.delete(if_unused=message.if_unused, if_empty=message.if_empty),
                request,
                _tell_count,
            )

    def _begin(
        self,
        steps: Callable[[], Asked[_T]],
        request: int,
        tell: Callable[[Answer, Any], None] = _tell_nothing,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin an operation on the queue, and answer when it is done.   tell: puts the result into the answer."""
        on_done = partial(self._done, request, tell, on_refused)
        record = self.queue.record
        if self.queue.is_deleted:
            on_done(not_found("queue", record.name, record.vhost))
            return
        try:
            running = steps()
        except ProtocolError as error:
            on_done(error)
            return
        self._advance(running, on_done, None)

    def _advance(self, running: Asked[_T], on_done: Callable[[Any], None], result: Any) -> None:
        if self._has_left:
            running.close()  # the front end asks the next master
            return
        try:
            awaited = running.send(result)
        except StopIteration as end:
            on_done(end.value)
            return
        except ProtocolError as error:
            on_done(error)
            return
        go_on = partial(self._advance, running, on_done)
        if isinstance(awaited, Command):
            self._broker.log.submit(awaited, go_on)
        else:
            awaited(go_on)

    def _done(
        self,
        request: int,
        tell: Callable[[Answer, Any], None],
        on_refused: Callable[[], None],
        result: Any,
    ) -> None:
        answer = Answer(request=request)
        if isinstance(result, ProtocolError):
            answer.code = result.code
            answer.text = result.explanation.encode("utf-8", "surrogateescape")
            on_refused()
        else:
            tell(answer, result)
        self.outgoing.operation(len(answer.run)).answer.CopyFrom(answer)

    def _tell_fetched(self, answer: Answer, found: tuple[Run, int] | None) -> None:
        if found is None:
            return
        run, answer.messages = found
        if self._is_closed:
            self.queue.requeue([run], self._broker.now)
            return
        tag = self.keep(run, None, self._broker.now)
        answer.run = encode_run(run.envelope, tag, run.contents, run.size, run.deliveries)

    # --- the turn, the end ---

    @property
    def has_withheld(self) -> bool:
        """True if answers wait until the disk keeps up; the front end's window bounds their number."""
        return bool(self._withheld)

    def answer_withheld(self) -> None:
        """Send the answers that waited for the disk, which keeps up again."""
        withheld, self._withheld = self._withheld, []
        for number in withheld:
            self._answer(number, number)

    @property
    def is_idle(self) -> bool:
        """True if no consumer, delivery or answer of the front end is pending."""
        waiting = (self.consumers, self.unacked.count, self._withheld, self._refused)
        return not any(waiting) and self._waiting is None

    def leave(self) -> None:
        """Remove the front end's consumers: it is gone, or has dropped the queue. Deletions are still answered."""
        self._is_closed = True
        while self.consumers:
            _, consumer = self.consumers.popitem()
            self.forget(consumer)
            if not self.queue.is_deleted:
                self.queue.unsubscribe(consumer, self._broker.now)

    def unsettled(self) -> list[Run]:
        """Return the runs that were delivered to the front end and are not settled."""
        return [run for delivery in self.unacked.deliveries() for run in open_runs(delivery)]

    def hand_off(self) -> None:
        """Forget the front end's consumers and deliveries: the next master serves it from here on."""
        self._is_closed = self._has_left = True
        self.outgoing.is_closed = True
        while self.consumers:
            _, consumer = self.consumers.popitem()
            self.forget(consumer)
        self.unacked.drain()
        self._withheld.clear()
        self._refused.clear()
        self._waiting = None

    def requeue_all(self) -> None:
        """Requeue all deliveries of the front end in their old places (§4.11). They count as delivered before."""
        self._settle(self.unacked.drain(), Settle.GIVE_BACK)
