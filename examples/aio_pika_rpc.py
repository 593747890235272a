"""Calls over the broker with aio-pika: the server comes back by itself when the broker does.

    python examples/aio_pika_rpc.py serve
    python examples/aio_pika_rpc.py call 6 7

AMQP_URL names the broker; the default is one on this machine.
"""

import asyncio
import os
import sys

import aio_pika
from aio_pika.patterns import RPC

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")


async def multiply(*, x, y):
    """What the server does."""
    return x * y


async def serve():
    """Answer calls until interrupted."""
    connection = await aio_pika.connect_robust(URL, client_properties={"connection_name": "rpc server"})
    async with connection, connection.channel() as channel:
        rpc = await RPC.create(channel)
        await rpc.register("multiply", multiply, auto_delete=True)
        print("serving")
        await asyncio.Future()


async def call(x, y):
    """Call the server, and print what it answers."""
    connection = await aio_pika.connect_robust(URL, client_properties={"connection_name": "rpc client"})
    async with connection, connection.channel() as channel:
        rpc = await RPC.create(channel)
        print(f"{x} * {y} = {await rpc.proxy.multiply(x=x, y=y)}")
        await rpc.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    elif sys.argv[1:2] == ["call"] and len(sys.argv) == 4:
        asyncio.run(call(int(sys.argv[2]), int(sys.argv[3])))
    else:
        sys.exit(__doc__)
