"""This module has the links of one node to the other members, and passes each incoming message to its part of the node.

control ─► Raft: metadata;  heartbeats: membership
data ────► the broker's ways to others (`peer_state`)
calls ───► `calls`
"""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from cluster.transport.interface import Hello, Identity, InsecureListener, Topic
from cluster.transport.security import Security, SecurityError
from cluster.transport.transport import Transport
from node.clustering.admission import Admission, KnownNode
from node.clustering.link_counts import LinkCounts
from node.clustering.waiting import boottime
from node.config.config import ClusterOptions
from node.config.file import ConfigError
from node.config.values import Address
from node.log import phrases

if TYPE_CHECKING:
    from node.clustering.cluster import Cluster


class Links:
    """The `Listener` of one node's transport. Raises: ConfigError.

    up: the nodes that are linked.   place: host and port where other nodes reach this one; None until it listens.
    address: the address that other nodes are told.
    """

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._options = cluster.config.cluster
        self._logger = cluster.logger
        self.up: set[str] = set()
        self.link_counts = LinkCounts()
        self.place: tuple[str, int] | None = None
        self.address = ""
        self.transport = Transport(self._introduction(), _security(self._options), self)
        self._has_data = False
        """True if the current read of a link has brought frames for the broker."""

    async def listen(self) -> None:
        """Accept other nodes. Raises: OSError, ConfigError."""
        place = self._options.listen or self._options.default_listen
        try:
            port = await self.transport.listen(place.host, place.port)
        except InsecureListener as error:
            raise ConfigError([str(error)]) from error
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(f"other nodes cannot be accepted on {place}: {why}") from error
        self.place = (place.host, port)
        host, _, advertised_port = self._options.advertised.rpartition(":")
        self.address = f"{host}:{port}" if advertised_port == "0" else self._options.advertised
        self._logger.info("started peer listener on %s", Address(place.host, port))

    async def close(self) -> None:
        """Close all links, and accept no more."""
        if self.place is not None:
            await self.transport.close()

    def introduce(self) -> None:
        """Take over a change of this node's identity, so that the next handshakes send it."""
        self.transport.identity = self._introduction()

    def _introduction(self) -> Identity:
        roster = self._cluster.roster
        return Identity(roster.name, roster.identity.node_id, roster.cluster_id, roster.incarnation)

    def forget_link(self, name: str) -> None:
        """Drop the link to a node that is no longer a member."""
        self._down(name, is_gone=False)

    def _down(self, name: str, *, is_gone: bool) -> None:
        self.up.discard(name)
        if self._cluster.metadata is not None:
            self._cluster.metadata.link_down(name, is_gone=is_gone)
        self._cluster.membership.link_down(name, is_gone=is_gone, now=boottime())
        self._cluster.turn.membership_changed()

    # --- `Listener` ---

    def admit(self, hello: Hello) -> str | None:
        """Return why the node that introduces itself is not admitted; None if it is."""
        roster = self._cluster.roster
        members = {
            name: KnownNode(
                member.node_id, 0 if name not in roster.members else roster.members[name].incarnation
            )
            for name, member in roster.known_members().items()
        }
        admission = Admission(
            roster.name,
            roster.identity.node_id,
            roster.cluster_id,
            members,
            is_current=roster.is_current,
            former_cluster_id=roster.identity.former_cluster_id,
        )
        return admission.refusal(hello)

    def link_up(self, name: str, incarnation: int) -> None:
        """Tell the metadata, the membership and the broker's peers that a node can be reached, and log it."""
        self._logger.info(phrases.link_up(name))
        self.up.add(name)
        self.link_counts.connects[name] += 1
        self._cluster.peers.link_up(name)
        if self._cluster.metadata is not None:
            self._cluster.metadata.link_up(name)
        self._cluster.membership.link_up(name, incarnation, boottime())
        self._cluster.turn.membership_changed()

    def link_down(self, name: str, *, is_gone: bool, reason: str) -> None:
        """Tell the metadata and the membership that the link to a node is down, and log it.

        is_gone: the node's process is known to have ended.
        """
        self._logger.info(phrases.link_down(name, reason))
        self.link_counts.errors[name] = reason
        self._down(name, is_gone=is_gone)

    def control(self, name: str, topic: Topic, messages: list[bytes]) -> None:
        """Pass messages of a control stream to Raft (dropped while there are no metadata) or to the membership."""
        if topic is Topic.RAFT and self._cluster.metadata is not None:
            self._cluster.metadata.raft.receive(name, messages)
        elif topic is Topic.MEMBERSHIP:
            self._cluster.turn.membership_changed()
            now = boottime()
            for message in messages:
                self._cluster.membership.received(name, message, now)

    def data(self, name: str, frames: list[tuple[Topic, bytes]]) -> None:
        """Pass frames of a data stream to the broker's peers."""
        self._has_data = True
        self._cluster.peers.receive(name, frames)

    def received(self) -> None:
        """Wake the broker if the read of the link that has just ended brought frames for it."""
        if self._has_data:
            self._cluster.peers.wake()
        self._has_data = False

    def relieved(self, name: str) -> None:
        """Tell the broker's peers that the data stream to a node is no longer congested."""
        self._cluster.peers.relieved(name)

    async def call(self, name: str, body: bytes) -> bytes:
        """Return the answer to another node's request."""
        return await self._cluster.calls.answer(name, body)


def _security(options: ClusterOptions) -> Security:
    try:
        files = Security.read(options.ca_file, options.certificate_file, options.key_file)
    except SecurityError as error:
        raise ConfigError([str(error)]) from error
    return replace(files, secret=options.secret or b"")
