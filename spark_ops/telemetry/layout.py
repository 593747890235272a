"""Paths of telemetry files: only this module builds and parses paths below a root.

    <root>/v1/kind=queue/dt=2026-11-22/hour=13/cluster=C/node=N/<boot>-<seq0>-<seq1>.parquet   rows of one process
    …/hour=13/cluster=C/node=N/late=1/<boot>-<seq0>-<seq1>.parquet   rows later than `LATENESS_S` after the hour
    …/hour=13/cluster=C/node=_all/merged-<hash>.parquet               files of the hour, merged by `compact`
    …/hour=13/_manifest.json                                          which files are replaced, see `manifest`
    <root>/_collect/…  <root>/_quarantine/…                           the collector's state; Spark ignores both

The hour is that of a row's `ts`, in UTC. The files contain the columns kind, cluster and node, so read them without
partition discovery (a list of files, or `recursiveFileLookup`). A stream that must not read merged files uses
`RAW_GLOB`. Spark ignores names that begin with a dot or `_`: unfinished files are `.<name>.tmp`.
Source: spark §2.7.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from spark_ops.telemetry.schema import Kind

VERSION_DIRECTORY: Final = "v1"
MERGED_NODE: Final = "_all"
MERGED_PREFIX: Final = "merged-"
RAW_GLOB: Final = "[0-9a-f]*-*-*.parquet"
"""A glob that matches the files of collectors and not those of `compact`: a boot id never begins with an `m`."""
QUARANTINE: Final = "_quarantine"
"""The directory below the root for rejected lines."""
LATE_DIRECTORY: Final = "late=1"
LATENESS_S: Final = 15 * 60
"""A row is late if its node has already written a row with a `ts` this many seconds after the end of the row's hour."""
TS_MAX_MS: Final = 253_402_300_799_000
"""The end of the year 9999 in ms since 1970, the latest time that `datetime` can represent."""

PART_MAX: Final = 200
"""The maximal length in bytes of one part of a path; file systems allow 255. Longer names are rejected."""

_PLAIN: Final = re.compile(r"[^A-Za-z0-9@.+-]")
_FILE: Final = re.compile(r"(?P<boot>[^/]+)-(?P<first>\d+)-(?P<last>\d+)\.parquet")


def escape(name: str) -> str:
    """Return a name as one part of a path: all but letters, digits and `@.+-` is percent-encoded, as Spark expects.

    A leading dot is encoded too, since it would hide the file.
    """

    def quoted(match: re.Match[str]) -> str:
        return "".join(f"%{byte:02X}" for byte in match.group().encode("utf-8", "surrogatepass"))

    text = _PLAIN.sub(quoted, name)
    return "%2E" + text[1:] if text.startswith(".") else text


def unescape(part: str) -> str:
    """Return the name that `escape` turned into a part of a path."""
    if "%" not in part:
        return part
    text = re.sub(rb"%([0-9A-F]{2})", lambda match: bytes([int(match.group(1), 16)]), part.encode())
    return text.decode("utf-8", "replace")


def hour_of(ts: int) -> datetime:
    """Return the beginning of the hour that contains a time.   ts: ms since 1970, at most `TS_MAX_MS`."""
    return datetime.fromtimestamp(ts // 3_600_000 * 3600, UTC)


def hours(since: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the beginnings of the hours that overlap [since, until)."""
    hour = since.replace(minute=0, second=0, microsecond=0)
    while hour < until:
        yield hour
        hour += timedelta(hours=1)


def kind_directory(root: Path, kind: str) -> Path:
    """Return the directory with all hours of a kind.   kind: a kind of telemetry or of a rollup."""
    return root / VERSION_DIRECTORY / f"kind={kind}"


def hour_directory(root: Path, kind: str, hour: datetime) -> Path:
    """Return the directory of one hour of a kind."""
    return kind_directory(root, kind) / f"dt={hour:%Y-%m-%d}" / f"hour={hour:%H}"


def cluster_directory(hour: Path, cluster: str) -> Path:
    """Return the directory of a cluster in the directory of an hour."""
    return hour / f"cluster={escape(cluster)}"


@dataclass(frozen=True, slots=True, order=True)
class DataFile:
    """A file with rows of one process in one hour.   first, last: the lowest and highest `seq` in the file."""

    kind: Kind
    hour: datetime
    cluster: str
    node: str
    boot_id: str
    first: int
    last: int
    is_late: bool = False

    def path(self, root: Path) -> Path:
        """Return the file's path below a root."""
        directory = (
            cluster_directory(hour_directory(root, self.kind, self.hour), self.cluster)
            / f"node={escape(self.node)}"
        )
        if self.is_late:
            directory /= LATE_DIRECTORY
        return directory / f"{escape(self.boot_id)}-{self.first}-{self.last}.parquet"


def parse(path: Path, root: Path, kind: Kind) -> DataFile | None:
    """Return the file that a path names; None if a collector did not write it, for example if it is a merged file."""
    try:
        parts = path.relative_to(kind_directory(root, kind)).parts
    except ValueError:
        return None
    is_late = len(parts) == 6 and parts[4] == LATE_DIRECTORY
    match = _FILE.fullmatch(parts[-1])
    if match is None or not (len(parts) == 5 or is_late):
        return None
    try:
        hour = datetime.strptime("/".join(parts[:2]), "dt=%Y-%m-%d/hour=%H").replace(tzinfo=UTC)
    except ValueError:
        return None
    if not parts[2].startswith("cluster=") or not parts[3].startswith("node="):
        return None
    return DataFile(
        kind,
        hour,
        unescape(parts[2].removeprefix("cluster=")),
        unescape(parts[3].removeprefix("node=")),
        unescape(match["boot"]),
        int(match["first"]),
        int(match["last"]),
        is_late,
    )


def existing_hours(root: Path, kind: str) -> list[datetime]:
    """Return the hours of a kind that have a directory, in order; directories with other names are skipped."""
    found = []
    for directory in kind_directory(root, kind).glob("dt=*/hour=*"):
        try:
            text = f"{directory.parent.name}/{directory.name}"
            found.append(datetime.strptime(text, "dt=%Y-%m-%d/hour=%H").replace(tzinfo=UTC))
        except ValueError:
            continue
    return sorted(found)


def existing_kinds(root: Path) -> list[str]:
    """Return the kinds that have a directory, including kinds of rollups."""
    return sorted(path.name.removeprefix("kind=") for path in (root / VERSION_DIRECTORY).glob("kind=*"))
