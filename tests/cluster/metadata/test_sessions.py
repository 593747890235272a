"""Batches are applied once: reliability §3.4."""

from cluster.metadata.raft_pb2 import Batch
from cluster.metadata.sessions import Sessions


def _takes(sessions: Sessions, session: str, *numbers: int) -> list[bool]:
    return [sessions.takes(Batch(node="a", session=session, number=number)) for number in numbers]


def test_what_comes_again_is_skipped() -> None:
    assert _takes(Sessions(), "s", 1, 1, 2, 1, 2, 3) == [True, False, True, False, False, True]


def test_what_comes_before_its_turn_is_skipped() -> None:
    assert _takes(Sessions(), "s", 1, 3, 2, 3) == [True, False, True, True]
    assert _takes(Sessions(), "s", 2) == [False]


def test_a_former_process_comes_too_late() -> None:
    sessions = Sessions()
    assert _takes(sessions, "old", 1) == [True]
    assert _takes(sessions, "new", 1) == [True]
    assert _takes(sessions, "old", 2) == [False]
    assert _takes(sessions, "new", 2) == [True]
    assert sessions.is_over("a", "old")
    assert not sessions.is_over("a", "new")


def test_a_snapshot_has_it_all() -> None:
    sessions, other = Sessions(), Sessions()
    _takes(sessions, "old", 1)
    _takes(sessions, "new", 1, 2)
    for client in sessions.clients():
        other.restore(client)
    assert _takes(other, "old", 2) == [False]
    assert _takes(other, "new", 2, 3) == [False, True]
    assert other.applied_number("a", "new") == 3
