"""Runs of the simulator of mirrored queues in which proposals come late: by who has not seen the view that is there.

run_late(7)       run_late(7, is_traced=True)

Source: reliability §4.1: any change may be proposed again or too late without harm.
"""

from typing import Any, Final

from node.catalogue.commands import ChangeView
from node.catalogue.mirrors.views import (
    AddMirror,
    DropMirror,
    EraseMirror,
    TookOver,
    TransferMaster,
    View,
    ViewChange,
)
from node.catalogue.records import QueueRecord
from tests.sim.mirror_faults import Run

LATE: Final = 0.4
"""In how many of all views somebody proposes something that fitted an earlier one."""


class LateRun(Run):
    """One seed."""

    known_faults = (("crash", 3), ("transfer", 3), ("hold", 3))

    def make_world(self, seed: int, names: tuple[str, ...]) -> Any:
        self.is_healing = False
        self.masterships: list[int] = []
        self.erasures: list[EraseMirror] = []
        """Only erasures that happened are repeated: one of another dead member would be a lie about what came round."""
        return super().make_world(seed, names)

    def _see_view(self, before: QueueRecord, after: QueueRecord) -> None:
        super()._see_view(before, after)
        if before.view is None or self.is_healing:
            return
        if before.view.since not in self.masterships:
            self.masterships.append(before.view.since)
        left = () if after.view is None else [member.id for member in after.view.members]
        self.erasures += [
            EraseMirror(member.id, before.view.owner_of(member.id))
            for member in before.view.members
            if member.status == "dead" and member.id not in left
        ]
        if self.random.random() < LATE:
            since = before.view.since if after.view is None else after.view.since
            change = self._fitted(before.view, [each for each in self.masterships if each != since])
            command = ChangeView("/", after.name, after.uid, change)
            self.counts[type(change).__name__] += 1
            self.world.after(0.0, lambda: self.world.submit(command, None))

    def _fitted(self, view: View, ended: list[int]) -> ViewChange:
        """Return a change that could have been proposed in a view, or was before it.   ended: masterships; that the
        present one has taken over would be a lie.
        """
        random, member = self.random, self.random.choice(view.members or (None,))
        if ended and (member is None or random.random() < 0.5):
            return TookOver(random.choice(ended))
        if member is None:
            return DropMirror(0)
        match random.randrange(6):
            case 0 | 1:
                return TransferMaster(view.master, random.choice(view.synced or (member.id,)))
            case 2 | 3:
                return DropMirror(member.id)
            case 4:
                return AddMirror(member.node, member.incarnation)
            case _:
                return random.choice(self.erasures) if self.erasures else DropMirror(member.id)

    def heal(self) -> None:
        self.is_healing = True
        super().heal()


def run_late(seed: int, *, is_traced: bool = False) -> LateRun:
    """One run. Raises: Violation, or whatever an assertion of the code says."""
    run = LateRun(seed, is_traced=is_traced, kinds=("plain",))
    run.begin()
    run.trouble_for(5.0)
    run.heal()
    run.check()
    return run
