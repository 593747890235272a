"""The log tells of mirrored queues: management §6.3, reliability §4.6, S12; the words are RabbitMQ 3.10.8's."""

from dataclasses import replace

import pytest

from cluster.mirror.mirror_events import (
    blocked,
    evicted,
    is_speaker,
    mirror_events,
    sync_begun,
    sync_ended,
    wanted_copies,
)
from node.catalogue.mirrors.views import (
    ActivateMirror,
    AddMirror,
    EraseMirror,
    MirrorSynced,
    OfferCopy,
    TransferMaster,
    View,
    ViewChange,
    changed,
    created,
    died,
)
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.client.observer import MirrorEvent
from tests.cluster.mirror.reconciler_world import ALL, PLAIN, exactly, member, nodes, queue

TWO = created(0, [("a", 1), ("b", 2)])
PREFIX = "Mirrored queue 'q' in vhost '/': "


def _record(view: View | None) -> QueueRecord:
    return replace(queue(), view=view)


def _told(before: View | None, after: View | None, wanted: int = 2) -> list[MirrorEvent]:
    return mirror_events(_record(before), _record(after), wanted)


def _texts(told: list[MirrorEvent]) -> list[str]:
    assert all(each.text.startswith(PREFIX) for each in told)
    return [each.text.removeprefix(PREFIX) for each in told]


def _then(view: View, *changes: ViewChange) -> View:
    for change in changes:
        after = changed(view, change)
        assert after is not None
        view = after
    return view


def test_a_mirror_comes() -> None:
    view = created(0, [("a", 1)])
    added = _then(view, AddMirror("b", 2))
    id_ = added.version
    assert _texts(_told(view, added)) == [f"Adding mirror on node b: <b.2.{id_}>"]
    alive = _then(added, ActivateMirror(id_))
    assert _told(added, alive) == []
    told = _told(alive, _then(alive, MirrorSynced(id_)))
    assert [(each.kind, each.level) for each in told] == [
        ("mirror-synchronised", "info"),
        ("fully-replicated", "info"),
    ]


def test_a_mirror_is_lost() -> None:
    told = _told(TWO, died(TWO, [2], may_lose=False))
    assert _texts(told) == [
        "Primary replica of queue <a.1.1> detected replica <b.2.2> to be down",
        "1 of 2 copies are synchronised (under_replicated)",
    ]
    assert [each.level for each in told] == ["info", "warning"]


def test_under_replicated_is_said_when_a_good_copy_goes() -> None:
    """S12: from the first eviction."""
    three = created(0, [("a", 1), ("b", 2), ("c", 3)])
    two = died(three, [2], may_lose=False)
    assert "under-replicated" in [each.kind for each in _told(three, two, 3)]
    erased = _then(two, EraseMirror(2, two.owner_of(2)))
    assert _told(two, erased, 3) == []
    assert "under-replicated" in [each.kind for each in _told(erased, died(erased, [3], may_lose=False), 3)]


def test_a_policy_that_wants_fewer_is_no_alarm() -> None:
    assert [each.kind for each in _told(TWO, died(TWO, [2], may_lose=False), 1)] == ["mirror-lost"]


def test_promotion() -> None:
    flushing = died(TWO, [1], may_lose=False)
    assert _texts(_told(TWO, flushing)) == [
        "Secondary replica of queue <b.2.2> detected replica <a.1.1> to be down"
    ]
    live = _then(flushing, EraseMirror(1, 2))
    told = _told(flushing, live)
    assert _texts(told)[0] == "Promoting mirror <b.2.2> to leader"
    assert (told[0].node, told[0].former) == ("b", "a")
    assert "data-loss-possible" not in [each.kind for each in told]


