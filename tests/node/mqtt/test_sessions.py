"""Sessions of MQTT over a broker without sockets: what outlives a connection, and what a next one finds."""

import pytest

from node.amqp.field_table import Field, long, longstr
from node.amqp.methods import BasicConsume, QueueBind
from node.catalogue.commands import DeleteQueue, SetPermission
from node.mqtt import session
from node.mqtt.constants import PacketType
from node.mqtt.encoder import encode
from node.mqtt.incoming import UNRELEASED_MAX
from node.mqtt.message_mapping import EXPIRY_MAX_S
from node.mqtt.packets import Acks, Disconnect, Publishes, Subscription, Will
from node.mqtt.properties import ConnectProperties, PublishProperties, WillProperties
from node.mqtt.reason_codes import ReasonCode
from tests.kit.world import World
from tests.node.mqtt.mqtt_client import V3, V4, V5, MqttClient, connected

BOTH = pytest.mark.parametrize("version", [V4, V5])


def persistent(world: World, client_id: str = "c", version: int = V4, *, acks: bool = True) -> MqttClient:
    """Return a client that is connected to its persistent session."""
    options = {"expiry_s": 1000} if version == V5 else {}
    return connected(world, client_id, version, clean=False, acks=acks, **options)  # type: ignore[arg-type]


# --- clean and persistent sessions ---


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_wait_for_a_persistent_session(version: int, qos: int) -> None:
    world = World()
    client = persistent(world, version=version)
    client.subscribe("a/#", qos=qos)
    client.cut()
    connected(world, "p").publish("a/b", b"1", b"2", qos=2)
    client = MqttClient(world, version)  # type: ignore[arg-type]
    answer = client.connect("c", clean=False, expiry_s=1000 if version == V5 else None)
    assert answer.session_present
    assert [(each.payloads[0], each.qos) for each in client.published()] == [(b"1", qos), (b"2", qos)]
    client.unsubscribe("a/#")
    connected(world, "p").publish("a/b", b"3", qos=1)
    assert client.bodies() == []


@BOTH
def test_a_clean_session_leaves_nothing(version: int) -> None:
    world = World()
    client = connected(world, version=version)  # type: ignore[arg-type]
    client.subscribe("a", "b", qos=0)
    client.subscribe("c", qos=1)
    client.subscribe("d", qos=2)
    assert len(world.queue_names) == 3
    client.disconnect()
    world.settle()
    assert world.queue_names == set()
    assert not persistent(world, version=version).connection.is_finished


@BOTH
def test_a_clean_start_drops_a_persistent_session(version: int) -> None:
    world = World()
    client = persistent(world, version=version)
    client.subscribe("a", qos=1)
    client.subscribe("b", qos=2)
    connected(world, "p").publish("b", b"lost", qos=2)
    client.cut()
    client = connected(world, version=version, clean=True)  # type: ignore[arg-type]
    assert client.bodies() == []
    client.disconnect()
    again = MqttClient(world, version)  # type: ignore[arg-type]
    assert not again.connect("c", clean=False).session_present
    assert again.bodies() == []


def test_a_session_is_there_without_subscriptions() -> None:
    world = World()
    persistent(world).disconnect()
    assert MqttClient(world).connect("c", clean=False).session_present


def test_subscriptions_come_back_with_their_options() -> None:
    world = World()
    client = persistent(world, version=V5)
    client.subscribe(Subscription("a", 1, retain_as_published=True), identifier=7)
    client.subscribe(Subscription("b", 0, no_local=True), identifier=8)
    client.subscribe(Subscription("c.d/e", 2))
    client.cut()
    client = persistent(world, version=V5)
    assert client.bodies() == []
    client.publish("b", b"own")
    connected(world, "p", V5).publish("a", b"1", qos=1, retain=True)
    connected(world, "q", V5).publish("b", b"2")
    connected(world, "r", V5).publish("c.d/e", b"3", qos=2)
    found = {each.payloads[0]: each for each in client.published()}
    assert found.keys() == {b"1", b"2", b"3"}
    assert (found[b"1"].retain, found[b"1"].properties.subscription_ids) == (True, (7,))
    assert (found[b"2"].qos, found[b"2"].properties.subscription_ids) == (0, (8,))
    assert client.unsubscribe("c.d/e", "b", "x").codes == (0, 0, ReasonCode.NO_SUBSCRIPTION_EXISTED)


