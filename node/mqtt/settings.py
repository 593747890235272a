"""The settings of the plug-in, under RabbitMQ's names.

Source: RabbitMQ 3.10.8, rabbitmq_mqtt.schema; those of MQTT 5.0 as RabbitMQ 3.13 has them.
"""

from dataclasses import dataclass
from typing import Final

from node.mqtt.constants import NEVER_EXPIRES, VARIABLE_INTEGER_MAX
from node.mqtt.routing_keys import routing_key, topic_of
from node.mqtt.stored_state import IDS_MAX
from node.plugins import Setting, Settings

PREFIX: Final = "mqtt"

_UNUSED: Final = (
    "durable_queue_type",
    "num_acceptors.$name",
    "proxy_protocol",
    "retained_message_store",
    "retained_message_store_dets_sync_interval",
    "tcp_listen_options",
    "tcp_listen_options.$name",
    "tcp_listen_options.linger.$name",
)
"""RabbitMQ's settings that are taken and change nothing: the node's own settings of sockets and TLS hold."""

SETTINGS: Final = (
    Setting("default_user", "guest", "the user of clients that name none; empty: there is none"),
    Setting("default_pass", "guest", "the password of that user"),
    Setting("allow_anonymous", True, "clients that name no user are the default user"),
    Setting("vhost", "/", "the vhost of clients whose user name has none in front, as `VHOST:USER`"),
    Setting("ignore_colons_in_username", False, "a user name is taken as it is"),
    Setting("exchange", "amq.topic", "the topic exchange through which all messages go"),
    Setting(
        "subscription_ttl",
        86_400_000,
        "milliseconds after which an unused session ends",
        minimum=1,
        words=("infinity", "undefined"),
    ),
    Setting("login_timeout", 0, "milliseconds for CONNECT; 0: what `handshake_timeout` says", minimum=0),
    Setting("sparkplug", False, "topics of Sparkplug keep the dot of their version"),
    Setting("prefetch", 100, "the most messages a client may have unacknowledged", minimum=1),
    Setting("ssl_cert_login", False, "a client certificate logs in the user that it names"),
    Setting(
        "max_session_expiry_interval_seconds", 86_400, "the most that clients of MQTT 5.0 get", minimum=0
    ),
    Setting("topic_alias_maximum", 16, "the topic aliases that clients of MQTT 5.0 may set", minimum=0),
    Setting("receive_maximum", 1000, "the most messages of a client that are not acknowledged", minimum=1),
    Setting("server_reference", "", "where clients of MQTT 5.0 go when the node is drained or stops"),
    Setting("max_packet_size_unauthenticated", 65_536, "bytes of a CONNECT", minimum=256),
    Setting("max_packet_size_authenticated", VARIABLE_INTEGER_MAX, "bytes of a packet", minimum=256),
    *(Setting(key, "", "taken and not used") for key in _UNUSED),
)


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """The values of the settings."""

    default_user: str
    default_pass: str
    allow_anonymous: bool
    vhost: str
    ignores_colons: bool
    exchange: str
    subscription_ttl_s: int
    login_timeout_s: float
    prefetch: int
    has_certificate_login: bool
    session_expiry_max_s: int
    topic_alias_maximum: int
    receive_maximum: int
    connect_max_bytes: int
    packet_max_bytes: int
    is_sparkplug: bool
    server_reference: str

    def routing_key(self, topic: str) -> str:
        """Return the routing key of a topic, or the binding key of a filter."""
        return routing_key(topic, is_sparkplug=self.is_sparkplug)

    def topic_of(self, key: str) -> str:
        """Return the topic of a routing key, or the filter of a binding key."""
        return topic_of(key, is_sparkplug=self.is_sparkplug)

    def as_delivered(self, filter_: str) -> str:
        """Return the filter that matches the topics of deliveries: a dot in a topic comes back as a slash."""
        return self.topic_of(self.routing_key(filter_))


def mqtt_settings(given: Settings, prefix: str = "") -> MqttSettings:
    """Return the values of the settings of a plug-in.   prefix: of their keys, if they are borrowed."""
    values = {setting.key: given.get(prefix + setting.key, setting.default) for setting in SETTINGS}
    return MqttSettings(
        default_user=str(values["default_user"]),
        default_pass=str(values["default_pass"]),
        allow_anonymous=bool(values["allow_anonymous"]),
        vhost=str(values["vhost"]),
        ignores_colons=bool(values["ignore_colons_in_username"]),
        exchange=str(values["exchange"]),
        subscription_ttl_s=_ttl_s(values["subscription_ttl"]),
        login_timeout_s=int(values["login_timeout"]) / 1000,
        prefetch=min(int(values["prefetch"]), IDS_MAX),
        has_certificate_login=bool(values["ssl_cert_login"]),
        session_expiry_max_s=int(values["max_session_expiry_interval_seconds"]),
        topic_alias_maximum=min(int(values["topic_alias_maximum"]), 65_535),
        receive_maximum=min(int(values["receive_maximum"]), IDS_MAX),
        connect_max_bytes=int(values["max_packet_size_unauthenticated"]),
        packet_max_bytes=min(int(values["max_packet_size_authenticated"]), VARIABLE_INTEGER_MAX),
        is_sparkplug=bool(values["sparkplug"]),
        server_reference=str(values["server_reference"]),
    )


def _ttl_s(value: object) -> int:
    """Return for how many seconds a session lives without a connection."""
    return max(1, value // 1000) if isinstance(value, int) else NEVER_EXPIRES
