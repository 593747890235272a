"""The messages that the broker delivers, on their way to the client.

    QoS 0 ─► PUBLISH
    QoS 1 ─► PUBLISH ─► PUBACK ─► settled
    QoS 2 ─► its id and packet identifier in the stored state ─► PUBLISH ─► PUBREC
             ─► released in the stored state ─► settled, PUBREL ─► PUBCOMP

At most as many messages are unacknowledged as the client takes (receive maximum). What the broker has delivered beyond
that waits here, at most `prefetch` messages of each queue. A message that the broker delivers again, after a failover
or to a session that is resumed, goes out under its old packet identifier if it has QoS 2.
Source: MQTT 3.1.1 and 5.0, chapter 3.3, chapter 4.3, chapter 4.4; RabbitMQ 3.10.8, rabbit_mqtt_processor:amqp_callback.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from node.mqtt.constants import (
    PACKET_ID_MAX,
    PACKET_MAX_BYTES,
    VARIABLE_INTEGER_MAX,
    PacketType,
    Version,
)
from node.mqtt.encoder import encode_acks, encode_publishes, publish_bytes
from node.mqtt.errors import protocol_error
from node.mqtt.message_mapping import facts_of, is_expired, mqtt_properties
from node.mqtt.names import RETAINED_EXCHANGE
from node.mqtt.properties import NO_PUBLISH, PublishProperties
from node.mqtt.reason_codes import FIRST_ERROR
from node.mqtt.settings import MqttSettings
from node.mqtt.stored_state import StoredState
from node.mqtt.subscriptions import Match, Subscriptions
from node.mqtt.topic_aliases import OutboundAliases
from node.mqtt.topics import is_topic_name
from node.plugins import Delivery, Properties, Session

ID_BYTES: Final = 12
"""The random bytes of the id of a message with QoS 2 that has none."""

GIVEN_PREFIX: Final = b"r/"
"""The beginning of such an id, which no delivery of the broker has: another connection does not find its message."""


LONG_BODY_BYTES: Final = VARIABLE_INTEGER_MAX - 1024 * 1024
"""Where the node takes longer bodies than this, a message may be too long for a packet of MQTT."""


class Source(NamedTuple):
    """A consumer of the session.   queue_qos: of the queue's subscriptions.   is_settled: its messages are to be acked.

    shared: what the members of a shared subscription ask for; None: it is the session's own queue.
    """

    queue_qos: int
    is_settled: bool
    shared: Match | None = None


class _Plan(NamedTuple):
    """The way of messages that have address, properties and consumer in common.

    given, exchange, key, consumer: those.   version: of the subscriptions.
    properties: for the client; None: they depend on the time.   is_plain: no message needs a look of its own.
    """

    given: Properties
    exchange: str
    key: str
    consumer: str
    version: int
    source: Source
    topic: str
    match: Match | None
    qos: int
    is_wanted: bool
    is_retained: bool
    properties: PublishProperties | None
    is_plain: bool

    def holds_for(self, delivery: Delivery, version: int) -> bool:
        """True if a delivery is one of these messages."""
        return (
            delivery.properties is self.given
            and delivery.routing_key == self.key
            and delivery.consumer == self.consumer
            and delivery.exchange == self.exchange
            and version == self.version
        )


class _Run:
    """Messages to be sent that differ in payload and packet identifier only."""

    __slots__ = ("is_dup", "packet_ids", "payloads", "plan", "properties")

    def __init__(self, plan: _Plan, is_dup: bool, properties: PublishProperties) -> None:
        self.plan = plan
        self.is_dup = is_dup
        self.properties = properties
        self.payloads: list[bytes] = []
        self.packet_ids: list[int] = []


class _Flying(NamedTuple):
    """A message that the client has not acknowledged.   tag: of the delivery; None: it is settled already."""

    qos: int
    tag: int | None
    id: bytes | None


class Outgoing:
    """The deliveries to one client.

    limit: the receive maximum of the client.   packet_max_bytes: of the client; None: there is no limit.
    alias_maximum: the topic aliases that the client takes.
    """

    def __init__(
        self,
        node: Session,
        settings: MqttSettings,
        version: Version,
        client_id: str,
        subscriptions: Subscriptions,
        state: StoredState,
        *,
        limit: int,
        packet_max_bytes: int | None = None,
        alias_maximum: int = 0,
    ) -> None:
        self._node = node
        self._settings = settings
        self._version = version
        self._plan: _Plan | None = None
        self._client = client_id.encode()
        self._subscriptions = subscriptions
        self._state = state
        self._limit = limit
        if packet_max_bytes is None and node.message_max_bytes > LONG_BODY_BYTES:
            packet_max_bytes = PACKET_MAX_BYTES
        self._packet_max_bytes = packet_max_bytes
        self._aliases = OutboundAliases(alias_maximum)
        self._flying: dict[int, _Flying] = {}
        self._flying_ids: dict[bytes, int] = {}
        """The packet identifiers of messages with QoS 2 that wait for their PUBREC."""
        self._former = {id_: packet_id for packet_id, id_ in state.sent.items()}
        """The same of messages that a former connection has sent."""
        self._waiting: deque[Delivery] = deque()
        self._last_packet_id = 0
        self.sources: dict[str, Source] = {}
        """The consumers of the session, by their tags."""

    @property
    def in_flight(self) -> int:
        """The number of messages that the client has not acknowledged."""
        return len(self._flying)

    # --- to the client ---

    def let_go(self) -> None:
        """Forget what waits for the client: it is gone."""
        self._waiting.clear()
        self._flying.clear()
        self.sources = {}

    def resume(self) -> None:
        """Send PUBREL again for messages that the client has and has not completed [MQTT-4.4.0-1]."""
        self._write_pubrel(self._state.released)
        self._give_up([packet_id for id_, packet_id in self._former.items() if id_.startswith(GIVEN_PREFIX)])

    def _give_up(self, packet_ids: Sequence[int]) -> None:
        """Complete messages that a former connection has sent, and that the broker does not deliver again.

        Only the client can say whether it has them. A PUBREL has it forget their packet identifiers in any case, which
        are then free.
        """
        state = self._state
        for packet_id in packet_ids:
            id_ = state.released[packet_id] = state.sent.pop(packet_id)
            self._former.pop(id_, None)
        self._write_pubrel({packet_id: state.released[packet_id] for packet_id in packet_ids})

    def _write_pubrel(self, released: Mapping[int, bytes]) -> None:
        if released:
            for packet_id, id_ in released.items():
                self._flying[packet_id] = _Flying(2, None, id_)
            self._node.write(encode_acks(self._version, PacketType.PUBREL, list(released)))

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """Send messages that the broker has delivered, as many as the client takes now."""
        runs: list[_Run] = []
        at, end = 0, len(deliveries)
        while at < end:
            delivery = deliveries[at]
            plan = self._plan_for(delivery)
            if plan is None:
                at += 1
                continue  # its queue is gone
            if plan.source.is_settled and (self._waiting or len(self._flying) >= self._limit):
                self._waiting.append(delivery)  # as many as the consumers' prefetch counts
                at += 1
                continue
            taken = self._add_alike(runs, deliveries, at, plan) if plan.is_plain else 0
            if not taken:
                self._add(runs, delivery, plan)
                taken = 1
            at += taken
        self._dispatch(runs)

    def _go_on(self) -> None:
        """Send messages that have waited, as many as the client takes now."""
        waiting = self._waiting
        runs: list[_Run] = []
        while waiting and len(self._flying) < self._limit:
            delivery = waiting.popleft()
            plan = self._plan_for(delivery)
            assert plan is not None, "what waited of a consumer has gone with it"
            self._add(runs, delivery, plan)
        self._dispatch(runs)

    def _dispatch(self, runs: list[_Run]) -> None:
        stored = [run for run in runs if run.plan.qos == 2]
        ready = [run for run in runs if run.plan.qos < 2] if stored else runs
        if ready:
            self._send(ready)
        if stored:
            self._state.save(partial(self._send, stored))

    def _plan_for(self, delivery: Delivery) -> _Plan | None:
        """Return what becomes of a delivery; None: its consumer is gone."""
        plan, version = self._plan, self._subscriptions.version
        if plan is not None and plan.holds_for(delivery, version):
            return plan
        source = self.sources.get(delivery.consumer)
        if source is None:
            return None
        facts = facts_of(delivery.properties.headers)
        is_kept = delivery.exchange == RETAINED_EXCHANGE
        topic = self._settings.topic_of(delivery.routing_key)
        match = source.shared or self._subscriptions.match(topic)
        if match is None:
            qos, is_wanted = source.queue_qos, not topic.startswith("$")
        else:
            is_first = is_kept or source.shared is not None or match.queue_qos <= source.queue_qos
            is_own = not match.takes_own and facts.client == self._client
            qos, is_wanted = match.qos, is_first and not is_own
        properties: PublishProperties | None = NO_PUBLISH
        if self._version is Version.MQTT_5:
            depends = delivery.properties.expiration is not None
            properties = None if depends else self._properties(delivery, match)
        is_wanted = is_wanted and is_topic_name(topic)
        is_plain = is_wanted and delivery.properties.expiration is None and self._packet_max_bytes is None
        self._plan = plan = _Plan(
            delivery.properties,
            delivery.exchange,
            delivery.routing_key,
            delivery.consumer,
            version,
            source,
            topic,
            match,
            min(qos, facts.qos),
            is_wanted,
            is_kept or (match is not None and match.as_published and facts.is_retained),
            properties,
            is_plain,
        )
        return plan

    def _add(self, runs: list[_Run], delivery: Delivery, plan: _Plan) -> None:
        """Add a delivery to what is to be sent, unless there is nothing to be sent for it."""
        qos, id_ = plan.qos, delivery.varying
        if qos == 2:
            if id_ is None:
                # A retained message is given more than once; each time it is another one.
                id_ = GIVEN_PREFIX + self._node.random_bytes(ID_BYTES)
            elif id_ in self._flying_ids:
                # The queue has another master: this delivery is the one to be settled.
                self._flying[self._flying_ids[id_]] = _Flying(2, delivery.tag, id_)
                return
        properties = plan.properties
        if properties is None:
            properties = self._properties(delivery, plan.match)
        if not self._is_wanted(delivery, plan, id_, properties):
            if plan.source.is_settled:
                self._node.ack(delivery.tag)
            return
        packet_id, is_dup = 0, False
        if qos:
            if self._former and self._is_behind_former(delivery, plan):
                self._give_up([each for each in self._former.values() if each in self._state.sent])
                self._former.clear()
            packet_id, is_dup = self._packet_id(qos, id_)
            self._flying[packet_id] = _Flying(qos, delivery.tag, id_)
            is_dup = is_dup or (qos == 1 and delivery.redelivered)
            if qos == 2:
                assert id_ is not None
                self._state.sent[packet_id] = id_
                self._flying_ids[id_] = packet_id
        elif plan.source.is_settled:
            self._node.ack(delivery.tag)
        run = runs[-1] if runs else None
        if run is None or run.plan is not plan or run.is_dup != is_dup or run.properties is not properties:
            run = _Run(plan, is_dup, properties)
            runs.append(run)
        run.payloads.append(delivery.body)
        if qos:
            run.packet_ids.append(packet_id)

    def _add_alike(self, runs: list[_Run], deliveries: Sequence[Delivery], at: int, plan: _Plan) -> int:
        """Add deliveries from a place on that need no look of their own; return how many.

        They come for the first time, and what one plan says holds for all of them.
        """
        qos, flying, sent = plan.qos, self._flying, self._state.sent
        if plan.source.is_settled != (qos > 0) or self._former:
            return 0
        room = self._limit - len(flying) if qos else len(deliveries)
        own_consumer, own_exchange, own_key, own = plan.consumer, plan.exchange, plan.key, plan.given
        assert plan.properties is not None
        run = _Run(plan, False, plan.properties)
        payloads, packet_ids = run.payloads, run.packet_ids
        packet_id = self._last_packet_id
        for consumer, tag, exchange, key, again, given, body, id_ in islice(deliveries, at, at + room):
            if given is not own or key != own_key or consumer != own_consumer or exchange != own_exchange:
                break
            if qos:
                if again or (qos == 2 and (id_ is None or self._is_known(id_))):
                    break
                packet_id = packet_id % PACKET_ID_MAX + 1
                while packet_id in flying or packet_id in sent:
                    packet_id = packet_id % PACKET_ID_MAX + 1
                flying[packet_id] = _Flying(qos, tag, id_)
                packet_ids.append(packet_id)
                if id_ is not None and qos == 2:
                    sent[packet_id] = id_
                    self._flying_ids[id_] = packet_id
            payloads.append(body)
        self._last_packet_id = packet_id
        if payloads:
            runs.append(run)
        return len(payloads)

    def _is_behind_former(self, delivery: Delivery, plan: _Plan) -> bool:
        """True if a delivery shows that all that a former connection has sent with QoS 2 has come again.

        These messages went back to their places in the queue before this connection got any.
        """
        id_, is_first = delivery.varying, not delivery.redelivered
        return plan.source.queue_qos == 2 and is_first and id_ is not None and id_ not in self._former

    def _is_known(self, id_: bytes) -> bool:
        """True if the client has a message with QoS 2, or is about to get it."""
        return id_ in self._flying_ids or self._state.has_delivered(id_)

    def _is_wanted(
        self, delivery: Delivery, plan: _Plan, id_: bytes | None, properties: PublishProperties
    ) -> bool:
        if not plan.is_wanted:
            return False
        given = delivery.properties
        if given.expiration is not None and is_expired(given, self._node.wall_ms):
            return False
        if plan.qos == 2 and id_ is not None and self._state.has_delivered(id_):
            return False
        return self._packet_max_bytes is None or self._fits(plan.topic, delivery, plan.qos, properties)

    def _properties(self, delivery: Delivery, match: Match | None) -> PublishProperties:
        properties = mqtt_properties(delivery, self._node.wall_ms)
        if match is not None and match.identifiers:
            properties = properties._replace(subscription_ids=match.identifiers)
        return NO_PUBLISH if properties == NO_PUBLISH else properties

    def _fits(self, topic: str, delivery: Delivery, qos: int, properties: PublishProperties) -> bool:
        """True unless the client takes no packet so long; it does not get such messages [MQTT-3.1.2-25]."""
        limit = self._packet_max_bytes
        assert limit is not None
        return publish_bytes(self._version, topic, len(delivery.body), qos, properties) <= limit

    def _packet_id(self, qos: int, id_: bytes | None) -> tuple[int, bool]:
        """Return the packet identifier of a message, and whether it went out before."""
        if qos == 2 and id_ is not None:
            former = self._former.pop(id_, None)
            if former is not None and former not in self._flying:
                return former, True
        packet_id = self._last_packet_id % PACKET_ID_MAX + 1
        while (
            packet_id in self._flying or packet_id in self._state.sent
        ):  # `IDS_MAX` leaves some that are free
            packet_id = packet_id % PACKET_ID_MAX + 1
        self._last_packet_id = packet_id
        return packet_id, False

    def _send(self, runs: list[_Run]) -> None:
        version = self._version
        parts: list[bytes] = []
        for run in runs:
            plan = run.plan
            if self._aliases.maximum:
                parts += self._with_aliases(run)
                continue
            parts.append(
                encode_publishes(
                    version,
                    plan.topic,
                    run.payloads,
                    plan.qos,
                    plan.is_retained,
                    run.is_dup,
                    run.packet_ids,
                    run.properties,
                )
            )
        self._node.write(b"".join(parts))

    def _with_aliases(self, run: _Run) -> Iterator[bytes]:
        plan = run.plan
        for at, payload in enumerate(run.payloads):
            topic, alias = plan.topic, None
            if self._has_room_for_alias(run, payload):
                topic, alias = self._aliases.assign(topic)
            properties = run.properties if alias is None else run.properties._replace(topic_alias=alias)
            packet_ids = run.packet_ids[at : at + 1]
            yield encode_publishes(
                self._version,
                topic,
                [payload],
                plan.qos,
                plan.is_retained,
                run.is_dup,
                packet_ids,
                properties,
            )

    def _has_room_for_alias(self, run: _Run, payload: bytes) -> bool:
        """True unless a message that the client takes is too long for it with an alias beside its topic."""
        if self._packet_max_bytes is None:
            return True
        plan, properties = run.plan, run.properties._replace(topic_alias=self._aliases.maximum)
        size = publish_bytes(self._version, plan.topic, len(payload), plan.qos, properties)
        return size <= self._packet_max_bytes

    # --- from the client ---

    def acknowledged(self, type_: PacketType, packet_ids: Sequence[int], code: int) -> None:
        """Take PUBACK, PUBREC or PUBCOMP. Raises: MqttError."""
        match type_:
            case PacketType.PUBACK:
                self._settled(packet_ids)
            case PacketType.PUBREC:
                self._received(packet_ids, code)
            case _:
                for packet_id in packet_ids:
                    self._state.released.pop(packet_id, None)
                    flying = self._flying.get(packet_id)
                    if flying is not None and flying.qos == 2 and flying.tag is None:
                        del self._flying[packet_id]
        if self._waiting:
            self._go_on()

    def _settled(self, packet_ids: Sequence[int]) -> None:
        tags: list[int] = []
        take = self._flying.pop
        for packet_id in packet_ids:
            flying = take(packet_id, None)
            if flying is None:
                continue  # of a message that the session has sent on a former connection
            qos, tag, _ = flying
            if qos != 1 or tag is None:
                raise protocol_error("a PUBACK is for a message with QoS 2")
            tags.append(tag)
        if tags:
            self._node.ack_all(tags)

    def _received(self, packet_ids: Sequence[int], code: int) -> None:
        tags: list[int] = []
        known: list[int] = []
        unknown: list[int] = []
        state, all_flying = self._state, self._flying
        for packet_id in packet_ids:
            flying = all_flying.get(packet_id)
            if flying is None:
                # A message of a former connection that has not been delivered again yet.
                former = state.sent.pop(packet_id, None)
                if former is None:
                    unknown.append(packet_id)
                    continue
                flying = _Flying(2, None, former)
            qos, tag, id_ = flying
            if qos != 2 or id_ is None:
                raise protocol_error("a PUBREC is for a message with QoS 1")
            if tag is not None:
                tags.append(tag)
            self._flying_ids.pop(id_, None)
            state.sent.pop(packet_id, None)
            state.delivered(id_)
            if code >= FIRST_ERROR:
                all_flying.pop(packet_id, None)
                continue
            state.released[packet_id] = id_
            all_flying[packet_id] = _Flying(2, None, id_)
            known.append(packet_id)
        if unknown:
            code_ = 0x92 if self._version is Version.MQTT_5 else 0
            self._node.write(encode_acks(self._version, PacketType.PUBREL, unknown, code_))
        if tags or known:
            self._state.save(partial(self._release, tags, known))

    def _release(self, tags: list[int], packet_ids: list[int]) -> None:
        if tags:
            self._node.ack_all(tags)
        if packet_ids:
            self._node.write(encode_acks(self._version, PacketType.PUBREL, packet_ids))

    def forget(self, consumer: str) -> None:
        """Forget a consumer that was cancelled; its messages that wait here go back to the queue."""
        source = self.sources.pop(consumer, None)
        if source is None or not source.is_settled:
            return
        for delivery in self._waiting:
            if delivery.consumer == consumer:
                self._node.nack(delivery.tag, requeue=True)
        self._waiting = deque(each for each in self._waiting if each.consumer != consumer)
