"""Measure how fast a migration moves a backlog off RabbitMQ: `python -m tests.conformance.migrate.drain`.

One node of each broker, persistent messages of 100 bytes in durable queues, no clients. Queues are asked for their
lengths over AMQP, so that RabbitMQ's late statistics do not count. Both brokers are on this machine.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import pika
import psutil

from tests.conformance.migrate.scene import SHOVEL_PLUGINS
from tests.kit.fluffle_cluster import FluffleNode
from tests.kit.managed_fluffle import ManagedFluffle
from tests.kit.rabbit_server import RabbitServer
from tests.kit.server_process import ROOT

BODY: Final = b"x" * 100
PERSISTENT: Final = pika.BasicProperties(delivery_mode=2)


def main() -> None:
    """Fill, move, and print the rate."""
    parser = argparse.ArgumentParser(description="How fast does a backlog move off RabbitMQ?")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--queues", type=int, default=1)
    parser.add_argument("--shovels", choices=("rabbitmq", "fluffle"), default="rabbitmq")
    given = parser.parse_args()
    plugins = SHOVEL_PLUGINS if given.shovels == "rabbitmq" else ()
    old = RabbitServer({}, with_management=True, plugins=plugins)
    try:
        new = ManagedFluffle({})
        try:
            if given.shovels == "fluffle":
                enable(new)
            names = [f"backlog.{number}" for number in range(given.queues)]
            fill(old.port, names, given.messages // given.queues)
            with tempfile.TemporaryDirectory() as state:
                measure(old, new, names, state, given.shovels)
        finally:
            new.stop()
    finally:
        old.stop()


def enable(node: FluffleNode) -> None:
    """Enable the shovels of a node, or of its cluster."""
    command = [sys.executable, "-m", "node", "plugins", "--data", node.data, "enable", *SHOVEL_PLUGINS]
    subprocess.run(command, cwd=ROOT, env=node._environment, check=True, stdout=subprocess.DEVNULL)


def fill(port: int, names: list[str], each: int) -> None:
    """Publish so many messages to each queue."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        for name in names:
            channel.queue_declare(name, durable=True)
            for _ in range(each):
                channel.basic_publish("", name, BODY, PERSISTENT)
        while lengths(port, names) < each * len(names):
            time.sleep(0.2)


def lengths(port: int, names: list[str]) -> int:
    """The ready messages of queues that are there."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        return sum(channel.queue_declare(name, passive=True).method.message_count for name in names)


def cpu_s(old: RabbitServer, new: ManagedFluffle) -> tuple[float, float]:
    """The CPU seconds that both brokers have used."""
    pids = (int(old.evaluate("list_to_integer(os:getpid())")), new._process.pid)
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    rabbitmq_s, fluffle_s = (each.user + each.system for each in times)
    return rabbitmq_s, fluffle_s


def measure(old: RabbitServer, new: ManagedFluffle, names: list[str], state: str, host: str) -> None:
    """Move the backlog, and print how long it took."""
    count = lengths(old.port, names)

    def run(*words: str) -> None:
        command = [sys.executable, "-m", "node", "migrate", *words, "--state", str(Path(state) / "m")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)

    run("plan", old.management_url, "--to", new.management_url, "--shovels", host)
    before = cpu_s(old, new)
    begun_s = time.monotonic()
    run("start")
    first_s = 0.0
    while (there := lengths(new.port, names)) < count:
        first_s = first_s or (time.monotonic() if there else 0.0)
        time.sleep(0.05)
    took_s = time.monotonic() - begun_s
    rabbitmq_s, fluffle_s = (now - then for now, then in zip(cpu_s(old, new), before, strict=True))
    moving_s = begun_s + took_s - first_s
    print(f"{count:,} messages of {len(names)} queues, shovels at {host}: {took_s:.1f} s with the start")
    print(f"{count / moving_s:,.0f}/s from the first message on; {there - count:,} came twice")
    print(f"CPU seconds: RabbitMQ {rabbitmq_s:.1f}, Fluffle {fluffle_s:.1f}")


if __name__ == "__main__":
    main()
