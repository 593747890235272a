"""The account and the client id of a CONNECT."""

import pytest

from node.mqtt.constants import Version
from node.mqtt.errors import MqttError
from node.mqtt.login import Login, client_id_of, login_of
from node.mqtt.names import CLIENT_ID_MAX_BYTES, delayed_will_queue, fits, state_queue, will_queues
from node.mqtt.packets import Connect
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.settings import mqtt_settings
from node.mqtt.vhost_mapping import CERTIFICATES, PORTS, VhostMapping
from node.plugins import Peer

PEER = Peer("127.0.0.1:1", "127.0.0.1:1883", False, None)
KNOWN = Peer("127.0.0.1:1", "127.0.0.1:8883", True, "ada")
DEFAULTS = mqtt_settings({})
UNMAPPED = VhostMapping(lambda name: None)
MAPPED = VhostMapping(
    {PORTS: {"1883": "of 1883", "8883": "of 8883"}, CERTIFICATES: {"ada": "ada's", "eve": 5}}.get
)


def connect(user: str | None = None, password: bytes | None = None, client_id: str = "c") -> Connect:
    """Return a CONNECT of MQTT 3.1.1."""
    return Connect(Version.MQTT_3_1_1, client_id, user_name=user, password=password)


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("ada", ("ada", "/")),
        ("v:ada", ("ada", "v")),
        ("a:b:ada", ("ada", "a:b")),
        (":ada", ("ada", "")),
        ("ada:", ("", "ada")),
    ],
)
def test_a_vhost_may_stand_in_front_of_the_last_colon(user: str, expected: tuple[str, str]) -> None:
    name, vhost = expected
    assert login_of(connect(user, b"p"), PEER, DEFAULTS, UNMAPPED) == Login(name, b"p", vhost)


def test_colons_may_be_part_of_the_name() -> None:
    settings = mqtt_settings({"ignore_colons_in_username": True, "vhost": "v"})
    assert login_of(connect("a:b", b"p"), PEER, settings, UNMAPPED) == Login("a:b", b"p", "v")


def test_a_client_without_a_name() -> None:
    assert login_of(connect(), PEER, DEFAULTS, UNMAPPED) == Login("guest", b"guest", "/")
    for settings in ({"allow_anonymous": False}, {"default_user": ""}):
        with pytest.raises(MqttError) as raised:
            login_of(connect(), PEER, mqtt_settings(settings), UNMAPPED)
        assert raised.value.code == ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_a_name_without_a_password_is_refused() -> None:
    with pytest.raises(MqttError):
        login_of(connect("ada"), PEER, DEFAULTS, UNMAPPED)


def test_a_certificate_logs_in_if_it_may() -> None:
    settings = mqtt_settings({"ssl_cert_login": True})
    assert login_of(connect(), KNOWN, settings, UNMAPPED) == Login("ada", None, "/")
    assert login_of(connect("bob", b"p"), KNOWN, settings, UNMAPPED) == Login("bob", b"p", "/")
    assert login_of(connect(), KNOWN, DEFAULTS, UNMAPPED) == Login("guest", b"guest", "/")


@pytest.mark.parametrize(
    ("user", "peer", "has_certificate_login", "expected"),
    [
        ("bob", PEER, False, ("bob", "of 1883")),
        ("v:bob", PEER, False, ("bob", "v")),
        ("bob", KNOWN, False, ("bob", "of 8883")),
        ("bob", KNOWN, True, ("bob", "ada's")),
        ("v:bob", KNOWN, True, ("v:bob", "ada's")),
        ("v:bob", KNOWN._replace(certificate_user="eve"), True, ("v:bob", "of 8883")),
        ("v:bob", KNOWN._replace(certificate_user="x", local="127.0.0.1:1"), True, ("bob", "v")),
        ("bob", PEER._replace(local="[::1]:1883"), False, ("bob", "of 1883")),
        ("bob", PEER._replace(local="127.0.0.1:1"), False, ("bob", "/")),
    ],
)
def test_ports_and_certificates_may_have_vhosts(
    user: str, peer: Peer, has_certificate_login: bool, expected: tuple[str, str]
) -> None:
    """Source: RabbitMQ 3.10.8, rabbit_mqtt_processor:get_vhost."""
    settings = mqtt_settings({"ssl_cert_login": has_certificate_login})
    name, vhost = expected
    assert login_of(connect(user, b"p"), peer, settings, MAPPED) == Login(name, b"p", vhost)


@pytest.mark.parametrize("value", [None, "text", ["1883"], {"1883": 5}])
def test_a_mapping_that_is_none_counts_as_none(value: object) -> None:
    assert login_of(connect("bob", b"p"), PEER, DEFAULTS, VhostMapping(lambda name: value)).vhost == "/"


@pytest.mark.parametrize(
    ("version", "clean", "is_allowed"),
    [
        (Version.MQTT_3_1, True, False),
        (Version.MQTT_3_1_1, True, True),
        (Version.MQTT_3_1_1, False, False),
        (Version.MQTT_5, True, True),
        (Version.MQTT_5, False, True),
    ],
)
def test_an_empty_client_id(version: Version, clean: bool, is_allowed: bool) -> None:
    """The node chooses one [MQTT-3.1.3-6], or refuses it (3.1.1: [MQTT-3.1.3-8])."""
    packet = Connect(version, "", clean)
    if is_allowed:
        assert client_id_of(packet, b"\x01\xff") == "01ff"
        return
    with pytest.raises(MqttError) as raised:
        client_id_of(packet, b"")
    assert raised.value.code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


def test_a_client_id_has_room_in_the_names_of_its_queues() -> None:
    longest = "é" * (CLIENT_ID_MAX_BYTES // 2)
    assert client_id_of(connect(client_id=longest), b"") == longest
    names = (state_queue(longest), delayed_will_queue(longest), *will_queues(longest))
    assert all(fits(name) for name in names)
    for other in (longest + "éé", "$share/g/f"):
        with pytest.raises(MqttError) as raised:
            client_id_of(connect(client_id=other), b"")
        assert raised.value.code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
