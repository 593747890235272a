"""The command: its catalogue, its options, and the table beside RabbitMQ or another version."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import CATALOGUE, Bench, Brokers, parse_options
from bench.cluster_workloads import CLUSTER_WORKLOADS
from bench.mirror_workloads import MIRROR_WORKLOADS
from bench.servers import REPOSITORY, Broker, Server
from bench.workloads import FULL, QUICK, Outcome, Scale, Workload


def options(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> argparse.Namespace:
    monkeypatch.setattr("sys.argv", ["bench", *arguments])
    return parse_options()


def test_names_are_unique() -> None:
    """`--only` takes them, from one catalogue."""
    assert len({workload.name for workload in CATALOGUE}) == len(CATALOGUE)
    for workload in CATALOGUE:
        assert len({row.metric for row in workload.rows}) == len(workload.rows)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["cluster"], [workload.name for workload in CLUSTER_WORKLOADS]),
        (["mirrors"], [workload.name for workload in MIRROR_WORKLOADS]),
        (["persistent"], ["persistent"]),
        (["pair", "start"], ["pair-16B", "pair-100B", "pair-1KiB", "pair-64KiB", "start"]),
        ([], []),
    ],
)
def test_only_takes_names_and_groups(
    asked: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name before what it begins: `persistent` is one workload, `cluster` all of a group."""
    arguments = ["--only", *asked] if asked else []
    assert [workload.name for workload in options(monkeypatch, *arguments).only] == expected


def test_only_refuses_what_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(monkeypatch, "--only", "clust")
    assert "no workload clust; there are: start, " in capsys.readouterr().err


@pytest.mark.parametrize("name", [".", str(REPOSITORY)])
def test_against_needs_another_checkout(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a directory without a node nor this one."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        options(monkeypatch, "--against", name)
    assert f"{name} is not another checkout of Fluffle" in capsys.readouterr().err


def test_against_and_rabbitmq_exclude_each_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The report has one column beside Fluffle's, so `--against` and RabbitMQ exclude each other."""
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "__main__.py").touch()
    options(monkeypatch, "--against", str(tmp_path))
    with pytest.raises(SystemExit):
        options(monkeypatch, "--against", str(tmp_path), "--rabbitmq-only")
    with pytest.raises(SystemExit):
        options(monkeypatch, "--rabbitmq-too")


@pytest.mark.real
@pytest.mark.parametrize(("reference", "required"), [("RabbitMQ", "≥ 4×"), ("57925ec", "≥ 0.95×")])
def test_report_beside(reference: str, required: str) -> None:
    """Another version stands in RabbitMQ's column, and the row only requires not to be worse."""
    bench = Bench(Brokers(), [reference], QUICK, 1)
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


@pytest.mark.real
def test_report_beside_both() -> None:
    """Another version and RabbitMQ have a table each, of the same rounds."""
    bench = Bench(Brokers(), ["57925ec", "RabbitMQ"], QUICK, 1)
    bench.outcomes["pair-100B"] = {
        name: [Outcome({"rate": rate}, 100, 1.0, 0.5, 0.1)]
        for name, rate in (("Fluffle", 480.0), ("57925ec", 500.0), ("RabbitMQ", 100.0))
    }
    bench.errors["pair-100B"] = {}
    lines = [line.split("|") for line in bench.report(quick=True).splitlines() if "pair-100B" in line]
    assert [[cell.strip() for cell in line[3:8]] for line in lines] == [
        ["500", "msg/s", "0.96×", "≥ 0.95×", "ok"],
        ["100", "msg/s", "4.80×", "≥ 4×", "ok"],
    ]


class Idle(Server):
    """Has no process. `name`: what it was made as."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def start(self) -> None:
        self.running = True

    def wait_until_quiet(self) -> None:
        """Return at once, as a fake server is quiet."""


def test_clusters_and_single_nodes_do_not_run_together() -> None:
    """A workload's brokers run in turn; those of the other kind have ended before."""
    servers, clusters = [Idle("Fluffle"), Idle("RabbitMQ")], [Idle("Fluffle"), Idle("RabbitMQ")]
    order: list[Broker] = []

    def run(broker: Broker, scale: Scale) -> Outcome:
        order.append(broker)
        return Outcome({}, 0, 1.0, 0.0, 0.0)

    managed: list[Any] = [Idle("Fluffle")]
    bench = Bench(Brokers(servers, managed, clusters), ["RabbitMQ"], QUICK, 2)  # type: ignore[arg-type]
    bench.measure(Workload("on-one", run, []))
    assert all(each.running for each in servers)
    bench.measure(Workload("on-three", run, [], clustered=True))
    bench.measure(Workload("with-http", run, [], managed=True))
    assert order == [*servers, *servers, *clusters, *clusters, *managed, *managed]
    assert not any(each.running for each in (*servers, *clusters))


@pytest.mark.parametrize(
    ("scale", "own", "asked", "count"),
    [(FULL, None, 3, 3), (FULL, 9, 3, 9), (FULL, 1, 3, 1), (QUICK, 9, 2, 2)],
)
def test_rounds_of_a_workload_of_its_own(scale: Scale, own: int | None, asked: int, count: int) -> None:
    """Whatever the command says; a quick look takes no more than that."""
    bench = Bench(Brokers([Idle("Fluffle")]), ["RabbitMQ"], scale, asked)  # type: ignore[list-item]
    workload = Workload("w", lambda broker, scale: Outcome({}, 0, 1.0, 0.0, 0.0), [], rounds=own)
    bench.measure(workload)
    assert len(bench.outcomes["w"]["Fluffle"]) == count
