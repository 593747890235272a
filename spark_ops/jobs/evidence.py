"""On Spark, facts about minutes are reduced to the evidence on which the rules run on the driver.

The evidence is small for any cluster. It has all minutes of all nodes, but only suspicious queues and links
(`suspicion`), at most `QUEUES_MAX` queues. Loads, growth and coverage are aggregated on Spark. Source: spark §3.2.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from spark_ops.health.facts import (
    Depth,
    EventFact,
    Evidence,
    LinkMinute,
    MemoryGrowth,
    NodeHour,
    NodeMinute,
    QueueGrowth,
    QueueHistory,
    ReplicaMinute,
    RowsSeen,
)
from spark_ops.health.forecast import Growth
from spark_ops.health.rules_confirms import first_minute
from spark_ops.health.settings import Settings
from spark_ops.jobs.minute_facts import MinuteFacts, columns, within
from spark_ops.jobs.reading import names
from spark_ops.jobs.suspicion import queue_totals, suspicious_links
from spark_ops.jobs.usual import Usual
from spark_ops.telemetry.schema import HISTOGRAM_BUCKETS, bucket_limit_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

QUEUES_MAX: Final = 2000
"""The maximal number of suspicious queues in the evidence; the busiest are kept. `Evidence.skipped` counts the rest."""
DEPTHS_MAX: Final = 10
SILENT_MINUTES: Final = 2
"""The masters of a node that is silent for longer are checked; the rule waits longer."""
GROWING_MAX: Final = 5
"""The maximal number of queues that are named as causes of a node's memory growth; the fastest-growing are kept."""
EVENTS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Intake:
    """The problems in the collected telemetry.   torn: unreadable files.   torn_rows: their rows, by the files' names.

    torn_lines, late, duplicates: counts by the collectors.
    """

    torn: tuple[str, ...] = ()
    torn_rows: tuple[RowsSeen, ...] = ()
    torn_lines: int = 0
    late: int = 0
    duplicates: int = 0
    unknown_versions: int = 0


def gather(
    facts: MinuteFacts,
    cluster: str,
    start: int,
    end: int,
    settings: Settings,
    intake: Intake,
    usual: Callable[[Sequence[tuple[str, str]]], Usual] | None = None,
) -> Evidence:
    """Gather the evidence of a cluster in the minutes [start, end).

    usual: returns the usual figures of given queues.
    """
    some = within(facts, cluster, start, end)
    nodes = _nodes(some.node, end)
    events = _events(some.event)
    latest = {node: own[-1] for node, own in nodes.items() if own[-1].minute >= end - 6}
    cores = min([float(fact.cores or 1) for fact in latest.values()] or [1.0])
    usable = min(cores, settings.of("hot-single-queue", "cores_usable"))
    flat = _with_confirms_since(
        some.queue.select(*columns("queue")),
        first_minute(0, round(settings.of("slow-confirms", "minutes"))),
    ).persist()
    try:
        zones = {node: fact.zone for node, fact in latest.items()}
        silent = {
            node: own[-1].minute - end for node, own in nodes.items() if own[-1].minute < end - SILENT_MINUTES
        }
        totals = queue_totals(flat, settings, 0, zones, usable, silent).persist()
        try:
            queues, depths, skipped = _queues(flat, totals, events, end)
        finally:
            totals.unpersist()
        known = usual([(each.vhost, each.queue) for each in queues]) if usual and queues else Usual()
        return Evidence(
            cluster,
            start,
            end,
            nodes=nodes,
            queues=queues,
            links=_links(some.link, settings, end),
            events=events,
            rows=with_torn(_rows_seen(some.rows), intake.torn_rows),
            loads=_loads(flat, start, end),
            memory=_memory(flat, (start - end) / 2),
            depths=depths,
            before=known.sizes,
            confirms_before=known.confirms,
            torn=intake.torn,
            torn_lines=intake.torn_lines,
            late=intake.late,
            duplicates=intake.duplicates,
            unknown_versions=intake.unknown_versions,
            skipped=skipped,
            bucket_limits_us=tuple(bucket_limit_us(at) for at in range(HISTOGRAM_BUCKETS)),
        )
    finally:
        flat.unpersist()


def gather_growth(facts: MinuteFacts, cluster: str, start: int, end: int) -> Evidence:
    """Gather only the part of the evidence that forecasts need."""
    some = within(facts, cluster, start, end)
    flat = some.queue.select(*columns("queue"))
    return Evidence(
        cluster, start, end, nodes=_nodes(some.node, end), memory=_memory(flat, (start - end) / 2)
    )


def _with_confirms_since(flat: "DataFrame", minute: int) -> "DataFrame":
    """Return flat facts without the histograms of confirms before a minute: no rule reads them, and they are large."""
    from pyspark.sql import functions as F

    return flat.withColumn("confirm_us", F.when(F.col("minute") >= minute, F.col("confirm_us")))