@pytest.mark.parametrize("identifier", [long(0), long(-1), long(1 << 40), longstr("7")])
def test_a_binding_of_amqps_clients_gives_no_identifier_that_mqtt_does_not_have(identifier: Field) -> None:
    """A client of AMQP may bind a session's queue with any arguments, and must not make the session unusable."""
    world = World()
    client = persistent(world, version=V5)
    client.subscribe("b", qos=1)
    client.cut()
    binding = QueueBind(
        queue="mqtt-subscription-cqos1",
        exchange="amq.topic",
        routing_key="a",
        arguments={"x-mqtt-subscription-id": identifier},
    )
    world.client().ask(1, binding)
    client = persistent(world, version=V5)
    connected(world, "p").publish("a", b"m", qos=1)
    (found,) = client.published()
    assert (found.payloads[0], found.properties.subscription_ids) == (b"m", ())


def test_a_session_expires() -> None:
    world = World()
    client = connected(world, version=V5, clean=False, expiry_s=100)
    client.subscribe("a", qos=2)
    client.cut()
    world.advance(90.0)
    client = MqttClient(world, V5)
    assert client.connect("c", clean=False, expiry_s=100).session_present
    client.cut()
    world.advance(110.0)
    assert not MqttClient(world, V5).connect("c", clean=False).session_present


def test_a_client_ends_its_session_as_it_disconnects() -> None:
    world = World()
    client = connected(world, version=V5, clean=False, expiry_s=100)
    client.subscribe("a", qos=1)
    client.send(Disconnect(properties=Disconnect().properties._replace(session_expiry_s=0)))
    assert client.is_reset
    world.settle()
    assert world.queue_names == set()


def test_a_session_that_ends_with_its_connection_is_not_prolonged() -> None:
    client = connected(World(), version=V5)
    client.send(Disconnect(properties=Disconnect().properties._replace(session_expiry_s=10)))
    (answer,) = client.told()
    assert isinstance(answer, Disconnect)
    assert answer.code == ReasonCode.PROTOCOL_ERROR


def test_nor_is_one_that_this_connection_ends() -> None:
    """A CONNECT without session expiry ends a session that a former one made; DISCONNECT cannot change that."""
    world = World()
    connected(world, version=V5, clean=False, expiry_s=100).cut()
    client = MqttClient(world, V5)
    assert client.connect("c", clean=False).session_present
    client.send(Disconnect(properties=Disconnect().properties._replace(session_expiry_s=10)))
    (answer,) = client.told()
    assert isinstance(answer, Disconnect)
    assert answer.code == ReasonCode.PROTOCOL_ERROR


def test_all_of_a_session_is_gone_when_the_client_ends_it() -> None:
    world = World()
    client = connected(world, version=V5, clean=False, expiry_s=100)
    client.subscribe("a", qos=1)
    client.subscribe("b", qos=2)
    client.publish("b", b"m", qos=2)
    assert len({name for name in world.queue_names if "-c" in name}) == 3
    client.told()
    client.send(Disconnect(properties=Disconnect().properties._replace(session_expiry_s=0)))
    assert client.told() == [], "nothing follows a DISCONNECT"
    assert client.is_reset
    assert not {name for name in world.queue_names if "-c" in name}


@pytest.mark.parametrize("version", [V4, V5])
def test_a_session_may_live_longer_than_a_queue(version: int) -> None:
    world = World()
    longest = {"subscription_ttl": 10**15, "max_session_expiry_interval_seconds": 0xFFFFFFFF}
    client = MqttClient(world, version, settings=longest)  # type: ignore[arg-type]
    answer = client.connect("c", clean=False, expiry_s=0xFFFFFFFE if version == V5 else None)
    assert answer.code == 0
    if version == V5:
        assert answer.properties.session_expiry_s == EXPIRY_MAX_S
    never = MqttClient(world, V5, settings=longest)
    delayed_for_ever = WILL._replace(properties=WillProperties(will_delay_s=0xFFFFFFFF))
    answer = never.connect("d", clean=False, expiry_s=0xFFFFFFFF, will=delayed_for_ever)
    assert (answer.code, answer.properties.session_expiry_s) == (0, None)


