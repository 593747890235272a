"""The choice of nodes for a queue's copies and its master, as the queue's policy or type wants it.

Where a policy only says how many, a plan may say which nodes (`QueueRecord.placement`). These functions say what is
wanted; the caller ensures that a synchronised copy is not given up before there is another one.
They read no clock and no randomness: among nodes that are equally good the queue's uid decides, so queues spread
over the nodes, and all nodes get the same answer.

Source: amqp-behaviour §9.2, §9.3; the table of unit_... dynamic_mirroring (reliability §2.2).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from node.catalogue.commands import DeclareQueue
from node.catalogue.policy import QueueSettings
from node.catalogue.records import ClusterMember, QueueRecord

_QUORUM_GROUP_SIZE: Final = 3
"""The number of copies of a quorum queue without the argument x-quorum-initial-group-size."""


def suggested_nodes(
    settings: QueueSettings,
    record: QueueRecord | DeclareQueue,
    master: str,
    current: Sequence[str],
    synced: Collection[str],
    candidates: Sequence[str],
) -> tuple[str, tuple[str, ...]]:
    """Return the node that is to have the master, and those for the mirrors, first those that have a copy.

    master: the master's node.   current, synced: the mirrors' nodes, the oldest first, and those synchronised.
    candidates: nodes that may have a copy: `candidate_nodes`.

    The master only moves to a synchronised mirror, and only if the policy names nodes without the master's own.
    A plan's placement adds to how many a policy wants while copies move, and never takes away from it.
    """
    if record.exclusive_owner is not None:
        return master, ()
    # The synchronised copies come first: those at the end are dropped if some must be, and these cost least.
    kept = [node for node in current if node in candidates and node != master]
    kept.sort(key=lambda node: node not in synced)
    others = [node for node in candidates if node not in current and node != master]
    placement = record.placement if isinstance(record, QueueRecord) else ()
    if record.type == "quorum":
        return master, _exactly(_group_size(record), kept, others, record.uid, placement)
    match settings.ha_mode, settings.ha_params:
        case "all", _:
            return master, (*kept, *others)
        case "exactly", int(count):
            return master, _exactly(count, kept, others, record.uid, placement)
        case "nodes", tuple(names):
            return _named(names, master, kept, synced, candidates)
        case _:
            return master, tuple(node for node in (*kept, *others) if node in placement)


def first_nodes(
    settings: QueueSettings, record: QueueRecord | DeclareQueue, home: str, candidates: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """Return the nodes for a new queue: the master's, and those for the mirrors.

    home: the node where it would be without mirrors. A new queue has nothing to lose, so it may begin elsewhere: if a
        policy names nodes, on one of these; a quorum queue on a disc node.
    """
    if record.exclusive_owner is not None:
        return home, ()
    wanted: Sequence[str] = ()
    if record.type == "quorum":
        wanted = candidates
    elif settings.ha_mode == "nodes" and isinstance(settings.ha_params, tuple):
        wanted = [node for node in settings.ha_params if node in candidates]
    if wanted and home not in wanted:
        home = wanted[0]
    return suggested_nodes(settings, record, home, (), (), candidates)


def candidate_nodes(
    members: Iterable[ClusterMember], record: QueueRecord | DeclareQueue, current: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the nodes that may have a copy of a queue, by name; none in a node without peers.

    They are up and no witness; a quorum queue wants disc nodes. One in maintenance mode gets no new copy, but keeps
    the one it has. If all are in maintenance mode that does not count (§9.2).
    """
    types = ("disc",) if record.type == "quorum" else ("disc", "ram")
    up = sorted((each for each in members if each.is_up and each.type in types), key=lambda each: each.name)
    willing = [each.name for each in up if not each.is_draining or each.name in current]
    return tuple(willing) or tuple(each.name for each in up)


def without(members: Iterable[ClusterMember], stuck: Collection[str]) -> list[ClusterMember]:
    """Return the members, those with stuck message disks as in maintenance mode, so that they get no new copy."""
    return [replace(each, is_draining=True) if each.name in stuck else each for each in members]


def copies_wanted(
    settings: QueueSettings, record: QueueRecord | DeclareQueue, members: Iterable[ClusterMember]
) -> int:
    """Return how many copies a queue is to have if all nodes are up, the master's among them (amqp-behaviour §9.3)."""
    if record.exclusive_owner is not None:
        return 1
    hosts = [member for member in members if member.type != "witness"]
    if record.type == "quorum":
        return min(max(_group_size(record), 1), max(sum(member.type == "disc" for member in hosts), 1))
    match settings.ha_mode, settings.ha_params:
        case "all", _:
            return max(len(hosts), 1)
        case "exactly", int(count):
            return max(min(count, len(hosts)), 1)
        case "nodes", tuple(names):
            return max(sum(member.name in names for member in hosts), 1)
        case _:
            return 1


def nodes_wanted(
    settings: QueueSettings, record: QueueRecord | DeclareQueue, members: Iterable[ClusterMember]
) -> tuple[str, ...]:
    """Return the nodes that are to have a copy, if all were up, by name; none where only their number is wanted."""
    hosts = sorted(member.name for member in members if member.type != "witness")
    if record.type == "quorum":
        hosts = sorted(member.name for member in members if member.type == "disc")
    elif settings.ha_mode == "nodes" and isinstance(settings.ha_params, tuple):
        return tuple(name for name in hosts if name in settings.ha_params)
    wanted = copies_wanted(settings, record, members)
    return tuple(hosts) if 1 < wanted == len(hosts) else ()


def _exactly(
    count: int, kept: Sequence[str], others: Sequence[str], uid: str, placement: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the mirrors' nodes for `count` copies, the master's among them; fewer if there are not enough nodes.

    placement: nodes of a plan: all of them, and before others.
    """
    wanted = max(count - 1, 0)
    placed = tuple(node for node in (*kept, *others) if node in placement)
    if len(placed) >= wanted and placed:
        return placed
    if placed:
        kept = (*placed, *(node for node in kept if node not in placed))
        others = [node for node in others if node not in placed]
    if wanted <= len(kept):
        return tuple(kept[:wanted])
    spread = sorted(
        others, key=lambda node: blake2b(f"{uid} {node}".encode("utf-8", "surrogatepass")).digest()
    )
    return (*kept, *spread[: wanted - len(kept)])


def _named(
    names: Sequence[str],
    master: str,
    kept: Sequence[str],
    synced: Collection[str],
    candidates: Sequence[str],
) -> tuple[str, tuple[str, ...]]:
    """Return the master's node and the mirrors' nodes for a policy that names nodes, as far as these are candidates.

    Without any of them the master is alone. It moves only from another node to a synchronised mirror on one of them.
    """
    available = [node for node in dict.fromkeys(names) if node in candidates]
    if not available:
        return master, ()
    if master not in names:
        master = next((node for node in available if node in synced), master)
    mirrors = [node for node in kept if node in available]
    mirrors += [node for node in available if node not in mirrors]
    return master, tuple(node for node in mirrors if node != master)


def _group_size(record: QueueRecord | DeclareQueue) -> int:
    argument = record.arguments.get("x-quorum-initial-group-size")
    size = None if argument is None else argument.value
    return size if isinstance(size, int) and size > 0 else _QUORUM_GROUP_SIZE
