"""Masters spread by their number alone, as `rabbitmq-queues rebalance` does: the baseline for a plan.

A broker has this as its rebalance command; tests compare the planner with it.
The share of a node is the number of queues by the number of nodes, rounded up. From each node that has more the
shortest queue goes to the synchronised mirror's node with the fewest. Source: spark §1, §6.24.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_ops.planning.rows import QueueRow


@dataclass(frozen=True, slots=True)
class Promotion:
    """The move of a queue's mastership from one node to another."""

    vhost: str
    queue: str
    source: str
    target: str


def rebalanced(
    queues: Iterable[QueueRow], nodes: Sequence[str], messages: Mapping[tuple[str, str], int] | None = None
) -> list[Promotion]:
    """Return the promotions, in order.

    queues: mirrored ones; those with one copy count, and stay.   nodes: that may have masters.
    messages: lengths by vhost and name; None: the bytes of a copy count instead.
    """
    by_node: dict[str, list[QueueRow]] = {node: [] for node in sorted(nodes)}
    if not by_node:
        return []
    count = 0
    for row in queues:
        count += 1
        if row.master in by_node:
            by_node[row.master].append(row)
    for rows in by_node.values():
        rows.sort(key=lambda row: (_length(row, messages), row.vhost, row.queue))
    share = -(-count // len(by_node))
    moved: set[tuple[str, str]] = set()
    found: list[Promotion] = []
    for node, rows in by_node.items():
        for row in rows.copy():
            if len(rows) <= share:
                break
            target = None if (row.vhost, row.queue) in moved else _target(row, node, by_node)
            if target is not None:
                found.append(Promotion(row.vhost, row.queue, node, target))
                rows.remove(row)
                moved.add((row.vhost, row.queue))
                by_node[target].append(row)
    return found


def _length(row: QueueRow, messages: Mapping[tuple[str, str], int] | None) -> float:
    return row.size if messages is None else messages.get((row.vhost, row.queue), 0)


def _target(row: QueueRow, node: str, by_node: Mapping[str, Sequence[QueueRow]]) -> str | None:
    """Return the node of a synchronised mirror with the fewest masters; None if that would not improve the numbers."""
    able = [each for each in row.ring if each in row.synced and each != row.master and each in by_node]
    if not able:
        return None
    target = min(able, key=lambda each: (len(by_node[each]), each))
    return target if len(by_node[target]) + 1 < len(by_node[node]) else None
