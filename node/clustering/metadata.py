"""The cluster's metadata on this node consist of a member of the Raft group and the catalogue that this member keeps.

A disk node or a witness continues the journal in DATA/raft. A RAM node has none: it follows the voters that it knew,
or that handshakes name, from an empty log at each start. Source: reliability §3.5, §4.10.
"""

import random
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from cluster import times
from cluster.metadata import founding
from cluster.metadata.journal_file import Image, JournalUnreadable
from cluster.metadata.options import Options
from cluster.metadata.raft_log import RaftLog, import_catalogue
from cluster.metadata.raft_member import RaftMember
from node.catalogue.commands import Command
from node.clustering.host_process import HostProcess
from node.clustering.identity import NodeIdentity
from node.clustering.waiting import boottime
from node.io.data_directory import DataDirectoryError
from node.store.disk import Disk
from node.store.records import NewerFormat


def options(lease_s: float) -> Options:
    """Return the times of the Raft group: if a leader hangs, another one must be elected before leases end.

    The others need the time since the last renewal and heartbeat (at most three tenths of a lease), an election, and
    the new leader's renewal. A leader whose disk hangs is replaced earlier, as its disk is given a quarter of a
    lease.
    """
    return Options(
        heartbeat_s=times.RAFT_HEARTBEAT * lease_s,
        election_min_s=times.ELECTION_MIN * lease_s,
        election_max_s=times.ELECTION_MAX * lease_s,
        ask_s=times.ASK * lease_s,
        stuck_disk_s=times.STUCK_DISK * lease_s,
    )


def create(disk: Disk, name: str, commands: Iterable[Command[Any]]) -> None:
    """Write the journal of a new group of this node alone, whose catalogue begins with these. Raises: OSError."""
    founding.create(disk, name, import_catalogue(commands))


def join(disk: Disk, name: str, voters: Iterable[str]) -> None:
    """Write the journal of a member that is to follow these voters and does not vote yet. Raises: OSError."""
    founding.join(disk, set(voters) - {name})


class Follower(Protocol):
    """The object that is told of changes in the Raft group (`Cluster`)."""

    def leader_is(self, leader: str | None) -> None:
        """Take note that another node leads. Called before the commands that this leader committed are applied."""

    def majority_is(self, has_majority: bool) -> None:
        """Take note whether a majority of the voters is linked."""


class Metadata:
    """The metadata of a node that belongs to a cluster. Raises: DataDirectoryError if the journal cannot be used.

    send: sends a message to a member, and returns whether there is a link.   changed: called when there is work.
    """

    def __init__(
        self,
        process: HostProcess,
        identity: NodeIdentity,
        disk: Disk,
        follower: Follower,
        send: Callable[[str, bytes], bool],
        changed: Callable[[], None],
    ) -> None:
        self._process = process
        self._identity = identity
        self._disk = disk
        self._follower = follower
        self._leader: str | None = None
        self._has_majority = False
        is_kept = identity.type != "ram"
        self.log = RaftLog(identity.name, now=boottime, new_session=lambda: uuid.uuid4().hex)
        self.raft = RaftMember(
            identity.name,
            self._image(is_kept=is_kept),
            disk if is_kept else None,
            self.log,
            send,
            now=boottime,
            random=random.SystemRandom().random,
            wake=changed,
            options=options(process.config.cluster.lease_s),
            report=self._report,
            on_broken=self._broken,
        )
        self.log.bind(self.raft, changed)

    def _image(self, *, is_kept: bool) -> Image:
        if not is_kept:
            known = self._identity.members
            voters = {each.name for each in known if each.type != "ram"} - {self._identity.name}
            return founding.join(None, voters)
        try:
            return founding.load(self._disk)
        except (JournalUnreadable, NewerFormat, OSError) as error:
            directory = self._process.config.data_dir
            raise DataDirectoryError(f"the data directory {directory} cannot be read: {error}") from error

    def tick(self, now: float) -> float:
        """Do what is due; return the time at which to call again at the latest."""
        due = self.raft.tick(now)
        self.tell_leader()
        return due

    def submit_as_leader(self, command: Command[Any]) -> None:
        """Submit a command that only the leader may propose; do nothing on another node."""
        if self.raft.is_leader:
            self.log.submit(command)

    def link_up(self, name: str) -> None:
        """Tell Raft that a peer can be reached."""
        self.raft.link_up(name)
        self.tell_leader()

    def link_down(self, name: str, *, is_gone: bool = False) -> None:
        """Tell Raft that a peer cannot be reached any more.   is_gone: the peer's process has ended."""
        self.raft.link_down(name, is_gone=is_gone)
        self.tell_leader()

    def tell_leader(self) -> None:
        """Tell the follower if the leader or the majority has changed, before the new leader's commands are applied."""
        leader, has_majority = self.raft.leader, self.raft.has_majority
        if has_majority != self._has_majority:
            self._has_majority = has_majority
            self._follower.majority_is(has_majority)
        if leader != self._leader:
            self._leader = leader
            self._follower.leader_is(leader)

    def _report(self, line: str) -> None:
        self._process.logger.error("metadata: %s", line)

    def _broken(self, reason: str) -> None:
        self._process.logger.critical("metadata cannot be kept any more, so the node stops: %s", reason)
        self._process.ask_to_stop()
