"""A queue as channels see it, wherever it lives: on this node (`node.queue.queue`) or on another one
(`cluster.remote`).

An operation that may need another node is *asked*: it is a generator that returns its answer at once or waits, and
handlers write `counts = yield from queue.counts()`. An operation without an answer is an ordinary method.
Source: amqp-behaviour §9.1; docs/internals/remote-queues.md, "Asking".
"""

from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from node.catalogue.commands import Command
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.pending_publish import PublishWaiter
from node.queue.run import Batch, Envelope, Run

if TYPE_CHECKING:
    from node.queue.consumer import Consumer
    from node.queue.queue import Queue

T = TypeVar("T")

Wait: TypeAlias = Callable[[Callable[[Any], None]], None]
"""Begins something and calls back once with its result, at once or later."""

Asked: TypeAlias = Generator[Command[Any] | Wait, Any, T]
"""An answer that may have to be waited for."""


def at_once(answer: T) -> Asked[T]:
    """Return an answer that is known already."""
    return answer
    yield  # makes this a generator


class Counts(NamedTuple):
    """The answer to a declaration: the numbers of ready messages and of consumers."""

    messages: int
    consumers: int


class HeldPublisher(Protocol):
    """A publisher whose connection is not read from while a queue that it publishes to is congested."""

    def peer_relieved(self) -> None:
        """Go on: the congestion is over, or the queue is gone."""


class Way(Protocol):
    """The way of publishes beyond this node's memory and disk: to another node, or to a queue's mirrors."""

    @property
    def is_congested(self) -> bool:
        """True if so much is on the way that publishers should hold on."""

    def await_relief(self, publisher: HeldPublisher) -> None:
        """Call `publisher.peer_relieved()` once the congestion is over, or the way is gone."""


class Unanswered(NamedTuple):
    """A publish of this node to a queue on another one, which has not answered yet.

    number: rising for this node and the queue, over all its masters.   size: of its frames, in bytes.
    run: the messages, an Enqueue of `node.queue.operations` whose first_seq is the number; empty if they are not
        kept, as the queue was not mirrored when they were sent.
    waiter: None: the answer is not needed.   is_sent: a master got it, and may have delivered it.
    """

    number: int
    size: int
    run: bytes
    waiter: PublishWaiter | None
    is_sent: bool


@dataclass(slots=True)
class Handoff:
    """The publishes, consumers and questions of this node's clients at a mirrored queue, on their way to the next
    live queue.

    next_number: of the next publish to be numbered.   publishes: in order of their numbers.
    consumers: those that the master knew, by age.   awaiting: publishers that wait for relief.
    questions: callbacks that take the live queue to ask instead.
    masterless_since: when the last master was lost, on the broker's clock; None: there is a master, or there was one.
    """

    next_number: int = 1
    publishes: list[Unanswered] = field(default_factory=list)
    consumers: "list[Consumer]" = field(default_factory=list)
    questions: "list[Callable[[LiveQueue], None]]" = field(default_factory=list)
    awaiting: list[HeldPublisher] = field(default_factory=list)
    masterless_since: float | None = None


class LiveQueue(Way, Protocol):
    """One live queue. As a `Way` it is the way to the node where it lives, or to its mirrors.

    is_local: it lives on this node, and is a `Queue`.
    is_durable: persistent messages in it survive its node.   is_plain: no rule looks at messages as they come in.
    successor: the live queue that replaced this one when the master changed; None: it is still in use.
    """

    record: QueueRecord
    settings: QueueSettings
    successor: "LiveQueue | None"
    is_local: bool
    is_durable: bool
    is_plain: bool

    @property
    def leaves_node(self) -> bool:
        """True if publishes to it go to other nodes, too: it lives there, or has mirrors there."""

    @property
    def is_out_of_reach(self) -> bool:
        """True if publishers that can wait should try again later: there is no master, or too much waits for one."""

    def apply_settings(self, settings: QueueSettings, now: float) -> None:
        """Take over changed settings."""

    def publish(self, batch: Batch, waiter: PublishWaiter | None) -> Collection[int]:
        """Publish messages to the queue, wherever it lives.

        waiter: gets their outcome, once; None: no outcome is needed.
        Returns: the indexes of those that were refused at once; the waiter gets these, too.
        """

    def close(self) -> None:
        """End the queue, which is gone or out of reach: cancel its consumers."""

    def hand_off(self) -> Handoff:
        """Hand over the publishes, consumers and questions of this node's clients: another node is the master now.

        After this the queue ignores acks, rejects and requeues of its deliveries (§9.4), and late answers.
        """

    def adopt(self, handoff: Handoff) -> None:
        """Take the publishes, consumers and questions of the live queue before this one."""

    # --- deliveries ---

    def delivered(self, run: Run) -> None:
        """Count messages that went to a client that will settle them."""

    def consumed(self, run: Run) -> None:
        """Count and forget messages that went to a client that will not settle them."""

    def ack(self, run: Run) -> None:
        """Forget messages that a client has acknowledged."""

    def reject(self, run: Run, now: float) -> None:
        """Take messages that a client has rejected without requeueing them: dead-letter them, or drop them."""

    def requeue(self, runs: list[Run], now: float, *, is_asked: bool = False) -> None:
        """Take messages that come back from a client.

        runs: the latest delivery first.   is_asked: the client sent nack, reject or recover; False: its channel closed.
        """

    # --- consumers ---

    def subscribe(self, consumer: "Consumer") -> Asked[None]:
        """Add a consumer. Raises: ProtocolError, if the queue may not have it."""

    def unsubscribe(self, consumer: "Consumer", now: float) -> None:
        """Remove a consumer."""

    def resume(self, consumer: "Consumer") -> None:
        """Serve a consumer again that was blocked."""

    def limit_changed(self, consumer: "Consumer") -> None:
        """Note that the prefetch limit of the consumer's channel has changed."""

    # --- asking ---

    def heard(self) -> Asked[None]:
        """Wait until all earlier operations have been carried out, and consumers here were given what they can take.

        If the queue is gone this returns at once.
        """

    def counts(self) -> Asked[Counts]:
        """Return the numbers of ready messages and consumers; this counts as a use (§5.3)."""

    def fetch(self, *, no_ack: bool) -> Asked[tuple[Run, int] | None]:
        """Return the message at the head, as a run of one, and how many are left behind it; None: the queue is empty.

        The message counts as delivered.   no_ack: it also counts as settled.
        """

    def purge(self) -> Asked[int]:
        """Drop all ready messages; return how many there were."""

    def delete(self, *, if_unused: bool, if_empty: bool) -> Asked[int]:
        """Delete the queue; return how many ready messages it had. Raises: ProtocolError 406 (§3.11)."""


