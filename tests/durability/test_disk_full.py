"""A disk that is really full, and one that is nearly: nobody loses anything, and it goes on when there is room."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.durability.load import Publisher
from tests.durability.scene import MIB, Scene, fill_disk, unchanged, until
from tests.kit.ledger import Kind
from tests.kit.node_process import NodeProcess, StartFailed

pytestmark = pytest.mark.slow

MakeNode = Callable[..., NodeProcess]

EX_OK: Final = 0
EX_UNAVAILABLE: Final = 69
EX_IOERR: Final = 74
NO_ALARM: Final = {"disk_free_limit.absolute": "1"}
"""The limit is reached when the disk is full, not before."""
KIND: Final = Kind((100, 3000, 9000))
LEFT_BYTES: Final = 3 * MIB


async def publish_into_full_disk(scene: Scene) -> Publisher:
    """Publish until nothing is confirmed any more: the disk is full."""
    publisher = await scene.publisher("at-full", "full", KIND, window=100_000)
    client = publisher.client
    until_s = time.monotonic() + 30
    while client.blocked is None and time.monotonic() < until_s:
        for _ in range(20):
            publisher.publish()
        await client.drain_or_blocked()
        await asyncio.sleep(0.005)
    await until(lambda: client.blocked is not None, "connection.blocked")
    await unchanged(lambda: publisher.unconfirmed, 1.5)
    assert publisher.unconfirmed, "what cannot be written must not be confirmed"
    return publisher


def test_real_enospc(small_disk: Path, make_node: MakeNode) -> None:
    """Confirms stop, publishers are told, consumers get what is there; with room it goes on, and nothing is lost."""
    node = make_node(data=small_disk / "data")
    scene = Scene(node)

    async def act() -> None:
        node.start(NO_ALARM)
        await scene.declare("full")
        await scene.fill("full", "before", KIND, 300)
        filler = fill_disk(small_disk, LEFT_BYTES)
        publisher = await publish_into_full_disk(scene)
        assert publisher.client.blocked == "low on disk"
        assert "No space left for the message store" in node.log_text()

        reader = await scene.consume("full", acks=True)
        must = len(scene.ledger.queues["full"].must())
        await until(lambda: len(reader.values) >= must, "all that was confirmed comes to a consumer")

        filler.unlink()
        await until(lambda: publisher.client.blocked is None, "connection.unblocked")
        await publisher.wait_for_all()
        assert publisher.nacked == 0
        assert "writes again" in node.log_text()
        await scene.fill("full", "after", KIND, 100)
        node.kill()
        await publisher.client.ended.wait()
        node.start(NO_ALARM)
        count = await scene.check()
        assert count.problems == []

    asyncio.run(act())


@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_end_on_a_full_disk(small_disk: Path, make_node: MakeNode, ends: str) -> None:
    """A node that ends while the disk is full: it may not start before there is room; then all is there."""
    node = make_node(data=small_disk / "data")
    scene = Scene(node)

    async def act() -> None:
        node.start(NO_ALARM)
        await scene.declare("full")
        await scene.fill("full", "before", KIND, 300)
        filler = fill_disk(small_disk, LEFT_BYTES)
        publisher = await publish_into_full_disk(scene)
        if ends == "killed":
            node.kill()
        else:
            node.terminate()
            # What could not be written was never confirmed; that it was not is told all the same.
            assert await asyncio.to_thread(node.wait) in (EX_OK, EX_IOERR)
        await publisher.client.ended.wait()
        # A recovery writes, so it finds no room and says so; or it needs none.
        with contextlib.suppress(StartFailed):
            node.start(NO_ALARM)
        if not node.is_running:
            assert node.exit_code == EX_UNAVAILABLE
            assert "No space left on device" in node.log_text()
        assert "Traceback" not in node.log_text()
        node.kill()
        filler.unlink()
        node.start(NO_ALARM)
        count = await scene.check(was_killed=True if ends == "killed" else None)
        assert count.problems == []

    asyncio.run(act())


def test_alarm(small_disk: Path, make_node: MakeNode) -> None:
    """Less is free than `disk_free_limit`: publishers are blocked before the disk is full, and go on by themselves."""
    node = make_node(data=small_disk / "data")
    scene = Scene(node)
    limited = {"disk_free_limit.absolute": str(15 * MIB)}

    async def act() -> None:
        node.start(limited)
        await scene.declare("full")
        await scene.fill("full", "before", KIND, 100)
        filler = fill_disk(small_disk, 10 * MIB)
        await until(lambda: "Free disk space is insufficient" in node.log_text(), "the log says so")
        publisher = await scene.publisher("blocked", "full", KIND)
        publisher.publish()
        await until(lambda: publisher.client.blocked is not None, "connection.blocked")
        assert publisher.client.blocked == "low on disk"
        reader = await scene.consume("full", acks=True)
        await until(lambda: len(reader.values) >= 100, "consumers go on")
        assert publisher.unconfirmed == 1
        node.kill()
        await publisher.client.ended.wait()

        node.start(limited)
        await until(lambda: "Free disk space is insufficient" in node.log_text(), "the same after a start")
        publisher = await scene.publisher("again", "full", KIND)
        for _ in range(50):
            publisher.publish()
        await until(lambda: publisher.client.blocked is not None, "connection.blocked after a start")
        assert publisher.unconfirmed == 50
        filler.unlink()
        await until(lambda: publisher.client.blocked is None, "connection.unblocked")
        await publisher.wait_for_all()
        await until(lambda: "Free disk space is sufficient" in node.log_text(), "the log says so")
        node.kill()
        node.start(limited)
        count = await scene.check()
        assert count.problems == []

    asyncio.run(act())
