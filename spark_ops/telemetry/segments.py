"""Segments are files of JSON lines to which nodes append rows; this module finds segments and parses their lines.

    <directory>/<node>/<boot_id>-<yyyymmddThhmmss>-<n>.ndjson         closed: the node never writes to it again
    <directory>/<node>/….ndjson.open                                  open: being written, or left over from a dead node

Each line is checked before use. A line without a line feed was torn by a crash. A row is accepted if its version is
at most `VERSION_MAX`: a version only adds fields, so this code can read rows of the next one. Source: spark §2.7.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from spark_ops.telemetry.layout import PART_MAX, TS_MAX_MS, escape
from spark_ops.telemetry.schema import FIELDS, VERSION, FieldType

SUFFIX: Final = ".ndjson"
OPEN_SUFFIX: Final = ".ndjson.open"
LINE_MAX_BYTES: Final = 16 * 1024 * 1024
"""The maximal size of a line. Nodes write no longer ones; a longer one is read in pieces, which are rejected."""
VERSION_MAX: Final = VERSION + 1
"""The latest version of rows that is accepted."""

_BOOT_ID: Final = re.compile(r"[0-9a-f][0-9A-Za-z-]{0,99}")
"""The form of a boot id, which is a UUID. Names of files begin with it, see `layout.RAW_GLOB`."""
_INT_BITS: Final = {"int32": 31, "int64": 63}
_ITEMS: Final[dict[str, FieldType]] = {
    "strings": "string",
    "histogram": "int64",
    "counts": "int64",
    "texts": "string",
}

Row: TypeAlias = dict[str, Any]


class Problem(Enum):
    """The reasons for which a line is rejected."""

    TORN = "torn"
    BAD = "bad"
    UNKNOWN_VERSION = "unknown_version"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A rejected line.   why: the reason in words."""

    problem: Problem
    why: str
    line: bytes


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A segment.   name: the name that the file has when it is closed, even if it is open."""

    node_directory: Path
    name: str
    is_open: bool = False

    @property
    def path(self) -> Path:
        """The current path of the file."""
        return self.node_directory / (self.name + ".open" if self.is_open else self.name)


def node_directories(directory: Path) -> list[Path]:
    """Return the directories of nodes: this directory if it has segments, else its subdirectories. Raises: OSError."""
    if _segments(directory):
        return [directory]
    return sorted(
        path for path in directory.iterdir() if path.is_dir() and not path.name.startswith((".", "_"))
    )


def segments(node_directory: Path) -> list[Segment]:
    """Return all segments of a node, oldest first, by the time and number in their names. Raises: OSError."""
    return sorted(_segments(node_directory), key=lambda segment: (_order(segment.name), segment.name))


def _segments(directory: Path) -> list[Segment]:
    found = []
    for path in directory.iterdir():
        if path.name.startswith("."):
            continue
        if path.name.endswith(SUFFIX):
            found.append(Segment(directory, path.name))
        elif path.name.endswith(OPEN_SUFFIX):
            found.append(Segment(directory, path.name.removesuffix(".open"), is_open=True))
    return found


def _order(name: str) -> tuple[str, int]:
    """Return the time and the number in a segment's name, as a sort key; names of another form sort first."""
    parts = name.removesuffix(SUFFIX).rsplit("-", 2)
    return (parts[1], int(parts[2])) if len(parts) == 3 and parts[2].isdecimal() else ("", 0)


def read_file(path: Path) -> Iterator[Row | Rejected]:
    """Yield each line of a segment as a row or a rejection. A line over `LINE_MAX_BYTES` is yielded as several
    rejections. Raises: OSError."""
    with path.open("rb") as file:
        yield from read(iter(lambda: file.readline(LINE_MAX_BYTES), b""))


def read(lines: Iterable[bytes]) -> Iterator[Row | Rejected]:
    """Yield a row or a rejection for each line, in order; empty lines are skipped."""
    for line in lines:
        if line != b"\n":
            yield parse(line)


def parse(line: bytes) -> Row | Rejected:
    """Return the row if its envelope is valid. Unknown fields are left out; the fields of its kind are not checked."""
    if not line.endswith(b"\n"):
        return Rejected(Problem.TORN, "the last line has no line feed", line)
    try:
        row = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return Rejected(Problem.TORN, "the line is not JSON", line)
    if not isinstance(row, dict):
        return Rejected(Problem.BAD, "the line is not an object", line)
    version = row.get("v")
    if type(version) is int and version > VERSION_MAX:
        return Rejected(Problem.UNKNOWN_VERSION, f"schema version {version}", line)
    why = _what_is_wrong(row)
    if why is not None:
        return Rejected(Problem.BAD, why, line)
    fields = FIELDS[row["kind"]]
    return row if row.keys() <= fields.keys() else {name: row[name] for name in fields if name in row}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _what_is_wrong(row: Row) -> str | None:
    """Return the error in the envelope's fields that determine the path and the key of a row; None if valid."""
    if type(row.get("v")) is not int or row["v"] < 1:
        return "v is not a valid version"
    kind = row.get("kind")
    if not isinstance(kind, str) or kind not in FIELDS:
        return "the kind is unknown"
    for name in ("cluster", "node"):
        value = row.get(name)
        if not isinstance(value, str) or not 0 < len(escape(value)) <= PART_MAX or not is_text(value):
            return f"{name} is not a valid name"
    boot_id = row.get("boot_id")
    if not isinstance(boot_id, str) or _BOOT_ID.fullmatch(boot_id) is None:
        return "boot_id is not valid"
    for name, limit in (("seq", 2**63 - 1), ("ts", TS_MAX_MS), ("mono_ms", 2**63 - 1)):
        value = row.get(name)
        if type(value) is not int or not 0 <= value <= limit:
            return f"{name} is out of range"
    return None


def wrong_field(row: Row) -> str | None:
    """Return the name of the first field whose value has a wrong type; None if there is none."""
    for name, field_type in FIELDS[row["kind"]].items():
        value = row.get(name)
        if value is not None and not fits(value, field_type):
            return name
    return None


def fits(value: Any, field_type: FieldType) -> bool:
    """True if a value that is not null has the type."""
    match field_type:
        case "string":
            return isinstance(value, str) and is_text(value)
        case "bool":
            return isinstance(value, bool)
        case "int32" | "int64":
            limit = 1 << _INT_BITS[field_type]
            return type(value) is int and -limit <= value < limit
        case "double":
            return type(value) is float or (type(value) is int and abs(value) <= 2**53)
        case "strings" | "histogram":
            return isinstance(value, list) and all(fits(item, _ITEMS[field_type]) for item in value)
        case "counts" | "texts":
            return isinstance(value, dict) and all(
                is_text(key) and fits(item, _ITEMS[field_type]) for key, item in value.items()
            )


def is_text(text: str) -> bool:
    """True if a text can be encoded as UTF-8. JSON can contain lone surrogates, which cannot."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)
