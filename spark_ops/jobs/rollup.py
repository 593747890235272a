"""A rollup aggregates an hour of telemetry into sums that can be merged; later jobs read it instead of raw rows.

All sums are of integers, so that a rollup does not depend on the order of its rows, not even in the last bit. Rolling
up an hour again gives the same values, and merging the rollups of parts of the rows gives the rollup of all rows.
Source: spark §3.1, §6.20; columns: `rollup_fields`.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from spark_ops.jobs.rollup_fields import BUCKETS, ROLLUPS, RollupFields, RollupKind, Spread

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HOUR_MS: Final = 3_600_000

_GREATEST: Final = 2**47
"""Greater values of a gauge are reduced to this one (140 TB), so that sums of squares do not overflow."""
_SPLIT: Final = float(2**45)
"""A sum of products is kept as two sums of integers: multiples of this, and the remainders. One bigint would overflow,
sums of doubles depend on the order of rows, and decimals take three times as long."""
_LANES: Final = 3
_LANE_BITS: Final = 21
"""The number of bits of one bucket's count. Counts of `_LANES` buckets of a spread are packed into one bigint."""

BROADCAST_ROWS: Final = 50_000_000
"""Below this number of raw rows the keys of first and last rows are broadcast: they fit into a worker's memory."""


def rollup(frame: "DataFrame", kind: RollupKind, *, rows_hint: int = 0) -> "DataFrame":
    """Return the rollup of raw rows without duplicates.   rows_hint: the approximate number of rows."""
    from pyspark.sql import functions as F

    fields = ROLLUPS[kind]
    timed = frame.withColumn("hour_ms", F.expr(f"ts - pmod(ts, {HOUR_MS})"))
    sums = timed.groupBy(*fields.subject, "hour_ms").agg(*_aggregates(fields))
    sums = sums.select(
        *fields.subject,
        (F.col("hour_ms") / 1000).cast("bigint").alias("hour"),
        *(name for name in sums.columns if name not in (*fields.subject, "hour_ms") and "__" not in name),
        *(_fit(name).alias(f"{name}_fit") for name in fields.fits),
        *(_unpacked(name).alias(f"{name}_spread") for name in fields.spreads),
    )
    return _with_ends(sums, frame, fields, is_small=rows_hint < BROADCAST_ROWS)


def _aggregates(fields: RollupFields) -> "list[Column]":
    """Return the aggregates for one hour of one subject. All are numbers, so Spark need not sort the rows."""
    from pyspark.sql import functions as F

    made = [F.count(F.lit(1)).alias("n"), F.coalesce(F.sum("interval_ms"), F.lit(0)).alias("covered_ms")]
    if fields.has_sync:
        unsynced = F.when(F.col("sync_state") != "synced", F.col("interval_ms"))
        made.append(F.coalesce(F.sum(unsynced), F.lit(0)).alias("unsynced_ms"))
    for name in ("seq", "ts"):
        made += [F.min(name).alias(f"first_{name}"), F.max(name).alias(f"last_{name}")]
    for name in fields.extremes:
        made += [F.min(name).alias(f"{name}_min"), F.max(name).alias(f"{name}_max")]
    for name in fields.fits:
        made += _moments(name)
    for name, spread in fields.spreads.items():
        made += _lanes(name, spread)
    return made


def _moments(name: str) -> "list[Column]":
    from pyspark.sql import functions as F

    # `least` and `greatest` ignore nulls.
    is_there = F.col(name).isNotNull()
    y = F.greatest(F.least(F.col(name).cast("bigint"), F.lit(_GREATEST)), F.lit(-_GREATEST))
    x, y = F.when(is_there, F.col("ts") - F.col("hour_ms")), F.when(is_there, y)
    made = {"n": F.count(y), "x": F.sum(x), "xx": F.sum(x * x), "y": F.sum(y)}
    for key, factor in (("xy", x), ("yy", y)):
        product = y.cast("double") * factor.cast("double")
        high = F.floor(product / _SPLIT).cast("bigint")
        made[f"{key}_high"] = F.sum(high)
        made[f"{key}_low"] = F.sum((product - high.cast("double") * _SPLIT).cast("bigint"))
    return [column.alias(f"{name}__{key}") for key, column in made.items()]


def _fit(name: str) -> "Column":
    """Return the sums from `_moments` as one struct column."""
    from pyspark.sql import functions as F

    def number(key: str) -> "Column":
        return F.coalesce(F.col(f"{name}__{key}"), F.lit(0)).cast("decimal(38,0)")

    def whole(key: str) -> "Column":
        high = number(f"{key}_high") * F.lit(int(_SPLIT)).cast("decimal(14,0)")
        return (high + number(f"{key}_low")).cast("decimal(38,0)").alias(key)

    return F.struct(
        F.col(f"{name}__n").alias("n"),
        *(number(key).alias(key) for key in ("x", "y", "xx")),
        *(whole(key) for key in ("xy", "yy")),
    )


