"""The connection of a client of another protocol: a plug-in reads and writes bytes, and this speaks AMQP for it.

To the broker it is a connection with two channels: publishes, consumers and settlements are on the first, declarations
on the second, where a refusal harms nothing. So whatever holds for AMQP's clients holds here: permissions, limits,
alarms, flow, statistics. An exception in the plug-in ends this connection and nothing else.

    socket ─► received ─► ProtocolConnection ─► Session ─► frames ─► Connection ─► broker
    socket ◄─ write    ◄─ ProtocolConnection ◄─ callbacks ◄─ frames ◄─┘
`_listen` and `_confirmed` are hot: called for each turn with deliveries and each flush of confirms.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Final

from node.amqp.connection_state import ConnectionState
from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.frames import method_frame
from node.amqp.method_codec import decode_method
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsumeOk,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    Method,
    QueueDeclareOk,
)
from node.catalogue.access import LoginRefused
from node.catalogue.commands import Command
from node.catalogue.records import User
from node.client.authority import Admitted
from node.client.backlog import PIECE_BYTES, Backlog
from node.client.channel import Channel
from node.client.client_session import MESSAGES, TOPOLOGY, ClientSession, call_all
from node.client.confirms import Confirms
from node.client.connection import ConnectionHost
from node.client.delivery_reader import DeliveryReader, got_delivery
from node.client.endpoint import ClientEndpoint
from node.client.login import log_in, open_vhost
from node.client.method_stream import Sent
from node.client.publishing import Route
from node.client.rights import Rights
from node.client.sasl import Credentials
from node.client.session_authentication import Outcome, SessionAuthentication
from node.client.session_input import Asked
from node.client.session_output import ToldConnection
from node.client.session_timers import SessionTimers
from node.client.session_topology import check_publish, submit_as_node
from node.extension.auth_backend import Challenge
from node.extension.protocol import Authenticated, Delivery, ProtocolConnection, ProtocolListener, Refusal
from node.override import override
from node.scheduling.turn import Share

_NO_FRAME_LIMIT: Final = 0
_CHANNELS: Final = 2

OnDone = Callable[[Refusal | None], None]


class SessionConnection(ToldConnection):
    """A connection whose client speaks the protocol of a plug-in's listener.

    plugin: the plug-in's name.
    """

    def __init__(
        self,
        broker: ConnectionHost,
        peer: ClientEndpoint,
        *,
        plugin: str,
        listener: ProtocolListener,
        now: float,
        on_change: Callable[[], None],
    ) -> None:
        super().__init__(broker, peer, now=now, on_change=on_change)
        self._handshake = None
        self.state = ConnectionState.AWAIT_START_OK
        self.protocol = listener.protocol
        self.plugin = plugin
        self.namespace = listener.namespace or plugin
        self._login_name = listener.name
        self._is_held = False
        self._backlog = Backlog()
        self._plugin_share = Share(broker.turns, self._backlog, self._read_backlog)
        self._deliveries = DeliveryReader(listener.varying_header)
        self._last_words: Refusal | None = None
        self._topology: deque[tuple[Method, OnDone]] = deque()
        """Declarations that have no answer; the first one is on its way."""
        self._started: dict[str, Callable[[], None]] = {}
        self._stopped: dict[str, Callable[[], None]] = {}
        self._unconfirmed: dict[int, Callable[[bool], None]] = {}
        self._published = 0
        self._fences: deque[Callable[[], None]] = deque()
        """Called by each answer to `basic.qos`: of a new consumer, or of a request that waits for those before it."""
        self._settling: deque[tuple[int, Callable[[bool], None]]] = deque()
        """Requests that wait for the confirms of all publishes up to a number."""
        self.declared_queue = ""
        """The name of the queue that was declared last."""
        self._got: deque[Callable[[Delivery | None], None]] = deque()
        self._allowed: set[str] = set()
        """The exchanges to which the plug-in publishes with the node's rights."""
        self._has_consumer_timeout = listener.has_consumer_timeout
        self._timers = SessionTimers(broker.timers)
        self._authentication = SessionAuthentication()
        self._on_opened: OnDone = lambda refusal: None
        self._was_refused = False
        self._client: ProtocolConnection | None = None
        session = ClientSession(self, broker.catalogue, listener.varying_header)
        try:
            self._client = listener.connection(session)
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            self._fault("make a connection", error)

    # --- the plug-in ---

    def tell(self, action: str, call: Callable[..., None], *arguments: object) -> None:
        """Call the plug-in; if it raises, end the connection."""
        if self._client is None:
            return
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            self._fault(action, error)

    def _fault(self, action: str, error: Exception) -> None:
        self._client = None
        self.broker.exchange_types.failed(self.plugin, f"{action} for {self.name}", error)
        self.finish()

    # --- bytes ---

    @override
    def receive_data(self, data: bytes, now: float) -> None:
        self.broker.now = now
        self.recv_oct += len(data)
        self.recv_cnt += 1
        if self._is_held or self._backlog.paused or self._plugin_share.has_to_wait(len(data)):
            self._backlog.keep(data)
        else:
            self._give(data)

    def _give(self, data: bytes) -> None:
        """Give the plug-in bytes for as long as its share of the turn lasts; what is left waits for another turn."""
        share, clock = self._plugin_share, self.broker.turns.clock
        share.begin()
        self._is_gathering = True
        for at in range(0, len(data), PIECE_BYTES):
            if self._is_held:
                self._backlog.keep(data[at:])
                break
            if at and clock() > share.ends_at:
                self._backlog.keep(data[at:])
                share.stop()
                break
            if self._client is not None:
                self.tell("read", self._client.received, data[at : at + PIECE_BYTES])
        self._is_gathering = False
        share.end()
        self._pass_on()

    def _read_backlog(self) -> None:
        self._backlog.paused = False
        if not self._is_held:
            self._give(self._backlog.take())
            self._on_change()

    def hold_reading(self, is_held: bool) -> None:
        """Read nothing more from the client, or read on."""
        self._is_held = is_held
        if not is_held and self._backlog.kept_bytes and not self._backlog.paused:
            self._backlog.paused = True
            self.broker.turns.line_up(self._plugin_share, is_short=True)
        self._on_change()

    @property
    @override
    def is_reading(self) -> bool:
        return not (self._is_held or self._backlog.paused) and super().is_reading

    @property
    @override
    def _awaits_confirms(self) -> bool:
        return bool(self._unconfirmed or self._settling)

    @override
    def _tell_all(self) -> None:
        confirms, self._confirms_said = self._confirms_said, []
        for method in confirms:
            self._confirmed(method)
        self._listen()
        if self._settling:
            self._check_settling()
        if self._client is not None:
            self.tell("flush", self._client.flush)

    def _listen(self) -> None:
        if not self._frames:
            return
        data = b"".join(self._frames)
        self._frames, self._frames_bytes = [], 0
        at, deliveries = 0, list[Delivery]()
        while (sent := self._deliveries.read(data, at)) is not None:
            if not isinstance(sent, Sent):
                start, (delivery, at) = at, sent
                deliveries.append(delivery)
                at = self._deliveries.more(data, start, at, deliveries)
                continue
            at = sent.end
            self._deliver(deliveries)
            if isinstance(sent.method, BasicGetOk):
                found = got_delivery(sent.method, sent.content)
                self.tell("take a message", self._got.popleft(), found)
            else:
                self._heard(sent.channel, sent.method)
        self._deliver(deliveries)

    def _deliver(self, deliveries: list[Delivery]) -> None:
        if deliveries and self._client is not None:
            self.tell("take messages", self._client.delivered, tuple(deliveries))
        deliveries.clear()

    def _heard(self, channel: int, method: Method) -> None:
        match method:
            case BasicAck() | BasicNack():
                self._confirmed(method)
            case BasicQosOk():
                self._fences.popleft()()
            case BasicConsumeOk():
                self._call("go on", self._started, method.consumer_tag)
            case BasicCancelOk():
                self._call("go on", self._stopped, method.consumer_tag)
            case BasicGetEmpty():
                self.tell("go on", self._got.popleft(), None)
            case BasicCancel():
                if self._client is not None:
                    self.tell("take a cancel", self._client.cancelled, method.consumer_tag)
            case ChannelClose() if channel == TOPOLOGY:
                self.ask_broker(method_frame(TOPOLOGY, ChannelCloseOk()))
                self.ask_broker(method_frame(TOPOLOGY, ChannelOpen()))
                self._answered_topology(Refusal(method.reply_code, method.reply_text))
            case ChannelClose():
                self._end(Refusal(method.reply_code, method.reply_text))
            case ChannelOpenOk():
                pass
            case _ if channel == TOPOLOGY:
                if isinstance(method, QueueDeclareOk):
                    self.declared_queue = method.queue
                self._answered_topology(None)

    def _call(self, action: str, waiting: dict[str, Callable[[], None]], consumer: str) -> None:
        on_done = waiting.pop(consumer, None)
        if on_done is not None:
            self.tell(action, on_done)

    # --- the handshake ---

    def log_in(self, user: str, password: bytes | None, on_done: OnDone) -> None:
        """Log the client in."""
        log_in(self, Credentials(user, password), self._login_name, partial(self._logged_in, user, on_done))

    def _logged_in(
        self, claimed: str, on_done: Callable[[Refusal], None] | OnDone, outcome: User | LoginRefused
    ) -> None:
        is_good = isinstance(outcome, User)
        observer = self.broker.observer
        self.broker.counters.count_login(self._login_name, is_good=is_good)
        if isinstance(outcome, LoginRefused):
            self._was_refused = True
            observer.login_tried(self, claimed, outcome.reason)
            observer.login_refused(self, self._login_name, outcome.reason)
            self.tell("take a refused login", on_done, Refusal(ReplyCode.ACCESS_REFUSED, outcome.reason))
            return
        observer.login_tried(self, outcome.name, "")
        self.user, self.auth_mechanism = outcome, self._login_name
        self.state = ConnectionState.AWAIT_OPEN
        self.tell("go on after a login", on_done, None)

    def authenticate(
        self, method: str, data: bytes, on_done: Callable[[Challenge | Authenticated | Refusal], None]
    ) -> None:
        """Authenticate the client in several steps, or go on with that."""
        user = None if self.state is ConnectionState.AWAIT_START_OK else self.user_name
        self._authentication.take(self, method, data, user, partial(self._authenticated, on_done))

    def _authenticated(
        self, on_done: Callable[[Challenge | Authenticated | Refusal], None], outcome: Outcome
    ) -> None:
        if isinstance(outcome, Admitted):
            said = Authenticated(outcome.user.name, outcome.data)
            if self.state is ConnectionState.AWAIT_START_OK:
                self._logged_in(said.user, lambda _: on_done(said), outcome.user)
            else:
                self.tell("go on after a login", on_done, said)
        elif isinstance(outcome, LoginRefused):
            self._logged_in("", on_done, outcome)
        else:
            self.tell("go on after a challenge", on_done, outcome)

    def open(self, vhost: str, on_done: OnDone) -> None:
        """Open a vhost for the user."""
        assert self.state is ConnectionState.AWAIT_OPEN, "a vhost is opened once, after the login"
        self._on_opened = on_done
        try:
            open_vhost(self, vhost, partial(self._has_opened, vhost, on_done))
        except ProtocolError as error:
            self._refuse_open(error, on_done)

    def _refuse_open(self, error: ProtocolError, on_done: OnDone) -> None:
        self.broker.observer.connection_failed(self, 0, error, "connection.open")
        self.tell("take a refused vhost", on_done, Refusal(error.code, error.reply_text))

    def _has_opened(self, vhost: str, on_done: OnDone, rights: Rights | None) -> None:
        self.tune(channel_max=_CHANNELS, frame_max_bytes=_NO_FRAME_LIMIT, heartbeat_s=0)
        self.capabilities = frozenset({"consumer_cancel_notify"})
        self.opened(vhost, rights)
        for number in (MESSAGES, TOPOLOGY):
            self.channels[number] = channel = Channel(number, self)
            self.broker.observer.channel_opened(channel)
        self.channels[MESSAGES].confirms = Confirms()
        self.tell("go on after an open", on_done, None)

    # --- declarations ---

    def ask_topology(self, method: Method, on_done: OnDone) -> None:
        """Carry out a declaration, after those before it."""
        self._topology.append((method, on_done))
        if len(self._topology) == 1:
            self.ask_broker(method_frame(TOPOLOGY, method))

    def _answered_topology(self, refusal: Refusal | None) -> None:
        _, on_done = self._topology.popleft()
        if self._topology:
            self.ask_broker(method_frame(TOPOLOGY, self._topology[0][0]))
        self.tell("go on after a declaration", on_done, refusal)

    def ask_log(self, command: Command[Any], on_done: OnDone) -> None:
        """Carry out a declaration with the node's rights."""
        if self.state is ConnectionState.OPEN:
            submit_as_node(self, command, partial(self.tell, "go on after a declaration", on_done))

    def check_publish(self, exchange: str, routing_key: str, on_done: OnDone) -> None:
        """Ask whether the user may publish to an exchange with a routing key."""
        check_publish(self, exchange, routing_key, partial(self.tell, "go on after a check", on_done))

    # --- messages ---

    def allow(self, exchange: str) -> None:
        """Have the plug-in publish to an exchange with the node's rights from now on."""
        self._allowed.add(exchange)

    @override
    def _new_route(self, number: int, method_frame: bytes) -> Route | None:
        publish = decode_method(method_frame[7:-1])
        if isinstance(publish, BasicPublish) and publish.exchange in self._allowed:
            self._routes.allow(self.channels[number], publish.exchange)
        return super()._new_route(number, method_frame)

    @override
    def _has_to_ask(self, channel: int, method_frame: bytes) -> bool:
        publish = decode_method(method_frame[7:-1])
        assert isinstance(publish, BasicPublish)
        return publish.exchange not in self._allowed and super()._has_to_ask(channel, method_frame)

    def get(self, frames: bytes, on_message: Callable[[Delivery | None], None]) -> None:
        """Get the first message of a queue."""
        self._got.append(on_message)
        self.ask_broker(frames)

    def publish(
        self, request: Asked | None, count: int, on_confirms: Sequence[Callable[[bool], None]]
    ) -> None:
        """Publish so many messages.   request: None if they are part of the last one.

        on_confirms: one for each, or none.
        """
        first = self._published + 1
        self._published += count
        if on_confirms:
            self._unconfirmed.update(zip(range(first, first + count), on_confirms, strict=True))
        if request is not None:
            self.ask_broker(request)

    def _confirmed(self, method: BasicAck | BasicNack) -> None:
        is_safe = isinstance(method, BasicAck)
        last = method.delivery_tag
        if not method.multiple:
            on_confirm = self._unconfirmed.pop(last, None)
            if on_confirm is not None:
                self.tell("take a confirm", on_confirm, is_safe)
            return
        numbers = list(takewhile(last.__ge__, self._unconfirmed))
        if numbers:
            callbacks = list(map(self._unconfirmed.pop, numbers))
            self.tell("take confirms", call_all, callbacks, is_safe)

    def after_requests(self, frames: bytes, on_done: Callable[[bool], None], *, is_confirmed: bool) -> None:
        """Call back when the broker has taken all frames so far.   frames: a `basic.qos`."""
        if self.state is not ConnectionState.OPEN:  # it has taken none
            self.tell("go on", on_done, True)
            return
        self._fences.append(partial(self._await_confirms if is_confirmed else self._call_settled, on_done))
        self.ask_broker(frames)

    def _await_confirms(self, on_done: Callable[[bool], None]) -> None:
        confirms = self._confirms
        if confirms is not None:
            self._settling.append((confirms.numbered, on_done))

    def _call_settled(self, on_done: Callable[[bool], None]) -> None:
        confirms = self._confirms
        if confirms is not None:
            self.tell("go on", on_done, not confirms.rejected)

    @property
    def _confirms(self) -> Confirms | None:
        """The confirms of the channel for messages; None once the connection has ended."""
        channel = self.channels.get(MESSAGES)
        return channel.confirms if channel is not None else None

    def _check_settling(self) -> None:
        """Tell those that wait for confirms which all have come."""
        confirms = self._confirms
        while confirms is not None and self._settling and confirms.first_outstanding > self._settling[0][0]:
            self._call_settled(self._settling.popleft()[1])

    def consume(self, frames: bytes, consumer: str, on_done: Callable[[], None]) -> None:
        """Have messages delivered."""
        self._started[consumer] = on_done
        self._fences.append(lambda: None)  # the answer to its `basic.qos` tells nothing
        self.ask_broker(frames)

    def cancel(self, frames: bytes, consumer: str, on_done: Callable[[], None]) -> None:
        """Have no more messages delivered."""
        self._stopped[consumer] = on_done
        self.ask_broker(frames)

    @override
    def check_consumer_timeouts(self, now: float) -> None:
        if self._has_consumer_timeout:
            super().check_consumer_timeouts(now)

    # --- names and reading ---

    def claim_name(self, name: str, on_done: Callable[[], None]) -> None:
        """Be the only connection of the namespace, in the vhost, with a name."""
        self.broker.client_names.claim(self, name, partial(self.tell, "go on with its name", on_done))

    def replaced(self) -> None:
        """End the connection: another one has claimed its name."""
        if self._client is not None:
            self.tell("take that it is replaced", self._client.replaced)
        if not self.is_finished:
            self.finish()

    # --- timers ---

    @property
    def now(self) -> float:
        """The broker's clock."""
        return self.broker.now

    @property
    def message_max_bytes(self) -> int:
        """The size of the largest message."""
        return self.broker.settings.message_max_bytes

    def random_bytes(self, size: int) -> bytes:
        """Return random bytes."""
        return self.broker.entropy(size)

    @property
    def wall_ms(self) -> int:
        """The time of day, in milliseconds since 1970."""
        return int((self.broker.now + self.broker.epoch_s) * 1000)

    def after(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call the plug-in back, unless the connection is gone by then. Returns: a function that cancels it."""
        return self._timers.at(self.broker.now + seconds, partial(self.tell, "do what it planned", callback))

    # --- the end ---

    def end_in_order(self) -> None:
        """Close the connection when all output is sent; after a refused login only after a pause."""
        if self._was_refused and self.state is ConnectionState.AWAIT_START_OK:
            self.fall_silent()
        elif not self.is_finished:
            self.finish()

    def _end(self, reason: Refusal) -> None:
        """End the connection for a refusal, or for a reason of ours."""
        if self._client is not None:
            self.tell("take a refusal", self._client.ended, reason)
        self._pass_on()  # what the plug-in wants to have removed
        self.finish()

    @override
    def send_close(self, error: ProtocolError) -> None:
        self._last_words = Refusal(error.code, error.reply_text)

    @override
    def fail(self, error: ProtocolError, channel: int = 0, method: str = "") -> None:
        if self.state is ConnectionState.AWAIT_OPEN:  # the auth backend has refused the vhost
            self._refuse_open(error, self._on_opened)
            return
        super().fail(error, channel, method)
        words, self._last_words = self._last_words, None
        if words is not None:
            self._end(words)

    @override
    def _release(self, on_done: Callable[[], None] = lambda: None) -> None:
        channel = self.channels.get(MESSAGES)
        if channel is not None and self._client is not None:
            self.tell("leave", self._leave, self._client, channel)
        super()._release(on_done)

    @override
    def _fail_channel(self, channel: Channel, error: ProtocolError, method: str = "") -> None:
        if channel.number == MESSAGES and self._client is not None:
            self.tell("leave", self._leave, self._client, channel)
        super()._fail_channel(channel, error, method)

    def _leave(self, client: ProtocolConnection, channel: Channel) -> None:
        for tag in client.leaving():
            channel.reject(channel.unacked.settle(tag, tag), requeue=False)

    @override
    def finish(self) -> None:
        self._timers.cancel_all()
        self._asked.clear()
        self.broker.client_names.forget(self)
        super().finish()

    @override
    def lost(self, now: float) -> None:
        self._timers.cancel_all()
        self.broker.client_names.forget(self)
        super().lost(now)
        self._frames.clear()
        self._confirms_said.clear()
        self._plugin_share.close()
        self._backlog.clear()
        if self._client is not None:
            self.tell("take its end", self._client.lost)
        self._client = None
        self._forget_callbacks()

    def _forget_callbacks(self) -> None:
        """Forget the plug-in's callbacks, so that its connection is freed at once."""
        self._on_opened = lambda refusal: None
        waiting = self._topology, self._fences, self._settling, self._got
        for each in (*waiting, self._started, self._stopped, self._unconfirmed):
            each.clear()
