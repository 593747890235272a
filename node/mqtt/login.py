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


def login_of(connect: Connect, peer: Peer, settings: MqttSettings) -> Login:
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
    if settings.ignores_colons:
        return Login(name, password, settings.vhost)
    parts = _COLON.split(name)
    if len(parts) == 1:
        return Login(name, password, settings.vhost)
    return Login(parts[1], password, parts[0])


def vhost_of(connect: Connect, settings: MqttSettings) -> str:
    """Return the vhost of a client that authenticates in several steps: its user name may have one in front."""
    parts = [] if settings.ignores_colons else _COLON.split(connect.user_name or "")
    return parts[0] if len(parts) > 1 else settings.vhost


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
