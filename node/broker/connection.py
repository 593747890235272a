"""A client's connection: handshake, channels, errors and their scope, heartbeats, closing.

Bytes come in by `receive_data`, bytes to write gather in `take_output`; what depends on time hangs on the
broker's timers. The shell that owns the socket follows `is_reading` and `is_finished`.

    connection = Connection(broker, peer)      connection.receive_data(data, now)      connection.lost(now)
Source: amqp-behaviour §1, §2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from node.amqp.channel_state import ChannelState, Step, step
from node.amqp.connection_state import ACCEPTED, ConnectionState
from node.amqp.constants import FRAME_METHOD, FRAME_MIN_SIZE_BYTES, PROTOCOL_HEADER, ReplyCode
from node.amqp.erlang import octets
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.amqp.frames import HEARTBEAT, method_frame
from node.amqp.method_codec import decode_method
from node.amqp.methods import (
    BasicAck,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Method,
)
from node.amqp.properties import Traits
from node.amqp.reader import FrameReader
from node.broker import sasl
from node.broker.access import LoginRefused, check_login, check_open
from node.broker.channel import Channel
from node.broker.handlers import HANDLERS, Steps
from node.broker.limits import check_user_channels
from node.broker.publishing import Route, Target, open_route
from node.broker.records import QueueRecord, User
from node.broker.timers import Timer

if TYPE_CHECKING:
    from node.broker.broker import Broker

OUT_MAX_BYTES: Final = 512 * 1024
"""Deliveries that one connection is given in a turn: several socket buffers full, so that the others get their turn."""

REPLIES_MAX_BYTES: Final = 16 * 1024 * 1024
"""Unsent output at which we stop reading from a client that asks for more without reading the answers."""

ROUTES_MAX: Final = 8192
"""Routes a connection remembers, at about 700 bytes each; with more distinct publishes it starts over."""

WORK_MAX_US: Final = 10_000
"""What a connection may cost in one turn, by the estimates below, in microseconds; what it sent beyond that
waits for the next turn, so that a storm of declares holds nobody else up for long."""

_METHOD_US: Final = 40
_RUN_US: Final = 4
_MISS_US: Final = 20

_HEADER_BYTES: Final = len(PROTOCOL_HEADER)
_ACCEPTED_HEADERS: Final = (PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09")
_KNOWN_MECHANISMS: Final = frozenset({"PLAIN", "AMQPLAIN", "EXTERNAL", "RABBIT-CR-DEMO"})


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end, as far as the transport knows.

    address, local: `IP:PORT`.   certificate_user: for EXTERNAL; None, and the reason, without a verified
        certificate.
    """

    address: str = "127.0.0.1:0"
    local: str = "127.0.0.1:5672"
    is_loopback: bool = True
    is_tls: bool = False
    certificate_user: str | None = None
    certificate_problem: str = ""


