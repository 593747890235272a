"""Queues of which most is on disk: consumers, limits, times to live, requeues, lazy queues.

amqp-behaviour §4.8-4.11, §5.2, §5.4, §5.6, §7.3.
"""

from random import Random

import pytest

from node.amqp.field_table import Table, boolean, long, longstr
from node.amqp.frames import method_frame
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicNack,
    BasicQos,
    BasicQosOk,
    QueueDeclare,
    QueueDeclareOk,
    QueuePurge,
    QueuePurgeOk,
)
from node.amqp.properties import Properties
from node.catalogue.commands import ClearPolicy, SetPolicy
from tests.durable_world.world import (
    LARGE_BYTES,
    PERSISTENT,
    TRANSIENT,
    DurableWorld,
    redelivered,
)
from tests.kit.pager import EagerPager
from tests.kit.world import Client, Received, check_invariants

COUNT = 30


def numbered(count: int = COUNT, size: int = 3) -> list[bytes]:
    """Bodies that differ."""
    return [(b"%03d" % number).ljust(size, b"_") for number in range(count)]


def ready(
    count: int = COUNT,
    *,
    size: int = 3,
    properties: Properties = PERSISTENT,
    arguments: Table | None = None,
    keep_bytes: int = 0,
) -> tuple[DurableWorld, Client, list[bytes]]:
    """A world with the queue q, paged out; a client; the bodies."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments=arguments)
    bodies = numbered(count, size)
    client.publish(1, "q", *bodies, properties=properties)
    world.rest()
    world.page_out("q", keep_bytes=keep_bytes)
    assert world.queue("q").backlog.lengths()["q4"] <= keep_bytes
    return world, client, bodies


def consume(
    client: Client, tag: str = "c", *, prefetch: int = 0, no_ack: bool = False, **arguments: int
) -> None:
    """Consume from q."""
    if prefetch:
        assert client.ask(1, BasicQos(0, prefetch, False)) == BasicQosOk()
    table = {name.replace("_", "-"): long(value) for name, value in arguments.items()}
    # Nothing comes back but deliveries.
    client.send(1, BasicConsume(queue="q", consumer_tag=tag, no_ack=no_ack, nowait=True, arguments=table))


def deliveries(client: Client) -> list[Received]:
    """Return the deliveries since the last time; nothing else may have come."""
    found = client.received()
    assert all(isinstance(item.method, BasicDeliver) for item in found), found
    return found


# --- consumers ---


@pytest.mark.parametrize("size", [3, LARGE_BYTES])
@pytest.mark.parametrize("properties", [PERSISTENT, TRANSIENT])
@pytest.mark.parametrize("no_ack", [False, True])
def test_consumed(size: int, properties: Properties, no_ack: bool) -> None:
    """§4.8, §7.3: a queue on disk is consumed in order, and nothing is left, in memory or on disk."""
    world, client, bodies = ready(size=size, properties=properties)
    consume(client, no_ack=no_ack)
    world.rest()
    found = deliveries(client)
    assert [item.body for item in found] == bodies
    assert not any(redelivered(found))
    if not no_ack:
        client.send(1, BasicAck(COUNT, multiple=True))
    world.rest()
    check_invariants(world)
    assert world.queue("q").backlog.count == 0
    # Of large contents the file stays that the next one goes to.
    assert sum("messages/" in path for path in world.disk.paths()) <= 1
    assert not [path for path in world.disk.paths() if "queues/" in path]
    world.kill()
    world.start()
    assert world.bodies("q") == []


@pytest.mark.parametrize("prefetch", [1, 3, 7])
def test_prefetch(prefetch: int) -> None:
    """§4.9: a consumer never has more than its prefetch, however much is read ahead for it."""
    world, client, bodies = ready()
    consume(client, prefetch=prefetch)
    found: list[Received] = []
    tag = 0
    while len(found) < COUNT:
        world.rest()
        new = deliveries(client)
        assert len(new) == min(prefetch, COUNT - len(found))
        found += new
        tag += len(new)
        client.send(1, BasicAck(tag, multiple=True))
        check_invariants(world)
    assert [item.body for item in found] == bodies


def test_several_consumers() -> None:
    """§4.8: consumers on several connections share what comes from disk by turns; each message goes to one."""
    world, _, bodies = ready()
    clients = [world.client() for _ in range(3)]
    for client in clients:
        consume(client, prefetch=5)
    found: list[bytes] = []
    for _ in range(COUNT):
        world.rest()
        for client in clients:
            for item in deliveries(client):
                found.append(item.body)
                assert isinstance(item.method, BasicDeliver)
                client.send(1, BasicAck(item.method.delivery_tag))
    assert sorted(found) == bodies
    world.rest()
    check_invariants(world)
    assert world.queue("q").unacked_count == 0


def test_consumer_priorities() -> None:
    """§4.8: who has a lower priority gets what comes from disk only when the others are full."""
    world, low, bodies = ready()
    high = world.client()
    consume(high, prefetch=4, x_priority=5)
    consume(low)
    world.rest()
    first = [item.body for item in deliveries(high)]
    assert first == bodies[:4]
    assert [item.body for item in deliveries(low)] == bodies[4:]


def test_single_active_consumer() -> None:
    """§4.8: the active consumer alone is served from disk; when it goes the next one is."""
    world, client, bodies = ready(arguments={"x-single-active-consumer": boolean(True)})
    other = world.client()
    consume(client, prefetch=5)
    consume(other)
    world.rest()
    assert [item.body for item in deliveries(client)] == bodies[:5]
    assert deliveries(other) == []
    client.lose()
    world.rest()
    found = deliveries(other)
    assert [item.body for item in found] == bodies
    assert redelivered(found) == [True] * 5 + [False] * (COUNT - 5)


@pytest.mark.parametrize("steps", range(6))
def test_cancel_while_loading(steps: int) -> None:
    """§4.6: nothing comes after cancel-ok, and what was on its way from disk is for the next one, in order."""
    world, client, bodies = ready()
    consume(client, prefetch=2)
    for _ in range(steps):
        world.settle()
        world.disk.step()
    before = deliveries(client)
    assert client.ask(1, BasicCancel("c")) == BasicCancelOk("c")
    world.rest()
    assert client.received() == []
    other = world.client()
    consume(other)
    world.rest()
    found = deliveries(other)
    assert [item.body for item in [*before, *found]] == bodies
    check_invariants(world)


@pytest.mark.parametrize("steps", range(6))
def test_connection_lost_while_loading(steps: int) -> None:
    """§2.1: the same where the consumer's connection is gone; what it had comes back first, as redelivered."""
    world, client, bodies = ready()
    consume(client, prefetch=2)
    for _ in range(steps):
        world.settle()
        world.disk.step()
    count = len(deliveries(client))
    client.lose()
    world.rest()
    other = world.client()
    consume(other)
    world.rest()
    found = deliveries(other)
    assert [item.body for item in found] == bodies
    assert redelivered(found) == [True] * count + [False] * (COUNT - count)


