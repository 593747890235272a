"""The will of a connection: a queue keeps it, so that it is published even if the node of the connection is lost.

    connect ─► queue of the will ─► delivered to the connection, which holds it unacknowledged
    DISCONNECT       ─► acknowledged: nothing is published
    connection lost  ─► dead-lettered at once ─┬► exchange of the subscriptions
    node lost        ─► back in the queue ─► its time to live is over ─┘   (through the queue of delayed wills)

The queue's time to live does not run for what is unacknowledged. It counts from the publish, so the connection puts a
fresh copy into the queue before it is over: then a failover of the queue, whose new master delivers the will again,
does not publish it.
Source: MQTT 5.0 chapter 3.1.2.5, chapter 3.1.3.2.2; docs/mqtt.md.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from node.mqtt.errors import MqttError
from node.mqtt.message_mapping import EXPIRY_MAX_S, HEADER_MAX_BYTES, amqp_properties, header_bytes
from node.mqtt.names import (
    RETAINED_EXCHANGE,
    ROUTING_KEY_MAX_BYTES,
    WILLS_EXCHANGE,
    delayed_will_queue,
    fits,
    will_queues,
)
from node.mqtt.packets import Will
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.settings import MqttSettings
from node.mqtt.steps import Ask, Steps, granted
from node.plugins import Delivery, Field, Properties, Session, Table, longstr

CONSUMER: Final = "will"

KEY_HEADER: Final = "x-mqtt-will-key"
CONNECTION_HEADER: Final = "x-mqtt-will-connection"
"""The headers of a will with its routing key and its connection."""

ID_BYTES: Final = 8
"""The random bytes that tell the will of one connection from that of another one."""

WILL_TTL_S: Final = 60.0
"""After the loss of the connection's node, its will is published so many seconds later at the latest."""

REFRESH_S: Final = 20.0
"""The time after which a connection puts a fresh copy of its will into the queue."""

_EXPIRES_S: Final = 120.0
"""Queues of wills are deleted when they were not used for so long, and longer than the message stays."""

DELAY_MAX_S: Final = EXPIRY_MAX_S - _EXPIRES_S
"""The longest delay of a will: AMQP's limit for the time to live of its queue."""


