"""On which nodes a new queue lives (amqp-behaviour §9.2, §9.3; reliability §2.2 queue_master_location)."""

from collections.abc import Iterator

import pytest

from node.amqp.field_table import Table, longstr
from node.broker.broker import Broker
from node.catalogue.commands import (
    Bind,
    DeclareQueue,
    NodeDown,
    SetDraining,
)
from node.client.settings import BrokerSettings
from tests.node.catalogue.mirrors.catalogue_cluster import CatalogueCluster

A, B, C = "a@host", "b@host", "c@host"


class World(CatalogueCluster):
    """A broker on node A of a cluster; `random` are the bytes that it gets."""

    def __init__(self, *names: str, locator: str = "client-local") -> None:
        self.random: Iterator[int] = iter(())
        settings = BrokerSettings(node_name=A, queue_master_locator=locator)
        self.broker = Broker(settings, entropy=lambda count: bytes([0] * (count - 1) + [next(self.random)]))
        super().__init__(*names, catalogue=self.broker.catalogue)

    def placed(self, arguments: Table | None = None, **others: object) -> tuple[str, tuple[str, ...]]:
        """Home and mirrors of a new queue q."""
        command = DeclareQueue("/", "q", "00ff", arguments=arguments or {}, **others)  # type: ignore[arg-type]
        found = self.broker.placed(command)
        return found.home, found.mirrors

    def have(self, home: str, count: int) -> None:
        """Declare queues that are there already."""
        for number in range(count):
            self.do(DeclareQueue("/", f"{home} {number}", "00", home=home))


@pytest.fixture
def world() -> World:
    """Three nodes with 15, 8 and 1 queues."""
    world = World(A, B, C)
    for home, count in ((A, 15), (B, 8), (C, 1)):
        world.have(home, count)
    return world


def located(locator: str) -> Table:
    return {"x-queue-master-locator": longstr(locator)}


def test_client_local(world: World) -> None:
    """declare_args, declare_config: by default, and by argument."""
    assert world.placed() == (A, ())
    assert world.placed(located("client-local")) == (A, ())


def test_min_masters(world: World) -> None:
    """declare_args: the fewest masters; calculate_min_master_with_bindings: bindings do not count."""
    for number in range(9):
        world.do(Bind("/", "amq.direct", "queue", f"{C} 0", f"k{number}"))
    assert world.placed(located("min-masters")) == (C, ())


def test_random(world: World) -> None:
    """calculate_random."""
    world.random = iter((0, 1, 2, 3))
    assert [world.placed(located("random"))[0] for _ in range(4)] == [A, B, C, A]


def test_declare_policy(world: World) -> None:
    """By policy; the argument comes first."""
    world.policy(queue_master_locator="min-masters")
    assert world.placed() == (C, ())
    assert world.placed(located("client-local")) == (A, ())


def test_declare_config() -> None:
    world = World(A, B, locator="min-masters")
    world.have(A, 1)
    assert world.placed() == (B, ())


def test_declare_policy_nodes(world: World) -> None:
    """Only the nodes that the policy names count; the others of them get mirrors."""
    world.policy(queue_master_locator="min-masters", ha_mode="nodes", ha_params=[B, A])
    assert world.placed() == (B, (A,))


def test_a_policy_that_does_not_name_the_clients_node(world: World) -> None:
    """§9.2 ha-mode nodes restricts candidates: the first that is there. If none is, the client's node."""
    world.policy(ha_mode="nodes", ha_params=["gone@host", C, B])
    assert world.placed() == (C, (B,))
    world.policy(ha_mode="nodes", ha_params=["gone@host"])
    assert world.placed() == (A, ())


def test_declare_policy_all(world: World) -> None:
    world.policy(queue_master_locator="min-masters", ha_mode="all")
    assert world.placed() == (C, (A, B))


def test_declare_policy_exactly(world: World) -> None:
    world.policy(queue_master_locator="min-masters", ha_mode="exactly", ha_params=2)
    home, mirrors = world.placed()
    assert home == C
    assert len(mirrors) == 1
    assert set(mirrors) <= {A, B}


def test_exclusive_queues_are_local_and_alone(world: World) -> None:
    """§9.2, §9.3."""
    world.policy(queue_master_locator="min-masters", ha_mode="all")
    assert world.placed(exclusive_owner="c1") == (A, ())


def test_drained_nodes_are_avoided_unless_all_are(world: World) -> None:
    """queue_master_location, maintenance mode: for the master and for mirrors."""
    world.policy(ha_mode="all")
    world.do(SetDraining(C, True))
    assert world.placed(located("min-masters")) == (B, (A,))
    for name in (A, B):
        world.do(SetDraining(name, True))
    assert world.placed(located("min-masters")) == (A, (B, C))


def test_nodes_that_are_down_or_have_no_queues(world: World) -> None:
    world.join("w@host", "witness")
    world.do(NodeDown(C, 3))
    world.policy(ha_mode="all")
    assert world.placed(located("min-masters")) == (B, (A,))


def test_a_quorum_queue() -> None:
    """Up to three copies, on disc nodes."""
    world = World(A, B, C, "d@host")
    home, mirrors = world.placed(durable=True, type="quorum")
    assert home == A
    assert len(set(mirrors)) == 2
    world = World(A)
    world.join(B, "ram")
    world.join(C)
    assert world.placed(durable=True, type="quorum") == (A, (C,))


def test_a_node_by_itself() -> None:
    """A policy mirrors nothing there."""
    world = World()
    world.policy(ha_mode="all")
    assert world.placed() == (A, ())
    assert world.placed(durable=True, type="quorum") == (A, ())
