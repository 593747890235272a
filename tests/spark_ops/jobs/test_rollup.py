"""Rollups: their figures, and that they can be added up as if they had never been apart (spark §6.20)."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_ops.jobs.reading import read, schema
from spark_ops.jobs.rollup import (
    added,
    bucket,
    mean,
    merge,
    r_squared,
    rollup,
    slope_per_s,
    with_percentile,
)
from spark_ops.jobs.rollup_fields import BUCKETS, ROLLUPS, RollupKind, Spread
from spark_ops.telemetry.schema import FIELDS
from tests.kit.synthetic.model import START_S
from tests.kit.synthetic.telemetry import Row, Setup, rows
from tests.spark_ops.jobs import roots

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SETUP = Setup(nodes=3, queues=5, replicas=2, hours=3, interval_s=60, seed=3)
ROWS: list[Row] = list(rows(SETUP))
KINDS: list[RollupKind] = ["node", "queue", "link"]


def histogram_added(name: str) -> Any:
    """Return how much each bucket of a histogram rose between the first and the last row; null if unknown."""
    from pyspark.sql import functions as F

    rise = F.zip_with(
        F.col(f"last.{name}"), F.col(f"first.{name}"), lambda last, first: F.greatest(last - first, F.lit(0))
    )
    return F.when(F.size(f"last.{name}") == F.size(f"first.{name}"), rise)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hours of three nodes."""
    path = tmp_path_factory.mktemp("root")
    roots.write(path, ROWS, is_unique=True)
    return path


@pytest.fixture(scope="module")
def rolled(spark: Any, root: Path) -> Iterator[Any]:
    """The rollup of its queues, made once."""
    frame = rollup(read(spark, root, "queue").frame, "queue").cache()
    yield frame
    frame.unpersist()


def _plain(frame: Any) -> list[str]:
    """The rows of a frame, in an order that hangs on what they say."""
    columns = sorted(frame.columns)
    return sorted(repr(row.asDict(recursive=True)) for row in frame.select(*columns).collect())


def _subject(row: Row, kind: RollupKind) -> tuple[Any, ...]:
    return tuple(row[name] for name in ROLLUPS[kind].subject)


