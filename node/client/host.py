"""What connections and channels ask of the broker around them, as a protocol: they are below the broker, which knows
them all.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from node.amqp.field_table import Table
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import DeclareQueue
from node.catalogue.replicated_log import ReplicatedLog
from node.client.alarms import Alarms
from node.client.observer import Observer
from node.client.pairs import Pairs
from node.client.reply_to import ReplyConsumers
from node.client.settings import BrokerSettings
from node.client.vhost import LiveVhost
from node.queue.counters import BrokerCounters
from node.queue.live_queue import Asked, LiveQueue
from node.queue.metering import Meter
from node.queue.run import Envelope
from node.queue.storage import Storage
from node.scheduling.chores import Chore, Chores
from node.scheduling.timers import Timers
from node.scheduling.turn import Turn

if TYPE_CHECKING:
    from node.client.channel import Channel
    from node.client.connection import Connection
    from node.queue.queue import Queue


class ClientHost(Protocol):
    """What a connection and its channels need of the broker around them. `Broker` says what each is."""

    settings: BrokerSettings
    catalogue: Catalogue
    vhosts: dict[str, LiveVhost]
    storage: Storage
    observer: Observer
    meter: Meter | None
    counters: BrokerCounters
    pairs: Pairs
    alarms: Alarms
    timers: Timers
    turns: Turn
    chores: Chores
    entropy: Callable[[int], bytes]
    now: float
    epoch_s: float
    wake: Callable[[], None]
    in_flow: "dict[Connection, None]"
    closing: "dict[Channel, None]"
    channel_counts: Counter[str]
    reply_consumers: ReplyConsumers

    @property
    def log(self) -> ReplicatedLog:
        """See `Broker.log`."""

    @property
    def incarnation(self) -> int:
        """See `Broker.incarnation`."""

    def register(self, connection: "Connection") -> tuple[int, str]:
        """See `Broker.register`."""

    def opened(self, connection: "Connection") -> None:
        """See `Broker.opened`."""

    def forget(self, connection: "Connection") -> None:
        """See `Broker.forget`."""

    def has_output(self, connection: "Connection") -> None:
        """See `Broker.has_output`."""

    def connection_count(self, vhost: str | None, user: str | None) -> int:
        """See `Broker.connection_count`."""

    def channel_count(self, user: str) -> int:
        """See `Broker.channel_count`."""

    def live_queue(self, vhost: str, name: str) -> LiveQueue:
        """See `Broker.live_queue`."""

    def placed(self, command: DeclareQueue) -> DeclareQueue:
        """See `Broker.placed`."""

    def delete_exclusive_queues(self, connection: "Connection") -> Chore:
        """See `Broker.delete_exclusive_queues`."""

    def await_deletions(self, on_done: Callable[[Any], None]) -> None:
        """See `Broker.await_deletions`."""

    def touch(self, queue: "Queue") -> None:
        """See `QueueHost.touch`."""

    def route(
        self, vhost: str, exchange: str, routing_keys: Sequence[str], headers: Table | None
    ) -> Sequence[LiveQueue]:
        """See `Broker.route`."""

    def enqueue(
        self, envelope: Envelope, contents: list[bytes], size: int, queues: "Collection[Queue]"
    ) -> set[int] | None:
        """See `Broker.enqueue`."""

    def reply(self, name: str, envelope: Envelope, content: bytes) -> None:
        """See `Broker.reply`."""

    def has_requester(self, name: str) -> Asked[bool]:
        """See `Broker.has_requester`."""
