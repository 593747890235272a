"""MESSAGE frames: what is the same for many deliveries is made once.

`render` is hot: called for each run of deliveries.
Source: RabbitMQ 3.10.8, `rabbit_stomp_util:headers`.
"""

from collections.abc import Sequence
from typing import Final

from node.plugins import Delivery, Properties
from node.stomp.destinations import show_destination
from node.stomp.frame import END, header_lines
from node.stomp.properties import shown_headers
from node.stomp.subscriptions import AUTO, CLIENT, SEPARATOR, Subscription
from node.stomp.versions import V1_2

CACHED_MAX: Final = 256
"""The most subscriptions and addresses whose lines are remembered; at the next one all are forgotten."""

_REDELIVERED: Final = (b"\nredelivered:false\n", b"\nredelivered:true\n")


class Messages:
    """Renders deliveries for one connection.   session_id: in the ids of messages."""

    def __init__(self, version: str, session_id: str) -> None:
        self._version = version
        self._session_id = session_id
        self._lines: dict[tuple[str, str, str], tuple[bytes, bytes]] = {}
        self._properties: Properties | None = None
        self._headers = b""

    def render(self, deliveries: Sequence[Delivery], subscriptions: dict[str, Subscription]) -> bytes:
        """Return the frames of deliveries, and note those that one ACK may settle with others."""
        parts: list[bytes] = []
        for consumer, tag, exchange, routing_key, redelivered, properties, body, _ in deliveries:
            subscription = subscriptions.get(consumer)
            if subscription is None:
                continue
            lines = self._lines.get((consumer, exchange, routing_key))
            if lines is None:
                lines = self._remember(subscription, exchange, routing_key)
            if properties is not self._properties:
                self._headers = header_lines(shown_headers(properties), self._version)
                self._properties = properties
            begin, message_id = lines
            number = b"%d" % tag
            parts += (begin, number, _REDELIVERED[redelivered])
            if subscription.ack != AUTO:
                if self._version == V1_2:
                    parts += (b"ack:", message_id, number, b"\n")
                if subscription.ack == CLIENT:
                    subscription.unacked.append(tag)
            parts.append(self._headers)
            if body:
                parts.append(b"content-length:%d\n\n" % len(body))
                parts.append(body)
            else:
                parts.append(b"\n")
            parts.append(END)
        return b"".join(parts)

    def _remember(self, subscription: Subscription, exchange: str, routing_key: str) -> tuple[bytes, bytes]:
        """Return and keep the lines up to the number of a delivery, and the id of a message up to it."""
        if len(self._lines) >= CACHED_MAX:
            self._lines.clear()
        headers = [] if subscription.shown_id is None else [("subscription", subscription.shown_id)]
        headers.append(("destination", show_destination(exchange, routing_key)))
        message_id = f"{subscription.tag}{SEPARATOR}{self._session_id}{SEPARATOR}"
        begin = b"MESSAGE\n" + header_lines([*headers, ("message-id", message_id)], self._version)[:-1]
        escaped = header_lines([("", message_id)], self._version)[1:-1]
        lines = self._lines[subscription.tag, exchange, routing_key] = begin, escaped
        return lines

    def forget(self, subscription: Subscription) -> None:
        """Forget a subscription that is over: another one may get its tag."""
        self._lines = {key: lines for key, lines in self._lines.items() if key[0] != subscription.tag}
