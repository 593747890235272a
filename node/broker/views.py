"""The view of a mirrored queue: which nodes have a copy, in which order they pass on its operations, who is master.

A view is a value in the catalogue, so all nodes see the same views in the same order. A change says what is asked
for; `changed` gives the view that comes of it, or None where it cannot be (any more), so a change may be proposed
again or too late without harm. Reads no clock and no randomness.

    live ── the master dies ─► flushing ── the last dead one is erased ─► live, with another master
                                  └ nobody who may be promoted ─► down ── a node offers its copy ─► live

Source: reliability §4.1, §4.6, §4.10.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

MirrorStatus: TypeAlias = Literal["joining", "alive", "dead"]
ViewState: TypeAlias = Literal["live", "flushing", "down"]


@dataclass(frozen=True, slots=True)
class RingMember:
    """One copy of the queue.

    id: unlike any other that the queue ever had, and rising: who has a lower one joined earlier.
    node, incarnation: where it is. It ends with the incarnation.
    status: joining until it has its left neighbour's state; dead until what it had to say has gone round.
    edge: the version in which it got the left neighbour that it has; of no meaning for the dead.
    copy: names what it has on disk, see `stored_uid`.
    """

    id: int
    node: str
    incarnation: int
    status: MirrorStatus
    edge: int
    copy: int = 0


_STEM_DIGITS: Final = 16
"""How many digits of a uid all copies of the queue share on disk: so it shows whose they are."""


def stored_uid(uid: str, copy: int) -> str:
    """Names what a node has on disk of a queue: nobody takes up a copy that was given up, be it half removed.

    uid: 32 hexadecimal digits, as the result.
    """
    return uid[:_STEM_DIGITS] + f"{int(uid[_STEM_DIGITS:], 16) ^ copy:016x}" if copy else uid


@dataclass(frozen=True, slots=True)
class View:
    """One view.

    members: in the order of the ring, the dead among them.   master: an id; 0: none now.
    synced: ids of those who have all that was confirmed. A dead one is among them until it is erased, or as long as
        there is no master: its copy may be what brings the queue back.
    since: the version in which the master became master: names its mastership.
    previous: who handed over, and whoever is master waits for the end of its operations; 0: nobody did.
    handover: the version in which that was.
    recoverable: nodes that may bring a queue back which is down, the best first; also while it is flushing.
    copies: what each of them has to do that with.
    offers: those of them that are there: node, incarnation, position (the number after its last message).
    may_lose: a copy that is not synchronised may be promoted, if there is no other.
    """

    version: int
    members: tuple[RingMember, ...]
    master: int
    synced: tuple[int, ...]
    state: ViewState = "live"
    since: int = 0
    previous: int = 0
    handover: int = 0
    recoverable: tuple[str, ...] = ()
    copies: tuple[int, ...] = ()
    offers: tuple[tuple[str, int, int], ...] = ()
    may_lose: bool = False

    def member(self, id_: int) -> RingMember | None:
        """The member of that id."""
        return next((member for member in self.members if member.id == id_), None)

    def member_on(self, node: str) -> RingMember | None:
        """The member on a node that is not dead."""
        return next((member for member in self.members if member.node == node and is_there(member)), None)

    def copy_to_keep(self, node: str) -> int | None:
        """Which copy on the disk of a node that has started anew may be what the queue comes back from; None: none.

        Who had all there was when it died, or whose death isn't known yet, is recoverable once the master dies.
        """
        if node in self.recoverable:
            return self.copies[self.recoverable.index(node)]
        good = (member.copy for member in self.members if member.node == node and member.id in self.synced)
        return next(good, None)

    @property
    def ring(self) -> tuple[RingMember, ...]:
        """Those who pass on operations, each to the next, the last one to the first."""
        return tuple(filter(is_there, self.members))

    @property
    def is_first(self) -> bool:
        """Whether it is the first one of the queue, or since it came back: whoever comes later is joining at first."""
        return any(member.id == self.version and member.status == "alive" for member in self.members)

    @property
    def is_settled(self) -> bool:
        """Whether what is at all members may be confirmed: not while there is no master, nor while a dead one counts as
        having all that was confirmed.
        """
        dead = (member.id for member in self.members if not is_there(member))
        return self.state == "live" and not any(id_ in self.synced for id_ in dead)

    @property
    def master_node(self) -> str | None:
        """Where the master is."""
        master = self.member(self.master)
        return None if master is None else master.node

    def left_of(self, id_: int) -> int:
        """Whom a member of the ring hears: itself if it is alone."""
        ids = [member.id for member in self.ring]
        return ids[ids.index(id_) - 1]

    def right_of(self, id_: int) -> int:
        """Whom a member of the ring tells: itself if it is alone."""
        ids = [member.id for member in self.ring]
        return ids[(ids.index(id_) + 1) % len(ids)]

    def owner_of(self, id_: int) -> int:
        """Who answers for a member's operations: itself, or of a dead one the next that is alive; 0: nobody is."""
        ids = [member.id for member in self.members]
        at = ids.index(id_)
        for member in (*self.members[at:], *self.members[:at]):
            if member.status == "alive":
                return member.id
        return 0


