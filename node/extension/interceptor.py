"""The interface of plug-ins that look at messages before they are routed: they may set headers, or refuse messages.

An interceptor is given messages as they were published, many at a time. It runs on the node's loop for each publish of
each client, so it must not wait, and a message should cost it some microseconds. Without one nothing is looked at.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from node.amqp.field_table import Field, Table, encode_table
from node.amqp.properties import Properties
from node.extension.setting import Settings

ROUTING_HEADERS: Final = frozenset({"CC", "BCC"})
"""Headers that an interceptor cannot set: they are routing keys, which were read before."""


class PublishTarget(NamedTuple):
    """The address of messages that a client publishes.   user, connection: the client's names for operators."""

    vhost: str
    user: str
    connection: str
    exchange: str
    routing_key: str


class InterceptedMessage:
    """A message before it is routed."""

    __slots__ = ("_content", "_decode", "_properties", "new_headers")

    def __init__(self, content: bytes, decode: Callable[[bytes], Properties]) -> None:
        """Make a message.   content: its frames.   decode: reads the properties in them."""
        self._content = content
        self._decode = decode
        self._properties: Properties | None = None
        self.new_headers: dict[str, Field] = {}
        """The headers that were set."""

    @property
    def properties(self) -> Properties:
        """The properties as they were published, which are decoded when they are asked for first."""
        if self._properties is None:
            self._properties = self._decode(self._content)
        return self._properties

    @property
    def headers(self) -> Table:
        """The headers as they were published; none if the message has none."""
        return self.properties.headers or {}

    def set_header(self, name: str, value: Field) -> None:
        """Set a header, whether the message has one of that name or not. Raises if it cannot be encoded."""
        assert name not in ROUTING_HEADERS, f"an interceptor cannot set the header {name}"
        encode_table({name: value})
        self.new_headers[name] = value


class MessageInterceptor(ABC):
    """Looks at all messages that clients of a node publish; a plug-in derives its own from it.

    There is one object on each node while the plug-in is enabled.
    """

    def __init__(self, settings: Settings) -> None:
        """Make the interceptor.   settings: those of the plug-in, by their keys."""
        self.settings = settings

    @abstractmethod
    def published(self, target: PublishTarget, messages: Sequence[InterceptedMessage]) -> str | None:
        """Look at messages of one address; return why all of them are refused, the text of a 406. None: they pass."""
