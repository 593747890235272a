"""One STOMP client: bytes to frames, frames to the session in their order, CONNECT, and how a connection ends.

    received ─► Decoder ─► _take ─► a handler ─► Session            delivered ─► Messages ─► MESSAGE frames
A frame whose handler has to wait for the node stops the next ones: they stay in the decoder.
`received` and `delivered` are hot.
Source: STOMP 1.2; RabbitMQ 3.10.8, `rabbit_stomp_processor`. After an ERROR frame the connection ends, as the standard
demands; with `stomp.close_after_error = false` it goes on where it can, as in RabbitMQ.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from node.override import override
from node.plugins import VERSION, Delivery, ProtocolConnection, Refusal, Session
from node.stomp.client import Ended, Steps, StompClient, code_name
from node.stomp.decoder import Decoder, Limits
from node.stomp.errors import FramingError, StompError
from node.stomp.frame import EOL, Frame, Head, encode
from node.stomp.heartbeats import Heartbeats, Intervals, parse_intervals
from node.stomp.messages import Messages
from node.stomp.queues import short_text
from node.stomp.sending import Sending
from node.stomp.settings import StompSettings
from node.stomp.settling import Settling
from node.stomp.subscribing import Subscribing
from node.stomp.versions import V1_0, VERSIONS, negotiated

HEAD_MAX_BYTES: Final = 120 * 1024
"""The size of a frame's command and headers: as properties in AMQP they fit into a frame of 128 KiB, the default of
`frame_max`. A longer frame would end the connection of each AMQP client that the message goes to."""

HEADERS_MAX: Final = 1000
"""The number of a frame's headers."""

LOGIN_HEAD_MAX_BYTES: Final = 16 * 1024
LOGIN_HEADERS_MAX: Final = 64
LOGIN_BODY_MAX_BYTES: Final = 1024
"""The same before the client is logged in, and the size of a body then."""

LAST_WORDS_S: Final = 30.0
"""The time that a connection which ends has to carry out what was asked before."""

_SESSION_ID_BYTES: Final = 16

_ANSWERED: Final = frozenset({"SEND", "ACK", "NACK", "COMMIT", "DISCONNECT", "CONNECT", "STOMP"})
"""The commands whose handlers send receipts themselves, or that have none."""


class LoginFailed(StompError):
    """A CONNECT frame that is refused: the connection ends, whatever the settings say."""


