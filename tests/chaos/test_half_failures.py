"""Half-failures of one node, with real processes: each costs one copy at most, and never a message.

docs/reliability.md, "Half-failures", has the table of them and what was measured here.
A disk that hangs, fills, fails or rots, and a link that stays cut while both its ends live. Each test says with `-s`
what it measured.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest

from node.amqp.field_table import Table, longstr
from tests.chaos.cluster import ChaosNode
from tests.chaos.damage import flip, folders_gone
from tests.chaos.stage import Publisher, Stage, confirmed_anywhere, staged, until
from tests.chaos.trial import small_disks
from tests.durability.scene import fill_disk
from tests.kit.faulty_disk import NoCompiler
from tests.kit.network import LoopbackNetwork, Network, ProxyNetwork
from tests.kit.patience import patience

pytestmark = pytest.mark.slow

LAZY: Final[Table] = {"x-queue-mode": longstr("lazy")}
MESSAGES: Final = ("journal", "queues", "messages")


def played(
    directory: Path, act: Callable[[Stage], Awaitable[None]], network: type[Network] = LoopbackNetwork
) -> None:
    """Run a test on three nodes."""

    async def play() -> None:
        async with staged(directory, network()) as stage:
            await act(stage)

    try:
        asyncio.run(play())
    except NoCompiler as error:
        pytest.skip(str(error))


def tell(text: str) -> None:
    """Say what was measured."""
    print(f"\n{text}", flush=True)


async def taken(stage: Stage, queue: str, wanted: int, node: ChaosNode) -> None:
    """See that all the messages of a queue come."""
    found = await stage.drain(node, queue, wanted=wanted)
    tell(f"{queue}: {found} of {wanted}")
    assert found == wanted


# --- 1: the disk under the Raft leader ---


async def _another_leads(stage: Stage, leader: ChaosNode, since: float) -> None:
    """Wait until another node leads; meanwhile somebody serves at every moment.   since: when its disk went."""
    worst = set[str]()

    async def look() -> bool:
        nonlocal worst
        worst = max(worst, await stage.paused(), key=len)
        now = await stage.cluster.leader()
        return now is not None and now is not leader

    try:
        await until(look, "another leader", told=stage.paused)
    finally:
        tell(f"after {time.monotonic() - since:.1f} s: leader was {leader.short_name}, "
             f"paused at once: {sorted(worst) or 'nobody'}")  # fmt: skip
    assert len(worst) < len(stage.nodes), "all paused at once"


def test_a_hanging_raft_disk_of_the_leader(tmp_path: Path) -> None:
    """Another leads; nobody pauses, so nothing transient is lost."""

    async def act(stage: Stage) -> None:
        leader = await stage.leader()
        other = stage.others(leader)[0]
        await stage.declare(leader, "q")
        await stage.declare(leader, "q-transient", is_durable=False)
        await stage.publish(leader, "q", 100)
        await stage.publish(leader, "q", 100, is_persistent=False)
        await stage.publish(leader, "q-transient", 100, is_persistent=False)
        stage.disk(leader).hang("sync", "raft")
        try:
            await _another_leads(stage, leader, time.monotonic())
            tell(f"confirmed after {await confirmed_anywhere(stage.nodes, 'q'):.1f} s")
        finally:
            stage.disk(leader).mend()
            await stage.cluster.await_up()
            tell(f"left: q {await stage.depth('q')}, q-transient {await stage.depth('q-transient')}")
        await taken(stage, "q", 201, other)
        await taken(stage, "q-transient", 100, other)

    played(tmp_path, act)


def test_a_full_disk_of_the_leader(tmp_path: Path) -> None:
    """Publishers wait, as they are told; consumers on the other nodes go on, and nothing is lost."""

    async def act(stage: Stage) -> None:
        leader = await stage.leader()
        other = stage.others(leader)[0]
        await stage.declare(other, "q")
        await stage.publish(other, "q", 100, is_persistent=False)
        reader = await other.connect()
        filler = fill_disk(leader.data, 0)
        since = time.monotonic()
        # What is in the last block of the journal's file needs none: something must be written to notice.
        try:
            for number in range(300):
                policy = {"max-length": 1_000_000 + number, "message-ttl": 3_600_000}
                setting = asyncio.ensure_future(stage.operator.set_policy("none", "^none$", policy))
                done, _ = await asyncio.wait({setting}, timeout=2)
                if not done:
                    break
                setting.exception()
            await _another_leads(stage, leader, since)
            assert reader.lost is None, f"a consumer on {other.short_name}: {reader.lost}"
            assert await stage.depth("q") == 100
        finally:
            filler.unlink()
        await stage.cluster.await_up()
        await taken(stage, "q", 100, other)

    with small_disks(tmp_path) as are:
        if not are:
            pytest.skip("no file systems can be mounted here")
        played(tmp_path, act)


# --- 2: rot under the master ---


async def _rotten(stage: Stage, count: int) -> ChaosNode:
    """A queue of so many messages, all on disk, with a flipped bit in a segment of its master. Returns: its node."""
    master = stage.nodes[0]
    await stage.declare(master, "q", arguments=LAZY)
    await stage.publish(master, "q", count)
    await stage.await_synchronised("q")

    async def is_on_disk() -> bool:
        return sum(path.stat().st_size for path in master.data.glob("queues/*/*.idx")) >= 100 * count

    await until(is_on_disk, "all is in segments")
    tell(f"n1: {flip(master.data, 'queues/*/0.idx', Random(2))}")
    return master


def test_a_flipped_bit_and_a_consumer(tmp_path: Path) -> None:
    """A consumer gets everything, although the master cannot read all of it; all copies are whole again."""

    async def act(stage: Stage) -> None:
        await _rotten(stage, 40_000)
        await taken(stage, "q", 40_000, stage.nodes[1])
        await stage.await_synchronised("q")

    played(tmp_path, act)


async def _handed_over(stage: Stage) -> tuple[ChaosNode, int]:
    """A queue whose damage was found has some 8,000 messages left. Returns: the node that it left, and how many."""
    master = await _rotten(stage, 40_000)
    consumed = await stage.drain(stage.nodes[1], "q", wanted=31_000)
    await master.ask("drain", timeout_s=70 * patience())
    tell(f"{consumed} consumed, then drained; {await stage.ring('q')}")
    return master, 40_000 - consumed


def test_a_flipped_bit_and_a_handover(tmp_path: Path) -> None:
    """Publishes go on."""

    async def act(stage: Stage) -> None:
        master, _ = await _handed_over(stage)
        tell(f"confirmed after {await confirmed_anywhere(stage.others(master), 'q'):.1f} s")
        await master.ask("revive", timeout_s=40 * patience())
        await stage.await_synchronised("q")

    played(tmp_path, act)


def test_a_flipped_bit_a_handover_and_a_death(tmp_path: Path) -> None:
    """No copy that counts as synchronised lacks anything."""

    async def act(stage: Stage) -> None:
        master, left = await _handed_over(stage)
        await master.ask("revive", timeout_s=40 * patience())
        await stage.await_synchronised("q")
        ring = await stage.ring("q")
        assert ring is not None
        second = next(node for node in stage.nodes if node.name == ring.master)
        second.kill()
        third = stage.others(second)[0]

        async def has_another() -> bool:
            found = await stage.ring("q")
            return found is not None and found.is_live and found.master not in ("", second.name)

        await until(has_another, "another master", told=lambda: stage.ring("q"))
        tell(f"{left} before; {second.short_name} killed; {await stage.ring('q')}")
        found = await stage.drain(third, "q", wanted=left)
        tell(f"q: {found} of {left}")
        assert found >= left  # acknowledgements under way may be lost (reliability §4.11 A2)

    played(tmp_path, act)


# --- 3: damage under a total restart ---


def _flipped_journal(node: ChaosNode) -> str:
    return flip(node.data, "journal/*.journal", Random(3))


def _without_folders(node: ChaosNode) -> str:
    return folders_gone(node.data, MESSAGES)


@pytest.mark.parametrize("damage", [_flipped_journal, _without_folders])
def test_damage_of_the_last_master_and_a_total_restart(
    tmp_path: Path, damage: Callable[[ChaosNode], str]
) -> None:
    """An undamaged copy is taken, whoever was the master last."""

    async def act(stage: Stage) -> None:
        master = stage.nodes[0]
        await stage.declare(master, "q")
        publisher = await Publisher.open(master, "q")
        for _ in range(200):
            await publisher.publish(1)
        for node in stage.nodes:
            node.kill()
        tell(f"n1: {damage(master)}")
        await stage.restart(*stage.nodes)
        await until(lambda: _is_live(stage, "q"), "q is back", 60)
        tell(f"master {(await stage.ring('q') or ('nobody',))[0]}, {await stage.depth('q')} messages")
        await stage.await_synchronised("q")
        await taken(stage, "q", 200, stage.nodes[1])

    played(tmp_path, act)


async def _is_live(stage: Stage, queue: str) -> bool:
    ring = await stage.ring(queue)
    return ring is not None and ring.is_live and bool(ring.master)


# --- 4, 5: a link that stays cut ---


@pytest.mark.parametrize("pause_s", [0.2, 1.5], ids=["slow", "idle"])
def test_a_link_of_the_ring_that_stays_cut(tmp_path: Path, pause_s: float) -> None:
    """One of its ends is evicted, however little is published, and confirms go on.   pause_s: between two publishes."""

    async def act(stage: Stage) -> None:
        master = stage.nodes[0]
        await stage.declare(master, "q")
        publisher = await Publisher.open(master, "q")
        for _ in range(3):
            await publisher.publish(1)
            await asyncio.sleep(pause_s)
        stage.network.cut([("n2", "n3")], "silent")
        # A queue is idle by the time that passes.
        await asyncio.sleep(pause_s)
        since = time.monotonic()
        publisher.send()
        try:
            await publisher.settled()
        finally:
            lasted_s = time.monotonic() - since
            tell(
                f"{publisher.unconfirmed} unconfirmed after {lasted_s:.1f} s; {await stage.ring('q', master)}"
            )
        await publisher.publish(20)
        ring = await stage.ring("q", master)
        assert ring is not None
        assert len(ring.mirrors) < 2, "a mirror behind the cut counts"

    played(tmp_path, act, ProxyNetwork)


def test_a_drain_while_a_link_is_cut(tmp_path: Path) -> None:
    """The new master acts, although its link to a mirror is cut."""

    async def act(stage: Stage) -> None:
        master = stage.nodes[0]
        await stage.declare(master, "q")
        await stage.publish(master, "q", 100)
        stage.network.cut([("n2", "n3")], "silent")
        since = time.monotonic()
        await master.ask("drain", timeout_s=70 * patience())
        drained_s = time.monotonic() - since
        try:
            await confirmed_anywhere(stage.nodes, "q")
            tell(
                f"confirmed after {time.monotonic() - since:.1f} s, of which the drain took {drained_s:.1f} s"
            )
        finally:
            tell(f"{await stage.ring('q')}")
        stage.network.heal()
        await stage.cluster.await_up()
        await master.ask("revive", timeout_s=40 * patience())
        await stage.await_synchronised("q")
        await taken(stage, "q", 101, stage.nodes[1])

    played(tmp_path, act, ProxyNetwork)


# --- 6: a confirm that a disk lacks ---


def test_a_confirm_after_a_handover_is_on_the_disk_of_each_copy_that_counts(tmp_path: Path) -> None:
    """A master with a slow disk hands over: what it was given before is confirmed when its own disk has it, or it is
    no copy any more.
    """

    async def act(stage: Stage) -> None:
        master = stage.nodes[0]
        await stage.declare(master, "q")
        await stage.publish(master, "q", 10)
        publisher = await Publisher.open(stage.nodes[1], "q")
        stage.disk(master).hang("write", *MESSAGES)
        publisher.send()
        since = time.monotonic()
        draining = asyncio.ensure_future(master.ask("drain", timeout_s=70 * patience()))
        await publisher.settled()
        ring = await stage.ring("q", stage.nodes[1])
        tell(f"confirmed after {time.monotonic() - since:.1f} s; {ring}")
        assert ring is not None
        assert publisher.confirmed == 1
        assert master.name not in (ring.master, *ring.synchronised), (
            "its disk has not written what is confirmed"
        )
        stage.disk(master).mend()
        await asyncio.wait({draining})

    played(tmp_path, act)


# --- 7: an error of the disk ---


@pytest.mark.parametrize("which", ["master", "mirror"])
def test_one_error_of_the_message_disk(tmp_path: Path, which: str) -> None:
    """The node ends; the others publish on, and it comes back with all copies."""

    async def act(stage: Stage) -> None:
        first, second, broken = stage.nodes
        await stage.declare(broken if which == "master" else first, "q")
        await stage.declare(second, "alone")
        await stage.publish(first, "q", 100)
        disk = stage.disk(broken)
        disk.fail("sync", *MESSAGES, once=True)
        publisher = await Publisher.open(first, "q")
        publisher.send()
        since = time.monotonic()
        await until(_async(lambda: disk.has_failed("sync")), "the disk has failed")
        clients = [await Publisher.open(node, "alone") for node in (first, second)]
        try:
            for name in ("alone", "q"):
                tell(f"{name}: confirmed after {await confirmed_anywhere([first, second], name):.1f} s")
        finally:
            blocked = [each.channel.client.blocked for each in clients]
            tell(f"n3 {'runs' if broken.is_running else 'has ended'}; clients blocked: {blocked}")
        await until(_async(lambda: not broken.is_running), "n3 ends")
        tell(f"n3 has ended {time.monotonic() - since:.1f} s after the error")
        assert broken.exit_code not in (0, None)
        with_copies = await stage.ring("q", first)
        assert with_copies is not None
        assert with_copies.master in (first.name, second.name)
        broken.kill()
        await stage.restart(broken)
        await stage.await_synchronised("q")
        depth = await stage.depth("q")
        assert depth is not None
        assert depth >= 101
        await taken(stage, "q", depth, broken)

    played(tmp_path, act)


def _async(condition: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    async def ask() -> object:
        return condition()

    return ask
