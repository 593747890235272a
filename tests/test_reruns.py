"""Which failed tests CI may run again, and that seeds can be had again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reruns import SHARED, SOME_FAILED, TESTS_MAX, VARIABLE, Failure, main, note, note_end, why_not

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("test", "text", "may"),
    [
        ("tests/ui/test_queues.py::test_a", "AssertionError", True),
        ("tests/chaos/test_run.py::test_a", "not up within 30 s", True),
        ("tests/chaos/test_run.py::test_a", "12:00:00.1 LOST: hot: 3, as p:1", False),
        ("tests/sim/test_rings.py::test_seeds", "AssertionError", False),
        ("tests/cluster/mirror/test_group.py::test_a", "AssertionError", False),
        ("tests/node/store/test_crashes.py::test_a", "AssertionError", False),
        ("tests/fuzz/test_reader.py::test_a", "AssertionError", False),
        ("tests/durable_world/test_story.py::test_a", "AssertionError", False),
        ("tests/transcripts/test_any.py::test_a", "AssertionError", False),
        ("tests/spark_ops/planning/test_any.py::test_a", "AssertionError", False),
        ("tests/spark_ops/test_live_apply.py::test_a", "AssertionError", True),
        ("tests/node/io/test_session.py::test_a", "AssertionError", True),
        ("tests/node/io/test_resources.py::test_a", "AssertionError", False),
        ("tests/durability/test_many.py::test_a", "tests.sim.mirror_node.Violation: n1", False),
        ("tests/test_tidy.py::test_a", "AssertionError", False),
    ],
)
def test_what_may_run_again(test: str, text: str, may: bool) -> None:
    assert (why_not([Failure(test, text)], SOME_FAILED) == []) is may


def test_what_needs_a_jvm_may() -> None:
    failure = Failure("tests/spark_ops/jobs/test_any.py::test_a", "timed out", is_spark=True)
    assert why_not([failure], SOME_FAILED) == []


def test_a_run_that_was_ended_may_not() -> None:
    failure = Failure("tests/ui/test_any.py::test_a", "AssertionError")
    assert why_not([failure], None)
    assert why_not([failure], 2)


def test_many_may_not() -> None:
    failures = [Failure(f"tests/ui/test_any.py::test_{number}", "") for number in range(TESTS_MAX + 1)]
    assert why_not(failures, SOME_FAILED)
    assert why_not(failures[1:], SOME_FAILED) == []


def test_what_is_named_exists() -> None:
    assert [name for name in SHARED if not (ROOT / name).exists()] == []


def test_what_was_noted_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "failures")
    note(path, Failure("tests/ui/test_any.py::test_a", "AssertionError"))
    note(path, Failure("tests/ui/test_any.py::test_a", "and while it was taken down"))
    assert main([path]) == 1, "it has not ended"
    note_end(path, SOME_FAILED)
    assert main([path]) == 0
    assert "again, by themselves: 1 tests that failed" in capsys.readouterr().out
    note(path, Failure("tests/sim/test_rings.py::test_seeds", "FLUFFLE_SIM=ring:7 Violation: I1"))
    assert main([path]) == 1
    assert "found what must not be: Violation" in capsys.readouterr().out
    assert main([str(tmp_path / "nothing")]) == 1


@pytest.mark.slow
def test_a_run_notes_failures_and_tells_its_seed(tmp_path: Path) -> None:
    """With the hooks of `tests/conftest.py`, on a test that fails."""
    noted = tmp_path / "failures"
    environ = {**os.environ, VARIABLE: str(noted), "FLUFFLE_SEED": "123", "FLUFFLE_FAILS_ON_PURPOSE": "1"}
    command = [sys.executable, "-m", "pytest", f"{__file__}::test_on_purpose", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == SOME_FAILED, done.stdout
    assert "FLUFFLE_SEED=123" in done.stdout
    assert main([str(noted)]) == 1
    assert "test_on_purpose" in noted.read_text()


def test_on_purpose() -> None:
    """Fails when the test above wants it."""
    assert "FLUFFLE_FAILS_ON_PURPOSE" not in os.environ, "FLUFFLE_SIM=ring:7 Violation: I1"
