"""reliability §2.3, amqp-behaviour §9.3: when a mirror has all, and how it comes to have it.

Queues with two copies, on the first and the second node; clients are on the third.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import BasicAck, BasicReject, QueueDeclare, QueuePurge
from tests.conformance.cluster_story import PERSISTENT
from tests.conformance.queue_steps import publish_each
from tests.kit.amqp_client import Channel
from tests.kit.mirror_steps import Mirrored, all_bodies, await_shape, bodies, numbered, set_mirroring
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster, ClusterNode, is_rabbitmq

pytestmark = pytest.mark.slow

On = Callable[..., Channel]
Name = Callable[[str], str]

COUNT: Final = 2000
BIG: Final = 20_000
BIG_COUNT: Final = 4000
"""80 MB, so that a synchronisation can be caught at it."""
LOSSY: Final = {"ha_promote_on_shutdown": "always", "ha_promote_on_failure": "always"}


class Pair:
    """A durable queue with its master on the first node and a mirror on the second, both synchronised."""

    def __init__(self, cluster: Cluster, channel: Channel, prefix: str, **fields: Any) -> None:
        self.cluster, self.channel, self.queue = cluster, channel, prefix
        self.a, self.b, self.c = cluster.nodes
        channel.declare(prefix, durable=True, **fields)
        self.shape(self.a, synced=True)

    def shape(self, master: ClusterNode, *, synced: bool) -> None:
        """Wait until the master is there, and the other one a mirror.

        The node of the client and the master see it: a master that does not yet goes on without the mirror.
        """
        other = self.b if master is self.a else self.a
        names = {other.name}
        for node in (self.c, master):
            await_shape(
                node, self.queue, master=master.name, mirrors=names, synced=names if synced else set()
            )

    def restart(self, node: ClusterNode) -> None:
        node.stop_app()
        others = [each for each in self.cluster.nodes if each is not node]
        self.cluster.await_members(*(each.name for each in others), seen_by=others)
        node.start_app()
        node.await_ready()
        self.cluster.await_members()

    def publish(self, count: int = COUNT, size: int = 0) -> None:
        publish_each(
            self.channel, self.queue, *(body.ljust(size) for body in numbered(count)), properties=PERSISTENT
        )

    def count(self) -> int:
        count: int = self.channel.call(QueueDeclare, queue=self.queue, passive=True).message_count
        return count


@pytest.fixture
def pair(shaken_cluster: Cluster, on: On, mirrored: Mirrored) -> Callable[..., Pair]:
    """`pair(ha_sync_mode="automatic", fields={"arguments": …})`."""

    def make(fields: dict[str, Any] | None = None, **more: str) -> Pair:
        names = (shaken_cluster[0].name, shaken_cluster[1].name)
        prefix = mirrored("nodes", names, **LOSSY, **more)
        return Pair(shaken_cluster, on(shaken_cluster[2]), prefix, **(fields or {}))

    return make


def test_eager_sync(pair: Callable[..., Pair]) -> None:
    """§2.3 eager_sync: without a synchronisation both restarts lose all, by such a policy; with one, nothing."""
    queue = pair()
    queue.publish()
    queue.restart(queue.a)
    queue.shape(queue.b, synced=False)
    queue.restart(queue.b)
    queue.shape(queue.a, synced=True)
    assert queue.count() == 0

    queue.publish()
    queue.restart(queue.a)
    queue.shape(queue.b, synced=False)
    queue.c.sync(queue.queue)
    queue.shape(queue.b, synced=True)
    queue.c.sync(queue.queue)  # of a synchronised one: nothing
    queue.restart(queue.b)
    queue.shape(queue.a, synced=False)
    assert all_bodies(queue.channel, queue.queue) == list(numbered(COUNT))
    queue.shape(queue.a, synced=True)


def test_eager_sync_keeps_unacked(pair: Callable[..., Pair], on: On) -> None:
    """§2.3 eager_sync: what a client holds is synchronised as well, and comes back when that node ends."""
    queue = pair()
    queue.publish(1000)
    queue.restart(queue.a)
    queue.shape(queue.b, synced=False)
    for _ in range(100):
        queue.channel.wait_get(queue.queue, no_ack=False)
    queue.c.sync(queue.queue)
    queue.shape(queue.b, synced=True)
    queue.restart(queue.b)
    assert all_bodies(on(queue.c), queue.queue) == list(numbered(1000))


def test_eager_sync_cancel(pair: Callable[..., Pair]) -> None:
    """§2.3 eager_sync_cancel: a copy that was not finished is not synchronised; to cancel nothing is no error.

    Promoted all the same, by such a policy, RabbitMQ's begins with nothing, ours with what it has got.
    """
    queue = pair()
    queue.c.cancel_sync(queue.queue)
    queue.publish(BIG_COUNT, BIG)
    queue.restart(queue.a)
    queue.shape(queue.b, synced=False)
    for _ in range(5):
        cancel_in_the_midst(queue)
        if not queue.c.replicas(queue.queue).synced:
            break
        queue.restart(queue.a)
        queue.shape(queue.b, synced=False)
    else:
        pytest.skip("it was always too late to cancel")
    queue.c.cancel_sync(queue.queue)
    queue.restart(queue.b)
    await_shape(queue.c, queue.queue, master=queue.a.name, mirrors=1)
    numbers = [int(body) for body in all_bodies(queue.channel, queue.queue)]
    assert numbers == sorted(set(numbers))
    assert len(numbers) < (1 if is_rabbitmq() else BIG_COUNT)


def cancel_in_the_midst(queue: Pair) -> None:
    """Start a synchronisation and cancel it at once, again and again until it has ended."""
    errors: list[RuntimeError] = []

    def sync() -> None:
        try:
            queue.c.sync(queue.queue)
        except RuntimeError as error:
            errors.append(error)

    running = threading.Thread(daemon=True, target=sync)
    running.start()
    while running.is_alive():
        queue.b.cancel_sync(queue.queue)
        running.join(0.01)
    if not is_rabbitmq():
        assert not errors  # which says {error, cancelled} or the like, or nothing, as it comes


def test_eager_sync_auto(pair: Callable[..., Pair]) -> None:
    """§2.3 eager_sync_auto: nobody has to ask."""
    queue = pair(ha_sync_mode="automatic")
    queue.publish()
    queue.restart(queue.a)
    queue.shape(queue.b, synced=True)
    queue.restart(queue.b)
    queue.shape(queue.a, synced=True)
    assert all_bodies(queue.channel, queue.queue) == list(numbered(COUNT))


def test_eager_sync_auto_on_policy_change(pair: Callable[..., Pair]) -> None:
    """§2.3 eager_sync_auto_on_policy_change: it begins when the policy says automatic."""
    queue = pair()
    queue.publish()
    queue.restart(queue.a)
    queue.shape(queue.b, synced=False)
    names = (queue.a.name, queue.b.name)
    set_mirroring(queue.c, queue.queue, "nodes", names, **LOSSY, ha_sync_mode="automatic")
    queue.shape(queue.b, synced=True)
    queue.restart(queue.b)
    assert all_bodies(queue.channel, queue.queue) == list(numbered(COUNT))


def test_eager_sync_requeue(pair: Callable[..., Pair]) -> None:
    """§2.3 eager_sync_requeue: one is requeued before it, one after it; both are there."""
    queue = pair()
    queue.publish(2)
    queue.restart(queue.a)
    queue.shape(queue.b, synced=False)
    first, second = get(queue), get(queue)
    queue.channel.send(BasicReject, delivery_tag=first, requeue=True)
    queue.c.sync(queue.queue)
    queue.shape(queue.b, synced=True)
    queue.channel.send(BasicReject, delivery_tag=second, requeue=True)
    queue.channel.sync()
    assert bodies(queue.channel, queue.queue) == list(numbered(2))


def test_sync_while_in_use(pair: Callable[..., Pair]) -> None:
    """§9.3: publishes and acknowledgements during a synchronisation; all that is left is on both copies."""
    queue = pair()
    queue.publish(COUNT, 2000)
    queue.restart(queue.a)
    queue.shape(queue.b, synced=False)
    running = threading.Thread(daemon=True, target=queue.b.sync, args=(queue.queue,))
    running.start()
    for number in range(300):
        queue.channel.wait_get(queue.queue)
        publish_each(queue.channel, queue.queue, b"new %d" % number, properties=PERSISTENT)
    running.join(60)
    queue.shape(queue.b, synced=True)
    queue.restart(queue.b)
    expected = [*list(numbered(COUNT))[300:], *(b"new %d" % number for number in range(300))]
    assert [body.rstrip() for body in all_bodies(queue.channel, queue.queue)] == expected


# --- sync_detection -----------------------------------------------------------------------------------------


@pytest.fixture
def away(pair: Callable[..., Pair]) -> Iterator[Callable[..., Pair]]:
    """A pair whose mirror's node is stopped; `back` starts it."""

    def make(**options: Any) -> Pair:
        queue = pair(**options)
        queue.b.stop_app()
        queue.cluster.await_members(queue.a.name, queue.c.name, seen_by=(queue.a, queue.c))
        return queue

    return make