@pytest.mark.parametrize("kind", KINDS)
def test_figures(spark: Any, root: Path, kind: RollupKind) -> None:
    """Each figure by hand, for each subject and hour."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in ROWS:
        if row["kind"] == kind:
            groups[(*_subject(row, kind), row["ts"] // 3_600_000 * 3600)].append(row)
    got = rollup(read(spark, root, kind).frame, kind).collect()
    assert len(got) == len(groups)
    fields = ROLLUPS[kind]
    for row in got:
        raw = sorted(
            groups[(*(row[name] for name in fields.subject), row.hour)], key=lambda each: each["seq"]
        )
        assert (row.n, row.first_ts, row.last_ts) == (len(raw), raw[0]["ts"], raw[-1]["ts"])
        assert row.covered_ms == sum(each["interval_ms"] or 0 for each in raw)
        for name in fields.extremes:
            values = [each[name] for each in raw if each.get(name) is not None]
            assert row[f"{name}_min"] == min(values, default=None), name
            assert row[f"{name}_max"] == max(values, default=None), name
        for name in fields.fits:
            points = [
                (each["ts"] - row.hour * 1000, each[name]) for each in raw if each.get(name) is not None
            ]
            fit = row[f"{name}_fit"]
            assert [fit.n, *map(int, (fit.x, fit.y, fit.xx, fit.yy))] == [
                len(points),
                sum(x for x, _ in points),
                sum(y for _, y in points),
                sum(x * x for x, _ in points),
                pytest.approx(sum(y * y for _, y in points), rel=1e-15),
            ]
            assert int(fit.xy) == pytest.approx(sum(x * y for x, y in points), rel=1e-15)
        for name, spread in fields.spreads.items():
            counts = [0] * BUCKETS
            for value in (each[name] for each in raw if each.get(name) is not None):
                place = 0
                while value >= spread.unit * 2**place and place < BUCKETS - 1:
                    place += 1
                counts[place] += 1
            assert row[f"{name}_spread"] == counts
        for end, each in (("first", raw[0]), ("last", raw[-1])):
            told = row[end].asDict(recursive=True)
            assert told == {name: each.get(name) for name in getattr(fields, end)}


def test_merging_is_rolling_up_together(spark: Any, root: Path, rolled: Any) -> None:
    """merge(rollup(A), rollup(B)) = rollup(A and B), for parts that are mixed in any way: bit for bit."""
    raw = read(spark, root, "queue").frame
    parts = [rollup(raw.where(f"pmod(hash(seq, node), 2) = {part}"), "queue") for part in range(2)]
    assert _plain(merge(parts[0].unionByName(parts[1]), "queue")) == _plain(rolled)


def test_the_order_of_rows_is_nothing(spark: Any, root: Path, rolled: Any) -> None:
    """spark §6.8: eight partitions instead of two, the rows from the last one on: the same to the last bit."""
    raw = read(spark, root, "queue").frame
    many = rollup(raw.repartition(8, "seq").sortWithinPartitions("ts", ascending=False), "queue")
    assert _plain(many) == _plain(rolled)


def test_lines(spark: Any, root: Path, rolled: Any) -> None:
    """Slope and R² of all hours, of merged sums, are those of regr_slope of the raw rows, to 1e-9; so is the mean."""
    from pyspark.sql import functions as F

    raw = read(spark, root, "queue").frame
    x = (F.col("ts") - START_S * 1000) / F.lit(1000.0)
    subject = ROLLUPS["queue"].subject
    wanted = raw.groupBy(*subject).agg(
        F.regr_slope("ready", x).alias("slope"),
        F.regr_r2("ready", x).alias("r2"),
        F.avg("ready").alias("mean"),
    )
    merged = merge(rolled, "queue", since_s=START_S)
    got = merged.select(
        *subject,
        slope_per_s("ready_fit").alias("slope"),
        r_squared("ready_fit").alias("r2"),
        mean("ready_fit").alias("mean"),
    )
    expected = {_key(row): row for row in wanted.collect()}
    assert len(expected) == SETUP.queues * SETUP.replicas
    for row in got.collect():
        other = expected[_key(row)]
        assert (row.slope is None) == (row.role == "mirror")
        for name in ("slope", "r2", "mean"):
            wanted_value = (
                other[name] if other[name] is None else pytest.approx(other[name], rel=1e-9, abs=1e-12)
            )
            assert row[name] == wanted_value, name


def _key(row: Any) -> tuple[Any, ...]:
    return tuple(row[name] for name in ROLLUPS["queue"].subject)


def test_percentiles(rolled: Any) -> None:
    """Within a factor of 2 of the exact ones, which is a bucket's width."""
    merged = merge(rolled, "queue", since_s=START_S, only=("ready",))
    spread = ROLLUPS["queue"].spreads["ready"]
    shares = (0.05, 0.5, 0.95, 1.0)
    names = [f"p{share}".replace(".", "_") for share in shares]
    for share, name in zip(shares, names, strict=True):
        merged = with_percentile(merged, name, "ready", share, spread)
    got = {_key(row): row for row in merged.collect()}
    values: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in ROWS:
        if row["kind"] == "queue" and row.get("ready") is not None:
            values[_subject(row, "queue")].append(row["ready"])
    assert sum(row.p0_5 is not None for row in got.values()) == len(values) == SETUP.queues
    for key, known in values.items():
        known.sort()
        for share, name in zip(shares, names, strict=True):
            exact = known[max(0, -int(-share * len(known) // 1) - 1)]
            assert max(exact, 1) / 2 <= max(got[key][name], 1) <= 2 * max(exact, 1), (key, share)
    assert {len(row.ready_spread) for row in got.values()} == {BUCKETS}


def test_buckets(spark: Any) -> None:
    """Powers of two begin a bucket, what is just below them does not; nothing is outside, also not in ANSI mode."""
    from pyspark.sql import functions as F

    values = [None, -5.0, 0.0, 0.5, 1.0, 1.5, *(2.0**k - d for k in range(1, 31) for d in (1.0, 0.0)), 1e300]
    frame = spark.createDataFrame([(value,) for value in values], "y double")
    got = [row[0] for row in frame.select(bucket(F.col("y"), Spread(1.0))).collect()]
    wanted = [None if v is None else 0 if v < 1 else min(31, len(bin(int(v))) - 2) for v in values]
    assert got == wanted


def test_a_restart_makes_no_negative_rate(spark: Any, tmp_path: Path) -> None:
    """spark §6.18: counters begin again with a new boot_id; what was added is added up by process."""
    mine = [row for row in ROWS if row["kind"] == "node" and row["node"] == "node1"]
    counter = "conns_opened_total"
    again = [
        {**row, "boot_id": "later", "seq": index, "mono_ms": index * 60_000, counter: index * 7}
        for index, row in enumerate(mine[30:])
    ]
    roots.write(tmp_path, [*({**row, counter: 10**9 + row["seq"]} for row in mine[:30]), *again])
    got = rollup(read(spark, tmp_path, "node").frame, "node")
    merged = merge(got, "node", since_s=START_S)
    rise = {row.boot_id: row for row in merged.select("boot_id", added(counter).alias("rise"), "*").collect()}
    assert {boot: row.rise for boot, row in rise.items()} == {
        mine[0]["boot_id"]: 29,
        "later": 7 * (len(again) - 1),
    }


def test_great_and_odd_values(spark: Any, tmp_path: Path) -> None:
    """Nothing overflows, also not where a sum of squares is beyond 64 bits; hostile values are cut, not fatal."""
    huge = 2**63 - 1
    queue = next(row for row in ROWS if row["kind"] == "queue" and row["role"] == "master")
    made = [
        {**queue, "seq": seq, "ts": START_S * 1000 + seq * 10_000, "ready": 2**46 + seq, "mem_bytes": huge}
        for seq in range(300)
    ]
    roots.write(
        tmp_path, [*made, {**queue, "seq": 999, "ready": -huge, "disk_bytes": None, "confirm_us": [1]}]
    )
    rolled = rollup(read(spark, tmp_path, "queue").frame, "queue")
    row = merge(rolled, "queue", since_s=START_S - 7 * 86400).select(slope_per_s("ready_fit"), "*").first()
    assert row.n == 301
    assert row.mem_bytes_fit.yy > 2**95
    unequal = rolled.select(histogram_added("confirm_us")).first()[0]
    assert unequal is None or len(unequal) == 32


def test_histograms(rolled: Any) -> None:
    """Each bucket rises by the difference between the first and the last row."""
    got = rolled.where("role = 'master'")
    for row in got.select(histogram_added("confirm_us").alias("rise"), "first", "last").collect():
        assert row.rise == [b - a for a, b in zip(row.first.confirm_us, row.last.confirm_us, strict=True)]
        assert sum(row.rise) > 0


def test_nothing(spark: Any) -> None:
    for kind in ("node", "queue"):
        empty = spark.createDataFrame([], schema(kind))
        assert merge(rollup(empty, kind), kind).collect() == []
        assert set(ROLLUPS[kind].extremes) <= set(FIELDS[kind])