def test_promotion_of_a_copy_that_is_not_synchronised_is_an_error() -> None:
    view = _then(created(0, [("a", 1)]), AddMirror("b", 2))
    id_ = view.version
    view = _then(view, ActivateMirror(id_))
    flushing = died(view, [1], may_lose=True)
    told = _told(flushing, _then(flushing, EraseMirror(1, id_)))
    assert [(each.kind, each.level) for each in told][:2] == [
        ("promotion", "info"),
        ("data-loss-possible", "error"),
    ]
    assert {each.former for each in told[:2]} == {"a"}


def test_transfer() -> None:
    told = _told(TWO, _then(TWO, TransferMaster(1, 2)))
    assert _texts(told) == ["Promoting mirror <b.2.2> to leader: <a.1.1> hands over"]


def test_stopped_and_revived() -> None:
    down = died(TWO, [1, 2], may_lose=False)
    told = _told(TWO, down)
    assert [each.kind for each in told] == ["stopped"], "nobody is left who could have noticed"
    assert told[0].level == "error"
    assert told[0].text.endswith("one of: a, b")
    live = _then(down, OfferCopy("a", 7, 3))
    told = _told(down, live)
    assert [each.kind for each in told] == ["revived"]
    assert "with the copy of node a" in told[0].text


def test_revived_from_a_copy_that_has_lost_something() -> None:
    down = _then(died(TWO, [1, 2], may_lose=False), OfferCopy("b", 7, 3, False))
    told = _told(down, _then(down, OfferCopy("a", 7, 5, False)))
    assert [(each.kind, each.level) for each in told] == [
        ("revived", "warning"),
        ("data-loss-possible", "error"),
    ]
    assert "The copy of node a has lost messages on its disk" in told[1].text


def test_no_view_no_line() -> None:
    assert _told(TWO, None) == []
    assert _told(None, created(0, [("a", 1)])) == []
    assert _told(TWO, TWO) == []


def test_one_node_tells() -> None:
    flushing = died(TWO, [1], may_lose=False)
    down = died(TWO, [1, 2], may_lose=False)
    assert [node for node in "abc" if is_speaker(TWO, TWO, node, "abc")] == ["a"]
    assert [node for node in "bc" if is_speaker(TWO, flushing, node, "bc")] == ["b"]
    assert [node for node in "cd" if is_speaker(TWO, down, node, "dc")] == ["c"]
    assert [node for node in "abc" if is_speaker(TWO, _then(TWO, TransferMaster(1, 2)), node, "abc")] == ["b"]
    assert [node for node in "abc" if is_speaker(TWO, None, node, "abc")] == ["a"]


@pytest.mark.parametrize(
    ("settings", "copies"),
    [
        (PLAIN, 0),
        (ALL, 3),
        (exactly(2), 2),
        (exactly(7), 3),
        (nodes("a", "b"), 2),
        (nodes("a", "x"), 1),
        (nodes("x"), 1),
    ],
)
def test_how_many_copies_are_wanted(settings: QueueSettings, copies: int) -> None:
    """Whichever of the nodes are up."""
    members = [
        member("a"),
        replace(member("b"), is_up=False),
        member("c", is_draining=True),
        member("w", type="witness"),
    ]
    assert wanted_copies(queue(), settings, members) == copies


def test_what_views_do_not_tell() -> None:
    record, mirror = _record(TWO), TWO.members[1]
    assert evicted(record, mirror, "is slow", 10.0).text == (
        PREFIX + "Dropping queue mirror on node b: <b.2.2> is slow; no new mirrors there for 10 s"
    )
    assert blocked(record, mirror, "is slow").text == PREFIX + "Waiting for mirror <b.2.2>, which is slow"
    assert _texts(sync_begun(record, 5, 4096, "b")) == [
        "Synchronising: 5 messages to synchronise",
        "Synchronising: batch size: 4096",
        "Synchronising: mirrors [b] to sync",
    ]
    assert sync_ended(record, "complete").text == PREFIX + "Synchronising: complete"
    assert sync_ended(record, "needless").text == PREFIX + "Synchronising: all mirrors already synced"
    assert "unsynchronised" in sync_ended(record, "cancelled").text
