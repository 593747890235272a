"""Enhanced authentication of MQTT 5.0 over a broker without sockets: CONNECT, AUTH, CONNACK, and once more later."""

import pytest

from node.mqtt.authentication import STEPS_MAX
from node.mqtt.constants import PacketType
from node.mqtt.packets import (
    PINGREQ,
    PINGRESP,
    Acks,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Subscribe,
    Subscription,
)
from node.mqtt.properties import AuthProperties, ConnectProperties
from node.mqtt.reason_codes import ReasonCode
from tests.kit.world import World
from tests.node.mqtt.mqtt_client import V5, MqttClient
from tests.node.mqtt.step_authority import METHOD, StepAuthority

PAUSE_S = 3.1

CONTINUE, AGAIN = ReasonCode.CONTINUE_AUTHENTICATION, ReasonCode.RE_AUTHENTICATE


def auth(data: bytes | None, code: int = CONTINUE, method: str | None = METHOD) -> Auth:
    return Auth(code, AuthProperties(method, data))


def connect(data: bytes | None = b"ada", method: str = METHOD, **fields: object) -> Connect:
    properties = ConnectProperties(authentication_method=method, authentication_data=data)
    return Connect(V5, "c", True, properties=properties, **fields)  # type: ignore[arg-type]


def world_of(authority: StepAuthority) -> World:
    world = World()
    world.broker.authority = authority
    return world


def began(authority: StepAuthority) -> MqttClient:
    """Return a client that has been sent a challenge."""
    client = MqttClient(world_of(authority), V5)
    client.send(connect())
    assert client.told() == [auth(b"again")]
    return client


def logged_in() -> MqttClient:
    client = began(StepAuthority())
    client.send(auth(b"again ada"))
    (answer,) = client.told()
    assert isinstance(answer, Connack)
    assert answer.code == 0, answer
    return client


def code_of(client: MqttClient) -> tuple[str, int]:
    """Return the last packet's name and reason code; the connection has ended with it, or after a refusal's pause."""
    (last,) = client.told()
    client.world.advance(PAUSE_S)
    assert isinstance(last, Connack | Disconnect)
    assert client.is_reset
    return type(last).__name__, last.code


def test_a_client_proves_who_it_is_in_steps() -> None:
    """The server goes on with 0x18 and the method [MQTT-4.12.0-2]. CONNACK has the method, too [MQTT-4.12.0-5]."""
    authority = StepAuthority()
    client = began(authority)
    client.send(auth(b"again ada"))
    (answer,) = client.told()
    assert isinstance(answer, Connack)
    assert (answer.code, answer.properties.authentication_method) == (0, METHOD)
    assert answer.properties.authentication_data == b"welcome"
    assert client.connection.user_name == "ada"
    assert [(start.method, start.is_tls) for start in authority.started] == [(METHOD, False)]
    assert client.subscribe("t", qos=1) == (1,)


def test_answers_may_take_their_time() -> None:
    """Nothing is read while the node asks its backend, and all that has come is done afterwards."""
    authority = StepAuthority(is_slow=True)
    client = MqttClient(world_of(authority), V5)
    client.send(connect())
    assert not client.connection.is_reading
    assert client.told() == []
    authority.release()
    assert client.told() == [auth(b"again")]
    assert client.connection.is_reading
    client.send(auth(b"again ada"), PINGREQ)
    assert not client.connection.is_reading
    authority.release()
    answer, pong = client.told()
    assert isinstance(answer, Connack)
    assert pong == PINGRESP


def test_a_wrong_answer_ends_the_connection() -> None:
    """A refused authentication closes the connection [MQTT-4.12.0-4]."""
    client = began(StepAuthority())
    client.send(auth(b"wrong"))
    assert code_of(client) == ("Connack", ReasonCode.NOT_AUTHORIZED)


def test_another_method_is_refused() -> None:
    client = MqttClient(world_of(StepAuthority()), V5)
    client.send(connect(method="THRICE"))
    assert code_of(client) == ("Connack", ReasonCode.BAD_AUTHENTICATION_METHOD)


