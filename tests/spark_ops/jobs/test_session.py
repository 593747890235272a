"""A session: what it is set to, what is said when there can be none, what it leaves behind."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_ops.jobs.engine import EngineError, java, one_line, packages
from spark_ops.jobs.session import session, settings, submitted_settings, sweep


def _fake_java(home: Path, release: str | None, said: str = "") -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    if release is not None:
        (home / "release").write_text(release)
    return program


def test_no_java_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java: what to install, before any JVM is tried."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="install Java 17") as caught:
        java()
    assert "\n" not in str(caught.value)


def test_wrong_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EngineError, match="JAVA_HOME"):
        java()


@pytest.mark.real
@pytest.mark.parametrize(
    ("release", "said"),
    [('JAVA_VERSION="1.8.0_292"\n', ""), ('JAVA_VERSION="11.0.2"\n', ""), (None, 'openjdk version "11.0.2"')],
)
def test_old_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: str | None, said: str) -> None:
    """Java 8 calls itself 1.8; a Java without its file `release` is asked."""
    _fake_java(tmp_path, release, said)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EngineError, match=r"Java (8|11), which is too old"):
        java()


def test_new_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = _fake_java(tmp_path, 'JAVA_VERSION="21.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java().path == program
    assert java().version == 21


def test_a_missing_package() -> None:
    with pytest.raises(EngineError, match="no_such_package is missing: pip install"):
        packages("json", "no_such_package")


def test_errors_are_one_line() -> None:
    """The deepest cause, without the class's path."""
    text = "o.a.s.SparkException: Job aborted\n\tat x\nCaused by: java.io.IOException: disk full\n\tat y"
    assert one_line(RuntimeError(text)) == "IOException: disk full"
    assert one_line(RuntimeError("")) == "RuntimeError"
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted\n"
        "Caused by: o.a.s.SparkException: [FAILED_READ_FILE] file:///srv/v1/a%20b.parquet, row 3.\n"
        "Caused by: java.io.EOFException: Reached the end of stream"
    )
    assert one_line(RuntimeError(text)) == ("EOFException: Reached the end of stream (/srv/v1/a%20b.parquet)")
    text = "IOException: /srv/a is not there, as file:/srv/b"
    assert one_line(RuntimeError(text)) == text


def test_a_cluster_makes_few_partitions_of_few_rows() -> None:
    """Spark's default makes 200 tasks a stage; what the operator has chosen stays."""
    name = "spark.sql.shuffle.partitions"
    assert submitted_settings(20_000, {})[name] == "4"
    assert submitted_settings(100_000_000, {})[name] == "50"
    assert name not in submitted_settings(20_000, {name: "64"})
    utc = "spark.sql.session.timeZone"
    assert submitted_settings(20_000, {utc: "Europe/Berlin"})[utc] == "UTC"


@pytest.mark.real
def test_directories_of_dead_processes_are_removed(tmp_path: Path) -> None:
    """Directories of other programs, of running processes and of new ones stay."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name, pid in (("dead", ended.pid), ("alive", os.getpid()), ("new", None)):
        (tmp_path / f"spark-ops-{name}").mkdir()
        if pid is not None:
            (tmp_path / f"spark-ops-{name}" / "pid").write_text(str(pid))
    (tmp_path / "other-dead").mkdir()
    (tmp_path / "other-dead" / "pid").write_text(str(ended.pid))
    (tmp_path / "spark-ops-link").symlink_to(tmp_path / "other-dead")
    sweep(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"spark-ops-alive", "spark-ops-new", "other-dead", "spark-ops-link"}


def test_settings_by_size(tmp_path: Path) -> None:
    """C1 for little, C2 for much; a larger heap and more partitions for very much."""
    little, much, very_much = (settings(rows, tmp_path) for rows in (0, 5_000_000, 900_000_000))
    flag = "spark.driver.extraJavaOptions"
    assert "TieredStopAtLevel=1" in little[flag]
    assert "TieredStopAtLevel" not in much[flag]
    assert (little["spark.driver.memory"], very_much["spark.driver.memory"]) == ("2g", "4g")
    partitions = [int(each["spark.sql.shuffle.partitions"]) for each in (little, much, very_much)]
    assert partitions == [4, 4, 200]


@pytest.mark.spark
def test_a_session_inside_a_session(spark: Any) -> None:
    """A session inside a session is the same, and still there afterwards; time is UTC."""
    with session("inner") as inner:
        assert inner is spark
    assert spark.range(3).count() == 3
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.spark
def test_what_spark_raises_is_an_engine_error(spark: Any) -> None:
    with pytest.raises(EngineError, match="no_such_column"), session("inner") as inner:
        inner.range(1).select("no_such_column").collect()


_ALONE = """
import os, sys
from spark_ops.jobs.session import session
with session("alone", master="local[1]") as spark:
    print(spark.range(10).count(), os.listdir(os.environ["TMPDIR"]) != [], flush=True)
    {then}
"""


def _alone(then: str, tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path.cwd())}
    code = _ALONE.format(then=then)
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )


@pytest.mark.spark
@pytest.mark.slow
def test_it_is_quiet_and_leaves_nothing(tmp_path: Path) -> None:
    """Nothing on stderr, no file in the directory it runs in or in the temporary one."""
    ran = _alone("pass", tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "10 True\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
@pytest.mark.slow
def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C ends it as any program, and the files go."""
    ran = _alone(f"os.kill(os.getpid(), {int(signal.SIGINT)}); import time; time.sleep(60)", tmp_path)
    assert "KeyboardInterrupt" in ran.stderr
    assert list(tmp_path.iterdir()) == []
