"""The workloads on three nodes: where their clients are, and the comparison with a single node."""

from collections.abc import Sequence

import pytest

from bench.cluster_servers import Cluster
from bench.cluster_workloads import CLUSTER_WORKLOADS, Home
from bench.servers import Broker, Server
from bench.workloads import OneQueue, Outcome, Scale


def test_all_of_them_are_a_group_and_take_a_cluster() -> None:
    """`--only cluster` is all of them."""
    assert all(w.clustered and w.name.startswith("cluster-") for w in CLUSTER_WORKLOADS)


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("cluster-deliver", (0, 1)),
        ("cluster-deliver-acks", (0, 1)),
        ("cluster-publish", (1, 0)),
        ("cluster-publish-confirms", (1, 0)),
        ("cluster-both-remote", (1, 2)),
    ],
)
def test_where_the_clients_are(name: str, nodes: tuple[int, int]) -> None:
    """The publisher and the consumer are on these nodes; the queue is on node 0."""
    run = next(workload.run for workload in CLUSTER_WORKLOADS if workload.name == name)
    assert isinstance(run, OneQueue)
    assert (run.publisher_node, run.consumer_node) == nodes


class StillServer(Server):
    ports = (1,)


class StillCluster(Cluster):
    ports = (2, 3, 4)

    def single(self) -> Server:
        return StillServer()

    def _make_nodes(self) -> Sequence[Server]:
        return ()

    _make_single = single


class Noted(OneQueue):
    """A workload that measures nothing: 100 a second on a single node, 95 on a cluster."""

    def __call__(self, server: Broker, scale: Scale) -> Outcome:
        assert scale == Scale(2.0, 1)
        rate = 95.0 if isinstance(server, Cluster) else 100.0
        return Outcome({"rate": rate}, 10, 2.0, 1.0 if isinstance(server, Cluster) else 50.0, 0.5)


def test_home_compares_with_a_single_node() -> None:
    """The sums are of the cluster's half."""
    found = Home(Noted())(StillCluster(), Scale(4.0, 1))
    assert found == Outcome({"rate": 95.0, "alone": 100.0, "share": 0.95}, 20, 4.0, 2.0, 1.0)
