"""MQTT packets at random, and runs of packets taken apart, so that what is read can be compared."""

from collections.abc import Iterable
from itertools import groupby

from hypothesis import strategies as st

from node.mqtt import allowed_codes, properties
from node.mqtt.constants import Version
from node.mqtt.decoder import Decoder
from node.mqtt.errors import MqttError
from node.mqtt.packets import (
    PINGREQ,
    PINGRESP,
    Acks,
    Auth,
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
    Will,
)
from node.mqtt.property_codec import P
from node.mqtt.reason_codes import ReasonCode

# --- runs ---


def single(packets: Iterable[Packet]) -> list[Packet]:
    """Return the packets with each run taken apart into runs of one."""
    found: list[Packet] = []
    for packet in packets:
        if isinstance(packet, Publishes):
            ids: list[tuple[int, ...]] = [(each,) for each in packet.packet_ids] or [()] * len(
                packet.payloads
            )
            found += [
                packet._replace(payloads=(payload,), packet_ids=packet_ids)
                for payload, packet_ids in zip(packet.payloads, ids, strict=True)
            ]
        elif isinstance(packet, Acks):
            found += [packet._replace(packet_ids=(each,)) for each in packet.packet_ids]
        else:
            found.append(packet)
    return found


def read(decoder: Decoder, *pieces: bytes) -> tuple[list[Packet], ReasonCode | None]:
    """Feed bytes to a decoder.   Returns: the packets, runs taken apart, and the reason code of the fault."""
    found: list[Packet] = []
    try:
        for piece in pieces:
            for packet in decoder.feed(piece):
                found += single((packet,))
    except MqttError as error:
        return found, error.code
    return found, None


def in_runs(packets: Iterable[Packet]) -> list[Packet]:
    """Return the packets with all that are alike and follow each other in one run."""
    found: list[Packet] = []
    for _, group in groupby(single(packets), key=_alike):
        run = list(group)
        first = run[0]
        if isinstance(first, Publishes):
            payloads = tuple(each.payloads[0] for each in run if isinstance(each, Publishes))
            ids = tuple(each.packet_ids[0] for each in run if isinstance(each, Publishes) and each.packet_ids)
            found.append(first._replace(payloads=payloads, packet_ids=ids))
        elif isinstance(first, Acks):
            ids = tuple(each.packet_ids[0] for each in run if isinstance(each, Acks))
            found.append(first._replace(packet_ids=ids))
        else:
            found += run
    return found


def _alike(packet: Packet) -> tuple[object, ...]:
    if isinstance(packet, Publishes):
        return Publishes, packet._replace(payloads=(), packet_ids=())
    if isinstance(packet, Acks):
        return Acks, packet._replace(packet_ids=())
    return type(packet), packet


# --- packets at random ---

text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
topic = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=12)
topic_filter = st.sampled_from(["a", "a/b", "+", "#", "a/+/b", "+/#", "$share/g/a/#", "/", "a//b", "Gerät/+"])
data = st.binary(max_size=20)
packet_id = st.integers(1, 65_535)
two_bytes = st.integers(0, 65_535)
four_bytes = st.integers(0, 2**32 - 1)
flag = st.booleans()
zero_or_one = st.integers(0, 1)
qos = st.integers(0, 2)

_PROPERTIES: dict[str, st.SearchStrategy[object]] = {
    "session_expiry_s": four_bytes,
    "receive_maximum": st.integers(1, 65_535),
    "maximum_packet_bytes": st.integers(1, 2**32 - 1),
    "topic_alias_maximum": two_bytes,
    "request_response_information": flag,
    "request_problem_information": flag,
    "user_properties": st.lists(st.tuples(text, text), min_size=1, max_size=3).map(tuple),
    "authentication_method": text,
    "authentication_data": data,
    "will_delay_s": four_bytes,
    "payload_format_indicator": zero_or_one,
    "message_expiry_s": four_bytes,
    "content_type": text,
    "response_topic": topic,
    "correlation_data": data,
    "maximum_qos": zero_or_one,
    "retain_available": flag,
    "assigned_client_id": text,
    "reason_string": text,
    "wildcard_subscription_available": flag,
    "subscription_ids_available": flag,
    "shared_subscription_available": flag,
    "server_keep_alive_s": two_bytes,
    "response_information": text,
    "server_reference": text,
    "topic_alias": st.integers(1, 65_535),
    "subscription_id": st.integers(1, 268_435_455),
    "subscription_ids": st.lists(st.integers(1, 268_435_455), min_size=1, max_size=3).map(tuple),
}
"""The values of each property that stands on the wire."""


def properties_of(kind: type[P], *without: str) -> st.SearchStrategy[P]:
    """Return a strategy of the properties of a kind of packet.   without: properties that it must not have."""
    fields = {name: _PROPERTIES[name] for name in kind._fields if name not in without}
    values = st.fixed_dictionaries({}, optional=fields)
    return values.map(lambda given: kind(**_with_method(given)))  # type: ignore[arg-type]


def _with_method(given: dict[str, object]) -> dict[str, object]:
    """Authentication data without a method is not allowed."""
    return given if "authentication_data" not in given else {"authentication_method": "m", **given}


def wills(version: Version) -> st.SearchStrategy[Will]:
    """Return a strategy of wills."""
    of_5 = properties_of(properties.WillProperties)
    return st.builds(
        Will, topic, data, qos, flag, of_5 if version is Version.MQTT_5 else st.just(properties.NO_WILL)
    )


