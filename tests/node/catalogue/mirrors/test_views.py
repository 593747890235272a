"""The views of mirrored queues (reliability §4.1, §4.6, §4.7, §4.10)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.catalogue.mirrors.views import (
    ActivateMirror,
    AddMirror,
    DeclineMaster,
    DropMirror,
    EraseMirror,
    GiveUp,
    MirrorSynced,
    OfferCopy,
    Revive,
    TookOver,
    TransferMaster,
    Unmirror,
    View,
    ViewChange,
    changed,
    created,
    died,
    forgotten,
    is_there,
    stored_uid,
    withdrawn,
)

A, B, C, D = "a@host", "b@host", "c@host", "d@host"


def three() -> View:
    """Members 1, 2, 3 on A, B, C, as incarnations 1, 2, 3; 1 is master."""
    return created(0, [(A, 1), (B, 2), (C, 3)])


def after(view: View, *changes: ViewChange) -> View:
    """The view after changes that can be."""
    for change in changes:
        next_view = changed(view, change)
        assert next_view is not None, (change, view)
        assert next_view.version == view.version + 1
        assert changed(next_view, change) is None, "asked for again it does no harm"
        view = next_view
    return view


def ids(view: View) -> list[int]:
    return [member.id for member in view.members]


def edges(view: View) -> dict[int, int]:
    return {member.id: member.edge for member in view.ring}


def killed(view: View, *members: int, may_lose: bool = False) -> View:
    for member in members:
        view = died(view, (member,), may_lose=may_lose)
    return view


# --- join and leave ---------------------------------------------------------------------------------------


def test_a_new_queue() -> None:
    """§4.1 create: all alive and synchronised, as there is nothing to have."""
    view = three()
    assert (view.version, view.master, view.synced, view.state, view.since) == (3, 1, (1, 2, 3), "live", 3)
    assert [(m.node, m.incarnation, m.status, m.edge) for m in view.members] == [
        (A, 1, "alive", 3),
        (B, 2, "alive", 3),
        (C, 3, "alive", 3),
    ]
    assert [view.left_of(id_) for id_ in (1, 2, 3)] == [3, 1, 2]
    assert [view.right_of(id_) for id_ in (1, 2, 3)] == [2, 3, 1]
    assert view.master_node == A
    member = view.member_on(B)
    assert member is not None
    assert member.id == 2
    assert view.member_on(D) is None


def test_a_queue_that_is_mirrored_again_has_other_ids() -> None:
    assert ids(created(7, [(A, 1), (B, 2)])) == [8, 9]


def test_alone() -> None:
    """A ring of one: its own neighbour on both sides."""
    view = created(0, [(A, 1)])
    assert (view.left_of(1), view.right_of(1), view.owner_of(1)) == (1, 1, 1)


def test_join() -> None:
    """§4.1 add, activate, synced: at the tail, left of the master; only whose left is another has a new edge."""
    view = after(three(), AddMirror(D, 4))
    assert ids(view) == [1, 2, 3, 4]
    assert edges(view) == {1: 4, 2: 3, 3: 3, 4: 4}
    assert view.synced == (1, 2, 3)
    assert view.owner_of(4) == 1, "it has said nothing yet"
    assert changed(view, MirrorSynced(4)) is None, "it knows nothing yet"
    view = after(view, ActivateMirror(4), MirrorSynced(4))
    assert view.synced == (1, 2, 3, 4)
    assert edges(view) == {1: 4, 2: 3, 3: 3, 4: 4}


def test_two_copies_on_a_node() -> None:
    """W5: there is never more than one."""
    assert changed(three(), AddMirror(B, 2)) is None
    assert changed(three(), AddMirror(B, 9)) is None


def test_a_joiner_whose_left_neighbour_dies() -> None:
    """S2: it goes in the same change, and never comes back under this id."""
    view = killed(after(three(), AddMirror(D, 4)), 3)
    assert [(member.id, member.status) for member in view.members] == [
        (1, "alive"),
        (2, "alive"),
        (3, "dead"),
    ]
    assert changed(view, ActivateMirror(4)) is None
    assert ids(after(view, AddMirror(D, 4))) == [1, 2, 6, 3], "another member"


def test_an_adjacency_that_was_interrupted_has_a_new_edge() -> None:
    """S3: 3 is left of 1 before and after, but what it sent in between is lost."""
    joined = after(three(), AddMirror(D, 4))
    left = after(joined, DropMirror(4))
    assert ids(left) == [1, 2, 3]
    assert edges(left) == {1: 5, 2: 3, 3: 3}


def test_a_ring_of_two() -> None:
    """S17: left is right; the edges tell who came when."""
    view = created(0, [(A, 1), (B, 2)])
    assert (view.left_of(1), view.right_of(1)) == (2, 2)
    assert edges(killed(view, 2)) == {1: 3}


def test_a_drop() -> None:
    """§4.1 evict: dead until its owner, the next that is alive, says that all it had to say has gone round."""
    view = after(three(), DropMirror(2))
    assert [(member.id, member.status) for member in view.members] == [
        (1, "alive"),
        (2, "dead"),
        (3, "alive"),
    ]
    assert edges(view) == {1: 3, 3: 4}
    assert view.owner_of(2) == 3
    assert changed(view, EraseMirror(2, 1)) is None
    assert changed(view, EraseMirror(3, 3)) is None, "not dead"
    view = after(view, EraseMirror(2, 3))
    assert ids(view) == [1, 3]
    assert edges(view) == {1: 3, 3: 4}
    assert view.synced == (1, 3)


def test_a_former_owner_cannot_erase() -> None:
    """S14: 2 dies, 3 owns it, dies too: the master owns both."""
    view = killed(three(), 2, 3)
    assert changed(view, EraseMirror(2, 3)) is None
    assert ids(after(view, EraseMirror(2, 1), EraseMirror(3, 1))) == [1]


def test_the_master_is_not_dropped() -> None:
    assert changed(three(), DropMirror(1)) is None


def test_a_newcomer_never_comes_to_own_who_died_before_it_knew_anything() -> None:
    """The master owns what stands left of it; a newcomer is put on the other side of that (§4.7 S2)."""
    view = killed(after(three(), TransferMaster(1, 2), TookOver(4)), 1)
    assert view.owner_of(1) == 2
    view = after(view, AddMirror(D, 4))
    assert ids(view) == [7, 1, 2, 3]
    assert view.left_of(2) == 7
    assert after(view, ActivateMirror(7)).owner_of(1) == 2
    tail = after(killed(three(), 3), AddMirror(D, 4))
    assert ids(tail) == [1, 2, 5, 3]
    assert after(tail, ActivateMirror(5)).owner_of(3) == 1


def test_a_node_does_not_get_another_copy_while_its_last_one_may_still_count() -> None:
    """A dead synchronised copy may be what brings the queue back until it is erased, so its node gets no other."""
    view = killed(three(), 3)
    assert changed(view, AddMirror(C, 9)) is None
    assert ids(after(view, EraseMirror(3, 1), AddMirror(C, 9))) == [1, 2, 6]


def test_another_copy_on_a_node_has_another_name_on_its_disk() -> None:
    """A new copy takes up nothing of one that was given up; a node that brings a queue back goes on with its own."""
    view = after(killed(three(), 3), EraseMirror(3, 1), AddMirror(C, 9))
    assert [(member.node, member.copy) for member in view.members] == [(A, 1), (B, 2), (C, 6)]
    view = killed(view, 1, 2)
    assert (view.recoverable, view.copies) == ((A, B), (1, 2))
    back = after(view, OfferCopy(A, 10, 1))
    assert [(member.node, member.copy) for member in back.members] == [(A, 1)]
    uid = "0" * 32
    names = {stored_uid(uid, copy) for copy in (0, 1, 2)}
    assert uid in names
    assert len(names) == 3
    assert all(len(bytes.fromhex(name)) == 16 for name in names), "formats on disk count on that"


# --- promotion --------------------------------------------------------------------------------------------


def test_the_master_dies() -> None:
    """§4.6: nobody is master until all it had to say has gone round, then the first synchronised one is."""
    view = killed(three(), 1)
    assert (view.state, view.master, view.master_node, view.recoverable) == ("flushing", 0, None, (A, B, C))
    assert view.owner_of(1) == 2
    assert changed(view, AddMirror(D, 4)) is None
    view = after(view, EraseMirror(1, 2))
    assert (view.state, view.master, view.since, view.synced) == ("live", 2, 5, (2, 3))
    assert view.recoverable == ()


def test_who_inherits_dies_too() -> None:
    """S5: 2 was to see to 1; 3 sees to both."""
    view = killed(three(), 1, 2)
    assert view.owner_of(1) == view.owner_of(2) == 3
    view = after(view, EraseMirror(1, 3))
    assert view.state == "flushing"
    view = after(view, EraseMirror(2, 3))
    assert (view.state, view.master) == ("live", 3)


def with_unsynchronised() -> View:
    """1 is master, 3 and then 5 came later and have not all it has."""
    return after(created(0, [(A, 1)]), AddMirror(B, 2), ActivateMirror(2), AddMirror(C, 3), ActivateMirror(4))


def test_promote_on_failure_when_synced() -> None:
    """§2.2 promote_on_failure: L1: an unsynchronised copy is not promoted: the queue waits for A."""
    view = after(killed(with_unsynchronised(), 1), EraseMirror(1, 2))
    assert (view.state, view.members, view.recoverable) == ("down", (), (A,))


def test_promote_on_failure_always() -> None:
    """§2.2 promote_on_failure, §4.6 step 4: who joined first has all that later ones have."""
    view = after(killed(with_unsynchronised(), 1, may_lose=True), EraseMirror(1, 2))
    assert (view.state, view.master, view.synced) == ("live", 2, (2,))


def test_always_still_prefers_a_synchronised_copy() -> None:
    view = after(with_unsynchronised(), MirrorSynced(4))
    assert after(killed(view, 1, may_lose=True), EraseMirror(1, 2)).master == 4


def test_synchronised_while_flushing() -> None:
    """S13: it has all that the dead master had, or will have it when it has gone round."""
    view = after(killed(with_unsynchronised(), 1), MirrorSynced(4), EraseMirror(1, 2))
    assert (view.state, view.master, view.synced) == ("live", 4, (4,))


def test_no_copy_is_given_up_while_there_is_no_master() -> None:
    """A mirror is not dropped at the wish of a master that has died."""
    assert changed(killed(three(), 1), DropMirror(2)) is None


# --- transfer ---------------------------------------------------------------------------------------------


def test_transfer() -> None:
    """L2: one change; the ring stays as it is. The new master waits for the old one's last word."""
    view = after(three(), TransferMaster(1, 3))
    assert (view.master, view.previous, view.since, view.state) == (3, 1, 4, "live")
    assert ids(view) == [1, 2, 3]
    assert edges(view) == {1: 3, 2: 3, 3: 3}
    for change in (TransferMaster(3, 2), AddMirror(D, 4), TookOver(3)):
        assert changed(view, change) is None
    view = after(view, TookOver(4))
    assert (view.master, view.previous, view.since) == (3, 0, 4)


