"""Dead letters of queues whose `dead-letter-strategy` is `at-least-once`.

    Queue ─ add ─► waiting ─ a turn ─► published to each target ─ all have it ─► Queue.forget
                      ▲                          │ one refuses it, is missing or out of reach
                      └── held: 1 s, 2 s … 16 s ◄┘

A letter belongs to the queue in which it died until every queue has it to which its exchange routes it, as safely as a
confirm means. Queues that have it do not get it again with a later attempt. If its own queue moves to another node or
the node ends, the message is ready there again: it may be delivered or dead-lettered twice, but is not lost.
Source: docs/dead_letters.md.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from node.broker.forwarding import Forwarding, ForwardingHost
from node.broker.full_routes import FullRoutes
from node.client.counters import AT_LEAST_ONCE, CONFIRMED, RETRIED
from node.override import override
from node.queue.dead_letter import (
    CYCLE,
    NO_EXCHANGE,
    NO_ROUTE,
    OUT_OF_REACH,
    REFUSED,
    REJECTED,
    Death,
    dead_copy,
    dead_envelope,
    is_cycle,
)
from node.queue.intake import Targets
from node.queue.letters import NO_LETTERS, Letters
from node.queue.live_queue import LiveQueue
from node.queue.pending_publish import PendingPublish
from node.queue.queue import Queue
from node.queue.run import Batch, Envelope, Run
from node.scheduling.timers import Timer

RETRY_MIN_S: Final = 1.0
RETRY_MAX_S: Final = 16.0
"""The seconds between two attempts for the letters of a queue; they double as long as no letter gets through."""

PROBES_MAX: Final = 32
"""The letters of a queue that are tried at a time while none gets through."""

ROUND_MAX: Final = 512
"""The letters of a queue that are tried at a time once some get through."""


class Errand(NamedTuple):
    """The errand of messages of one queue that died for one reason.   letter: None: this is their first attempt."""

    vhost: str
    exchange: str
    reason: str
    letter: "_Letter | None" = None


class _Letter:
    """One dead message.

    has_it: the ids of the queues that have it.   unanswered: answers of this attempt that are missing.
    cause: of the failure of this attempt; empty: there was none.   is_again: this attempt is not the first.
    """

    __slots__ = ("cause", "has_it", "is_again", "queue", "reason", "run", "unanswered")

    def __init__(self, queue: Queue, run: Run, reason: str) -> None:
        self.queue = queue
        self.run = run
        self.reason = reason
        self.has_it: frozenset[str] = frozenset()
        self.unanswered = 0
        self.cause = ""
        self.is_again = False


class _Open:
    """The letters of one queue that have been tried and are not forgotten.

    held: those that wait for the next attempt.   tried: those whose next attempt is under way.
    has_moved, has_failed: a letter of the current round of attempts has left, has failed.
    delay_s: before the next round.   is_told: it was logged that letters wait.
    """

    __slots__ = ("delay_s", "has_failed", "has_moved", "held", "is_told", "letters", "timer", "tried")

    def __init__(self) -> None:
        self.letters: dict[_Letter, None] = {}
        self.held: deque[_Letter] = deque()
        self.tried = 0
        self.has_moved = self.has_failed = self.is_told = False
        self.delay_s = RETRY_MIN_S
        self.timer: Timer | None = None


class SafeLetters(Forwarding[Errand]):
    """The dead letters of one broker that no target may miss.

    at_most_once: takes the letters of queues that have got another strategy meanwhile.
    """

    def __init__(
        self, broker: ForwardingHost, at_most_once: Callable[[Queue, Run, str, float], None]
    ) -> None:
        super().__init__(broker)
        self._at_most_once = at_most_once
        self._full = FullRoutes(broker)
        self._open: dict[Queue, _Open] = {}

    def add(self, queue: Queue, run: Run, reason: str) -> None:
        """Add messages that left the backlog of a queue. It forgets them when all their targets have them."""
        self._broker.counters.dead_lettered[reason, AT_LEAST_ONCE] += len(run)
        if queue.letters is NO_LETTERS:
            queue.letters = Letters()
        if queue.letters.add(run):
            queue.consumers.hold()
        self._add(Errand(queue.record.vhost, "", reason), run, queue)

    @override
    def _publish(self, errand: Errand, run: Run, queue: Queue) -> bool:
        """Try to publish messages. True: their queue keeps them until then."""
        if errand.letter is not None:
            self._broker.counters.dead_lettered[RETRIED, AT_LEAST_ONCE] += 1
            self._attempt(errand.letter)
            return True
        if queue.is_deleted:
            return False
        for single in run.singles():
            self._attempt(_Letter(queue, single, errand.reason))
        return True

    def _attempt(self, letter: _Letter) -> None:
        queue = letter.queue
        if queue.is_deleted:
            self._close(queue)
            return
        if not queue.settings.keeps_dead_letters:
            self._give_up(letter)
            return
        own = self._open.get(queue)
        if own is None:
            own = self._open[queue] = _Open()
        own.letters[letter] = None
        letter.cause = ""
        letter.unanswered = 1  # that of this method
        self._publish_to_all(letter)
        self._answered(letter)

    def _publish_to_all(self, letter: _Letter) -> None:
        """Publish a letter to those of its targets that don't have it yet."""
        queue, run, broker = letter.queue, letter.run, self._broker
        vhost, exchange = queue.record.vhost, queue.settings.dead_letter_exchange
        assert exchange is not None, "these letters have an exchange"
        key, died_at_s = queue.settings.dead_letter_routing_key, int(broker.now + broker.epoch_s)
        death = Death(vhost, queue.record.name, letter.reason, exchange, key, died_at_s)
        envelope = dead_envelope(death, run.envelope)
        copy, headers = dead_copy(run.contents[0], death, run.envelope)
        keys = [envelope.routing_key, *envelope.cc, *envelope.bcc]
        is_routed, cause = False, NO_ROUTE
        for target in self._route(Errand(vhost, exchange, letter.reason), keys, headers, copy):
            if letter.reason != REJECTED and is_cycle(target.record.name, headers):
                cause = CYCLE
                continue
            is_routed = True
            if target.is_out_of_reach:
                letter.cause = OUT_OF_REACH
            elif target.record.uid not in letter.has_it:
                self._give(letter, target, envelope, copy)
        if not is_routed and not letter.has_it:
            is_missing = broker.catalogue.exchange(vhost, exchange) is None
            letter.cause = NO_EXCHANGE if is_missing else cause
        if self._full.lack(vhost, exchange, keys, headers, copy):
            letter.cause = OUT_OF_REACH

    def _give(self, letter: _Letter, target: LiveQueue, envelope: Envelope, copy: bytes) -> None:
        """Publish a letter to one target."""
        letter.unanswered += 1
        intake, pending = self._broker.intake, PendingPublish(1)
        intake.give(Batch(envelope, [copy], letter.run.size), Targets((target,)), pending)
        if isinstance(target, Queue):
            target.count_letters(1)
            self._congested = target if target.leaves_node else self._congested
        intake.end(pending, partial(self._told, letter, target.record.uid))

    def _told(self, letter: _Letter, uid: str, pending: PendingPublish) -> None:
        """Take the answer of one target."""
        if pending.refused:
            letter.cause = REFUSED
        elif pending.is_lost or pending.is_unkept:
            letter.cause = OUT_OF_REACH
        else:
            letter.has_it |= {uid}
        self._answered(letter)

    def _answered(self, letter: _Letter) -> None:
        letter.unanswered -= 1
        if letter.unanswered:
            return
        queue = letter.queue
        own = self._open.get(queue)
        if own is None or letter not in own.letters:
            return  # its queue has left: there it is ready again
        if queue.is_deleted:
            self._close(queue)
            return
        if letter.cause:
            own.has_failed = True
            own.held.append(letter)
            self._tell(own, letter)
        else:
            own.has_moved = True
            del own.letters[letter]
            self._broker.counters.dead_lettered[CONFIRMED, AT_LEAST_ONCE] += 1
            self._left(letter)
            queue.forget(letter.run)
        if letter.is_again:
            own.tried -= 1
            if not own.tried:
                own.delay_s = RETRY_MIN_S if own.has_moved else min(2 * own.delay_s, RETRY_MAX_S)
        self._go_on(queue, own)

    def _go_on(self, queue: Queue, own: _Open) -> None:
        """Set the time of the next attempts, if letters wait and none of the last ones is under way."""
        if not own.letters:
            if own.is_told:
                self._broker.observer.letters_left(queue.record)
            self._close(queue)
        elif own.held and not own.tried and own.timer is None:
            delay_s = own.delay_s if own.has_failed else 0.0
            own.timer = self._broker.timers.at(self._broker.now + delay_s, partial(self._retry, queue))

    def _retry(self, queue: Queue, now: float) -> None:
        """Try some of the letters again that wait."""
        own = self._open[queue]
        own.timer = None
        if queue.is_deleted:
            self._close(queue)
            return
        count = min(len(own.held), ROUND_MAX if own.has_moved else PROBES_MAX)
        own.has_moved = own.has_failed = False
        own.tried = count
        for _ in range(count):
            letter = own.held.popleft()
            letter.is_again = True
            self._add(Errand(queue.record.vhost, "", letter.reason, letter), letter.run, queue)

    def _tell(self, own: _Open, letter: _Letter) -> None:
        if not own.is_told:
            own.is_told = True
            self._broker.observer.letters_wait(letter.queue.record, letter.cause)

    def _give_up(self, letter: _Letter) -> None:
        """Hand over a letter whose queue has another strategy now."""
        queue = letter.queue
        own = self._open.get(queue)
        if own is not None and letter in own.letters:
            del own.letters[letter]
            own.tried -= letter.is_again
        self._left(letter)
        self._at_most_once(queue, letter.run, letter.reason, self._broker.now)
        if own is not None:
            self._go_on(queue, own)

    def _left(self, letter: _Letter) -> None:
        """Count a letter no more, and let its queue give out messages again if there were too many."""
        queue = letter.queue
        if queue.letters.remove(letter.run):
            queue.consumers.release()
            self._broker.touch(queue)

    def _close(self, queue: Queue) -> None:
        """Forget the letters of a queue that has none, or is gone."""
        own = self._open.pop(queue, None)
        if own is not None and own.timer is not None:
            own.timer.cancel()

    @override
    def _forget(self, run: Run, queue: Queue) -> None:
        super()._forget(run, queue)
        self._close(queue)  # only a queue that is gone forgets messages that were not tried

    @override
    def all_unsettled(self) -> Iterator[tuple[Run, Queue]]:
        for queue, own in self._open.items():
            for letter in own.letters:
                yield letter.run, queue
        for errand, run, queue in self._waiting:
            if errand.letter is None:
                yield run, queue

    @override
    def unsettled(self, queue: Queue, *, take: bool) -> list[Run]:
        runs = super().unsettled(queue, take=take)
        if take:
            self._close(queue)
        return runs
