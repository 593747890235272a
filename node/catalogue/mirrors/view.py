"""The view of a mirrored queue, as a value: `node.catalogue.mirrors.views` says how it changes."""

from dataclasses import dataclass
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
    judged: of those that offered, node and whether its copy has all that it ever had; also of a queue that came back
        the one that was taken. Older versions did not say it, which counts as yes.
    kept: of a queue that came back, node and copy of those that were not taken, until there is a synchronised mirror.
    common: what has a lower number is the same message in all of these and in the master's, if they have it; 0: nobody
        knows. Higher numbers may have been given to others since.
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
        """The member of that id."""
        return next((member for member in self.members if member.id == id_), None)

    def member_on(self, node: str) -> RingMember | None:
        """The member on a node that is not dead."""
        return next((member for member in self.members if member.node == node and is_there(member)), None)

    def has(self, id_: int) -> bool:
        """Whether the ring has a member of that id."""
        member = self.member(id_)
        return member is not None and is_there(member)

    def wants(self, own: RingMember) -> bool:
        """Whether what a member has on disk has to stay: it is in the ring, or the queue may come back from it.

        A node whose broker goes on for a while may learn from the view that the others have declared it down.
        """
        return self.has(own.id) or self.copy_to_keep(own.node) == own.copy

    def copy_to_keep(self, node: str) -> int | None:
        """Which copy on the disk of a node that has started anew may be what the queue comes back from; None: none.

        Who had all there was when it died, or whose death isn't known yet, is recoverable once the master dies. Behind
        them come those that were not taken when the queue came back.
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
