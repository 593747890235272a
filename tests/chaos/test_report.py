"""A chaos run reports its figures, in several forms."""

import json
from html.parser import HTMLParser
from random import Random

import pytest

from tests.chaos.report import FaultRecord, Report, latency_quantiles
from tests.chaos.report_page import page
from tests.chaos.timeline import LEAST_S, Latencies, Timeline, quantile


@pytest.fixture
def report() -> Report:
    """Two faults, and nothing wrong."""
    made = Report(
        against="fluffle",
        network="loopback",
        clients="directly",
        seed=7,
        minutes=1,
        began_at="2026-11-22 10:00:00 UTC",
        commit="abc",
        machine="2 cores",
        kinds=["kill-master", "slow"],
        gaps=["clock: libfaketime is not installed"],
    )
    made.faults = [
        FaultRecord(5.0, 4.0, "kill-master", " n1", "", 1.0, 2.0, 0.8),
        FaultRecord(20.0, 19.0, "slow", " n2", "", 3.0, 0.5, 0.0),
    ]
    made.confirms, made.deliveries = [100, 0, 120], [90, 10, 120]
    made.counts["acknowledged"] = 220
    made.gaps_s = [0.8, 0.4]
    made.lasted_s = 60
    made.episodes = made.compared = 1
    made.is_over = True
    return made


# --- figures ---


def test_a_gap_is_the_time_without_a_confirm_of_the_anchor() -> None:
    timeline = Timeline(100.0, is_watched=True)
    for now in (100.0, 100.1, 103.1, 103.2):
        timeline.confirmed(now, 0.01, is_anchor=True)
        timeline.confirmed(now + 0.05, 0.01, is_anchor=False)
    assert timeline.gaps == [(100.1, 103.1)]
    assert timeline.longest_gap(102.0, 103.5) == pytest.approx(3.0)
    assert timeline.longest_gap(103.11, 103.3) == 0.0
    assert timeline.longest_gap(103.11, 110.0) == pytest.approx(6.8)
    assert timeline.per_second(timeline.confirms) == [4, 0, 0, 4]


def test_no_gap_while_nobody_publishes() -> None:
    timeline = Timeline(0.0)
    timeline.watch()
    timeline.confirmed(1.0, 0.01, is_anchor=True)
    timeline.pause(1.0 + LEAST_S / 2)
    timeline.confirmed(2.0, 0.01, is_anchor=True)
    timeline.watch()
    timeline.confirmed(60.0, 0.01, is_anchor=True)
    assert timeline.gaps == []


def test_a_pause_ends_a_gap() -> None:
    timeline = Timeline(0.0, is_watched=True)
    timeline.confirmed(1.0, 0.01, is_anchor=True)
    timeline.pause(9.0)
    assert timeline.gaps == [(1.0, 9.0)]


def test_latencies_are_counted_well_enough() -> None:
    random, latencies = Random(1), Latencies()
    values = [random.lognormvariate(-4, 1) for _ in range(20_000)]
    for value in values:
        latencies.add(value)
    for part in (0.5, 0.99, 0.999):
        assert latencies.quantile(part) == pytest.approx(quantile(values, part), rel=0.06)
    assert set(latency_quantiles(latencies)) == {"p50", "p99", "p99.9"}
    assert Latencies().quantile(0.5) == 0.0


@pytest.mark.parametrize(
    ("values", "part", "found"),
    [([], 0.5, 0.0), ([3.0], 0.99, 3.0), ([4, 1, 3, 2], 0.5, 2), ([4, 1, 3, 2], 1.0, 4), ([1, 2, 3], 0.5, 2)],
)
def test_quantiles_by_nearest_rank(values: list[float], part: float, found: float) -> None:
    assert quantile(values, part) == found


def test_what_is_derived(report: Report) -> None:
    assert report.is_clean
    assert report.bound() == 1.0
    report.faults *= 150
    assert report.bound() == 0.01
    report.faults = report.faults[:2]
    assert report.failover() == {"n": 1, "p50": 0.8, "p99": 0.8, "max": 0.8}
    assert report.unavailability() == {"p50": 0.0, "p99": 0.8, "max": 0.8, "total": pytest.approx(1.2)}
    assert {kind: len(faults) for kind, faults in report.by_kind().items()} == {"kill-master": 1, "slow": 1}


def test_what_was_not_compared_shows_nothing(report: Report) -> None:
    report.is_over = False
    assert report.headline().startswith("clean, so far: 220 confirmed, 0 lost")
    report.compared = 0
    assert not report.is_clean
    assert report.bound() is None
    assert report.headline().startswith("NOTHING SHOWN, so far: ")


def test_who_lost_something_has_no_bound(report: Report) -> None:
    report.counts["lost"] = 1
    assert report.bound() is None
    assert not report.is_clean
    assert report.headline().startswith("NOT CLEAN: 220 confirmed, 1 lost")


# --- forms ---


def test_text_and_json_have_all(report: Report) -> None:
    text = report.text()
    for expected in ("clean: 220 confirmed, 0 lost", "kill-master", "libfaketime", "lost", "must be 0"):
        assert expected in text
    told = json.loads(report.to_json())
    assert told["counts"]["acknowledged"] == 220
    assert told["faults_by_kind"] == {"kill-master": 1, "slow": 1}
    assert told["faults"][0]["unavailable_s"] == 0.8
    assert told["is_clean"] is True


class _Page(HTMLParser):
    """Tags that are open, and what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.fetched += [str(value) for name, value in attrs if name in {"src", "href", "data"}]


def test_the_page_needs_nothing_else_and_believes_nobody(report: Report) -> None:
    report.problems = ["<script>alert(1)</script>"]
    report.faults[0].text = ' "><img src=x>'
    report.notes = ["<b>a note</b>"]
    parsed = _Page()
    html = page(report)
    parsed.feed(html)
    assert parsed.fetched == []
    assert not {"script", "img", "b", "link"} & set(parsed.seen)
    assert parsed.seen.count("rect") == 2 * len(report.faults)
    assert "polyline" in parsed.seen
    assert "@import" not in html
    assert "url(" not in html


def test_a_page_of_nothing() -> None:
    empty = Report("fluffle", "loopback", "directly", 1, 0, "", "", "", [])
    assert "<svg" in page(empty)
    assert empty.bound() is None


def test_a_long_run_makes_no_long_line(report: Report) -> None:
    report.confirms = [500] * 20_000
    points = page(report).partition('points="')[2].partition('"')[0].split()
    assert 500 < len(points) <= 1000