def test_the_server_tells_how_long_the_session_lives() -> None:
    world = World()
    answer = MqttClient(world, V5).connect("c", clean=False, expiry_s=0xFFFFFFFF)
    assert answer.properties.session_expiry_s == 86_400
    assert MqttClient(world, V5).connect("d", expiry_s=50).properties.session_expiry_s is None


# --- takeover ---


@BOTH
def test_a_second_connection_takes_over(version: int) -> None:
    world = World()
    first = persistent(world, version=version)
    first.subscribe("a", qos=1)
    second = persistent(world, version=version)
    assert first.is_reset
    codes = [packet.code for packet in first.told() if isinstance(packet, Disconnect)]
    assert codes == ([ReasonCode.SESSION_TAKEN_OVER] if version == V5 else [])
    connected(world, "p").publish("a", b"1", qos=1)
    assert second.bodies() == [b"1"]


def test_messages_of_a_former_connection_come_back_before_newer_ones_go_out() -> None:
    """A node that is lost with a client's former connection is missed later than the new one begins [MQTT-4.6.0-5].

    Another consumer of the session's queue stands for the former connection, which nobody can close.
    """
    world = World()
    client = persistent(world, version=V5)
    client.subscribe("a", qos=2)
    client.cut()
    former = world.client()
    former.send(1, BasicConsume(queue="mqtt-subscription-cqos2", consumer_tag="former"))
    publisher = connected(world, "p")
    publisher.publish("a", b"1", qos=2)
    client = persistent(world, version=V5)
    publisher.publish("a", b"2", qos=2)
    assert client.bodies() == []
    former.lose()
    world.settle()
    assert client.bodies() == [b"1", b"2"]


def test_an_unacknowledged_message_goes_to_the_connection_that_takes_over() -> None:
    world = World()
    first = persistent(world, acks=False)
    first.subscribe("a", qos=1)
    connected(world, "p").publish("a", b"1", qos=1)
    assert first.bodies() == [b"1"]
    second = persistent(world)
    (found,) = second.published()
    assert (found.payloads[0], found.dup) == (b"1", True)


# --- overlapping subscriptions ---


@BOTH
def test_a_message_comes_once_with_the_highest_qos(version: int) -> None:
    world = World()
    client = connected(world, version=version)  # type: ignore[arg-type]
    client.subscribe("a/#", qos=0)
    client.subscribe("a/+", qos=1)
    client.subscribe("a/b", qos=2)
    connected(world, "p").publish("a/b", b"1", qos=2)
    connected(world, "p").publish("a/c", b"2", qos=2)
    connected(world, "p").publish("a/c/d", b"3", qos=2)
    assert sorted((each.payloads[0], each.qos) for each in client.published()) == [
        (b"1", 2),
        (b"2", 1),
        (b"3", 0),
    ]


@BOTH
def test_a_subscription_changes_its_qos(version: int) -> None:
    world = World()
    client = persistent(world, version=version)
    for qos in (2, 0, 1):
        assert client.subscribe("a", qos=qos) == (qos,)
        connected(world, "p").publish("a", b"m", qos=2)
        assert [(each.qos, each.payloads[0]) for each in client.published()] == [(qos, b"m")]


def test_identifiers_of_all_subscriptions_that_match() -> None:
    client = connected(World(), version=V5)
    client.subscribe("a/+", qos=1, identifier=1)
    client.subscribe("a/#", qos=1, identifier=2)
    client.publish("a/b", b"m")
    (found,) = client.published()
    assert sorted(found.properties.subscription_ids) == [1, 2]


def test_no_local() -> None:
    world = World()
    client, other = connected(world, "c", V5), connected(world, "d", V5)
    for each in (client, other):
        each.subscribe(Subscription("a", 1, no_local=True))
    client.publish("a", b"m", qos=1)
    assert (client.bodies(), other.bodies()) == ([], [b"m"])


