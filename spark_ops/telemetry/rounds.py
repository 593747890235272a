"""A collector records its rounds, so that readers tell nodes that are silent from rows that are not collected yet.

Rows reach the files some minutes late, and much later if the collector is short of CPU or its disk is slow. Without
this record, a reader would take the silence of the files for the silence of all nodes. Only the machine that runs the
collector knows better.

    <root>/_collect/rounds/<hash>.json    one file for each collector: its machine and its directories

A record that is not renewed belongs to a collector that has ended, maybe with its machine, and says nothing.
"""

import hashlib
import json
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_ops.telemetry.manifest import write_atomically
from spark_ops.telemetry.quality import CHECKPOINTS

FORMAT: Final = "spark-ops-round/1"
DIRECTORY: Final = "rounds"
RENEWED_S: Final = 20.0
"""During a round, a collector renews its record at most this often."""
ALIVE_S: Final = 60.0
"""A collector has ended if it has not renewed its record for this many seconds more than two of its intervals."""
BEHIND_MAX_S: Final = 600.0
"""A collector that has not finished a round for this long says nothing: the silence of its nodes counts then."""


@dataclass(frozen=True, slots=True)
class Round:
    """The record of a collector; times are s since 1970.

    flush_s: its interval.   active: when it was renewed.   complete: all segments that nodes had closed by then were
    collected; before the first round has ended, when the collector started.
    """

    flush_s: float
    active: float
    complete: float


class Rounds:
    """The writer of a collector's record.   root: of the files.   directories: of the segments."""

    def __init__(self, root: Path, directories: Sequence[Path], flush_s: float, now: float) -> None:
        own = [socket.gethostname(), *sorted(str(directory.resolve()) for directory in directories)]
        name = hashlib.sha256("\0".join(own).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._path: Final = root / CHECKPOINTS / DIRECTORY / f"{name}.json"
        self._flush_s: Final = flush_s
        before = _read(self._path)
        self._complete = now if before is None else min(now, before.complete)
        self._active = 0.0

    def renew(self, now: float) -> None:
        """Say that the collector is at work; nothing is written if it has said so within `RENEWED_S`.

        Raises: OSError.
        """
        if not 0.0 <= now - self._active < RENEWED_S:
            self._write(now)

    def ended(self, begun: float, now: float) -> None:
        """Say that a round which began at `begun` has collected all segments. Raises: OSError."""
        self._complete = begun
        self._write(now)

    def _write(self, now: float) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        document = {"format": FORMAT, "flush_s": self._flush_s, "active": now, "complete": self._complete}
        write_atomically(self._path, json.dumps(document).encode())
        self._active = now


def collected_until(root: Path, now: float) -> float:
    """Return the time up to which all live collectors have collected closed segments, s since 1970; at most `now`.

    The root may have collectors of several clusters, of which all count.
    """
    found = (_read(path) for path in (root / CHECKPOINTS / DIRECTORY).glob("*.json"))
    return min([now, *_of_the_live((one for one in found if one is not None), now)])


def _of_the_live(rounds: Iterable[Round], now: float) -> Iterable[float]:
    for one in rounds:
        is_alive = now - one.active <= 2 * one.flush_s + ALIVE_S
        if is_alive and now - one.complete <= BEHIND_MAX_S:
            yield one.complete


def _read(path: Path) -> Round | None:
    """Return a record; None if it cannot be read, which is as if its collector had ended."""
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != FORMAT:
            return None
        return Round(float(document["flush_s"]), float(document["active"]), float(document["complete"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
