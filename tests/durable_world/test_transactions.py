"""Transactions and the disk. amqp-behaviour §4.4, §7.5."""

from random import Random

import pytest

from node.amqp.methods import (
    BasicAck,
    BasicGet,
    BasicGetOk,
    ChannelClose,
    ConnectionClose,
    QueueDeclare,
    QueueDeclareOk,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)
from node.store.disk import Sync
from tests.durable_world.world import LARGE_BYTES, PERSISTENT, TRANSIENT, DurableWorld
from tests.kit.world import Client, check_invariants

LONG_ENOUGH = 60
"""Steps of the disk, more than any of these transactions take."""


def ready() -> tuple[DurableWorld, Client]:
    """A world with the queues q and r, and a client whose channel 1 is transactional."""
    world = DurableWorld()
    client = world.client(1, 2)
    world.declare(client, "q", "r")
    assert client.ask(1, TxSelect()) == TxSelectOk()
    return world, client


def test_commit_waits() -> None:
    """§4.4: commit-ok comes when all persistent messages are on disk, not before."""
    world, client = ready()
    client.publish(1, "q", b"a", b"x" * LARGE_BYTES, properties=PERSISTENT)
    client.publish(1, "r", b"b", properties=PERSISTENT)
    client.send(1, TxCommit())
    world.settle()
    while any(isinstance(step, Sync) for step in world.disk.waiting):
        assert client.received() == []
        world.disk.step()
    assert client.methods() == [TxCommitOk()]


@pytest.mark.parametrize("seed", range(5))
def test_committed_is_safe(seed: int) -> None:
    """§4.4: a power loss at the moment of commit-ok takes nothing of it, in none of its queues."""
    world, client = ready()
    client.publish(1, "q", b"a", b"x" * LARGE_BYTES, properties=PERSISTENT)
    client.publish(1, "r", b"b", properties=PERSISTENT)
    client.send(1, TxCommit())
    while not (found := client.methods()):
        assert world.disk.step()
    assert found == [TxCommitOk()]
    world.cut_power(Random(seed))
    world.start()
    assert world.bodies("q") == [b"a", b"x" * LARGE_BYTES]
    assert world.bodies("r") == [b"b"]


def test_nothing_to_wait_for() -> None:
    """§4.4: transient messages and acknowledgements don't make a commit wait."""
    world, client = ready()
    client.publish(2, "q", b"a", properties=PERSISTENT)
    world.rest()
    assert isinstance(client.ask(1, BasicGet(queue="q")), BasicGetOk)
    client.publish(1, "q", b"b", properties=TRANSIENT)
    client.send(1, BasicAck(1))
    assert client.ask(1, TxCommit()) == TxCommitOk()


def test_uncommitted() -> None:
    """§4.4: what isn't committed is not on disk; a crash is a rollback."""
    world, client = ready()
    client.publish(1, "q", b"a", properties=PERSISTENT)
    client.publish(1, "q", b"x" * LARGE_BYTES, properties=PERSISTENT)
    world.rest()
    world.kill()
    world.start()
    assert world.bodies("q") == []


def test_rolled_back() -> None:
    """§4.4: a channel that closes with an open transaction leaves nothing on disk, and its acks are undone."""
    world, client = ready()
    client.publish(2, "q", b"a", properties=PERSISTENT)
    world.rest()
    assert isinstance(client.ask(1, BasicGet(queue="q")), BasicGetOk)
    client.send(1, BasicAck(1))
    client.publish(1, "r", b"x" * LARGE_BYTES, properties=PERSISTENT)
    client.send(1, ChannelClose(200, "", 0, 0))
    world.rest()
    world.kill()
    world.start()
    assert world.bodies("q") == [b"a"]
    assert world.bodies("r") == []


def test_pipelined() -> None:
    """§2.3: what is sent behind a commit is done after it, and answered in order."""
    world, client = ready()
    client.publish(1, "q", b"a", properties=PERSISTENT)
    client.send(1, TxCommit())
    client.publish(1, "q", b"b", properties=PERSISTENT)
    client.send(1, TxCommit())
    client.send(2, QueueDeclare(queue="q", passive=True))
    world.settle()
    assert client.received() == []
    world.settle_disk()
    assert client.methods() == [TxCommitOk(), TxCommitOk(), QueueDeclareOk("q", 2, 0)]


def test_connection_lost() -> None:
    """A client that goes while its commit waits leaves what it committed."""
    world, client = ready()
    client.publish(1, "q", b"a", properties=PERSISTENT)
    client.send(1, TxCommit())
    world.settle()
    client.lose()
    world.rest()
    check_invariants(world)
    assert world.bodies("q") == [b"a"]


@pytest.mark.parametrize("is_kill", [True, False])
def test_crash_between(is_kill: bool) -> None:
    """§4.4: a commit moves a message from q to r. Whenever the node ends, it is in one of them or in both; after
    commit-ok in r only.
    """
    moved = set()
    for steps in range(LONG_ENOUGH):
        world, client = ready()
        client.publish(2, "q", b"a", properties=PERSISTENT)
        world.rest()
        assert isinstance(client.ask(1, BasicGet(queue="q")), BasicGetOk)
        client.publish(1, "r", b"a", properties=PERSISTENT)
        client.send(1, BasicAck(1))
        client.send(1, TxCommit())
        world.settle()
        has_more = all(world.disk.step() for _ in range(steps))
        is_committed = client.methods() == [TxCommitOk()]
        random = Random(steps)
        if is_kill:
            world.kill(random)
        else:
            world.cut_power(random)
        world.start()
        found = (world.bodies("q"), world.bodies("r"))
        assert found in (([b"a"], []), ([b"a"], [b"a"]), ([], [b"a"]))
        assert not is_committed or found == ([], [b"a"])
        moved.add(found == ([], [b"a"]))
        if not has_more:
            break
    assert moved == {False, True}


def test_broken_disk() -> None:
    """§4.4: a commit that can't be written is refused; the connection ends with 541."""
    world, client = ready()
    world.disk.fail_sync()
    client.publish(1, "q", b"a", properties=PERSISTENT)
    client.send(1, TxCommit())
    world.rest()
    (close,) = client.methods()
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 541
    check_invariants(world)
