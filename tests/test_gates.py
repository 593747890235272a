"""The gates: what is in them, that nothing is in none, and how their lanes run."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests import gates, run_gate
from tests.gates import ALL_LANES, FAST, FAST_LANES, LANES, ROOT, Gate, Lane, files_with_tests, lane_of
from tests.run_gate import NONE_FOUND, Gatekeeper, inherited, main, names_files

FILES = files_with_tests()


# --- which tests ---


@pytest.mark.parametrize(
    ("path", "markers", "fast"),
    [
        ("tests/node/queue/test_queue.py", [], True),
        ("tests/node/queue/test_queue.py", ["parametrize"], True),
        ("tests/node/io/test_server.py", ["real"], False),
        ("tests/node/store/test_crashes.py", ["slow"], False),
        ("tests/spark_ops/jobs/test_loads.py", ["spark"], False),
        ("tests/smoke/test_node.py", ["slow"], True),
        ("tests/conformance/test_section_1_connection.py", [], False),
        ("tests/sim/test_rings.py", [], False),
        ("tests/test_tidy.py", [], False),
    ],
)
def test_which_are_fast(path: str, markers: list[str], fast: bool) -> None:
    assert gates.is_fast(path, markers) is fast


def test_each_file_is_in_one_lane_of_all() -> None:
    """Each file has one lane with the longest beginning; none is left out, and no lane is empty."""
    found = [path for lane in ALL_LANES for path in gates.files_of(lane, "all", FILES)]
    assert sorted(found) == FILES
    assert all(gates.files_of(lane, "all", FILES) for lane in ALL_LANES)


def test_each_file_that_may_be_fast_is_in_one_lane() -> None:
    found = [path for lane in FAST_LANES for path in gates.files_of(lane, "fast", FILES)]
    assert sorted(found) == [path for path in FILES if path.startswith(FAST)]


@pytest.mark.parametrize("gate", LANES)
def test_beginnings_lead_somewhere(gate: Gate) -> None:
    begins = [begin for lane in LANES[gate] for begin in lane.begins]
    assert len(begins) == len(set(begins))
    assert [begin for begin in begins if not any(path.startswith(begin) for path in FILES)] == []
    assert len({lane.name for lane in LANES[gate]}) == len(LANES[gate])


def test_lanes_are_kept_apart_from_lanes_that_are_there() -> None:
    names = {lane.name for lane in ALL_LANES}
    assert {name for lane in ALL_LANES for name in lane.apart_from} <= names


def test_the_longest_beginning_counts() -> None:
    for path, name in [
        ("tests/conformance/test_section_4_publish.py", "conformance"),
        ("tests/conformance/test_section_9_placement.py", "conformance-cluster"),
        ("tests/chaos/containers/test_files.py", "deploy"),
        ("tests/node/io/test_server.py", "processes"),
        ("tests/node/store/test_crashes.py", "pure"),
    ]:
        lane = lane_of(path, "all")
        assert lane is not None
        assert lane.name == name


def test_what_is_not_fast_has_no_lane_there() -> None:
    assert lane_of("tests/ui/test_axe.py", "fast") is None


# --- how they run ---

PASSES = "def test_passes(tmp_path):\n    (tmp_path / 'x').write_text('')\n"
FAILS = "def test_fails():\n    assert 1 == 2, 'as it should'\n"
FOLDERS = """
import os, pathlib, tempfile
def test_folders(tmp_path):
    assert os.environ["XDG_RUNTIME_DIR"] == tempfile.gettempdir()
    assert tmp_path.is_relative_to(tempfile.gettempdir())
    pathlib.Path(r"{told}").write_text(tempfile.gettempdir())
