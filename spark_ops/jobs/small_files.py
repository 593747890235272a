"""A small window is read on the driver, file by file, and judged there (`small_health`) or given to Spark as rows.

A minute of a node is a file with some rows. To open one costs Spark more than all that it does with the rows, and it
opens each again for each judgement. Here a process remembers the rows of the files that it has read, so that one which
judges once a minute reads only the files of that minute.

What cannot be read here is left to Spark, which fails in the same file and finds out what is wrong with it
(`damaged_files`). Source: spark §2.7, §4.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_ops.jobs.reading import ORIGIN, schema
from spark_ops.telemetry.schema import Kind

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

LOCAL_ROWS: Final = 50_000
"""The maximal number of rows that are given to Spark; they have some 40 MB in Spark's driver."""
KNOWN_BYTES: Final = 192 << 20
"""The maximal size of the rows that a process remembers; the files that were used last are kept."""


class _Known:
    """The rows of files by path, kind, columns, size and time, at most `KNOWN_BYTES` of them."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._tables: OrderedDict[tuple[Any, ...], pa.Table] = OrderedDict()

    def of(self, path: Path, kind: Kind, wanted: "pa.Schema") -> "pa.Table":
        """Return the rows of a file. Raises: OSError; pyarrow.ArrowException if it cannot be read."""
        status = path.stat()
        key = (path, kind, tuple(wanted.names), status.st_size, status.st_mtime_ns)
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = _read(path, wanted)
            self.size_bytes += found.nbytes
            while self.size_bytes > KNOWN_BYTES and len(self._tables) > 1:
                self.size_bytes -= self._tables.popitem(last=False)[1].nbytes
        self._tables.move_to_end(key)
        return found


_KNOWN: Final = _Known()


def _read(path: Path, wanted: "pa.Schema") -> "pa.Table":
    """Return the columns of a schema; those that the file lacks are null."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    with ParquetFile(path, page_checksum_verification=True) as file:
        there = set(file.schema_arrow.names)
        table = file.read([name for name in wanted.names if name in there], use_threads=False)
    if table.schema.equals(wanted):
        return table
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in there
        else pa.nulls(table.num_rows, field.type)
        for field in wanted
    ]
    return pa.Table.from_arrays(columns, schema=wanted)


def tables_of(
    paths: Mapping[Kind, Sequence[Path]], columns: Mapping[Kind, Sequence[str]]
) -> "dict[Kind, pa.Table] | None":
    """Return the rows of files by kind, with the named columns; None if one of the files cannot be read."""
    import pyarrow as pa

    from spark_ops.telemetry.arrow import SCHEMAS

    found: dict[Kind, pa.Table] = {}
    try:
        for kind, some in paths.items():
            wanted = pa.schema([SCHEMAS[kind].field(name) for name in columns[kind]])
            tables = [_KNOWN.of(path, kind, wanted) for path in some]
            found[kind] = pa.concat_tables(tables) if tables else wanted.empty_table()
    except (pa.ArrowException, OSError):
        return None
    return found


def local(spark: "SparkSession", kind: Kind, table: "pa.Table", origin: int) -> "DataFrame":
    """Return rows of a kind as a frame of one partition, with the column `ORIGIN`: the minute from which
    `minute_facts.known` counts minutes.

    Spark compiles a query again if a number in it is another, and not if a column has other values.
    """
    import pyarrow as pa
    from pyspark.sql.types import LongType, StructField, StructType

    every = {field.name: field for field in schema(kind).fields}
    fields = [every[name] for name in table.schema.names]
    column = pa.repeat(pa.scalar(origin, pa.int64()), table.num_rows)
    wanted = StructType([*fields, StructField(ORIGIN, LongType())])
    return spark.createDataFrame(table.append_column(ORIGIN, column), wanted).coalesce(1)
