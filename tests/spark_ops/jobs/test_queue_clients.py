"""Clients of queues are added up by node."""

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

import numpy as np
import pyarrow as pa

from spark_ops.jobs.numbered_names import Nodes
from spark_ops.jobs.queue_clients import Clients

MAPS = pa.map_(pa.string(), pa.int64())


def test_both_sides_of_queues() -> None:
    """Nulls, empty maps, nodes that nobody knew, and columns that are slices of others."""
    clients = Clients(Nodes(["n2", "n1"]))
    publishers = [[("gone", 5)], None, [("n2", 1), ("n1", 1)], [], [("n1", 1)], None]
    consumers = [[("x", 9)], [("n1", 3)], [("n2", 2), ("n0", 4)], None, [("n1", 2)], []]
    for side in (publishers, consumers):
        whole = pa.chunked_array([pa.array(side, MAPS)]).slice(1)
        clients.add(np.array([4, 7, 0, 2, 9]), whole)
    clients.add(np.array([5]), pa.chunked_array([pa.array([[("n1", 3)]], MAPS)]))
    found = clients.of_queues()
    assert found == {
        4: {"n1": 3},
        7: {"n0": 4, "n1": 1, "n2": 3},
        2: {"n1": 3},
        5: {"n1": 3},
    }
    assert list(found[7]) == ["n0", "n1", "n2"]
    assert found[4] is found[2] is found[5]


def test_no_clients() -> None:
    clients = Clients(Nodes())
    clients.add(np.array([1]), pa.chunked_array([pa.array([None], MAPS)]))
    clients.add(np.array([], dtype=np.int64), pa.chunked_array([pa.array([], MAPS)]))
    assert clients.of_queues() == {}
