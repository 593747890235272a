"""The roster holds this node's identity, its cluster, and the members as far as this node knows them.

raft/node.json ─► identity, members of old ─┐
                                            ├─► known_members: whom to link to, ask, and let in
the metadata ─► catalogue: members ─────────┘
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from node.app import ClusterLog
from node.catalogue.catalogue import Catalogue
from node.catalogue.records import ClusterMember
from node.clustering.identity import IdentityUnreadable, NodeIdentity, read_identity, write_identity
from node.clustering.requests import Applicant
from node.config.config import Config
from node.io.data_directory import DataDirectoryError
from node.store.disk import Disk


class Roster:
    """One node's knowledge of itself and of the members.

    incarnation: of this node's broker; 0 if none.   is_attending: this node is a witness that votes.
    introduce: called when handshakes have to send a changed identity.   spawn: runs a coroutine as a task.
    """

    def __init__(
        self,
        identity: NodeIdentity,
        disk: Disk,
        introduce: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
    ) -> None:
        self.name = identity.name
        self.identity = identity
        self.incarnation = 0
        self.is_attending = False
        self._log: ClusterLog | None = None
        self._disk = disk
        self._introduce = introduce
        self._spawn = spawn
        self._joining_id = ""
        """The id of the cluster that this node is about to join."""
        self._writes: set[asyncio.Task[None]] = set()
        """Writes of the identity that are in progress."""

    # --- this node ---

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that this node belongs to, or is about to join; empty: none."""
        return self._joining_id or self.identity.cluster_id

    @property
    def is_current(self) -> bool:
        """True if this node has applied all that was committed before its own start."""
        return self.incarnation > 0 or self.is_attending

    def is_at(self, incarnation: int) -> None:
        """Record the incarnation that the cluster gave this node; 0 if it has none."""
        self.incarnation = incarnation
        self._introduce()

    def joining(self, cluster_id: str) -> None:
        """Admit the members of the cluster that this node is about to join; empty: it does not join."""
        self._joining_id = cluster_id
        self._introduce()

    def joined(self, log: ClusterLog) -> None:
        """Take over the log of the metadata, now that the node belongs to a cluster."""
        self._log = log
        self._joining_id = ""

    async def become(self, identity: NodeIdentity) -> None:
        """Replace the identity, in memory and on disk. Raises: OSError."""
        self.identity = identity  # first, as other changes of it may be written meanwhile
        await write_identity(self._disk, identity)
        self._introduce()

    async def quiet_disk(self) -> None:
        """Wait until no write of the identity is in progress, so that the disk can be used directly."""
        while self._writes:
            await asyncio.wait(self._writes)

    # --- the members ---

    @property
    def catalogue(self) -> Catalogue | None:
        """The metadata, which a snapshot may replace; None until the node belongs to a cluster."""
        return None if self._log is None else self._log.catalogue

    @property
    def members(self) -> Mapping[str, ClusterMember]:
        """The members in the metadata, by name; none before the node belongs to a cluster."""
        catalogue = self.catalogue
        return {} if catalogue is None else catalogue.members

    def known_members(self) -> dict[str, Applicant]:
        """Return the members as this node last saw them, possibly before its start.

        Until the node has an incarnation of its own it applies old commands: a node that they do not name yet may be
        a member.
        """
        known = {member.name: member for member in self.identity.members}
        for member in self.members.values():
            known[member.name] = Applicant(member.name, member.address, member.node_id, member.type)
        if not self.is_current:
            return known
        return {name: member for name, member in known.items() if name in self.members}

    def remember(self) -> None:
        """Write the members to the identity file, if they have changed."""
        known = self.known_members()
        members = tuple(known[name] for name in sorted(known))
        if not self.members or members == self.identity.members:
            return
        self.identity = replace(self.identity, members=members)
        task = self._spawn(write_identity(self._disk, self.identity))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)


def own_identity(disk: Disk, config: Config) -> NodeIdentity:
    """Return the identity in the data directory, or a new one if there is none. Raises: DataDirectoryError, OSError."""
    name = config.node_name
    try:
        found = read_identity(disk)
    except IdentityUnreadable as error:
        raise DataDirectoryError(
            f"the data directory {config.data_dir} cannot be used: raft/{error}"
        ) from error
    if found is None:
        return NodeIdentity(name, uuid.uuid4().hex, config.cluster.node_type)
    if found.name != name:
        raise DataDirectoryError(
            f"the data directory belongs to node {found.name}, and this is {name}: "
            "start it under its old name (--name), or use another data directory"
        )
    return found
