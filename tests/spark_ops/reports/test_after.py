"""A report compares a plan's promise with what came."""

from dataclasses import replace

import pytest

from spark_ops.reports.after import _promise, compare, node_loads
from spark_ops.reports.document import build
from spark_ops.reports.page import page
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


def nodes_at(*loads: float) -> list[dict[str, float | None]]:
    """Three nodes of a plan that takes them from 0.12, 0.08 and 0.07 to 0.10, 0.09 and 0.08."""
    before, after = (0.12, 0.08, 0.07), (0.10, 0.09, 0.08)
    return [
        {"cpu_before": was, "cpu_expected": wanted, "cpu_measured": now}
        for was, wanted, now in zip(before, after, loads, strict=True)
    ]


def test_a_plan_of_a_cluster_with_little_load_is_judged_by_what_it_promised() -> None:
    """No node is ever far from anything, measured by its capacity."""
    assert _promise(nodes_at(0.10, 0.09, 0.08))["verdict"] == "came"
    nothing = _promise(nodes_at(0.12, 0.08, 0.07))
    assert (nothing["verdict"], nothing["share"]) == ("did-not-come", 0.0)
    little = _promise(nodes_at(0.117, 0.0815, 0.0715))
    assert little["verdict"] == "did-not-come"
    assert little["share"] == pytest.approx(0.15)


def test_noise_that_is_larger_than_the_promise_tells_nothing() -> None:
    noisy = _promise(nodes_at(0.10, 0.13, 0.04))
    assert noisy["verdict"] == "too-small"
    assert noisy["error"] > 0.25
    assert _promise(nodes_at(0.10, 0.09, 0.08)[:1])["verdict"] == "unknown"
    same = [{**node, "cpu_expected": node["cpu_before"]} for node in nodes_at(0.12, 0.08, 0.07)]
    assert _promise(same)["verdict"] == "too-small"


def test_the_page_says_how_much_of_the_promise_came() -> None:
    after = compare(samples.plan(), samples.rows(), created=CREATED)
    document = build(None, samples.plan(), after, created=CREATED)
    assert "100% of the promised change of the nodes' CPU came" in document["headline"]
    small = {
        **after,
        "promise": {"share": 0.6, "error": 0.8, "verdict": "too-small"},
        "is_as_predicted": False,
    }
    document = build(None, samples.plan(), small, created=CREATED)
    assert (document["verdict"], document["title"]) == ("too-small", "Too small to judge")
    assert page(document)


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


def test_a_queue_that_moves_twice_arrives_once() -> None:
    """The first of its moves is over when the second one begins."""
    plan = samples.plan()
    after = compare(plan, samples.rows(), created=CREATED)
    assert all(queue["is_last"] for queue in after["queues"])
    first = after["queues"][0]
    twice = {**after, "queues": [{**first, "is_last": False}, first]}
    read = page(build(None, plan, twice, created=CREATED))
    assert read.count(">moved on<") == 1
    assert "Measured from" in read
    assert "Predicted change of its node" in read


def test_a_mirror_that_moved() -> None:
    """A mirror has moved when the new copy is synchronised and the old one is gone."""
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
    """A queue that moves twice is judged by where it ends, for both moves."""
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
