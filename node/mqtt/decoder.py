"""The decoder: from the bytes of a stream, however they were cut, to packets.

It knows the format of packets and nothing of sessions. Consecutive PUBLISH packets that differ in payload and packet
identifier only come as one object, and so do consecutive acknowledgements, so that small messages in great number cost
one slice of bytes each. Runs depend on how the bytes were cut; joined, they are always the same (tests/fuzz).

    feed(bytes) ─► packets(): one by one, until the bytes end, the caller stops, or a fault is raised

Source: MQTT 3.1.1 and 5.0, chapter 2.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from node.mqtt.connect_reader import UnsupportedVersion, read_connect, read_version
from node.mqtt.constants import PACKET_MAX_BYTES, VARIABLE_INTEGER_MAX_BYTES, PacketType, Version
from node.mqtt.errors import MqttError, malformed, protocol_error
from node.mqtt.packet_reader import read_acks, read_packet, read_packet_id
from node.mqtt.packets import Acks, Connect, Packet, Publishes
from node.mqtt.properties import NO_PUBLISH, PublishProperties
from node.mqtt.property_codec import read_properties
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.runs import more_acks, more_publishes, more_with_ids
from node.mqtt.strings import read_binary, text_of, variable_bytes
from node.mqtt.topics import check_topic_name

CACHED_TOPIC_MAX_BYTES: Final = 256
"""Longer topics are checked each time, so that the cache has a bound in bytes, too."""

CACHED_TOPICS: Final = 4096

_DUP: Final = 0x08
_RETAIN: Final = 0x01
_ACKS: Final = frozenset({PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP})
_FLAGS: Final = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}
"""The lower four bits of a packet's first byte where they are not 0 [MQTT-2.1.3-1]."""

_TYPES: Final[tuple[PacketType | None, ...]] = (None, *PacketType)


@lru_cache(CACHED_TOPICS)
def _short_topic(raw: bytes) -> str:
    return _checked_topic(raw)


def _checked_topic(raw: bytes) -> str:
    topic = text_of(raw)
    check_topic_name(topic)
    return topic


