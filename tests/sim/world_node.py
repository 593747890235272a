"""One node of the simulation of everything: a process with metadata, membership and links, and one broker at a time.

Real: RaftLog over RaftMember over a simulated disk, Membership with its leases, PeerState, data streams, and the
broker of `tests.sim.mirror_node` with its store. What `node.clustering` and `node.process` do with them needs sockets,
threads and an event loop; it stands here in short, part by part:

    start, _observe, _replaced                                 node.clustering.cluster: Cluster
    _cluster_turn; act, _do                                    node.clustering.turn: Turn; .verdicts: Verdicts
    _tell_leader                                               node.clustering.metadata: Metadata
    _supervise                                                 node.process.supervisor: Supervisor._settle
    _begin, _catch_up, _enter_cluster, _end_broker             node.clustering.brokers, .life; node.app: Node
    _store_broken, _stalled, _resumed                          node.io.persistence, node.io.resource_guard
    tell_status                                                node.clustering.publisher, .status
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from errno import EDQUOT, ENOSPC
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from cluster.membership import outputs
from cluster.membership.membership import Membership, State
from cluster.membership.options import MembershipOptions
from cluster.metadata.founding import load
from cluster.metadata.journal_file import JournalUnreadable
from cluster.metadata.raft_log import NO_MAJORITY
from cluster.metadata.raft_member import RaftMember
from cluster.mirror.mirrors import Mirrors
from cluster.remote.peers import Peers
from cluster.transport.interface import Hello, Topic
from cluster.transport.stream import Receiver, Sender
from node.broker.unsettled import note_deliveries
from node.catalogue.commands import Command, NodeDown, NodeUp, Refused, SetDraining
from node.catalogue.events import LeasesRenewed, MemberDown, MemberPut, MemberRemoved, MemberUp
from node.catalogue.snapshot import everything
from node.clustering.admission import Admission, KnownNode
from node.clustering.life import OUTCOMES_MAX, UNKNOWN
from node.clustering.link_counts import LinkCounts
from node.clustering.message_disk import ALARM as MESSAGE_DISK
from node.clustering.message_disk import MessageDisk
from node.clustering.metadata import options as raft_options
from node.clustering.peer_state import PeerState
from node.io.disk import HUNG_S
from node.store.directory import StoreError
from node.store.disk import READING, Step, Sync
from node.store.records import NewerFormat
from tests.kit.disk import SimulatedDisk
from tests.kit.raft_checks import WatchedLog
from tests.kit.world import EPOCH_S
from tests.sim.mirror_node import OPTIONS, Node

if TYPE_CHECKING:
    from tests.sim.world import World

LEASE_S: Final = 4.0
HEARTBEAT_S: Final = 0.5
MEMBERSHIP: Final = MembershipOptions(lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S)
RAFT: Final = raft_options(LEASE_S)
CLUSTER_ID: Final = "cluster"
FULL_RETRY_S: Final = 1.0
"""`node.io.disk.RETRY_S`."""
START_RETRY_S: Final = 5.0
"""`node.process.supervisor.RETRY_S`."""
WAITING_RETRY_S: Final = 0.5
"""`node.clustering.waiting.RETRY_S`."""
LEAVE_S: Final = 5.0
"""`node.clustering.brokers.LEAVE_S`, and how long the others are told that a node stops."""

_OF_MEMBERSHIP: Final = (LeasesRenewed, MemberDown, MemberPut, MemberRemoved, MemberUp)


class Signal:
    """Something that a script waits for.   value: what came with it."""

    def __init__(self) -> None:
        self.is_set = False
        self.value: Any = None
        self._waiting: list[Callable[[], None]] = []

    def set(self, value: Any = None) -> None:
        """Set the signal and wake those who wait for it."""
        self.value = value
        self.is_set = True
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each()

    def clear(self) -> None:
        """Clear the signal, so that it may be set again."""
        self.is_set = False

    def call(self, action: Callable[[], None]) -> None:
        """Call this once it has happened."""
        if self.is_set:
            action()
        else:
            self._waiting.append(action)


Script = Generator[Any, Any, Any]
"""A script takes time: it gives signals to wait for, any of a tuple, or seconds."""


class DiskState:
    """Holds what is wrong with one disk, whatever process uses it.   failing: kinds of steps that fail for ever."""

    def __init__(self) -> None:
        self.is_hung = False
        self.is_slow = False
        self.is_full = False
        self.failing: tuple[type, ...] = ()

    @property
    def is_well(self) -> bool:
        return not (self.is_hung or self.is_full or self.failing)

    def apply(self, disk: SimulatedDisk) -> None:
        """Have a disk be so."""
        disk.mend()
        for kind in self.failing:
            disk.fail_always(kind)
        if self.is_full:
            disk.fill_up()
        else:
            disk.free()


class WorldNode(Node):
    """One node.   entered: its incarnation while it serves clients."""

    world: "World"  # type: ignore[assignment]
    options = replace(OPTIONS, scrub_rate=1 << 20)

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)  # type: ignore[arg-type]
        self.disk, self.raft_disk = SimulatedDisk(reorders=True), SimulatedDisk(reorders=True)
        self.disk_state, self.raft_disk_state = DiskState(), DiskState()
        self.process = 0
        self.skew_s = 0.0
        """By how much its wall clock is wrong."""
        self.ended_itself = ""
        self.incarnation = 0
        self.senders: dict[str, Sender] = {}
        self.receivers: dict[str, Receiver] = {}
        self.has_broker = False
        self.logger = SimpleNamespace(error=lambda *what: None, warning=lambda *what: None)
        self.publisher = SimpleNamespace(soon=self._status_soon)
        self.link_counts = LinkCounts()
        self.config = SimpleNamespace(cluster=SimpleNamespace(mirror_flush_s=0.002))
        self._rate = 1.0

    # --- clocks ---

    @property
    def now(self) -> float:
        """Return the time of the process: it never goes back, and runs at its own rate."""
        return self._offset + self.world.now * self._rate

    def when(self, due: float) -> float:
        return (due - self._offset) / self._rate

    @property
    def epoch_s(self) -> float:
        return EPOCH_S + self.skew_s + self.world.now - self.now

    def later(self, delay: float, action: Callable[[], None]) -> None:
        """Do something later, in this process, whatever broker it has then."""
        process, world = self.process, self.world

        def act() -> None:
            if self.process != process or not self.is_alive:
                return
            if world.now < self.frozen_until:
                world.at(self.frozen_until, act)
                return
            action()

        world.at(max(world.now + delay, self.frozen_until), act)

    # --- the process ---

    def start(self) -> None:
        """A process on what the disks have."""
        assert not self.is_alive
        world = self.world
        self.is_alive = True
        self.process += 1
        self.life += 1
        self.entered = self.incarnation = 0
        self.frozen_until = 0.0
        self.ended_itself = ""
        self._rate = 1 + world.random.uniform(-0.0049, 0.0049)
        self._offset = world.random.uniform(1000, 5000)
        self._is_draining = self.has_broker = False
        self._is_stale = self._is_held = False
        self._is_stopping = False
        self._unknown_count = 0
        self._wanted = Signal()
        self._may_serve, self._must_rejoin = Signal(), Signal()
        self._is_status_coming = False
        self._status: dict[str, Any] = {}
        self._is_turn_due = self._is_raft_disk_coming = False
        self._is_metadata_due = self._is_membership_due = True
        self._metadata_due_s = self._membership_due_s = 0.0
        self._cluster_timer = 0.0
        self._leader: str | None = None
        self._has_majority = False
        self.membership = Membership(self.name, MEMBERSHIP)
        self.transport = Ways(self)
        self.peer_state = PeerState(cast(Any, self), cast(Any, self), cast(Any, self), now=lambda: self.now)
        self.message_disk = MessageDisk(cast(Any, self.logger))
        self.links = set[str]()
        self.raft_disk_state.apply(self.raft_disk)
        try:
            self._open_metadata()
        except (JournalUnreadable, OSError) as error:
            self.end_itself(f"metadata: {error}")
            return
        world.links.started(self)
        self._take_over_members()
        self._run(self._supervise())
        self.metadata_changed()

    def _open_metadata(self) -> None:
        """As `Metadata`."""
        sessions = iter(range(1 << 30))
        self.log = WatchedLog(
            self.name,
            now=lambda: self.now,
            new_session=lambda: f"{self.name}.{self.process}.{next(sessions)}",
            options=RAFT,
        )
        self.log.on_apply = lambda index, data: self.world.applied(self, index, data)
        self.log.on_text = lambda index, text: None
        self.log.observers.append(lambda events: self.world.saw(self, self.log.applies_now, events))
        self.log.observers.append(self._observe)
        self.log.on_replaced = self._replaced
        self.raft = RaftMember(
            self.name,
            load(self.raft_disk),
            self.raft_disk,
            self.log,
            lambda peer, message: self.world.links.send_control(self.name, peer, Topic.RAFT, message),
            now=lambda: self.now,
            random=Random(self.world.random.random()).random,
            wake=self.metadata_changed,
            options=RAFT,
            report=self._report,
            on_broken=lambda why: self.later(0.0, lambda: self.end_itself(f"metadata: {why}")),
        )
        self.log.bind(self.raft, self.metadata_changed)

    def _report(self, line: str) -> None:
        self.world.trace(f"{self.name}: metadata: {line}")
        if "was dropped" in line:
            self.errors.append(line)

    def end_itself(self, why: str) -> None:
        """The process cannot go on."""
        if self.is_alive:
            self.world.trace(f"{self.name} ends: {why}")
            self.ended_itself = why
            self.world.process_ended(self)

    def end(self, *, power: bool) -> None:
        random, process = self.world.random, self.process
        disk, raft_disk = self.disk, self.raft_disk
        super().end(power=False)
        if power:
            self.disk = disk.crash(random)
            self.raft_disk = raft_disk.crash(random)
        else:
            self.raft_disk = raft_disk.kill(random)
        assert self.process == process
        self.has_broker = False
        self.incarnation = 0
        self.senders, self.receivers = {}, {}
        self.world.links.ended(self.name, is_machine=power)

    # --- scripts ---

    def _run(self, script: Script, answer: Any = None) -> None:
        """Go on with a script until it ends, in this process."""
        try:
            waits = script.send(answer)
        except StopIteration:
            return
        if isinstance(waits, float):
            self.later(waits, lambda: self._run(script))
            return
        process, is_done = self.process, False

        def go_on() -> None:
            nonlocal is_done
            if not is_done and self.process == process and self.is_alive:
                is_done = True
                self.later(0.0, lambda: self._run(script))

        for signal in waits if isinstance(waits, tuple) else (waits,):
            signal.call(go_on)

    def _submit(self, command: Command[Any]) -> Signal:
        answer = Signal()
        self.log.submit(command, answer.set)
        return answer

    def _supervise(self) -> Script:
        """As `Supervisor`: whether a broker runs or not is one thing at a time."""
        has_started = False
        while not self._is_stopping:  # then `_stop` ends what runs
            must_end = self.has_broker and (self._is_stale or self._is_held)
            if must_end and not (yield from self._end_broker()):
                return
            if not self.has_broker and not self._is_held:
                try:
                    yield from self._begin()
                    has_started = True
                except (OSError, StoreError, NewerFormat) as error:
                    self.world.trace(f"{self.name} cannot start: {error}")
                    if not has_started:
                        self.end_itself(f"it cannot start: {error}")
                        return
                    yield START_RETRY_S
            if self.has_broker != self._is_held and not (self.has_broker and self._is_stale):
                self._wanted.clear()
                yield self._wanted

    def restart(self) -> None:
        """Have the broker end and another one begin."""
        self._is_stale = True
        self._wanted.set()

    def _hold(self) -> None:
        self._is_held = True
        self._is_stale = self._is_stale or self.has_broker
        self._status_soon()
        self._wanted.set()

    def _release(self) -> None:
        self._is_held = False
        self._status_soon()
        self._wanted.set()

    # --- a broker's life ---

    def _begin(self) -> Script:
        while True:
            self._is_stale = False
            yield from self._catch_up()
            self._open_broker()
            is_let = yield from self._enter_cluster()
            if is_let:
                break
            if not (yield from self._end_broker()):
                return
        own = self.members.get(self.name)
        self._is_draining = False
        if own is not None and own.is_draining:
            yield self._submit(SetDraining(self.name, False))

    def _catch_up(self) -> Script:
        if self.membership.state is not State.OFF:
            self.membership.stopped(self.now)
        self._be(0)
        while True:
            own = self.members.get(self.name)
            answer = self._submit(SetDraining(self.name, own is not None and own.is_draining))
            yield answer
            if not isinstance(answer.value, Refused):
                return
            yield from self._refused(answer.value)

    def _refused(self, refused: Refused) -> Script:
        if refused in UNKNOWN and self._unknown_count < OUTCOMES_MAX:
            self._unknown_count += 1
        elif refused != NO_MAJORITY:
            self._unknown_count = 0
            raise OSError(refused.text)
        yield WAITING_RETRY_S

    def _open_broker(self) -> None:
        """As `Node.start`, up to where it counts as up. Raises: OSError, StoreError."""
        self.life += 1
        self._is_turn_coming = self._is_disk_coming = False
        self._timer_at = None
        self.disk = self.disk.kill(self.world.random)  # opened anew: it knows nothing of former errors
        self.disk_state.apply(self.disk)
        broker = self.make_broker(self.log.catalogue)
        broker.log = self.log
        self.log.attach(broker.react)
        self.has_broker = True
        self.peers = cast(Peers, self.peer_state.open(broker))
        broker.peers = self.peers
        assert isinstance(broker.mirrors, Mirrors)
        self.mirrors = broker.mirrors
        self.pager.copies = self.mirrors.copies
        broker.observer.mirror_event = self._mirror_event  # type: ignore[method-assign]
        try:
            broker.react(list(everything(broker.catalogue)))
            self.store.wake = broker.wake
            self.store.on_relieved = broker.relieved
            self.store.on_broken = self._store_broken
            self._recover()
        except BaseException:
            self._forget_broker()
            raise
        self.disk.on_stalled, self.disk.on_resumed = self._stalled, self._resumed
        self.busy()

    def _mirror_event(self, event: Any) -> None:
        self.events.append(event.text)
        self.world.trace(f"{self.name}: {event.text}")

    def _enter_cluster(self) -> Script:
        """As `Life.begin`."""
        while True:
            while self.membership.unreached:
                yield WAITING_RETRY_S
            self._may_serve.clear()
            self._must_rejoin.clear()
            self.membership.starting(self.now)
            self.membership_changed()
            answer = self._submit(NodeUp(self.name, self.node_id, self.address))
            yield answer
            if isinstance(answer.value, int):
                break
            self.membership.stopped(self.now)
            yield from self._refused(answer.value)
            if answer.value in UNKNOWN:
                return False
        self._unknown_count = 0
        self._be(answer.value)
        self._members_changed()
        self.peer_state.entered(answer.value)
        self.membership.up(answer.value, self.now)
        self.membership_changed()
        yield self._may_serve, self._must_rejoin
        if not self._may_serve.is_set:
            return False
        self.entered = self.incarnation
        self.world.trace(f"{self.name} serves as {self.entered}")
        self.busy()
        return True

    def _be(self, incarnation: int) -> None:
        self.incarnation = incarnation
        if not incarnation:
            self.entered = 0

    def _end_broker(self) -> Generator[Any, Any, bool]:
        """As `Node.stop`: the broker's disk has to write what it has. Returns: whether it has."""
        self._stop_serving()
        self.peers.close()
        self.mirrors.close_all()
        self._settle()
        self.log.detach()
        note_deliveries(self.broker)
        is_written = yield from self._drain()
        if is_written:
            self.store.close()
            is_written = yield from self._drain()
        self._forget_broker()
        if not is_written and not self._is_stopping:
            self.end_itself("its message disk does not answer")
        return is_written

    def _drain(self) -> Generator[Any, Any, bool]:
        """As `node.io.disk.Disk.drain`: whether the disk has written everything."""
        self.disk.give_up()
        hung_s = 0.0
        while self.disk.jobs or self.disk._answers:
            self.look_after()
            pause_s = 0.25 if self.disk_state.is_hung else 0.01
            hung_s = hung_s + pause_s if self.disk_state.is_hung else 0.0
            if hung_s > HUNG_S:
                return False
            yield pause_s
        return True

    def _forget_broker(self) -> None:
        self.log.detach()
        self.has_broker = False
        self.life += 1
        self.entered = 0
        for client in list(self.clients.values()):
            client.lose()
        self.peer_state.close()

    def stop(self) -> None:
        """Stop in good order, and say so: as `Agent.stop`."""
        if self.is_alive and self.entered and not self._is_stopping:
            self._is_stopping = True
            self._run(self._stop())

    def _stop(self) -> Script:
        self.mirrors.leave()
        self.busy()
        end = self.world.now + LEAVE_S
        while self.mirrors.moving and self.world.now < end:
            yield 0.05
        incarnation = self.incarnation
        is_written = yield from self._end_broker()
        self.membership.stopped(self.now)
        self.membership_changed()
        if incarnation:
            telling, late = self._submit(NodeDown(self.name, incarnation, is_clean=is_written)), Signal()
            self.later(LEAVE_S, late.set)
            yield telling, late
        self.end_itself("it was stopped")

    # --- what the disk says ---

    def _store_broken(self, error: OSError) -> None:
        """The message disk has lost what it was given: the process ends, unless it wanted room at the end."""
        if error.errno not in (ENOSPC, EDQUOT):
            self.later(0.0, lambda: self.end_itself(f"store: {error}"))

    def _stalled(self, reason: str) -> None:
        self.broker.alarms.set("disk")

    def _resumed(self) -> None:
        self.broker.alarms.clear("disk")

    # --- the cluster's side ---

    @property
    def members(self) -> Any:
        """As the metadata have them."""
        return self.log.catalogue.members

    @property
    def node_id(self) -> str:
        """Return the id of the node's data directory."""
        return f"id-{self.name}"

    @property
    def address(self) -> str:
        """For others."""
        return f"{self.name}:1"

    @property
    def hello(self) -> Hello:
        """Return the hello with which the node introduces itself."""
        return Hello(
            self.name, self.node_id, CLUSTER_ID, self.incarnation, Admission._field_defaults["version"]
        )

    def refusal(self, hello: Hello) -> str | None:
        """Return why another node is not let in; None if it is."""
        known = {name: KnownNode(each.node_id, each.incarnation) for name, each in self.members.items()}
        return Admission(self.name, self.node_id, CLUSTER_ID, known, self.incarnation > 0).refusal(hello)

    def link_up(self, name: str, incarnation: int) -> None:
        """Tell all parts of the node that a link is up."""
        self.links.add(name)
        self.peer_state.link_up(name)
        self.raft.link_up(name)
        self._tell_leader()
        self.membership.link_up(name, incarnation, self.now)
        self.membership_changed()

    def link_down(self, name: str, *, is_gone: bool) -> None:
        """Tell all parts of the node that a link is down."""
        self.links.discard(name)
        self.raft.link_down(name, is_gone=is_gone)
        self._tell_leader()
        self.membership.link_down(name, is_gone=is_gone, now=self.now)
        self.membership_changed()

    def control(self, name: str, topic: Topic, message: bytes) -> None:
        """Hand a control message to Raft or to membership."""
        if topic is Topic.RAFT:
            self.raft.receive(name, [message])
            self._drive_raft_disk()
        else:
            self.membership_changed()
            self.membership.received(name, message, self.now)

    def data(self, name: str, frames: list[tuple[Topic, bytes]]) -> None:
        """Hand frames of another node to the broker, if there is one."""
        if self.has_broker:
            self.peer_state.receive(name, frames)
            self.busy()

    def relieved(self, name: str) -> None:
        """Tell the broker that there is room again on the way to a node."""
        if self.has_broker:
            self.broker.now = self.now
            self.peer_state.relieved(name)

    def fault(self, name: str, text: str) -> None:
        """Another node sent nonsense, and is asked to start its broker anew."""
        self._fault(name, text)
        self.world.call(self.name, name, lambda node: node.restart())

    def metadata_changed(self) -> None:
        """Have the next turn look at the metadata."""
        self._is_metadata_due = True
        self._cluster_soon()

    def membership_changed(self) -> None:
        """Have the next turn look at the membership."""
        self._is_membership_due = True
        self._cluster_soon()

    def _cluster_soon(self) -> None:
        if not self._is_turn_due and self.is_alive:
            self._is_turn_due = True
            self.later(0.00005, self._cluster_turn)

    def _cluster_turn(self) -> None:
        self._is_turn_due = False
        now = self.now
        if self.has_broker:
            self.broker.now = now
        if self._is_metadata_due or now >= self._metadata_due_s:
            self._is_metadata_due = False
            self._metadata_due_s = self.raft.tick(now)
            self._tell_leader()
            self._drive_raft_disk()
        if self._is_membership_due or now >= self._membership_due_s:
            self._is_membership_due = False
            self.peer_state.look_at_disk(cast(Any, self) if self.has_broker else None, now)
            self._tell_status()
            self._membership_due_s = self.membership.tick(now)
            self.act()
        due = min(self._metadata_due_s, self._membership_due_s)
        if due < 1e17:
            self._cluster_timer = at = max(self.world.now + 0.001, self.when(due) + 1e-9)
            self.later(at - self.world.now, lambda: self._cluster_due(at))

    def _cluster_due(self, at: float) -> None:
        if self._cluster_timer == at:
            self._cluster_soon()

    def _tell_leader(self) -> None:
        leader, has_majority = self.raft.leader, self.raft.has_majority
        if has_majority != self._has_majority:
            self._has_majority = has_majority
            self.membership.majority_changed(has_majority, self.now)
            self.membership_changed()
        if leader != self._leader:
            self._leader = leader
            self.membership.leader_changed(leader, self.now)
            self.membership_changed()

    def act(self) -> None:
        """Do what the membership says."""
        while todo := self.membership.take_outputs():
            for each in todo:
                self._do(each)

    def _do(self, output: outputs.Output) -> None:
        match output:
            case outputs.SendHeartbeat(to, message):
                self.world.links.send_control(self.name, to, Topic.MEMBERSHIP, message)
            case outputs.Submit(command):
                if self.raft.is_leader:
                    self.log.submit(command)
            case outputs.Pause(reason):
                self.world.trace(f"{self.name} pauses: {reason}")
                self._may_serve.clear()
                self._stop_serving()
                self._hold()
            case outputs.Resume():
                if self._is_stale:
                    self.membership.stopped(self.now)
                else:
                    self._may_serve.set()
                self._release()
            case outputs.Rejoin(reason):
                self.world.trace(f"{self.name} rejoins: {reason}")
                self._must_rejoin.set()
                self._stop_serving()
                self.restart()
                self._release()
            case outputs.StatusChanged(name, status):
                self.peer_state.status_changed(name, status)
                self.busy()
            case _:
                pass

    def _stop_serving(self) -> None:
        self.entered = 0
        if self.has_broker:
            self.broker.now = self.now
            self.broker.close_connections("broker forced connection closure with reason 'shutdown'")
            self._settle()
            for client in list(self.clients.values()):
                client.lose()

    def _observe(self, events: Any) -> None:
        if not any(isinstance(event, _OF_MEMBERSHIP) for event in events):
            return
        self._tell_leader()
        self.membership.applied(events, self.now)
        self.membership_changed()
        if any(not isinstance(event, LeasesRenewed) for event in events if isinstance(event, _OF_MEMBERSHIP)):
            self._members_changed()

    def _replaced(self) -> None:
        self._take_over_members()
        if self.has_broker:
            self.restart()

    def _take_over_members(self) -> None:
        if self.members:
            self.membership.members_changed(self.members, self.now)
        self._members_changed()
        self.membership_changed()

    def _members_changed(self) -> None:
        self.peer_state.sync({name: f"{name}:1" for name in self.world.names if name != self.name})

    def _status_soon(self) -> None:
        if not self._is_status_coming:
            self._is_status_coming = True
            self.later(0.005, self._tell_status)

    def _tell_status(self) -> None:
        self._is_status_coming = False
        alarms: list[str] = list(self.broker.alarms.short_of_here()) if self.has_broker else []
        if self.message_disk.is_stuck:
            alarms.append(MESSAGE_DISK)
        others = (each.name for each in self.members.values() if each.is_up and each.name != self.name)
        cut_off = sorted(name for name in others if name not in self.links)
        status = {"alarms": alarms, "is_draining": self._is_draining, "is_paused": self._is_held}
        if cut_off:
            status["cut_off"] = cut_off
        if status != self._status:
            self._status = status
            self.membership.set_status(status, self.now)
            self.membership_changed()

    # --- disks ---

    @property
    def disk_progress(self) -> tuple[int, bool]:
        """Return how far the disk has come, and whether it has work."""
        return self.disk.progress, self.disk.jobs > 0

    def busy(self) -> None:
        if self.has_broker:
            super().busy()

    def look_after(self) -> None:
        if self.disk_state.is_hung or not self.has_broker:
            was_coming, self._is_disk_coming = self._is_disk_coming, True
            super().look_after()
            self._is_disk_coming = was_coming
        else:
            super().look_after()

    def _disk_step(self) -> None:
        if self.disk_state.is_hung:
            self._is_disk_coming = False
            return
        self._is_disk_coming = False
        self.broker.now = self.now
        for _ in range(self.world.random.randint(1, 4)):
            if not self.disk.step():
                break
        if self.disk._is_stalled and self.disk.jobs:
            self._is_disk_coming = True
            self.at(FULL_RETRY_S, self._retry_full)
        self.busy()

    def _retry_full(self) -> None:
        self._is_disk_coming = False
        if not self.disk_state.is_hung:
            self.broker.now = self.now
            self.disk.step()
            self.busy()
        self.look_after()

    def disks_changed(self) -> None:
        """Something is wrong with a disk, or is well again."""
        self.disk_state.apply(self.disk)
        self.raft_disk_state.apply(self.raft_disk)
        self.is_slow_disk = self.disk_state.is_slow
        if self.is_alive:
            self._drive_raft_disk()
            if self.has_broker:
                self.look_after()

    def _drive_raft_disk(self) -> None:
        disk = self.raft_disk
        if self._is_raft_disk_coming or self.raft_disk_state.is_hung or not (disk.jobs or disk._answers):
            return
        self._is_raft_disk_coming = True
        slowest = 0.05 if self.raft_disk_state.is_slow else 0.002
        delay = self.world.random.uniform(0.0001, slowest)
        self.later(FULL_RETRY_S if disk._is_stalled else delay, self._raft_disk_step)

    def _raft_disk_step(self) -> None:
        self._is_raft_disk_coming = False
        if self.raft_disk_state.is_hung:
            return
        for _ in range(self.world.random.randint(1, 4)):
            if not self.raft_disk.step():
                break
        self._drive_raft_disk()


