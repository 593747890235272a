"""The changes of a mirrored queue's view that can be proposed; `node.catalogue.mirrors.views` makes them.

A change names members by their ids and says what it was proposed for, so that one that comes too late is recognised.
Source: reliability §4.1, §4.6.
"""

from dataclasses import dataclass
from typing import TypeAlias


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
