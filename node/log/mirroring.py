"""Copies of queues and moving masters have these log messages, in RabbitMQ's words where it has them.

The rules are those of `node.log.phrases`. Events of single mirrored queues are in `cluster.mirror.mirror_events`.
Source: management §6.3, the log of RabbitMQ 3.10.8.
"""

from collections.abc import Sequence

from node.log.log import escape

# ---- the store ----


def copies_recovered(count: int) -> str:
    """Return a line about copies that are kept in case their mirrored queues come back from them. info, default."""
    return f"Kept the copies of {count} mirrored queues for the case that these come back from them"


def copies_lossy(count: int) -> str:
    """Return a line about copies on disk that lack confirmed messages. error, default."""
    return (
        f"The copies of {count} mirrored queues have lost messages on this disk, now or at an earlier start: "
        "those of other nodes are waited for"
    )


def copies_discarded(count: int) -> str:
    """Return a line about copies of queues that went on without this node, or were deleted. info, default."""
    return f"Discarded {count} former copies of queues, which went on without this node or were deleted"


# ---- rebalance ----


def rebalance_started(kind: str, vhosts: str, queues: str) -> str:
    """Return a line. info, default. `kind`: all, classic or quorum; the others: patterns."""
    return (
        f"Starting queue rebalance operation: '{escape(kind)}' for vhosts matching '{escape(vhosts)}' "
        f"and queues matching '{escape(queues)}'"
    )


def migrated(queue: str, vhost: str, target: str) -> str:
    """Return a line. info, default."""
    return f"Queue '{escape(queue)}' in vhost '{escape(vhost)}' migrated to {escape(target)}"


def migration_failed(queue: str, vhost: str, reason: str) -> str:
    """Return a line. warning, default."""
    return f"Error migrating queue '{escape(queue)}' in vhost '{escape(vhost)}': {escape(reason)}"


def balanced() -> str:
    """Return a line. info, default."""
    return "All queue masters are balanced"


def rebalanced() -> str:
    """Return a line. info, default."""
    return "Finished queue rebalance operation"


# ---- drain ----


def transferring(count: int, peers: Sequence[str]) -> str:
    """Return a line. info, default. `count`: masters of mirrored queues; `peers`: the nodes that may get them."""
    names = ", ".join(map(escape, peers))
    return (
        f"Will transfer leadership of {count} classic mirrored queues hosted on this node "
        f"to these peer nodes: {names}"
    )


def nobody_to_transfer_to() -> str:
    """Return a line. warning, default."""
    return (
        "Skipping leadership transfer of classic mirrored queues: no candidate (online, not under maintenance) "
        "nodes to transfer to!"
    )


def transferred() -> str:
    """Return a line. info, default."""
    return "Leadership transfer for local classic mirrored queues is complete"


def still_masters(count: int) -> str:
    """Return a line about masters that could not move in time. warning, default."""
    return f"{count} mirrored queues still have their leader on this node"


# ---- plans ----


def plan_begun(plan: str, owner: str, by: str) -> str:
    """Return a line. info, default. by: the user."""
    return f"Plan {escape(plan)} is being carried out by {escape(owner)} (user '{escape(by)}')"


def plan_ended(plan: str, owner: str, by: str) -> str:
    """Return a line. info, default."""
    return f"Plan {escape(plan)} is not carried out any more by {escape(owner)} (user '{escape(by)}')"


def plan_step(plan: str, step: str, action: str, queue: str, vhost: str, node: str) -> str:
    """Return a line. info, default. node: the node whose copy is made, removed, or made the master."""
    return (
        f"Plan {escape(plan)}, step {escape(step)}: {escape(action)} on {escape(node)} "
        f"of queue '{escape(queue)}' in vhost '{escape(vhost)}'"
    )
