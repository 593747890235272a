"""Members of a Raft group in virtual time, over simulated disks and links: the real PySyncObj, our journal, our log.

One thread, one heap of events, one source of randomness: a seed says everything. After each event the invariants are
checked (`tests.kit.raft_checks`). Nothing here is used by the node.
Source: reliability §5.2.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from cluster.metadata.founding import create, join, load
from cluster.metadata.journal_file import PATH
from cluster.metadata.options import Options
from cluster.metadata.raft_log import RaftLog
from cluster.metadata.raft_member import RaftMember
from node.catalogue.command_codec import encode_command
from node.catalogue.commands import Command, NodeDown, NodeUp, PutMember, Refused, SetGlobalParameter
from node.catalogue.events import Event
from node.catalogue.snapshot import snapshot
from tests.kit.disk import SimulatedDisk
from tests.kit.raft_checks import Checks

OPTIONS = Options(compact_min_bytes=6000, compact_entries=60)
DOWN_AFTER_S = 1.5
"""The stand-in for membership waits this long before it declares a node down."""


FULL_RETRY_S = 1.0
"""A disk that found no room tries again after this time."""


@dataclass
class Profile:
    """The delays of a link or a disk, in seconds."""

    least: float
    most: float

    def draw(self, random: Random) -> float:
        return random.uniform(self.least, self.most)


@dataclass(eq=False)
class Process:
    """A running node: one incarnation of its memory."""

    name: str
    number: int
    log: RaftLog
    raft: RaftMember
    disk: SimulatedDisk | None
    due: float = 0.0
    is_tick_asked: bool = False
    is_disk_busy: bool = False
    incarnation: int = 0
    is_joining: bool = False
    is_asking: bool = False
    broken: str | None = None
    reactions: list[Event] = field(default_factory=list)


class World:
    """Nodes by name, the links between them, and the virtual time."""

    def __init__(
        self,
        seed: int,
        names: Sequence[str],
        observers: Sequence[str] = (),
        options: Options = OPTIONS,
        *,
        reorders: bool = False,
    ):
        self.seed = seed
        self.random = Random(seed)
        self.options = options
        self.now = 1000.0
        self.names = [*names, *observers]
        self.observers = set(observers)
        self.checks = Checks(self)
        self.up: dict[str, Process] = {}
        self.disks: dict[str, SimulatedDisk] = {name: SimulatedDisk(reorders=reorders) for name in names}
        self.session: dict[frozenset[str], int] = {}
        """Links that are up, with the number of their session."""
        self.blocked: set[frozenset[str]] = set()
        self.profiles: dict[tuple[str, str], Profile] = {}
        self.disk_profile = Profile(0.0001, 0.002)
        self.hung: set[str] = set()
        """Nodes whose disk does nothing more."""
        self.down_since: dict[str, float] = {}
        self.reports: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._arrivals: dict[tuple[str, str], float] = {}
        self._processes = 0
        self._sessions = 0
        self.steps = 0
        self.every(0.3, self._membership)

    # --- time ---

    def at(self, time: float, do: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (max(time, self.now), self._count, do))

    def after(self, delay_s: float, do: Callable[[], None]) -> None:
        self.at(self.now + delay_s, do)

    def every(self, period_s: float, do: Callable[[], None]) -> None:
        def again() -> None:
            do()
            self.after(period_s, again)

        self.after(period_s, again)

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Advance the time. Returns: whether `until` became true."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            time, _, do = heapq.heappop(self._events)
            self.now = max(self.now, time)
            do()
            self.steps += 1
            self.checks.step()
            if until():
                return True
        self.now = end
        return until()

    # --- processes ---

    def form(self, name: str) -> Process:
        """Start the first node of a group."""
        create(self.disks[name], name)
        return self.start(name)

    def start(self, name: str, voters: Sequence[str] | None = None) -> Process:
        """Start a node from its disk, or let it join these voters."""
        assert name not in self.up
        self.let_disk_go_on(name)  # else it could not even read its journal
        self._processes += 1
        number = self._processes
        disk = self.disks.get(name)
        if disk is not None and PATH in disk.names(""):
            image = load(disk)
            self.checks.loaded(name, image)
            is_joining = name not in image.head.voters
        else:
            assert voters is not None
            image = join(disk, voters)
            is_joining = disk is not None
        sessions = iter(range(1_000_000))
        clock = lambda: self.now  # noqa: E731
        log = self.checks.make_log(
            name, number, now=clock, new_session=lambda: f"{number}.{next(sessions)}", options=self.options
        )
        process: Process
        is_made = False

        def wake() -> None:
            if is_made:
                self._ask_tick(process)

        def broken(reason: str) -> None:
            process.broken = reason
            self.after(0, lambda: self.stop(name) if self.up.get(name) is process else None)

        raft = RaftMember(
            name,
            image,
            disk,
            log,
            lambda peer, message: self._send(process, peer, message),
            now=clock,
            random=Random(self.random.random()).random,
            wake=wake,
            options=self.options,
            report=lambda text: self.reports.append(f"{name}: {text}"),
            on_broken=broken,
        )
        log.bind(raft, wake)
        process = Process(name, number, log, raft, disk, is_joining=is_joining)
        is_made = True
        self.up[name] = process
        self.down_since.pop(name, None)
        self.checks.started(process)
        for other in self.up:
            if other != name:
                self.connect_soon(name, other)
        self._ask_tick(process)
        return process

    def stop(self, name: str, *, power_loss: bool = False) -> None:
        """End a node by kill -9 or by a power loss."""
        process = self.up.pop(name)
        self.down_since[name] = self.now
        if process.disk is not None:
            if power_loss:
                self.disks[name] = process.disk.crash(self.random)
            else:
                self.disks[name] = process.disk.kill(self.random)
        for other in list(self.up):
            self._unlink(frozenset((name, other)), self.random.uniform(0.002, 0.02))

    def _ask_tick(self, process: Process) -> None:
        if not process.is_tick_asked:
            process.is_tick_asked = True
            self.after(0, lambda: self._tick(process))

    def _tick(self, process: Process) -> None:
        process.is_tick_asked = False
        if self.up.get(process.name) is not process:
            return
        due = process.raft.tick(self.now)
        process.due = due
        self._drive_disk(process)
        if due < float("inf"):
            self.at(due, lambda: self._tick(process) if process.due == due else None)

    def _drive_disk(self, process: Process) -> None:
        disk = process.disk
        if disk is None or process.is_disk_busy or not disk.jobs or self.up.get(process.name) is not process:
            return
        if process.name in self.hung:
            return
        process.is_disk_busy = True

        def step() -> None:
            process.is_disk_busy = False
            if self.up.get(process.name) is process and process.name not in self.hung:
                has_moved = disk.step()
                if has_moved:
                    self._drive_disk(process)
                else:
                    process.is_disk_busy = True  # full: the next try comes later
                    self.after(FULL_RETRY_S, step)

        self.after(self.disk_profile.draw(self.random), step)

    def hang_disk(self, name: str) -> None:
        """Hang a node's disk until `let_disk_go_on`."""
        self.hung.add(name)

    def let_disk_go_on(self, name: str) -> None:
        """Let a node's disk work again, with enough space."""
        self.hung.discard(name)
        if name in self.disks:
            self.disks[name].free()
        if name in self.up:
            self._drive_disk(self.up[name])

    # --- links ---

    def _send(self, process: Process, peer: str, message: bytes) -> bool:
        pair = frozenset((process.name, peer))
        session = self.session.get(pair)
        if session is None or self.up.get(process.name) is not process:
            return False
        self.checks.sent(process, peer, message)
        way = (process.name, peer)
        profile = self.profiles.get(way, Profile(0.0002, 0.003))
        arrives = max(self.now + profile.draw(self.random), self._arrivals.get(way, 0.0))
        self._arrivals[way] = arrives
        self.at(arrives, lambda: self._arrive(process, peer, pair, session, message))
        return True

    def _arrive(self, sender: Process, peer: str, pair: frozenset[str], session: int, message: bytes) -> None:
        process = self.up.get(peer)
        if process is not None and self.session.get(pair) == session:
            process.raft.receive(sender.name, [message])
            self._drive_disk(process)

    def connect_soon(self, a: str, b: str) -> None:
        self.after(self.random.uniform(0.01, 0.2), lambda: self._connect(a, b))

    def _connect(self, a: str, b: str) -> None:
        pair = frozenset((a, b))
        if a not in self.up or b not in self.up or pair in self.blocked or pair in self.session:
            return
        self._sessions += 1
        self.session[pair] = self._sessions
        for one, other in ((a, b), (b, a)):
            self._arrivals[one, other] = self.now
            self.up[one].raft.link_up(other)

    def _unlink(self, pair: frozenset[str], delay_s: float = 0.0) -> None:
        if self.session.pop(pair, None) is None:
            return
        for one in sorted(pair):
            (other,) = pair - {one}
            process = self.up.get(one)
            if process is not None:
                self.after(delay_s, lambda p=process, o=other, q=pair: self._down(p, o, q))  # type: ignore[misc]

    def _down(self, process: Process, other: str, pair: frozenset[str]) -> None:
        if self.up.get(process.name) is process and pair not in self.session:
            process.raft.link_down(other, is_gone=other not in self.up)

    def reset(self, a: str, b: str) -> None:
        """Lose all messages on their way; a new session begins soon."""
        self._unlink(frozenset((a, b)))
        self.connect_soon(a, b)

    def block(self, a: str, b: str) -> None:
        """Allow no session between two nodes until `unblock`."""
        self.blocked.add(frozenset((a, b)))
        self._unlink(frozenset((a, b)), self.random.uniform(0.002, 1.5))

    def heal(self) -> None:
        """Repair all links."""
        self.blocked.clear()
        self.profiles.clear()
        self.disk_profile = Profile(0.0001, 0.002)
        for name in self.disks:
            self.let_disk_go_on(name)
        for a in list(self.up):
            for b in list(self.up):
                if a < b:
                    self.connect_soon(a, b)

    def is_linked(self) -> bool:
        """Return whether all running nodes have sessions with each other."""
        return all(frozenset((a, b)) in self.session for a in self.up for b in self.up if a < b)

    # --- a stand-in for membership ---

    def _membership(self) -> None:
        """Propose that new nodes are up, and, on the leader, that missing nodes are down."""
        for process in list(self.up.values()):
            catalogue, name = process.log.catalogue, process.name
            member = catalogue.members.get(name)
            if process.incarnation == 0 and member is not None and process.raft.has_majority:
                process.incarnation = -1
                self._come_up(process)
            elif member is None and process.raft.is_leader:
                process.log.submit(PutMember(name, f"{name}:1", f"id-{name}"))
            if name in process.raft.voters:
                process.is_joining = False
            if process.is_joining and member is not None and not process.is_asking:
                process.is_asking = True
                process.raft.add_voter(name, lambda why, p=process: self._voter_added(p, why))  # type: ignore[misc]
            if not process.raft.is_leader:
                continue
            for other in list(catalogue.members.values()):
                since = self.down_since.get(other.name)
                if other.is_up and since is not None and self.now - since > DOWN_AFTER_S:
                    process.log.submit(NodeDown(other.name, other.incarnation))

    def _voter_added(self, process: Process, why: str | None) -> None:
        process.is_asking = False

    def _come_up(self, process: Process) -> None:
        def answered(result: Any) -> None:
            if self.up.get(process.name) is process:
                process.incarnation = 0 if isinstance(result, Refused) else result

        process.log.submit(NodeUp(process.name, f"id-{process.name}", f"{process.name}:1"), answered)

    def admit(self, name: str, through: str) -> Process:
        """Let a node join through another one."""
        kind = "ram" if name in self.observers else "disc"
        self.up[through].log.submit(PutMember(name, f"{name}:1", f"id-{name}", kind))  # type: ignore[arg-type]
        return self.start(name, sorted(self.up[through].raft.voters))

    def submit(self, name: str, command: Command[Any]) -> list[Any]:
        """Let a node submit a command. Returns: the list that will have its answer."""
        answers: list[Any] = []
        process = self.up[name]
        is_submitting = True
        self.checks.submitted(process, command, answers)

        def answered(result: Any) -> None:
            answers.append(result)
            self.checks.answered(process, command, result, at_once=is_submitting)

        process.log.submit(command, answered)
        is_submitting = False
        return answers

    def fingerprint(self, name: str) -> list[bytes]:
        """Return a node's catalogue as a value that can be compared."""
        return sorted(map(encode_command, snapshot(self.up[name].log.catalogue, whole=True)))

    def is_busy(self) -> bool:
        """Return whether any command waits for its answer."""
        return any(each.log._sent or each.log._gathered or each.log._answers for each in self.up.values())

    def is_settled(self) -> bool:
        """Return whether all nodes see each other as up and have applied the same entries."""
        leaders = [each for each in self.up.values() if each.raft.is_leader]
        if len(leaders) != 1 or any(each.incarnation <= 0 or each.is_joining for each in self.up.values()):
            return False
        return len({each.raft.applied_index for each in self.up.values()}) == 1


def parameter(number: int, size: int = 0) -> SetGlobalParameter:
    """Return a command with a visible effect of its own."""
    return SetGlobalParameter(f"p{number}", "x" * size)
