"""Nodes with one mirrored queue in virtual time: real ring members and real views over simulated links and disks.

    catalogue: changes ─ delay ─► one order of views ─ a delay for each node ─► Process.apply ─► Group.see, FrontEnd.see
    links: Process.end_turn ─ delay, stuck, never reordered ─► Process.receive ─► Member.receive

One thread, one heap of events, one source of randomness: a seed says everything. Between two incarnations nothing is
lost; what an incarnation that ended sent is ignored by who knows that. Source: reliability §4.13, §5.2.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import Any

from node.broker.views import (
    AddMirror,
    OfferCopy,
    Revive,
    View,
    ViewChange,
    changed,
    created,
    died,
    withdrawn,
)
from tests.sim.ring_checks import Checks
from tests.sim.ring_disk import Disk
from tests.sim.ring_front import FrontEnd
from tests.sim.ring_group import Group
from tests.sim.ring_mirror import Leader
from tests.sim.ring_plan import Front, Plan, Range, Stats

RETRY_MS = 150.0
"""How often a node proposes again what no view shows."""

LAZY_MS = 8.0
"""How late an acknowledgement may go round."""

LATE_MS = 150.0
"""How much later a proposal may come that comes again."""

REVIVE_MS = 300.0
"""How long the last master's copy is waited for."""

STUCK_MS = 250.0
"""After how long a master has a mirror dropped that doesn't keep up."""


@dataclass(slots=True, eq=False)
class Entry:
    """What a command did.   ended, began: an incarnation of a node, if it took one down or up.

    number: the order in the log.
    """

    view: View
    ended: Front | None = None
    began: Front | None = None
    number: int = 0


