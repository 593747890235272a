"""A cluster of `Membership` machines in virtual time: links that are cut, loops that freeze, processes that die.

Each node has its own clock, hours apart and up to 1 % fast or slow. What must never happen raises `Violation` at once:

* a node is declared down although its process lives and its lease lasts, on its own clock (reliability §4.2)
* a node serves without a lease, for longer than its loop needs to notice
* a node that reaches the leader, which has a majority, stays paused
* a node that is dead, frozen or out of the leader's reach stays up

When all is healed all must serve, know each other's status, and see no partition and nobody hung.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from cluster.membership.membership import Membership, State
from cluster.membership.options import MembershipOptions
from cluster.membership.outputs import Rejoin, SendHeartbeat, Submit
from node.catalogue.commands import Command, NodeDown, NodeUp, PutMember, RenewLeases
from node.catalogue.events import MemberDown
from tests.cluster.membership.raft_stub import Entry, Raft
from tests.kit.scene import OPTIONS

STEP_S: Final = 0.02
NOTICE_S: Final = 0.1
"""A loop may need this long to notice that its lease is over."""
BOUND_S: Final = 5.0
"""Within this all must be settled while nothing changes: an expiry of 2.5 s, and some seconds for the rest."""
FORWARD_S: Final = 5.0
"""For how long a command of a leader of former days may be on its way to the present one."""


class Violation(Exception):
    """Something has happened that must not happen."""


@dataclass(eq=False, slots=True)
class Process:
    """One life of a node."""

    machine: Membership
    received: int = 0
    """The node has so many entries of the log."""
    applied: int = 0
    """The node has applied so many entries."""
    leader: str | None = None
    """The machine was told that this node leads."""
    attempts: int = 0
    """The node has asked so often to count as up."""


@dataclass(eq=False, slots=True)
class Node:
    """A node's clock, and its process while there is one."""

    name: str
    offset_s: float
    rate: float
    process: Process | None = None
    is_frozen: bool = False
    lag_s: float = 0.0
    """Entries are applied so much later than they are received, as on a slow disk."""
    inbox: deque[Callable[[], None]] = field(default_factory=deque)
    """The node will find these calls when it wakes."""
    status: dict[str, Any] = field(default_factory=dict)
    tick: int = 0
    """The latest tick that is planned: others are void."""
    unsettled_s: float = 0.0
    """Something last changed for the node at this time."""

    def clock(self, real_s: float) -> float:
        """Return the time that the node's clock shows."""
        return self.offset_s + self.rate * real_s

    @property
    def is_awake(self) -> bool:
        """Whether it does anything."""
        return self.process is not None and not self.is_frozen


@dataclass(slots=True)
class Link:
    """Between two nodes. A session outlives a cut until somebody notices."""

    is_cut: bool = False
    session: int = 0
    is_up: bool = False
    unaware: int = 0
    """Ends that don't know yet that the last session is over: there is no new one before."""
    free_s: dict[str, float] = field(default_factory=dict)
    """The last message to each node arrives at this time."""
    held: list[Callable[[], None]] = field(default_factory=list)
    """These messages were sent into the cut."""


