"""amqp-behaviour §9.2, reliability §2.2 queue_master_location: on which node a new queue lives."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from node.amqp.field_table import Table, longstr
from node.amqp.methods import QueueBind, QueueDeclare
from tests.conformance.cluster_story import publish
from tests.kit.amqp_client import Channel
from tests.kit.server_cluster import Cluster, start_cluster

On = Callable[..., Channel]
Name = Callable[[str], str]


def located(locator: str) -> Table:
    """The argument that places a queue."""
    return {"x-queue-master-locator": longstr(locator)}


def least(cluster: Cluster, *without: str) -> set[str]:
    """The nodes with the fewest queues, as min-masters sees them."""
    counts = Counter({node.name: 0 for node in cluster.nodes if node.name not in without})
    counts.update(home for home in cluster[0].homes() if home in counts)
    return {name for name, count in counts.items() if count == min(counts.values())}


@pytest.fixture
def policy(cluster: Cluster, name: Name) -> Iterator[Callable[[str], str]]:
    """Set a policy with a locator; gives the prefix of the queues that it holds for. It ends with the test."""
    made: list[str] = []

    def add(locator: str) -> str:
        made.append(name("placed"))
        cluster[1].admin.set_policy("/", made[-1], f"^{made[-1]}", {"queue-master-locator": locator})
        return made[-1]

    yield add
    for each in made:
        cluster[0].admin.clear_policy("/", each)


def test_the_default_is_the_clients_node(cluster: Cluster, on: On, name: Name) -> None:
    """§9.2 order, last: local."""
    for node in cluster.nodes:
        queue = on(node).declare(name("q"))
        assert [each.home(queue) for each in cluster.nodes] == [node.name] * 3


def test_client_local(cluster: Cluster, on: On, name: Name) -> None:
    """§9.2: by argument."""
    for node in cluster.nodes:
        queue = on(node).declare(name("q"), arguments=located("client-local"))
        assert node.home(queue) == node.name


def test_min_masters(cluster: Cluster, on: On, name: Name) -> None:
    """§9.2 [E: min-masters spread 6 queues]: always to a node with the fewest."""
    channel = on(cluster[0])
    for _ in range(9):
        candidates = least(cluster)
        queue = channel.declare(name("q"), durable=True, arguments=located("min-masters"))
        assert cluster[0].home(queue) in candidates


def test_min_masters_counts_no_bindings(cluster: Cluster, on: On, name: Name) -> None:
    """queue_master_location: bindings do not count."""
    channel = on(cluster[0])
    while len(least(cluster)) > 1:  # so that one node has fewer queues than the others
        channel.declare(name("q"), arguments=located("min-masters"))
    (expected,) = least(cluster)
    queue = channel.declare(name("q"), arguments=located("min-masters"))
    assert cluster[1].home(queue) == expected
    channel.call(QueueBind, queue=queue, exchange="amq.direct", routing_key=queue)
    while len(least(cluster)) > 1:
        channel.declare(name("q"), arguments=located("min-masters"))
    (expected,) = least(cluster)
    bound = channel.declare(name("q"), arguments=located("min-masters"))
    for number in range(20):
        channel.call(QueueBind, queue=bound, exchange="amq.direct", routing_key=f"{bound}-{number}")
    assert cluster[1].home(bound) == expected


def test_random(cluster: Cluster, on: On, name: Name) -> None:
    """§9.2: any node; in 40 tries each of three."""
    channel = on(cluster[1])
    homes = set()
    for _ in range(40):
        homes.add(cluster[0].home(channel.declare(name("q"), arguments=located("random"))))
    assert homes == {node.name for node in cluster.nodes}


def test_a_policy_places(cluster: Cluster, on: On, name: Name, policy: Callable[[str], str]) -> None:
    """§9.2 order: without an argument, the policy's."""
    prefix = policy("min-masters")
    channel = on(cluster[2])
    for number in range(6):
        candidates = least(cluster)
        assert cluster[0].home(channel.declare(f"{prefix}-{number}")) in candidates


def test_an_argument_beats_a_policy(
    cluster: Cluster, on: On, name: Name, policy: Callable[[str], str]
) -> None:
    """§9.2 order."""
    prefix = policy("random")
    channel = on(cluster[1])
    for number in range(12):
        queue = channel.declare(f"{prefix}-{number}", arguments=located("client-local"))
        assert cluster[0].home(queue) == cluster[1].name


