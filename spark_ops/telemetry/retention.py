"""Retention removes whole hours of telemetry that are older than their kind's limit.

Raw rows are kept for 3 days, or for 7 if they have less than `SMALL_BYTES`; events and daily rollups for 2 years,
hourly rollups for 90 days. The newest topology is always kept, since a plan needs it. Unknown kinds are kept.
Source: spark §2.7.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from spark_ops.telemetry.layout import (
    QUARANTINE,
    existing_hours,
    existing_kinds,
    hour_directory,
    kind_directory,
)
from spark_ops.telemetry.schema import KINDS

RAW_DAYS: Final = 3
RAW_DAYS_SMALL: Final = 7
SMALL_BYTES: Final = 100_000_000_000
EVENT_DAYS: Final = 730
ROLLUP_DAYS: Final[Mapping[str, int]] = {"rollup1h": 90, "rollup1d": 730}
"""Days for which rollups are kept, by the prefix of the kind's name."""
QUARANTINE_DAYS: Final = 7


@dataclass(frozen=True, slots=True)
class Removed:
    """Counts of one run.   hours: removed directories of hours.   files: files removed from the quarantine."""

    hours: int
    files: int


def days_of(kind: str, raw_days: int) -> int | None:
    """Return for how many days the hours of a kind are kept; None: forever."""
    if kind == "event":
        return EVENT_DAYS
    if kind in KINDS:
        return raw_days
    return next((days for prefix, days in ROLLUP_DAYS.items() if kind.startswith(prefix)), None)


def size_of(directory: Path) -> int:
    """Return the total size in bytes of the files below a directory; files that disappear count 0. Raises: OSError."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def remove_old(root: Path, now: datetime, *, raw_days: int | None = None) -> Removed:
    """Remove the hours that are older than their limit, and old files in the quarantine. Raises: OSError.

    raw_days: days for raw rows; None: 3, or 7 if all raw rows have less than `SMALL_BYTES`.
    """
    if raw_days is None:
        raw = sum(size_of(kind_directory(root, kind)) for kind in KINDS)
        raw_days = RAW_DAYS_SMALL if raw < SMALL_BYTES else RAW_DAYS
    hours = 0
    for kind in existing_kinds(root):
        days = days_of(kind, raw_days)
        if days is None:
            continue
        there = existing_hours(root, kind)
        old = [hour for hour in there if hour + timedelta(hours=1) <= now - timedelta(days=days)]
        if kind == "topology" and old == there:
            old = old[:-1]
        for hour in old:
            directory = hour_directory(root, kind, hour)
            shutil.rmtree(directory)
            hours += 1
            if not any(directory.parent.iterdir()):
                directory.parent.rmdir()
    return Removed(hours, _remove_quarantine(root, now))


def _remove_quarantine(root: Path, now: datetime) -> int:
    limit = (now - timedelta(days=QUARANTINE_DAYS)).timestamp()
    old = [path for path in (root / QUARANTINE).glob("*/*") if path.stat().st_mtime < limit]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)
