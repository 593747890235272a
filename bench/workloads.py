"""Workloads without a disk: actions, metrics and requirements of each.

Names are stable, since `--only` takes them and docs/benchmark.md quotes them. Rows without a requirement
show where the fast paths do not apply. bench/durability.py has the workloads whose messages go to disk,
bench/cluster_workloads.py the workloads on three nodes.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from bench.client import BenchError, Connection
from bench.flow import (
    AHEAD_COUNT_MAX,
    STALL_S,
    Acks,
    Bed,
    ConfirmPublisher,
    FlowOutcome,
    PlainPublisher,
    Publisher,
    Sink,
)
from bench.frames import (
    NO_PROPERTIES,
    PERSISTENT,
    DeliveryShape,
    Message,
    Properties,
    chunks,
    header_properties,
    numbered_body,
    typical_properties,
)
from bench.loops import LoopPublisher, closed_loops, steady_latency
from bench.paced import paced
from bench.report import AtLeast, Below, NotAbove, Row, percentile
from bench.servers import Broker, Meter, Server

CYCLE_BYTES = 262_144
CHUNK_BYTES = 131_072
"""Prepared publishes: two buffers of 128 KiB, whose messages all differ."""
LATENCY_RATE = 5000
SETTLE_S = 1.0
"""Before memory is read: long enough for a collector that runs when idle."""
ACKS_GATHERED = 100
"""Deliveries that a consumer with prefetch 500 takes and acknowledges at a time."""


class Scale(NamedTuple):
    """The duration of publishing in timed workloads, and the divisor for the counts of the others."""

    seconds: float
    divisor: int


FULL, QUICK = Scale(4.0, 1), Scale(1.0, 10)


class Outcome(NamedTuple):
    """One round of one workload on one broker."""

    metrics: dict[str, float]
    message_count: int
    elapsed_s: float
    server_cpu_s: float
    generator_cpu_s: float


@dataclass(frozen=True)
class Workload:
    """A workload.   run: measures one round on a running server.   fresh: on a server that was started for it alone.

    keeps: the messages go to disk.   alone: it runs on Fluffle only.   clustered: `run` takes a Cluster instead of a
    Server; managed: a Server whose HTTP API is on.   rounds: overrides `--rounds`; a quick run takes the smaller one.
    mqtt: it runs on brokers that speak MQTT alone, too.   lacking: names of brokers without what it measures.
    """

    name: str
    run: Callable[[Any, Scale], Outcome]
    rows: Sequence[Row]
    fresh: bool = False
    keeps: bool = False
    alone: bool = False
    clustered: bool = False
    managed: bool = False
    rounds: int | None = None
    mqtt: bool = False
    lacking: Sequence[str] = ()


def outcome(flow: FlowOutcome, **metrics: float) -> Outcome:
    """Return the outcome with the given metrics, or with the rate of messages."""
    meter = flow.meter
    numbers = metrics or {"rate": flow.message_count / flow.elapsed_s}
    return Outcome(numbers, flow.message_count, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


def joint_outcome(flows: Sequence[FlowOutcome], message_count: int, **metrics: float) -> Outcome:
    """Return the outcome of several flows of the same messages, which count once."""
    meters = [flow.meter for flow in flows]
    return Outcome(
        metrics,
        message_count,
        sum(meter.elapsed_s for meter in meters),
        sum(meter.server_cpu_s for meter in meters),
        sum(meter.generator_cpu_s for meter in meters),
    )


# -- one queue -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneQueue:
    """A workload with one publisher, one queue and one or more consumers, and its parameters."""

    body_bytes: int = 100
    properties_of: Callable[[int], Properties] = lambda _: NO_PROPERTIES
    routing_keys: Sequence[str] = ()
    """Routing keys of a direct exchange, used in turn; empty: the default exchange."""
    durable: bool = False
    confirm_window: int = 0
    consumer_count: int = 1
    consumer_channel: int = 1
    acks: Acks = Acks.NONE
    prefetch: int = 0
    gather_count: int | None = None
    ahead_count_max: int = AHEAD_COUNT_MAX
    home_node: int = 0
    publisher_node: int = 0
    consumer_node: int = 0
    """The nodes of a cluster where the queue is declared, and that the clients connect to."""

    def messages(self, queue: str) -> list[Message]:
        exchange = f"{queue}.x" if self.routing_keys else ""
        keys = self.routing_keys or [queue]
        probe = Message(exchange, keys[0], numbered_body(0, self.body_bytes), self.properties_of(0))
        # a multiple of the number of keys, so that their turn does not break between cycles
        count = max(4, CYCLE_BYTES // len(probe.publish()) // len(keys)) * len(keys)
        return [
            replace(
                probe,
                routing_key=keys[i % len(keys)],
                body=numbered_body(i, self.body_bytes),
                properties=self.properties_of(i),
            )
            for i in range(count)
        ]

    def set_up(self, bed: Bed, queue: str) -> None:
        messages = self.messages(queue)
        bed.queue(queue, durable=self.durable, client=bed.admin(self.home_node))
        if self.routing_keys:
            bed.exchange(messages[0].exchange, "direct")
            for key in self.routing_keys:
                bed.bind(queue, messages[0].exchange, key)
        for i in range(self.consumer_count):
            self._add_consumer(bed, queue, f"c{i}", messages)
        connection = bed.connect(node=self.publisher_node)
        copies = [1] * len(messages)
        if self.confirm_window:
            cycle = chunks(messages, copies, chunk_bytes=1 << 30)[0]
            bed.publishers.append(ConfirmPublisher(connection, cycle, window=self.confirm_window))
        else:
            prepared = chunks(messages, copies, chunk_bytes=CHUNK_BYTES)
            bed.publishers.append(PlainPublisher(connection, prepared, ahead_count_max=self.ahead_count_max))

    def _add_consumer(self, bed: Bed, queue: str, tag: str, messages: Sequence[Message]) -> None:
        channel = self.consumer_channel
        ordered = self.consumer_count == 1
        shape = DeliveryShape(messages, consumer_tag=tag, channel=channel, ordered=ordered)
        connection = bed.connect(node=self.consumer_node, channel=channel)
        if self.prefetch:
            connection.set_prefetch(self.prefetch)
        connection.consume(queue, tag, no_ack=self.acks is Acks.NONE)
        bed.sinks.append(Sink(connection, shape, [tag], acks=self.acks, gather_count=self.gather_count))

    def __call__(self, server: Broker, scale: Scale) -> Outcome:
        with Bed(server) as bed:
            self.set_up(bed, "bench.q")
            return flow_outcome(bed, bed.run(scale.seconds))


def flow_outcome(bed: Bed, flow: FlowOutcome) -> Outcome:
    """Return the rate, and the latency of the confirms, if there were any."""
    waits_s = [wait for p in bed.publishers if isinstance(p, ConfirmPublisher) for wait in p.waits_s]
    metrics = {"rate": flow.message_count / flow.elapsed_s}
    for percent in (50, 99) if waits_s else ():
        metrics[f"p{percent}"] = percentile(waits_s, percent) * 1e3
    return outcome(flow, **metrics)


def four_pairs(server: Server, scale: Scale) -> Outcome:
    with Bed(server) as bed:
        for i in range(4):
            OneQueue().set_up(bed, f"bench.q{i}")
        return outcome(bed.run(scale.seconds))


# -- exchanges -----------------------------------------------------------------------------------------


def fanout(server: Server, scale: Scale) -> Outcome:
    """Publish to ten queues with a consumer each; the rate is that of the deliveries."""
    queue_count = 10
    messages = [replace(message, exchange="bench.fanout") for message in OneQueue().messages("fanout")]
    with Bed(server) as bed:
        bed.exchange("bench.fanout", "fanout")
        for i in range(queue_count):
            queue, tag = f"bench.q{i}", f"c{i}"
            bed.queue(queue)
            bed.bind(queue, "bench.fanout")
            connection = bed.connect()
            connection.consume(queue, tag, no_ack=True)
            bed.sinks.append(Sink(connection, DeliveryShape(messages, consumer_tag=tag), [tag]))
        prepared = chunks(messages, [queue_count] * len(messages), chunk_bytes=CHUNK_BYTES)
        ahead = AHEAD_COUNT_MAX * queue_count
        bed.publishers.append(PlainPublisher(bed.connect(), prepared, ahead_count_max=ahead))
        flow = bed.run(scale.seconds)
        if {sink.delivery_count for sink in bed.sinks} != {flow.message_count}:
            raise BenchError("a queue got more or less than every message once")
        return outcome(flow, rate=flow.delivery_count / flow.elapsed_s)


TOPIC_QUEUE_COUNT = 100


def topic_bindings() -> list[tuple[int, str]]:
    """Return 1,000 bindings as (queue, pattern). For each queue: eight `rN.sQQ.*`, one `*.s…`, one `#.s…`."""
    found = []
    for queue in range(TOPIC_QUEUE_COUNT):
        found += [(queue, f"r{region}.s{queue:02}.*") for region in range(8)]
        found.append((queue, f"*.s{queue:02}.e9"))
        found.append((queue, f"#.s{(queue + 50) % TOPIC_QUEUE_COUNT:02}.e0"))
    return found


def topic_keys() -> Iterator[tuple[str, frozenset[int]]]:
    """Yield 8,000 distinct keys of equal length, each with the queues that `topic_bindings` routes it to."""
    for i in range(8 * 10 * TOPIC_QUEUE_COUNT):
        rest, service = divmod(i, TOPIC_QUEUE_COUNT)
        event, region = divmod(rest, 8)
        queues = {service}
        if event == 0:
            queues.add((service + 50) % TOPIC_QUEUE_COUNT)
        yield f"r{region}.s{service:02}.e{event}", frozenset(queues)


def topic(server: Server, scale: Scale) -> Outcome:
    """Publish with 8,000 keys in turn through 1,000 bindings to 100 queues; the rate is that of the deliveries."""
    exchange = "bench.topic"
    messages, targets = [], []
    for i, (key, queues) in enumerate(topic_keys()):
        messages.append(Message(exchange, key, numbered_body(i, 100)))
        targets.append(queues)
    tags = [f"c{queue:02}" for queue in range(TOPIC_QUEUE_COUNT)]
    allowed = [frozenset(tags[queue].encode() for queue in queues) for queues in targets]
    with Bed(server) as bed:
        bed.exchange(exchange, "topic")
        for queue in range(TOPIC_QUEUE_COUNT):
            bed.queue(f"bench.t{queue:02}")
        for queue, pattern in topic_bindings():
            bed.bind(f"bench.t{queue:02}", exchange, pattern)
        connection = bed.connect()
        for queue, tag in enumerate(tags):
            connection.consume(f"bench.t{queue:02}", tag, no_ack=True)
        shape = DeliveryShape(messages, consumer_tags_of=allowed, ordered=False)
        bed.sinks.append(Sink(connection, shape, tags))
        prepared = chunks(messages, [len(queues) for queues in targets], chunk_bytes=CHUNK_BYTES)
        bed.publishers.append(PlainPublisher(bed.connect(), prepared, ahead_count_max=AHEAD_COUNT_MAX))
        flow = bed.run(scale.seconds)
        return outcome(flow, rate=flow.delivery_count / flow.elapsed_s)


# -- full queues ---------------------------------------------------------------------------------------


def fill(
    bed: Bed, queue: str, count: int, *, durable: bool = False, properties: Properties = NO_PROPERTIES
) -> tuple[list[Message], FlowOutcome]:
    """Publish `count` messages to a queue without consumers, until they are all in it."""
    messages = [Message("", queue, numbered_body(i, 100), properties) for i in range(1000)]
    cycles, rest = divmod(count, len(messages))
    assert not rest, "whole cycles only"
    bed.queue(queue, durable=durable)
    connection = bed.connect()
    prepared = chunks(messages, [1] * len(messages), chunk_bytes=CHUNK_BYTES)
    bed.publishers = [PlainPublisher(connection, prepared, ahead_count_max=count, cycles=cycles)]
    return messages, bed.run(float("inf"), settle=lambda: await_count(connection, queue, count))


def await_count(connection: Connection, queue: str, count: int) -> None:
    """Poll until all published messages are in the queue. RabbitMQ replies to this ahead of waiting publishes.

    Raises: BenchError if there are too many, or no more arrive for STALL_S.
    """
    connection.socket.settimeout(STALL_S)
    seen, seen_at = -1, 0.0
    while (found := connection.declare_queue(queue, passive=True)) != count:
        if found != seen:
            seen, seen_at = found, time.perf_counter()
        if found > count or time.perf_counter() > seen_at + STALL_S:
            raise BenchError(f"{count} published, {found} in the queue")
        time.sleep(0.005)


def drain(
    bed: Bed, queue: str, messages: Sequence[Message], count: int, *, redelivered_or_not: bool = False
) -> FlowOutcome:
    """Consume `count` messages, all in the queue, with one consumer and auto-ack, timed from its consume."""
    connection = bed.connect()
    shape = DeliveryShape(messages, consumer_tag="c", redelivered_or_not=redelivered_or_not)
    bed.publishers = [Publisher.finished(count)]
    bed.sinks = [Sink(connection, shape, ["c"])]
    return bed.run(0.0, begin=lambda: connection.consume(queue, "c", no_ack=True))


def fill_and_drain(server: Server, scale: Scale) -> Outcome:
    count = 200_000 // scale.divisor
    with Bed(server) as bed:
        messages, filling = fill(bed, "bench.full", count)
        draining = drain(bed, "bench.full", messages, count)
    rates = {"drain": count / draining.elapsed_s, "fill": count / filling.elapsed_s}
    return joint_outcome([filling, draining], count, **rates)


def full_memory(server: Server, scale: Scale) -> Outcome:
    """Measure the resident memory of the whole broker with a million messages in one queue."""
    count = 1_000_000 // scale.divisor
    with Bed(server) as bed:
        _, flow = fill(bed, "bench.full", count)
        time.sleep(SETTLE_S)
        rss_bytes = server.rss_bytes()
        bed.discard("bench.full", count)
    return outcome(flow, rss=rss_bytes / 1e6)


# -- confirms in a closed loop, latency ----------------------------------------------------------------


def confirm_loops(server: Server, scale: Scale) -> Outcome:
    """Publish on 200 connections, each with one open publish, to 10 queues that one connection drains."""
    messages = [Message("", f"bench.l{i}", numbered_body(i, 100)) for i in range(10)]
    tags = [f"c{i}" for i in range(len(messages))]
    with Bed(server) as bed:
        consumer = bed.connect()
        for message, tag in zip(messages, tags, strict=True):
            bed.queue(message.routing_key)
            consumer.consume(message.routing_key, tag, no_ack=True)
        allowed = [frozenset([tag.encode()]) for tag in tags]
        shape = DeliveryShape(messages, consumer_tags_of=allowed, ordered=False)
        sink = Sink(consumer, shape, tags)
        bed.sinks.append(sink)
        publishers = [LoopPublisher(bed.connect(), messages[i % len(messages)]) for i in range(200)]
        flow, waits = closed_loops(server, publishers, sink, scale.seconds)
        return outcome(flow, rate=flow.message_count / flow.elapsed_s, p99=percentile(waits, 99) * 1e3)


def latency(server: Server, scale: Scale) -> Outcome:
    """Measure the latency from publish to receipt at 5,000 messages per second."""
    queue = "bench.latency"
    with Bed(server) as bed:
        bed.queue(queue)
        consumer, publisher = bed.connect(), bed.connect()
        consumer.consume(queue, "c", no_ack=True)
        flow, waits = steady_latency(
            server, publisher, consumer, queue, rate=LATENCY_RATE, seconds=scale.seconds
        )
        consumer.cancel("c")
    reached = flow.message_count / flow.elapsed_s
    if reached < 0.95 * LATENCY_RATE:
        raise BenchError(f"the steady rate was not reached: {reached:.0f}/s")
    return outcome(flow, p50=percentile(waits, 50) * 1e3, p99=percentile(waits, 99) * 1e3)


PACED_ROWS = [Row("p50", "ms", NotAbove()), Row("p99", "ms", NotAbove())]


def steady(
    broker: Broker,
    scale: Scale,
    queue: str,
    rate: int,
    properties: Properties = PERSISTENT,
    await_copies: Callable[[], None] = lambda: None,
) -> Outcome:
    """Publish single messages to a durable queue, `rate` a second, with confirms and acks.

    await_copies: called when the queue is there, before the clock starts.
    """
    with Bed(broker) as bed:
        bed.queue(queue, durable=True)
        await_copies()
        publisher, consumer = bed.connect(), bed.connect()
        consumer.consume(queue, "c", no_ack=False)
        broker.wait_until_quiet()
        with Meter(broker) as meter:
            seen = paced(publisher, consumer, queue, rate=rate, seconds=scale.seconds, properties=properties)
        consumer.cancel("c")
    metrics = {f"p{percent}": percentile(seen.confirm_waits_s, percent) * 1e3 for percent in (50, 99)}
    metrics["cores"] = meter.server_cpu_s / meter.elapsed_s
    return Outcome(metrics, seen.message_count, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


# -- a broker at rest ----------------------------------------------------------------------------------


def start(server: Server, scale: Scale) -> Outcome:
    """Measure the start of a fresh server, and its memory a moment later."""
    with Meter(server) as meter:
        time.sleep(SETTLE_S)
    metrics = {"ready": server.ready_s, "rss": server.rss_bytes() / 1e6}
    return Outcome(metrics, 0, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


def idle_connections(server: Server, scale: Scale) -> Outcome:
    """Measure the resident memory that each of 1,000 idle connections with one channel adds."""
    count = 1000 // scale.divisor
    with Bed(server) as bed:
        before = server.rss_bytes()
        with Meter(server) as meter:
            for _ in range(count):
                bed.connect(heartbeat=True)
            time.sleep(scale.seconds)  # RabbitMQ's idle processes hibernate, and give back memory
        added = server.rss_bytes() - before
    metrics = {"rss": added / count / 1e3}
    return Outcome(metrics, count, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


# -- the catalogue -------------------------------------------------------------------------------------


def _typical(index: int) -> Properties:
    return typical_properties(f"7e7c1b8a-93a4-4c43-9d5e-{index:012x}", 1_700_000_000)


def _three_headers(index: int) -> Properties:
    return header_properties({"trace-id": f"{index:016x}", "tenant": "rabbits", "retries": "0"})


def _rate(required: float | None = None, metric: str = "rate", unit: str = "msg/s") -> Row:
    return Row(metric, unit, AtLeast(required) if required else None)


_ACKED = OneQueue(prefetch=500, acks=Acks.EACH, gather_count=ACKS_GATHERED)
_PING_PONG = OneQueue(prefetch=1, acks=Acks.EACH, gather_count=1, ahead_count_max=1000)

WORKLOADS: Sequence[Workload] = (
    Workload("start", start, [Row("ready", "s", Below(1.0)), Row("rss", "MB", Below(60.0))], fresh=True),
    Workload("idle-connections", idle_connections, [Row("rss", "kB/conn", NotAbove())], fresh=True),
    Workload("pair-16B", OneQueue(16), [_rate(4)]),
    Workload("pair-100B", OneQueue(100), [_rate(4)]),
    Workload("pair-1KiB", OneQueue(1024), [_rate(3)]),
    Workload("pair-64KiB", OneQueue(65_536, ahead_count_max=1000), [_rate(1.5)]),
    Workload("acks", _ACKED, [_rate(4)]),
    Workload("acks-multiple", replace(_ACKED, acks=Acks.MULTIPLE), [_rate()]),
    Workload("confirms", OneQueue(confirm_window=1000), [_rate(5)]),
    Workload("four-pairs", four_pairs, [_rate(3)]),
    Workload("queue-200k", fill_and_drain, [_rate(4, "drain"), _rate(None, "fill")]),
    Workload("fanout-10", fanout, [_rate(3, unit="deliveries/s")]),
    Workload("topic-1000", topic, [_rate(3, unit="deliveries/s")]),
    Workload("confirm-loops-200", confirm_loops, [_rate(1.5), Row("p99", "ms", NotAbove())]),
    Workload("latency-5000", latency, [Row("p50", "ms", NotAbove()), Row("p99", "ms", NotAbove())]),
    Workload("typical-properties", OneQueue(properties_of=_typical), [_rate()]),
    Workload("three-headers", OneQueue(properties_of=_three_headers), [_rate()]),
    Workload("other-channel", OneQueue(consumer_channel=2), [_rate()]),
    Workload("ten-keys", OneQueue(routing_keys=[f"key-{i}" for i in range(10)]), [_rate()]),
    Workload("prefetch-1", _PING_PONG, [_rate()]),
    Workload("three-consumers", OneQueue(consumer_count=3), [_rate()]),
    Workload("memory-1m", full_memory, [Row("rss", "MB", Below(500.0))], fresh=True),
)
