"""Subscriptions of one connection: their tags, and which deliveries of each have no ACK yet.

The consumer tag is `T_` and the subscription's id, or `Q_` and its destination if it has no id. The id of a message is
its consumer tag, the session and its delivery tag: an ACK frame brings it back.
Source: RabbitMQ 3.10.8, `rabbit_stomp_util`; STOMP 1.2, "SUBSCRIBE ack Header".
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from node.amqp.erlang import string_literal
from node.stomp.destinations import TEMP_PREFIX, Destination
from node.stomp.errors import StompError, bad_value
from node.stomp.properties import checked_text

AUTO: Final = "auto"
CLIENT: Final = "client"
CLIENT_INDIVIDUAL: Final = "client-individual"

SEPARATOR: Final = "@@"

_DIGITS_MAX: Final = 19


class Subscription:
    """A subscription.

    tag: of its consumer.   shown_id: as `subscription` in MESSAGE frames; None: it was made without an id.
    description: in error texts.   ack: one of the three modes.   queue: its queue.
    unacked: the delivery tags without ACK, in their order, where one ACK settles all before it.
    """

    __slots__ = ("ack", "description", "destination", "queue", "shown_id", "tag", "unacked")

    def __init__(
        self, tag: str, description: str, ack: str, destination: Destination | None, queue: str
    ) -> None:
        self.tag = tag
        self.shown_id = tag[2:] if tag.startswith("T_") else None
        self.description = description
        self.ack = ack
        self.destination = destination
        self.queue = queue
        self.unacked: deque[int] = deque()

    @property
    def name(self) -> str:
        """The id, or the destination without one."""
        return self.tag[2:]

    def take_up_to(self, delivery_tag: int) -> list[int]:
        """Remove and return the deliveries up to one, which is the last of them even if it is not known.

        A step for each that is returned: the tags of deliveries rise, so none has to be looked for.
        """
        unacked, taken = self.unacked, list[int]()
        while unacked and unacked[0] <= delivery_tag:
            taken.append(unacked.popleft())
        if not taken or taken[-1] != delivery_tag:
            taken.append(delivery_tag)
        return taken


def ack_mode(headers: Mapping[str, str]) -> str:
    """Return the mode that a SUBSCRIBE frame asks for. Raises: StompError."""
    mode = headers.get("ack", AUTO)
    if mode not in (AUTO, CLIENT, CLIENT_INDIVIDUAL):
        raise bad_value("ack", f"{AUTO}, {CLIENT}, {CLIENT_INDIVIDUAL}")
    return mode


def tag_and_description(headers: Mapping[str, str], command: str) -> tuple[str, str]:
    """Return the consumer tag of a frame's subscription, and its description. Raises: StompError."""
    identifier, destination = headers.get("id"), headers.get("destination")
    if identifier is not None:
        if identifier.startswith(TEMP_PREFIX):
            raise StompError("Invalid id", f"{command} 'id' may not start with {TEMP_PREFIX}\n")
        return checked_text("id", f"T_{identifier}"), string_literal(f"id='{identifier}'")
    if destination is None:
        raise StompError(
            "Missing destination or id", f"{command} must include a 'destination' or 'id' header"
        )
    return checked_text("destination", f"Q_{destination}"), string_literal(f"destination='{destination}'")


def reply_tag(temp_queue: str) -> str:
    """Return the consumer tag of a temporary queue's replies. Raises: StompError."""
    return checked_text("reply-to", f"T_{TEMP_PREFIX}{temp_queue}")


def parse_message_id(text: str) -> tuple[str, int] | None:
    """Return the consumer tag and the delivery tag in a message's id; None if it is none.

    The id of a subscription may have the separator in it; RabbitMQ finds no subscription then.
    """
    match text.rsplit(SEPARATOR, 2):
        case [tag, _, number] if number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX:
            return tag, int(number)
    return None
