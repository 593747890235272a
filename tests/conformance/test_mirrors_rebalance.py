"""reliability §2.2 rebalance_*, queue_master_location maintenance: masters that an operator spreads, or sends away."""

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from node.amqp.methods import QueueDeclare
from tests.conformance.cluster_story import publish
from tests.kit.amqp_client import Channel
from tests.kit.mirror_steps import Mirrored, await_shape, bodies, numbered
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster, ClusterNode, is_rabbitmq

On = Callable[..., Channel]
slow = pytest.mark.slow


def five_on_the_first(cluster: Cluster, on: On, prefix: str, mirrors: int) -> list[str]:
    """Five mirrored queues with their masters there; the first two have many messages."""
    channel = on(cluster[0])
    queues = [channel.declare(f"{prefix}-{number}", durable=True) for number in range(5)]
    for number, queue in enumerate(queues):
        await_shape(cluster[0], queue, master=cluster[0].name, mirrors=mirrors, synced=mirrors)
        publish(channel, queue, *numbered(100 if number < 2 else number - 2))
    return queues


def masters(cluster: Cluster, queues: list[str]) -> Counter[str]:
    return Counter(cluster[1].replicas(queue).master for queue in queues)


@pytest.mark.parametrize(
    ("mode", "mirrors", "most"),
    [("all", 2, 2), ("exactly", 1, 2), ("nodes", 1, 3)],
    ids=["all", "exactly", "nodes"],
)
def test_rebalance(cluster: Cluster, on: On, mirrored: Mirrored, mode: str, mirrors: int, most: int) -> None:
    """§2.2 rebalance_all, _exactly, _nodes: at most 2 (3 on two nodes) each; the loaded ones stay, nothing is lost."""
    params = {"all": None, "exactly": 2, "nodes": (cluster[0].name, cluster[1].name)}[mode]
    queues = five_on_the_first(cluster, on, mirrored(mode, params), mirrors)
    cluster[0].rebalance()

    def is_even() -> bool:
        found = masters(cluster, queues)
        return "" not in found and max(found.values()) <= (3 if mode == "exactly" else most)

    wait_until(is_even, f"spread: {masters(cluster, queues)}")
    if mode != "exactly":  # there an empty one's mirror may be where there are enough already
        for queue in queues[:2]:
            assert cluster[1].replicas(queue).master == cluster[0].name
    for number, queue in enumerate(queues):
        assert bodies(on(cluster[2]), queue) == list(numbered(100 if number < 2 else number - 2))


def test_rebalance_multiple_blocked(cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§2.2 rebalance_multiple_blocked: while one runs, a second is refused."""
    five_on_the_first(cluster, on, mirrored(), 2)
    refused: list[str] = []

    def rebalance(node: ClusterNode) -> None:
        try:
            node.rebalance()
        except RuntimeError as error:
            refused.append(str(error))

    # The tool that speaks to RabbitMQ's nodes does so once at a time for each.
    nodes = cluster.nodes if is_rabbitmq() else [cluster[0]] * 3
    running = [threading.Thread(daemon=True, target=rebalance, args=(node,)) for node in nodes]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert 0 < len(refused) < 3
    assert all("rebalance_in_progress" in text for text in refused)


@slow
@pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ 3.10.8 leaves the masters of classic queues there")
def test_drain_moves_masters(shaken_cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """amqp-behaviour §9.7, maintenance: masters leave a drained node, nothing is lost; new ones go elsewhere."""
    queues = five_on_the_first(shaken_cluster, on, mirrored(), 2)
    shaken_cluster[0].drain()
    try:
        wait_until(
            lambda: not {"", shaken_cluster[0].name} & set(masters(shaken_cluster, queues)), "they leave"
        )
        channel = on(shaken_cluster[1])
        assert channel.call(QueueDeclare, queue=queues[0], passive=True).message_count == 100
        for number, queue in enumerate(queues):
            assert bodies(channel, queue) == list(numbered(100 if number < 2 else number - 2))
    finally:
        shaken_cluster[0].revive()
