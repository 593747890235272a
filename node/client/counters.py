"""Counters of channels, of exchanges and of the whole node, which only rise.

They are plain integers, bumped once a run, never once a message. Numbers that the hot path keeps anyway (delivery tags,
numbers of confirms, of a queue's messages) are not counted again: the property `counters` of a channel or a queue
brings them up to date first. Names are those of RabbitMQ's management.

    node's totals = `BrokerCounters.ended` + the counters of all channels that are open
Source: management §1.1, §1.12, §5.1.
"""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Final

DISABLED: Final = "disabled"
AT_MOST_ONCE: Final = "at_most_once"
AT_LEAST_ONCE: Final = "at_least_once"
"""The fate of a message that left its queue without being acknowledged.

DISABLED: it was dropped, as the queue has no dead-letter exchange that exists. AT_MOST_ONCE: it is published there.
AT_LEAST_ONCE: it is published there until all targets have it.
"""

CONFIRMED: Final = "confirmed"
RETRIED: Final = "retried"
"""What is counted beside the reasons, of dead letters that go at least once: all targets have them, a further
attempt."""

AMQP: Final = "amqp091"
"""The protocol of clients in `BrokerCounters.auth_attempts`."""


@dataclass(slots=True)
class ChannelCounters:
    """The counters of one channel since it was opened; all in messages.

    publish: published, at the commit in a transaction.   received_confirm: of those, in confirm mode.
    confirm: of those, answered by basic.ack (nacks are counted nowhere).
    return_unroutable, drop_unroutable: of those, the ones that reached no queue, mandatory or not.
    deliver, deliver_no_ack: to consumers that acknowledge and that don't.   get, get_no_ack: the same of basic.get.
    get_empty: basic.get that found nothing.
    redeliver: of all deliveries and gets, those that came back before.
    ack: acknowledged, at the commit in a transaction; rejects are counted nowhere.
    """

    publish: int = 0
    received_confirm: int = 0
    confirm: int = 0
    return_unroutable: int = 0
    drop_unroutable: int = 0
    deliver: int = 0
    deliver_no_ack: int = 0
    get: int = 0
    get_no_ack: int = 0
    get_empty: int = 0
    redeliver: int = 0
    ack: int = 0

    def got(self, *, no_ack: bool, is_redelivered: bool) -> None:
        """Count a message that basic.get found."""
        if no_ack:
            self.get_no_ack += 1
        else:
            self.get += 1
        if is_redelivered:
            self.redeliver += 1

    def add(self, other: "ChannelCounters") -> None:
        """Add the counters of another channel."""
        if other == _NOTHING:
            return  # as of most channels of a storm of connections
        for name in _CHANNEL_FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_CHANNEL_FIELDS: Final = tuple(each.name for each in fields(ChannelCounters))
_NOTHING: Final = ChannelCounters()


@dataclass(slots=True)
class QueuePair:
    """The counts of a channel with one queue; as in `ChannelCounters`."""

    deliver: int = 0
    deliver_no_ack: int = 0
    get: int = 0
    get_no_ack: int = 0
    get_empty: int = 0
    redeliver: int = 0
    ack: int = 0


@dataclass(slots=True)
class ExchangePair:
    """The counts of a channel with one exchange; as in `ChannelCounters`."""

    publish: int = 0
    confirm: int = 0
    return_unroutable: int = 0
    drop_unroutable: int = 0


@dataclass(slots=True)
class ExchangeCounters:
    """The counters of one exchange, for the clients of this node.

    publish_in: messages that were published to it by its name.
    publish_out: the same once for each queue that they reached, also by way of other exchanges.
    """

    publish_in: int = 0
    publish_out: int = 0

    def published(self, count: int, reached: int) -> None:
        """Count published messages.   reached: the queues, of all nodes, that each of them goes to."""
        self.publish_in += count
        self.publish_out += count * reached

    def add(self, other: "ExchangeCounters") -> None:
        """Add the counters of another exchange."""
        self.publish_in += other.publish_in
        self.publish_out += other.publish_out


@dataclass(slots=True)
class AuthCounters:
    """The counters of logins by one protocol."""

    attempts: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(slots=True)
class BrokerCounters:
    """The counters of one node since its broker started.

    connection_*: those that opened a vhost.   queue_declared: declarations that succeeded, passive ones too.
    queue_created, queue_deleted: queues whose home or master is this node.
    dead_lettered: messages that left queues of this node unacknowledged, by reason (expired, rejected, maxlen,
        delivery_limit) and by their fate (`DISABLED`, `AT_MOST_ONCE`, `AT_LEAST_ONCE`); also `CONFIRMED` and `RETRIED`.
    auth_attempts: by protocol: "amqp091", "http".
    ended: the counters of all channels that are gone.   ended_exchanges: of all exchanges that are.
    recv_oct, send_oct: bytes of all connections that are gone.
    messages_unreadable: messages that were dropped as neither the disk nor a mirror could give them.
    messages_duplicate: messages that were dropped as duplicates, by queues and exchanges whose master is here.
    """

    connection_created: int = 0
    connection_closed: int = 0
    channel_created: int = 0
    channel_closed: int = 0
    queue_declared: int = 0
    queue_created: int = 0
    queue_deleted: int = 0
    dead_lettered: Counter[tuple[str, str]] = field(default_factory=Counter)
    auth_attempts: dict[str, AuthCounters] = field(default_factory=dict)
    ended: ChannelCounters = field(default_factory=ChannelCounters)
    ended_exchanges: ExchangeCounters = field(default_factory=ExchangeCounters)
    recv_oct: int = 0
    send_oct: int = 0
    messages_unreadable: int = 0
    messages_duplicate: int = 0

    def count_login(self, protocol: str, *, is_good: bool) -> None:
        """Count an attempt to log in."""
        counters = self.auth_attempts.get(protocol)
        if counters is None:
            counters = self.auth_attempts[protocol] = AuthCounters()
        counters.attempts += 1
        if is_good:
            counters.succeeded += 1
        else:
            counters.failed += 1
