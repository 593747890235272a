"""`spark-ops report` without Spark: files in, files out, one clear line for whatever makes no sense."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_ops.cli.main import main
from spark_ops.documents import content_hash
from spark_ops.planning import plan as plans
from spark_ops.reports.after import compare
from tests.kit import report_samples as samples


def a_plan(**changes: Any) -> dict[str, Any]:
    """A plan that `planning.plan` accepts."""
    promote = plans.Step(
        id="s1",
        action="promote",
        vhost="/",
        queue="orders.paid",
        source="rabbit@n1",
        target="rabbit@n3",
        reason="cpu-balance",
        why="n1 is at 172% of the mean",
        effect={"rabbit@n1.cpu": -0.05, "rabbit@n3.cpu": 0.05},
        pre=plans.Pre("u1", 17, "rabbit@n1", ("rabbit@n1", "rabbit@n3"), 2, 1000),
        post=plans.Post("rabbit@n3", ("rabbit@n3", "rabbit@n1")),
        inverse=("promote", "rabbit@n3", "rabbit@n1"),
    )
    sample = samples.plan()
    document = plans.build(
        cluster="prod-eu",
        now=samples.BEGIN + 21_600.0,
        mode="full",
        inputs=sample["inputs"],
        goals=sample["goals"],
        summary={**sample["summary"], "promotions": 1, "copies": 0, "bytes": 0},
        nodes=sample["nodes"],
        waves=[["s1"]],
        steps=[promote],
    )
    body = {key: value for key, value in {**document, **changes}.items() if key != "plan_id"}
    return {**body, "plan_id": content_hash(body)}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """health.json and plan.json."""
    (tmp_path / "health.json").write_text(json.dumps(samples.health(minutes=30)))
    (tmp_path / "plan.json").write_text(json.dumps(a_plan()))
    return tmp_path


def test_all_that_can_be_written(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page, JSON, a CSV and a Parquet file for each table; their names are told."""
    pytest.importorskip("pyarrow")
    given = ["--health", str(files / "health.json"), "--plan", str(files / "plan.json")]
    wanted = ["-o", str(files / "r.html"), "--json", str(files / "r.json")]
    assert main(["report", *given, *wanted, "--csv", str(files / "csv"), "--parquet", str(files / "pq")]) == 0
    told = capsys.readouterr().out.split()
    assert all(Path(path).stat().st_size > 50 for path in told)
    names = {"findings", "nodes", "moves", "goals", "forecasts", "gaps"}
    assert {path.stem for path in (files / "csv").iterdir()} == names
    assert {path.stem for path in (files / "pq").iterdir()} == names
    document = json.loads((files / "r.json").read_text())
    assert document["format"] == "spark-ops-report/1"
    assert document["plan"]["moves"][0]["queue"] == "orders.paid"
    assert "Act now" in (files / "r.html").read_text()
    assert not list(files.rglob(".*"))


