"""Steps that the tests with aio-pika share."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractQueue

from tests.kit.client_steps import TIMEOUT_S, amqp_url
from tests.kit.servers import Server


def run(steps: Awaitable[None]) -> None:
    """Run a test's coroutine, with a bound."""

    async def bounded() -> None:
        await asyncio.wait_for(steps, TIMEOUT_S)

    asyncio.run(bounded())


@asynccontextmanager
async def connected(server: Server, vhost: str = "/", **options: Any) -> AsyncIterator[AbstractConnection]:
    """An ordinary connection for the time of the block."""
    connection = await aio_pika.connect(amqp_url(server, vhost), **options)
    async with connection:
        yield connection


@asynccontextmanager
async def opened(server: Server, **options: Any) -> AsyncIterator[AbstractChannel]:
    """A channel of a connection of its own; options as `AbstractConnection.channel` takes them."""
    async with connected(server) as connection:
        yield await connection.channel(**options)


async def take(queue: AbstractQueue, count: int, **options: Any) -> list[bytes]:
    """Consume so many messages and acknowledge them; their bodies."""
    bodies: list[bytes] = []
    async with queue.iterator(**options) as messages:
        async for message in messages:
            async with message.process():
                bodies.append(message.body)
            if len(bodies) == count:
                break
    return bodies