class Process:
    """One incarnation of a node: what it knows, its group if it has a copy, and its front end."""

    def __init__(self, world: "World", name: str, incarnation: int, view: View) -> None:
        self.world = world
        self.name = name
        self.incarnation = incarnation
        self.key: Front = (name, incarnation)
        self.disk = world.disks[name]
        self.view = view
        self.group: Group | None = None
        self.front = FrontEnd(self)
        self.is_up = True
        self.is_held = True
        """It doesn't run: not yet, or it is paused. What comes waits."""
        self.is_booted = False
        self.pauses = 0
        self.backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.ended: dict[str, int] = {}
        """Of each node the last incarnation that is known to have ended."""
        self.up: dict[int, str] = {}
        """Incarnations that are up as far as is known, with their nodes."""
        self.last_apply = 0.0
        self.last_entry = 0
        """The last entry of the log that was in the snapshot with which it began."""
        self._outbox: dict[tuple[Front, bool], list[tuple[Any, ...]]] = {}
        self._local: list[tuple[Any, ...]] = []
        self._early: list[tuple[Front, tuple[Any, ...]]] = []
        self._proposing: dict[ViewChange, bool] = {}
        self._is_flush_due = False

    # --- the catalogue ---

    def boot(self) -> None:
        """It has read its catalogue: it runs."""
        world = self.world
        self.view = world.view
        self.last_entry = world.last_entry
        self.up = {number: node for node, number in world.up.items()}
        self.ended = dict(world.last_ended)
        if world.up.get(self.name) != self.incarnation:
            world.fenced(self)
            return
        self._know(self.view)
        self.front.see(self.view)

    def apply(self, entry: Entry) -> None:
        """The next entry of the catalogue's log."""
        if entry.number <= self.last_entry:
            return
        if entry.began is not None:
            self.up[entry.began[1]] = entry.began[0]
        if entry.ended is not None:
            name, incarnation = entry.ended
            self.ended[name] = incarnation
            self.up.pop(incarnation, None)
            if entry.ended == self.key:
                self.world.fenced(self)
                return
        view = entry.view
        if view is not self.view:
            self.view = view
            if self.group is not None:
                self.group.see(view)
            self._know(view)
            self.front.see(view)
            self._heed_early()
        if entry.ended is not None and self.group is not None and self.group.leader is not None:
            self.group.leader.forget(entry.ended, entry.ended[1])

    def _know(self, view: View) -> None:
        """Have a group if the view says so, offer or drop the copy on disk if it doesn't."""
        if self.group is not None and self.group.is_lost:
            self.group = None
        member = view.member_on(self.name)
        if self.group is None and member is not None and member.incarnation == self.incarnation:
            self.group = Group(self, view, member.id)
            self.group.begin()
        elif self.group is None and not self._may_be_needed(view):
            if not self.disk.is_empty:
                self.disk.write(("begin", 0))
        elif self.group is None and view.state == "down":
            self._offer()

    def _may_be_needed(self, view: View) -> bool:
        """Whether the copy on disk is what the queue may have to be brought back from."""
        return self.name in view.recoverable or any(
            member.node == self.name and member.id in view.synced for member in view.members
        )

    def _offer(self) -> None:
        view = self.view
        copy = view.copies[view.recoverable.index(self.name)]
        offer = (self.name, self.incarnation, max(self.disk.state(copy), default=0) + 1)
        if offer not in view.offers:
            self.propose(OfferCopy(*offer))

    def hears(self, front: Front) -> bool:
        """Whether what comes from there counts: not when it has ended."""
        return front[1] > self.ended.get(front[0], 0)

    def fronts_gone(self) -> list[tuple[Front, int]]:
        """Front ends in the table of senders that are no more."""
        assert self.group is not None
        assert self.group.leader is not None
        return [((".", sender), sender) for sender in self.group.leader.senders if sender not in self.up]

    def propose(self, change: ViewChange) -> None:
        """Ask for a change, unless that is under way."""
        if change not in self._proposing:
            self._proposing[change] = True
            self.world.propose(self, change)

    def proposed(self, change: ViewChange) -> None:
        """It got there, or was lost."""
        self._proposing.pop(change, None)

    def retry(self) -> None:
        """Once a while: what was proposed may be lost, and a master looks after its mirrors."""
        world = self.world
        if self.group is not None:
            self.group.retry()
            if self.group is not None and self.group.leader is not None:
                world.care(self.group, self.group.leader)
        elif self.view.state == "down" and self.name in self.view.recoverable:  # not in a group
            self._offer()
            if self.view.offers and world.now - world.down_since > REVIVE_MS:
                self.propose(Revive(self.view.version))
        world.after(RETRY_MS, self, self.retry)

    # --- links ---

    def send_parcel(self, group: Group, to: int, parcel: tuple[Any, ...]) -> None:
        """To a member of the queue, by the ring's links."""
        member = group.view.member(to)
        if member is not None:
            self._outbox.setdefault(((member.node, member.incarnation), True), []).append(parcel)

    def to_front(self, front: Front, item: tuple[Any, ...]) -> None:
        """To a front end, of this node too."""
        if front == self.key:
            self._local.append(item)
        else:
            self._outbox.setdefault((front, False), []).append(item)

    def to_home(self, item: tuple[Any, ...]) -> None:
        """To the master of the present view."""
        master = self.view.member(self.view.master)
        assert master is not None
        to = (master.node, master.incarnation)
        if to == self.key:
            self.at_home(self.key, item)
        else:
            self._outbox.setdefault((to, False), []).append(item)

    def receive(self, sender: Front, is_ring: bool, parcels: Sequence[tuple[Any, ...]]) -> None:
        """A frame has come."""
        if not self.hears(sender):
            return
        for parcel in parcels:
            if is_ring:
                self._take(sender, parcel)
            elif parcel[0] in ("answer", "deliver"):
                self.front.receive(parcel)
            else:
                self.at_home(sender, parcel)

    def _take(self, sender: Front, parcel: tuple[Any, ...]) -> None:
        kind, to, member, version, content = parcel
        group = self.group
        if group is None or group.id != to:
            if version > self.view.version:
                self._early.append((sender, parcel))
        elif kind == "side":
            group.on_side(member, content)
        else:
            group.member.receive(member, version, content.edge, content)

    def at_home(self, front: Front, item: tuple[Any, ...]) -> None:
        """A front end takes this node for its master's."""
        since = self.view.since
        if item[1] > since:
            self._early.append((front, item))
        elif item[1] == since and self.group is not None:
            self.group.client(front, item)

    def _heed_early(self) -> None:
        early, self._early = self._early, []
        for sender, item in early:
            if self.hears(sender):
                if item[0] in ("ring", "side"):
                    self._take(sender, item)
                else:
                    self.at_home(sender, item)

    # --- turns ---

    def end_turn(self) -> None:
        """Send what has gathered."""
        group = self.group
        if group is not None:
            group.turn()
            while self._local:
                local, self._local = self._local, []
                for item in local:
                    self.front.receive(item)
                group.turn()
        if self._outbox:
            outbox, self._outbox = self._outbox, {}
            for (to, is_ring), parcels in outbox.items():
                self.world.send(self.key, to, is_ring, parcels)

    def flush_later(self) -> None:
        """Acknowledgements may go a little later."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self.world.after(self.world.random.random() * LAZY_MS, self, self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self.group is not None and self.group.member.has_output:
            self.group.member.flush()


class World:
    """Nodes by name, the catalogue, links and time."""

    def __init__(self, seed: int, plan: Plan, stats: Stats) -> None:
        self.seed = seed
        self.plan = plan
        self.stats = stats
        self.random = Random(seed)
        self.now = 0.0
        self.steps = 0
        self.checks = Checks(self)
        self.disks = {name: Disk(self._ask_sync) for name in plan.names}
        self.processes: dict[str, Process] = {}
        self.up: dict[str, int] = {}
        """Incarnations that the catalogue has as up."""
        self.last_ended: dict[str, int] = {}
        """Of each node the last incarnation that was declared down."""
        self.evict: Callable[[Group], None] = lambda group: None
        """What a master does whose operations don't come round."""
        self.restart: Callable[[str], None] = self.node_up
        """What starts a node again."""
        self.stuck: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
        """Frames on ways that let nothing through."""
        self.last_entry = 0
        self.down_since = 0.0
        self.doomed: dict[Front, bool] = {}
        """Incarnations that will be declared down."""
        self.is_over = False
        """Whether nothing goes wrong any more."""
        self._incarnation = 0
        self._count = 0
        self._events: list[tuple[float, int, Process | None, Callable[..., None], tuple[Any, ...]]] = []
        self._arrivals: dict[tuple[Front, Front, bool], float] = {}
        for name in plan.names:
            self._incarnation += 1
            self.up[name] = self._incarnation
        self.view = created(0, [(name, self.up[name]) for name in plan.names[: plan.copies]])
        for name in plan.names:
            self._begin(name, self.up[name])

    # --- time ---

    def at(self, time: float, process: Process | None, do: Callable[..., None], *args: Any) -> None:
        """Do it then; in a process, if that still is there."""
        self._count += 1
        heappush(self._events, (time, self._count, process, do, args))

    def after(self, delay: float, process: Process | None, do: Callable[..., None], *args: Any) -> None:
        """See `at`."""
        self.at(self.now + delay, process, do, *args)

    def run(self, until: float, is_enough: Callable[[], bool] | None = None) -> None:
        """Let time go by, or until it is enough."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, process, do, args = heappop(events)
            self.steps += 1
            if process is None:
                do(*args)
            elif process.is_up:
                if process.is_held:
                    process.backlog.append((do, args))
                    continue
                do(*args)
                if process.is_up:
                    process.end_turn()
            if is_enough is not None and self.steps % 8 == 0 and is_enough():
                return
        self.now = max(self.now, until)

    def draw(self, span: Range) -> float:
        """A delay."""
        return span[0] + self.random.random() * (span[1] - span[0])

    # --- the catalogue ---

    def propose(self, process: Process, change: ViewChange) -> None:
        """A node's proposal is on its way."""
        self.after(self.draw(self.plan.propose), None, self._arrives, process, change)
        if self.plan.repeats and self.random.random() < self.plan.repeats:
            self.after(self.random.random() * LATE_MS, None, self.change, change)

    def _arrives(self, process: Process, change: ViewChange) -> None:
        process.proposed(change)
        if self.random.random() >= self.plan.lost_proposals or self.is_over:
            self.change(change)

    def change(self, change: ViewChange) -> None:
        """Apply a change to the catalogue, if it can be."""
        if isinstance(change, AddMirror | OfferCopy) and self.up.get(change.node) != change.incarnation:
            return
        after = changed(self.view, change)
        if after is not None:
            self.commit(Entry(after), change)

    def commit(self, entry: Entry, change: ViewChange | str) -> None:
        """An entry of the log: the nodes apply it, each at its time."""
        before = self.view
        self.last_entry += 1
        entry.number = self.last_entry
        if entry.view is not before:
            self.view = entry.view
            if entry.view.state == "down" and before.state != "down":
                self.down_since = self.now
            self.checks.commits(before, entry.view, change)
        for process in list(self.processes.values()):
            delay = self.draw(self.plan.slow_nodes.get(process.name, self.plan.apply))
            process.last_apply = max(process.last_apply, self.now + delay)
            self.at(process.last_apply, process, process.apply, entry)

    def node_down(self, front: Front) -> None:
        """An incarnation of a node is declared down."""
        name, incarnation = front
        if self.up.get(name) != incarnation:
            return
        del self.up[name]
        self.last_ended[name] = incarnation
        view = self.view
        ids = [member.id for member in view.ring if (member.node, member.incarnation) == front]
        if ids:
            view = died(view, ids, may_lose=self.plan.may_lose)
        self.commit(Entry(view, ended=front), f"down {front}")
        after = withdrawn(self.view, name)
        if after is not None:
            self.commit(Entry(after), f"withdrawn {name}")

    def node_up(self, name: str) -> None:
        """A node that was restarted comes up."""
        if name in self.processes:
            return
        if name in self.up:
            self.node_down((name, self.up[name]))
        self._incarnation += 1
        self.up[name] = self._incarnation
        self.commit(Entry(self.view, began=(name, self._incarnation)), "up")
        self._begin(name, self._incarnation)

    def _begin(self, name: str, incarnation: int) -> None:
        process = self.processes[name] = Process(self, name, incarnation, self.view)
        delay = self.draw(self.plan.apply) + self.draw(self.plan.late)
        process.last_apply = self.now + delay
        self.at(process.last_apply, None, self.resume, process, True)
        self.after(delay + RETRY_MS * self.random.random(), process, process.retry)

    # --- nodes ---

    def crash(self, name: str, *, power_loss: bool) -> None:
        """kill -9, or the power goes. Somebody will notice."""
        process = self.processes.pop(name)
        process.is_up = False
        self.disks[name].crash(self.random, power_loss=power_loss)
        self.doom(process.key, self.draw(self.plan.down_after))

    def doom(self, front: Front, delay: float) -> None:
        """An incarnation will be declared down."""
        self.doomed[front] = True
        self.after(delay, None, self.node_down, front)

    def fenced(self, process: Process) -> None:
        """A process reads that it was declared down: it starts anew."""
        if self.processes.get(process.name) is process:
            del self.processes[process.name]
            process.is_up = False
            self.disks[process.name].crash(self.random, power_loss=False)
            self.after(self.draw(self.plan.down_after), None, self.restart, process.name)

    def pause(self, process: Process) -> None:
        """SIGSTOP: it does nothing; after a lease it is declared down."""
        process.is_held = True
        process.pauses += 1
        self.after(self.plan.lease, None, self._lease_over, process, process.pauses)

    def _lease_over(self, process: Process, pauses: int) -> None:
        if process.is_held and process.is_up and process.pauses == pauses:
            self.doom(process.key, 0.0)

    def resume(self, process: Process, is_boot: bool = False) -> None:
        """SIGCONT, or it begins: what has come meanwhile is done at once."""
        if not process.is_up or not process.is_held or process.is_booted == is_boot:
            return
        process.is_held = False
        if is_boot:
            process.is_booted = True
            process.boot()
            process.end_turn()
        backlog, process.backlog = process.backlog, []
        for do, args in backlog:
            if process.is_up:
                do(*args)
                if process.is_up:
                    process.end_turn()

    # --- links and disks ---

    def send(self, sender: Front, to: Front, is_ring: bool, parcels: list[tuple[Any, ...]]) -> None:
        """A frame goes off."""
        way = (sender[0], to[0])
        if way in self.stuck:
            self.stuck[way].append((sender, to, is_ring, parcels))
            return
        plan = self.plan
        if self.random.random() < plan.rare_link[0]:
            delay = self.random.random() * plan.rare_link[1]
        else:
            delay = self.draw(plan.slow_ways.get(way, plan.link))
        link = (sender, to, is_ring)
        time = self._arrivals[link] = max(self.now + delay, self._arrivals.get(link, 0.0))
        self.at(time, None, self._arrive, sender, to, is_ring, parcels)

    def _arrive(self, sender: Front, to: Front, is_ring: bool, parcels: list[tuple[Any, ...]]) -> None:
        process = self.processes.get(to[0])
        if process is None or process.incarnation != to[1]:
            return
        if process.is_held:
            process.backlog.append((process.receive, (sender, is_ring, parcels)))
            return
        process.receive(sender, is_ring, parcels)
        process.end_turn()

    def cut(self, one: str, other: str) -> None:
        """One way lets nothing through."""
        self.stuck.setdefault((one, other), [])

    def mend(self, way: tuple[str, str]) -> None:
        """It lets everything through again, beginning with what waits."""
        for sender, to, is_ring, parcels in self.stuck.pop(way, ()):
            self.send(sender, to, is_ring, parcels)

    def _ask_sync(self, disk: Disk) -> None:
        if not disk.is_stuck:
            self.after(self.draw(self.plan.sync), None, self._synced, disk, disk.life, disk.written)

    def _synced(self, disk: Disk, life: int, upto: int) -> None:
        if disk.life != life:
            return
        if disk.is_stuck:
            return
        disk.sync(upto)
        if disk.written > disk.synced:
            self._ask_sync(disk)
        else:
            disk.is_syncing = False
        for process in self.processes.values():
            if process.disk is disk and process.group is not None:
                if process.is_held:
                    process.backlog.append((process.group.on_synced, ()))
                else:
                    process.group.on_synced()
                    process.end_turn()
                return

    def free_disk(self, disk: Disk) -> None:
        """It has room again."""
        if disk.is_stuck:
            disk.is_stuck = False
            if disk.is_syncing:
                self._ask_sync(disk)

    # --- what a master sees to ---

    def care(self, group: Group, leader: Leader) -> None:
        """Enough mirrors, and none that holds up the others."""
        view = group.view
        if leader.mastership != view.since or self.view.version != view.version:
            return
        if leader.has_unconfirmed:
            if leader.stuck_since is None or leader.stuck_at != leader.confirmed_upto:
                leader.stuck_since, leader.stuck_at = self.now, leader.confirmed_upto
            elif self.now - leader.stuck_since > STUCK_MS:
                leader.stuck_since = None
                self.evict(group)
        else:
            leader.stuck_since = None
        if self.plan.keeps_copies and len(view.ring) < self.plan.copies:
            free = [name for name in self.plan.names if name in self.up and view.member_on(name) is None]
            if free:
                name = free[int(self.random.random() * len(free))]
                group.propose(AddMirror(name, self.up[name]))
