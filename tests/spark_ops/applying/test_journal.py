"""The journal on the disk: torn lines, damage, two processes, orders of the operator."""

import json
import os
from pathlib import Path

import pytest

from spark_ops.applying.history import JournalDamaged, history
from spark_ops.applying.journal import (
    Journal,
    JournalBusy,
    NoSuchPlan,
    Place,
    default_directory,
    find,
    is_busy,
    keep,
    order,
    read,
    take_order,
)
from spark_ops.applying.states import EDGES, VERBS, PlanState, StepState

ID = "sha256:" + "ab12" * 16
LINES = [
    {"at": 1.0, "plan": ID, "to": "running", "owner": "me#1"},
    {"at": 2.0, "step": "s1", "to": "sent"},
    {"at": 3.0, "step": "s1", "to": "done", "observed": {"epoch": 18}},
    {"at": 4.0, "step": "s2", "to": "sent"},
    {"at": 5.0, "step": "s2", "to": "left"},
    {"at": 5.0, "plan": ID, "to": "paused", "owner": "me#1", "why": "interrupted"},
]


def written(path: Path, count: int = len(LINES)) -> None:
    journal = Journal(path)
    journal.write(LINES[:count])
    journal.close()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """A written journal is read, also by another process later, which goes on writing."""
    path = tmp_path / "deep" / "plan.log"
    written(path, 4)
    journal = Journal(path)
    assert journal.past.state is PlanState.RUNNING
    assert journal.past.steps == {"s1": StepState.DONE, "s2": StepState.SENT}
    journal.write(LINES[4:])
    journal.close()
    found = read(path)
    assert (found.state, found.why, found.owner) == (PlanState.PAUSED, "interrupted", "me#1")
    assert found.observed == {"s1": {"epoch": 18}}
    assert found.changed() == ["s1", "s2"]
    assert (found.begun_at, found.changed_at) == (1.0, 5.0)
    assert found.state_of("s3") is StepState.WAITING
    assert path.stat().st_mode & 0o077 == 0


def test_cut_anywhere_it_is_still_a_journal(tmp_path: Path) -> None:
    """spark §6.13: a crash tears the last line at most, and that line is cut off."""
    path = tmp_path / "plan.log"
    written(path)
    data = path.read_bytes()
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        whole = data[:size].count(b"\n")
        journal = Journal(path)
        assert journal.past == history(LINES[:whole])
        journal.write(LINES[whole : whole + 1])
        journal.close()
        assert read(path) == history(LINES[: whole + 1])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"what", "line 2 is no JSON"),
        (b"[]", "line 2 is no record"),
        (b'{"at":1,"step":"s1"}', "KeyError"),
        (b'{"at":1,"step":"s1","to":"well"}', "well"),
        (b'{"at":1,"plan":"sha256:other","to":"done"}', "of two plans"),
        (b'{"at":1,"plan":"%s","to":"drafted"}' % ID.encode(), "drafted does not follow running"),
        (b'{"at":"x","step":"s1","to":"done"}', "ValueError"),
    ],
)
def test_a_damaged_one_is_refused(tmp_path: Path, line: bytes, why: str) -> None:
    """A damaged journal is refused, so that nobody guesses what was done."""
    path = tmp_path / "plan.log"
    path.write_bytes(json.dumps(LINES[0]).encode() + b"\n" + line + b"\n")
    with pytest.raises(JournalDamaged, match=why):
        read(path)
    with pytest.raises(JournalDamaged):
        Journal(path)
    assert not is_busy(path)


def test_a_step_before_its_plan() -> None:
    """A step before its plan is of no plan, and damage."""
    with pytest.raises(JournalDamaged):
        history(LINES[1:])


def test_one_process_at_a_time(tmp_path: Path) -> None:
    """spark §3.4."""
    path = tmp_path / "plan.log"
    assert not is_busy(path)
    journal = Journal(path)
    assert is_busy(path)
    with pytest.raises(JournalBusy):
        Journal(path)
    journal.close()
    assert not is_busy(path)
    Journal(path).close()


def test_plans_are_found_by_their_first_digits(tmp_path: Path) -> None:
    """The more digits, the better."""
    place = Place(tmp_path, ID)
    written(place.journal)
    for given in (ID, ID[:20], "ab12", "AB12AB12"):
        assert find(tmp_path, given).journal == place.journal
    for given in ("ab1", "ffff", "../x", "ab12*"):
        with pytest.raises(NoSuchPlan):
            find(tmp_path, given)
    written(Place(tmp_path, "sha256:ab12" + "0" * 60).journal)
    with pytest.raises(NoSuchPlan, match="more than one"):
        find(tmp_path, "ab12")


def test_orders_are_taken_once(tmp_path: Path) -> None:
    """An order is taken once, and one that makes no sense is dropped."""
    path = tmp_path / "plan.control"
    assert take_order(path) is None
    order(path, "pause")
    order(path, "abort")
    assert take_order(path) == "abort"
    assert take_order(path) is None
    for data in (b"", b"{", b"[]", b'{"order":"dance"}', b"\xff"):
        path.write_bytes(data)
        assert take_order(path) is None
        assert not path.exists()


def test_files_are_whole_or_not_there(tmp_path: Path) -> None:
    """Nothing is left of one that could not be written."""
    keep(tmp_path / "a", b"1")
    keep(tmp_path / "a", b"2")
    assert (tmp_path / "a").read_bytes() == b"2"
    (tmp_path / "b").mkdir()
    with pytest.raises(OSError, match="directory"):
        keep(tmp_path / "b", b"3")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_the_directory() -> None:
    """By the environment."""
    assert default_directory({"SPARK_OPS_STATE": "/x"}) == Path("/x")
    assert default_directory({"XDG_STATE_HOME": "/y"}) == Path("/y/spark-ops")
    assert default_directory({}).parts[-3:] == (".local", "state", "spark-ops")


def test_each_state_has_edges_and_verbs() -> None:
    """spark §3.4: `show` lists what is legal now."""
    assert set(EDGES) == set(VERBS) == set(PlanState)
    assert EDGES[PlanState.ROLLED_BACK] == frozenset()
    assert all("show" in verbs for verbs in VERBS.values())
