"""A plan demands as much as measurements after earlier plans show that it takes to be seen."""

from dataclasses import replace
from typing import Any

import pytest

from spark_ops.cli import plan_text
from spark_ops.planning.drafting import draft
from spark_ops.planning.goals import Settings, SettingsError, checked, settings_from
from spark_ops.planning.outcomes import (
    MARGIN_MAX,
    Learned,
    Outcome,
    learned,
    outcome_from,
    outcome_of,
    sentence,
)
from spark_ops.planning.plan import parse_document
from spark_ops.planning.rows import ClusterRows
from spark_ops.reports.after import compare
from tests.kit import report_samples as samples
from tests.spark_ops.planning.clusters import FREE, NOW, cluster, node, queue


def made(number: int, share: float, *, error: float = 0.1, noise: float = 0.01) -> Outcome:
    return Outcome(f"sha256:{number}", f"2026-11-{number:02}T00:00:00Z", share, error, noise)


def test_what_was_measured_well_weighs_more() -> None:
    assert learned([]) is None
    found = learned([made(1, 1.0, error=0.2), made(2, 0.5, error=0.1)])
    assert found is not None
    assert (found.plans, found.kept) == (2, pytest.approx(0.6))
    assert found.noise == pytest.approx(0.01)
    assert found.margin == pytest.approx(2 * 0.01 / 0.6, abs=1e-4)


def test_noise_counts_where_the_share_is_not_known() -> None:
    """A plan whose promise was too small to measure says nothing of what is kept."""
    found = learned([made(1, 3.0, error=1.5, noise=0.02)])
    assert found is not None
    assert found.kept is None
    assert found.margin == pytest.approx(0.04)
    assert "too small to measure" in str(sentence(found.document))


def test_a_margin_has_a_bound() -> None:
    """Plans that kept nothing, and measurements that are all noise, do not end all planning."""
    found = learned([made(1, -2.0, noise=0.01)])
    assert found is not None
    assert found.margin == pytest.approx(0.08)
    wild = learned([made(1, 0.1, noise=3.0)])
    assert wild is not None
    assert wild.margin == MARGIN_MAX
    better = learned([made(1, 1.6, noise=0.01)])
    assert better is not None
    assert better.margin == pytest.approx(0.02), "more than was promised does not make noise smaller"


def test_only_the_newest_count() -> None:
    old = [made(number, 0.1) for number in range(1, 9)]
    new = [replace(made(number, 0.9), at=f"2026-12-{number:02}T00:00:00Z") for number in range(1, 21)]
    found = learned([*new, *old])
    assert found is not None
    assert (found.plans, found.kept) == (20, pytest.approx(0.9))


def uneven() -> ClusterRows:
    """Two nodes of 8 cores: a has 3.2 of them in use, b 2.0; small queues can make that even."""
    queues = [queue(f"q{number}", "a", "b", cpu=0.2) for number in range(6)]
    return cluster([node("a", base_cpu=2.0), node("b", base_cpu=2.0)], queues)


def drafted(earlier: Learned | None, settings: Settings = FREE) -> dict[str, Any]:
    return draft(uneven(), replace(settings, goals=("cpu",), promote_share=0.0), now=NOW, earlier=earlier)


def test_a_promise_within_the_noise_is_not_made() -> None:
    """The goal begins at 3.25 cores without a margin, since the mean is 2.6; it ends at 2.86."""
    rows = uneven()
    hot = replace(rows, nodes=(replace(rows.nodes[0], base_cpu=2.4), rows.nodes[1]))

    def waves(noise: float, kept: float) -> int:
        earlier = Learned(3, kept, noise)
        settings = replace(FREE, goals=("cpu",), promote_share=0.0)
        return len(draft(hot, settings, now=NOW, earlier=earlier)["waves"])

    settings = replace(FREE, goals=("cpu",), promote_share=0.0)
    assert draft(hot, settings, now=NOW)["waves"]
    # 3.6 cores on a; the mean is 2.8, and relief ends at 3.08: 6.5 % of 8 cores are promised.
    assert waves(0.02, 1.0)
    assert not waves(0.04, 1.0)
    assert not waves(0.02, 0.5), "half of what is promised has to be above the noise"


def test_a_plan_says_what_earlier_ones_kept() -> None:
    document = drafted(Learned(4, 0.72, 0.009))
    plan = parse_document(document)
    assert plan.inputs["earlier"] == {"plans": 4, "kept": 0.72, "noise": 0.009, "margin": 0.025}
    lines = list(plan_text.text(plan))
    assert "4 earlier plans kept 72% of what they promised; margin 2.5% of a node's CPU" in lines
    assert "earlier" not in drafted(None)["inputs"]


def test_the_operators_margin_counts() -> None:
    settings = settings_from({"cpu_margin": 0.1}, FREE)
    assert drafted(Learned(4, 0.72, 0.009), settings)["inputs"]["earlier"]["margin"] == 0.1
    for wrong in (-0.1, 1.0):
        with pytest.raises(SettingsError, match="cpu_margin"):
            checked(replace(FREE, cpu_margin=wrong))


def test_hard_goals_need_no_margin() -> None:
    """A node above 70 % of its cores is relieved, whatever was measured."""
    rows = uneven()
    hot = replace(rows, nodes=(replace(rows.nodes[0], base_cpu=5.0), rows.nodes[1]))
    document = draft(hot, FREE, now=NOW, earlier=Learned(3, 0.1, 0.5))
    assert document["inputs"]["earlier"]["margin"] == MARGIN_MAX
    assert any(step["reason"] == "capacity" for step in document["steps"])


def test_an_outcome_is_of_a_plan_that_was_carried_out() -> None:
    after = compare(samples.plan(), samples.rows(), created="2026-11-21T09:40:00Z")
    found = outcome_of(after)
    assert found is not None
    assert (found.share, found.error, found.noise) == (1.0, 0.0, 0.0)
    assert outcome_from(found.document) == found
    assert outcome_of({**after, "moves": {"planned": 10, "arrived": 9, "gone": 0}}) is None
    assert outcome_of({**after, "promise": {**after["promise"], "share": None}}) is None


@pytest.mark.parametrize(
    "change",
    [{"format": "x"}, {"share": "1"}, {"noise": None}, {"error": float("nan")}, {"noise": -1}, {"at": 3}],
)
def test_what_is_no_outcome(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"format|number|below 0|no time"):
        outcome_from({**made(1, 0.5).document, **change})
    with pytest.raises(ValueError, match="format"):
        outcome_from([])
