"""A queue as channels see it, wherever it lives: on this node (`node.broker.queue`) or on another one
(`cluster.remote`).

What may take a trip to another node is *asked*: a generator that gives its answer at once or waits, for handlers
to say `counts = yield from queue.counts()`. What needs no answer is simply said.
Source: amqp-behaviour §9.1; architecture §1, §3.
"""

from collections.abc import Callable, Collection, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from node.broker.acceptance import Acceptance
from node.broker.commands import Command
from node.broker.policy import QueueSettings
from node.broker.records import QueueRecord
from node.broker.run import Envelope, Run

if TYPE_CHECKING:
    from node.broker.connection import Connection
    from node.broker.consumer import Consumer

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


class LiveQueue(Protocol):
    """One live queue.

    is_local: it lives on this node, and is a `Queue`.
    is_durable: persistent messages in it survive its node.   is_plain: no rule looks at messages as they come in.
    """

    record: QueueRecord
    settings: QueueSettings
    is_local: bool
    is_durable: bool
    is_plain: bool

    def apply_settings(self, settings: QueueSettings, now: float) -> None:
        """Take over changed settings."""

    def close(self) -> None:
        """The queue is gone, or out of reach: cancel its consumers."""

    # --- deliveries ---

    def delivered(self, run: Run) -> None:
        """Messages went to a client that will settle them."""

    def forget(self, run: Run) -> None:
        """Messages went to a client that will not settle them."""

    def ack(self, run: Run) -> None:
        """A client has settled messages."""

    def reject(self, run: Run, now: float) -> None:
        """A client doesn't want messages, nor that others get them."""

    def requeue(self, runs: list[Run], now: float) -> None:
        """Messages come back from a client.   runs: the latest delivery first."""

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
        """All that was said has been heard; or the queue is gone, and nobody will."""

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


class RemoteQueue(LiveQueue, Protocol):
    """A queue that lives on another node."""

    @property
    def is_congested(self) -> bool:
        """Whether so much is on its way there that publishers should hold on."""

    def send(
        self, envelope: Envelope, contents: list[bytes], size: int, acceptance: Acceptance | None
    ) -> None:
        """Publish messages to it.   contents: not to be changed, but copied if kept.   size: as in `Run`.

        acceptance: hears, once, what became of them; None: nobody wants to know.
        """

    def await_relief(self, connection: "Connection") -> None:
        """Call `connection.throttle.peer_relieved()` once the way there is not congested any more, or is gone."""


class Peers(Protocol):
    """The other nodes of the cluster, as far as a broker needs them."""

    @property
    def is_congested(self) -> bool:
        """Whether so much is on its way to any of them that dead letters should wait."""

    @property
    def has_work(self) -> bool:
        """Whether `turn` has something to do."""

    def open(self, record: QueueRecord, settings: QueueSettings) -> RemoteQueue:
        """The near end of a queue that lives on another node, which is up."""

    def node_up(self, name: str) -> None:
        """A node has started. Its queues are opened after this."""

    def node_down(self, name: str) -> None:
        """A node is gone. Its queues are closed after this."""

    def reply(self, node: str, name: str, envelope: Envelope, content: bytes) -> None:
        """Send a direct reply to a requester on another node (§4.12). It may be dropped."""

    def has_requester(self, node: str, name: str) -> Asked[bool]:
        """Whether there is somebody on another node who waits for direct replies under this name."""

    def turn(self, now: float) -> None:
        """The end of a turn: hand over what has gathered."""

    def close(self) -> None:
        """This node stops and its clients are gone: take back what is out with those of others. The end."""


def local_and_remote(queues: "Collection[LiveQueue]") -> "tuple[Collection[Any], Collection[Any]]":
    """Those that are a `Queue` of this node, and those that are a `RemoteQueue`."""
    if all(queue.is_local for queue in queues):
        return queues, ()
    return [queue for queue in queues if queue.is_local], [queue for queue in queues if not queue.is_local]
