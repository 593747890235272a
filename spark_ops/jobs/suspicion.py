"""This module selects suspicious queues and links, for which a rule may raise a finding. Only their facts leave Spark.

Each condition is weaker than the rule of the same name, so that it selects all subjects of the rule's findings and
more; the rules decide (`spark_ops.health`). Tests compare the two. Source: spark §3.2.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from spark_ops.health.rules_confirms import bucket_us, first_minute
from spark_ops.health.settings import Settings
from spark_ops.telemetry.schema import HISTOGRAM_BUCKETS, bucket_limit_us

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RECENT_MINUTES: Final = 30
"""If a finding is active at the end of the window, its condition held within this time: it is cleared after 10 minutes,
rules look back 10 minutes, and idle queues write a row only every 5 minutes."""
DILUTED: Final = 10
"""The threshold for redeliveries is divided by this, since a loop of a few minutes is diluted in the recent total."""


_NEVER: Final = -(1 << 40)
"""A minute before all others, from whichever minute they are counted."""


def queue_totals(
    facts: "DataFrame",
    settings: Settings,
    end: int,
    zones: Mapping[str, str | None],
    cores: float,
    silent: Mapping[str, int] | None = None,
) -> "DataFrame":
    """Return one row per queue, from flat facts: vhost, queue, cpu_us of all copies, ready_max, is_suspicious.

    end: the end of the window, counted like the facts' minutes.   zones: zones of the live nodes.   cores: the smallest
    number of cores that a node can use.   silent: the last minute of nodes that do not report any more.
    """
    from pyspark.sql import functions as F

    per_process = facts.groupBy("vhost", "queue", "node", "boot_id").agg(
        *_process_columns(settings, end, zones)
    )
    of = settings.of
    span_s = (F.col("mono_last") - F.col("mono_first")) / 1000
    hot = F.col("recent_cpu_us") / 1e6 > 0.9 * of("hot-single-queue", "share") * cores * F.greatest(
        span_s, F.lit(60.0)
    )
    ratio = of("redelivery-loop", "ratio")
    comes_back = (F.col("redelivered") >= ratio * of("redelivery-loop", "deliveries_min")) & (
        F.col("redelivered") >= ratio / DILUTED * F.col("delivered")
    )
    # A counter that begins in the window rises from 0, and its first row may be after the first messages.
    drops = F.col("dropped") >= of("messages-dropped", "dropped_min") / DILUTED
    # The rule counts from 0 only at the first row of a process in the window.
    begins = F.col("minute_first") >= end - RECENT_MINUTES
    loses = (F.col("letters_lost") >= 1) | (begins & (F.col("letters_lost_last") > 0))
    judged = first_minute(end, round(of("slow-confirms", "minutes")))
    begun = F.when(F.col("minute_first") >= judged, F.lit(0)).otherwise(F.col("slow_least"))
    slow = F.col("slow_most") - F.coalesce(F.col("slow_before"), begun)
    waits = (slow >= 1) & (slow >= 0.01 * (F.col("confirms_most") - F.col("confirms_least")))
    by_copy = F.col("is_odd") | hot | comes_back | drops | loses | F.coalesce(waits, F.lit(False))
    totals = per_process.groupBy("vhost", "queue").agg(
        F.sum("cpu_us").alias("cpu_us"),
        F.max("ready_max").alias("ready_max"),
        F.max(F.coalesce(by_copy, F.lit(False))).alias("is_suspicious"),
        F.max("master_last").alias("master_last"),
        F.max_by("node", "master_last").alias("master_at"),
        F.max("mirror_last").alias("mirror_last"),
    )
    growing = _growing(facts, settings, end)
    joined = totals.join(growing, ["vhost", "queue"], "left")
    suspicious = F.col("is_suspicious") | F.coalesce("is_growing", F.lit(False))
    suspicious = suspicious | _lost_master(settings, end, silent or {})
    return joined.select("vhost", "queue", "cpu_us", "ready_max", suspicious.alias("is_suspicious"))


def _lost_master(settings: Settings, end: int, silent: Mapping[str, int]) -> "Column":
    """Return the condition that a queue may have no master: its mirrors report and its master does not, or its last
    master was on a silent node."""
    from pyspark.sql import functions as F

    stale = round(settings.health["stale_minutes"])
    is_told = F.col("mirror_last") >= end - 2 * stale
    found = is_told & (F.coalesce(F.col("master_last"), F.lit(_NEVER)) < F.col("mirror_last") - stale)
    for node, last in sorted(silent.items()):
        found = found | ((F.col("master_at") == node) & (F.col("master_last") >= last - stale))
    return F.coalesce(found, F.lit(False))


def _process_columns(settings: Settings, end: int, zones: Mapping[str, str | None]) -> "list[Column]":
    """Return the aggregates for each process of a copy."""
    from pyspark.sql import functions as F

    minute = F.col("minute")
    is_recent = minute >= end - RECENT_MINUTES
    is_hour = minute >= end - round(settings.of("hot-single-queue", "minutes"))

    def rise(column: str, where: "Column") -> "Column":
        value = F.when(where, F.col(column))
        return F.coalesce(F.max(value) - F.min(value), F.lit(0))

    return [
        rise("cpu_us_total", F.lit(True)).alias("cpu_us"),
        rise("cpu_us_total", is_hour).alias("recent_cpu_us"),
        rise("redeliver_total", is_recent).alias("redelivered"),
        (rise("dropped_total", is_recent) - rise("dead_lettered_total", is_recent)).alias("dropped"),
        rise("dead_letters_lost_total", is_recent).alias("letters_lost"),
        F.coalesce(F.max(F.when(is_recent, F.col("dead_letters_lost_total"))), F.lit(0)).alias(
            "letters_lost_last"
        ),
        F.min(minute).alias("minute_first"),
        *_confirm_columns(settings, end),
        (rise("dlv_total", is_recent) + rise("get_total", is_recent)).alias("delivered"),
        F.max(F.when(is_hour, F.col("mono_ms"))).alias("mono_last"),
        F.min(F.when(is_hour, F.col("mono_ms"))).alias("mono_first"),
        F.max("ready").alias("ready_max"),
        F.max(F.when(F.col("role") == "master", minute)).alias("master_last"),
        F.max(F.when(F.col("role") == "mirror", minute)).alias("mirror_last"),
        F.max(is_recent & F.coalesce(_odd(settings, zones), F.lit(False))).alias("is_odd"),
    ]


def _confirm_columns(settings: Settings, end: int) -> "list[Column]":
    """Return the aggregates of the histograms of confirms: of all confirms and of those that no rule calls fast."""
    from pyspark.sql import functions as F

    kind = "slow-confirms"
    of = settings.of
    minutes, minute = round(of(kind, "minutes")), F.col("minute")
    least_us = 1000 * min(of(kind, name) for name in ("floor_ms", "bound_ms", "stuck_ms"))
    limits = [bucket_limit_us(at) for at in range(HISTOGRAM_BUCKETS)]
    first = next(
        (at for at in range(HISTOGRAM_BUCKETS) if bucket_us(limits, at) >= least_us), HISTOGRAM_BUCKETS
    )
    is_judged = (minute >= end - minutes) & (minute < end)
    is_before = (minute >= first_minute(end, minutes)) & (minute < end - minutes)

    def total(since: int, where: "Column") -> "Column":
        some = F.slice("confirm_us", since + 1, HISTOGRAM_BUCKETS)
        return F.when(where, F.aggregate(some, F.lit(0).cast("long"), lambda a, b: a + b))

    return [
        F.max(total(first, is_judged)).alias("slow_most"),
        F.min(total(first, is_judged)).alias("slow_least"),
        F.max(total(first, is_before)).alias("slow_before"),
        F.max(total(0, is_judged)).alias("confirms_most"),
        F.min(total(0, is_judged)).alias("confirms_least"),
    ]


def _odd(settings: Settings, zones: Mapping[str, str | None]) -> "Column":
    """Return the condition that a minute of a copy is bad for any rule."""
    from pyspark.sql import functions as F

    of = settings.of
    lag_ms = min(of("mirror-lagging", "lag_ms"), of("mirror-lagging", "growing_lag_ms"))
    starved = of("consumer-starvation", "util")
    slo_ms = of("consumer-starvation", "head_age_slo_s") * 1000
    conditions = [
        F.size("ring") - 1 < F.col("want_mirrors"),
        F.size(F.array_except("ring", "synced")) > 0,
        F.col("lag_ms_max") >= lag_ms,
        (F.col("consumers") == 0) & (F.col("ready") > 0),
        (F.col("consumers") > 0) & (F.col("consumer_util") < starved),
        (F.col("prefetch_sum") > 0)
        & (F.col("unacked") >= of("unacked-stuck", "filled") * F.col("prefetch_sum")),
    ]
    if slo_ms:
        conditions.append((F.col("consumers") > 0) & (F.col("head_age_ms") > slo_ms))
    live = {node: zone for node, zone in zones.items() if zone is not None}
    if len(set(live.values())) > 1:
        by_node = F.map_from_arrays(
            F.array(*(F.lit(node) for node in live)), F.array(*(F.lit(zone) for zone in live.values()))
        )
        of_ring = F.array_distinct(F.transform("ring", lambda node: F.try_element_at(by_node, node)))
        conditions.append((F.size("ring") > 1) & (F.size(of_ring) == 1))
    found = F.lit(False)
    for condition in conditions:
        found = found | F.coalesce(condition, F.lit(False))
    return found


def _growing(facts: "DataFrame", settings: Settings, end: int) -> "DataFrame":
    """Return for each queue whether its bytes grow linearly or its master changed often."""
    from pyspark.sql import functions as F

    kind = "runaway-queue"
    minutes = max(settings.of(kind, "fit_minutes"), settings.of(kind, "minutes"))
    x = (F.col("minute") - end).cast("double")
    y = F.when(F.col("minute") >= end - minutes, F.col("msg_bytes").cast("double"))
    slope, r2 = F.regr_slope(y, x), F.regr_r2(y, x)
    rise = slope * F.lit(float(minutes))
    is_line = (rise > 0.9 * settings.of(kind, "rise_min_bytes")) & (r2 > settings.of(kind, "r2_min") - 1e-6)
    changes = F.size(F.collect_set("epoch")) > settings.of("unstable-failover", "changes")
    found = F.coalesce(is_line, F.lit(False)) | changes
    return facts.where(F.col("role") == "master").groupBy("vhost", "queue").agg(found.alias("is_growing"))


def suspicious_links(facts: "DataFrame", settings: Settings) -> "DataFrame":
    """Return from_node and to_node of the links that reconnected or had slow round trips, from flat facts."""
    from pyspark.sql import functions as F

    slow_us = settings.of("flapping-link", "hop_min_us")
    first = next(at for at in range(HISTOGRAM_BUCKETS) if bucket_limit_us(at) > slow_us)
    length = F.greatest(F.size("rtt_us") - first, F.lit(0))
    slow = F.aggregate(F.slice("rtt_us", F.lit(first + 1), length), F.lit(0).cast("long"), lambda a, b: a + b)
    counted = facts.withColumn("slow", slow)
    by_process = counted.groupBy("from_node", "to_node", "boot_id").agg(
        (F.max("reconnects_total") - F.min("reconnects_total")).alias("cuts"),
        F.max("reconnects_total").alias("cuts_of_process"),
        F.min("mono_ms").alias("mono_first"),
        (F.max("slow") - F.min("slow")).alias("slow"),
        F.max("slow").alias("slow_of_process"),
    )
    # If a process has just started, its counts before its first minute in the window are recent too.
    is_young = F.col("mono_first") < 600_000
    found = (F.col("cuts") > 0) | (F.col("slow") > 0)
    found = found | (is_young & ((F.col("cuts_of_process") > 0) | (F.col("slow_of_process") > 0)))
    return by_process.where(F.coalesce(found, F.lit(False))).select("from_node", "to_node").distinct()
