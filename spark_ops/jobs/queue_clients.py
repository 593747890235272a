"""The clients of queues by node are collected from columns of maps, without a Python object for each row."""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from spark_ops.jobs.small_columns import Longs

if TYPE_CHECKING:
    from spark_ops.jobs.numbered_names import Nodes


class Clients:
    """Numbers of clients by queue and node.   nodes: numbers of the nodes."""

    def __init__(self, nodes: "Nodes") -> None:
        self._nodes = nodes
        self._pieces: list[tuple[Longs, Longs, Longs]] = []

    def add(self, queue: Longs, column: "pa.ChunkedArray") -> None:
        """Add the clients of queues.   column: for each of them a map from a node to a number, or null."""
        maps = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        offsets = np.asarray(maps.offsets.to_numpy(zero_copy_only=False), dtype=np.int64)
        if not len(maps) or offsets[-1] == offsets[0]:
            return
        known = np.asarray(maps.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        row = np.repeat(np.arange(len(maps)), np.diff(offsets))
        keys = maps.keys.slice(int(offsets[0]), len(row))
        items = maps.items.slice(int(offsets[0]), len(row))
        kept = known[row] & np.asarray(items.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        if not kept.all():
            row, mask = row[kept], pa.array(kept)
            keys, items = keys.filter(mask), items.filter(mask)
        counts = np.asarray(items.to_numpy(zero_copy_only=False), dtype=np.int64)
        self._pieces.append((queue[row], self._nodes.numbers(keys), counts))

    def of_queues(self) -> dict[int, dict[str, int]]:
        """Return the numbers of clients by node, in the order of names, of each queue that has clients.

        Queues with the same clients share a dictionary.
        """
        if not self._pieces:
            return {}
        queue, node, count = (np.concatenate([piece[at] for piece in self._pieces]) for at in range(3))
        names = self._nodes.names
        place = np.empty(len(names), dtype=np.int64)
        place[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        order = np.lexsort((place[node], queue))
        queue, node, count = queue[order], node[order], count[order]
        starts = np.flatnonzero(np.append(True, (np.diff(queue) != 0) | (np.diff(node) != 0)))
        sums = np.add.reduceat(count, starts).tolist()
        queue, own = queue[starts], [names[at] for at in node[starts].tolist()]
        found: dict[int, dict[str, int]] = {}
        same: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
        firsts = np.flatnonzero(np.append(True, np.diff(queue) != 0))
        ends = np.append(firsts[1:], len(queue)).tolist()
        for number, first, end in zip(queue[firsts].tolist(), firsts.tolist(), ends, strict=True):
            pairs = tuple(zip(own[first:end], sums[first:end], strict=True))
            found[number] = same.get(pairs) or same.setdefault(pairs, dict(pairs))
        return found
