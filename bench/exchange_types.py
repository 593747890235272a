"""Workloads of the exchange types that plug-ins bring: consistent hashing to 100 queues, beside RabbitMQ's plug-in."""

from collections.abc import Sequence

from bench.flow import AHEAD_COUNT_MAX, Bed, PlainPublisher, Sink
from bench.frames import DeliveryShape, Message, chunks, numbered_body
from bench.report import AtLeast, Row
from bench.servers import Server
from bench.workloads import CHUNK_BYTES, Outcome, Scale, Workload, outcome

EXCHANGE = "bench.hash"
PLUGIN = "rabbitmq_consistent_hash_exchange"
QUEUE_COUNT = 100
KEY_COUNT = 8000
"""As many keys as `topic-1000` has: fewer than a node remembers."""


def hash_messages() -> list[Message]:
    """Return a message for each key; keys are distinct and of equal length."""
    return [
        Message(EXCHANGE, f"customer-{number:05}", numbered_body(number, 100)) for number in range(KEY_COUNT)
    ]


def consistent_hash(server: Server, scale: Scale) -> Outcome:
    """Publish with 8,000 keys in turn to 100 queues of weight 1, with one consumer connection for all of them.

    The rate is that of the deliveries; a message that goes to no queue, or to two, fails the workload.
    """
    server.enable_plugin(PLUGIN)
    messages = hash_messages()
    tags = [f"c{queue:02}" for queue in range(QUEUE_COUNT)]
    any_tag = frozenset(tag.encode() for tag in tags)
    with Bed(server) as bed:
        bed.exchange(EXCHANGE, "x-consistent-hash")
        connection = bed.connect()
        for queue, tag in enumerate(tags):
            bed.queue(f"bench.h{queue:02}")
            bed.bind(f"bench.h{queue:02}", EXCHANGE, "1")
            connection.consume(f"bench.h{queue:02}", tag, no_ack=True)
        shape = DeliveryShape(messages, consumer_tags_of=[any_tag] * len(messages), ordered=False)
        bed.sinks.append(Sink(connection, shape, tags))
        prepared = chunks(messages, [1] * len(messages), chunk_bytes=CHUNK_BYTES)
        bed.publishers.append(PlainPublisher(bed.connect(), prepared, ahead_count_max=AHEAD_COUNT_MAX))
        flow = bed.run(scale.seconds)
        return outcome(flow, rate=flow.delivery_count / flow.elapsed_s)


EXCHANGE_TYPE_WORKLOADS: Sequence[Workload] = (
    Workload("hash-100", consistent_hash, [Row("rate", "deliveries/s", AtLeast(10))], fresh=True),
)
