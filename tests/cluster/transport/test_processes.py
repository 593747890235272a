"""Links to a process that is killed, or frozen (ring §4)."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cluster.transport.interface import LinkOptions, Topic
from tests.cluster.transport.links import Node, run, until

ROOT = Path(__file__).resolve().parents[3]


@asynccontextmanager
async def child(node: Node) -> AsyncIterator[asyncio.subprocess.Process]:
    """The other node, linked."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.cluster.transport.child",
        str(node.port),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        node.transport.connect("n2", f"127.0.0.1:{port}")
        await until(lambda: node.links)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.slow
def test_a_killed_process_is_gone() -> None:
    """kill -9: the proof takes some 100 ms."""

    async def story() -> None:
        async with Node("n1") as node, child(node) as process:
            process.kill()
            await until(lambda: len(node.links) == 2)
            assert node.links[1] == ("down", "n2", True)

    run(story())


@pytest.mark.slow
def test_a_stopped_process_is_down_but_not_gone() -> None:
    """SIGSTOP: pings have no answer. It goes on where it was when it is continued, and no frame is lost."""

    async def story() -> None:
        async with Node("n1") as node, child(node) as process:
            node.transport.open_data("n2", 1, 2)
            os.kill(process.pid, signal.SIGSTOP)
            for number in range(100):
                node.transport.send_data("n2", Topic.REMOTE, b"%d" % number)
            await until(lambda: len(node.links) == 2)
            assert node.links[1] == ("down", "n2", False)
            os.kill(process.pid, signal.SIGCONT)
            assert process.stdout is not None
            assert await process.stdout.readline() == b"100\n"
            await until(lambda: len(node.links) == 3)

    run(story())


@pytest.mark.slow
def test_a_process_that_does_not_read_costs_bounded_memory() -> None:
    """A flood towards it ends when it is congested; the stream and the kernel take only a few megabytes more."""

    async def story() -> None:
        options = LinkOptions(keepalive_s=60, ping_timeout_s=60, congested_bytes=4 * 1024 * 1024)
        async with Node("n1", options=options) as node, child(node) as process:
            node.transport.open_data("n2", 1, 2)
            os.kill(process.pid, signal.SIGSTOP)
            sent = 0
            while not node.transport.is_congested("n2"):
                node.transport.send_data("n2", Topic.REMOTE, bytes(1000))
                sent += 1
                await asyncio.sleep(0)
            assert sent <= 4 * 1024 * 1024 // 1000
            os.kill(process.pid, signal.SIGCONT)
            await until(lambda: node.relief == ["n2"])

    run(story())
