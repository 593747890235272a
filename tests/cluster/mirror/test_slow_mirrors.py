"""Slow mirrors: reliability §4.9, W9, S12."""

from collections.abc import Mapping

import pytest

from cluster.mirror.slow_mirrors import (
    LAG_BYTES_MAX,
    LAST_S,
    Ask,
    Blocked,
    Evict,
    SlowMirrors,
    Verdict,
)
from node.catalogue.mirrors.views import MirrorSynced, View, changed, created, died

FOUR = created(0, [("a", 1), ("b", 2), ("c", 3), ("d", 4)])


def _synced_only(view: View, *ids: int) -> View:
    return View(view.version, view.members, view.master, ids, since=view.since)


class Ring:
    """A ring that is looked at each 0.5 s.   has: how far each member has come; who isn't there doesn't answer."""

    def __init__(self, view: View = FOUR, policy: str = "evict") -> None:
        self.view, self.policy = view, policy
        self.own = view.master
        self.slow = SlowMirrors()
        self.oldest, self.sent_s, self.now, self.pending_bytes = 100, 0.0, 0.0, 1000
        self.asked: list[int] = []

    def run(self, until_s: float, has: Mapping[int, int]) -> list[Verdict]:
        """Run until a verdict that isn't a question."""
        while self.now < until_s:
            self.now += 0.5
            age_s = self.now - self.sent_s
            verdicts = self.slow.look(
                self.view, self.own, self.oldest, age_s, self.pending_bytes, self.policy, self.now
            )
            others: list[Verdict] = []
            for verdict in verdicts:
                if not isinstance(verdict, Ask):
                    others.append(verdict)
                    continue
                assert verdict.number == self.oldest
                self.asked += verdict.members
                for id_ in verdict.members:
                    if id_ in has:
                        self.slow.report(id_, has[id_], self.now)
            if others:
                return others
        return []


def test_nobody_is_asked_while_it_flows() -> None:
    ring = Ring()
    assert ring.run(4.5, {}) == []
    assert ring.asked == []


def test_the_first_that_lacks_it_is_evicted_after_ten_seconds() -> None:
    ring = Ring()
    (verdict,) = ring.run(60, {2: 100, 3: 99, 4: 99})
    assert isinstance(verdict, Evict)
    assert verdict.member == 3
    assert 10.0 <= ring.now <= 11.0
    assert set(ring.asked) == {2, 3, 4}


def test_who_does_not_answer_is_asked_once() -> None:
    """A member that does not answer is asked once, or questions would heap up on the way to it."""
    ring = Ring(policy="block")
    ring.run(60, {2: 100})
    ring.run(60, {2: 100})
    assert ring.asked.count(3) == ring.asked.count(4) == 1
    assert ring.asked.count(2) > 5


def test_an_eviction_is_said_once() -> None:
    ring = Ring()
    assert len(ring.run(60, {2: 99})) == 1
    assert ring.run(60, {2: 99}) == []


def test_a_new_stall_is_judged_anew() -> None:
    """A member that never answered the last time is asked again in a new stall."""
    ring = Ring(policy="block")
    ring.run(60, {2: 100})
    ring.asked.clear()
    ring.now, ring.sent_s, ring.oldest, ring.policy = 1000.0, 1000.0 - 5.0, 200, "evict"
    (verdict,) = ring.run(1100, {2: 200, 3: 200, 4: 100})
    assert isinstance(verdict, Evict)
    assert verdict.member == 4
    assert ring.now >= 1005.0
    assert set(ring.asked) == {2, 3, 4}


def test_who_is_silent_but_has_passed_it_on_is_not_to_blame() -> None:
    ring = Ring()
    (verdict,) = ring.run(60, {3: 100})
    assert isinstance(verdict, Evict)
    assert verdict.member == 4


def test_the_last_one_is_to_blame_if_all_have_it_and_it_does_not_come_back() -> None:
    ring = Ring()
    (verdict,) = ring.run(60, {2: 100, 3: 100, 4: 100})
    assert isinstance(verdict, Evict)
    assert verdict.member == 4


def test_a_ring_that_is_slow_but_moves_is_left_alone() -> None:
    ring, has = Ring(), {2: 100, 3: 80, 4: 80}
    for at in range(19):
        has[3] += 1
        has[4] += 1
        assert ring.run((at + 1) * 2, has) == []
    ring.oldest = 110
    for _ in range(20):
        ring.oldest += 1
        assert ring.run(ring.now + 2, {2: 200, 3: 200, 4: 200}) == []


