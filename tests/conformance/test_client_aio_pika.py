"""An unmodified aio-pika: publisher confirms, exchanges, get and iterators, errors."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import aio_pika
import aiormq
import pytest
from aio_pika import DeliveryMode, ExchangeType, Message
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aio_pika.exceptions import DeliveryError, PublishError, QueueEmpty
from aiormq.exceptions import (
    AMQPConnectionError,
    ChannelClosed,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ConnectionClosed,
    ConnectionCommandInvalid,
    InvalidFrameError,
)
from pamqp.commands import Basic
from pamqp.common import Arguments

from tests.conformance.aio_pika_steps import connected, opened, run, take
from tests.kit.client_steps import amqp_url, free_address
from tests.kit.servers import Server

Names = Callable[[str], str]


# Publishing.


def test_publishes_are_confirmed(server: Server) -> None:
    """A thousand at once, each with its own confirm."""

    async def steps() -> None:
        async with opened(server) as channel:
            queue = await channel.declare_queue(exclusive=True)
            messages = [
                Message(b"%d" % number, delivery_mode=DeliveryMode.PERSISTENT) for number in range(1000)
            ]
            confirms = await asyncio.gather(
                *(channel.default_exchange.publish(message, queue.name) for message in messages)
            )
            assert {type(confirm) for confirm in confirms} == {Basic.Ack}
            declared = await channel.declare_queue(queue.name, passive=True)
            assert declared.declaration_result.message_count == 1000
            assert await take(queue, 1000) == [b"%d" % number for number in range(1000)]

    run(steps())


def test_a_refused_publish_raises(server: Server) -> None:
    async def steps() -> None:
        async with opened(server) as channel:
            arguments: Arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
            queue = await channel.declare_queue(exclusive=True, arguments=arguments)
            await channel.default_exchange.publish(Message(b"fits"), queue.name)
            with pytest.raises(DeliveryError) as caught:
                await channel.default_exchange.publish(Message(b"does not"), queue.name)
            assert isinstance(caught.value.frame, Basic.Nack)

    run(steps())


def test_unroutable_messages_return(server: Server, name: Names) -> None:
    """mandatory is aio-pika's default: publish gives the returned message, or raises when asked to."""

    async def steps() -> None:
        nowhere = name("nowhere")
        async with opened(server) as channel:
            returned = await channel.default_exchange.publish(Message(b"body"), nowhere)
            assert isinstance(returned, aiormq.abc.DeliveredMessage)
            assert isinstance(returned.delivery, Basic.Return)
            assert (returned.delivery.reply_code, returned.delivery.reply_text) == (312, "NO_ROUTE")
            assert returned.body == b"body"
        async with opened(server, on_return_raises=True) as channel:
            with pytest.raises(PublishError):
                await channel.default_exchange.publish(Message(b"body"), nowhere)

    run(steps())


def test_properties_and_headers_come_back(server: Server) -> None:
    async def steps() -> None:
        headers = {
            "text": "grüße",
            "bytes": bytearray(b"\x00\xff"),
            "flag": False,
            "small": 7,
            "negative": -7,
            "big": 2**40,
            "float": 0.5,
            "decimal": Decimal("3.14"),
            "time": datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC),
            "nothing": None,
            "list": [1, "two", {"three": 3}],
            "table": {"nested": {"deeper": [True]}},
        }
        sent = Message(
            b"",
            headers=headers,  # type: ignore[arg-type]
            content_type="text/plain",
            content_encoding="utf-8",
            delivery_mode=DeliveryMode.PERSISTENT,
            priority=5,
            correlation_id="correlation",
            reply_to="reply",
            expiration=60,
            message_id="id",
            timestamp=datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC),
            type="type",
            user_id="guest",
            app_id="app",
        )
        async with opened(server) as channel:
            queue = await channel.declare_queue(exclusive=True)
            await channel.default_exchange.publish(sent, queue.name)
            received = await queue.get(no_ack=True)
            assert received.info()["headers"] == headers
            for field in ("content_type", "content_encoding", "delivery_mode", "priority", "correlation_id"):
                assert getattr(received, field) == getattr(sent, field)
            for field in ("reply_to", "expiration", "message_id", "timestamp", "type", "user_id", "app_id"):
                assert getattr(received, field) == getattr(sent, field)

    run(steps())


