"""docs/replace_node.md, run from its top to its end with three nodes."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pika
import pytest

from tests.docs.pages import Page, PageNode, Shell
from tests.kit.network import HOST
from tests.kit.patience import wait_until
from tests.kit.ports import free_ports

pytestmark = pytest.mark.slow

NAMES = ("n1@localhost", "n2@localhost", "n3@localhost")
COUNT = 100


class Cluster:
    """Three nodes; `systemctl start fluffle` starts the one that RABBITMQ_NODENAME says."""

    def __init__(self, directory: Path) -> None:
        self.ports = dict(zip(NAMES, free_ports(3), strict=True))
        self.peers = dict(zip(NAMES, free_ports(3), strict=True))
        formation = ",".join(f"{name}:{port}" for name, port in self.peers.items())
        self.shell = Shell(directory, FLUFFLE_CLUSTER_NODES=formation)
        options = "\n".join(f"{name}) options='{' '.join(self._options(name))}';;" for name in NAMES)
        start = 'fluffle start --name "$RABBITMQ_NODENAME" --data "data/$RABBITMQ_NODENAME" $options'
        self.shell.add_program(
            "systemctl",
            f'cd {directory}\ncase "$RABBITMQ_NODENAME" in\n{options}\nesac\n'
            'pid="$RABBITMQ_NODENAME.pid"\n'
            'if [ "$1" = stop ]; then fluffle ctl shutdown; rm -f "$pid"; exit; fi\n'
            f'{start} >"$RABBITMQ_NODENAME.out" 2>&1 </dev/null & echo $! >"$pid"',
        )
        self.nodes = {name: PageNode(self.shell, name, *self._options(name)) for name in NAMES}
        for node in self.nodes.values():
            node.wait_ready()

    def _options(self, name: str) -> list[str]:
        places = ["--listen", f"{HOST}:{self.ports[name]}", "--peer", f"{HOST}:{self.peers[name]}"]
        return [*places, "--management", "off"]

    def run(self, commands: str, name: str, code: int = 0) -> str:
        """As on the machine of that node."""
        return self.shell.run(commands, code=code, RABBITMQ_NODENAME=name)

    def is_whole(self) -> bool:
        """Whether the mirrored queue has two mirrors that lack nothing, as n1 sees it."""
        rows = self.run("fluffle ctl -s list_rings --no-table-headers", NAMES[0]).splitlines()
        mirrors, synchronised = next(row for row in rows if row.startswith("mirrored\t")).split("\t")[2:4]
        return mirrors.count("@") == 2 and sorted(mirrors[1:-1].split(", ")) == sorted(
            synchronised[1:-1].split(", ")
        )

    def counts_as_down(self, name: str) -> bool:
        """Whether n1 knows that the node is not there."""
        status = json.loads(self.run("fluffle ctl -s cluster_status --formatter json", NAMES[0]))
        return name not in status["running_nodes"]

    def is_running(self, name: str) -> bool:
        """Whether a process that `systemctl` started is there."""
        try:
            os.kill(int((self.shell.directory / f"{name}.pid").read_text()), 0)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return True

    def stop(self) -> None:
        """All of them, however they were started."""
        for node in self.nodes.values():
            node.kill()
        for path in self.shell.directory.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(path.read_text()), signal.SIGKILL)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One with a mirrored queue, and one that is on n3 alone, each with messages."""
    started = Cluster(tmp_path)
    try:
        mirrored = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
        started.run(f"fluffle ctl set_policy ha '^mirrored$' '{mirrored}'", NAMES[0])
        with pika.BlockingConnection(pika.ConnectionParameters(HOST, started.ports[NAMES[2]])) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for queue in ("mirrored", "alone"):
                channel.queue_declare(queue, durable=True)
                for number in range(COUNT):
                    channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2))
        yield started
    finally:
        started.stop()


def _page(data: Path) -> Page:
    first, second, third = NAMES
    return Page(
        "replace_node",
        {
            "rabbit@host1": first,
            "rabbit@host2": second,
            "rabbit@host3": third,
            "/var/lib/fluffle/rabbit@host1": str(data / first),
            "/var/lib/fluffle/rabbit@host3": str(data / third),
        },
    )


def test_replacing_a_dead_node(cluster: Cluster) -> None:
    first, _, third = NAMES
    data = cluster.shell.directory / "data"
    page = _page(data)
    cluster.nodes[third].kill()
    kept = cluster.shell.directory / "old disk"
    (data / third).rename(kept)

    def is_known() -> bool:
        return "alone\tdown\t" in cluster.run(page.block("sh", "## 1. What is lost with it"), first)

    wait_until(is_known)
    cluster.run(page.block("sh", "## 2. Forget the dead node"), first)
    cluster.run(page.block("sh", "## 3. Start the new one"), third)
    wait_until(cluster.is_whole)
    assert "\nmirrored\t" in cluster.run(page.block("sh", "## 4. Copies and masters"), first)
    with pika.BlockingConnection(pika.ConnectionParameters(HOST, cluster.ports[third])) as connection:
        channel = connection.channel()
        channel.queue_declare("alone", durable=True)  # it can be declared anew
        assert channel.queue_declare("mirrored", passive=True).method.message_count == COUNT


def test_the_old_node_with_its_disk(cluster: Cluster) -> None:
    """An old node is refused until it is reset, and then it is a new one."""
    first, _, third = NAMES
    data = cluster.shell.directory / "data"
    page = _page(data)
    cluster.nodes[third].kill()
    wait_until(lambda: cluster.counts_as_down(third))
    cluster.run(page.block("sh", "## 2. Forget the dead node"), first)
    start = "systemctl start fluffle"
    assert start in page.block("sh", "## 3. Start the new one")
    cluster.run(start, third)
    output = cluster.shell.directory / f"{third}.out"
    wait_until(lambda: "disagrees" in output.read_text())
    if cluster.is_running(third):
        cluster.run("systemctl stop fluffle", third)
    cluster.run(page.block("sh", "## If the old one starts again"), third)
    cluster.run(page.block("sh", "## 3. Start the new one"), third)
    wait_until(cluster.is_whole)


def test_one_of_three_is_left(cluster: Cluster) -> None:
    first, second, third = NAMES
    page = _page(cluster.shell.directory / "data")
    wait_until(cluster.is_whole)
    for name in (second, third):
        cluster.nodes[name].kill()
    cluster.run(page.block("sh", "## Without a majority"), first)
    cluster.run("fluffle ctl await_startup", first)
    with pika.BlockingConnection(pika.ConnectionParameters(HOST, cluster.ports[first])) as connection:
        found = connection.channel().queue_declare("mirrored", passive=True)
        assert found.method.message_count == COUNT