class Decoder:
    """Cuts a byte stream into packets.

    is_server: the peer is a client, whose first packet is CONNECT.
    version: of the packets. A server learns it of the CONNECT, whose level may be read even if the rest cannot; None:
        there was none, or it is of another protocol, so that no CONNACK can say what is wrong.
    packet_max_bytes: a longer packet is a fault as soon as its fixed header is there. It may change at any time.
    """

    __slots__ = (
        "_buffered",
        "_data",
        "_has_ended",
        "_is_first",
        "_is_server",
        "_pieces",
        "_pos",
        "_wanted",
        "packet_max_bytes",
        "version",
    )

    def __init__(
        self, *, is_server: bool, version: Version | None = None, packet_max_bytes: int = PACKET_MAX_BYTES
    ) -> None:
        assert is_server or version is not None, "a client knows its version"
        self.version = version
        self.packet_max_bytes = packet_max_bytes
        self._is_server = is_server
        self._is_first = True
        self._has_ended = False
        self._data = b""  # read from `_pos` on
        self._pos = 0
        self._pieces: list[bytes] = []  # the bytes behind `_data`
        self._buffered = 0  # bytes of the pieces
        self._wanted = 0  # bytes from `_pos` on before another look pays

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes that were fed and not handed on yet."""
        return len(self._data) - self._pos + self._buffered

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Take the next bytes of the stream, and return what `packets` does. Bytes that are not asked for are kept."""
        if self._has_ended:
            return iter(())
        if self._pos == len(self._data) and not self._pieces:
            self._data, self._pos = data, 0
        else:
            self._pieces.append(data)
            self._buffered += len(data)
        return self.packets()

    def packets(self) -> Iterator[Packet]:
        """Yield the packets that are complete. An iterator that is left is continued by another one.

        Raises: MqttError where the fault is, after all packets before it. Nothing can be read after it, nor after a
            DISCONNECT, behind which all bytes are dropped.
        """
        try:
            while (packet := self._next()) is not None:
                yield packet
        except MqttError:
            self._end()
            raise

    def _end(self) -> None:
        """Drop all bytes: nothing more is read."""
        self._has_ended = True
        self._data, self._pos, self._buffered = b"", 0, 0
        self._pieces.clear()

    def _next(self) -> Packet | None:
        if self._pieces:
            if self.buffered_bytes < self._wanted:
                return None
            self._data = b"".join((memoryview(self._data)[self._pos :], *self._pieces))
            self._pos = self._buffered = self._wanted = 0
            self._pieces.clear()
        data, pos = self._data, self._pos
        end = len(data)
        if end == pos:
            return None
        first = data[pos]
        if self._is_first:
            self._check_order(first)
        if end - pos < 2:
            self._keep(2)
            return None
        length, start = data[pos + 1], pos + 2
        if length >= 0x80:
            length, start = self._long_length(data, pos + 1, end)
            if not start:
                self._keep(end - pos + 1)
                return None
        after = start + length
        if after - pos > self.packet_max_bytes:
            text = f"a packet of {after - pos} bytes is longer than {self.packet_max_bytes} bytes"
            raise MqttError(ReasonCode.PACKET_TOO_LARGE, text)
        if after > end:
            self._keep(after - pos)
            return None
        type_ = _TYPES[first >> 4]
        if type_ is PacketType.PUBLISH:
            return self._publishes(data, first, start, after)
        self._check_flags(type_, first & 0x0F)
        assert type_ is not None
        if type_ in _ACKS:
            return self._acks(type_, data, start, after)
        self._pos = after
        if type_ is PacketType.CONNECT:
            return self._connect(data, start, after, start - pos - 1)
        if type_ is PacketType.CONNACK and not self._is_first:
            raise protocol_error("a second CONNACK")
        assert self.version is not None
        packet = read_packet(type_, data, start, after, self.version, is_server=self._is_server)
        self._is_first = self._is_first and type_ is PacketType.AUTH
        if type_ is PacketType.DISCONNECT:
            self._end()
        return packet

    def _keep(self, wanted: int) -> None:
        """Wait until so many bytes of the next packet are there, and let go of those before it."""
        if self._pos:
            self._data, self._pos = self._data[self._pos :], 0
        self._wanted = wanted

    def _check_order(self, first: int) -> None:
        """Check that the first packet of a connection is what it must be [MQTT-3.1.0-1, MQTT-3.2.0-1]."""
        if self._is_server:
            if first >> 4 != PacketType.CONNECT:
                raise protocol_error("the first packet is not CONNECT")
        elif first >> 4 not in (PacketType.CONNACK, PacketType.AUTH):
            raise protocol_error("the first packet is not CONNACK")

    def _long_length(self, data: bytes, pos: int, end: int) -> tuple[int, int]:
        """Return a remaining length of more than one byte, and where it ends; 0, 0: it is not complete."""
        value = shift = 0
        for at in range(pos, min(end, pos + VARIABLE_INTEGER_MAX_BYTES)):
            octet = data[at]
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                if not octet and self.version is Version.MQTT_5:
                    raise malformed("a remaining length is longer than needed")
                return value, at + 1
            shift += 7
        if end - pos >= VARIABLE_INTEGER_MAX_BYTES:
            raise malformed("a remaining length has more than four bytes")
        return 0, 0

    def _check_flags(self, type_: PacketType | None, flags: int) -> None:
        if type_ is None:
            raise malformed("packet type 0")
        # MQTT 3.1 has a QoS and DUP in PUBREL, SUBSCRIBE and UNSUBSCRIBE, and does not use these bits in the others.
        if (
            self.version is not Version.MQTT_3_1
            and flags != _FLAGS.get(type_, 0)
            and type_ is not PacketType.CONNECT
        ):
            raise malformed(f"the flags of {type_.name} are {flags}")

    def _connect(self, data: bytes, start: int, after: int, length_bytes: int) -> Connect:
        if not self._is_server or not self._is_first:
            raise protocol_error("CONNECT is not allowed here")
        try:
            version, is_bridge, start_of_rest = read_version(data, start, after)
        except UnsupportedVersion as error:
            self.version = error.version
            raise
        self.version = version
        if version is not Version.MQTT_3_1 and data[start - length_bytes - 1] & 0x0F:
            raise malformed("the flags of CONNECT are not 0")
        if version is Version.MQTT_5 and length_bytes != variable_bytes(after - start):
            raise malformed("a remaining length is longer than needed")
        packet = read_connect(data, start_of_rest, after, version, is_bridge=is_bridge)
        self._is_first = False
        return packet

    def _publishes(self, data: bytes, first: int, start: int, after: int) -> Publishes:
        """Read a PUBLISH, and all that follow it and differ in payload and packet identifier only."""
        qos = first >> 1 & 3
        if qos == 3:
            raise malformed("the QoS of a PUBLISH is 3")
        if first & _DUP and not qos and self.version is not Version.MQTT_3_1:
            raise malformed("DUP is set and the QoS is 0")
        raw, pos = read_binary(data, start, after)
        packet_ids: list[int] = []
        if qos:
            packet_id, pos = read_packet_id(data, pos, after)
            packet_ids.append(packet_id)
        properties, properties_at = NO_PUBLISH, pos
        if self.version is Version.MQTT_5:
            properties, pos = self._publish_properties(data, pos, after)
        if raw:
            topic = _short_topic(raw) if len(raw) <= CACHED_TOPIC_MAX_BYTES else _checked_topic(raw)
        elif properties.topic_alias is None:
            raise protocol_error("a PUBLISH has neither a topic nor a topic alias")
        else:
            topic = ""
        payloads = [data[pos:after]]
        topic_field = data[start : start + 2 + len(raw)]
        size_max = self.packet_max_bytes
        if qos:
            properties_field = data[properties_at:pos]
            self._pos = more_with_ids(
                data, after, first, topic_field, properties_field, size_max, payloads, packet_ids
            )
        else:
            fields = topic_field + data[properties_at:pos]
            self._pos = more_publishes(data, after, first, fields, size_max, payloads)
        return Publishes(
            topic, payloads, qos, bool(first & _RETAIN), bool(first & _DUP), packet_ids, properties
        )

    def _publish_properties(self, data: bytes, pos: int, after: int) -> tuple[PublishProperties, int]:
        if pos < after and not data[pos]:
            return NO_PUBLISH, pos + 1
        properties, pos = read_properties(PublishProperties, data, pos, after)
        if properties.subscription_ids and self._is_server:
            raise protocol_error("a client's PUBLISH has a subscription identifier")
        return properties, pos

    def _acks(self, type_: PacketType, data: bytes, start: int, after: int) -> Acks:
        """Read an acknowledgement, and all that follow it and differ in their packet identifiers only."""
        assert self.version is not None
        acks = read_acks(type_, data, start, after, self.version)
        packet_ids = list(acks.packet_ids)
        self._pos = more_acks(data, after, data[self._pos : start], data[start + 2 : after], packet_ids)
        return acks._replace(packet_ids=packet_ids) if len(packet_ids) > 1 else acks
