"""Faults of a Raft group that never heal: what is left must go on by itself.

    form ─► clients submit; anything goes wrong ─► a majority of the voters is well, the rest is broken for ever
         ─► soon a command of each node that is well is applied by all that are well, again and again

`run_liveness_seed` gives the world as it was at the end; a group that stands still is a `Violation` with its seed.
Source: reliability §5.2.
"""

from random import Random
from typing import Final

from tests.kit.raft_world import World, parameter
from tests.sim.raft_faults import Campaign, state

DISTURBED_S: Final = 4.0
"""Anything may go wrong for this long before."""

COMMIT_S: Final = 8.0
"""Commands are applied within this time after the last fault: four times the second that a leader's disk is given, if
the others do not reach the leader, and an election, or two where votes are split."""

QUICK_COMMIT_S: Final = 3.5
"""Commands are applied within this time, the lease of all nodes, where only disks are wrong, from the start."""

QUICK_CHANGE_S: Final = 2.5
"""Another member leads within this time, under the same conditions: the second that a leader's disk is given, and an
election that begins as soon as the leader steps down."""

QUIET_S: Final = 20.0
"""For how long after that nothing may stand still for more than `LATER_S`, nor the leader change."""

LATER_S: Final = 1.0

_KINDS: Final = ("dead", "hung", "full", "cut off", "hung and half cut")


class LivenessCampaign(Campaign):
    """A seed's plan, the last part of which never ends."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.random = Random(f"liveness {seed}")
        self.brutality = self.random.choice((0.0, 0.3, 1.0))
        self.changes_voters = False
        self.broken: dict[str, str] = {}
        voters = self.random.choice((3, 3, 3, 4, 5))
        self.world = World(seed, [f"n{number}" for number in range(1, voters + 1)])

    def run(self) -> World:
        world = self.world
        self._form()
        self._soon(self._submit, 10.0)
        if self.brutality:
            self._soon(self._disturb, self.brutality)
        world.run(DISTURBED_S)
        self.is_over = True
        core = self._break_for_ever()
        is_quick = not self.brutality and {*self.broken.values()} <= {"hung", "full"}
        broken_at = world.now
        self._commit(core, QUICK_COMMIT_S if is_quick else COMMIT_S)
        # Followers commit without a leader whose disk is stuck, but its own clients wait until another one leads.
        within_s = broken_at + QUICK_CHANGE_S - world.now if is_quick else COMMIT_S
        if not world.run(max(within_s, 0.0), lambda: {*self._leaders(core)} <= {*core}):
            self._fail(f"no other member leads: {self._leaders(core)}")
        leaders = self._leaders(core)
        # A snapshot may make room on a disk that is full, which then fills once more, later.
        fills_later = "full" in self.broken.values()
        end = world.now + QUIET_S
        while world.now < end:
            self._commit(core, QUICK_COMMIT_S if fills_later else LATER_S)
            world.run(self.random.uniform(0, 1))
        if self._leaders(core) != leaders and not fills_later:
            self._fail(f"the leader changed: {leaders}")
        world.checks.check_logs_match()
        return world

    def _break_for_ever(self) -> list[str]:
        """Mend a majority, and break the rest: who leads is among those, if it can be. Returns: the majority."""
        world, random = self.world, self.random
        leaders = [name for name, process in world.up.items() if process.raft.is_leader]
        names = random.sample(world.names, len(world.names))
        names.sort(key=lambda name: name not in leaders)
        broken = sorted(names[: (len(names) - 1) // 2])
        core = sorted(set(names) - set(broken))
        for name in core:
            if name not in world.up:
                self.start(name)
        world.heal()
        for name in broken:
            self._break(name, random.choice(_KINDS), core)
        return core

    def _break(self, name: str, kind: str, core: list[str]) -> None:
        world = self.world
        if name not in world.up:
            kind = "dead"
        self.broken[name] = kind
        if kind == "dead" and name in world.up:
            world.stop(name)
        if kind.startswith("hung"):
            world.hang_disk(name)
        if kind == "full":
            world.disks[name].fill_up()
        if kind == "cut off":
            for other in world.names:
                if other != name:
                    world.block(name, other)
        if kind == "hung and half cut":
            for other in core[: len(core) // 2]:
                world.block(name, other)

    def _commit(self, core: list[str], within_s: float) -> None:
        """Each node that is well submits a command, again each second: all that are well apply those of one time."""
        world, end = self.world, self.world.now + within_s
        while world.now < end:
            numbers = []
            for name in core:
                self.submitted += 1
                numbers.append(self.submitted)
                world.submit(name, parameter(self.submitted))
            if world.run(min(0.5, end - world.now), lambda: self._is_everywhere(core, numbers)):  # noqa: B023
                return
        self._fail(f"nothing is committed within {within_s} s")

    def _is_everywhere(self, core: list[str], numbers: list[int]) -> bool:
        catalogues = [self.world.up[name].log.catalogue for name in core]
        return all(
            each.global_parameter(f"p{number}") is not None for each in catalogues for number in numbers
        )

    def _leaders(self, core: list[str]) -> list[str | None]:
        return [self.world.up[name].raft.leader for name in core]

    def _fail(self, text: str) -> None:
        self.world.checks.fail(f"{self.broken}, and {text}: {state(self.world)}")


def run_liveness_seed(seed: int) -> World:
    """Run one seed. Raises Violation, with the seed in its text."""
    return LivenessCampaign(seed).run()
