"""A disk that fails: nothing is confirmed that is not safe, and the next start has everything that was confirmed."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from node.amqp import methods
from node.cli.start import EX_IOERR
from tests.durability.kill_loop import run
from tests.durability.scene import Scene
from tests.kit.faulty_disk import FaultyDisk, NoCompiler
from tests.kit.ledger import Kind
from tests.kit.node_process import NodeProcess

pytestmark = pytest.mark.slow

KIND = Kind((100, 3000, 9000))


@pytest.fixture
def disk(tmp_path: Path) -> FaultyDisk:
    """A disk that fails when it is told to."""
    try:
        return FaultyDisk(tmp_path, tmp_path / "data")
    except NoCompiler as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("what", ["sync", "write"])
@pytest.mark.parametrize("is_over", [False, True], ids=["for-good", "for-a-moment"])
def test_eio(
    tmp_path: Path, disk: FaultyDisk, make_node: Callable[..., NodeProcess], what: str, is_over: bool
) -> None:
    """fdatasync or write fail once: the node ends, as nobody can say what the disk has lost of what it was given."""
    node = make_node(data=tmp_path / "data", environment=disk.environment)
    scene = Scene(node)

    async def act() -> None:
        node.start()
        await scene.declare("q")
        await scene.fill("q", "before", KIND, 300)
        publisher = await scene.publisher("during", "q", KIND)
        disk.fail(what)
        for _ in range(50):
            publisher.publish()
        assert await asyncio.to_thread(node.wait) == EX_IOERR
        assert publisher.nacked + publisher.unconfirmed == 50, "nothing is confirmed that is not safe"
        assert node.log_text().count("Message store failed") == 1
        assert "Input/output error" in node.log_text()
        assert "Traceback" not in node.log_text()
        assert len(scene.ledger.queues["q"].must()) == 300
        if is_over:
            disk.fail(what, now=False)
        disk.lose_power(Random(1))
        if not is_over:
            disk.fail(what, now=False)
        node.start()
        assert (await scene.check()).problems == []

    asyncio.run(act())


def test_tx_on_a_broken_disk(tmp_path: Path, disk: FaultyDisk, make_node: Callable[..., NodeProcess]) -> None:
    """tx.commit must not say that it is done; neither must a declaration of a durable queue."""
    node = make_node(data=tmp_path / "data", environment=disk.environment)
    scene = Scene(node)

    async def act() -> None:
        node.start()
        await scene.declare("q")
        other = await (await scene.connect()).channel(1)
        disk.fail("sync")
        client = await scene.connect()
        transaction = await client.channel()
        await transaction.call(methods.TxSelect())
        for _ in range(3):
            transaction.publish("", "q", b"\x10\x00\x02", b"in a transaction")
        commit = asyncio.ensure_future(transaction.call(methods.TxCommit()))
        done, _ = await asyncio.wait({commit}, timeout=2)
        assert not done or commit.exception() is not None
        declare = asyncio.ensure_future(other.call(methods.QueueDeclare(queue="new", durable=True)))
        done, _ = await asyncio.wait({declare}, timeout=2)
        assert not done or declare.exception() is not None
        assert "Traceback" not in node.log_text()
        node.kill()
        await asyncio.gather(commit, declare, return_exceptions=True)
        disk.lose_power(Random(1))
        disk.fail("sync", now=False)
        node.start()
        scene.ledger.queues.pop("q")
        assert (await scene.check()).problems == []

    asyncio.run(act())


@pytest.mark.parametrize("what", ["sync", "write"])
def test_stop_with_a_broken_disk(
    tmp_path: Path, disk: FaultyDisk, make_node: Callable[..., NodeProcess], what: str
) -> None:
    """A disk that fails while the node stops: it says so, ends, and what was confirmed is there."""
    node = make_node(data=tmp_path / "data", environment=disk.environment)
    scene = Scene(node)

    async def act() -> None:
        node.start()
        await scene.declare("q")
        await scene.fill("q", "before", KIND, 100)
        disk.fail(what)
        await asyncio.to_thread(node.stop)
        assert "Input/output error" in node.log_text()
        assert "Traceback" not in node.log_text()
        disk.lose_power(Random(2))
        disk.fail(what, now=False)
        node.start()
        assert (await scene.check(was_killed=None)).problems == []

    asyncio.run(act())


def test_power_loss_under_load(disk: FaultyDisk) -> None:
    """As `kill -9`, but what was not synced is lost, or half there."""
    assert [result.count.problems for result in run(3, seed=4, power=True)] == [[]] * 3