def test_published_while_loading() -> None:
    """§4.8: what comes in while the disk reads stands behind all that is there."""
    world, client, bodies = ready()
    consume(client)
    new = [b"new%d" % number for number in range(10)]
    for number, body in enumerate(new):
        client.publish(1, "q", body, properties=PERSISTENT if number % 2 else TRANSIENT)
        world.settle()
        world.disk.step()
        if number == 5:
            world.queue("q").backlog.page_out(1 << 40, 0)
    world.rest()
    assert [item.body for item in deliveries(client)] == bodies + new


# --- requeues ---


@pytest.mark.parametrize("size", [3, LARGE_BYTES])
def test_requeued(size: int) -> None:
    """§4.11: what comes back from a client stands at its old place, before all that is on disk."""
    world, client, bodies = ready(size=size)
    consume(client, prefetch=6)
    world.rest()
    assert len(deliveries(client)) == 6
    client.send(1, BasicCancel("c", nowait=True))
    for tag in (2, 4, 5):
        client.send(1, BasicNack(tag, requeue=True))
    world.rest()
    world.page_out("q")
    other = world.client()
    consume(other)
    world.rest()
    found = deliveries(other)
    assert [item.body for item in found] == [bodies[1], *bodies[3:5], *bodies[6:]]
    assert redelivered(found) == [True] * 3 + [False] * (COUNT - 6)
    check_invariants(world)


