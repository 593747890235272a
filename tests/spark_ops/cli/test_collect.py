"""`spark-ops collect`."""

import argparse
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from spark_ops.cli import collect
from spark_ops.cli.errors import OpsError
from spark_ops.cli.main import main
from spark_ops.telemetry import arrow
from spark_ops.telemetry.manifest import live_files
from spark_ops.telemetry.rounds import collected_until
from tests.kit.synthetic.files import write_segments
from tests.kit.synthetic.telemetry import Setup, rows

Capture = pytest.CaptureFixture[str]
ROWS = list(rows(Setup(queues=1, hours=0.03)))


def test_once(tmp_path: Path, capsys: Capture) -> None:
    """A line says what was taken, and what was wrong with it."""
    segments = write_segments(ROWS, tmp_path / "in")
    segments[-1].write_bytes(segments[-1].read_bytes()[:-2])
    arguments = ["collect", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--once"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{len(segments)} segments, {len(ROWS) - 1} rows in ")
    assert out.endswith("; 1 torn lines\n")
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["segments"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{tmp}/none", "--out", "{tmp}/out", "--once"], "none is not a directory"),
        (["{tmp}", "--out", "{tmp}/out", "--flush", "soon"], "'soon' is not a time"),
        (["{tmp}", "--out", "{tmp}/file", "--once"], "{tmp}/file/_collect: Not a directory"),
    ],
)
def test_one_line_for_what_makes_no_sense(
    tmp_path: Path, capsys: Capture, arguments: list[str], said: str
) -> None:
    """Never a stack trace."""
    (tmp_path / "file").touch()
    write_segments(ROWS[:4], tmp_path)
    assert main(["collect", *(each.format(tmp=tmp_path) for each in arguments)]) in (2, 4)
    captured = capsys.readouterr()
    assert said.format(tmp=tmp_path) in captured.err
    assert captured.err.count("\n") == 1


def test_a_full_disk(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line; no segment is lost, and the next time all is taken."""
    segments = write_segments(ROWS, tmp_path / "in")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    arguments = ["collect", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--once"]
    with monkeypatch.context() as patched:
        patched.setattr(arrow, "write", full)
        assert main(arguments) == 4
    assert "no space left" in capsys.readouterr().err
    assert all(path.exists() for path in segments)
    assert main(arguments) == 0
    assert f"{len(ROWS)} rows" in capsys.readouterr().out


def test_no_pyarrow(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing pyarrow is told with what to install."""
    monkeypatch.setattr(collect, "find_spec", lambda _: None)
    assert main(["collect", str(tmp_path), "--out", str(tmp_path), "--once"]) == 4
    assert "pip install 'fluffle[spark]'" in capsys.readouterr().err


def test_times() -> None:
    """With and without units."""
    assert [collect.seconds(text) for text in ("90", "60s", "5m", "2h", "3d", "0.5")] == [
        90,
        60,
        300,
        7200,
        259200,
        0.5,
    ]
    for text in ("", "s", "-1", "1w", "nan", "inf", "1e99d"):
        with pytest.raises(OpsError, match="is not a time"):
            collect.seconds(text)


def test_a_round_is_recorded_when_it_has_collected_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Readers tell from the record that what nodes have written until then is there. A round that fails says only that
    the collector is at work."""
    source, root = tmp_path / "in", tmp_path / "out"
    write_segments(ROWS, source)
    now = [1000.0]
    monkeypatch.setattr(collect.time, "time", lambda: now[0])
    stop = threading.Event()
    arguments = argparse.Namespace(directories=[source], out=root, keep=False, json=False)
    failing = [True]
    write = arrow.write

    def fails(*given: Any, **named: Any) -> None:
        if failing[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*given, **named)

    monkeypatch.setattr(arrow, "write", fails)
    seen: list[float] = []

    def waited(_: float) -> bool:
        seen.append(collected_until(root, now[0]))
        now[0] += 60.0
        failing[0] = len(seen) < 2
        if len(seen) == 3:
            stop.set()
        return True

    monkeypatch.setattr(stop, "wait", waited)
    collect._follow(arguments, 60.0, stop)
    assert seen == [1000.0, 1000.0, 1120.0]
    assert live_files(root, "node")
    assert "no space left" in capsys.readouterr().err


@pytest.mark.slow
def test_it_follows_until_it_is_stopped(tmp_path: Path) -> None:
    """Segments that come are taken; a directory may come later; SIGTERM ends it."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "spark_ops",
            "collect",
            str(tmp_path / "in"),
            "--out",
            str(tmp_path / "out"),
            "--flush",
            "1",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert "no such directory; trying again" in process.stderr.readline()
        write_segments(ROWS, tmp_path / "new")
        os.rename(tmp_path / "new", tmp_path / "in")
        deadline = time.monotonic() + 60
        while list((tmp_path / "in").glob("*/*.ndjson")) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert live_files(tmp_path / "out", "node")