class StompConnection(ProtocolConnection):
    """One client.   label: the protocol's name for operators, before its version.

    credentials: user and password that count instead of those of CONNECT; None: there are none.
    """

    def __init__(
        self,
        session: Session,
        settings: StompSettings,
        label: str = "STOMP",
        credentials: tuple[str | None, bytes] | None = None,
    ) -> None:
        self._session = session
        self._settings = settings
        self._label = label
        self._credentials = credentials
        self._client = StompClient(session, settings, self._write)
        self._decoder = Decoder(Limits(LOGIN_HEAD_MAX_BYTES, LOGIN_HEADERS_MAX, LOGIN_BODY_MAX_BYTES))
        self._sending = Sending(self._client, self._fail)
        self._subscribing = Subscribing(self._client)
        settling = Settling(self._client, self._sending)
        self._heartbeats = Heartbeats(session, beat=partial(self._write, EOL), lost=session.close)
        self._handlers: dict[str, Callable[[Frame], Steps | None]] = {
            "CONNECT": self._connect,
            "STOMP": self._connect,
            "SEND": self._sending.send,
            "SUBSCRIBE": self._subscribing.subscribe,
            "UNSUBSCRIBE": self._subscribing.unsubscribe,
            "ACK": settling.settle,
            "NACK": settling.settle,
            "BEGIN": settling.begin,
            "COMMIT": settling.commit,
            "ABORT": settling.abort,
            "DISCONNECT": self._disconnect,
        }
        self._intervals = Intervals(0, 0)
        self._session_id = ""
        self._steps: Steps | None = None
        self._head: Head | None = None  # of the frame whose steps these are
        self._on_idle: Callable[[], None] = _nothing  # called when all whole frames are carried out
        self._is_working = False
        self._is_held = False  # nothing is read, as the steps wait
        self._is_over = False
        session.after(settings.login_timeout_s, self._check_login)

    # --- the node ---

    @override
    def received(self, data: bytes) -> None:
        self._heartbeats.has_heard = True
        if not self._is_over:
            self._decoder.feed(data)
            self._work()

    @override
    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        if not self._is_over:
            self._write(self._client.messages.render(deliveries, self._client.subscriptions))

    @override
    def cancelled(self, consumer: str) -> None:
        subscription = self._client.subscriptions.get(consumer)
        if subscription is None or self._is_over:
            return
        self._subscribing.forget(subscription)
        detail = (
            "The server has canceled a subscription.\n"
            f"No more messages will be delivered for {subscription.description}.\n"
        )
        self._client.error("Server cancelled subscription", detail, [("subscription", subscription.name)])
        if self._settings.closes_after_error:
            self._end()

    @override
    def ended(self, reason: Refusal) -> None:
        self._is_over = True
        self._subscribing.clean_up()
        self._client.error(code_name(reason.code), reason.text)

    @override
    def finish(self, on_done: Callable[[], None]) -> None:
        if self._is_over:
            on_done()
            return
        self._on_idle = on_done
        self._work()

    @override
    def lost(self) -> None:
        """Let go of what refers back to here: so all is freed at once, and not when Python looks for cycles."""
        self._is_over = True
        self._steps = None
        self._on_idle = _nothing
        self._handlers.clear()
        self._client.let_go()
        self._sending.let_go()
        self._heartbeats.let_go()

    def _write(self, data: bytes) -> None:
        if data:
            self._heartbeats.has_spoken = True
            self._session.write(data)

    # --- frames in their order ---

    def _work(self) -> None:
        """Carry out the frames that have come, up to one that has to wait."""
        if self._is_working:
            return
        self._is_working = True
        try:
            while self._steps is None and not self._is_over:
                frame = self._decoder.next()
                if frame is None:
                    self._on_idle()
                    break
                self._take(frame)
        except FramingError as error:
            self._fail(error, None)
        finally:
            self._is_working = False
        is_waiting = self._steps is not None
        if is_waiting != self._is_held:
            self._is_held = is_waiting
            self._session.hold_reading(is_waiting)

    def _take(self, frame: Frame) -> None:
        head = frame.head
        known = self._sending.known.get(id(head))
        if known is not None and known.head is head:
            self._session.publish(known.exchange, known.routing_key, known.properties, frame.body)
            return
        try:
            steps = self._handle(frame)
        except StompError as error:
            self._fail(error, head.headers.get("receipt"))
            return
        if steps is None:
            self._succeeded(head)
        else:
            self._head, self._steps = head, steps
            self._step(None)

    def _handle(self, frame: Frame) -> Steps | None:
        """Carry out a frame, or return the steps that do. Raises: StompError."""
        command = frame.head.command
        is_login = command in ("CONNECT", "STOMP")
        if not self._client.is_connected and not is_login:
            if not self._settings.connects_implicitly:
                raise LoginFailed("Illegal command", "You must log in using CONNECT first")
            return self._connect_implicitly(frame)
        handler = self._handlers.get(command)
        if handler is None:
            raise StompError("Bad command", f'Could not interpret command "{command}"\n')
        return handler(frame)

    def _step(self, answer: object) -> None:
        assert self._steps is not None
        try:
            wish = self._steps.send(answer)
        except StopIteration:
            self._steps = None
            assert self._head is not None
            self._succeeded(self._head)
        except StompError as error:
            self._steps = None
            assert self._head is not None
            self._fail(error, self._head.headers.get("receipt"))
        else:
            wish(self._answered)

    def _answered(self, *answer: object) -> None:
        """Take the session's answer to a wish: one value, several, or none."""
        if self._steps is not None and not self._is_over:
            self._step(answer[0] if len(answer) == 1 else answer or None)
            self._work()

    def _succeeded(self, head: Head) -> None:
        receipt = head.headers.get("receipt")
        if receipt is not None and head.command not in _ANSWERED:
            self._client.receipt(receipt)

    # --- CONNECT ---

    def _connect(self, frame: Frame) -> Steps:
        if self._client.is_connected:
            raise LoginFailed("Illegal command", "You are logged in already\n")
        yield from self._log_in(frame.head.headers)
        self._write(encode("CONNECTED", self._connected_headers(), version=self._client.version))
        self._heartbeats.start(self._intervals)

    def _connect_implicitly(self, frame: Frame) -> Steps:
        """Log in as the default user, without an answer, and carry out the client's first frame."""
        yield from self._log_in({})
        steps = self._handle(frame)
        if steps is not None:
            yield from steps

    def _log_in(self, headers: dict[str, str]) -> Steps:
        """Log the client in, and open its vhost. Raises: StompError."""
        version = negotiated(headers.get("accept-version"))
        if version is None:
            raise LoginFailed("Version mismatch", f"Supported versions are {','.join(VERSIONS)}\n")
        if version == V1_0:
            headers = {name: value.lstrip(" ") for name, value in headers.items()}
        settings = self._settings
        self._intervals = parse_intervals(headers.get("heart-beat", "0,0"))
        user = headers.get("login", settings.default_user)
        password: bytes | None = self._password(headers)
        certificate_user = self._session.peer.certificate_user if settings.uses_certificates else None
        if self._credentials is not None:
            user, password = self._credentials
        elif "login" not in headers and certificate_user is not None:
            user, password = certificate_user, None
        if user is None:
            raise LoginFailed("Bad CONNECT", "Missing login or passcode header(s)")
        self._client.version = self._decoder.version = version
        mechanism = "stomp_headers" if "login" in headers else "ssl" if password is None else "config"
        refusal = yield partial(self._session.log_in, user, password)
        if refusal is not None and refusal.is_of_remote:
            raise LoginFailed("Bad CONNECT", "non-loopback access denied")
        if refusal is not None:
            raise LoginFailed("Bad CONNECT", f"Access refused for user '{user}'\n")
        vhost = headers.get("host", settings.default_vhost)
        refusal = yield partial(self._session.open, vhost)
        if refusal is not None:
            raise LoginFailed("Bad CONNECT", f"Virtual host '{vhost}' access denied")
        self._connected(version)
        self._session.describe(
            {"product": "STOMP client"},
            {
                "session_id": self._session_id,
                "version": version,
                "implicit_connect": self._settings.connects_implicitly,
                "auth_login": user,
                "auth_mechanism": mechanism,
            },
        )

    def _password(self, headers: dict[str, str]) -> bytes:
        passcode = headers.get("passcode", self._settings.default_pass)
        return passcode.encode("utf-8", "surrogateescape")

    def _connected(self, version: str) -> None:
        self._client.is_connected = True
        self._session_id = f"session-{short_text(self._session.random_bytes(_SESSION_ID_BYTES))}"
        self._client.messages = Messages(version, self._session_id)
        self._session.name_protocol(f"{self._label} {version}")
        self._decoder.limits = Limits(HEAD_MAX_BYTES, HEADERS_MAX, self._session.message_max_bytes)

    def _connected_headers(self) -> list[tuple[str, str]]:
        headers = [] if self._settings.hides_server else [("server", f"Fluffle/{VERSION}")]
        return [
            *headers,
            ("session", self._session_id),
            ("heart-beat", self._intervals.header),
            ("version", self._client.version),
        ]

    def _check_login(self) -> None:
        if not self._client.is_connected and not self._is_over:
            self._is_over = True
            self._session.close()

    # --- the end ---

    def _disconnect(self, frame: Frame) -> Steps | None:
        """Close when all that was asked before is carried out; with a receipt, when it is confirmed."""
        receipt = frame.head.headers.get("receipt")
        self._is_over = True
        self._session.after_requests(partial(self._disconnected, receipt), is_confirmed=receipt is not None)
        return None

    def _disconnected(self, receipt: str | None, is_safe: bool) -> None:
        if receipt is not None:
            self._is_over = False  # for the fault of a message that was refused
            self._sending.confirmed(receipt, is_safe)
            self._is_over = True
        self._session.close()

    def _fail(self, error: StompError, receipt: str | None) -> None:
        """Tell the client of a fault, and end the connection unless it can go on."""
        if self._is_over:
            return
        more = [] if receipt is None else [("receipt-id", receipt)]
        self._client.error(error.message, error.detail, more)
        is_fatal = isinstance(error, FramingError | LoginFailed | Ended)
        if is_fatal or self._settings.closes_after_error:
            self._end()

    def _end(self) -> None:
        """End the connection when all that was asked before is carried out."""
        self._is_over = True
        self._steps = None
        self._session.after_requests(lambda is_safe: self._session.close())
        self._session.after(LAST_WORDS_S, self._session.close)


def _nothing() -> None:
    """Do nothing: the client may send more."""
