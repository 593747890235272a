"""An unmodified aio-pika's patterns (RPC, Master, Pool), and its robust connections, which outlive a server."""

import asyncio
from collections.abc import Callable

import aio_pika
import pytest
from aio_pika import Message
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractRobustConnection
from aio_pika.patterns import RPC, Master, NackMessage, RejectMessage
from aio_pika.pool import Pool

from tests.conformance.aio_pika_steps import opened, run, take
from tests.kit.client_steps import Address, amqp_url, relay_to
from tests.kit.servers import Admin, Server, start_server

Names = Callable[[str], str]


def test_rpc_pattern(server: Server, name: Names) -> None:
    """aio_pika.patterns.RPC: results and exceptions come back; unknown methods are returned messages."""

    async def multiply(*, x: int, y: int) -> int:
        return x * y

    async def fail() -> None:
        raise ZeroDivisionError("on purpose")

    async def steps() -> None:
        async with opened(server) as serving, opened(server) as asking:
            remote = await RPC.create(serving)
            times, fails = name("multiply"), name("fail")
            await remote.register(times, multiply, auto_delete=True)
            await remote.register(fails, fail, auto_delete=True)
            rpc = await RPC.create(asking)
            results = await asyncio.gather(
                *(rpc.call(times, kwargs={"x": number, "y": 2}) for number in range(100))
            )
            assert results == [number * 2 for number in range(100)]
            with pytest.raises(ZeroDivisionError, match="on purpose"):
                await rpc.call(fails)
            with pytest.raises(aio_pika.exceptions.MessageProcessError):
                await rpc.call(name("no-such-method"))
            await rpc.close()
            await remote.close()

    run(steps())


def test_direct_reply_to(server: Server, name: Names) -> None:
    """The pseudo queue with aio-pika: consume without acks, answer with its routing key."""

    async def steps() -> None:
        async with opened(server) as serving, opened(server) as asking:
            requests = await serving.declare_queue(name("rpc"), auto_delete=True)

            async def serve(message: AbstractIncomingMessage) -> None:
                async with message.process():
                    assert message.reply_to is not None
                    await serving.default_exchange.publish(Message(message.body.upper()), message.reply_to)

            await requests.consume(serve)
            answers = await asking.get_queue("amq.rabbitmq.reply-to", ensure=False)
            got: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
            await answers.consume(got.put, no_ack=True)
            request = Message(b"question", reply_to="amq.rabbitmq.reply-to")
            await asking.default_exchange.publish(request, requests.name)
            assert (await got.get()).body == b"QUESTION"

    run(steps())


def test_master_and_workers(server: Server, name: Names) -> None:
    """aio_pika.patterns.Master: tasks spread over workers; NackMessage requeues, RejectMessage drops."""

    async def steps() -> None:
        async with opened(server) as channel, opened(server) as workers:
            done: asyncio.Queue[int] = asyncio.Queue()
            seen: list[int] = []

            async def work(*, number: int) -> None:
                seen.append(number)
                if seen.count(7) == 1 and number == 7:
                    raise NackMessage(requeue=True)
                if number == 8:
                    raise RejectMessage(requeue=False)
                await done.put(number)

            tasks = name("tasks")
            await workers.set_qos(prefetch_count=2)
            hired = [await Master(workers).create_worker(tasks, work, auto_delete=True) for _ in range(2)]
            master = Master(channel)
            for number in range(10):
                await master.create_task(tasks, kwargs={"number": number})
            assert sorted([await done.get() for _ in range(9)]) == [0, 1, 2, 3, 4, 5, 6, 7, 9]
            assert sorted(seen) == [0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 9]
            for worker in hired:
                await worker.close()

    run(steps())


def test_pools(server: Server) -> None:
    """Pools of connections and channels, many publishers at once."""

    async def steps() -> None:
        url = amqp_url(server)
        async with Pool(lambda: aio_pika.connect_robust(url), max_size=2) as connections:

            async def make_channel() -> AbstractChannel:
                async with connections.acquire() as connection:
                    return await connection.channel()

            async with Pool(make_channel, max_size=6) as channels, opened(server) as channel:
                queue = await channel.declare_queue()

                async def publish(number: int) -> None:
                    async with channels.acquire() as each:
                        await each.default_exchange.publish(Message(b"%d" % number), queue.name)

                await asyncio.gather(*(publish(number) for number in range(100)))
                assert sorted(await take(queue, 100), key=int) == [b"%d" % number for number in range(100)]
                await queue.delete()

    run(steps())


# Robust connections.


async def robust(server: Address) -> AbstractRobustConnection:
    """A connection that comes back as soon as it can."""
    return await aio_pika.connect_robust(amqp_url(server), reconnect_interval=0.05)


