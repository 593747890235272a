"""Queues, exchanges and bindings that come and go through random nodes, each step on another node than the last.

What one node has answered every node that serves must know: a step that finds an older state counts as stale. What
had no answer may be so or not, and may still come about for a while. All are durable, so that they outlive their
home; it may be down (404), and then they are as they were.
"""

import asyncio
import time
from random import Random
from typing import TYPE_CHECKING, Final

from node.amqp import methods
from tests.kit.cluster_client import ClusterChannel, ClusterClient, code_of
from tests.kit.load_client import Lost

if TYPE_CHECKING:
    from tests.chaos.workload import Workload

THERE: Final = "there"
GONE: Final = "gone"
MAYBE: Final = "maybe"
QUEUES_MAX: Final = 12
UNSURE_S: Final = 30.0
"""A change without an answer may come about for this long: the node goes on trying for a few seconds."""
KEYS: Final = 6
HOME_DOWN: Final = "is down or inaccessible"


class Churn:
    """One of them, with names of its own.   queues: the state of each.   bindings: of each queue and key.

    exchange: topic and durable, which stays.   homes: the index of the node that each queue was declared on.
    """

    def __init__(self, workload: "Workload", number: int, random: Random) -> None:
        self.exchange = f"churn.{number}"
        self.queues: dict[str, str] = {}
        self.bindings: dict[tuple[str, str], str] = {}
        self.homes: dict[str, int] = {}
        self._workload = workload
        self._random = random
        self._channels: dict[int, ClusterChannel] = {}
        self._unsure: dict[str, float] = {}  # when a change of a queue had no answer
        self._count = 0
        self._number = number

    async def run(self) -> None:
        """Come and go until the workload stops."""
        while not self._workload.is_stopping:
            channel = await self._channel()
            if channel is None:
                continue
            try:
                await self._step(channel)
                await asyncio.sleep(self._random.uniform(0, 0.15))
            except Lost as lost:
                if code_of(lost) == 406:
                    self._workload.ledger.count.refused += 1
                self._workload.note(lost, f"{self.exchange} on n{_node(channel) + 1}")
                await self._drop(channel)
                await asyncio.sleep(self._random.uniform(0.05, 0.3))
        for channel in list(self._channels.values()):
            await self._drop(channel)

    async def _channel(self) -> ClusterChannel | None:
        """A channel to a node that serves."""
        node = self._random.randrange(3)
        channel = self._channels.get(node)
        if channel is not None and channel.lost is None:
            return channel
        if channel is not None:
            await self._drop(channel)
        client = await self._workload.connect(node, self._random, is_strict=True)
        if client is None:
            return None
        try:
            channel = await client.channel()
        except Lost as lost:
            self._workload.note(lost, self.exchange)
            await self._workload.leave(client)
            return None
        self._channels[node] = channel
        return channel

    async def _drop(self, channel: ClusterChannel) -> None:
        client = channel.client
        assert isinstance(client, ClusterClient)
        self._channels.pop(client.node, None)
        await self._workload.leave(client)

    # --- steps ---

    async def _step(self, channel: ClusterChannel) -> None:
        there = [name for name, state in self.queues.items() if state == THERE]
        deed = self._random.random()
        if deed < 0.12:
            await self._short_life(channel)
        elif deed < 0.35 or not there:
            await self._declare(channel)
        elif deed < 0.55:
            await self._look(channel, self._random.choice(list(self.queues)))
        elif deed < 0.75:
            await self._bind(channel, self._random.choice(there))
        elif deed < 0.88 and self.bindings:
            await self._unbind(channel)
        else:
            await self._delete(channel, self._random.choice(list(self.queues)))

    async def _declare(self, channel: ClusterChannel) -> None:
        again = [name for name, state in self.queues.items() if state != THERE]
        if again and (len(self.queues) >= QUEUES_MAX or self._random.random() < 0.5):
            name = self._random.choice(again)
        elif len(self.queues) >= QUEUES_MAX:
            return
        else:
            self._count += 1
            name = f"churn.{self._number}.{self._count}"
        before = self.queues.get(name, GONE)
        self.queues[name] = MAYBE
        for key in [key for key in self.bindings if key[0] == name and before == MAYBE]:
            self.bindings[key] = MAYBE
        await self._change(channel, name, methods.QueueDeclare(queue=name, durable=True))
        self.queues[name] = self._now(name, THERE)

    async def _look(self, channel: ClusterChannel, name: str) -> None:
        """A passive declare: does this node know what others answered?"""
        state = self.queues[name]
        try:
            await channel.ask(methods.QueueDeclare(queue=name, passive=True))
        except Lost as lost:
            if code_of(lost) == 404 and HOME_DOWN not in str(lost) and state == THERE:
                self._stale(channel, f"{name} is not there: {lost}")
            raise
        if state == GONE:
            self._stale(channel, f"{name} was deleted, and is there")

    async def _bind(self, channel: ClusterChannel, name: str) -> None:
        binding = (name, f"key.{self._random.randrange(KEYS)}")
        before = self.bindings.get(binding, GONE)
        self.bindings[binding] = MAYBE
        method = methods.QueueBind(queue=name, exchange=self.exchange, routing_key=binding[1])
        try:
            await self._change(channel, name, method)
        except Lost as lost:
            self._missing(channel, lost, name)
            if code_of(lost) == 404:
                self.bindings[binding] = self._now(name, before)
            raise
        self.bindings[binding] = self._now(name, THERE)

    async def _unbind(self, channel: ClusterChannel) -> None:
        binding = self._random.choice(list(self.bindings))
        name, key = binding
        if self.queues[name] != THERE:
            return
        before, self.bindings[binding] = self.bindings[binding], MAYBE
        method = methods.QueueUnbind(queue=name, exchange=self.exchange, routing_key=key)
        try:
            await self._change(channel, name, method)
        except Lost as lost:
            self._missing(channel, lost, name)
            if code_of(lost) == 404:
                self.bindings[binding] = self._now(name, before)
            raise
        self.bindings[binding] = self._now(name, GONE)

    async def _delete(self, channel: ClusterChannel, name: str) -> None:
        self.queues[name] = MAYBE
        self._no_bindings(name, MAYBE)
        # Even a 404 leaves it open: the home may have gone down with the deletion under way.
        await self._change(channel, name, methods.QueueDelete(queue=name))
        self.queues[name] = self._now(name, GONE)
        self._no_bindings(name, self._now(name, GONE))

    def _no_bindings(self, name: str, state: str) -> None:
        for key in self.bindings:
            if key[0] == name:
                self.bindings[key] = state

    def _missing(self, channel: ClusterChannel, lost: Lost, name: str) -> None:
        if code_of(lost) == 404 and HOME_DOWN not in str(lost) and self.queues[name] == THERE:
            self._stale(channel, f"{name}: {lost}")

    async def _short_life(self, channel: ClusterChannel) -> None:
        """A transient or exclusive queue: whatever it says, it is gone in the end."""
        name = f"brief.{self._number}.{self._random.randrange(4)}"
        is_exclusive = self._random.random() < 0.3
        if is_exclusive:
            name += f".{id(channel)}"
        await self._ask(channel, methods.QueueDeclare(queue=name, exclusive=is_exclusive, auto_delete=True))
        await channel.ask(methods.BasicConsume(queue=name, consumer_tag="brief"))
        await channel.ask(methods.BasicCancel(consumer_tag="brief"))

    async def _change(self, channel: ClusterChannel, name: str, method: methods.Method) -> None:
        """A change of a queue or its bindings; without an answer nothing is sure for a while. Raises: Lost."""
        try:
            await self._ask(channel, method)
        except Lost as lost:
            if code_of(lost) != 404 or HOME_DOWN in str(lost):
                self._unsure[name] = time.monotonic()
            raise

    def _now(self, name: str, state: str) -> str:
        """Return the state that is known after an answer."""
        return MAYBE if time.monotonic() < self._unsure.get(name, -UNSURE_S) + UNSURE_S else state

    async def _ask(self, channel: ClusterChannel, method: methods.Method) -> None:
        """A change; its answer counts for how long the node could not make one."""
        await channel.ask(method)
        ledger = self._workload.ledger
        ledger.count.declares += 1
        ledger.declares.setdefault(_node(channel), []).append(time.monotonic())

    def _stale(self, channel: ClusterChannel, text: str) -> None:
        self._workload.ledger.count.problem("stale", f"n{_node(channel) + 1}: {text}")


def _node(channel: ClusterChannel) -> int:
    client = channel.client
    assert isinstance(client, ClusterClient)
    return client.node
