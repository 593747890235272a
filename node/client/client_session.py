"""The session that a plug-in's connection is given: each wish becomes a method of AMQP for the broker."""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, Protocol

from node.amqp.constants import FRAME_END, FRAME_METHOD
from node.amqp.field_table import Table, longstr
from node.amqp.frames import method_frame
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicQos,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueUnbind,
)
from node.amqp.properties import Properties
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Bind, Command, DeclareExchange, DeclareQueue, Unbind
from node.client.endpoint import ClientEndpoint
from node.client.host import ClientHost
from node.client.publish_frames import PublishFrames
from node.client.session_input import AckRuns, Asked, PublishRun
from node.client.session_topology import bindings_of, find_queue
from node.extension.auth_backend import Challenge
from node.extension.protocol import Authenticated, Delivery, Peer, QueueBinding, QueueFacts, Refusal

MESSAGES: Final = 1
"""The channel of publishes, consumers and settlements."""

TOPOLOGY: Final = 2
"""The channel of declarations."""

_UID_BYTES: Final = 16

_ACK: Final = Struct(">BHIHHQBB")
_ACK_HEAD: Final = FRAME_METHOD, MESSAGES, 13, BasicAck.class_id, BasicAck.method_id
"""The frame of a `basic.ack`, which is made for each message that is settled: type, channel, size, method."""

_FENCE: Final = method_frame(MESSAGES, BasicQos())

OnDone = Callable[[Refusal | None], None]


def call_all(on_confirms: Sequence[Callable[[bool], None]], is_safe: bool) -> None:
    """Tell what waits for the confirms of messages that all were taken, or refused."""
    for on_confirm in on_confirms:
        on_confirm(is_safe)


class Speaker(Protocol):
    """The connection behind a session; `node.client.session` explains its methods."""

    peer: ClientEndpoint
    client_name: str | None
    client_properties: Table
    protocol: str
    protocol_facts: Mapping[str, str | bool]
    vhost: str

    @property
    def broker(self) -> ClientHost: ...
    @property
    def now(self) -> float: ...
    @property
    def wall_ms(self) -> int: ...
    @property
    def is_reading(self) -> bool: ...

    @property
    def message_max_bytes(self) -> int: ...
    @property
    def declared_queue(self) -> str: ...
    @property
    def last_asked(self) -> Asked | None: ...

    def random_bytes(self, size: int) -> bytes: ...
    def write(self, data: bytes) -> None: ...
    def end_in_order(self) -> None: ...
    def hold_reading(self, is_held: bool) -> None: ...
    def claim_name(self, name: str, on_done: Callable[[], None]) -> None: ...
    def after(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]: ...
    def log_in(self, user: str, password: bytes | None, on_done: OnDone) -> None: ...
    def authenticate(
        self, method: str, data: bytes, on_done: Callable[[Challenge | Authenticated | Refusal], None]
    ) -> None: ...
    def open(self, vhost: str, on_done: OnDone) -> None: ...
    def ask_broker(self, frames: Asked) -> None: ...
    def ask_topology(self, method: Method, on_done: OnDone) -> None: ...
    def after_requests(
        self, frames: bytes, on_done: Callable[[bool], None], *, is_confirmed: bool
    ) -> None: ...
    def ask_log(self, command: Command[Any], on_done: OnDone) -> None: ...
    def check_publish(self, exchange: str, routing_key: str, on_done: OnDone) -> None: ...
    def allow(self, exchange: str) -> None: ...
    def publish(
        self, request: Asked | None, count: int, on_confirms: Sequence[Callable[[bool], None]]
    ) -> None: ...
    def get(self, frames: bytes, on_message: Callable[[Delivery | None], None]) -> None: ...
    def consume(self, frames: bytes, consumer: str, on_done: Callable[[], None]) -> None: ...
    def cancel(self, frames: bytes, consumer: str, on_done: Callable[[], None]) -> None: ...


