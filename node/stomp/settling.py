"""ACK and NACK frames, and transactions: BEGIN, COMMIT, ABORT.

With `ack:client` an ACK settles all messages of its subscription before it, too. RabbitMQ's plug-in settles those of
all subscriptions of the connection; the standard speaks of one.
Source: STOMP 1.2, "ACK"; RabbitMQ 3.10.8, `rabbit_stomp_processor`.
"""

from functools import partial

from node.amqp.erlang import string_literal
from node.stomp.client import Steps, StompClient
from node.stomp.errors import StompError
from node.stomp.frame import Frame, Head
from node.stomp.properties import boolean_header
from node.stomp.sending import Sending
from node.stomp.subscriptions import CLIENT, Subscription, parse_message_id
from node.stomp.transactions import HeldPublish, HeldSettlement
from node.stomp.versions import V1_2


class Settling:
    """Settles the messages of one client, and carries out its transactions."""

    def __init__(self, client: StompClient, sending: Sending) -> None:
        self._client = client
        self._sending = sending

    def settle(self, frame: Frame) -> Steps | None:
        """Carry out an ACK or a NACK frame. Raises: StompError."""
        head, client = frame.head, self._client
        name = "id" if client.version == V1_2 else "message-id"
        value = head.headers.get(name)
        if value is None:
            raise StompError("Missing header", f'"{head.command}" must include the "{name}" header\n')
        found = parse_message_id(value)
        if found is None:
            raise StompError("Invalid header", f'"{head.command}" must include a valid "{name}" header\n')
        tag, delivery_tag = found
        subscription = client.subscriptions.get(tag)
        if subscription is None:
            shown = string_literal(value)
            raise StompError("Subscription not found", f"Message with id {shown} has no subscription")
        requeues = None
        if head.command == "NACK":
            requeues = boolean_header(head.headers, "requeue")
            if requeues is None:
                requeues = client.settings.nack_requeues
        transaction = head.headers.get("transaction")
        if transaction is not None:
            client.transactions.add(transaction, HeldSettlement(tag, delivery_tag, requeues), len(value))
        else:
            self._settle(subscription, delivery_tag, requeues)
        self._confirm_later(head, is_confirmed=False)
        return None

    def _settle(self, subscription: Subscription, delivery_tag: int, requeues: bool | None) -> None:
        session = self._client.session
        if subscription.ack != CLIENT:
            tags = [delivery_tag]
        else:
            tags = subscription.take_up_to(delivery_tag)
        if len(tags) > 1 and self._client.ackers == 1:
            if requeues is None:
                session.ack(delivery_tag, multiple=True)
            else:
                session.nack(delivery_tag, requeue=requeues, multiple=True)
            return
        for tag in tags:
            if requeues is None:
                session.ack(tag)
            else:
                session.nack(tag, requeue=requeues)

    # --- transactions ---

    def begin(self, frame: Frame) -> Steps | None:
        """Carry out a BEGIN frame. Raises: StompError."""
        self._client.transactions.begin(_transaction(frame.head))
        return None

    def abort(self, frame: Frame) -> Steps | None:
        """Carry out an ABORT frame. Raises: StompError."""
        self._client.transactions.end(_transaction(frame.head))
        return None

    def commit(self, frame: Frame) -> Steps | None:
        """Carry out a COMMIT frame; its receipt is sent when all its messages are confirmed. Raises: StompError."""
        actions = self._client.transactions.end(_transaction(frame.head))
        for action in actions:
            if isinstance(action, HeldPublish):
                self._sending.publish(action)
                continue
            subscription = self._client.subscriptions.get(action.consumer_tag)
            if subscription is not None:  # else it is over, and its messages are given back
                self._settle(subscription, action.delivery_tag, action.requeues)
        self._confirm_later(frame.head, is_confirmed=True)
        return None

    def _confirm_later(self, head: Head, *, is_confirmed: bool) -> None:
        """Send the frame's receipt when the node has done what the frame asked for; other frames go on meanwhile."""
        receipt = head.headers.get("receipt")
        if receipt is not None:
            on_done = (
                partial(self._sending.confirmed, receipt) if is_confirmed else partial(self._done, receipt)
            )
            self._client.session.after_requests(on_done, is_confirmed=is_confirmed)

    def _done(self, receipt: str, is_safe: bool) -> None:
        self._client.receipt(receipt)


def _transaction(head: Head) -> str:
    name = head.headers.get("transaction")
    if name is None:
        raise StompError("Missing transaction", f"\"{head.command}\" must include a 'transaction' header\n")
    return name
