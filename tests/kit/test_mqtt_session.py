"""The session of a client, against a server that is written out here: MQTT 3.1.1 and 5.0 §4.3, §4.4, §4.9."""

from collections.abc import Iterable

import pytest

from node.mqtt.constants import PacketType, Version
from node.mqtt.decoder import Decoder
from node.mqtt.encoder import encode
from node.mqtt.packets import (
    PINGREQ,
    PINGRESP,
    Acks,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publishes,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from node.mqtt.properties import ConnackProperties, ConnectProperties, PublishProperties
from node.mqtt.reason_codes import ReasonCode
from tests.kit.mqtt_packets import single
from tests.kit.mqtt_session import Confirmed, Event, Message, MqttSession

V3, V5 = Version.MQTT_3_1_1, Version.MQTT_5


class Dialogue:
    """A session and the decoder of its server."""

    def __init__(self, version: Version = V3, *, acks_by_hand: bool = False, expiry_s: int = 60) -> None:
        properties = ConnectProperties(session_expiry_s=expiry_s) if version is V5 else ConnectProperties()
        connect = Connect(version, "c", clean_start=False, properties=properties)
        self.version = version
        self.session = MqttSession(connect, acks_by_hand=acks_by_hand)
        self._decoder = Decoder(is_server=True)

    def sent(self) -> list[Packet]:
        """Return what the client has sent since the last call, runs taken apart."""
        return single(self._decoder.feed(self.session.take()))

    def answer(self, *packets: Packet) -> list[Event]:
        return self.session.received(b"".join(encode(self.version, each) for each in packets))

    def connect(self, *, session_present: bool = False, receive_maximum: int | None = None) -> list[Packet]:
        """Connect, again if need be.   Returns: what the client sends at once behind CONNACK."""
        self._decoder = Decoder(is_server=True)
        self.session.connect()
        assert self.sent() == [self.session.connect_packet]
        connack = Connack(session_present, 0, ConnackProperties(receive_maximum=receive_maximum))
        assert len(self.answer(connack)) == 1
        return self.sent()


def one(qos: int, packet_id: int, payload: bytes = b"x", *, dup: bool = False) -> Publishes:
    return Publishes("t", (payload,), qos, False, dup, (packet_id,) if packet_id else ())


def ack(kind: PacketType, *packet_ids: int, code: int = 0) -> Acks:
    return Acks(kind, packet_ids, code)  # type: ignore[arg-type]


PUBACK, PUBREC, PUBREL, PUBCOMP = (
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
)


def test_qos_0_is_sent_once_and_not_kept() -> None:
    dialogue = Dialogue()
    dialogue.session.publish("t", b"early")
    assert dialogue.connect() == []
    assert dialogue.session.publish("t", b"x") == 0
    assert dialogue.sent() == [one(0, 0)]
    assert dialogue.connect(session_present=True) == []


def test_qos_1_is_sent_until_it_is_confirmed() -> None:
    """Unconfirmed messages go out again with DUP on a new connection, in their order [MQTT-4.4.0-1, MQTT-4.6.0-1]."""
    dialogue = Dialogue()
    dialogue.connect()
    assert [dialogue.session.publish("t", each, 1) for each in (b"a", b"b", b"c")] == [1, 2, 3]
    assert dialogue.sent() == [one(1, 1, b"a"), one(1, 2, b"b"), one(1, 3, b"c")]
    assert dialogue.answer(ack(PUBACK, 2)) == [Confirmed(2, 0)]
    wanted = [one(1, 1, b"a", dup=True), one(1, 3, b"c", dup=True)]
    assert dialogue.connect(session_present=True) == wanted
    assert dialogue.answer(ack(PUBACK, 1, 3)) == [Confirmed(1, 0), Confirmed(3, 0)]
    assert dialogue.session.unconfirmed == 0


def test_qos_2_is_released_and_not_sent_again_then() -> None:
    """Behind PUBREC only PUBREL is repeated [MQTT-4.3.3-4, MQTT-4.3.3-6]."""
    dialogue = Dialogue()
    dialogue.connect()
    dialogue.session.publish("t", b"a", 2)
    dialogue.session.publish("t", b"b", 2)
    dialogue.sent()
    assert dialogue.answer(ack(PUBREC, 1)) == []
    assert dialogue.sent() == [ack(PUBREL, 1)]
    assert dialogue.connect(session_present=True) == [ack(PUBREL, 1), one(2, 2, b"b", dup=True)]
    assert dialogue.answer(ack(PUBCOMP, 1)) == [Confirmed(1, 0)]
    assert dialogue.answer(ack(PUBREC, 2), ack(PUBCOMP, 2)) == [Confirmed(2, 0)]


def test_a_refusing_pubrec_ends_a_publish() -> None:
    """A refused message is not sent again [MQTT-4.4.0-2]."""
    dialogue = Dialogue(V5)
    dialogue.connect()
    dialogue.session.publish("t", b"x", 2)
    dialogue.sent()
    assert dialogue.answer(ack(PUBREC, 1, code=0x97)) == [Confirmed(1, 0x97)]
    assert dialogue.sent() == []
    assert dialogue.connect(session_present=True) == []


def test_what_was_published_without_connection_is_sent_later() -> None:
    dialogue = Dialogue()
    assert dialogue.session.publish("t", b"x", 1) == 1
    assert dialogue.session.take() == b""
    assert dialogue.connect() == [one(1, 1)]


def test_a_lost_session_is_counted_and_all_is_published_anew() -> None:
    dialogue = Dialogue()
    dialogue.connect()
    dialogue.session.publish("t", b"a", 2)
    dialogue.sent()
    dialogue.answer(ack(PUBREC, 1))
    assert dialogue.session.lost_sessions == 0
    assert dialogue.connect(session_present=False) == [one(2, 1, b"a")]
    assert dialogue.session.lost_sessions == 1


@pytest.mark.parametrize("expiry_s", [0, 60])
def test_a_session_that_ends_with_its_connection_is_not_lost(expiry_s: int) -> None:
    dialogue = Dialogue(V5, expiry_s=expiry_s)
    dialogue.connect()
    dialogue.connect()
    assert dialogue.session.lost_sessions == bool(expiry_s)


def test_no_more_than_the_receive_maximum_is_in_flight() -> None:
    """The rest waits for confirms, and all else goes on [MQTT-3.3.4-7, MQTT-3.3.4-8, MQTT-4.9.0-2]."""
    dialogue = Dialogue(V5)
    assert dialogue.connect(receive_maximum=2) == []
    for _ in range(4):
        dialogue.session.publish("t", b"x", 1)
    dialogue.session.publish("t", b"y")
    assert dialogue.sent() == [one(1, 1), one(1, 2), one(0, 0, b"y")]
    dialogue.answer(ack(PUBACK, 1))
    assert dialogue.sent() == [one(1, 3)]
    dialogue.answer(ack(PUBACK, 2, 3))
    assert dialogue.sent() == [one(1, 4)]


def messages(events: Iterable[Event]) -> list[tuple[bytes, int, int]]:
    return [(each.payload, each.qos, each.packet_id) for each in events if isinstance(each, Message)]


def test_messages_are_answered_by_their_qos() -> None:
    """QoS 1 gets PUBACK, QoS 2 PUBREC and, when released, PUBCOMP [MQTT-3.3.4-1, MQTT-4.3.2-4, MQTT-4.3.3-8]."""
    dialogue = Dialogue()
    dialogue.connect()
    found = dialogue.answer(one(0, 0, b"a"), one(1, 7, b"b"), one(2, 8, b"c"))
    assert messages(found) == [(b"a", 0, 0), (b"b", 1, 7), (b"c", 2, 8)]
    assert dialogue.sent() == [ack(PUBACK, 7), ack(PUBREC, 8)]
    assert dialogue.answer(ack(PUBREL, 8)) == []
    assert dialogue.sent() == [ack(PUBCOMP, 8)]


def test_a_message_of_qos_2_is_taken_once() -> None:
    """An identifier is that of the same message until PUBREL, over connections [MQTT-4.3.3-10, MQTT-4.3.3-12]."""
    dialogue = Dialogue()
    dialogue.connect()
    assert len(dialogue.answer(one(2, 8))) == 1
    dialogue.connect(session_present=True)
    assert dialogue.answer(one(2, 8, dup=True)) == []
    assert dialogue.sent() == [ack(PUBREC, 8)]
    dialogue.answer(ack(PUBREL, 8))
    assert len(dialogue.answer(one(2, 8))) == 1


def test_a_pubrel_of_nothing_is_completed() -> None:
    dialogue = Dialogue(V5)
    dialogue.connect()
    dialogue.answer(ack(PUBREL, 8))
    assert dialogue.sent() == [ack(PUBCOMP, 8, code=ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]
    dialogue.answer(ack(PUBREC, 9))
    assert dialogue.sent() == [ack(PUBREL, 9, code=ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]


def test_messages_may_be_acknowledged_by_hand() -> None:
    dialogue = Dialogue(V5, acks_by_hand=True)
    dialogue.connect()
    first, second = dialogue.answer(one(1, 1), one(2, 2))
    assert dialogue.sent() == []
    assert isinstance(second, Message)
    dialogue.session.acknowledge(second)
    assert isinstance(first, Message)
    dialogue.session.acknowledge(first, 0x97)
    assert dialogue.sent() == [ack(PUBREC, 2), ack(PUBACK, 1, code=0x97)]


def test_requests_and_answers() -> None:
    dialogue = Dialogue()
    dialogue.connect()
    assert dialogue.session.subscribe(Subscription("a/#", 1)) == 1
    assert dialogue.session.unsubscribe("a/#") == 2
    dialogue.session.ping()
    dialogue.session.disconnect()
    assert dialogue.sent() == [
        Subscribe(1, (Subscription("a/#", 1),)),
        Unsubscribe(2, ("a/#",)),
        PINGREQ,
        Disconnect(),
    ]
    assert dialogue.answer(Suback(1, (1,)), Unsuback(2), PINGRESP) == [Suback(1, (1,)), Unsuback(2), PINGRESP]


def test_packet_identifiers_are_used_again_when_they_are_free() -> None:
    """One that is in use is left out [MQTT-2.2.1-3]."""
    dialogue = Dialogue()
    dialogue.connect()
    assert dialogue.session.publish("t", b"", 1) == 1
    for wanted in range(2, 65_536):
        assert dialogue.session.publish("t", b"", 1) == wanted
    with pytest.raises(AssertionError, match="in use"):
        dialogue.session.publish("t", b"", 1)
    dialogue.answer(ack(PUBACK, 500))
    assert dialogue.session.publish("t", b"", 1) == 500


def test_topic_aliases_of_the_server_are_resolved() -> None:
    connect = Connect(V5, "c", properties=ConnectProperties(topic_alias_maximum=1))
    session = MqttSession(connect)
    session.connect()
    alias = PublishProperties(topic_alias=1)
    packets = (Connack(), Publishes("t", (b"a",), properties=alias), Publishes("", (b"b",), properties=alias))
    events = session.received(b"".join(encode(V5, each) for each in packets))
    assert [each.topic for each in events if isinstance(each, Message)] == ["t", "t"]
