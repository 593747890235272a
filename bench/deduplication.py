"""Workload of a deduplicating exchange whose window is full: new ids push out old ones, duplicates are dropped.

RabbitMQ has no such exchange without a community plug-in, so the row is Fluffle's alone.
"""

import time
from collections.abc import Iterator, Sequence

from bench.client import Connection
from bench.flow import STALL_S, Bed
from bench.frames import Message, header_properties, numbered_body, string_table
from bench.report import NotBelow, Row
from bench.servers import Meter, Server
from bench.workloads import SETTLE_S, Outcome, Scale, Workload, await_count

QUEUE, EXCHANGE = "bench.dedup", "bench.dedup.x"
IDS_AT_ONCE = 500
"""The messages that are made and sent at a time, some 100 KB."""


def _messages(numbers: Sequence[int]) -> bytes:
    """Return the publishes of messages whose ids are these numbers, with 36 characters as a UUID has."""
    properties = header_properties({"x-deduplication-header": "0" * 36})
    probe = Message(EXCHANGE, "", numbered_body(0, 16), properties).publish()
    head, _, tail = probe.partition(b"0" * 36)
    return b"".join(b"%b%036d%b" % (head, number, tail) for number in numbers)


def _send(connection: Connection, numbers: Iterator[Sequence[int]]) -> int:
    count = 0
    for part in numbers:
        connection.socket.sendall(_messages(part))
        count += len(part)
    return count


def _in_parts(first: int, stop: int) -> Iterator[Sequence[int]]:
    for at in range(first, stop, IDS_AT_ONCE):
        yield range(at, min(at + IDS_AT_ONCE, stop))


def _half_known(first: int, stop: int) -> Iterator[Sequence[int]]:
    """Yield new ids, each part followed by the part that was new just before it."""
    for part in _in_parts(first, stop):
        yield part
        yield range(part[0] - IDS_AT_ONCE, part[0])


def full_window(server: Server, scale: Scale) -> Outcome:
    """Fill the window of an exchange, then publish as many new ids as known ones; the rate is that of the publishes."""
    size = 1_000_000 // scale.divisor
    new = size // 5
    with Bed(server) as bed:
        bed.queue(QUEUE)
        bed.exchange(EXCHANGE, "x-message-deduplication", arguments=string_table({"x-cache-size": str(size)}))
        bed.bind(QUEUE, EXCHANGE)
        connection = bed.connect()
        connection.socket.settimeout(STALL_S)
        before = server.rss_bytes()
        with Meter(server) as filling:
            _send(connection, _in_parts(0, size))
            await_count(connection, QUEUE, size)
        time.sleep(SETTLE_S)
        rss = server.rss_bytes() - before
        with Meter(server) as meter:
            count = _send(connection, _half_known(size, size + new))
            await_count(connection, QUEUE, size + new)
        bed.discard(QUEUE, size + new)
    metrics = {"rate": count / meter.elapsed_s, "fill": size / filling.elapsed_s, "rss": rss / 1e6}
    return Outcome(metrics, count, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


DEDUPLICATION_WORKLOADS: Sequence[Workload] = (
    Workload(
        "dedup-1M",
        full_window,
        [Row("rate", "msg/s", NotBelow(100_000)), Row("fill", "msg/s"), Row("rss", "MB")],
        fresh=True,
        alone=True,
    ),
)
