"""Events with aio-pika: published with confirms, listened to over a robust connection to any node of a cluster.

    python examples/aio_pika_events.py listen billing          # each name gets every event, once
    python examples/aio_pika_events.py publish one two three
    seq 1000 | python examples/aio_pika_events.py publish -

AMQP_URL names the broker, or several of a cluster with semicolons between; the default is one on this machine.
"""

import asyncio
import os
import random
import sys
import uuid

import aio_pika
from yarl import URL

URLS = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F").split(";")
EXCHANGE = "events"
ERRORS = (*aio_pika.exceptions.CONNECTION_EXCEPTIONS, TimeoutError)
"""The broker is away or said no: both may be otherwise soon."""


class AnyBroker(aio_pika.RobustConnection):
    """aio-pika's robust connection goes back to the same broker for ever. This one takes any, each time.

    heartbeat: a broker that is silent for longer is left.
    """

    url = property(
        lambda self: URL(random.choice(URLS)).update_query(heartbeat=10),  # asked at each attempt
        lambda self, url: None,
    )

    def __str__(self):
        return "any broker"


async def connect(name):
    """A connection that comes back by itself, with its channels, queues and consumers."""
    return await aio_pika.connect_robust(
        URLS[0],
        timeout=5,
        connection_class=AnyBroker,
        client_properties={"connection_name": name},
        reconnect_interval=0.5,
        fail_fast=False,  # The first attempt need not succeed, either.
    )


async def listen(name):
    """Print events until interrupted. An event is acknowledged when it is done, not before."""
    connection = await connect(f"listener {name}")
    async with connection, connection.channel() as channel:
        await channel.set_qos(prefetch_count=10)
        exchange = await channel.declare_exchange(EXCHANGE, "fanout", durable=True)
        queue = await channel.declare_queue(f"{EXCHANGE}.{name}", durable=True)
        await queue.bind(exchange)
        await queue.consume(on_event)
        print("listening")
        await asyncio.Future()


async def on_event(message):
    print(f"heard {message.body.decode()}")
    try:
        await message.ack()
    except ERRORS as error:
        print(f"comes again: {error!r}", file=sys.stderr)


async def publish(events):
    """Publish each event until the broker has taken responsibility for it.

    When a confirm is lost with the connection, the event comes twice, with the same message id.
    """
    connection = await connect("publisher")
    async with connection, connection.channel(on_return_raises=True) as channel:
        exchange = await channel.declare_exchange(EXCHANGE, "fanout", durable=True)
        async for event in events:
            message = aio_pika.Message(
                event.encode(),
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                message_id=str(uuid.uuid4()),
            )
            while True:
                try:
                    await exchange.publish(message, routing_key="", mandatory=True, timeout=10)
                    break
                except ERRORS as error:
                    print(f"again: {error!r}", file=sys.stderr)
                    await asyncio.sleep(0.5)
            print(f"published {event}")


async def given(arguments):
    """The events of the command line, or the lines of the standard input, without holding up heartbeats."""
    if arguments != ["-"]:
        for event in arguments:
            yield event
    else:
        while line := await asyncio.to_thread(sys.stdin.readline):
            yield line.rstrip("\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["listen"] and len(sys.argv) == 3:
        asyncio.run(listen(sys.argv[2]))
    elif sys.argv[1:2] == ["publish"] and sys.argv[2:]:
        asyncio.run(publish(given(sys.argv[2:])))
    else:
        sys.exit(__doc__)
