"""`fluffle cluster` and `fluffle ctl` with three real nodes, from one start to the next."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from node.cli.ports import why_not
from tests.kit.patience import wait_until
from tests.kit.ports import free_base_port
from tests.kit.server_process import ROOT

START_S = 60.0

pytestmark = pytest.mark.slow


class Cluster:
    """A `fluffle cluster` process, with a registry of its own."""

    def __init__(self, directory: Path, base_port: int) -> None:
        self.directory, self.base_port = directory, base_port
        runtime = directory / "runtime"
        runtime.mkdir(parents=True, exist_ok=True)
        self.environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "XDG_RUNTIME_DIR": str(runtime),
        }
        self.log = open(directory / "log", "ab")  # noqa: SIM115 - closed by `stop`
        self.process = subprocess.Popen(
            [*self._command("cluster"), "--base-port", str(base_port)],
            env=self.environ,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def _command(self, *words: str) -> list[str]:
        command = [sys.executable, "-m", "node", *words]
        return [*command, "--data", str(self.directory)] if words[0] == "cluster" else command

    def run(self, *words: str) -> tuple[int, str]:
        """A `fluffle` command. Returns: its exit code and what it wrote."""
        done = subprocess.run(
            self._command(*words), env=self.environ, cwd=ROOT, capture_output=True, text=True, timeout=90
        )
        return done.returncode, done.stdout + done.stderr

    def queues(self, node: str) -> dict[str, dict[str, Any]]:
        columns = ("name", "messages", "home", "state", "arguments")
        code, text = self.run("ctl", "-n", node, "list_queues", "--formatter", "json", *columns)
        assert code == 0, text
        return {queue["name"]: queue for queue in json.loads(text)}

    def await_ready(self) -> None:
        wait_until(
            lambda: b"cluster of 3 ready" in self._written() or self.process.poll() is not None, self._tail
        )
        assert self.process.poll() is None, self._tail()

    def _written(self) -> bytes:
        return (self.directory / "log").read_bytes()[self.log_start :]

    log_start = 0

    def _tail(self) -> str:
        return self._written()[-4000:].decode()

    @contextlib.contextmanager
    def channel(self, number: int) -> Iterator[Any]:
        parameters = pika.ConnectionParameters("127.0.0.1", self.base_port + number - 1)
        with contextlib.closing(pika.BlockingConnection(parameters)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel

    def stop(self) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(START_S)
        finally:
            self.process.kill()
            self.log.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path / "c", free_base_port())
    yield started
    if started.process.poll() is None:
        started.stop()


def test_declare_on_one_publish_on_the_second_consume_on_the_third(cluster: Cluster) -> None:
    cluster.await_ready()
    persistent = pika.BasicProperties(delivery_mode=2)
    with cluster.channel(1) as first, cluster.channel(2) as second, cluster.channel(3) as third:
        first.queue_declare("q", durable=True, arguments={"x-max-length": 5})
        for body in (b"1", b"2"):
            second.basic_publish("", "q", body, persistent)
        _, _, body = third.basic_get("q", auto_ack=True)
        assert body == b"1"
        third.queue_declare("elsewhere", durable=True)
    if not why_not("::1", 0):  # `localhost` is ::1 first for many clients
        with contextlib.closing(
            pika.BlockingConnection(pika.ConnectionParameters("::1", cluster.base_port))
        ) as ipv6:
            assert ipv6.channel().queue_declare("q", passive=True).method.message_count == 1

    queues = cluster.queues("n2")
    assert queues["q"] | {"arguments": []} == {
        "name": "q",
        "messages": 1,
        "home": "n1@localhost",
        "state": "running",
        "arguments": [],
    }
    assert queues["elsewhere"]["home"] == "n3@localhost"
    code, text = cluster.run("ctl", "-q", "cluster_status")
    assert code == 0
    assert "\nn1@localhost\nn2@localhost\nn3@localhost\n" in text
    assert cluster.run("ctl", "-q", "await_online_nodes", "3") == (0, "")
    code, text = cluster.run("ctl", "-n", "n2", "reset")
    assert (code, "requires the 'rabbit' app to be stopped" in text) == (64, True)

    # n3 is killed: it stays down, the others go on, and it comes back when it is told to.
    code, text = cluster.run("cluster", "status")
    pid = next(row.split()[2] for row in text.splitlines() if row.startswith("n3@"))
    os.kill(int(pid), signal.SIGKILL)
    wait_until(lambda: cluster.queues("n1")["elsewhere"]["state"] == "down")
    assert cluster.run("ctl", "-n", "n3", "ping")[0] == 69
    assert cluster.run("ctl", "-n", "n1", "set_cluster_name", "still alive")[0] == 0
    code, text = cluster.run("cluster", "start", "n3")
    ready = f"n3 is ready, amqp on 127.0.0.1:{cluster.base_port + 2}\n"
    assert code == 0
    assert text.startswith(ready)  # a slow start also tells what it waits for
    wait_until(lambda: cluster.queues("n1")["elsewhere"]["state"] == "running")
    assert "Cluster name: still alive\n" in cluster.run("ctl", "-n", "n3", "cluster_status")[1]

    # All stop, and a second start goes on with what there was.
    assert cluster.stop() == 0
    written = (cluster.directory / "log").stat().st_size
    again = Cluster(cluster.directory, cluster.base_port)
    again.log_start = written
    try:
        again.await_ready()
        assert "Cluster name: still alive\n" in again.run("ctl", "cluster_status")[1]
        with again.channel(3) as third:
            _, _, body = third.basic_get("q", auto_ack=True)
            assert body == b"2"
    finally:
        assert again.stop() == 0


def test_a_node_leaves_and_joins_again(cluster: Cluster) -> None:
    cluster.await_ready()
    for words in (["stop_app"], ["reset"], ["start_app"]):
        assert cluster.run("ctl", "-q", "-n", "n3", *words) == (0, ""), words
    # It is on the list of the cluster's nodes, so an empty node looks for the others and joins them.
    assert cluster.run("ctl", "-q", "-n", "n1", "await_online_nodes", "3", "-t", "30") == (0, "")
    for words in (["stop_app"], ["change_cluster_node_type", "ram"], ["start_app"]):
        assert cluster.run("ctl", "-q", "-n", "n3", *words)[0] == 0, words
    code, text = cluster.run("ctl", "-n", "n1", "cluster_status", "--formatter", "json")
    assert code == 0
    assert json.loads(text)["ram_nodes"] == ["n3@localhost"]
    assert cluster.run("ctl", "-q", "-n", "n2", "shutdown") == (0, "")
    assert cluster.run("ctl", "-q", "-n", "n3", "ping") == (0, "Ping succeeded\n")

    # With the others lost for good, a node's files can be told so.
    offline = (
        "ctl",
        "--data",
        str(cluster.directory / "n1"),
        "forget_cluster_node",
        "--offline",
        "n2@localhost",
    )
    code, text = cluster.run(*offline)
    assert (code, "requires the target node to be stopped" in text) == (64, True)
    assert cluster.stop() == 0
    assert cluster.run(*offline) == (0, "Removing node n2@localhost from the cluster\n")
    assert cluster.run(*offline) == (
        70,
        "Removing node n2@localhost from the cluster\nError:\nThe node selected is not in the cluster.\n",
    )