class ConnectionWill:
    """The will of one connection, or none.

    ensure: makes an exchange of the broker's own, as a step.
    """

    def __init__(
        self, node: Session, settings: MqttSettings, client_id: str, ensure: Callable[[str], Steps[None]]
    ) -> None:
        self._node = node
        self._settings = settings
        self._exchange = settings.exchange
        self._queues = will_queues(client_id)
        self._queue = self._queues[0]
        self._delayed = delayed_will_queue(client_id)
        self._ensure = ensure
        self._properties: Properties | None = None
        self._payload = b""
        self._tags: list[int] = []
        self._id = node.random_bytes(ID_BYTES).hex()
        self._drops_former = False
        self._stop_timer: Callable[[], None] = lambda: None

    # --- a former connection's will ---

    def settle_former(self, *, is_resumed: bool) -> Steps[None]:
        """Drop the will of a former connection that is delayed, or publish it: if its session has ended.

        The queue of the former connection stays: the last settlement of that connection, at another node, may still be
        on its way.
        """
        node = self._node
        has_delay = node.find_queue(self._delayed) is not None
        self._drops_former = is_resumed and has_delay
        for queue in (self._delayed, *self._queues):
            if node.find_queue(queue) is None:
                continue
            found: Delivery | None = yield partial(node.get, queue)
            if found is not None:
                if not self._drops_former:
                    yield partial(self._publish_former, found)
                node.ack(found.tag)
        if has_delay:
            yield partial(node.delete_queue, self._delayed)

    def _publish_former(self, found: Delivery, on_done: Callable[[bool], None]) -> None:
        key = found.routing_key
        headers = found.properties.headers or {}
        exchange = self._exchange
        address = headers.get(KEY_HEADER)
        if address is not None and isinstance(address.value, bytes):
            key = address.value.decode("utf-8", "surrogateescape")
        if "x-mqtt-retain" in headers and self._node.has_exchange(WILLS_EXCHANGE):
            exchange = WILLS_EXCHANGE
        self._node.publish(exchange, key, found.properties, found.body, on_done, as_node=True)

    # --- this connection's ---

    def prepare(self, will: Will, expiry_s: float, client: str | None) -> Steps[None]:
        """Put the will into its queue.   expiry_s: of the session, at whose end a delayed will goes out at the latest.

        Raises: NodeRefused, MqttError.
        """
        key = self._settings.routing_key(will.topic)
        if not fits(key, ROUTING_KEY_MAX_BYTES):
            raise MqttError(ReasonCode.TOPIC_NAME_INVALID, "the topic of the will is too long")
        node = self._node
        yield from granted(partial(node.check_publish, self._exchange, key))
        exchange = self._exchange
        if will.retain:
            yield from self._ensure(RETAINED_EXCHANGE)
            yield from self._ensure(WILLS_EXCHANGE)
            exchange = WILLS_EXCHANGE
        delay_s = min(float(will.properties.will_delay_s or 0), expiry_s, DELAY_MAX_S)
        if delay_s:
            yield from granted(self._declare(self._delayed, delay_s, exchange, key))
            exchange, key = "", self._delayed
        arguments = _arguments(WILL_TTL_S, exchange, key)
        for queue in self._queues:
            known = node.find_queue(queue)
            if known is None or known.arguments == arguments:
                self._queue = queue
                break
        else:
            self._queue = self._queues[0]
            yield from granted(partial(node.delete_queue, self._queue))
        yield from granted(self._declare(self._queue, WILL_TTL_S, exchange, key))
        properties = amqp_properties(
            will.properties, qos=will.qos, wall_ms=node.wall_ms, retain=will.retain, client=client
        )
        if header_bytes(properties) > HEADER_MAX_BYTES:
            raise MqttError(ReasonCode.PACKET_TOO_LARGE, "the properties of the will are too long")
        properties.expiration = None  # the time of the message begins when it is published
        properties.delivery_mode = 2
        assert properties.headers is not None
        properties.headers[KEY_HEADER] = longstr(self._settings.routing_key(will.topic))
        properties.headers[CONNECTION_HEADER] = longstr(self._id)
        self._properties, self._payload = properties, will.payload
        yield lambda on_done: node.consume(self._queue, CONSUMER, lambda: on_done(None), prefetch=2)
        yield self._put
        self._plan()

    def _declare(self, queue: str, ttl_s: float, exchange: str, key: str) -> Ask:
        arguments = _arguments(ttl_s, exchange, key)
        return lambda on_done: self._node.declare_queue(
            queue, on_done, durable=True, arguments=arguments, as_node=True
        )

    def _put(self, on_done: Callable[[bool], None]) -> None:
        assert self._properties is not None
        self._node.publish("", self._queue, self._properties, self._payload, on_done, as_node=True)

    def _plan(self) -> None:
        self._stop_timer = self._node.after(REFRESH_S, self._refresh)

    def _refresh(self) -> None:
        self._put(lambda is_safe: self._plan())

    def delivered(self, delivery: Delivery) -> None:
        """Hold a copy of the will, in the place of older ones.

        A former connection's will comes here if its node is lost only now.
        """
        owner = (delivery.properties.headers or {}).get(CONNECTION_HEADER)
        if owner is None or owner.value != self._id.encode():
            if self._drops_former:
                self._node.ack(delivery.tag)
            else:
                self._node.nack(delivery.tag, requeue=False)
            return
        if self._properties is None:
            self._node.ack(delivery.tag)
            return
        for old in self._tags:
            self._node.ack(old)
        self._tags = [delivery.tag]

    @property
    def tags(self) -> list[int]:
        """The deliveries of the will that are held."""
        return self._tags

    def let_go(self) -> None:
        """Forget the connection: it is gone."""
        self._stop_timer()
        self._stop_timer = lambda: None
        self._tags = []

    def drop(self) -> Steps[None]:
        """Forget the will: the client has disconnected in good order."""
        if self._properties is None:
            return
        self._properties = None
        self._stop_timer()
        for tag in self._tags:
            self._node.ack(tag)
        self._tags = []
        yield partial(self._node.delete_queue, self._queue)
        if self._node.find_queue(self._delayed) is not None:
            yield partial(self._node.delete_queue, self._delayed)


def _arguments(ttl_s: float, exchange: str, key: str) -> Table:
    return {
        "x-message-ttl": Field("l", int(ttl_s * 1000)),
        "x-expires": Field("l", int((ttl_s + _EXPIRES_S) * 1000)),
        "x-dead-letter-exchange": longstr(exchange),
        "x-dead-letter-routing-key": longstr(key),
    }
