"""The firehose: while a vhost is traced, copies of all that its clients publish and are given go to an exchange.

    publish.EXCHANGE   as the message was published, before it reaches its queues; in a transaction before the commit
    deliver.QUEUE      as it is given to a consumer, or found by basic.get

Copies are transient messages with the body and a description in the headers. Messages that went through the exchange
of the copies are not copied. Only `LiveVhost.tracer` says whether a vhost is traced.
Source: management §2.7; headers, their order and their types: RabbitMQ 3.10.8, live.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from node.amqp.field_table import Field, Table, array, long, longstr, table
from node.amqp.properties import Properties
from node.broker.internal_exchange import InternalExchange
from node.catalogue.records import DEFAULT_EXCHANGE, Vhost
from node.client.reply_to import is_reply_name
from node.queue.content import decode_content
from node.queue.run import Batch, Envelope, Run

if TYPE_CHECKING:
    from node.broker.broker import Broker
    from node.client.channel import Channel
    from node.queue.live_queue import LiveQueue

TRACE_EXCHANGE: Final = "amq.rabbitmq.trace"

TRACING: Final = "tracing"
"""The key of `Vhost.metadata` that says, by true, that a vhost is traced."""

_INT_MAX: Final = (1 << 31) - 1

_PROPERTIES: Final = tuple(reversed(Properties.__dataclass_fields__))


def tracer_of(broker: "Broker", vhost: Vhost) -> "Firehose | None":
    """Return the tracer of a vhost of this node, if the vhost is traced."""
    return Firehose(broker, vhost.name) if vhost.metadata.get(TRACING) is True else None


class Firehose:
    """Makes the copies of one vhost."""

    def __init__(self, broker: "Broker", vhost: str) -> None:
        self._node_name = broker.settings.node_name
        self._vhost = vhost
        self._exchange = InternalExchange(broker, vhost, TRACE_EXCHANGE)

    def published(self, channel: "Channel", batch: Batch, queues: "Iterable[LiveQueue]") -> None:
        """Copy messages that a client publishes.   queues: those that they are routed to, on this node and others."""
        envelope = batch.envelope
        exchange = envelope.exchange
        if exchange == TRACE_EXCHANGE:
            return
        if exchange == DEFAULT_EXCHANGE:  # which leads to a name, whether there is such a queue or not
            keys = {envelope.routing_key, *envelope.cc, *envelope.bcc}
            names = sorted(key for key in keys if not is_reply_name(key))
        else:
            names = [queue.record.name for queue in queues]
        routed = array([longstr(name) for name in names])
        behind: Table = {"routed_queues": routed}
        for away in self._publish(f"publish.{exchange}", channel, envelope, batch.contents, {}, behind):
            channel.connection.throttle.hold_for_peer(away)

    def delivered(self, channel: "Channel", queue: "LiveQueue", run: Run) -> None:
        """Copy messages of a queue that a client is given.

        A congested queue of copies on another node misses these: the client cannot be held up.
        """
        if run.envelope.exchange == TRACE_EXCHANGE:
            return
        redelivered: Table = {"redelivered": _int(run.deliveries > 0)}
        key = f"deliver.{queue.record.name}"
        self._publish(key, channel, run.envelope, run.contents, redelivered, {})

    def _publish(
        self,
        key: str,
        channel: "Channel",
        envelope: Envelope,
        contents: Iterable[bytes],
        before: Table,
        behind: Table,
    ) -> "list[LiveQueue]":
        """Publish copies.   before, behind: the headers before and behind those of the connection.

        Returns: the queues on other nodes that get no more for now.
        """
        route = self._exchange.open(key)
        if route is None:
            return []
        connection = channel.connection
        start: Table = {
            "exchange_name": longstr(envelope.exchange),
            "routing_keys": array(
                [longstr(each) for each in (envelope.routing_key, *envelope.cc, *envelope.bcc)]
            ),
        }
        end: Table = {
            "node": longstr(self._node_name),
            **before,
            "vhost": longstr(self._vhost),
            "connection": longstr(connection.name),
            "channel": _int(channel.number),
            "user": longstr(connection.user_name),
            **behind,
        }
        for content in contents:
            properties, body = decode_content(content)
            headers = {**start, "properties": table(_described(properties)), **end}
            route.send(Properties(headers=headers), body)
        return route.congested


def _described(properties: Properties) -> Table:
    """Return the properties that a message has, as a table: the last one of the protocol's list first."""
    described: Table = {}
    for name in _PROPERTIES:
        value = getattr(properties, name)
        if value is None:
            continue
        if name == "headers":
            described[name] = table(value)
        elif isinstance(value, int):
            described[name] = _int(value)
        else:
            described[name] = longstr(value)
    return described


def _int(value: int) -> Field:
    """Return a number in the type that RabbitMQ writes here, where it fits."""
    return Field("I", int(value)) if value <= _INT_MAX else long(value)
