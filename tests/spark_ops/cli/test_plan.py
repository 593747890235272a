"""`plan`, `show`, `diff`, `simulate` as an operator sees them: on files, without Spark."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_ops.cli import plan_text
from spark_ops.cli.errors import OpsError
from spark_ops.cli.main import main
from spark_ops.cli.plan import _check_age
from spark_ops.cli.topologies import read_topology
from spark_ops.jobs.engine import EngineError
from spark_ops.planning.plan import parse
from spark_ops.planning.rows import ClusterRows
from tests.kit.synthetic.faults import inject
from tests.kit.synthetic.files import write_parquet
from tests.kit.synthetic.telemetry import Setup, rows
from tests.spark_ops.planning.clusters import cluster, document_of, node, queue

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command. Returns: exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            code = main([str(each) for each in arguments])
        except SystemExit as error:
            code = int(error.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    """Three nodes, whose masters are all on one."""
    queues = [queue(f"q{n}", "a", "b", size=1e6) for n in range(8)]
    queues += [queue("evil\x1b[2J\n</script>", "a", "c", size=1e6)]
    rows = cluster([node(name) for name in ("a", "b", "c")], queues)
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(document_of(rows)))
    return path


@pytest.fixture
def made(run: Run, topology: Path, tmp_path: Path) -> Path:
    """A plan."""
    path = tmp_path / "plan.json"
    code, out, _ = run("plan", "--topology", topology, "-o", path)
    assert code == 0
    assert "masters" in out
    return path


def test_a_plan_by_numbers_alone(run: Run, made: Path) -> None:
    found = parse(made.read_bytes())
    assert found.waves
    code, out, _ = run("show", made)
    assert code == 0
    assert found.plan_id in out
    assert "\x1b" not in out
    assert "apply" in out.splitlines()[-1]
    code, out, _ = run("show", made, "--why", "s1")
    assert code == 0
    assert "s1: promote" in out
    code, out, _ = run("show", made, "--json")
    assert json.loads(out)["plan_id"] == found.plan_id
    assert run("show", made, "--why", "s999")[0] == 2


def test_a_plan_remembers_where_it_came_from_without_credentials(
    run: Run, topology: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = read_topology(str(topology))
    monkeypatch.setattr("spark_ops.cli.plan.read_topology", lambda given, ca_file: rows)
    path = tmp_path / "p.json"
    assert run("plan", "--topology", "http://me:secret@localhost:16672", "-o", path)[0] == 0
    assert parse(path.read_bytes()).came_from == "http://localhost:16672"
    assert b"secret" not in path.read_bytes()
    assert run("plan", "--topology", topology, "-o", path)[0] == 0
    assert parse(path.read_bytes()).came_from is None


def test_nothing_to_do_and_nothing_helps_are_two_outcomes(run: Run, tmp_path: Path) -> None:
    """All masters are on the one node that has copies: no promotion can change that."""
    nodes = [node(name) for name in ("a", "b", "c")]
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(document_of(cluster(nodes, [queue("q", "a", "b", size=1e6)]))))
    code, out, _ = run("plan", "--topology", path)
    assert (code, "Nothing to do: all goals are met." in out) == (0, True)
    path.write_text(
        json.dumps(document_of(cluster(nodes, [queue(f"q{n}", "a", "b", size=1e6) for n in range(9)])))
    )
    code, out, _ = run("plan", "--topology", path, "--max-moves", "0")
    assert code == 1
    assert "Nothing helps: " in out
    assert " not met, and no move that is allowed would change that." in out


def test_plans_are_compared(run: Run, made: Path, topology: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    assert run("plan", "--topology", topology, "--mode", "drain-node", "b", "-o", other)[0] == 0
    assert run("diff", made, made)[0] == 0
    code, out, _ = run("diff", made, other)
    assert code == 1
    assert "copy to c" in out
    assert run("show", made, "--diff", other)[1] == out
    assert "only_second" in json.loads(run("diff", made, other, "--json")[1])


def test_a_plan_is_played(run: Run, made: Path, topology: Path) -> None:
    code, out, _ = run("simulate", made, "--topology", topology)
    assert code == 0
    assert "0 refused" in out
    code, out, _ = run("simulate", made, "--topology", topology, "--kill", "b@s1", "--json")
    assert code == 1  # what comes after goes to a node that is dead
    assert json.loads(out)["lost"] == []
    for wrong in ("b", "x@s1", "b@s99"):
        code, _, err = run("simulate", made, "--topology", topology, "--kill", wrong)
        assert code == 2
        assert len(err.splitlines()) == 1


def test_a_foreign_topology_is_refused(run: Run, made: Path, topology: Path, tmp_path: Path) -> None:
    document = json.loads(topology.read_text())
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**document, "cluster": "other"}))
    code, _, err = run("simulate", made, "--topology", other)
    assert code == 2
    assert "is for the cluster" in err


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\x00\xff", b"[]", b'{"format":"spark-ops-plan/1"}', b"PAR1", b"[" * 10**6]
)
def test_what_is_no_plan_gets_a_line(run: Run, tmp_path: Path, content: bytes, topology: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    for command in (["show", path], ["diff", path, path], ["simulate", path, "--topology", topology]):
        code, out, err = run(*command)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
    code, _, err = run("plan", "--topology", path)
    assert code == 2
    assert "topology" in err
    assert len(err.splitlines()) <= 2


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--mode", "drain-node"],
        ["--mode", "full", "b", "c"],
        ["--mode", "sideways"],
        ["--max-moves", "many"],
        ["--max-bytes", "-5"],
        ["--exclude-queue", "("],
        ["--cool-down", "soon"],
        ["--goals", "/nowhere"],
        ["--mode", "drain-node", "x"],
    ],
)
def test_command_lines_that_make_no_sense(run: Run, topology: Path, arguments: list[str]) -> None:
    given: list[Any] = ["plan", *arguments] if not arguments else ["plan", "--topology", topology, *arguments]
    code, _, err = run(*given)
    assert code == 2
    assert err


def test_root_may_stand_after_the_mode(run: Run, tmp_path: Path) -> None:
    code, _, err = run("plan", "--mode", "full", tmp_path / "nowhere")
    assert code == 2
    assert "is not a directory" in err


def test_settings_from_a_file(run: Run, topology: Path, tmp_path: Path) -> None:
    goals = tmp_path / "goals.toml"
    goals.write_text('goals = ["cpu"]\n')
    path = tmp_path / "plan.json"
    assert run("plan", "--topology", topology, "--goals", goals, "-o", path)[0] == 0
    assert parse(path.read_bytes()).waves == ()
    for content in (b"goals = ", b"\xff", b"speed = 1\n"):
        goals.write_bytes(content)
        code, _, err = run("plan", "--topology", topology, "--goals", goals)
        assert code == 2
        assert str(err).count("\n") <= 2


def test_capacities_from_a_file(run: Run, topology: Path, tmp_path: Path) -> None:
    """The plan names them among its inputs; a mistake is one line."""
    goals, path = tmp_path / "goals.toml", tmp_path / "plan.json"
    goals.write_text('[capacity."a"]\ncores = 0.5\nmemory = "4GiB"\n')
    assert run("plan", "--topology", topology, "--goals", goals, "-o", path)[0] == 0
    assert parse(path.read_bytes()).inputs["capacity"] == {"a": {"cores": 0.5, "memory": 4 << 30}}
    for content, text in (
        ('[capacity."x"]\ncores = 1\n', "no node 'x'"),
        ('[capacity."a"]\ncores = -1\n', "cores is not a number above 0"),
    ):
        goals.write_text(content)
        code, _, err = run("plan", "--topology", topology, "--goals", goals)
        assert code == 2
        assert text in err.splitlines()[-1]


@pytest.mark.slow
def test_show_imports_neither_numpy_nor_spark(made: Path) -> None:
    """Showing a plan starts at once: docs/internals/spark.md, "Starting"."""
    script = (
        "import sys; from spark_ops.cli.main import main; main(['show', sys.argv[1]]); "
        "print([m for m in ('numpy', 'pyspark', 'pyarrow', 'scipy') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", script, made], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


@pytest.mark.spark
@pytest.mark.slow
def test_a_plan_from_telemetry(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Masters that crowd on one node are promoted on the nodes of their mirrors."""
    hour_s = 3600
    setup = Setup(
        nodes=3, queues=6, hours=1, interval_s=60, start_s=int(time.time()) // hour_s * hour_s - hour_s
    )
    write_parquet(inject(setup, "master-imbalance"), tmp_path)
    given = ["plan", str(tmp_path), "--window", "3h", "--max-age", "2h", "--min-coverage", "0.1", "--json"]
    assert main(given) == 0
    found = parse(capsys.readouterr().out.encode())
    assert found.summary["promotions"] > 0


