"""All faults over, every confirmed message must be there, and the nodes must agree about everything."""

import asyncio
import json
import time
from random import Random
from typing import Final

from node.amqp import methods
from node.io.control import ControlError
from tests.chaos.broker import BrokerCluster
from tests.chaos.churn import GONE, KEYS, THERE, Churn
from tests.chaos.cluster import ChaosCluster, ChaosNode
from tests.chaos.leaks import leaks
from tests.chaos.ledger import SHOWN_MAX, Ledger, QueueStory
from tests.chaos.publishers import publish
from tests.chaos.workload import Workload
from tests.kit.cluster_client import ClusterChannel, ClusterClient, code_of
from tests.kit.ledger import CONFIRMED, DELIVERED, NACKED, RETURNED, SENT, SETTLED, SPARED, Kind, Value
from tests.kit.load_client import Delivery, Lost
from tests.kit.patience import patience

QUIET_S: Final = 1.0
GROWTH_MAX_MIB: Final = 96
"""A node's memory may have grown by so much since before the first client."""


async def settle(cluster: BrokerCluster) -> list[tuple[int, int]]:
    """Memory and descriptors of each node with nobody there, once they don't fall any more."""
    await asyncio.sleep(QUIET_S)
    return [node.usage() for node in cluster.nodes]