def bucket(value: "Column", spread: Spread) -> "Column":
    """Return the number of the bucket that contains a value; null for null."""
    from pyspark.sql import functions as F

    # Rounding may make log2(8) less than 3. The tolerance is too small to change the result of another integer.
    above = F.floor(F.log2(value.cast("double") / spread.unit) + 1e-10).cast("int") + 1
    return F.when(value < spread.unit, 0).when(value >= spread.unit, F.least(above, F.lit(BUCKETS - 1)))


def _lanes(name: str, spread: Spread) -> "list[Column]":
    from pyspark.sql import functions as F

    place = bucket(F.col(name), spread)
    one = F.call_function("shiftleft", F.lit(1).cast("bigint"), (place % _LANES) * _LANE_BITS)
    lane = F.floor(place / _LANES).cast("int")
    return [
        F.coalesce(F.sum(F.when(lane == number, one)), F.lit(0)).alias(f"{name}__lane{number}")
        for number in range(-(-BUCKETS // _LANES))
    ]


def _unpacked(name: str) -> "Column":
    from pyspark.sql import functions as F

    def count(place: int) -> "Column":
        lane = F.col(f"{name}__lane{place // _LANES}")
        return F.shiftright(lane, place % _LANES * _LANE_BITS).bitwiseAND(F.lit(2**_LANE_BITS - 1))

    return F.array(*(count(place) for place in range(BUCKETS)))


def _with_ends(sums: "DataFrame", frame: "DataFrame", fields: RollupFields, *, is_small: bool) -> "DataFrame":
    """Add the columns `first` and `last` by a join, since Spark would sort all rows to aggregate strings and lists."""
    from pyspark.sql import functions as F

    identity = ["node", "boot_id", "seq"]
    wanted = dict.fromkeys((*fields.first, *fields.last))
    lean = frame.select(*identity, F.struct(*wanted).alias("row"))
    seqs = F.explode(F.array("first_seq", "last_seq")).alias("seq")
    ends = sums.select("node", "boot_id", "first_seq", seqs).distinct()
    found = lean.join(F.broadcast(ends) if is_small else ends, identity)
    found = found.groupBy("node", "boot_id", "first_seq").agg(
        F.min_by("row", "seq").alias("first_row"), F.max_by("row", "seq").alias("last_row")
    )
    whole = sums.join(found, ["node", "boot_id", "first_seq"], "left")
    kept = {
        end: F.struct(*(F.col(f"{end}_row.{name}").alias(name) for name in names)).alias(end)
        for end, names in (("first", fields.first), ("last", fields.last))
    }
    return whole.select(*sums.columns, kept["first"], kept["last"])


def merge(
    frame: "DataFrame", kind: RollupKind, *, since_s: int | None = None, only: Collection[str] | None = None
) -> "DataFrame":
    """Merge rollups of the same subject: those of the same hour, or, with `since_s`, those of all hours.

    The result has the same columns. With `since_s`, `hour` is `since_s`, and x of the fits counts from it.
    only: the result has only these fields, and no `first` and `last`; Spark takes seconds to analyse all columns.
    """
    from pyspark.sql import functions as F

    fields = ROLLUPS[kind]

    def wanted(names: Iterable[str]) -> list[str]:
        return [name for name in names if only is None or name in only]

    begin = F.col("hour") if since_s is None else F.lit(since_s).cast("bigint")
    shift = ((F.col("hour") - begin) * 1000).cast("decimal(15,0)")
    fits = wanted(fields.fits)
    moved = frame.withColumns({"shift": shift, "hour": begin})
    moved = moved.withColumns({f"{name}_fit": _shifted(f"{name}_fit") for name in fits}) if fits else moved
    made = [F.sum(name).alias(name) for name in ("n", "covered_ms", *(["unsynced_ms"] * fields.has_sync))]
    for name in ("seq", "ts"):
        made += [F.min(f"first_{name}").alias(f"first_{name}"), F.max(f"last_{name}").alias(f"last_{name}")]
    for name in wanted(fields.extremes):
        made += [F.min(f"{name}_min").alias(f"{name}_min"), F.max(f"{name}_max").alias(f"{name}_max")]
    made += [_added(f"{name}_fit") for name in fits]
    made += [_counted(f"{name}_spread") for name in wanted(fields.spreads)]
    if only is None:
        made += [F.min_by("first", "first_seq").alias("first"), F.max_by("last", "last_seq").alias("last")]
    return moved.groupBy(*fields.subject, "hour").agg(*made)


# The following functions use SQL text, because building columns by single calls to Java takes longer than the query.


def _shifted(fit: str) -> "Column":
    """Return a fit whose origin of x is earlier by the column `shift`, in ms."""
    from pyspark.sql import functions as F

    columns = {
        "x": f"{fit}.x + shift * {fit}.n",
        "y": f"{fit}.y",
        "xx": f"{fit}.xx + shift * {fit}.x * 2 + cast(shift * shift as decimal(38,0)) * {fit}.n",
        "xy": f"{fit}.xy + shift * {fit}.y",
        "yy": f"{fit}.yy",
    }
    whole = (f"cast({value} as decimal(38,0)) as {key}" for key, value in columns.items())
    return F.expr(f"struct({fit}.n as n, {', '.join(whole)})")


def _added(fit: str) -> "Column":
    from pyspark.sql import functions as F

    sums = (f"cast(sum({fit}.{key}) as decimal(38,0)) as {key}" for key in ("x", "y", "xx", "xy", "yy"))
    return F.expr(f"struct(sum({fit}.n) as n, {', '.join(sums)})").alias(fit)


def _counted(spread: str) -> "Column":
    from pyspark.sql import functions as F

    sums = (f"sum({spread}[{place}])" for place in range(BUCKETS))
    return F.expr(f"array({', '.join(sums)})").alias(spread)


def slope_per_s(fit: str) -> "Column":
    """Return the slope per second of the line through a gauge's values; null if there is no line."""
    from pyspark.sql import functions as F

    return F.expr(f"try_divide({_cross(fit, 'x', 'y')}, {_cross(fit, 'x', 'x')}) * 1000D")


def r_squared(fit: str) -> "Column":
    """Return R² of the line of `slope_per_s`, 0 to 1; null if all values are equal or there is no line."""
    from pyspark.sql import functions as F

    joint = _cross(fit, "x", "y")
    return F.expr(f"try_divide({joint} * {joint}, {_cross(fit, 'x', 'x')} * {_cross(fit, 'y', 'y')})")


def mean(fit: str) -> "Column":
    """Return the mean of a gauge; null without values."""
    from pyspark.sql import functions as F

    return F.expr(f"try_divide(cast({fit}.y as double), cast({fit}.n as double))")


def _cross(fit: str, a: str, b: str) -> str:
    """Return the SQL of n Σab - Σa Σb as a double, computed exactly before the conversion; null on overflow."""
    scaled = f"try_multiply(cast({fit}.n as decimal(38,0)), {fit}.{a}{b})"
    return f"cast(try_subtract({scaled}, try_multiply({fit}.{a}, {fit}.{b})) as double)"


def with_percentile(frame: "DataFrame", column: str, name: str, share: float, spread: Spread) -> "DataFrame":
    """Add a column with an estimate of the value that `share` of a gauge's values do not exceed; null without values.

    The error is at most one bucket, a factor of 2. Intermediate columns keep the expressions small.
    """
    from pyspark.sql import functions as F

    upto = f"aggregate(slice({name}_spread, 1, size), 0L, (sum, n) -> sum + n)"
    steps = frame.withColumn("__upto", F.expr(f"transform(sequence(1, {BUCKETS}), size -> {upto})"))
    steps = steps.withColumn("__rank", F.expr(f"ceil(get(__upto, {BUCKETS - 1}) * {share!r}D)"))
    place = "cast(array_position(transform(__upto, sum -> sum >= __rank), true) as int) - 1"
    steps = steps.withColumn("__place", F.expr(place))
    inside = f"get({name}_spread, __place)"
    part = f"try_divide(cast(__rank - get(__upto, __place) + {inside} as double), cast({inside} as double))"
    width = f"{spread.unit!r}D * pow(2D, greatest(__place - 1, 0))"
    found = f"if(__place > 0, {width}, 0D) + {part} * {width}"
    bounded = f"greatest(least({found}, cast({name}_max as double)), cast({name}_min as double))"
    value = F.expr(f"if(__rank > 0, {bounded}, null)")
    return steps.withColumn(column, value).drop("__upto", "__rank", "__place")


def added(name: str, first: str = "min", last: str = "max") -> "Column":
    """Return how much a counter rose in the time of a rollup's row."""
    from pyspark.sql import functions as F

    return F.col(f"{name}_{last}") - F.col(f"{name}_{first}")
