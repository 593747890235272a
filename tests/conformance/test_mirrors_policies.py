"""reliability §2.2 dynamic_ha and queue_master_location, amqp-behaviour §9.3: which nodes have a copy."""

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pika
import pytest

from node.amqp.field_table import longstr
from node.amqp.methods import QueueDeclare, QueueDelete
from tests.conformance.cluster_story import PERSISTENT, publish
from tests.conformance.entities import queue_exists
from tests.conformance.pika_steps import parameters
from tests.conformance.queue_steps import publish_each
from tests.conformance.test_section_9_placement import least
from tests.kit.amqp_client import Channel
from tests.kit.mirror_steps import (
    SHAPE_S,
    Mirrored,
    await_shape,
    bodies,
    delete_queues,
    end,
    numbered,
    set_mirroring,
)
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster, ClusterNode, Replicas, is_rabbitmq

On = Callable[..., Channel]
Name = Callable[[str], str]
slow = pytest.mark.slow

ROUNDS: Final = 20
RAPID_ROUNDS: Final = 60


def names(cluster: Cluster, *indexes: int) -> tuple[str, ...]:
    return tuple(cluster[index].name for index in indexes)


# --- declare ---


@slow
def test_declare_synchrony(shaken_cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§2.2 declare_synchrony: the mirrors are up before declare-ok, so the first message survives its node's kill."""
    queue = mirrored()
    on(shaken_cluster[0]).declare(queue, durable=True)
    publish(on(shaken_cluster[1]), queue, b"first")
    shaken_cluster[0].kill()
    channel = on(shaken_cluster[1])
    assert channel.call(QueueDeclare, queue=queue, passive=True).message_count == 1


def test_synced_from_the_beginning(cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§9.3: when declare-ok comes all copies are there and synchronised, on every node."""
    prefix = mirrored()
    for number, node in enumerate(cluster.nodes):
        queue = f"{prefix}-{number}"
        on(node).declare(queue)
        others = {each.name for each in cluster.nodes if each is not node}
        assert node.replicas(queue)[:2] == (node.name, others)
        await_shape(node, queue, synced=others, within=2)  # which RabbitMQ notes a moment later


def test_rapid_redeclare(cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§2.2 rapid_redeclare: declare and delete, 20 times."""
    queue, channel = mirrored(), on(cluster[0])
    for _ in range(ROUNDS):
        channel.call(QueueDeclare, queue=queue, durable=True)
        channel.call(QueueDelete, queue=queue)
    assert not queue_exists(on(cluster[1]), queue)


@slow
def test_clean_up_exclusive_queues(shaken_cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§2.2 clean_up_exclusive_queues: of a killed node, gone everywhere, also when it is back."""
    queue = mirrored()
    on(shaken_cluster[0]).declare(queue, exclusive=True)
    assert shaken_cluster[1].replicas(queue) == (shaken_cluster[0].name, set(), set())
    end(shaken_cluster[0], "kill", shaken_cluster)
    wait_until(lambda: not queue_exists(on(shaken_cluster[1]), queue), "it is gone there")
    shaken_cluster.heal()
    assert not queue_exists(on(shaken_cluster[0]), queue)
    assert not queue_exists(on(shaken_cluster[1]), queue)


# --- policies ---


def test_change_policy(cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§2.2 change_policy: none, all, nodes AB, nodes AC, none, nodes BC. The last one moves the master."""
    queue, (a, b, c) = mirrored(), names(cluster, 0, 1, 2)
    cluster[0].admin.clear_policy("/", queue)
    on(cluster[0]).declare(queue, durable=True)
    publish(on(cluster[0]), queue, *numbered(50))
    await_shape(cluster[2], queue, master=a, mirrors=0)
    set_mirroring(cluster[1], queue, "all")
    await_shape(cluster[2], queue, master=a, mirrors={b, c})
    set_mirroring(cluster[1], queue, "nodes", (a, b))
    await_shape(cluster[2], queue, master=a, mirrors={b})
    set_mirroring(cluster[1], queue, "nodes", (a, c))
    await_shape(cluster[2], queue, master=a, mirrors={c})
    cluster[1].admin.clear_policy("/", queue)
    await_shape(cluster[2], queue, master=a, mirrors=0)
    set_mirroring(cluster[1], queue, "nodes", (b, c), ha_sync_mode="automatic")
    # Whichever is synchronised first becomes the master; the other one is its mirror.
    expected = [Replicas(b, frozenset({c}), frozenset({c})), Replicas(c, frozenset({b}), frozenset({b}))]
    wait_until(lambda: cluster[2].replicas(queue) in expected, "two copies, none of them on A", SHAPE_S)
    assert bodies(on(cluster[0]), queue) == list(numbered(50))


def test_exactly(cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§9.3 exactly: so many in all; more than there are nodes: all."""
    queue = mirrored("exactly", 2)
    on(cluster[0]).declare(queue)
    await_shape(cluster[1], queue, master=cluster[0].name, mirrors=1, synced=1)
    set_mirroring(cluster[1], queue, "exactly", 1)
    await_shape(cluster[1], queue, master=cluster[0].name, mirrors=0)
    set_mirroring(cluster[1], queue, "exactly", 7)
    await_shape(cluster[1], queue, master=cluster[0].name, mirrors=2, synced=2)
    set_mirroring(cluster[1], queue, "exactly", 2)
    await_shape(cluster[1], queue, master=cluster[0].name, mirrors=1, synced=1)


@slow
@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_change_cluster(shaken_cluster: Cluster, on: On, mirrored: Mirrored, how: Any) -> None:
    """§2.2 change_cluster: exactly 2 of 3: whoever ends, the third one takes its place, and keeps it."""
    queue = mirrored("exactly", 2, ha_sync_mode="automatic")
    on(shaken_cluster[0]).declare(queue, durable=True)
    publish(on(shaken_cluster[0]), queue, *numbered(50))
    (mirror,) = await_shape(shaken_cluster[0], queue, master=shaken_cluster[0].name, synced=1).mirrors
    (spare,) = {node.name for node in shaken_cluster.nodes} - {shaken_cluster[0].name, mirror}
    end(shaken_cluster.node(mirror), how, shaken_cluster)
    await_shape(shaken_cluster[0], queue, master=shaken_cluster[0].name, mirrors={spare}, synced={spare})
    shaken_cluster.heal()
    end(shaken_cluster[0], how, shaken_cluster)
    await_shape(shaken_cluster.node(spare), queue, master=spare, mirrors={mirror}, synced={mirror})
    assert bodies(on(shaken_cluster.node(spare)), queue) == list(numbered(50))


def test_nodes(cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§9.3 nodes: unknown ones are skipped; when none of them is there the master stays."""
    queue = mirrored("nodes", ("n9@localhost", cluster[0].name, cluster[2].name))
    on(cluster[0]).declare(queue)
    await_shape(cluster[1], queue, master=cluster[0].name, mirrors={cluster[2].name})
    set_mirroring(cluster[1], queue, "nodes", ("n8@localhost", "n9@localhost"))
    await_shape(cluster[1], queue, master=cluster[0].name, mirrors=0)


@slow
def test_nodes_policy_picks_no_unsynced_master(cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§2.2 nodes_policy_should_pick_master_from_its_params: never who lacks something, though only it is named."""
    queue, (a, b) = mirrored("nodes", names(cluster, 0)), names(cluster, 0, 1)
    on(cluster[0]).declare(queue, durable=True)
    publish_each(on(cluster[0]), queue, *numbered(20_000), properties=PERSISTENT)
    set_mirroring(cluster[2], queue, "nodes", (b,))
    seen = await_shape(cluster[2], queue, mirrors={b})
    assert (seen.master, seen.synced) == (a, set())
    set_mirroring(cluster[2], queue, "all")
    assert await_shape(cluster[2], queue, mirrors=2).master == a
    set_mirroring(cluster[2], queue, "nodes", (b,), ha_sync_mode="automatic")
    await_shape(cluster[2], queue, master=b, mirrors=0)
    assert on(cluster[2]).call(QueueDeclare, queue=queue, passive=True).message_count == 20_000


@slow
def test_rapid_change(cluster: Cluster, mirrored: Mirrored) -> None:
    """§2.2 rapid_change: declare, publish, consume, delete with pika, while the policy flips; no error."""
    queue = mirrored()
    done = threading.Event()

    def flip() -> None:
        for number in itertools.count():
            if done.is_set():
                return
            if number % 2:
                set_mirroring(cluster[1], queue, "all")
            else:
                cluster[1].admin.clear_policy("/", queue)

    flipping = threading.Thread(daemon=True, target=flip)
    flipping.start()
    connection = pika.BlockingConnection(parameters(cluster[0]))
    channel = connection.channel()
    try:
        for number in range(RAPID_ROUNDS):
            channel.queue_declare(queue, durable=True)
            channel.basic_publish("", queue, b"%d" % number)
            for method, _, body in channel.consume(queue, auto_ack=True, inactivity_timeout=10):
                assert method is not None, number
                assert body == b"%d" % number
                break
            channel.cancel()
            channel.queue_delete(queue)
    finally:
        done.set()
        flipping.join()
        connection.close()
    set_mirroring(cluster[1], queue, "all")  # so that there is one to clear


POLICIES: Final = (
    ("all", None),
    ("exactly", 1),
    ("exactly", 2),
    ("exactly", 3),
    ("nodes", "subset"),
    (None, None),
)


def apply_some(node: ClusterNode, cluster: Cluster, queue: str, choices: random.Random, count: int) -> None:
    """Set `count` random policies for the queue by one node; None removes mirroring."""
    for _ in range(count):
        mode, params = choices.choice(POLICIES)
        if mode is None:
            set_mirroring(node, queue, "exactly", 1)
        elif params == "subset":
            set_mirroring(
                node, queue, mode, tuple(choices.sample(names(cluster, 0, 1, 2), choices.randint(1, 3)))
            )
        else:
            set_mirroring(node, queue, mode, params)


@slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.xfail(
    is_rabbitmq(), reason="RabbitMQ 3.10.8 does not always come to the last one's shape", strict=False
)
def test_random_policy(cluster: Cluster, on: On, mirrored: Mirrored, seed: int) -> None:
    """§2.2 random_policy, failing_random_policies: random policies set by all nodes at once; the last one counts."""
    queue = mirrored()
    on(cluster[0]).declare(queue, durable=True)
    publish(on(cluster[1]), queue, *numbered(20))
    setting = [
        threading.Thread(
            daemon=True, target=apply_some, args=(node, cluster, queue, random.Random(f"{seed} {index}"), 6)
        )
        for index, node in enumerate(cluster.nodes)
    ]
    for each in setting:
        each.start()
    for each in setting:
        each.join()
    mode, params = random.Random(seed).choice([("all", 3), ("exactly", 2), ("exactly", 3), ("nodes", 2)])
    wanted = names(cluster, 1, 2) if mode == "nodes" else None if mode == "all" else params
    set_mirroring(cluster[0], queue, mode, wanted, ha_sync_mode="automatic")
    seen = await_shape(cluster[2], queue, mirrors=params - 1, synced=params - 1)
    if mode == "nodes":
        wait_until(
            lambda: cluster[2].replicas(queue).master in names(cluster, 1, 2), "the master is one of them"
        )
    assert seen.master
    assert bodies(on(cluster[0]), queue) == list(numbered(20))


@pytest.mark.parametrize(
    "definition",
    [
        {"ha-mode": "some"},
        {"ha-mode": "exactly"},
        {"ha-mode": "exactly", "ha-params": 0},
        {"ha-mode": "exactly", "ha-params": "2"},
        {"ha-mode": "nodes"},
        {"ha-mode": "nodes", "ha-params": []},
        {"ha-mode": "nodes", "ha-params": [1]},
        {"ha-mode": "all", "ha-params": 2},
        {"ha-params": 2},
        {"ha-mode": "all", "ha-sync-mode": "sometimes"},
        {"ha-sync-mode": "automatic"},
        {"ha-mode": "all", "ha-sync-batch-size": 0},
        {"ha-mode": "all", "ha-promote-on-shutdown": "never"},
        {"ha-mode": "all", "ha-promote-on-failure": "never"},
        {"ha-promote-on-failure": "always"},
    ],
    ids=str,
)
def test_invalid_policies(cluster: Cluster, name: Name, definition: dict[str, object]) -> None:
    """§9.3, §2.2 queue_master_location invalid ha-params: refused."""
    with pytest.raises(RuntimeError):
        cluster[0].admin.set_policy("/", name("p"), "^none$", definition)


# --- placement ---


@pytest.fixture
def placed(cluster: Cluster, name: Name) -> Iterator[Callable[[dict[str, object]], str]]:
    """Set a policy; gives the prefix that it holds for."""
    made: list[str] = []

    def add(definition: dict[str, object]) -> str:
        made.append(name("placed"))
        cluster[0].admin.set_policy("/", made[-1], f"^{made[-1]}", definition)
        return made[-1]

    yield add
    for each in made:
        delete_queues(cluster[0], each)
        cluster[0].admin.clear_policy("/", each)


def test_nodes_restrict_the_locator(cluster: Cluster, on: On, placed: Callable[..., str]) -> None:
    """§9.2: ha-mode nodes restricts the candidates of min-masters and random. RabbitMQ takes the first of them."""
    for locator in ("min-masters", "random"):
        allowed = names(cluster, 1, 2)
        prefix = placed({"ha-mode": "nodes", "ha-params": list(allowed), "queue-master-locator": locator})
        channel, homes = on(cluster[0]), Counter[str]()
        for number in range(12):
            queue = channel.declare(f"{prefix}-{number}")
            seen = await_shape(cluster[0], queue, mirrors=1)
            homes[seen.master] += 1
            assert {seen.master, *seen.mirrors} == set(allowed)
        assert is_rabbitmq() or set(homes) == set(allowed), locator


def test_client_local_with_mirrors(cluster: Cluster, on: On, placed: Callable[..., str]) -> None:
    """§2.2 queue_master_location: the client's node has the master, the policy says who has mirrors."""
    prefix = placed({"ha-mode": "exactly", "ha-params": 2, "queue-master-locator": "client-local"})
    for node in cluster.nodes:
        queue = on(node).declare(f"{prefix}-{node.name}")
        assert await_shape(node, queue, mirrors=1).master == node.name


def test_an_argument_places_the_master(cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§2.2 queue_master_location: by argument; mirrors do not count as masters."""
    prefix = mirrored()
    channel = on(cluster[0])
    for number in range(9):
        candidates = least(cluster)
        arguments = {"x-queue-master-locator": longstr("min-masters")}
        assert cluster[0].home(channel.declare(f"{prefix}-{number}", arguments=arguments)) in candidates


@pytest.mark.skipif(
    is_rabbitmq(), reason="RabbitMQ 3.10 mirrors them when they were declared before the policy"
)
def test_queues_of_exclusive_owners_are_left_alone(cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§9.3: a policy that comes later does not mirror them either."""
    queue = mirrored()
    cluster[0].admin.clear_policy("/", queue)
    channel = on(cluster[0])
    channel.declare(queue, exclusive=True)
    set_mirroring(cluster[0], queue, "all")
    publish_each(channel, queue, b"x")
    assert cluster[1].replicas(queue).mirrors == set()