class FinalCheck:
    """The comparison, when the workload has ended and all nodes are up."""

    def __init__(self, cluster: ChaosCluster, workload: Workload, random: Random) -> None:
        self._cluster = cluster
        self._workload = workload
        self._ledger: Ledger = workload.ledger
        self._count = workload.ledger.count
        self._random = random
        self._clients: list[ClusterClient] = []
        self._channels = 0

    async def run(self, base: list[tuple[int, int]]) -> None:
        """All of it.   base: what `settle` said before the first client. Raises: Lost."""
        durable = [queue for queue in self._ledger.queues.values() if queue.is_durable]
        await asyncio.gather(*map(self._check_queue, durable))
        self._clients = await self._cluster.clients()
        await asyncio.gather(*map(self._check_churn, self._workload.churns))
        for client in self._clients:
            await client.leave()
        await self._check_lists()
        if left := await leaks(self._cluster.nodes, base, GROWTH_MAX_MIB):
            self._count.problem("leaks", left)
        for node in self._cluster.nodes:
            found = node.faults_in_log()
            if found:
                self._count.problem("other", found)

    # --- messages ---

    async def _check_queue(self, queue: QueueStory) -> None:
        node = self._random.choice([each for each in self._cluster.nodes if each.index != queue.home])
        client = await node.connect()
        try:
            found = await self._drain(client, queue)
        finally:
            await client.leave()
        self.compare(queue, found)

    async def _drain(self, client: ClusterClient, queue: QueueStory) -> list[Value]:
        """Take all there is, in order."""
        channel = await client.channel()
        found: list[Value] = []

        def take(delivery: Delivery) -> None:
            value = self._ledger.read(delivery, queue)
            if value is not None:
                known = queue.marks.get(value, 0)
                where = f"{queue.name} at the end: {value.publisher}:{value.number}"
                if not known & SENT:
                    self._count.problem("unexpected", f"{where} was never published to it")
                if known & DELIVERED and not delivery.method.redelivered:
                    self._count.problem(
                        "unmarked", f"{where} does not say redelivered: {queue.holders[value].text}"
                    )
                found.append(value)
            channel.send(methods.BasicAck(delivery_tag=delivery.method.delivery_tag))

        channel.on_delivery = take
        await channel.ask(methods.BasicQos(prefetch_count=500))
        await channel.ask(methods.BasicConsume(queue=queue.name))
        since = time.monotonic()
        while True:
            seen = len(found)
            await asyncio.sleep(QUIET_S * patience())
            if len(found) != seen:
                since = time.monotonic()
                continue
            left = (await channel.ask(methods.QueueDeclare(queue=queue.name, passive=True))).message_count
            if left == 0 and len(found) == seen:
                return found
            if time.monotonic() - since > 20 * patience():
                self._count.problem("stuck", f"{queue.name} has {left} messages that don't come")
                return found

    def compare(self, queue: QueueStory, found: list[Value]) -> None:
        """Compare the messages found in a queue with those that must be there, in order."""
        count, marks = self._count, queue.marks
        present = set(found)
        if len(present) != len(found):
            twice = sorted({value for value in present if found.count(value) > 1})
            count.problem("twice", f"{queue.name}: {_some(twice)}", len(found) - len(present))
        self._compare_order(queue, found)
        lost = []
        for value, known in marks.items():
            had = value in present or known & DELIVERED
            is_settled = known & SETTLED or value in present
            if known & CONFIRMED and not known & SPARED and not (had and is_settled):
                lost.append(value)
            if had and not known & (CONFIRMED | RETURNED):
                count.recovered += 1
            if had and known & RETURNED and not known & NACKED:
                count.problem("other", f"{queue.name}: {value} was returned, and was in the queue")
            if value in present and known & SETTLED:
                count.again += 1
        if lost:
            text = ", ".join(
                f"{value.publisher}:{value.number} ({'never' if not marks[value] & DELIVERED else 'was'} delivered)"
                for value in lost[:SHOWN_MAX]
            )
            count.problem("lost", f"{queue.name}: {len(lost)}, as {text}", len(lost))

    def _compare_order(self, queue: QueueStory, found: list[Value]) -> None:
        last: dict[str, int] = {}
        for value in found:
            if last.get(value.publisher, 0) > value.number:
                text = f"{queue.name} at the end: {value} after {last[value.publisher]}"
                self._count.problem("disorder", text)
            last[value.publisher] = value.number

    # --- metadata ---

    async def _check_churn(self, churn: Churn) -> None:
        await self._check_names(churn)
        await self._check_bindings(churn)

    async def _channel(self, node: ChaosNode) -> ClusterChannel:
        self._channels += 1
        return await self._clients[node.index].channel(self._channels)

    async def _check_names(self, churn: Churn) -> None:
        """Each queue exists on all nodes or on none, as its last answer said."""
        for name, state in churn.queues.items():
            found = [await self._exists(node, name) for node in self._cluster.nodes]
            if len(set(found)) != 1:
                self._count.problem("differs", f"{name} exists on n1, n2, n3: {found}")
            elif state in (THERE, GONE) and found[0] != (state == THERE):
                self._count.problem("differs", f"{name} should be {state}, exists: {found[0]}")
            if not found[0]:
                for binding in churn.bindings:
                    if binding[0] == name:
                        churn.bindings[binding] = GONE
            churn.queues[name] = THERE if found[0] else GONE

    async def _exists(self, node: ChaosNode, name: str) -> bool:
        channel = await self._channel(node)
        try:
            await channel.ask(methods.QueueDeclare(queue=name, passive=True))
        except Lost as lost:
            if code_of(lost) != 404 or "no queue" not in str(lost):
                self._count.problem("other", f"{name} on {node.short_name}: {lost}")
            return False
        await channel.ask(methods.ChannelClose(reply_code=200, reply_text="bye"))
        return True

    async def _check_bindings(self, churn: Churn) -> None:
        """Publish by each key through each node: the same queues get it, as the last answers said."""
        for number in range(KEYS):
            key = f"key.{number}"
            got = [await self._routes(node, churn, key) for node in self._cluster.nodes]
            if any(each != got[0] for each in got):
                self._count.problem("differs", f"{churn.exchange} {key} leads, by node: {got}")
            for (name, bound), state in churn.bindings.items():
                if bound == key and state in (THERE, GONE) and (name in got[0]) != (state == THERE):
                    text = f"{churn.exchange} {key} to {name} should be {state}, leads to {sorted(got[0])}"
                    self._count.problem("differs", text)

    async def _routes(self, node: ChaosNode, churn: Churn, key: str) -> frozenset[str]:
        """Return the queues that a publish reaches."""
        there = [name for name, state in churn.queues.items() if state == THERE]
        channel = await self._channel(node)
        for name in there:
            await channel.ask(methods.QueuePurge(queue=name))
        await channel.ask(methods.TxSelect())
        kind = Kind()
        value = Value("route", number_of(key))
        publish(channel, churn.exchange, key, kind.properties(value), kind.body(value))
        await channel.ask(methods.TxCommit())
        found = frozenset([name for name in there if await self._messages(channel, name)])
        await channel.ask(methods.ChannelClose(reply_code=200, reply_text="bye"))
        return found

    async def _messages(self, channel: ClusterChannel, name: str) -> int:
        found = await channel.ask(methods.QueueDeclare(queue=name, passive=True))
        count: int = found.message_count
        return count

    async def _check_lists(self) -> None:
        """Check that `fluffle ctl list_queues` prints the same on every node."""
        lists = []
        for node in self._cluster.nodes:
            columns = ("name", "durable", "auto_delete", "arguments", "home", "messages")
            done = await asyncio.to_thread(node.ctl, "--formatter", "json", "list_queues", *columns)
            if done.returncode:
                self._count.problem("other", f"list_queues on {node.short_name}: {done.stderr}")
                return
            rows = json.loads(done.stdout)
            lists.append(sorted(json.dumps(row, sort_keys=True) for row in rows))
        for node, each in zip(self._cluster.nodes, lists, strict=True):
            if each != lists[0]:
                differ = sorted(set(each) ^ set(lists[0]))[:SHOWN_MAX]
                self._count.problem("differs", f"list_queues on {node.short_name} and n1: {differ}")
        await self._check_members()

    async def _check_members(self) -> None:
        seen = set()
        for node in self._cluster.nodes:
            try:
                told = await node.ask("list_members", timeout_s=10)
            except ControlError as error:
                self._count.problem("other", f"list_members on {node.short_name}: {error}")
                return
            rows = [{**row, "is_linked": True} for row in told["members"]]
            seen.add(json.dumps([rows, told["voters"], told["leader"]], sort_keys=True))
        if len(seen) != 1:
            self._count.problem("differs", f"list_members: {seen}")


def number_of(key: str) -> int:
    """The number behind the last dot."""
    return int(key.rpartition(".")[2])


def _some(values: list[Value]) -> str:
    return ", ".join(f"{value.publisher}:{value.number}" for value in values[:SHOWN_MAX])
