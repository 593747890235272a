"""The exchanges to which the broker itself publishes: amq.rabbitmq.trace, amq.rabbitmq.event, amq.rabbitmq.log.

    route = exchange.open("key")          if route: route.send(Properties(…), body)

They are internal topic exchanges, so clients can only bind to them. A message without a bound queue is not even made.
The messages count as no client's publishes, are not traced, and have no confirms.
Source: management §2.7, §6.3; RabbitMQ 3.10.8, live.
"""

from typing import TYPE_CHECKING, Final

from node.amqp.errors import ProtocolError
from node.amqp.properties import Properties
from node.catalogue.commands import DeclareExchange
from node.queue.content import encode_content
from node.queue.intake import Intake, Targets
from node.queue.run import Batch, Envelope

if TYPE_CHECKING:
    from node.broker.broker import Broker
    from node.queue.live_queue import LiveQueue

_ENVELOPES_MAX: Final = 256
_KEY_MAX_BYTES: Final = 255
_CHANNEL: Final = 1  # what stands in the frames; each consumer's channel puts its own there


def declaration(vhost: str, name: str) -> DeclareExchange:
    """Return the command that declares such an exchange, where it isn't predeclared."""
    return DeclareExchange(vhost, name, "topic", durable=True, internal=True)


class InternalRoute:
    """The target of messages with one routing key, as it is at this moment."""

    def __init__(
        self,
        broker: "Broker",
        envelope: Envelope,
        targets: Targets,
    ) -> None:
        self._intake: Intake = broker.intake
        self._envelope = envelope
        self._targets = targets

    def send(self, properties: Properties, body: bytes) -> None:
        """Publish a message. Queues on other nodes miss it while they are congested, which is what bounds them."""
        content = encode_content(properties, body, _CHANNEL, 0)
        batch = Batch(self._envelope, [content], len(body))
        self._intake.put(batch, self._targets.near)
        for queue in self._targets.near:
            queue.count_letters(1)
        for away in self._targets.away:
            if not away.is_congested:
                away.publish(batch, None)

    @property
    def congested(self) -> "list[LiveQueue]":
        """The queues on other nodes that get no more for now."""
        return [away for away in self._targets.away if away.is_congested]


class InternalExchange:
    """One such exchange of a vhost. If it does not exist, no queue is bound to it."""

    def __init__(self, broker: "Broker", vhost: str, name: str, *, persistent: bool = False) -> None:
        self._broker = broker
        self._vhost = vhost
        self._name = name
        self._persistent = persistent
        self._envelopes: dict[str, Envelope] = {}

    def open(self, key: str) -> InternalRoute | None:
        """Return the target of messages with a routing key; None: no queue is bound. A key that is too long is cut."""
        if self._vhost not in self._broker.vhosts:
            return None
        envelope = self._envelope(key)
        try:
            queues = self._broker.route(self._vhost, self._name, (envelope.routing_key,), None)
        except ProtocolError:  # matching the bound patterns costs too much: their queues get nothing
            return None
        return InternalRoute(self._broker, envelope, Targets(queues)) if queues else None

    def _envelope(self, key: str) -> Envelope:
        envelope = self._envelopes.get(key)
        if envelope is None:
            if len(self._envelopes) >= _ENVELOPES_MAX:
                self._envelopes.clear()
            cut = key.encode("utf-8", "surrogateescape")[:_KEY_MAX_BYTES].decode("utf-8", "surrogateescape")
            envelope = self._envelopes[key] = Envelope(
                self._name, cut, channel=_CHANNEL, frame_max_bytes=0, persistent=self._persistent
            )
        return envelope
