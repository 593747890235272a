"""Names, figures, moves, series and tables of reports."""

import csv
import io
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ops.reports import figures, svg
from spark_ops.reports.checking import HEALTH, PLAN, check
from spark_ops.reports.document import build
from spark_ops.reports.escape import clipped, csv_text, visible
from spark_ops.reports.markup import Markup, tag
from spark_ops.reports.moves import moves_of, notes_of
from spark_ops.reports.parts import axis_times
from spark_ops.reports.series import POINTS_MAX, heat, line, node_charts, thinned
from spark_ops.reports.tables import Column, csv_of, table, tables_of, write_parquet
from tests.kit import report_samples as samples
from tests.kit.report_hostile import KNOWN, documents, names

CREATED = "2026-11-21T09:22:10Z"


# --- names ---


@given(st.text())
def test_visible_text_has_nothing_hidden(text: str) -> None:
    """No control, no direction mark, nothing that UTF-8 lacks; what can be seen stays."""
    shown = visible(text)
    shown.encode("utf-8")
    assert shown.isprintable() or all(
        char.isspace() or not char.isascii() for char in shown if not char.isprintable()
    )
    assert not any(char in shown for char in "\n\r\t\x00\u202e\u200b")
    assert visible("plain ümlaut 🐇") == "plain ümlaut 🐇"


@given(names)
def test_no_cell_is_a_formula(name: str) -> None:
    """A spreadsheet takes every text of CSV as text."""
    cell = csv_text(name)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"))
    cell.encode("utf-8")


def test_text_is_escaped_and_markup_is_not() -> None:
    """Text is escaped unless it is marked as HTML, for which there is one way."""
    assert tag("b", "<i>", title='"') == '<b title="&quot;">&lt;i&gt;</b>'
    assert tag("b", Markup("<i></i>")) == "<b><i></i></b>"
    assert tag("p", None, ["a", ["b"]], hidden=True, lang=None) == "<p hidden>ab</p>"
    assert clipped("abcdef", 4) == "abc…"


# --- figures ---


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (1234567, "count", "1,234,567"),
        (0.6123, "share", "61%"),
        (0.0612, "share", "6.1%"),
        (0.9999, "share", "99.9%"),
        (0.996, "share", "99.6%"),
        (1.0, "share", "100%"),
        (0, "share", "0%"),
        (0.0001, "share", "<0.1%"),
        (-0.0001, "share", ">-0.1%"),
        (-0.031, "share", "-3.1%"),
        (1.8, "share", "180%"),
        (1536, "bytes", "1.5 KiB"),
        (5.68 * (1 << 30), "bytes", "5.68 GiB"),
        (0.8, "seconds", "0.8 s"),
        (18_870, "seconds", "5h 14m"),
        (86_400, "seconds", "1d"),
        (1.8, "fixed", "1.80"),
        (2, "fixed", "2.00"),
        (1.83, "ratio", "1.83×"),
        (1_194_000, "short", "1.19M"),
        (0.00004, "decimal", "4.0e-05"),
        (None, "count", "–"),
        (math.nan, "count", "–"),
        (math.inf, "share", "–"),
        (True, "count", "–"),
    ],
)
def test_how_figures_are_written(value: Any, kind: str, text: str) -> None:
    """Each kind has one way."""
    assert figures.shown(value, kind) == text


@given(st.floats(-1e18, 1e18), st.sampled_from(sorted(figures.KINDS)))
def test_every_figure_can_be_written(value: float, kind: str) -> None:
    """Shortly."""
    assert 0 < len(figures.shown(value, kind)) <= 40


def test_the_unit_is_in_the_name() -> None:
    """The end of a name tells the unit of its evidence."""
    kinds = {
        name: figures.kind_of(name)
        for name in ("lag_ms", "size_bytes", "eta_s", "mean_share", "ready", "ratio")
    }
    assert list(kinds.values()) == ["ms", "bytes", "seconds", "share", "count", "decimal"]


def test_times() -> None:
    """ISO text and seconds; what is no time is none."""
    assert figures.iso("2026-11-21T09:00:00Z") == "2026-11-21T09:00:00Z"
    assert figures.iso(0) == "1970-01-01T00:00:00Z"
    assert figures.moment("soon") is None
    assert figures.moment(1e300) is None


# --- moves ---