def test_who_had_nothing_to_get_is_not_to_blame_when_the_one_before_it_goes_on() -> None:
    ring = Ring()
    assert ring.run(7, {2: 99, 3: 99, 4: 99}) == []
    assert ring.run(11, {2: 105, 3: 99, 4: 99}) == []
    (verdict,) = ring.run(60, {2: 110, 3: 99, 4: 99})
    assert isinstance(verdict, Evict)
    assert verdict.member == 3
    assert ring.now <= 16.0


def test_too_much_is_too_much_however_well_it_moves() -> None:
    ring = Ring()
    ring.run(5, {2: 100, 3: 90, 4: 90})
    ring.pending_bytes = LAG_BYTES_MAX + 1
    (verdict,) = ring.run(9, {2: 100, 3: 91, 4: 90})
    assert isinstance(verdict, Evict)
    assert verdict.member == 3


def test_the_policy_may_be_to_wait() -> None:
    ring = Ring(policy="block")
    (verdict,) = ring.run(60, {2: 100, 3: 99, 4: 99})
    assert isinstance(verdict, Blocked)
    assert verdict.member == 3
    assert ring.run(120, {2: 100, 3: 99, 4: 99}) == [], "it is said once"


@pytest.mark.parametrize("view", [created(0, [("a", 1), ("b", 2)]), _synced_only(FOUR, 1, 2)])
def test_the_last_synchronised_mirror_is_waited_for_but_not_for_ever(view: View) -> None:
    """The master has all that was confirmed: a mirror that never answers again must not stop the queue."""
    ring = Ring(view)
    (verdict,) = ring.run(60, {2: 99, 3: 99, 4: 99})
    assert isinstance(verdict, Blocked)
    assert verdict.member == view.members[1].id
    assert ring.now < 12.0
    (verdict,) = ring.run(60, {2: 99, 3: 99, 4: 99})
    assert isinstance(verdict, Evict)
    assert verdict.member == view.members[1].id
    assert LAST_S <= ring.now <= LAST_S + 1.0


def test_the_last_synchronised_copy_of_all_never_goes() -> None:
    """The master of this one has none: it answers for a dead one, and what is confirmed is at the mirror only."""
    (verdict,) = Ring(_synced_only(FOUR, 2)).run(60, {2: 99, 3: 99, 4: 99})
    assert isinstance(verdict, Blocked)
    assert verdict.member == 2


def test_with_block_the_last_one_is_waited_for_without_end() -> None:
    ring = Ring(created(0, [("a", 1), ("b", 2)]), policy="block")
    (verdict,) = ring.run(60, {2: 99})
    assert isinstance(verdict, Blocked)
    assert ring.run(1000, {2: 99}) == []


def test_an_unsynchronised_one_may_go_though_there_is_no_other() -> None:
    (verdict,) = Ring(_synced_only(FOUR, 1)).run(60, {2: 99})
    assert isinstance(verdict, Evict)


def test_after_an_eviction_the_others_have_time_to_find_each_other() -> None:
    ring = Ring()
    ring.run(60, {2: 99, 3: 99, 4: 99})
    assert 10.0 <= ring.now <= 11.0
    ring.view = died(FOUR, [2], may_lose=False)
    (verdict,) = ring.run(60, {3: 99, 4: 99})
    assert isinstance(verdict, Evict)
    assert verdict.member == 3
    assert 20.0 <= ring.now <= 22.0


def test_one_after_the_other_goes_and_the_last_synchronised_one_not_before_its_time() -> None:
    ring, evicted = Ring(), []
    while len(evicted) < 3:
        for verdict in ring.run(200, {}):
            if isinstance(verdict, Evict):
                evicted.append(verdict.member)
                ring.view = died(ring.view, [verdict.member], may_lose=False)
    assert evicted == [2, 3, 4]
    assert LAST_S < ring.now <= LAST_S + 12.0, "each has had ten seconds"


def test_the_order_begins_after_the_master() -> None:
    view = View(FOUR.version, FOUR.members, 3, FOUR.synced, since=FOUR.version)
    (verdict,) = Ring(view).run(60, {4: 100, 1: 100, 2: 99})
    assert isinstance(verdict, Evict)
    assert verdict.member == 2


def test_no_ring_no_verdict() -> None:
    alone = created(0, [("a", 1)])
    assert Ring(alone).run(60, {}) == []
    flushing = died(created(0, [("a", 1), ("b", 2)]), [1], may_lose=False)
    assert Ring(flushing).run(60, {}) == []
    slow = SlowMirrors()
    slow.report(7, 1, 0.0)
    assert changed(FOUR, MirrorSynced(2)) is None
