"""The translation of a message between MQTT and AMQP.

    header x-mqtt-publish-qos, x-mqtt-dup     as RabbitMQ's plug-in sets them; without them, QoS 1
    header x-mqtt-retain                      the message was published to be retained
    header x-mqtt-client                      the publisher, for subscriptions with No Local; MQTT 5.0 only
    header x-deduplication-header             the identity of a message with QoS 2; another text in each message
    header x-reply-to-topic                   the response topic
    header x-mqtt-payload-format              the payload format indicator
    other headers that are texts              user properties
    delivery mode                             1 with QoS 0, else 2
    content type, correlation id              the same; a correlation that is no short text is in x-correlation-id
    expiration and timestamp                  the message expiry interval, and when it began, if MQTT's clients set them
Source: RabbitMQ 3.10.8, rabbit_mqtt_processor; RabbitMQ 3.13, mc_mqtt; MQTT 5.0 chapter 3.3.2.3.
"""

from typing import Final, NamedTuple

from node.mqtt.constants import STRING_MAX_BYTES
from node.mqtt.properties import NO_PUBLISH, PublishProperties, UserProperties, WillProperties
from node.mqtt.topics import is_topic_name
from node.plugins import Delivery, Field, Properties, Table, longstr

QOS_HEADER: Final = "x-mqtt-publish-qos"
DUP_HEADER: Final = "x-mqtt-dup"
RETAIN_HEADER: Final = "x-mqtt-retain"
CLIENT_HEADER: Final = "x-mqtt-client"
ID_HEADER: Final = "x-deduplication-header"
REPLY_HEADER: Final = "x-reply-to-topic"
FORMAT_HEADER: Final = "x-mqtt-payload-format"
CORRELATION_HEADER: Final = "x-correlation-id"
USER_HEADER: Final = "x-mqtt-user-properties"
"""An array of names and values, for user properties that headers cannot have: names that come twice, or are long."""

SHORT_MAX_BYTES: Final = 255
DEFAULT_QOS: Final = 1
"""The QoS of messages of AMQP's clients, as for RabbitMQ's plug-in."""

EXPIRY_MAX_S: Final = 315_360_000
"""Ten years, AMQP's limit for a time to live. A longer interval is as good as none."""

HEADER_MAX_BYTES: Final = 131_064
"""The size of a message's properties in AMQP, which are one frame: that of `frame_max` as clients have it by default.

A longer frame would end the connection of each AMQP client that the message goes to, and the message would come again.
"""

_QOS: Final = tuple(Field("b", qos) for qos in range(3))
_FALSE, _TRUE = Field("t", False), Field("t", True)
_QOS_0: Final[Table] = {QOS_HEADER: _QOS[0], DUP_HEADER: _FALSE}
_QOS_1: Final[Table] = {QOS_HEADER: _QOS[1], DUP_HEADER: _FALSE}
_QOS_2: Final[Table] = {QOS_HEADER: _QOS[2], DUP_HEADER: _FALSE}
_PLAIN: Final = (
    Properties(headers=_QOS_0, delivery_mode=1),
    Properties(headers=_QOS_1, delivery_mode=2),
    Properties(headers=_QOS_2, delivery_mode=2),
)


class Facts(NamedTuple):
    """The facts in a delivery's headers."""

    qos: int
    is_dup: bool
    is_retained: bool
    client: bytes | None


def plain_properties(qos: int) -> Properties:
    """Return the AMQP properties of a message with a QoS and nothing else; not to be changed."""
    return _PLAIN[qos]


def amqp_properties(
    properties: PublishProperties | WillProperties,
    *,
    qos: int,
    wall_ms: int,
    dup: bool = False,
    retain: bool = False,
    client: str | None = None,
) -> Properties:
    """Return the AMQP properties of a message."""
    headers: Table = {QOS_HEADER: _QOS[qos], DUP_HEADER: _TRUE if dup else _FALSE}
    if retain:
        headers[RETAIN_HEADER] = _TRUE
    if client is not None:
        headers[CLIENT_HEADER] = longstr(client)
    mapped = Properties(headers=headers, delivery_mode=2 if qos else 1)
    if isinstance(properties, PublishProperties) and properties == NO_PUBLISH:
        return mapped
    if properties.response_topic is not None:
        headers[REPLY_HEADER] = longstr(properties.response_topic)
    if properties.payload_format_indicator is not None:
        headers[FORMAT_HEADER] = Field("b", properties.payload_format_indicator)
    if properties.content_type is not None:
        if len(properties.content_type.encode()) <= SHORT_MAX_BYTES:
            mapped.content_type = properties.content_type
        else:
            headers["x-mqtt-content-type"] = longstr(properties.content_type)
    if properties.correlation_data is not None:
        _put_correlation(mapped, headers, properties.correlation_data)
    if properties.message_expiry_s is not None and properties.message_expiry_s <= EXPIRY_MAX_S:
        mapped.expiration = str(properties.message_expiry_s * 1000)
        mapped.timestamp = wall_ms // 1000
    _put_user_properties(headers, properties.user_properties)
    return mapped


def header_bytes(properties: Properties) -> int:
    """Return about how many bytes the properties of a message have in AMQP; not less than they have."""
    texts = (properties.content_type, properties.correlation_id, properties.expiration)
    return (
        _HEADER_BYTES
        + sum(4 * len(text) for text in texts if text)
        + sum(4 * len(name) + _field_bytes(field) for name, field in (properties.headers or {}).items())
    )


_HEADER_BYTES: Final = 256
"""The rest of a header, at most: class, size, flags, priority, timestamp, delivery mode, and lengths."""

