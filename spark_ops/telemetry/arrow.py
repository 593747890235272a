"""This module writes rows as Parquet files; the columns of each kind come from `schema`.

Files are sorted, so that the rows of a queue are adjacent and compress well (12 to 20 B a row instead of 300 or more).
A file is written under a temporary name and renamed, so that readers see it whole or not at all. This module imports
pyarrow; if pyarrow is missing, `collect` tells the operator what to install.
Source: spark §2.7.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from spark_ops.telemetry.manifest import sync_directory
from spark_ops.telemetry.schema import FIELDS, KINDS, VERSION, FieldType, Kind
from spark_ops.telemetry.segments import Row, wrong_field

TYPES: Final[dict[FieldType, pa.DataType]] = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "strings": pa.list_(pa.string()),
    "counts": pa.map_(pa.string(), pa.int64()),
    "texts": pa.map_(pa.string(), pa.string()),
    "histogram": pa.list_(pa.int64()),
}

SCHEMAS: Final[dict[Kind, pa.Schema]] = {
    kind: pa.schema(
        [pa.field(name, TYPES[field_type]) for name, field_type in FIELDS[kind].items()],
        metadata={"fluffle.telemetry.version": str(VERSION)},
    )
    for kind in KINDS
}

ORDER: Final[dict[Kind, tuple[str, ...]]] = {
    "node": ("node", "boot_id", "ts", "seq"),
    "queue": ("vhost", "queue", "node", "boot_id", "ts", "seq"),
    "link": ("from_node", "to_node", "boot_id", "ts", "seq"),
    "event": ("node", "boot_id", "ts", "seq"),
    "topology": ("snapshot", "part", "seq"),
}
"""The columns by which the rows of a file are sorted. The last ones are unique, which makes the order deterministic."""

UNIQUE: Final = b"fluffle.unique"
"""The metadata key of a file in which no two rows have the same key, see `write`."""
_NULL: Final = type(None)
_PYTHON_TYPES: Final[dict[FieldType, tuple[frozenset[type], frozenset[type]]]] = {
    "int32": (frozenset((int, _NULL)), frozenset()),
    "int64": (frozenset((int, _NULL)), frozenset()),
    "double": (frozenset((int, float, _NULL)), frozenset()),
    "bool": (frozenset((bool, _NULL)), frozenset()),
    "string": (frozenset((str, _NULL)), frozenset()),
    "strings": (frozenset((list, _NULL)), frozenset((str,))),
    "counts": (frozenset((dict, _NULL)), frozenset((int,))),
    "texts": (frozenset((dict, _NULL)), frozenset((str,))),
    "histogram": (frozenset((list, _NULL)), frozenset((int,))),
}
"""The Python types that a column accepts: those of its values, and those of the items of lists or maps."""

ROW_GROUP_ROWS: Final = 256 * 1024
_COMPRESSION_LEVEL: Final = 3


@dataclass(frozen=True, slots=True)
class Converted:
    """A table and the rows that did not fit into it.

    bad: the rows with a value whose type is not that of its field, each with the field's name.
    """

    table: pa.Table
    bad: list[tuple[Row, str]]


def convert(kind: Kind, rows: Sequence[Row]) -> Converted:
    """Return the rows as a table sorted by `ORDER`. The rows are of one kind, and `segments.parse` accepted them."""
    try:
        return Converted(_table(kind, rows), [])
    except (TypeError, ValueError, OverflowError, AttributeError, pa.ArrowException):
        bad = [(row, field) for row in rows if (field := wrong_field(row)) is not None]
        good = [row for row in rows if wrong_field(row) is None]
        return Converted(_table(kind, good), bad)


def _table(kind: Kind, rows: Sequence[Row]) -> pa.Table:
    columns = [
        pa.array(_values(rows, name, field_type), TYPES[field_type])
        for name, field_type in FIELDS[kind].items()
    ]
    table = pa.Table.from_arrays(columns, schema=SCHEMAS[kind])
    return table.sort_by([(name, "ascending") for name in ORDER[kind]])


def _values(rows: Sequence[Row], name: str, field_type: FieldType) -> list[Any]:
    """Return the values of a column. A map becomes pairs sorted by key, so that equal rows give equal files.

    Raises: TypeError if a value is of another type; pyarrow itself would accept 1.5 as an integer.
    """
    values = [row.get(name) for row in rows]
    outer, inner = _PYTHON_TYPES[field_type]
    if not set(map(type, values)) <= outer:
        raise TypeError(name)
    if inner:
        there = [value for value in values if value is not None]
        items = (value.values() for value in there) if dict in outer else there
        if not set(map(type, chain.from_iterable(items))) <= inner:
            raise TypeError(name)
    if dict in outer:
        return [None if value is None else sorted(value.items()) for value in values]
    return values


def write(table: pa.Table, path: Path, *, unique: bool) -> None:
    """Write a file atomically (temporary name, fsync, rename, fsync) and create its directories. Raises: OSError.

    unique: no two rows have the same key. The file's metadata records this, and readers then skip deduplication.
    """
    metadata = {**(table.schema.metadata or {}), UNIQUE: b"1"} if unique else table.schema.metadata
    table = table.replace_schema_metadata(metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            with pq.ParquetWriter(file, table.schema, **options(table.schema)) as writer:
                writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def options(schema: pa.Schema) -> dict[str, Any]:
    """Return the writer's options: delta encoding for rising integers, dictionaries for other flat columns."""
    rising = [
        field.name
        for field in schema
        if pa.types.is_integer(field.type)
        and (field.name.endswith("_total") or field.name in ("seq", "ts", "mono_ms", "uptime_ms"))
    ]
    dictionaries = [
        field.name
        for field in schema
        if field.name not in rising
        and not pa.types.is_nested(field.type)
        and not pa.types.is_floating(field.type)
    ]
    return {
        "compression": "zstd",
        "compression_level": _COMPRESSION_LEVEL,
        "use_dictionary": dictionaries,
        "column_encoding": dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        "version": "2.6",
        "write_page_checksum": True,
    }


def rewrite(source: Path, path: Path, known: pa.Schema) -> int:
    """Copy a file of unique rows, in order, with our columns and options. Returns: the number of rows. Raises: OSError.

    Only one row group at a time is in memory.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    schema = known.with_metadata({**(known.metadata or {}), UNIQUE: b"1"})
    count = 0
    with temporary.open("wb") as file, pq.ParquetFile(source) as old:
        with pq.ParquetWriter(file, schema, **options(schema)) as writer:
            for batch in old.iter_batches(ROW_GROUP_ROWS):
                table = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
                writer.write_table(table)
                count += table.num_rows
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)
    return count
