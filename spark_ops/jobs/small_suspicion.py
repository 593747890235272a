"""The suspicious queues of a small window are selected on the driver, without Spark, by the conditions of `suspicion`.

Rules judge only these, so that a window of many quiet queues is judged quickly. Tests compare the two modules.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from spark_ops.health.facts import LinkMinute
from spark_ops.health.rules_confirms import bucket_us, first_minute
from spark_ops.health.settings import Settings
from spark_ops.jobs.small_columns import (
    Bools,
    Floats,
    Groups,
    Lists,
    Longs,
    Numbers,
    are,
    codes,
    lists,
    numbers,
)
from spark_ops.jobs.small_facts import Flat
from spark_ops.jobs.suspicion import DILUTED, RECENT_MINUTES
from spark_ops.telemetry.schema import HISTOGRAM_BUCKETS, bucket_limit_us

_NEVER: Final = -(1 << 40)
_LIMITS: Final = [bucket_limit_us(at) for at in range(HISTOGRAM_BUCKETS)]
YOUNG_MS: Final = 600_000
"""If a process has just started, its counts before its first minute in the window are recent too."""


@dataclass(frozen=True, slots=True)
class Totals:
    """A row for each queue.   of_fact: the queue of each fact, as a position in the other columns.

    names: vhost and queue.   cpu_us: of all copies.
    """

    of_fact: Longs
    names: list[tuple[str, str]]
    cpu_us: Longs
    ready_max: Numbers
    is_suspicious: Bools


class _Queues:
    """The facts of queues of a window by process and by queue."""

    def __init__(self, flat: Flat, end: int) -> None:
        self.flat = flat
        self.end = end
        self.minute = Numbers(flat.minute, np.ones(len(flat.minute), dtype=np.bool_))
        self.processes = Groups(codes(flat.table, ("node", "vhost", "queue", "boot_id")))
        by_queue = codes(flat.table, ("vhost", "queue"))
        firsts = self.processes.starts
        _, at, self.of_fact = np.unique(by_queue, return_index=True, return_inverse=True)
        self.of_fact = self.of_fact.reshape(-1)
        self.of_process: Longs = self.of_fact[firsts]
        self.count = len(at)
        self.names = [
            (row["vhost"], row["queue"])
            for row in flat.table.select(["vhost", "queue"]).take(pa.array(at)).to_pylist()
        ]
        nodes = flat.table.column("node").take(pa.array(firsts)).to_pylist() if len(firsts) else []
        self.nodes = np.array(nodes, dtype=object)
        self.is_recent = flat.minute >= end - RECENT_MINUTES

    def column(self, name: str) -> Numbers:
        """Return a column of the last rows."""
        return numbers(self.flat.table, name)

    def rise(self, name: str, where: Bools | None = None) -> npt.NDArray[Any]:
        """Return by how much a counter rose in each process."""
        return self.processes.rise(self.column(name), where)

    def any(self, of_process: Bools) -> Bools:
        """True for the queues with a process that is true."""
        return np.bincount(self.of_process, of_process, self.count) > 0

    def most(self, of_process: Numbers, none: int = _NEVER) -> Numbers:
        """Return the maximum of each queue."""
        values = np.full(self.count, none, dtype=np.int64)
        np.maximum.at(values, self.of_process[of_process.known], of_process.values[of_process.known])
        return Numbers(values, self.any(of_process.known))


def queue_totals(
    flat: Flat,
    settings: Settings,
    end: int,
    zones: Mapping[str, str | None],
    cores: float,
    silent: Mapping[str, int],
) -> Totals:
    """Return what `suspicion.queue_totals` does; minutes are counted since 1970."""
    queues = _Queues(flat, end)
    of, recent = settings.of, queues.is_recent
    is_hour = flat.minute >= end - round(of("hot-single-queue", "minutes"))
    span_s = queues.rise("mono_ms", is_hour) / 1000
    hot = queues.rise("cpu_us_total", is_hour) / 1e6 > 0.9 * of(
        "hot-single-queue", "share"
    ) * cores * np.maximum(span_s, 60.0)
    ratio = of("redelivery-loop", "ratio")
    redelivered = queues.rise("redeliver_total", recent)
    delivered = queues.rise("dlv_total", recent) + queues.rise("get_total", recent)
    comes_back = (redelivered >= ratio * of("redelivery-loop", "deliveries_min")) & (
        redelivered >= ratio / DILUTED * delivered
    )
    dropped = queues.rise("dropped_total", recent) - queues.rise("dead_lettered_total", recent)
    drops = dropped >= of("messages-dropped", "dropped_min") / DILUTED
    lost = queues.column("dead_letters_lost_total")
    begins = queues.processes.least(queues.minute).values >= end - RECENT_MINUTES
    loses = (queues.processes.rise(lost, recent) >= 1) | (
        begins & (queues.processes.most(lost, recent).values > 0)
    )
    odd = queues.processes.any(recent & _odd(flat, settings, zones))
    by_copy = odd | hot | comes_back | drops | loses | _waits(queues, settings)
    found = queues.any(by_copy) | _growing(queues, settings) | _lost_master(queues, settings, silent)
    cpu_us = np.bincount(queues.of_process, queues.rise("cpu_us_total"), queues.count).astype(np.int64)
    ready = queues.most(queues.processes.most(queues.column("ready")))
    return Totals(queues.of_fact, queues.names, cpu_us, ready, found)


def _lost_master(queues: _Queues, settings: Settings, silent: Mapping[str, int]) -> Bools:
    stale = round(settings.health["stale_minutes"])
    of_role = {
        role: queues.processes.most(queues.minute, are(queues.flat.table, "role", role))
        for role in ("master", "mirror")
    }
    master, mirror = queues.most(of_role["master"]), queues.most(of_role["mirror"])
    found = mirror.known & (mirror.values >= queues.end - 2 * stale) & (master.values < mirror.values - stale)
    # The node of the last master: of the processes whose last minute as master is the queue's.
    own = of_role["master"]
    is_last = own.known & (own.values == master.values[queues.of_process])
    for node, last in silent.items():
        was_master = queues.any(is_last & (queues.nodes == node))
        found |= was_master & master.known & (master.values >= last - stale)
    return found


def _waits(queues: _Queues, settings: Settings) -> Bools:
    """True for the processes with confirms that no rule calls fast."""
    kind = "slow-confirms"
    of, end, minute = settings.of, queues.end, queues.flat.minute
    minutes = round(of(kind, "minutes"))
    least_us = 1000 * min(of(kind, name) for name in ("floor_ms", "bound_ms", "stuck_ms"))
    first = next((at for at in range(HISTOGRAM_BUCKETS) if bucket_us(_LIMITS, at) >= least_us), None)
    since = first_minute(end, minutes)
    histogram = lists(queues.flat.table, "confirm_us")
    slow, every = (_total(histogram, at) for at in (HISTOGRAM_BUCKETS if first is None else first, 0))
    is_judged = (minute >= end - minutes) & (minute < end)
    is_before = (minute >= since) & (minute < end - minutes)
    of_process = queues.processes
    most, least = of_process.most(slow, is_judged), of_process.least(slow, is_judged)
    before = of_process.most(slow, is_before)
    begun = of_process.least(queues.minute).values >= since
    base = np.where(before.known, before.values, np.where(begun, 0, least.values))
    rise = most.values - base
    confirms = of_process.rise(every, is_judged)
    return most.known & (rise >= 1) & (rise >= 0.01 * confirms)


def _total(histogram: Lists, since: int) -> Numbers:
    """Return the sum of each histogram's buckets from one on."""
    items = np.asarray(pc.fill_null(histogram.items, 0).to_numpy(zero_copy_only=False), dtype=np.int64)
    upto = np.concatenate(([0], np.cumsum(items)))
    starts = np.minimum(histogram.starts + since, histogram.ends)
    return Numbers(upto[histogram.ends] - upto[starts], histogram.known)


