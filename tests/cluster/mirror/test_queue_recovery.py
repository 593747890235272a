"""QueueRecovery: reliability §4.10, W10."""

from dataclasses import replace

from cluster.mirror.proposals import OUTSTANDING_MAX, Proposal
from cluster.mirror.queue_recovery import QueueRecovery
from node.catalogue.mirrors.views import (
    ActivateMirror,
    AddMirror,
    MirrorSynced,
    OfferCopy,
    Revive,
    View,
    changed,
    created,
    died,
    forgotten,
)
from node.catalogue.records import QueueRecord
from tests.cluster.mirror.reconciler_world import queue

DOWN = died(created(0, [("a", 1), ("b", 2), ("c", 3)]), [1, 2, 3], may_lose=False)
DOWN_OF_FOUR = died(created(0, [("a", 1), ("b", 2), ("c", 3), ("d", 4)]), [1, 2, 3, 4], may_lose=False)


def _down(name: str = "q", view: View = DOWN) -> QueueRecord:
    return replace(queue(name), view=view, ring_version=view.version)


def _offered(view: View, *offers: tuple[str, int, int], is_clean: bool = True) -> View:
    for offer in offers:
        after = changed(view, OfferCopy(*offer, is_clean))
        assert after is not None
        view = after
    return view


A, B = 1, 2
"""The copies of these nodes."""


def _changes(proposals: list[Proposal]) -> list[object]:
    return [each.change for each in proposals]


def test_a_copy_is_offered_until_the_view_shows_it() -> None:
    recovery = QueueRecovery("b", 5)
    recovery.recovered(_down(), B, 70, 0.0)
    assert recovery.next_look(0.0) == 0.0
    assert _changes(recovery.look(0.0)) == [OfferCopy("b", 5, 70, True)]
    assert recovery.look(0.5) == []
    assert _changes(recovery.look(1.0)) == [OfferCopy("b", 5, 70, True)]
    assert recovery.see(_down(view=_offered(DOWN, ("b", 5, 70))), 1.1)
    assert recovery.look(1.1) == []
    assert recovery.next_look(1.1) == 31.1


def test_the_others_are_waited_for_30_s() -> None:
    recovery = QueueRecovery("b", 5)
    recovery.recovered(_down(), B, 70, 0.0)
    view = _offered(DOWN, ("b", 5, 70))
    recovery.see(_down(view=view), 1.0)
    assert recovery.look(30.9) == []
    assert _changes(recovery.look(31.0)) == [Revive(view.version)]
    after = changed(view, Revive(view.version))
    assert after is not None
    assert not recovery.see(_down(view=after), 31.1), "our copy is not offered any more"
    assert after.master_node == "b"
    assert recovery.next_look(31.1) is None


def test_others_offers_do_not_make_it_longer_and_the_version_follows() -> None:
    recovery = QueueRecovery("b", 5)
    recovery.recovered(_down(), B, 70, 0.0)
    recovery.see(_down(view=_offered(DOWN, ("b", 5, 70))), 1.0)
    view = _offered(DOWN_OF_FOUR, ("b", 5, 70), ("c", 6, 80))
    recovery.see(_down(view=view), 20.0)
    assert _changes(recovery.look(31.0)) == [Revive(view.version)]


def test_the_time_begins_anew_when_all_offers_are_withdrawn() -> None:
    recovery = QueueRecovery("b", 5)
    view = _offered(DOWN, ("c", 6, 80))
    recovery.recovered(_down(view=view), B, 70, 0.0)
    recovery.look(0.0)
    recovery.see(_down(), 10.0)
    recovery.look(10.0)
    recovery.see(_down(view=_offered(DOWN, ("b", 5, 70))), 12.0)
    assert recovery.look(41.9) == []
    assert len(recovery.look(42.0)) == 1


def test_the_last_masters_own_node_waits_for_the_others_too() -> None:
    recovery = QueueRecovery("a", 5)
    recovery.recovered(_down(), A, 70, 0.0)
    (proposal,) = recovery.look(0.0)
    assert isinstance(proposal.change, OfferCopy)
    after = changed(DOWN, proposal.change)
    assert after is not None
    assert after.state == "down"
    recovery.see(_down(view=after), 0.1)
    assert _changes(recovery.look(30.1)) == [Revive(after.version)]
    after = changed(after, Revive(after.version))
    assert after is not None
    assert after.master_node == "a"
    assert not recovery.see(_down(view=after), 30.2), "it is taken"