def test_took_over_comes_too_late() -> None:
    """TookOver speaks of one mastership: a late proposal says nothing of a later one of the same member."""
    view = after(three(), TransferMaster(1, 3))
    late = TookOver(view.since)
    view = after(view, late, TransferMaster(3, 1))
    view = after(view, TookOver(view.since), TransferMaster(1, 3))
    assert (view.master, view.previous) == (3, 1)
    assert changed(view, late) is None
    assert after(view, TookOver(view.since)).previous == 0


def test_transfer_to_who_must_not_be_master() -> None:
    """To itself, to one that is not synchronised, that is dead or unknown; by one that is not master."""
    view = with_unsynchronised()
    for change in (TransferMaster(1, 1), TransferMaster(1, 2), TransferMaster(1, 9)):
        assert changed(view, change) is None
    assert changed(three(), TransferMaster(2, 3)) is None
    assert changed(killed(three(), 2), TransferMaster(1, 2)) is None


def test_who_handed_over_dies() -> None:
    """A master that handed over and died is erased once all have heard its last word."""
    view = killed(after(three(), TransferMaster(1, 2)), 1)
    assert (view.master, view.previous, view.state) == (2, 1, "live")
    view = after(view, EraseMirror(1, 2))
    assert (view.master, view.previous) == (2, 0)
    assert changed(view, TookOver(view.since)) is None