def back(queue: Pair) -> None:
    queue.b.start_app()
    queue.b.await_ready()


def is_unsynced(queue: Pair) -> None:
    """The mirror is there, and lacks something. It would not be told at once otherwise: a round trip or two."""
    for _ in range(3):
        publish_and_take_elsewhere(queue)
        queue.shape(queue.a, synced=False)


def publish_and_take_elsewhere(queue: Pair) -> None:
    """Something else that takes the same ways."""
    other = queue.channel.declare()
    publish_each(queue.channel, other, b"x")
    queue.channel.wait_get(other)


def get(queue: Pair) -> int:
    tag: int = queue.channel.wait_get(queue.queue, no_ack=False).method.delivery_tag
    return tag


def test_follower_synchronization(away: Callable[..., Pair]) -> None:
    """§2.3 sync_detection follower_synchronization: unsynchronised until what it missed is gone, not just moved.

    What the mirror missed is acknowledged, requeued, purged; what it got itself does not matter.
    """
    queue = away()
    channel = queue.channel
    queue.publish(1)
    held = get(queue)
    back(queue)
    queue.shape(queue.a, synced=False)
    queue.publish(1)
    is_unsynced(queue)
    own = get(queue)
    is_unsynced(queue)
    channel.send(BasicAck, delivery_tag=held)
    queue.shape(queue.a, synced=True)
    channel.send(BasicReject, delivery_tag=own, requeue=True)
    channel.sync()
    queue.shape(queue.a, synced=True)
    channel.send(BasicAck, delivery_tag=get(queue))
    queue.shape(queue.a, synced=True)


