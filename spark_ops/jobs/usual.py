"""The usual figures of queues: what rollups of the week before a window say about some of its queues.

One query reads all of them. Queues without rollups have no usual figures, and rules then use what the window has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_ops.jobs.reading import names
from spark_ops.jobs.rollup_store import stored
from spark_ops.telemetry.schema import HISTOGRAM_BUCKETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORY_S: Final = 7 * 86_400
"""The time before the window in which the usual figures of a queue are looked up, in s."""

_COLUMNS: Final = (
    "cluster string, vhost string, queue string, role string, first struct<confirm_us: array<bigint>>, "
    "last struct<confirm_us: array<bigint>, msg_bytes: bigint>"
)
"""The columns that are read. Other rollups, of whatever version, may have more."""


@dataclass(frozen=True, slots=True)
class Usual:
    """The usual figures of queues, by (vhost, queue), where they are known.

    sizes: p95 of the bytes at the end of each hour.   confirms: the histogram of the times of confirms.
    """

    sizes: dict[tuple[str, str], float] = field(default_factory=dict)
    confirms: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)


def usual_figures(
    spark: "SparkSession", root: Path, cluster: str, start_s: float, queues: Sequence[tuple[str, str]]
) -> Usual:
    """Return the usual figures of queues in the week before `start_s`, s since 1970, from stored rollups."""
    from pyspark.sql import functions as F

    paths = [path for path, _ in stored(root, "queue", start_s - HISTORY_S, start_s).values()]
    if not paths or not queues:
        return Usual()
    wanted = names(spark, ("vhost", "queue"), queues)
    reader = spark.read.schema(_COLUMNS).option("__globPaths__", "false")
    kept = reader.parquet(*(f"file://{path}" for path in paths))
    of_masters = kept.where((F.col("cluster") == F.lit(cluster)) & (F.col("role") == "master"))

    def risen(bucket: int) -> str:
        return f"coalesce(get(last.confirm_us, {bucket}), 0) - coalesce(get(first.confirm_us, {bucket}), 0)"

    sums = (f"sum(greatest({risen(bucket)}, 0))" for bucket in range(HISTOGRAM_BUCKETS))
    found = (
        of_masters.join(F.broadcast(wanted), ["vhost", "queue"])
        .groupBy("vhost", "queue")
        .agg(
            F.percentile(F.col("last.msg_bytes"), 0.95).alias("size"),
            F.expr(f"array({', '.join(sums)})").alias("confirms"),
        )
        .collect()
    )
    return Usual(
        {(row["vhost"], row["queue"]): float(row["size"]) for row in found if row["size"] is not None},
        {(row["vhost"], row["queue"]): tuple(row["confirms"]) for row in found if any(row["confirms"])},
    )