def test_who_took_over_dies() -> None:
    """The one that handed over is master again and waits for nobody; another one waits for it."""
    view = killed(after(three(), TransferMaster(1, 2)), 2)
    again = after(view, EraseMirror(2, 3))
    assert (again.master, again.previous, again.state) == (1, 0, "live")
    view = after(three(), TransferMaster(1, 3), DropMirror(1))
    view = after(killed(view, 3), EraseMirror(1, 2), EraseMirror(3, 2))
    assert (view.master, view.previous, view.state) == (2, 0, "live")


# --- down and back ----------------------------------------------------------------------------------------


def test_the_only_copy() -> None:
    """S12: only that node's disk may bring the queue back."""
    view = killed(created(0, [(A, 1)]), 1)
    assert (view.state, view.members, view.recoverable) == ("down", (), (A,))
    assert changed(view, OfferCopy(B, 2, 5)) is None
    back = after(view, OfferCopy(A, 4, 5))
    assert (back.state, back.master_node, back.recoverable, back.offers) == ("live", A, (), ())
    assert back.master == back.since == back.version
    assert [(m.incarnation, m.edge) for m in back.members] == [(4, back.version)]


def test_shut_down_one_by_one() -> None:
    """§4.10 a: only the last master has all; once erased the others don't count."""
    view = after(killed(three(), 2), EraseMirror(2, 3))
    view = after(killed(view, 3), EraseMirror(3, 1))
    assert killed(view, 1).recoverable == (A,)


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 3, 1), (3, 1, 2), (2, 1, 3)])
def test_all_at_once(order: tuple[int, ...]) -> None:
    """§4.10 b: in whatever order it becomes known: each has all that was confirmed, the master is preferred."""
    view = killed(three(), *order)
    assert (view.state, view.recoverable) == ("down", (A, B, C))


