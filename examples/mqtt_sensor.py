"""A sensor that speaks MQTT with paho, and a program that reads its values from a queue of AMQP with pika.

    fluffle plugins enable mqtt
    python examples/mqtt_sensor.py read &
    seq 20 30 | python examples/mqtt_sensor.py send kitchen

Topics of MQTT are routing keys of `amq.topic`, with `.` for `/`. The sensor's session is persistent, and values have
QoS 1: what could not be sent is sent when there is a connection again. The reader acknowledges after its work.
"""

import argparse
import os
import sys
import threading

import paho.mqtt.client as mqtt
import pika

BROKER = os.environ.get("MQTT_HOST", "localhost"), int(os.environ.get("MQTT_PORT", "1883"))
AMQP_URL = os.environ.get("AMQP_URL", "amqp://localhost:5672/%2F")
QUEUE = "temperatures"


def send(sensor: str) -> None:
    """Publish each line of the input as a value of the sensor, and say which are confirmed."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=f"sensor {sensor}", clean_session=False)
    client.username_pw_set("guest", "guest")
    confirmed = threading.Semaphore(0)
    client.on_publish = lambda *_: (
        confirmed.release()
    )  # also for what was published before there was a connection
    client.connect_async(*BROKER)
    client.loop_start()  # a thread of paho's, which connects again and again
    lines = [line.strip() for line in sys.stdin]
    for line in lines:
        client.publish(f"house/{sensor}/temperature", line, qos=1, retain=True)
    for _ in lines:
        confirmed.acquire()
    print(f"{len(lines)} values confirmed", flush=True)
    client.disconnect()
    client.loop_stop()


def read(count: int | None) -> None:
    """Print values of all sensors from a durable queue, which keeps them while this program is away."""
    connection = pika.BlockingConnection(pika.URLParameters(AMQP_URL))
    channel = connection.channel()
    channel.queue_declare(QUEUE, durable=True)
    channel.queue_bind(QUEUE, "amq.topic", "house.*.temperature")
    print("ready", flush=True)
    for method, _, body in channel.consume(QUEUE):
        _, sensor, _ = method.routing_key.split(".")
        print(sensor, float(body), flush=True)
        channel.basic_ack(method.delivery_tag)
        count = None if count is None else count - 1
        if count == 0:
            break
    connection.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("send").add_argument("sensor")
    commands.add_parser("read").add_argument("--count", type=int, help="end after so many values")
    arguments = parser.parse_args()
    if arguments.command == "send":
        send(arguments.sensor)
    else:
        read(arguments.count)
