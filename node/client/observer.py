"""The observer of a broker's events, which logs or counts them. Nothing in the broker depends on it.

The base class ignores all events; a shell overrides the methods of those that it needs (`node.io.log_observer`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from node.amqp.errors import ProtocolError
from node.catalogue.events import Event
from node.catalogue.records import QueueRecord
from node.routing.exchange_types import Failure

if TYPE_CHECKING:
    from node.client.base_connection import BaseConnection
    from node.client.channel import Channel
    from node.queue.consumer import Consumer


Level: TypeAlias = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class MirrorEvent:
    """An event of a mirrored queue.

    kind: see `cluster.mirror.mirror_events`; "detail" belongs to the event before it or after it.
    text: the whole line of the log.
    node: the node of the copy that it is about; if the master changed, the new master's; "": none.
    former: the last master's node.   cause: `plan:<plan>:<step>` if a plan's step caused it, else "".
    """

    level: Level
    kind: str
    vhost: str
    queue: str
    text: str
    node: str = ""
    former: str = ""
    cause: str = ""


class Observer:
    """The base of observers, which are told of events in order.

    Implementations must not raise and must not call back.
    """

    def accepted(self, connection: "BaseConnection") -> None:
        """A client spoke AMQP for the first time."""

    def handshake_failed(self, connection: "BaseConnection", explanation: str) -> None:
        """A fault before connection.open ended the handshake; the client is left in silence."""

    def handshake_timed_out(self, connection: "BaseConnection") -> None:
        """The connection was not open in time."""

    def login_tried(self, connection: "BaseConnection", user: str, problem: str) -> None:
        """A client tried to log in.   problem: why it could not; empty when it could."""

    def login_refused(self, connection: "BaseConnection", mechanism: str, reason: str) -> None:
        """A client could not log in."""

    def named_by_client(self, connection: "BaseConnection") -> None:
        """The client gave its connection a name of its own."""

    def opened(self, connection: "BaseConnection") -> None:
        """connection.open succeeded."""

    def secret_updated(self, connection: "BaseConnection", reason: str) -> None:
        """connection.update-secret succeeded."""

    def connection_failed(
        self, connection: "BaseConnection", channel: int, error: ProtocolError, method: str
    ) -> None:
        """A fault of the client, or a refusal, closes the connection. method: its name or ''."""

    def channel_opened(self, channel: "Channel") -> None:
        """A channel was opened."""

    def channel_closed(self, channel: "Channel") -> None:
        """A channel ends, for any reason. Its consumers are removed after this."""

    def consumer_added(self, channel: "Channel", consumer: "Consumer") -> None:
        """A channel has a new consumer of a queue."""

    def consumer_removed(self, channel: "Channel", consumer: "Consumer") -> None:
        """A channel's consumer of a queue was removed."""

    def changed(self, change: Event) -> None:
        """The catalogue changed, by a command of any node; the broker has followed."""

    def channel_failed(
        self, connection: "BaseConnection", channel: int, error: ProtocolError, method: str
    ) -> None:
        """A fault of the client closes a channel. method: its name or ''."""

    def consumer_timed_out(self, connection: "BaseConnection", channel: int, consumer_tag: str) -> None:
        """A delivery stayed unacknowledged for too long."""

    def heartbeats_missed(self, connection: "BaseConnection") -> None:
        """Nothing came from the client for two heartbeat intervals."""

    def closed(self, connection: "BaseConnection", *, in_good_order: bool) -> None:
        """The socket is gone. in_good_order: after a close handshake, or because we wanted it."""

    def alarm_set(self, node: str, resource: str) -> None:
        """The node has too little of this resource: publishers are blocked."""

    def alarm_cleared(self, node: str, resource: str, *, is_last: bool) -> None:
        """The node has enough of this resource again. Publishers are read from again once no alarm is left.

        is_last: no other node lacks this resource.
        """

    def plugin_failed(self, failure: Failure) -> None:
        """A plug-in raised an exception, which went no further."""

    def quorum_requested(self, queue: QueueRecord) -> None:
        """A queue was declared with type quorum, which is an ordinary queue with a delivery limit here."""

    def mirror_event(self, event: MirrorEvent) -> None:
        """Something happened to a mirrored queue."""

    def messages_unreadable(self, queue: QueueRecord, count: int, reason: str) -> None:
        """Messages were dropped as the disk could not read them, and no mirror had them."""

    def message_cycled(self, queue: QueueRecord, routing_keys: list[str]) -> None:
        """A dead-lettered message came back to the queue in a cycle and was dropped."""

    def letters_wait(self, queue: QueueRecord, cause: str) -> None:
        """Dead letters of the queue, which go at least once, have begun to wait for their targets.

        cause: why, as in `node.queue.dead_letter`.
        """

    def letters_fall_back(self, queue: QueueRecord) -> None:
        """Dead letters of the queue go at most once, as it lacks what the strategy at-least-once needs."""

    def letters_left(self, queue: QueueRecord) -> None:
        """All dead letters of the queue have reached their targets, after some had to wait."""


class Observers(Observer):
    """Several observers, each of which is told of all events in turn."""

    def __init__(self, *observers: Observer) -> None:
        # Set on the instance in place of a method for each event: all would be alike, and a new one could be forgotten.
        for name in _HOOKS:
            setattr(self, name, partial(_tell, [getattr(observer, name) for observer in observers]))


_HOOKS: Final = tuple(name for name in vars(Observer) if not name.startswith("_"))


def _tell(hooks: Sequence[Callable[..., None]], /, *what: object, **named: object) -> None:
    for hook in hooks:
        hook(*what, **named)