def all_down() -> View:
    return killed(three(), 1, 2, 3)


def test_an_older_version_took_the_last_master_at_once() -> None:
    """The log of an older version leads to the state that it led to then: the last master was taken, nothing kept."""
    view = after(all_down(), OfferCopy(B, 5, 100))
    assert view.state == "down"
    assert after(view, OfferCopy(A, 6, 9)).master_node == A


def test_others_are_taken_after_a_while() -> None:
    """§4.10: the one with the most, then who stands first."""
    view = after(all_down(), OfferCopy(C, 5, 100), OfferCopy(B, 6, 100))
    assert changed(view, Revive(view.version - 1)) is None, "there is another offer now"
    assert after(view, Revive(view.version)).master_node == B
    view = after(view, OfferCopy(C, 5, 101))
    assert after(view, Revive(view.version)).master_node == C
    assert changed(all_down(), Revive(all_down().version)) is None, "nobody is there"


def test_the_best_one_is_taken_when_all_have_offered() -> None:
    """The most first, then who stands first; the last master has no precedence."""
    view = after(all_down(), OfferCopy(A, 6, 99, True), OfferCopy(B, 5, 100, True))
    assert view.state == "down"
    assert after(view, OfferCopy(C, 7, 100, True)).master_node == B
    assert after(view, OfferCopy(C, 7, 101, True)).master_node == C


