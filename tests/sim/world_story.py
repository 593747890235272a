"""A history in the simulation of everything: what happens is written down, and only how long each step takes is drawn.

    story = Story({"ha-mode": "all"})      a, b, leader = story.roles()      story.move_master(a)
    client = story.publisher(a)            client.give(5)                 story.end()

It ends as each seed of the safety mode does: everything is healed, and nothing confirmed is lost. Source: reliability
§5.2.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

from node.amqp.methods import BasicPublish, ConfirmSelect, ExchangeDeclare, Method
from node.amqp.properties import Properties
from node.catalogue.commands import ChangeView, SetPolicy
from node.catalogue.mirrors.views import TransferMaster, View
from node.catalogue.records import Json, QueueRecord
from node.queue.queue import Queue
from node.store.scrubber import REST_S
from tests.sim.mirror_clients import Consumer, Once, Publisher
from tests.sim.mirror_ledger import Message
from tests.sim.mirror_node import OPTIONS
from tests.sim.mirror_world import Violation
from tests.sim.world import World
from tests.sim.world_faults import HEADER_BYTES, START_S, Probe, WorldRun
from tests.sim.world_node import MEMBERSHIP, WorldNode

ALL: Final[Mapping[str, Json]] = {"ha-mode": "all", "ha-sync-mode": "automatic"}
THREE: Final = ("n1", "n2", "n3")
FIVE: Final = ("n1", "n2", "n3", "n4", "n5")
SOON_S: Final = 20.0
"""An event that is waited for happens within so many seconds."""

PARTED_S: Final = MEMBERSHIP.parting_s - 2.0
"""A ring that puts something right by itself has done so after this time. A moment later one of two nodes that do not
hear each other has to go, which would be enough, too."""

SCRUBBED_S: Final = REST_S + 10.0
"""After so long the slow look at what is on disk has come by everything."""


class Story(WorldRun):
    """A cluster with one queue, whose mirrors are synchronised.   definition: of the policy."""

    def __init__(
        self, definition: Mapping[str, Json] = ALL, names: tuple[str, ...] = THREE, *, is_traced: bool = False
    ) -> None:
        self._nodes = names
        self._definition = dict(definition)
        self._numbers = count()
        super().__init__(1, is_traced=is_traced, kinds=("plain",))
        self.begin()

    def make_world(self, seed: int, names: tuple[str, ...]) -> World:
        return World(seed, self._nodes)

    def begin(self) -> None:
        world = self.world
        self.names = world.names
        for name in self.names:
            world.start(name)
        self._wait(lambda: len(world.serving) == len(self.names), START_S, lambda: "the nodes do not start")
        self.policy()
        self.declare("plain")
        self.wait(self._is_declared)
        self.settle()

    def policy(self) -> None:
        self.set_policy(self._definition)

    # --- who is who ---

    def roles(self) -> list[WorldNode]:
        """The nodes, the leader of the metadata last."""
        return sorted(self.world.nodes.values(), key=lambda node: (node.raft.is_leader, node.name))

    @property
    def record(self) -> QueueRecord:
        """Return the record of the queue."""
        record = self.world.catalogue.queue("/", "plain")
        assert record is not None
        return record

    @property
    def view(self) -> View:
        """Return the view of the queue, as the log has it."""
        assert self.record.view is not None
        return self.record.view

    @property
    def master(self) -> WorldNode:
        """The node that is to be master."""
        return self.world.nodes[self.record.home]

    @property
    def is_steady(self) -> bool:
        """Whether the queue has a master, and all its mirrors are synchronised."""
        view = self.view
        is_whole = set(view.synced) == {member.id for member in view.members}
        return view.state == "live" and not view.previous and is_whole and self.acting is not None

    # --- what happens ---

    def wait(self, is_done: Callable[[], bool], seconds: float = SOON_S) -> None:
        """Let time pass until something holds."""
        self._wait(is_done, seconds, lambda: "it does not happen")

    def watch(self, is_done: Callable[[], bool]) -> None:
        """Let time pass, and not a moment more than until something holds."""
        end = self.world.now + SOON_S
        while not is_done():
            if self.world.now >= end:
                raise Violation(f"it does not happen: {self.state()}")
            self.world.run(0.0005)

    def settle(self) -> None:
        """Let time pass until the queue has all its mirrors."""
        self._wait(lambda: not self.unwell(), SOON_S, self.unwell)

    def set_policy(self, definition: Mapping[str, Json]) -> None:
        """Another policy for the queue."""
        self.world.submit(SetPolicy("/", "ha", ".*", dict(definition)), None)

    def transfer(self, to: WorldNode) -> None:
        """Have another node be master, as the leader of the metadata says."""
        member = self.view.member_on(to.name)
        assert member is not None
        change, since = TransferMaster(self.view.master, member.id), self.view.since
        leader = next(node for node in self.world.alive if node.raft.is_leader)
        self.world.submit(ChangeView("/", "plain", self.record.uid, change), leader)
        self.wait(lambda: self.view.since > since)

    def move_master(self, to: WorldNode) -> None:
        """Have another node be master, and wait until it is."""
        if self.master is not to:
            self.transfer(to)
        self.wait(lambda: self.master is to and self.is_steady)

    def cut(self, one: WorldNode, other: WorldNode, *, is_cut: bool = True) -> None:
        """One node does not hear another one any more."""
        self.world.links.set_cut([(one.name, other.name)], is_cut=is_cut)

    def part(self, one: WorldNode, other: WorldNode) -> None:
        """Two nodes do not hear each other any more."""
        self.cut(one, other)
        self.cut(other, one)

    def hang_disk(self, node: WorldNode, *, is_hung: bool = True) -> None:
        """The disk of the messages hangs from now on."""
        node.disk_state.is_hung = is_hung
        node.disks_changed()

    def end_for_good(self, node: WorldNode) -> None:
        """A process is killed, and not started until all is healed."""
        self.world.crash(node.name, power=False)

    def page_out(self) -> None:
        """No node has a message in memory."""
        for _ in range(3):
            self.world.run(1.0)
            for node in self.world.serving:
                node.pager.sample(0, node.broker.local_queues)
                node.busy()

    def page_all(self) -> None:
        """All messages that there are now are in segments on all nodes, and nowhere else."""
        self.page_out()
        for _ in range(4):
            self.fill(OPTIONS.journal_file_bytes // 200, 200)  # so journal files go
        self.world.run(1.0)

    def files(self, node: WorldNode, ending: str) -> list[str]:
        """Files of a node's messages with something in them."""
        return [path for path in node.disk.paths() if path.endswith(ending) and node.disk.size(path)]

    def flip(self, node: WorldNode, path: str) -> None:
        """A bit in the middle of a file is another one: what the node has promises nothing any more."""
        self.damage(node)
        self.world.trace(f"{node.name} {path}: bit in the middle")
        node.disk.flip_bit(path, node.disk.size(path) // 2)

    def mirror_on(self, *nodes: WorldNode) -> None:
        """Have the queue's master on the first of these nodes, and its mirrors on the others."""
        names: list[Json] = [node.name for node in nodes]
        self.set_policy({"ha-mode": "nodes", "ha-params": names, "ha-sync-mode": "automatic"})
        self.wait(lambda: {member.node for member in self.view.members} == set(names) and self.is_steady)
        self.move_master(nodes[0])

    def ring(self) -> list[WorldNode]:
        """The nodes of the queue's mirrors in the order in which they hear of things, the master first."""
        ids = [member.id for member in self.view.members]
        at = ids.index(self.view.master)
        members = (*self.view.members[at:], *self.view.members[:at])
        return [self.world.nodes[member.node] for member in members]

    def lose(self, node: WorldNode, path: str) -> None:
        """A file is gone: what the node has promises nothing any more."""
        self.damage(node)
        self.world.trace(f"{node.name} loses {path}")
        node.disk.lose(path)

    def wipe(self, node: WorldNode, path: str) -> None:
        """All of a file but its header is zeros: what the node has promises nothing any more."""
        self.damage(node)
        self.world.trace(f"{node.name} {path}: zeros")
        node.disk.zero(path, HEADER_BYTES, node.disk.size(path))

    # --- clients ---

    def publisher(self, node: WorldNode, queue: str = "plain") -> "Hand":
        """A client that publishes when it is told to, on one node."""
        hand = Hand(self.world, self.ledger, f"publisher {next(self._numbers)}", [queue], "confirm", 0.1)
        hand.nodes = frozenset({node.name})
        self.publishers.append(hand)
        self.apps.append(hand)
        hand.begin()
        self.wait(lambda: hand.is_open)
        return hand

    def fill(self, number: int, size: int = 40) -> None:
        """Publish so many messages, and wait until they are confirmed."""
        hand = self.publisher(self.master)
        hand.give(number, size)
        self.wait(lambda: not hand.unconfirmed)
        hand.finish()
        self.publishers.remove(hand)

    def consumer(
        self,
        node: WorldNode,
        prefetch: int,
        way: str,
        on_delivery: Callable[[Message], None] = lambda message: None,
    ) -> Consumer:
        """A consumer on one node, which is there when this returns."""
        name = f"consumer {next(self._numbers)}"
        consumer = Consumer(self.world, self.ledger, name, "plain", prefetch, way)
        consumer.is_exclusive = consumer.dies_on_failover = False
        consumer.nodes = frozenset({node.name})
        consumer.on_delivery = on_delivery
        self.consumers.append(consumer)
        self.apps.append(consumer)
        consumer.begin()
        self.wait(lambda: consumer.is_consuming)
        return consumer

    # --- what has to be true ---

    def check_disks(self) -> None:
        """Each copy that promises to have everything has it on its disk, whatever was wrong with it before."""
        damaged, self.copies.damaged = self.copies.damaged, set()
        looked = self.copies.check(self.world.nodes, self.world.catalogue, self.random)
        self.copies.damaged = damaged
        if not looked and any(message.state == "confirmed" for message in self.ledger.messages):
            raise Violation(f"no copy promises anything: {self.record}")

    def ask(self, node: WorldNode, method: Method) -> list[Any]:
        """Have a client on one node ask for something. Returns: what will have the answer."""
        answers: list[Any] = []
        once = Once(self.world, self.ledger, f"question {next(self._numbers)}", method, answers.append)
        once.nodes = frozenset({node.name})
        once.begin()
        return answers

    def check_declares(self, node: WorldNode) -> None:
        """By way of this node metadata are changed, though nothing is healed."""
        answers = self.ask(node, ExchangeDeclare(exchange="new"))
        self._wait(lambda: bool(answers), SOON_S, lambda: "nothing is declared")

    def check_served(self, *nodes: WorldNode) -> None:
        """By way of these nodes the queue confirms and delivers again, though nothing is healed or declared down."""
        probe = Probe(self, "plain", frozenset(node.name for node in nodes))
        probe.begin()
        self._wait(lambda: probe.is_served, PARTED_S, lambda: f"not served: {self.view}")
        probe.leave()

    def end(self) -> None:
        """All that a seed checks at its end."""
        for app in self.apps:
            app.nodes = None
        self.check_safety()

    def dismiss(self, consumer: Consumer) -> None:
        """A consumer is not needed any more."""
        consumer.finish()
        self.consumers.remove(consumer)

    @property
    def acting(self) -> Queue | None:
        """The queue where it is to be."""
        queue = self.master.broker.vhosts["/"].queues.get("plain")
        return queue if isinstance(queue, Queue) else None


class Hand(Publisher):
    """A publisher that does what it is told."""

    def opened(self) -> None:
        self._tag = 0
        self.unconfirmed.clear()
        self.send(ConfirmSelect())

    def publish(self) -> None:
        """Nothing by itself."""

    def give(self, number: int, size: int = 40) -> None:
        """Publish persistent messages; they are confirmed later."""
        (queue,) = self.queues
        for _ in range(number):
            message = self.ledger.publish(
                queue, self.session, self._index, persistent=True, size=size, priority=0
            )
            self._index += 1
            self._tag += 1
            self.unconfirmed[self._tag] = message
            properties = Properties(delivery_mode=2, message_id=str(message.id))
            self.send(BasicPublish(exchange="", routing_key=queue, mandatory=True), message.body, properties)
