"""Backup and restore, by the commands that docs/backup.md shows: of definitions, and of a data directory."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.amqp import methods
from tests.deploy.failover import PERSISTENT
from tests.kit.cluster_client import ClusterClient
from tests.kit.load_client import Delivery
from tests.kit.node_process import NodeProcess
from tests.kit.server_process import ROOT

pytestmark = pytest.mark.slow


def _two(directory: Path) -> tuple[NodeProcess, NodeProcess]:
    """Nodes of one name, each with a place of its own; they do not run."""
    for name in ("first", "second"):
        (directory / name).mkdir()
    return NodeProcess(directory / "first"), NodeProcess(directory / "second")


@contextlib.contextmanager
def _running(node: NodeProcess) -> Iterator[None]:
    """The node, started, and stopped as an operator does."""
    node.start()
    try:
        yield
        assert node.stop() == 0, node.log_text()
    finally:
        if node.is_running:
            node.kill()


def _fluffle(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "node", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def _publish(node: NodeProcess, count: int) -> None:
    client = await ClusterClient.connect(node.host, node.port)
    channel = await client.channel()
    await channel.ask(methods.QueueDeclare(queue="orders", durable=True))
    await channel.ask(methods.ConfirmSelect())
    confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    channel.on_confirm = lambda tag, multiple, is_ack: confirmed.set_result(None) if tag == count else None
    for number in range(count):
        channel.publish("", "orders", PERSISTENT, b"%d" % number)
    async with asyncio.timeout(60):
        await confirmed
    await client.leave()


async def _taken(node: NodeProcess) -> list[bytes]:
    """All messages of the queue, which must exist."""
    client = await ClusterClient.connect(node.host, node.port)
    channel = await client.channel()
    bodies = []
    while isinstance(got := await channel.ask(methods.BasicGet(queue="orders", no_ack=True)), Delivery):
        bodies.append(got.body)
    await client.leave()
    return bodies


def test_a_data_directory_comes_back(tmp_path: Path) -> None:
    """Stopped, packed with tar, unpacked elsewhere; the name of the node is the same."""
    first, second = _two(tmp_path)
    with _running(first):
        asyncio.run(_publish(first, 50))
    archive = str(tmp_path / "backup.tar.gz")
    subprocess.run(["tar", "-C", str(tmp_path / "first"), "-czf", archive, "data"], check=True)
    subprocess.run(["tar", "-C", str(tmp_path / "second"), "-xzf", archive], check=True)
    assert "nothing is broken" in _fluffle("store", "check", str(second.data))
    with _running(second):
        assert asyncio.run(_taken(second)) == [b"%d" % number for number in range(50)]


def test_definitions_come_back(tmp_path: Path) -> None:
    """Exported from one node, imported into an empty one: users with passwords, policies, queues, no messages."""
    first, second = _two(tmp_path)
    exported = tmp_path / "definitions.json"
    with _running(first):
        data = ("ctl", "--data", str(first.data))
        _fluffle(*data, "add_user", "shop", "a-password")
        _fluffle(*data, "set_policy", "ha", "^orders", '{"ha-mode":"all","ha-sync-mode":"automatic"}')
        asyncio.run(_publish(first, 5))
        _fluffle(*data, "export_definitions", str(exported))
    assert {user["name"] for user in json.loads(exported.read_text())["users"]} == {"guest", "shop"}
    with _running(second):
        data = ("ctl", "--data", str(second.data))
        _fluffle(*data, "import_definitions", str(exported))
        _fluffle(*data, "authenticate_user", "shop", "a-password")
        assert "ha-sync-mode" in _fluffle(*data, "list_policies")
        assert asyncio.run(_taken(second)) == []
