"""The interface of plug-ins that speak another protocol: a listener, its connections, and the session of each.

The node accepts sockets, with TLS, the PROXY protocol and its limits, and makes a `ProtocolConnection` for each. That
reads bytes and asks its `Session` for what the client wants; the session follows AMQP's rules for permissions,
confirms, alarms and flow. While the client is held back, nothing is read, and what was asked is carried out in order.

    socket ─► received(bytes) ─► session.publish, consume, ack …
    socket ◄─ session.write(bytes) ◄─ delivered, answers

All methods are called on the node's loop: they must not wait. What a connection asks for in one `received` is carried
out as one batch, and messages of one delivery come together.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple, Protocol

from node.amqp.constants import ReplyCode
from node.amqp.field_table import Table
from node.amqp.properties import Properties
from node.extension.auth_backend import Challenge
from node.extension.setting import Setting, Settings

TCP_LISTENERS: Final = "listeners.tcp"
"""The settings of each plug-in with a listener that say where it listens begin like this."""

SSL_LISTENERS: Final = "listeners.ssl"
"""The same, with TLS."""

NO_LISTENER: Final = "none"

_LOOPBACK_ONLY: Final = "can only connect via localhost"
_NOT_FOUND: Final = " not found"
"""The ends of the node's texts, which are RabbitMQ's."""


class Peer(NamedTuple):
    """The client's end.   address, local: `IP:PORT`.   certificate_user: the name that a certificate proves."""

    address: str
    local: str
    is_tls: bool
    certificate_user: str | None


class Refusal(NamedTuple):
    """The node's refusal.   code: AMQP's, such as 403 or 404.   text: AMQP's."""

    code: int
    text: str

    @property
    def is_of_remote(self) -> bool:
        """True if a login was refused, as the user may log in from the node's machine only."""
        return self.text.endswith(_LOOPBACK_ONLY)

    @property
    def is_of_missing_vhost(self) -> bool:
        """True if a vhost that was to be opened does not exist."""
        return self.code == ReplyCode.NOT_ALLOWED and self.text.endswith(_NOT_FOUND)


class Authenticated(NamedTuple):
    """The end of an authentication in several steps.   user: who the client is.   data: the last bytes for it."""

    user: str
    data: bytes


class QueueFacts(NamedTuple):
    """The declaration of a queue that exists."""

    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Table


class QueueBinding(NamedTuple):
    """A binding that leads to a queue."""

    exchange: str
    routing_key: str
    arguments: Table


class Delivery(NamedTuple):
    """A message for a consumer.   consumer: empty if it was got.   tag: for `ack` and `nack`.

    properties: shared with others; not to be changed.   varying: the text of the listener's `varying_header`, which is
    then not among the headers; None: the message has none, or was got.
    """

    consumer: str
    tag: int
    exchange: str
    routing_key: str
    redelivered: bool
    properties: Properties
    body: bytes
    varying: bytes | None = None


