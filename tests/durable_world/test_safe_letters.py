"""Dead letters that go at least once, on disk: whatever ends the node, the message is in its queue or in the other."""

import pytest

from node.amqp.field_table import Table, longstr
from node.amqp.methods import BasicGet, BasicGetOk, BasicNack
from node.broker.safe_letters import RETRY_MAX_S
from tests.durable_world.test_restart import ENDS, End
from tests.durable_world.world import LARGE_BYTES, PERSISTENT, DurableWorld
from tests.kit.world import Client, check_invariants

SAFE: Table = {
    "x-queue-type": longstr("quorum"),
    "x-dead-letter-strategy": longstr("at-least-once"),
    "x-overflow": longstr("reject-publish"),
    "x-dead-letter-exchange": longstr(""),
    "x-dead-letter-routing-key": longstr("dead"),
}
BODIES = [b"small", b"large" * LARGE_BYTES]


def reject(world: DurableWorld, client: Client) -> None:
    """Have all messages of q rejected."""
    tag = 0
    while True:
        client.send(1, BasicGet(queue="q"))
        world.rest()
        (got,) = client.received()
        if not isinstance(got.method, BasicGetOk):
            return
        tag = got.method.delivery_tag
        client.send(1, BasicNack(tag, requeue=False))
        world.rest()


@ENDS
def test_a_letter_that_waits_is_ready_in_its_queue_after_a_restart(end: End) -> None:
    """The message dies again, and arrives when its target is there."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments=SAFE)
    client.publish(1, "q", *BODIES, properties=PERSISTENT)
    world.rest()
    reject(world, client)
    assert (world.queue("q").letters.count, world.queue("q").backlog.count) == (2, 0)
    end(world)
    world.start()
    assert world.bodies("q") == BODIES
    client = world.client()
    reject(world, client)
    world.declare(client, "dead")
    world.advance(RETRY_MAX_S)
    world.rest()
    assert sorted(world.bodies("dead")) == sorted(BODIES)
    assert (world.queue("q").letters.count, world.queue("q").backlog.count) == (0, 0)
    check_invariants(world)


@pytest.mark.parametrize("steps", range(0, 12, 2))
def test_a_crash_while_letters_leave_loses_none(steps: int) -> None:
    """After any step of the disk a message is in one of the two queues, or in both."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments=SAFE)
    world.declare(client, "dead")
    client.publish(1, "q", *BODIES, properties=PERSISTENT)
    world.rest()
    for tag in (1, 2):
        client.send(1, BasicGet(queue="q"))
        world.rest()
        client.send(1, BasicNack(tag, requeue=False))
    client.received()
    for _ in range(steps):
        world.settle()
        world.disk.step()
    world.kill()
    world.start()
    assert {*world.bodies("q"), *world.bodies("dead")} == {*BODIES}
