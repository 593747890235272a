"""Delayed messages on disk: what a restart, a crash and paging leave of them, and when it goes out. docs/delayed.md."""

from random import Random

import pytest

from node.amqp.field_table import long, longstr
from node.amqp.methods import ConfirmSelect, ConfirmSelectOk, ExchangeDeclare, ExchangeDeclareOk, QueueBind
from node.amqp.properties import Properties
from node.catalogue.delayed import DELAYED_TYPE, waiting_queue
from node.queue.delayed_queue import DelayedQueue
from tests.durable_world.world import LARGE_BYTES, DurableWorld
from tests.kit.world import Client, check_invariants

WAITING = waiting_queue("x")
STEPS_MAX = 200
"""Steps of the disk, more than any of these stories take."""


def ready() -> tuple[DurableWorld, Client]:
    """A world with a durable delayed exchange x, and the queue q bound to it."""
    world = DurableWorld()
    client = world.client()
    declare = ExchangeDeclare(
        exchange="x", type=DELAYED_TYPE, durable=True, arguments={"x-delayed-type": longstr("fanout")}
    )
    client.send(1, declare)
    world.rest()
    assert client.methods() == [ExchangeDeclareOk()]
    world.declare(client, "q")
    client.send(1, QueueBind(queue="q", exchange="x"))
    world.rest()
    client.received()
    return world, client


def publish(world: DurableWorld, client: Client, delay: int, body: bytes, *, mode: int = 2) -> None:
    properties = Properties(delivery_mode=mode, headers={"x-delay": long(delay)})
    client.publish(1, "", body, exchange="x", properties=properties)


def later(world: DurableWorld, seconds: float) -> None:
    """Let time pass, and the disk answer."""
    world.advance(seconds)
    world.rest()
    world.advance(0.1)
    world.rest()


@pytest.mark.parametrize("is_paged", [False, True])
def test_persistent_messages_wait_through_a_restart(is_paged: bool) -> None:
    """The times are kept, by the time of day; messages that were due meanwhile go out at once, in order."""
    world, client = ready()
    for delay in (60_000, 10_000, 50_000, 5_000, 20_000):
        publish(world, client, delay, b"%d" % delay)
    publish(world, client, 1, b"large" * LARGE_BYTES)
    world.settle()
    world.advance(0.0)
    if is_paged:
        world.page_out(WAITING)
    world.rest()
    world.stop()
    world.start(down_s=30.0)
    later(world, 0.0)
    assert world.queue(WAITING).backlog.count == 2
    later(world, 19.0)
    assert world.queue(WAITING).backlog.count == 2
    later(world, 1.5)
    assert world.queue(WAITING).backlog.count == 1
    later(world, 10.0)
    assert world.queue(WAITING).backlog.count == 0
    bodies = [b"large" * LARGE_BYTES, *(b"%d" % delay for delay in (5_000, 10_000, 20_000, 50_000, 60_000))]
    assert world.bodies("q") == bodies
    check_invariants(world)


def test_transient_messages_end_with_the_node() -> None:
    world, client = ready()
    publish(world, client, 10_000, b"transient", mode=1)
    publish(world, client, 10_000, b"persistent")
    world.rest()
    world.stop()
    world.start()
    later(world, 11.0)
    assert world.bodies("q") == [b"persistent"]


def test_a_transient_exchange_ends_with_the_node_and_its_queue_too() -> None:
    world, client = ready()
    arguments = {"x-delayed-type": longstr("fanout")}
    client.send(1, ExchangeDeclare(exchange="y", type=DELAYED_TYPE, arguments=arguments))
    world.rest()
    assert waiting_queue("y") in world.queue_names
    world.stop()
    world.start()
    assert world.queue_names == {"q", WAITING}


def test_a_delayed_message_is_confirmed_when_it_is_synced() -> None:
    world, client = ready()
    client.send(1, ConfirmSelect())
    assert client.methods() == [ConfirmSelectOk()]
    publish(world, client, 10_000, b"m")
    assert client.methods() == []
    world.rest()
    assert len(client.methods()) == 1


@pytest.mark.parametrize("is_kill", [True, False])
@pytest.mark.parametrize("is_paged", [False, True])
def test_a_crash_while_messages_go_out_loses_none(is_kill: bool, is_paged: bool) -> None:
    """Whenever the node ends, each message is in one of both queues, or in both; in the end in the second one."""
    bodies = [b"1", b"2" * LARGE_BYTES, b"3", b"4" * LARGE_BYTES, b"5"]
    for steps in range(STEPS_MAX):
        world, client = ready()
        for body in bodies:
            publish(world, client, 10_000, body)
        world.rest()
        if is_paged:
            world.page_out(WAITING)
            world.rest()
        world.advance(10.0)
        has_more = True
        for _ in range(steps):
            world.settle()
            has_more = world.disk.step()
            if not has_more:
                world.rest()
        world.settle()
        random = Random(steps)
        world.kill(random) if is_kill else world.cut_power(random)
        world.start()
        later(world, 0.0)
        found = world.bodies("q")
        assert sorted(set(found)) == sorted(bodies), steps
        assert world.queue(WAITING).backlog.count == 0
        if not has_more:
            assert found == bodies
            return
    raise AssertionError("the disk had more to do than this looks at")


@pytest.mark.parametrize("is_paged", [False, True])
@pytest.mark.parametrize("is_large", [False, True])
def test_a_cancelled_message_stays_cancelled_after_a_restart(is_large: bool, is_paged: bool) -> None:
    """In memory or on disk, in the index or in the message store, whose contents go, too."""
    world, client = ready()
    bodies = [b"%d" % number * (LARGE_BYTES if is_large else 1) for number in range(4)]
    for body in bodies:
        publish(world, client, 10_000, body)
    world.rest()
    if is_paged:
        world.page_out(WAITING)
        world.rest()
    queue = world.queue(WAITING)
    assert isinstance(queue, DelayedQueue)
    answers: list[bool] = []
    assert queue.withdraw(2, answers.append)
    world.rest()
    assert answers == [True]
    assert queue.backlog.count == 3
    world.stop()
    world.start()
    later(world, 11.0)
    assert world.bodies("q") == [bodies[0], bodies[2], bodies[3]]
    check_invariants(world)
