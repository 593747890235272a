"""basic.get where the head of the queue is on disk. amqp-behaviour §2.3, §4.5."""

import pytest

from node.amqp.frames import method_frame
from node.amqp.methods import (
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    ChannelClose,
    ChannelCloseOk,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)
from node.amqp.properties import Properties
from tests.durable_world.world import LARGE_BYTES, PERSISTENT, TRANSIENT, DurableWorld
from tests.kit.world import Client, check_invariants

COUNT = 30


def ready(size: int = 3, properties: Properties = PERSISTENT) -> tuple[DurableWorld, Client, list[bytes]]:
    """A world with the queue q, all of which is on disk; a client; the bodies."""
    world = DurableWorld()
    client = world.client(1, 2)
    world.declare(client, "q")
    bodies = [(b"%03d" % number).ljust(size, b"_") for number in range(COUNT)]
    client.publish(1, "q", *bodies, properties=properties)
    world.rest()
    world.page_out("q")
    assert world.queue("q").backlog.lengths()["delta"] == COUNT
    return world, client, bodies


def got(methods: list[Method | None]) -> list[tuple[int, int]]:
    """Return each answer's tag, and how many messages are left."""
    assert all(isinstance(method, BasicGetOk) for method in methods), methods
    return [
        (method.delivery_tag, method.message_count) for method in methods if isinstance(method, BasicGetOk)
    ]


@pytest.mark.parametrize("size", [3, LARGE_BYTES])
@pytest.mark.parametrize("properties", [PERSISTENT, TRANSIENT])
def test_waits(size: int, properties: Properties) -> None:
    """§4.5: the message comes when it was read, with the number of those that are left."""
    world, client, bodies = ready(size, properties)
    client.send(1, BasicGet(queue="q"))
    world.settle()
    assert client.received() == []
    world.settle_disk()
    (answer,) = client.received()
    assert got([answer.method]) == [(1, COUNT - 1)]
    assert answer.body == bodies[0]
    check_invariants(world)


def test_all() -> None:
    """§4.8: one get after the other brings all messages in order, then none."""
    world, client, bodies = ready()
    found = world.get_all(client, "q")
    assert [message.body for message in found] == bodies
    assert got([message.method for message in found])[-1] == (COUNT, 0)


def test_pipelined() -> None:
    """§2.3: gets and other commands in one read are answered in order, on all channels of the connection."""
    world, client, bodies = ready()
    client.feed(
        method_frame(1, BasicGet(queue="q"))
        + method_frame(2, QueueDeclare(queue="q", passive=True))
        + method_frame(2, BasicGet(queue="q", no_ack=True))
        + method_frame(1, QueueDeclare(queue="q", passive=True))
    )
    world.settle()
    assert client.received() == []
    world.settle_disk()
    answers = client.received()
    first, count, second, count_again = (answer.method for answer in answers)
    assert got([first, second]) == [(1, COUNT - 1), (1, COUNT - 2)]
    assert count == QueueDeclareOk("q", COUNT - 1, 0)
    assert count_again == QueueDeclareOk("q", COUNT - 2, 0)
    assert [answers[0].body, answers[2].body] == bodies[:2]


@pytest.mark.parametrize("newer", [0, 1, 5])
def test_pipelined_to_the_end(newer: int) -> None:
    """§2.3: more gets than there are messages, over what is on disk and what came in later: each has its answer."""
    world, client, bodies = ready()
    later = [b"new%d" % number for number in range(newer)]
    client.publish(1, "q", *later, properties=PERSISTENT)
    for gets in (1, COUNT - 4, 20):
        client.feed(method_frame(1, BasicGet(queue="q")) * gets)
        world.rest()
    answers = client.received()
    assert [answer.body for answer in answers if isinstance(answer.method, BasicGetOk)] == bodies + later
    assert sum(isinstance(answer.method, BasicGetEmpty) for answer in answers) == 17 - newer


