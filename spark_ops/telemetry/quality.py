"""Counts of lost, torn, duplicate and late telemetry for each hour, from which the health rules judge the collection.

The Parquet files do not show torn lines, dropped duplicates and lost rows. The collector counts them while it reads
segments, and the health rules read the counts with `read_facts`. Only `read_facts` does I/O.
Source: spark §2.7, §3.2 (telemetry-gap, torn-files, duplicate-node-id).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from spark_ops.telemetry.layout import LATENESS_S, hour_of
from spark_ops.telemetry.segments import Problem, Row

CHECKPOINTS: Final = "_collect"
"""The directory of checkpoints below the root; there is one file for each source, see `checkpoint`."""
OVERLAP_MS: Final = 30_000
"""Two processes with the same node name whose times overlap by more than this are two nodes."""
RANGES_MAX: Final = 1000
"""The maximal number of ranges of one process and kind. Beyond it the oldest hole counts as filled, so that rows which
belong to the hole are dropped as duplicates."""


@dataclass(slots=True)
class HourFacts:
    """Counts of the telemetry that the collector received from one node in one hour.   hour: its beginning.

    rows: rows that were kept.   torn, bad, unknown_versions: rejected lines.
    duplicates: rows that were received before.   late: rows that are late by `layout.LATENESS_S`.
    lost: sequence numbers that were skipped; negative if the collector received such rows later, in another hour.
    skew_max_ms: the largest distance of the clock from the median.   gap_max_ms: the longest time between two rows of
    the kind `node`.   boots: first and last ts of each process.
    """

    cluster: str
    node: str
    hour: datetime
    rows: int = 0
    torn: int = 0
    bad: int = 0
    unknown_versions: int = 0
    duplicates: int = 0
    late: int = 0
    lost: int = 0
    skew_max_ms: int = 0
    gap_max_ms: int = 0
    boots: dict[str, list[int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return all fields except cluster, node and hour, which the caller stores."""
        return {name: getattr(self, name) for name in (*_COUNTS, "boots")}


_COUNTS: Final = (
    "rows",
    "torn",
    "bad",
    "unknown_versions",
    "duplicates",
    "late",
    "lost",
    "skew_max_ms",
    "gap_max_ms",
)


