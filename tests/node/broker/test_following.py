"""Live objects follow the catalogue; a policy for very many queues takes more than one turn."""

from node.amqp.field_table import longstr
from node.amqp.methods import BasicAck, BasicConsume, BasicQos
from node.amqp.properties import Properties
from node.broker.following import SETTINGS_AT_ONCE
from node.catalogue.commands import ClearPolicy, DeclareQueue, DeleteQueue, DeleteVhost, PutVhost, SetPolicy
from node.queue.queue import Queue
from tests.kit.world import World, check_invariants


def many(world: World, count: int, vhost: str = "/") -> None:
    for number in range(count):
        world.submit(DeclareQueue(vhost, f"q{number}", f"{vhost == '/'}{number}"))


def with_limit(world: World, limit: int | None) -> int:
    """Return how many live queues have the limit."""
    queues = world.broker.vhosts["/"].queues.values()
    return sum(isinstance(queue, Queue) and queue.settings.max_length == limit for queue in queues)


def test_a_policy_reaches_a_bounded_number_of_queues_a_turn() -> None:
    world = World()
    many(world, 2 * SETTINGS_AT_ONCE + 1)
    world.submit(SetPolicy("/", "p", "", {"max-length": 5}))
    assert with_limit(world, 5) == SETTINGS_AT_ONCE
    reached = []
    while world.broker.has_work:
        world.broker.turn(world.now)
        reached.append(with_limit(world, 5))
    assert reached == [2 * SETTINGS_AT_ONCE, 2 * SETTINGS_AT_ONCE + 1]


def test_the_last_policy_counts() -> None:
    """Whatever changes while settings are still due: each queue gets what the catalogue says by then."""
    world = World()
    many(world, SETTINGS_AT_ONCE + 3)
    world.submit(SetPolicy("/", "p", "", {"max-length": 5}))
    world.submit(SetPolicy("/", "p", "", {"max-length": 6}))
    world.submit(DeleteQueue("/", f"q{SETTINGS_AT_ONCE}"))
    world.submit(DeclareQueue("/", "late", "late"))
    while world.broker.has_work:
        world.broker.turn(world.now)
    assert with_limit(world, 6) == SETTINGS_AT_ONCE + 3
    world.submit(ClearPolicy("/", "p"))
    while world.broker.has_work:
        world.broker.turn(world.now)
    assert with_limit(world, None) == SETTINGS_AT_ONCE + 3


def test_a_vhost_that_goes_while_settings_are_due() -> None:
    world = World()
    world.submit(PutVhost("v"))
    many(world, SETTINGS_AT_ONCE + 1, "v")
    world.submit(SetPolicy("v", "p", "", {"max-length": 5}))
    assert world.broker.has_work
    world.submit(DeleteVhost("v"))
    world.settle()
    assert "v" not in world.broker.vhosts


def test_settings_of_queues_without_arguments_differ_by_policy() -> None:
    """Settings computed for one queue without arguments are not used for those under another policy."""
    world = World()
    world.submit(SetPolicy("/", "p", "^a", {"max-length": 5}))
    for name in ("a1", "b1", "a2", "b2"):
        world.submit(DeclareQueue("/", name, name))
    queues = world.broker.vhosts["/"].queues
    limits = {name: queue.settings.max_length for name, queue in queues.items() if isinstance(queue, Queue)}
    assert limits == {"a1": 5, "b1": None, "a2": 5, "b2": None}


def test_a_policy_has_a_queue_deduplicate_while_it_has_messages_and_consumers() -> None:
    """The queue delivers on when it knows the ids of its messages; messages with clients stay with them."""
    world = World()
    many(world, 1)
    client = world.client()
    client.ask(1, BasicQos(prefetch_count=1))
    client.send(1, BasicConsume(queue="q0", consumer_tag="t"))

    def publish(*ids: str) -> None:
        for id_ in ids:
            headers = {"x-deduplication-header": longstr(id_)}
            client.publish(1, "q0", id_.encode(), properties=Properties(headers=headers))

    publish("a", "b", "b")
    assert client.bodies() == [b"a"]
    world.submit(SetPolicy("/", "p", "", {"message-deduplication": True}))
    publish("b", "c", "c")
    world.settle()
    assert world.queue("q0").backlog.count == 3
    client.send(1, BasicAck(0, multiple=True))
    assert client.bodies() == [b"b"]
    world.submit(ClearPolicy("/", "p"))
    assert type(world.queue("q0")) is Queue
    publish("c")
    assert world.queue("q0").backlog.count == 3
    check_invariants(world)
