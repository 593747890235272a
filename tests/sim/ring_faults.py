"""One seed of the ring's simulator: a mirrored queue, clients, and whatever can go wrong.

    clients publish, consume, purge; nodes crash, lose power, pause, are declared down; ways and disks are stuck;
    mirrors come, go, are promoted ─► heal: all, or a majority for good while the others stay broken ─► checks

`run_seed` gives the world as it was at the end; a broken invariant is a `Violation` that names the seed.
Source: reliability §5.2.
"""

from collections.abc import Callable
from random import Random

from node.broker.views import AddMirror, DropMirror, TransferMaster
from tests.sim.ring_checks import Violation, short
from tests.sim.ring_group import Group
from tests.sim.ring_plan import Front, Plan, Stats
from tests.sim.ring_world import Process, World

HEALED_MS = 6000.0
"""How long everything may take to be well again."""

BUGGIFY = 0.25
"""How likely each unusual way of doing things is in a seed."""


def make_plan(random: Random) -> Plan:
    """What a seed is about."""

    def is_odd() -> bool:
        return random.random() < BUGGIFY

    names = [f"n{number}" for number in range(1, random.choice((3, 3, 3, 4, 4, 5)) + 1)]
    plan = Plan(names, min(len(names), random.choice((2, 3, 3, 3, 4))))
    plan.is_durable = random.random() < 0.8
    plan.is_survivable = random.random() < 0.7
    plan.may_lose = not plan.is_survivable and random.random() < 0.3
    plan.syncs_by_itself = random.random() < 0.75
    plan.is_lazy = is_odd()
    plan.eager_acks = random.choice((0.0, 0.3, 0.9)) if is_odd() else 0.5
    if is_odd():
        plan.chunk = 1
    if is_odd():
        plan.lost_proposals = 0.3
    if is_odd():
        plan.apply = (0.0, 40.0)
    if is_odd():
        plan.propose = (0.0, 40.0)
    if is_odd():
        plan.link = random.choice(((0.0, 12.0), (3.0, 4.0), (0.0, 0.1)))
    if is_odd():
        plan.rare_link = (0.1, 60.0)
    if is_odd():
        for one in names:
            for other in names:
                if random.random() < 0.3:
                    plan.slow_ways[one, other] = random.choice(((5.0, 40.0), (20.0, 25.0)))
    if is_odd():
        plan.slow_nodes[random.choice(names)] = (10.0, 60.0)
    if is_odd():
        plan.sync = (2.0, 40.0)
    if is_odd():
        plan.repeats = 0.5
    if is_odd():
        plan.fill = (0.0, 40.0)
    if is_odd():
        plan.late = (0.0, 60.0)
    if is_odd():
        plan.lease = random.choice((15.0, 120.0))
    if is_odd():
        plan.down_after = (0.0, 4.0)
    return plan


