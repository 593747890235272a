"""Whole nodes in virtual time: metadata, leases, links, brokers, rings, stores and disks are those of the product.

    world = World(seed)      world.start("n1")      world.run(2.0)      world.links.set_cut([("n1", "n2")], is_cut=True)

The cluster is formed before time begins: each node's disk has a metadata journal in which all of them are members and
vote. See `tests.sim.world_node` for what of `node.clustering` is played, `tests.sim.world_links` for the transport.
Source: reliability §5.2.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from cluster.metadata.journal_file import Image, new_head, piece_payloads, write_image
from cluster.metadata.raft_log import import_catalogue
from cluster.metadata.snapshots import first_entries
from node.catalogue.commands import Command, PutMember
from node.catalogue.events import Event, LeasesRenewed, ViewChanged
from tests.kit.world import GUEST
from tests.sim.mirror_world import Timeline, Violation
from tests.sim.world_links import Links
from tests.sim.world_node import WorldNode


class World(Timeline):
    """All of it.   links: between the nodes.   on_process_ended: told when a process has ended itself."""

    nodes: dict[str, WorldNode]

    def __init__(self, seed: int, names: tuple[str, ...] = ("n1", "n2", "n3")) -> None:
        super().__init__(seed, names)
        self.congested_bytes = 1 << 20
        self.links = Links(self)
        self.on_process_ended: Callable[[WorldNode], None] = lambda node: None
        self.nodes = {name: WorldNode(self, name) for name in names}
        self._entries: dict[int, bytes] = {}
        self._seen_index = 0
        self._seen_by: WorldNode | None = None
        for node in self.nodes.values():
            _form(node, names)

    # --- nodes ---

    def start(self, name: str) -> None:
        """A process starts."""
        self.trace(f"start {name}")
        self.nodes[name].start()

    def crash(self, name: str, *, power: bool) -> None:
        """A process is killed, or its machine loses power."""
        self.trace(f"crash {name} power={power}")
        self.nodes[name].end(power=power)

    def process_ended(self, node: WorldNode) -> None:
        """A process has ended itself."""
        node.end(power=False)
        self.on_process_ended(node)

    def call(self, sender: str, receiver: str, action: Callable[[WorldNode], None]) -> None:
        """A request of one node to another, if they reach each other."""
        if self.links.can_talk(sender, receiver):
            node = self.nodes[receiver]
            node.later(self.links.latency(sender, receiver), lambda: action(node))

    # --- the log ---

    def submit(
        self, command: Command[Any], node: Any | None, on_applied: Callable[[Any], None] | None = None
    ) -> None:
        """Have a node propose a command; None: one that serves."""
        found = node or (self.random.choice(self.serving) if self.serving else None)
        if found is not None:
            found.log.submit(command, on_applied)

    def applied(self, node: WorldNode, index: int, data: bytes) -> None:
        """A node applies an entry of the log, and all of them the same one."""
        if self._entries.setdefault(index, data) != data:
            raise Violation(f"{node.name} applies another entry {index} than others before it")

    def saw(self, node: WorldNode, index: int, events: Sequence[Event]) -> None:
        """A node has applied what changed the metadata; the first one tells everybody."""
        if index > self._seen_index or (index == self._seen_index and node is self._seen_by):
            self._seen_index, self._seen_by = index, node
            self.catalogue = node.log.catalogue
            for event in events:
                if self.is_traced and not isinstance(event, LeasesRenewed):
                    self.trace(f"log {index}: {brief(event)}")
                self.on_event(event)


def brief(event: Event) -> str:
    """An event in few words."""
    if not isinstance(event, ViewChanged) or event.after.view is None:
        return repr(event)[:200]
    view = event.after.view
    ring = " ".join(
        f"{member.id}@{member.node}{'' if member.status == 'alive' else ':' + member.status}"
        for member in view.members
    )
    rest = (
        f"recoverable {view.recoverable} offers {view.offers}"
        if view.state != "live"
        else f"previous {view.previous}"
    )
    return f"{event.after.name} v{view.version} {view.state} master {view.master} [{ring}] synced {view.synced} {rest}"


def _form(node: WorldNode, names: tuple[str, ...]) -> None:
    previous, last = first_entries()
    image = Image(new_head(previous, last, names), list(piece_payloads(_first_items(names))), term=1)
    write_image(node.raft_disk, image)
    node.raft_disk.sync_all()


@cache
def _first_items(names: tuple[str, ...]) -> tuple[bytes, ...]:
    """The metadata that the cluster begins with."""
    commands: list[Command[Any]] = [PutMember(name, f"{name}:1", f"id-{name}") for name in names]
    commands += GUEST
    return tuple(import_catalogue(commands))