class Ways:
    """The transport of one node: what `PeerState` asks of `cluster.transport.transport.Transport`."""

    def __init__(self, node: WorldNode) -> None:
        self._node = node

    def connect(self, name: str, address: str) -> None:
        """Links are kept to everybody from the start."""

    def disconnect(self, name: str) -> None:
        """Do nothing, as no node is ever removed."""

    def open_data(self, name: str, own: int, incarnation: int) -> None:
        """Open a data stream to a node, with numbers that begin anew."""
        node = self._node
        node.senders[name] = Sender(own, incarnation, node.world.congested_bytes)
        node.receivers[name] = Receiver(incarnation, own)
        node.world.links.data_opened(node.name, name)

    def close_data(self, name: str) -> None:
        """Close the data stream to a node and forget what it had."""
        node = self._node
        node.senders.pop(name, None)
        node.receivers.pop(name, None)
        node.world.links.data_closed(node.name, name)

    def send_data(self, name: str, topic: Topic, frame: bytes) -> None:
        """Send a frame on the data stream, if there is one."""
        sender = self._node.senders.get(name)
        if sender is not None:
            sender.push(topic, frame)
            self._node.world.links.pump(self._node.name, name)

    def is_congested(self, name: str) -> bool:
        """Return whether too much waits on the data stream."""
        sender = self._node.senders.get(name)
        return sender is not None and sender.is_congested


WRITING: Final[tuple[type, ...]] = tuple(
    kind
    for kind in Step.__args__
    if kind not in READING  # type: ignore[attr-defined]
)
SYNCING: Final = (Sync,)