class Session(Protocol):
    """The node, as one client of another protocol uses it.

    Answers come by callbacks, at once or later, each once, and none after the connection is gone. `log_in` comes first,
    then `open`, then all else. Declarations are carried out in their order, beside messages: what needs a queue or a
    binding waits for its answer. Texts of names are at most 255 bytes.
    """

    @property
    def peer(self) -> Peer:
        """The client's end."""

    @property
    def now(self) -> float:
        """The node's clock, in seconds; it is monotonic."""

    @property
    def is_held_back(self) -> bool:
        """True while nothing is read from the client, so its silence is the node's doing."""

    @property
    def message_max_bytes(self) -> int:
        """The size of the largest body that the node takes."""

    def random_bytes(self, size: int) -> bytes:
        """Return so many random bytes."""

    @property
    def wall_ms(self) -> int:
        """The time of day, in milliseconds since 1970."""

    def write(self, data: bytes) -> None:
        """Send bytes to the client, at the end of the turn."""

    def close(self) -> None:
        """Close the connection when all that was written is sent. What was asked in this read is dropped."""

    def hold_reading(self, is_held: bool) -> None:
        """Read nothing more from the client, or read on: what it sends meanwhile stays in the system's buffers."""

    def after_requests(self, on_done: Callable[[bool], None], *, is_confirmed: bool = False) -> None:
        """Call back when all publishes and settlements that were asked for before have been carried out.

        is_confirmed: wait for the confirms of those publishes, too.
        on_done: called with False if any publish of this session was refused by its queue.
        """

    def name_protocol(self, protocol: str) -> None:
        """Show operators which version of the protocol the client speaks, such as `MQTT 5-0`."""

    def name_client(self, name: str) -> None:
        """Show operators the name that the client gave itself."""

    def describe(self, properties: Mapping[str, str], facts: Mapping[str, str | bool]) -> None:
        """Show operators what the client is.

        properties: shown as an AMQP client's own, such as `product`.
        facts: columns of the command that lists the protocol's connections, such as `session_id`.
        """

    def claim_name(self, name: str, on_done: Callable[[], None]) -> None:
        """Be the only connection of the plug-in, or of its namespace, in the vhost, with a name.

        The one that has the name, on any node that is up, is told that it is `replaced`, and has ended when `on_done`
        is called. Of two that claim a name at the same time the later one has it.
        """

    def after(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back in so many seconds, unless the connection is gone. Returns: a function that cancels it."""

    def log_in(self, user: str, password: bytes | None, on_done: Callable[[Refusal | None], None]) -> None:
        """Log the client in.   password: None if a certificate proved the name."""

    def offers_method(self, method: str) -> bool:
        """True if an auth backend offers to authenticate clients in several steps by a method of that name."""

    def authenticate(
        self, method: str, data: bytes, on_done: Callable[[Challenge | Authenticated | Refusal], None]
    ) -> None:
        """Authenticate the client in several steps, by a method that is offered; it takes the place of `log_in`.

        data: the client's first bytes, or its answer to the last challenge; one step at a time.
        A client that is logged in may authenticate again, as the same user.
        """

    def open(self, vhost: str, on_done: Callable[[Refusal | None], None]) -> None:
        """Open a vhost for the user."""

    def global_parameter(self, name: str) -> object:
        """Return the value of a global parameter, as JSON has it; None: there is none."""

    def declare_queue(
        self,
        queue: str,
        on_done: Callable[[Refusal | None], None],
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Table | None = None,
        as_node: bool = False,
    ) -> None:
        """Declare a queue. One that is there already must be alike.

        as_node: with the node's rights, and one that is there already need not be alike; not for exclusive ones.
        """

    def declare_unnamed_queue(self, on_done: Callable[[Refusal | None, str], None]) -> None:
        """Declare a queue of this connection alone, which is deleted after its last consumer.

        on_done: called with the name that the node has chosen, too.
        """

    def declare_exchange(
        self,
        exchange: str,
        type_: str,
        on_done: Callable[[Refusal | None], None],
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
        as_node: bool = False,
    ) -> None:
        """Declare an exchange. One that is there already must be alike.

        as_node: with the node's rights, for an exchange that the protocol needs, and that no client declares or
        deletes if its name begins with `amq.`.
        """

    def bind_exchange(
        self, destination: str, source: str, routing_key: str, on_done: Callable[[Refusal | None], None]
    ) -> None:
        """Bind an exchange to another one, with the node's rights."""

    def find_queue(self, queue: str) -> QueueFacts | None:
        """Return the declaration of a queue; None: there is no such queue."""

    def bindings(self, queue: str) -> Sequence[QueueBinding] | None:
        """Return the bindings of a queue, without that of the default exchange; None: there is no such queue."""

    def has_exchange(self, exchange: str) -> bool:
        """True if there is an exchange of that name."""

    def delete_queue(self, queue: str, on_done: Callable[[Refusal | None], None]) -> None:
        """Delete a queue; one that is not there is deleted."""

    def bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        on_done: Callable[[Refusal | None], None],
        arguments: Table | None = None,
        *,
        as_node: bool = False,
    ) -> None:
        """Bind a queue to an exchange.   as_node: with the node's rights instead of the user's."""

    def unbind(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        on_done: Callable[[Refusal | None], None],
        arguments: Table | None = None,
        *,
        as_node: bool = False,
    ) -> None:
        """Remove a binding; one that is not there is removed.   as_node: as for `bind`."""

    def check_publish(
        self, exchange: str, routing_key: str, on_done: Callable[[Refusal | None], None]
    ) -> None:
        """Ask whether the user may publish to an exchange with a routing key."""

    def publish(
        self,
        exchange: str,
        routing_key: str,
        properties: Properties,
        body: bytes,
        on_confirm: Callable[[bool], None] | None = None,
        *,
        as_node: bool = False,
    ) -> None:
        """Publish a message.

        on_confirm: called with True once it is as safe as a confirmed message, False if not.
        properties: not to be changed afterwards. Messages that have the same object, address and size cost least.
        as_node: with the node's rights; the exchange is then one that clients do not publish to.
        """

    def publish_run(
        self,
        exchange: str,
        routing_key: str,
        properties: Properties,
        bodies: Sequence[bytes],
        on_confirms: Sequence[Callable[[bool], None]] = (),
        *,
        varying: Sequence[bytes] = (),
        as_node: bool = False,
    ) -> None:
        """Publish messages that differ in their bodies only.   on_confirms: as `on_confirm`, one for each; or none.

        varying: the texts of the listener's `varying_header`, one for each; or none.   as_node: as for `publish`.
        """

    def consume(
        self,
        queue: str,
        consumer: str,
        on_done: Callable[[], None],
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        prefetch: int = 0,
        arguments: Table | None = None,
    ) -> None:
        """Have messages of a queue delivered.   consumer: a tag that no other consumer of the session has.

        prefetch: how many may be unsettled at a time; 0: any number.
        """

    def get(self, queue: str, on_message: Callable[[Delivery | None], None]) -> None:
        """Get the first message of a queue, to be settled as a delivery; None: the queue is empty."""

    def cancel(self, consumer: str, on_done: Callable[[], None]) -> None:
        """Have no more messages delivered to a consumer."""

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Settle a delivery, or all up to it: its messages leave the queue."""

    def ack_all(self, tags: Sequence[int]) -> None:
        """Settle deliveries, each by itself; those whose tags follow each other cost least."""

    def nack(self, tag: int, *, requeue: bool, multiple: bool = False) -> None:
        """Give a delivery back to its queue, or have it dead-lettered or dropped."""


class ProtocolConnection(ABC):
    """One client of another protocol; a plug-in derives its own from it."""

    @abstractmethod
    def received(self, data: bytes) -> None:
        """Take bytes from the client, as they came."""

    @abstractmethod
    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        """Take messages of consumers, at least one."""

    def cancelled(self, consumer: str) -> None:
        """Note that a consumer has ended, as its queue is gone."""
        return

    def flush(self) -> None:
        """Write what has gathered: all that the broker has to say in this turn has been told."""
        return

    def leaving(self) -> Sequence[int]:
        """Return the tags of deliveries that are dead-lettered as the connection ends; all others go back."""
        return ()

    def replaced(self) -> None:
        """Write the last words: another connection has claimed the name of this one, which ends."""
        return

    def ended(self, reason: Refusal) -> None:
        """Write the last words: a refused publish, consume or settlement, or the node, ends the connection."""
        return

    def finish(self, on_done: Callable[[], None]) -> None:
        """Call back when all that has come has been asked for: a client over WebSocket has closed it in good order."""
        on_done()

    def lost(self) -> None:
        """Note that the socket is gone. The session does nothing more."""
        return


class ProtocolListener(ABC):
    """A protocol with a port of its own; a plug-in derives its own from it.

    name: of the listener, in small letters.   protocol: as operators see it, such as `MQTT 3.1.1`.
    default_port: where it listens unless settings `listeners.tcp.NAME` say `PORT` or `IP:PORT`, or `listeners.tcp` says
    `none`. Settings `listeners.ssl.NAME` open listeners with TLS, with the node's certificate.
    namespace: another plug-in whose clients have their names in common with these; empty: there is none.
    has_consumer_timeout: a consumer that settles nothing for `consumer_timeout` ends the connection, as in AMQP.
    varying_header: a header whose texts differ from message to message; empty: there is none. Deliveries have it beside
    their properties, and `publish_run` takes one for each message, so that all else is encoded and decoded once.
    There is one object on each node while the plug-in is enabled.
    """

    name: ClassVar[str]
    protocol: ClassVar[str]
    default_port: ClassVar[int]
    namespace: ClassVar[str] = ""
    has_consumer_timeout: ClassVar[bool] = True
    varying_header: ClassVar[str] = ""

    @classmethod
    def port_settings(cls) -> tuple[Setting, ...]:
        """Return the settings that say where it listens."""
        return (
            Setting(f"{TCP_LISTENERS}.$name", "", f"PORT or IP:PORT; without any: {cls.default_port}"),
            Setting(TCP_LISTENERS, "", "none: no listener without TLS", choices=(NO_LISTENER,)),
            Setting(f"{SSL_LISTENERS}.$name", "", "PORT or IP:PORT, with TLS; without any: no listener"),
            Setting(SSL_LISTENERS, "", "none: no listener with TLS", choices=(NO_LISTENER,)),
        )

    @classmethod
    def addresses(cls, settings: Settings) -> Sequence[tuple[str, bool]]:
        """Return where it listens: each `PORT` or `IP:PORT`, and whether it does so with TLS."""
        plain = _named(settings, TCP_LISTENERS, [str(cls.default_port)])
        return [
            *((each, False) for each in plain),
            *((each, True) for each in _named(settings, SSL_LISTENERS, [])),
        ]

    def __init__(self, settings: Settings) -> None:
        """Make the listener.

        settings: those of the plug-in by their keys, and those that it borrows by whole keys.
        """
        self.settings = settings

    @abstractmethod
    def connection(self, session: Session) -> ProtocolConnection:
        """Return the connection of a new client."""


def _named(settings: Settings, stem: str, default: Sequence[str]) -> list[str]:
    """Return the addresses of the listeners that settings name; the default if they name none."""
    if settings[stem] == NO_LISTENER:
        return []
    named = [str(value) for key, value in settings.items() if key.startswith(f"{stem}.")]
    return [each for each in named or default if each != NO_LISTENER]
