"""The facts of a group for `list_rings`, metrics and the web UI."""

from cluster.mirror.group import Group
from node.queue.mirroring import ReplicaFacts


def lacks(group: Group) -> dict[int, int]:
    """At the master: how many messages its unsynchronised mirrors have not got, at most, by member.

    They lack messages that were there when they got the inventory: later ones have come by the ring. The result
    counts those of them that the queue still has. A mirror that synchronises has reported how many it lacked then,
    which get only fewer.
    """
    leader, view = group.leader, group.view
    if leader is None or not group.is_acting:
        return {}
    found: dict[int, int] = {}
    for member in view.ring:
        if member.id == group.id or member.id in view.synced:
            continue
        count = leader.live.count_below(group.told_from.get(member.id, leader.next_seq))
        told = group.sync_progress.get(member.id)
        found[member.id] = count if told is None else min(count, told.total - told.installed)
    return found


def facts(group: Group) -> ReplicaFacts:
    """Return how far this copy is."""
    leader, follower = group.leader, group.follower
    if leader is not None:
        return ReplicaFacts(True, leader.next_seq, group.pending, leader.oldest_age_s(group.now), 0)
    if follower is None:
        return ReplicaFacts(False, 0, None, 0.0, 0)
    copy = follower.copy
    # A synchronised copy owes nothing, and has nothing to count any more.
    owed = 0 if group.id in group.view.synced else None if copy.owed is None else len(copy.owed)
    return ReplicaFacts(False, copy.next_seq, owed, 0.0, copy.memory_bytes)
