"""Direct reply-to: an RPC answer goes straight to the channel that asked, without a queue.

A requester consumes from the pseudo-queue `amq.rabbitmq.reply-to`; in messages that it then publishes with that
reply-to the name is replaced by one that leads back to its channel, and messages published to the default
exchange with that name are delivered there.
Source: amqp-behaviour §4.12.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Final, Protocol

from node.queue.run import Envelope

REPLY_TO: Final = "amq.rabbitmq.reply-to"
ENTROPY_BYTES: Final = 32

_INCARNATION_BYTES: Final = 8


class Requester(Protocol):
    """A channel, as replies reach it."""

    def deliver_reply(self, requester: "ReplyConsumer", envelope: Envelope, content: bytes) -> None:
        """Send a direct reply to the client, or drop it."""


class ReplyConsumer:
    """The one subscription to replies that a channel may have.   name: the reply-to of its requests."""

    __slots__ = ("channel", "name", "tag")

    def __init__(self, tag: str, name: str, channel: Requester) -> None:
        self.tag = tag
        self.name = name
        self.channel = channel


class ReplyConsumers:
    """The consumers of direct replies on this node, by their reply name.

    Replies come from other nodes too, as the name says which incarnation of which node made it.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, ReplyConsumer] = {}

    def add(self, tag: str, channel: Requester, entropy: bytes, incarnation: int) -> ReplyConsumer:
        """Make a reply consumer under a new name.

        entropy: `ENTROPY_BYTES` random bytes.   incarnation: of this node; 0 without a cluster.
        """
        place = incarnation.to_bytes(_INCARNATION_BYTES, "big")
        where, key = b64encode(place + entropy[:16]).decode(), b64encode(entropy[16:]).decode()
        consumer = ReplyConsumer(tag, f"{REPLY_TO}.{where}.{key}", channel)
        self._by_name[consumer.name] = consumer
        return consumer

    def remove(self, consumer: ReplyConsumer) -> None:
        """Forget a consumer that is gone: replies to its name are dropped."""
        del self._by_name[consumer.name]

    def find(self, name: str) -> ReplyConsumer | None:
        """Return the consumer of a reply name, or None."""
        return self._by_name.get(name)


def incarnation_of(name: str) -> int:
    """Return the incarnation of the node that made a reply name; 0 for none, and for a name that no node made."""
    where = name.removeprefix(f"{REPLY_TO}.").partition(".")[0]
    try:
        return int.from_bytes(b64decode(where, validate=True)[:_INCARNATION_BYTES], "big")
    except (Base64Error, ValueError):
        return 0


def is_reply_name(name: str) -> bool:
    """True if a routing key or queue name belongs to direct reply-to, base name or full one."""
    return name.startswith(REPLY_TO)
