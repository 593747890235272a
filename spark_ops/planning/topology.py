"""The topology document says where the copies of all queues are at one moment, without their loads.

A node writes it (`GET /api/mirroring/topology`, telemetry's rows of the kind topology), a planner reads it. It is read
strictly: an invalid one is refused, since moves are planned from it. Source: spark §2.6, §3.1.
"""

from typing import Any, Final

from spark_ops.documents import content_hash
from spark_ops.planning.rows import ClusterRows, NodeRow, QueueRow
from spark_ops.planning.strict import Malformed, fields_of, flag, loaded, text, texts, whole

FORMAT: Final = "fluffle-topology/1"


class TopologyError(ValueError):
    """A topology is invalid; the error's text is one line for the operator."""


def parse(data: bytes | str, *, now: float = 0.0) -> ClusterRows:
    """Return a cluster without loads, from a topology's JSON text. Raises: TopologyError."""
    try:
        return rows_of(loaded(data), now=now)
    except Malformed as error:
        raise TopologyError(f"this is no topology: {error}") from error


def rows_of(document: Any, *, now: float = 0.0) -> ClusterRows:
    """Return a cluster without loads, from a topology document.

    now: seconds since 1970, end of the window.   Raises: TopologyError.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise TopologyError(f"this is no topology: its format is not {FORMAT!r}")
    try:
        nodes = tuple(_node(node) for node in fields_of(document, "nodes"))
        ram = tuple(text(node, "node") for node in fields_of(document, "nodes") if node.get("type") == "ram")
        queues = tuple(_queue(queue) for queue in fields_of(document, "queues"))
        if len({row.node for row in nodes}) != len(nodes):
            raise Malformed("a node comes twice")
        if len({(row.vhost, row.queue) for row in queues}) != len(queues):
            raise Malformed("a queue comes twice")
        return ClusterRows(
            text(document, "cluster"),
            whole(document, "view_id"),
            content_hash(document),
            (now, now),
            0.0,
            nodes,
            queues,
            {"ram": ram} if ram else {},
        )
    except (Malformed, ValueError, RecursionError) as error:
        raise TopologyError(f"this is no topology: {error}") from error


def _node(document: dict[str, Any]) -> NodeRow:
    labels = document.get("labels") or {}
    if not isinstance(labels, dict) or any(not isinstance(value, str) for value in labels.values()):
        raise Malformed("labels are no texts")
    return NodeRow(
        text(document, "node"),
        flag(document, "is_up"),
        flag(document, "is_draining"),
        text(document, "zone", optional=True),
        {str(name): str(value) for name, value in labels.items()},
    )


def _queue(document: dict[str, Any]) -> QueueRow:
    """Return a queue without loads. A queue without a master is never moved. Raises: Malformed."""
    ring = texts(document, "ring")
    master = text(document, "master", optional=True)
    synced = texts(document, "synced")
    name = text(document, "queue")
    members = ring if document.get("members") is None else texts(document, "members")
    if len(set(ring)) != len(ring) or not set(synced) <= set(ring):
        raise Malformed(
            f"queue {name[:80]!r} has two copies on a node, or a synchronised one that is not there"
        )
    if master is not None and ring[:1] != (master,):
        raise Malformed(f"the ring of queue {name[:80]!r} does not begin with its master")
    if set(members) != set(ring) or len(members) != len(ring):
        raise Malformed(f"members and ring of queue {name[:80]!r} are not the same nodes")
    return QueueRow(
        text(document, "vhost"),
        name,
        text(document, "uid"),
        text(document, "type"),
        master or "",
        ring,
        synced,
        whole(document, "epoch"),
        text(document, "policy", optional=True),
        whole(document, "want_mirrors"),
        None if document.get("fixed_nodes") is None else texts(document, "fixed_nodes"),
        flag(document, "exclusive"),
        members=members,
    )


def members_of(queue: QueueRow) -> tuple[str, ...]:
    """Return the nodes with a copy of a queue, in the order that decides which one is heir."""
    return queue.members or queue.ring


def ram_nodes(rows: ClusterRows) -> tuple[str, ...]:
    """Return the nodes that keep no quorum queues."""
    ram: tuple[str, ...] = rows.facts.get("ram", ())
    return ram