def test_the_session_is_made_for_the_rows_that_are_read(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM's flags cannot change later, so the number of rows is known before it starts."""
    hour_s = int(time.time()) // 3600 * 3600 - 3600
    made = list(rows(Setup(nodes=3, queues=6, hours=1, interval_s=60, start_s=hour_s)))
    write_parquet(made, tmp_path)
    hints: list[int] = []

    def session(name: str, *, rows_hint: int = 0) -> Any:
        hints.append(rows_hint)
        raise EngineError("no Spark")

    monkeypatch.setattr("spark_ops.jobs.session.session", session)
    code, _, err = run("plan", tmp_path, "--window", "3h")
    assert (code, err.strip()) == (4, "spark-ops plan: no Spark")
    assert hints == [sum(row["kind"] in ("queue", "node") for row in made)]


def test_what_is_too_old_makes_no_plan() -> None:
    """Queues may have moved since, and loads may be others."""
    now = 1e9

    def rows(**facts: float) -> ClusterRows:
        return ClusterRows("c", 1, "h", (now - 3600, now), 1.0, (), (), facts=facts)

    _check_age(rows(topology_at=now - 300, rows_at=now - 120), now, 1800)
    _check_age(rows(topology_at=now + 3600), now, 1800)
    with pytest.raises(OpsError, match="the newest topology is 180 min old") as caught:
        _check_age(rows(topology_at=now - 10_800, rows_at=now), now, 1800)
    assert caught.value.exit_code == 3
    with pytest.raises(OpsError, match="telemetry of a node that is up is 31 min old"):
        _check_age(rows(topology_at=now, rows_at=now - 1860), now, 1800)


def test_bytes_that_nobody_knows_are_not_none(made: Path) -> None:
    """A topology has no sizes: a plan of copies says so, and not 0 B."""
    found = parse(made.read_bytes())
    assert found.inputs["coverage"] == 0
    copying = replace(found, summary={**found.summary, "copies": 3})
    assert "3 copies (of unknown size) in " in plan_text.verdict(copying)
    assert "about" not in plan_text.verdict(copying)
    known = replace(copying, inputs={**found.inputs, "coverage": 1.0})
    assert "3 copies (0 B) in " in plan_text.verdict(known)
    promotions = replace(found, summary={**found.summary, "copies": 0, "bytes": 0})
    assert "0 copies (0 B) in " in plan_text.verdict(promotions)
