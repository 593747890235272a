"""The files for spark-submit, and a job that runs by it, from nothing but them."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from spark_ops.jobs import submit
from tests.kit.synthetic.telemetry import Setup, rows
from tests.spark_ops.jobs import roots
from tests.spark_ops.jobs.submitting import submitted


def test_the_archive(tmp_path: Path) -> None:
    """All modules, and the same bytes each time."""
    made = submit.package(tmp_path / "a")
    again = submit.package(tmp_path / "b")
    assert made.archive.read_bytes() == again.archive.read_bytes()
    names = zipfile.ZipFile(made.archive).namelist()
    assert {"spark_ops/__init__.py", "spark_ops/cli/main.py", "spark_ops/jobs/session.py"} <= set(names)
    assert not any("__pycache__" in name for name in names)


def test_the_command_says_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("spark-submit --master MASTER --py-files ")
    (tmp_path / "file").write_text("")
    assert submit.main([str(tmp_path / "file")]) == 2


@pytest.mark.spark
@pytest.mark.slow
def test_a_real_submit(tmp_path: Path) -> None:
    """In an empty directory, with the submitter's settings: the same rollup; of links, which compiles fastest."""
    if shutil.which("java") is None:
        pytest.skip("no Java")
    made = submit.package(tmp_path / "package")
    root, work = tmp_path / "root", tmp_path / "work"
    work.mkdir()
    written = [
        row
        for row in rows(Setup(nodes=2, queues=1, replicas=1, hours=1, interval_s=600))
        if row["kind"] == "link"
    ]
    roots.write(root, written)
    ran = submitted(made, work, "local[2]", "rollup", str(root), "--json")
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = json.loads(ran.stdout[ran.stdout.index("{") :])
    assert [(each["kind"], each["rows"], each["raw_rows"]) for each in told["rolled"]] == [
        ("link", 2, len(written))
    ]
    assert list((root / "v1" / "kind=rollup1h-link").rglob("rollup-*.parquet"))