class Ranges:
    """The set of sequence numbers that were seen, as ranges: `[[0, 359], [361, 400]]`."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: list[list[int]] | None = None) -> None:
        self.ranges: list[list[int]] = ranges or []

    def add(self, number: int) -> bool:
        """Add a number. Returns: True if the number is new."""
        ranges = self.ranges
        if not ranges or number > ranges[-1][1] + 1:
            ranges.append([number, number])
        elif number == ranges[-1][1] + 1:
            ranges[-1][1] = number
            return True
        else:
            place = self._place(number)
            if place < len(ranges) and ranges[place][0] <= number:
                return False
            ranges.insert(place, [number, number])
            self._join(place)
        if len(ranges) > RANGES_MAX:
            ranges[0][1] = ranges.pop(1)[1]
        return True

    @property
    def last(self) -> int | None:
        """The highest number in the set; None if the set is empty."""
        return self.ranges[-1][1] if self.ranges else None

    def _place(self, number: int) -> int:
        """Return the index of the first range whose end is not less than the number."""
        low, high = 0, len(self.ranges)
        while low < high:
            middle = (low + high) // 2
            if self.ranges[middle][1] < number:
                low = middle + 1
            else:
                high = middle
        return low

    def _join(self, place: int) -> None:
        """Join a range with its neighbours if they are adjacent."""
        ranges = self.ranges
        if place + 1 < len(ranges) and ranges[place + 1][0] == ranges[place][1] + 1:
            ranges[place][1] = ranges.pop(place + 1)[1]
        if place > 0 and ranges[place - 1][1] + 1 == ranges[place][0]:
            ranges[place - 1][1] = ranges.pop(place)[1]


@dataclass(slots=True)
class Watch:
    """The counts of the rows of one source, which are added in the order of their arrival.

    newest: the latest ts.   seen: sequence numbers by boot_id and kind.
    hours: facts by cluster, node and beginning of the hour in seconds since 1970.
    """

    newest: int = 0
    seen: dict[tuple[str, str], Ranges] = field(default_factory=dict)
    hours: dict[tuple[str, str, int], HourFacts] = field(default_factory=dict)
    _subject: tuple[str, str] = ("", "")
    _now_ms: int = 0
    _last_node_row: dict[str, int] = field(default_factory=dict)

    def row(self, row: Row) -> bool | None:
        """Count a row. Returns: None if the row is a duplicate, else whether it is late."""
        ts, boot_id, seq = row["ts"], row["boot_id"], row["seq"]
        self._subject = (row["cluster"], row["node"])
        facts = self._facts(ts)
        ranges = self.seen.setdefault((boot_id, row["kind"]), Ranges())
        last = ranges.last
        if not ranges.add(seq):
            facts.duplicates += 1
            return None
        if last is not None:
            facts.lost += seq - last - 1 if seq > last else -1
        facts.rows += 1
        times = facts.boots.setdefault(boot_id, [ts, ts])
        times[0], times[1] = min(times[0], ts), max(times[1], ts)
        if row["kind"] == "node":
            self._node_row(row, facts)
        is_late: bool = ts // 3_600_000 * 3_600_000 + 3_600_000 + LATENESS_S * 1000 < self.newest
        facts.late += is_late
        self.newest = max(self.newest, ts)
        return is_late

    def rejected(self, problem: Problem, count: int = 1) -> None:
        """Count rejected lines for the hour of the row with the latest ts and the node of the row before them."""
        facts = self._facts(self.newest or self._now_ms)
        match problem:
            case Problem.TORN:
                facts.torn += count
            case Problem.BAD:
                facts.bad += count
            case Problem.UNKNOWN_VERSION:
                facts.unknown_versions += count

    def of_source(self, cluster: str, node: str, now_ms: int) -> None:
        """Set the node and the time for which rejected lines are counted until the first row is read."""
        if not self._subject[1]:
            self._subject = (cluster, node)
        self._now_ms = now_ms

    def forget(self, hours_max: int, processes_max: int) -> None:
        """Drop the oldest hours and sequences, so that at most the given numbers of them are left."""
        for key in sorted(self.hours, key=lambda key: key[2])[: max(0, len(self.hours) - hours_max)]:
            del self.hours[key]
        for name in list(self.seen)[: max(0, len(self.seen) - processes_max)]:
            del self.seen[name]

    def _facts(self, ts: int) -> HourFacts:
        cluster, node = self._subject
        key = (cluster, node, ts // 3_600_000 * 3600)
        facts = self.hours.get(key)
        if facts is None:
            facts = self.hours[key] = HourFacts(cluster, node, hour_of(ts))
        return facts

    def _node_row(self, row: Row, facts: HourFacts) -> None:
        skew = row.get("skew_ms")
        if isinstance(skew, int) and abs(skew) > facts.skew_max_ms:
            facts.skew_max_ms = abs(skew)
        before = self._last_node_row.get(row["node"])
        if before is not None and row["ts"] - before > facts.gap_max_ms:
            facts.gap_max_ms = row["ts"] - before
        self._last_node_row[row["node"]] = max(row["ts"], before or 0)


def doubled(facts: Iterable[HourFacts]) -> list[tuple[str, str]]:
    """Return cluster and name of each node whose processes overlap by over `OVERLAP_MS`: two nodes share the name."""
    times: dict[tuple[str, str], dict[str, list[int]]] = {}
    for hour in facts:
        boots = times.setdefault((hour.cluster, hour.node), {})
        for boot_id, (first, last) in hour.boots.items():
            known = boots.setdefault(boot_id, [first, last])
            known[0], known[1] = min(known[0], first), max(known[1], last)
    found = []
    for subject, boots in times.items():
        ordered = sorted(boots.values())
        latest = -1
        for first, last in ordered:
            if min(latest, last) - first > OVERLAP_MS:
                found.append(subject)
                break
            latest = max(latest, last)
    return sorted(found)


def read_facts(
    root: Path, *, since: datetime | None = None, until: datetime | None = None
) -> list[HourFacts]:
    """Return the facts in the checkpoints below a root, in order of hour, cluster, node. Facts of one node from several
    sources are added up. A damaged file is skipped, since nothing but these counts is lost. Raises: OSError."""
    found: dict[tuple[datetime, str, str], HourFacts] = {}
    for path in sorted((root / CHECKPOINTS).glob("*.json")):
        for facts in _of_file(path):
            if (since is not None and facts.hour + timedelta(hours=1) <= since) or (
                until is not None and facts.hour >= until
            ):
                continue
            key = (facts.hour, facts.cluster, facts.node)
            found[key] = _added(found[key], facts) if key in found else facts
    return [found[key] for key in sorted(found)]


def _of_file(path: Path) -> list[HourFacts]:
    try:
        document = json.loads(path.read_bytes())
        return [facts_of_json(item) for item in document["hours"]]
    except (ValueError, KeyError, TypeError):
        return []


def facts_of_json(item: Any) -> HourFacts:
    """Return the facts of an hour from a checkpoint's JSON. Raises: ValueError, KeyError, TypeError if malformed."""
    facts = HourFacts(str(item["cluster"]), str(item["node"]), datetime.fromtimestamp(int(item["hour"]), UTC))
    for name in _COUNTS:
        setattr(facts, name, int(item[name]))
    facts.boots = {str(boot_id): [int(first), int(last)] for boot_id, (first, last) in item["boots"].items()}
    return facts


def _added(one: HourFacts, other: HourFacts) -> HourFacts:
    for name in _COUNTS:
        mine, its = getattr(one, name), getattr(other, name)
        setattr(one, name, max(mine, its) if name.endswith("_max_ms") else mine + its)
    for boot_id, (first, last) in other.boots.items():
        times = one.boots.setdefault(boot_id, [first, last])
        times[0], times[1] = min(times[0], first), max(times[1], last)
    return one