class Connection:
    """One connection. Implements `node.amqp.reader.Sink`.

    number: for the log.   vhost, user_name: empty before the connection is open.
    stalled: channels with consumers that wait for room in our output.   confirming: channels with confirms to
        flush.
    is_writable, is_flooded: set by the shell; the socket takes no more for now, and far too much waits for
        it.
    is_finished: there is nothing more to wait for: flush and reset the socket.
    """

    def __init__(self, broker: "Broker", peer: Peer, *, now: float, on_change: Callable[[], None]) -> None:
        self.broker = broker
        self.peer = peer
        self.number, self.id = broker.register(self)
        self.state = ConnectionState.AWAIT_HEADER
        self.user = User("", "", "")
        self.vhost = ""
        self.client_properties: Table = {}
        self.client_name: str | None = None
        self.channels: dict[int, Channel] = {}
        self.frame_max_bytes = 0
        self.channel_max = broker.settings.channel_max
        self.heartbeat_s = 0
        self.stalled: dict[Channel, None] = {}
        self.confirming: dict[Channel, None] = {}
        self.is_writable = True
        self.is_flooded = False
        self.is_finished = False
        self.opened_at = now
        self._on_change = on_change
        self._reader = FrameReader(
            self,
            frame_max_bytes=broker.settings.initial_frame_max_bytes,
            content_max_bytes=broker.settings.message_max_bytes,
        )
        self._header = b""
        self._mechanism = ""
        self._capabilities: frozenset[str] = frozenset()
        self._routes: dict[bytes, Route] = {}
        self._exchanges: dict[str, Target] = {}
        self._routes_version = -1
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._waits_for_log = False
        self._is_choked = False  # there is more unsent output than a client may let pile up
        self._work_us = 0  # spent in this turn
        self._is_deaf = False  # frames can't be told apart any more
        self._has_heard = False
        self._has_spoken = False
        self._silent_intervals = 0
        self._timer: Timer | None = None
        if broker.settings.handshake_timeout_s is not None:
            deadline = now + broker.settings.handshake_timeout_s
            self._timer = broker.timers.at(deadline, self._handshake_timed_out)
        self._heartbeat_timer: Timer | None = None

    @property
    def name(self) -> str:
        """`PEERIP:PORT -> LOCALIP:PORT`, as management and tracing call the connection (§1.10)."""
        return f"{self.peer.address} -> {self.peer.local}"

    @property
    def full_name(self) -> str:
        """The name with what the client calls itself, for the log."""
        return self.name if self.client_name is None else f"{self.name} - {self.client_name}"

    @property
    def user_name(self) -> str:
        """Who is logged in."""
        return self.user.name

    def has_capability(self, name: str) -> bool:
        """Whether the client announced that it can take this (§1.10)."""
        return name in self._capabilities

    # --- bytes ---

    @property
    def is_reading(self) -> bool:
        """Whether the shell should go on reading from the socket."""
        return not self._reader.paused

    def receive_data(self, data: bytes, now: float) -> None:
        """Take what the socket brought."""
        self.broker.now = now
        self._has_heard = True
        if self.state is ConnectionState.AWAIT_HEADER:
            data = self._take_header(data)
            if not data:
                return
        try:
            self._reader.feed(data)
        except ProtocolError as error:
            self._is_deaf = self._reader.paused = True
            self._fail(error)
        self._flush_confirms()

    def _flush_confirms(self) -> None:
        if self.confirming:
            confirming, self.confirming = self.confirming, {}
            for channel in confirming:
                channel.flush_confirms()

    def send(self, data: bytes) -> None:
        """Add whole frames to the output."""
        self.send_parts([data], len(data))

    def send_parts(self, parts: list[bytes], size: int) -> None:
        """Add whole frames in pieces.   size: their bytes, about."""
        if not self._out:
            self.broker.has_output(self)
        self._out += parts
        self._out_bytes += size
        if self._out_bytes > REPLIES_MAX_BYTES:
            self._is_choked = self._reader.paused = True

    def take_output(self) -> bytes:
        """What is to be written to the socket now."""
        data = b"".join(self._out)
        self._out.clear()
        self._out_bytes = 0
        # A heartbeat alone doesn't put off the next one (§1.6).
        self._has_spoken = self._has_spoken or data != HEARTBEAT
        return data

    def room_bytes(self) -> int:
        """How much more deliveries this connection takes in this turn."""
        return OUT_MAX_BYTES - self._out_bytes if self.is_writable else 0

    @property
    def takes_replies(self) -> bool:
        """Whether a direct reply may still be added: a requester that reads none loses them."""
        return not self.is_flooded and self._out_bytes <= REPLIES_MAX_BYTES

    def flushed(self) -> None:
        """The shell has written our output, and the socket takes more: go on with what waited for that."""
        if self.stalled:
            stalled, self.stalled = self.stalled, {}
            for channel in stalled:
                channel.unblock()
        spent, self._work_us = self._work_us, 0
        if self._is_choked or spent > WORK_MAX_US:
            self._is_choked = False
            self._resume()

    def _spend(self, cost_us: int) -> None:
        """Count work against the turn; beyond the limit, read on only in the next."""
        self._work_us += cost_us
        if self._work_us > WORK_MAX_US and not self._reader.paused:
            self._reader.paused = True
            self.broker.has_output(self)

    def _resume(self) -> None:
        """Read on, unless something else still keeps us from it."""
        is_stopped = self._waits_for_log or self._is_choked or self._is_deaf or self._work_us > WORK_MAX_US
        if is_stopped or self.state not in _LISTENING:
            return
        try:
            self._reader.resume()
        except ProtocolError as error:
            self._is_deaf = self._reader.paused = True
            self._fail(error)
        self._flush_confirms()
        self._on_change()

    # --- the handshake ---

    def _take_header(self, data: bytes) -> bytes:
        """Take the protocol header from the start of the stream; what follows it."""
        self._header += data
        if len(self._header) < _HEADER_BYTES:
            return b""
        header, rest = self._header[:_HEADER_BYTES], self._header[_HEADER_BYTES:]
        self._header = b""
        if header not in _ACCEPTED_HEADERS:
            self.send(PROTOCOL_HEADER)
            self.broker.observer.handshake_failed(self, f"bad protocol header {header!r}")
            self._finish()
            return b""
        self.state = ConnectionState.AWAIT_START_OK
        self.broker.observer.accepted(self)
        start = ConnectionStart(
            server_properties=self.broker.server_properties(),
            mechanisms=" ".join(self._mechanisms()).encode(),
        )
        self.send(method_frame(0, start))
        return rest

    def _mechanisms(self) -> list[str]:
        """What we offer: EXTERNAL only where a certificate can prove something."""
        offered = self.broker.settings.mechanisms
        return [
            name for name in offered if name in _KNOWN_MECHANISMS and (name != "EXTERNAL" or self.peer.is_tls)
        ]

    def _start_ok(self, method: ConnectionStartOk) -> None:
        self.client_properties = method.client_properties
        capabilities = method.client_properties.get("capabilities")
        if capabilities is not None and isinstance(capabilities.value, dict):
            self._capabilities = frozenset(
                name for name, value in capabilities.value.items() if value.value is True
            )
        name = method.client_properties.get("connection_name")
        if name is not None and isinstance(name.value, bytes):
            self.client_name = name.value.decode("utf-8", "backslashreplace")
            self.broker.observer.named_by_client(self)
        self._mechanism = method.mechanism
        if method.mechanism not in self._mechanisms():
            raise ProtocolError(
                ReplyCode.COMMAND_INVALID, f"unknown authentication mechanism '{method.mechanism}'"
            )
        if method.mechanism == "PLAIN":
            self._log_in(sasl.plain(method.response))
        elif method.mechanism == "AMQPLAIN":
            self._log_in(sasl.amqplain(method.response))
        elif method.mechanism == "RABBIT-CR-DEMO":
            self.user = User(method.response.decode("utf-8", "surrogateescape"), "", "")
            self.state = ConnectionState.AWAIT_SECURE_OK
            self.send(method_frame(0, ConnectionSecure(sasl.CR_DEMO_CHALLENGE)))
        elif self.peer.certificate_user is None:
            self._refuse_login(self.peer.certificate_problem)
        else:
            self._log_in(sasl.Credentials(self.peer.certificate_user, None))

    def _secure_ok(self, method: ConnectionSecureOk) -> None:
        self._log_in(sasl.cr_demo_answer(self.user.name, method.response))

    def _log_in(self, credentials: sasl.Credentials) -> None:
        settings, catalogue = self.broker.settings, self.broker.catalogue
        if credentials.password is None:
            account = catalogue.user(credentials.user)
            outcome = account or LoginRefused(f"user '{credentials.user}' - invalid credentials")
        else:
            outcome = check_login(
                catalogue,
                credentials.user,
                credentials.password,
                is_loopback=self.peer.is_loopback,
                loopback_users=settings.loopback_users,
            )
        if isinstance(outcome, LoginRefused):
            self._refuse_login(outcome.reason)
            return
        self.user = outcome
        self.state = ConnectionState.AWAIT_TUNE_OK
        tune = ConnectionTune(settings.channel_max, settings.frame_max_bytes, settings.heartbeat_s)
        self.send(method_frame(0, tune))

    def _refuse_login(self, reason: str) -> None:
        """Refuse: at once in words to a client that can take them, and to all by a reset after a pause."""
        self.broker.observer.login_refused(self, self._mechanism, reason)
        if self.has_capability("authentication_failure_close"):
            refusal = ProtocolError(
                ReplyCode.ACCESS_REFUSED,
                f"Login was refused using authentication mechanism {self._mechanism}. "
                "For details see the broker logfile.",
            )
            self._send_close(refusal)
        self._fall_silent()

    def _fall_silent(self) -> None:
        """Read and say nothing any more; after a pause the socket is reset."""
        self.state = ConnectionState.FAILED
        self._reader.paused = True
        self._finish_after(self.broker.settings.auth_failure_delay_s)

    def _tune_ok(self, method: ConnectionTuneOk) -> None:
        settings = self.broker.settings
        _check_negotiated("frame_max", method.frame_max, settings.frame_max_bytes, FRAME_MIN_SIZE_BYTES)
        _check_negotiated("channel_max", method.channel_max, settings.channel_max, 1)
        self.frame_max_bytes = self._reader.frame_max_bytes = method.frame_max
        self.channel_max = method.channel_max
        self.heartbeat_s = method.heartbeat
        self.state = ConnectionState.AWAIT_OPEN
        if self.heartbeat_s:
            self._heartbeat_timer = self.broker.timers.at(
                self.broker.now + self.heartbeat_s / 2, self._start_beating
            )

    def _open(self, method: ConnectionOpen) -> None:
        name = method.virtual_host
        others = [other for other in self.broker.connections.values() if other.vhost]
        check_open(
            self.broker.catalogue,
            self.user.name,
            name,
            vhost_connection_count=sum(other.vhost == name for other in others),
            user_connection_count=sum(other.user_name == self.user.name for other in others),
        )
        self.vhost = name
        self.state = ConnectionState.OPEN
        if self._timer is not None:
            self._timer.cancel()
        self.send(method_frame(0, ConnectionOpenOk()))
        self.broker.observer.opened(self)

    def _handshake_timed_out(self, now: float) -> None:
        self.broker.observer.handshake_timed_out(self)
        self._finish()

    # --- heartbeats (§1.6) ---

    def _start_beating(self, now: float) -> None:
        self._has_spoken = False  # the first beat comes in any case
        self._first_half_beat(now)

    def _first_half_beat(self, now: float) -> None:
        self._beat(now)
        self._heartbeat_timer = self.broker.timers.at(now + self.heartbeat_s / 2, self._second_half_beat)

    def _second_half_beat(self, now: float) -> None:
        self._silent_intervals = 0 if self._has_heard or not self.is_reading else self._silent_intervals + 1
        self._has_heard = False
        if self._silent_intervals == 2:
            self.broker.observer.heartbeats_missed(self)
            self._finish()
            return
        self._beat(now)
        self._heartbeat_timer = self.broker.timers.at(now + self.heartbeat_s / 2, self._first_half_beat)

    def _beat(self, now: float) -> None:
        if not self._has_spoken:
            self.send(HEARTBEAT)
        self._has_spoken = False

    # --- a `Sink` ---

    def on_publish(
        self, channel: int, method_frame: bytes, traits: Traits, contents: list[bytes], size: int
    ) -> None:
        """See `Sink.on_publish`."""
        catalogue = self.broker.catalogue
        if self._routes_version != catalogue.version:
            self._routes.clear()
            self._exchanges.clear()
            self._routes_version = catalogue.version
        route = self._routes.get(method_frame)
        try:
            if size > self.broker.settings.message_max_bytes:
                self._refuse_size(channel, size)
            if route is None:
                self._spend(_MISS_US)
                route = self._new_route(channel, method_frame)
                if route is None:
                    return
            self._spend(_RUN_US * (1 + len(route.queues)))
            route.channel.publish(route, traits, contents, size)
        except ProtocolError as error:
            self._failed(error, channel, BasicPublish)

    def _refuse_size(self, channel: int, size: int) -> None:
        if self.state is ConnectionState.OPEN and not self.ignores(channel):
            limit = self.broker.settings.message_max_bytes
            raise ProtocolError(
                ReplyCode.PRECONDITION_FAILED,
                f"message size {size} is larger than configured max size {limit}",
            )

    def _new_route(self, number: int, method_frame: bytes) -> Route | None:
        """Check a publish that is not in the cache, and cache it. None: it is to be ignored."""
        publish = self._admit(number, method_frame[7:-1])
        if publish is None:
            return None
        assert isinstance(publish, BasicPublish)
        route = open_route(self.channels[number], publish, self._exchanges)
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[method_frame] = route
        return route

    def on_content_method(self, channel: int, payload: bytes) -> bool:
        """See `Sink.on_content_method`."""
        try:
            return self._admit(channel, payload) is not None
        except ProtocolError as error:
            self._failed(error, channel, BasicPublish)
            return False

    def ignores(self, channel: int) -> bool:
        """See `Sink.ignores`."""
        known = self.channels.get(channel)
        return self.state is ConnectionState.CLOSING or (
            known is not None and known.state is ChannelState.CLOSING
        )

    def on_acks(self, channel: int, first: int, last: int) -> None:
        """See `Sink.on_acks`."""
        known = self.channels.get(channel)
        if known is None or known.state is not ChannelState.OPEN or self.state is not ConnectionState.OPEN:
            self.on_method(channel, _ACK_PAYLOAD)
            return
        try:
            known.acks(first, last)
        except ProtocolError as error:
            self._failed(error, channel, BasicAck)

    def on_method(self, channel: int, payload: bytes) -> None:
        """See `Sink.on_method`."""
        method: Method | None = None
        self._spend(_METHOD_US)
        try:
            if channel == 0:
                method = decode_method(payload) if self.state in _LISTENING else None
                if method is not None:
                    self._connection_method(method)
                return
            method = self._admit(channel, payload)
            if method is not None:
                self._channel_method(channel, method)
        except ProtocolError as error:
            self._failed(error, channel, type(method) if method is not None else None)

    def on_heartbeat(self) -> None:
        """See `Sink.on_heartbeat`: that bytes came is all that counts."""

    def on_fault(self, error: ProtocolError) -> None:
        """See `Sink.on_fault`."""
        if self.state is not ConnectionState.CLOSING:
            self._fail(error)

    # --- methods ---

    def _admit(self, channel: int, payload: bytes) -> Method | None:
        """Decode a method on a channel and check that it may come there; None: it is to be ignored."""
        if self.state is not ConnectionState.OPEN:
            if self.state in _LISTENING and self.state is not ConnectionState.CLOSING:
                raise ProtocolError(ReplyCode.UNEXPECTED_FRAME, octets(FRAME_METHOD, payload))
            return None
        method = decode_method(payload)
        if channel == 0:
            raise _unexpected_method(method, self.state)
        if isinstance(method, BasicPublish):
            known = self.channels.get(channel)
            taken = step(known.state if known else None, type(method))
            return method if taken is Step.HANDLE else None
        return method

    def _connection_method(self, method: Method) -> None:
        if type(method) not in ACCEPTED[self.state]:
            if self.state is ConnectionState.CLOSING:
                return
            raise _unexpected_method(method, self.state)
        match method:
            case ConnectionStartOk():
                self._start_ok(method)
            case ConnectionSecureOk():
                self._secure_ok(method)
            case ConnectionTuneOk():
                self._tune_ok(method)
            case ConnectionOpen():
                self._open(method)
            case ConnectionUpdateSecret():
                self.broker.observer.secret_updated(self, method.reason)
                self.send(method_frame(0, ConnectionUpdateSecretOk()))
            case ConnectionClose():
                self._closed_by_peer()
            case ConnectionCloseOk():
                self._finish()

    def _channel_method(self, number: int, method: Method) -> None:
        channel = self.channels.get(number)
        match step(channel.state if channel else None, type(method)):
            case Step.OPEN:
                try:
                    self._open_channel(number)
                except ProtocolError as error:
                    self._fail(error, number, method.name)  # with ids 0, 0 (§2.1)
            case Step.HANDLE:
                assert channel is not None
                self._handle(channel, method)
            case Step.CLOSE:
                assert channel is not None
                self._drop_channel(channel)
                self.send(_frame(number, ChannelCloseOk()))
            case Step.ANSWER_CLOSE:
                self.send(_frame(number, ChannelCloseOk()))
            case Step.FORGET:
                del self.channels[number]
            case Step.IGNORE:
                pass

    def _open_channel(self, number: int) -> None:
        if len(self.channels) >= self.channel_max > 0:
            raise ProtocolError(
                ReplyCode.NOT_ALLOWED,
                f"number of channels opened ({len(self.channels)}) has reached the "
                f"negotiated channel_max ({self.channel_max})",
            )
        account = self.broker.catalogue.user(self.user.name)
        if account is not None and account.limits.max_channels is not None:
            count = sum(
                len(other.channels)
                for other in self.broker.connections.values()
                if other.user_name == account.name
            )
            check_user_channels(account.limits, account.name, count)
        self.channels[number] = Channel(number, self)
        self.send(_frame(number, ChannelOpenOk()))

    def _handle(self, channel: Channel, method: Method) -> None:
        handler = HANDLERS.get(type(method))
        if handler is None:
            raise ProtocolError(
                ReplyCode.COMMAND_INVALID, "unimplemented method", method.class_id, method.method_id
            )
        steps = handler(channel, method)
        if steps is not None:
            self._advance(channel, type(method), steps, None)
            self._reader.paused = self._reader.paused or self._waits_for_log

    def _advance(self, channel: Channel, method: type[Method], steps: Steps, result: Any) -> None:
        """Run a handler up to its next command, and on from there once that is applied."""
        self._waits_for_log = False
        if channel.state is not ChannelState.OPEN:
            steps.close()
            return
        try:
            command = steps.send(result)
        except StopIteration:
            return
        except ProtocolError as error:
            self._failed(error, channel.number, method)
            return
        self._waits_for_log = True
        self.broker.log.submit(command, partial(self._applied, channel, method, steps))

    def _applied(self, channel: Channel, method: type[Method], steps: Steps, result: Any) -> None:
        was_paused = self._reader.paused
        self._advance(channel, method, steps, result)
        if was_paused:
            self._resume()

    # --- faults ---

    def _failed(self, error: ProtocolError, number: int, method: type[Method] | None) -> None:
        """A method failed: the channel or the connection pays, as the code says."""
        if self.state is ConnectionState.CLOSING:
            return
        if method is not None and not error.class_id and error.code not in _WITHOUT_IDS:
            error.class_id, error.method_id = method.class_id, method.method_id
        channel = self.channels.get(number)
        if channel is not None and error.code.closes_channel_only and self.state is ConnectionState.OPEN:
            self._fail_channel(channel, error, method.name if method is not None else "")
        else:
            self._fail(error, number, method.name if method is not None else "")

    def _fail_channel(self, channel: Channel, error: ProtocolError, method: str = "") -> None:
        self.broker.observer.channel_failed(self, channel.number, error, method)
        channel.flush_confirms()
        self._routes.clear()
        self._reader.forget(channel.number)
        channel.close()
        self.send(
            _frame(
                channel.number, ChannelClose(error.code, error.reply_text, error.class_id, error.method_id)
            )
        )

    def _fail(self, error: ProtocolError, channel: int = 0, method: str = "") -> None:
        """The connection ends with an error: by a close handshake once it is open, in silence before."""
        if self.state.is_handshake:
            self.broker.observer.handshake_failed(self, error.explanation)
            self._fall_silent()
        elif self.state in (ConnectionState.AWAIT_OPEN, ConnectionState.OPEN):
            self.broker.observer.connection_failed(self, channel, error, method)
            self._flush_confirms()
            self._release()
            self._send_close(error)
            self.state = ConnectionState.CLOSING
            pause = self.broker.settings.auth_failure_delay_s if self._is_deaf else self._closing_s()
            self._finish_after(pause)
        elif self.state is ConnectionState.CLOSING:
            self._finish()

    def _send_close(self, error: ProtocolError) -> None:
        close = ConnectionClose(error.code, error.reply_text, error.class_id, error.method_id)
        self.send(method_frame(0, close))

    # --- the end ---

    def _closed_by_peer(self) -> None:
        if self.state is ConnectionState.OPEN:
            self._release()
        self.send(method_frame(0, ConnectionCloseOk()))
        if self.state is ConnectionState.OPEN:
            self.state = ConnectionState.CLOSED_BY_PEER
            self._finish_after(self._closing_s())

    def force_close(self, reason: str) -> None:
        """Close with 320, for a reason of ours (§1.8). Before the connection is open: just end it."""
        if self.state is ConnectionState.OPEN:
            self._fail(ProtocolError(ReplyCode.CONNECTION_FORCED, reason))
        elif self.state.is_handshake:
            self._finish()

    def check_consumer_timeouts(self, now: float) -> None:
        """Close the channels whose consumers let a delivery lie for too long (§4.10)."""
        for channel in list(self.channels.values()):
            if channel.state is not ChannelState.OPEN:
                continue
            try:
                channel.check_consumer_timeout(now)
            except ProtocolError as error:
                oldest = channel.unacked.oldest
                tag = oldest.consumer.tag if oldest is not None and oldest.consumer is not None else ""
                self.broker.observer.consumer_timed_out(self, channel.number, tag)
                self._fail_channel(channel, error)

    def _closing_s(self) -> float:
        """How long to wait for the peer when a connection closes: its heartbeat interval, at most 30 s (§0.3)."""
        limit = self.broker.settings.closing_s_max
        return self.heartbeat_s if 0 < self.heartbeat_s < limit else limit

    def _finish_after(self, seconds: float) -> None:
        self._stop_timers()
        self._timer = self.broker.timers.at(self.broker.now + seconds, lambda now: self._finish())

    def _finish(self) -> None:
        """Have the socket reset, once what we have to say is written."""
        self.state = ConnectionState.CLOSED
        self._reader.paused = True
        self._stop_timers()
        self.is_finished = True
        self.broker.has_output(self)

    def finish_now(self) -> None:
        """The node stops: have the socket reset without waiting for the peer."""
        self._finish()

    def _stop_timers(self) -> None:
        for timer in (self._timer, self._heartbeat_timer):
            if timer is not None:
                timer.cancel()

    def lost(self, now: float) -> None:
        """The socket is gone."""
        self.broker.now = now
        in_good_order = self.state in (
            ConnectionState.CLOSED_BY_PEER,
            ConnectionState.CLOSED,
            ConnectionState.CLOSING,
        )
        if self.state is ConnectionState.OPEN:
            self._release()
        self.state = ConnectionState.CLOSED
        self.is_writable = False
        self._reader.close()
        self._out.clear()
        self._stop_timers()
        self.broker.forget(self)
        self.broker.observer.closed(self, in_good_order=in_good_order)

    def _drop_channel(self, channel: Channel) -> None:
        self._routes.clear()
        self._reader.forget(channel.number)
        channel.close()
        del self.channels[channel.number]

    def _release(self) -> None:
        """Close the channels, then delete the queues that were ours alone (§1.8)."""
        for channel in list(self.channels.values()):
            if channel.state is ChannelState.OPEN:
                channel.close()
        self.channels.clear()
        self._reader.forget_contents()
        self._routes.clear()
        self.stalled.clear()
        self.confirming.clear()
        self.broker.delete_exclusive_queues(self)

    def owns(self, queue: QueueRecord) -> bool:
        """Whether the queue is exclusive to this connection."""
        return queue.exclusive_owner == self.id


