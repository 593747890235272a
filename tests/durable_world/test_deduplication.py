"""Queues with `x-message-deduplication` on disk: after a restart the ids of all messages are known again."""

import pytest

from node.amqp.field_table import Table, boolean, longstr
from node.amqp.methods import BasicGet, BasicGetOk
from node.amqp.properties import Properties
from node.catalogue.commands import SetPolicy
from node.queue.deduplicating_queue import DeduplicatingQueue
from tests.durable_world.world import LARGE_BYTES, DurableWorld
from tests.kit.world import Client, check_invariants

ARGUMENTS: Table = {"x-message-deduplication": boolean(True)}


def publish(client: Client, *ids: str, mode: int = 2) -> None:
    """Publish messages whose body is the id; one that begins with L is large."""
    for id_ in ids:
        headers = {"x-deduplication-header": longstr(id_)}
        body = id_.encode() * (LARGE_BYTES if id_.startswith("L") else 1)
        client.publish(1, "q", body, properties=Properties(delivery_mode=mode, headers=headers))


def first(body: bytes) -> str:
    return body[:2].decode()


@pytest.mark.parametrize("is_by_policy", [False, True])
@pytest.mark.parametrize("is_kill", [False, True])
@pytest.mark.parametrize("is_paged", [False, True])
@pytest.mark.parametrize("is_early", [False, True])
def test_a_restart_brings_the_ids_back(
    is_kill: bool, is_paged: bool, is_early: bool, is_by_policy: bool
) -> None:
    """Duplicates that come before the disk has answered are dropped when the queue comes to them."""
    world = DurableWorld()
    client = world.client()
    if is_by_policy:
        world.submit(SetPolicy("/", "p", "^q", {"message-deduplication": True}))
    world.declare(client, "q", arguments={} if is_by_policy else ARGUMENTS)
    ids = ["a1", "L2", "a3", "L4", "a5"]
    publish(client, *ids, "a1", "L2")
    world.rest()
    if is_paged:
        world.page_out("q")
    world.kill() if is_kill else world.stop()
    world.start()
    client = world.client()
    if not is_early:
        world.rest()
    publish(client, *ids, "b6", "b6")
    if not is_early:
        world.rest()
    queue = world.queue("q")
    assert isinstance(queue, DeduplicatingQueue)
    world.rest()
    assert queue.ids == 6
    assert [first(body) for body in world.bodies("q")] == [*ids, "b6"]
    assert queue.backlog.count == 6
    check_invariants(world)


def test_a_get_waits_for_the_ids() -> None:
    """A message that is got right after a restart is known, too."""
    world = DurableWorld()
    client = world.client()
    world.declare(client, "q", arguments=ARGUMENTS)
    publish(client, "a1", "a2")
    world.rest()
    world.stop()
    world.start()
    client = world.client()
    client.send(1, BasicGet(queue="q"))
    world.rest()
    (answer,) = client.received()
    assert isinstance(answer.method, BasicGetOk)
    publish(client, "a1", "a2")
    world.rest()
    queue = world.queue("q")
    assert isinstance(queue, DeduplicatingQueue)
    assert (queue.backlog.count, queue.duplicates) == (1, 2)
