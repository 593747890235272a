"""The HAProxy of the chaos tests, before two real nodes: what it sees, whom it cuts, how it comes and goes."""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from node.amqp import methods
from tests.kit.cluster_client import ClusterClient
from tests.kit.haproxy import LIMIT_S, PROGRAM, Haproxy, Server
from tests.kit.load_client import Lost
from tests.kit.node_process import NodeProcess, TemporaryNode
from tests.kit.patience import patience

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="haproxy is not installed (Debian's package haproxy)"),
]

SETTINGS = {"proxy_protocol": "true", "proxy_protocol_sources.1": "127.0.0.0/8"}


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[NodeProcess]]:
    """Two nodes that know nothing of each other, and want PROXY headers. Each test leaves them running."""
    with (
        TemporaryNode(SETTINGS, management="127.0.0.1:0") as one,
        TemporaryNode(SETTINGS, management="127.0.0.1:0") as two,
    ):
        yield [one, two]


def _balancer(directory: Path, nodes: list[NodeProcess], *, is_ready_asked: bool) -> Haproxy:
    servers = []
    for number, node in enumerate(nodes, 1):
        check_port = int(node.management_url.rpartition(":")[2]) if is_ready_asked else None
        servers.append(Server(f"n{number}", node.host, node.port, check_port))
    # 60 s: what a test does through a process that was reloaded away takes no time.
    check_ms = int(2000 * patience())
    return Haproxy(directory, servers, sends_proxy=True, check_ms=check_ms, hard_stop_s=60)


def _run(balancer: Haproxy, story: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(story)
    finally:
        balancer.close()


async def _is_lost(client: ClusterClient) -> None:
    """Wait until the connection is gone."""
    async with asyncio.timeout(LIMIT_S * patience()):
        while client.lost is None:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("is_ready_asked", [True, False], ids=["ready", "amqp"])
def test_clients_of_a_frozen_node_are_cut(
    tmp_path: Path, nodes: list[NodeProcess], is_ready_asked: bool
) -> None:
    """Either check sees it, its sessions end, and new ones go to the other node, until it is back."""
    balancer = _balancer(tmp_path, nodes, is_ready_asked=is_ready_asked)

    async def story() -> None:
        balancer.start()
        await balancer.await_up("n1", "n2")
        # leastconn: one on each
        clients = [await ClusterClient.connect(balancer.host, balancer.port) for _ in nodes]
        assert {row["scur"] for row in balancer.rows().values()} == {"1"}
        nodes[0].signal(signal.SIGSTOP)
        await balancer.await_up("n2")
        async with asyncio.timeout(LIMIT_S * patience()):
            while sum(client.lost is not None for client in clients) != 1:
                await asyncio.sleep(0.05)
        survivor = next(client for client in clients if client.lost is None)
        await (await survivor.channel()).ask(methods.QueueDeclare(queue="alive"))
        await (await ClusterClient.connect(balancer.host, balancer.port)).leave()
        nodes[0].signal(signal.SIGCONT)
        await balancer.await_up("n1", "n2")
        await survivor.leave()

    try:
        _run(balancer, story())
    finally:
        nodes[0].signal(signal.SIGCONT)


def test_it_is_reloaded_killed_and_stopped(tmp_path: Path, nodes: list[NodeProcess]) -> None:
    """A reload keeps the connections that there are; kill -9 and a stop end them, and a start serves again."""
    balancer = _balancer(tmp_path, nodes, is_ready_asked=True)

    async def story() -> None:
        balancer.start()
        await balancer.await_up("n1", "n2")
        for end in ("kill", "stop"):
            client = await ClusterClient.connect(balancer.host, balancer.port)
            first = balancer.pid
            await asyncio.to_thread(balancer.reload)
            assert balancer.pid != first
            channel = await client.channel()
            await channel.ask(methods.QueueDeclare(queue="kept"))
            after = await ClusterClient.connect(balancer.host, balancer.port)
            if end == "kill":
                balancer.kill()
            else:
                await balancer.stop()
            assert not balancer.is_running
            assert balancer.states() == {}
            await _is_lost(client)
            await _is_lost(after)
            with pytest.raises(Lost):
                await ClusterClient.connect(balancer.host, balancer.port)
            balancer.start()
            await balancer.await_up("n1", "n2")
            await (await ClusterClient.connect(balancer.host, balancer.port)).leave()

    _run(balancer, story())
