"""Deduplicating, recent-history and retaining exchanges on disk: what a restart of the only node leaves of them."""

import pytest

from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import ExchangeDeclare, ExchangeDeclareOk, QueueBind
from node.amqp.properties import Properties
from node.catalogue.commands import Bind, DeleteQueue
from node.catalogue.deduplication import DEDUPLICATION_TYPE
from node.catalogue.exchange_queues import exchange_queue
from node.catalogue.recent_history import HISTORY_TYPE
from node.catalogue.retained import RETAINED_TYPE
from tests.durable_world.world import LARGE_BYTES, DurableWorld
from tests.kit.world import Client, check_invariants

PASSING = exchange_queue(DEDUPLICATION_TYPE, "x") or ""
HISTORY = exchange_queue(HISTORY_TYPE, "x") or ""
RETAINED = exchange_queue(RETAINED_TYPE, "x") or ""


def ready(type_: str, arguments: Table, *, is_bound: bool = True) -> tuple[DurableWorld, Client]:
    """A world with a durable exchange x and the queue q."""
    world = DurableWorld()
    client = world.client()
    client.send(1, ExchangeDeclare(exchange="x", type=type_, durable=True, arguments=arguments))
    world.rest()
    assert client.methods() == [ExchangeDeclareOk()]
    world.declare(client, "q")
    if is_bound:
        bind(world, client)
    return world, client


def bind(world: DurableWorld, client: Client) -> None:
    client.send(1, QueueBind(queue="q", exchange="x"))
    world.rest()
    client.received()


def publish(world: DurableWorld, client: Client, *ids: str) -> None:
    """Publish persistent messages whose body is the id; one that begins with L is large."""
    for id_ in ids:
        headers = {"x-deduplication-header": longstr(id_)}
        body = id_.encode() * (LARGE_BYTES if id_.startswith("L") else 1)
        client.publish(1, "", body, exchange="x", properties=Properties(delivery_mode=2, headers=headers))
    world.rest()


def taken(world: DurableWorld) -> list[str]:
    return [body[:2].decode() for body in world.bodies("q")]


@pytest.mark.parametrize("is_kill", [False, True])
@pytest.mark.parametrize("is_paged", [False, True])
@pytest.mark.parametrize("persistence", ["disk", "memory"])
def test_ids_survive_a_restart_if_they_are_to_be_on_disk(
    is_kill: bool, is_paged: bool, persistence: str
) -> None:
    arguments = {"x-cache-size": long(100), "x-cache-persistence": longstr(persistence)}
    world, client = ready(DEDUPLICATION_TYPE, arguments)
    publish(world, client, "a1", "L2", "a1")
    publish(world, client, "L2", "a3")
    assert taken(world) == ["a1", "L2", "a3"]
    if is_paged:
        world.page_out(PASSING)
    world.kill() if is_kill else world.stop()
    world.start()
    client = world.client()
    publish(world, client, "a1", "a4", "L2")
    again = ["a4"] if persistence == "disk" else ["a1", "a4", "L2"]
    assert taken(world) == ["a1", "L2", "a3", *again]
    check_invariants(world)


@pytest.mark.parametrize("is_kill", [False, True])
@pytest.mark.parametrize("is_paged", [False, True])
def test_the_history_survives_a_restart(is_kill: bool, is_paged: bool) -> None:
    arguments = {"x-recent-history-length": long(3)}
    world, client = ready(HISTORY_TYPE, arguments, is_bound=False)
    publish(world, client, "a1", "L2", "L3", "a4")
    if is_paged:
        world.page_out(HISTORY)
    world.kill() if is_kill else world.stop()
    world.start()
    client = world.client()
    bind(world, client)
    assert taken(world) == ["L2", "L3", "a4"]
    publish(world, client, "a5")
    assert taken(world) == ["L2", "L3", "a4", "a5"]
    assert world.queue(HISTORY).backlog.count == 3
    check_invariants(world)


def retain(world: DurableWorld, client: Client, *messages: tuple[str, bytes]) -> None:
    """Publish persistent messages by key and body."""
    for key, body in messages:
        client.publish(1, key, body, exchange="x", properties=Properties(delivery_mode=2))
    world.rest()


def given(world: DurableWorld, pattern: str = "#") -> list[bytes]:
    """Bind a queue, and return what it gets."""
    client = world.client()
    queue = f"given {len(world.queues())}"
    world.declare(client, queue, durable=False)
    world.submit(Bind("/", "x", "queue", queue, pattern))
    world.rest()
    client.lose()
    found = sorted(world.bodies(queue))
    world.submit(DeleteQueue("/", queue))
    world.rest()
    return found


@pytest.mark.parametrize("is_kill", [False, True])
@pytest.mark.parametrize("is_paged", [False, True])
def test_retained_messages_survive_a_restart(is_kill: bool, is_paged: bool) -> None:
    world, client = ready(RETAINED_TYPE, {}, is_bound=False)
    large = b"L" * LARGE_BYTES
    retain(
        world,
        client,
        ("a.1", b"old"),
        ("a.2", large),
        ("a.1", b"new"),
        ("b.1", b"b"),
        ("c", b"gone"),
        ("c", b""),
    )
    if is_paged:
        world.page_out(RETAINED)
        assert given(world, "a.*") == [large, b"new"]
    world.kill() if is_kill else world.stop()
    world.start()
    client = world.client()
    assert given(world) == [large, b"b", b"new"]
    retain(world, client, ("a.2", b""), ("d", b"d"))
    assert given(world) == [b"b", b"d", b"new"]
    assert given(world, "a.*") == [b"new"]
    check_invariants(world)


@pytest.mark.parametrize("is_paged", [False, True])
def test_the_log_of_retained_messages_is_cleaned_on_disk(is_paged: bool) -> None:
    world, client = ready(RETAINED_TYPE, {}, is_bound=False)
    keys = [f"k{number}" for number in range(100)]
    for round_ in range(6):
        retain(world, client, *((key, b"%s %d" % (key.encode(), round_)) for key in keys))
        if is_paged:
            world.page_out(RETAINED)
    world.rest()
    queue = world.queue(RETAINED)
    assert queue.backlog.count <= 3 * len(keys)
    expected = sorted(b"%s 5" % key.encode() for key in keys)
    assert given(world) == expected
    world.kill()
    world.start()
    assert given(world) == expected
