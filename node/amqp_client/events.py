"""The events of a connection, which its owner is told in the order of the bytes that came."""

from typing import NamedTuple, TypeAlias

from node.amqp.field_table import Table
from node.amqp.methods import Method
from node.amqp_client.phase import Phase


class Opened(NamedTuple):
    """The handshake is done.   server_properties: of `connection.start`."""

    server_properties: Table


class Closed(NamedTuple):
    """The connection has ended; this is its last event.

    code: AMQP's, where the broker or we closed it by the protocol; 0 where the socket ended or never was.
    is_ours: True if `close` asked for it.   text: the reason.   phase: how far the connection had come.
    """

    code: int
    text: str
    is_ours: bool = False
    phase: Phase = Phase.RUNNING


class Answered(NamedTuple):
    """A request was answered.   request: as it was given to `call`.   content: of `basic.get-ok`, else empty."""

    channel: int
    request: Method
    answer: Method
    content: bytes = b""


class Delivered(NamedTuple):
    """A run of messages for one consumer, of one exchange and routing key; their tags are consecutive.

    contents: as in `node.amqp.frames`, each with the channel's number.
    """

    channel: int
    consumer_tag: str
    first_tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    contents: list[bytes]


class Confirmed(NamedTuple):
    """The broker has taken (or refused: is_ack False) the publishes with these numbers, both included.

    Each number is told once, however the broker groups its confirms.
    """

    channel: int
    first: int
    last: int
    is_ack: bool


class Returned(NamedTuple):
    """A mandatory message had no queue. Its confirm comes after this."""

    channel: int
    code: int
    text: str
    exchange: str
    routing_key: str
    content: bytes


class ConsumerCancelled(NamedTuple):
    """The broker has ended a consumer, as its queue has gone."""

    channel: int
    consumer_tag: str


class ChannelClosed(NamedTuple):
    """The broker has closed a channel for a fault of ours. Its requests that had no answer get none.

    request: the oldest request without an answer, which mostly is the one that failed; None if there was none.
    """

    channel: int
    code: int
    text: str
    class_id: int
    method_id: int
    request: Method | None


class Blocked(NamedTuple):
    """The broker takes no publishes for now.   reason: such as "low on memory"."""

    reason: str


class Unblocked(NamedTuple):
    """The broker takes publishes again."""


class Flow(NamedTuple):
    """The broker asks to stop publishing on a channel, or to go on; it was answered."""

    channel: int
    is_active: bool


Event: TypeAlias = (
    Opened
    | Closed
    | Answered
    | Delivered
    | Confirmed
    | Returned
    | ConsumerCancelled
    | ChannelClosed
    | Blocked
    | Unblocked
    | Flow
)
