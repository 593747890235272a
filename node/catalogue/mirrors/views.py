"""Changes of a mirrored queue's view: which nodes have a copy, in which order they pass on operations, who is master.

A view is a value in the catalogue, so all nodes see the same views in the same order. A change says what is asked
for; `changed` gives the view that comes of it, or None where it cannot be (any more), so a change may be proposed
again or too late without harm. Reads no clock and no randomness.

    live ── the master dies ─► flushing ── the last dead one is erased ─► live, with another master
                                  └ no member may be promoted ─► down ── a node offers its copy ─► live

Source: reliability §4.1, §4.6, §4.10.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from node.catalogue.mirrors.view import RingMember, View, is_there, stored_uid

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


# --- changes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddMirror:
    """Add a mirror on a node that is up in this incarnation and has no copy. It joins at the tail of the ring."""

    node: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class ActivateMirror:
    """Count a joining member as alive: it has its left neighbour's state."""

    member: int


@dataclass(frozen=True, slots=True)
class MirrorSynced:
    """Count a member as synchronised: it has all that the master has."""

    member: int


@dataclass(frozen=True, slots=True)
class DropMirror:
    """Drop a mirror, as its policy wants it no more or because it does not keep up.

    version: of the view that its proposer saw, when others could spare the member; 0: it goes whatever others do.
        While there is no master it goes in that view only, and only if another synchronised one is there.
    """

    member: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Drop a member whose node says that its copy is of no use, even the master's; its copy is removed from disk.

    Refused for the last synchronised member that is there.
    """

    member: int


@dataclass(frozen=True, slots=True)
class EraseMirror:
    """Erase a dead member: its owner says that all its broadcasts have gone round."""

    member: int
    owner: int


@dataclass(frozen=True, slots=True)
class TransferMaster:
    """Make a synchronised member the master in place of the present one."""

    master: int
    to: int


@dataclass(frozen=True, slots=True)
class DeclineMaster:
    """Give the mastership back to the former master, for whose last broadcast the present one has waited too long.

    The one that declines has done nothing as master, and will not in this mastership.   since: as of its view.
    """

    master: int
    since: int


@dataclass(frozen=True, slots=True)
class TookOver:
    """End a handover: the new master's first broadcast has come round, so all have what the former master broadcast.

    since: as of the view that its proposer saw: the same member may be master again when this comes, and wait.
    """

    since: int


@dataclass(frozen=True, slots=True)
class OfferCopy:
    """Offer a node's copy of a queue that is down. When all recoverable nodes have offered, the best copy is taken.

    is_clean: it has all that it ever had, as far as its node can tell; None: an older version, which did not look. Then
        the last master's is taken at once.
    """

    node: str
    incarnation: int
    position: int
    is_clean: bool | None = None


@dataclass(frozen=True, slots=True)
class Revive:
    """Take the best copy that was offered, if it is clean: the other nodes have been waited for long enough.

    version: of the view that its proposer saw.
    """

    version: int


@dataclass(frozen=True, slots=True)
class Unmirror:
    """End the mirroring of a queue whose master is alone. The catalogue drops the view.

    version: of the view in which the master acted as such; 0: whichever it is. One that has not begun has a copy yet,
        and no queue.
    """

    master: int
    version: int = 0


ViewChange: TypeAlias = (
    AddMirror
    | ActivateMirror
    | MirrorSynced
    | DropMirror
    | GiveUp
    | EraseMirror
    | TransferMaster
    | DeclineMaster
    | TookOver
    | OfferCopy
    | Revive
    | Unmirror
)


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
            return _offer(view, change)
        case Revive(version):
            return _revive(view) if view.version == version else None
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

    Joining members go too: else the one that knows least could come to own a dead one's broadcasts (reliability S2).
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
        return _down(after)
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
        return _promoted(after)
    return after


def _promoted(view: View) -> View:
    """Return the view with the first synchronised member as master, or that of a queue that is down.

    All members have the same operations, so all synchronised copies are equal.
    """
    alive = [member for member in view.members if member.status == "alive"]
    synced = tuple(member.id for member in alive if member.id in view.synced)
    if synced:
        master = synced[0]
    elif view.may_lose and alive:
        master = min(member.id for member in alive)
        synced = (master,)
    else:
        return _down(view)
    if view.previous == master:  # it need not wait for its own broadcasts
        view = replace(view, previous=0, handover=0)
    return replace(
        view, master=master, synced=synced, state="live", since=view.version, recoverable=(), copies=()
    )


def _down(view: View) -> View:
    return replace(
        view, members=(), master=0, synced=(), state="down", previous=0, handover=0, offers=(), judged=()
    )


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


def _offer(view: View, change: OfferCopy) -> View | None:
    node = change.node
    if view.state != "down" or node not in view.recoverable:
        return None
    if is_offered(view, change):
        return None
    offer = (node, change.incarnation, change.position)
    judgement = () if change.is_clean is None else ((node, change.is_clean),)
    after = _without_offer(view, node)
    after = replace(
        after,
        version=view.version + 1,
        offers=(*after.offers, offer),
        judged=(*after.judged, *judgement),
    )
    if change.is_clean is None and node == view.recoverable[0]:
        return _revived(after, offer)
    return _revived(after, _best(after)) if _has_all(after) else after


def is_offered(view: View, change: OfferCopy) -> bool:
    """True if the view has this very offer."""
    judgement = None if change.is_clean is None else (change.node, change.is_clean)
    offer = (change.node, change.incarnation, change.position)
    return offer in view.offers and (judgement is None or judgement in view.judged)


def _has_all(view: View) -> bool:
    return {offer[0] for offer in view.offers} == set(view.recoverable)


def _without_offer(view: View, node: str) -> View:
    return replace(
        view,
        offers=tuple(offer for offer in view.offers if offer[0] != node),
        judged=tuple(each for each in view.judged if each[0] != node),
    )


def _revive(view: View) -> View | None:
    if view.state != "down" or not view.clean_offers:
        return None
    return _revived(replace(view, version=view.version + 1), _best(view))


def _best(view: View) -> tuple[str, int, int]:
    """Return the best offer: a clean copy before others, then the longest, then the first of the recoverable nodes."""
    return max(
        view.clean_offers or view.offers, key=lambda offer: (offer[2], -view.recoverable.index(offer[0]))
    )


def _revived(view: View, offer: tuple[str, int, int]) -> View:
    """Return the view with an offered copy as the master's. Others are kept until there is a synchronised mirror."""
    node, incarnation, position = offer
    version = view.version
    copy = view.copies[view.recoverable.index(node)]
    master = RingMember(version, node, incarnation, "alive", version, copy)
    judged = tuple(each for each in view.judged if each[0] == node)
    # An older version, which did not judge, had the others removed at once: what it decided stays as it was.
    others = zip(view.recoverable, view.copies, strict=True) if judged else ()
    kept = tuple(each for each in (*others, *view.kept) if each[0] != node)
    common = min(view.common, position) if view.kept else position
    return View(
        version,
        (master,),
        version,
        (version,),
        since=version,
        judged=judged,
        kept=kept,
        common=common if kept else 0,
    )


def withdrawn(view: View, node: str) -> View | None:
    """Return the view after a node that had offered its copy went down; None if it had not."""
    after = _without_offer(view, node)
    return None if after.offers == view.offers else replace(after, version=view.version + 1)


def forgotten(view: View, node: str) -> View | None:
    """Return the view after a node was forgotten, so that its copy is not waited for; None if it was not.

    If all other copies were offered, the best of them is taken. If there is no other, those count that were not taken
    when the queue came back before.
    """
    gone = {member.id for member in view.members if member.node == node and not is_there(member)}
    synced = tuple(id_ for id_ in view.synced if id_ not in gone)
    kept = tuple(each for each in view.kept if each[0] != node)
    if node not in view.recoverable and synced == view.synced and kept == view.kept:
        return None
    left = tuple(each for each in zip(view.recoverable, view.copies, strict=True) if each[0] != node)
    if view.state != "live" and not left:
        left, kept = kept, ()
    after = replace(
        _without_offer(view, node),
        version=view.version + 1,
        synced=synced,
        recoverable=tuple(known for known, _ in left),
        copies=tuple(copy for _, copy in left),
        kept=kept,
    )
    if after.state == "down" and after.offers and _has_all(after):
        return _revived(after, _best(after))
    return after


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