@pytest.mark.parametrize(
    "packet",
    [
        auth(b"again ada", method="THRICE"),
        auth(b"again ada", AGAIN),
        PINGREQ,
        Subscribe(1, (Subscription("t", 0),)),
        Acks(PacketType.PUBACK, (1,)),
    ],
)
def test_only_the_answer_may_come_before_connack(packet: Auth) -> None:
    """During the authentication a client sends only AUTH and DISCONNECT [MQTT-3.1.2-33]."""
    client = began(StepAuthority())
    client.send(packet)
    assert code_of(client) == ("Connack", ReasonCode.PROTOCOL_ERROR)


def test_a_client_may_disconnect_before_connack() -> None:
    client = began(StepAuthority())
    client.send(Disconnect())
    assert client.told() == []
    assert client.is_reset


def test_challenges_are_bounded() -> None:
    client = MqttClient(world_of(StepAuthority()), V5)
    client.send(connect(b"more"))
    for _ in range(STEPS_MAX - 1):
        assert client.told() == [auth(b"again")]
        client.send(auth(b"more"))
    assert client.told() == [auth(b"again")]
    client.send(auth(b"more"))
    assert code_of(client) == ("Connack", ReasonCode.NOT_AUTHORIZED)


def test_a_client_authenticates_again_beside_its_work() -> None:
    """Other packets go on meanwhile; a challenge has to be answered with the same method."""
    client = logged_in()
    client.send(auth(b"ada", AGAIN))
    assert client.told() == [auth(b"again")]
    assert client.subscribe("t", qos=1) == (1,)
    client.publish("t", b"m", qos=1)
    assert client.bodies() == [b"m"]
    client.send(auth(b"again ada"))
    assert client.told() == [auth(b"welcome", ReasonCode.SUCCESS)]
    client.send(auth(b"ada", AGAIN), auth(b"again ada"))
    assert client.told() == [auth(b"again"), auth(b"welcome", ReasonCode.SUCCESS)]


def test_work_that_waits_is_not_overtaken_while_a_client_authenticates_again() -> None:
    """A packet behind a SUBSCRIBE waits for its end, though the node waits for an AUTH."""
    client = logged_in()
    client.send(auth(b"ada", AGAIN))
    client.send(Subscribe(9, (Subscription("t", 1),)), PINGREQ, auth(b"again ada"))
    kinds = [type(each).__name__ for each in client.told()]
    assert kinds == ["Auth", "Suback", "Pingresp", "Auth"]


@pytest.mark.parametrize("data", [b"wrong", b"again eve"])
def test_a_client_that_fails_to_authenticate_again_is_disconnected(data: bytes) -> None:
    """So is one that turns out to be another user [MQTT-4.12.1-2]."""
    client = logged_in()
    client.send(auth(data if data == b"wrong" else b"eve", AGAIN))
    if data != b"wrong":
        assert client.told() == [auth(b"again")]
        client.send(auth(data))
    assert code_of(client) == ("Disconnect", ReasonCode.NOT_AUTHORIZED)


@pytest.mark.parametrize("packet", [auth(b"ada", AGAIN, "THRICE"), auth(b"again ada")])
def test_an_auth_out_of_place_is_a_protocol_error(packet: Auth) -> None:
    client = logged_in()
    client.send(packet)
    assert code_of(client) == ("Disconnect", ReasonCode.PROTOCOL_ERROR)


def test_one_authentication_at_a_time() -> None:
    client = logged_in()
    client.send(auth(b"ada", AGAIN))
    assert client.told() == [auth(b"again")]
    client.send(auth(b"ada", AGAIN))
    assert code_of(client) == ("Disconnect", ReasonCode.PROTOCOL_ERROR)


def test_an_answer_of_the_backend_after_the_end_is_dropped() -> None:
    authority = StepAuthority(is_slow=True)
    client = MqttClient(world_of(authority), V5)
    client.send(connect())
    client.cut()
    authority.release()
    assert client.told() == []