def _odd(flat: Flat, settings: Settings, zones: Mapping[str, str | None]) -> Bools:
    """True for the minutes of a copy that are bad for any rule."""
    of, table = settings.of, flat.table
    lag_ms = min(of("mirror-lagging", "lag_ms"), of("mirror-lagging", "growing_lag_ms"))
    ring, synced = lists(table, "ring"), lists(table, "synced")
    wanted = numbers(table, "want_mirrors")
    consumers, ready = numbers(table, "consumers"), numbers(table, "ready")
    prefetch, unacked = numbers(table, "prefetch_sum"), numbers(table, "unacked")
    util, age = numbers(table, "consumer_util"), numbers(table, "head_age_ms")
    starved = util.known & (util.values < of("consumer-starvation", "util"))
    filled = unacked.known & (unacked.values >= of("unacked-stuck", "filled") * prefetch.values)
    found: Bools = (
        (ring.known & wanted.known & (ring.lengths - 1 < wanted.values))
        | _lacks(ring, synced)
        | flat.extremes["lag_ms_max"].above(lag_ms, or_equal=True)
        | (consumers.known & (consumers.values == 0) & ready.above(0))
        | (consumers.above(0) & starved)
        | (prefetch.above(0) & filled)
    )
    slo_ms = of("consumer-starvation", "head_age_slo_s") * 1000
    if slo_ms:
        found |= consumers.above(0) & age.above(slo_ms)
    live = {node: zone for node, zone in zones.items() if zone is not None}
    if len(set(live.values())) > 1:
        found |= _in_one_zone(ring, live)
    return found


