"""Pace of what is proposed of views."""

from dataclasses import replace

import pytest

from cluster.mirror.proposals import OUTSTANDING_MAX, Proposals, is_shown
from node.catalogue.mirrors.views import (
    AddMirror,
    DropMirror,
    OfferCopy,
    Revive,
    TookOver,
    TransferMaster,
    Unmirror,
    View,
    ViewChange,
    changed,
    created,
)
from tests.cluster.mirror.reconciler_world import queue

ADD = AddMirror("c", 3)
TWO = created(0, [("a", 1), ("b", 2)])


def _after(*changes: ViewChange, view: View = TWO) -> View:
    for change in changes:
        after = changed(view, change)
        assert after is not None
        view = after
    return view


def test_a_change_is_made_once_until_its_time_is_over() -> None:
    proposals, record = Proposals(), replace(queue(), view=TWO)
    proposals.make(record, ADD, "why", 0.0)
    proposals.make(record, ADD, "why", 0.5)
    (made,) = proposals.take()
    assert (made.change, made.reason) == (ADD, "why")
    assert proposals.next_time(0.5) == 1.0
    assert proposals.next(0.5) is None
    assert proposals.next(1.0) == record.uid
    proposals.make(record, ADD, "why", 1.0)
    (again,) = proposals.take()
    assert (again.change, again.reason) == (ADD, ""), "the log has it"


def test_repeats_become_rarer() -> None:
    proposals, record, now, times = Proposals(), replace(queue(), view=TWO), 0.0, []
    proposals.make(record, ADD, "", now)
    for _ in range(6):
        time = proposals.next_time(now)
        assert time is not None
        times.append(time - now)
        now = time
        assert proposals.next(now) == record.uid
        proposals.make(record, ADD, "", now)
    assert times == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_another_change_of_the_queue_waits_for_the_one_before() -> None:
    proposals, record = Proposals(), replace(queue(), view=TWO)
    proposals.make(record, ADD, "", 0.0)
    proposals.take()
    proposals.make(record, DropMirror(2), "", 0.3)
    assert proposals.take() == []
    assert proposals.next(1.0) == record.uid
    proposals.make(record, DropMirror(2), "", 1.0)
    assert [each.change for each in proposals.take()] == [DropMirror(2)]


def test_a_view_that_shows_it_lets_the_next_one_go_at_once() -> None:
    proposals, record = Proposals(), replace(queue(), view=TWO)
    proposals.make(record, ADD, "", 0.0)
    proposals.see(record)
    assert proposals.outstanding == 1
    proposals.see(replace(record, view=_after(ADD)))
    assert proposals.outstanding == 0
    proposals.make(record, DropMirror(2), "", 0.1)
    assert len(proposals.take()) == 2


def test_what_is_wanted_no_more_gives_up_its_place() -> None:
    proposals, record = Proposals(), replace(queue(), view=TWO)
    proposals.make(record, ADD, "", 0.0)
    proposals.lapse(record.uid, 0.5)
    assert proposals.outstanding == 1
    assert proposals.next(1.0) == record.uid
    proposals.lapse(record.uid, 1.0)
    assert (proposals.outstanding, proposals.next_time(1.0)) == (0, None)


def test_no_room() -> None:
    proposals = Proposals()
    for at in range(OUTSTANDING_MAX):
        proposals.make(replace(queue(f"q{at}"), view=TWO), ADD, "", 0.0)
    proposals.look_at("another")
    proposals.look_at_all(["third"])
    assert proposals.next(0.5) is None
    assert proposals.next_time(0.5) == 1.0
    proposals.forget("uid-q0")
    assert proposals.next_time(0.5) == 0.5
    assert proposals.next(0.5) == "another"
    assert proposals.next(0.5) == "third"
    assert proposals.next(0.5) is None


def test_one_whose_place_was_taken_queues_up_again() -> None:
    proposals = Proposals()
    record = replace(queue(), view=TWO)
    proposals.make(record, ADD, "", 0.0)
    proposals._pending.clear()
    for at in range(OUTSTANDING_MAX):
        proposals.make(replace(queue(f"q{at}"), view=TWO), ADD, "", 0.5)
    assert proposals.next(1.0) is None
    proposals.forget("uid-q1")
    assert proposals.next(1.0) == record.uid


def test_the_timetable_stays_small() -> None:
    proposals, record = Proposals(), replace(queue(), view=TWO)
    for at in range(10_000):
        proposals.make(record, ADD, "", at * 1e-5)
        proposals.see(replace(record, view=_after(ADD)))
    assert len(proposals._timetable._heap) < 100


DOWN = View(9, (), 0, (), state="down", recoverable=("a", "b"), offers=(("b", 2, 7),))
MOVED = _after(TransferMaster(1, 2))


@pytest.mark.parametrize(
    ("view", "change", "shown"),
    [
        (None, None, False),
        (TWO, None, True),
        (None, ADD, True),
        (TWO, ADD, False),
        (_after(ADD), ADD, True),
        (_after(ADD), AddMirror("c", 4), False),
        (TWO, DropMirror(2), False),
        (_after(DropMirror(2)), DropMirror(2), True),
        (TWO, DropMirror(9), True),
        (TWO, TransferMaster(1, 2), False),
        (MOVED, TransferMaster(1, 2), True),
        (MOVED, TookOver(MOVED.since), False),
        (_after(TookOver(MOVED.since), view=MOVED), TookOver(MOVED.since), True),
        (MOVED, TookOver(TWO.since), True),
        (TWO, Unmirror(1, TWO.version), False),
        (TWO, Unmirror(1, TWO.version - 1), True),
        (DOWN, OfferCopy("a", 1, 5), False),
        (DOWN, OfferCopy("b", 2, 7), True),
        (TWO, OfferCopy("a", 1, 5), True),
        (DOWN, Revive(9), False),
        (DOWN, Revive(8), True),
    ],
)
def test_what_a_view_shows(view: View | None, change: ViewChange | None, shown: bool) -> None:
    assert is_shown(replace(queue(), view=view), change) is shown
