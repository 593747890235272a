"""This module reads raw telemetry into a Spark frame: live files only, with our schema and without duplicates.

The schema is never inferred or merged: a column that a file lacks is null, and an unknown column is ignored (spark
§2.7). The result says which rows were left out, so that no reader takes incomplete data for complete data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_ops.jobs.files import VERSIONS, Found, find
from spark_ops.telemetry.schema import ENVELOPE, FIELDS, KEY, FieldType, Kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

ORIGIN: Final = "_origin"
"""A column with the minute from which minutes are counted, in rows that the driver has read (`small_files`)."""


@dataclass(frozen=True, slots=True)
class Read:
    """The result of a read.

    frame: has all fields of the kind; empty if there are no rows.   torn: unreadable files, relative to the root.
    unknown_versions: number of rows of a version that is too new.   rows: number of rows in the files, including
    duplicates and rows outside the time range.
    """

    frame: "DataFrame"
    torn: list[str]
    unknown_versions: int
    rows: int = 0


def read(
    spark: "SparkSession",
    root: str | Path,
    kind: Kind,
    *,
    since: float | None = None,
    until: float | None = None,
    found: Found | None = None,
) -> Read:
    """Read the rows of a kind whose `ts` is in [since, until); s since 1970, None: no limit.

    found: the result of `find` for the same arguments, if the caller has it already.
    Raises: FileNotFoundError if the root is no directory.
    """
    if found is None:
        found = find(Path(root).absolute(), kind, since, until)
    frames, unknown = [], 0
    for has_unknown in (False, True):
        for is_unique in (True, False):
            paths = [
                path
                for hour in found.hours
                if (hour.has_unknown, hour.is_unique) == (has_unknown, is_unique)
                for path in hour.paths
            ]
            if not paths:
                continue
            frame = load(spark, paths, schema(kind))
            if has_unknown:
                unknown += frame.where(~_is_known()).count()
                frame = frame.where(_is_known())
            frame = _between(frame, since, until)
            frames.append(frame if is_unique else frame.dropDuplicates(list(KEY)))
    whole = frames[0] if frames else empty(spark, schema(kind))
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return Read(whole, list(found.torn), unknown, found.rows)


def load(spark: "SparkSession", paths: list[Path], wanted: "StructType") -> "DataFrame":
    """Load Parquet files with the columns of a schema. Paths are literal, even if they contain `*` or `[`."""
    reader = spark.read.schema(wanted).option("__globPaths__", "false")
    # The footers are intact. A damaged page fails the job, which `damaged_files` then repeats without that file.
    reader = reader.option("ignoreCorruptFiles", "false").option("ignoreMissingFiles", "false")
    reader = reader.option("parquet.page.verify-checksum.enabled", "true")
    return reader.parquet(*(f"file://{path}" for path in paths))


def empty(spark: "SparkSession", wanted: "StructType") -> "DataFrame":
    """Return a frame of a schema without rows, which Spark knows to be empty when it plans a query."""
    from pyspark.sql import functions as F

    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in wanted.fields]
    return spark.range(0).where(F.lit(False)).select(*nulls)


def names(spark: "SparkSession", columns: Sequence[str], rows: Sequence[Sequence[str]]) -> "DataFrame":
    """Return a frame of strings. It reaches the JVM by Arrow: lists would be read by a Python worker, which takes
    seconds to start, and which the machines of a Spark cluster may not have in the version of this one."""
    import pyarrow  # type: ignore[import-untyped]

    table = {
        name: pyarrow.array([row[at] for row in rows], pyarrow.string()) for at, name in enumerate(columns)
    }
    return spark.createDataFrame(pyarrow.table(table))


def schema(kind: Kind) -> "StructType":
    """Return the schema of a kind; all columns are nullable."""
    return _schema(FIELDS[kind])


def envelope() -> "StructType":
    """Return the schema of the columns that the rows of all kinds have."""
    return _schema(ENVELOPE)


def _schema(columns: Mapping[str, FieldType]) -> "StructType":
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(name, spark_type(of)) for name, of in columns.items()])


def spark_type(of: FieldType) -> "DataType":
    """Return Spark's type for a type of `spark_ops.telemetry.schema`."""
    from pyspark.sql import types

    simple: Final = {
        "int32": types.IntegerType(),
        "int64": types.LongType(),
        "double": types.DoubleType(),
        "bool": types.BooleanType(),
        "string": types.StringType(),
        "strings": types.ArrayType(types.StringType()),
        "histogram": types.ArrayType(types.LongType()),
        "counts": types.MapType(types.StringType(), types.LongType()),
        "texts": types.MapType(types.StringType(), types.StringType()),
    }
    return simple[of]


def _is_known() -> "Column":
    from pyspark.sql import functions as F

    return F.coalesce(F.col("v").between(*VERSIONS), F.lit(False))


def _between(frame: "DataFrame", since: float | None, until: float | None) -> "DataFrame":
    from pyspark.sql import functions as F

    if since is not None:
        frame = frame.where(F.col("ts") >= round(since * 1000))
    if until is not None:
        frame = frame.where(F.col("ts") < round(until * 1000))
    return frame
