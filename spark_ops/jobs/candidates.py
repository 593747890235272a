"""This module selects moves for the planner on Spark, for clusters with too many queues to examine on the driver.

A promotion is proposed if the master is on a hot node and a synchronised mirror is on a cold node. A copy is proposed
for the busiest replicas on hot nodes, to the coldest nodes of the same zone, so that no queue loses a zone. Nodes are
compared only within their group, because a mean over machines that cannot replace each other is meaningless (spark §1).
Source: spark §3.3 (step 1).
"""

from typing import TYPE_CHECKING, Final

from spark_ops.planning.rows import ClusterRows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

HOT: Final = 1.10
"""A node is hot if its load is above this multiple of its group's mean load, and cold if it is below the mean."""
PER_SOURCE: Final = 500
"""The maximal number of candidates of each kind from one hot node; the best are kept."""
TARGETS: Final = 4
"""The number of cold nodes in each group and zone that are targets of copies."""

_NODES: Final = "node string, comparable string, zone string, is_usable boolean, base double"
_REPLICAS: Final = (
    "vhost string, queue string, node string, is_master boolean, is_synced boolean, is_fixed boolean, "
    "cpu double, gain double, bytes double, ring array<string>"
)


def frames(spark: "SparkSession", rows: ClusterRows) -> "tuple[DataFrame, DataFrame]":
    """Return the nodes, all in one group, and the replicas of a cluster for `candidates`, without exclusive queues.

    cpu: share of the node's cores that the replica uses.   gain: share that the node saves if another replica becomes
    the master.
    """
    nodes = [
        (row.node, "", row.zone, row.is_up and not row.is_draining, row.base_cpu / max(row.cores, 1e-9))
        for row in rows.nodes
    ]
    cores = {row.node: max(row.cores, 1e-9) for row in rows.nodes}
    replicas = []
    for queue in rows.queues:
        if queue.is_exclusive:
            continue
        for node in queue.ring:
            leads = node == queue.master
            cpu = (queue.cpu if leads else queue.mirror_cpu) / cores.get(node, 1.0)
            gain = max(queue.cpu - queue.mirror_cpu, 0.0) / cores.get(node, 1.0)
            replicas.append(
                (
                    *(queue.vhost, queue.queue, node, leads, node in queue.synced),
                    queue.fixed_nodes is not None,
                    *(cpu, gain, queue.size, list(queue.ring)),
                )
            )
    return spark.createDataFrame(nodes, _NODES), spark.createDataFrame(replicas, _REPLICAS)


def candidates(
    nodes: "DataFrame", replicas: "DataFrame", *, hot: float = HOT, per_source: int = PER_SOURCE
) -> "DataFrame":
    """Return kind (promote, copy), vhost, queue, from_node, to_node, gain (share of the source's cores), bytes, place.

    place: rank from 1 among the source's candidates of a kind. Promotions are ranked by gain, copies by gain per byte.
    Ties are broken by name, so that the same input gives the same result.
    """
    from pyspark.sql import functions as F

    loads = _loads(nodes, replicas)
    sources = loads.where(F.col("load") > F.col("mean") * hot)
    targets = loads.where((F.col("load") < F.col("mean")) & F.col("is_usable"))
    masters = replicas.where("is_master").join(sources.select("node", "comparable"), "node")
    mirrors = replicas.where("is_synced and not is_master").select(
        "vhost", "queue", F.col("node").alias("to_node")
    )
    cold = targets.select(F.col("node").alias("to_node"), "comparable")
    promotions = (
        masters.join(mirrors, ["vhost", "queue"])
        .join(cold, ["to_node", "comparable"])
        .select(*_columns("promote", "gain"))
    )
    copies = _copies(replicas, sources, targets, per_source)
    both = _ranked(promotions, F.col("gain"), per_source).unionByName(
        _ranked(copies, F.col("gain") / (F.col("bytes") + 1.0), per_source)
    )
    return both.orderBy("from_node", "kind", "place")


def _loads(nodes: "DataFrame", replicas: "DataFrame") -> "DataFrame":
    """Add the load of each node and the mean of its group. Loads are added as integers, since sums of floats vary."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    used = replicas.groupBy("node").agg(F.sum(F.round(F.col("cpu") * 1e6).cast("bigint")).alias("used"))
    load = F.coalesce(F.col("used"), F.lit(0)) / 1e6 + F.col("base")
    group = Window.partitionBy("comparable")
    usable = F.when(F.col("is_usable"), F.round(F.col("load") * 1e6).cast("bigint"))
    joined = nodes.join(used, "node", "left").withColumn("load", load)
    return joined.withColumn("mean", F.coalesce(F.avg(usable).over(group) / 1e6, F.lit(0.0))).drop("used")


def _copies(
    replicas: "DataFrame", sources: "DataFrame", targets: "DataFrame", per_source: int
) -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_cold = Window.partitionBy("comparable", "zone").orderBy("load", "node")
    coldest = targets.withColumn("rank", F.row_number().over(by_cold)).where(F.col("rank") <= TARGETS)
    coldest = coldest.select(
        F.col("node").alias("to_node"), "comparable", F.col("zone").alias("to_zone"), "rank"
    )
    busy = Window.partitionBy("node").orderBy(F.desc("cpu"), "vhost", "queue")
    hot = replicas.where("not is_fixed").join(sources.select("node", "comparable", "zone"), "node")
    hot = hot.withColumn("busy", F.row_number().over(busy)).where(F.col("busy") <= per_source)
    return (
        hot.join(F.broadcast(coldest), "comparable")
        .where(~F.array_contains("ring", F.col("to_node")))
        .where(F.col("zone").eqNullSafe(F.col("to_zone")))
        .withColumn("gain", F.col("cpu"))
        .select(*_columns("copy", "gain"))
    )


def _columns(kind: str, gain: str) -> "list[Column]":
    from pyspark.sql import functions as F

    plain = [F.col(name) for name in ("vhost", "queue", "to_node")]
    size = F.lit(0.0).alias("bytes") if kind == "promote" else F.col("bytes")
    return [
        F.lit(kind).alias("kind"),
        *plain,
        F.col("node").alias("from_node"),
        F.col(gain).alias("gain"),
        size,
    ]


def _ranked(moves: "DataFrame", worth: "Column", per_source: int) -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = Window.partitionBy("from_node").orderBy(F.desc(worth), "vhost", "queue", "to_node")
    placed = moves.withColumn("place", F.row_number().over(order)).where(F.col("place") <= per_source)
    return placed.select("kind", "vhost", "queue", "from_node", "to_node", "gain", "bytes", "place")
