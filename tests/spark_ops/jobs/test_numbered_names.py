"""Each queue and each node has one number, whatever its name."""

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

import pyarrow as pa

from spark_ops.jobs.numbered_names import Nodes, Queues, changes


def numbers(queues: Queues, names: list[tuple[str, str]]) -> list[int]:
    vhosts = queues.vhosts(pa.array([vhost for vhost, _ in names], pa.string()))
    return queues.numbers(vhosts, pa.array([name for _, name in names], pa.string())).tolist()


def test_given_names_have_the_numbers_of_their_order() -> None:
    """One of them is no UTF-8, which no row of telemetry can have."""
    given = [("/", "b"), ("/", "a"), ("x", "a"), ("/", "\ud800"), ("", "")]
    queues = Queues(given)
    assert len(queues) == 5
    assert numbers(queues, [given[2], given[0], given[4], given[2]]) == [2, 0, 4, 2]


def test_others_follow_as_they_come() -> None:
    """Names that are alike when virtual host and queue are put together; the same columns twice, and other ones."""
    queues = Queues([("a", "b/c")])
    more = [("a/b", "c"), ("a", "b/c"), ("0", "/b"), ("0/", "b"), ("a/b", "c"), ("ä", "ö\0")]
    assert numbers(queues, more) == [1, 0, 2, 3, 1, 4]
    assert numbers(queues, more) == [1, 0, 2, 3, 1, 4]
    assert numbers(queues, more[2:]) == [2, 3, 1, 4]
    assert len(queues) == 5


def test_no_names() -> None:
    queues = Queues([])
    assert numbers(queues, []) == []
    assert not changes(queues.vhosts(pa.array([], pa.string())), pa.array([], pa.string())).any()


def test_a_row_begins_a_queue_if_its_name_or_virtual_host_differs() -> None:
    queues = Queues([])
    vhosts = queues.vhosts(pa.array(["/", "/", "x", "x", "x"]).dictionary_encode())
    assert changes(vhosts, pa.array(["a", "a", "a", "b", "b"])).tolist() == [True, False, True, True, False]


def test_nodes() -> None:
    nodes = Nodes(["n1", "n2", "n1"])
    assert nodes.numbers(pa.array(["n2", "n9", "n1", "n9"]).dictionary_encode()).tolist() == [1, 2, 0, 2]
    assert (nodes.names, len(nodes), nodes.number("n9")) == (["n1", "n2", "n9"], 3, 2)
