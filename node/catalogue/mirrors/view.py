"""The view of a mirrored queue, as a value: `node.catalogue.mirrors.views` says how it changes."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

MirrorStatus: TypeAlias = Literal["joining", "alive", "dead"]
ViewState: TypeAlias = Literal["live", "flushing", "down"]


@dataclass(frozen=True, slots=True)
class RingMember:
    """One copy of the queue, as a member of its ring.

    id: unlike any other that the queue ever had, and rising: a lower one has joined earlier.
    node, incarnation: where the copy is. It ends with the incarnation.
    status: joining until it has its left neighbour's state; dead until its last broadcasts have gone round.
    edge: the version in which it got the left neighbour that it has; of no meaning for the dead.
    copy: the number of its copy on disk (`stored_uid`).
    """

    id: int
    node: str
    incarnation: int
    status: MirrorStatus
    edge: int
    copy: int = 0


_STEM_DIGITS: Final = 16
"""The number of a uid's digits that all copies of the queue share on disk: so it shows which queue they belong to."""


def stored_uid(uid: str, copy: int) -> str:
    """Return the id of a queue's copy on a node's disk, so that a copy that was given up is never taken up again.

    uid: 32 hexadecimal digits, as the result.   copy: the copy's number; 0 gives the uid itself.
    """
    return uid[:_STEM_DIGITS] + f"{int(uid[_STEM_DIGITS:], 16) ^ copy:016x}" if copy else uid


@dataclass(frozen=True, slots=True)
class View:
    """The members of a mirrored queue's ring, its master and its synchronised members: one version.

    members: in the order of the ring, the dead among them.   master: an id; 0: there is none.
    synced: ids of members with all that was confirmed. A dead one is among them until it is erased, or as long as
        there is no master: its copy may be what brings the queue back.
    since: the version in which the master became master; it names the mastership.
    previous: the master that handed over: the present one waits for the end of its operations; 0: none did.
    handover: the version in which that was.
    recoverable: nodes that may bring back a queue that is down, the best first; also while it is flushing.
    copies: for each of these the number of its copy on disk.
    offers: the copies of recoverable nodes that are up: node, incarnation, position (the number after its last
        message).
    judged: of those that offered, node and whether its copy has all that it ever had; of a queue that came back, the
        same of the copy that was taken. Offers of older versions are not among them, which counts as yes.
    kept: of a queue that came back, node and copy of those that were not taken, until there is a synchronised mirror.
    common: a message with a lower number is the same in all kept copies and in the master's, as far as they have it; 0:
        it is not known. Higher numbers may have been given to other messages since.
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
    judged: tuple[tuple[str, bool], ...] = ()
    kept: tuple[tuple[str, int], ...] = ()
    common: int = 0

    def member(self, id_: int) -> RingMember | None:
        """Return the member of that id, dead or not."""
        return next((member for member in self.members if member.id == id_), None)

    def member_on(self, node: str) -> RingMember | None:
        """Return the member on a node that is not dead."""
        return next((member for member in self.members if member.node == node and is_there(member)), None)

    def has(self, id_: int) -> bool:
        """True if the ring has a member of that id that is not dead."""
        member = self.member(id_)
        return member is not None and is_there(member)

    def wants(self, own: RingMember) -> bool:
        """True if a member's copy has to stay on disk: it is in the ring, or the queue may come back from it.

        A node whose broker goes on for a while may learn from the view that the others have declared it down.
        """
        return self.has(own.id) or self.copy_to_keep(own.node) == own.copy

    def copy_to_keep(self, node: str) -> int | None:
        """Return the number of the copy on a restarted node's disk that may bring the queue back, or None.

        A member that had all when it died, or whose death is not known yet, is recoverable once the master dies. After
        these come the copies that were not taken when the queue came back.
        """
        if node in self.recoverable:
            return self.copies[self.recoverable.index(node)]
        good = [member.copy for member in self.members if member.node == node and member.id in self.synced]
        return next(iter(good), dict(self.kept).get(node))

    @property
    def clean_offers(self) -> list[tuple[str, int, int]]:
        """The offers of copies that have all that they ever had."""
        return [offer for offer in self.offers if (offer[0], False) not in self.judged]

    @property
    def ring(self) -> tuple[RingMember, ...]:
        """The members that pass on operations, each to the next, the last one to the first."""
        return tuple(filter(is_there, self.members))

    @property
    def is_first(self) -> bool:
        """True if this is the queue's first view, or its first since it came back.

        Members that come later begin as joining.
        """
        return any(member.id == self.version and member.status == "alive" for member in self.members)

    @property
    def is_settled(self) -> bool:
        """True if an operation that all members have may be confirmed.

        It is false while there is no master, or while a dead member counts as having all that was confirmed.
        """
        dead = (member.id for member in self.members if not is_there(member))
        return self.state == "live" and not any(id_ in self.synced for id_ in dead)

    @property
    def master_node(self) -> str | None:
        """The node of the master; None if there is no master."""
        master = self.member(self.master)
        return None if master is None else master.node

    def left_of(self, id_: int) -> int:
        """Return the member from which a member of the ring receives: itself if it is alone."""
        ids = [member.id for member in self.ring]
        return ids[ids.index(id_) - 1]

    def right_of(self, id_: int) -> int:
        """Return the member to which a member of the ring sends: itself if it is alone."""
        ids = [member.id for member in self.ring]
        return ids[(ids.index(id_) + 1) % len(ids)]

    def owner_of(self, id_: int) -> int:
        """Return the member that owns a member's operations: itself, or for a dead one the next alive; 0: none is."""
        ids = [member.id for member in self.members]
        at = ids.index(id_)
        for member in (*self.members[at:], *self.members[:at]):
            if member.status == "alive":
                return member.id
        return 0


def is_there(member: RingMember) -> bool:
    """True if the member is part of the ring."""
    return member.status != "dead"
