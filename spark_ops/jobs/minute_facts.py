"""On Spark, rows are reduced to facts about minutes; the batch job and the stream share this code.

A fact has the last row of a process in a minute and some maxima and minima. Sequence numbers are kept as bitmaps. Facts
do not depend on the order of rows or on duplicates, and facts of parts of the rows can be merged. A stream therefore
keeps the facts of each micro-batch and gives the same result as the batch job, including late rows.
Source: spark §2.1, §3.5, §6.18, §6.21.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from spark_ops.documents import content_hash
from spark_ops.health.facts import EventFact, LinkMinute, NodeMinute, ReplicaMinute
from spark_ops.jobs.files import SKEW_ERR_MS_MAX, VERSIONS
from spark_ops.jobs.reading import ORIGIN
from spark_ops.telemetry.schema import ENVELOPE, EVENTS, FIELDS, VERSION, Kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BLOCK: Final = 64
"""The number of sequence numbers in one word of a bitmap."""
_WORD: Final = re.compile(r"\w+")
RAW_KINDS: Final[tuple[Kind, ...]] = ("node", "queue", "link", "event")
TOLD_EVENTS: Final = (
    "failover",
    "promotion",
    "view_change",
    "node_start",
    "node_stop",
    "partition_suspected",
    "partition_healed",
    *(event for event in EVENTS if event.startswith("plan_step")),
)
"""The events that rules read; others are dropped."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of the facts of a kind.

    keys: identify the subject, with cluster, boot_id and minute.   last: columns of the last row.
    most, least: names of further columns, and the SQL expressions whose maximum or minimum they contain.
    """

    keys: tuple[str, ...]
    last: tuple[str, ...]
    most: Mapping[str, str]
    least: Mapping[str, str]

    @property
    def all_keys(self) -> tuple[str, ...]:
        """The columns that identify a fact."""
        return ("cluster", *self.keys, "boot_id", "minute")


def _plain(of: type, *made: str) -> tuple[str, ...]:
    """Return the fields of a fact's class that are columns of the last row.   made: fields that are not."""
    return tuple(field.name for field in fields(of) if field.name not in ("minute", "boot", "mono_ms", *made))


SHAPES: Final[dict[str, Shape]] = {
    "node": Shape(
        ("node",),
        _plain(NodeMinute, "mono_first", "seq_first", "loop_lag_ms_max", "skew_abs_ms", "view_first"),
        {"loop_lag_ms_max": "loop_lag_ms_max", "skew_abs_ms": "abs(skew_ms)"},
        {"mono_first": "mono_ms", "seq_first": "seq", "view_first": "view_id"},
    ),
    "queue": Shape(
        ("node", "vhost", "queue"),
        (*_plain(ReplicaMinute, "lag_ms_max"), "mem_bytes"),
        {"lag_ms_max": "mirror_lag_ms"},
        {},
    ),
    "link": Shape(("from_node", "to_node"), _plain(LinkMinute), {}, {}),
}

_MADE: Final = {
    "cpu_ms_total": "cpu_user_ms_total + cpu_sys_ms_total",
    "group": "try_element_at(labels, 'group')",
    "dead_letters_lost_by": "array_sort(map_entries(dead_letters_lost_by))",
}
"""The columns of the last row that are computed, with their SQL expressions. Spark has no order of maps, so that the
last row must not have any."""

EVENT_COLUMNS: Final = ("cluster", "event_id", "minute", *(field.name for field in fields(EventFact)))

ROW_KEYS: Final = ("cluster", "node", "boot_id", "kind", "minute", "block")

FACTS_VERSION: Final = content_hash(
    [
        VERSION,
        *((shape.all_keys, shape.last, dict(shape.most), dict(shape.least)) for shape in SHAPES.values()),
    ]
)[7:15]
"""A hash of the columns of facts. A stream reads only stored facts with the same hash."""


@dataclass(frozen=True, slots=True)
class MinuteFacts:
    """Frames of facts by kind.

    node, queue, link: as in `SHAPES`.   rows: bitmaps of the sequence numbers.   origin: the minute, counted since
    1970, from which the column `minute` is counted.
    """

    node: "DataFrame"
    queue: "DataFrame"
    link: "DataFrame"
    event: "DataFrame"
    rows: "DataFrame"
    origin: int = 0


FACT_KINDS: Final = tuple(field.name for field in fields(MinuteFacts) if field.name != "origin")


def known(frame: "DataFrame") -> "DataFrame":
    """Return the rows of known versions, with the column `minute`, counted from that of `ORIGIN`, if rows have it."""
    from pyspark.sql import functions as F

    is_sure = F.col("skew_err_ms") <= SKEW_ERR_MS_MAX
    ts = F.when(is_sure & F.col("skew_ms").isNotNull(), F.col("ts") - F.col("skew_ms")).otherwise(F.col("ts"))
    minute = F.floor(ts / F.lit(60_000)).cast("long")
    return frame.where(_is_known()).withColumn(
        "minute", minute - F.col(ORIGIN) if ORIGIN in frame.columns else minute
    )


def too_new(frame: "DataFrame") -> "DataFrame":
    """Return the rows whose version is unknown, because it is too new."""
    return frame.where(~_is_known())


