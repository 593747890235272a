"""The command: its catalogue, its options, and the table beside RabbitMQ or another version."""

from pathlib import Path

import pytest

from bench.__main__ import CATALOGUE, Bench, parse_options
from bench.servers import REPOSITORY
from bench.workloads import QUICK, Outcome


def options(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr("sys.argv", ["bench", *arguments])
    return parse_options()


def test_names_are_unique() -> None:
    """`--only` takes them, from one catalogue."""
    assert len({workload.name for workload in CATALOGUE}) == len(CATALOGUE)
    for workload in CATALOGUE:
        assert len({row.metric for row in workload.rows}) == len(workload.rows)


@pytest.mark.parametrize("name", [".", str(REPOSITORY)])
def test_against_needs_another_checkout(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a directory without a node nor this one."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        options(monkeypatch, "--against", name)
    assert f"{name} is no other checkout of Fluffle" in capsys.readouterr().err


def test_against_and_rabbitmq_exclude_each_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is one column beside Fluffle's."""
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "__main__.py").touch()
    options(monkeypatch, "--against", str(tmp_path))
    with pytest.raises(SystemExit):
        options(monkeypatch, "--against", str(tmp_path), "--rabbitmq-only")


@pytest.mark.parametrize(("reference", "required"), [("RabbitMQ", "≥ 4×"), ("57925ec", "≥ 0.95×")])
def test_report_beside(reference: str, required: str) -> None:
    """Another version stands in RabbitMQ's column, and the row only requires not to be worse."""
    bench = Bench([], reference, QUICK, 1)
    bench.outcomes["pair-100B"] = {
        name: [Outcome({"rate": rate}, 100, 1.0, 0.5, 0.1)]
        for name, rate in (("Fluffle", 480.0), (reference, 100.0))
    }
    bench.errors["pair-100B"] = {}
    heading, _, line = bench.report(quick=True).splitlines()[:3]
    assert heading.split("|")[3].strip() == reference
    assert [cell.strip() for cell in line.split("|")[1:8]] == [
        "pair-100B", "480", "100", "msg/s", "4.80×", required, "ok",
    ]  # fmt: skip
