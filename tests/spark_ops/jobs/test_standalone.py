"""A Spark cluster of two workers gives what one machine gives, or fails where its machines do not share ROOT."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_ops.cli.main import main
from spark_ops.jobs import submit
from tests.kit.synthetic.faults import inject, setup_for
from tests.kit.synthetic.telemetry import Setup
from tests.spark_ops.jobs import roots, several_commands, standalone
from tests.spark_ops.jobs.submitting import submitted

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SETUP = setup_for(Setup(hours=2.0, queues=4, replicas=2, interval_s=60.0), "consumer-starvation")
HEALTH = ("--until", "last", "--window", "2h", "--json")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command.   errors: what it printed on standard error."""

    code: int
    output: str
    errors: str

    @property
    def line(self) -> str:
        """The one line in which it says why it failed."""
        (line,) = [line for line in self.errors.splitlines() if line.startswith("spark-ops ")]
        return line


class Site:
    """Directories of the same telemetry, of which the machines of a Spark cluster share some.

    shared: all machines share it.   copied, empty: each worker has its own one, with the same files or none.
    half: one worker has a copy of its own.   embedded: of a run without the cluster.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._rows = list(inject(SETUP, "consumer-starvation"))
        self.shared, self.copied, self.empty, self.half, self.embedded = (
            self._root(name) for name in ("shared", "copied", "empty", "half", "embedded")
        )

    def _root(self, name: str) -> Path:
        root = self.directory / name
        roots.write(root, self._rows, is_unique=True)
        return root

    def covers(self) -> dict[str, dict[Path, Path]]:
        """Return what the workers have of their own."""
        found: dict[str, dict[Path, Path]] = {}
        for host in standalone.WORKERS:
            none = self.directory / f"none-{host}"
            none.mkdir()
            found[host] = {self.copied: self._root(f"copied-{host}"), self.empty: none}
        last = standalone.WORKERS[-1]
        found[last][self.half] = self._root(f"half-{last}")
        return found

    def commands(self) -> dict[str, list[str]]:
        """Return what the cluster has to do, in this order."""
        return {
            "rollup": ["rollup", str(self.shared)],
            "health": ["health", str(self.shared), *HEALTH],
            "rollup of copies": ["rollup", str(self.copied)],
            "rollup of half": ["rollup", str(self.half)],
            "rollup of nothing": ["rollup", str(self.empty)],
            "stream of nothing": ["health", str(self.empty), "--follow", "--once"],
        }

    def run(self, url: str) -> dict[str, Result]:
        """Run the commands on the cluster, in one job: a driver and executors for each would be most of the work."""
        archive = submit.package(self.directory / "package").archive
        commands, results = self.directory / "commands.json", self.directory / "results.json"
        commands.write_text(json.dumps(list(self.commands().values())))
        work = self.directory / "work"
        work.mkdir()
        several = submit.Package(archive, Path(several_commands.__file__))
        ran = submitted(several, work, url, str(commands), str(results), settings=standalone.SETTINGS)
        assert results.exists(), (ran.stdout[-4000:], ran.stderr[-4000:])
        found = [Result(**each) for each in json.loads(results.read_text())]
        assert ran.returncode == found[-1].code
        return dict(zip(self.commands(), found, strict=True))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Site:
    """The directories.   spark: skips all of it where there is no Java."""
    if not standalone.can_cover():
        pytest.skip("mount namespaces cannot be made here: root is needed")
    return Site(tmp_path_factory.mktemp("standalone"))


@pytest.fixture(scope="module")
def ran(site: Site) -> dict[str, Result]:
    """The results of the commands on the cluster."""
    with standalone.standalone(site.directory, site.covers()) as url:
        return site.run(url)


def rolled(root: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of all rollups, by the paths of their files."""
    found = sorted((root / "v1").glob("kind=rollup1h-*/**/rollup-*.parquet"))
    return {str(path.relative_to(root)): pq.ParquetFile(path).read().to_pylist() for path in found}


@pytest.fixture(scope="module")
def expected(site: Site) -> dict[str, list[dict[str, Any]]]:
    """The rollups that one machine makes."""
    assert main(["rollup", str(site.embedded)]) == 0
    found = rolled(site.embedded)
    assert len(found) == 3 * 2
    assert sum(map(len, found.values())) == 2 * (8 + 3 + 3)  # copies, nodes, links
    return found


def test_two_workers_give_what_one_machine_gives(
    site: Site,
    ran: dict[str, Result],
    expected: dict[str, list[dict[str, Any]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ran["rollup"].code == 0
    assert rolled(site.shared) == expected
    capsys.readouterr()
    code = main(["health", str(site.embedded), *HEALTH])
    document = json.loads(capsys.readouterr().out)
    assert "consumer-starvation" in {finding["kind"] for finding in document["findings"]}
    assert ran["health"].code == code == 1
    on_cluster = json.loads(ran["health"].output)
    assert {**on_cluster, "created": None} == {**document, "created": None}


def test_a_worker_with_files_of_its_own_makes_a_rollup_fail(site: Site, ran: dict[str, Result]) -> None:
    """The worker reads its copies, and writes where this machine sees nothing: no rows are lost silently."""
    told = ran["rollup of copies"]
    assert told.code == 4
    assert "is not shared" in told.line
    assert "All machines of the Spark cluster must see ROOT under the same path" in told.line
    assert rolled(site.copied) == {}
    own = [site.directory / f"copied-{host}" / "v1" for host in standalone.WORKERS]
    assert any(list(each.glob("kind=rollup1h-*/_scratch-*/**/*.parquet")) for each in own), "it wrote nowhere"


def test_one_worker_with_files_of_its_own_is_no_success_with_fewer_rows(
    site: Site, ran: dict[str, Result], expected: dict[str, list[dict[str, Any]]]
) -> None:
    told = ran["rollup of half"]
    found = rolled(site.half)
    if told.code == 0:  # the other worker has written all of it
        assert found == expected
        return
    assert told.code == 4
    assert "is not shared" in told.line
    assert all(expected[name] == rows for name, rows in found.items())


def test_workers_without_the_files_make_a_rollup_fail(site: Site, ran: dict[str, Result]) -> None:
    told = ran["rollup of nothing"]
    assert told.code == 4
    assert str(site.empty) in told.line
    assert rolled(site.empty) == {}


def test_workers_without_the_files_make_a_stream_fail(site: Site, ran: dict[str, Result]) -> None:
    told = ran["stream of nothing"]
    assert told.code == 4
    assert f"the stream of {site.empty}/" in told.line
    assert "[STREAM_FAILED]" in told.line
