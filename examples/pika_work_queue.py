"""A work queue with pika: tasks survive, are spread over workers, and come again when a worker dies.

    python examples/pika_work_queue.py work              # as many of these as you like
    python examples/pika_work_queue.py send one two three

AMQP_URL names the broker; the default is one on this machine.
"""

import os
import sys

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
QUEUE = "tasks"


def open_channel():
    """Connect, and make sure that the queue is there: whoever comes first makes it."""
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.queue_declare(QUEUE, durable=True)
    return channel


def send(tasks):
    """Publish tasks; each publish returns when the broker has taken responsibility for the message."""
    channel = open_channel()
    channel.confirm_delivery()
    for task in tasks:
        properties = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
        channel.basic_publish("", QUEUE, task.encode(), properties, mandatory=True)
        print(f"sent {task}")
    channel.connection.close()


def work():
    """Do one task after another until interrupted. A task is acknowledged when it is done, not before."""

    def on_task(channel, method, properties, body):
        print(f"done {body.decode()}")
        channel.basic_ack(method.delivery_tag)

    channel = open_channel()
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(QUEUE, on_task)
    print("waiting for tasks")
    try:
        channel.start_consuming()
    except KeyboardInterrupt:
        channel.connection.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work()
    elif sys.argv[1:2] == ["send"] and sys.argv[2:]:
        send(sys.argv[2:])
    else:
        sys.exit(__doc__)