_frame = method_frame
"""`method_frame` under a name that the parameter of `on_publish` doesn't hide."""

_LISTENING: Final = frozenset(
    {
        ConnectionState.AWAIT_HEADER,
        ConnectionState.AWAIT_START_OK,
        ConnectionState.AWAIT_SECURE_OK,
        ConnectionState.AWAIT_TUNE_OK,
        ConnectionState.AWAIT_OPEN,
        ConnectionState.OPEN,
        ConnectionState.CLOSING,
    }
)
"""The states in which frames mean something."""

_ACK_PAYLOAD: Final = b"\x00\x3c\x00\x50" + bytes(9)

_WITHOUT_IDS: Final = frozenset(
    {
        ReplyCode.FRAME_ERROR,
        ReplyCode.UNEXPECTED_FRAME,
        ReplyCode.INTERNAL_ERROR,
    }
)
"""Codes of frames, which name no method unless their raiser says so."""


def _unexpected_method(method: Method, state: ConnectionState) -> ProtocolError:
    word = "running" if state is ConnectionState.OPEN else "opening"
    return ProtocolError(
        ReplyCode.CHANNEL_ERROR,
        f"unexpected method in connection state {word}",
        method.class_id,
        method.method_id,
    )


def _check_negotiated(name: str, asked: int, ours: int, lowest: int) -> None:
    """A limit that the client chose in tune-ok: not above ours, and no 'unlimited' where we have a limit (§1.4)."""
    if 0 < asked < lowest:
        raise ProtocolError(
            ReplyCode.NOT_ALLOWED,
            f"negotiated {name} = {asked} is lower than the minimum allowed value ({lowest})",
        )
    if ours and (asked == 0 or asked > ours):
        raise ProtocolError(
            ReplyCode.NOT_ALLOWED,
            f"negotiated {name} = {asked} is higher than the maximum allowed value ({ours})",
        )
