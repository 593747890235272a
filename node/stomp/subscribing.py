"""SUBSCRIBE and UNSUBSCRIBE frames: queues are declared and bound, consumers begin and end.

Source: RabbitMQ 3.10.8, `rabbit_stomp_processor:do_subscribe`, `cancel_subscription`.
"""

from functools import partial
from typing import Final

from node.plugins import Field, Refusal, Table, longstr
from node.stomp.client import Ended, Steps, StompClient, refusing
from node.stomp.destinations import EXCHANGE, QUEUE, TOPIC, Destination
from node.stomp.errors import StompError
from node.stomp.frame import Frame
from node.stomp.properties import checked_text, integer_header
from node.stomp.queues import check_durable, declaration, is_durable, subscription_queue
from node.stomp.sending import needed_destination
from node.stomp.subscriptions import AUTO, Subscription, ack_mode, tag_and_description

_PREFETCH_MAX: Final = 0xFFFF
_UNIQUE_BYTES: Final = 16

_OFFSET: Final = "x-stream-offset"


class Subscribing:
    """Begins and ends the subscriptions of one client."""

    def __init__(self, client: StompClient) -> None:
        self._client = client
        self._unfinished = ""  # the queue that a SUBSCRIBE frame has made which is not carried out

    def subscribe(self, frame: Frame) -> Steps:
        """Carry out a SUBSCRIBE frame. Raises: StompError."""
        client, headers = self._client, frame.head.headers
        check_durable(headers)
        destination = needed_destination(frame.head)
        prefetch = integer_header(headers, "prefetch-count", _PREFETCH_MAX)
        ack = ack_mode(headers)
        tag, description = tag_and_description(headers, "SUBSCRIBE")
        if tag in client.subscriptions:
            detail = f"A subscription identified by '{tag}' already exists."
            raise StompError("Duplicated subscription identifier", detail)
        client.check_subscriptions()
        if prefetch is not None:
            client.prefetch = prefetch
        queue = checked_text("destination", destination.name)
        if destination.kind == QUEUE:
            yield from client.declare_once(declaration(destination, headers, b""))
        elif destination.kind in (TOPIC, EXCHANGE):
            wanted = declaration(destination, headers, client.session.random_bytes(_UNIQUE_BYTES))
            queue = wanted.queue
            yield from client.declare(wanted)
            if not is_durable(headers):
                self._unfinished = queue
            yield from self._bind(queue, destination)
        client.subscriptions[tag] = Subscription(tag, description, ack, destination, queue)
        client.ackers += ack != AUTO
        yield partial(
            client.session.consume,
            queue,
            tag,
            no_ack=ack == AUTO,
            prefetch=client.prefetch,
            arguments=_consumer_arguments(headers.get(_OFFSET)),
        )
        self._unfinished = ""

    def _bind(self, queue: str, destination: Destination) -> Steps:
        exchange, key = destination.address(self._client.settings.topic_exchange)
        checked_text("destination", exchange)
        refusal = yield partial(self._client.session.bind, queue, exchange, checked_text("destination", key))
        if refusal is not None:
            self.clean_up()
            raise Ended(refusal)

    def clean_up(self) -> None:
        """Delete the queue of a subscription that cannot be carried out."""
        queue, self._unfinished = self._unfinished, ""
        if queue:
            self._client.session.delete_queue(queue, _ignore)

    def unsubscribe(self, frame: Frame) -> Steps:
        """Carry out an UNSUBSCRIBE frame. Raises: StompError."""
        client, headers = self._client, frame.head.headers
        check_durable(headers)
        tag, description = tag_and_description(headers, "UNSUBSCRIBE")
        subscription = client.subscriptions.get(tag)
        if subscription is None:
            raise StompError(
                "No subscription found",
                "UNSUBSCRIBE must refer to an existing subscription.\n"
                f"Subscription to {description} not found.\n",
            )
        yield partial(client.session.cancel, tag)
        self.forget(subscription)
        destination = subscription.destination
        if destination is not None and destination.kind == TOPIC and is_durable(headers):
            queue = subscription_queue(destination, headers, b"")
            refusing((yield partial(client.session.delete_queue, queue)))

    def forget(self, subscription: Subscription) -> None:
        """Note that a subscription is over."""
        self._client.subscriptions.pop(subscription.tag, None)
        self._client.messages.forget(subscription)


def _ignore(refusal: Refusal | None) -> None:
    """Do nothing: the connection ends in any case."""


def _consumer_arguments(offset: str | None) -> Table:
    """Return the arguments of a consumer with a header `x-stream-offset`."""
    if offset is None:
        return {}
    kind, _, number = offset.partition("=")
    if offset in ("first", "last", "next"):
        return {_OFFSET: longstr(offset)}
    if kind in ("offset", "timestamp") and number.isascii() and number.isdigit() and len(number) < 19:
        return {_OFFSET: Field("l" if kind == "offset" else "T", int(number))}
    return {}