def is_there(member: RingMember) -> bool:
    """Whether it is part of the ring."""
    return member.status != "dead"


# --- changes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddMirror:
    """The master wants a copy on a node, which is up in this incarnation and has none. It joins at the tail."""

    node: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class ActivateMirror:
    """A joining member has its left neighbour's state."""

    member: int


@dataclass(frozen=True, slots=True)
class MirrorSynced:
    """A member has all that the master has."""

    member: int


@dataclass(frozen=True, slots=True)
class DropMirror:
    """The master wants a member no more, by policy or because it doesn't keep up.

    version: of the view that its proposer saw, when others could spare the member; 0: it goes whatever others do.
    """

    member: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class EraseMirror:
    """All that a dead member had to say has gone round; its owner says so."""

    member: int
    owner: int


@dataclass(frozen=True, slots=True)
class TransferMaster:
    """The master hands over to a synchronised member."""

    master: int
    to: int


@dataclass(frozen=True, slots=True)
class TookOver:
    """All members have heard what the master before had to say: the present one's first broadcast has come round.

    since: as of the view that its proposer saw: the same member may be master again when this comes, and wait.
    """

    since: int


@dataclass(frozen=True, slots=True)
class OfferCopy:
    """A recoverable node has recovered its copy of a queue that is down.

    The last master's is taken at once, and so is the best one when all have offered.
    """

    node: str
    incarnation: int
    position: int


@dataclass(frozen=True, slots=True)
class Revive:
    """The last master has been waited for long enough: take the best copy that was offered.

    version: of the view that its proposer saw.
    """

    version: int


@dataclass(frozen=True, slots=True)
class Unmirror:
    """The master is alone and is to be no mirrored queue any more. The catalogue drops the view."""

    master: int


ViewChange: TypeAlias = (
    AddMirror
    | ActivateMirror
    | MirrorSynced
    | DropMirror
    | EraseMirror
    | TransferMaster
    | TookOver
    | OfferCopy
    | Revive
    | Unmirror
)


def created(version: int, nodes: Sequence[tuple[str, int]], copy: int | None = None) -> View:
    """The first view of an empty queue, all synchronised, the first one master.

    version: the last one that the queue ever had, 0 for a new one.   nodes: with their incarnations.
    copy: what the master has on disk already.
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
    """The view after a change; None: it cannot be.

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
            return _drop(view, id_) if version in (0, view.version) else None
        case EraseMirror(id_, owner):
            return _erase(view, id_, owner)
        case TransferMaster(master, to):
            return _transfer(view, master, to)
        case TookOver(since):
            is_meant = view.state == "live" and view.since == since and view.previous
            return replace(view, version=view.version + 1, previous=0, handover=0) if is_meant else None
        case OfferCopy(node, incarnation, position):
            return _offer(view, node, incarnation, position)
        case Revive(version):
            return _revive(view) if view.version == version else None
        case Unmirror(master):
            is_alone = (
                view.state == "live"
                and view.master == master
                and len(view.members) == 1
                and not view.previous
            )
            return view if is_alone else None


def _add(view: View, node: str, incarnation: int) -> View | None:
    if view.state != "live" or view.previous or view.member_on(node) is not None:
        return None
    if any(member.node == node and member.id in view.synced for member in view.members):
        return None  # what its dead one has there may be what the queue has to be brought back from
    version = view.version + 1
    newcomer = RingMember(version, node, incarnation, "joining", version, version)
    at = next(index for index, member in enumerate(view.members) if member.id == view.master) or len(
        view.members
    )
    while not is_there(view.members[at - 1]):
        at -= 1  # the owner of a dead one must not be who knows least
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
    return replace(view, version=view.version + 1, synced=(*view.synced, id_))