def test_a_copy_is_one_move() -> None:
    """add, wait and drop of one queue are a move; where from is where the copy goes."""
    moves = moves_of(samples.plan())
    assert [move["kind"] for move in moves] == ["promote"] * 9 + ["move mirror"]
    assert moves[-1]["steps"] == ["s10", "s11", "s12"]
    assert (moves[-1]["from"], moves[-1]["to"]) == ("rabbit@n2", "rabbit@n5")
    assert moves[-1]["bytes"] == 100_663_296
    assert [note["queue"] for note in notes_of(samples.plan())] == ["orders.created"]


def test_a_master_that_moves_with_its_copy() -> None:
    """add, wait, promote, drop: from the old master to the new."""
    common = {"vhost": "/", "queue": "q", "reason": "", "why": "", "cost": {}, "effect": {}}
    steps = [
        {"id": "s1", "action": "add_mirror", "from": "a", "to": "c", "depends": [], **common},
        {"id": "s2", "action": "wait_synced", "from": "a", "to": "c", "depends": ["s1"], **common},
        {"id": "s3", "action": "promote", "from": "a", "to": "c", "depends": ["s2"], **common},
        {"id": "s4", "action": "drop_mirror", "from": "a", "to": None, "depends": ["s3"], **common},
        {
            "id": "s5",
            "action": "promote",
            "from": "a",
            "to": "b",
            "depends": ["s1"],
            **common,
            "queue": "other",
        },
    ]
    moves = moves_of({"steps": steps, "waves": [{"n": 1, "steps": ["s1", "s2", "s3", "s4"]}]})
    assert [(move["kind"], move["from"], move["to"], move["wave"]) for move in moves] == [
        ("move master", "a", "c", 1),
        ("promote", "a", "b", None),
    ]


# --- series and drawings ---


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e9)), min_size=1, max_size=2000))
def test_thinning_keeps_peaks_and_gaps(values: list[float | None]) -> None:
    """300 points at most; the highest value is among them, and a gap stays one."""
    ts, kept = thinned(list(range(len(values))), values)
    assert len(ts) == len(kept) <= POINTS_MAX
    assert ts == sorted(ts)
    known = [value for value in values if value is not None]
    assert not known or max(known) in kept
    assert (None in values) <= (None in kept)


def test_a_line_says_what_it_was() -> None:
    """Least, mean, most and last are of all points; no number is a gap, and no time is left out."""
    drawn = line("n", [3, 1, 2, "never", 4], [30.0, 10.0, math.nan, 5, None])
    assert drawn is not None
    assert (drawn["ts"], drawn["values"]) == ([1, 2, 3, 4], [10.0, None, 30.0, None])
    assert (drawn["min"], drawn["mean"], drawn["max"], drawn["last"]) == (10.0, 20.0, 30.0, 30.0)
    assert line("n", [1], [None]) is None


def test_many_nodes_are_few_lines() -> None:
    """The busiest are drawn; the heat map has more."""
    nodes = {f"n{number:03}": {"ts": [0, 60], "cpu": [number / 100, 0.0]} for number in range(90)}
    (chart,) = node_charts(nodes)
    assert [drawn["name"] for drawn in chart["lines"]] == [f"n{number:03}" for number in range(82, 90)]
    assert chart["of"] == 90
    map_ = heat(nodes, "cpu")
    assert map_ is not None
    assert len(map_["rows"]) == 60
    assert heat({}, "cpu") is None


@given(st.floats(1e-9, 1e15), st.sampled_from(["decimal", "share", "bytes", "count", "ms"]))
def test_a_scale_holds_all_and_wastes_little(highest: float, kind: str) -> None:
    """A scale's end is no less than the highest value, and not much more than twice it."""
    top = svg.nice_top(highest, kind)
    assert highest * 0.999 <= top <= highest * 2.6


def test_drawings_have_names() -> None:
    """Drawings have names, so that people who do not see one hear what it is."""
    drawn = svg.plot(
        [line("<n>", [0, 60, 120], [1.0, None, 2.0])], 0, 120, 2.0, title="CPU & more", kind="share"
    )  # type: ignore[list-item]
    assert 'role="img"' in drawn
    assert "<title>CPU &amp; more</title>" in drawn
    assert "<n>" not in drawn
    assert svg.level(0.0, 1.0) == 0
    assert svg.level(5.0, 1.0) == svg.LEVELS - 1
    assert svg.nice_top(0.0) == 1.0


def test_a_single_point_is_drawn() -> None:
    """A path from a point to itself has no length, and browsers leave it out."""
    for at in (0, 60, 120):
        one = line("n", [at], [1.0])
        assert one is not None
        drawn = svg.plot([one], 0, 120, 2.0, title="CPU", kind="share")
        (path,) = re.findall(r'class="stroke c0" d="M([^"]+)"', drawn)
        (left, _), (right, _) = (map(float, point.split()) for point in path.split(" L"))
        assert 0 <= left < right <= svg.PLOT[0]


