"""`health` and `forecast` as an operator sees them: lines, exit codes, and one clear line for each mistake."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from spark_ops.cli import forecast, judging
from spark_ops.cli.errors import OpsError
from spark_ops.cli.main import main
from spark_ops.health.document import health_document
from spark_ops.health.judge import judge
from spark_ops.health.settings import Settings
from tests.kit.synthetic.faults import inject
from tests.kit.synthetic.telemetry import Setup
from tests.spark_ops.health.reference import evidence
from tests.spark_ops.jobs.roots import write

SETUP = Setup(hours=1.0, queues=3, interval_s=30.0)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    start = SETUP.start_s // 60
    return health_document(
        judge(evidence(inject(SETUP, "runaway-queue"), start, start + 60), Settings()), 1e9
    )


def test_the_verdict_comes_first(document: dict[str, Any]) -> None:
    told = list(judging.lines(document))
    assert told[0].startswith("synthetic: findings, score 87 of 100")
    assert told[1] == "2026-11-01T00:00:00Z to 2026-11-01T01:00:00Z, 100.0% of 1800 rows seen"
    assert told[3].startswith("WARNING  queue 'queue-00000' in '/' grows by 0.93 MB per minute (R² 0.99)")
    assert any(line.startswith("node1") and "4" in line for line in told)


def test_many_findings_of_a_kind_are_some_lines(document: dict[str, Any]) -> None:
    finding = document["findings"][0]
    many = {**document, "findings": [{**finding, "text": f"queue {at}"} for at in range(9)]}
    told = list(judging.lines(many))
    assert [line for line in told if line.startswith("WARNING")] == [
        f"WARNING  queue {at}" for at in range(5)
    ]
    assert "         … and 4 more of runaway-queue (--all)" in told
    assert sum(line.startswith("WARNING") for line in judging.lines(many, is_all=True)) == 9


def test_names_cannot_write_on_the_terminal(document: dict[str, Any]) -> None:
    """Queue names are strangers'."""
    finding = {**document["findings"][0], "text": "queue \x1b[2J\n"}
    told = "\n".join(judging.lines({**document, "cluster": "a\x07", "findings": [finding]}))
    assert "\x1b" not in told
    assert "\x07" not in told
    assert "queue \\x1b[2J\\n" in told


def test_exit_codes(document: dict[str, Any]) -> None:
    assert judging.exit_code(document, "warn") == 1
    assert judging.exit_code(document, "crit") == 0
    assert judging.exit_code({**document, "verdict": "unknown"}, "crit") == 3
    assert judging.exit_code({**document, "findings": []}, "warn") == 0


def test_forecasts_as_text(document: dict[str, Any]) -> None:
    told = list(forecast.lines(document["forecasts"]))
    assert len([line for line in told if "at its limit in about" in line]) == 3
    assert any(
        line.startswith("node1  fd      1") and "no forecast: it does not grow" in line for line in told
    )
    assert any("disk    100.0" in line and "free, limit 1.00 GB" in line for line in told)
    assert list(forecast.lines([])) == ["there is no telemetry in this window"]


def test_times() -> None:
    assert judging.until_of("now") == "now"
    assert (
        judging.until_of("2026-11-21T09:00:00Z")
        == judging.until_of("2026-11-21T10:00:00+01:00")
        == 1795251600.0
    )
    with pytest.raises(OpsError, match="'yesterday' is not a time"):
        judging.until_of("yesterday")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["health", "{root}/none"], "is not a directory: give the --out directory of `collect`"),
        (["health", "{root}", "--window", "x"], "'x' is not a time"),
        (["health", "{root}", "--window", "5s"], "--window: at least 1m"),
        (["health", "{root}", "--once"], "--once goes with --follow"),
        (["health", "{root}", "--follow", "--until", "last"], "it takes no --until"),
        (["health", "{root}", "--thresholds", "{root}/t.toml"], "t.toml: [hot-nod] is no kind of finding"),
        (["health", "{root}", "--thresholds", "{root}/none.toml"], "none.toml: No such file"),
        (["forecast", "{root}", "--until", "soon"], "'soon' is not a time"),
    ],
)
def test_a_mistake_is_one_line(
    given: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before Spark is asked for."""
    (tmp_path / "t.toml").write_text("[hot-nod]\ncpu = 1\n")
    assert main([word.format(root=tmp_path) for word in given]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


@pytest.mark.spark
@pytest.mark.slow
def test_an_empty_directory_is_unknown(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not healthy: nothing was seen."""
    assert main(["health", str(tmp_path), "--json"]) == 3
    told = capsys.readouterr()
    assert json.loads(told.out)["verdict"] == "unknown"
    assert "there is no telemetry in this window" in told.err
    assert main(["forecast", str(tmp_path)]) == 3


def test_window_options_are_the_same_everywhere() -> None:
    for command in ("health", "forecast"):
        parser = argparse.ArgumentParser()
        __import__(f"spark_ops.cli.{command}", fromlist=["x"]).add_arguments(parser)
        assert parser.parse_args(["root"]).window == "6h"


def test_a_small_cluster_is_judged_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No JVM is started: not for a judgement, not for a forecast, and not to follow."""
    pytest.importorskip("numpy")

    def none(*_: Any, **__: Any) -> Any:
        raise AssertionError("Spark is not needed")

    monkeypatch.setattr("spark_ops.jobs.session.session", none)
    write(tmp_path, inject(SETUP, "consumer-starvation"))
    window = [str(tmp_path), "--window", "1h"]
    assert main(["health", *window, "--until", "last", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [each["kind"] for each in told["findings"]] == ["consumer-starvation"]
    assert main(["forecast", *window, "--until", "last"]) == 0
    monkeypatch.setattr("time.time", lambda: SETUP.start_s + 3600.0)
    assert main(["health", *window, "--follow", "--once", "--json"]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["raised"] == [
        "consumer-starvation///queue-00000"
    ]


@pytest.mark.parametrize("command", ["health", "forecast", "report"])
def test_an_empty_root_is_answered_without_spark(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Code 3 from each command, and no JVM."""

    def none(*_: Any, **__: Any) -> Any:
        raise AssertionError("Spark is not needed")

    monkeypatch.setattr("spark_ops.jobs.session.session", none)
    monkeypatch.chdir(tmp_path)
    assert main([command, str(tmp_path)]) == 3
    told = capsys.readouterr()
    assert "there is no telemetry" in told.out + told.err
