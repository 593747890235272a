"""The topology document: which copies of which queue are where, as planners of moves read it.

Of one moment: what the catalogue says is taken at the call, which costs little, and rows are made of it afterwards, as
they are asked for. Loads are no part of it. It has the same bytes on each node that has applied the same commands.
Source: spark §2.6; `spark_ops.planning` reads it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from node.catalogue.catalogue import Catalogue
from node.catalogue.mirrors.mirror_nodes import copies_wanted
from node.catalogue.mirrors.plan_steps import epoch_of
from node.catalogue.mirrors.views import RingMember, View
from node.catalogue.policy import NO_POLICY, EffectivePolicy, queue_settings
from node.catalogue.records import ClusterMember, QueueRecord

FORMAT: Final = "fluffle-topology/1"

NOTHING: Final[Mapping[str, Any]] = {}


def topology_document(
    catalogue: Catalogue,
    cluster: str,
    own: str,
    zones: Mapping[str, str] = NOTHING,
    labels: Mapping[str, Mapping[str, str]] = NOTHING,
) -> dict[str, Any]:
    """Return the whole document at once: some 10 µs a queue. `topology_head` and `topology_queues` make it in
    slices.

    cluster: its name.   own: this node, where queues live that name no home.
    zones, labels: of nodes, where they have some.
    """
    queues = topology_queues(catalogue, own)
    return {**topology_head(catalogue, cluster, own, zones, labels), "queues": list(queues)}


def topology_head(
    catalogue: Catalogue,
    cluster: str,
    own: str,
    zones: Mapping[str, str] = NOTHING,
    labels: Mapping[str, Mapping[str, str]] = NOTHING,
) -> dict[str, Any]:
    """Return the document without its queues.   Arguments: as `topology_document`."""
    members = sorted(catalogue.members.values(), key=lambda each: each.name)
    return {
        "format": FORMAT,
        "cluster": cluster,
        "view_id": catalogue.member_changes,
        "nodes": [
            {
                "node": member.name,
                "is_up": member.is_up,
                "is_draining": member.is_draining,
                "type": member.type,
                "zone": zones.get(member.name),
                "labels": dict(labels.get(member.name, {})),
            }
            for member in members or [ClusterMember(own, "", "", is_up=True)]
            if member.type != "witness"
        ],
    }


def topology_queues(catalogue: Catalogue, own: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of all queues, by vhost and name, as they are now, without later changes."""
    members = dict(catalogue.members)
    taken = [
        (list(catalogue.queues(vhost.name)), catalogue.queue_policies(vhost.name))
        for vhost in sorted(catalogue.vhosts(), key=lambda each: each.name)
    ]
    return _rows(taken, members, own)


def _rows(
    taken: list[tuple[list[QueueRecord], Mapping[str, EffectivePolicy]]],
    members: Mapping[str, ClusterMember],
    own: str,
) -> Iterator[dict[str, Any]]:
    for records, policies in taken:
        for record in sorted(records, key=lambda each: each.name):
            yield _row(record, policies.get(record.name, NO_POLICY), members, own)


def _row(
    record: QueueRecord, effective: EffectivePolicy, members: Mapping[str, ClusterMember], own: str
) -> dict[str, Any]:
    settings = queue_settings(record.arguments, effective)
    is_fixed = settings.ha_mode == "nodes" and isinstance(settings.ha_params, tuple)
    fixed = settings.ha_params if is_fixed and record.type != "quorum" else None
    return {
        "vhost": record.vhost,
        "queue": record.name,
        "uid": record.uid,
        "type": record.type,
        "epoch": epoch_of(record, settings),
        "policy": effective.policy,
        "want_mirrors": copies_wanted(settings, record, members.values()) - 1,
        "fixed_nodes": list(fixed) if isinstance(fixed, tuple) else None,
        "exclusive": record.exclusive_owner is not None,
        "placement": list(record.placement),
        **(_alone(record, members, own) if record.view is None else _mirrored(record.view)),
    }


def _alone(record: QueueRecord, members: Mapping[str, ClusterMember], own: str) -> dict[str, Any]:
    """Return the places of a queue that is not mirrored. While its node is down it has no master."""
    home = record.home or own
    is_there = not members or (home in members and members[home].is_up)
    nodes = [home] if is_there else []
    return {"master": home if is_there else None, "ring": nodes, "members": nodes, "synced": nodes}


def _mirrored(view: View) -> dict[str, Any]:
    """Return the places of a mirrored queue.

    ring: the master first, then as operations travel.   members: in the order that decides on the heir.
    """
    ring = ring_from_master(view)
    return {
        "master": view.master_node,
        "ring": [member.node for member in ring],
        "members": [member.node for member in view.ring],
        "synced": [member.node for member in ring if member.id in view.synced],
    }


def ring_from_master(view: View) -> tuple[RingMember, ...]:
    """Return the copies that are up, the master first, in the order in which operations travel."""
    ring = view.ring
    at = next((index for index, member in enumerate(ring) if member.id == view.master), 0)
    return (*ring[at:], *ring[:at])
