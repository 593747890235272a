"""Ways in which a master moves, and what clients hear then."""

from node.amqp.methods import (
    BasicDeliver,
)
from node.amqp.properties import Properties
from node.queue.queue import Queue
from tests.kit.cluster import Cluster
from tests.kit.world import Client

PERSISTENT = Properties(delivery_mode=2)
MOVES = ("sigkill", "policy", "stop")


def move(cluster: Cluster, how: str) -> None:
    """The master, which is on n1, goes to n2."""
    if how == "policy":
        cluster.transfer("q", "n2")
    elif how == "stop":
        cluster.stop("n1")
    else:
        cluster.crash("n1")
    cluster.settle()
    queue = cluster["n2"].broker.vhosts["/"].queues.get("q")
    assert queue is None or (isinstance(queue, Queue) and queue.replicator is not None)


def deliveries(client: Client) -> list[tuple[bytes, bool]]:
    """Bodies, and whether they were redelivered."""
    return [
        (each.body, each.method.redelivered)
        for each in client.received()
        if isinstance(each.method, BasicDeliver)
    ]


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]
