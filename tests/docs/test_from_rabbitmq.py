"""docs/from_rabbitmq.md, run from its top to its end with a real RabbitMQ."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pika
import pytest

from tests.docs.pages import Page, Shell
from tests.kit.network import HOST
from tests.kit.patience import wait_until
from tests.kit.ports import free_ports
from tests.kit.rabbit_server import RABBITMQ_SERVER, RabbitServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(RABBITMQ_SERVER).exists(), reason="RabbitMQ is not installed"),
]

COUNT: Final = 300
PERSISTENT: Final = pika.BasicProperties(delivery_mode=2, headers={"kind": "order"}, priority=3)


@pytest.fixture
def rabbit() -> Iterator[RabbitServer]:
    """A RabbitMQ with queues and messages, a federation upstream that nobody else knows, and a policy for mirrors."""
    server = RabbitServer({}, with_management=True)
    try:
        server.admin.add_user("web", "secret", ["management"])
        server.admin.set_permissions("web", "/", "", ".*", ".*")
        server.admin.set_policy("/", "mirrored", "^orders$", {"ha-mode": "all"}, 0, "queues")
        with pika.BlockingConnection(pika.ConnectionParameters(HOST, server.port)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True)
            channel.queue_declare("audit", durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_declare("empty", durable=True)
            channel.exchange_declare("sales", "topic", durable=True)
            channel.queue_bind("orders", "sales", "order.#")
            for number in range(COUNT):
                channel.basic_publish("sales", "order.new", b"%d" % number, PERSISTENT)
            for number in range(5):
                channel.basic_publish("", "audit", b"%d" % number)
        yield server
    finally:
        server.stop()


def _programs_of(server: RabbitServer, shell: Shell) -> None:
    """RabbitMQ's commands, for that node."""
    environ = " ".join(shlex.quote(f"{name}={value}") for name, value in server._environment.items())
    for name in ("rabbitmqctl", "rabbitmq-plugins"):
        program = Path(RABBITMQ_SERVER).parent / name
        shell.add_program(name, f'exec env -i {environ} {program} "$@"')


def _messages(port: int, queue: str) -> list[tuple[bytes, Any]]:
    """All that is in a queue, which is empty afterwards."""
    found = []
    with pika.BlockingConnection(pika.ConnectionParameters(HOST, port)) as connection:
        channel = connection.channel()
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append((got[2], got[1]))
    return found


def _lengths(text: str) -> dict[str, str]:
    return dict(line.split("\t") for line in text.splitlines() if "\t" in line)


def test_moving_from_rabbitmq_and_back(rabbit: RabbitServer, tmp_path: Path) -> None:
    [port] = free_ports(1)
    places = {
        "old.example.com:15672": rabbit.management_url.removeprefix("http://"),
        "broker.example.com:5672": f"{HOST}:{port}",
    }
    page, shell = Page("from_rabbitmq", places), Shell(tmp_path)
    _programs_of(rabbit, shell)
    with shell.node("n1@localhost", "--listen", f"{HOST}:{port}", "--management", "off"):
        # As in a cluster that links to others.
        shell.run("rabbitmq-plugins enable rabbitmq_federation")
        upstream = json.dumps({"uri": "amqp://elsewhere"})
        shell.run(f"rabbitmqctl set_parameter federation-upstream up {shlex.quote(upstream)}")
        said = shell.run(page.block("sh", "## 1. Definitions"))
        assert "federation-upstream" in said
        assert {"orders\tclassic\tmirrored", "audit\tquorum\t", "empty\tclassic\t"} <= set(said.splitlines())
        assert "Success" in shell.run("fluffle ctl authenticate_user web secret")
        shell.run(page.block("sh", "## 2. A user for the shovel"))
        shell.run(page.block("sh", "## 4. Messages"))

        def is_moved() -> bool:
            there = _lengths(shell.run(page.block("sh", "## 4. Messages", 1)))
            here = _lengths(shell.run(page.block("sh", "## 4. Messages", 2)))
            wanted = {"orders": str(COUNT), "audit": "5", "empty": "0"}
            return here == wanted and all(there[name] == "0" for name in wanted)

        wait_until(is_moved)
        orders = _messages(port, "orders")
        assert [body for body, _ in orders] == [b"%d" % number for number in range(COUNT)]
        properties = orders[0][1]
        assert (properties.delivery_mode, properties.priority) == (2, 3)
        assert properties.headers["kind"] == "order"

        # A binding came over, too; what is published here goes back.
        with pika.BlockingConnection(pika.ConnectionParameters(HOST, port)) as connection:
            connection.channel().basic_publish("sales", "order.new", b"later", PERSISTENT)
        shell.run(page.block("sh", "## The way back"))
        found: list[tuple[bytes, Any]] = []

        def is_back() -> bool:
            found.extend(_messages(rabbit.port, "orders"))
            return [body for body, _ in found] == [b"later"]

        wait_until(is_back)
        shell.run(page.block("sh", "## 5. The end"))