# --- shared subscriptions ---


def test_each_message_of_a_shared_subscription_goes_to_one_member() -> None:
    world = World()
    members = [connected(world, name, V5) for name in "ab"]
    other = connected(world, "o", V5)
    for member in members:
        assert member.subscribe("$share/g/t/#", qos=2) == (1,)
    other.subscribe("t/#")
    connected(world, "p").publish("t/x", *(b"%d" % number for number in range(10)), qos=1)
    bodies = [each.bodies() for each in members]
    assert sorted(bodies[0] + bodies[1]) == sorted(other.bodies())
    assert bodies[0]
    assert bodies[1]
    members[0].unsubscribe("$share/g/t/#")
    connected(world, "p").publish("t/x", b"m", qos=1)
    assert (members[0].bodies(), members[1].bodies()) == ([], [b"m"])


def test_a_persistent_session_is_a_member_again() -> None:
    world = World()
    client = persistent(world, version=V5)
    client.subscribe("$share/g/t", qos=1)
    client.cut()
    connected(world, "p").publish("t", b"m", qos=1)
    client = persistent(world, version=V5)
    assert client.bodies() == [b"m"]
    assert client.unsubscribe("$share/g/t").codes == (0,)
    client.cut()
    connected(world, "p").publish("t", b"n", qos=1)
    assert persistent(world, version=V5).bodies() == []


def test_shared_subscriptions_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SHARED_MAX", 2)
    client = connected(World(), version=V5)
    refused = ReasonCode.QUOTA_EXCEEDED
    assert client.subscribe("$share/g/a", "$share/g/b", "$share/g/c", "c") == (0, 0, refused, 0)
    assert client.subscribe("$share/g/b", qos=1) == (1,)
    client.unsubscribe("$share/g/a")
    assert client.subscribe("$share/g/c") == (0,)


# --- QoS 2 ---


def test_a_message_with_qos_2_that_is_sent_again_is_published_once() -> None:
    world = World()
    subscriber = connected(world, "s")
    subscriber.subscribe("a", qos=2)
    client = persistent(world, acks=False)
    client.publish("a", b"m", qos=2, packet_ids=[5])
    assert client.acked(PacketType.PUBREC) == [5]
    client.cut()
    client = persistent(world, acks=False)
    client.publish("a", b"m", qos=2, dup=True, packet_ids=[5])
    assert client.acked(PacketType.PUBREC) == [5]
    client.send(Acks(PacketType.PUBREL, (5,)))
    assert client.acked(PacketType.PUBCOMP) == [5]
    assert subscriber.bodies() == [b"m"]
    client.publish("a", b"n", qos=2, packet_ids=[5])
    assert subscriber.bodies() == [b"n"], "the packet identifier was free again"


def test_within_one_connection_too() -> None:
    world = World()
    subscriber = connected(world, "s")
    subscriber.subscribe("a", qos=2)
    client = connected(world, acks=False)
    for dup in (False, True, True):
        client.publish("a", b"m", qos=2, dup=dup, packet_ids=[5])
    assert client.acked(PacketType.PUBREC) == [5, 5, 5]
    assert subscriber.bodies() == [b"m"]


@pytest.mark.parametrize(("version", "code"), [(V4, 0), (V5, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)])
def test_a_pubrel_without_a_message_is_completed(version: int, code: int) -> None:
    client = connected(World(), version=version)  # type: ignore[arg-type]
    client.send(Acks(PacketType.PUBREL, (9,)))
    (answer,) = client.told()
    assert isinstance(answer, Acks)
    assert (answer.type, answer.packet_ids, answer.code) == (PacketType.PUBCOMP, (9,), code)


def test_a_delivery_with_qos_2_keeps_its_packet_identifier() -> None:
    world = World()
    client = persistent(world, acks=False)
    client.subscribe("a", qos=2)
    connected(world, "p").publish("a", b"1", b"2", qos=2)
    sent = {each.payloads[0]: each.packet_ids for each in client.published()}
    client.cut()
    client = persistent(world, acks=False)
    again = client.published()
    assert {each.payloads[0]: each.packet_ids for each in again} == sent
    assert all(each.dup for each in again)