class Peers(Protocol):
    """The other nodes of the cluster, as a broker uses them."""

    @property
    def is_congested(self) -> bool:
        """True if so much is on its way to a node that dead letters should wait."""

    @property
    def has_work(self) -> bool:
        """True if `turn` has something to do."""

    def open(self, record: QueueRecord, settings: QueueSettings) -> LiveQueue:
        """Open the near end of a queue that lives on another node, which is up.

        For a mirrored queue this is also called while it has no master, or while the master here has not begun.
        """

    def node_up(self, name: str) -> None:
        """Note that a node has started. Its queues are opened after this."""

    def node_down(self, name: str) -> None:
        """Note that a node is gone. Its queues are closed after this."""

    def unsettled(self, queue: "Queue", *, take: bool) -> list[Run]:
        """Return the runs of a queue of this node that clients of other nodes have.

        take: the queue takes leave, so these belong to its successor from now on.
        """

    def reply(self, node: str, name: str, envelope: Envelope, content: bytes) -> None:
        """Send a direct reply to a requester on another node (§4.12). It may be dropped."""

    def has_requester(self, node: str, name: str) -> Asked[bool]:
        """Ask whether a channel of another node waits for direct replies under this name."""

    def turn(self, now: float) -> None:
        """End a turn: hand over what has gathered."""

    def close(self) -> None:
        """Stop, after the clients here are gone: take back the messages that clients of other nodes have."""


def all_heard(queues: "Collection[LiveQueue]") -> Asked[None]:
    """Wait until all these queues have carried out earlier operations (`LiveQueue.heard`), all at the same time."""
    waits = [wait for queue in queues for wait in _begun(queue.heard())]
    if waits:
        yield partial(_wait_for_all, waits)


def _begun(asked: Asked[None]) -> "list[tuple[Asked[None], Wait]]":
    """Begin an answer: return it and what it waits for; nothing if it is done."""
    try:
        awaited = next(asked)
    except StopIteration:
        return []
    assert not isinstance(awaited, Command), awaited
    return [(asked, awaited)]


class _Waiting:
    """Waits for several answers at once.   left: the number of those that are missing."""

    def __init__(self, left: int, on_done: Callable[[Any], None]) -> None:
        self._left = left
        self._on_done = on_done

    def go_on(self, asked: Asked[None], result: Any) -> None:
        """Continue an answer, as its result has come."""
        try:
            awaited = asked.send(result)
        except StopIteration:
            self._left -= 1
            if not self._left:
                self._on_done(None)
            return
        assert not isinstance(awaited, Command), awaited
        awaited(partial(self.go_on, asked))


def _wait_for_all(waits: "list[tuple[Asked[None], Wait]]", on_done: Callable[[Any], None]) -> None:
    waiting = _Waiting(len(waits), on_done)
    for asked, wait in waits:
        wait(partial(waiting.go_on, asked))


def current(queue: LiveQueue) -> LiveQueue:
    """Return the queue, or the live queue that has replaced it."""
    while queue.successor is not None:
        queue = queue.successor
    return queue


def move(queue: LiveQueue, successor: LiveQueue) -> None:
    """Replace a live queue, whose master has changed, by its successor, which the vhost has already."""
    handoff = queue.hand_off()
    queue.successor = successor
    successor.adopt(handoff)


def local_and_remote(queues: "Collection[LiveQueue]") -> "tuple[Collection[Any], Collection[LiveQueue]]":
    """Split queues into those that are a `Queue` of this node, and the others."""
    if all(queue.is_local for queue in queues):
        return queues, ()
    return [queue for queue in queues if queue.is_local], [queue for queue in queues if not queue.is_local]
