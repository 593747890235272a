"""A run of the simulation of everything: a small workload, faults of which many stay, and what has to be true then.

safety     everything is healed that can be; nothing confirmed is lost as long as an undamaged synchronised copy exists,
           and each copy that promises to have everything has it on its disk
liveness   a majority is healed among itself, the rest stays as it is for ever; each queue that has an undamaged
           synchronised copy in that core confirms and delivers again within `LIVE_S`, and metadata are changed

run_seed("safety", 7)       run_seed("liveness", 7, is_traced=True)
"""

from collections.abc import Callable, Sequence
from itertools import combinations, permutations
from math import inf
from typing import Any, Final

from cluster.metadata.journal_file import PATH as RAFT_LOG
from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicPublish,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeDeclare,
    QueueDeclare,
)
from node.amqp.properties import Properties
from node.catalogue.commands import SetPolicy
from node.catalogue.events import MemberDown, QueueDeleted, ViewChanged
from node.catalogue.records import Json
from node.queue.queue import Queue
from node.store.disk import Append, Read, Sync
from tests.sim.mirror_checks import check_attached, check_copies, check_no_faults, check_nobody_starves
from tests.sim.mirror_clients import App, Consumer, Once, Publisher
from tests.sim.mirror_faults import Run
from tests.sim.mirror_ledger import Message, nothing_confirmed_is_lost
from tests.sim.mirror_world import Violation
from tests.sim.world import World
from tests.sim.world_copies import STORE, Copies
from tests.sim.world_node import LEASE_S, DiskState, WorldNode

KINDS: Final[dict[str, Table]] = {
    "plain": {},
    "lazy": {"x-queue-mode": longstr("lazy")},
    "long": {"x-message-ttl": long(600_000)},
    "trans": {},
}
"""Queues by name, and their arguments. Nobody's clock is wrong by as much as the time to live of a message."""

ROTTEN_BYTES: Final = 64
"""So many bytes at once become zeros."""

HEADER_BYTES: Final = 8
"""Each file has such a header: with another format there a node does not start, and somebody has to look at it."""

LIVE_S: Final = 75.0
"""In so many seconds all is well again: 30 for who might come back with a better copy, 24 for a member that hears the
leader and has no lease since its disk hangs (until then the others wait for it), 12 for a mirror that does not answer,
5 for leases; some of it more than once."""

START_S: Final = 20.0

ATTACHED_S: Final = 15.0
"""In so many seconds after that all who want to consume do: a channel that was closed is opened again within one, and a
connection may be lost once more.
"""

FAULTS: Final[tuple[tuple[str, int], ...]] = (
    ("crash", 5),
    ("stop", 2),
    ("total", 2),
    ("freeze", 3),
    ("cut", 8),
    ("slow_link", 1),
    ("hang", 6),
    ("slow_disk", 1),
    ("fill", 3),
    ("disk_error", 4),
    ("rot", 4),
    ("transfer", 5),
    ("policy", 2),
    ("drain", 2),
    ("sync", 1),
    ("page", 3),
    ("hang_up", 1),
    ("look", 1),
    ("ambush", 2),
)
"""These faults may happen, each with its weight."""


