"""Workloads whose messages go to disk: persistent messages, backlogs that survive a restart, paging.

docs/benchmark.md, "Results", has the requirement of each row.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bench.client import BenchError, Connection
from bench.flow import Acks, Bed
from bench.frames import PERSISTENT, Properties
from bench.report import AtLeast, Below, NotAbove, NotBelow, Row
from bench.servers import MemoryWatch, Server
from bench.workloads import (
    ACKS_GATHERED,
    FULL,
    PACED_ROWS,
    SETTLE_S,
    OneQueue,
    Outcome,
    Scale,
    Workload,
    drain,
    fill,
    joint_outcome,
    steady,
)

QUEUE = "bench.kept"
WATERMARK_MB = 400
WATERMARK_QUICK_MB = 150
"""The watermark of a quick run. A tenth of the full one would be less than an empty node needs."""


def backlog_and_restarts(server: Server, scale: Scale) -> Outcome:
    """Publish a million persistent messages, measure the bytes written, kill and stop the broker, and consume them all.

    The kill comes first, because a clean stop tidies the files that the recovery reads. Each start is timed until its
    ready line, and all messages must be there immediately.
    """
    count = 1_000_000 // scale.divisor
    written_before = server.settled_written_bytes()
    with Bed(server) as bed:
        messages, filling = fill(bed, QUEUE, count, durable=True, properties=PERSISTENT)
        written_bytes = server.settled_written_bytes() - written_before
        bed.leave(QUEUE)
    if not written_bytes:
        raise BenchError(f"nothing was written: is {server.directory} on a disk?")
    after_kill_s = _restart(server, count, kill=True)
    after_stop_s = _restart(server, count, kill=False)
    with Bed(server) as bed:
        bed.queue(QUEUE, durable=True)
        # A killed broker can't know which messages it had delivered, so they may be marked as redelivered.
        draining = drain(bed, QUEUE, messages, count, redelivered_or_not=True)
    return joint_outcome(
        [filling, draining],
        count,
        fill=count / filling.elapsed_s,
        disk=written_bytes / count,
        restart=after_stop_s,
        recovery=after_kill_s,
        drain=count / draining.elapsed_s,
    )


def _restart(server: Server, count: int, *, kill: bool) -> float:
    """Restart, and return the seconds from the spawn to the ready line.

    Raises: BenchError unless `count` messages are in the queue.
    """
    server.restart(kill=kill)
    with Connection(server.port) as connection:
        found = connection.declare_queue(QUEUE, passive=True)
        connection.close()
    if found != count:
        raise BenchError(f"{found} of {count} messages after {'a kill' if kill else 'a clean stop'}")
    return server.ready_s


def paging(server: Server, scale: Scale) -> Outcome:
    """Publish and consume ten million transient messages on a node that may use 400 MB, and a million in memory.

    All messages are consumed, since the messages that stay in memory may be any part of the queue.
    """
    count = 10_000_000 // scale.divisor
    unpaged_count = 1_000_000 // scale.divisor
    with Bed(server) as bed:
        _, unpaged = fill(bed, QUEUE, unpaged_count)
        bed.discard(QUEUE, unpaged_count)
    watermark_mb = WATERMARK_MB if scale == FULL else WATERMARK_QUICK_MB
    server.restart(settings=[f"vm_memory_high_watermark.absolute = {watermark_mb}MB"])
    with Bed(server) as bed, MemoryWatch(server) as memory:
        messages, paged = fill(bed, QUEUE, count)
        time.sleep(SETTLE_S)
        settled_bytes = server.rss_bytes()
        draining = drain(bed, QUEUE, messages, count)
    unpaged_rate = unpaged_count / unpaged.elapsed_s
    paged_rate = count / paged.elapsed_s
    return joint_outcome(
        [paged, draining],
        count,
        rate=paged_rate,
        share=paged_rate / unpaged_rate,
        rss=settled_bytes / 1e6,
        rss_max=memory.max_bytes / 1e6,
        drain=count / draining.elapsed_s,
    )


def _persistent(_index: int) -> Properties:
    return PERSISTENT


_PERSISTENT = OneQueue(properties_of=_persistent, durable=True)
_CONFIRMED = replace(
    _PERSISTENT, confirm_window=1000, prefetch=500, acks=Acks.EACH, gather_count=ACKS_GATHERED
)

DURABLE_WORKLOADS: Sequence[Workload] = (
    Workload("persistent", _PERSISTENT, [Row("rate", "msg/s")], keeps=True),
    Workload(
        "persistent-confirms",
        _CONFIRMED,
        [Row("rate", "msg/s", AtLeast(3)), Row("p99", "ms", NotAbove())],
        keeps=True,
    ),
    Workload("paced-100", partial(steady, queue=QUEUE, rate=100), PACED_ROWS, keeps=True),
    Workload(
        "persistent-1m",
        backlog_and_restarts,
        [
            Row("fill", "msg/s", AtLeast(2)),
            Row("disk", "B/msg", NotAbove()),
            Row("restart", "s", NotAbove()),
            Row("recovery", "s", NotAbove()),
            Row("drain", "msg/s", AtLeast(2)),
        ],
        fresh=True,
        keeps=True,
    ),
    Workload(
        "paging-10m",
        paging,
        [
            Row("rate", "msg/s"),
            Row("share", "of unpaged", NotBelow(0.3)),
            Row("rss", "MB", Below(600.0)),
            Row("rss_max", "MB", Below(600.0)),
            Row("drain", "msg/s"),
        ],
        fresh=True,
        keeps=True,
        alone=True,
        rounds=1,
    ),
)