@pytest.mark.parametrize("large", [2, 4])
def test_end_of_what_was_on_disk(large: int) -> None:
    """§2.3: as above, where the last of what was on disk is in memory and what came later is not next to it yet."""
    world, client, bodies = ready(size=900)
    client.publish(1, "q", b"new1", b"new2", properties=PERSISTENT)
    while world.queue("q").backlog.count > large + 2:
        client.send(1, BasicGet(queue="q"))
        world.rest()
        client.received()
    client.feed(method_frame(1, BasicGet(queue="q")) * (large + 3))
    world.rest()
    answers = client.received()
    assert [answer.body for answer in answers[:-1]] == [*bodies[COUNT - large :], b"new1", b"new2"]
    assert isinstance(answers[-1].method, BasicGetEmpty)


def test_purged_meanwhile() -> None:
    """§3.11: a queue that is purged while a get waits is empty for it."""
    world, client, _ = ready()
    other = world.client()
    client.send(1, BasicGet(queue="q"))
    world.settle()
    assert other.ask(1, QueuePurge(queue="q")) == QueuePurgeOk(COUNT)
    assert isinstance(client.methods()[0], BasicGetEmpty)
    world.rest()
    client.publish(1, "q", b"new", properties=PERSISTENT)
    client.send(1, BasicGet(queue="q"))
    world.rest()
    assert client.bodies() == [b"new"]
    check_invariants(world)


def test_deleted_meanwhile() -> None:
    """§3.11: a queue that is deleted while a get waits is empty for it."""
    world, client, _ = ready()
    other = world.client()
    client.send(1, BasicGet(queue="q"))
    world.settle()
    other.send(1, QueueDelete(queue="q"))
    world.rest()
    assert other.methods() == [QueueDeleteOk(COUNT)]
    assert isinstance(client.methods()[0], BasicGetEmpty)
    check_invariants(world)


def test_connection_lost_meanwhile() -> None:
    """A message that was read for a client that went stays in the queue, in its place."""
    world, client, bodies = ready()
    client.send(1, BasicGet(queue="q"))
    world.settle()
    client.lose()
    world.rest()
    check_invariants(world)
    assert world.bodies("q") == bodies


def test_channel_closed_meanwhile() -> None:
    """§2.3: a close that is sent behind a get waits for it; the message goes back to its place."""
    world, client, bodies = ready()
    client.send(1, BasicGet(queue="q"))
    client.send(1, ChannelClose(200, "", 0, 0))
    world.rest()
    answer, closed = client.methods()
    assert got([answer]) == [(1, COUNT - 1)]
    assert closed == ChannelCloseOk()
    assert world.bodies("q") == bodies


def test_two_at_a_time() -> None:
    """Two clients that wait for the head of a queue get one message each."""
    world, client, bodies = ready()
    other = world.client()
    client.send(1, BasicGet(queue="q"))
    other.send(1, BasicGet(queue="q"))
    world.rest()
    assert client.bodies() + other.bodies() == bodies[:2]
    check_invariants(world)


def test_head_expired() -> None:
    """§5.2: what has expired at the head isn't what a get finds, and what is on disk behind it is."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    client.publish(1, "q", b"a", properties=Properties(delivery_mode=2, expiration="1000"))
    client.publish(1, "q", b"b", b"c", properties=PERSISTENT)
    world.rest()
    world.page_out("q", keep_bytes=1)
    assert world.queue("q").backlog.at_hand == 1
    world.now += 5  # the read comes before the timer
    client.send(1, BasicGet(queue="q"))
    world.rest()
    assert client.bodies() == [b"b"]


def test_all_expired_on_disk() -> None:
    """§5.2: a get that waits for what has expired meanwhile finds nothing."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q")
    client.publish(1, "q", b"a", b"b", properties=Properties(delivery_mode=2, expiration="1000"))
    world.rest()
    world.page_out("q")
    client.send(1, BasicGet(queue="q"))
    world.settle()
    world.now += 5
    world.rest()
    assert isinstance(client.methods()[0], BasicGetEmpty)
    assert world.queue("q").backlog.count == 0
