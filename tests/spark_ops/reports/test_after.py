"""What a plan promised, and what came."""

from dataclasses import replace

import pytest

from spark_ops.reports.after import compare, node_loads
from spark_ops.reports.document import build
from tests.kit import report_samples as samples

CREATED = "2026-11-21T09:40:00Z"


def test_as_predicted() -> None:
    """Loads and places as the plan says: no error."""
    after = compare(samples.plan(), samples.rows(), created=CREATED)
    assert after["is_as_predicted"]
    assert after["moves"] == {"planned": 10, "arrived": 10, "gone": 0}
    assert after["error"]["cpu_max"] == pytest.approx(0.0, abs=1e-9)
    assert after["balance"]["measured"] == pytest.approx(after["balance"]["predicted"])
    assert after["balance"]["before"] == pytest.approx(0.79 / 0.44)


def test_more_load_everywhere_is_no_error() -> None:
    """The whole cluster has a fifth more to do: what was expected grows with it."""
    after = compare(samples.plan(), samples.rows(scale=1.2), created=CREATED)
    assert after["error"]["load_change"] == pytest.approx(1.2)
    assert after["error"]["cpu_max"] == pytest.approx(0.0, abs=1e-9)
    assert after["nodes"][0]["cpu_expected"] == pytest.approx(0.47 * 1.2)
    assert after["nodes"][0]["cpu_predicted"] == 0.47


def test_a_node_that_is_busier_than_predicted() -> None:
    """The error is of the node, with its sign."""
    after = compare(samples.plan(), samples.rows(error=0.25), created=CREATED)
    assert not after["is_as_predicted"]
    assert after["nodes"][0]["cpu_error"] == pytest.approx(0.25 * (1 - 0.47 / 2.2), rel=1e-6)
    assert after["nodes"][1]["cpu_error"] < 0
    assert build(None, samples.plan(), after, created=CREATED)["title"] == "Not as predicted"


def test_a_queue_that_did_not_move() -> None:
    """A queue on its old node is not arrived; one that is gone is no failure."""
    rows = samples.rows()
    stayed, gone, *rest = rows.queues
    changed = replace(rows, queues=(replace(stayed, master="rabbit@n1"), *rest))
    after = compare(samples.plan(), changed, created=CREATED)
    assert after["moves"] == {"planned": 10, "arrived": 8, "gone": 1}
    assert after["queues"][0]["is_arrived"] is False
    assert after["queues"][1]["is_there"] is False
    assert after["queues"][1]["queue"] == gone.queue
    assert not after["is_as_predicted"]


def test_a_mirror_that_moved() -> None:
    """It is there when the new copy is synchronised and the old one is gone."""
    rows = samples.rows()
    *others, mail = rows.queues
    half = replace(mail, ring=(*mail.ring, "rabbit@n2"), synced=(*mail.synced, "rabbit@n2"))
    after = compare(samples.plan(), replace(rows, queues=(*others, half)), created=CREATED)
    assert after["queues"][-1]["is_arrived"] is False


def test_too_little_seen_gives_no_error() -> None:
    """Nothing is said about loads; places are known from the topology."""
    after = compare(samples.plan(), samples.rows(coverage=0.5), created=CREATED)
    assert after["error"] == {"cpu_mean": None, "cpu_max": None, "load_change": None}
    assert after["moves"]["arrived"] == 10
    assert not after["is_as_predicted"]
    assert "No load was measured" in build(None, samples.plan(), after, created=CREATED)["headline"]


def test_another_cluster_is_refused() -> None:
    """A plan is compared with the cluster that it is for."""
    with pytest.raises(ValueError, match="the plan is for the cluster other, not for prod-eu"):
        compare(samples.plan(cluster="other"), samples.rows(), created=CREATED)


def test_loads_count_mirrors() -> None:
    """A node has what is not a queue, its masters and its mirrors, over its cores."""
    rows = samples.rows()
    with_mirrors = replace(rows, queues=tuple(replace(queue, mirror_cpu=0.1) for queue in rows.queues))
    more = node_loads(with_mirrors)["rabbit@n1"] - node_loads(rows)["rabbit@n1"]
    assert more == pytest.approx(9 * 0.1 / 2.0)


def test_a_queue_that_moves_twice() -> None:
    """Where it ends counts, for both moves."""
    steps = [
        {**samples.plan()["steps"][0], "id": f"s{number}", "from": source, "to": target, "depends": depends}
        for number, source, target, depends in (
            (1, "rabbit@n1", "rabbit@n2", []),
            (2, "rabbit@n2", "rabbit@n5", ["s1"]),
        )
    ]
    after = compare(samples.plan(steps=steps), samples.rows(), created=CREATED)
    assert [queue["to"] for queue in after["queues"]] == ["rabbit@n2", "rabbit@n5"]
    assert after["moves"] == {"planned": 2, "arrived": 2, "gone": 0}
