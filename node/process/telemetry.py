"""This module gives telemetry its view of the process (`Surroundings`). It is imported only where telemetry is on."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from node.io.control import ControlError
from node.process.status import places
from node.telemetry.surroundings import Link

if TYPE_CHECKING:
    from node.clustering.cluster import Cluster
    from node.process.agent import Agent

CLOCK: Final = "clock"
"""The name of the question for another node's time of day."""


class AgentSurroundings:
    """The `Surroundings` of one process's telemetry."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent

    @property
    def is_draining(self) -> bool:
        """True if the node is in maintenance mode."""
        return self._agent.is_draining

    @property
    def is_first(self) -> bool:
        """True on one node: the metadata's leader, or, if that runs no broker, the first node that is up."""
        cluster = self._agent.cluster
        if cluster is None or cluster.metadata is None:
            return True
        up = sorted(
            name for name, each in cluster.roster.members.items() if each.is_up and each.type != "witness"
        )
        leader = cluster.metadata.raft.leader
        return cluster.name == (leader if leader in up else next(iter(up), cluster.name))

    @property
    def partitioned(self) -> Sequence[str]:
        """The nodes that are up and cannot be reached from here."""
        cluster = self._agent.cluster
        return [] if cluster is None else list(cluster.membership.partitions)

    def links(self) -> list[Link]:
        """Return the counters of the links to the other nodes that are up and run a broker."""
        cluster = self._agent.cluster
        if cluster is None:
            return []
        return [
            self._link(cluster, name)
            for name, member in cluster.roster.members.items()
            if name != cluster.name and member.is_up and member.type != "witness"
        ]

    def _link(self, cluster: "Cluster", name: str) -> Link:
        counts = cluster.links.link_counts
        return Link(
            name,
            counts.frames[name],
            counts.frame_bytes[name],
            counts.packets[name],
            cluster.links.transport.pending_bytes(name),
            counts.congested_ms(name, time.monotonic()),
            counts.connects[name],
            counts.errors.get(name),
        )

    def places(self) -> tuple[dict[str, str], dict[str, Mapping[str, str]]]:
        """Return the zones and labels of all nodes that are up and have some."""
        return places(self._agent)

    async def ask_time(self, node: str) -> float | None:
        """Return another node's time of day in seconds; None if it does not answer."""
        try:
            answer = await self._agent.management.ask(node, CLOCK, {})
        except ControlError:
            return None
        return float(answer) if isinstance(answer, int | float) else None
