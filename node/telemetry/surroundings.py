"""The interface of telemetry to the process around the broker: `node.process.telemetry`."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Link(NamedTuple):
    """The link to one other node, as this one sees it.

    batches, batch_bytes, batch_packets: frames of mirrored queues that were sent there, and what they had.
    pending_bytes: not acknowledged yet, of all frames.   congested_ms: for how long these were too many, in all.
    connects: how often the link has come up.   last_error: why it went down last.
    """

    name: str
    batches: int = 0
    batch_bytes: int = 0
    batch_packets: int = 0
    pending_bytes: int = 0
    congested_ms: int = 0
    connects: int = 0
    last_error: str | None = None


class Surroundings(Protocol):
    """The process around the broker of one node."""

    @property
    def is_draining(self) -> bool:
        """True if the node is in maintenance mode."""

    @property
    def is_first(self) -> bool:
        """True if this node is to write the topology: in a cluster its leader, one node at a time."""

    @property
    def partitioned(self) -> Sequence[str]:
        """Nodes that are up and cannot be reached from here."""

    def links(self) -> list[Link]:
        """Return the links to all other members that are up."""

    def places(self) -> tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]:
        """Return zones and labels, by the names of nodes that have some."""

    async def ask_time(self, node: str) -> float | None:
        """Return the time of day at another node, in seconds; None: it does not answer."""