def test_follower_synchronization_requeue(away: Callable[..., Pair]) -> None:
    """§2.3 the same: what it missed is requeued, so still there; and purged in the end."""
    queue = away()
    channel = queue.channel
    queue.publish(2)
    held = get(queue)
    back(queue)
    queue.shape(queue.a, synced=False)
    channel.send(BasicReject, delivery_tag=held, requeue=True)
    channel.sync()
    is_unsynced(queue)
    held = get(queue)
    assert channel.call(QueuePurge, queue=queue.queue).message_count == 1
    is_unsynced(queue)
    queue.publish(2)
    is_unsynced(queue)
    channel.send(BasicReject, delivery_tag=held, requeue=False)
    queue.shape(queue.a, synced=True)
    assert channel.call(QueuePurge, queue=queue.queue).message_count == 2
    queue.shape(queue.a, synced=True)


@pytest.mark.parametrize("has_grave", [False, True])
def test_follower_synchronization_ttl(away: Callable[..., Pair], name: Name, on: On, has_grave: bool) -> None:
    """§2.3 follower_synchronization_ttl: synchronised once what it missed has expired, dead-lettered or not."""
    arguments: Table = {"x-message-ttl": long(8000)}
    grave = name("grave")
    if has_grave:
        arguments |= {"x-dead-letter-exchange": longstr(""), "x-dead-letter-routing-key": longstr(grave)}
    queue = away(fields={"arguments": arguments})
    on(queue.c).declare(grave, exclusive=True)
    queue.publish(2)
    back(queue)
    queue.shape(queue.a, synced=False)
    queue.publish(1)
    queue.shape(queue.a, synced=False)
    wait_until(lambda: len(queue.c.replicas(queue.queue).synced) == 1, "the first two expire", 20)
    queue.shape(queue.a, synced=True)
