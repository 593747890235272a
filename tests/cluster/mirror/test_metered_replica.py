"""A mirror's account has all CPU time that its queue takes on a node that has mirrors only."""

from itertools import count

from cluster.mirror.metered_replica import MeteredReplica
from node.catalogue.commands import SetPolicy
from node.queue.cpu_windows import EVERY
from node.queue.metering import Meter
from tests.kit.cluster import RingCluster

STEP_NS = 1000


class Clock:
    """A clock of a thread's CPU time, which goes on by a microsecond at each look."""

    def __init__(self) -> None:
        self.now = 0
        self._looks = count(1)

    def __call__(self) -> int:
        self.now = next(self._looks) * STEP_NS
        return self.now


def metered() -> tuple[RingCluster, Clock]:
    """A queue with a master on n1 and mirrors on the others, and the clock of n2."""
    cluster = RingCluster("n1", "n2", "n3")
    clocks = {node.name: Clock() for node in cluster}
    for node in cluster:
        node.broker.meter = Meter(clocks[node.name], clocks[node.name])
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"}))
    cluster.declare_mirrored("q", "n1", "n2", "n3")
    return cluster, clocks["n2"]


def test_what_a_mirror_sends_in_a_turn_of_its_own_is_its_queues() -> None:
    """A mirror passes on what came in an earlier turn: all of this turn's time is for its queue."""
    cluster, clock = metered()
    node = cluster["n2"]
    meter = node.broker.meter
    assert meter is not None
    record = node.broker.catalogue.queue("/", "q")
    assert record is not None
    replica = node.mirrors._known[record.uid].replica
    assert isinstance(replica, MeteredReplica)
    account = meter.account(record)
    publisher = cluster["n1"].client()
    cluster.is_held = True
    publisher.publish(1, "q", b"x" * 1000)
    cluster["n1"].turn()
    assert cluster.deliver("n1", "n2") == 1
    while not meter.windows.is_open:
        meter.windows.end_turn()
    began, before, sent = clock.now, account.cpu_ns, node.frame_count
    node.turn()
    assert node.frame_count > sent, "the mirror had nothing to send"
    meter.windows.end_turn()
    assert account.cpu_ns - before == EVERY * (clock.now - began)
