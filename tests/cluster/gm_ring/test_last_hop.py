"""The number that the last member keeps until its disk's mark: joins and crashes between the two confirm nothing early.

The ring is 1 ► 2 ► 3 ► 1, and 1 is the origin of one broadcast, whose payload has to be on disk.
"""

from cluster.gm_ring.member import Member
from cluster.gm_ring.messages import CatchUp, Item
from node.catalogue.mirrors.views import AddMirror, EraseMirror, View, died
from tests.cluster.gm_ring.test_member import NONE, Log, activity, after, began, hear, told


def last_that_waits() -> tuple[Member, Log, View]:
    """The last member has the broadcast, its disk does not, and its number waits."""
    member, log, view = began(3, 3)
    member.counts = log.awaits_disk = True
    hear(member, 2, activity(view, 3, Item(1, 0, [b"a"], NONE, NONE)))
    assert not member.is_urgent
    log.take()
    return member, log, view


def edge_of(view: View, id_: int) -> int:
    """The edge on which a member hears its left neighbour."""
    member = view.member(id_)
    assert member is not None
    return member.edge


def origin_that_waits() -> tuple[Member, Log, View]:
    """The origin has sent the broadcast, and has it on its own disk."""
    member, log, view = began(3, 1)
    member.broadcast(b"a")
    member.on_disk(1, 0)
    member.flush()
    log.sent.clear()
    log.take()
    return member, log, view


def test_number_and_mark_come_in_one_frame_and_in_that_order() -> None:
    member, log, view = origin_that_waits()
    hear(member, 3, activity(view, edge_of(view, 1), Item(1, 0, (), NONE, 0)))
    assert log.take() == ["confirmed 0", "durable 0"]


def test_a_mark_is_told_for_no_more_than_this_disk_has() -> None:
    """A number that is told before this disk has the payload goes alone, though the disks to the left have all."""
    member, log, view = last_that_waits()
    hear(member, 2, activity(view, 3, Item(1, 0, (), NONE, 0)))
    member.flush()
    assert told(log) == [Item(1, 0, (), NONE, NONE)]
    member.on_disk(1, 0)
    assert member.is_urgent
    member.flush()
    assert told(log) == [Item(1, 0, (), NONE, 0)]


def test_a_member_that_joins_behind_it_gets_the_payload_before_the_origin_hears_of_it() -> None:
    member, log, view = last_that_waits()
    (v4,) = after(view, AddMirror("n4", 4))
    member.see(v4)
    assert member.is_urgent
    member.flush()
    ((to, message),) = log.sent
    assert (to, list(message.origins if isinstance(message, CatchUp) else ())) == (
        member.right,
        [Item(1, 0, [b"a"], NONE, NONE), Item(1, 0, (), NONE, NONE)],
    )
    assert to not in (1, 2, 3)


def test_the_heir_of_the_origin_hears_the_number_at_once() -> None:
    member, log, view = last_that_waits()
    v4 = died(view, [1], may_lose=False)
    member.see(v4)
    assert member.is_urgent
    member.flush()
    assert log.sent == [(2, CatchUp(v4.version, edge_of(v4, 2), [Item(1, 0, (), NONE, NONE)]))]


def test_a_crash_before_number_and_mark_were_sent_confirms_nothing() -> None:
    """A catch-up of the next neighbour says that all members that stay have it, and a mark what their disks have."""
    member, log, view = origin_that_waits()
    v4 = died(view, [3], may_lose=False)
    member.see(v4)
    assert log.take() == [EraseMirror(3, 1)]
    hear(member, 3, activity(view, edge_of(view, 1), Item(1, 0, (), NONE, 0)))
    assert log.take() == [], "it is out of the ring"
    edge = edge_of(v4, 1)
    hear(member, 2, activity(v4, edge, Item(1, 0, (), NONE, 0)))
    assert log.take() == [], "a neighbour's catch-up comes first"
    hear(member, 2, CatchUp(v4.version, edge, [Item(1, 0, (), NONE, NONE)]))
    assert log.take() == ["confirmed 0"]
    hear(member, 2, activity(v4, edge, Item(1, 0, (), NONE, 0)))
    assert log.take() == ["durable 0"]