async def publish_until_it_arrives(
    connection: AbstractRobustConnection, queue: str, body: bytes, got: asyncio.Queue[AbstractIncomingMessage]
) -> AbstractIncomingMessage:
    """Publish until the consumer, which comes back by itself, has the message."""
    while True:
        try:
            channel = await connection.channel()
            await channel.default_exchange.publish(Message(body), queue)
            await channel.close()
            return await asyncio.wait_for(got.get(), 0.5)
        except (aio_pika.exceptions.AMQPError, ConnectionError, RuntimeError, TimeoutError):
            await asyncio.sleep(0.02)


async def consume_by_topology(
    connection: AbstractRobustConnection, name: Names
) -> tuple[str, asyncio.Queue[AbstractIncomingMessage]]:
    """An exchange, a queue, a binding, a prefetch and a consumer, all of which go with a server."""
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=1)
    exchange = await channel.declare_exchange(name("x"), "topic", auto_delete=True)
    queue = await channel.declare_queue(name("q"), auto_delete=True)
    await queue.bind(exchange, "a.#")
    got: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    await queue.consume(got.put)
    return exchange.name, got


async def expect_the_topology(
    server: Server, exchange: str, got: asyncio.Queue[AbstractIncomingMessage]
) -> None:
    """By another client: what `consume_by_topology` made is there, and serves with its prefetch."""
    async with opened(server, on_return_raises=True) as channel:
        while True:
            there = await channel.get_exchange(exchange, ensure=False)
            try:
                await there.publish(Message(b"1"), "a.b")
                break
            except (aio_pika.exceptions.PublishError, aio_pika.exceptions.ChannelNotFoundEntity):
                await asyncio.sleep(0.02)
                await channel.reopen()
        await there.publish(Message(b"2"), "a.b")
        first = await got.get()
        await channel.declare_queue(exclusive=True)
        assert got.empty()
        await first.ack()
        second = await got.get()
        assert (first.body, second.body) == (b"1", b"2")
        await second.ack()


@pytest.mark.disturbs_everyone
def test_robust_connection_comes_back_after_a_forced_close(server: Server, admin: Admin, name: Names) -> None:
    """320 from the operator: exchange, queue, binding, prefetch and consumer are there again."""

    async def steps() -> None:
        reconnected = asyncio.Event()
        connection = await robust(server)
        connection.reconnect_callbacks.add(lambda _connection: reconnected.set())
        async with connection:
            exchange, got = await consume_by_topology(connection, name)
            for _ in range(2):
                reconnected.clear()
                await asyncio.to_thread(admin.close_all_connections, "maintenance")
                await reconnected.wait()
                await expect_the_topology(server, exchange, got)

    run(steps())


@pytest.mark.slow
def test_robust_connection_survives_a_restart(server: Server, name: Names) -> None:
    """The server stops with 320 for all, its address is dead for a while, and a fresh server answers there."""

    async def steps() -> None:
        first = await asyncio.to_thread(start_server)
        try:
            with relay_to(first) as relay:
                async with await robust(relay) as connection:
                    exchange, got = await consume_by_topology(connection, name)
                    await expect_the_topology(first, exchange, got)
                    await asyncio.to_thread(first.stop)
                    relay.unplug()
                    relay.plug_into(server)
                    await expect_the_topology(server, exchange, got)
        finally:
            await asyncio.to_thread(first.stop)

    run(steps())


def test_robust_connection_survives_a_cut(server: Server, name: Names) -> None:
    """The connection breaks without a word: what was not acknowledged comes again."""

    async def steps() -> None:
        with relay_to(server) as relay:
            async with opened(server) as channel, await robust(relay) as connection:
                queue = await channel.declare_queue(name("q"), durable=True)
                got: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
                cut = await connection.channel()
                await (await cut.declare_queue(queue.name, durable=True)).consume(got.put)
                await channel.default_exchange.publish(Message(b"held"), queue.name)
                assert not (await got.get()).redelivered
                relay.plug_into(server)
                again = await got.get()
                assert (again.body, again.redelivered) == (b"held", True)
                await again.ack()
                await cut.close()
                assert (await queue.delete()).message_count == 0

    run(steps())


def test_robust_consumer_comes_back_after_a_cancel(server: Server, name: Names) -> None:
    """The queue is deleted under its consumer: basic.cancel lets aio-pika declare and consume it again."""

    async def steps() -> None:
        async with opened(server) as other, await robust(server) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name("q"), auto_delete=True)
            got: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
            await queue.consume(got.put, no_ack=True)
            await other.queue_delete(queue.name)
            message = await publish_until_it_arrives(connection, queue.name, b"after", got)
            assert message.body == b"after"

    run(steps())