def test_a_message_after_its_pubrec_is_not_delivered_again() -> None:
    world = World()
    client = persistent(world, acks=False)
    client.subscribe("a", qos=2)
    connected(world, "p").publish("a", b"1", qos=2)
    (found,) = client.published()
    client.send(Acks(PacketType.PUBREC, found.packet_ids))
    assert client.acked(PacketType.PUBREL) == list(found.packet_ids)
    client.cut()
    client = persistent(world, acks=False)
    told = client.told()
    assert [(packet.type, tuple(packet.packet_ids)) for packet in told if isinstance(packet, Acks)] == [
        (PacketType.PUBREL, tuple(found.packet_ids))
    ]
    client.send(Acks(PacketType.PUBCOMP, found.packet_ids))
    connected(world, "p").publish("a", b"2", qos=2)
    assert client.bodies() == [b"2"]


def test_a_pubrec_for_a_former_connections_message_comes_before_it_is_delivered_again() -> None:
    world = World()
    client = persistent(world, acks=False)
    client.subscribe("a", qos=2)
    connected(world, "p").publish("a", b"1", qos=2)
    (found,) = client.published()
    client.cut()
    client = MqttClient(world, acks=False)
    client.connect("c", clean=False)
    client.told()
    client.send(Acks(PacketType.PUBREC, found.packet_ids))
    assert client.acked(PacketType.PUBREL) == list(found.packet_ids)
    client.send(Acks(PacketType.PUBCOMP, found.packet_ids))
    assert client.bodies() == []
    client.cut()
    assert persistent(world).bodies() == []


# --- flow ---


def test_no_more_messages_are_unacknowledged_than_the_client_takes() -> None:
    world = World()
    client = MqttClient(world, V5, acks=False)
    client.connect("c", properties=ConnectProperties(receive_maximum=3))
    client.subscribe("a", qos=1)
    client.subscribe("b", qos=2)
    client.subscribe("z", qos=0)
    publisher = connected(world, "p")
    publisher.publish("a", *(b"a%d" % number for number in range(5)), qos=1)
    publisher.publish("b", *(b"b%d" % number for number in range(5)), qos=2)
    publisher.publish("z", b"z")
    found = client.published()
    assert sum(1 for each in found if each.qos) == 3
    assert b"z" in [each.payloads[0] for each in found], "QoS 0 does not wait"
    client.acks = True
    for each in found:
        if each.qos:
            client.send(Acks(PacketType.PUBACK if each.qos == 1 else PacketType.PUBREC, each.packet_ids))
    assert len(client.bodies()) == 7


def test_a_client_of_mqtt_5_that_sends_too_much_is_disconnected() -> None:
    client = MqttClient(World(), V5, settings={"receive_maximum": 3}, acks=False)
    client.connect("c")
    client.publish("a", b"1", b"2", b"3", qos=2)
    assert len(client.acked(PacketType.PUBREC)) == 3
    client.publish("a", b"4", qos=2)
    (answer,) = client.told()
    assert isinstance(answer, Disconnect)
    assert answer.code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_a_client_may_send_all_again_that_it_has_on_its_way() -> None:
    """A message that a client sends again on a new connection [MQTT-4.4.0-1] does not count twice."""
    world = World()
    for _ in range(3):
        client = MqttClient(world, V5, settings={"receive_maximum": 3}, acks=False)
        client.connect("c", clean=False, expiry_s=100)
        client.publish("a", b"1", b"2", b"3", qos=2, dup=True, packet_ids=[1, 2, 3])
        assert client.acked(PacketType.PUBREC) == [1, 2, 3]
        client.cut()


def test_a_client_before_mqtt_5_may_have_as_many_messages_on_their_way_as_there_are_identifiers() -> None:
    world = World()
    client = connected(world, acks=False)
    for first in range(1, 65_001, 1000):
        client.feed(encode(V4, Publishes("a", [b"m"] * 1000, 1, packet_ids=range(first, first + 1000))))
    world.settle()
    assert not client.is_reset


