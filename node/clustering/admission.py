"""This module decides which nodes a node admits: the checks of each handshake between two nodes, on both sides.

Source: reliability §2.5 (join_cluster_bad_operations, forgotten nodes), rabbit_mnesia.erl v3.13.7
(format_inconsistent_cluster_message).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from node.clustering.errors import disagrees
from node.version import VERSION

_COMPATIBLE_PARTS: Final = 2
"""Two versions are compatible if this many leading numbers are equal; the numbers after them count fixes."""


class Introduction(Protocol):
    """The data that the other node sends about itself in a handshake (`cluster.transport.interface.Hello`)."""

    @property
    def name(self) -> str: ...
    @property
    def node_id(self) -> str: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def version(self) -> str: ...
    @property
    def is_call(self) -> bool: ...


class KnownNode(NamedTuple):
    """The data about a member that a handshake is checked against."""

    node_id: str
    incarnation: int


class Admission(NamedTuple):
    """The state of this node on which it decides whether to admit another one.

    former_cluster_id: see `NodeIdentity`.
    members: by name, including this node.   is_current: True if this node has followed the metadata since its start.
    Then a node that is not a member has been removed; otherwise it may have joined meanwhile.
    """

    name: str
    node_id: str
    cluster_id: str
    members: Mapping[str, KnownNode]
    is_current: bool
    former_cluster_id: str = ""
    version: str = VERSION

    def refusal(self, hello: Introduction) -> str | None:
        """Return why the other node is not admitted, for the operator of either side; None if it is."""
        if _series(hello.version) != _series(self.version):
            return (
                f"node '{hello.name}' has version {hello.version}, '{self.name}' has {self.version}: "
                "these don't work together"
            )
        if hello.name == self.name:
            if hello.node_id == self.node_id:
                return f"node '{self.name}' has called itself: the address is its own"
            return (
                f"there are two nodes with the name '{self.name}', with the node ids {self.node_id} and "
                f"{hello.node_id}: one of them needs another name"
            )
        if hello.is_call:
            return None
        return self._refusal_of_link(hello)

    def _refusal_of_link(self, hello: Introduction) -> str | None:
        if not self.cluster_id or not hello.cluster_id:
            single, other = (self.name, hello.name) if not self.cluster_id else (hello.name, self.name)
            return disagrees(other, single) + f": '{single}' belongs to no cluster"
        if self.former_cluster_id and hello.cluster_id == self.former_cluster_id:
            return (
                f"all nodes but '{self.name}' were forgotten with forget_cluster_node --offline, and "
                f"'{hello.name}' still belongs to the former cluster (id {hello.cluster_id}): "
                f"reset '{hello.name}' before it joins again"
            )
        if hello.cluster_id != self.cluster_id:
            return (
                f"node '{hello.name}' belongs to another cluster (id {hello.cluster_id}) "
                f"than '{self.name}' (id {self.cluster_id})"
            )
        known = self.members.get(hello.name)
        if known is None:
            return disagrees(hello.name, self.name) if self.is_current else None
        if hello.node_id != known.node_id:
            return (
                f"node '{hello.name}' has the node id {hello.node_id}, but the member of that name has "
                f"{known.node_id}: it was started with another data directory"
            )
        if 0 < hello.incarnation < known.incarnation:
            return (
                f"node '{hello.name}' is at incarnation {hello.incarnation}, but {known.incarnation} "
                "has started since"
            )
        return None


def _series(version: str) -> list[str]:
    return version.split(".")[:_COMPATIBLE_PARTS]
