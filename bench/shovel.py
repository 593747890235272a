"""The workload of a shovel between two brokers of one make, `on-confirm`: persistent messages from queue to queue.

The queue of the first broker is filled before; the shovel runs on the second one, with the default prefetch. Nobody
consumes: the queue of the second broker is asked for its length.
"""

import json
import time
from collections.abc import Sequence

from bench.client import BenchError, Connection
from bench.flow import STALL_S
from bench.frames import PERSISTENT, Message, chunks, numbered_body
from bench.report import AtLeast, Row
from bench.servers import Meter, Server
from bench.workloads import CHUNK_BYTES, Outcome, Scale, Workload

PLUGIN = "rabbitmq_shovel"
QUEUE = "bench.shovel"
BODY_BYTES = 100
MESSAGES = 100_000
POLL_S = 0.01


def shovel_on_confirm(source: Server, scale: Scale) -> Outcome:
    """Move messages from a queue of one broker to one of another; the rate is that of the messages that arrived.

    The CPU seconds are those of both brokers, without the time that filling takes.
    """
    count = MESSAGES // scale.divisor
    destination = type(source)()
    with destination:
        destination.start()
        destination.enable_plugin(PLUGIN)
        _fill(source, count)
        target = Connection(destination.port)
        target.declare_queue(QUEUE, durable=True)
        other = Meter(destination)
        with Meter(source) as meter, other:
            _set_shovel(source, destination)
            began_at = _wait_for(target, 1)
            arrived_before = target.declare_queue(QUEUE, durable=True, passive=True)
            ended_at = _wait_for(target, count)
        target.close()
    moved = count - arrived_before
    cpu_s = meter.server_cpu_s + other.server_cpu_s
    return Outcome(
        {"rate": moved / (ended_at - began_at)}, count, meter.elapsed_s, cpu_s, meter.generator_cpu_s
    )


def _fill(server: Server, count: int) -> None:
    messages = [Message("", QUEUE, numbered_body(number, BODY_BYTES), PERSISTENT) for number in range(count)]
    publisher = Connection(server.port)
    publisher.declare_queue(QUEUE, durable=True)
    for chunk in chunks(messages, [1] * count, chunk_bytes=CHUNK_BYTES):
        publisher.socket.sendall(chunk.data)
    _wait_for(publisher, count)
    publisher.close()


def _set_shovel(source: Server, destination: Server) -> None:
    value = {
        "src-uri": f"amqp://guest:guest@127.0.0.1:{source.port}",
        "src-queue": QUEUE,
        "dest-uri": f"amqp://guest:guest@127.0.0.1:{destination.port}",
        "dest-queue": QUEUE,
        "ack-mode": "on-confirm",
    }
    destination.ctl("set_parameter", "shovel", "bench", json.dumps(value))


def _wait_for(connection: Connection, count: int) -> float:
    """Wait until the queue has so many messages, and return the time. Raises: BenchError if no more come."""
    seen, seen_at = -1, time.perf_counter()
    while True:
        length = connection.declare_queue(QUEUE, durable=True, passive=True)
        now = time.perf_counter()
        if length >= count:
            return now
        if length != seen:
            seen, seen_at = length, now
        elif now > seen_at + STALL_S:
            raise BenchError(f"{count} messages were expected, and {length} came")
        time.sleep(POLL_S)


SHOVEL_WORKLOADS: Sequence[Workload] = (
    Workload(
        "shovel-confirm", shovel_on_confirm, [Row("rate", "msg/s", AtLeast(5.0))], fresh=True, keeps=True
    ),
)
