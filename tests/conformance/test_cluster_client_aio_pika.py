"""amqp-behaviour §9 with aio-pika, unmodified: robust connections over three nodes, and a rolling restart."""

import asyncio
from collections.abc import Callable

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from tests.conformance.aio_pika_steps import connected
from tests.kit.client_steps import amqp_url
from tests.kit.server_cluster import Cluster

Name = Callable[[str], str]
TIMEOUT_S = 90.0


def run(steps: "asyncio.Future[None] | object") -> None:
    """Run a test's coroutine, with a bound that has room for restarts."""

    async def bounded() -> None:
        await asyncio.wait_for(steps, TIMEOUT_S)  # type: ignore[arg-type]

    asyncio.run(bounded())


def test_work_spread_over_three(cluster: Cluster, name: Name) -> None:
    """Three publishers with confirms, three workers with prefetch, a queue on each node; every task once."""

    async def steps() -> None:
        done: list[bytes] = []
        everything = asyncio.Event()

        async def work(message: AbstractIncomingMessage) -> None:
            async with message.process():
                done.append(message.body)
                if len(done) == 900:
                    everything.set()

        async with (
            connected(cluster[0]) as a,
            connected(cluster[1]) as b,
            connected(cluster[2]) as c,
        ):
            channels = [await each.channel() for each in (a, b, c)]
            exchange_name = name("x")
            queues = []
            for channel in channels:
                await channel.set_qos(prefetch_count=10)
                queues.append(await channel.declare_queue(name("q")))
            for channel in channels:
                exchange = await channel.declare_exchange(exchange_name, aio_pika.ExchangeType.TOPIC)
            for index, queue in enumerate(queues):
                await queue.bind(exchange_name, f"task.{index}.#")
            for index in range(3):
                # Each worker on another node than its queue.
                worker = await channels[(index + 1) % 3].get_queue(queues[index].name)
                await worker.consume(work)

            async def publish(which: int) -> None:
                exchange = await channels[which].get_exchange(exchange_name)
                for number in range(300):
                    body = b"%d %d" % (which, number)
                    await exchange.publish(aio_pika.Message(body), f"task.{number % 3}.x")

            await asyncio.gather(*(publish(which) for which in range(3)))
            await everything.wait()
            assert len(set(done)) == len(done) == 900
            assert exchange is not None

    run(steps())


@pytest.mark.slow
def test_robust_clients_survive_a_rolling_restart(shaken_cluster: Cluster, name: Name) -> None:
    """A publisher and a consumer with robust connections; nothing confirmed is lost."""
    cluster, queue_name = shaken_cluster, name("q")
    urls = [amqp_url(node) for node in cluster.nodes]

    async def steps() -> None:
        seen: set[int] = set()
        confirmed: set[int] = set()
        stopping = asyncio.Event()

        async def work(message: AbstractIncomingMessage) -> None:
            seen.add(int(message.body))
            await message.ack()

        async def publish() -> None:
            number = 0
            while not stopping.is_set():
                number += 1
                try:
                    async with asyncio.timeout(5):
                        async with connected_to_any(urls) as connection:
                            channel = await connection.channel(on_return_raises=True)
                            while not stopping.is_set():
                                await channel.default_exchange.publish(
                                    aio_pika.Message(
                                        b"%d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT
                                    ),
                                    queue_name,
                                    mandatory=True,
                                )
                                confirmed.add(number)
                                number += 1
                                await asyncio.sleep(0.005)
                except Exception:  # noqa: BLE001 - any failure means: not confirmed, try another node
                    await asyncio.sleep(0.1)

        consumer = await aio_pika.connect_robust(urls[0], reconnect_interval=0.2)
        channel = await consumer.channel()
        await channel.set_qos(prefetch_count=5)
        queue = await channel.declare_queue(queue_name, durable=True)
        await queue.consume(work)
        publishing = asyncio.create_task(publish())
        for node in (cluster[1], cluster[2], cluster[0]):
            await asyncio.sleep(0.5)
            await asyncio.to_thread(node.terminate)
            await asyncio.to_thread(cluster.heal)
        await asyncio.sleep(0.5)
        stopping.set()
        await publishing
        await consumer.close()
        async with connected(cluster[1]) as connection:
            reader = await (await connection.channel()).get_queue(queue_name)
            while (message := await reader.get(no_ack=True, fail=False)) is not None:
                seen.add(int(message.body))
        assert len(confirmed) > 50
        assert confirmed <= seen, sorted(confirmed - seen)[:20]

    run(steps())


def connected_to_any(urls: list[str]) -> "_Any":
    return _Any(urls)


class _Any:
    """The first of several nodes that lets us in."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls

    async def __aenter__(self) -> aio_pika.abc.AbstractConnection:
        for url in self._urls:
            try:
                self._connection = await aio_pika.connect(url)
            except (OSError, aio_pika.exceptions.AMQPConnectionError):
                continue
            return self._connection
        raise ConnectionError("no node lets us in")

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()