class Simulator:
    """One history. forwards: commands that a leader of former days hands to the present one."""

    def __init__(
        self,
        seed: int,
        machine: type[Membership] = Membership,
        forwards: tuple[type[Command[Any]], ...] = (),
        options: MembershipOptions = OPTIONS,
    ) -> None:
        self.rng = rng = random.Random(seed)
        self.machine, self.forwards, self.options = machine, forwards, options
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        names = [f"n{number}" for number in range(1, rng.choice((2, 3, 3, 3, 5)) + 1)]
        self.nodes = {
            name: Node(name, rng.choice((0.0, 1.0, 3600.0, 1e6)) * rng.random(), rng.uniform(0.99, 1.01))
            for name in names
        }
        self.links = {frozenset((one, other)): Link() for one in names for other in names if one < other}
        self.raft = Raft(names, rng, self.reaches, self._committed)
        self.lives: dict[int, Process] = {}
        self.renewed: dict[int, float] = {}
        """The latest time of each incarnation that the log has."""
        self.downs = self.pauses = 0
        self.is_healed = False
        """Nothing goes wrong any more."""
        for name in names:
            self.raft.catalogue.apply(PutMember(name, f"{name}:25672", f"id-{name}", "disc"))
        self.raft.entries.append(Entry(NodeDown("", 0), None, self.raft.catalogue.take_events(), None))

    # --- time ---

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now + seconds, self._count, act))

    def run(self, seconds: float) -> None:
        end_s = self.now + seconds
        while self._heap and self._heap[0][0] <= end_s:
            self.now, _, act = heapq.heappop(self._heap)
            act()
        self.now = end_s

    def story(self, seconds: float) -> None:
        """Start all, let things go wrong for a while, heal, and look."""
        for name in self.nodes:
            self.start(name)
        self.step()
        self.run(4.0)
        end_s = self.now + seconds
        while self.now < end_s:
            self.run(self.rng.choice((0.1, 0.5, 1.0, 3.0)) * self.rng.uniform(0.1, 2))
            self.mischief()
        self.heal()
        self.run(2 * BOUND_S)
        self.check_healed()

    # --- mischief ---

    def mischief(self) -> None:
        name = self.rng.choice([*self.nodes])
        if self.raft.leader is not None and self.rng.random() < 0.3:
            name = self.raft.leader
        pair = self.rng.choice([*self.links])
        match self.rng.randrange(9):
            case 0 | 1:
                self.cut(pair)
            case 2 | 3:
                for pair in self.links:
                    if name in pair:
                        self.cut(pair)
            case 4:
                self.freeze(name, self.rng.uniform(0.2, 6), is_stopped=self.rng.random() < 0.5)
            case 5:
                self.kill(name)
            case 6:
                self.nodes[name].status = {"version": self.rng.randrange(10)}
                self.call(name, self._tell_status)
            case 7:
                for pair in self.links:
                    self.mend(pair)
            case 8:
                self.slow_disk(name, self.rng.uniform(0.5, 1.5))

    def heal(self) -> None:
        self.is_healed = True
        for pair in self.links:
            self.mend(pair)
        for name, node in self.nodes.items():
            self.wake(name)
            node.lag_s = 0.0
            if node.process is None:
                self.start(name)

    def changed(self) -> None:
        """The bounds count from now."""
        for node in self.nodes.values():
            node.unsettled_s = self.now

    def start(self, name: str) -> None:
        node = self.nodes[name]
        if node.process is None:
            self.changed()
            machine = self.machine(name, self.options)
            node.process = Process(machine)
            node.inbox.clear()
            node.tick += 1
            self.call(name, self._tell_status)
            self.call(name, lambda: self.ask(name))

    def ask(self, name: str) -> None:
        """Count as up, as a new incarnation."""
        node = self.nodes[name]
        process = node.process
        assert process is not None
        if process.machine.state is State.OFF:
            process.machine.starting(node.clock(self.now))
            process.attempts += 1
            self.submit_until_done(name, process)

    def submit_until_done(self, name: str, process: Process) -> None:
        """As the log does it: handed to whoever leads, again and again."""
        node = self.nodes[name]
        if node.process is not process or process.machine.state is not State.STARTING:
            return
        leader = self.raft.leader
        command = NodeUp(name, f"id-{name}", f"{name}:25672")
        if leader is not None and self.reaches(name, leader):
            self.raft.propose(leader, command, (process, process.attempts), self.now)
        self.after(0.3, lambda: self.submit_until_done(name, process))

    def kill(self, name: str) -> None:
        node = self.nodes[name]
        if node.process is None:
            return
        self.changed()
        node.process = None
        node.is_frozen = False
        self.raft.lost(name)
        for pair, link in self.links.items():
            if name in pair and link.is_up:
                (other,) = pair - {name}
                self._end(link, 1)
                self.after(0.1, partial(self._refused, name, other, is_cut=link.is_cut))
        self.after(
            self.rng.choice((0.02, 0.15, 1.0, 6.0)) * self.rng.uniform(0.5, 1.5), lambda: self.start(name)
        )

    def _refused(self, name: str, other: str, *, is_cut: bool) -> None:
        """Refuse another connection in the name of the other host, unless it is up again."""
        is_gone = not is_cut and self.nodes[name].process is None
        delay_s = self.rng.choice((0.0, 0.3)) + (1.0 if is_cut else 0.0)
        self.after(delay_s, partial(self._link_down, other, name, is_gone=is_gone))

    def freeze(self, name: str, seconds: float, *, is_stopped: bool) -> None:
        """is_stopped: keepalive fails too, else only the loop hangs."""
        node = self.nodes[name]
        if not node.is_awake:
            return
        self.changed()
        node.is_frozen = True
        process = node.process
        self.after(seconds, lambda: self.wake(name) if node.process is process else None)
        if is_stopped:
            for pair, link in self.links.items():
                if name in pair and link.is_up:
                    self.after(1.5, partial(self._notice, pair, link.session, needs=lambda: node.is_frozen))

    def slow_disk(self, name: str, lag_s: float) -> None:
        """Make a node apply everything late, and then cut it off with much still to apply."""
        self.changed()
        node = self.nodes[name]
        node.lag_s = lag_s

        def recover() -> None:
            self.changed()
            node.lag_s = 0.0

        for pair in self.links:
            if name in pair:
                self.after(2.0, partial(self.cut, pair))
        self.after(4.0, recover)

    def wake(self, name: str) -> None:
        node = self.nodes[name]
        if node.is_frozen:
            self.changed()
            node.is_frozen = False
            if self.rng.random() < 0.5:
                self.call(name, lambda: None)
            while node.inbox:
                act = node.inbox.popleft()
                self.call(name, act)

    # --- links ---

    def reaches(self, one: str, other: str) -> bool:
        if not (self.nodes[one].is_awake and self.nodes[other].is_awake):
            return False
        link = self.links.get(frozenset((one, other)))
        return link is None or (link.is_up and not link.is_cut)

    def cut(self, pair: frozenset[str]) -> None:
        link = self.links[pair]
        if not link.is_cut and not self.is_healed:
            self.changed()
            link.is_cut = True
            self.after(
                self.rng.choice((0.01, 0.5, 1.5)),
                partial(self._notice, pair, link.session, needs=lambda: link.is_cut),
            )

    def _notice(self, pair: frozenset[str], session: int, *, needs: Callable[[], bool]) -> None:
        link = self.links[pair]
        if link.is_up and link.session == session and needs():
            self._end(link, 2)
            for one in pair:
                (other,) = pair - {one}
                self.after(self.rng.uniform(0, 0.5), partial(self._link_down, one, other, is_gone=False))

    def _end(self, link: Link, unaware: int) -> None:
        link.is_up = False
        link.session += 1
        link.unaware += unaware
        link.held.clear()

    def _link_down(self, name: str, peer: str, *, is_gone: bool) -> None:
        self.links[frozenset((name, peer))].unaware -= 1
        self.call(name, lambda: self._machine(name).link_down(peer, is_gone=is_gone, now=self.time(name)))

    def mend(self, pair: frozenset[str]) -> None:
        link = self.links[pair]
        if link.is_cut:
            self.changed()
            link.is_cut = False
            for act in link.held:
                act()
            link.held.clear()

    def connect(self, pair: frozenset[str]) -> None:
        link = self.links[pair]
        one, other = (self.nodes[name] for name in pair)
        if (
            link.is_up
            or link.unaware
            or link.is_cut
            or not (one.is_awake and other.is_awake)
            or self.rng.random() < 0.8
        ):
            return
        self.changed()
        link.is_up = True
        link.session += 1
        link.free_s.clear()
        for node, peer in ((one, other), (other, one)):
            assert peer.process is not None
            incarnation = peer.process.machine.incarnation
            self.call(node.name, partial(self._link_up, node.name, peer.name, incarnation))

    def _link_up(self, name: str, peer: str, incarnation: int) -> None:
        self._machine(name).link_up(peer, incarnation, self.time(name))

    def send(self, name: str, to: str, message: bytes) -> None:
        link = self.links[frozenset((name, to))]
        if not link.is_up:
            return
        session = link.session

        def arrive() -> None:
            if link.session == session:
                if link.is_cut:
                    link.held.append(arrive)
                else:
                    self.call(to, lambda: self._machine(to).received(name, message, self.time(to)))

        delay_s = self.rng.choice((0.001, 0.001, 0.02)) * self.rng.uniform(0.5, 1.5)
        arrives_s = max(self.now + delay_s, link.free_s.get(to, 0.0))
        link.free_s[to] = arrives_s
        self.after(arrives_s - self.now, arrive)

    # --- nodes ---

    def _machine(self, name: str) -> Membership:
        process = self.nodes[name].process
        assert process is not None
        return process.machine

    def time(self, name: str) -> float:
        return self.nodes[name].clock(self.now)

    def _tell_status(self) -> None:
        for name, node in self.nodes.items():
            if node.is_awake:
                self._machine(name).set_status(node.status, self.time(name))

    def call(self, name: str, act: Callable[[], None]) -> None:
        """Something for a node's loop; it ends with a tick."""
        node = self.nodes[name]
        if node.process is None:
            return
        if node.is_frozen:
            node.inbox.append(act)
            return
        act()
        machine = node.process.machine
        deadline_s = machine.tick(self.time(name))
        self._perform(node, node.process)
        node.tick += 1
        delay_s = max(0.0, (deadline_s - node.offset_s) / node.rate - self.now) + self.rng.uniform(
            0.0001, 0.02
        )
        self.after(delay_s, partial(self._tick, node, node.tick))

    def _tick(self, node: Node, number: int) -> None:
        if node.tick == number:
            self.call(node.name, lambda: None)

    def _perform(self, node: Node, process: Process) -> None:
        for output in process.machine.take_outputs():
            match output:
                case SendHeartbeat(to, message):
                    self.send(node.name, to, message)
                case Submit(command):
                    self._submit(node, process, command, self.now + FORWARD_S)
                case Rejoin():
                    self.after(
                        self.rng.uniform(0.1, 1),
                        lambda: (
                            self.call(node.name, lambda: self.ask(node.name))
                            if node.process is process
                            else None
                        ),
                    )
                case _:
                    self.pauses += type(output).__name__ == "Pause"

    def _submit(self, node: Node, process: Process, command: NodeDown | RenewLeases, until_s: float) -> None:
        if self.raft.propose(node.name, command, None, self.now) or node.process is not process:
            return
        if isinstance(command, self.forwards) and self.now < until_s:
            leader = self.raft.leader
            if leader is None or not self.reaches(node.name, leader):
                self.after(0.1, lambda: self._submit(node, process, command, until_s))
            else:
                self.raft.propose(leader, command, None, self.now)

    # --- the log ---

    def step(self) -> None:
        """Every 20 ms."""
        for pair in self.links:
            self.connect(pair)
        self.raft.step(self.now)
        for name, node in self.nodes.items():
            process = node.process
            if node.is_awake and process is not None:
                belief = self.raft.voters[name].belief
                has_news = belief == self.raft.leader and process.received < len(self.raft.entries)
                if belief != process.leader or (has_news and self.rng.random() < 0.8):
                    self.after(
                        self.rng.uniform(0, 0.01),
                        partial(self.call, name, partial(self._follow, node, process)),
                    )
        self.check()
        self.after(STEP_S, self.step)

    def _follow(self, node: Node, process: Process) -> None:
        if node.process is not process:
            return
        machine, now = process.machine, node.clock(self.now)
        belief = self.raft.voters[node.name].belief
        if belief != process.leader:
            process.leader = belief
            machine.leader_changed(belief, now)
        machine.majority_changed(self.raft.has_majority(node.name), now)
        if belief is None or belief != self.raft.leader or not self.reaches(node.name, belief):
            return
        process.received = len(self.raft.entries)
        apply = partial(self._apply, node, process, process.received)
        if node.lag_s:
            self.after(node.lag_s, partial(self.call, node.name, apply))
        else:
            apply()

    def _apply(self, node: Node, process: Process, count: int) -> None:
        machine, now = process.machine, node.clock(self.now)
        while node.process is process and process.applied < count:
            entry = self.raft.entries[process.applied]
            process.applied += 1
            machine.applied(entry.events, now)
            if entry.origin == (process, process.attempts):
                self.after(
                    self.rng.choice((0.0, 0.01, 1.0)),
                    partial(self.call, node.name, partial(self._up, node, process, entry.result)),
                )

    def _up(self, node: Node, process: Process, incarnation: object) -> None:
        assert isinstance(incarnation, int)
        if node.process is process and process.machine.state is State.STARTING:
            process.machine.up(incarnation, node.clock(self.now))

    # --- checks ---

    def _committed(self, entry: Entry) -> None:
        match entry.command:
            case NodeUp():
                assert isinstance(entry.origin, tuple)
                assert isinstance(entry.result, int)
                self.lives[entry.result], _ = entry.origin
            case RenewLeases(sent):
                for _, incarnation, sent_s in sent:
                    self.renewed[incarnation] = max(self.renewed.get(incarnation, sent_s), sent_s)
            case NodeDown():
                for event in entry.events:
                    if isinstance(event, MemberDown):
                        self._check_down(event.member.name, event.member.incarnation)

    def _check_down(self, name: str, incarnation: int) -> None:
        node, process = self.nodes[name], self.lives[incarnation]
        self.downs += 1
        if node.process is not process:
            return
        now = node.clock(self.now)
        if process.machine.incarnation != incarnation:
            return
        if process.machine.has_lease(now):
            raise Violation(f"{self.now:.3f}: {name} is declared down while its lease lasts")
        if process.machine.state is State.SERVING and not node.is_frozen:
            raise Violation(f"{self.now:.3f}: {name} is declared down before it paused")
        is_trusted = RenewLeases not in self.forwards  # else the log may have times that nobody accepts
        if is_trusted and self.renewed.get(incarnation, -1.0) + self.options.lease_s > now:
            raise Violation(f"{self.now:.3f}: {name} is declared down while the log has a lease for it")

    def check(self) -> None:
        """Check the invariants that hold all the time."""
        leader = self.raft.leader
        is_led = leader is not None and self.raft.has_majority(leader)
        for name, node in self.nodes.items():
            member = self.raft.catalogue.member(name)
            assert member is not None
            machine = node.process.machine if node.process is not None else None
            is_serving = machine is not None and machine.state is State.SERVING
            noticed_s = node.clock(self.now - NOTICE_S)
            if machine is not None and is_serving and not node.is_frozen and not machine.has_lease(noticed_s):
                raise Violation(f"{self.now:.3f}: {name} serves without a lease")
            settled_s = self.now - max(node.unsettled_s, self.raft.leader_since_s)
            if (
                not is_led
                or leader is None
                or settled_s < BOUND_S
                or any(it.lag_s for it in self.nodes.values())
            ):
                continue
            if self.reaches(name, leader) and not is_serving:
                raise Violation(f"{self.now:.3f}: {name} reaches the leader and doesn't serve")
            if not self.reaches(name, leader) and member.is_up:
                raise Violation(f"{self.now:.3f}: {name} is out of reach and still up")

    def check_healed(self) -> None:
        """All serve and see the same."""
        for name, node in self.nodes.items():
            machine = self._machine(name)
            member = self.raft.catalogue.member(name)
            others = {other.name: other for other in self.nodes.values() if other is not node}
            assert member is not None
            seen = (
                machine.state,
                machine.incarnation,
                machine.partitions,
                machine.reachable,
                machine.statuses,
            )
            wanted: tuple[object, ...] = (
                State.SERVING,
                member.incarnation,
                [],
                sorted(others),
                {other.name: other.status for other in others.values()},
            )
            if not member.is_up or seen != wanted:
                raise Violation(f"{name} is {member} and sees {seen}, not {wanted}")
