"""The statistics of one node as a whole."""

from node.amqp.methods import QueueDeclare
from node.statistics.options import StatisticsOptions
from node.statistics.query import Query, Range
from node.statistics.sampler import SLICE
from node.statistics.series import IDLE
from tests.kit.statistics_samples import Watched


def test_a_sample_is_taken_in_slices() -> None:
    """No more than some hundred objects between two breaks."""
    found = Watched()
    client = found.world.client(*range(1, 11))
    for number in range(3 * SLICE):
        client.send(1, QueueDeclare(queue=str(number)))
        if not number % 100:
            client.received()
    client.received()
    for _ in range(2):
        assert len(list(found.statistics.sample(found.world.now, found.time_ms))) > 3


def test_off() -> None:
    found = Watched(StatisticsOptions(is_on=False))
    found.world.client()
    found.tick()
    [row] = found.rows("connections")
    assert "recv_oct_details" not in row
    assert found.statistics._watches.connections.objects == {}


def test_figures_of_the_node() -> None:
    """management §1.2: `X_details` of what the shell measures."""
    found = Watched()
    used = iter((100, 150, 150))
    found.statistics.measure = lambda: {"fd_used": next(used), "mem_used": 7}
    assert found.statistics.node_details("fd_used", None) == IDLE
    found.tick(2)
    assert found.statistics.node_details("fd_used", None) == {"rate": 10.0}
    assert found.statistics.node_details("mem_used", None) == IDLE
    assert found.statistics.node_details("unknown", Range(5, 5)) == IDLE
    samples = found.statistics.node_details("fd_used", Range(5, 5))["samples"]
    assert [each["sample"] for each in samples] == [150, 100]
    found.tick()
    assert found.statistics.node_details("fd_used", None) == IDLE


def test_every_kind_has_rows() -> None:
    found = Watched()
    client = found.world.client()
    client.ask(1, QueueDeclare(queue="q"))
    found.tick()
    counts = {
        kind: len(found.rows(kind)) for kind in ("queues", "connections", "channels", "consumers", "vhosts")
    }
    assert counts == {"queues": 1, "connections": 1, "channels": 1, "consumers": 0, "vhosts": 1}
    for kind in ("queues", "connections", "channels", "exchanges", "vhosts"):
        for row in found.rows(kind, Query(fields=frozenset())):
            assert set(row) == {"id"}