def test_exclusive_queues_are_local(
    cluster: Cluster, on: On, name: Name, policy: Callable[[str], str]
) -> None:
    """§9.2: whatever is said."""
    prefix = policy("random")
    for node in cluster.nodes:
        channel = on(node)
        for number in range(6):
            queue = channel.declare(f"{prefix}-{node.name[:2]}-{number}", exclusive=True)
            assert node.home(queue) == node.name
            queue = channel.declare(name("q"), exclusive=True, arguments=located("min-masters"))
            assert node.home(queue) == node.name


def test_existing_queues_stay(cluster: Cluster, on: On, name: Name) -> None:
    """§9.2: when a locator changes."""
    channel, prefix = on(cluster[2]), name("stay")
    queues = [channel.declare(f"{prefix}-{number}", durable=True) for number in range(6)]
    publish(channel, queues[0], b"here")
    admin = cluster[0].admin
    for locator in ("random", "min-masters", "client-local"):
        admin.set_policy("/", prefix, f"^{prefix}", {"queue-master-locator": locator})
        assert {cluster[0].home(queue) for queue in queues} == {cluster[2].name}
    admin.clear_policy("/", prefix)
    for queue in queues:
        on(cluster[0]).declare(queue, durable=True)
        assert cluster[0].home(queue) == cluster[2].name
    content = channel.get(queues[0])
    assert content
    assert content.body == b"here"


def test_a_queue_that_is_placed_elsewhere_is_ready_everywhere(cluster: Cluster, on: On, name: Name) -> None:
    """§9.2 with §9.7: after declare-ok, from all nodes, at once."""
    channels = [on(node) for node in cluster.nodes]
    for turn in range(30):
        queue = name("q")
        declared = channels[turn % 3].call(QueueDeclare, queue=queue, arguments=located("random"))
        assert (declared.message_count, declared.consumer_count) == (0, 0)
        publish(channels[(turn + 1) % 3], queue, b"at once")
        assert channels[(turn + 2) % 3].wait_get(queue).body == b"at once"


@pytest.mark.slow
def test_min_masters_takes_nodes_that_run(shaken_cluster: Cluster, on: On, name: Name) -> None:
    """§9.2: the fewest queues among running nodes."""
    cluster = shaken_cluster
    channel = on(cluster[0])
    cluster[2].stop_app()
    cluster.await_members(cluster[0].name, cluster[1].name, seen_by=cluster.nodes[:2])
    for _ in range(6):
        candidates = least(cluster, cluster[2].name)
        queue = channel.declare(name("q"), arguments=located("min-masters"))
        assert cluster[0].home(queue) in candidates
        queue = channel.declare(name("q"), arguments=located("random"))
        assert cluster[0].home(queue) != cluster[2].name


@pytest.mark.slow
def test_min_masters_avoids_drained_nodes(shaken_cluster: Cluster, on: On, name: Name) -> None:
    """§9.2: and non-draining ones; a policy of the cluster's mind, so all nodes avoid them."""
    cluster = shaken_cluster
    channel = on(cluster[0])
    cluster[2].drain()
    try:
        for _ in range(6):
            candidates = least(cluster, cluster[2].name)
            queue = channel.declare(name("q"), arguments=located("min-masters"))
            assert cluster[0].home(queue) in candidates
    finally:
        cluster[2].revive()
    while least(cluster) != {cluster[2].name}:
        channel.declare(name("q"))
        on(cluster[1]).declare(name("q"))
    queue = channel.declare(name("q"), arguments=located("min-masters"))
    assert cluster[0].home(queue) == cluster[2].name


@pytest.mark.slow
def test_the_configuration_places_last(on: On, name: Name) -> None:
    """§9.2 order: argument, policy, configuration; six queues on three nodes."""
    cluster = start_cluster({"queue_master_locator": "min-masters"})
    try:
        channel = on(cluster[0])
        queues = [channel.declare(name("q"), durable=True) for _ in range(6)]
        homes = Counter(cluster[1].home(queue) for queue in queues)
        assert homes == {node.name: 2 for node in cluster.nodes}
        cluster[0].admin.set_policy("/", "local", "^local", {"queue-master-locator": "client-local"})
        for number in range(4):
            queue = channel.declare(f"local-{number}")
            assert cluster[0].home(queue) == cluster[0].name
            queue = on(cluster[1]).declare(name("q"), arguments=located("client-local"))
            assert cluster[0].home(queue) == cluster[1].name
        assert cluster[0].home(channel.declare(name("q"))) == cluster[2].name
        assert cluster[0].home(channel.declare(name("q"), exclusive=True)) == cluster[0].name
    finally:
        cluster.stop()