@pytest.mark.parametrize("is_persistent", [False, True])
def test_a_client_before_mqtt_5_that_releases_nothing_is_disconnected(is_persistent: bool) -> None:
    world = World()
    client = connected(world, clean=not is_persistent, acks=False)
    for first in range(1, UNRELEASED_MAX, 1000):
        client.publish("a", *([b"m"] * 1000), qos=2, packet_ids=range(first, first + 1000))
    assert not client.is_reset
    client.publish("a", b"m", qos=2, packet_ids=[65_000])
    assert client.is_reset
    assert not connected(world, "other").is_reset


def test_acknowledgements_come_in_order() -> None:
    client = connected(World(), acks=False)
    client.publish("a", *(b"%d" % number for number in range(100)), qos=1)
    assert client.acked(PacketType.PUBACK) == list(range(1, 101))


# --- wills ---

WILL = Will("w", b"gone", 1)


@BOTH
def test_a_will_is_published_when_the_connection_is_lost(version: int) -> None:
    world = World()
    watcher = connected(world, "s")
    watcher.subscribe("w", qos=1)
    client = connected(world, version=version, will=WILL)  # type: ignore[arg-type]
    world.advance(200.0)
    assert watcher.bodies() == []
    client.cut()
    assert [(each.payloads[0], each.qos) for each in watcher.published()] == [(b"gone", 1)]
    connected(world, will=WILL).disconnect()
    assert watcher.bodies() == []


def test_a_will_is_published_when_the_client_asks_for_it() -> None:
    world = World()
    watcher = connected(world, "s")
    watcher.subscribe("w")
    connected(world, version=V5, will=WILL).disconnect(ReasonCode.DISCONNECT_WITH_WILL)
    assert watcher.bodies() == [b"gone"]


def test_a_will_is_published_when_a_client_is_silent() -> None:
    world = World()
    watcher = connected(world, "s")
    watcher.subscribe("w")
    client = connected(world, will=WILL, keep_alive_s=10)
    world.advance(14.0)
    assert not client.is_reset
    client.publish("x", b"alive")
    world.advance(14.0)
    assert not client.is_reset
    world.advance(2.0)
    assert client.is_reset
    assert watcher.bodies() == [b"gone"]


def test_a_will_of_a_connection_that_was_taken_over() -> None:
    world = World()
    watcher = connected(world, "s")
    watcher.subscribe("w")
    connected(world, will=WILL)
    connected(world)
    assert watcher.bodies() == [b"gone"]


def test_a_will_is_retained() -> None:
    world = World()
    watcher = connected(world, "s")
    watcher.subscribe("w")
    connected(world, will=WILL._replace(retain=True)).cut()
    assert watcher.bodies() == [b"gone"]
    late = connected(world, "l")
    late.subscribe("w")
    (found,) = late.published()
    assert (found.payloads[0], found.retain) == (b"gone", True)


def delayed(delay_s: int) -> Will:
    """Return a will with a delay."""
    return WILL._replace(properties=WillProperties(will_delay_s=delay_s))


def test_a_will_is_delayed() -> None:
    world = World()
    watcher = connected(world, "s")
    watcher.subscribe("w")
    connected(world, version=V5, clean=False, expiry_s=1000, will=delayed(30)).cut()
    world.advance(25.0)
    assert watcher.bodies() == []
    world.advance(10.0)
    assert watcher.bodies() == [b"gone"]


def test_a_client_that_comes_back_in_time_keeps_its_will_from_being_published() -> None:
    world = World()
    watcher = connected(world, "s")
    watcher.subscribe("w")
    connected(world, version=V5, clean=False, expiry_s=1000, will=delayed(30)).cut()
    world.advance(25.0)
    connected(world, version=V5, clean=False, expiry_s=1000).disconnect()
    world.advance(100.0)
    assert watcher.bodies() == []


