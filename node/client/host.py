"""The protocol by which channels use the broker, which they cannot import: it imports them."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from node.amqp.field_table import Table
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Command, DeclareExchange, DeclareQueue, ExchangeDeclared
from node.catalogue.replicated_log import ReplicatedLog
from node.client.alarms import Alarms
from node.client.authority import Authority
from node.client.counters import BrokerCounters
from node.client.delivery_interception import DeliveryInterception
from node.client.interception import Interceptor
from node.client.observer import Observer
from node.client.pairs import Pairs
from node.client.reply_to import ReplyConsumers
from node.client.settings import BrokerSettings
from node.client.vhost import LiveVhost
from node.queue.intake import Intake
from node.queue.live_queue import Asked, LiveQueue
from node.queue.metering import Meter
from node.queue.run import Envelope
from node.queue.storage import Storage
from node.routing.exchange_types import ExchangeTypes
from node.scheduling.chores import Chores
from node.scheduling.timers import Timers
from node.scheduling.turn import Turn

if TYPE_CHECKING:
    from node.client.base_connection import BaseConnection
    from node.client.channel import Channel
    from node.client.client_names import ClientNames
    from node.queue.queue import Queue


class ClientHost(Protocol):
    """The broker, as channels and the output of connections use it; `ConnectionHost` adds what reading needs.

    Fields that are not explained here are as in `Broker`.
    """

    settings: BrokerSettings
    catalogue: Catalogue
    vhosts: dict[str, LiveVhost]
    exchange_types: ExchangeTypes
    authority: Authority | None
    interceptors: Sequence[Interceptor]
    delivery_interception: DeliveryInterception | None
    storage: Storage
    observer: Observer
    meter: Meter | None
    counters: BrokerCounters
    pairs: Pairs
    intake: Intake
    alarms: Alarms
    timers: Timers
    turns: Turn
    chores: Chores
    entropy: Callable[[int], bytes]
    now: float
    epoch_s: float
    wake: Callable[[], None]
    in_flow: "dict[BaseConnection, None]"
    closing: "dict[Channel, None]"
    channel_counts: Counter[str]
    reply_consumers: ReplyConsumers
    client_names: "ClientNames"

    @property
    def log(self) -> ReplicatedLog:
        """The log through which the catalogue is changed."""

    @property
    def incarnation(self) -> int:
        """The incarnation of this node in its cluster; 0 without one."""

    def has_output(self, connection: "BaseConnection") -> None:
        """Flush the connection at the end of the turn."""

    def live_queue(self, vhost: str, name: str) -> LiveQueue:
        """Return the live queue; ProtocolError 404 if there is none, or none within reach (amqp-behaviour §9.1)."""

    def placed(self, command: DeclareQueue) -> DeclareQueue:
        """Return the declaration of a queue, made here, with its home and its mirrors: see `Placement.placed`."""

    def with_waiting_queue(self, command: DeclareExchange) -> Command[ExchangeDeclared]:
        """Return the declaration of an exchange, made here: that of a delayed one with its queue, on several nodes."""

    def holding(self, vhost: str, header: str) -> Command[ExchangeDeclared] | None:
        """Return the declaration of the exchange that keeps messages until the time in a header; None: it exists."""

    def await_deletions(self, on_done: Callable[[Any], None]) -> None:
        """Call back when all queues are gone that this broker has begun to delete by itself.

        The client that cancels the last consumer of an auto-delete queue, or closes, is answered after that
        (amqp-behaviour §3.12, §3.13).
        """

    def touch(self, queue: "Queue") -> None:
        """Call the queue's `pump` at the end of the turn: there may be something to deliver."""

    def route(
        self,
        vhost: str,
        exchange: str,
        routing_keys: Sequence[str],
        headers: Table | None,
        content: bytes | None = None,
        past: str | None = None,
    ) -> Sequence[LiveQueue]:
        """Return the queues that a message goes to, each once. Raises: ProtocolError 406 as `Router.route` does."""

    def reply(self, name: str, envelope: Envelope, content: bytes) -> None:
        """Send a direct reply to the channel that waits for replies under this name, here or on another node."""

    def has_requester(self, name: str) -> Asked[bool]:
        """Ask whether a channel waits for direct replies under this name."""
