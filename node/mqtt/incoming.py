"""The messages that a client publishes, on their way to the broker.

    QoS 0 ─► exchange of the subscriptions
    QoS 1 ─► the same ─► confirmed ─► PUBACK
    QoS 2 ─► id in the stored state ─► exchange amq.mqtt.qos2, which lets each id pass once ─► confirmed ─► PUBREC
             PUBREL ─► id out of the stored state ─► PUBCOMP
    retained ─► exchange amq.mqtt.retained, beside all that

A session that ends with its connection needs no stored state: its messages with QoS 2 go out at once, and its packet
identifiers are known here.
Source: MQTT 3.1.1 and 5.0, chapter 3.3, chapter 4.3.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from node.mqtt.acknowledgements import Acknowledgements, Awaited
from node.mqtt.constants import PACKET_ID_MAX, PacketType, Version
from node.mqtt.encoder import encode_acks
from node.mqtt.errors import MqttError
from node.mqtt.message_mapping import HEADER_MAX_BYTES, amqp_properties, header_bytes, plain_properties
from node.mqtt.names import QOS_2_EXCHANGE, RETAINED_EXCHANGE, ROUTING_KEY_MAX_BYTES, fits
from node.mqtt.packets import Publishes
from node.mqtt.properties import NO_PUBLISH
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.settings import MqttSettings
from node.mqtt.steps import reason_of
from node.mqtt.stored_state import StoredState
from node.plugins import Properties, Refusal, Session

EPOCH_BYTES: Final = 8
"""The random bytes that tell the ids of one connection's messages from those of all others."""

COUNT_DIGITS: Final = 10
"""The digits of the rest of an id, which are so many that ids have one length."""


UNRELEASED_MAX: Final = 10_000
"""The messages with QoS 2 of a client of MQTT 3.1 and 3.1.1 that are not released; with more its connection is closed.

A snapshot of the session's state has all of them.
"""


