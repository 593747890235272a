"""Hours stay for a time that depends on their kind."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spark_ops.telemetry import retention
from spark_ops.telemetry.layout import QUARANTINE, existing_hours, hour_directory, kind_directory
from spark_ops.telemetry.retention import days_of, remove_old

NOW = datetime(2026, 11, 22, 13, 30, tzinfo=UTC)


def hour(root: Path, kind: str, days: float) -> Path:
    """An hour of some days ago, with a file."""
    directory = hour_directory(root, kind, NOW - timedelta(days=days)) / "cluster=c" / "node=n"
    directory.mkdir(parents=True)
    (directory / "a-0-1.parquet").write_bytes(b"x" * 100)
    return directory


def test_each_kind_has_its_time(tmp_path: Path) -> None:
    """Raw 7 days while it is small, events and rollups longer, strangers for ever."""
    for kind in ("queue", "event", "rollup1h_queue", "rollup1d_queue", "stranger"):
        for days in (1, 6, 8, 100, 800):
            hour(tmp_path, kind, days)
    removed = remove_old(tmp_path, NOW)
    left = {
        kind: [round((NOW - when).total_seconds() / 86400) for when in existing_hours(tmp_path, kind)]
        for kind in ("queue", "event", "rollup1h_queue", "rollup1d_queue", "stranger")
    }
    assert left == {
        "queue": [6, 1],
        "event": [100, 8, 6, 1],
        "rollup1h_queue": [8, 6, 1],
        "rollup1d_queue": [100, 8, 6, 1],
        "stranger": [800, 100, 8, 6, 1],
    }
    assert removed.hours == 7
    assert len(list(kind_directory(tmp_path, "queue").iterdir())) == 2
    assert remove_old(tmp_path, NOW).hours == 0


def test_much_raw_telemetry_stays_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three days; an operator's choice goes before both."""
    monkeypatch.setattr(retention, "SMALL_BYTES", 150)
    for days in (1, 4, 6):
        hour(tmp_path, "node", days)
    assert remove_old(tmp_path, NOW, raw_days=5).hours == 1
    assert remove_old(tmp_path, NOW).hours == 1
    assert len(existing_hours(tmp_path, "node")) == 1


def test_the_last_topology_stays(tmp_path: Path) -> None:
    """A plan needs one."""
    for days in (50, 60):
        hour(tmp_path, "topology", days)
    assert remove_old(tmp_path, NOW).hours == 1
    (left,) = existing_hours(tmp_path, "topology")
    assert NOW - left < timedelta(days=51)


def test_damaged_lines_go_after_a_week(tmp_path: Path) -> None:
    """By the time of their file."""
    directory = tmp_path / QUARANTINE / "n"
    directory.mkdir(parents=True)
    for name, days in (("old", 8), ("new", 6)):
        (directory / name).touch()
        at = (NOW - timedelta(days=days)).timestamp()
        os.utime(directory / name, (at, at))
    assert remove_old(tmp_path, NOW).files == 1
    assert [path.name for path in directory.iterdir()] == ["new"]


def test_nothing_there(tmp_path: Path) -> None:
    """An empty root is no fault."""
    assert remove_old(tmp_path, NOW) == retention.Removed(0, 0)
    assert days_of("queue", 3) == 3