def test_a_will_is_not_delayed_if_the_session_ends_with_the_connection() -> None:
    world = World()
    watcher = connected(world, "s")
    watcher.subscribe("w")
    connected(world, version=V5, clean=False, expiry_s=1000).cut()
    connected(world, version=V5, clean=False, will=delayed(300)).cut()
    assert watcher.bodies() == [b"gone"]


def test_a_delayed_will_is_published_when_its_session_ends() -> None:
    world = World()
    watcher = connected(world, "s")
    watcher.subscribe("w")
    connected(world, version=V5, clean=False, expiry_s=1000, will=delayed(300)).cut()
    connected(world, version=V5, clean=True)
    assert watcher.bodies() == [b"gone"]
    connected(world, version=V5, clean=False, expiry_s=20, will=delayed(300)).cut()
    world.advance(25.0)
    assert watcher.bodies() == [b"gone"]


def test_a_will_outlives_the_loss_of_its_node() -> None:
    """As a node's loss looks to the queue: its consumer is gone, and nothing was settled."""
    world = World()
    watcher = connected(world, "s")
    watcher.subscribe("w")
    client = connected(world, will=WILL)
    client.connection._client.leaving = lambda: ()  # type: ignore[union-attr,method-assign]
    client.cut()
    assert watcher.bodies() == []
    world.advance(61.0)
    assert watcher.bodies() == [b"gone"]


# --- refusals ---


@BOTH
def test_a_subscription_without_permission_is_refused(version: int) -> None:
    world = World()
    world.submit(SetPermission("/", "guest", ".*", ".*", "^mqtt-subscription"))
    client = connected(world, version=version)  # type: ignore[arg-type]
    code = ReasonCode.NOT_AUTHORIZED if version == V5 else 0x80
    assert client.subscribe("a", qos=1) == (code,)


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publish_without_permission_ends_the_connection(version: int, qos: int) -> None:
    world = World()
    world.submit(SetPermission("/", "guest", ".*", "^mqtt-subscription", ".*"))
    client = persistent(world, version=version)
    client.publish("a", b"m", qos=qos)
    assert client.is_reset
    codes = [packet.code for packet in client.told() if isinstance(packet, Disconnect)]
    assert codes == ([ReasonCode.NOT_AUTHORIZED] if version == V5 else [])


def test_a_retained_message_needs_the_permission_of_the_topic() -> None:
    world = World()
    world.submit(SetPermission("/", "guest", ".*", "^mqtt-subscription", ".*"))
    client = connected(world)
    client.publish("a", b"m", retain=True)
    assert client.is_reset
    world.submit(SetPermission("/", "guest", ".*", ".*", ".*"))
    client = connected(world)
    client.subscribe("a")
    assert client.bodies() == []


def test_a_client_whose_queue_is_deleted_is_disconnected() -> None:
    world = World()
    client = persistent(world, version=V5)
    client.subscribe("a", qos=1)
    world.submit(DeleteQueue("/", "mqtt-subscription-cqos1"))
    (answer,) = client.told()
    assert isinstance(answer, Disconnect)
    assert client.is_reset


def test_invalid_filters_are_refused_one_by_one() -> None:
    client = connected(World(), version=V5)
    invalid = ReasonCode.TOPIC_FILTER_INVALID
    assert client.subscribe("a/#/b", "ok", "x" * 300, "$share//a") == (invalid, 0, invalid, invalid)
    assert connected(World(), version=V4).subscribe("a/#/b", "ok") == (0x80, 0)


def test_topics_that_are_too_long_for_amqp() -> None:
    client = connected(World(), version=V5)
    client.publish("x" * 300, b"m")
    (answer,) = client.told()
    assert isinstance(answer, Disconnect)
    assert answer.code == ReasonCode.TOPIC_NAME_INVALID


# --- properties ---


def test_properties_go_all_the_way() -> None:
    client = connected(World(), version=V5)
    client.subscribe("a", qos=1)
    sent = PublishProperties(
        payload_format_indicator=1,
        message_expiry_s=100,
        response_topic="answers/to me",
        correlation_data=b"\x00\xff",
        user_properties=(("k", "v"), ("k", "w"), ("x-mqtt-client", "me"), ("CC", "no")),
        content_type="text/plain",
    )
    client.publish("a", b"m", qos=1, properties=sent)
    (found,) = client.published()
    assert found.properties == sent


