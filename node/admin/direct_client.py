"""An AMQP client inside the node's process: the rules, error texts and permissions of a connection, without a socket.

    async with DirectClient(broker, user, "/") as client:
        await client.call(QueueDeclare(queue="q"))
        outcome = await client.publish("", "q", Properties(), b"body")

Operators' requests go this way: whatever a user may do over AMQP they may do over HTTP, and nothing else. There is one
channel. As with RabbitMQ's direct connections, alarms don't block it, and it counts against no limit.
Source: management §2.1 ("own permissions"), §2.4, §1.6 (type "direct").
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from node.admin.logins import may
from node.amqp.errors import ProtocolError
from node.amqp.frames import method_frame
from node.amqp.methods import (
    BasicAck,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicReturn,
    ChannelClose,
    ConfirmSelect,
    ConfirmSelectOk,
    Method,
)
from node.amqp.properties import Properties
from node.broker.local_connection import LocalConnection
from node.catalogue.access import check_vhost_access
from node.catalogue.records import User
from node.client.authority import BackendUser
from node.client.channel import Channel
from node.client.method_stream import method_at
from node.client.rights import Rights
from node.client.throttle import Throttle
from node.extension.auth_backend import VhostAccess
from node.override import override
from node.queue.content import decode_content, encode_content

if TYPE_CHECKING:
    from node.broker.broker import Broker

TIMEOUT_S: Final = 30.0
"""How long an answer may take: longer than a cluster takes to refuse a request that it cannot serve."""

_CHANNEL: Final = 1
_NO_FRAME_LIMIT: Final = 0

M = TypeVar("M", bound=Method)


class DirectTimeout(TimeoutError):
    """No answer came in time; the request may still be served."""


class Outcome(Enum):
    """The outcome of a publish.

    ROUTED: at least one queue has it.   UNROUTED: there was no queue for it.
    REJECTED: a queue is full and rejects publishes, or a queue that had it was lost.
    """

    ROUTED = "routed"
    UNROUTED = "unrouted"
    REJECTED = "rejected"


class Got(NamedTuple):
    """A message that was fetched.   message_count: ready messages that are left."""

    delivery_tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    message_count: int
    properties: Properties
    body: bytes


class DirectClient:
    """A client of one vhost, logged in as a user; open within `async with`.

    After an error it is of no use any more: each further request raises the same error.
    clock: as the broker's.   timeout_s: for each answer.
    """

    def __init__(
        self,
        broker: "Broker",
        user: User | str,
        vhost: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._broker = broker
        self._user = user
        self._vhost = vhost
        self._clock = clock
        self._timeout_s = timeout_s
        self._connection: _DirectConnection | None = None
        self._raw = bytearray()
        self._answers: deque[tuple[Method, bytes]] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self._is_confirming = False

    async def __aenter__(self) -> "DirectClient":
        """Open the connection. Raises: ProtocolError (530) without a permission for the vhost."""
        assert self._connection is None, "a client is opened once"
        user = self._user if isinstance(self._user, User) else self._broker.catalogue.user(self._user)
        rights: Rights | None = None
        if isinstance(user, BackendUser):
            rights = await self._backend_rights(user)
        else:
            check_vhost_access(self._broker.catalogue, user.name if user else str(self._user), self._vhost)
        assert user is not None, "a permission goes with its user"
        self._connection = _DirectConnection(
            self._broker,
            user,
            self._vhost,
            self._clock(),
            rights=rights,
            on_output=self._on_output,
            on_error=self._wake,
        )
        return self

    async def _backend_rights(self, user: BackendUser) -> Rights:
        """Return the rights of a user whom a plug-in's auth backend authorises. Raises: ProtocolError (530)."""
        assert self._broker.authority is not None, "only an authority makes such users"
        rights = Rights(self._broker.authority, user, self._vhost, "")
        try:
            is_allowed = await may(self._broker, user, VhostAccess(user.name, user.tags, self._vhost))
        except TimeoutError:
            raise DirectTimeout("the auth backend does not answer") from None
        if self._broker.catalogue.vhost(self._vhost) is None or not is_allowed:
            raise rights.vhost_refusal()
        return rights

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection: messages that were fetched and not settled go back to their queues."""
        assert self._connection is not None
        self._connection.leave(self._clock())

    async def call(self, method: Method) -> Any:
        """Send a method and await its answer.

        Raises: ProtocolError for what the broker refuses, DirectTimeout.
        """
        self.send(method)
        answer, _ = await self._next()
        return answer

    def send(self, method: Method) -> None:
        """Send a method that has no answer. Raises: ProtocolError after an earlier error."""
        self._feed(method_frame(_CHANNEL, method))

    async def publish(self, exchange: str, routing_key: str, properties: Properties, body: bytes) -> Outcome:
        """Publish a message, mandatory, and await its confirm.   Raises: ProtocolError, DirectTimeout."""
        if not self._is_confirming:
            answer = await self.call(ConfirmSelect())
            assert isinstance(answer, ConfirmSelectOk), answer
            self._is_confirming = True
        publish = method_frame(
            _CHANNEL, BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=True)
        )
        self._feed(publish + encode_content(properties, body, _CHANNEL, _NO_FRAME_LIMIT))
        outcome = Outcome.ROUTED
        while True:
            answer, _ = await self._next()
            match answer:
                case BasicReturn():
                    outcome = Outcome.UNROUTED
                case BasicAck():
                    return outcome
                case BasicNack():
                    return Outcome.REJECTED

    async def get(self, queue: str, *, no_ack: bool) -> Got | None:
        """Get a message; None: there is none. It can be settled by `send` until the client leaves.

        Raises: ProtocolError, DirectTimeout.
        """
        self._feed(method_frame(_CHANNEL, BasicGet(queue=queue, no_ack=no_ack)))
        answer, content = await self._next()
        if isinstance(answer, BasicGetEmpty):
            return None
        assert isinstance(answer, BasicGetOk), answer
        properties, body = decode_content(content)
        return Got(
            answer.delivery_tag,
            answer.redelivered,
            answer.exchange,
            answer.routing_key,
            answer.message_count,
            properties,
            body,
        )

    # --- to the connection and from it ---

    def _feed(self, data: bytes) -> None:
        assert self._connection is not None, "use it within `async with`"
        if self._connection.error is not None:
            raise self._connection.error
        self._connection.receive_data(data, self._clock())

    async def _next(self) -> tuple[Method, bytes]:
        """Await the next method, with its content."""
        assert self._connection is not None
        deadline = self._clock() + self._timeout_s
        while not self._answers:
            if self._connection.error is not None:
                raise self._connection.error
            self._arrival = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(deadline - self._clock()):
                    await self._arrival
            except TimeoutError:
                raise DirectTimeout(f"no answer within {self._timeout_s:g} s") from None
            finally:
                self._arrival = None
        return self._answers.popleft()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _on_output(self) -> None:
        """Take the connection's output, at the end of a turn."""
        assert self._connection is not None
        self._raw += b"".join(self._connection.take_output())
        self._connection.flushed()
        self._read_answers()
        self._wake()

    def _read_answers(self) -> None:
        """Take whole methods of the channel, with their contents, out of the output."""
        at = 0
        while (found := method_at(self._raw, at)) is not None:
            method, content, channel, at = found
            if channel == _CHANNEL and not isinstance(method, ChannelClose):  # which is known by its error
                self._answers.append((method, content))
        del self._raw[:at]


