"""The interface of the HTTP API to the process around it. `node.agent` implements it.

A site exists as long as the process; the broker in it comes and goes.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from node.admin.admin import Admin
from node.app import Node
from node.config.config import Config
from node.statistics.query import Query
from node.statistics.rows import Kind, Row
from node.statistics.statistics import Statistics


class SiteNode(NamedTuple):
    """A node of the cluster.   type: disc or ram."""

    name: str
    type: str
    is_running: bool


class Site(Protocol):
    """One node, with access to the others."""

    @property
    def config(self) -> Config:
        """The configuration, which is fixed when the node starts."""

    @property
    def node(self) -> Node | None:
        """The broker; None while it is stopped or the node is paused."""

    @property
    def statistics(self) -> Statistics:
        """The statistics of the broker that runs."""

    def admin(self, by: str) -> Admin:
        """Return access to changes of the broker that runs, in the name of a user."""

    def is_ready(self) -> bool:
        """True if clients are served: the broker runs and is not in maintenance mode."""

    def status(self) -> dict[str, Any]:
        """Return the state of this node, as `node.process.status.node_status` does."""

    def cluster_status(self) -> dict[str, Any]:
        """Return the state of the cluster, as `node.process.status.cluster_status` does."""

    def members(self) -> list[SiteNode]:
        """Return all nodes of the cluster but witnesses, this one first."""

    async def ask(self, node: str, question: str, arguments: Mapping[str, Any]) -> Any:
        """Ask one node, which may be this one. JSON both ways. Raises: ControlError."""

    async def ask_all(self, question: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Ask all nodes that run. Returns: the answers by node; a node that does not answer in time is missing."""

    async def rows(self, kind: Kind, query: Query, nodes: Iterable[str] | None = None) -> list[Row]:
        """Return rows of all nodes that answer, or of these; those of several nodes with one id are added up."""

    async def operate(self, operation: str, arguments: Mapping[str, Any], timeout_s: float = 60.0) -> Any:
        """Run an operation of the control socket on this node. Raises: ControlError."""

    def places(self) -> tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]:
        """Return the zones and the labels of nodes that have some, by node."""
