"""The lock of plans (spark §3.4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import PutVhost, ReleasePlanLock, TakePlanLock
from node.catalogue.durable_part import durable_changes
from node.catalogue.plan_lock import busy, moment, refusal, taken
from node.catalogue.records import PlanLock
from node.catalogue.snapshot import snapshot

LOCK = PlanLock("p", "o", 1_000, 31_000)


def test_who_has_it_keeps_others_out_until_it_expires() -> None:
    assert taken(None, "p", "o", 1_000, 30_000) == LOCK
    assert taken(LOCK, "p2", "o", 30_999, 5) is LOCK
    assert taken(LOCK, "p", "o2", 30_999, 5) is LOCK
    assert taken(LOCK, "p2", "o", 31_000, 5) == PlanLock("p2", "o", 31_000, 31_005)


def test_who_has_it_renews_it() -> None:
    assert taken(LOCK, "p", "o", 20_000, 30_000) == PlanLock("p", "o", 1_000, 50_000)
    assert taken(LOCK, "p", "o", 99_000, 1_000) == PlanLock("p", "o", 1_000, 100_000)


@pytest.mark.parametrize(
    ("lock", "plan", "now_ms", "text"),
    [
        (None, "p", 0, "plan p does not have the lock"),
        (LOCK, "p", 30_999, None),
        (LOCK, "p", 31_000, "the lock of plan p has expired at 1970-01-01T00:00:31Z"),
        (LOCK, "q", 2_000, "plan p of o is being carried out since 1970-01-01T00:00:01Z"),
    ],
)
def test_who_may_make_steps(lock: PlanLock | None, plan: str, now_ms: int, text: str | None) -> None:
    assert refusal(lock, plan, now_ms) == text


@given(st.integers())
def test_any_number_is_a_moment(time_ms: int) -> None:
    assert moment(time_ms).endswith("Z")
    assert "since" in busy(PlanLock("p", "o", time_ms, time_ms))


def test_in_the_catalogue() -> None:
    """Each node gives the same answer, and a snapshot has it."""
    catalogue = Catalogue()
    catalogue.apply(PutVhost("/"))
    assert catalogue.apply(TakePlanLock("p", "o", 1_000, 30_000)) == LOCK
    copy = Catalogue()
    for command in snapshot(catalogue, whole=True):
        copy.apply(command)
    assert copy.plan_lock == LOCK
    assert catalogue.apply(ReleasePlanLock("p", "another")) == LOCK
    assert catalogue.apply(TakePlanLock("q", "o", 2_000, 1)) == LOCK
    assert catalogue.apply(ReleasePlanLock("p", "o")) is None
    assert catalogue.plan_lock is None
    assert catalogue.apply(ReleasePlanLock("p", "o")) is None
    assert all("Lock" not in type(each).__name__ for each in snapshot(catalogue, whole=True))


def test_a_node_without_peers_keeps_nothing_of_it() -> None:
    catalogue = Catalogue()
    command = TakePlanLock("p", "o", 1_000, 30_000)
    result = catalogue.apply(command)
    assert durable_changes(command, result, catalogue.take_events(), catalogue) == []
