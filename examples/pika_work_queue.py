"""A work queue with pika: tasks survive, are spread over workers, and come again when a worker or a broker dies.

    python examples/pika_work_queue.py work              # as many of these as you like
    python examples/pika_work_queue.py send one two three
    seq 1000 | python examples/pika_work_queue.py send -

AMQP_URL names the broker, or several of a cluster with semicolons between; the default is one on this machine.
"""

import contextlib
import os
import random
import sys
import time
import uuid

import pika

URLS = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F").split(";")
QUEUE = "tasks"
RETRY_S = 0.5
ERRORS = (pika.exceptions.AMQPError, OSError)
"""The broker is away, said no, or had no queue for the message: all of them may be otherwise soon."""


def open_channel():
    """Connect to a broker that answers, and make sure that the queue is there: whoever comes first makes it."""
    brokers = [pika.URLParameters(url) for url in URLS]
    for each in brokers:
        each.heartbeat = 10  # A broker that is silent for longer is left.
    random.shuffle(brokers)  # Clients spread over the nodes; pika tries one after the other.
    channel = pika.BlockingConnection(brokers).channel()
    channel.queue_declare(QUEUE, durable=True)
    return channel


def send(tasks):
    """Publish tasks; each is published until the broker has taken responsibility for it.

    When a confirm is lost with the connection, the task comes twice, with the same message id.
    """
    channel = None
    for task in tasks:
        properties = pika.BasicProperties(
            delivery_mode=pika.DeliveryMode.Persistent, message_id=str(uuid.uuid4())
        )
        while True:
            try:
                if channel is None:
                    channel = open_channel()
                    channel.confirm_delivery()
                channel.basic_publish("", QUEUE, task.encode(), properties, mandatory=True)
                break
            except ERRORS as error:
                print(f"again: {error!r}", file=sys.stderr)
                close(channel)
                channel = None
                time.sleep(RETRY_S)
        print(f"sent {task}")
    close(channel)


def work():
    """Do one task after another until interrupted. A task is acknowledged when it is done, not before."""

    def on_task(channel, method, properties, body):
        print(f"done {body.decode()}")
        channel.basic_ack(method.delivery_tag)

    while True:
        channel = None
        try:
            channel = open_channel()
            channel.basic_qos(prefetch_count=1)
            channel.basic_consume(QUEUE, on_task)
            print("waiting for tasks")
            channel.start_consuming()  # It returns when the broker has cancelled the consumer.
        except ERRORS as error:
            print(f"again: {error!r}", file=sys.stderr)
        except KeyboardInterrupt:
            return
        finally:
            close(channel)
        time.sleep(RETRY_S)


def close(channel):
    """Close the connection, unless there is none or it has ended by itself."""
    if channel is not None and channel.connection.is_open:
        with contextlib.suppress(*ERRORS):
            channel.connection.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work()
    elif sys.argv[1:] == ["send", "-"]:
        send(line.rstrip("\n") for line in sys.stdin)
    elif sys.argv[1:2] == ["send"] and sys.argv[2:]:
        send(sys.argv[2:])
    else:
        sys.exit(__doc__)
