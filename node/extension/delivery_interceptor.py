"""The interface of plug-ins that look at messages on their way to clients: they may change them, or refuse them.

An interceptor is given messages of one queue and one consumer, many at a time. It runs on the node's loop for each
delivery, so it must not wait, and a message should cost it some microseconds. A change is seen by this client alone:
the queue keeps the message as it was published. Without an interceptor nothing is looked at.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from node.amqp.field_table import Field, Table, encode_table
from node.amqp.properties import Properties
from node.extension.setting import Settings


class DeliveryTarget(NamedTuple):
    """The client that messages go to.   user, connection: as operators see them.

    queue: the queue from which the messages come.   consumer: the consumer's tag; empty for basic.get.
    """

    vhost: str
    user: str
    connection: str
    queue: str
    consumer: str


class OutgoingMessage:
    """A message on its way to a client.

    exchange, routing_key: as it was published.   redelivered: it was delivered before.
    """

    __slots__ = (
        "_content",
        "_decode",
        "_decoded",
        "exchange",
        "is_refused",
        "new_body",
        "new_headers",
        "redelivered",
        "routing_key",
    )

    def __init__(
        self,
        content: bytes,
        decode: Callable[[bytes], tuple[Properties, bytes]],
        *,
        exchange: str,
        routing_key: str,
        redelivered: bool,
    ) -> None:
        """Make a message.   content: its frames.   decode: reads the properties and the body in them."""
        self.exchange = exchange
        self.routing_key = routing_key
        self.redelivered = redelivered
        self._content = content
        self._decode = decode
        self._decoded: tuple[Properties, bytes] | None = None
        self.new_headers: dict[str, Field] = {}
        """The headers that were set."""
        self.new_body: bytes | None = None
        """The body that was set; None: the message keeps its own."""
        self.is_refused = False
        """True if this client must not get the message."""

    @property
    def properties(self) -> Properties:
        """The properties as they were published, which are decoded when they are asked for first."""
        return self._parts()[0]

    @property
    def headers(self) -> Table:
        """The headers as they were published; none if the message has none."""
        return self.properties.headers or {}

    @property
    def body(self) -> bytes:
        """The body as it was published."""
        return self._parts()[1]

    def set_header(self, name: str, value: Field) -> None:
        """Set a header, whether the message has one of that name or not. Raises if it cannot be encoded."""
        encode_table({name: value})
        self.new_headers[name] = value

    def set_body(self, body: bytes) -> None:
        """Replace the body."""
        assert isinstance(body, bytes), "a body is bytes"
        self.new_body = body

    def refuse(self) -> None:
        """Keep the message from this client: it is rejected in the client's place.

        So it goes to its queue's dead-letter exchange, or is dropped without one.
        """
        self.is_refused = True

    def _parts(self) -> tuple[Properties, bytes]:
        if self._decoded is None:
            self._decoded = self._decode(self._content)
        return self._decoded


class DeliveryInterceptor(ABC):
    """Looks at all messages that go to clients of a node; a plug-in derives its own from it.

    There is one object on each node while the plug-in is enabled.
    """

    def __init__(self, settings: Settings) -> None:
        """Make the interceptor.   settings: those of the plug-in, by their keys."""
        self.settings = settings

    @abstractmethod
    def delivering(self, target: DeliveryTarget, messages: Sequence[OutgoingMessage]) -> None:
        """Look at messages for one client; change or refuse some of them, or let them pass."""