def test_a_copy_that_has_lost_something_comes_last() -> None:
    """However much it has; of several of them the best."""
    view = after(all_down(), OfferCopy(A, 6, 300, False), OfferCopy(B, 5, 200, False))
    assert changed(view, Revive(view.version)) is None, "the third may have all"
    assert after(view, OfferCopy(C, 7, 1, True)).master_node == C
    lossy = after(view, OfferCopy(C, 7, 1, False))
    assert (lossy.master_node, lossy.judged) == (A, ((A, False),))
    without = forgotten(view, C)
    assert without is not None
    assert without.master_node == A
    again = after(view, OfferCopy(B, 5, 200, True))
    assert again.version == view.version + 1, "it says something else now"
    assert after(again, Revive(again.version)).master_node == B


def kept_beside_a() -> View:
    """Return the view that went on with the copy of A; those of B and C are still there."""
    view = after(all_down(), *(OfferCopy(node, 5, 9, True) for node in (A, B, C)))
    assert (view.master_node, view.kept) == (A, ((B, 2), (C, 3)))
    return view


def test_the_others_keep_theirs_until_a_mirror_is_synchronised() -> None:
    view = kept_beside_a()
    assert [view.copy_to_keep(node) for node in (A, B, C, D)] == [1, 2, 3, None]
    view = after(view, AddMirror(B, 7))
    new = view.version
    view = after(view, ActivateMirror(new))
    assert [view.copy_to_keep(node) for node in (A, B, C)] == [1, 2, 3]
    view = after(view, MirrorSynced(new))
    assert [view.copy_to_keep(node) for node in (A, B, C)] == [1, new, None]


def test_below_which_number_the_others_have_the_same_messages() -> None:
    """Copies agree below the end of the copy that was taken; later numbers may stand for other messages."""
    view = kept_beside_a()
    assert view.common == 9
    again = after(killed(view, view.master), OfferCopy(A, 8, 20, True))
    assert (again.kept, again.common) == (view.kept, 9)
    less = after(killed(view, view.master), OfferCopy(A, 8, 5, False))
    assert less.common == 5
    new = again.version + 1
    synced = after(again, AddMirror(B, 7), ActivateMirror(new), MirrorSynced(new))
    assert (synced.kept, synced.common) == ((), 0)
    alone = after(killed(created(0, [(A, 1)]), 1), OfferCopy(A, 8, 5, True))
    assert alone.common == 0, "there are no others"
    older = replace(view, common=0)
    assert after(killed(older, older.master), OfferCopy(A, 8, 20, True)).common == 0, "nobody knows"


def test_the_others_count_again_when_the_only_copy_is_forgotten() -> None:
    """Not before: it may have what was confirmed since."""
    view = kept_beside_a()
    down = killed(view, view.master)
    assert (down.state, down.recoverable) == ("down", (A,))
    assert changed(down, OfferCopy(B, 8, 9, True)) is None
    assert after(down, OfferCopy(A, 8, 9, True)).kept == view.kept
    without_c = forgotten(down, C)
    assert without_c is not None
    assert (without_c.recoverable, without_c.kept) == ((A,), ((B, 2),))
    left = forgotten(without_c, A)
    assert left is not None
    assert (left.state, left.recoverable, left.copies, left.kept) == ("down", (B,), (2,), ())
    assert after(left, OfferCopy(B, 8, 9, True)).members[0].copy == 2
    nobody = forgotten(left, B)
    assert nobody is not None
    assert nobody.recoverable == ()


def test_who_offered_goes_down_again() -> None:
    view = after(all_down(), OfferCopy(C, 5, 100))
    without = withdrawn(view, C)
    assert without is not None
    assert (without.offers, without.version) == ((), view.version + 1)
    assert withdrawn(without, C) is None


