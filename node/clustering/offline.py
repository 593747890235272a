"""These functions change the voters in the metadata of a node that does not run, without asking the present voters.

Each writes a new journal that continues, in a new term, where this node's journal ends. A former member whose journal
goes further loses all later entries, even confirmed ones: so these functions are for when the others are lost, or
will not start before this node does. Once no other member is left the cluster has a new id: should the forgotten ones
come back as a majority of their own, the two refuse each other. Source: reliability §2.5 (forget_offline, force_boot),
rabbit_mnesia.erl v3.13.7.
"""

import os
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from cluster.metadata.entries import NO_OP_COMMAND, REGULAR
from cluster.metadata.journal import RaftJournal
from cluster.metadata.journal_file import (
    Image,
    JournalUnreadable,
    new_head,
    piece_payloads,
    read_image,
    write_image,
)
from cluster.metadata.raft_log import RaftLog
from cluster.metadata.state_machine import SnapshotUnreadable
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import NodeDown, RemoveMember, SetGlobalParameter
from node.clustering import errors
from node.clustering.identity import CLUSTER_ID, IdentityUnreadable, NodeIdentity, read_identity, writing
from node.io.control import EX_DATAERR, EX_SOFTWARE
from node.io.disk import FileDisk, ReadOnlyDisk
from node.store.directory import RAFT
from node.store.inspection import TrialDisk
from node.store.records import NewerFormat

REMOVING_FROM_OFFLINE_NODE: Final = (
    "To remove a node remotely from an offline node, the node you are removing from must be a disc node and all the "
    "other nodes must be offline."
)


class OfflineError(Exception):
    """A change of an offline node's metadata failed. exit_code: for the command line; text: for the operator."""

    def __init__(self, exit_code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = text


def forget_offline(data_dir: str, own_name: str, node: str) -> None:
    """Remove a member, with its vote and its queues, from this node's metadata.

    Raises: OfflineError; DataDirectoryError when a node runs on the directory.
    """

    def change(copy: "_Copy") -> frozenset[str]:
        if node == own_name or node not in copy.log.catalogue.members:
            raise OfflineError(EX_SOFTWARE, errors.NOT_A_MEMBER)
        copy.log.catalogue.apply(RemoveMember(node))
        return copy.voters - {node}

    _rewrite(data_dir, own_name, change)


def read_catalogue(data_dir: str) -> Catalogue | None:
    """Return the metadata as far as a node has them on disk; None for a node that keeps none there.

    Raises: OfflineError; DataDirectoryError when a node runs on the directory.
    """
    path = os.path.join(data_dir, RAFT)
    disk = TrialDisk(ReadOnlyDisk(path))
    try:
        identity = read_identity(disk)
        if identity is None or identity.type == "ram":
            return None
        return _Copy(read_image(disk)).log.catalogue
    except (JournalUnreadable, NewerFormat, SnapshotUnreadable, IdentityUnreadable, OSError) as error:
        raise OfflineError(EX_DATAERR, f"the metadata in {path} cannot be read: {error}") from error


class _Copy:
    """The metadata at the end of this node's journal."""

    def __init__(self, image: Image) -> None:
        journal = RaftJournal(image, None, lambda: None, lambda error: None)
        self.voters = journal.voters()
        self.last_index = image.entries[-1][1]
        self.term = max(image.term, image.entries[-1][2])
        self.log = RaftLog("", now=float, new_session=lambda: "offline")
        restoring = self.log.begin_restore()
        for items in image.items():
            restoring.add(items)
        restoring.install()
        for command, index, _ in image.entries[2:]:
            if command[0] == REGULAR:
                self.log.apply(index, command[1:], is_last=False)

    def image(self, voters: frozenset[str]) -> Image:
        """Return a journal that begins with these metadata and has these voters."""
        term, index = self.term + 1, self.last_index + 1
        head = new_head((NO_OP_COMMAND, index, term), (NO_OP_COMMAND, index + 1, term), voters)
        return Image(head, list(piece_payloads(self.log.snapshot())), term=term)


def _rewrite(data_dir: str, own_name: str, change: Callable[[_Copy], frozenset[str]]) -> None:
    path = os.path.join(data_dir, RAFT)
    if not os.path.isdir(path):
        raise OfflineError(EX_SOFTWARE, f"the data directory {data_dir} belongs to no cluster")
    disk = FileDisk.open(path)
    try:
        identity = _identity(disk, own_name)
        copy = _Copy(read_image(disk))
        if own_name not in copy.voters:
            raise OfflineError(EX_SOFTWARE, REMOVING_FROM_OFFLINE_NODE)
        for member in list(copy.log.catalogue.members.values()):
            if member.is_up:
                copy.log.catalogue.apply(NodeDown(member.name, member.incarnation))
        voters = change(copy)
        members = copy.log.catalogue.members
        kept = tuple(each for each in identity.members if each.name in members)
        identity = replace(identity, members=kept)
        if set(members) == {own_name}:
            new_id = f"rabbitmq-cluster-id-{uuid.uuid4()}"
            identity = replace(identity, cluster_id=new_id, former_cluster_id=identity.cluster_id)
            copy.log.catalogue.apply(SetGlobalParameter(CLUSTER_ID, new_id))
        copy.log.catalogue.take_events()
        # The identity comes first: if the journal is not replaced, the same command can be run again.
        disk.run(writing(identity))
        write_image(disk, copy.image(voters))
    except (JournalUnreadable, NewerFormat, SnapshotUnreadable, IdentityUnreadable, OSError) as error:
        raise OfflineError(EX_DATAERR, f"the metadata in {path} cannot be used: {error}") from error
    finally:
        disk.close()


def _identity(disk: FileDisk, own_name: str) -> NodeIdentity:
    identity = read_identity(disk)
    if identity is None or identity.name != own_name:
        owner = "nobody" if identity is None else identity.name
        raise OfflineError(EX_SOFTWARE, f"the data directory belongs to {owner}, not to {own_name}")
    if identity.type == "ram":
        raise OfflineError(EX_SOFTWARE, REMOVING_FROM_OFFLINE_NODE)
    return identity
