"""Messages that wait to be retried, on disk: a restart, a crash and paging leave them their time."""

import pytest

from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import BasicGet, BasicGetOk, BasicNack, QueuePurge, QueuePurgeOk
from tests.durable_world.test_restart import ENDS, End
from tests.durable_world.world import LARGE_BYTES, PERSISTENT, TRANSIENT, DurableWorld
from tests.kit.world import check_invariants

RETRY: Table = {"x-delayed-retry-type": longstr("all"), "x-delayed-retry-min": long(10_000)}


def give_back(world: DurableWorld, count: int) -> None:
    """Get messages and return them."""
    client = world.client()
    for tag in range(1, count + 1):
        client.send(1, BasicGet(queue="q"))
        world.rest()
        (got,) = client.received()
        assert isinstance(got.method, BasicGetOk)
        client.send(1, BasicNack(tag, requeue=True))
        world.rest()
    client.lose()
    world.rest()


def drained(world: DurableWorld) -> list[bytes]:
    """Take all ready messages; their bodies."""
    client, found = world.client(), []
    while True:
        client.send(1, BasicGet(queue="q", no_ack=True))
        world.rest()
        (got,) = client.received()
        if not isinstance(got.method, BasicGetOk):
            client.lose()
            world.rest()
            return found
        found.append(got.body)


def later(world: DurableWorld, seconds: float) -> None:
    world.advance(seconds)
    world.rest()


@pytest.mark.parametrize("is_paged", [False, True])
@ENDS
def test_they_wait_through_a_restart(end: End, is_paged: bool) -> None:
    """By the time of day, small and large ones, among others that are ready."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments=RETRY)
    bodies = [b"%d" % number * (LARGE_BYTES if number % 3 == 0 else 1) for number in range(12)]
    client.publish(1, "q", *bodies, properties=PERSISTENT)
    world.rest()
    give_back(world, 5)
    client.publish(1, "q", b"new", properties=PERSISTENT)
    world.rest()
    if is_paged:
        world.page_out("q")
        world.rest()
    end(world)
    world.start(down_s=4.0)
    assert sorted(drained(world)) == sorted([*bodies[5:], b"new"])
    later(world, 5.0)
    assert drained(world) == []
    later(world, 1.1)
    assert sorted(drained(world)) == sorted(bodies[:5])
    check_invariants(world)


@ENDS
def test_those_that_were_due_meanwhile_are_ready_at_once(end: End) -> None:
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments=RETRY)
    client.publish(1, "q", b"1", b"2", properties=PERSISTENT)
    client.publish(1, "q", b"transient", properties=TRANSIENT)
    world.rest()
    give_back(world, 3)
    end(world)
    world.start(down_s=60.0)
    later(world, 0.0)
    later(world, 0.1)
    assert drained(world) == [b"1", b"2"]


def test_the_count_goes_on_after_a_clean_stop() -> None:
    """The second time a message waits for twice as long."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments=RETRY)
    client.publish(1, "q", b"1", properties=PERSISTENT)
    world.rest()
    give_back(world, 1)
    world.stop()
    world.start()
    later(world, 10.1)
    give_back(world, 1)
    later(world, 19.5)
    assert drained(world) == []
    later(world, 1.0)
    assert drained(world) == [b"1"]


@pytest.mark.parametrize("is_paged", [False, True])
def test_paging_the_ready_ones_leaves_those_that_wait(is_paged: bool) -> None:
    """Both stand in the same segments; those that wait neither come twice nor go with the others."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments=RETRY)
    client.publish(1, "q", b"1", b"2", b"3", properties=PERSISTENT)
    world.rest()
    give_back(world, 2)
    client.publish(1, "q", b"4", b"5", properties=PERSISTENT)
    world.rest()
    if is_paged:
        world.page_out("q")
        world.rest()
    assert drained(world) == [b"3", b"4", b"5"]
    later(world, 10.1)
    assert drained(world) == [b"1", b"2"]
    world.kill()
    world.start()
    assert drained(world) == []


def test_a_purge_drops_them_on_disk_too() -> None:
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments=RETRY)
    client.publish(1, "q", b"1", b"2", b"3", properties=PERSISTENT)
    world.rest()
    give_back(world, 2)
    world.page_out("q")
    client.send(1, QueuePurge(queue="q"))
    world.rest()
    assert client.methods() == [QueuePurgeOk(3)]
    world.kill()
    world.start()
    later(world, 20.0)
    assert drained(world) == []
