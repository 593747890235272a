"""One seed of the metadata simulator: a group, clients, and whatever can go wrong.

    form ─► clients submit; nodes crash, lose power, links break, block, crawl; voters change ─► heal ─► checks

`run_seed` gives the world as it was at the end; a broken invariant is a `Violation` that names the seed.
Source: reliability §5.2.
"""

from collections.abc import Callable
from random import Random

from tests.kit.raft_world import OPTIONS, Profile, World, parameter

DISTURBED_S = 12.0
"""Anything may go wrong for this long, in virtual seconds."""

HEALED_S = 40.0
"""Everything may take this long to be well again."""

_SLOW = Profile(0.05, 0.6)
_CRAWLING = Profile(0.5, 3.0)


class Campaign:
    """A seed's plan."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"campaign {seed}")
        voters = self.random.choice((1, 2, 3, 3, 3, 4, 5))
        has_observer = self.random.random() < 0.4
        names = [f"n{number}" for number in range(1, voters + 1)]
        self.disk_random = Random(f"disks {seed}")
        self.breaks_disks = self.disk_random.random() < 0.4
        self.world = World(seed, names, ["ram"] if has_observer else [], OPTIONS, reorders=self.breaks_disks)
        self.submitted = 0
        self.brutality = self.random.choice((0.3, 1.0, 3.0))
        """Faults a second."""
        self.changes_voters = voters > 2 and self.random.random() < 0.3
        self.is_over = False

    def run(self) -> World:
        world = self.world
        self._form()
        self._soon(self._submit, 10.0)
        self._soon(self._disturb, self.brutality)
        if self.breaks_disks:
            self._soon(self._break_disk, 0.7)
        world.every(1.0, world.checks.check_logs_match)
        world.run(DISTURBED_S)
        self.is_over = True
        self._heal()
        return world

    def _soon(self, do: Callable[[], None], per_second: float) -> None:
        """Do it again and again until all is over."""

        def again() -> None:
            if not self.is_over:
                do()
                self.world.after(self.random.expovariate(per_second), again)

        self.world.after(self.random.expovariate(per_second), again)

    def _form(self) -> None:
        world = self.world
        first, *others = world.names
        world.form(first)
        if not world.run(10, lambda: world.up[first].incarnation > 0):
            world.checks.fail("the first node does not come up")
        for name in others:
            world.admit(name, first)
        if not world.run(30, world.is_settled):
            world.checks.fail(f"the group does not form: {state(world)}")

    # --- what clients do ---

    def _submit(self) -> None:
        if not self.world.up:
            return
        for _ in range(self.random.choice((1, 1, 1, 2, 5))):
            self.submitted += 1
            size = self.random.choice((0, 0, 10, 300))
            if self.breaks_disks and self.disk_random.random() < 0.3:
                size = self.disk_random.choice((10_000, 40_000))
            self.world.submit(self.random.choice(sorted(self.world.up)), parameter(self.submitted, size))

    # --- what goes wrong ---

    def _disturb(self) -> None:
        self.random.choice(
            (
                self._crash,
                self._crash,
                self._crash_all,
                self._restart,
                self._restart,
                self._restart,
                self._reset,
                self._block,
                self._partition,
                self._unblock,
                self._unblock,
                self._slow_link,
                self._slow_disk,
                self._resign,
                self._change_voters,
            )
        )()

    def _crash(self) -> None:
        if self.world.up:
            self.world.stop(self.random.choice(sorted(self.world.up)), power_loss=self.random.random() < 0.6)

    def _crash_all(self) -> None:
        if self.random.random() < 0.3:
            for name in sorted(self.world.up):
                self.world.stop(name, power_loss=True)

    def _restart(self) -> None:
        down = [name for name in self.world.names if name not in self.world.up]
        if down:
            self.start(self.random.choice(down))

    def start(self, name: str) -> None:
        """Start a node again; one without a disk needs to know who votes."""
        world = self.world
        voters = [voter for other in sorted(world.up) for voter in sorted(world.up[other].raft.voters)] or [
            each for each in world.names if each not in world.observers
        ]
        world.start(name, sorted(set(voters)))

    def _pair(self) -> tuple[str, str] | None:
        if len(self.world.names) < 2:
            return None
        one, other = self.random.sample(self.world.names, 2)
        return one, other

    def _reset(self) -> None:
        if pair := self._pair():
            self.world.reset(*pair)

    def _block(self) -> None:
        if pair := self._pair():
            self.world.block(*pair)

    def _partition(self) -> None:
        side = {name for name in self.world.names if self.random.random() < 0.5}
        for one in sorted(side):
            for other in self.world.names:
                if other not in side:
                    self.world.block(one, other)

    def _unblock(self) -> None:
        self.world.blocked.clear()
        for one in sorted(self.world.up):
            for other in sorted(self.world.up):
                if one < other:
                    self.world.connect_soon(one, other)

    def _slow_link(self) -> None:
        if pair := self._pair():
            self.world.profiles[pair] = self.random.choice((_SLOW, _CRAWLING, Profile(0.0, 0.05)))

    def _slow_disk(self) -> None:
        self.world.disk_profile = self.random.choice(
            (Profile(0.0001, 0.002), Profile(0.01, 0.1), Profile(0.1, 0.4))
        )

    def _break_disk(self) -> None:
        """A node's disk hangs or is full, preferably the leader's; or all work again."""
        world, random = self.world, self.disk_random
        leaders = [name for name, process in world.up.items() if process.raft.is_leader]
        names = sorted(name for name in world.up if name in world.disks)
        kind = random.choice(("hang", "hang", "fill", "mend"))
        if kind == "mend":
            for name in world.disks:
                world.let_disk_go_on(name)
        elif names:
            name = leaders[0] if leaders and random.random() < 0.6 else random.choice(names)
            if kind == "hang":
                world.hang_disk(name)
            else:
                world.disks[name].fill_up(random.choice((0, 100, 2000)))

    def _resign(self) -> None:
        if self.world.up:
            self.world.up[self.random.choice(sorted(self.world.up))].raft.resign()

    def _change_voters(self) -> None:
        world = self.world
        if not self.changes_voters or not world.up:
            return
        voters = [name for name in world.names if name not in world.observers]
        by, name = world.up[self.random.choice(sorted(world.up))], self.random.choice(voters)
        if name in by.raft.voters:
            by.raft.remove_voter(name, lambda why: None)
        else:
            by.raft.add_voter(name, lambda why: None)

    # --- and then ---

    def _heal(self) -> None:
        world = self.world
        for name in world.names:
            if name not in world.up:
                self.start(name)
        world.heal()
        if not world.run(HEALED_S, self._is_well):
            world.checks.fail(f"all is healed, and yet: {state(world)}")
        for name in sorted(world.up):
            self.submitted += 1
            answers = world.submit(name, parameter(self.submitted))
            if not world.run(5, lambda: bool(answers)) or answers != [True]:  # noqa: B023
                world.checks.fail(f"{name} gets {answers} for a command after all is healed: {state(world)}")
        world.run(3)
        world.checks.check_logs_match()
        world.checks.at_rest()

    def _is_well(self) -> bool:
        world = self.world
        is_there = len(world.up) == len(world.names) and world.is_linked()
        return is_there and world.is_settled() and not world.is_busy()


def state(world: World) -> str:
    """Return what each node that is up thinks, for a report."""
    lines = [
        f"{each.name}: incarnation {each.incarnation}, joining {each.is_joining}, term {each.raft.term}, "
        f"leader {each.raft.leader}, voters {sorted(each.raft.voters)}, links {sorted(each.raft.links)}, "
        f"{each.raft._core.position()}"
        for each in world.up.values()
    ]
    return "\n  ".join(["", *lines, *world.reports[-5:]])


def run_seed(seed: int) -> World:
    """Run one seed. Raises Violation, with the seed in its text."""
    return Campaign(seed).run()
