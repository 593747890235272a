"""A node, a ledger of what its clients know, and the few things that tests of faults do with both."""

import asyncio
import errno
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from node.amqp import methods
from node.amqp.field_table import Table
from tests.durability.check import Check
from tests.durability.ledger import Count, Ledger, QueueLedger
from tests.durability.load import Churn, Publisher, Source
from tests.kit.ledger import DELIVERED, Kind, Value
from tests.kit.load_client import Channel, Client, Delivery
from tests.kit.node_process import NodeProcess

WAIT_S: Final = 60.0
"""An event that must happen may take this long. Only a failing test waits so long."""
MIB: Final = 1024 * 1024


class Scene:
    """Everything that is published is in `ledger`; `check` compares it with a node that was started again."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.ledger = Ledger(Count())
        self.churn = Churn()

    async def connect(self) -> Client:
        """A connection to the node."""
        return await Client.open(self.node.host, self.node.port)

    async def declare(self, *names: str, arguments: Table | None = None) -> None:
        """Declare durable queues."""
        client = await self.connect()
        channel = await client.channel()
        for name in names:
            self.ledger.queues[name] = QueueLedger(name)
            await channel.call(methods.QueueDeclare(queue=name, durable=True, arguments=arguments or {}))
        await client.close()

    async def publisher(self, name: str, queue: str, kind: Kind, *, window: int = 1000) -> Publisher:
        """A publisher with confirms, on a connection of its own (`publisher.client`)."""
        client = await self.connect()
        source = Source(name, "", queue, (queue,), kind, window)
        publisher = Publisher(self.ledger, await client.channel(), name, source)
        await publisher.begin()
        return publisher

    async def fill(self, queue: str, name: str, kind: Kind, number: int) -> None:
        """Publish so many messages and wait for their confirms."""
        publisher = await self.publisher(name, queue, kind)
        for _ in range(number):
            publisher.publish()
            if publisher.is_full:
                await publisher.wait_for_room()
        await publisher.wait_for_all()
        await publisher.client.close()

    async def consume(self, queue: str, *, acks: bool) -> "Reader":
        """A consumer, on a connection of its own."""
        client = await self.connect()
        channel = await client.channel()
        reader = Reader(self.ledger, channel, self.ledger.queues[queue], acks=acks)
        await channel.call(methods.BasicConsume(queue=queue))
        return reader

    async def check(self, *, was_killed: bool | None = True) -> Count:
        """Compare. Returns: what was found; `problems` is to be empty."""
        await Check(self.node, self.ledger, self.churn, was_killed=was_killed).run(Random(0))
        return self.ledger.count


class Reader:
    """Takes messages.   values: in the order of their coming."""

    def __init__(self, ledger: Ledger, channel: Channel, queue: QueueLedger, *, acks: bool) -> None:
        self.values: list[Value] = []
        self.client = channel.client
        self._ledger = ledger
        self._channel = channel
        self._queue = queue
        self._acks = acks
        channel.on_delivery = self._take

    def _take(self, delivery: Delivery) -> None:
        value = self._ledger.read(delivery, self._queue)
        if value is not None:
            self.values.append(value)
            self._queue.mark(value, DELIVERED)
            if self._acks:
                self._queue.settle([value])
                self._channel.send(methods.BasicAck(delivery_tag=delivery.method.delivery_tag))


async def until(condition: Callable[[], bool], what: str, within_s: float = WAIT_S) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.02)


async def unchanged(what: Callable[[], object], for_s: float) -> None:
    """Wait until something has been the same for so long."""
    value, since = what(), time.monotonic()
    deadline = since + WAIT_S
    while time.monotonic() < since + for_s:
        await asyncio.sleep(0.05)
        if what() != value:
            value, since = what(), time.monotonic()
        assert time.monotonic() < deadline, f"it changes on and on: {value}"


def fill_disk(path: Path, left_bytes: int) -> Path:
    """Write a file so that no more than so much is free. Returns: the file, to be removed."""
    filler = path / "filler"
    with filler.open("wb", buffering=0) as file:
        # The nodes write beside this: what is free is asked again, and a disk that they fill meanwhile is full too.
        while (size := shutil.disk_usage(path).free - left_bytes) > 0:
            try:
                file.write(bytes(min(size, MIB)))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                break
    return filler