def test_the_page_is_what_comes_without_options(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """report.html, where the operator stands."""
    monkeypatch.chdir(files)
    assert main(["report", "--plan", "plan.json"]) == 0
    assert "A plan to review" in (files / "report.html").read_text()


def test_a_comparison_that_was_kept(files: Path) -> None:
    """--after FILE shows it again."""
    after = compare(a_plan(), samples.rows(), created="2026-11-21T09:40:00Z")
    (files / "plan.after.json").write_text(json.dumps(after))
    given = ["--plan", str(files / "plan.json"), "--after", str(files / "plan.after.json")]
    assert main(["report", *given, "-o", str(files / "r.html")]) == 0
    assert "Predicted and measured" in (files / "r.html").read_text()


@pytest.mark.parametrize(
    ("change", "arguments", "said"),
    [
        (None, [], "give ROOT, --health FILE or --plan FILE"),
        (None, ["--after"], "--after compares with a plan"),
        (None, ["--plan", "plan.json", "--after"], "--after needs measurements: give ROOT"),
        (None, ["--health", "no.json"], "no.json: No such file or directory"),
        (None, ["nowhere"], "nowhere is not a directory"),
        (("health.json", "{"), ["--health", "health.json"], "JSON breaks off"),
        (("health.json", "[]"), ["--health", "health.json"], "its format is not spark-ops-health/1"),
        (("health.json", b"\xff\x00"), ["--health", "health.json"], "it is not UTF-8"),
        (
            ("health.json", json.dumps(samples.health(minutes=2, nodes=[7]))),
            ["--health", "health.json"],
            "nodes[0] is a number",
        ),
        (
            ("plan.json", json.dumps({**a_plan(), "mode": "repair"})),
            ["--plan", "plan.json"],
            "this plan was edited after it was made",
        ),
        (
            ("plan.json", json.dumps(a_plan(cluster="other"))),
            ["--plan", "plan.json", "--health", "health.json"],
            "different clusters: other, prod-eu",
        ),
        (None, ["--plan", "plan.json", "-o", "no/where.html"], "No such file or directory"),
    ],
)
def test_one_line_says_what_is_wrong(
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, str | bytes] | None,
    arguments: list[str],
    said: str,
) -> None:
    """A fault is told in one line, and no report is written."""
    monkeypatch.chdir(files)
    if change is not None:
        data = change[1]
        (files / change[0]).write_bytes(data if isinstance(data, bytes) else data.encode())
    assert main(["report", *arguments]) in (2, 4)
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.count("\n") == 1
    assert not (files / "report.html").exists()


@pytest.mark.spark
@pytest.mark.slow
def test_from_telemetry(spark: Any, tmp_path: Path) -> None:
    """ROOT is judged, and what came of a plan is measured and kept: nobody carried it out, so nothing arrived."""
    from spark_ops.jobs.topology_snapshots import latest
    from spark_ops.planning.drafting import draft
    from spark_ops.planning.goals import Settings
    from spark_ops.planning.topology import rows_of
    from tests.kit.synthetic.files import write_parquet
    from tests.kit.synthetic.telemetry import Setup, rows

    setup = Setup(nodes=3, queues=12, replicas=2, hours=1.0, interval_s=60, uneven=1.0, zones=0)
    root, middle = tmp_path / "root", setup.start_s + 1800.0
    write_parquet(rows(setup), root)
    placed = rows_of(latest(root, until=middle).document, now=middle)
    loads = {queue.queue: 0.2 if queue.master == "node1" else 0.02 for queue in placed.queues}
    seen = replace(
        placed,
        window=(float(setup.start_s), middle),
        coverage=1.0,
        queues=tuple(replace(queue, cpu=loads[queue.queue]) for queue in placed.queues),
    )
    plan = draft(seen, Settings(), now=middle)
    (tmp_path / "plan.json").write_text(plans.written(plan))
    given = [
        str(root),
        "--plan",
        str(tmp_path / "plan.json"),
        "--until",
        "last",
        "--state",
        str(tmp_path / "state"),
    ]
    files = ["-o", str(tmp_path / "r.html"), "--json", str(tmp_path / "r.json")]
    assert main(["report", *given, "--after", *files]) == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["cluster"] == "synthetic"
    assert report["has_health"]
    assert report["charts"]
    assert report["load_model"]["text"].startswith("a regression over ")
    assert set(report["load_model"]["nodes"]) == {"node1", "node2", "node3"}
    kept = json.loads((tmp_path / "plan.after.json").read_text())
    assert kept == report["after"]
    assert kept["plan_id"] == plan["plan_id"]
    assert len(kept["nodes"]) == 3
    assert all(node["cpu_measured"] > 0 for node in kept["nodes"])
    assert kept["moves"]["planned"] == len(report["plan"]["moves"]) > 0
    assert kept["moves"]["arrived"] == 0
    for word in ("Predicted and measured", "Not as predicted"):
        assert word in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("words", [["--until", "soon"], ["--window", "1s"], ["--since", "soon"]])
def test_times_that_are_none(files: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Before Spark is started; an empty root has no telemetry."""
    empty = files / "empty"
    empty.mkdir()
    assert main(["report", str(empty), "--plan", str(files / "plan.json"), "--after", *words]) in (2, 3, 4)
    assert capsys.readouterr().err.count("\n") == 1