@pytest.mark.parametrize(
    ("kind", "binding", "arguments", "reached"),
    [
        (ExchangeType.DIRECT, "a.b", None, [b"a.b"]),
        (ExchangeType.FANOUT, "", None, [b"a.b", b"a.b.c", b"x"]),
        (ExchangeType.TOPIC, "a.#", None, [b"a.b", b"a.b.c"]),
        (ExchangeType.TOPIC, "a.*.c", None, [b"a.b.c"]),
        (ExchangeType.HEADERS, "", {"x-match": "all", "length": 5}, [b"a.b.c"]),
    ],
)
def test_exchange_types(
    server: Server, name: Names, kind: ExchangeType, binding: str, arguments: Any, reached: list[bytes]
) -> None:
    """Each type routes by itself and behind another exchange."""

    async def steps() -> None:
        async with opened(server) as channel:
            source = await channel.declare_exchange(name("source"), ExchangeType.FANOUT, auto_delete=True)
            exchange = await channel.declare_exchange(name("x"), kind, auto_delete=True)
            await exchange.bind(source)
            queue = await channel.declare_queue(exclusive=True)
            await queue.bind(exchange, binding, arguments=arguments)
            for key in ("a.b", "a.b.c", "x"):
                message = Message(key.encode(), headers={"length": len(key)})
                await exchange.publish(message, key, mandatory=False)
                await source.publish(message, key, mandatory=False)
            assert await take(queue, 2 * len(reached)) == [key for key in reached for _ in range(2)]
            assert await queue.get(fail=False) is None
            await queue.unbind(exchange, binding, arguments=arguments)

    run(steps())


def test_transaction(server: Server) -> None:
    async def steps() -> None:
        async with opened(server, publisher_confirms=False) as channel:
            queue = await channel.declare_queue(exclusive=True)
            publish = channel.default_exchange.publish
            transaction = channel.transaction()
            await transaction.select()
            await publish(Message(b"rolled back"), queue.name)
            await transaction.rollback()
            async with channel.transaction():
                await publish(Message(b"committed"), queue.name)
                assert await queue.get(fail=False) is None
            assert (await queue.get(no_ack=True)).body == b"committed"

    run(steps())


# Consuming.


def test_get(server: Server) -> None:
    async def steps() -> None:
        async with opened(server) as channel:
            queue = await channel.declare_queue(exclusive=True)
            with pytest.raises(QueueEmpty):
                await queue.get()
            for number in range(2):
                await channel.default_exchange.publish(Message(b"%d" % number), queue.name)
            first = await queue.get()
            assert (first.body, first.redelivered, first.message_count) == (b"0", False, 1)
            await first.nack(requeue=True)
            again = await queue.get()
            assert (again.body, again.redelivered) == (b"0", True)
            await again.ack()
            assert (await queue.purge()).message_count == 1

    run(steps())


def test_process_requeues_or_rejects(server: Server) -> None:
    """`async with message.process(requeue=True)`: an exception requeues once, then rejects to the DLX."""

    async def steps() -> None:
        async with opened(server) as channel:
            dead = await channel.declare_queue(exclusive=True)
            arguments: Arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
            queue = await channel.declare_queue(exclusive=True, arguments=arguments)
            await channel.default_exchange.publish(Message(b"poison"), queue.name)
            seen: list[bool | None] = []
            async with queue.iterator() as messages:
                async for message in messages:
                    seen.append(message.redelivered)
                    with pytest.raises(ZeroDivisionError):
                        async with message.process(requeue=True, reject_on_redelivered=True):
                            raise ZeroDivisionError
                    if len(seen) == 2:
                        break
            assert seen == [False, True]
            (body,) = await take(dead, 1)
            assert body == b"poison"

    run(steps())


def test_prefetch_and_concurrent_consumers(server: Server) -> None:
    """set_qos(1) with two consumers: a message each, the rest waits."""

    async def steps() -> None:
        async with opened(server) as channel:
            queue = await channel.declare_queue(exclusive=True)
            for number in range(5):
                await channel.default_exchange.publish(Message(b"%d" % number), queue.name)
            await channel.set_qos(prefetch_count=1)
            held: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
            for _ in range(2):
                await queue.consume(held.put)
            first, second = await held.get(), await held.get()
            declared = await channel.declare_queue(queue.name, passive=True)
            assert declared.declaration_result.message_count == 3
            assert first.consumer_tag != second.consumer_tag
            await second.ack()
            third = await held.get()
            assert (third.body, third.consumer_tag) == (b"2", second.consumer_tag)
            assert held.empty()

    run(steps())


