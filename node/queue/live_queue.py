"""A queue as channels see it, wherever it lives: on this node (`node.queue.queue`) or on another one
(`cluster.remote`).

What may take a trip to another node is *asked*: a generator that gives its answer at once or waits, for handlers
to say `counts = yield from queue.counts()`. What needs no answer is simply said.
Source: amqp-behaviour §9.1; architecture §1, §3.
"""

from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from node.catalogue.commands import Command
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.acceptance import Party
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
    """An answer that is there already."""
    return answer
    yield  # which makes this a generator


class Counts(NamedTuple):
    """What a declaration is answered with: ready messages, and consumers."""

    messages: int
    consumers: int


class HeldPublisher(Protocol):
    """A publisher whose connection is not read from while what it publishes to is congested."""

    def peer_relieved(self) -> None:
        """The congestion is over, or the way to the queue is gone: the publisher goes on."""


class Way(Protocol):
    """What publishes have to go, beyond this node's memory and disk: to another node, or to a queue's mirrors."""

    @property
    def is_congested(self) -> bool:
        """Whether so much is on it that publishers should hold on."""

    def await_relief(self, publisher: HeldPublisher) -> None:
        """Call `publisher.peer_relieved()` once that is over, or the way is gone."""


class Unanswered(NamedTuple):
    """A publish of this node to a queue on another one, which has not answered yet.

    number: rising for this node and the queue, over all its masters.   size: what it takes on the way, in bytes.
    run: the messages, an Enqueue of `node.queue.operations` whose first_seq is the number; empty where they are
        not kept, as the queue was not mirrored when they were sent.
    party: None: nobody wants to know.   is_sent: to some master, who may have delivered it.
    """

    number: int
    size: int
    run: bytes
    party: Party | None
    is_sent: bool


@dataclass(slots=True)
class Belongings:
    """What the clients of this node have at a mirrored queue, which goes along when its master is another one.

    next_number: of the next publish to be numbered.   publishes: in order of their numbers.
    consumers: those that had joined, by age.   awaiting: publishers that wait for relief.
    questions: each waits to be called with who can answer it now.
    homeless_since: when there was no master any more, on the broker's clock; None: there is one, or there was.
    """

    next_number: int = 1
    publishes: list[Unanswered] = field(default_factory=list)
    consumers: "list[Consumer]" = field(default_factory=list)
    questions: "list[Callable[[LiveQueue], None]]" = field(default_factory=list)
    awaiting: list[HeldPublisher] = field(default_factory=list)
    homeless_since: float | None = None


class LiveQueue(Way, Protocol):
    """One live queue. As a `Way` it is the one to the node where it lives, or to its mirrors.

    is_local: it lives on this node, and is a `Queue`.
    is_durable: persistent messages in it survive its node.   is_plain: no rule looks at messages as they come in.
    successor: who took its place, as the master of a mirrored queue is another one; None: it has not left.
    """

    record: QueueRecord
    settings: QueueSettings
    successor: "LiveQueue | None"
    is_local: bool
    is_durable: bool
    is_plain: bool

    @property
    def leaves_node(self) -> bool:
        """Whether what is published to it goes to other nodes, too: it lives there, or has mirrors there."""

    @property
    def is_out_of_reach(self) -> bool:
        """Whether who can wait had better try again later: there is no master, and too much waits for one."""

    def apply_settings(self, settings: QueueSettings, now: float) -> None:
        """Take over changed settings."""

    def publish(self, batch: Batch, party: Party | None) -> Collection[int]:
        """Publish messages to it, wherever it lives.

        party: hears, once, what became of them when they are where they must be; None: nobody wants to know.
        Returns: the indexes of those that it refused at once, of which the party hears too.
        """

    def close(self) -> None:
        """The queue is gone, or out of reach: cancel its consumers."""

    def take_leave(self) -> Belongings:
        """The master is another one: hand over what clients of this node have here.

        From now on it does nothing: acks, rejects and requeues of what it delivered are accepted and ignored
        (§9.4), late answers are too.
        """

    def take_over(self, belongings: Belongings) -> None:
        """Go on with what clients of this node had at the master before."""

    # --- deliveries ---

    def delivered(self, run: Run) -> None:
        """Messages went to a client that will settle them."""

    def consumed(self, run: Run) -> None:
        """Messages went to a client that will not settle them."""

    def ack(self, run: Run) -> None:
        """A client has settled messages."""

    def reject(self, run: Run, now: float) -> None:
        """A client doesn't want messages, nor that others get them."""

    def requeue(self, runs: list[Run], now: float, *, is_asked: bool = False) -> None:
        """Messages come back from a client.

        runs: the latest delivery first.   is_asked: by nack, reject or recover, and not since a channel has closed.
        """

    # --- consumers ---

    def subscribe(self, consumer: "Consumer") -> Asked[None]:
        """A consumer joins, if that may be. Raises: ProtocolError."""

    def unsubscribe(self, consumer: "Consumer", now: float) -> None:
        """A consumer leaves."""

    def resume(self, consumer: "Consumer") -> None:
        """A consumer that was blocked can take messages again."""

    def limit_changed(self, consumer: "Consumer") -> None:
        """The prefetch limit of the consumer's channel is another one."""

    # --- asking ---

    def heard(self) -> Asked[None]:
        """All that was said has been heard, and consumers here were given what they can take.

        Or the queue is gone, and nobody will hear it.
        """

    def counts(self) -> Asked[Counts]:
        """What is in it; asking is a use (§5.3)."""

    def fetch(self, *, no_ack: bool) -> Asked[tuple[Run, int] | None]:
        """The message at the head, as a run of one, and how many are left behind it; None: the queue is empty.

        It counts as delivered. no_ack: and as settled.
        """

    def purge(self) -> Asked[int]:
        """Drop all ready messages; how many there were."""

    def delete(self, *, if_unused: bool, if_empty: bool) -> Asked[int]:
        """Delete the queue; how many ready messages went with it. Raises: ProtocolError 406 (§3.11)."""