"""
MEETS = """
import pathlib, time
def test_meets():
    own, other = pathlib.Path(r"{own}"), pathlib.Path(r"{other}")
    own.touch()
    deadline = time.monotonic() + 60
    while not other.exists():
        assert time.monotonic() < deadline, "nobody is beside"
        time.sleep(0.01)
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files are lanes of the gate of all tests, for `main`; they run without the hooks of ours."""
    folder = tmp_path / "lanes"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setattr(run_gate, "ROOT", folder)
    monkeypatch.setattr(run_gate, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(run_gate, "files_with_tests", lambda: sorted(map(str, folder.glob("test_*.py"))))
    monkeypatch.delenv("FLUFFLE_SEED", raising=False)
    return folder


def lanes(monkeypatch: pytest.MonkeyPatch, folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"test_{name}.py").write_text(text)
    named = tuple(Lane(name, (f"{folder}/test_{name}.py",)) for name in texts)
    monkeypatch.setitem(LANES, "all", named)


@pytest.mark.slow
def test_what_fails_fails_the_gate_and_is_shown(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lanes(monkeypatch, made, good=PASSES, bad=FAILS)
    assert main(["all"]) == 1
    told = capsys.readouterr().out
    assert "good: 1 passed" in told
    assert "bad: 1 failed" in told
    assert "as it should" in told
    assert "all: FAILED" in told
    assert "as it should" in (run_gate.KEPT / "all-bad.txt").read_text()


@pytest.mark.slow
def test_arguments_go_to_each_lane_and_one_with_nothing_to_run_is_well(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lanes(monkeypatch, made, good=PASSES, bad=FAILS)
    assert main(["all", "-k", "passes"]) == 0
    assert "all: well" in capsys.readouterr().out
    assert main(["all", "-k", "nothing"]) == NONE_FOUND


@pytest.mark.slow
def test_lanes_run_beside_each_other_in_folders_of_their_own(
    made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = [tmp_path / name for name in ("one", "other", "a", "b")]
    lanes(
        monkeypatch,
        made,
        one=FOLDERS.format(told=told[0]) + MEETS.format(own=told[2], other=told[3]),
        other=FOLDERS.format(told=told[1]) + MEETS.format(own=told[3], other=told[2]),
    )
    assert main(["all"]) == 0
    folders = {path.read_text() for path in told[:2]}
    assert len(folders) == 2
    assert not any(Path(folder).exists() for folder in folders)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["one", "other"])
def test_lanes_that_disturb_each_other_run_one_after_the_other(
    made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, who: str
) -> None:
    lock = tmp_path / "lock"
    text = f"import os, time\ndef test_alone():\n    os.mkdir(r'{lock}')\n    time.sleep(1)\n    os.rmdir(r'{lock}')\n"
    lanes(monkeypatch, made, one=text, other=text)
    kept_apart = [
        replace(lane, apart_from=tuple({"one", "other"} - {who})) if lane.name == who else lane
        for lane in LANES["all"]
    ]
    monkeypatch.setitem(LANES, "all", tuple(kept_apart))
    assert main(["all"]) == 0


@pytest.mark.slow
def test_a_gate_that_hangs_is_ended_and_says_where(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    hangs = tmp_path / "hangs"
    lanes(monkeypatch, made, hangs=MEETS.format(own=hangs, other=tmp_path / "never"))
    monkeypatch.setattr(Gatekeeper, "has_taken_too_long", lambda self: hangs.exists())
    assert main(["all"]) == 1
    told = capsys.readouterr().out
    assert "it hangs" in told
    assert "KeyboardInterrupt" in told


def test_who_names_files_gets_them_alone() -> None:
    assert names_files(["-v", "tests/test_gates.py::test_which_are_fast"])
    assert names_files(["tests/node"])
    assert not names_files(["-k", "node"])
    assert not names_files(["-k", "tests/nowhere"])


def test_lanes_keep_their_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("OTHER", "2")
    assert "PYTHONDONTWRITEBYTECODE" not in inherited()
    assert inherited()["OTHER"] == "2"


# --- what the fast gate forbids ---

FORBIDDEN = {
    "sleeps": "import time\ndef test_x():\n    time.sleep(0.001)\n",
    "binds": "import socket\ndef test_x():\n    socket.create_server(('127.0.0.1', 0)).close()\n",
    "starts": "import subprocess\ndef test_x():\n    subprocess.run(['true'])\n",
}
ALLOWED = "import time\ndef test_x():\n    time.sleep(0)\n"


def fast(tmp_path: Path, text: str) -> "subprocess.CompletedProcess[str]":
    """Return the run of a test that pytest believes to be one of the fast gate."""
    (tmp_path / "test_made.py").write_text(text)
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import *\nfrom tests import gates\ngates.FAST = ('test_made',)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "--fast", "-p", "no:cacheprovider", "test_made.py"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "FLUFFLE_SEED": "123"}
    return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_is_not_for_the_fast_gate_fails_there(tmp_path: Path, what: str) -> None:
    done = fast(tmp_path, FORBIDDEN[what])
    assert done.returncode == 1, done.stdout
    assert "mark this test `real`" in done.stdout


@pytest.mark.slow
def test_a_run_tells_its_seed(tmp_path: Path) -> None:
    done = fast(tmp_path, ALLOWED)
    assert done.returncode == 0, done.stdout
    assert "FLUFFLE_SEED=123" in done.stdout
