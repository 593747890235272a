"""Disks that hold up confirms: docs/mirrors.md."""

import pytest

from cluster.mirror.slow_disks import DiskState, SlowDisks
from cluster.mirror.slow_mirrors import LAST_S, Ask, Blocked, Evict, Verdict
from node.catalogue.mirrors.views import View, created

THREE = created(0, [("a", 1), ("b", 2), ("c", 3)])


class Disks:
    """Looked at each second.   has: how far each mirror's disk is; who isn't there doesn't answer."""

    def __init__(self, view: View = THREE, policy: str = "evict") -> None:
        self.view, self.policy = view, policy
        self.slow = SlowDisks()
        self.now = 100.0
        self.state = DiskState(awaited=8, confirmed=9, mark=7, own=9, is_own_enough=False)

    def run(self, seconds: float, has: dict[int, int | None]) -> list[Verdict]:
        """Run until a verdict that isn't a question."""
        until_s = self.now + seconds
        while self.now < until_s:
            self.now += 1.0
            verdicts = self.slow.look(self.view, self.state, self.policy, self.now)
            for verdict in verdicts:
                for id_ in verdict.members if isinstance(verdict, Ask) else ():
                    if id_ in has:
                        self.slow.report(id_, has[id_])
            if found := [verdict for verdict in verdicts if not isinstance(verdict, Ask)]:
                return found
        return []


def test_whose_disk_lacks_it_goes_after_ten_seconds() -> None:
    disks = Disks()
    (verdict,) = disks.run(60, {2: 9, 3: 7})
    assert isinstance(verdict, Evict)
    assert verdict.member == 3
    assert disks.now == 111.0
    assert disks.run(60, {2: 9, 3: 7}) == [], "said once"


@pytest.mark.parametrize(
    "state",
    [
        DiskState(None, 9, 7, 9, is_own_enough=False),
        DiskState(8, 9, 8, 9, is_own_enough=False),
        DiskState(8, 7, 7, 9, is_own_enough=False),
        DiskState(8, 9, 7, 9, is_own_enough=True),
    ],
)
def test_nobody_is_asked_if_no_disk_is_waited_for(state: DiskState) -> None:
    """Members are not asked if no disk holds up anything: nobody waits, all have it, or the ring or the master does."""
    disks = Disks()
    disks.state = state
    assert disks.run(60, {2: 9, 3: 7}) == []


def test_a_disk_that_gets_on_is_left_alone() -> None:
    disks = Disks()
    for mark in range(7, 20):
        disks.state = DiskState(mark + 1, 30, mark, 30, is_own_enough=False)
        assert disks.run(8, {2: 30, 3: mark}) == []


def test_who_does_not_answer_or_does_not_count_is_not_to_blame() -> None:
    assert Disks().run(60, {2: 9, 3: None}) == []
    assert Disks().run(60, {2: 9}) == []


def test_if_only_the_masters_disk_has_it_the_others_go_later() -> None:
    disks = Disks()
    verdicts = disks.run(60, {2: 7, 3: 5})
    assert [type(verdict) for verdict in verdicts] == [Blocked, Blocked]
    assert disks.now == 111.0
    verdicts = disks.run(60, {2: 7, 3: 5})
    assert [type(verdict) for verdict in verdicts] == [Evict, Evict]
    assert disks.now == 101.0 + LAST_S


def test_if_no_disk_has_it_nobody_goes() -> None:
    disks = Disks()
    disks.state = disks.state._replace(own=7)
    verdicts = disks.run(60, {2: 7, 3: 5})
    assert [type(verdict) for verdict in verdicts] == [Blocked, Blocked]
    assert disks.run(300, {2: 7, 3: 5}) == []


def test_the_policy_may_be_to_wait() -> None:
    (verdict,) = Disks(policy="block").run(60, {2: 9, 3: 7})
    assert isinstance(verdict, Blocked)


def test_an_unsynchronised_one_goes_whatever_others_do() -> None:
    view = View(THREE.version, THREE.members, THREE.master, (1, 2), since=THREE.since)
    verdicts = Disks(view).run(60, {2: 7, 3: 7})
    assert [type(verdict) for verdict in verdicts] == [Blocked, Evict]


def test_the_own_disk_stands_still_while_the_others_get_on() -> None:
    disks = SlowDisks()
    held = DiskState(8, 9, 9, 7, is_own_enough=False)
    assert [disks.own_stuck_s(held, now) for now in (100.0, 105.0)] == [0.0, 5.0]
    assert disks.own_stuck_s(held._replace(mark=7), 106.0) == 0.0, "so do the others"
    assert disks.own_stuck_s(held, 112.0) == 12.0
    assert disks.own_stuck_s(held._replace(own=8), 113.0) == 0.0
    assert disks.own_stuck_s(held, 114.0) == 0.0