class WorldRun(Run):
    """One seed."""

    world: World  # type: ignore[assignment]
    known_faults = FAULTS

    def __init__(
        self, seed: int, *, is_traced: bool = False, faults: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> None:
        super().__init__(seed, is_traced=is_traced, faults=faults, kinds=kinds or ("plain",))
        if not kinds:
            self.queues = self.random.sample(list(KINDS), self.random.choice((1, 1, 1, 2)))
        self.copies = Copies(self.ledger)
        self.world.on_process_ended = self._restart_soon
        self.ledger.is_calm_around = lambda at: False  # type: ignore[method-assign]  # faults last
        self._unsure_nodes: set[str] = set()
        """Nodes that may rightly say that something of their store could not be read."""
        self._confirm = self.ledger.confirm
        self.ledger.confirm = self._confirmed  # type: ignore[method-assign]
        self.is_over = False
        self.core = frozenset[str]()
        """The nodes that are well in the end."""

    def make_world(self, seed: int, names: tuple[str, ...]) -> World:
        """Make a world of three or five nodes with some latency and room on its links."""
        world = World(seed, ("n1", "n2", "n3") if seed % 8 else ("n1", "n2", "n3", "n4", "n5"))
        world.links.latency_s = world.random.choice((0.001, 0.005, 0.02))
        world.congested_bytes = world.random.choice((2_000, 20_000, 1 << 20))
        return world

    # --- what the catalogue says ---

    def _confirmed(self, message: Message, state: str, node: WorldNode | None = None) -> None:
        self._confirm(message, state, node)
        if message.queue in self.copies.unsound and not message.excuse:
            message.excuse = "no undamaged copy was left"

    def _see(self, event: Any) -> None:
        match event:
            case ViewChanged(before=before, after=after):
                self._see_view(before, after)
                self.copies.came_back(before, after, lambda name: self.world.nodes[name].life)
                self.copies.look_at(after)
            case QueueDeleted() | MemberDown():
                super()._see(event)

    # --- setting up ---

    def declare(self, queue: str) -> None:
        method = QueueDeclare(queue=queue, durable=queue != "trans", arguments=KINDS[queue])
        Once(self.world, self.ledger, f"declare {queue}", method, lambda answer: None).begin()

    def begin(self) -> None:
        """Nodes, queues, applications."""
        world, random = self.world, self.random
        self.names = world.names
        for node in world.nodes.values():
            node.skew_s = random.choice((0.0, 0.0, random.uniform(-300, 300)))
            world.start(node.name)
        self._wait(lambda: len(world.serving) == len(world.names), START_S, lambda: "the nodes do not start")
        self.policy()
        for queue in self.queues:
            self.declare(queue)
        self._wait(self._is_declared, START_S, lambda: "the queues are not declared")
        for number in range(random.choice((1, 1, 2))):
            mode = random.choice(("confirm", "confirm", "confirm", "tx"))
            pause = random.choice((0.05, 0.3, 1.0))
            self.publishers.append(
                Publisher(world, self.ledger, f"publisher {number}", list(self.queues), mode, pause)
            )
        for queue in self.queues:
            for number in range(random.choice((0, 0, 1, 2))):
                way = random.choice(("ack", "multiple", "mixed", "slow"))
                prefetch = random.choice((0, 1, 3, 20))
                name = f"consumer {queue} {number}"
                consumer = Consumer(world, self.ledger, name, queue, prefetch, way)
                consumer.is_exclusive = False  # on a node that is cut off it would keep others out
                self.consumers.append(consumer)
        self.apps = [*self.publishers, *self.consumers]
        for app in self.apps:
            world.after(random.uniform(0, 1.0), app.begin)

    def _is_declared(self) -> bool:
        return len(list(self.world.catalogue.queues("/"))) == len(self.queues)

    def policy(self) -> None:
        definition: dict[str, Json] = {"ha-mode": "all", "ha-sync-mode": "automatic"}
        roll = self.random.random()
        if roll < 0.2:
            definition |= {"ha-mode": "exactly", "ha-params": 2}
        elif roll < 0.3:
            some = self.random.sample(self.world.names, self.random.randint(2, 3))
            definition |= {"ha-mode": "nodes", "ha-params": some}  # type: ignore[dict-item]
        elif roll < 0.35:
            definition |= {"ha-mode": "exactly", "ha-params": 1}
        elif roll < 0.4:
            definition = {"max-length": 100_000}  # no mirrors
        is_mirrored = "ha-mode" in definition
        if self.random.random() < 0.1 and is_mirrored:
            definition["ha-sync-mode"] = "manual"
        if self.random.random() < 0.2 and is_mirrored:
            definition["ha-sync-batch-size"] = self.random.choice((1, 3, 10))
        self.world.trace(f"policy {definition}")
        self.world.submit(SetPolicy("/", "ha", ".*", definition), None)

    def _wait(self, is_done: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
        """Let time pass until something holds."""
        if not self.world.run_until(is_done, seconds):
            raise Violation(f"{what()} in {seconds} s: {self.state()}")

    # --- faults ---

    def _some(self, nodes: Sequence[WorldNode]) -> WorldNode | None:
        """One of these nodes, rather one that has masters or leads."""
        if not nodes:
            return None
        if self.random.random() < 0.4:
            homes = {record.home for record in self.world.catalogue.queues("/")}
            leaders = [node for node in nodes if node.is_alive and node.raft.is_leader]
            nodes = [node for node in nodes if node.name in homes] or leaders or nodes
        elif self.random.random() < 0.3:
            nodes = [node for node in nodes if node.is_alive and node.raft.is_leader] or nodes
        return self.random.choice(nodes)

    def _span(self) -> float:
        """Return how long a fault lasts."""
        return self.random.choice((0.3, 3.0, 12.0, inf, inf)) * (0.2 + self.random.random())

    def _later(self, span: float, action: Callable[[], None]) -> None:
        if span < inf:
            self.world.after(span, lambda: None if self.is_over else action())

    def _restart_soon(self, node: WorldNode) -> None:
        """Somebody starts a process again that has ended, if its disks are well."""
        delay = self.random.uniform(0.2, 4.0)
        if not self.is_over or node.name in self.core:
            self.world.after(delay, lambda: self._start_if_well(node))

    def _start_if_well(self, node: WorldNode) -> None:
        if not node.is_alive:
            if node.disk_state.is_well and node.raft_disk_state.is_well:
                self.world.start(node.name)
            else:
                self._restart_soon(node)

    def crash(self) -> None:
        node = self._some(self.world.alive)
        if node is not None:
            self.world.crash(node.name, power=self.random.random() < 0.5)
            self._later(self.random.choice((0.1, 2.0, 8.0, inf)), lambda: self._start_if_well(node))

    def look(self) -> None:
        """At the next confirm each copy that promises everything has it."""

        def act(queue: str) -> None:
            self.counts["copies"] += self.copies.check(self.world.nodes, self.world.catalogue, self.random)

        self.ledger.ambush = "confirm", act

    def ambush(self) -> None:
        """The master's node dies right after it has delivered, or confirmed, something."""

        def act(queue: str) -> None:
            record = self.world.catalogue.queue("/", queue)
            node = None if record is None else self.world.nodes[record.home]
            if node is None or not node.is_alive:
                return
            process, power = node.process, self.random.random() < 0.5

            def end() -> None:
                if node.is_alive and node.process == process:
                    self.world.crash(node.name, power=power)
                    self._later(self.random.choice((0.1, 2.0, 8.0)), lambda: self._start_if_well(node))

            self._later(self.random.choice((0.0, 0.001, 0.01)), end)

        self.ledger.ambush = self.random.choice(("delivery", "confirm")), act

    def stop(self) -> None:
        node = self._some(self.world.serving)
        if node is not None:
            self.world.trace(f"stop {node.name}")
            node.stop()

    def total(self) -> None:
        """All nodes go; one of them may lose files before it comes back."""
        world = self.world
        power = self.random.random() < 0.6
        span = self.random.choice((0.0, 0.3, 2.0))

        def end(node: WorldNode) -> None:
            if node.is_alive:
                world.crash(node.name, power=power)

        for node in world.alive:
            self._later(self.random.uniform(0, span), lambda node=node: end(node))  # type: ignore[misc]
        if self.random.random() < 0.6:
            node = self._some(list(world.nodes.values()))
            assert node is not None

            def rot() -> None:
                if not node.is_alive:
                    self._rot(node, self.random.choice(("bit", "file", "all")))

            self._later(span + 0.05, rot)
        for node in world.nodes.values():
            late = span + self.random.uniform(0.1, 3.0)
            self._later(late, lambda node=node: self._start_if_well(node))  # type: ignore[misc]

    def freeze(self) -> None:
        node = self._some([node for node in self.world.alive if node.frozen_until <= self.world.now])
        if node is None:
            return
        node.frozen_until = self.world.now + self.random.choice((0.05, 1.0, 6.0, inf)) * (
            0.2 + self.random.random()
        )
        self.world.trace(f"freeze {node.name} until {node.frozen_until:.3f}")
        self.world.links.froze(node)

    def _ways(self) -> list[tuple[str, str]]:
        """Some ways between nodes."""
        names = list(self.world.names)
        one, other = self.random.sample(names, 2)
        kind = self.random.choice(("one way", "pair", "pair", "pair", "node", "halves"))
        if kind == "one way":
            return [(one, other)]
        if kind == "pair":
            return [(one, other), (other, one)]
        if kind == "node":
            return [way for name in names if name != one for way in ((one, name), (name, one))]
        side = {name for name in names if self.random.random() < 0.5}
        return [(a, b) for a, b in permutations(names, 2) if (a in side) != (b in side)]

    def cut(self) -> None:
        """Nodes do not reach each other any more."""
        ways, span = self._ways(), self._span()
        self.world.trace(f"cut {ways} for {span:.2f}")
        self.world.links.set_cut(ways, is_cut=True)
        self._later(span, lambda: self._join(ways))

    def _join(self, ways: list[tuple[str, str]]) -> None:
        self.world.trace(f"cut ends {ways}")
        self.world.links.set_cut(ways, is_cut=False)

    def slow_link(self) -> None:
        way = tuple(self.random.sample(self.world.names, 2))
        slow = self.world.links.slow
        slow[way] = self.random.choice((0.05, 0.3))  # type: ignore[index]
        self._later(self._span(), lambda: slow.pop(way, None) and None)  # type: ignore[arg-type]

    def _disks(self, node: WorldNode) -> list[DiskState]:
        """One of a node's disks, or both, which are one then."""
        disks = [node.disk_state, node.raft_disk_state]
        return self.random.choice((disks, disks[:1], disks[1:]))

    def _fault(self, attribute: str, span: float) -> None:
        """Something is wrong with a disk for a while, or for ever."""
        node = self._some(list(self.world.nodes.values()))
        assert node is not None
        states = self._disks(node)
        which = [name for name in ("disk", "raft_disk") if getattr(node, f"{name}_state") in states]
        self.world.trace(f"{attribute} {node.name} {which} for {span:.2f}")

        def be(is_so: bool) -> None:
            for state in states:
                setattr(state, attribute, is_so)
            node.disks_changed()

        be(True)
        self._later(span, lambda: be(False))

    def hang(self) -> None:
        """A disk hangs."""
        self._fault("is_hung", self._span())

    def slow_disk(self) -> None:
        self._fault("is_slow", self.random.uniform(0.1, 4.0))

    def fill(self) -> None:
        """A disk is full."""
        self._fault("is_full", self._span())

    def disk_error(self) -> None:
        """A disk gives an error, once or from now on."""
        node = self._some(list(self.world.nodes.values()))
        assert node is not None
        kind = self.random.choice((Append, Sync, Read))
        states = self._disks(node)
        is_once = self.random.random() < 0.5
        self.world.trace(f"{node.name} {kind.__name__} fails {'once' if is_once else 'always'}")
        for state, disk in ((node.disk_state, node.disk), (node.raft_disk_state, node.raft_disk)):
            if state not in states:
                continue
            if is_once:
                disk.fail(kind)
            else:
                state.failing = (kind,)
        if kind is Read and node.disk_state in states:
            self._unsure_nodes.add(node.name)
            if not is_once:
                self.damage(node)
        node.disks_changed()

    def damage(self, node: WorldNode) -> None:
        """Note that a node's message files promise nothing any more."""
        self._unsure_nodes.add(node.name)
        self.copies.damage(node.name, self.world.catalogue, node.life if node.has_broker else 0)

    def rot(self) -> None:
        """Bytes on a disk change, or a file is gone: of a node that runs, or not."""
        node = self._some(list(self.world.nodes.values()))
        assert node is not None
        self._rot(node, self.random.choice(("bit", "bit", "page", "file")))

    def _rot(self, node: WorldNode, kind: str) -> None:
        disk = node.disk
        paths = [path for path in disk.paths() if path.startswith(STORE) and disk.size(path)]
        if kind == "file" and node.is_alive:
            paths = [
                path for path in paths if not path.startswith("journal/")
            ]  # what follows would be lost, too
        if not paths:
            return
        self.damage(node)
        if kind in ("file", "all"):
            for path in paths if kind == "all" else [self.random.choice(paths)]:
                self.world.trace(f"{node.name} loses {path}")
                disk.lose(path)
            return
        path = self.random.choice(paths)
        if disk.size(path) <= HEADER_BYTES:
            return
        at = self.random.randrange(HEADER_BYTES, disk.size(path))
        self.world.trace(f"{node.name} {path}: {kind} at {at} of {disk.size(path)}")
        if kind == "bit":
            disk.flip_bit(path, at, self.random.randrange(8))
        else:
            disk.zero(path, max(HEADER_BYTES, at // ROTTEN_BYTES * ROTTEN_BYTES), ROTTEN_BYTES)

    # --- the end ---

    def _quiet(self) -> None:
        """No more faults, and nobody begins anything."""
        self.is_over = True
        self.ledger.ambush = None
        for publisher in self.publishers:
            publisher.is_quiet = True

    def _heal_among(self, core: frozenset[str]) -> None:
        """All is well within the core: its links, its disks but for what is damaged, its processes."""
        world = self.world
        self.core = core
        world.trace(f"heal {sorted(core)}")
        world.links.set_cut([way for way in sorted(world.links.cut) if core.issuperset(way)], is_cut=False)
        for way in list(world.links.slow):
            if core.issuperset(way):
                del world.links.slow[way]
        for name in sorted(core):
            node = world.nodes[name]
            node.disk_state.__init__()  # type: ignore[misc]
            node.raft_disk_state.__init__()  # type: ignore[misc]
            for disk in (node.disk, node.raft_disk):
                disk._faults.clear()
            if node.is_alive and node.frozen_until == inf:
                world.crash(name, power=False)
            node.disks_changed()
            if not node.is_alive:
                world.start(name)

    def state(self) -> str:
        """For the text of a violation."""
        world = self.world
        lines = [
            f"{node.name}: serves as {node.entered}, alive {node.is_alive} {node.ended_itself}, "
            f"leader {node.raft.leader if node.is_alive else None}, {node.membership.state}, "
            f"disks {vars(node.disk_state)} {vars(node.raft_disk_state)}, "
            + (f"links {sorted(node.raft.links)}, {node.raft._core.position()}" if node.is_alive else "")
            for node in world.nodes.values()
        ]
        lines += [f"{record.name} on {record.home}: {record.view}" for record in world.catalogue.queues("/")]
        return "\n  ".join(["", *lines, f"cut {sorted(world.links.cut)}", f"unsound {self.copies.unsound}"])

    def check_safety(self) -> None:
        """Everything is healed; nothing is lost, and every copy that promises everything has it."""
        world = self.world
        self._quiet()
        self.counts["copies"] += self.copies.check(world.nodes, world.catalogue, self.random)
        self._heal_among(frozenset(world.names))
        self.take_back_cancelling()
        self._wait(lambda: not self.unwell(), LIVE_S, lambda: f"healed, and {self.unwell()}")
        world.run(LEASE_S)  # some may still pause, because of what was cut before
        self._wait(lambda: not self.unwell(), LIVE_S, lambda: f"healed, and {self.unwell()}")
        self.counts["copies"] += self.copies.check(world.nodes, world.catalogue, self.random)
        self._wait(lambda: not self._unattached(), ATTACHED_S, lambda: f"healed, and {self._unattached()}")
        world.run(1.0)  # who has left is forgotten
        check_attached(self, self.copies.unsound)
        check_nobody_starves(self, self.copies.unsound)
        for app in self.apps:
            app.finish()
        world.run(3.0)
        # A node that was told to stop before the healing served until then, and has come back since.
        self._wait(lambda: not self._incomplete(), LIVE_S, lambda: f"healed, and {self._incomplete()}")
        if not self._is_manual:
            check_copies(self)
        found = {queue: self._rest(queue) for queue in self.queues}
        for node in world.nodes.values():
            if node.name in self._unsure_nodes:
                node.errors = [each for each in node.errors if not each.startswith("store: ")]
        check_no_faults(self)
        nothing_confirmed_is_lost(self.ledger, found, self.copies.unsound)

    def unwell(self) -> str:
        """Return what is not as it should be; empty: nothing."""
        if incomplete := self._incomplete():
            return incomplete
        for publisher in self.publishers:
            if not publisher.is_open or publisher.unconfirmed or publisher._is_committing:
                return f"{publisher.name} waits"
        return ""

    def _incomplete(self) -> str:
        """Return which node does not serve, or which queue lacks a master or a copy; empty: none."""
        world = self.world
        for node in world.nodes.values():
            if not node.entered or node.frozen_until > world.now:
                return f"{node.name} does not serve"
        for record in world.catalogue.queues("/"):
            view = record.view
            if record.name in self.copies.unsound and view is not None and view.state != "live":
                continue
            if view is not None and (view.state != "live" or view.previous):
                return f"{record.name}: {view}"
            home = world.nodes[record.home].broker.vhosts["/"].queues.get(record.name)
            if not isinstance(home, Queue):
                return f"{record.name} has no acting master"
            if view is None:
                continue
            if len(view.ring) != len(view.members) or (
                set(view.synced) != {member.id for member in view.ring} and not self._is_manual
            ):
                return f"{record.name}: {view}"
        return ""

    def _unattached(self) -> str:
        """Return which consumer does not consume though its queue is there; empty: none."""
        for consumer in self.consumers:
            is_there = self.world.catalogue.queue("/", consumer.queue) is not None
            if is_there and consumer.queue not in self.copies.unsound and not consumer.is_consuming:
                return f"{consumer.name} does not consume: {consumer.closes}"
        return ""

    @property
    def _is_manual(self) -> bool:
        (policy,) = self.world.catalogue.policies("/")
        return policy.definition.get("ha-sync-mode") == "manual"

    def check_liveness(self) -> None:
        """A core is healed, and each queue that has an undamaged copy in there is served again."""
        world, random = self.world, self.random
        self._quiet()
        majority = len(world.names) // 2 + 1
        core = frozenset(random.choice(list(combinations(world.names, majority))))
        for name in world.names:
            if name not in core:
                self._leave_broken(world.nodes[name], core)
        for app in self.apps:
            app.finish()
        self._heal_among(core)
        wanted = [
            record.name
            for record in world.catalogue.queues("/")
            if record.view is not None and self.copies.has_sound_copy(record, core)
        ]
        probes = [Probe(self, queue, core) for queue in wanted]
        declared: list[Any] = []
        declaration = Once(world, self.ledger, "declare", ExchangeDeclare(exchange="new"), declared.append)
        declaration.nodes = core
        for app in (*probes, declaration):
            app.begin()
        self._wait(
            lambda: bool(declared) and all(self._is_served(probe) for probe in probes),
            LIVE_S,
            lambda: (
                f"core {sorted(core)}, metadata {bool(declared)}, "
                f"not served {[probe.queue for probe in probes if not self._is_served(probe)]}"
            ),
        )
        self.counts["probes"] += len(probes)

    def _is_served(self, probe: "Probe") -> bool:
        """Whether a queue is served, or need not be."""
        if probe.is_served:
            return True
        record = self.world.catalogue.queue("/", probe.queue)
        if record is None and probe.queue == "trans":
            return True  # a queue that is not durable ends with the last node that has it
        return record is not None and not self.copies.has_sound_copy(record, self._led())

    def _led(self) -> frozenset[str]:
        """The nodes of the core that may serve: they reach the leader of the metadata and all nodes that are up.

        Others may be outside the core and cut off from one of it: who has no way to the leader pauses, and one of two
        nodes without a way to each other has to go, as documented.
        """
        world, links = self.world, self.world.links
        leaders = {node.name for node in world.alive if node.raft.is_leader}
        up = {member.name for member in world.catalogue.members.values() if member.is_up}
        return frozenset(
            name
            for name in self.core
            if all(links.can_talk(name, other) for other in (leaders | up) - {name})
        )

    def _leave_broken(self, node: WorldNode, core: frozenset[str]) -> None:
        """Whatever is wrong with a node stays; perhaps something more is wrong with it from now on.

        A full disk of a node that is up blocks publishers everywhere, as documented: it is not full then.
        """
        world = self.world
        node.disk_state.is_full = False
        node.disks_changed()
        kind = self.random.choice(
            ("nothing", "dead", "cut", "one link", "one way", "hang", "error", "frozen", "rotten log")
        )
        world.trace(f"for ever: {node.name} {kind}")
        others = sorted(core)
        one = self.random.choice(others)
        if kind == "dead" and node.is_alive:
            world.crash(node.name, power=True)
        elif kind == "cut":
            ways = [way for other in others for way in ((node.name, other), (other, node.name))]
            world.links.set_cut(ways, is_cut=True)
        elif kind == "one link":
            world.links.set_cut([(node.name, one), (one, node.name)], is_cut=True)
        elif kind == "one way":
            world.links.set_cut([self.random.choice(((node.name, one), (one, node.name)))], is_cut=True)
        elif kind == "hang":
            for state in self._disks(node):
                state.is_hung = True
        elif kind == "error":
            for state in self._disks(node):
                state.failing = (self.random.choice((Sync, Append)),)
        elif kind == "frozen" and node.is_alive and node.frozen_until <= world.now:
            node.frozen_until = inf
            world.links.froze(node)
        elif kind == "rotten log":
            self._rot_log(node)
        node.disks_changed()

    def _rot_log(self, node: WorldNode) -> None:
        """Flip a bit of a node's Raft log while the node is down, and start it: it refuses it, or cuts its end."""
        if node.is_alive:
            self.world.crash(node.name, power=False)
        size = node.raft_disk.size(RAFT_LOG)
        if size > HEADER_BYTES:
            at = self.random.randrange(HEADER_BYTES, size)
            self.world.trace(f"{node.name} {RAFT_LOG}: bit at {at} of {size}")
            node.raft_disk.flip_bit(RAFT_LOG, at, self.random.randrange(8))
        self.world.start(node.name)
        self.counts["rotten logs refused" if not node.is_alive else "rotten logs cut off"] += 1


class Probe(App):
    """Publishes to a queue and consumes from it, by way of the core, until what it has published comes.

    When nothing happens for some time it goes to another node of the core with both, as clients with one connection do.
    """

    PATIENCE_S = 8.0

    def __init__(self, run: WorldRun, queue: str, core: frozenset[str]) -> None:
        super().__init__(run.world, run.ledger, f"probe {queue}")
        self.queue = queue
        self._core = sorted(core)
        self._has_begun = False
        self.is_confirmed = self.is_delivered = False
        self._ids: set[int] = set()
        self._heard = 0
        self._consumer = Consumer(run.world, run.ledger, f"reader {queue}", queue, 0, "no_ack")
        self._consumer.dies_on_failover = self._consumer.is_exclusive = False
        self._consumer.on_delivery = self._delivered
        self._index = 0

    @property
    def is_served(self) -> bool:
        """Whether it has what it wants."""
        return self.is_confirmed and self.is_delivered

    def begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._go_to(self.random.choice(self._core))
            self._consumer.begin()
            self._move_on()
        super().begin()

    def leave(self) -> None:
        """Stop consuming and publishing."""
        self._consumer.finish()
        self.finish()

    def _go_to(self, node: str) -> None:
        """Have both connections there: one that is well is of no use if the other never is."""
        for app in (self, self._consumer):
            app.nodes = frozenset({node})
            app.hang_up()

    def _move_on(self) -> None:
        """Go elsewhere if nothing happens here."""

        def look(seen: tuple[int, bool] = (self._heard, self.is_confirmed)) -> None:
            if self.is_served:
                self.leave()
                return
            if (self._heard, self.is_confirmed) == seen:
                assert self.nodes is not None
                (here,) = self.nodes
                self._go_to(self._core[(self._core.index(here) + 1) % len(self._core)])
            self._move_on()

        self.world.after(self.PATIENCE_S, look)

    def opened(self) -> None:
        self.send(ConfirmSelect())

    def took(self, method: Any, item: Any) -> None:
        if isinstance(method, ConfirmSelectOk):
            self._publish()
        elif isinstance(method, BasicAck):
            self.is_confirmed = True
        else:
            self.later(0.5, self._publish)  # refused or returned: the queue may come back

    def _publish(self) -> None:
        message = self.ledger.publish(
            self.queue, self.session, self._index, persistent=True, size=40, priority=0
        )
        self._index += 1
        self._ids.add(message.id)
        properties = Properties(delivery_mode=2, message_id=str(message.id))
        self.send(BasicPublish(exchange="", routing_key=self.queue, mandatory=True), message.body, properties)

    def _delivered(self, message: Message) -> None:
        self._heard += 1
        self.is_delivered = self.is_delivered or message.id in self._ids


MODES: Final = ("safety", "liveness")


def run_seed(
    mode: str,
    seed: int,
    *,
    is_traced: bool = False,
    seconds: float | None = None,
    faults: Sequence[str] = (),
    kinds: Sequence[str] = (),
) -> WorldRun:
    """One run. Raises: Violation, or whatever an assertion of the code says."""
    run = WorldRun(seed * len(MODES) + MODES.index(mode), is_traced=is_traced, faults=faults, kinds=kinds)
    run.begin()
    run.trouble_for(run.random.choice((3.0, 6.0, 12.0)) if seconds is None else seconds)
    if mode == "safety":
        run.check_safety()
    else:
        run.check_liveness()
    return run
