"""The links of one node to the other members, and whom what comes over them is for.

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

    up: the nodes that are linked.   place: host and port where other nodes reach us; None until we listen.
    address: what others are told of that.
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
        """Whether a read of a link has brought something for the broker."""

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
        """Close the links, and accept no more."""
        if self.place is not None:
            await self.transport.close()

    def introduce(self) -> None:
        """Something about this node is new: from now on handshakes say so."""
        self.transport.identity = self._introduction()

    def _introduction(self) -> Identity:
        roster = self._cluster.roster
        return Identity(roster.name, roster.identity.node_id, roster.cluster_id, roster.incarnation)

    def forget_link(self, name: str) -> None:
        """There is no link to a node any more, as it is no member."""
        self._down(name, is_gone=False)

    def _down(self, name: str, *, is_gone: bool) -> None:
        self.up.discard(name)
        if self._cluster.metadata is not None:
            self._cluster.metadata.link_down(name, is_gone=is_gone)
        self._cluster.membership.link_down(name, is_gone=is_gone, now=boottime())
        self._cluster.turn.membership_changed()

    # --- `Listener` ---

    def admit(self, hello: Hello) -> str | None:
        """See `Listener.admit`."""
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
        """See `Listener.link_up`."""
        self._logger.info(phrases.link_up(name))
        self.up.add(name)
        self.link_counts.connects[name] += 1
        self._cluster.peers.link_up(name)
        if self._cluster.metadata is not None:
            self._cluster.metadata.link_up(name)
        self._cluster.membership.link_up(name, incarnation, boottime())
        self._cluster.turn.membership_changed()

    def link_down(self, name: str, *, is_gone: bool, reason: str) -> None:
        """See `Listener.link_down`."""
        self._logger.info(phrases.link_down(name, reason))
        self.link_counts.errors[name] = reason
        self._down(name, is_gone=is_gone)

    def control(self, name: str, topic: Topic, messages: list[bytes]) -> None:
        """See `Listener.control`."""
        if topic is Topic.RAFT and self._cluster.metadata is not None:
            for message in messages:
                self._cluster.metadata.replica.receive(name, message)
        elif topic is Topic.MEMBERSHIP:
            self._cluster.turn.membership_changed()
            now = boottime()
            for message in messages:
                self._cluster.membership.received(name, message, now)

    def data(self, name: str, frames: list[tuple[Topic, bytes]]) -> None:
        """See `Listener.data`."""
        self._has_data = True
        self._cluster.peers.receive(name, frames)

    def received(self) -> None:
        """See `Listener.received`."""
        if self._has_data:
            self._cluster.peers.wake()
        self._has_data = False

    def relieved(self, name: str) -> None:
        """See `Listener.relieved`."""
        self._cluster.peers.relieved(name)

    async def call(self, name: str, body: bytes) -> bytes:
        """See `Listener.call`."""
        return await self._cluster.calls.answer(name, body)


def _security(options: ClusterOptions) -> Security:
    try:
        files = Security.read(options.ca_file, options.certificate_file, options.key_file)
    except SecurityError as error:
        raise ConfigError([str(error)]) from error
    return replace(files, secret=options.secret or b"")