class Peers(Protocol):
    """The other nodes of the cluster, as far as a broker needs them."""

    @property
    def is_congested(self) -> bool:
        """Whether so much is on its way to any of them that dead letters should wait."""

    @property
    def has_work(self) -> bool:
        """Whether `turn` has something to do."""

    def open(self, record: QueueRecord, settings: QueueSettings) -> LiveQueue:
        """The near end of a queue that lives on another node, which is up.

        Of a mirrored queue: also while it has no master, or the master is here and has not begun.
        """

    def node_up(self, name: str) -> None:
        """A node has started. Its queues are opened after this."""

    def node_down(self, name: str) -> None:
        """A node is gone. Its queues are closed after this."""

    def unsettled(self, queue: "Queue", *, take: bool) -> list[Run]:
        """What other nodes hold of a queue of this one.

        take: it takes leave: they have to do with its successor from now on.
        """

    def reply(self, node: str, name: str, envelope: Envelope, content: bytes) -> None:
        """Send a direct reply to a requester on another node (§4.12). It may be dropped."""

    def has_requester(self, node: str, name: str) -> Asked[bool]:
        """Whether there is somebody on another node who waits for direct replies under this name."""

    def turn(self, now: float) -> None:
        """The end of a turn: hand over what has gathered."""

    def close(self) -> None:
        """This node stops and its clients are gone: take back what is out with those of others. The end."""


def all_heard(queues: "Collection[LiveQueue]") -> Asked[None]:
    """All these queues have heard all that was said to them, see `LiveQueue.heard`. They are asked at the same time."""
    waits = [wait for queue in queues for wait in _begun(queue.heard())]
    if waits:
        yield partial(_wait_for_all, waits)


def _begun(asked: Asked[None]) -> "list[tuple[Asked[None], Wait]]":
    """What an answer waits for, with the rest of its way; nothing if it is there already."""
    try:
        awaited = next(asked)
    except StopIteration:
        return []
    assert not isinstance(awaited, Command), awaited
    return [(asked, awaited)]


class _Waiting:
    """It waits for several answers at once.   left: so many are still to come."""

    def __init__(self, left: int, on_done: Callable[[Any], None]) -> None:
        self._left = left
        self._on_done = on_done

    def go_on(self, asked: Asked[None], result: Any) -> None:
        """What one of them waited for is here."""
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
    """The queue, or who has taken its place meanwhile."""
    while queue.successor is not None:
        queue = queue.successor
    return queue


def move(queue: LiveQueue, successor: LiveQueue) -> None:
    """A mirrored queue has another master: its successor, which is to be found in the vhost already, takes over."""
    belongings = queue.take_leave()
    queue.successor = successor
    successor.take_over(belongings)


def local_and_remote(queues: "Collection[LiveQueue]") -> "tuple[Collection[Any], Collection[LiveQueue]]":
    """Those that are a `Queue` of this node, and those that are not."""
    if all(queue.is_local for queue in queues):
        return queues, ()
    return [queue for queue in queues if queue.is_local], [queue for queue in queues if not queue.is_local]