def _fact(of: type, row: "Row", end: int) -> Any:
    """Return a row of flat facts as an object of the class `of`.   end: the minute from which they are counted."""
    given = row.asDict()
    given["boot"] = given.pop("boot_id")
    given["minute"] += end
    values = {field.name: given[field.name] for field in fields(of)}
    return of(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def _in_order(facts: Iterable[Any]) -> list[Any]:
    return sorted(facts, key=lambda fact: (fact.minute, fact.mono_ms, fact.boot))


def _nodes(frame: "DataFrame", end: int) -> dict[str, list[NodeMinute]]:
    found: dict[str, list[NodeMinute]] = defaultdict(list)
    for row in frame.select(*columns("node")).collect():
        found[row["node"]].append(_fact(NodeMinute, row, end))
    return {node: _in_order(found[node]) for node in sorted(found)}


def _events(frame: "DataFrame") -> tuple[EventFact, ...]:
    names = [field.name for field in fields(EventFact)]
    rows = frame.select(*names).orderBy("ts", "node", "event").limit(EVENTS_MAX).collect()
    return tuple(
        sorted((EventFact(*row) for row in rows), key=lambda event: (event.ts, event.node, event.event))
    )


def _queues(
    flat: "DataFrame", totals: "DataFrame", events: Sequence[EventFact], end: int
) -> tuple[tuple[QueueHistory, ...], tuple[Depth, ...], int]:
    """Return suspicious queues, the depths of the longest queues, and the number of suspicious queues left out."""
    from pyspark.sql import functions as F

    told = {(event.vhost, event.queue) for event in events if event.unsynced_promotion}
    if told:
        key = F.struct("vhost", "queue")
        named = [
            F.struct(F.lit(vhost).alias("vhost"), F.lit(queue).alias("queue"))
            for vhost, queue in sorted((str(vhost), str(queue)) for vhost, queue in told)[:QUEUES_MAX]
        ]
        totals = totals.withColumn("is_suspicious", F.col("is_suspicious") | key.isin(*named))
    row = totals.agg(F.count(F.lit(1)), F.sum("cpu_us"), F.sum(F.col("is_suspicious").cast("int"))).first()
    count, cpu_us, suspicious = (int(value or 0) for value in row or (0, 0, 0))
    chosen = (
        totals.where("is_suspicious")
        .orderBy(F.desc("cpu_us"), F.desc("ready_max"), "vhost", "queue")
        .limit(QUEUES_MAX)
    )
    # Names of queues are arbitrary, so they are joined and not written into a query.
    copies: dict[tuple[str, str], dict[str, list[ReplicaMinute]]] = defaultdict(lambda: defaultdict(list))
    shares: dict[tuple[str, str], float] = {}
    if suspicious:
        used = chosen.select("vhost", "queue", F.col("cpu_us").alias("own_cpu_us"))
        for one in flat.join(F.broadcast(used), ["vhost", "queue"]).collect():
            name = one["vhost"], one["queue"]
            copies[name][one["node"]].append(_fact(ReplicaMinute, one, end))
            shares[name] = (one["own_cpu_us"] or 0) / cpu_us if cpu_us else 1 / max(1, count)
    histories = tuple(
        QueueHistory(
            *name, {node: _in_order(copies[name][node]) for node in sorted(copies[name])}, shares[name]
        )
        for name in sorted(copies)
    )
    return histories, _depths(flat, totals, end), max(0, suspicious - len(histories))


def _depths(flat: "DataFrame", totals: "DataFrame", end: int) -> tuple[Depth, ...]:
    from pyspark.sql import functions as F

    longest = (
        totals.where(F.col("ready_max").isNotNull())
        .orderBy(F.desc("ready_max"), "vhost", "queue")
        .limit(DEPTHS_MAX)
        .select("vhost", "queue")
    )
    ready = flat.where((F.col("role") == "master") & F.col("ready").isNotNull())
    by_minute = ready.join(F.broadcast(longest), ["vhost", "queue"]).groupBy("vhost", "queue", "minute")
    points: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row in by_minute.agg(F.max("ready").alias("ready")).collect():
        points[row["vhost"], row["queue"]].append((row["minute"] + end, row["ready"]))
    found = [Depth(*name, tuple(sorted(own))) for name, own in points.items()]
    return tuple(
        sorted(found, key=lambda depth: (-max(n for _, n in depth.points), depth.vhost, depth.queue))
    )


def _links(frame: "DataFrame", settings: Settings, end: int) -> dict[tuple[str, str], list[LinkMinute]]:
    from pyspark.sql import functions as F

    flat = frame.select(*columns("link")).persist()
    found: dict[tuple[str, str], list[LinkMinute]] = defaultdict(list)
    try:
        bad = suspicious_links(flat, settings).collect()
        if bad:
            wanted = names(flat.sparkSession, ("from_node", "to_node"), bad)
            for row in flat.join(F.broadcast(wanted), ["from_node", "to_node"], "left_semi").collect():
                found[row["from_node"], row["to_node"]].append(_fact(LinkMinute, row, end))
    finally:
        flat.unpersist()
    return {name: _in_order(found[name]) for name in sorted(found)}


def _rows_seen(frame: "DataFrame") -> tuple[RowsSeen, ...]:
    from pyspark.sql import functions as F

    of_process = frame.groupBy("node", "boot_id", "kind", "block").agg(
        F.bit_or("bits").alias("bits"),
        F.min("seq_min").alias("seq_min"),
        F.max("seq_max").alias("seq_max"),
        F.sum("n").alias("n"),
    )
    summed = of_process.groupBy("node", "boot_id", "kind").agg(
        F.min("seq_min"), F.max("seq_max"), F.sum(F.bit_count("bits")), F.sum("n")
    )
    return tuple(RowsSeen(*row) for row in sorted(summed.collect()))


def with_torn(seen: Iterable[RowsSeen], torn: Iterable[RowsSeen]) -> tuple[RowsSeen, ...]:
    """Extend the ranges of sequence numbers by the rows of torn files, so that these count as expected."""
    found = {(each.node, each.boot, each.kind): each for each in seen}
    for each in torn:
        key = (each.node, each.boot, each.kind)
        known = found.get(key, each)
        found[key] = replace(
            known, seq_min=min(known.seq_min, each.seq_min), seq_max=max(known.seq_max, each.seq_max)
        )
    return tuple(found[key] for key in sorted(found))


def _loads(flat: "DataFrame", start: int, end: int) -> tuple[NodeHour, ...]:
    from pyspark.sql import functions as F

    hour = F.floor((F.lit(-1) - F.col("minute")) / 60).alias("hour")
    by_copy = flat.where(F.col("role") == "master").groupBy("node", "vhost", "queue", "boot_id", hour)
    spent = by_copy.agg((F.max("cpu_us_total") - F.min("cpu_us_total")).alias("cpu_us"))
    found = []
    for node, back, cpu_us in sorted(spent.groupBy("node", "hour").agg(F.sum("cpu_us")).collect()):
        first = end - 60 * (back + 1)
        seconds = 60 * (end - 60 * back - max(first, start))
        found.append(NodeHour(node, first, (cpu_us or 0) / 1e6 / seconds))
    return tuple(found)


def _memory(flat: "DataFrame", middle: float) -> tuple[MemoryGrowth, ...]:
    """Fit a line to the memory of each copy, and add the slopes and residual variances by node."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    x, y = (F.col("minute") - F.lit(middle)) * 60.0, F.col("mem_bytes").cast("double")

    def half(is_first: bool) -> "Any":
        own = F.when((x < 0) if is_first else (x >= 0), y)
        enough = F.count(own) >= 3
        return F.coalesce(F.when(enough, F.regr_slope(own, x)), F.lit(0.0))

    lines = (
        flat.where(y.isNotNull())
        .groupBy("node", "vhost", "queue")
        .agg(
            F.regr_count(y, x).alias("n"),
            F.regr_sxx(y, x).alias("sxx"),
            F.regr_sxy(y, x).alias("sxy"),
            F.regr_syy(y, x).alias("syy"),
            (F.max(x) - F.min(x)).alias("span"),
            half(True).alias("first"),
            half(False).alias("second"),
        )
        .where((F.col("n") >= 3) & (F.col("sxx") > 0))
        .withColumn("slope", F.col("sxy") / F.col("sxx"))
        .withColumn("left", F.greatest(F.lit(0.0), F.col("syy") - F.col("slope") * F.col("sxy")))
        .withColumn("variance", F.col("left") / (F.col("n") - 2) / F.col("sxx"))
    )
    of_node = Window.partitionBy("node")
    sums = {name: F.sum(name) for name in ("slope", "variance", "left", "first", "second")}
    most = {name: F.max(name) for name in ("sxx", "span")}
    rank = F.row_number().over(of_node.orderBy(F.desc("slope"), "vhost", "queue"))
    top = lines.select(
        "node",
        "vhost",
        "queue",
        F.col("slope").alias("own"),
        rank.alias("rank"),
        *(value.over(of_node).alias(name) for name, value in (sums | most).items()),
    ).where(F.col("rank") <= GROWING_MAX)
    growths: dict[str, Growth] = {}
    growing: dict[str, list[QueueGrowth]] = defaultdict(list)
    for row in sorted(top.collect(), key=lambda row: (row["node"], row["rank"])):
        if row["own"] > 0:
            growing[row["node"]].append(QueueGrowth(row["vhost"], row["queue"], row["own"]))
        slope, left = row["slope"], row["left"]
        explained = slope * slope * row["sxx"]
        r2 = explained / (explained + left) if explained else 0.0
        halves = (row["first"], row["second"])
        growths[row["node"]] = Growth(0.0, slope, row["variance"] ** 0.5, r2, row["span"], halves=halves)
    return tuple(MemoryGrowth(node, growths[node], tuple(growing[node])) for node in sorted(growths))
