"""Nodes in order of their score while scores change: a heap in which outdated entries are skipped."""

import heapq
from collections.abc import Callable, Iterable, Iterator


class Coldest:
    """Nodes by score, the lowest first, and by number among equals."""

    def __init__(self, nodes: Iterable[int], score: Callable[[int], float]) -> None:
        self._score = score
        self._heap = [(score(node), node) for node in nodes]
        self._known = {node for _, node in self._heap}
        heapq.heapify(self._heap)

    def changed(self, node: int) -> None:
        """Note that the score of a node may have changed."""
        if node in self._known:
            heapq.heappush(self._heap, (self._score(node), node))

    def first(self, count: int) -> Iterator[int]:
        """Yield at most so many nodes, the lowest score first. Scores must not change during the iteration."""
        taken: list[tuple[float, int]] = []
        seen: set[int] = set()
        try:
            while self._heap and len(taken) < count:
                entry = heapq.heappop(self._heap)
                score, node = entry
                if node in seen or score != self._score(node):
                    continue  # an older entry; `changed` pushed the present one
                seen.add(node)
                taken.append(entry)
                yield node
        finally:
            for entry in taken:
                heapq.heappush(self._heap, entry)
