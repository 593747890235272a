"""The workloads on mirrored queues: what they need, where their clients are, and which node is struck."""

from collections import Counter
from collections.abc import Sequence

import pytest

from bench import mirror_workloads
from bench.cluster_servers import Cluster, Policy
from bench.mirror_workloads import ALL, MIRROR_WORKLOADS, NODES, Failover, Mirrored
from bench.paced import Paced
from bench.servers import Server
from bench.workloads import QUICK, OneQueue

BY_NAME = {workload.name: workload for workload in MIRROR_WORKLOADS}


def queues_of(name: str) -> Sequence[OneQueue]:
    run = BY_NAME[name].run
    assert isinstance(run, Mirrored)
    return run.workloads


def test_all_of_them_are_a_group_and_take_a_cluster() -> None:
    """`--only mirrors` is all of them."""
    assert all(w.clustered and w.name.startswith("mirrors-") for w in MIRROR_WORKLOADS)


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("mirrors-deliver", (0, 0, 0)),
        ("mirrors-confirms", (0, 0, 0)),
        ("mirrors-persistent", (0, 0, 0)),
        ("mirrors-remote", (0, 1, 2)),
    ],
)
def test_where_the_clients_are(name: str, nodes: tuple[int, int, int]) -> None:
    """Master, publisher and consumer."""
    (queue,) = queues_of(name)
    assert (queue.home_node, queue.publisher_node, queue.consumer_node) == nodes


def test_twenty_queues_are_spread() -> None:
    """Each node has six or more masters, publishers and consumers, and no two of the three always go together."""
    queues = queues_of("mirrors-20-queues")
    assert len(queues) == 20
    for places in (
        Counter(queue.home_node for queue in queues),
        Counter(queue.publisher_node for queue in queues),
        Counter(queue.consumer_node for queue in queues),
    ):
        assert min(places[node] for node in NODES) >= 6
    assert len({(queue.home_node, queue.publisher_node) for queue in queues}) == 9
    assert len({(queue.home_node, queue.consumer_node) for queue in queues}) == 9


@pytest.mark.parametrize("name", ["mirrors-kill", "mirrors-kill-leader", "mirrors-freeze"])
def test_gaps_are_medians_of_seven_rounds_or_more(name: str) -> None:
    """A gap is the median of at least seven rounds, also if fewer are asked for."""
    rounds = BY_NAME[name].rounds
    assert rounds is not None
    assert rounds >= 7


class Struck(Server):
    """A node that notes what is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def kill(self) -> None:
        self.told.append("kill")

    def relaunch(self) -> None:
        self.told.append("relaunch")


class Led(Cluster):
    """`leader`: who leads the metadata's changes."""

    def __init__(self, leader: int | None) -> None:
        super().__init__()
        self.nodes = [Struck() for _ in NODES]
        self.leader = leader
        self.policies: list[Policy] = []

    def metadata_leader(self) -> int | None:
        return self.leader

    def set_policy(self, policy: Policy) -> None:
        self.policies.append(policy)

    def _await_formed(self) -> None:
        """Return at once, as a fake cluster is formed."""

    def _make_nodes(self) -> Sequence[Server]:
        return self.nodes

    def _make_single(self) -> Server:
        return Struck()


@pytest.mark.parametrize(
    ("leads", "leader", "struck"), [(False, 0, 1), (False, 1, 0), (True, 2, 2), (False, None, 0)]
)
def test_which_node_is_struck(
    leads: bool, leader: int | None, struck: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master's leads the metadata, too, or not, as it is asked for. It starts again whatever happened."""
    seen = Paced(400, 10.0, confirmed_at=[9.0, 9.9, 10.1, 10.4], delivered_at=[9.9, 10.2], repeated_count=3)
    masters: list[int] = []

    def watch(self: Failover, cluster: Cluster, master: int) -> Paced:
        masters.append(master)
        return seen

    monkeypatch.setattr(mirror_workloads.Failover, "_watch", watch)
    cluster = Led(leader)
    found = Failover(leads=leads)(cluster, QUICK)
    assert masters == [struck]
    assert cluster.policies == [ALL]
    assert [node.told for node in cluster.nodes if isinstance(node, Struck) and node.told] == [
        ["kill", "relaunch"]
    ]
    assert isinstance(cluster.nodes[struck], Struck)
    assert found.metrics == {
        "confirms": pytest.approx(0.3),
        "deliveries": pytest.approx(0.3),
        "repeated": 3,
        "nacked": 0,
    }