def test_forget_promotes_offline_follower() -> None:
    """§2.5: the last master's node is forgotten: the others need not wait for it."""
    view = forgotten(all_down(), A)
    assert view is not None
    assert view.recoverable == (B, C)
    assert forgotten(view, A) is None
    waiting = after(all_down(), OfferCopy(C, 5, 9), OfferCopy(B, 6, 10))
    revived = forgotten(waiting, A)
    assert revived is not None
    assert (revived.state, revived.master_node, revived.version) == ("live", B, waiting.version + 1)


def test_forget_a_mirror_that_died_before_the_master() -> None:
    """A mirror that died before the master is not waited for, though it had all when it died."""
    view = forgotten(killed(three(), 2), B)
    assert view is not None
    assert view.synced == (1, 3)
    assert killed(view, 1).recoverable == (A, C)
    assert forgotten(view, B) is None


def test_unmirror() -> None:
    """Only the master alone, without anybody that is still to be heard."""
    assert changed(three(), Unmirror(1)) is None
    alone = created(0, [(A, 1)])
    assert changed(alone, Unmirror(1)) is alone
    assert changed(alone, Unmirror(2)) is None
    assert changed(alone, Unmirror(1, alone.version)) is alone
    assert changed(alone, Unmirror(1, alone.version + 1)) is None, (
        "it may be master once more, and have not begun"
    )
    pair = killed(created(0, [(A, 1), (B, 2)]), 2)
    assert changed(pair, Unmirror(1)) is None
    assert changed(after(pair, EraseMirror(2, 1)), Unmirror(1)) is not None
    flushing = killed(created(0, [(A, 1), (B, 2)]), 1)
    assert changed(flushing, Unmirror(0)) is None
    assert changed(replace(flushing, previous=2), TookOver(flushing.since)) is None


# --- any changes in any order -----------------------------------------------------------------------------

NODES = (A, B, C, D, "e@host")


class History:
    """A queue's views, each checked against the one before."""

    def __init__(self, nodes: int) -> None:
        self.view = created(0, [(node, 1 + at) for at, node in enumerate(NODES[:nodes])])
        self.incarnation = nodes
        self.ever = set(ids(self.view))

    def see(self, view: View, *, given_up: int = 0) -> None:
        """Check the invariants of each step from one view to the next."""
        before, self.view = self.view, view
        assert view.version == before.version + 1
        check_members(before, view, self.ever)
        check_edges(before, view)
        check_owners(before, view)
        check_master(before, view, given_up)
        self.ever.update(ids(view))

    def try_change(self, change: ViewChange) -> None:
        """Ask for a change, and for the same again."""
        view = changed(self.view, change)
        if view is None:
            return
        if isinstance(change, Unmirror):
            assert view is self.view
            assert len(view.members) == 1
            return
        self.see(view, given_up=change.member if isinstance(change, GiveUp) else 0)
        assert changed(view, change) is None


def check_members(before: View, view: View, ever: set[int]) -> None:
    """Check that members go from joining to alive to dead, that no id comes back, and that a node has one at most."""
    known = {member.id: member for member in before.members}
    steps = {("joining", "alive"), ("alive", "dead")}
    for member in view.members:
        old = known.get(member.id)
        if old is None:
            assert member.id not in ever
            assert member.id > max(ever)
            assert member.status == ("joining" if before.state == "live" else "alive")
        else:
            assert (old.node, old.incarnation) == (member.node, member.incarnation)
            assert old.status == member.status or (old.status, member.status) in steps
    nodes = [member.node for member in view.ring]
    assert len(nodes) == len(set(nodes))
    gone = [known[id_] for id_ in known.keys() - set(ids(view))]
    assert view.state == "down" or all(member.status != "alive" for member in gone)


def check_edges(before: View, view: View) -> None:
    """A member has a new edge if and only if it has another left neighbour than in the view before."""
    was = {member.id: member for member in before.ring}
    for member in view.ring:
        old = was.get(member.id)
        if old is not None and before.left_of(member.id) == view.left_of(member.id):
            assert member.edge == old.edge
        else:
            assert member.edge == view.version


