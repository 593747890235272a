"""The log messages about copies of queues and masters that move, in RabbitMQ's words where it has them.

As `node.log.phrases`. What becomes of each mirrored queue is put into words by `cluster.mirror.happenings`. Source:
management §6.3, the log of RabbitMQ 3.10.8.
"""

from collections.abc import Sequence

from node.log.log import escape

# ---- the store ----


def copies_recovered(count: int) -> str:
    """Of mirrored queues that may be down without them. info, default."""
    return f"Kept the copies of {count} mirrored queues for the case that these come back from them"


def copies_lossy(count: int) -> str:
    """Those of them that lack something that was safe. error, default."""
    return (
        f"The copies of {count} mirrored queues have lost messages on this disk, now or at an earlier start: "
        "those of other nodes are waited for"
    )


def copies_discarded(count: int) -> str:
    """Of queues that went on without this node, or are gone. info, default."""
    return f"Discarded {count} former copies of queues, which went on without this node or were deleted"


# ---- rebalance ----


def rebalance_started(kind: str, vhosts: str, queues: str) -> str:
    """info, default. `kind`: all, classic or quorum; the others: patterns."""
    return (
        f"Starting queue rebalance operation: '{escape(kind)}' for vhosts matching '{escape(vhosts)}' "
        f"and queues matching '{escape(queues)}'"
    )


def migrated(queue: str, vhost: str, target: str) -> str:
    """info, default."""
    return f"Queue '{escape(queue)}' in vhost '{escape(vhost)}' migrated to {escape(target)}"


def migration_failed(queue: str, vhost: str, reason: str) -> str:
    """warning, default."""
    return f"Error migrating queue '{escape(queue)}' in vhost '{escape(vhost)}': {escape(reason)}"


def balanced() -> str:
    """info, default."""
    return "All queue masters are balanced"


def rebalanced() -> str:
    """info, default."""
    return "Finished queue rebalance operation"


# ---- drain ----


def transferring(count: int, peers: Sequence[str]) -> str:
    """info, default. `count`: masters of mirrored queues; `peers`: where to."""
    names = ", ".join(map(escape, peers))
    return (
        f"Will transfer leadership of {count} classic mirrored queues hosted on this node "
        f"to these peer nodes: {names}"
    )


def nobody_to_transfer_to() -> str:
    """warning, default."""
    return (
        "Skipping leadership transfer of classic mirrored queues: no candidate (online, not under maintenance) "
        "nodes to transfer to!"
    )


def transferred() -> str:
    """info, default."""
    return "Leadership transfer for local classic mirrored queues is complete"


def still_masters(count: int) -> str:
    """Some could not move in time. warning, default."""
    return f"{count} mirrored queues still have their leader on this node"


# ---- plans ----


def plan_begun(plan: str, owner: str, by: str) -> str:
    """info, default. by: the user."""
    return f"Plan {escape(plan)} is being carried out by {escape(owner)} (user '{escape(by)}')"


def plan_ended(plan: str, owner: str, by: str) -> str:
    """info, default."""
    return f"Plan {escape(plan)} is carried out no more by {escape(owner)} (user '{escape(by)}')"


def plan_step(plan: str, step: str, action: str, queue: str, vhost: str, node: str) -> str:
    """info, default. node: whose copy is made, goes or becomes the master's."""
    return (
        f"Plan {escape(plan)}, step {escape(step)}: {escape(action)} on {escape(node)} "
        f"of queue '{escape(queue)}' in vhost '{escape(vhost)}'"
    )
