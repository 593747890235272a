"""The workloads of federation between two brokers of one make: an exchange that is busy, and many links that are idle.

Both brokers have the plug-in: links run downstream, and upstream they use its exchange type. Nobody consumes
downstream; the queue there is asked for its length.
"""

import json
import re
import time
from collections.abc import Sequence

from bench.client import BenchError, Connection
from bench.flow import STALL_S
from bench.frames import PERSISTENT, Message, chunks, numbered_body
from bench.pairs import POLL_S, another, uri, wait_for_length
from bench.report import AtLeast, Row
from bench.servers import Meter, Server
from bench.workloads import CHUNK_BYTES, Outcome, Scale, Workload

PLUGIN = "rabbitmq_federation"
DOWNSTREAM = "bench-downstream"
"""The name of the cluster downstream. Both would have the same one, and loops are told by it."""

UPSTREAM = "bench"
NAME = "bench.federation"
"""The exchange on both sides, and the queue downstream."""

BODY_BYTES = 100
MESSAGES = 100_000
PROBE_S = 0.1
"""The pause between messages that are published to find out whether the link runs."""

QUIET_S = 0.5
"""The time for which nothing has to come after the probes, before the clock starts."""

LINKS = 500
LINKS_RUN_S = 120.0
"""The longest time until all idle links run."""

LINKS_POLL_S = 1.0
IDLE_SCALES = 8
"""The idle links are watched for so many times the seconds of a timed workload: 32 s, three heartbeats of 10 s."""

SETTLE_S = 3.0
"""The pause before idle links are watched, so that their start is not counted."""


def exchange(upstream: Server, scale: Scale) -> Outcome:
    """Publish to an exchange of one broker while a link passes all of it on to another; the rate is that downstream.

    It counts from the first publish to the last arrival. The CPU seconds are those of both brokers.
    """
    count = MESSAGES // scale.divisor
    messages = [Message(NAME, "", numbered_body(number, BODY_BYTES), PERSISTENT) for number in range(count)]
    prepared = chunks(messages, [1] * count, chunk_bytes=CHUNK_BYTES)
    upstream.enable_plugin(PLUGIN)
    downstream = another(upstream)
    with downstream:
        downstream.start()
        begin_downstream(downstream)
        publisher, target = Connection(upstream.port), Connection(downstream.port)
        for each in (publisher, target):
            each.declare_exchange(NAME, "fanout", durable=True)
        target.declare_queue(NAME, durable=True)
        target.bind_queue(NAME, NAME)
        federate(downstream, upstream, f"^{re.escape(NAME)}$")
        before = await_link(publisher, target)
        other = Meter(downstream)
        with Meter(upstream) as meter, other:
            for chunk in prepared:
                publisher.socket.sendall(chunk.data)
            ended_at = wait_for_length(target, NAME, before + count)
        if (length := target.declare_queue(NAME, durable=True, passive=True)) != before + count:
            raise BenchError(f"{before + count} messages were expected, and {length} came")
        publisher.close()
        target.close()
    rate = count / (ended_at - meter.started_at)
    cpu_s = meter.server_cpu_s + other.server_cpu_s
    return Outcome({"rate": rate}, count, meter.elapsed_s, cpu_s, meter.generator_cpu_s)


def idle_links(downstream: Server, scale: Scale) -> Outcome:
    """Have 500 exchanges federated while nothing is published, and measure what the node downstream needs for it.

    `cpu`: milliseconds a second.   `rss`: the node.   `added`: what each link adds to it.   `up`: until all run.
    """
    count = LINKS // scale.divisor
    begin_downstream(downstream)
    upstream = another(downstream)
    with upstream:
        upstream.start()
        upstream.enable_plugin(PLUGIN)
        with Connection(downstream.port) as client:
            client.declare_queue(NAME, durable=True)
            for number in range(count):
                client.declare_exchange(f"{NAME}.{number}", "fanout", durable=True)
                client.bind_queue(NAME, f"{NAME}.{number}")
            client.close()
        time.sleep(SETTLE_S)
        before = downstream.rss_bytes()
        began_at = time.perf_counter()
        federate(downstream, upstream, rf"^{re.escape(NAME)}\.")
        up_s = await_links(downstream, count) - began_at
        time.sleep(SETTLE_S)
        with Meter(downstream) as meter:
            time.sleep(IDLE_SCALES * scale.seconds)
        rss = downstream.rss_bytes()
        if (running := running_links(downstream)) != count:
            raise BenchError(f"{count} links were to run, and {running} do")
    metrics = {
        "cpu": meter.server_cpu_s / meter.elapsed_s * 1e3,
        "rss": rss / 1e6,
        "added": (rss - before) / count / 1e3,
        "up": up_s,
    }
    return Outcome(metrics, 0, meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s)


def begin_downstream(server: Server) -> None:
    """Enable the plug-in, and give the cluster a name of its own."""
    server.enable_plugin(PLUGIN)
    server.ctl("set_cluster_name", DOWNSTREAM)


def federate(downstream: Server, upstream: Server, pattern: str) -> None:
    """Federate the exchanges whose names match with those of another broker, with the default settings."""
    downstream.ctl("set_parameter", "federation-upstream", UPSTREAM, json.dumps({"uri": uri(upstream)}))
    policy = json.dumps({"federation-upstream": UPSTREAM})
    downstream.ctl("set_policy", "--apply-to", "exchanges", UPSTREAM, pattern, policy)


def await_link(publisher: Connection, target: Connection, *, stall_s: float = STALL_S) -> int:
    """Publish until something comes, and wait until no more comes. Returns: the messages that are in the queue then.

    Raises: BenchError if nothing comes for `stall_s`.
    """
    probe = Message(NAME, "", numbered_body(0, BODY_BYTES), PERSISTENT).publish()
    deadline = time.perf_counter() + stall_s
    while not (length := target.declare_queue(NAME, durable=True, passive=True)):
        if time.perf_counter() > deadline:
            raise BenchError("the link passes nothing on")
        publisher.socket.sendall(probe)
        time.sleep(PROBE_S)
    changed_at = time.perf_counter()
    while time.perf_counter() < changed_at + QUIET_S:
        time.sleep(POLL_S)
        now = target.declare_queue(NAME, durable=True, passive=True)
        if now != length:
            length, changed_at = now, time.perf_counter()
    return length


def await_links(server: Server, count: int, *, longest_s: float = LINKS_RUN_S) -> float:
    """Wait until so many links run, and return the time. Raises: BenchError after `longest_s`."""
    deadline = time.perf_counter() + longest_s
    while (running := running_links(server)) < count:
        if time.perf_counter() > deadline:
            raise BenchError(f"{count} links were to run, and {running} do")
        time.sleep(LINKS_POLL_S)
    return time.perf_counter()


def running_links(server: Server) -> int:
    """Return how many links run, by the operator's command, which prints the same terms for both brokers."""
    return len(re.findall(r"\bstatus\s*=>\s*running\b", server.ctl("federation_status")))


FEDERATION_WORKLOADS: Sequence[Workload] = (
    Workload("federation-exchange", exchange, [Row("rate", "msg/s", AtLeast(4.0))], fresh=True, keeps=True),
    Workload(
        "links-idle-500",
        idle_links,
        [Row("cpu", "ms/s"), Row("rss", "MB"), Row("added", "kB/link"), Row("up", "s")],
        fresh=True,
        rounds=1,
    ),
)