class Campaign:
    """A seed's plan, and what happens."""

    def __init__(self, seed: int, stats: Stats) -> None:
        self.seed = seed
        self.random = Random(seed * 2 + 1)
        self.plan = make_plan(self.random)
        self.world = World(seed, self.plan, stats)
        self.world.evict = self._evict
        self.world.restart = self._restart
        self.stats = stats
        self._dropping: dict[int, bool] = {}
        self._broken: dict[str, bool] = {}
        """Nodes that stay broken for ever."""
        self._pace = self.random.choice((3.0, 5.0, 9.0))
        self._faults = self.random.choice((0.1, 0.3, 0.5))
        """How many of all actions are faults."""
        self._count = self.random.choice((30, 50, 80))
        self._table = self.random.choice(_FAULTS)

    def run(self) -> World:
        """All of it. Raises Violation."""
        world = self.world
        world.run(8.0)
        for name in self.plan.names:
            if self.random.random() < 0.5 and name in world.processes:
                world.processes[name].front.consume()
        checks_at = self.random.random() * 6
        for number in range(self._count):
            world.run(world.now + self.random.random() * 2 * self._pace)
            if self.random.random() < self._faults:
                self._pick(self._table)(self)
            else:
                self._pick(_CLIENTS)(self)
            if (number + checks_at) % 6 < 1:
                world.checks.now_and_then()
        self._heal()
        self.stats.seeds += 1
        self.stats.steps += world.steps
        return world

    def _pick(self, actions: tuple[Callable[["Campaign"], None], ...]) -> Callable[["Campaign"], None]:
        return actions[int(self.random.random() * len(actions))]

    # --- who there is ---

    def _process(self) -> Process | None:
        """One that runs."""
        running = [process for process in self.world.processes.values() if not process.is_held]
        return running[int(self.random.random() * len(running))] if running else None

    def _master(self) -> Group | None:
        """Who acts as master."""
        world = self.world
        member = world.view.member(world.view.master)
        process = None if member is None else world.processes.get(member.node)
        group = None if process is None or process.is_held else process.group
        return group if group is not None and group.leader is not None else None

    def _copies(self) -> list[Front]:
        """Where synchronised copies are that nothing has been done to."""
        world = self.world
        view = world.view
        copies = []
        for member in view.ring:
            front = (member.node, member.incarnation)
            process = world.processes.get(member.node)
            if member.id not in view.synced or member.id in self._dropping or front in world.doomed:
                continue
            if process is not None and process.incarnation == member.incarnation:
                copies.append(front)
        return copies

    def _may_go(self, front: Front) -> bool:
        return not self.plan.is_survivable or any(copy != front for copy in self._copies())

    # --- clients ---

    def _publish(self) -> None:
        process = self._process()
        if process is not None:
            count = 1 + int(self.random.random() * self.random.random() * 5)
            process.front.publish(count, self.random.random() < 0.7)
            process.end_turn()

    def _settle(self) -> None:
        process = self._process()
        if process is not None and process.front.unacked:
            process.front.settle(1 + int(self.random.random() * 4), is_ack=self.random.random() < 0.7)
            process.end_turn()

    def _consume(self) -> None:
        process = self._process()
        if process is not None and not process.front.has_consumer:
            process.front.consume()
            process.end_turn()

    def _purge(self) -> None:
        process = self._process()
        if process is not None and self.random.random() < 0.3:
            process.front.purge()
            process.end_turn()

    # --- faults ---

    def _crash(self) -> None:
        """One to three nodes at once."""
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            self._crash_one(power_loss=self.random.random() < 0.5)

    def _crash_one(self, *, power_loss: bool) -> None:
        world = self.world
        names = list(world.processes)
        if not names:
            return
        name = names[int(self.random.random() * len(names))]
        if self._may_go(world.processes[name].key):
            world.crash(name, power_loss=power_loss)
            self.stats.crashes += 1
            if self.random.random() < 0.8:
                world.after(self.random.random() * 80, None, self._restart, name)

    def _crash_one_killed(self) -> None:
        self._crash_one(power_loss=False)

    def _crash_master(self) -> None:
        world = self.world
        node = world.view.master_node
        process = None if node is None else world.processes.get(node)
        if process is not None and self._may_go(process.key):
            world.crash(process.name, power_loss=self.random.random() < 0.5)
            self.stats.crashes += 1
            world.after(self.random.random() * 80, None, self._restart, process.name)

    def _crash_all(self) -> None:
        if self.plan.is_survivable or self.random.random() < 0.5:
            return
        for name in list(self.world.processes):
            self.world.crash(name, power_loss=True)
            self.stats.crashes += 1
            self.world.after(self.random.random() * 150, None, self._restart, name)

    def _restart(self, name: str) -> None:
        if name not in self._broken:
            self.world.node_up(name)

    def _restart_one(self) -> None:
        away = [name for name in self.plan.names if name not in self.world.processes]
        if away:
            self._restart(away[int(self.random.random() * len(away))])

    def _false_death(self) -> None:
        process = self._process()
        if process is not None and process.key not in self.world.doomed and self._may_go(process.key):
            self.world.doom(process.key, 0.0)
            self.stats.false_deaths += 1

    def _pause(self) -> None:
        process = self._process()
        if process is None or process.key in self.world.doomed:
            return
        if self.random.random() < 0.5 and self._may_go(process.key):
            # Longer than a lease: it counts as gone from now on.
            self.world.doomed[process.key] = True
            time = self.plan.lease * (1 + 2 * self.random.random())
        else:
            time = self.plan.lease * 0.9 * self.random.random()
        self.stats.pauses += 1
        self.world.pause(process)
        self.world.after(time, None, self.world.resume, process)

    def _cut(self) -> None:
        one, other = self.random.sample(self.plan.names, 2)
        self.world.cut(one, other)
        if self.random.random() < 0.3:
            self.world.cut(other, one)

    def _mend(self) -> None:
        ways = list(self.world.stuck)
        if ways:
            self.world.mend(ways[int(self.random.random() * len(ways))])

    def _fill_disk(self) -> None:
        self.world.disks[self.random.choice(self.plan.names)].is_stuck = True

    def _free_disks(self) -> None:
        for disk in self.world.disks.values():
            self.world.free_disk(disk)

    def _add(self) -> None:
        master = self._master()
        if master is not None:
            world = self.world
            free = [name for name in world.up if world.view.member_on(name) is None]
            if free:
                name = free[int(self.random.random() * len(free))]
                master.propose(AddMirror(name, world.up[name]))

    def _drop(self) -> None:
        master = self._master()
        if master is not None:
            mirrors = [member for member in master.view.ring if member.id != master.id]
            if mirrors:
                member = mirrors[int(self.random.random() * len(mirrors))]
                self._drop_mirror(master, member.id, (member.node, member.incarnation))

    def _drop_mirror(self, master: Group, id_: int, front: Front) -> None:
        if self._may_go(front):
            self._dropping[id_] = True
            self.stats.drops += 1
            master.propose(DropMirror(id_))

    def _evict(self, master: Group) -> None:
        """Drop the first mirror that lacks what the master said; if all have it, the last one, that says nothing."""
        ids = [member.id for member in master.view.ring]
        at = ids.index(master.id)
        last = None
        for id_ in ids[at + 1 :] + ids[:at]:
            member = master.view.member(id_)
            assert member is not None
            last = member
            process = self.world.processes.get(member.node)
            group = None if process is None else process.group
            if group is None or group.id != id_ or group.member.last_of(master.id) < master.member_next - 1:
                break
        if last is not None:
            self._drop_mirror(master, last.id, (last.node, last.incarnation))

    def _transfer(self) -> None:
        master = self._master()
        if master is not None:
            to = [id_ for id_ in master.view.synced if id_ != master.id]
            if to:
                master.propose(TransferMaster(master.id, to[int(self.random.random() * len(to))]))

    def _switch_sync(self) -> None:
        master = self._master()
        if master is not None and master.leader is not None and not self.plan.syncs_by_itself:
            master.leader.say(("sync", self.random.random() < 0.6))
            master.process.end_turn()

    # --- and then ---

    def _heal(self) -> None:
        """All is well from now on; or a majority is, and the others stay as they are."""
        world = self.world
        world.is_over = True
        self.plan.syncs_by_itself = True
        if self.random.random() < 0.3:
            self._abandon_some()
        for way in list(world.stuck):
            if way[0] not in self._broken and way[1] not in self._broken:
                world.mend(way)
        self._free_disks()
        for name in self.plan.names:
            process = world.processes.get(name)
            if name in self._broken:
                continue
            if process is None:
                world.node_up(name)
            else:
                world.resume(process)
        for process in world.processes.values():
            if process.group is not None and process.group.follower is not None:
                process.group.follower.is_syncing = True
        for process in list(world.processes.values()):
            if not process.is_held:
                process.front.publish(2, True)
                process.end_turn()
        world.run(world.now + HEALED_MS, self._is_well)
        if self._must_live and world.view.state != "live":
            world.checks.fail("I11", "the queue does not come back")
        world.checks.at_rest()

    @property
    def _must_live(self) -> bool:
        """Whether the queue must be there at the end."""
        if self._broken:
            return self.plan.is_survivable
        return self.plan.is_survivable or (self.plan.is_durable and not self.plan.may_lose)

    def _abandon_some(self) -> None:
        """Less than a half of the nodes stay broken; a synchronised copy is among the others if there must be one."""
        world = self.world
        names = list(self.plan.names)
        self.random.shuffle(names)
        for name in names[: (len(names) - 1) // 2]:
            process = world.processes.get(name)
            if process is None:
                self._broken[name] = True
            elif self._may_go(process.key):
                self._broken[name] = True
                if self.random.random() < 0.5:
                    world.crash(name, power_loss=True)
                    self.stats.crashes += 1
                else:
                    process.is_held = True
                    world.doom(process.key, self.plan.lease)

    def _is_well(self) -> bool:
        world = self.world
        view = world.view
        processes = [process for process in world.processes.values() if not process.is_held]
        if any(process.view is not view or process.front.window for process in processes):
            return False
        if view.state == "down":
            return (
                not self._must_live and not set(view.recoverable) & set(world.processes) and world.now > 3000
            )
        if view.state != "live" or view.previous or len(view.members) != len(view.synced):
            return False
        wanted = min(self.plan.copies, len(self.plan.names) - len(self._broken))
        if len(view.members) < wanted:
            return False
        groups = [process.group for process in processes if process.group is not None]
        fronts = [process.front for process in processes if process.front.has_consumer]
        leaders = [group.leader for group in groups if group.leader is not None]
        if len(leaders) != 1 or any(front.key not in leaders[0].consumers for front in fronts):
            return False
        if len(groups) != len(view.members) or any(group.member.pending_bytes for group in groups):
            return False
        return all(
            disk.written == disk.synced for name, disk in world.disks.items() if name not in self._broken
        )


_CLIENTS: tuple[Callable[[Campaign], None], ...] = (
    *((Campaign._publish,) * 7),
    *((Campaign._settle,) * 3),
    Campaign._consume,
    Campaign._purge,
)

Action = Callable[[Campaign], None]

_MIXED: tuple[Action, ...] = (
    *((Campaign._crash,) * 2),
    *((Campaign._crash_master,) * 2),
    Campaign._crash_all,
    Campaign._restart_one,
    Campaign._false_death,
    Campaign._pause,
    Campaign._cut,
    *((Campaign._mend,) * 2),
    Campaign._fill_disk,
    Campaign._free_disks,
    *((Campaign._add,) * 3),
    Campaign._drop,
    *((Campaign._transfer,) * 2),
    Campaign._switch_sync,
)

_COMING_AND_GOING: tuple[Action, ...] = (
    *((Campaign._add,) * 6),
    *((Campaign._drop,) * 3),
    *((Campaign._false_death,) * 2),
    Campaign._crash_one_killed,
    Campaign._crash_master,
    *((Campaign._restart_one,) * 2),
    Campaign._cut,
    *((Campaign._mend,) * 2),
    Campaign._transfer,
)

_HANDING_OVER: tuple[Action, ...] = (
    *((Campaign._transfer,) * 6),
    *((Campaign._add,) * 4),
    Campaign._drop,
    Campaign._crash_master,
    Campaign._crash_one_killed,
    Campaign._restart_one,
    Campaign._pause,
    Campaign._cut,
    *((Campaign._mend,) * 2),
)

_LOSING_POWER: tuple[Action, ...] = (
    *((Campaign._crash_all,) * 2),
    *((Campaign._crash_master,) * 2),
    Campaign._crash,
    *((Campaign._restart_one,) * 3),
    *((Campaign._fill_disk,) * 2),
    *((Campaign._free_disks,) * 3),
    *((Campaign._add,) * 4),
    Campaign._transfer,
)

_FAULTS: tuple[tuple[Action, ...], ...] = (_MIXED, _MIXED, _COMING_AND_GOING, _HANDING_OVER, _LOSING_POWER)
"""What goes wrong in a seed: one of these."""


def run_seed(seed: int, stats: Stats | None = None) -> World:
    """Run one seed. Raises Violation, with the line that replays it."""
    campaign = Campaign(seed, stats or Stats())
    try:
        return campaign.run()
    except Exception as error:
        kind = "" if isinstance(error, Violation) else f"{type(error).__name__}: "
        raise Violation(
            f"{kind}{error}; at {campaign.world.now:.1f} ms of {short(campaign.world.view)}\n"
            f"  replay: FLUFFLE_SIM=ring:{seed} .venv/bin/python -m pytest -s tests/sim/test_ring.py"
        ) from error
