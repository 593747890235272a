"""This module reads the newest topology snapshot below a root, which it joins from its parts, without Spark.

A snapshot is valid if all of its parts exist and their hash matches. An invalid snapshot is skipped, and the previous
one is used. Source: spark §2.6.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_ops.documents import content_hash
from spark_ops.jobs.files import VERSIONS, find

if TYPE_CHECKING:
    from pyarrow import Table  # type: ignore[import-untyped]


class TopologyMissing(Exception):
    """No valid topology was found; the error's text is one line."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of the topology.

    ts: ms since 1970.   document: `fluffle-topology/1`, with all queues.   passed: number of newer, invalid snapshots.
    """

    cluster: str
    ts: int
    topology_hash: str
    document: dict[str, Any]
    passed: int


def latest(root: Path, *, cluster: str | None = None, until: float | None = None) -> Snapshot:
    """Return the newest valid snapshot before `until`, s since 1970.

    Raises: FileNotFoundError if the root is no directory; TopologyMissing if there is no valid snapshot, or if there
    are several clusters and `cluster` is None.
    """
    import pyarrow

    passed = 0
    for hour in reversed(find(root, "topology", None, until).hours):
        try:
            heads = pyarrow.concat_tables([_heads(path) for path in hour.paths])
        except (pyarrow.ArrowException, OSError):
            passed += 1
            continue
        for (name, ts, snapshot), topology_hash in _newest_first(heads, cluster, until):
            document = _whole(hour.paths, name, snapshot)
            if document is not None and content_hash(document) == topology_hash:
                return Snapshot(name, ts, topology_hash, document, passed)
            passed += 1
    wanted = f" of cluster {cluster}" if cluster is not None else ""
    torn = f"; {passed} incomplete snapshots were skipped" if passed else ""
    raise TopologyMissing(f"{root} has no topology{wanted}{torn}: is telemetry on, and was it collected?")


def _heads(path: Path) -> "Table":
    from pyarrow.parquet import read_table  # type: ignore[import-untyped]

    return read_table(path, columns=["v", "cluster", "ts", "snapshot", "topology_hash"], partitioning=None)


def _newest_first(
    heads: "Table", cluster: str | None, until: float | None
) -> Iterator[tuple[tuple[str, int, str], str]]:
    """Yield cluster, time, name and hash of the snapshots of an hour, newest first. Raises: TopologyMissing if there
    are several clusters and `cluster` is None."""
    times: dict[tuple[str, str, str], int] = {}
    for row in heads.to_pylist():
        is_known = row["v"] is not None and VERSIONS[0] <= row["v"] <= VERSIONS[1]
        if is_known and row["snapshot"] is not None and (until is None or row["ts"] < until * 1000):
            key = (row["cluster"], row["snapshot"], row["topology_hash"])
            times[key] = max(times.get(key, 0), row["ts"])
    names = sorted({name for name, _, _ in times})
    if cluster is None and len(names) > 1:
        raise TopologyMissing(f"there are several clusters here, name one: {', '.join(names)}")
    for (name, snapshot, topology_hash), ts in sorted(times.items(), key=lambda item: (-item[1], item[0])):
        if cluster in (None, name):
            yield (name, ts, snapshot), topology_hash


def _whole(paths: tuple[Path, ...], cluster: str, snapshot: str) -> dict[str, Any] | None:
    """Return the document of all parts of a snapshot; None if a part is missing or malformed."""
    from pyarrow.parquet import read_table

    parts: dict[int, dict[str, Any]] = {}
    counts = defaultdict[int, int](int)
    for path in paths:
        table = read_table(
            path,
            columns=["part", "parts", "document"],
            filters=[("snapshot", "=", snapshot), ("cluster", "=", cluster)],
            partitioning=None,
        )
        for row in table.to_pylist():
            try:
                part = json.loads(row["document"])
            except (ValueError, TypeError):
                return None
            if not isinstance(part, dict) or not isinstance(part.get("queues"), list):
                return None
            parts[row["part"]] = part
            counts[row["parts"]] += 1
    if len(counts) != 1 or set(parts) != set(range(next(iter(counts)))):
        return None
    queues = [queue for number in sorted(parts) for queue in parts[number]["queues"]]
    return {**parts[0], "queues": queues}
