"""Rows of one thing from several nodes, added up (management §1.1, §1.4, §1.9)."""

from itertools import pairwise
from typing import Any

from node.statistics.sums import add_details, add_up


def details(rate: float, *samples: tuple[int, int]) -> dict[str, Any]:
    return {"rate": rate, "samples": [{"sample": value, "timestamp": time} for time, value in samples]}


def test_one_row_stays_as_it_is() -> None:
    row = {"id": "x", "message_stats": {"publish": 1}}
    assert add_up([row]) is row


def test_counters_and_rates_of_exchanges() -> None:
    """§1.4: what clients of all nodes published; what the metadata say is the same everywhere."""
    facts = {"id": "/\0x", "durable": True, "arguments": {"n": 3}, "name": "x"}
    stats = [{"publish_in": 3, "publish_in_details": {"rate": 0.5}}, {"publish_in": 4, "publish_out": 1}]
    found = add_up([{**facts, "message_stats": each} for each in stats])
    assert found == {
        **facts,
        "message_stats": {"publish_in": 7, "publish_in_details": {"rate": 0.5}, "publish_out": 1},
    }


def test_vhosts() -> None:
    """§1.9: messages, octets and states of nodes."""
    found = add_up(
        [
            {"id": "/", "messages": 1, "recv_oct": 10, "tracing": True, "cluster_state": {"a": "running"}},
            {"id": "/", "messages": 2, "recv_oct": 5, "tracing": True, "cluster_state": {"b": "running"}},
        ]
    )
    assert found["messages"] == 3
    assert found["recv_oct"] == 15
    assert found["tracing"] is True
    assert found["cluster_state"] == {"a": "running", "b": "running"}


def test_object_totals() -> None:
    """§1.1: each node has connections of its own; exchanges and queues are those of the cluster."""
    one = {"connections": 1, "channels": 2, "consumers": 3, "exchanges": 7, "queues": 9}
    found = add_up([{"object_totals": one}, {"object_totals": one}])["object_totals"]
    assert found == {"connections": 2, "channels": 4, "consumers": 6, "exchanges": 7, "queues": 9}


def test_consumers_of_a_queue_are_put_together() -> None:
    found = add_up(
        [{"id": "q", "messages": 2, "consumer_details": [1]}, {"id": "q", "consumer_details": [2]}]
    )
    assert found == {"id": "q", "messages": 2, "consumer_details": [1, 2]}


def test_samples_are_added_by_time() -> None:
    found = add_details([details(1.0, (20_000, 5), (10_000, 3)), details(0.5, (20_000, 7), (10_000, 7))])
    assert found["rate"] == 1.5
    assert [(each["timestamp"], each["sample"]) for each in found["samples"]] == [(20_000, 12), (10_000, 10)]
    assert found["avg"] == 11.0
    assert found["avg_rate"] == 0.2


def test_a_node_whose_newest_sample_is_older_counts_on() -> None:
    """Nodes tick at different moments: sums must not fall for that."""
    found = add_details([details(0.0, (30_000, 9), (20_000, 8)), details(0.0, (20_000, 7), (10_000, 7))])
    assert [each["sample"] for each in found["samples"]] == [16, 15]


def test_the_left_edge_of_a_window_is_no_spike() -> None:
    """A node whose window begins one step later had not nothing before: the others' oldest sample has no sum."""
    step, counts = 5_000, range(100, 0, -1)
    first = details(0.0, *((number * step, 1_000_000 + 10 * number) for number in counts))
    second = details(0.0, *((number * step, 2_000_000 + 20 * number) for number in counts[:-1]))
    found = add_details([first, second])
    values = [each["sample"] for each in found["samples"]]
    assert {one - other for one, other in pairwise(values)} == {30}
    assert found["avg_rate"] == 6.0


def test_since_when_something_is_known_is_that_of_who_knows_least() -> None:
    one = {**details(0.0, (30_000, 9), (20_000, 8)), "known_since": 20_000, "asked_since": 5_000}
    found = add_details([one, details(0.0, (30_000, 1), (20_000, 1), (10_000, 1))])
    assert (found["known_since"], found["asked_since"]) == (20_000, 5_000)
    assert [each["sample"] for each in found["samples"]] == [10, 9]


def test_nothing_given_is_changed() -> None:
    rows: list[Any] = [
        {"message_stats": {"ack": 1, "ack_details": details(1.0, (1000, 1))}} for _ in range(2)
    ]
    before = repr(rows)
    add_up(rows)
    assert repr(rows) == before
