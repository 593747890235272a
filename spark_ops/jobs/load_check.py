"""The job that checks on Spark what nodes attribute to queues (`spark_ops.planning.load_model`).

Spark makes the amounts of work of each node and minute from the raw rows of a window, and sums their products by node.
The driver gets one row for each node and solves five equations. Only rows of masters have operations; the nodes in a
queue's ring have the same as its mirrors. An idle queue has a row every five minutes, with what it did in them.
Source: spark §3.1.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_ops.jobs.damaged_files import without_damaged
from spark_ops.jobs.health import Window, WindowFiles, files_of
from spark_ops.jobs.minute_facts import known
from spark_ops.jobs.reading import empty, load, schema
from spark_ops.jobs.small_files import LOCAL_ROWS, local, tables_of
from spark_ops.planning.load_model import CAUSES, LoadModel, NodeSums, fitted
from spark_ops.telemetry.schema import Kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ENVELOPE: Final = ("v", "cluster", "node", "boot_id", "seq", "ts", "mono_ms", "skew_ms", "skew_err_ms")
_OPERATIONS: Final = ("pub_total", "dlv_total", "get_total", "ack_total")
_BYTES: Final = ("pub_bytes_total", "dlv_bytes_total")
_SPENT: Final = ("cpu_us_total", "client_us_total", "disk_us_total")
_CPU: Final = ("cpu_user_ms_total", "cpu_sys_ms_total")
_SYNCS: Final = "fsync_count_total"
_COLUMNS: Final[dict[Kind, tuple[str, ...]]] = {
    "node": (*_ENVELOPE, *_CPU, _SYNCS),
    "queue": (*_ENVELOPE, "vhost", "queue", "role", "ring", *_OPERATIONS, *_BYTES, *_SPENT),
}


def load_check(
    spark: "SparkSession", root: Path, window: Window, files: WindowFiles | None = None
) -> LoadModel | None:
    """Return the regression over a window; None if there is too little telemetry for one.

    files: the result of `files_of`, if the caller has it.   Raises: FileNotFoundError, OSError.
    """
    given = [files] if files is not None else []

    def found() -> LoadModel | None:
        read = given.pop() if given else files_of(root, window)
        return fitted(_sums(*(_rows(spark, read, kind, window) for kind in ("node", "queue"))))

    return without_damaged(root, tuple(_COLUMNS), window.since_s, window.until_s, found)


def _rows(spark: "SparkSession", files: WindowFiles, kind: Kind, window: Window) -> "DataFrame":
    """Return the rows of a window with the columns that are needed."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    paths, names = files.paths(kind), _COLUMNS[kind]
    tables = tables_of({kind: paths}, {kind: names}) if files.rows <= LOCAL_ROWS else None
    if tables is not None:
        frame = known(local(spark, kind, tables[kind], window.end))
        first, last = window.start - window.end, 0
    else:
        every = {field.name: field for field in schema(kind).fields}
        wanted = StructType([every[name] for name in names])
        frame = known(load(spark, paths, wanted) if paths else empty(spark, wanted))
        first, last = window.start, window.end
    is_within = (F.col("minute") >= first) & (F.col("minute") < last)
    return frame.where(is_within & (F.col("cluster") == F.lit(window.cluster)))


