"""Snapshots of the topology: rows of kind `topology`, each with some of the queues of one moment.

One node writes them (`Surroundings.is_first`): every few minutes, and soon after copies have moved, but never so often
that they cost more than a fiftieth of a core. Source: spark §2.6.
"""

import hashlib
import json
import time
from collections.abc import Iterator
from typing import Any, Final

from node.app import Node
from node.statistics.topology_document import topology_head, topology_queues
from node.telemetry.rows import Moment, Rows
from node.telemetry.surroundings import Surroundings

PART_QUEUES: Final = 500
SLICE: Final = 50
EVERY_S: Final = 300.0
AFTER_CHANGE_S: Final = 10.0
COST_SHARE: Final = 0.02


class TopologyRows:
    """Makes snapshots of one node's catalogue."""

    def __init__(self, node: Node, surroundings: Surroundings, rows: Rows) -> None:
        self._node = node
        self._surroundings = surroundings
        self._rows = rows
        self._taken = 0
        self._at_s: float | None = None
        self._cost_s = 0.0

    def is_due(self, now: float, *, is_new: bool) -> bool:
        """True if a snapshot is due.   is_new: whether something has changed since the last.   now: monotonic."""
        if self._at_s is None:
            return True
        pause_s = max(AFTER_CHANGE_S if is_new else EVERY_S, self._cost_s / COST_SHARE)
        return now - self._at_s >= pause_s

    def take(self, moment: Moment, now: float) -> Iterator[list[bytes]]:
        """Take a snapshot of this moment. Yields no rows but at the end, with breaks between slices."""
        self._at_s, self._taken, cost_s = now, self._taken + 1, 0.0
        began = time.perf_counter()
        catalogue, own = self._node.broker.catalogue, self._node.config.node_name
        head = topology_head(catalogue, self._rows.cluster, own, *self._surroundings.places())
        queues: list[dict[str, Any]] = []
        for row in topology_queues(catalogue, own):
            queues.append(row)
            if not len(queues) % SLICE:
                cost_s += time.perf_counter() - began
                yield []
                began = time.perf_counter()
        digest = hashlib.sha256()
        for piece in _canonical_pieces(head, queues):
            digest.update(piece.encode("utf-8", "surrogatepass"))
        lines = []
        parts = max(1, -(-len(queues) // PART_QUEUES))
        for part in range(parts):
            some = queues[part * PART_QUEUES : (part + 1) * PART_QUEUES]
            fields = {
                "snapshot": f"{self._rows.boot_id}-{self._taken}",
                "part": part,
                "parts": parts,
                "view_id": head["view_id"],
                "topology_hash": f"sha256:{digest.hexdigest()}",
                "document": _canonical({**head, "queues": some}),
            }
            lines.append(self._rows.line("topology", fields, moment))
            cost_s += time.perf_counter() - began
            yield []
            began = time.perf_counter()
        self._cost_s = cost_s
        yield lines


def _canonical(document: Any) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _canonical_pieces(head: dict[str, Any], queues: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the canonical text of the whole document, piece by piece: `spark_ops.documents.canonical`."""
    for number, name in enumerate(sorted([*head, "queues"])):
        yield f'{"," if number else "{"}"{name}":'
        if name != "queues":
            yield _canonical(head[name])
            continue
        yield "["
        for at, row in enumerate(queues):
            yield f",{_canonical(row)}" if at else _canonical(row)
        yield "]"
    yield "}"
