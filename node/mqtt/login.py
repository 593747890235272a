"""The user, vhost and client id of an MQTT client, as its CONNECT gives them.

Source: RabbitMQ 3.10.8, rabbit_mqtt_processor: creds, get_vhost_username; MQTT 3.1.1 and 5.0, chapter 3.1.3.
"""

import re
from typing import Final, NamedTuple

from node.mqtt.constants import SHARE_PREFIX, Version
from node.mqtt.errors import MqttError
from node.mqtt.names import CLIENT_ID_MAX_BYTES, fits
from node.mqtt.packets import Connect
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.settings import MqttSettings
from node.mqtt.vhost_mapping import VhostMapping
from node.plugins import Peer

GENERATED_BYTES: Final = 16
"""The random bytes of a client id that the node chooses."""

_COLON: Final = re.compile(":(?!.*?:)", re.DOTALL)
"""The last colon of a user name, in front of which a vhost may stand."""


class Login(NamedTuple):
    """The account of a client.   password: None if a certificate proves the name."""

    user: str
    password: bytes | None
    vhost: str


def login_of(connect: Connect, peer: Peer, settings: MqttSettings, mapping: VhostMapping) -> Login:
    """Return the account that a CONNECT names. Raises: MqttError if it names none and there is no default."""
    name = connect.user_name
    password: bytes | None
    if name is not None and connect.password is not None:
        password = connect.password
    elif name is None and settings.has_certificate_login and peer.certificate_user is not None:
        name, password = peer.certificate_user, None
    elif name is None and settings.allow_anonymous and settings.default_user:
        name, password = settings.default_user, settings.default_pass.encode()
    else:
        raise MqttError(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "no credentials were provided")
    user, vhost = _user_and_vhost(name, peer, settings, mapping)
    return Login(user, password, vhost)


def vhost_of(connect: Connect, peer: Peer, settings: MqttSettings, mapping: VhostMapping) -> str:
    """Return the vhost of a client that authenticates in several steps: its user name may have one in front."""
    return _user_and_vhost(connect.user_name or "", peer, settings, mapping)[1]


def _user_and_vhost(name: str, peer: Peer, settings: MqttSettings, mapping: VhostMapping) -> tuple[str, str]:
    """Return the user that a name means, and the vhost.

    Mappings count before a vhost in the name for a client whose certificate may log it in; for others the name comes
    first, and then the port.
    """
    parts = [] if settings.ignores_colons else _COLON.split(name)
    named = (parts[1], parts[0]) if len(parts) > 1 else None
    mapped = mapping.of_port(peer.local)
    if settings.has_certificate_login and peer.certificate_user is not None:
        mapped = mapping.of_certificate(peer.certificate_user) or mapped
        if mapped is not None:
            return name, mapped
    return named or (name, settings.vhost if mapped is None else mapped)


def client_id_of(connect: Connect, random: bytes) -> str:
    """Return the client's id, or one that is made of random bytes. Raises: MqttError for one that is not allowed."""
    given = connect.client_id
    if not given:
        is_allowed = connect.version is Version.MQTT_5 or (
            connect.version is Version.MQTT_3_1_1 and connect.clean_start
        )
        if not is_allowed:
            raise MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "the client id is empty")
        return random.hex()
    if given.startswith(SHARE_PREFIX):
        # Its queues would have the names of those of shared subscriptions.
        raise MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, f"the client id begins with {SHARE_PREFIX}")
    if not fits(given, CLIENT_ID_MAX_BYTES):
        raise MqttError(
            ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
            f"the client id is longer than {CLIENT_ID_MAX_BYTES} bytes",
        )
    return given
