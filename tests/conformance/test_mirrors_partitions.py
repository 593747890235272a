"""reliability §2.4, amqp-behaviour §9.6: links between the nodes break; clients on both sides of a mirrored queue.

A is cut off from B and C, which go on without it: pause_minority.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final, cast

import aio_pika
import pytest
from aio_pika.exceptions import AMQPError

from node.amqp.methods import BasicAck, ConfirmSelect, QueueDeclare
from node.io.control import request
from tests.conformance.aio_pika_steps import connected
from tests.conformance.cluster_story import PERSISTENT, publish
from tests.kit.amqp_client import Channel, ConnectionEnded
from tests.kit.fluffle_cluster import FluffleNode
from tests.kit.mirror_steps import (
    all_bodies,
    await_shape,
    bodies,
    delete_queues,
    numbered,
    set_mirroring,
)
from tests.kit.patience import patience, wait_until
from tests.kit.server_cluster import Cluster, ClusterNode, is_rabbitmq, start_cluster

pytestmark = pytest.mark.slow

On = Callable[..., Channel]
Name = Callable[[str], str]
AT_ONCE: Final = 500
BEFORE: Final = 1000
"""Messages that are confirmed when the partition starts."""
PAUSES_S: Final = 30.0


@pytest.fixture(scope="module")
def cuttable() -> Iterator[Cluster]:
    """Three nodes whose links can be cut."""
    cluster = start_cluster(can_be_cut=True)
    yield cluster
    cluster.stop()


@pytest.fixture
def parted(cuttable: Cluster, name: Name) -> Iterator[Callable[[str], str]]:
    """Declare a queue whose master is on that node; it is mirrored on all, but `parted("A", False)` is not."""
    cuttable.mend()
    cuttable.heal()
    prefix = name("parted")
    set_mirroring(cuttable[0], f"{prefix}-m", "all", ha_sync_mode="automatic")

    def make(node: ClusterNode, *, is_mirrored: bool = True) -> str:
        queue = f"{prefix}-m" if is_mirrored else f"{prefix}-u"
        asyncio.run(aio_declare(node, queue))
        if is_mirrored:
            await_shape(node, queue, master=node.name, synced=2)
        return queue

    yield make
    cuttable.mend()
    cuttable.heal()
    delete_queues(cuttable[0], prefix)
    cuttable[0].admin.clear_policy("/", f"{prefix}-m")


async def aio_declare(node: ClusterNode, queue: str) -> None:
    async with connected(node) as connection:
        await (await connection.channel()).declare_queue(queue, durable=True)


def isolate(cluster: Cluster) -> None:
    """Cut A off."""
    a, b, c = (node.name for node in cluster.nodes)
    cluster.cut((a, b), (a, c))


def accepts(node: ClusterNode, on: On) -> bool:
    """Whether a client gets in."""
    try:
        on(node)
    except (OSError, AssertionError):
        return False
    return True


def await_end(channel: Channel) -> None:
    """Wait until the connection has ended."""
    with contextlib.suppress(ConnectionEnded):
        while True:
            channel.connection.next_frame(0, PAUSES_S)


def await_paused(cluster: Cluster, on: On) -> None:
    wait_until(lambda: not accepts(cluster[0], on), "A turns clients away", PAUSES_S)


def come_together(cluster: Cluster) -> None:
    """Heal; return when all nodes listen and agree."""
    cluster.mend()
    for node in cluster.nodes:
        node.await_ready()
    cluster.await_members()


def test_pause_minority_on_down(cuttable: Cluster, parted: Callable[..., str], on: On) -> None:
    """§2.4 pause_minority_on_down: A runs with one peer and pauses with none; with one again it runs."""
    queue = parted(cuttable[0])
    cuttable[1].kill()
    cuttable.await_members(cuttable[0].name, cuttable[2].name, seen_by=[cuttable[0], cuttable[2]])
    publish(on(cuttable[0]), queue, b"1")
    there = on(cuttable[0])
    cuttable[2].kill()
    await_end(there)
    await_paused(cuttable, on)
    cuttable[2].launch()
    wait_until(lambda: accepts(cuttable[0], on), "A is back", 60)
    cuttable.heal()
    publish(on(cuttable[1]), queue, b"2")
    assert bodies(on(cuttable[2]), queue) == [b"1", b"2"]


def test_pause_minority_on_blocked(cuttable: Cluster, parted: Callable[..., str], on: On) -> None:
    """§2.4 pause_minority_on_blocked: A pauses, B and C go on with all that was confirmed; afterwards all run."""
    queue = parted(cuttable[0])
    publish(on(cuttable[0]), queue, *numbered(100))
    there = on(cuttable[0])
    isolate(cuttable)
    await_end(there)
    seen = await_shape(cuttable[1], queue, mirrors=1)
    assert seen.master in {cuttable[1].name, cuttable[2].name}
    publish(on(cuttable[2]), queue, b"meanwhile")
    await_paused(cuttable, on)
    come_together(cuttable)
    await_shape(cuttable[0], queue, mirrors=2, synced=2)
    assert bodies(on(cuttable[0]), queue) == [*numbered(100), b"meanwhile"]


class Promises:
    """An aio-pika publisher that goes on until its connection ends; what was confirmed to it."""

    def __init__(self, node: ClusterNode, queue: str) -> None:
        self._node, self._queue = node, queue
        self.confirmed: set[int] = set()
        self.published = 0

    async def run(self, cut: Callable[[], None]) -> None:
        """Publish; when BEFORE are confirmed have the partition start."""
        connection = await aio_pika.connect(
            f"amqp://guest:guest@{self._node.host}:{self._node.port}/", heartbeat=0
        )
        exchange = (await connection.channel()).default_exchange
        going, is_over, cutting = asyncio.Semaphore(AT_ONCE), asyncio.Event(), None
        tasks = set()

        async def publish_one(number: int) -> None:
            message = aio_pika.Message(b"%d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            try:
                await exchange.publish(message, self._queue)
                self.confirmed.add(number)
            except (AMQPError, OSError, RuntimeError, asyncio.CancelledError):
                is_over.set()
            finally:
                going.release()

        while not is_over.is_set():
            try:
                await asyncio.wait_for(going.acquire(), PAUSES_S)
            except TimeoutError:
                break  # nothing is confirmed any more, nor ended
            tasks.add(asyncio.create_task(publish_one(self.published)))
            self.published += 1
            if cutting is None and len(self.confirmed) >= BEFORE:
                cutting = asyncio.create_task(asyncio.to_thread(cut))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert cutting is not None
        await cutting
        if not connection.is_closed:
            await asyncio.wait_for(connection.close(), 5)


@pytest.mark.parametrize(
    ("home", "is_mirrored"),
    [(0, True), (1, True), (0, False), (1, False)],
    ids=["mirrored", "mirrored-master-beyond", "unmirrored", "unmirrored-beyond"],
)
def test_pause_minority_false_promises(
    cuttable: Cluster, parted: Callable[..., str], on: On, home: int, is_mirrored: bool
) -> None:
    """§2.4 pause_minority_false_promises: what was confirmed to A's client while it was cut off is kept."""
    queue = parted(cuttable[home], is_mirrored=is_mirrored)
    promises = Promises(cuttable[0], queue)
    asyncio.run(asyncio.wait_for(promises.run(lambda: isolate(cuttable)), 90))
    come_together(cuttable)
    channel = on(cuttable[1])
    wait_until(lambda: cuttable[1].home(queue) != "", "the queue is there")
    kept = {int(body) for body in all_bodies(channel, queue)}
    assert len(promises.confirmed) >= BEFORE
    assert promises.confirmed <= kept, sorted(promises.confirmed - kept)[:10]
    assert kept <= set(range(promises.published))


@pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ pauses both A and B: docs/differences.md")
def test_partial_pause_minority(cuttable: Cluster, parted: Callable[..., str], on: On) -> None:
    """§2.4 partial_pause_minority: one link breaks: all three run on, if both reach the leader; one copy is dropped."""
    queue = parted(cuttable[0])
    names = [node.name for node in cuttable.nodes]
    told = request(cast(FluffleNode, cuttable[0]).data, "cluster_status", {}, timeout_s=10)
    names.remove(told["leader"])
    publisher = on(cuttable.node(told["leader"]))
    publisher.call(ConfirmSelect)
    publisher.publish("", queue, b"1", PERSISTENT)
    publisher.expect(BasicAck)
    cuttable.cut((names[0], names[1]))
    publisher.publish("", queue, b"2", PERSISTENT)
    assert publisher.expect(BasicAck, PAUSES_S).delivery_tag == 2
    assert all(accepts(node, on) for node in cuttable.nodes)
    come_together(cuttable)
    assert bodies(on(cuttable[1]), queue) == [b"1", b"2"]


def test_partial_to_full(cuttable: Cluster, parted: Callable[..., str], on: On) -> None:
    """§2.4 partial_false_positive, partial_to_full: A-B breaks, then A-C; healed all agree, and the queue has all."""
    a, b, c = (node.name for node in cuttable.nodes)
    queue = parted(cuttable[2])
    publish(on(cuttable[2]), queue, *numbered(10))
    cuttable.cut((a, b))
    time.sleep(0.5)  # so that the first is noticed by itself
    cuttable.cut((a, b), (a, c))
    await_paused(cuttable, on)
    come_together(cuttable)
    await_shape(cuttable[0], queue, mirrors=2, synced=2)
    assert bodies(on(cuttable[0]), queue) == list(numbered(10))


def test_prompt_disconnect_detection(cuttable: Cluster, parted: Callable[..., str], on: On) -> None:
    """§2.4 prompt_disconnect_detection: `list_queues` of C answers within 8 s when B, which has them, is cut off."""
    parted(cuttable[0])
    channel = on(cuttable[1])
    for _ in range(20):
        channel.call(QueueDeclare, exclusive=True)
    a, b, c = (node.name for node in cuttable.nodes)
    cuttable.cut((a, b), (b, c))
    since = time.monotonic()
    listed = cuttable[2].ctl("list_queues", "name", "messages", timeout_s=30)
    assert listed.code == 0, listed
    assert time.monotonic() - since < (20 if is_rabbitmq() else 8) * patience(), (
        "with the start of rabbitmqctl there"
    )
    come_together(cuttable)