@st.composite
def connects(draw: st.DrawFn, version: Version) -> Connect:
    """Return a strategy of CONNECT packets."""
    is_5 = version is Version.MQTT_5
    user_name = draw(st.none() | text)
    password = draw(st.none() | data) if user_name is not None or is_5 else None
    return Connect(
        version,
        draw(text),
        draw(flag),
        draw(two_bytes),
        draw(st.none() | wills(version)),
        user_name,
        password,
        draw(properties_of(properties.ConnectProperties)) if is_5 else properties.NO_CONNECT,
        draw(flag) if not is_5 else False,
    )


@st.composite
def publishes(draw: st.DrawFn, version: Version, *, by_client: bool) -> Publishes:
    """Return a strategy of runs of PUBLISH packets."""
    level = draw(qos)
    payloads = draw(st.lists(st.binary(max_size=9) | st.just(bytes(130)), min_size=1, max_size=9))
    ids = draw(st.lists(packet_id, min_size=len(payloads), max_size=len(payloads))) if level else []
    of_5 = properties_of(properties.PublishProperties, *(("subscription_ids",) if by_client else ()))
    given = draw(of_5) if version is Version.MQTT_5 and draw(flag) else properties.NO_PUBLISH
    name = "" if given.topic_alias is not None and draw(flag) else draw(topic)
    is_dup = bool(level) and draw(flag)
    return Publishes(name, payloads, level, draw(flag), is_dup, ids, given)


@st.composite
def acks(draw: st.DrawFn, version: Version) -> Acks:
    """Return a strategy of runs of acknowledgements."""
    type_ = draw(st.sampled_from(sorted(allowed_codes.ACKS)))
    ids = draw(st.lists(packet_id, min_size=1, max_size=12))
    if version is not Version.MQTT_5:
        return Acks(type_, ids)  # type: ignore[arg-type]
    code = draw(st.sampled_from(sorted(allowed_codes.ACKS[type_])))
    return Acks(type_, ids, code, draw(properties_of(properties.AckProperties)))  # type: ignore[arg-type]


def _codes(allowed: Iterable[int]) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.sampled_from(sorted(allowed)), min_size=1, max_size=4).map(tuple)


@st.composite
def subscriptions(draw: st.DrawFn, version: Version) -> Subscription:
    """Return a strategy of subscriptions."""
    name, level = draw(topic_filter), draw(qos)
    if version is not Version.MQTT_5:
        return Subscription(name, level)
    no_local = draw(flag) and not name.startswith("$share/")
    return Subscription(name, level, no_local, draw(flag), draw(qos))


def of_client(version: Version) -> st.SearchStrategy[Packet]:
    """Return a strategy of what a client sends between CONNECT and DISCONNECT."""
    is_5 = version is Version.MQTT_5
    subscribe_properties = properties_of(properties.SubscribeProperties)
    unsubscribe_properties = properties_of(properties.UnsubscribeProperties)
    auth_codes = st.sampled_from(sorted(allowed_codes.AUTH_BY_CLIENT))
    kinds: list[st.SearchStrategy[Packet]] = [
        publishes(version, by_client=True),
        acks(version),
        st.builds(
            Subscribe,
            packet_id,
            st.lists(subscriptions(version), min_size=1, max_size=4).map(tuple),
            subscribe_properties if is_5 else st.just(properties.NO_SUBSCRIBE),
        ),
        st.builds(
            Unsubscribe,
            packet_id,
            st.lists(topic_filter, min_size=1, max_size=4).map(tuple),
            unsubscribe_properties if is_5 else st.just(properties.NO_UNSUBSCRIBE),
        ),
        st.just(PINGREQ),
    ]
    if is_5:
        kinds.append(st.builds(Auth, auth_codes, properties_of(properties.AuthProperties)))
    return st.one_of(kinds)


def of_server(version: Version) -> st.SearchStrategy[Packet]:
    """Return a strategy of what a server sends between CONNACK and DISCONNECT."""
    is_5 = version is Version.MQTT_5
    ack_properties = properties_of(properties.AckProperties) if is_5 else st.just(properties.NO_ACK)
    suback_codes = allowed_codes.SUBACK if is_5 else allowed_codes.SUBACK_3_1_1
    auth_codes = st.sampled_from(sorted(allowed_codes.AUTH_BY_SERVER))
    kinds: list[st.SearchStrategy[Packet]] = [
        publishes(version, by_client=False),
        acks(version),
        st.builds(Suback, packet_id, _codes(suback_codes), ack_properties),
        st.builds(
            Unsuback, packet_id, _codes(allowed_codes.UNSUBACK) if is_5 else st.just(()), ack_properties
        ),
        st.just(PINGRESP),
    ]
    if is_5:
        kinds.append(st.builds(Auth, auth_codes, properties_of(properties.AuthProperties)))
    return st.one_of(kinds)


@st.composite
def connacks(draw: st.DrawFn, version: Version) -> Connack:
    """Return a strategy of CONNACK packets."""
    is_5 = version is Version.MQTT_5
    code = draw(st.sampled_from(sorted(allowed_codes.CONNACK)) if is_5 else st.integers(0, 5))
    given = draw(properties_of(properties.ConnackProperties)) if is_5 else properties.NO_CONNACK
    return Connack(draw(flag) and not code, code, given)


def disconnects(version: Version, *, by_client: bool) -> st.SearchStrategy[Disconnect]:
    """Return a strategy of DISCONNECT packets."""
    if version is not Version.MQTT_5:
        return st.just(Disconnect())
    codes = allowed_codes.DISCONNECT_BY_CLIENT if by_client else allowed_codes.DISCONNECT_BY_SERVER
    without = () if by_client else ("session_expiry_s",)
    return st.builds(
        Disconnect,
        st.sampled_from(sorted(codes)),
        properties_of(properties.DisconnectProperties, *without),
    )
