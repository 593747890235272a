"""`spark-ops doctor`."""

import json
import shutil
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from spark_ops.cli import doctor
from spark_ops.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.mark.real
def test_a_machine(tmp_path: Path, capsys: Capture) -> None:
    """A line for each thing; as JSON the same."""
    code = main(["doctor", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "warn", "missing"}
    assert (code == 4) == any(line.startswith("missing") for line in lines)
    assert main(["doctor", str(tmp_path), "--json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert len(told) == len(lines)
    assert {"Python", "Java", "pyspark", "pyarrow", "loopback", "clock"} <= {check["what"] for check in told}


@pytest.mark.real
def test_no_java(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line says what to install; the exit code that something is missing."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert main(["doctor"]) == 4
    (line,) = (line for line in capsys.readouterr().out.splitlines() if " Java " in line)
    assert line.startswith("missing")
    assert "install Java 17" in line


def test_packages() -> None:
    """Missing, too old, right; what only one option needs is no more than a warning."""

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    assert doctor.package("pyarrow", missing).state == "missing"
    assert "pip install" in doctor.package("pyarrow", missing).text
    assert doctor.package("scipy", missing).state == "warn"
    assert doctor.package("pyspark", lambda _: "3.5.1").state == "missing"
    assert doctor.package("pyspark", lambda _: "4.1.0.dev1").state == "ok"


def test_clock_and_room(tmp_path: Path) -> None:
    """A clock that was never set; a directory that is not there."""
    assert doctor.clock(datetime(1970, 1, 1, tzinfo=UTC)).state == "missing"
    assert doctor.clock(datetime(2026, 11, 22, tzinfo=UTC)).state == "ok"
    assert doctor.room("x", tmp_path / "none").state == "missing"


@pytest.mark.real
def test_a_root_that_is_none(tmp_path: Path, capsys: Capture) -> None:
    """One line among the others."""
    assert main(["doctor", str(tmp_path / "none")]) == 4
    assert "is not a directory" in capsys.readouterr().out
