"""Roots of telemetry for tests: rows as files, where a collector would put them."""

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from spark_ops.jobs.files import UNIQUE_MARK
from spark_ops.telemetry import arrow
from spark_ops.telemetry.layout import DataFile, hour_of
from tests.kit.synthetic.telemetry import Row


def write(root: Path, rows: Iterable[Row], *, is_unique: bool = False) -> list[Path]:
    """One file for each kind, hour and process, named by the rows' seq. is_unique: mark them as such."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[(row["kind"], hour_of(row["ts"]), row["cluster"], row["node"], row["boot_id"])].append(row)
    paths = []
    for group, members in groups.items():
        seqs = [row["seq"] for row in members]
        path = DataFile(*group, min(seqs), max(seqs)).path(root)
        write_file(path, group[0], members, is_unique=is_unique)
        paths.append(path)
    return paths


def write_file(path: Path, kind: Any, rows: list[Row], *, is_unique: bool = False) -> None:
    """A file of rows of a kind, in the order given; an existing one is replaced."""
    columns = {name: [row.get(name) for row in rows] for name in arrow.SCHEMAS[kind].names}
    for field in arrow.SCHEMAS[kind]:
        if str(field.type).startswith("map"):
            columns[field.name] = [
                value if value is None else list(value.items()) for value in columns[field.name]
            ]
    schema = arrow.SCHEMAS[kind]
    if is_unique:
        schema = schema.with_metadata({**(schema.metadata or {}), UNIQUE_MARK: b"1"})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(arrow.pa.Table.from_pydict(columns, schema=schema), path)


def overwrite_pages(path: Path) -> None:
    """Damage the first pages of a file; its footer and its time stay as they are, as with rot on a disk."""
    data, times = bytearray(path.read_bytes()), path.stat()
    data[40:400] = bytes(360)
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def write_slices(root: Path, made: list[Row], minutes: int) -> list[Path]:
    """Files as a collector writes them: of some minutes each; the first ones of node3 come last of all."""
    slices: dict[Any, list[Row]] = defaultdict(list)
    for row in made:
        slices[row["kind"], row["node"], row["boot_id"], row["ts"] // 60_000 // minutes].append(row)
    first = min(key[3] for key in slices)
    late = [key for key in sorted(slices) if key[1] == "node3" and key[3] == first]
    paths = []
    for key in [*(key for key in sorted(slices, key=lambda key: key[3]) if key not in late), *late]:
        some = slices[key]
        seqs = [row["seq"] for row in some]
        hour = hour_of(some[0]["ts"])
        path = DataFile(key[0], hour, some[0]["cluster"], key[1], key[2], min(seqs), max(seqs)).path(root)
        write_file(path, key[0], some)
        paths.append(path)
    return paths
