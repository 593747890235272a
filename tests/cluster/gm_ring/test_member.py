"""A member of a ring: each rule of reliability §4.3 by itself, and the rows of §2.1 that are one scenario."""

from collections.abc import Sequence
from typing import Final

import pytest

from cluster.gm_ring.member import Member
from cluster.gm_ring.messages import NOTHING, Activity, CatchUp, Item
from node.catalogue.mirrors.views import (
    ActivateMirror,
    AddMirror,
    DropMirror,
    EraseMirror,
    TookOver,
    TransferMaster,
    View,
    ViewChange,
    changed,
    created,
    died,
)
from tests.kit.ring import Ring

NONE: Final = NOTHING


class Log:
    """A host that writes down what it is told."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Activity | CatchUp]] = []
        self.said: list[object] = []
        self.awaits_disk = False

    def send(self, to: int, message: Activity | CatchUp) -> None:
        self.sent.append((to, message))

    def deliver(self, origin: int, first: int, payloads: Sequence[bytes]) -> bool:
        self.said.append((origin, first, list(payloads)))
        return self.awaits_disk

    def confirmed(self, upto: int) -> None:
        self.said.append(f"confirmed {upto}")

    def durable(self, upto: int) -> None:
        self.said.append(f"durable {upto}")

    def propose(self, change: ViewChange) -> None:
        self.said.append(change)

    def lost(self, reason: str) -> None:
        self.said.append(f"lost: {reason}")

    def active(self) -> None:
        self.said.append("active")

    def take(self) -> list[object]:
        """Return what was said since the last time."""
        said, self.said = self.said, []
        return said


def began(count: int, id_: int) -> tuple[Member, Log, View]:
    """A member of a new queue with so many copies; they have the ids from 1 on."""
    view = created(0, [(f"n{number}", number) for number in range(1, count + 1)])
    log = Log()
    return Member(id_, view, log), log, view


def after(view: View, *changes: ViewChange) -> list[View]:
    """The views that come of changes, all of which can be."""
    views = []
    for change in changes:
        following = changed(view, change)
        assert following is not None, change
        views.append(view := following)
    return views


def told(log: Log) -> list[Item]:
    """The items of the one message that was sent."""
    ((_, message),) = log.sent
    log.sent.clear()
    return list(message.items if isinstance(message, Activity) else message.origins)


def activity(view: View, edge: int, *items: Item) -> Activity:
    return Activity(view.version, edge, items)


def hear(member: Member, sender: int, message: Activity | CatchUp) -> None:
    member.receive(sender, message.version, message.edge, message)


# --- R1 -----------------------------------------------------------------------------------------------------


def test_r1_a_frame_of_a_later_view_waits_for_it() -> None:
    member, log, view = began(3, 2)
    (later,) = after(view, DropMirror(3))
    hear(member, 1, activity(later, 3, Item(1, 0, [b"a"], NONE, NONE)))
    assert log.take() == []
    member.see(later)
    assert log.take() == [(1, 0, [b"a"])]


def test_r1_an_earlier_view_is_fine_from_a_neighbour_that_stays() -> None:
    member, log, view = began(3, 2)
    member.see(after(view, DropMirror(3))[0])
    hear(member, 1, activity(view, 3, Item(1, 0, [b"a"], NONE, NONE)))
    assert log.take() == [(1, 0, [b"a"])]


def test_r1_a_catch_up_that_waits_stands_for_all_frames_of_earlier_edges() -> None:
    """Frames behind a waiting catch-up are dropped too, or they would leave a gap where the earlier ones were."""
    member, log, view = began(4, 3)
    v5, v6 = after(view, DropMirror(4), DropMirror(2))
    hear(member, 2, activity(v5, 4, Item(1, 0, [b"a"], NONE, NONE)))
    hear(
        member,
        1,
        CatchUp(v6.version, v6.version, [Item(1, 0, [b"a"], NONE, NONE), Item(1, 1, [b"b"], NONE, NONE)]),
    )
    member.see(v5)
    hear(member, 2, activity(v5, 4, Item(1, 1, [b"b"], NONE, NONE)))
    assert log.take() == []
    member.see(v6)
    assert log.take() == [(1, 0, [b"a"]), (1, 1, [b"b"]), EraseMirror(2, 3)]


# --- R2 -----------------------------------------------------------------------------------------------------


def test_r2_only_the_left_neighbour_is_heard() -> None:
    member, log, view = began(3, 3)
    hear(member, 1, activity(view, 3, Item(1, 0, [b"a"], NONE, NONE)))
    assert log.take() == []
    hear(member, 2, activity(view, 3, Item(1, 0, [b"a"], NONE, NONE)))
    assert log.take() == [(1, 0, [b"a"])]


def test_r2_only_on_the_present_edge() -> None:
    """S3: a neighbour that was left, and is again, must begin with a catch-up."""
    member, log, view = began(2, 1)
    v3, v4 = after(view, AddMirror("n3", 3), DropMirror(3))
    member.see(v3)
    member.see(v4)
    assert member.left == 2
    hear(member, 2, activity(view, 2, Item(2, 1, [b"b"], NONE, NONE)))
    hear(member, 2, activity(v4, 4, Item(2, 1, [b"b"], NONE, NONE)))
    assert log.take() == []
    hear(member, 2, CatchUp(4, 4, [Item(2, 1, [b"a", b"b"], NONE, NONE)]))
    hear(member, 2, activity(v4, 4, Item(2, 2, [b"c"], NONE, NONE)))
    assert log.take() == [(2, 0, [b"a", b"b"]), (2, 2, [b"c"])]


def test_unexpected_msg() -> None:
    """§2.1: a stray message is ignored."""
    member, log, view = began(3, 2)
    for sender, edge in ((3, 3), (1, 2), (99, 3), (2, 3)):
        hear(member, sender, activity(view, edge, Item(1, 5, [b"?"], 9, 9)))
    hear(member, 1, activity(view, 3, Item(77, 5, [b"?"], NONE, NONE)))
    assert log.take() == []
    assert not member.is_lost


# --- R3 -----------------------------------------------------------------------------------------------------


def test_r3_broadcast_goes_to_the_right_and_not_to_oneself() -> None:
    member, log, _ = began(3, 1)
    assert [member.broadcast(payload) for payload in (b"a", b"b")] == [0, 1]
    assert (member.is_urgent, member.pending_bytes) == (True, 2)
    assert log.sent == log.take() == []
    member.flush()
    assert log.sent == [(2, Activity(3, 3, [Item(1, 1, [b"a", b"b"], NONE, NONE)]))]
    assert not member.has_output
    assert log.take() == []


def test_r3_alone_it_is_confirmed_at_the_flush() -> None:
    member, log, _ = began(1, 1)
    assert member.broadcast(b"a") == 0
    assert log.take() == []
    member.flush()
    assert (log.take(), log.sent, member.pending_bytes) == (["confirmed 0"], [], 0)
    member.on_disk(1, 0)
    member.flush()
    assert log.take() == ["durable 0"]


def test_r3_who_is_joining_may_not_broadcast() -> None:
    _, _, view = began(1, 1)
    (joining,) = after(view, AddMirror("n2", 2))
    with pytest.raises(AssertionError):
        Member(2, joining, Log()).broadcast(b"a")


# --- R4 -----------------------------------------------------------------------------------------------------


def test_r4_what_is_new_is_delivered_and_passed_on_once() -> None:
    member, log, view = began(3, 2)
    hear(member, 1, activity(view, 3, Item(1, 1, [b"a", b"b"], NONE, NONE)))
    hear(member, 1, activity(view, 3, Item(1, 2, [b"b", b"c"], NONE, NONE)))
    hear(member, 1, activity(view, 3, Item(1, 2, [b"a", b"b", b"c"], NONE, NONE)))
    assert log.take() == [(1, 0, [b"a", b"b"]), (1, 2, [b"c"])]
    assert member.pending_bytes == 3
    member.flush()
    assert told(log) == [Item(1, 2, [b"a", b"b", b"c"], NONE, NONE)]


def test_r4_an_acknowledgement_frees_and_is_passed_on_without_haste() -> None:
    member, log, view = began(3, 2)
    hear(member, 1, activity(view, 3, Item(1, 2, [b"a", b"b", b"c"], NONE, NONE)))
    member.flush()
    log.sent.clear()
    hear(member, 1, activity(view, 3, Item(1, 2, (), 1, NONE)))
    assert (member.pending_bytes, member.is_urgent, member.has_output) == (1, False, True)
    member.flush()
    assert told(log) == [Item(1, 2, (), 1, NONE)]


def test_r4_the_origin_is_sent_numbers_only_and_its_own_acknowledgement_not_at_all() -> None:
    member, log, view = began(3, 3)
    hear(member, 2, activity(view, 3, Item(1, 1, [b"a", b"b"], NONE, NONE)))
    assert member.is_urgent
    member.flush()
    assert told(log) == [Item(1, 1, (), NONE, NONE)]
    hear(member, 2, activity(view, 3, Item(1, 1, (), 1, NONE)))
    assert (member.pending_bytes, member.has_output) == (0, False)


def test_r4_the_number_for_the_origin_goes_with_the_mark_that_it_waits_for() -> None:
    member, log, view = began(3, 3)
    log.awaits_disk = True
    hear(member, 2, activity(view, 3, Item(1, 0, [b"a"], NONE, NONE)))
    assert (member.is_urgent, member.has_output) == (False, True)
    member.on_disk(1, 0)
    assert not member.is_urgent
    hear(member, 2, activity(view, 3, Item(1, 0, (), NONE, 0)))
    assert member.is_urgent
    member.flush()
    assert told(log) == [Item(1, 0, (), NONE, 0)]


def test_r4_a_disk_that_is_behind_holds_up_no_number() -> None:
    member, log, view = began(3, 3)
    log.awaits_disk = True
    hear(member, 2, activity(view, 3, Item(1, 0, [b"a"], NONE, NONE)))
    hear(member, 2, activity(view, 3, Item(1, 1, [b"b"], NONE, NONE)))
    assert member.is_urgent
    member.flush()
    assert told(log) == [Item(1, 1, (), NONE, NONE)]


def test_r4_the_number_waits_for_no_disk_that_does_not_count() -> None:
    member, log, view = began(3, 3)
    log.awaits_disk, member.counts = True, False
    hear(member, 2, activity(view, 3, Item(1, 0, [b"a"], NONE, NONE)))
    assert member.is_urgent


@pytest.mark.parametrize(
    "item",
    [
        Item(1, 1, [b"b"], NONE, NONE),
        Item(1, 0, (), NONE, NONE),
        Item(1, 0, [b"a"], 1, NONE),
        Item(1, 0, [b"a"], NONE, 1),
        Item(2, 0, (), NONE, NONE),
        Item(2, NONE, (), 0, NONE),
    ],
)
def test_r11_what_cannot_be_makes_it_leave_and_nothing_else(item: Item) -> None:
    """A gap; more acknowledged or on disks than is there; more of its own than it said. The reason has its state."""
    member, log, view = began(3, 2)
    hear(member, 1, activity(view, 3, item))
    *_, reason = log.take()
    assert str(reason).startswith("lost: ")
    assert "member 2 in view 3" in str(reason)
    assert member.is_lost
    hear(member, 1, activity(view, 3, Item(1, 0, [b"a"], NONE, NONE)))
    member.see(after(view, DropMirror(3))[0])
    member.flush()
    member.retry()
    member.on_disk(1, 0)
    assert [member.broadcast(b"x"), member.broadcast(b"y")] == [0, 1]
    member.flush()
    assert log.take() == log.sent == []
    assert member.pending_bytes == 0


# --- R5 -----------------------------------------------------------------------------------------------------


def test_r5_what_has_come_round_is_confirmed_and_acknowledged() -> None:
    member, log, view = began(3, 1)
    for payload in (b"a", b"b", b"c"):
        member.broadcast(payload)
    member.flush()
    log.sent.clear()
    hear(member, 3, activity(view, 3, Item(1, 1, (), NONE, NONE)))
    assert (log.take(), member.pending_bytes, member.is_urgent) == (["confirmed 1"], 1, False)
    hear(member, 3, activity(view, 3, Item(1, 1, (), NONE, NONE)))
    assert log.take() == []
    member.flush()
    assert told(log) == [Item(1, 2, (), 1, NONE)]


def test_r5_acknowledgements_travel_with_the_next_broadcast() -> None:
    member, log, view = began(2, 1)
    member.broadcast(b"a")
    member.flush()
    log.sent.clear()
    hear(member, 2, activity(view, 2, Item(1, 0, (), NONE, NONE)))
    member.broadcast(b"b")
    member.flush()
    assert told(log) == [Item(1, 1, [b"b"], 0, NONE)]


# --- R6, R7 ---------------------------------------------------------------------------------------------------


def test_r6_the_first_catch_up_is_adopted_and_not_delivered() -> None:
    _, _, view = began(2, 1)
    (v3,) = after(view, AddMirror("n3", 3))
    log = Log()
    member = Member(3, v3, log)
    member.flush()
    assert not member.is_active
    state = [Item(1, 4, [b"d", b"e"], NONE, NONE), Item(1, 4, (), 2, 3)]
    hear(member, 2, CatchUp(3, 3, state))
    assert log.take() == ["active", ActivateMirror(3)]
    assert (member.last_of(1), member.pending_bytes) == (4, 2)
    member.flush()
    assert log.sent == [(1, CatchUp(3, 3, [Item(1, 4, (), 2, 3)]))]  # the origin has the payloads
    hear(member, 2, activity(v3, 3, Item(1, 5, [b"f"], 4, 4)))
    assert log.take() == [(1, 5, [b"f"])]
    assert member.pending_bytes == 1


def test_r6_it_proposes_to_be_activated_until_it_is() -> None:
    _, _, view = began(1, 1)
    v2, v3 = after(view, AddMirror("n2", 2), ActivateMirror(2))
    log = Log()
    member = Member(2, v2, log)
    member.retry()
    assert log.take() == []
    hear(member, 1, CatchUp(2, 2, []))
    assert log.take() == ["active", ActivateMirror(2)]
    member.retry()
    assert log.take() == [ActivateMirror(2)]
    member.see(v3)
    member.retry()
    assert log.take() == []


def test_r6_a_later_catch_up_tells_what_is_lacking_and_what_has_come_round() -> None:
    member, log, view = began(3, 1)
    for payload in (b"a", b"b"):
        member.broadcast(payload)
    (v4,) = after(view, DropMirror(3))
    member.see(v4)
    log.take()
    hear(
        member,
        2,
        CatchUp(
            4, 4, [Item(2, 0, [b"x"], NONE, NONE), Item(1, 0, (), NONE, NONE), Item(2, 0, (), NONE, NONE)]
        ),
    )
    assert log.take() == [(2, 0, [b"x"]), "confirmed 0"]
    hear(
        member,
        2,
        CatchUp(
            4, 4, [Item(2, 0, [b"x"], NONE, NONE), Item(1, 0, (), NONE, NONE), Item(2, 0, (), NONE, NONE)]
        ),
    )
    assert log.take() == []


def test_r6_a_state_with_a_gap_is_not_adopted() -> None:
    _, _, view = began(1, 1)
    log = Log()
    member = Member(2, after(view, AddMirror("n2", 2))[0], log)
    hear(member, 1, CatchUp(2, 2, [Item(1, 4, [b"e"], NONE, NONE), Item(1, 4, (), 2, NONE)]))
    (reason,) = log.take()
    assert str(reason).startswith("lost: a state has a gap")


def test_r7_a_new_right_neighbour_is_told_all_in_the_order_in_which_it_came() -> None:
    member, log, view = began(3, 2)
    hear(member, 1, activity(view, 3, Item(1, 0, [b"a"], NONE, NONE)))
    member.broadcast(b"x")
    hear(member, 1, activity(view, 3, Item(1, 2, [b"b", b"c"], NONE, 1)))
    member.broadcast(b"y")
    (v4,) = after(view, AddMirror("n4", 4))
    member.see(v4)  # 4 comes behind 3, which stays the right neighbour
    member.flush()
    items = [Item(1, 0, [b"a"], NONE, NONE), Item(2, 0, [b"x"], NONE, NONE)]
    assert told(log)[:2] == items
    member.see(died(v4, [3], may_lose=False))
    member.flush()
    assert told(log) == [  # 1 is the right neighbour: its own are not told
        Item(2, 0, [b"x"], NONE, NONE),
        Item(2, 1, [b"y"], NONE, NONE),
        Item(1, 2, (), NONE, NONE),
        Item(2, 1, (), NONE, NONE),
    ]


def test_r7_what_had_gathered_for_the_former_one_is_in_it() -> None:
    member, log, view = began(3, 1)
    member.broadcast(b"a")
    (v4,) = after(view, DropMirror(2))
    member.see(v4)
    assert member.is_urgent
    member.flush()
    assert log.sent == [(3, CatchUp(4, 4, [Item(1, 0, [b"a"], NONE, NONE), Item(1, 0, (), NONE, NONE)]))]


def test_r7_a_joiner_has_nothing_to_tell_before_it_has_a_state() -> None:
    _, _, view = began(1, 1)
    v2, v3 = after(view, AddMirror("n2", 2), AddMirror("n3", 3))
    log = Log()
    member = Member(2, v2, log)
    member.see(v3)
    member.flush()
    assert not member.has_output
    assert log.sent == []


# --- R8 -----------------------------------------------------------------------------------------------------


def test_r8_the_heir_erases_when_all_has_come_round_twice() -> None:
    """S6, too: it acknowledges again what the dead one may have acknowledged to some only."""
    member, log, view = began(3, 2)
    hear(member, 1, activity(view, 3, Item(1, 1, [b"a", b"b"], NONE, NONE)))
    member.flush()
    v4 = died(view, [1], may_lose=False)
    member.see(v4)
    log.take()
    log.sent.clear()
    hear(member, 3, CatchUp(4, 4, [Item(1, 0, (), NONE, NONE)]))
    assert log.take() == []
    assert member.is_urgent  # a queue without a master waits for it
    member.flush()
    assert told(log) == [Item(1, 1, (), 0, NONE)]
    hear(member, 3, activity(v4, 4, Item(1, 1, (), 0, NONE)))
    member.flush()
    assert told(log) == [Item(1, 1, (), 1, NONE)]
    hear(member, 3, activity(v4, 4, Item(1, 1, (), 1, NONE)))
    assert log.take() == [EraseMirror(1, 2)]
    member.retry()
    assert log.take() == [EraseMirror(1, 2)]
    member.see(after(v4, EraseMirror(1, 2))[0])
    member.retry()
    assert log.take() == []
    assert member.last_of(1) == NOTHING


def test_r8_who_never_said_anything_is_erased_at_once() -> None:
    member, log, view = began(3, 3)
    v4 = died(view, [2], may_lose=False)
    member.see(v4)
    assert log.take() == [EraseMirror(2, 3)]


def test_r8_only_the_owner_does() -> None:
    for id_ in (1, 3):
        member, log, view = began(4, id_)
        member.see(died(view, [2], may_lose=False))
        assert log.take() == ([EraseMirror(2, 3)] if id_ == 3 else [])


# --- R9, R10 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["dead", "erased", "down", "joining"])
def test_down_in_members_change(how: str) -> None:
    """§2.1: a member whose group goes on without it stops; nothing crashes. R9."""
    view = created(0, [("n1", 1), ("n2", 2)])
    log = Log()
    if how == "joining":
        (view,) = after(view, AddMirror("n3", 3))
        member = Member(3, view, log)
        member.see(died(view, [1], may_lose=False))
    else:
        member = Member(2, view, log)
        dead = died(view, [2] if how != "down" else [1, 2], may_lose=False)
        member.see(dead if how != "erased" else after(dead, EraseMirror(2, 1))[0])
    (reason,) = log.take()
    assert str(reason).startswith("lost: view ")
    assert str(reason).endswith(" is without it")


def test_r10_who_is_alone_in_a_view_confirms_and_erases() -> None:
    member, log, view = began(3, 2)
    hear(member, 1, activity(view, 3, Item(1, 1, [b"a", b"b"], NONE, NONE)))
    member.broadcast(b"x")
    member.on_disk(2, 0)
    log.take()
    member.see(died(view, [1, 3], may_lose=False))
    assert log.take() == ["confirmed 0", "durable 0", EraseMirror(1, 2), EraseMirror(3, 2)]
    assert (member.pending_bytes, member.has_output) == (0, False)


def test_who_begins_late_and_alone_erases_the_others() -> None:
    """A member whose node saw no earlier view erases the others, as nothing was ever at all members."""
    view = died(
        died(created(0, [("n1", 1), ("n2", 2), ("n3", 3)]), (2,), may_lose=False), (3,), may_lose=False
    )
    log = Log()
    member = Member(1, view, log)
    assert log.take() == []
    member.retry()
    assert log.take() == [EraseMirror(2, 1), EraseMirror(3, 1)]


@pytest.mark.parametrize("is_exact", [True, False])
def test_who_begins_late_tells_a_right_neighbour_that_came_meanwhile(is_exact: bool) -> None:
    """R7: it is the left neighbour since a view that it never saw, or that is the first that it sees."""
    view = died(created(0, [("n1", 1), ("n2", 2), ("n3", 3)]), (2,), may_lose=False)
    edge = view.version
    if not is_exact:
        (view,) = after(view, EraseMirror(2, 3))
    log = Log()
    member = Member(1, view, log)
    assert member.is_urgent
    member.flush()
    assert log.sent == [(3, CatchUp(view.version, edge, []))]
    assert not began(3, 1)[0].has_output, "of a new queue there is nothing to tell"


def test_r10_alone_is_nobody_who_has_a_joiner() -> None:
    member, log, view = began(1, 1)
    member.broadcast(b"a")
    v2, v3 = after(view, AddMirror("n2", 2), DropMirror(2))
    member.see(v2)
    assert log.take() == ["confirmed 0"]  # it was alone until then
    member.broadcast(b"b")
    member.flush()
    assert log.take() == []
    assert told(log) == [Item(1, 1, [b"b"], NONE, NONE), Item(1, 1, (), 0, NONE)]
    member.see(v3)
    assert log.take() == ["confirmed 1"]


def test_what_is_said_while_being_told_that_one_was_alone_is_not_lost() -> None:
    """A confirm may make its host broadcast, and the view that comes is that of another member."""
    member, log, view = began(1, 1)

    def answer(upto: int) -> None:
        log.said.append(f"confirmed {upto}")
        if upto == 0:
            member.broadcast(b"b")

    log.confirmed = answer  # type: ignore[method-assign]
    member.broadcast(b"a")
    member.see(after(view, AddMirror("n2", 2))[0])
    member.flush()
    assert log.take() == ["confirmed 0", "confirmed 1"]
    assert told(log) == [Item(1, 1, (), 1, NONE)]


# --- marks ------------------------------------------------------------------------------------------------------


def test_marks_are_the_least_of_the_disks_that_they_pass() -> None:
    member, log, view = began(3, 2)
    hear(member, 1, activity(view, 3, Item(1, 2, [b"a", b"b", b"c"], NONE, 1)))
    member.flush()
    assert told(log) == [Item(1, 2, [b"a", b"b", b"c"], NONE, NONE)]
    member.on_disk(1, 0)
    assert member.is_urgent
    member.flush()
    assert told(log) == [Item(1, 2, (), NONE, 0)]
    member.on_disk(1, 2)
    member.flush()
    assert told(log) == [Item(1, 2, (), NONE, 1)]
    hear(member, 1, activity(view, 3, Item(1, 2, (), NONE, 2)))
    member.flush()
    assert told(log) == [Item(1, 2, (), NONE, 2)]


def test_marks_pass_who_does_not_count() -> None:
    member, log, view = began(3, 2)
    member.counts = False
    hear(member, 1, activity(view, 3, Item(1, 2, [b"a", b"b", b"c"], NONE, 1)))
    member.flush()
    assert told(log) == [Item(1, 2, [b"a", b"b", b"c"], NONE, 1)]
    member.counts = True
    hear(member, 1, activity(view, 3, Item(1, 2, (), NONE, 2)))
    assert not member.has_output
    member.on_disk(1, 1)
    assert not member.has_output
    member.on_disk(1, 2)
    member.flush()
    assert told(log) == [Item(1, 2, (), NONE, 2)]


def test_the_mark_that_comes_back_is_the_rings() -> None:
    member, log, view = began(2, 1)
    member.broadcast(b"a")
    member.broadcast(b"b")
    member.on_disk(1, 1)
    member.flush()
    assert told(log) == [Item(1, 1, [b"a", b"b"], NONE, 1)]
    hear(member, 2, activity(view, 2, Item(1, 1, (), NONE, 0)))
    hear(member, 2, activity(view, 2, Item(1, 1, (), NONE, 0)))
    assert log.take() == ["confirmed 1", "durable 0"]


def test_s18_a_slow_disk_holds_up_nothing_but_marks() -> None:
    """S18."""
    ring = Ring(3)
    ring.catch_up_views()
    ring.broadcast(1, 2)
    for id_ in (1, 3):
        ring.settle()
        ring.on_disk(id_, 1)
    ring.settle()
    assert (ring[1].confirmed_upto, ring[1].durable_upto) == (1, -1)
    ring.on_disk(2, 1)
    ring.settle()
    assert ring[1].durable_upto == 1


# --- rows of §2.1 ---------------------------------------------------------------------------------------------


def test_join_leave() -> None:
    """§2.1: a second one joins, the first one sees it come and go; both end."""
    ring = Ring(1)
    ring.catch_up_views()
    joined = ring.add()
    ring.settle()
    assert [member.status for member in ring[1].member.view.members] == ["alive", "alive"]
    assert [member.id for member in ring[joined].member.view.members] == [1, joined]
    ring.commit(DropMirror(joined))
    ring.settle()
    assert [member.id for member in ring[1].member.view.members] == [1]
    assert ring[joined].lost_because is not None
    ring.check_settled()


def test_broadcast() -> None:
    """§2.1: all others get it, each once."""
    ring = Ring(2)
    ring.catch_up_views()
    ring.broadcast(1)
    ring.settle()
    assert ring[2].received == {1: ring.spoken[1]}
    assert ring[1].received == {}
    ring.check_settled()


def test_confirmed_broadcast() -> None:
    """§2.1: it is confirmed when all have it, not before."""
    ring = Ring(3)
    ring.catch_up_views()
    ring.broadcast(1)
    for left, right in ((1, 2), (2, 3), (3, 1)):
        assert ring[1].confirmed_upto == -1
        ring.flush(left)
        ring.take(left, right)
    assert ring[1].confirmed_upto == 0
    assert all(ring[id_].received == {1: ring.spoken[1]} for id_ in (2, 3))


def test_member_death() -> None:
    """§2.1: a third one joins and is killed: the others see both, and go on."""
    ring = Ring(2)
    ring.catch_up_views()
    third = ring.add()
    ring.settle()
    ring.broadcast(1, 2)
    ring.flush(1)
    ring.kill(third)
    ring.broadcast(2, 2)
    ring.settle()
    assert ring[2].received == {1: ring.spoken[1]}
    assert ring[1].received == {2: ring.spoken[2]}
    assert [member.id for member in ring.view.members] == [1, 2]
    ring.check_settled()


def test_receive_in_order() -> None:
    """§2.1: two that broadcast 1000 each at once; each gets the other's in order (`Node.deliver`)."""
    ring = Ring(2)
    ring.catch_up_views()
    for number in range(1000):
        ring.broadcast(1)
        ring.broadcast(2)
        if number % 3 == 0:
            ring.flush(1 + number % 2)
        for link in ((1, 2), (2, 1)):
            if number % 5 == 0 and ring.can_take(*link):
                ring.take(*link)
    ring.settle()
    assert [len(ring[1].received[2]), len(ring[2].received[1])] == [1000, 1000]
    ring.check_settled()


def test_order_across_origins_survives_a_catch_up() -> None:
    """A queue goes from 1 to 2 and back; 3 hears all of it from a catch-up, in the order in which it was said."""
    ring = Ring(4)
    ring.catch_up_views()
    for master, to in ((1, 2), (2, 1)):
        ring.broadcast(master, 2)
        ring.flush(master)
        if master == 1:
            ring.take(1, 2)
        ring.commit(TransferMaster(master, to))
        ring.commit(TookOver(ring.view.since))
        ring.catch_up_views()
    ring.flush(2)
    ring.kill(3)
    ring.broadcast(1, 1)
    ring.settle()
    assert [len(ring[4].received[origin]) for origin in (1, 2)] == [3, 2]
    ring.check_settled()
