"""The reasons for which a shovel stops, in RabbitMQ's words: for the state, and for the log.

Source: RabbitMQ 3.10.8, `rabbit_shovel_worker` and `rabbit_amqp091_shovel`.
"""

from typing import Final, Literal, NamedTuple

from node.amqp_client.events import ChannelClosed, Closed, Returned
from node.amqp_client.phase import Phase

Side = Literal["source", "destination"]

RESTART: Final = '"needed a restart"'
"""The reason in the state of a shovel that will connect again, as Erlang prints a string."""

NO_URI_LEFT: Final = "failed_to_connect_using_provided_uris"

_WORDS: Final = {
    "econnrefused": "connection to target host was refused (ECONNREFUSED)",
    "econnreset": "connection to target host was reset by peer (ECONNRESET)",
    "etimedout": "connection to target host timed out (ETIMEDOUT)",
    "timeout": "connection to target host timed out (ETIMEDOUT)",
    "ehostunreach": "target host is unreachable (EHOSTUNREACH)",
    "nxdomain": "target hostname cannot be resolved (NXDOMAIN)",
    "eacces": "connection to target host failed with EACCES. This may be due to insufficient RabbitMQ process "
    "permissions or a reserved IP address used as destination",
}
_NOT_ALLOWED: Final = 530


class Failure(NamedTuple):
    """The end of an attempt.   side: the end that failed.   error: for operators."""

    side: Side
    error: str


def connection_error(event: Closed) -> str:
    """Return why a connection could not be opened, for people."""
    if event.code == _NOT_ALLOWED and event.phase is Phase.OPENING:
        return f"access to target virtual host was refused: {event.text}"
    return _WORDS.get(event.text.partition(":")[0], event.text)


def closed(side: Side, event: Closed) -> Failure:
    """Return the failure of a connection that was open."""
    return Failure(side, f"{side} connection failed: {event.text}")


def channel_closed(side: Side, event: ChannelClosed) -> Failure:
    """Return the failure of a channel."""
    return Failure(side, f"{side} channel closed with code {event.code}, reason: {event.text}")


def cancelled() -> Failure:
    """Return the failure of a consumer whose queue has gone."""
    return Failure("source", "received a 'basic.cancel' from the server")


def returned(event: Returned) -> Failure:
    """Return the failure of a destination whose queue has gone."""
    text = f"destination returned a message with code {event.code}, reason: {event.text}"
    return Failure("destination", f"{text}, key: '{event.routing_key}'")


def too_few_channels(side: Side, limit: int) -> Failure:
    """Return the failure of a connection on which the broker, or the URI, allows too few channels."""
    return Failure(side, f"{side} connection has too few channels: channel_max is {limit}")