class _Unthrottled(Throttle):
    """A connection that alarms don't concern."""

    def alarm_began(self) -> None:
        """Do nothing: alarms don't block this connection."""


class _DirectConnection(LocalConnection):
    """A connection with one channel, which alarms don't hold back.

    error: why it, or its channel, is closed.   on_error: called when there is one.
    """

    def __init__(
        self,
        broker: "Broker",
        user: User,
        vhost: str,
        now: float,
        *,
        rights: Rights | None,
        on_output: Callable[[], None],
        on_error: Callable[[], None],
    ) -> None:
        super().__init__(
            broker,
            user,
            vhost,
            now,
            rights=rights,
            channel_max=1,
            frame_max_bytes=_NO_FRAME_LIMIT,
            on_output=on_output,
        )
        self._reader.watches_contents = False
        self.throttle = _Unthrottled(self, self._reader)
        self.work_at_once()
        self.error: ProtocolError | None = None
        self._on_error = on_error
        self.channels[_CHANNEL] = Channel(_CHANNEL, self)

    @override
    def _fail_channel(self, channel: Channel, error: ProtocolError, method: str = "") -> None:
        super()._fail_channel(channel, error, method)
        self._ended_by(error)

    @override
    def fail(self, error: ProtocolError, channel: int = 0, method: str = "") -> None:
        super().fail(error, channel, method)
        self._ended_by(error)

    def _ended_by(self, error: ProtocolError) -> None:
        self.error = self.error or error
        self._on_error()

    @override
    def leave(self, now: float) -> None:
        super().leave(now)
        self._on_error = lambda: None
        self.error = None  # its traceback refers to us
