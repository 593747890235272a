"""The view of a mirrored queue knows its members and what their nodes have on disk; reliability §4.1, §4.10.

How views change: `tests.node.catalogue.mirrors.test_views`.
"""

from node.catalogue.mirrors.views import (
    EraseMirror,
    GiveUp,
    OfferCopy,
    View,
    ViewChange,
    changed,
    created,
    died,
)

A, B, C = "abc"


def after(view: View, *changes: ViewChange) -> View:
    for change in changes:
        found = changed(view, change)
        assert found is not None, change
        view = found
    return view


def wanted(view: View, first: View) -> list[str]:
    """The nodes whose copies of the first view are to stay on disk."""
    return [member.node for member in first.members if view.wants(member)]


def test_what_a_member_has_on_disk_is_wanted_until_others_confirm_without_it() -> None:
    """A dead mirror's copy may be what the queue comes back from, until it is erased."""
    first = created(0, [(A, 1), (B, 2), (C, 3)])
    dead = died(first, (2,), may_lose=False)
    assert (dead.has(2), dead.has(3), dead.has(4)) == (False, True, False)
    assert wanted(dead, first) == [A, B, C]
    assert wanted(after(dead, EraseMirror(2, 3)), first) == [A, C]


def test_what_is_of_no_use_is_not_wanted() -> None:
    first = created(0, [(A, 1), (B, 2), (C, 3)])
    assert wanted(after(first, GiveUp(2)), first) == [A, C]


def test_all_that_may_bring_a_queue_back_is_wanted() -> None:
    """All copies that may bring the queue back are wanted, also that of a node that learns of its own death there."""
    first = created(0, [(A, 1), (B, 2)], copy=0)
    down = died(died(first, (2,), may_lose=False), (1,), may_lose=False)
    assert (down.state, down.members, down.recoverable, down.copies) == ("down", (), (A, B), (0, 2))
    assert wanted(down, first) == [A, B]
    live = after(down, OfferCopy(A, 3, 9, True), OfferCopy(B, 4, 9, True))
    assert live.kept == ((B, 2),)
    assert wanted(live, first) == [A, B], "the one that was taken, and the one that was kept"
