"""A wide fan-out under flood: a crowd publishes to very many exclusive queues of one client, and does not stop while
that client closes its channel. The queues are not mirrored, as they are exclusive, whatever policies say.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

from node.amqp import methods
from tests.chaos.mirror_load import NODES, Load
from tests.kit.cluster_client import ClusterChannel, ClusterClient
from tests.kit.load_client import Lost

QUEUES: Final = 300
CROWD: Final = 20
AT_ONCE: Final = 200
"""Messages that one of the crowd writes at a time."""
LASTS_S: Final = 3.0
RESTS_S: Final = (5.0, 15.0)
EXCHANGE: Final = "amq.fanout"


async def flood_once(
    connect: Callable[[], Awaitable[ClusterClient]], name: str, *, lasts_s: float = LASTS_S
) -> float:
    """Do it once.   connect: to one node.   name: of the queues, before a number. Raises: Lost; Stuck.

    Returns: the seconds until the channel was closed.
    """
    clients = [await connect()]
    crowd: list[asyncio.Task[None]] = []
    try:
        channel = await clients[0].channel()
        await _declare(channel, name)
        for _ in range(CROWD):
            clients.append(await connect())
            crowd.append(asyncio.create_task(_publish(await clients[-1].channel())))
        await asyncio.sleep(lasts_s)
        began = time.monotonic()
        await channel.ask(methods.ChannelClose(reply_code=200, reply_text="bye"))
        closed_s = time.monotonic() - began
        for each in crowd:
            each.cancel()
        for outcome in await asyncio.gather(*crowd, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        for client in clients[1:]:
            client.abort()  # what it has not sent yet it never sends
        await clients[0].leave()
        return closed_s
    finally:
        for each in crowd:
            each.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
        for client in clients:
            client.abort()


async def _declare(channel: ClusterChannel, name: str) -> None:
    for number in range(QUEUES):
        queue = f"{name}.{number}"
        channel.send(methods.QueueDeclare(queue=queue, exclusive=True, nowait=True))
        channel.send(methods.QueueBind(queue=queue, exchange=EXCHANGE, nowait=True))
        channel.send(methods.BasicConsume(queue=queue, nowait=True))
    await channel.ask(methods.BasicQos())


async def _publish(channel: ClusterChannel) -> Any:
    while True:
        for _ in range(AT_ONCE):
            channel.publish(EXCHANGE, "", b"\0\0", b"")
        await channel.client.drain_or_blocked()
        await asyncio.sleep(0)
        while channel.client.blocked is not None and channel.lost is None:
            await asyncio.sleep(0.05)


class WideFanout:
    """Floods one node after the other, among the tasks of a load."""

    def __init__(self, load: Load, random: Random) -> None:
        self._load = load
        self._random = random

    async def run(self) -> None:
        """Flood until the load stops."""
        while not self._load.is_stopping:
            await asyncio.sleep(self._random.uniform(*RESTS_S))
            node = self._random.choice([each for each in NODES if each not in self._load.victims])
            place = self._load.cluster.nodes[node].place
            try:
                await flood_once(
                    lambda place=place: ClusterClient.connect(place.host, place.port),  # type: ignore[misc]
                    self._load.name("wide"),
                )
            except Lost as lost:
                self._load.note(lost, node, "a wide fan-out")
