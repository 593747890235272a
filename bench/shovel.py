"""The workload of a shovel between two brokers of one make, `on-confirm`: persistent messages from queue to queue.

The queue of the first broker is filled before; the shovel runs on the second one, with the default prefetch. Nobody
consumes: the queue of the second broker is asked for its length.
"""

import json
from collections.abc import Sequence

from bench.client import Connection
from bench.frames import PERSISTENT, Message, chunks, numbered_body
from bench.pairs import another, uri, wait_for_length
from bench.report import AtLeast, Row
from bench.servers import Meter, Server
from bench.workloads import CHUNK_BYTES, Outcome, Scale, Workload

PLUGIN = "rabbitmq_shovel"
QUEUE = "bench.shovel"
BODY_BYTES = 100
MESSAGES = 100_000


def shovel_on_confirm(source: Server, scale: Scale) -> Outcome:
    """Move messages from a queue of one broker to one of another; the rate is that of the messages that arrived.

    The CPU seconds are those of both brokers, without the time that filling takes.
    """
    count = MESSAGES // scale.divisor
    destination = another(source)
    with destination:
        destination.start()
        destination.enable_plugin(PLUGIN)
        _fill(source, count)
        target = Connection(destination.port)
        target.declare_queue(QUEUE, durable=True)
        other = Meter(destination)
        with Meter(source) as meter, other:
            _set_shovel(source, destination)
            began_at = wait_for_length(target, QUEUE, 1)
            arrived_before = target.declare_queue(QUEUE, durable=True, passive=True)
            ended_at = wait_for_length(target, QUEUE, count)
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
    wait_for_length(publisher, QUEUE, count)
    publisher.close()


def _set_shovel(source: Server, destination: Server) -> None:
    value = {
        "src-uri": uri(source),
        "src-queue": QUEUE,
        "dest-uri": uri(destination),
        "dest-queue": QUEUE,
        "ack-mode": "on-confirm",
    }
    destination.ctl("set_parameter", "shovel", "bench", json.dumps(value))


SHOVEL_WORKLOADS: Sequence[Workload] = (
    Workload(
        "shovel-confirm", shovel_on_confirm, [Row("rate", "msg/s", AtLeast(5.0))], fresh=True, keeps=True
    ),
)
