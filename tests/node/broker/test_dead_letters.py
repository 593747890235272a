"""Dead letters that no queue has in the end are counted for the queue in which they died, by cause.

No client is told of them, so telemetry is the only place where they show.
"""

import pytest

from node.amqp.field_table import Table, longstr
from node.amqp.field_table import long as long_
from node.amqp.methods import BasicGet, BasicNack, QueueBind, QueueDeclare
from node.amqp.properties import Properties
from node.catalogue.commands import DeleteExchange, DeleteQueue
from node.queue.metering import Meter
from tests.kit.cluster import Cluster, client_of
from tests.kit.mirrors_in_memory import Mirror
from tests.kit.world import Client, World

FULL: Table = {"x-max-length": long_(0), "x-overflow": longstr("reject-publish")}


def dying_to(exchange: str, key: str | None = None, **limits: int) -> Table:
    """Arguments of a queue whose dead letters go to an exchange."""
    found: Table = {f"x-{name.replace('_', '-')}": long_(value) for name, value in limits.items()}
    found["x-dead-letter-exchange"] = longstr(exchange)
    if key is not None:
        found["x-dead-letter-routing-key"] = longstr(key)
    return found


class Metered:
    """A broker with a meter, and a client that declares queues."""

    def __init__(self) -> None:
        self.world = World()
        self.meter = self.world.broker.meter = Meter(lambda: 0, lambda: 0)
        self.client: Client = self.world.client(1)

    def declare(self, name: str, arguments: Table | None = None) -> None:
        self.client.ask(1, QueueDeclare(queue=name, arguments=arguments or {}))

    def lost(self, name: str = "q") -> dict[str, int]:
        """Return what is counted for a queue."""
        self.world.settle()
        found = self.meter.account(self.world.queue(name).record).letters_lost
        return dict(found or {})


@pytest.fixture
def metered() -> Metered:
    return Metered()


def test_without_the_exchange(metered: Metered) -> None:
    metered.declare("q", dying_to("missing", max_length=0))
    metered.client.publish(1, "q", b"1", b"2")
    assert metered.lost() == {"no-exchange": 2}


def test_an_exchange_that_goes_while_messages_are_on_their_way(metered: Metered) -> None:
    metered.declare("q", dying_to("amq.fanout"))
    metered.client.publish(1, "q", b"1")
    metered.client.ask(1, BasicGet(queue="q"))
    metered.client.send(1, BasicNack(1, requeue=False))
    metered.world.submit(DeleteExchange("/", "amq.fanout"))
    assert metered.lost() == {"no-exchange": 1}


def test_without_a_route(metered: Metered) -> None:
    """The target queue does not exist, or was deleted."""
    metered.declare("dead")
    metered.declare("q", dying_to("", "dead", max_length=0))
    metered.client.publish(1, "q", b"1")
    assert metered.lost() == {}
    metered.world.submit(DeleteQueue("/", "dead"))
    metered.client.publish(1, "q", b"2", b"3")
    assert metered.lost() == {"no-route": 2}


def test_a_target_that_refuses(metered: Metered) -> None:
    metered.declare("dead", FULL)
    metered.declare("q", dying_to("", "dead", max_length=0))
    metered.client.publish(1, "q", *[b"x"] * 25)
    assert metered.lost() == {"refused": 25}


def test_a_message_that_one_of_two_queues_has_is_not_lost(metered: Metered) -> None:
    for name, arguments in (("full", FULL), ("room", {})):
        metered.declare(name, arguments)
        metered.client.ask(1, QueueBind(queue=name, exchange="amq.fanout"))
    metered.declare("q", dying_to("amq.fanout", max_length=0))
    metered.client.publish(1, "q", b"1", b"2")
    assert metered.lost() == {}
    assert metered.world.queue("room").backlog.count == 2


def test_a_cycle(metered: Metered) -> None:
    """A message that no client rejected does not come back to its queue."""
    metered.declare("q", dying_to("", "q", message_ttl=1000))
    metered.client.publish(1, "q", b"1")
    metered.world.advance(2)
    assert metered.lost() == {"cycle": 1}


def test_a_queue_without_dead_letter_exchange_loses_no_dead_letters(metered: Metered) -> None:
    """Messages that a length limit drops there are counted as dropped."""
    metered.declare("q", {"x-max-length": long_(0)})
    metered.client.publish(1, "q", b"1")
    assert metered.lost() == {}
    assert metered.meter.account(metered.world.queue("q").record).dropped == 1


def test_without_a_meter_nothing_is_counted() -> None:
    world = World()
    client = world.client(1)
    client.ask(1, QueueDeclare(queue="q", arguments=dying_to("", "nowhere", max_length=0)))
    client.publish(1, "q", b"1")
    world.settle()
    assert world.broker.meter is None
    assert world.queue("q").backlog.count == 0


# --- targets that answer later ---


def die(cluster: Cluster, node: str) -> None:
    """Have a message of the queue `source` rejected."""
    client = client_of(cluster[node], 1)
    client.publish(1, "source", b"1", properties=Properties(delivery_mode=2))
    client.send(1, BasicGet(queue="source"))
    client.send(1, BasicNack(1, requeue=False))
    cluster.settle()


def lost_on(cluster: Cluster, node: str) -> dict[str, int]:
    meter = cluster[node].broker.meter
    assert meter is not None
    (account,) = [each for each in meter.accounts.values() if each.name == "source"]
    return dict(account.letters_lost or {})


@pytest.mark.parametrize(("arguments", "wanted"), [(FULL, {"refused": 1}), ({}, {})])
def test_a_target_on_another_node(arguments: Table, wanted: dict[str, int]) -> None:
    """The answer of the other node says whether its queue has the message."""
    cluster = Cluster("n1", "n2")
    cluster["n1"].broker.meter = Meter(lambda: 0, lambda: 0)
    cluster.declare("n2", "dead", arguments)
    cluster.declare("n1", "source", dying_to("", "dead"))
    die(cluster, "n1")
    assert lost_on(cluster, "n1") == wanted
    assert cluster["n2"].home_queue("dead").backlog.count == (0 if wanted else 1)


@pytest.mark.parametrize(("arguments", "wanted"), [(FULL, {"refused": 1}), ({}, {})])
def test_a_target_with_mirrors(arguments: Table, wanted: dict[str, int]) -> None:
    """Nothing is counted before the mirrors have answered, and a message that they keep is not lost."""
    cluster = Cluster("n1", "n2")
    cluster["n1"].broker.meter = Meter(lambda: 0, lambda: 0)
    cluster.declare_mirrored("dead", "n1", "n2", arguments=arguments)
    cluster.declare("n1", "source", dying_to("", "dead"))
    cluster.is_ring_held = True
    die(cluster, "n1")
    assert lost_on(cluster, "n1") == {}
    mirrors: list[Mirror] = [mirror for _, mirror in cluster["n1"].mirrors.leading.values()]
    for mirror in mirrors:
        mirror.replicate()
    assert lost_on(cluster, "n1") == wanted
