"""The objects of one node whose values are kept over time."""

from typing import Final

from node.broker.broker import Broker
from node.statistics.message_stats import (
    CHANNEL,
    DELIVER_GET,
    DELIVER_GET_PARTS,
    DELIVERIES,
    DISK,
    EXCHANGE,
    PUBLISHES,
    QUEUE,
    Shown,
    shown,
)
from node.statistics.options import StatisticsOptions
from node.statistics.series import Budget, Clock, Ladder, Watch

LENGTHS: Final = ("messages_ready", "messages_unacknowledged")
MESSAGES: Final = "messages"
ALL_LENGTHS: Final = (MESSAGES, *LENGTHS)
OCTETS: Final = ("recv_oct", "send_oct")
CHURN: Final = (
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
)
NODE: Final = "node"
"""The id of the only object of `Watches.node`."""


class Watches:
    """The watched objects of a broker, by kind, and which counters of each are shown together.

    capacity: of queues whose consumers could not take messages at times, the part of the time in which they could.
    """

    def __init__(self, broker: Broker, options: StatisticsOptions) -> None:
        self.broker = broker
        self.options = options
        self.is_on = options.is_on
        self.clock = Clock(options.interval_s)
        self.budget = Budget()
        kept = options.retention
        self.queues = self._watch((*LENGTHS, *QUEUE), kept.basic)
        self.channels = self._watch(CHANNEL, kept.basic)
        self.connections = self._watch(OCTETS, kept.basic)
        self.exchanges = self._watch(EXCHANGE, kept.basic)
        self.vhosts = self._watch((*LENGTHS, *CHANNEL, *OCTETS), kept.overall)
        self.node = self._watch((*LENGTHS, *CHANNEL, *OCTETS, *DISK, *CHURN), kept.overall)
        self.capacity: dict[str, float] = {}
        self.lengths_since_ms = 0
        """From when on the lengths of all queues of the node belong to the same nodes as those of the other nodes."""
        self.queue_tables = self._shown(self.queues, ("publish",), DELIVERIES)
        self.channel_tables = self._shown(self.channels, PUBLISHES, DELIVERIES)
        self.exchange_tables = self._shown(self.exchanges, EXCHANGE)
        self.vhost_tables = self._shown(self.vhosts, PUBLISHES, DELIVERIES)
        self.node_tables = self._shown(self.node, PUBLISHES, DELIVERIES)

    def _watch(self, names: tuple[str, ...], ladder: Ladder) -> Watch:
        watch = Watch(names, ladder, self.clock, self.budget, is_on=self.is_on)
        if "deliver" in names:
            watch.derive(DELIVER_GET, *DELIVER_GET_PARTS)
        if LENGTHS[0] in names:
            watch.derive(MESSAGES, *LENGTHS)
        return watch

    def watch(self, names: tuple[str, ...]) -> Watch:
        """Return another watch, for figures of the whole node."""
        return self._watch(names, self.options.retention.overall)

    def _shown(self, watch: Watch, *tables: tuple[str, ...]) -> tuple[Shown, ...]:
        """Return the tables of a watch; none where no counters of messages are wanted."""
        return () if self.options.rates_mode == "none" else shown(watch, *tables)

    @property
    def all(self) -> tuple[Watch, ...]:
        """The watches of all kinds."""
        return (self.queues, self.channels, self.connections, self.exchanges, self.vhosts, self.node)
