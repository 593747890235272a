"""A Spark cluster of two workers gives what one machine gives, or fails where its machines do not share ROOT."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_ops.cli.main import main
from spark_ops.jobs import submit
from tests.kit.synthetic.faults import inject, setup_for
from tests.kit.synthetic.telemetry import Setup
from tests.spark_ops.jobs import roots, standalone
from tests.spark_ops.jobs.submitting import submitted

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SETUP = setup_for(Setup(hours=3.0, queues=4, replicas=2, interval_s=60.0), "consumer-starvation")
HEALTH = ("--until", "last", "--window", "2h", "--json")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command.   line: what it says about its failure."""

    code: int
    output: str
    line: str


class Site:
    """A Spark cluster, and directories of the same telemetry of which it shares some.

    shared: all machines share it.   copied, empty: each worker has its own one, with the same files or none.
    half: one worker has a copy of its own.   embedded: of a run without the cluster.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.shared, self.copied, self.empty, self.half, self.embedded = (
            self._root(name) for name in ("shared", "copied", "empty", "half", "embedded")
        )
        self.made = submit.package(directory / "package")
        self.url = ""

    def _root(self, name: str) -> Path:
        root = self.directory / name
        roots.write(root, inject(SETUP, "consumer-starvation"), is_unique=True)
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

    def run(self, command: str, root: Path, *options: str) -> Result:
        """Run a command on the cluster."""
        work = self.directory / "work"
        work.mkdir(exist_ok=True)
        ran = submitted(self.made, work, self.url, command, str(root), *options, settings=standalone.SETTINGS)
        # spark-submit puts what the driver's Python says on standard error on its own standard output.
        both = [*ran.stdout.splitlines(), *ran.stderr.splitlines()]
        told = [line for line in both if line.startswith(f"spark-ops {command}: ")]
        assert ran.returncode in (0, 1, 3) or len(told) == 1, (ran.stdout, ran.stderr[-4000:])
        return Result(ran.returncode, ran.stdout, "".join(told))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[Site]:
    """The cluster.   spark: skips all of it where there is no Java."""
    if not standalone.can_cover():
        pytest.skip("mount namespaces cannot be made here: root is needed")
    made = Site(tmp_path_factory.mktemp("standalone"))
    with standalone.standalone(made.directory, made.covers()) as url:
        made.url = url
        yield made


def rolled(root: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of all rollups, by the paths of their files."""
    found = sorted((root / "v1").glob("kind=rollup1h-*/**/rollup-*.parquet"))
    return {str(path.relative_to(root)): pq.ParquetFile(path).read().to_pylist() for path in found}


@pytest.fixture(scope="module")
def expected(site: Site) -> dict[str, list[dict[str, Any]]]:
    """The rollups that one machine makes."""
    assert main(["rollup", str(site.embedded)]) == 0
    found = rolled(site.embedded)
    assert len(found) == 9
    assert sum(map(len, found.values())) == 3 * (8 + 3 + 3)  # copies, nodes, links
    return found


def test_two_workers_give_what_one_machine_gives(
    site: Site, expected: dict[str, list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.run("rollup", site.shared).code == 0
    assert rolled(site.shared) == expected
    capsys.readouterr()
    code = main(["health", str(site.embedded), *HEALTH])
    document = json.loads(capsys.readouterr().out)
    assert "consumer-starvation" in {finding["kind"] for finding in document["findings"]}
    told = site.run("health", site.shared, *HEALTH)
    assert told.code == code == 1
    on_cluster = json.loads(told.output[told.output.index("{") :])
    assert {**on_cluster, "created": None} == {**document, "created": None}


def test_a_worker_with_files_of_its_own_makes_a_rollup_fail(site: Site) -> None:
    """The worker reads its copies, and writes where this machine sees nothing: no rows are lost silently."""
    ran = site.run("rollup", site.copied)
    assert ran.code == 4
    assert "is not shared" in ran.line
    assert "All machines of the Spark cluster must see ROOT under the same path" in ran.line
    assert rolled(site.copied) == {}
    own = [site.directory / f"copied-{host}" / "v1" for host in standalone.WORKERS]
    assert any(list(each.glob("kind=rollup1h-*/_scratch-*/**/*.parquet")) for each in own), "it wrote nowhere"


def test_one_worker_with_files_of_its_own_is_no_success_with_fewer_rows(
    site: Site, expected: dict[str, list[dict[str, Any]]]
) -> None:
    ran = site.run("rollup", site.half)
    found = rolled(site.half)
    if ran.code == 0:  # the other worker has written all of it
        assert found == expected
        return
    assert ran.code == 4
    assert "is not shared" in ran.line
    assert all(expected[name] == rows for name, rows in found.items())


def test_workers_without_the_files_make_a_rollup_fail(site: Site) -> None:
    ran = site.run("rollup", site.empty)
    assert ran.code == 4
    assert str(site.empty) in ran.line
    assert rolled(site.empty) == {}


def test_workers_without_the_files_make_a_stream_fail(site: Site) -> None:
    ran = site.run("health", site.empty, "--follow", "--once")
    assert ran.code == 4
    assert "Spark failed: [STREAM_FAILED]" in ran.line