def check_owners(before: View, view: View) -> None:
    """Each origin has exactly one owner, who is alive, and keeps it until that one dies."""
    alive = {member.id for member in view.ring if member.status == "alive"}
    kept = set(ids(before)) & set(ids(view))
    for member in view.members:
        owner = view.owner_of(member.id)
        assert owner in alive
        if member.status == "alive":
            assert owner == member.id
        if member.status == "dead" and member.id in kept and before.owner_of(member.id) in alive:
            assert owner == before.owner_of(member.id)


def check_master(before: View, view: View, given_up: int) -> None:
    """Check that a master is alive and synchronised, and was so before unless the policy gave leave.

    given_up: the member whose copy is dropped by its own wish; 0: none.
    """
    alive = {member.id for member in view.ring if member.status == "alive"}
    dead = {member.id for member in view.members if not is_there(member)}
    match view.state:
        case "live":
            assert view.master in alive & set(view.synced)
            assert set(view.synced) <= alive | dead
            assert view.recoverable == view.offers == ()
            assert view.previous in {0, *ids(view)}
            assert view.previous != view.master
        case "flushing":
            assert view.master == 0
            assert alive
            assert dead
        case "down":
            assert view.master == 0
            assert not view.members
            assert {offer[0] for offer in view.offers} <= set(view.recoverable)
            assert {node for node, _ in view.judged} <= {offer[0] for offer in view.offers}
    if set(view.synced) - set(before.synced) and view.state == before.state:
        assert view.kept == ()
    elif view.state != "live" or before.state == "live":
        assert set(view.kept) <= set(before.kept)
    moved = view.master not in (0, before.master)
    assert (view.since == view.version) is moved
    if moved and before.state != "down":
        assert view.master in before.synced or (before.may_lose and not alive & set(before.synced))
    if moved and before.state == "down":
        master = view.members[0]
        assert master.copy == before.copies[before.recoverable.index(master.node)]
    assert len(view.copies) == len(view.recoverable)
    if before.state == "live" and view.state != "live":
        good = {member for member in before.members if member.id in before.synced and member.id != given_up}
        copies = {(member.node, member.copy) for member in good}
        assert set(zip(view.recoverable, view.copies, strict=True)) == copies
        assert view.recoverable[0] == before.master_node or given_up == before.master


changes = st.tuples(st.integers(0, 13), st.integers(0, 4), st.integers(0, 4), st.booleans())


def step(history: History, kind: int, one: int, two: int, flag: bool) -> None:
    """Something that may happen, whether or not it fits."""
    view = history.view
    known = [0, *ids(view)]
    first, second = known[one % len(known)], known[two % len(known)]
    node = NODES[one]
    match kind:
        case 0 | 1:
            history.incarnation += 1
            history.try_change(AddMirror(node, history.incarnation))
        case 2:
            history.try_change(ActivateMirror(first))
        case 3:
            history.try_change(MirrorSynced(first))
        case 4:
            history.try_change(DropMirror(first, view.version if flag else 0))
        case 5:
            history.try_change(EraseMirror(first, view.owner_of(first) if first and flag else second))
        case 6:
            history.try_change(TransferMaster(view.master if flag else first, second))
        case 7:
            history.try_change(TookOver(view.since if flag else first))
        case 8:
            there = [member.id for member in view.ring]
            if there:
                history.see(died(view, (there[one % len(there)],), may_lose=flag))
        case 9:
            history.incarnation += 1
            history.try_change(OfferCopy(node, history.incarnation, two, (None, True, False)[one % 3]))
        case 12:
            history.try_change(GiveUp(first))
        case 13:
            history.try_change(DeclineMaster(view.master, view.since if flag else first))
        case 10:
            history.try_change(Revive(view.version - (0 if flag else one)))
        case _:
            history.try_change(Unmirror(first))
            gone = withdrawn(view, node) if flag else None
            if gone is None and len(view.recoverable) > 1:
                gone = forgotten(view, node)
            if gone is not None:
                history.see(gone)


