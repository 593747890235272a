"""One node of the simulation of mirrored queues: a whole broker over its store and a simulated disk, life after life.

The parts are put together as `node.io.persistence` and `node.clustering.cluster` do it. Source: reliability §5.2.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from cluster.mirror.mirrors import Mirrors
from cluster.remote.peers import Peers
from node.broker.broker import Broker
from node.broker.unsettled import note_deliveries
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Command, NodeUp
from node.catalogue.snapshot import everything
from node.client.base_connection import BaseConnection
from node.client.endpoint import ClientEndpoint
from node.client.observer import MirrorEvent
from node.client.settings import BrokerSettings
from node.plugins.built_in import built_in
from node.scheduling.timers import Timers
from node.store.directory import claim
from node.store.options import StoreOptions
from node.store.store import Store
from tests.kit.disk import SimulatedDisk
from tests.kit.pager import EagerPager
from tests.kit.recovery import recover_mirrored
from tests.kit.world import EPOCH_S, Client, Diary, Received

OPTIONS: Final = StoreOptions(
    embed_max_bytes=250,
    segment_entries=16,
    journal_file_bytes=6000,
    store_file_bytes=6000,
    commit_interval_s=0.025,
)
"""Small files, so that everything that takes many messages happens after few."""

if TYPE_CHECKING:
    from tests.sim.mirror_world import MirrorWorld

RING: Final = 0
REMOTE: Final = 1
"""Topics of frames."""
_TURNS_MAX: Final = 300


class Violation(AssertionError):
    """Something went wrong that never may."""


class SimClient(Client):
    """A client whose application hears what comes in as it comes.   app: None during the handshake."""

    def __init__(self, node: "Node") -> None:
        self.app: Callable[[Received], None] | None = None
        self.on_lost: Callable[[], None] = lambda: None
        super().__init__(node, ClientEndpoint())  # type: ignore[arg-type]

    def flush(self) -> None:
        super().flush()
        if self.app is None:
            return
        self._decode()
        unread, self._unread = self._unread, []
        for item in unread:
            self.app(item)

    def lose(self) -> None:
        was_there = not self.is_reset
        super().lose()
        if was_there:
            self.on_lost()

    def feed(self, data: bytes) -> None:
        super().feed(data)
        node: Any = self.world
        node.busy()


class NodeLog:
    """The shared log as one life of a node sees it."""

    def __init__(self, node: "Node", life: int) -> None:
        self._node = node
        self._life = life

    def submit(self, command: Command[Any], on_applied: Callable[[Any], None] | None = None) -> None:
        if self._node.life == self._life and self._node.is_alive:
            self._node.world.submit(command, self._node, on_applied)

    def await_safety(self, on_safe: Callable[[bool], None]) -> None:
        on_safe(True)


class Node:
    """One node, over all its lives.   entered: the incarnation that serves; 0: none does."""

    options = OPTIONS

    def __init__(self, world: "MirrorWorld", name: str) -> None:
        self.world = world
        self.name = name
        self.disk = SimulatedDisk()
        self.is_alive = False
        self.life = 0
        self.entered = 0
        self.applied = 0
        self._members: dict[str, Any] = {}
        self.apply_at = 0.0
        self.submit_at = 0.0
        self.clients: dict[BaseConnection, SimClient] = {}
        self.faults: list[tuple[str, str]] = []
        self.errors: list[str] = []
        self.events: list[str] = []
        self.given_up: list[str] = []
        self.is_slow_disk = False
        self.frozen_until = 0.0
        self._drawn = 0
        self._offset = 0.0
        self._is_turn_coming = self._is_disk_coming = False
        self._timer_at: float | None = None

    # --- the life of a node ---

    @property
    def now(self) -> float:
        """The broker's clock, which is another one in each life."""
        return self.world.now + self._offset

    def when(self, due: float) -> float:
        """The world's time when the broker's clock shows `due`."""
        return due - self._offset

    @property
    def epoch_s(self) -> float:
        """Added to the broker's clock it gives the time of day."""
        return EPOCH_S - self._offset

    def _entropy(self, count_: int) -> bytes:
        self._drawn += 1
        seed = f"{self.world.seed} {self.name} {self.life} {self._drawn}"
        return sha256(seed.encode()).digest().ljust(count_, b"\0")[:count_]

    def _fault(self, node: str, text: str) -> None:
        self.world.trace(f"{self.name} REPORTS a fault of {node}: {text}")
        self.faults.append((node, text))

    def _mirror_event(self, event: MirrorEvent) -> None:
        self.events.append(event.text)
        if event.kind == "copy-given-up":
            self.given_up.append(event.text)

    def start(self) -> None:
        """Read the log and the disk, then ask to be let in."""
        assert not self.is_alive
        world = self.world
        self.is_alive = True
        self.life += 1
        self.entered = 0
        self._offset = world.random.uniform(1000, 5000)
        self._is_turn_coming = self._is_disk_coming = False
        self._timer_at = None
        self.apply_at = self.submit_at = world.now
        catalogue = Catalogue()
        for command in world.log:
            catalogue.apply(command)
        catalogue.take_events()
        self.applied = len(world.log)
        broker = self.make_broker(catalogue)
        self.peers = Peers(
            broker,
            lambda to, frame: world.send(self, to, REMOTE, frame),
            lambda to: world.is_congested(self, to),
            self._fault,
        )
        self.peers.is_entered = False
        self.mirrors = Mirrors(
            broker,
            lambda to, frame: world.send(self, to, RING, frame),
            self._fault,
        )
        broker.peers, broker.mirrors = self.peers, self.mirrors
        self.pager.copies = self.mirrors.copies
        broker.observer.mirror_event = self._mirror_event  # type: ignore[method-assign]
        broker.log = NodeLog(self, self.life)
        broker.react(list(everything(catalogue)))
        self.store.wake = broker.wake
        self.store.on_relieved = broker.relieved
        self._recover()
        member = catalogue.member(self.name)
        world.submit(
            NodeUp(self.name, member.node_id if member else self.name, f"{self.name}:1"), self, self._enter
        )
        self.busy()

    def make_broker(self, catalogue: Catalogue) -> Broker:
        """A broker over the disk. It has heard of nothing yet."""
        timers = Timers()
        claim(self.disk, self.name, self.options.segment_entries)
        self.store = Store(
            self.disk, self.options, timers, report=lambda *what: self.errors.append(f"store: {what}")
        )
        self.store.on_broken = lambda error: self.errors.append(f"broken: {error}")
        self.pager = EagerPager()
        broker = self.broker = Broker(
            BrokerSettings(node_name=self.name),
            entropy=self._entropy,
            epoch_s=self.epoch_s,
            observer=Diary(),
            storage=self.store,
            pager=self.pager,
            catalogue=catalogue,
            timers=timers,
            load_plugin=built_in,
        )
        broker.wake = self._waker()
        broker.start(self.now)
        return broker

    def _recover(self) -> None:
        found = recover_mirrored(self.name, self.broker, self.mirrors, self.disk, self.store)
        for finding in found.findings:
            self.world.trace(f"{self.name} finds {finding}")

    def _enter(self, incarnation: int) -> None:
        self.entered = incarnation
        self.peers.is_entered = True
        self.mirrors.entered(incarnation)
        self.world.trace(f"{self.name} entered as {incarnation}")
        self.world.look_at_links(self)
        self.busy()

    def end(self, *, power: bool) -> None:
        """The process, or the machine, is gone."""
        self.is_alive = False
        self.entered = 0
        self.disk = self.disk.crash(self.world.random) if power else self.disk.kill(self.world.random)
        clients = list(self.clients.values())
        self.clients.clear()
        for client in clients:
            if not client.is_reset:
                client.is_reset = True
                client.on_lost()

    def close(self) -> None:
        """The broker stops in good order: its clients are told, what is left is written."""
        broker = self.broker
        broker.close_connections("broker forced connection closure with reason 'shutdown'")
        self._settle()
        for client in list(self.clients.values()):
            client.lose()
        self._settle()
        self.peers.close()
        self.mirrors.close_all()
        self._settle()
        note_deliveries(broker)
        while self.disk.step():
            self._settle()
        self.store.close()

    # --- turns ---

    def client(self, *channels: int, **options: Any) -> SimClient:
        """A client that is logged in, with channels open."""
        from node.amqp.field_table import boolean
        from node.amqp.methods import ChannelOpen, ChannelOpenOk

        client = SimClient(self)
        client.shake_hands(capabilities={"consumer_cancel_notify": boolean(True)}, **options)
        for channel in channels or (1,):
            assert client.ask(channel, ChannelOpen()) == ChannelOpenOk()
        return client

    def settle(self) -> None:
        """For handshakes of clients: turns at once."""
        self._settle()

    def _settle(self) -> None:
        for _ in range(_TURNS_MAX):
            if not self.broker.has_work:
                return
            self._one_turn()

    def _one_turn(self) -> None:
        for connection in self.broker.turn(self.now):
            client = self.clients.get(connection)
            if client is not None:
                client.flush()

    def _waker(self) -> Callable[[], None]:
        """Return what wakes the broker of this life, and does nothing in later ones.

        What a killed broker leaves behind wakes it at any time: Python's collector closes its handlers, which tidy up.
        """
        life = self.life

        def wake() -> None:
            if self.life == life:
                self.busy()

        return wake

    def busy(self) -> None:
        """Have a turn come, as there is work for it."""
        if not self._is_turn_coming and self.is_alive:
            self._is_turn_coming = True
            self.at(self.world.random.uniform(0, 0.001), self._turn)

    def at(self, delay: float, action: Callable[[], None]) -> None:
        """Do something later, in this life."""
        life = self.life
        at = max(self.world.now + delay, self.frozen_until)

        def act() -> None:
            if self.life != life or not self.is_alive:
                return
            if self.world.now < self.frozen_until:
                self.world.at(self.frozen_until, act)
                return
            action()

        self.world.at(at, act)

    def _turn(self) -> None:
        self._is_turn_coming = False
        self._one_turn()
        if self.broker.has_work:
            self.busy()
        self.look_after()

    def look_after(self) -> None:
        """Plan what the disk and the clock bring next."""
        if not self._is_disk_coming and (self.disk.jobs or self.disk._answers):
            self._is_disk_coming = True
            slow = 0.05 if self.is_slow_disk else 0.002
            self.at(self.world.random.uniform(0.00005, slow), self._disk_step)
        due = self.broker.timers.next_deadline()
        if due is not None:
            at = self.when(due)
            if self._timer_at is None or at < self._timer_at - 1e-9:
                self._timer_at = at
                self.at(max(0.0, at - self.world.now), lambda: self._tick(at))

    def _disk_step(self) -> None:
        self._is_disk_coming = False
        self.broker.now = self.now
        self.disk.step()
        self.busy()

    def _tick(self, at: float) -> None:
        if self._timer_at != at:
            return
        self._timer_at = None
        self.broker.tick(self.now + 1e-9)
        self.busy()

    # --- the log ---

    def apply(self) -> None:
        """Apply the next command."""
        command = self.world.log[self.applied]
        self.applied += 1
        broker = self.broker
        broker.now = self.now
        catalogue = broker.catalogue
        result = catalogue.apply(command)
        events = catalogue.take_events()
        before = {name: (m.is_up, m.incarnation) for name, m in self._members.items()}
        broker.react(events)
        self._members = dict(catalogue.members)
        after = {name: (m.is_up, m.incarnation) for name, m in self._members.items()}
        if before != after:
            self.world.look_at_links(self)
        assert result == self.world.results[self.applied - 1] or not isinstance(result, int)
        self.busy()

    def knows(self, name: str, incarnation: int) -> bool | None:
        """Whether another node is up in an incarnation, as far as this one has heard; None: not yet."""
        member = self.broker.catalogue.member(name)
        if member is None or member.incarnation < incarnation:
            return None
        return member.is_up and member.incarnation == incarnation
