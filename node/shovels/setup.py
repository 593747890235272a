"""The declarations that a shovel makes before it runs, as a script: it yields requests and is sent their answers.

    destination: the queue, confirm mode        source: the queue or a binding, the prefetch, the length, the consumer

A queue that is there stays as it is, whatever its arguments: it is asked for passively first, on a channel of its own.
Source: RabbitMQ 3.10.8, `rabbit_shovel_parameters:ensure_queue` and `rabbit_amqp091_shovel:init_source`.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, NamedTuple

from node.amqp import methods as m
from node.amqp.constants import ReplyCode
from node.amqp.methods import Method
from node.amqp_client.events import ChannelClosed
from node.shovels import failure
from node.shovels.definition import QUEUE_LENGTH, AckMode, Endpoint, ShovelDefinition
from node.shovels.failure import Failure, Side

CHANNEL: Final = 1
"""The channel of messages."""

QUESTIONS: Final = 2
"""The channel of declarations that may fail."""


class Request(NamedTuple):
    """A request of the script.   method: `ChannelOpen` opens the channel."""

    side: Side
    channel: int
    method: Method


class SetupFailed(Exception):
    """The broker refuses a declaration."""

    def __init__(self, reason: Failure) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class Prepared:
    """The outcome.   remaining: the messages after which the shovel ends; None: it goes on."""

    queue: str
    consumer_tag: str
    remaining: int | None


Script = Generator[Request, Method | ChannelClosed, Prepared]
_Step = Generator[Request, Method | ChannelClosed, Method]


def set_up(definition: ShovelDefinition, left: int | None = None) -> Script:
    """Make all that a shovel needs, and begin to consume.

    left: the messages that a former attempt has left to be moved; None: this one begins to count.
    Raises: SetupFailed.
    """
    source, destination = definition.source, definition.destination
    yield from _call("source", CHANNEL, m.ChannelOpen())
    yield from _call("destination", CHANNEL, m.ChannelOpen())
    if destination.queue is not None:
        yield from _ensure_queue("destination", destination, destination.queue)
    if definition.ack_mode is AckMode.ON_CONFIRM:
        yield from _call("destination", CHANNEL, m.ConfirmSelect())
    if source.queue is not None:
        queue = source.queue
        yield from _ensure_queue("source", source, queue)
    else:
        queue = yield from _bind(source)
    if definition.ack_mode is not AckMode.NO_ACK:
        yield from _call("source", CHANNEL, m.BasicQos(prefetch_count=definition.prefetch))
    remaining = yield from _remaining(definition, queue)
    if remaining is not None and left is not None:
        # Others may have taken messages of the queue meanwhile: it would wait for as many new ones.
        remaining = min(remaining, left)
    if remaining == 0:
        return Prepared(queue, "", 0)
    consume = m.BasicConsume(
        queue=queue,
        no_ack=definition.ack_mode is AckMode.NO_ACK,
        arguments=definition.consumer_arguments,
    )
    answer = yield from _call("source", CHANNEL, consume)
    assert isinstance(answer, m.BasicConsumeOk)
    return Prepared(queue, answer.consumer_tag, remaining)


def _call(side: Side, channel: int, method: Method) -> _Step:
    answer = yield Request(side, channel, method)
    if isinstance(answer, ChannelClosed):
        raise SetupFailed(failure.channel_closed(side, answer))
    return answer


def _ensure_queue(
    side: Side, endpoint: Endpoint, queue: str
) -> Generator[Request, Method | ChannelClosed, None]:
    yield from _call(side, QUESTIONS, m.ChannelOpen())
    answer = yield Request(side, QUESTIONS, m.QueueDeclare(queue=queue, passive=True))
    if isinstance(answer, ChannelClosed):
        if answer.code != ReplyCode.NOT_FOUND or endpoint.is_predeclared:
            raise SetupFailed(failure.channel_closed(side, answer))
        yield from _call(side, QUESTIONS, m.ChannelOpen())
        declare = m.QueueDeclare(queue=queue, durable=True, arguments=endpoint.queue_arguments)
        yield from _call(side, QUESTIONS, declare)
    yield from _call(side, QUESTIONS, m.ChannelClose(reply_code=200, reply_text="Goodbye"))


def _bind(source: Endpoint) -> Generator[Request, Method | ChannelClosed, str]:
    """Bind a queue of the shovel's own to the exchange, and return its name."""
    declared = yield from _call("source", CHANNEL, m.QueueDeclare(exclusive=True))
    assert isinstance(declared, m.QueueDeclareOk)
    bind = m.QueueBind(queue=declared.queue, exchange=source.exchange or "", routing_key=source.key or "")
    yield from _call("source", CHANNEL, bind)
    return declared.queue


def _remaining(
    definition: ShovelDefinition, queue: str
) -> Generator[Request, Method | ChannelClosed, int | None]:
    if isinstance(definition.delete_after, int):
        return definition.delete_after
    if definition.delete_after != QUEUE_LENGTH:
        return None
    answer = yield from _call("source", CHANNEL, m.QueueDeclare(queue=queue, passive=True))
    assert isinstance(answer, m.QueueDeclareOk)
    return answer.message_count
