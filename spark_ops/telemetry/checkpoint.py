"""A checkpoint is the saved state of the collector for one source: segments read, rows seen, and counts by hour.

A source is the telemetry directory of one node. Its checkpoint is `<root>/_collect/<name>-<hash of the path>.json`,
which the collector replaces atomically after it has written the rows. A collector that dies between the two reads the
same segments again and writes the same files.
"""

import fcntl
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from spark_ops.telemetry.layout import escape
from spark_ops.telemetry.manifest import write_atomically
from spark_ops.telemetry.quality import CHECKPOINTS, Ranges, Watch, facts_of_json

FORMAT: Final = "spark-ops-collect/1"
HOURS_MAX: Final = 14 * 24
"""A checkpoint keeps facts about at most this many hours; the oldest are dropped."""
SEQUENCES_MAX: Final = 200
"""A checkpoint keeps at most this many sequences, one for each process and kind: about forty starts of a node. The
oldest are dropped."""


class CheckpointError(Exception):
    """A checkpoint cannot be read, or another collector holds it; the error's text is one line."""


@dataclass(slots=True)
class Checkpoint:
    """The state of a collector for one source.

    taken: size in bytes, by name, of the segments that were collected and still exist.
    """

    taken: dict[str, int] = field(default_factory=dict)
    watch: Watch = field(default_factory=Watch)


def path_of(root: Path, source: Path) -> Path:
    """Return the path of the checkpoint of a node's directory."""
    where = hashlib.sha256(str(source.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return root / CHECKPOINTS / f"{escape(source.name)[:100]}-{where}.json"


def load(path: Path) -> Checkpoint:
    """Read a checkpoint; without a file, return an empty one. Raises: CheckpointError, OSError."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return Checkpoint()
    except ValueError as error:
        raise CheckpointError(_damaged(path)) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CheckpointError(_damaged(path))
    try:
        watch = Watch(int(document["newest"]))
        for boot_id, kind, ranges in document["seen"]:
            watch.seen[str(boot_id), str(kind)] = Ranges([[int(a), int(b)] for a, b in ranges])
        for item in document["hours"]:
            facts = facts_of_json(item)
            watch.hours[facts.cluster, facts.node, int(item["hour"])] = facts
        return Checkpoint({str(name): int(size) for name, size in document["taken"].items()}, watch)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(_damaged(path)) from error


def _damaged(path: Path) -> str:
    return (
        f"{path} is damaged: remove it to collect all existing segments again (readers drop duplicate rows)"
    )


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint's file, after dropping the facts and sequences that exceed the limits. Raises: OSError."""
    watch = checkpoint.watch
    watch.forget(HOURS_MAX, SEQUENCES_MAX)
    document: dict[str, Any] = {
        "format": FORMAT,
        "taken": checkpoint.taken,
        "newest": watch.newest,
        "seen": [[boot_id, kind, ranges.ranges] for (boot_id, kind), ranges in watch.seen.items()],
        "hours": [
            {"cluster": cluster, "node": node, "hour": hour, **facts.to_json()}
            for (cluster, node, hour), facts in watch.hours.items()
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(document, separators=(",", ":")).encode())


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a source's lock during the `with` block. Raises: CheckpointError if another collector has it, OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(f"another collector holds the lock of {path.stem}") from error
        yield