def _sums(nodes: "DataFrame", queues: "DataFrame") -> list[NodeSums]:
    """Return the sums of each node, in the order of names."""
    from pyspark.sql import functions as F

    work = _work(queues)
    of_masters = work.groupBy("node", "minute").agg(
        F.sum("ops").alias("master_ops"), F.sum("bytes").alias("master_bytes")
    )
    mirrors = work.select(
        F.explode(F.array_except("ring", F.array("node"))).alias("node"), "minute", "ops", "bytes"
    )
    of_mirrors = mirrors.groupBy("node", "minute").agg(
        F.sum("ops").alias("mirror_ops"), F.sum("bytes").alias("mirror_bytes")
    )
    minutes = (
        _spent(nodes)
        .join(of_masters, ["node", "minute"], "left")
        .join(of_mirrors, ["node", "minute"], "left")
        .na.fill(0.0)
    )
    pairs = [(one, other) for at, one in enumerate(CAUSES) for other in CAUSES[at:]]
    summed = minutes.groupBy("node").agg(
        F.count(F.lit(1)).alias("n"),
        F.sum("y").alias("y"),
        F.sum(F.col("y") * F.col("y")).alias("yy"),
        *(F.sum(name).alias(name) for name in CAUSES),
        *(F.sum(F.col(name) * F.col("y")).alias(f"{name}_y") for name in CAUSES),
        *(F.sum(F.col(one) * F.col(other)).alias(f"{one}*{other}") for one, other in pairs),
    )
    found = []
    for row in summed.join(_attributed(queues), "node", "left").orderBy("node").collect():
        xx = tuple(
            tuple(
                row[f"{one}*{other}" if CAUSES.index(one) <= CAUSES.index(other) else f"{other}*{one}"]
                for other in CAUSES
            )
            for one in CAUSES
        )
        x, xy = (tuple(row[f"{name}{end}"] for name in CAUSES) for end in ("", "_y"))
        found.append(
            NodeSums(row["node"], row["n"], x, xx, xy, row["y"], row["yy"], row["attributed"] or 0.0)
        )
    return found


def _work(queues: "DataFrame") -> "DataFrame":
    """Return the operations and bytes of each master in each minute, with its ring."""
    from pyspark.sql import functions as F

    keys = ("node", "vhost", "queue", "boot_id")
    counted = (
        queues.where(F.col("role") == "master")
        .groupBy(*keys, "minute")
        .agg(
            _added(_OPERATIONS).alias("ops"),
            _added(_BYTES).alias("bytes"),
            F.max_by("ring", F.struct("mono_ms", "seq")).alias("ring"),
        )
    )
    return counted.select(
        "node", "minute", "ring", *(_rise(name, keys).alias(name) for name in ("ops", "bytes"))
    )


def _spent(nodes: "DataFrame") -> "DataFrame":
    """Return the CPU time in us (`y`) and the syncs of each node and minute; the first minute of a process has none."""
    from pyspark.sql import functions as F

    keys = ("node", "boot_id")
    counted = nodes.groupBy(*keys, "minute").agg(
        (_added(_CPU) * 1000.0).alias("y"),
        _added((_SYNCS,)).alias("syncs"),
        F.max("mono_ms").alias("mono_ms"),
    )
    risen = counted.select(
        "node", "minute", *(_rise(name, keys).alias(name) for name in ("y", "syncs", "mono_ms"))
    )
    # A minute after a hole has the work of the whole hole, and queues have rows of other minutes in it.
    whole = risen.where((F.col("y") > 0) & (F.col("mono_ms") < 90_000))
    return whole.groupBy("node", "minute").agg(F.sum("y").alias("y"), F.sum("syncs").alias("syncs"))


def _attributed(queues: "DataFrame") -> "DataFrame":
    """Return the CPU time that each node attributes to its queues, in us."""
    from pyspark.sql import functions as F

    spent = sum((F.coalesce(F.col(name), F.lit(0)) for name in _SPENT), F.lit(0))
    of_process = queues.groupBy("node", "vhost", "queue", "boot_id").agg(
        (F.max(spent) - F.min(spent)).cast("double").alias("spent")
    )
    return of_process.groupBy("node").agg(F.sum("spent").alias("attributed"))


def _added(counters: tuple[str, ...]) -> "Column":
    """Return the last value of the sum of counters in a group. Counters only rise, so each is at its maximum then."""
    from pyspark.sql import functions as F

    return sum((F.coalesce(F.max(name), F.lit(0)).cast("double") for name in counters), F.lit(0.0))


def _rise(name: str, keys: tuple[str, ...]) -> "Column":
    """Return by how much a column rose since the last minute of the same process that has one; 0 in the first."""
    from pyspark.sql import Window as Frame
    from pyspark.sql import functions as F

    before = F.lag(name).over(Frame.partitionBy(*keys).orderBy("minute"))
    return F.coalesce(F.greatest(F.col(name) - before, F.lit(0.0)), F.lit(0.0))
