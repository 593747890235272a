"""The placement of one queue's copies, and the effect of each step on it: the model that all of the planning uses.

It is the broker's, without the states in between (joining, flushing): a new copy joins before the master in the order
of members, a promotion changes nothing in that order, and the first synchronised member in it becomes master if the
master dies. Raises ValueError for a step that the broker would refuse.
Source: node/catalogue/mirrors/views.py, read; reliability §4.1.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Placement:
    """The copies of a queue.

    members: nodes, in the order that decides which one is heir.   master: one of them.
    synced: those of them with all messages, the master included.
    """

    members: tuple[str, ...]
    master: str
    synced: frozenset[str]

    @property
    def ring(self) -> tuple[str, ...]:
        """The members in the order in which operations are passed on, from the master on."""
        at = self.members.index(self.master)
        return self.members[at:] + self.members[:at]

    @property
    def heir(self) -> str | None:
        """The node that becomes master if the master dies now; None if no other copy is synchronised."""
        return next((node for node in self.members if node != self.master and node in self.synced), None)

    def added(self, node: str) -> "Placement":
        """Return the placement with one more copy, which has no messages yet."""
        if node in self.members:
            raise ValueError(f"{node} has a copy already")
        at = self.members.index(self.master) or len(self.members)
        return replace(self, members=(*self.members[:at], node, *self.members[at:]))

    def filled(self, node: str) -> "Placement":
        """Return the placement after a copy was synchronised."""
        if node not in self.members:
            raise ValueError(f"{node} has no copy")
        return replace(self, synced=self.synced | {node})

    def promoted(self, node: str) -> "Placement":
        """Return the placement with the master on a node, which must have a synchronised copy."""
        if node not in self.synced:
            raise ValueError(f"{node} has no synchronised copy")
        return replace(self, master=node)

    def dropped(self, node: str) -> "Placement":
        """Return the placement without the copy on a node, which must not be the master."""
        if node == self.master or node not in self.members:
            raise ValueError(f"{node} has no mirror to give up")
        return Placement(
            tuple(each for each in self.members if each != node), self.master, self.synced - {node}
        )

    def without(self, dead: Collection[str]) -> "Placement | None":
        """Return the placement after nodes died; None if no synchronised copy is left.

        An unsynchronised copy is kept only while the master lives: after a promotion it starts anew.
        """
        members = tuple(node for node in self.members if node not in dead)
        synced = self.synced - frozenset(dead)
        if self.master not in dead:
            return Placement(members, self.master, synced)
        heir = next((node for node in members if node in synced), None)
        return None if heir is None else Placement(members, heir, synced)
