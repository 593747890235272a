"""The connection of an MQTT client: packets in their order, each begun when the one before is done with.

    bytes ─► Decoder ─► CONNECT ─► user, vhost, client id, session, will ─► CONNACK
                    ├─► PUBLISH, PUBREL ─► Incoming ─► broker          ─► PUBACK, PUBREC, PUBCOMP, once a turn
                    ├─► PUBACK, PUBREC, PUBCOMP ─► Outgoing ◄─ deliveries of the broker
                    └─► SUBSCRIBE, UNSUBSCRIBE ─► ClientSession        ─► SUBACK, UNSUBACK
While a packet waits for the broker, nothing more is read from the client.
Source: MQTT 3.1.1 and 5.0.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from node.mqtt import allowed_codes
from node.mqtt.authentication import Authentication
from node.mqtt.constants import NEVER_EXPIRES, VARIABLE_INTEGER_MAX, VERSION_NAMES, PacketType, Version
from node.mqtt.decoder import Decoder
from node.mqtt.encoder import encode, encode_within
from node.mqtt.errors import MqttError, protocol_error
from node.mqtt.incoming import Incoming
from node.mqtt.login import GENERATED_BYTES, client_id_of, login_of, vhost_of
from node.mqtt.message_mapping import EXPIRY_MAX_S
from node.mqtt.outgoing import Outgoing
from node.mqtt.packets import (
    PINGRESP,
    Acks,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publishes,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from node.mqtt.properties import NO_DISCONNECT, AuthProperties, ConnackProperties
from node.mqtt.reason_codes import FIRST_ERROR, SUBACK_FAILURE, ReasonCode, return_code
from node.mqtt.session import ClientSession, Start
from node.mqtt.settings import MqttSettings
from node.mqtt.steps import Steps, Work, reason_of
from node.mqtt.topic_aliases import InboundAliases
from node.mqtt.vhost_mapping import VhostMapping
from node.mqtt.wills import CONSUMER as WILL_CONSUMER
from node.mqtt.wills import ConnectionWill
from node.override import override
from node.plugins import Delivery, ProtocolConnection, Refusal, Session

TURN_COST: Final = 5000
"""The cost of packets, some microseconds, after which a connection rests until the next turn of the loop."""

PACKET_COST: Final = 20
"""The cost of a packet, or of a run of them."""

MESSAGE_COSTS: Final = (1, 4, 25)
"""The cost of each message of a run, by its QoS."""

KEEP_ALIVE_FACTOR: Final = 1.5
"""A client that is silent for so many keep-alive intervals is disconnected [MQTT-3.1.2-24]."""

_WITH_RETURN_CODE: Final = frozenset(
    {
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.BANNED,
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.SERVER_BUSY,
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    }
)
"""The errors that a CONNACK of MQTT 3.1 and 3.1.1 tells; for others the connection is closed [MQTT-3.1.4-1]."""


_LEAVING: Final = ("Node was put into maintenance mode", "with reason 'shutdown'")
"""The ends of the reasons for which a node that is drained, or stops, closes all connections (RabbitMQ's texts)."""


def _cost(packet: Packet) -> int:
    """Return about how many microseconds of work a packet is."""
    if isinstance(packet, Publishes):
        return PACKET_COST + len(packet.payloads) * MESSAGE_COSTS[packet.qos]
    return PACKET_COST + len(packet.packet_ids) if isinstance(packet, Acks) else PACKET_COST


def _possible(expiry_s: int) -> int:
    """Return the session expiry interval that a queue can have: one that ends in time, or none."""
    return expiry_s if expiry_s == NEVER_EXPIRES else min(expiry_s, EXPIRY_MAX_S)


class MqttConnection(ProtocolConnection):
    """One client.   label: how operators see the protocol, in front of its version."""

    def __init__(self, node: Session, settings: MqttSettings, label: str = "MQTT") -> None:
        self._node = node
        self._label = label
        self._settings = settings
        self._decoder = Decoder(is_server=True, packet_max_bytes=settings.connect_max_bytes)
        self._packets: Iterator[Packet] = iter(())
        self._work: Work | None = None
        self._is_handling = False
        self._is_resting = False
        self._is_connected = False
        self._is_over = False
        self._version = Version.MQTT_3_1_1
        self._packet_max_bytes: int | None = None
        self._tells_reasons = True
        self._ends_session = False
        self._is_leaving = False  # the session's queues are deleted as the client wants it
        self._heard_at = 0.0
        self._aliases = InboundAliases(settings.topic_alias_maximum)
        self._session: ClientSession | None = None
        self._incoming: Incoming | None = None
        self._outgoing: Outgoing | None = None
        self._will: ConnectionWill | None = None
        self._authentication: Authentication | None = None
        self._again: Work | None = None  # an authentication beside the client's work
        if settings.login_timeout_s:
            node.after(settings.login_timeout_s, self._check_login)

    # --- bytes ---

    @override
    def received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._heard_at = self._node.now
        self._packets = self._decoder.feed(data)
        self._go_on()

    def _go_on(self) -> None:
        """Handle the packets that are there, up to one that has to wait for the broker, or as many as a turn takes."""
        if self._is_blocked or self._is_handling or self._is_resting:
            return
        self._is_handling = True
        left = TURN_COST
        try:
            for packet in self._packets:
                self._handle(packet)
                if self._is_blocked or self._is_over:
                    break
                left -= _cost(packet)
                if left <= 0 and self._decoder.buffered_bytes:
                    self._rest()
                    break
        except MqttError as error:
            self._fail(error)
        finally:
            self._is_handling = False
        self.flush()

    def _rest(self) -> None:
        """Let others have their turn, and go on when the broker has carried out what was asked."""
        self._is_resting = True
        self._node.hold_reading(True)
        self._node.after_requests(self._rested)

    def _rested(self, is_safe: bool) -> None:
        self._is_resting = False
        if self._is_over:
            return
        self._node.hold_reading(False)
        self._packets = self._decoder.packets()
        self._go_on()

    @property
    def _is_blocked(self) -> bool:
        """True while a packet waits for the broker, and the next ones for it; an AUTH that is asked for does not."""
        authentication = self._authentication
        is_asked = not self._is_connected and authentication is not None and authentication.is_waiting
        return self._work is not None and not is_asked

    def _begin(self, steps: Steps[None]) -> None:
        """Begin work that may wait for the broker; the next packets wait for its end."""
        work = self._work = Work(steps, self._work_is_done, self._work_has_failed)
        work.go_on()
        if self._is_blocked:
            self._node.hold_reading(True)

    def _work_is_done(self) -> None:
        self._work = None
        if self._is_handling or self._is_over:
            return
        self._node.hold_reading(False)
        self._packets = self._decoder.packets()
        self._go_on()

    def _work_has_failed(self, error: MqttError) -> None:
        self._work = None
        self._fail(error)

    def _write(self, packet: Packet) -> None:
        self._node.write(encode(self._version, packet))

    @override
    def flush(self) -> None:
        if self._incoming is not None and not self._is_over:
            self._incoming.flush()

    # --- packets ---

    def _handle(self, packet: Packet) -> None:
        if isinstance(packet, Connect):
            self._begin(self._connect(packet))
            return
        if isinstance(packet, Auth):
            self._auth(packet)
            return
        if not self._is_connected:  # an AUTH is waited for
            if not isinstance(packet, Disconnect):
                raise protocol_error("a packet before the authentication is over")
            self._is_over = True
            self._node.close()
            return
        session, incoming, outgoing = self._session, self._incoming, self._outgoing
        assert session is not None
        assert incoming is not None
        assert outgoing is not None
        match packet:
            case Publishes():
                incoming.take(self._aliases.resolve(packet))
            case Acks():
                if packet.type is PacketType.PUBREL:
                    incoming.release(tuple(packet.packet_ids))
                else:
                    outgoing.acknowledged(packet.type, packet.packet_ids, packet.code)
            case Subscribe():
                self._begin(self._subscribe(session, packet))
            case Unsubscribe():
                self._begin(self._unsubscribe(session, packet))
            case Pingreq():
                self._write(PINGRESP)
            case Disconnect():
                self._begin(self._disconnect(session, packet))
            case _:
                raise protocol_error("a packet that only servers send")

    # --- CONNECT ---

    def _check_login(self) -> None:
        """Close the connection of a client that has not connected in time."""
        if not self._is_connected and not self._is_over:
            self._is_over = True
            self._node.close()

    def _connect(self, connect: Connect) -> Steps[None]:
        node, settings = self._node, self._settings
        self._version = version = connect.version
        given = connect.properties
        node.name_protocol(f"{self._label} {VERSION_NAMES[version]}")
        self._packet_max_bytes = given.maximum_packet_bytes
        self._tells_reasons = given.request_problem_information is not False
        client_id = client_id_of(connect, node.random_bytes(GENERATED_BYTES))
        node.name_client(client_id)
        node.describe(
            {"product": "MQTT client", "client_id": client_id},
            {"client_id": client_id, "clean_sess": connect.clean_start},
        )
        proven = yield from self._log_in(connect)
        yield lambda on_done: node.claim_name(client_id, lambda: on_done(None))
        wanted_s, expiry_s = self._expiry(connect)
        limit = min(settings.prefetch, given.receive_maximum or settings.prefetch)
        start = Start(client_id, connect.clean_start, expiry_s)
        lost = MqttError(ReasonCode.QUOTA_EXCEEDED, "the state of the session could not be kept")
        session = ClientSession(
            node, settings, start, prefetch=limit, on_state_lost=partial(self._fail, lost)
        )
        is_present = yield from session.begin()
        self._ends_session = expiry_s == 0 and session.is_persistent
        will = self._will = ConnectionWill(node, settings, client_id, session.ensure)
        yield from will.settle_former(is_resumed=is_present)
        if connect.will is not None:
            named = client_id if version is Version.MQTT_5 else None
            lives_s = 0 if self._ends_session else session.expiry_s
            yield from will.prepare(connect.will, lives_s, named)
        self._session = session
        self._incoming = Incoming(
            node, settings, version, client_id, session.state, self._fail, self._ensured
        )
        self._outgoing = outgoing = Outgoing(
            node,
            settings,
            version,
            client_id,
            session.subscriptions,
            session.state,
            limit=limit,
            packet_max_bytes=given.maximum_packet_bytes,
            alias_maximum=given.topic_alias_maximum or 0,
        )
        outgoing.sources = session.sources
        session.forget = outgoing.forget
        self._decoder.packet_max_bytes = settings.packet_max_bytes
        self._is_connected = True
        assigned = None if connect.client_id else client_id
        self._accept(is_present, assigned, wanted_s, session, proven)
        if connect.keep_alive_s:
            self._watch(connect.keep_alive_s * KEEP_ALIVE_FACTOR)
        outgoing.resume()
        yield from session.consume()

    def _log_in(self, connect: Connect) -> Steps[bytes]:
        """Log the client in, by password, certificate or in several steps, and open its vhost.

        Returns: the last bytes of an authentication in several steps for the client.   Raises: MqttError.
        """
        node, settings, given = self._node, self._settings, connect.properties
        method, proven = given.authentication_method, b""
        mapping = VhostMapping(node.global_parameter)
        if method is None:
            login = login_of(connect, node.peer, settings, mapping)
            vhost = login.vhost
            refusal: Refusal | None = yield partial(node.log_in, login.user, login.password)
            if refusal is not None:
                is_known = refusal.is_of_remote
                code = ReasonCode.NOT_AUTHORIZED if is_known else ReasonCode.BAD_USER_NAME_OR_PASSWORD
                raise MqttError(code, refusal.text)
        elif node.offers_method(method):
            vhost = vhost_of(connect, node.peer, settings, mapping)
            self._authentication = Authentication(node, method, self._write, self._expect_auth)
            proven = yield from self._authentication.steps(given.authentication_data or b"")
        else:
            raise MqttError(ReasonCode.BAD_AUTHENTICATION_METHOD, "there is no such authentication method")
        refusal = yield partial(node.open, vhost)
        if refusal is not None:
            is_missing = refusal.is_of_missing_vhost
            code = ReasonCode.BAD_USER_NAME_OR_PASSWORD if is_missing else ReasonCode.NOT_AUTHORIZED
            raise MqttError(code, refusal.text)
        return proven

    # --- AUTH ---

    def _expect_auth(self) -> None:
        """Read on: the client has to answer a challenge."""
        if not self._is_handling and not self._is_over and not self._is_connected:
            self._node.hold_reading(False)
            self._packets = self._decoder.packets()
            self._go_on()

    def _auth(self, packet: Auth) -> None:
        authentication = self._authentication
        if authentication is None:
            raise protocol_error("there is no authentication to go on with")
        if packet.code != ReasonCode.RE_AUTHENTICATE:
            authentication.take(packet)
            if self._is_blocked:
                self._node.hold_reading(True)
            return
        authentication.check(packet)
        if not self._is_connected or self._again is not None:
            raise protocol_error("an authentication is under way")
        steps = self._authenticate_again(authentication, packet.properties.authentication_data or b"")
        self._again = again = Work(steps, self._again_is_done, self._fail)
        again.go_on()

    def _authenticate_again(self, authentication: Authentication, data: bytes) -> Steps[None]:
        data = yield from authentication.steps(data)
        properties = AuthProperties(authentication.method, data or None)
        self._write(Auth(ReasonCode.SUCCESS, properties))

    def _again_is_done(self) -> None:
        self._again = None

    def _expiry(self, connect: Connect) -> tuple[int, int]:
        """Return for how many seconds the client wants its session to outlive it, and for how many it does."""
        settings = self._settings
        if connect.version is not Version.MQTT_5:
            wanted_s = 0 if connect.clean_start else settings.subscription_ttl_s
            return wanted_s, _possible(wanted_s)
        wanted_s = connect.properties.session_expiry_s or 0
        return wanted_s, _possible(min(wanted_s, settings.session_expiry_max_s))

    def _accept(
        self, is_present: bool, assigned: str | None, wanted_s: int, session: ClientSession, proven: bytes
    ) -> None:
        settings, packet_max = self._settings, self._settings.packet_max_bytes
        if self._version is not Version.MQTT_5:
            # MQTT 3.1 has no such flag: its byte is reserved.
            self._write(Connack(is_present and self._version is Version.MQTT_3_1_1))
            return
        kept_s = session.expiry_s if session.is_persistent and not self._ends_session else 0
        properties = ConnackProperties(
            session_expiry_s=None if kept_s == wanted_s else kept_s,
            receive_maximum=settings.receive_maximum,
            maximum_packet_bytes=packet_max if packet_max < VARIABLE_INTEGER_MAX else None,
            assigned_client_id=assigned,
            topic_alias_maximum=settings.topic_alias_maximum,
            authentication_method=self._authentication.method if self._authentication else None,
            authentication_data=proven or None,
        )
        self._write(Connack(is_present, 0, properties))

    def _ensured(self, exchange: str, then: Callable[[], None]) -> None:
        """Make an exchange of the broker's own, and go on."""
        if self._node.has_exchange(exchange):
            then()
            return
        assert self._session is not None
        Work(self._session.ensure(exchange), then, self._fail).go_on()

    # --- the other requests ---

    def _subscribe(self, session: ClientSession, packet: Subscribe) -> Steps[None]:
        codes: list[int] = []
        for wanted in packet.subscriptions:
            code = yield from session.subscribe(wanted, packet.properties.subscription_id)
            codes.append(code if code in allowed_codes.SUBACK else ReasonCode.UNSPECIFIED_ERROR)
        if self._version is not Version.MQTT_5:
            if self._version is Version.MQTT_3_1 and any(code >= FIRST_ERROR for code in codes):
                raise MqttError(ReasonCode.NOT_AUTHORIZED, "a subscription is refused")
            codes = [SUBACK_FAILURE if code >= FIRST_ERROR else code for code in codes]
        self._write(Suback(packet.packet_id, tuple(codes)))

    def _unsubscribe(self, session: ClientSession, packet: Unsubscribe) -> Steps[None]:
        codes: list[int] = []
        for filter_ in packet.filters:
            code = yield from session.unsubscribe(filter_)
            codes.append(code if code in allowed_codes.UNSUBACK else ReasonCode.UNSPECIFIED_ERROR)
        self._write(Unsuback(packet.packet_id, tuple(codes) if self._version is Version.MQTT_5 else ()))

    def _disconnect(self, session: ClientSession, packet: Disconnect) -> Steps[None]:
        expiry_s = packet.properties.session_expiry_s
        if expiry_s and (self._ends_session or not session.is_persistent):
            raise protocol_error(
                "a session that ends with its connection cannot be prolonged [MQTT-3.14.2-2]"
            )
        assert self._will is not None
        if packet.code != ReasonCode.DISCONNECT_WITH_WILL:
            yield from self._will.drop()
        if expiry_s == 0 or self._ends_session:
            self._is_leaving = True
            yield from session.end()
        # What was published in the same read is on its way before the connection ends.
        yield lambda on_done: self._node.after_requests(lambda is_safe: on_done(None))
        self._is_over = True
        self._node.close()

    # --- keep-alive ---

    def _watch(self, silence_s: float) -> None:
        """Disconnect the client once it is silent for so long; not while we do not read."""

        def look() -> None:
            if self._is_over:
                return
            left_s = self._heard_at + silence_s - self._node.now
            if left_s > 0:
                self._node.after(left_s, look)
            elif self._work is not None or self._node.is_held_back:
                self._node.after(silence_s, look)
            else:
                self._fail(MqttError(ReasonCode.KEEP_ALIVE_TIMEOUT, "the client is silent"))

        self._node.after(silence_s, look)

    # --- deliveries ---

    @override
    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        if self._will is not None and any(each.consumer == WILL_CONSUMER for each in deliveries):
            for each in deliveries:
                if each.consumer == WILL_CONSUMER:
                    self._will.delivered(each)
            deliveries = [each for each in deliveries if each.consumer != WILL_CONSUMER]
        if self._outgoing is not None and not self._is_over:
            self._outgoing.take(deliveries)

    @override
    def cancelled(self, consumer: str) -> None:
        if consumer != WILL_CONSUMER and not self._is_leaving:
            self._fail(MqttError(ReasonCode.ADMINISTRATIVE_ACTION, "a queue of the session is gone"))

    # --- the end ---

    def _fail(self, error: MqttError) -> None:
        """End the connection for an error."""
        if self._is_over:
            return
        self._is_over = True
        self._say(error)
        self._node.close()

    def _say(self, error: MqttError, reference: str | None = None) -> None:
        """Tell the client why the connection ends, as far as its version can.   reference: where it may go."""
        version = self._decoder.version
        if version is None:
            return
        reason = error.text if self._tells_reasons else None
        packet: Packet
        if not self._is_connected:
            if version is Version.MQTT_5:
                code = error.code if error.code in allowed_codes.CONNACK else ReasonCode.UNSPECIFIED_ERROR
                packet = Connack(False, code, ConnackProperties(reason_string=reason))
            elif error.code in _WITH_RETURN_CODE:
                packet = Connack(False, return_code(error.code))
            else:
                return
        elif version is Version.MQTT_5:
            is_allowed = error.code in allowed_codes.DISCONNECT_BY_SERVER
            code = error.code if is_allowed else ReasonCode.UNSPECIFIED_ERROR
            told = NO_DISCONNECT._replace(reason_string=reason, server_reference=reference)
            packet = Disconnect(code, told)
        else:
            return
        data = encode(version, packet)
        if self._packet_max_bytes is not None:
            found = encode_within(version, packet, self._packet_max_bytes)
            if found is None:
                return
            data = found
        self._node.write(data)

    @override
    def ended(self, reason: Refusal) -> None:
        if self._is_over:
            return
        self._is_over = True
        reference = self._settings.server_reference
        if reference and any(reason.text.endswith(each) for each in _LEAVING):
            self._say(MqttError(ReasonCode.USE_ANOTHER_SERVER, reason.text), reference)
        else:
            self._say(MqttError(reason_of(reason), reason.text))

    @override
    def replaced(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._say(MqttError(ReasonCode.SESSION_TAKEN_OVER, "another connection has this client id"))

    @override
    def leaving(self) -> Sequence[int]:
        return () if self._will is None else tuple(self._will.tags)

    @override
    def lost(self) -> None:
        """Let go of what refers back to here: so all is freed at once, and not when Python looks for cycles."""
        self._is_over = True
        if self._work is not None:
            self._work.stop()
            self._work = None
        if self._again is not None:
            self._again.stop()
            self._again = None
        self._packets = iter(())
        for part in (self._session, self._incoming, self._outgoing, self._will, self._authentication):
            if part is not None:
                part.let_go()
        self._session = self._incoming = self._outgoing = self._will = self._authentication = None
