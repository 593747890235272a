"""A short form of `make chaos`: a written schedule is run against three nodes. Times don't decide anything here."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.run import main
from tests.chaos.schedule import Planned, to_json
from tests.kit import haproxy
from tests.kit.faulty_disk import can_build
from tests.kit.network import has_namespaces
from tests.kit.server_process import ROOT

MINUTES = 0.2


IS_CUT = os.geteuid() == 0 and has_namespaces()


@pytest.mark.slow
def test_a_schedule_runs_and_nothing_is_lost(tmp_path: Path) -> None:
    """A master is killed and cut off, in namespaces if that can be, and through HAProxy if there is one."""
    found = _run(tmp_path, ["kill-master", "one-way" if IS_CUT else "pause-master", "memory-alarm"])
    # The rest had no time if the machine had none.
    assert found["faults"][0]["kind"] == "kill-master"
    assert found["promotions"] >= 1


@pytest.mark.slow
@pytest.mark.skipif(not can_build(), reason="there is no gcc")
def test_half_failures_lose_nothing(tmp_path: Path) -> None:
    """A disk rots, fails, and hangs."""
    found = _run(tmp_path, ["rot-stopped", "raft-disk-error", "raft-disk-hang"])
    assert found["faults"][0]["kind"] == "rot-stopped"


def _run(tmp_path: Path, kinds: list[str]) -> Any:
    """Run these faults. Returns: the report, of a run in which nothing was lost."""
    planned = [Planned(0.2 + 4 * at, kind, {"seed": at, "under": ""}) for at, kind in enumerate(kinds, 0)]
    path = tmp_path / "given.json"
    path.write_text(to_json(planned))
    command = [sys.executable, "-m", "tests.chaos.run", "--minutes", str(MINUTES), "--schedule", str(path)]
    command += ["--network", "namespaces" if IS_CUT else "loopback", "--report", str(tmp_path / "report")]
    command += ["--load", "0.3", "--scale", "0.2", *["--direct"] * (haproxy.PROGRAM is None)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "report" / "report.json").read_text())
    assert found["is_clean"]
    assert found["counts"]["acknowledged"] > 100
    assert found["counts"]["lost"] == 0
    assert found["compared"] == found["episodes"] == 1
    assert len(found["faults"]) + found["skipped"] == len(kinds)
    assert json.loads((tmp_path / "report" / "schedule.json").read_text()) == json.loads(path.read_text())
    return found


def test_what_cannot_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kinds", "kill,earthquake", "--direct"]) == 2
    assert "there is no earthquake" in capsys.readouterr().out