@pytest.mark.parametrize("span_s", [0, 1, 3, 60, 179, 240, 3600, 86_400, 130_000, 200_000, 700_000])
def test_labels_of_a_time_axis_differ(span_s: float) -> None:
    begin = 1_795_500_000.0
    labels = re.findall(r"<span>([^<]+)</span>", axis_times(begin, begin + span_s))
    assert len(labels) == len(set(labels)) >= 1
    assert len(labels) == 5 or span_s < 5


# --- tables ---


def test_tables_are_in_the_document() -> None:
    """Tables as CSV have the rows of the document, with figures as they are."""
    document = build(samples.health(), samples.plan(), created=CREATED)
    by_name = {each.name: each for each in tables_of(document)}
    assert set(by_name) == {"findings", "nodes", "moves", "goals", "forecasts", "gaps"}
    read = list(csv.DictReader(io.StringIO(csv_of(by_name["nodes"]))))
    assert [float(row["cpu"]) for row in read] == [row["cpu"] for row in document["nodes"]]
    assert [row["node"] for row in read] == list(samples.NODES)
    assert [row["queue"] for row in csv.DictReader(io.StringIO(csv_of(by_name["moves"])))] == [
        move["queue"] for move in document["plan"]["moves"]
    ]


@given(names)
def test_csv_comes_back(name: str) -> None:
    """Whatever a queue is called: one cell, and no formula (spark §6.23)."""
    made = table("t", (Column("queue", "Queue"), Column("n", "N", "count")), [{"queue": name, "n": -3}])
    (head, row) = list(csv.reader(io.StringIO(csv_of(made), newline="")))
    assert head == ["queue", "n"]
    assert row == [csv_text(name), "-3"]


@pytest.mark.parametrize("name", KNOWN)
def test_parquet_comes_back(name: str, tmp_path: Path) -> None:
    """Names as they are, but for halves of pairs, which Parquet cannot hold."""
    parquet = pytest.importorskip("pyarrow.parquet")
    made = table("t", (Column("queue", "Queue"), Column("n", "N", "count")), [{"queue": name, "n": 7}, {}])
    write_parquet(made, tmp_path / "t.parquet")
    rows = parquet.read_table(tmp_path / "t.parquet").to_pylist()
    assert rows[0]["n"] == 7.0
    assert rows[0]["queue"] == name or "\ud800" in name
    assert rows[1] == {"queue": None, "n": None}


# --- documents ---


def test_findings_are_in_order() -> None:
    """The worst first, then what affects most."""
    document = build(samples.health(), created=CREATED)
    assert [one["kind"] for one in document["findings"]] == [
        "under-replicated",
        "master-imbalance",
        "hot-node",
        "runaway-queue",
        "flapping-link",
    ]
    assert document["counts"] == {"all": 5, "crit": 1, "warn": 3, "info": 1}


def test_too_little_is_never_healthy() -> None:
    """The verdict is the health document's, and says why there is none."""
    health = samples.health(verdict="unknown", findings=[], score=None, coverage={"share": 0.81})
    assert build(health, created=CREATED)["headline"].startswith(
        "Only 81% of the expected telemetry was seen"
    )


def test_documents_of_different_clusters_are_refused() -> None:
    """A report of different clusters is refused, and so is one of nothing."""
    with pytest.raises(ValueError, match="different clusters: other, prod-eu"):
        build(samples.health(), samples.plan(cluster="other"), created=CREATED)
    with pytest.raises(ValueError, match="needs a health document or a plan"):
        build(None, created=CREATED)


def test_shapes() -> None:
    """Documents of ours pass; others are refused with the place of what is wrong."""
    health, plan = documents({})
    check(health, HEALTH)
    check(plan, PLAN)
    for change, where in (
        ({"nodes": {}}, "nodes is an object"),
        ({"nodes": [3]}, r"nodes\[0\] is a number"),
        ({"score": "high"}, "score is a text"),
        ({"score": True}, "score is true or false"),
        ({"findings": [{"subject": "q"}]}, r"findings\[0\].subject is a text"),
        ({"coverage": {"missing": [{"node": 3}]}}, r"coverage.missing\[0\].node is a number"),
        ({"forecasts": [{"band": ["soon"]}]}, r"forecasts\[0\].band\[0\] is a text"),
    ):
        with pytest.raises(ValueError, match=where):
            check(samples.health(minutes=2, **change), HEALTH)
