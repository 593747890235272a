"""Holds rows against the schema that readers have: `spark_ops.telemetry.schema`."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from spark_ops.telemetry.schema import ENVELOPE, FIELDS, HISTOGRAM_BUCKETS, FieldType

Row = dict[str, Any]

_NULLABLE: Final = ("skew_ms", "skew_err_ms", "interval_ms")


def _is_int(value: object, bits: int) -> bool:
    limit = 1 << (bits - 1)
    return type(value) is int and -limit <= value < limit


def _is_map(value: object, is_value: Callable[[object], bool]) -> bool:
    return isinstance(value, dict) and all(map(is_value, value.values()))


_IS: Final[dict[FieldType, Callable[[object], bool]]] = {
    "int32": lambda value: _is_int(value, 32),
    "int64": lambda value: _is_int(value, 64),
    "double": lambda value: type(value) in (int, float),
    "bool": lambda value: type(value) is bool,
    "string": lambda value: type(value) is str,
    "strings": lambda value: isinstance(value, list) and all(type(each) is str for each in value),
    "counts": lambda value: _is_map(value, lambda each: _is_int(each, 64)),
    "texts": lambda value: _is_map(value, lambda each: type(each) is str),
    "histogram": lambda value: (
        isinstance(value, list)
        and len(value) == HISTOGRAM_BUCKETS
        and all(_is_int(each, 64) and each >= 0 for each in value)
    ),
}


def problems(row: Row) -> list[str]:
    """Return what is wrong with a row: unknown fields, types, an envelope with gaps."""
    known = FIELDS.get(row.get("kind", ""))  # type: ignore[call-overload]
    if known is None:
        return [f"kind {row.get('kind')}"]
    found = [f"{name}: unknown" for name in row if name not in known]
    found += [
        f"{name}: {row[name]!r} is no {known[name]}"
        for name in row
        if name in known and not _IS[known[name]](row[name])
    ]
    return found + [f"{name}: missing" for name in ENVELOPE if name not in row and name not in _NULLABLE]


def parse(lines: Iterable[bytes]) -> list[Row]:
    """Rows of lines, all of which are right."""
    rows = []
    for line in lines:
        assert line.endswith(b"\n"), line
        row = json.loads(line)
        assert problems(row) == [], row
        rows.append(row)
    return rows


def read(directory: Path) -> list[Row]:
    """All rows of a node's directory, closed or open, by kind and number; a torn last line is left out."""
    rows: list[Row] = []
    for path in sorted(directory.glob("*.ndjson*")):
        rows += parse(line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n"))
    return sorted(rows, key=lambda row: (row["ts"], row["kind"], row["seq"]))