def _lacks(ring: Lists, synced: Lists) -> Bools:
    """True for the rings with a node that is not synchronised."""
    members = pc.dictionary_encode(pa.chunked_array([ring.items, synced.items]), null_encoding="encode")
    indices = np.asarray(members.combine_chunks().indices.to_numpy(zero_copy_only=False), dtype=np.int64)
    wide = int(indices.max(initial=0)) + 1
    of_ring, of_synced = indices[: len(ring.items)], indices[len(ring.items) :]
    is_there = np.isin(ring.rows * wide + of_ring, synced.rows * wide + of_synced)
    missing = np.bincount(ring.rows[~is_there], minlength=len(ring.known)) > 0
    return missing & ring.known & synced.known


def _in_one_zone(ring: Lists, live: Mapping[str, str]) -> Bools:
    """True for the rings of several nodes that are all in one zone; unknown zones count as one."""
    zone_of = {zone: at for at, zone in enumerate(dict.fromkeys(live.values()))}
    by_node = {node: zone_of[zone] for node, zone in live.items()}
    encoded = pc.dictionary_encode(ring.items, null_encoding="encode")
    zones = np.array([by_node.get(node, -1) for node in encoded.dictionary.to_pylist()], dtype=np.int64)
    indices = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
    pairs = np.unique(ring.rows * (len(zone_of) + 1) + zones[indices] + 1)
    different = np.bincount(pairs // (len(zone_of) + 1), minlength=len(ring.known))
    is_one: Bools = different == 1
    return (ring.lengths > 1) & is_one


def _growing(queues: _Queues, settings: Settings) -> Bools:
    """True for the queues whose bytes grow linearly or whose master changed often."""
    kind, flat, end = "runaway-queue", queues.flat, queues.end
    minutes = max(settings.of(kind, "fit_minutes"), settings.of(kind, "minutes"))
    is_master = are(flat.table, "role", "master")
    size, epoch = queues.column("msg_bytes"), queues.column("epoch")
    own = is_master & size.known & (flat.minute >= end - minutes)
    of = queues.of_fact[own]
    line = lines(
        of, (flat.minute[own] - end).astype(np.float64), size.values[own].astype(np.float64), queues.count
    )
    is_line = line.slopes * minutes > 0.9 * settings.of(kind, "rise_min_bytes")
    is_line &= line.slopes * line.sxy > (settings.of(kind, "r2_min") - 1e-6) * line.syy
    pairs = np.unique(
        np.stack([queues.of_fact[is_master & epoch.known], epoch.values[is_master & epoch.known]]), axis=1
    )
    epochs = np.bincount(pairs[0].astype(np.int64), minlength=queues.count)
    found: Bools = is_line | (epochs > settings.of("unstable-failover", "changes"))
    return found


@dataclass(frozen=True, slots=True)
class Lines:
    """The sums of regressions, each around its means.   n: number of points."""

    n: Longs
    sxx: Floats
    sxy: Floats
    syy: Floats

    @property
    def slopes(self) -> Floats:
        """The slope of each line; 0 where all x are the same."""
        return np.divide(self.sxy, self.sxx, out=np.zeros_like(self.sxy), where=self.sxx > 0)


def lines(of: Longs, x: Floats, y: Floats, count: int) -> Lines:
    """Return the regressions of `count` groups of points.   of: the group of each point."""
    n = np.bincount(of, minlength=count).astype(np.int64)
    size = np.maximum(n, 1)
    dx = x - (np.bincount(of, x, count) / size)[of]
    dy = y - (np.bincount(of, y, count) / size)[of]
    # Without points, numpy counts in integers.
    sums = (np.bincount(of, each, count).astype(np.float64) for each in (dx * dx, dx * dy, dy * dy))
    return Lines(n, *sums)


def suspicious_links(
    links: Mapping[tuple[str, str], list[LinkMinute]], settings: Settings
) -> list[tuple[str, str]]:
    """Return the links that reconnected or had slow round trips."""
    slow_us = settings.of("flapping-link", "hop_min_us")
    first = next(at for at in range(HISTOGRAM_BUCKETS) if bucket_limit_us(at) > slow_us)

    def is_bad(facts: list[LinkMinute]) -> bool:
        cuts = [fact.reconnects_total for fact in facts if fact.reconnects_total is not None]
        slow = [sum(fact.rtt_us[first:]) for fact in facts if fact.rtt_us is not None]
        has_risen = any(values and max(values) > min(values) for values in (cuts, slow))
        is_young = min(fact.mono_ms for fact in facts) < YOUNG_MS
        return has_risen or (is_young and any(values and max(values) > 0 for values in (cuts, slow)))

    found = []
    for name, facts in links.items():
        boots = {fact.boot for fact in facts}
        if any(is_bad([fact for fact in facts if fact.boot == boot]) for boot in boots):
            found.append(name)
    return found