class ClientSession:
    """Implements `node.extension.protocol.Session`, which documents the methods."""

    def __init__(self, speaker: Speaker, catalogue: Catalogue, varying: str = "") -> None:
        self._speaker = speaker
        self._catalogue = catalogue
        end = speaker.peer
        self.peer = Peer(end.address, end.local, end.is_tls, end.certificate_user)
        self._publish_frames = PublishFrames(MESSAGES, varying)

    @property
    def now(self) -> float:
        """The node's clock."""
        return self._speaker.now

    @property
    def is_held_back(self) -> bool:
        """True while nothing is read from the client."""
        return not self._speaker.is_reading

    @property
    def message_max_bytes(self) -> int:
        """The size of the largest body."""
        return self._speaker.message_max_bytes

    def random_bytes(self, size: int) -> bytes:
        """Return random bytes."""
        return self._speaker.random_bytes(size)

    @property
    def wall_ms(self) -> int:
        """The time of day, in milliseconds since 1970."""
        return self._speaker.wall_ms

    def write(self, data: bytes) -> None:
        """Send bytes to the client."""
        self._speaker.write(data)

    def close(self) -> None:
        """Close the connection when all that was written is sent."""
        self._speaker.end_in_order()

    def after_requests(self, on_done: Callable[[bool], None], *, is_confirmed: bool = False) -> None:
        """Call back when all publishes and settlements so far have been carried out.

        `basic.qos` is answered after them. Its value is for later consumers, each of which brings its own.
        """
        self._speaker.after_requests(_FENCE, on_done, is_confirmed=is_confirmed)

    def hold_reading(self, is_held: bool) -> None:
        """Read nothing more, or read on."""
        self._speaker.hold_reading(is_held)

    def name_protocol(self, protocol: str) -> None:
        """Show operators the protocol's version."""
        self._speaker.protocol = protocol

    def name_client(self, name: str) -> None:
        """Show operators the client's name."""
        self._speaker.client_name = name

    def describe(self, properties: Mapping[str, str], facts: Mapping[str, str | bool]) -> None:
        """Show operators what the client is."""
        self._speaker.client_properties = {name: longstr(text) for name, text in properties.items()}
        self._speaker.protocol_facts = facts

    def claim_name(self, name: str, on_done: Callable[[], None]) -> None:
        """Be the only connection with a name."""
        self._speaker.claim_name(name, on_done)

    def after(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back in so many seconds."""
        return self._speaker.after(seconds, callback)

    def log_in(self, user: str, password: bytes | None, on_done: OnDone) -> None:
        """Log the client in."""
        self._speaker.log_in(user, password, on_done)

    def offers_method(self, method: str) -> bool:
        """True if an auth backend offers a method of authentication in several steps."""
        authority = self._speaker.broker.authority
        return authority is not None and authority.offers(method)

    def authenticate(
        self, method: str, data: bytes, on_done: Callable[[Challenge | Authenticated | Refusal], None]
    ) -> None:
        """Authenticate the client in several steps."""
        self._speaker.authenticate(method, data, on_done)

    def open(self, vhost: str, on_done: OnDone) -> None:
        """Open a vhost."""
        self._speaker.open(vhost, on_done)

    def global_parameter(self, name: str) -> object:
        """Return the value of a global parameter."""
        return self._catalogue.global_parameter(name)

    # --- declarations ---

    def declare_queue(
        self,
        queue: str,
        on_done: OnDone,
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Table | None = None,
        as_node: bool = False,
    ) -> None:
        """Declare a queue."""
        if as_node:
            assert not exclusive, "a queue that the node declares belongs to no connection"
            uid = self._speaker.random_bytes(_UID_BYTES).hex()
            command = DeclareQueue(
                self._speaker.vhost,
                queue,
                uid,
                durable=durable,
                auto_delete=auto_delete,
                arguments=arguments or {},
            )
            self._speaker.ask_log(command, on_done)
            return
        method = QueueDeclare(
            queue=queue,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=arguments or {},
        )
        self._speaker.ask_topology(method, on_done)

    def declare_unnamed_queue(self, on_done: Callable[[Refusal | None, str], None]) -> None:
        """Declare a queue of this connection alone."""
        method = QueueDeclare(queue="", exclusive=True, auto_delete=True)
        self._speaker.ask_topology(method, lambda refusal: on_done(refusal, self._speaker.declared_queue))

    def declare_exchange(
        self,
        exchange: str,
        type_: str,
        on_done: OnDone,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
        as_node: bool = False,
    ) -> None:
        """Declare an exchange."""
        if as_node:
            command = DeclareExchange(
                self._speaker.vhost,
                exchange,
                type_,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments or {},
            )
            self._speaker.ask_log(command, on_done)
            return
        method = ExchangeDeclare(
            exchange=exchange,
            type=type_,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments or {},
        )
        self._speaker.ask_topology(method, on_done)

    def bind_exchange(self, destination: str, source: str, routing_key: str, on_done: OnDone) -> None:
        """Bind an exchange to another one."""
        self._speaker.ask_log(
            Bind(self._speaker.vhost, source, "exchange", destination, routing_key), on_done
        )

    def find_queue(self, queue: str) -> QueueFacts | None:
        """Return the declaration of a queue."""
        return find_queue(self._catalogue, self._speaker.vhost, queue)

    def bindings(self, queue: str) -> Sequence[QueueBinding] | None:
        """Return the bindings of a queue."""
        return bindings_of(self._catalogue, self._speaker.vhost, queue)

    def has_exchange(self, exchange: str) -> bool:
        """True if there is an exchange of that name."""
        return self._catalogue.exchange(self._speaker.vhost, exchange) is not None

    def delete_queue(self, queue: str, on_done: OnDone) -> None:
        """Delete a queue."""
        self._speaker.ask_topology(QueueDelete(queue=queue), on_done)

    def bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        on_done: OnDone,
        arguments: Table | None = None,
        *,
        as_node: bool = False,
    ) -> None:
        """Bind a queue."""
        if as_node:
            command = Bind(self._speaker.vhost, exchange, "queue", queue, routing_key, arguments or {})
            self._speaker.ask_log(command, on_done)
            return
        bind = QueueBind(queue=queue, exchange=exchange, routing_key=routing_key, arguments=arguments or {})
        self._speaker.ask_topology(bind, on_done)

    def unbind(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        on_done: OnDone,
        arguments: Table | None = None,
        *,
        as_node: bool = False,
    ) -> None:
        """Remove a binding."""
        if as_node:
            command = Unbind(self._speaker.vhost, exchange, "queue", queue, routing_key, arguments or {})
            self._speaker.ask_log(command, on_done)
            return
        unbind = QueueUnbind(
            queue=queue, exchange=exchange, routing_key=routing_key, arguments=arguments or {}
        )
        self._speaker.ask_topology(unbind, on_done)

    def check_publish(self, exchange: str, routing_key: str, on_done: OnDone) -> None:
        """Ask whether the user may publish."""
        self._speaker.check_publish(exchange, routing_key, on_done)

    # --- messages ---

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
        """Publish a message. The broker takes messages with the same exchange and key as one run."""
        if as_node:
            self._speaker.allow(exchange)
        on_confirms = () if on_confirm is None else (on_confirm,)
        frames, last = self._publish_frames, self._speaker.last_asked
        request: Asked | None
        if isinstance(last, bytes) or len(body) > self._speaker.message_max_bytes:
            request = frames.frames(exchange, routing_key, properties, body)
        elif not isinstance(last, PublishRun):
            request = frames.run_of_one(exchange, routing_key, properties, body)
        elif frames.adds_to(last, exchange, routing_key, properties, body):
            request = None
        else:  # messages to several addresses cost least as frames, which are read as one series
            request = frames.frames(exchange, routing_key, properties, body)
        self._speaker.publish(request, 1, on_confirms)

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
        """Publish messages that differ in their bodies only, and in the header that varies."""
        if as_node:
            self._speaker.allow(exchange)
        run = self._publish_frames.run(exchange, routing_key, properties, bodies, varying)
        is_short = max(run.size, *map(len, bodies)) <= self._speaker.message_max_bytes
        self._speaker.publish(run if is_short else run.frames(), len(bodies), on_confirms)

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
        """Have messages of a queue delivered."""
        method = BasicConsume(
            queue=queue, consumer_tag=consumer, no_ack=no_ack, exclusive=exclusive, arguments=arguments or {}
        )
        frames = method_frame(MESSAGES, BasicQos(prefetch_count=prefetch)) + method_frame(MESSAGES, method)
        self._speaker.consume(frames, consumer, on_done)

    def get(self, queue: str, on_message: Callable[[Delivery | None], None]) -> None:
        """Get the first message of a queue."""
        self._speaker.get(method_frame(MESSAGES, BasicGet(queue=queue)), on_message)

    def cancel(self, consumer: str, on_done: Callable[[], None]) -> None:
        """Have no more messages delivered to a consumer."""
        frames = method_frame(MESSAGES, BasicCancel(consumer_tag=consumer))
        self._speaker.cancel(frames, consumer, on_done)

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Settle deliveries."""
        last = self._speaker.last_asked
        if multiple or isinstance(last, bytes):
            self._speaker.ask_broker(_ACK.pack(*_ACK_HEAD, tag, multiple, FRAME_END))
        elif isinstance(last, AckRuns):
            last.add(tag)
        else:
            self._speaker.ask_broker(AckRuns(MESSAGES, (tag,)))

    def ack_all(self, tags: Sequence[int]) -> None:
        """Settle deliveries, each by itself."""
        self._speaker.ask_broker(AckRuns(MESSAGES, tags))

    def nack(self, tag: int, *, requeue: bool, multiple: bool = False) -> None:
        """Give deliveries back, or away."""
        self._speaker.ask_broker(method_frame(MESSAGES, BasicNack(tag, multiple, requeue)))