@settings(max_examples=400, deadline=None)
@given(st.integers(1, 4), st.lists(changes, max_size=60))
def test_whatever_happens(nodes: int, steps: list[tuple[int, int, int, bool]]) -> None:
    """Versions, ids, edges, owners, masters: after each step of any history."""
    history = History(nodes)
    for each in steps:
        step(history, *each)


# --- copies that are of no use ----------------------------------------------------------------------------


def test_who_gives_up_leaves_nothing_to_come_back_from() -> None:
    """The copy of a mirror that gives up is dropped: nobody waits for it, even if the master dies before that."""
    view = after(three(), GiveUp(2))
    assert [(member.id, member.status) for member in view.members] == [
        (1, "alive"),
        (2, "dead"),
        (3, "alive"),
    ]
    assert view.synced == (1, 3)
    assert view.copy_to_keep(B) is None
    assert killed(view, 1).recoverable == (A, C)
    assert changed(view, GiveUp(2)) is None


def test_a_master_gives_up_as_if_it_had_died() -> None:
    view = after(three(), GiveUp(1))
    assert (view.state, view.master, view.recoverable) == ("flushing", 0, (B, C))
    assert view.owner_of(1) == 2
    view = after(view, EraseMirror(1, 2))
    assert (view.state, view.master, view.synced) == ("live", 2, (2, 3))


def test_the_last_synchronised_copy_is_not_given_up() -> None:
    assert changed(with_unsynchronised(), GiveUp(4)) is not None
    alone = killed(three(), 2, 3)
    assert changed(alone, GiveUp(1)) is None
    flushing = killed(three(), 1, 2)
    assert changed(flushing, GiveUp(3)) is None, "its copy may be damaged, but the others are not there"


def test_who_gives_up_while_flushing() -> None:
    view = after(killed(three(), 1), GiveUp(2))
    assert (view.state, view.synced, view.recoverable) == ("flushing", (1, 3), (A, C))
    view = after(view, EraseMirror(1, 3), EraseMirror(2, 3))
    assert (view.state, view.master) == ("live", 3)


def test_a_mirror_goes_while_flushing_if_another_one_is_synchronised() -> None:
    """A mirror is dropped while flushing if another one is synchronised and the request is of this view."""
    flushing = killed(three(), 1)
    view = after(flushing, DropMirror(3, flushing.version))
    assert (view.state, view.synced, view.recoverable) == ("flushing", (1, 2), (A, B))
    assert changed(view, DropMirror(2, view.version)) is None
    assert changed(flushing, DropMirror(3, flushing.version - 1)) is None


def test_an_evicted_mirror_is_not_waited_for() -> None:
    """An evicted mirror is out of the view at once, and drops its copy when it sees that."""
    view = after(three(), DropMirror(2))
    assert view.synced == (1, 3)
    assert view.is_settled


# --- a master that declines -------------------------------------------------------------------------------


def test_the_master_before_is_master_again() -> None:
    view = after(three(), TransferMaster(1, 3))
    back = after(view, DeclineMaster(3, view.since))
    assert (back.master, back.previous, back.handover, back.state) == (1, 0, 0, "live")
    assert back.since == back.version, "a mastership of its own"
    assert back.members == view.members


def test_declined_too_late_or_by_somebody_else() -> None:
    view = after(three(), TransferMaster(1, 3))
    for change in (DeclineMaster(2, view.since), DeclineMaster(3, view.since - 1)):
        assert changed(view, change) is None
    for later in (
        after(view, TookOver(view.since)),
        killed(view, 1),
        killed(view, 3),
        after(view, GiveUp(1)),
    ):
        assert changed(later, DeclineMaster(3, view.since)) is None
