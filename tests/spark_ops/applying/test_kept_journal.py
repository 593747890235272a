"""The journal that a cluster keeps gives another machine what it needs, and no more than it may trust."""

from dataclasses import replace
from typing import Any

import pytest

from spark_ops.applying.history import History, history
from spark_ops.applying.kept_journal import (
    PLAN_BYTES_MAX,
    STEPS_MAX,
    KeptJournal,
    NotKept,
    kept_from,
    kept_of,
    lacking,
    packed,
    records_of,
    unpacked,
)
from spark_ops.applying.states import PlanState, StepState

ID = "sha256:" + "ab12" * 16
BEGUN: list[dict[str, Any]] = [
    {"at": 1.0, "plan": ID, "to": "running", "owner": "me#1", "why": None},
    {"at": 2.0, "step": "s2", "to": "sent"},
    {"at": 3.0, "step": "s2", "to": "done", "observed": {"epoch": 18, "ring": ["a"]}},
    {"at": 4.0, "step": "s1", "to": "sent"},
]
PAUSED: list[dict[str, Any]] = [
    *BEGUN,
    {"at": 5.0, "step": "s1", "to": "left"},
    {"at": 6.0, "plan": ID, "to": "paused", "owner": "me#1", "why": "interrupted"},
]


def kept(records: list[dict[str, Any]]) -> KeptJournal:
    return kept_of(history(records), "c")


def test_another_machine_has_the_same_states_and_another_name() -> None:
    found = kept_from(kept(PAUSED).document)
    assert found == kept(PAUSED)
    there = history(records_of(found, "you#2"))
    assert (there.plan, there.state, there.why, there.owner) == (ID, PlanState.PAUSED, "interrupted", "you#2")
    assert there.steps == {"s2": StepState.DONE, "s1": StepState.LEFT}
    assert there.changed() == ["s2", "s1"], "in the order in which they were sent"
    assert there.observed == {"s2": {"epoch": 18}}
    assert (there.begun_at, there.changed_at) == (1.0, 6.0)


@pytest.mark.parametrize("state", list(PlanState))
def test_a_plan_in_any_state_comes_over(state: PlanState) -> None:
    there = history(records_of(replace(kept(PAUSED), state=state), "you#2"))
    assert there.state is state


def together(own: list[dict[str, Any]], other: list[dict[str, Any]]) -> History:
    found = history(own)
    for record in lacking(found, kept(other)):
        found.add(record)
    return found


def test_what_another_machine_did_since_is_added() -> None:
    """The other machine resumed the plan, and ended it."""
    other = [
        *PAUSED,
        {"at": 7.0, "plan": ID, "to": "running", "owner": "you#2"},
        {"at": 8.0, "step": "s1", "to": "sent"},
        {"at": 9.0, "step": "s1", "to": "done", "observed": {"epoch": 3}},
        {"at": 9.0, "step": "s3", "to": "skipped"},
        {"at": 9.5, "plan": ID, "to": "done", "owner": "you#2"},
    ]
    found = together(PAUSED, other)
    assert found.state is PlanState.DONE
    assert found.steps == {"s2": StepState.DONE, "s1": StepState.DONE, "s3": StepState.SKIPPED}
    assert found.observed["s1"] == {"epoch": 3}
    assert found.owner == "me#1"
    assert lacking(found, kept(other)) == []
    crashed = together(BEGUN, other)
    assert (crashed.state, crashed.steps["s1"]) == (PlanState.DONE, StepState.DONE)


def test_a_copy_that_is_behind_changes_nothing() -> None:
    """This machine has the truth, as it writes its own journal first."""
    ended = [
        *PAUSED[:4],
        {"at": 5.0, "step": "s1", "to": "skipped"},
        {"at": 6.0, "plan": ID, "to": "aborted"},
    ]
    for other in (BEGUN, PAUSED[:2], PAUSED[:5]):
        assert lacking(history(ended), kept(other)) == []
    assert lacking(history(PAUSED), kept(PAUSED)) == []


def test_an_end_for_good_stays() -> None:
    aborted = [*PAUSED, {"at": 7.0, "plan": ID, "to": "aborted"}]
    later = [*PAUSED, {"at": 9.0, "plan": ID, "to": "running"}]
    assert together(aborted, later).state is PlanState.ABORTED
    undone = [*PAUSED, {"at": 9.0, "plan": ID, "to": "rolled-back"}]
    assert together(PAUSED, undone).state is PlanState.ROLLED_BACK


@pytest.mark.parametrize(
    "change",
    [
        {"format": "spark-ops-journal/2"},
        {"state": "on fire"},
        {"steps": [["s1", "on fire"]]},
        {"steps": [["s1"]]},
        {"steps": "s1"},
        {"steps": [[str(number), "done"] for number in range(STEPS_MAX + 1)]},
        {"epochs": {"s1": "x"}},
        {"epochs": []},
        {"begun_at": "soon"},
    ],
)
def test_what_is_no_journal(change: dict[str, Any]) -> None:
    with pytest.raises(NotKept):
        kept_from({**kept(PAUSED).document, **change})
    lacks = {key: value for key, value in kept(PAUSED).document.items() if key not in change}
    with pytest.raises(NotKept):
        kept_from(lacks)


def test_a_plan_is_packed_and_bounded() -> None:
    data = b'{"plan":"' + b"x" * 100_000 + b'"}'
    text = packed(data)
    assert text is not None
    assert len(text) < 1000
    assert unpacked(text) == data
    import random

    assert packed(random.Random(1).randbytes(PLAN_BYTES_MAX)) is None
    for wrong in (None, "", "*", "AAAA", text[:-8], text[:-4] + "AAAA", "A" * (PLAN_BYTES_MAX + 4)):
        with pytest.raises(NotKept):
            unpacked(wrong)


def test_a_plan_that_would_fill_the_memory_is_refused() -> None:
    import base64
    import zlib

    bomb = base64.b64encode(zlib.compress(bytes(64 << 20), 9)).decode()
    with pytest.raises(NotKept, match="too large"):
        unpacked(bomb)
