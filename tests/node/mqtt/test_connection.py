"""The connection of an MQTT client: CONNECT and its refusals, requests and their answers, keep-alive, the end."""

import gc
import string
import weakref

import pytest

from node.catalogue.commands import PutVhost, SetGlobalParameter, SetPermission
from node.client.endpoint import ClientEndpoint
from node.mqtt.constants import PacketType, Version
from node.mqtt.encoder import encode
from node.mqtt.packets import (
    PINGREQ,
    Acks,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingresp,
    Publishes,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from node.mqtt.properties import AuthProperties, ConnectProperties, PublishProperties
from node.mqtt.reason_codes import ReasonCode, ReturnCode
from tests.kit.world import World
from tests.node.mqtt.mqtt_client import V3, V4, V5, MqttClient, connected

BOTH = pytest.mark.parametrize("version", [V4, V5])
ALL = pytest.mark.parametrize("version", [V3, V4, V5])


# --- CONNECT ---


@ALL
def test_a_wrong_login_is_refused(version: Version) -> None:
    """The CONNACK has the code, there is no DISCONNECT, and the connection ends."""
    client = MqttClient(World(), version)
    answer = client.connect("c", user="guest", password=b"wrong")
    due = ReasonCode.BAD_USER_NAME_OR_PASSWORD if version is V5 else ReturnCode.BAD_USER_NAME_OR_PASSWORD
    assert (answer.code, answer.session_present) == (due, False)
    assert client.told() == []
    client.world.advance(3.1)
    assert client.is_reset


@BOTH
def test_a_vhost_may_be_missing_or_refused(version: Version) -> None:
    """The codes are those of RabbitMQ 3.10.8: the vhost is a part of the user name."""
    world = World()
    client = MqttClient(world, version)
    answer = client.connect("c", user="nowhere:guest", password=b"guest")
    due = ReasonCode.BAD_USER_NAME_OR_PASSWORD if version is V5 else ReturnCode.BAD_USER_NAME_OR_PASSWORD
    assert answer.code == due
    assert client.is_reset
    world.submit(PutVhost("closed"))
    client = MqttClient(world, version)
    answer = client.connect("c", user="closed:guest", password=b"guest")
    assert answer.code == (ReasonCode.NOT_AUTHORIZED if version is V5 else ReturnCode.NOT_AUTHORIZED)
    assert client.is_reset


@BOTH
def test_a_user_of_this_machine_is_refused_from_elsewhere(version: Version) -> None:
    """The code is that of RabbitMQ 3.10.8: the password may be right."""
    remote = ClientEndpoint(address="192.0.2.7:4321", is_loopback=False)
    answer = MqttClient(World(), version, peer=remote).connect("c")
    assert answer.code == (ReasonCode.NOT_AUTHORIZED if version is V5 else ReturnCode.NOT_AUTHORIZED)


def test_a_port_may_have_a_vhost() -> None:
    world = World()
    world.submit(PutVhost("meters"))
    world.submit(SetPermission("meters", "guest", ".*", ".*", ".*"))
    world.submit(SetGlobalParameter("mqtt_port_to_vhost_mapping", {"1884": "meters"}))
    client = MqttClient(world, peer=ClientEndpoint(local="127.0.0.1:1884"))
    assert client.connect("c").code == 0
    assert client.connection.vhost == "meters"


@BOTH
def test_behind_a_refused_connect_nothing_is_carried_out(version: Version) -> None:
    world = World()
    watcher = connected(world, "w")
    watcher.subscribe("a")
    client = MqttClient(world, version)
    client.send(
        Connect(version, "c", user_name="guest", password=b"wrong"),
        Publishes("a", (b"m",)),
        Subscribe(1, (Subscription("a"),)),
    )
    assert [type(packet) for packet in client.told()] == [Connack]
    assert watcher.bodies() == []
    assert world.queue_names == {"mqtt-subscription-wqos0"}


@pytest.mark.parametrize(
    ("version", "code"), [(V4, ReturnCode.IDENTIFIER_REJECTED), (V5, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)]
)
def test_a_refused_client_id_has_its_code_and_the_connection_ends(version: Version, code: int) -> None:
    client = MqttClient(World(), version)
    assert client.connect("x" * 300).code == code
    assert client.is_reset


def test_a_connect_that_is_wrong_ends_in_silence_before_5() -> None:
    for version, answers in ((V4, 0), (V5, 1)):
        client = MqttClient(World(), version)
        client.feed(encode(version, Connect(version, "c", will=Will("a/#", b""))))
        assert len(client.told()) == answers
        assert client.is_reset


def test_an_empty_client_id_is_assigned_one() -> None:
    world = World()
    ids = {MqttClient(world, V5).connect("").properties.assigned_client_id for _ in range(3)}
    assert len(ids) == 3
    assert None not in ids
    assert MqttClient(world, V5).connect("c").properties.assigned_client_id is None


@BOTH
def test_client_ids_of_1_to_23_letters_and_digits_are_allowed(version: Version) -> None:
    world = World()
    for client_id in (
        "a",
        string.ascii_letters[:23],
        string.digits,
        (string.ascii_uppercase + string.digits)[-23:],
    ):
        assert MqttClient(world, version).connect(client_id).code == 0


def test_a_connack_has_no_response_information() -> None:
    answer = MqttClient(World(), V5).connect("c")
    assert answer.properties.response_information is None
    assert answer.properties.server_reference is None


def test_reason_strings_are_left_out_for_a_client_that_does_not_want_them() -> None:
    for wants in (True, False, None):
        client = MqttClient(World(), V5)
        client.connect("c", properties=ConnectProperties(request_problem_information=wants))
        client.send(Disconnect(properties=Disconnect().properties._replace(session_expiry_s=10)))
        (answer,) = client.told()
        assert isinstance(answer, Disconnect)
        assert (answer.properties.reason_string is not None) is (wants is not False)


def test_an_authentication_method_is_refused() -> None:
    client = MqttClient(World(), V5)
    answer = client.connect("c", properties=ConnectProperties(authentication_method="SCRAM-SHA-1"))
    assert answer.code == ReasonCode.BAD_AUTHENTICATION_METHOD
    assert client.told() == []
    assert client.is_reset
    client = connected(World(), version=V5)
    client.send(Auth(ReasonCode.RE_AUTHENTICATE, AuthProperties("SCRAM-SHA-1")))
    (packet,) = client.told()
    assert isinstance(packet, Disconnect)
    assert client.is_reset


def test_a_client_that_does_not_connect_in_time_is_reset() -> None:
    client = MqttClient(World())
    client.world.advance(10.1)
    assert client.is_reset


def test_a_connection_is_shown_with_its_version_and_client_id() -> None:
    world = World()
    for version, name in ((V3, "MQTT 3.1.0"), (V4, "MQTT 3.1.1"), (V5, "MQTT 5-0")):
        connection = connected(world, f"meter {version}", version).connection
        assert (connection.protocol, connection.client_name) == (name, f"meter {version}")
        assert connection.auth_mechanism == "mqtt"


# --- requests ---


@BOTH
def test_requests_are_answered_with_their_identifier(version: Version) -> None:
    client = connected(World(), version=version)
    client.send(
        Subscribe(700, (Subscription("a"),)),
        Unsubscribe(9, ("a", "never")),
        Subscribe(65_535, (Subscription("b"), Subscription("c", 1))),
    )
    assert [
        (type(packet), packet.packet_id, packet.codes)
        for packet in client.told()
        if isinstance(packet, Suback | Unsuback)
    ] == [
        (Suback, 700, (0,)),
        (Unsuback, 9, (0, ReasonCode.NO_SUBSCRIPTION_EXISTED) if version is V5 else ()),
        (Suback, 65_535, (0, 1)),
    ]


@BOTH
def test_a_ping_is_answered(version: Version) -> None:
    client = connected(World(), version=version)
    client.send(PINGREQ, PINGREQ)
    assert client.told() == [Pingresp(), Pingresp()]


def test_packets_are_carried_out_in_their_order() -> None:
    """A packet behind a request in the same read waits for the answer."""
    client = connected(World())
    client.send(
        Subscribe(1, (Subscription("a", 1),)),
        Publishes("a", (b"1",)),
        Unsubscribe(2, ("a",)),
        Publishes("a", (b"2",)),
        Subscribe(3, (Subscription("a", 1),)),
        Publishes("a", (b"3",), 1, packet_ids=(4,)),
    )
    assert client.bodies() == [b"1", b"3"]


def test_packets_are_carried_out_however_they_are_cut() -> None:
    world = World()
    data = b"".join(
        encode(V5, packet)
        for packet in (
            Connect(V5, "c"),
            Subscribe(1, (Subscription("a", 2),)),
            Publishes("a", (b"1", b"2"), 2, packet_ids=(1, 2)),
            Unsubscribe(2, ("a",)),
            PINGREQ,
        )
    )
    client = MqttClient(world, V5)
    for octet in data:
        client.feed(bytes((octet,)))
        world.settle()
    told = client.told()
    assert isinstance(told[0], Connack)
    assert isinstance(told[-1], Pingresp)
    assert [each.payloads[0] for each in told if isinstance(each, Publishes)] == [b"1", b"2"]


def test_filters_are_unsubscribed_character_by_character() -> None:
    client = connected(World(), version=V5)
    client.subscribe("a/+")
    assert client.unsubscribe("a/b", "A/+", "a/+").codes == (
        ReasonCode.NO_SUBSCRIPTION_EXISTED,
        ReasonCode.NO_SUBSCRIPTION_EXISTED,
        0,
    )


def test_deliveries_that_have_begun_are_completed_after_an_unsubscribe() -> None:
    client = connected(World(), acks=False)
    client.subscribe("a", qos=2)
    client.publish("a", b"m", qos=2)
    (found,) = client.published()
    client.unsubscribe("a")
    client.send(Acks(PacketType.PUBREC, found.packet_ids))
    assert client.acked(PacketType.PUBREL) == list(found.packet_ids)
    client.send(Acks(PacketType.PUBCOMP, found.packet_ids))
    assert client.world.queue("mqtt-subscription-cqos2").unacked_count == 0


def test_dup_of_a_delivery_tells_of_the_delivery() -> None:
    world = World()
    client = connected(world)
    client.subscribe("a", qos=1)
    connected(world, "p").publish("a", b"m", qos=1, dup=True)
    (found,) = client.published()
    assert not found.dup


@pytest.mark.parametrize("type_", [PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP])
def test_acknowledgements_of_nothing_change_nothing(type_: PacketType) -> None:
    client = connected(World())
    client.send(Acks(type_, (77,)), PINGREQ)  # type: ignore[arg-type]
    told = client.told()
    assert isinstance(told[-1], Pingresp)


def test_an_acknowledgement_of_the_wrong_kind_ends_the_connection() -> None:
    for qos, type_ in ((1, PacketType.PUBREC), (2, PacketType.PUBACK)):
        client = connected(World(), version=V5, acks=False)
        client.subscribe("a", qos=qos)
        client.publish("a", b"m", qos=qos)
        (found,) = client.published()
        client.send(Acks(type_, found.packet_ids))  # type: ignore[arg-type]
        (answer,) = client.told()
        assert isinstance(answer, Disconnect)
        assert answer.code == ReasonCode.PROTOCOL_ERROR


def test_a_pubrec_that_refuses_settles_the_message() -> None:
    client = connected(World(), version=V5, acks=False)
    client.subscribe("a", qos=2)
    client.publish("a", b"m", qos=2)
    (found,) = client.published()
    client.send(Acks(PacketType.PUBREC, found.packet_ids, ReasonCode.QUOTA_EXCEEDED))
    assert client.acked(PacketType.PUBREL) == []
    client.world.settle()
    assert client.world.queue("mqtt-subscription-cqos2").unacked_count == 0


# --- the end ---


def test_a_clean_session_ends_and_retained_messages_stay() -> None:
    world = World()
    client = connected(world)
    client.publish("a", b"m", qos=1, retain=True)
    client.disconnect()
    late = connected(world)
    late.subscribe("a")
    assert late.bodies() == [b"m"]


def test_without_a_will_none_is_published() -> None:
    world = World()
    watcher = connected(world, "w")
    watcher.subscribe("#")
    connected(world).cut()
    assert watcher.bodies() == []


def test_messages_in_the_read_of_a_disconnect_are_published() -> None:
    world = World()
    watcher = connected(world, "w")
    watcher.subscribe("a", qos=1)
    connected(world).send(Publishes("a", (b"0",)), Publishes("a", (b"1",), 1, packet_ids=(1,)), Disconnect())
    assert watcher.bodies() == [b"0", b"1"]


def test_what_comes_behind_a_disconnect_is_not_read() -> None:
    world = World()
    watcher = connected(world, "w")
    watcher.subscribe("a")
    client = connected(world)
    client.send(Disconnect(), Publishes("a", (b"late",)))
    assert client.is_reset
    assert watcher.bodies() == []


def test_a_client_is_told_that_the_node_stops() -> None:
    client = connected(World(), version=V5)
    client.connection.force_close("shutdown")
    (answer,) = client.told()
    assert isinstance(answer, Disconnect)
    assert answer.code == ReasonCode.SERVER_SHUTTING_DOWN


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("Node was put into maintenance mode", ReasonCode.USE_ANOTHER_SERVER),
        ("broker forced connection closure with reason 'shutdown'", ReasonCode.USE_ANOTHER_SERVER),
        ("Closed via management plugin", ReasonCode.SERVER_SHUTTING_DOWN),
    ],
)
def test_a_client_is_told_where_to_go_when_its_node_leaves(reason: str, code: ReasonCode) -> None:
    client = MqttClient(World(), V5, settings={"server_reference": "n2:1883"})
    assert client.connect("c").code == 0
    client.connection.force_close(reason)
    (answer,) = client.told()
    assert isinstance(answer, Disconnect)
    is_sent_on = code is ReasonCode.USE_ANOTHER_SERVER
    assert (answer.code, answer.properties.server_reference) == (code, "n2:1883" if is_sent_on else None)