@pytest.mark.parametrize("size", [3, LARGE_BYTES])
@pytest.mark.parametrize("properties", [PERSISTENT, TRANSIENT])
@pytest.mark.parametrize("ends", [False, True])
def test_requeued_at_the_tail_of_a_quorum_queue(size: int, properties: Properties, ends: bool) -> None:
    """Messages requeued at the tail are paged out again, marked as redelivered, and leave nothing on disk at last."""
    world, client, bodies = ready(
        size=size, properties=properties, arguments={"x-queue-type": longstr("quorum")}
    )
    consume(client, prefetch=6)
    world.rest()
    assert len(deliveries(client)) == 6
    client.send(1, BasicCancel("c", nowait=True))
    for tag in (2, 5, 4):
        client.send(1, BasicNack(tag, requeue=True))
    world.rest()
    world.page_out("q")
    assert world.queue("q").backlog.lengths()["q4"] == 0
    returned = [bodies[index] for index in (1, 4, 3)]
    if ends:
        client.lose()
        world.rest()
        world.stop()
        world.start()
        left = [bodies[index] for index in (0, 2, 5)] + bodies[6:] + returned
        assert world.bodies("q") == (left if properties is PERSISTENT else [])
        return
    other = world.client()
    consume(other)
    world.rest()
    found = deliveries(other)
    assert [item.body for item in found] == bodies[6:] + returned
    assert redelivered(found) == [False] * (COUNT - 6) + [True] * 3
    check_invariants(world)
    client.send(1, BasicAck(0, multiple=True))
    other.send(1, BasicAck(0, multiple=True))
    world.rest()
    assert sum("messages/" in path for path in world.disk.paths()) <= 1
    assert not [path for path in world.disk.paths() if "queues/" in path]


def test_requeued_over_the_limit() -> None:
    """§5.4: a requeue over the limit drops from the head, which is what came back, also when the rest is on disk."""
    world, client, bodies = ready(10, arguments={"x-max-length": long(10)})
    consume(client, prefetch=4)
    world.rest()
    assert len(deliveries(client)) == 4
    new = [b"new%d" % number for number in range(2)]
    client.publish(1, "q", *new, properties=PERSISTENT)
    world.rest()
    world.page_out("q")
    client.send(1, BasicCancel("c", nowait=True))
    client.send(1, BasicNack(0, multiple=True, requeue=True))
    world.rest()
    assert world.bodies("q") == [*bodies[2:], *new]


# --- limits and times ---


@pytest.mark.parametrize("size", [3, LARGE_BYTES])
@pytest.mark.parametrize("keep_bytes", [0, 10])
def test_max_length(size: int, keep_bytes: int) -> None:
    """§5.4: drop-head keeps to the limit where the head is on disk."""
    world, client, _ = ready(10, size=size, arguments={"x-max-length": long(10)}, keep_bytes=keep_bytes)
    new = [b"new%02d" % number for number in range(14)]
    for body in new:
        client.publish(1, "q", body, properties=PERSISTENT)
    world.rest()
    assert world.queue("q").backlog.count == 10
    assert world.bodies("q") == new[4:]


def test_max_length_bytes() -> None:
    """§5.4: the same for bytes; more than the limit leaves nothing."""
    world, client, bodies = ready(10, arguments={"x-max-length-bytes": long(30)})
    client.publish(1, "q", b"new1", properties=PERSISTENT)
    world.rest()
    assert world.bodies("q") == [*bodies[2:], b"new1"]
    world.page_out("q")
    client.publish(1, "q", b"x" * 31, properties=PERSISTENT)
    world.rest()
    assert world.queue("q").backlog.count == 0


def test_limit_by_policy() -> None:
    """§5.4: a limit that a policy lowers drops what is over it, from disk too."""
    world, _, bodies = ready()
    world.submit(SetPolicy("/", "p", "q", {"max-length": 7}))
    world.rest()
    assert world.queue("q").backlog.count == 7
    assert world.bodies("q") == bodies[-7:]


def test_dropped_to_dead_letters() -> None:
    """§5.4, §5.5: what is dropped from a paged queue is dead-lettered in order, once."""
    arguments = {
        "x-max-length": long(20),
        "x-dead-letter-exchange": longstr(""),
        "x-dead-letter-routing-key": longstr("dead"),
    }
    world, client, bodies = ready(20, arguments=arguments)
    world.declare(client, "dead")
    new = [b"new%02d" % number for number in range(20)]
    for body in new:
        client.publish(1, "q", body, properties=PERSISTENT)
        world.settle()
    world.rest()
    assert world.bodies("dead") == bodies
    assert world.bodies("q") == new
    world.kill()
    world.start()
    assert (world.bodies("q"), world.bodies("dead")) == (new, bodies)


