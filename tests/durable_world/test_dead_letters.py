"""Dead letters between two queues on disk. amqp-behaviour §5.5."""

from collections.abc import Callable
from random import Random

import pytest

from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import BasicConsume, BasicNack, BasicReject, QueueDelete
from node.amqp.properties import Properties
from tests.durable_world.world import LARGE_BYTES, PERSISTENT, DurableWorld, redelivered
from tests.kit.world import Client, check_invariants

STEPS_MAX = 200
"""Steps of the disk, more than any of these stories take."""

DYING: Table = {"x-dead-letter-exchange": longstr(""), "x-dead-letter-routing-key": longstr("dead")}


def ready(bodies: list[bytes], **arguments: int) -> tuple[DurableWorld, Client]:
    """A world with messages in q, and a client that has them."""
    world = DurableWorld()
    client = world.client(1, 2)
    world.declare(
        client,
        "q",
        arguments=DYING | {name.replace("_", "-"): long(value) for name, value in arguments.items()},
    )
    world.declare(client, "dead")
    client.publish(1, "q", *bodies, properties=PERSISTENT)
    world.rest()
    return world, client


def reject(world: DurableWorld, client: Client) -> None:
    """All messages of q are taken and rejected."""
    client.send(1, BasicConsume(queue="q", consumer_tag="c", nowait=True))
    world.settle_disk()
    client.send(1, BasicNack(0, multiple=True, requeue=False))


def overflow(world: DurableWorld, client: Client) -> None:
    """All messages of q are dropped for others."""
    world.settle_disk()
    client.publish(1, "q", *[b"new"] * world.queue("q").backlog.count, properties=PERSISTENT)


def expire(world: DurableWorld, client: Client) -> None:
    """All messages of q expire."""
    world.advance(10)


DEATHS = [
    (reject, {}),
    (overflow, {"x_max_length": 5}),
    (expire, {"x_message_ttl": 10_000}),
]


@pytest.mark.parametrize("is_paged", [False, True])
@pytest.mark.parametrize("is_kill", [True, False])
@pytest.mark.parametrize(("die", "arguments"), DEATHS, ids=["rejected", "dropped", "expired"])
def test_crash_between(
    die: Callable[[DurableWorld, Client], None], arguments: dict[str, int], is_kill: bool, is_paged: bool
) -> None:
    """Whenever the node ends between the death and the copy on disk, each message is in one of both queues, or in both;
    in the end in the second one only.
    """
    bodies = [b"1", b"2" * LARGE_BYTES, b"3", b"4" * LARGE_BYTES, b"5"]
    for steps in range(STEPS_MAX):
        world, client = ready(bodies, **arguments)
        if is_paged:
            world.page_out("q")
        die(world, client)
        has_more = True
        for _ in range(steps):
            world.settle()
            has_more = world.disk.step()
            if not has_more:
                world.rest()
        world.settle()
        random = Random(steps)
        if is_kill:
            world.kill(random)
        else:
            world.cut_power(random)
        world.start()
        left = [body for body in world.bodies("q") if body != b"new"]
        copies = world.bodies("dead")
        assert left == [body for body in bodies if body in left], steps
        assert sorted({*left, *copies}) == sorted(bodies), steps
        if die is not expire:
            # (Else those of q have expired by now, and died once more.)
            assert copies == [body for body in bodies if body in copies], steps
        if not has_more:
            assert (left, copies) == ([], bodies)
            return
    raise AssertionError("it never ends")


def test_order() -> None:
    """§5.5: dead-lettered in the order of the queue, whatever order they were delivered and rejected in."""
    bodies = [b"%02d" % number for number in range(20)]
    world, client = ready(bodies)
    world.page_out("q")
    client.send(1, BasicConsume(queue="q", consumer_tag="c", nowait=True))
    world.rest()
    assert client.bodies() == bodies
    client.send(1, BasicNack(20, multiple=True, requeue=False))
    world.rest()
    check_invariants(world)
    assert world.bodies("dead") == bodies
    world.kill()
    world.start()
    client = world.client()
    assert [message.body for message in world.get_all(client, "dead")] == bodies
    assert world.bodies("q") == []


def test_copy_is_not_redelivered() -> None:
    """§4.11: copies start as not redelivered, and a clean stop keeps that."""
    world, client = ready([b"a", b"b"])
    reject(world, client)
    world.rest()
    world.stop()
    world.start()
    assert redelivered(world.get_all(world.client(), "dead")) == [False, False]


def test_nowhere_to_go() -> None:
    """§5.5: a copy that is unroutable vanishes; the original is gone for good, too."""
    world, client = ready([b"a", b"x" * LARGE_BYTES])
    client.send(2, QueueDelete(queue="dead"))
    world.rest()
    reject(world, client)
    world.rest()
    world.kill()
    world.start()
    assert world.bodies("q") == []


def test_queue_deleted_while_its_messages_die() -> None:
    """A queue that is deleted in the turn in which its messages were rejected: their copies still arrive."""
    bodies = [b"a", b"x" * LARGE_BYTES]
    world, client = ready(bodies)
    client.send(1, BasicConsume(queue="q", consumer_tag="c", nowait=True))
    world.settle()
    assert client.bodies() == bodies
    client.send(1, BasicReject(1, requeue=False))
    client.send(1, BasicReject(2, requeue=False))
    client.send(2, QueueDelete(queue="q"))
    world.rest()
    check_invariants(world)
    assert world.bodies("dead") == bodies
    world.kill()
    world.start()
    assert world.bodies("dead") == bodies


def test_expires_while_the_node_is_down() -> None:
    """§7.6, §5.5: what expired while the node was down is dead-lettered when it is back, with the time of that."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments=DYING)
    world.declare(client, "dead")
    client.publish(1, "q", b"a", b"b", properties=Properties(delivery_mode=2, expiration="60000"))
    world.rest()
    world.stop()
    world.start(down_s=120)
    world.rest()
    assert world.bodies("q") == []
    found = world.get_all(world.client(), "dead")
    assert [message.body for message in found] == [b"a", b"b"]
    headers = found[0].properties and found[0].properties.headers
    assert headers is not None
    death = headers["x-death"].value[0].value
    assert abs(death["time"].value - world.wall_s) < 5
    assert death["reason"].value == b"expired"


def test_many() -> None:
    """More deaths than a turn takes: none is lost when the node is stopped in the middle."""
    bodies = [b"%04d" % number for number in range(1200)]
    world, client = ready(bodies)
    client.send(1, BasicConsume(queue="q", consumer_tag="c", nowait=True))
    world.rest()
    assert client.bodies() == bodies
    client.send(1, BasicNack(0, multiple=True, requeue=False))
    world.broker.turn(world.now)
    assert 0 < world.queue("dead").backlog.count < len(bodies)
    world.stop()
    world.start()
    assert sorted(world.bodies("q") + world.bodies("dead")) == bodies
