"""Changes of a mirrored queue's view: which nodes have a copy, in which order they pass on operations, who is master.

A view is a value in the catalogue, so all nodes see the same views in the same order. A change says what is asked
for (`view_changes`); `changed` gives the view that comes of it, or None where it cannot be (any more), so a change may
be proposed again or too late without harm. `promotion` decides who becomes master. Reads no clock and no randomness.

    live ── the master dies ─► flushing ── the last dead one is erased ─► live, with another master
                                  └ no member may be promoted ─► down ── a node offers its copy ─► live

Source: reliability §4.1, §4.6, §4.10.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from node.catalogue.mirrors import promotion
from node.catalogue.mirrors.promotion import forgotten, is_offered, withdrawn
from node.catalogue.mirrors.view import RingMember, View, is_there, stored_uid
from node.catalogue.mirrors.view_changes import (
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
    ViewChange,
)

__all__ = [
    "ActivateMirror",
    "AddMirror",
    "DeclineMaster",
    "DropMirror",
    "EraseMirror",
    "GiveUp",
    "MirrorSynced",
    "OfferCopy",
    "Revive",
    "RingMember",
    "TookOver",
    "TransferMaster",
    "Unmirror",
    "View",
    "ViewChange",
    "changed",
    "created",
    "died",
    "forgotten",
    "is_offered",
    "is_there",
    "stored_uid",
    "withdrawn",
]


def is_spared(view: View, id_: int) -> bool:
    """True if another synchronised member is there: it has all that was confirmed."""
    return any(is_there(member) and member.id in view.synced for member in view.members if member.id != id_)


def is_followed(view: View, node: str) -> bool:
    """True if the former master was on a node, and the present one has not taken over from it."""
    former = view.member(view.previous)
    return former is not None and former.node == node and is_there(former)


def created(version: int, nodes: Sequence[tuple[str, int]], copy: int | None = None) -> View:
    """Return the first view of an empty queue: all members are synchronised, the first one is master.

    version: the last one that the queue ever had, 0 for a new one.   nodes: with their incarnations.
    copy: the number of the copy that the master has on disk already.
    """
    last = version + len(nodes)
    members = tuple(
        RingMember(
            id_, node, incarnation, "alive", last, copy if copy is not None and id_ == version + 1 else id_
        )
        for id_, (node, incarnation) in enumerate(nodes, version + 1)
    )
    ids = tuple(member.id for member in members)
    return View(last, members, ids[0], ids, since=last)


def changed(view: View, change: ViewChange) -> View | None:
    """Return the view after a change; None if the change cannot be made.

    For AddMirror and OfferCopy the caller has checked that the incarnation is the node's present one and up;
    `Unmirror` gives the view itself where it may be dropped.
    """
    match change:
        case AddMirror(node, incarnation):
            return _add(view, node, incarnation)
        case ActivateMirror(id_):
            return _activate(view, id_)
        case MirrorSynced(id_):
            return _synced(view, id_)
        case DropMirror(id_, version):
            return _drop(view, id_, version)
        case GiveUp(id_):
            return _give_up(view, id_)
        case EraseMirror(id_, owner):
            return _erase(view, id_, owner)
        case TransferMaster(master, to):
            return _transfer(view, master, to)
        case DeclineMaster(master, since):
            return _decline(view, master, since)
        case TookOver(since):
            is_meant = view.state == "live" and view.since == since and view.previous
            return replace(view, version=view.version + 1, previous=0, handover=0) if is_meant else None
        case OfferCopy():
            return promotion.offered(view, change)
        case Revive(version):
            return promotion.revived(view) if view.version == version else None
        case Unmirror(master, version):
            is_alone = (
                version in (0, view.version)
                and view.state == "live"
                and view.master == master
                and len(view.members) == 1
                and not view.previous
            )
            return view if is_alone else None


def _add(view: View, node: str, incarnation: int) -> View | None:
    if view.state != "live" or view.previous or view.member_on(node) is not None:
        return None
    if any(member.node == node and member.id in view.synced for member in view.members):
        return None  # the dead member's copy on this node may be needed to bring the queue back
    version = view.version + 1
    newcomer = RingMember(version, node, incarnation, "joining", version, version)
    at = next(index for index, member in enumerate(view.members) if member.id == view.master) or len(
        view.members
    )
    while not is_there(view.members[at - 1]):
        at -= 1  # the owner of a dead member must not be the newcomer, which knows least
    return _linked(view, (*view.members[:at], newcomer, *view.members[at:]))


def _activate(view: View, id_: int) -> View | None:
    member = view.member(id_)
    if member is None or member.status != "joining":
        return None
    return _linked(view, _with(view, replace(member, status="alive")))


def _synced(view: View, id_: int) -> View | None:
    member = view.member(id_)
    if member is None or member.status != "alive" or id_ in view.synced:
        return None
    return replace(view, version=view.version + 1, synced=(*view.synced, id_), judged=(), kept=(), common=0)


def _drop(view: View, id_: int, version: int) -> View | None:
    member = view.member(id_)
    if member is None or not is_there(member) or id_ == view.master or version not in (0, view.version):
        return None
    if view.state != "live" and not (version and is_spared(view, id_)):
        return None
    return _without(view, member)


def _give_up(view: View, id_: int) -> View | None:
    member = view.member(id_)
    if member is None or not is_there(member) or (id_ in view.synced and not is_spared(view, id_)):
        return None
    return _without(view, member)


def _without(view: View, member: RingMember) -> View:
    """Return the view after a member was cut out whose copy is dropped: it is not waited for."""
    gone = (member.node, member.copy)
    left = [each for each in zip(view.recoverable, view.copies, strict=True) if each != gone]
    others = replace(
        view,
        synced=tuple(id_ for id_ in view.synced if id_ != member.id),
        recoverable=tuple(node for node, _ in left),
        copies=tuple(copy for _, copy in left),
    )
    return died(others, (member.id,), may_lose=False)


def died(view: View, ids: Iterable[int], *, may_lose: bool) -> View:
    """Return the view after members have died, or were cut out.

    Joining members go too: else the one that knows least could own a dead one's broadcasts (reliability §4.7 S2).
    may_lose: if the master is among them: whether an unsynchronised copy may be promoted.
    """
    dead = set(ids)
    members = tuple(
        replace(member, status="dead") if member.id in dead else member
        for member in view.members
        if member.status != "joining"
    )
    recoverable, copies, master, state = view.recoverable, view.copies, view.master, view.state
    if master in dead:
        good = sorted(
            (member for member in view.members if member.id in view.synced),
            key=lambda member: member.id != view.master,
        )
        recoverable = tuple(member.node for member in good)
        copies = tuple(member.copy for member in good)
        master, state = 0, "flushing"
    after = _linked(
        replace(
            view,
            master=master,
            state=state,
            recoverable=recoverable,
            copies=copies,
            may_lose=may_lose if master != view.master else view.may_lose,
        ),
        members,
    )
    if state == "flushing" and not any(member.status == "alive" for member in members):
        return promotion.down(after)
    return after


def _erase(view: View, id_: int, owner: int) -> View | None:
    member = view.member(id_)
    if member is None or is_there(member) or view.owner_of(id_) != owner:
        return None
    members = tuple(each for each in view.members if each.id != id_)
    if view.previous == id_:
        view = replace(view, previous=0, handover=0)
    if view.master:  # from now on operations are confirmed that the erased member lacks
        view = replace(view, synced=tuple(known for known in view.synced if known != id_))
    after = _linked(view, members)
    if after.state == "flushing" and all(map(is_there, members)):
        return promotion.promoted(after)
    return after


def _transfer(view: View, master: int, to: int) -> View | None:
    heir = view.member(to)
    if view.master != master or view.state != "live" or view.previous or to == master:
        return None
    if heir is None or heir.status != "alive" or to not in view.synced:
        return None
    version = view.version + 1
    return replace(view, version=version, master=to, previous=master, handover=version, since=version)


def _decline(view: View, master: int, since: int) -> View | None:
    former = view.member(view.previous)
    if view.state != "live" or view.master != master or view.since != since:
        return None
    if former is None or not is_there(former):
        return None
    version = view.version + 1
    return replace(view, version=version, master=former.id, previous=0, handover=0, since=version)


def _with(view: View, member: RingMember) -> tuple[RingMember, ...]:
    return tuple(member if known.id == member.id else known for known in view.members)


def _linked(view: View, members: tuple[RingMember, ...]) -> View:
    """Return the next view with these members; a member with another left neighbour gets a new edge."""
    version = view.version + 1
    before = {member.id: view.left_of(member.id) for member in view.ring}
    after = replace(view, version=version, members=members)
    return replace(
        after,
        members=tuple(
            member
            if not is_there(member) or before.get(member.id) == after.left_of(member.id)
            else replace(member, edge=version)
            for member in members
        ),
    )