class Incoming:
    """The publishes of one client.

    fail: ends the connection with an error.   ensure: makes an exchange of the broker's own, and calls back.
    """

    def __init__(
        self,
        node: Session,
        settings: MqttSettings,
        version: Version,
        client_id: str,
        state: StoredState,
        fail: Callable[[MqttError], None],
        ensure: Callable[[str, Callable[[], None]], None],
    ) -> None:
        self._node = node
        self._settings = settings
        self._exchange = settings.exchange
        self._version = version
        self._client = client_id if version is Version.MQTT_5 else None
        self._plain: dict[int, Properties] = {}
        """The properties of messages without any of MQTT 5.0, by QoS: one object for all, so that the node makes their
        content header once."""
        self._state = state
        self._fail = fail
        self._ensure = ensure
        is_told = version is Version.MQTT_5
        self._receive_maximum = settings.receive_maximum if is_told else PACKET_ID_MAX
        self._unreleased_max = settings.receive_maximum if is_told else UNRELEASED_MAX
        self._acknowledgements = Acknowledgements(version, node.write)
        self._epoch = node.random_bytes(EPOCH_BYTES).hex()
        self._count = 0
        self._pending_received: set[int] = (
            set()
        )  # packet identifiers with QoS 2 whose PUBREC is still to come

    def flush(self) -> None:
        """Send the acknowledgements that are due."""
        self._acknowledgements.flush()

    def let_go(self) -> None:
        """Forget the connection: it is gone."""
        self._fail = lambda error: None
        self._ensure = lambda exchange, then: None

    def take(self, publishes: Publishes) -> None:
        """Publish a run of messages. Raises: MqttError."""
        topic = publishes.topic
        key = self._settings.routing_key(topic)
        if not fits(key, ROUTING_KEY_MAX_BYTES):
            raise MqttError(
                ReasonCode.TOPIC_NAME_INVALID, f"a topic is longer than {ROUTING_KEY_MAX_BYTES} bytes"
            )
        if topic.startswith("$share/"):
            raise MqttError(ReasonCode.TOPIC_NAME_INVALID, "a topic begins with $share/")
        if publishes.qos:
            self._check_count(publishes)
        last: Awaited | None = None
        is_new = True
        match publishes.qos:
            case 0:
                self._node.publish_run(self._exchange, key, self._properties(publishes), publishes.payloads)
            case 1:
                last = self._take_qos_1(publishes, key)
            case _:
                last = self._take_qos_2(publishes, key)
                is_new = last is not None
        if publishes.retain and is_new:
            if last is not None:
                last.missing += 1
            self._ensure(RETAINED_EXCHANGE, partial(self._retain, publishes, key, last))

    def _check_count(self, publishes: Publishes) -> None:
        """Check that the client may have so many messages on their way. Raises: MqttError."""
        received, packet_ids = self._state.received, publishes.packet_ids
        count, unreleased = len(packet_ids), 0
        if publishes.qos == 2:
            # What is sent again on a new connection is on its way already.
            count = sum(packet_id not in received for packet_id in packet_ids)
            unreleased = len(received) + count
        count += len(self._acknowledgements) + len(received) - len(self._pending_received)
        if count > self._receive_maximum or unreleased > self._unreleased_max:
            raise MqttError(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, "too many messages are not acknowledged")

    def _properties(self, publishes: Publishes) -> Properties:
        given, qos = publishes.properties, publishes.qos
        is_plain = given is NO_PUBLISH or given == NO_PUBLISH
        is_plain = is_plain and not publishes.retain and not publishes.dup
        if is_plain and self._client is None:
            return plain_properties(qos)
        found = self._plain.get(qos) if is_plain else None
        if found is not None:
            return found
        found = amqp_properties(
            given,
            qos=qos,
            wall_ms=self._node.wall_ms,
            dup=publishes.dup,
            retain=publishes.retain,
            client=self._client,
        )
        if given is not NO_PUBLISH and header_bytes(found) > HEADER_MAX_BYTES:
            raise MqttError(
                ReasonCode.PACKET_TOO_LARGE,
                f"the properties of a message are longer than {HEADER_MAX_BYTES} bytes",
            )
        if is_plain:
            self._plain[qos] = found
        return found

    # --- QoS 1 ---

    def _take_qos_1(self, publishes: Publishes, key: str) -> Awaited:
        """Publish messages; return the acknowledgement of the last one."""
        expect, confirmed = self._acknowledgements.expect, self._confirmed
        due = [expect(PacketType.PUBACK, packet_id, 1) for packet_id in publishes.packet_ids]
        on_confirms = [partial(confirmed, awaited) for awaited in due]
        properties = self._properties(publishes)
        self._node.publish_run(self._exchange, key, properties, publishes.payloads, on_confirms)
        return due[-1]

    def _confirmed(self, awaited: Awaited, is_safe: bool) -> None:
        awaited.missing -= 1
        if not is_safe:
            self._refused(awaited)

    def _refused(self, awaited: Awaited) -> None:
        """Tell the client that a queue has refused a message; before 5.0 only the end of the connection can."""
        if self._version is not Version.MQTT_5:
            self._fail(MqttError(ReasonCode.QUOTA_EXCEEDED, "a queue is full"))
            return
        awaited.code = ReasonCode.QUOTA_EXCEEDED
        self._pending_received.discard(awaited.packet_id)
        self._state.received.pop(awaited.packet_id, None)

    # --- QoS 2 ---

    def _take_qos_2(self, publishes: Publishes, key: str) -> Awaited | None:
        """Publish messages that are no repetitions; return the acknowledgement of the last one."""
        received = self._state.received
        fresh: list[tuple[str, bytes, Awaited]] = []
        for packet_id, payload in zip(publishes.packet_ids, publishes.payloads, strict=True):
            if packet_id in self._pending_received:
                continue  # the client repeats itself before the answer
            id_ = received.get(packet_id)
            if id_ is None:
                self._count += 1
                id_ = received[packet_id] = f"{self._epoch}/{self._count:0{COUNT_DIGITS}}"
            elif not self._state.is_kept:
                self._acknowledgements.expect(PacketType.PUBREC, packet_id, 0)
                continue
            self._pending_received.add(packet_id)
            fresh.append((id_, payload, self._acknowledgements.expect(PacketType.PUBREC, packet_id, 1)))
        if not fresh:
            return None
        last = fresh[-1][2]
        if not self._state.is_kept:
            self._publish_qos_2(self._exchange, publishes, key, fresh)
            return last
        # With the node's rights to an exchange of the broker's own: so the user's are looked at here.
        check = partial(self._checked, publishes, key, fresh)
        self._node.check_publish(self._exchange, key, check)
        return last

    def _checked(
        self,
        publishes: Publishes,
        key: str,
        fresh: list[tuple[str, bytes, Awaited]],
        refusal: Refusal | None,
    ) -> None:
        if refusal is not None:
            for _, _, awaited in fresh:
                self._state.received.pop(awaited.packet_id, None)
            self._fail(MqttError(reason_of(refusal), refusal.text))
            return
        publish = partial(self._publish_qos_2, QOS_2_EXCHANGE, publishes, key, fresh)
        self._ensure(QOS_2_EXCHANGE, lambda: self._state.save(publish))

    def _publish_qos_2(
        self, exchange: str, publishes: Publishes, key: str, fresh: list[tuple[str, bytes, Awaited]]
    ) -> None:
        received = self._received
        self._node.publish_run(
            exchange,
            key,
            self._properties(publishes),
            [payload for _, payload, _ in fresh],
            [partial(received, awaited) for _, _, awaited in fresh],
            varying=[id_.encode() for id_, _, _ in fresh],
            as_node=exchange == QOS_2_EXCHANGE,
        )

    def _received(self, awaited: Awaited, is_safe: bool) -> None:
        awaited.missing -= 1
        if is_safe:
            self._pending_received.discard(awaited.packet_id)
        else:
            self._refused(awaited)

    def release(self, packet_ids: tuple[int, ...]) -> None:
        """Answer PUBREL: the client may use the packet identifiers again."""
        received = self._state.received
        known, unknown = list[int](), list[int]()
        for packet_id in packet_ids:
            (unknown if received.pop(packet_id, None) is None else known).append(packet_id)
        if unknown:
            self._complete(unknown, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
        if known:
            self._state.save(partial(self._complete, known, ReasonCode.SUCCESS))

    def _complete(self, packet_ids: list[int], code: ReasonCode) -> None:
        self._node.write(encode_acks(self._version, PacketType.PUBCOMP, packet_ids, code))

    # --- retained messages ---

    def _retain(self, publishes: Publishes, key: str, awaited: Awaited | None) -> None:
        payload = publishes.payloads[-1]  # the last one of a topic is kept
        confirmed = None if awaited is None else partial(self._confirmed, awaited)

        def checked(refusal: Refusal | None) -> None:
            if refusal is None:
                properties = replace(self._properties(publishes), delivery_mode=2)
                self._node.publish(RETAINED_EXCHANGE, key, properties, payload, confirmed, as_node=True)
            # Else the publish to the exchange of the subscriptions is refused, too, and ends the connection.

        self._node.check_publish(self._exchange, key, checked)