@pytest.mark.parametrize("keep_bytes", [0, 10])
@pytest.mark.parametrize("is_lazy", [False, True])
def test_expired(keep_bytes: int, is_lazy: bool) -> None:
    """§5.2: messages with a time to live expire on disk too: nothing is left when it is over, untouched by anybody."""
    arguments = {
        "x-message-ttl": long(60_000),
        "x-dead-letter-exchange": longstr(""),
        "x-dead-letter-routing-key": longstr("dead"),
    }
    if is_lazy:
        arguments["x-queue-mode"] = longstr("lazy")
    world, client, bodies = ready(arguments=arguments, keep_bytes=keep_bytes)
    world.declare(client, "dead")
    world.advance(50)
    world.rest()
    assert world.queue("q").backlog.count == COUNT
    world.advance(10)
    world.rest()
    assert world.queue("q").backlog.count == 0
    assert world.bodies("dead") == bodies


def test_expired_behind_the_head() -> None:
    """§5.2: what expires behind a head that doesn't stays counted, and is dropped when it gets there."""
    world, client, bodies = ready(3)
    client.publish(1, "q", b"short", properties=Properties(delivery_mode=2, expiration="1000"))
    client.publish(1, "q", b"long", properties=PERSISTENT)
    world.rest()
    world.page_out("q")
    world.advance(5)
    world.rest()
    assert world.queue("q").backlog.count == 5
    consume(client)
    world.rest()
    assert [item.body for item in deliveries(client)] == [*bodies, b"long"]


# --- priorities ---


def publish_priorities(client: Client, count: int = COUNT) -> list[bytes]:
    """Messages of the priorities 0 to 4 by turns; their bodies in the order in which three levels give them."""
    bodies = numbered(count)
    for number, body in enumerate(bodies):
        client.publish(1, "q", body, properties=Properties(delivery_mode=2, priority=number % 5))
    return sorted(bodies, key=lambda body: -min(int(body) % 5, 2))


@pytest.mark.parametrize("is_restarted", [False, True])
def test_priorities(is_restarted: bool) -> None:
    """§5.6: by priority, in order within each, from disk as from memory."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments={"x-max-priority": long(2)})
    expected = publish_priorities(client)
    world.rest()
    world.page_out("q")
    assert world.queue("q").backlog.lengths()["delta"] == COUNT
    if is_restarted:
        world.kill()
        world.start()
        client = world.client()
    consume(client)
    world.rest()
    assert [item.body for item in deliveries(client)] == expected
    check_invariants(world)


def test_priorities_requeued() -> None:
    """§4.11, §5.6: what comes back goes to its place in its level."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments={"x-max-priority": long(2)})
    expected = publish_priorities(client)
    world.rest()
    world.page_out("q")
    consume(client, prefetch=COUNT - 4)
    world.rest()
    assert [item.body for item in deliveries(client)] == expected[:-4]
    client.lose()
    world.rest()
    world.page_out("q")
    assert world.bodies("q") == expected


def test_priorities_purged() -> None:
    """§3.11: a purge of levels that share segments on disk; what is published at once is not part of it."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments={"x-max-priority": long(2)})
    publish_priorities(client)
    world.rest()
    world.page_out("q")
    assert client.ask(1, QueuePurge(queue="q")) == QueuePurgeOk(COUNT)
    expected = publish_priorities(client, 10)
    world.queue("q").backlog.page_out(1 << 40, 0)
    world.rest()
    assert world.queue("q").backlog.count == 10
    assert world.bodies("q") == expected
    world.kill()
    world.start()
    assert world.bodies("q") == expected


# --- purge ---


def test_purged_while_loading() -> None:
    """§3.11: a purge counts and drops what is on its way from disk, too."""
    world, client, _ = ready()
    consumer = world.client()
    consume(consumer, prefetch=3)
    world.settle()
    world.disk.step()
    assert client.ask(1, QueuePurge(queue="q")) == QueuePurgeOk(COUNT)
    world.rest()
    assert deliveries(consumer) == []
    assert isinstance(client.ask(1, BasicGet(queue="q")), BasicGetEmpty)
    client.publish(1, "q", b"new", properties=PERSISTENT)
    world.rest()
    assert [item.body for item in deliveries(consumer)] == [b"new"]
    check_invariants(world)


def test_purge_leaves_unacked() -> None:
    """§3.11: what clients have is not purged, and comes back."""
    world, client, bodies = ready()
    consumer = world.client()
    consume(consumer, prefetch=3)
    world.rest()
    assert len(deliveries(consumer)) == 3
    assert client.ask(1, QueuePurge(queue="q")) == QueuePurgeOk(COUNT - 3)
    consumer.lose()
    world.rest()
    assert world.bodies("q") == bodies[:3]
    world.kill()
    world.start()
    assert world.bodies("q") == bodies[:3]


# --- lazy queues ---

LAZY: Table = {"x-queue-mode": longstr("lazy")}


def in_memory(world: DurableWorld) -> int:
    lengths = world.queue("q").backlog.lengths()
    return lengths["q1"] + lengths["q4"]


@pytest.mark.parametrize(
    "rule",
    [{}, {"x-message-ttl": long(3_600_000)}, {"x-max-length": long(100)}],
    ids=["plain", "time to live", "length limit"],
)
def test_lazy_by_argument(rule: Table) -> None:
    """§7.3: a lazy queue writes contents when they come, and keeps little in memory, whatever other rules it has."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments=LAZY | rule)
    bodies = numbered(60, 200)
    for body in bodies:
        client.publish(1, "q", body, properties=PERSISTENT)
        world.settle()
    world.rest()
    assert in_memory(world) < 10
    consume(client)
    world.rest()
    assert [item.body for item in deliveries(client)] == bodies


