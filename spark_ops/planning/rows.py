"""The planner's input: the nodes and queues of a cluster, with their loads.

Loads are of a window of telemetry. An unknown load is 0, and `ClusterRows.coverage` tells how much was seen.
Source: spark §3.1, §3.3.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node.

    zone: None: the cluster has no zones.   cores, memory, disk, fds: the capacity for a broker: cores, bytes up to the
    watermark, bytes that may be used in all, descriptors.   base_…: the part used by other things than queues, same
    units.
    """

    node: str
    is_up: bool = True
    is_draining: bool = False
    zone: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    cores: float = 1.0
    memory: float = 0.0
    disk: float = 0.0
    fds: float = 0.0
    base_cpu: float = 0.0
    base_memory: float = 0.0
    base_disk: float = 0.0
    base_fds: float = 0.0


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue with all of its copies.

    uid: names this incarnation of it.   epoch: rises with each change of its master.
    ring: nodes with a copy, in order, the master first.   synced: those of them with all messages, the master
    included.
    want_mirrors: beside the master.   fixed_nodes: nodes to which the policy binds the copies; None: anywhere.
    cpu: cores that the master uses.   mirror_cpu: that each mirror uses.   cpu_p95: of the master, for peaks.
    in_bytes, out_bytes: per second.   memory, disk: bytes of each copy.   size: bytes that a new copy has to get.
    clients: numbers by node, publishers and consumers together.
    lag: operations that the slowest synchronised mirror lacks.
    moved_at: seconds since 1970 of its last planned move; 0: never.
    members: nodes with a copy in order of seniority: if the master dies the first synchronised one becomes master
        (node/catalogue/mirrors/views.py `_promoted`); empty: as `ring`.
    """

    vhost: str
    queue: str
    uid: str
    type: str
    master: str
    ring: tuple[str, ...]
    synced: tuple[str, ...]
    epoch: int = 0
    policy: str | None = None
    want_mirrors: int = 0
    fixed_nodes: tuple[str, ...] | None = None
    is_exclusive: bool = False
    cpu: float = 0.0
    cpu_p95: float = 0.0
    mirror_cpu: float = 0.0
    in_bytes: float = 0.0
    out_bytes: float = 0.0
    memory: float = 0.0
    disk: float = 0.0
    size: float = 0.0
    lag: int = 0
    clients: dict[str, int] = field(default_factory=dict)
    moved_at: float = 0.0
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterRows:
    """A cluster at one moment.

    view_id, topology_hash: of the placement.   window: seconds since 1970, of the loads.   coverage: 0 to 1.
    facts: further facts about the sources, for the plan.
    """

    cluster: str
    view_id: int
    topology_hash: str
    window: tuple[float, float]
    coverage: float
    nodes: tuple[NodeRow, ...]
    queues: tuple[QueueRow, ...]
    facts: dict[str, Any] = field(default_factory=dict)
