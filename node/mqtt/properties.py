"""The properties of MQTT 5.0, one class for each kind of packet.

A field is None, or an empty tuple where there may be several, if the property was not sent: its reader
applies the standard's default. The order of `user_properties` is that of the wire.
Source: MQTT 5.0 §2.2.2.
"""

from typing import Final, NamedTuple

UserProperties = tuple[tuple[str, str], ...]


class ConnectProperties(NamedTuple):
    """The properties of a CONNECT (MQTT 5.0 §3.1.2.11)."""

    session_expiry_s: int | None = None
    receive_maximum: int | None = None
    maximum_packet_bytes: int | None = None
    topic_alias_maximum: int | None = None
    request_response_information: bool | None = None
    request_problem_information: bool | None = None
    user_properties: UserProperties = ()
    authentication_method: str | None = None
    authentication_data: bytes | None = None


class WillProperties(NamedTuple):
    """The properties of a will (MQTT 5.0 §3.1.3.2)."""

    will_delay_s: int | None = None
    payload_format_indicator: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: UserProperties = ()


class ConnackProperties(NamedTuple):
    """The properties of a CONNACK (MQTT 5.0 §3.2.2.3)."""

    session_expiry_s: int | None = None
    receive_maximum: int | None = None
    maximum_qos: int | None = None
    retain_available: bool | None = None
    maximum_packet_bytes: int | None = None
    assigned_client_id: str | None = None
    topic_alias_maximum: int | None = None
    reason_string: str | None = None
    user_properties: UserProperties = ()
    wildcard_subscription_available: bool | None = None
    subscription_ids_available: bool | None = None
    shared_subscription_available: bool | None = None
    server_keep_alive_s: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None


class PublishProperties(NamedTuple):
    """The properties of a PUBLISH (MQTT 5.0 §3.3.2.3)."""

    payload_format_indicator: int | None = None
    message_expiry_s: int | None = None
    topic_alias: int | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: UserProperties = ()
    subscription_ids: tuple[int, ...] = ()
    content_type: str | None = None


class AckProperties(NamedTuple):
    """The properties of PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK and UNSUBACK."""

    reason_string: str | None = None
    user_properties: UserProperties = ()


class SubscribeProperties(NamedTuple):
    """The properties of a SUBSCRIBE (MQTT 5.0 §3.8.2.1)."""

    subscription_id: int | None = None
    user_properties: UserProperties = ()


class UnsubscribeProperties(NamedTuple):
    """The properties of an UNSUBSCRIBE (MQTT 5.0 §3.10.2.1)."""

    user_properties: UserProperties = ()


class DisconnectProperties(NamedTuple):
    """The properties of a DISCONNECT (MQTT 5.0 §3.14.2.2)."""

    session_expiry_s: int | None = None
    reason_string: str | None = None
    user_properties: UserProperties = ()
    server_reference: str | None = None


class AuthProperties(NamedTuple):
    """The properties of an AUTH (MQTT 5.0 §3.15.2.2)."""

    authentication_method: str | None = None
    authentication_data: bytes | None = None
    reason_string: str | None = None
    user_properties: UserProperties = ()


NO_CONNECT: Final = ConnectProperties()
NO_WILL: Final = WillProperties()
NO_CONNACK: Final = ConnackProperties()
NO_PUBLISH: Final = PublishProperties()
NO_ACK: Final = AckProperties()
NO_SUBSCRIBE: Final = SubscribeProperties()
NO_UNSUBSCRIBE: Final = UnsubscribeProperties()
NO_DISCONNECT: Final = DisconnectProperties()
NO_AUTH: Final = AuthProperties()