def test_a_copy_that_has_lost_something_is_not_taken_while_another_may_come() -> None:
    recovery = QueueRecovery("b", 5)
    recovery.recovered(_down(), B, 70, 0.0, is_clean=False)
    assert _changes(recovery.look(0.0)) == [OfferCopy("b", 5, 70, False)]
    view = _offered(DOWN, ("b", 5, 70), is_clean=False)
    recovery.see(_down(view=view), 1.0)
    assert recovery.look(31.0) == []
    assert recovery.next_look(31.0) is None
    view = _offered(view, ("c", 6, 60))
    recovery.see(_down(view=view), 40.0)
    assert _changes(recovery.look(40.0)) == [Revive(view.version)], "they have waited long enough"
    after = changed(view, Revive(view.version))
    assert after is not None
    assert after.master_node == "c"


def test_a_copy_that_was_not_taken_is_offered_when_the_one_that_was_is_forgotten() -> None:
    recovery = QueueRecovery("b", 5)
    recovery.recovered(_down(), B, 70, 0.0)
    view = _offered(DOWN, ("b", 5, 70), ("c", 6, 80))
    revived = changed(view, Revive(view.version))
    assert revived is not None
    assert revived.master_node == "c"
    assert recovery.see(_down(view=revived), 40.0), "it is kept"
    assert recovery.look(40.0) == []
    down = died(revived, [revived.master], may_lose=False)
    assert recovery.see(_down(view=down), 41.0)
    assert recovery.look(100.0) == [], "the other one has what was confirmed since"
    left = forgotten(down, "c")
    assert left is not None
    recovery.see(_down(view=left), 101.0)
    assert _changes(recovery.look(101.0)) == [OfferCopy("b", 5, 70, True)]


def test_a_copy_that_was_not_taken_goes_when_there_is_a_synchronised_mirror() -> None:
    recovery = QueueRecovery("b", 5)
    recovery.recovered(_down(), B, 70, 0.0)
    view = _offered(DOWN, ("b", 5, 70), ("c", 6, 80))
    for change in (Revive(view.version), AddMirror("b", 5), ActivateMirror(view.version + 2)):
        after = changed(view, change)
        assert after is not None, change
        view = after
        assert recovery.see(_down(view=view), 40.0), "the new one lacks everything"
    after = changed(view, MirrorSynced(view.members[-1].id))
    assert after is not None
    assert not recovery.see(_down(view=after), 41.0)


def test_a_queue_that_lives_or_waits_for_others_is_not_offered() -> None:
    recovery = QueueRecovery("z", 5)
    recovery.recovered(_down(), B, 70, 0.0)
    assert recovery.look(0.0) == []
    recovery = QueueRecovery("a", 5)
    recovery.recovered(_down(view=created(0, [("b", 1)])), B, 70, 0.0)
    assert recovery.look(0.0) == []
    assert recovery.see(_down("other"), 0.0)
    recovery.recovered(_down(), B, 70, 0.0)
    recovery.forget("uid-q")
    assert recovery.look(0.0) == []


def test_only_the_only_synchronised_copy_may_revive() -> None:
    """S12: all mirrors were dropped, the master alone confirmed and died: only its disk counts."""
    view = created(0, [("a", 1), ("b", 2)])
    alone = died(view, [2], may_lose=False)
    after = changed(alone, _erase(alone))
    assert after is not None
    down = died(after, [1], may_lose=False)
    assert (down.state, down.recoverable) == ("down", ("a",))
    recovery = QueueRecovery("b", 5)
    recovery.recovered(_down(view=down), B, 70, 0.0)
    assert recovery.look(100.0) == []


def _erase(view: View):  # type: ignore[no-untyped-def]
    from node.catalogue.mirrors.views import EraseMirror

    return EraseMirror(2, view.owner_of(2))


def test_ten_thousand_at_a_restart() -> None:
    recovery = QueueRecovery("b", 5)
    for at in range(10_000):
        recovery.recovered(_down(f"q{at}"), B, 1, 0.0)
    made = recovery.look(0.0) + recovery.look(0.0)
    assert len(made) == OUTSTANDING_MAX
    rounds, now = 0, 0.0
    while made:
        for proposal in made:
            assert isinstance(proposal.change, OfferCopy)
            recovery.see(_down(proposal.name, _offered(DOWN, ("b", 5, 1))), now)
        rounds, now = rounds + 1, now + 0.01
        made = recovery.look(now)
        while not made and recovery.next_look(now) == now:
            made = recovery.look(now)
    assert rounds == 10_000 // OUTSTANDING_MAX
    time = recovery.next_look(now)
    assert time is not None
    assert 30.0 <= time <= now + 30.0
