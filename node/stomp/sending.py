"""SEND frames: the queue of a destination is declared at the first one, then messages are published.

A frame whose head was published before is published without a second look.
Source: RabbitMQ 3.10.8, `rabbit_stomp_processor:do_send`.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from node.plugins import Properties
from node.stomp.client import Steps, StompClient, refusing
from node.stomp.decoder import HEADS_MAX
from node.stomp.destinations import QUEUE, TEMP_QUEUE, Destination, parse_destination
from node.stomp.errors import StompError
from node.stomp.frame import Frame, Head
from node.stomp.properties import checked_text, refused_header, sent_properties
from node.stomp.queues import declaration
from node.stomp.subscriptions import AUTO, Subscription, reply_tag
from node.stomp.transactions import HeldPublish

Fail: TypeAlias = Callable[[StompError, str | None], None]
"""Tells the client of a fault.   The second argument: the receipt that the frame wanted; None if it wanted none."""

NOT_CONFIRMED: Final = "The message was refused by its queue, or its queue has failed.\n"


def needed_destination(head: Head) -> Destination:
    """Return the destination of a frame. Raises: StompError."""
    text = head.headers.get("destination")
    if text is None:
        raise StompError("Missing destination", f"\"{head.command}\" must include a 'destination' header\n")
    destination = parse_destination(text)
    if destination.kind == QUEUE and not destination.name:
        raise StompError("Invalid destination", "Destination cannot be blank")
    if destination.kind == TEMP_QUEUE:
        raise StompError("Invalid destination", f"'{text}' is not a valid destination for '{head.command}'\n")
    return destination


class KnownHead(NamedTuple):
    """The head of a SEND frame that was published, and what it asks for: the next such frame needs nothing else."""

    head: Head
    exchange: str
    routing_key: str
    properties: Properties


class Sending:
    """Publishes the messages of one client.   known: heads by their identity."""

    def __init__(self, client: StompClient, fail: Fail) -> None:
        self._client = client
        self._fail = fail
        self.known: dict[int, KnownHead] = {}

    def let_go(self) -> None:
        """Forget the connection: it is gone."""
        self._fail = _ignore

    def send(self, frame: Frame) -> Steps | None:
        """Carry out a SEND frame. Raises: StompError."""
        client, head = self._client, frame.head
        headers = head.headers
        if "message-id" in headers:
            raise refused_header("message-id", "SEND")
        destination = needed_destination(head)
        exchange, key = destination.address(client.settings.topic_exchange)
        properties = sent_properties(headers)
        publish = HeldPublish(
            checked_text("destination", exchange),
            checked_text("destination", key),
            properties,
            frame.body,
            headers.get("receipt"),
        )
        has_queue = destination.kind != QUEUE or destination.name in client.declared
        if has_queue and "reply-to" not in headers:
            self._publish_or_hold(head, publish)
            return None
        return self._send_by_steps(head, destination, publish)

    def _send_by_steps(self, head: Head, destination: Destination, publish: HeldPublish) -> Steps:
        if destination.kind == QUEUE:
            wanted = declaration(destination, head.headers, b"")
            yield from self._client.declare_once(wanted)
        reply_to = head.headers.get("reply-to")
        if reply_to is not None:
            replies = parse_destination(reply_to)
            if replies.kind == TEMP_QUEUE:
                yield from self._reply_queue(replies.name)
                publish.properties.reply_to = self._client.subscriptions[reply_tag(replies.name)].queue
        self._publish_or_hold(head, publish)

    def _reply_queue(self, name: str) -> Steps:
        """Make the queue for the replies to a temporary queue of this connection, unless it is there."""
        client, tag = self._client, reply_tag(name)
        if tag in client.subscriptions:
            return
        client.check_subscriptions()
        refusal, queue = yield client.session.declare_unnamed_queue
        refusing(refusal)
        description = f"\"destination='/temp-queue/{name}'\""
        client.subscriptions[tag] = Subscription(tag, description, AUTO, None, queue)
        yield partial(client.session.consume, queue, tag, no_ack=True)

    def _publish_or_hold(self, head: Head, publish: HeldPublish) -> None:
        transaction = head.headers.get("transaction")
        if transaction is not None:
            size = len(publish.body) + sum(len(name) + len(value) for name, value in head.headers.items())
            self._client.transactions.add(transaction, publish, size)
            return
        self.publish(publish)
        if publish.receipt is None and "reply-to" not in head.headers:
            if len(self.known) >= HEADS_MAX:
                self.known.clear()
            self.known[id(head)] = KnownHead(head, *publish[:3])

    def publish(self, publish: HeldPublish) -> None:
        """Publish a message; its receipt is sent when it is confirmed."""
        exchange, key, properties, body, receipt = publish
        on_confirm = None if receipt is None else partial(self.confirmed, receipt)
        self._client.session.publish(exchange, key, properties, body, on_confirm)

    def confirmed(self, receipt: str, is_safe: bool) -> None:
        """Send a receipt for a message that is confirmed, or tell that it was refused."""
        if is_safe:
            self._client.receipt(receipt)
        else:
            self._fail(StompError("Message not confirmed", NOT_CONFIRMED), receipt)


def _ignore(error: StompError, receipt: str | None) -> None:
    """Do nothing: the client is gone."""