def _drop(view: View, id_: int) -> View | None:
    member = view.member(id_)
    if view.state != "live" or member is None or not is_there(member) or id_ == view.master:
        return None
    return died(view, (id_,), may_lose=False)


def died(view: View, ids: Iterable[int], *, may_lose: bool) -> View:
    """The view after members have died, or were cut out.

    Who was joining goes too, or who knows least could come to own what a dead one had to say (reliability S2).
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
    if view.master:  # from now on it is confirmed what the erased one lacks
        view = replace(view, synced=tuple(known for known in view.synced if known != id_))
    after = _linked(view, members)
    if after.state == "flushing" and all(map(is_there, members)):
        return _promoted(after)
    return after


def _promoted(view: View) -> View:
    """All have the same operations now: any synchronised copy is as long as the others. The first one is taken."""
    alive = [member for member in view.members if member.status == "alive"]
    synced = tuple(member.id for member in alive if member.id in view.synced)
    if synced:
        master = synced[0]
    elif view.may_lose and alive:
        master = min(member.id for member in alive)
        synced = (master,)
    else:
        return _down(view)
    if view.previous == master:  # it needs nobody to tell it what itself has said
        view = replace(view, previous=0, handover=0)
    return replace(
        view, master=master, synced=synced, state="live", since=view.version, recoverable=(), copies=()
    )


def _down(view: View) -> View:
    return replace(view, members=(), master=0, synced=(), state="down", previous=0, handover=0, offers=())


def _transfer(view: View, master: int, to: int) -> View | None:
    heir = view.member(to)
    if view.master != master or view.state != "live" or view.previous or to == master:
        return None
    if heir is None or heir.status != "alive" or to not in view.synced:
        return None
    version = view.version + 1
    return replace(view, version=version, master=to, previous=master, handover=version, since=version)


def _offer(view: View, node: str, incarnation: int, position: int) -> View | None:
    if view.state != "down" or node not in view.recoverable:
        return None
    offer = (node, incarnation, position)
    if offer in view.offers:
        return None
    others = tuple(known for known in view.offers if known[0] != node)
    after = replace(view, version=view.version + 1, offers=(*others, offer))
    is_last_master = node == view.recoverable[0]
    has_all = {known[0] for known in after.offers} == set(view.recoverable)
    if is_last_master or has_all:
        return _revived(after, offer if is_last_master else _best(after))
    return after


def _revive(view: View) -> View | None:
    if view.state != "down" or not view.offers:
        return None
    return _revived(replace(view, version=view.version + 1), _best(view))


def _best(view: View) -> tuple[str, int, int]:
    return max(view.offers, key=lambda offer: (offer[2], -view.recoverable.index(offer[0])))


def _revived(view: View, offer: tuple[str, int, int]) -> View:
    node, incarnation, _ = offer
    version = view.version
    copy = view.copies[view.recoverable.index(node)]
    master = RingMember(version, node, incarnation, "alive", version, copy)
    return View(version, (master,), version, (version,), since=version)


def withdrawn(view: View, node: str) -> View | None:
    """The view after a node that had offered its copy went down; None: it had not."""
    offers = tuple(offer for offer in view.offers if offer[0] != node)
    return None if offers == view.offers else replace(view, version=view.version + 1, offers=offers)


def forgotten(view: View, node: str) -> View | None:
    """The view after a node is no member of the cluster any more: nobody waits for its copy. None: nobody did.

    The best of those that were offered is taken if they are all there are now.
    """
    gone = {member.id for member in view.members if member.node == node and not is_there(member)}
    synced = tuple(id_ for id_ in view.synced if id_ not in gone)
    if node not in view.recoverable and synced == view.synced:
        return None
    left = [each for each in zip(view.recoverable, view.copies, strict=True) if each[0] != node]
    recoverable = tuple(known for known, _ in left)
    copies = tuple(copy for _, copy in left)
    offers = tuple(offer for offer in view.offers if offer[0] != node)
    after = replace(
        view,
        version=view.version + 1,
        synced=synced,
        recoverable=recoverable,
        copies=copies,
        offers=offers,
    )
    if after.state == "down" and offers and {offer[0] for offer in offers} == set(recoverable):
        return _revived(after, _best(after))
    return after


def _with(view: View, member: RingMember) -> tuple[RingMember, ...]:
    return tuple(member if known.id == member.id else known for known in view.members)


def _linked(view: View, members: tuple[RingMember, ...]) -> View:
    """The next view, with these members; who has another left neighbour has a new edge."""
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