def test_topic_aliases_both_ways() -> None:
    client = MqttClient(World(), V5)
    answer = client.connect("c", properties=ConnectProperties(topic_alias_maximum=1))
    assert answer.properties.topic_alias_maximum == 16
    client.subscribe("#")
    client.publish("a", b"1", properties=PublishProperties(topic_alias=1))
    client.publish("", b"2", properties=PublishProperties(topic_alias=1))
    client.publish("b", b"3")
    found = [(each.topic, each.properties.topic_alias) for each in client.published()]
    assert found == [("a", 1), ("", 1), ("b", None)]
    client.publish("", b"3", properties=PublishProperties(topic_alias=17))
    (answer,) = client.told()
    assert isinstance(answer, Disconnect)
    assert answer.code == ReasonCode.TOPIC_ALIAS_INVALID


def test_a_message_longer_than_the_client_takes_is_dropped() -> None:
    client = MqttClient(World(), V5)
    client.connect("c", properties=ConnectProperties(maximum_packet_bytes=100))
    client.subscribe("a", qos=1)
    client.publish("a", b"x" * 200, b"y", qos=1)
    assert client.bodies() == [b"y"]
    world = client.world
    assert world.queue("mqtt-subscription-cqos1").unacked_count == 0


def test_a_topic_alias_makes_no_message_too_long() -> None:
    """A server sends no packet that is longer than the client takes (MQTT 5.0 chapter 3.1.2.11.4)."""
    client = MqttClient(World(), V5)
    client.connect("c", properties=ConnectProperties(maximum_packet_bytes=100, topic_alias_maximum=5))
    client.subscribe("a")
    client.publish("a", b"x" * 92, b"y")
    long, short = client.published()
    assert (long.topic, long.properties.topic_alias) == ("a", None), "an alias takes three bytes"
    assert len(encode(V5, long)) <= 100
    assert short.properties.topic_alias == 1


def test_properties_that_fit_into_no_frame_of_amqp_are_refused() -> None:
    """The message would end the connection of each AMQP client that gets it, and come again."""
    client = connected(World(), version=V5)
    fitting = tuple((f"name {number}", "x" * 1000) for number in range(100))
    client.publish("a", b"m", qos=1, properties=PublishProperties(user_properties=fitting))
    assert client.acked(PacketType.PUBACK) == [1]
    client.publish("a", b"m", qos=1, properties=PublishProperties(user_properties=(("a", "x" * 65_535),) * 2))
    (answer,) = client.told()
    assert isinstance(answer, Disconnect)
    assert answer.code == ReasonCode.PACKET_TOO_LARGE


def test_mqtt_3_1() -> None:
    world = World()
    client = connected(world, version=V3)
    client.subscribe("a", qos=1)
    client.publish("a", b"m", qos=1)
    assert client.bodies() == [b"m"]
    assert client.connection.protocol == "MQTT 3.1.0"


@pytest.mark.parametrize("filter_", ["s.1/+", "s.1/t.2", "s/*/t/2"])
def test_options_hold_for_filters_with_dots_and_stars(filter_: str) -> None:
    """A dot of a topic comes back as a slash, and what was asked for with the filter holds all the same."""
    world = World()
    client = persistent(world, version=V5)
    client.subscribe(Subscription(filter_, 0, no_local=True), identifier=7)
    client.subscribe(Subscription("s/#", 2), identifier=8)
    connected(world, "p", V5).publish("s.1/t.2" if filter_ != "s.1/+" else "s.1/t", b"m", qos=1)
    (found,) = client.published()
    assert (found.qos, sorted(found.properties.subscription_ids)) == (1, [7, 8])
    client.unsubscribe("s/#")
    client.publish("s.1/t.2" if filter_ != "s.1/+" else "s.1/t", b"own")
    connected(world, "p", V5).publish("s.1/t.2" if filter_ != "s.1/+" else "s.1/t", b"m", qos=1)
    (found,) = client.published()
    assert (found.payloads[0], found.qos) == (b"m", 0)