def test_a_client_that_the_node_does_not_read_from_is_not_silent() -> None:
    world = World()
    client = connected(world, keep_alive_s=10)
    world.broker.alarms.set("memory", "rabbit@localhost")
    client.publish("a", b"m")
    world.advance(100.0)
    assert not client.is_reset
    world.broker.alarms.clear("memory", "rabbit@localhost")
    world.settle()
    world.advance(40.0)
    assert client.is_reset


@BOTH
def test_garbage_ends_the_connection(version: Version) -> None:
    world = World()
    other, client = connected(world, "o"), connected(world, version=version)
    client.feed(b"\xf0\xff\xff\xff\xff\xff")
    told = client.told()
    assert [type(packet) for packet in told] == ([Disconnect] if version is V5 else [])
    assert client.is_reset
    assert not other.is_reset
    assert world.broker.exchange_types.failures.get("rabbitmq_mqtt", 0) == 0


def test_a_packet_that_is_too_long_ends_the_connection() -> None:
    client = MqttClient(World(), V5, settings={"max_packet_size_authenticated": 1000})
    assert client.connect("c").properties.maximum_packet_bytes == 1000
    client.publish("a", b"x" * 1000, properties=PublishProperties(content_type="text/plain"))
    (answer,) = client.told()
    assert isinstance(answer, Disconnect)
    assert answer.code == ReasonCode.PACKET_TOO_LARGE


@BOTH
def test_a_connection_that_is_lost_is_freed_at_once(version: Version) -> None:
    """The parts of a connection refer to each other, and Python seldom looks for cycles: a storm would fill memory."""
    world = World()
    client = connected(world, version=version, will=Will("w", b"gone"))
    client.subscribe("a", qos=2)
    client.publish("a", b"m", qos=2, retain=True)
    client.publish("a", b"m", qos=1)
    client.unsubscribe("a")
    plugged = weakref.ref(client.connection._client)  # type: ignore[arg-type]
    assert plugged() is not None
    gc.collect()
    gc.disable()
    try:
        client.cut()
        world.settle()
        assert plugged() is None
    finally:
        gc.enable()


def test_a_client_has_to_connect_in_time() -> None:
    world = World()
    silent = MqttClient(world, settings={"login_timeout": 500})
    client = MqttClient(world, settings={"login_timeout": 500})
    assert client.connect("c").code == 0
    world.advance(0.6)
    assert (silent.is_reset, client.is_reset) == (True, False)
