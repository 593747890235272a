"""Statistics of each replica's ready messages over a time range: 95th percentile, slope, R² and mean.

Computed from rollups, they are a typical query; computed from raw rows, they are the baseline (bench/spark.py).
Source: spark §3.1, §4.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_ops.jobs.reading import read
from spark_ops.jobs.rollup import mean, merge, r_squared, slope_per_s, with_percentile
from spark_ops.jobs.rollup_fields import ROLLUPS
from spark_ops.jobs.rollup_store import hours

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUBJECT: Final = ("cluster", "vhost", "queue", "node", "role")
SHARE: Final = 0.95
ACCURACY: Final = 1000
"""Spark's accuracy parameter for the percentile of raw rows; the default takes twice as long (spark §4)."""


def from_rollups(spark: "SparkSession", root: Path, *, since: float, until: float) -> "DataFrame":
    """Return a row per replica, from rollups of [since, until), s since 1970: SUBJECT, p95, slope_per_s, r2, mean."""
    from pyspark.sql import functions as F

    frame = hours(spark, root, "queue", since=since, until=until).frame
    # The processes of a node are merged, since only counters depend on the process.
    told = merge(frame.withColumn("boot_id", F.lit("")), "queue", since_s=int(since), only=("ready",))
    told = with_percentile(told, "p95", "ready", SHARE, ROLLUPS["queue"].spreads["ready"])
    return told.select(
        *SUBJECT,
        "p95",
        slope_per_s("ready_fit").alias("slope_per_s"),
        r_squared("ready_fit").alias("r2"),
        mean("ready_fit").alias("mean"),
    )


def from_raw(spark: "SparkSession", root: Path, *, since: float, until: float) -> "DataFrame":
    """Return the columns of `from_rollups`, computed from raw rows."""
    from pyspark.sql import functions as F

    x = (F.col("ts") - int(since * 1000)) / F.lit(1000.0)
    raw = read(spark, root, "queue", since=since, until=until).frame
    return raw.groupBy(*SUBJECT).agg(
        F.percentile_approx("ready", SHARE, ACCURACY).cast("double").alias("p95"),
        F.regr_slope("ready", x).alias("slope_per_s"),
        F.regr_r2("ready", x).alias("r2"),
        F.avg("ready").alias("mean"),
    )


def cpu_s() -> float:
    """Return the CPU time that this process and its descendants have used, in s; Linux only. Raises: OSError."""
    ticks = os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has ended
        parents[int(entry.name)] = int(fields[1])
        used[int(entry.name)] = sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(used.get(process, 0) for process in mine) / ticks