_FIELD_BYTES: Final = 16
"""A field without its text: a number, or type and length."""


def _field_bytes(field: Field) -> int:
    value = field.value
    if isinstance(value, list):
        return _FIELD_BYTES + sum(map(_field_bytes, value))
    return _FIELD_BYTES + (len(value) if isinstance(value, bytes) else 0)


def _put_correlation(mapped: Properties, headers: Table, data: bytes) -> None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if text and len(data) <= SHORT_MAX_BYTES:
        mapped.correlation_id = text
    else:
        headers[CORRELATION_HEADER] = Field("x", data)


def _put_user_properties(headers: Table, properties: UserProperties) -> None:
    if not properties:
        return
    names = {name for name, _ in properties}
    possible = {name for name in names if _is_header(name)}
    for name, value in properties:  # of several with one name, AMQP's clients see the last one
        if name in possible:
            headers[name] = longstr(value)
    if possible == names and len(names) == len(properties):
        return
    pairs = [longstr(text) for pair in properties for text in pair]
    headers[USER_HEADER] = Field("A", pairs)


def _is_header(name: str) -> bool:
    """True if a user property may be a header of the same name."""
    is_free = not name.startswith("x-") and name not in _RESERVED
    return bool(name) and is_free and len(name.encode()) <= SHORT_MAX_BYTES


_RESERVED: Final = frozenset({"CC", "BCC"})
"""Headers that the broker acts on: no user property becomes one."""


def facts_of(headers: Table | None) -> Facts:
    """Return what a delivery's headers say; those of messages of AMQP's clients say nothing."""
    if headers is None or QOS_HEADER not in headers:
        return Facts(DEFAULT_QOS, False, False, None)
    qos = headers[QOS_HEADER].value
    dup, client, retain = headers.get(DUP_HEADER), headers.get(CLIENT_HEADER), headers.get(RETAIN_HEADER)
    return Facts(
        qos if isinstance(qos, int) and 0 <= qos <= 2 else DEFAULT_QOS,
        dup is not None and dup.value is True,
        retain is not None and retain.value is True,
        None if client is None else _bytes(client),
    )


def _bytes(field: Field) -> bytes | None:
    return field.value if isinstance(field.value, bytes) else None


def is_expired(properties: Properties, wall_ms: int) -> bool:
    """True if the time of a message, such as a retained one, was over before it could be delivered."""
    left = _left_s(properties, wall_ms)
    return left is not None and left < 0


def _left_s(properties: Properties, wall_ms: int) -> int | None:
    """Return the seconds that are left of a message's time; fewer than 0: it is over. None: it has no such time.

    Times of publishing are whole seconds, so 0 may be almost a second. The broker drops messages of AMQP's clients in
    time: their expiration may be less than a second, and their timestamp may be anything.
    """
    if properties.expiration is None or not properties.expiration.isdecimal():
        return None
    total = -(-int(properties.expiration) // 1000)
    if properties.timestamp is None or QOS_HEADER not in (properties.headers or {}):
        return total
    return total - max(0, wall_ms // 1000 - properties.timestamp)


def mqtt_properties(delivery: Delivery, wall_ms: int) -> PublishProperties:
    """Return the properties of MQTT 5.0 for a message that is delivered."""
    properties, headers = delivery.properties, delivery.properties.headers or {}
    left_s = _left_s(properties, wall_ms)
    response, payload_format = headers.get(REPLY_HEADER), headers.get(FORMAT_HEADER)
    correlation = properties.correlation_id
    data = correlation.encode("utf-8", "surrogateescape") if correlation is not None else None
    if CORRELATION_HEADER in headers:
        data = _data(headers[CORRELATION_HEADER])
    content_type = properties.content_type
    if content_type is None and "x-mqtt-content-type" in headers:
        content_type = _text(headers["x-mqtt-content-type"])
    response_topic = _text(response)
    return PublishProperties(
        payload_format_indicator=_indicator(payload_format),
        message_expiry_s=None if left_s is None else max(left_s, 0),
        response_topic=response_topic if response_topic and is_topic_name(response_topic) else None,
        correlation_data=data,
        user_properties=_user_properties(headers),
        content_type=content_type if content_type is None or _is_text(content_type) else None,
    )


def _indicator(field: Field | None) -> int | None:
    return (
        field.value if field is not None and field.value in (0, 1) and isinstance(field.value, int) else None
    )


def _data(field: Field) -> bytes | None:
    """Return a field as binary data of MQTT; None if it is none, or too long: AMQP's clients choose headers."""
    raw = _bytes(field)
    return raw if raw is not None and len(raw) <= STRING_MAX_BYTES else None


def _text(field: Field | None) -> str | None:
    """Return a field as a text of MQTT; None if it is none."""
    raw = None if field is None else _data(field)
    if raw is None or b"\0" in raw:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _is_text(text: str) -> bool:
    try:
        return "\0" not in text and len(text.encode()) <= STRING_MAX_BYTES
    except UnicodeEncodeError:
        return False


def _user_properties(headers: Table) -> UserProperties:
    listed = headers.get(USER_HEADER)
    if listed is not None and isinstance(listed.value, list):
        texts = [_text(field) for field in listed.value]
        pairs = zip(texts[::2], texts[1::2], strict=False)
        return tuple((name, value) for name, value in pairs if name is not None and value is not None)
    found = []
    for name, field in headers.items():
        value = _text(field) if field.tag == "S" and not name.startswith("x-") else None
        if value is not None and _is_text(name):
            found.append((name, value))
    return tuple(found)