def test_lazy_by_policy() -> None:
    """§7.3, §6.2: a policy makes a queue lazy, which then pages what it has, and makes it an ordinary one again."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    bodies = numbered(60, 200)
    client.publish(1, "q", *bodies[:20], properties=PERSISTENT)
    world.rest()
    assert in_memory(world) == 20
    world.submit(SetPolicy("/", "p", "q", {"queue-mode": "lazy"}))
    world.rest()
    assert in_memory(world) < 10
    client.publish(1, "q", *bodies[20:40], properties=PERSISTENT)
    world.rest()
    assert in_memory(world) < 10
    world.submit(ClearPolicy("/", "p"))
    world.rest()
    client.publish(1, "q", *bodies[40:], properties=PERSISTENT)
    world.rest()
    assert in_memory(world) >= 20
    consume(client)
    world.rest()
    assert [item.body for item in deliveries(client)] == bodies


def test_lazy_and_transient() -> None:
    """§7.3, §7.6: transient messages of a lazy queue are paged like the others, and still go with a restart."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments=LAZY)
    for number, body in enumerate(numbered()):
        client.publish(1, "q", body, properties=PERSISTENT if number % 2 else TRANSIENT)
    world.rest()
    assert world.bodies("q") == numbered()
    world.stop()
    world.start()
    assert world.bodies("q") == numbered()[1::2]


def test_lazy_with_a_consumer() -> None:
    """§7.3: a consumer that keeps up doesn't wait for the disk because the queue is lazy."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments=LAZY)
    consume(client, no_ack=True)
    client.publish(1, "q", b"a", b"b", properties=PERSISTENT)
    world.settle()
    assert [item.body for item in deliveries(client)] == [b"a", b"b"]


# --- figures ---


@pytest.mark.parametrize("seed", range(5))
def test_figures(seed: int) -> None:
    """§3.7: the counts that a client sees, and bytes, are those of all messages, wherever they are."""
    random = Random(seed)
    world = DurableWorld(pager=EagerPager(keep_bytes=20))
    client = world.client(1, 2)
    world.declare(client, "q")
    ready_bodies: list[bytes] = []
    for number in range(60):
        match random.randrange(4):
            case 0 | 1:
                body = bytes([number]) * random.choice((1, 30, LARGE_BYTES))
                client.publish(1, "q", body, properties=random.choice((PERSISTENT, TRANSIENT)))
                ready_bodies.append(body)
            case 2:
                client.feed(method_frame(2, BasicGet(queue="q", no_ack=True)))
                world.settle_disk()
                assert client.bodies() == ready_bodies[:1]
                del ready_bodies[:1]
            case 3:
                world.broker.sample_memory(1)
        if random.random() < 0.5:
            world.settle()
        else:
            world.settle_disk()
        client.received()
        backlog = world.queue("q").backlog
        assert (backlog.count, backlog.body_bytes) == (len(ready_bodies), sum(map(len, ready_bodies)))
        assert sum(backlog.lengths().values()) == len(ready_bodies)
        assert client.ask(2, QueueDeclare(queue="q", passive=True)) == QueueDeclareOk(
            "q", len(ready_bodies), 0
        )
    assert world.bodies("q") == ready_bodies


@pytest.mark.parametrize("arguments", [{}, LAZY], ids=["plain", "lazy"])
def test_full_consumer(arguments: Table) -> None:
    """A consumer that takes no more for now costs no turns, wherever the messages are that wait for it."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments=arguments)
    consume(client, prefetch=1)
    client.publish(1, "q", b"1", b"2", properties=PERSISTENT)
    for _ in range(100):
        world.broker.turn(world.now)
        world.disk.step()
    assert not world.broker.has_work
    if not arguments:
        world.page_out("q")
        assert not world.broker.has_work
