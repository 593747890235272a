"""Pure rules bound how much goes on at once, and say what ends a plan."""

from dataclasses import replace

import pytest

from spark_ops.applying.observation import Observation, reason_to_abort
from spark_ops.applying.throttle import Limits, Throttle
from spark_ops.applying.work import Work

CALM = Observation(frozenset({"a", "b"}), view_id=3, score=90.0)


def work(id_: str, action: str, source: str, target: str, size: int = 0) -> Work:
    return Work(id_, action, "/", f"q{id_}", f"u{id_}", source, target, {}, (), size, 1)


def throttle(**limits: float) -> Throttle:
    return Throttle(Limits(**{"in_flight_first": 16, **limits}))  # type: ignore[arg-type]


def test_one_promotion_a_source() -> None:
    """spark §3.4."""
    one = throttle()
    first = work("1", "promote", "a", "b")
    assert one.admits(first, 0)
    one.began(first, 0)
    assert not one.admits(work("2", "promote", "a", "c"), 0)
    assert one.admits(work("3", "promote", "b", "a"), 0)
    one.ended(first)
    assert one.admits(work("2", "promote", "a", "c"), 0)


def test_two_copies_a_node() -> None:
    """spark §3.4: whether it sends or receives."""
    one = throttle()
    first, second = work("1", "add_mirror", "a", "b"), work("2", "add_mirror", "c", "a")
    one.began(first, 0)
    one.began(second, 0)
    assert not one.admits(work("3", "add_mirror", "d", "a"), 0)
    assert not one.admits(work("3", "add_mirror", "a", "d"), 0)
    assert one.admits(work("3", "add_mirror", "d", "b"), 0)
    assert one.admits(work("4", "wait_synced", "a", "b"), 0)
    assert one.admits(work("5", "drop_mirror", "a", "a"), 0)
    one.copied(first)
    assert one.admits(work("3", "add_mirror", "d", "a"), 0)


def test_bytes_a_second() -> None:
    """A copy that was begun uses up the time that its bytes take."""
    one = throttle(bytes_per_s=100)
    one.began(work("1", "add_mirror", "a", "b", 1000), 50)
    later = work("2", "add_mirror", "c", "d", 10)
    assert one.due_s() == 60
    assert not one.admits(later, 59.9)
    assert one.admits(later, 60)
    one.began(later, 70)
    assert one.due_s() == 70.1


@pytest.mark.parametrize(
    "seen",
    [
        replace(CALM, answer_ms=501.0),
        replace(CALM, confirm_p99_ms=251.0),
        replace(CALM, mirror_lag_ops=5001),
    ],
)
def test_up_by_one_down_by_half(seen: Observation) -> None:
    """spark §3.4: AIMD; and nothing begins until it is calm."""
    one = Throttle(Limits())
    for _ in range(20):
        one.saw(CALM)
    assert one.window == 16
    one.saw(seen)
    assert one.reason is not None
    assert not one.admits(work("1", "promote", "a", "b"), 0)
    assert one.window == 8
    for _ in range(9):
        one.saw(seen)
    assert one.window == 1
    one.saw(CALM)
    assert one.window == 2
    assert one.admits(work("1", "promote", "a", "b"), 0)


def test_reasons_to_abort() -> None:
    """spark §3.4."""
    safe = {("/", "q"), ("/", "r")}
    assert reason_to_abort(CALM, replace(CALM, answer_ms=1e6, score=80.0), safe) is None
    assert reason_to_abort(CALM, replace(CALM, score=None, view_id=None), safe) is None
    for seen, why in (
        (replace(CALM, alarms=frozenset({"memory on a"})), "an alarm was set: memory on a"),
        (replace(CALM, running=frozenset({"a"})), "a node went down: b"),
        (
            replace(CALM, running=frozenset({"a", "b", "c"})),
            "the membership has changed: c came up",
        ),
        (replace(CALM, view_id=4), "the membership has changed: view 3 became 4"),
        (
            replace(CALM, unsafe=frozenset({("/", "q"), ("/", "r"), ("/", "new")})),
            "queue 'q' in vhost '/' and 1 more lost its last synchronised mirror",
        ),
        (replace(CALM, score=79.9), "the health score fell from 90 to 80"),
    ):
        assert reason_to_abort(CALM, seen, safe) == why
    was = replace(CALM, unsafe=frozenset({("/", "q")}), alarms=frozenset({"disk on b"}))
    assert reason_to_abort(was, was, safe) is None
