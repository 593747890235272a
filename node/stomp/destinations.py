"""STOMP destinations: paths that name queues, topics and exchanges, as RabbitMQ's plug-in understands them.

    /queue/NAME   /topic/KEY   /exchange/NAME[/KEY]   /amq/queue/NAME   /temp-queue/NAME   /reply-queue/NAME   NAME
In a part of a path `%2F` is a slash. A destination without a slash is a queue.
Source: RabbitMQ 3.10.8, `rabbit_routing_util`.
"""

from typing import Final, NamedTuple

from node.stomp.errors import StompError

QUEUE: Final = "queue"
TOPIC: Final = "topic"
EXCHANGE: Final = "exchange"
AMQ_QUEUE: Final = "amqqueue"
TEMP_QUEUE: Final = "temp_queue"
REPLY_QUEUE: Final = "reply_queue"

TOPIC_EXCHANGE: Final = "amq.topic"

REPLY_PREFIX: Final = "/reply-queue/"
TEMP_PREFIX: Final = "/temp-queue/"
SENT_PREFIXES: Final = ("/exchange", "/topic", "/queue", "/amq/queue", REPLY_PREFIX)
"""What a destination in `reply-to` begins with; all else is the name of a queue."""

_KINDS: Final = {"queue": QUEUE, "topic": TOPIC, "exchange": EXCHANGE, "temp-queue": TEMP_QUEUE}
_SHOWN: Final = ", ".join(("/temp-queue", *SENT_PREFIXES))


class Destination(NamedTuple):
    """A place to send to or to receive from.   key: the routing key of an exchange; None if it has none."""

    kind: str
    name: str
    key: str | None = None

    def address(self, topic_exchange: str) -> tuple[str, str]:
        """Return exchange and routing key.   topic_exchange: where topics are."""
        if self.kind == TOPIC:
            return topic_exchange, self.name
        if self.kind == EXCHANGE:
            return topic_exchange if self.name == TOPIC_EXCHANGE else self.name, self.key or ""
        return "", self.name


def parse_destination(text: str) -> Destination:
    """Return the destination that a header names. Raises: StompError."""
    match text.split("/"):
        case [name]:
            return Destination(QUEUE, _unescape(name))
        case ["", "queue" | "topic" | "exchange" | "temp-queue" as word, *rest]:
            return _parsed(_KINDS[word], rest)
        case ["", "amq", "queue", *rest]:
            return _parsed(AMQ_QUEUE, rest)
        case ["", "reply-queue", _, *_]:
            return _parsed(REPLY_QUEUE, [text.removeprefix(REPLY_PREFIX)])
    raise StompError(
        "Unknown destination",
        f"'{text}' is not a valid destination.\nValid destination types are: {_SHOWN}.\n",
    )


def _parsed(kind: str, rest: list[str]) -> Destination:
    match rest:
        case [name] if name:
            return Destination(kind, _unescape(name))
        case [name, key] if name and kind == EXCHANGE:
            return Destination(kind, _unescape(name), _unescape(key))
    shown = "".join(f"/{part}" for part in rest)
    raise StompError("Invalid destination", f"'{shown}' is not a valid {kind} destination\n")


def _unescape(part: str) -> str:
    return part.replace("%2F", "/")


def show_destination(exchange: str, routing_key: str) -> str:
    """Return the destination of a message with this address."""
    if not exchange:
        return f"/queue/{_escape(routing_key)}"
    if exchange == TOPIC_EXCHANGE:
        return f"/topic/{_escape(routing_key)}"
    return (
        f"/exchange/{_escape(exchange)}/{_escape(routing_key)}"
        if routing_key
        else f"/exchange/{_escape(exchange)}"
    )


_ESCAPED: Final = {octet: f"%{octet:02X}" for octet in (*range(32), *range(128, 256), ord("/"), ord("%"))}


def _escape(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("latin-1").translate(_ESCAPED)
