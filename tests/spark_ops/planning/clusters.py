"""Clusters for tests of the planner: small ones of all kinds, as rows."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from spark_ops.planning.drafting import draft
from spark_ops.planning.fleet import fleet_of
from spark_ops.planning.goals import Settings
from spark_ops.planning.plan import Plan, parse_document
from spark_ops.planning.planner import Outcome, planned
from spark_ops.planning.rows import ClusterRows, NodeRow, QueueRow
from spark_ops.planning.topology import FORMAT, members_of, ram_nodes

NOW = 1_800_000_000.0
FREE = Settings(max_moves=None, max_bytes=None)


def node(name: str, **given: Any) -> NodeRow:
    """A node of 8 cores, 8 GB and 100 GB of disk."""
    return replace(NodeRow(name, cores=8.0, memory=8e9, disk=1e11), **given)


def queue(name: str, *ring: str, **given: Any) -> QueueRow:
    """A queue with all copies synchronised; its policy wants as many."""
    row = QueueRow(
        "/", name, f"{name}-uid", "classic", ring[0], ring, ring, epoch=7, want_mirrors=len(ring) - 1
    )
    return replace(row, **given)


def cluster(nodes: list[NodeRow], queues: list[QueueRow]) -> ClusterRows:
    """Return nodes and queues as rows of one cluster."""
    return ClusterRows("c", 3, "sha256:" + "1" * 64, (NOW - 3600, NOW), 1.0, tuple(nodes), tuple(queues))


def outcome(rows: ClusterRows, settings: Settings = FREE) -> Outcome:
    """Return the planner's outcome for the rows."""
    return planned(fleet_of(rows, settings, now=NOW), settings)


def plan(rows: ClusterRows, settings: Settings = FREE) -> Plan:
    """The plan as it comes out of a file."""
    return parse_document(draft(rows, settings, now=NOW))


def after(rows: ClusterRows, found: Plan) -> ClusterRows:
    """The cluster with a plan carried out."""
    from spark_ops.planning.simulation import simulated

    result = simulated(found, rows)
    assert not result.refused, result.refused
    queues = []
    for row in rows.queues:
        placement = result.placements.get((row.vhost, row.queue))
        if placement is not None:
            row = replace(
                row,
                master=placement.master,
                ring=placement.ring,
                members=placement.members,
                synced=tuple(each for each in placement.ring if each in placement.synced),
                epoch=row.epoch + (placement.master != row.master),
            )
        queues.append(row)
    return replace(rows, queues=tuple(queues))


@st.composite
def clusters(
    draw: st.DrawFn,
    *,
    nodes_min: int = 2,
    nodes_max: int = 6,
    queues_max: int = 14,
    with_oddities: bool = True,
    with_zones: bool = True,
) -> ClusterRows:
    """A cluster: zones or none, queues of one to three copies, some not synchronised, exclusive, draining, …"""
    count = draw(st.integers(nodes_min, nodes_max))
    zones = draw(st.sampled_from([0, 2, 3])) if with_zones else 0
    names = [f"n{number}" for number in range(count)]
    nodes = []
    for number, name in enumerate(names):
        is_draining = with_oddities and draw(st.integers(0, 9)) == 0
        nodes.append(
            node(
                name,
                zone=f"z{number % zones}" if zones else None,
                is_draining=is_draining,
                base_cpu=draw(st.integers(0, 10)) / 10,
                base_memory=float(draw(st.integers(0, 20)) * 10**8),
            )
        )
    queues = []
    for number in range(draw(st.integers(0, queues_max))):
        ring = tuple(draw(st.permutations(names)))[: draw(st.integers(1, min(3, count)))]
        cpu = draw(st.integers(0, 20_000)) / 10_000
        size = float(draw(st.integers(0, 300)) * 10**6)
        row = queue(
            f"q{number}",
            *ring,
            vhost=draw(st.sampled_from(["/", "v"])),
            cpu=cpu,
            mirror_cpu=round(cpu * 0.1, 4),
            in_bytes=float(draw(st.integers(0, 50)) * 10**5),
            out_bytes=float(draw(st.integers(0, 50)) * 10**5),
            memory=size,
            disk=size,
            size=size,
        )
        if with_oddities:
            order = draw(st.permutations(ring))
            row = replace(row, members=_rotated(order, row.ring))
            match draw(st.integers(0, 9)):
                case 0 if len(ring) > 1:
                    row = replace(row, synced=ring[:-1])
                case 1:
                    row = replace(row, is_exclusive=True)
                case 2:
                    row = replace(row, moved_at=NOW - 60)
                case 3:
                    row = replace(row, want_mirrors=row.want_mirrors + 1)
                case 4 if len(ring) > 2:
                    row = replace(row, want_mirrors=1)
                case 5:
                    row = replace(row, fixed_nodes=ring)
                case 6:
                    row = replace(row, clients={draw(st.sampled_from(names)): 3})
                case _:
                    pass
        queues.append(row)
    return cluster(nodes, queues)


def _rotated(order: list[str], ring: tuple[str, ...]) -> tuple[str, ...]:
    """Members of which the ring is a rotation."""
    at = ring.index(order[0])
    return ring[at:] + ring[:at]


def document_of(rows: ClusterRows) -> dict[str, Any]:
    """Return the topology document of a cluster, as a node would write it."""
    return {
        "format": FORMAT,
        "cluster": rows.cluster,
        "view_id": rows.view_id,
        "nodes": [
            {
                "node": row.node,
                "is_up": row.is_up,
                "is_draining": row.is_draining,
                "type": "ram" if row.node in ram_nodes(rows) else "disc",
                "zone": row.zone,
                "labels": row.labels,
            }
            for row in rows.nodes
        ],
        "queues": [
            {
                "vhost": row.vhost,
                "queue": row.queue,
                "uid": row.uid,
                "type": row.type,
                "epoch": row.epoch,
                "policy": row.policy,
                "want_mirrors": row.want_mirrors,
                "fixed_nodes": None if row.fixed_nodes is None else list(row.fixed_nodes),
                "exclusive": row.is_exclusive,
                "master": row.master or None,
                "ring": list(row.ring),
                "members": list(members_of(row)),
                "synced": list(row.synced),
                "placement": [],
            }
            for row in rows.queues
        ],
    }
