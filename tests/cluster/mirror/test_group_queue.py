"""Message groups of a mirrored queue: the next master keeps their order, with consumers of any node."""

import pytest

from node.amqp.field_table import Table, longstr
from node.amqp.methods import BasicAck, BasicConsume, BasicConsumeOk, BasicDeliver, BasicQos, BasicQosOk
from node.amqp.properties import Properties
from node.catalogue.commands import SetPolicy
from tests.kit.cluster import client_of
from tests.kit.disk_cluster import DiskCluster
from tests.kit.world import Client

NODES = ("n1", "n2", "n3")
ARGUMENTS: Table = {"x-group-header": longstr("g")}


def mirrored() -> DiskCluster:
    """A queue q with its master on n1 and copies on all nodes."""
    cluster = DiskCluster(*NODES)
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"}))
    cluster.declare_mirrored("q", *NODES, arguments=ARGUMENTS)
    return cluster


def consumer(cluster: DiskCluster, node: str, prefetch: int) -> Client:
    client = client_of(cluster[node], 1)
    assert client.ask(1, BasicQos(prefetch_count=prefetch)) == BasicQosOk()
    assert client.ask(1, BasicConsume(queue="q", consumer_tag=node)) == BasicConsumeOk(node)
    return client


def publish(cluster: DiskCluster, *bodies: str) -> None:
    """Publish messages whose group is their first letter."""
    client = client_of(cluster["n2"], 1)
    for body in bodies:
        properties = Properties(delivery_mode=2, headers={"g": longstr(body[0])})
        client.publish(1, "q", body.encode(), properties=properties)
    cluster.settle()
    client.lose()
    cluster.settle()


def got(client: Client) -> list[tuple[str, int]]:
    """The bodies that came since the last time, with their delivery tags."""
    found = []
    for item in client.received():
        if isinstance(item.method, BasicDeliver):
            found.append((item.body.decode(), item.method.delivery_tag))
    return found


def bodies(client: Client) -> str:
    return " ".join(body for body, _ in got(client))


@pytest.mark.parametrize("is_paged", [False, True])
def test_groups_after_the_loss_of_the_master(is_paged: bool) -> None:
    """All unsettled messages come again, each group to one consumer and in order."""
    cluster = mirrored()
    first, second = consumer(cluster, "n2", 3), consumer(cluster, "n3", 3)
    publish(cluster, "a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4")
    assert (bodies(first), bodies(second)) == ("a1 a2 a3", "b1 b2 b3")
    if is_paged:
        for node in cluster:
            node.page_out()
    cluster.crash("n1")
    cluster.settle()
    cluster.advance(1.0)
    assert cluster.view("q").master_node != "n1"
    settled: list[str] = []
    for _ in range(8):
        again = got(first), got(second)
        groups = [{body[0] for body, _ in each} for each in again]
        assert not groups[0] & groups[1]
        for client, each in zip((first, second), again, strict=True):
            settled += [body for body, _ in each]
            if each:
                client.send(1, BasicAck(delivery_tag=each[-1][1], multiple=True))
        cluster.settle()
    for group in "ab":
        assert [body for body in settled if body[0] == group] == [
            f"{group}{number}" for number in range(1, 5)
        ]


def test_a_lost_node_gives_its_groups_to_others() -> None:
    """The consumer's node dies, not the master: what it had comes to another consumer, before the rest."""
    cluster = mirrored()
    first, second = consumer(cluster, "n2", 2), consumer(cluster, "n3", 9)
    publish(cluster, "a1", "b1", "a2", "a3")
    assert (bodies(first), bodies(second)) == ("a1 a2", "b1")
    cluster.crash("n2")
    cluster.settle()
    cluster.advance(1.0)
    assert bodies(second) == "a1 a2 a3"
