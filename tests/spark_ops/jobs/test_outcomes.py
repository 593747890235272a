"""Outcomes of plans are files below the root of telemetry."""

import os
from pathlib import Path

import pytest

from spark_ops.jobs import outcomes
from spark_ops.planning.outcomes import Outcome


def made(number: int, share: float = 0.8) -> Outcome:
    return Outcome(f"sha256:{number:016}", f"2026-11-21T09:{number:02}:00Z", share, 0.1, 0.01)


def test_a_plan_has_one_outcome(tmp_path: Path) -> None:
    assert outcomes.known(tmp_path, "prod / eu") is None
    outcomes.keep(tmp_path, "prod / eu", made(1, 0.2))
    path = outcomes.keep(tmp_path, "prod / eu", made(1, 0.8))
    found = outcomes.known(tmp_path, "prod / eu")
    assert found is not None
    assert (found.plans, found.kept) == (1, pytest.approx(0.8))
    assert outcomes.known(tmp_path, "prod") is None
    assert path.parent.parent == tmp_path / "_outcomes"
    assert len(path.relative_to(tmp_path).parts) == 3, "names of clusters are one part of a path"


def test_what_is_no_outcome_is_passed_over(tmp_path: Path) -> None:
    path = outcomes.keep(tmp_path, "c", made(1))
    for number, data in enumerate((b"", b"[]", b"{", b" " * 5000, "ü".encode("latin-1"))):
        (path.parent / f"{number}.json").write_bytes(data)
    found = outcomes.known(tmp_path, "c")
    assert found is not None
    assert found.plans == 1


def test_the_oldest_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "FILES_MAX", 3)
    for number in range(6):
        path = outcomes.keep(tmp_path, "c", made(number))
        os.utime(path, (number, number))
    names = {path.name for path in path.parent.iterdir()}
    assert names == {f"{number:016}.json" for number in (3, 4, 5)}