def test_expiration_and_priority(server: Server) -> None:
    async def steps() -> None:
        async with opened(server) as channel:
            dead = await channel.declare_queue(exclusive=True)
            queue = await channel.declare_queue(
                exclusive=True,
                arguments={
                    "x-max-priority": 3,
                    "x-dead-letter-exchange": "",
                    "x-dead-letter-routing-key": dead.name,
                },
            )
            publish = channel.default_exchange.publish
            await publish(Message(b"short", expiration=0.02), queue.name)
            (body,) = await take(dead, 1)
            assert body == b"short"
            for priority in (0, 3, 1, 2):
                await publish(Message(b"%d" % priority, priority=priority), queue.name)
            assert await take(queue, 4) == [b"3", b"2", b"1", b"0"]

    run(steps())


# Errors.


def test_connections_refused(server: Server) -> None:
    async def steps() -> None:
        wrong_password = amqp_url(server).replace("guest:guest", "guest:wrong")
        with pytest.raises(AMQPConnectionError, match="ACCESS_REFUSED - Login was refused"):
            await aio_pika.connect(wrong_password)
        with pytest.raises(InvalidFrameError, match=r"got <Connection\.Close object"):
            await aio_pika.connect(amqp_url(server, "no-such"))
        with pytest.raises(AMQPConnectionError):
            await aio_pika.connect(amqp_url(free_address()))

    run(steps())


def test_channel_errors(server: Server, name: Names) -> None:
    """The class of the exception says the code, its text the reason; the connection lives on."""

    async def steps() -> None:
        queue = name("q")
        cases: list[tuple[type[ChannelClosed], str, Callable[[AbstractChannel], Awaitable[Any]]]] = [
            (
                ChannelNotFoundEntity,
                "NOT_FOUND - no queue 'missing' in vhost '/'",
                lambda channel: channel.declare_queue("missing", passive=True),
            ),
            (
                ChannelPreconditionFailed,
                f"PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue '{queue}' in vhost '/':"
                " received 'true' but current is 'false'",
                lambda channel: channel.declare_queue(queue, auto_delete=True, exclusive=True),
            ),
            (
                ChannelLockedResource,
                f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'."
                " It could be originally declared on another connection or the exclusive property value does"
                " not match that of the original declaration.",
                lambda channel: channel.declare_queue(queue, exclusive=True),
            ),
        ]
        async with connected(server) as owner, connected(server) as connection:
            await (await owner.channel()).declare_queue(queue, exclusive=True)
            for index, (kind, text, action) in enumerate(cases):
                channel = await (connection if index != 1 else owner).channel()
                with pytest.raises(kind) as caught:
                    await action(channel)
                assert caught.value.args[0] == text
            channel = await connection.channel()
            await channel.declare_queue(exclusive=True)

    run(steps())


def test_a_publish_to_a_missing_exchange_ends_the_channel(server: Server, name: Names) -> None:
    async def steps() -> None:
        async with opened(server) as channel:
            exchange = await channel.get_exchange(name("missing"), ensure=False)
            with pytest.raises(ChannelNotFoundEntity, match=f"no exchange '{exchange.name}' in vhost '/'"):
                await exchange.publish(Message(b""), "")

    run(steps())


def test_connection_error(server: Server) -> None:
    async def steps() -> None:
        closed: list[BaseException | None] = []
        connection = await aio_pika.connect(amqp_url(server))
        connection.close_callbacks.add(lambda _connection, error: closed.append(error))
        channel = await connection.channel()
        with pytest.raises(
            (ConnectionClosed, AMQPConnectionError, aiormq.exceptions.ChannelInvalidStateError)
        ):
            await channel.declare_exchange("x", "no-such-type")
        (error,) = closed
        assert isinstance(error, ConnectionCommandInvalid)
        assert error.args == ("COMMAND_INVALID - unknown exchange type 'no-such-type'",)

    run(steps())