def _is_known() -> "Column":
    from pyspark.sql import functions as F

    return F.coalesce(F.col("v").between(*VERSIONS), F.lit(False))


def reduce(by_kind: "Mapping[str, DataFrame]", rows: "DataFrame", origin: int = 0) -> MinuteFacts:
    """Reduce rows to facts.   by_kind: frames from `known`; rows may be in any order and contain duplicates.

    rows: the rows of all kinds, from `known` too; the columns of the envelope are enough.   origin: of their minutes.
    """
    return MinuteFacts(
        _reduced(by_kind["node"], SHAPES["node"]),
        _reduced(by_kind["queue"], SHAPES["queue"]),
        _reduced(by_kind["link"], SHAPES["link"]),
        _events(by_kind["event"]),
        _numbers(rows),
        origin,
    )


def merge(facts: MinuteFacts) -> MinuteFacts:
    """Merge the facts of parts of the rows into the facts of all rows."""
    from pyspark.sql import functions as F

    def merged(frame: "DataFrame", shape: Shape) -> "DataFrame":
        largest = [F.max(name).alias(name) for name in ("last", *shape.most)]
        smallest = [F.min(name).alias(name) for name in shape.least]
        return frame.groupBy(*shape.all_keys).agg(*largest, *smallest)

    return MinuteFacts(
        merged(facts.node, SHAPES["node"]),
        merged(facts.queue, SHAPES["queue"]),
        merged(facts.link, SHAPES["link"]),
        facts.event.dropDuplicates(["cluster", "event_id"]),
        facts.rows.groupBy(*ROW_KEYS).agg(
            F.bit_or("bits").alias("bits"),
            F.min("seq_min").alias("seq_min"),
            F.max("seq_max").alias("seq_max"),
            F.sum("n").alias("n"),
        ),
    )


def within(facts: MinuteFacts, cluster: str, start: int, end: int) -> MinuteFacts:
    """Return the facts of a cluster in the minutes [start, end), with `end` as their origin: the last minute is -1.

    Spark compiles a query again if a number in it is another. So no query about a window names a moment.
    """
    from pyspark.sql import functions as F

    first, last = start - facts.origin, end - facts.origin

    def some(frame: "DataFrame") -> "DataFrame":
        minute = F.col("minute")
        kept = frame.where((F.col("cluster") == F.lit(cluster)) & (minute >= first) & (minute < last))
        return kept.withColumn("minute", minute - last) if last else kept

    node, queue, link, event, rows = (some(getattr(facts, kind)) for kind in FACT_KINDS)
    return MinuteFacts(node, queue, link, event, rows, end)


def sources(kind: Kind) -> tuple[str, ...]:
    """Return the columns of rows of which facts are made, in the order of the schema."""
    shape = SHAPES.get(kind)
    if shape is None:
        return tuple(FIELDS[kind])
    texts = [*(_MADE.get(name, name) for name in shape.last), *shape.most.values(), *shape.least.values()]
    named = {*shape.all_keys, *ENVELOPE, *_WORD.findall(" ".join(texts))}
    return tuple(name for name in FIELDS[kind] if name in named)


def columns(kind: str) -> "list[Column]":
    """Return the columns of flat facts: keys, maxima and minima, `mono_ms` and the columns of the last row."""
    from pyspark.sql import functions as F

    shape = SHAPES[kind]
    last = [F.col(f"last.{name}").alias(name) for name in ("mono_ms", *shape.last)]
    return [*(F.col(name) for name in (*shape.all_keys, *shape.most, *shape.least)), *last]


def _reduced(frame: "DataFrame", shape: Shape) -> "DataFrame":
    from pyspark.sql import functions as F

    of_last = ("mono_ms", "seq", *shape.last)
    last = F.struct(*(F.expr(_MADE[name]).alias(name) if name in _MADE else F.col(name) for name in of_last))
    largest = [F.max(F.expr(sql)).alias(name) for name, sql in shape.most.items()]
    smallest = [F.min(F.expr(sql)).alias(name) for name, sql in shape.least.items()]
    return frame.groupBy(*shape.all_keys).agg(F.max(last).alias("last"), *largest, *smallest)


def _events(frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    told = F.col("event").isin(*TOLD_EVENTS) | F.coalesce(F.col("unsynced_promotion"), F.lit(False))
    # An event without an id gets its row's key as its id.
    own = F.concat_ws("/", "node", "boot_id", "seq")
    named = frame.where(told).withColumn("event_id", F.coalesce("event_id", own))
    return named.dropDuplicates(["cluster", "event_id"]).select(*EVENT_COLUMNS)


def _numbers(frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    bit = F.expr(f"shiftleft(1L, cast(pmod(seq, {BLOCK}) AS int))")
    block = F.floor(F.col("seq") / BLOCK).cast("long")
    return (
        frame.where(F.col("seq").isNotNull())
        .withColumn("block", block)
        .groupBy(*ROW_KEYS)
        .agg(
            F.bit_or(bit).alias("bits"),
            F.min("seq").alias("seq_min"),
            F.max("seq").alias("seq_max"),
            F.count(F.lit(1)).alias("n"),
        )
    )
