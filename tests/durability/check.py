"""Compares what is in the queues after a restart with what the ledger says, and begins the ledger anew."""

import asyncio
import time
from collections import Counter
from random import Random
from typing import Final, NamedTuple

from node.amqp import methods
from node.io.control import request
from tests.durability.ledger import (
    DELAYED,
    DROPPED,
    LETTERS,
    SAFE_LETTERS,
    TRANSIENT,
    Ledger,
    QueueLedger,
)
from tests.durability.load import Churn
from tests.kit.ledger import CONFIRMED, DELIVERED, SETTLED, Value
from tests.kit.load_client import Channel, Client, Delivery, Lost
from tests.kit.node_process import NodeProcess

READ_S: Final = 60.0
"""A queue may take this long to come. Only a failing check waits so long."""
HIGHEST_PRIORITY: Final = 5
SHOWN_MAX: Final = 5


class Found(NamedTuple):
    """A message that is in a queue."""

    value: Value
    is_redelivered: bool
    tag: int


class Check:
    """One look at all queues.   was_killed: the node was, else it was stopped. None: it may count as either."""

    def __init__(self, node: NodeProcess, ledger: Ledger, churn: Churn, *, was_killed: bool | None) -> None:
        self._node = node
        self._ledger = ledger
        self._count = ledger.count
        self._churn = churn
        self._was_killed = was_killed

    async def run(self, random: Random) -> None:
        """Read and compare everything; then acknowledge a part of it, by chance, and give back the rest."""
        client = await Client.open(self._node.host, self._node.port)
        share = random.choice([0.0, 0.0, 0.3, 0.9, 1.0])
        found: dict[str, list[Found]] = {}
        channels: list[tuple[Channel, QueueLedger]] = []
        await self._nothing_waits()
        try:
            for number, name in enumerate(list(self._ledger.queues), 1):
                channel = await client.channel(number)
                queue = self._ledger.queues[name]
                if await self._is_there(channel, name):
                    found[name] = await self._read(channel, queue)
                    channels.append((channel, queue))
                else:
                    del self._ledger.queues[name]
            await self._check_transient_queue(await client.channel(2000))
            for name, messages in found.items():
                self._compare(self._ledger.queues[name], messages)
            self._compare_dead_letters(found)
            for name, messages in found.items():
                self._begin_anew(self._ledger.queues[name], messages)
            self._ledger.rejected.clear()
            for channel, queue in channels:
                await self._drop(channel, queue, found[queue.name], share, random)
        except Lost as lost:
            self._count.problem("other", f"the check was cut short: {lost}")
        finally:
            await client.close()

    async def _nothing_waits(self) -> None:
        """Wait until no message waits for its time, or for its dead-letter queue, so that all can be read."""
        question = {"vhost": "/", "which": "all", "columns": ["messages_delayed", "messages_dlx"]}
        deadline = time.monotonic() + READ_S
        while True:
            answer = await asyncio.to_thread(
                request, str(self._node.data), "list_queues", question, timeout_s=READ_S
            )
            waiting = {
                row["name"]: number
                for row in answer["queues"]
                if (number := (row.get("messages_delayed") or 0) + (row.get("messages_dlx") or 0))
                or (row["name"].startswith("amq.delayed.") and (number := row["messages"]))
            }
            if not waiting:
                return
            if time.monotonic() > deadline:
                self._count.problem("other", f"these wait for ever: {waiting}")
                return
            await asyncio.sleep(0.05)

    async def _is_there(self, channel: Channel, name: str) -> bool:
        """Whether a queue is there; a problem if that is wrong."""
        state = self._churn.state.get(name, "there")
        try:
            await channel.call(methods.QueueDeclare(queue=name, passive=True))
        except Lost as lost:
            if not str(lost).startswith("404") or state == "there":
                self._count.problem(
                    "lost", f"queue {name}: {lost}", len(self._ledger.queues[name].must()) or 1
                )
            if name in self._churn.state:
                self._churn.state[name] = "gone"
            return False
        if state == "gone":
            self._count.problem("ghosts", f"queue {name} was deleted")
        if name in self._churn.state:
            self._churn.state[name] = "there"
        return True

    async def _check_transient_queue(self, channel: Channel) -> None:
        """Check that the queue that is not durable is gone, and declare it for the next round."""
        try:
            await channel.call(methods.QueueDeclare(queue="fleeting", passive=True))
            self._count.problem("ghosts", "queue fleeting is not durable, and is there after a restart")
        except Lost:
            channel = await channel.client.channel(2001)
            await channel.call(methods.QueueDeclare(queue="fleeting", durable=False))

    async def _read(self, channel: Channel, queue: QueueLedger) -> list[Found]:
        """All messages of a queue, in their order, unacknowledged."""
        found: list[Found] = []
        arrived = 0
        changed = asyncio.Event()

        def take(delivery: Delivery) -> None:
            nonlocal arrived
            arrived += 1
            value = self._ledger.read(delivery, queue)
            if value is not None:
                found.append(Found(value, delivery.method.redelivered, delivery.method.delivery_tag))
            changed.set()

        channel.on_delivery = take
        declared = await channel.call(methods.QueueDeclare(queue=queue.name, passive=True))
        await channel.call(methods.BasicConsume(queue=queue.name))
        while arrived < declared.message_count:
            changed.clear()
            try:
                await asyncio.wait_for(changed.wait(), READ_S)
            except TimeoutError:
                text = f"{queue.name}: it says {declared.message_count} messages, {arrived} came"
                self._count.problem("other", text)
                break
        left = await channel.call(methods.QueueDeclare(queue=queue.name, passive=True))
        if left.message_count or arrived != declared.message_count:
            text = (
                f"{queue.name}: {declared.message_count} counted, {arrived} came, {left.message_count} left"
            )
            self._count.problem("other", text)
        return found

    def _compare(self, queue: QueueLedger, messages: list[Found]) -> None:
        count = self._count
        count.recovered += len(messages)
        values = [message.value for message in messages]
        present = set(values)
        many = [value for value, times in Counter(values).items() if times > 1]
        if many and (queue.name in LETTERS or queue.moves):
            count.copied += len(many)
        elif many:
            count.problem("twice", f"{queue.name}: {len(many)}, as {_some(many)}", len(many))
        lost = sorted(queue.must() - present)
        if lost:
            text = f"{queue.name}: {len(lost)} of {len(queue.must())}, as {_some(lost)}"
            count.problem("lost", text, len(lost))
        ghosts = [value for value in values if not self._may(queue, value)]
        if ghosts:
            shown = ", ".join(f"{value} {queue.marks.get(value)}" for value in ghosts[:SHOWN_MAX])
            count.problem("ghosts", f"{queue.name}: {len(ghosts)}, as {shown}", len(ghosts))
        count.returned += sum(1 for value in present if queue.marks.get(value, 0) & SETTLED)
        self._compare_order(queue, values)
        self._compare_redelivered(queue, messages)

    def _may(self, queue: QueueLedger, value: Value) -> bool:
        if queue.name in LETTERS and value in self._ledger.rejected:
            return True
        return queue.may(value)

    def _compare_order(self, queue: QueueLedger, values: list[Value]) -> None:
        if not queue.has_order:
            return
        last: dict[tuple[str, int], int] = {}
        for value in values:
            kind = self._ledger.kinds[value.publisher]
            priority = min(kind.priority(value.number), HIGHEST_PRIORITY) if queue.is_priority else 0
            key = (value.publisher, priority)
            if last.get(key, 0) > value.number:
                self._count.problem("disorder", f"{queue.name}: {value} after {last[key]}")
            last[key] = value.number

    def _compare_redelivered(self, queue: QueueLedger, messages: list[Found]) -> None:
        count = self._count
        for value, is_redelivered, _ in messages:
            was_delivered = bool(queue.marks.get(value, 0) & DELIVERED)
            is_new_copy = queue.name in LETTERS and value in self._ledger.rejected
            if queue.name == DELAYED or (queue.name == SAFE_LETTERS and is_new_copy):
                continue  # it may have come after the start
            if not is_redelivered and (self._was_killed or (was_delivered and not is_new_copy)):
                count.problem("unmarked", f"{queue.name}: {value} doesn't say redelivered")
            if is_redelivered and self._was_killed is False and not was_delivered and not queue.had_consumer:
                count.problem("marked", f"{queue.name}: {value} says redelivered, and nobody had it")

    def _compare_dead_letters(self, found: dict[str, list[Found]]) -> None:
        """Check that each rejected message is in one of the two queues, or in both."""
        for target, source in LETTERS.items():
            if source in found and target in found:
                self._compare_letters_of(source, target, found)

    def _compare_letters_of(self, source: str, target: str, found: dict[str, list[Found]]) -> None:
        count = self._count
        alive = {message.value for message in found[source]}
        dead = {message.value for message in found[target]}
        count.copied += len(alive & dead)
        marks = self._ledger.queues[target].marks
        first = self._ledger.queues[source].marks
        for value, was_confirmed in self._ledger.rejected.items():
            if value not in first:
                continue
            is_settled = marks.get(value, 0) & SETTLED or first[value] & TRANSIENT
            if value in alive or value in dead or is_settled or not first[value] & CONFIRMED:
                continue
            if was_confirmed:
                count.problem("lost", f"{value} was rejected, and is in neither queue")
            else:
                count.early += 1

    def _begin_anew(self, queue: QueueLedger, messages: list[Found]) -> None:
        queue.marks = {message.value: CONFIRMED | DELIVERED for message in messages}
        queue.had_consumer = False

    async def _drop(
        self, channel: Channel, queue: QueueLedger, messages: list[Found], share: float, random: Random
    ) -> None:
        """Acknowledge a share, and know that the node has heard of it."""
        # Both, where a message is there twice: the ledger knows nothing of copies.
        chosen = {value for value in {each.value: None for each in messages} if random.random() < share}
        dropped = [message for message in messages if message.value in chosen]
        queue.settle(message.value for message in dropped)
        if len(dropped) == len(messages):
            if messages:
                channel.send(methods.BasicAck(delivery_tag=0, multiple=True))
        else:
            for message in dropped:
                channel.send(methods.BasicAck(delivery_tag=message.tag))
        self._count.acked += len(dropped)
        await channel.call(methods.ChannelClose(reply_code=200, reply_text="bye"))


def note_that_acks_were_heard(ledger: Ledger) -> None:
    """Before a clean stop without load: what was settled must not come back."""
    for queue in ledger.queues.values():
        for value, marks in queue.marks.items():
            if marks & SETTLED:
                queue.marks[value] = marks | DROPPED


def _some(values: list[Value]) -> str:
    return ", ".join(f"{value.publisher}:{value.number}" for value in values[:SHOWN_MAX])
