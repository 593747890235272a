"""Where the copies of one queue are, and what each step does to that: the model that everything here agrees on.

It is the broker's, without what lies between (joining, flushing): a new copy joins before the master in the order of
members, a promotion changes nothing in that order, and who comes first in it becomes master if the master dies.
Raises ValueError for a step that the broker would refuse.
Source: node/catalogue/mirrors/views.py, read; reliability §4.1.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Placement:
    """The copies of a queue.

    members: nodes, in the order that decides who is heir.   master: one of them.   synced: of them, the master too.
    """

    members: tuple[str, ...]
    master: str
    synced: frozenset[str]

    @property
    def ring(self) -> tuple[str, ...]:
        """In the order in which operations are passed on, from the master on."""
        at = self.members.index(self.master)
        return self.members[at:] + self.members[:at]

    @property
    def heir(self) -> str | None:
        """Who becomes master if the master dies now; None: nobody has all."""
        return next((node for node in self.members if node != self.master and node in self.synced), None)

    def added(self, node: str) -> "Placement":
        """With a copy more, which has nothing yet."""
        if node in self.members:
            raise ValueError(f"{node} has a copy already")
        at = self.members.index(self.master) or len(self.members)
        return replace(self, members=(*self.members[:at], node, *self.members[at:]))

    def filled(self, node: str) -> "Placement":
        """After a copy got all there is."""
        if node not in self.members:
            raise ValueError(f"{node} has no copy")
        return replace(self, synced=self.synced | {node})

    def promoted(self, node: str) -> "Placement":
        """With the master there."""
        if node not in self.synced:
            raise ValueError(f"{node} has no synchronised copy")
        return replace(self, master=node)

    def dropped(self, node: str) -> "Placement":
        """Without the copy there, which must not be the master."""
        if node == self.master or node not in self.members:
            raise ValueError(f"{node} has no mirror to give up")
        return Placement(
            tuple(each for each in self.members if each != node), self.master, self.synced - {node}
        )

    def without(self, dead: Collection[str]) -> "Placement | None":
        """After nodes died; None: nobody is left who has all.

        Who had begun a copy starts anew: it is dropped with the view, and its node gets another one later.
        """
        members = tuple(node for node in self.members if node not in dead)
        synced = self.synced - frozenset(dead)
        if self.master not in dead:
            return Placement(members, self.master, synced)
        heir = next((node for node in members if node in synced), None)
        return None if heir is None else Placement(members, heir, synced)
