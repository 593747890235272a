"""The facts of a replica for `list_rings`, metrics and the web UI."""

from cluster.mirror.replica import Replica
from node.queue.mirroring import ReplicaFacts


def lacks(replica: Replica) -> dict[int, int]:
    """At the master: how many messages its unsynchronised mirrors have not got, at most, by member.

    They lack messages that were there when they got the inventory: later ones have come by the ring. The result
    counts those of them that the queue still has. A mirror that synchronises has reported how many it lacked then,
    which get only fewer.
    """
    replicator, view = replica.replicator, replica.view
    if replicator is None or not replica.is_acting:
        return {}
    found: dict[int, int] = {}
    for member in view.ring:
        if member.id == replica.id or member.id in view.synced:
            continue
        count = replicator.live.count_below(replica.told_from.get(member.id, replicator.next_seq))
        told = replica.sync_progress.get(member.id)
        found[member.id] = count if told is None else min(count, told.total - told.installed)
    return found


def facts(replica: Replica) -> ReplicaFacts:
    """Return how far this copy is."""
    replicator, follower = replica.replicator, replica.follower
    if replicator is not None:
        age_s = replicator.oldest_age_s(replica.now)
        return ReplicaFacts(True, replicator.next_seq, replicator.under_way, age_s, 0)
    if follower is None:
        return ReplicaFacts(False, 0, None, 0.0, 0)
    copy = follower.copy
    # A synchronised copy lacks nothing, and has nothing to count any more.
    missing = 0 if replica.id in replica.view.synced else None if copy.missing is None else len(copy.missing)
    return ReplicaFacts(False, copy.next_seq, missing, 0.0, copy.memory_bytes)
