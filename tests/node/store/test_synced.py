"""What is known to have been safe never says more than is true, whatever fails: nothing is missed that was removed."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import pytest

from node.broker.records import QueueRecord
from node.broker.run import NEVER, Run
from node.broker.timers import Timers
from node.store import synced
from node.store.disk import Append, Sync
from node.store.disk import Remove as RemoveFile
from node.store.findings import Damage
from node.store.options import StoreOptions
from node.store.recovery import RecoveredStore, recover
from node.store.store import Store
from tests.node.broker.messages import content
from tests.node.store.simulated_disk import SimulatedDisk
from tests.node.store.store_harness import ENVELOPE, INTERVAL_S, Bench, uid_of
from tests.node.store.stored import (
    ENTRIES,
    PERSISTENT,
    TRANSIENT,
    UID,
    FailingDisk,
    Files,
    PowerOff,
    enqueue,
    remove,
)

QUEUES = (1, 2)


def listed(disk: SimulatedDisk, uid: str) -> dict[int, int]:
    """The segments of which something is known to have been safe, and how many bytes."""
    return synced.read_synced(disk).segments.get(uid, {})


def start(disk: SimulatedDisk) -> RecoveredStore:
    """A node starts."""
    records = {
        uid_of(number): QueueRecord("/", f"q{number}", uid_of(number), durable=True) for number in QUEUES
    }
    store = Store(disk, StoreOptions(), Timers())
    return recover(disk, store, records, now=lambda: 0.0, copies=records)


def assert_all_is_there(found: RecoveredStore) -> None:
    assert [each for each in found.findings if each.damage is Damage.MISSING] == []
    assert all(queue.is_clean for queue in found.queues.values())


def checkpoint(bench: Bench) -> None:
    """What the first queue has goes to segments, and its journal file goes."""
    bench.settle()
    bench.keep(2, b"x")
    bench.settle()


def lives() -> Iterator[Callable[[Bench], None]]:
    """What becomes of a segment that is known to be safe."""

    def goes(bench: Bench) -> None:
        bench.forget(1, 1, 2, 3)
        bench.settle()

    def goes_with_its_reason(bench: Bench) -> None:
        goes(bench)
        checkpoint(bench)
        checkpoint(bench)

    def is_another(bench: Bench) -> None:
        goes(bench)
        bench.keep(1, b"b")
        checkpoint(bench)

    def is_another_with_what_is_paged_out(bench: Bench) -> None:
        goes(bench)
        bench.queue(1).page_out([Run(ENVELOPE, range(4, 5), [content(b"b")], 1, NEVER)])
        bench.settle()

    yield from (goes, goes_with_its_reason, is_another, is_another_with_what_is_paged_out)


@pytest.mark.parametrize("life", list(lives()), ids=lambda life: life.__name__)
@pytest.mark.parametrize("reorders", [False, True])
def test_a_segment_that_was_removed_is_not_missed_after_a_power_loss(
    life: Callable[[Bench], None], reorders: bool
) -> None:
    """That it goes is safe before it goes: the number may soon be that of a shorter file."""
    for seed in range(60):
        bench = Bench(journal_file_bytes=100)
        bench.keep(1, b"a" * 50, b"b" * 50, b"c" * 50)
        checkpoint(bench)
        assert listed(bench.disk, uid_of(1))
        bench.disk.sync_all()
        life(bench)
        left = bench.disk.crash(Random(seed), reorders=reorders)
        assert_all_is_there(start(left))


@pytest.mark.parametrize("kind", [Append, Sync])
@pytest.mark.parametrize("path", [synced.SYNCED, "journal/2.journal", "journal/3.journal"])
def test_a_segment_that_was_removed_is_not_missed_after_an_error(kind: type, path: str) -> None:
    """The disk takes nothing from then on."""
    for seed in range(20):
        bench = Bench(journal_file_bytes=100)
        bench.keep(1, b"a" * 50, b"b" * 50, b"c" * 50)
        checkpoint(bench)
        bench.disk.sync_all()
        bench.disk.fail(kind, path)
        bench.forget(1, 1, 2, 3)
        bench.keep(1, b"b")
        for _ in range(10):
            bench.turn(INTERVAL_S)
            bench.disk.settle()
        assert_all_is_there(start(bench.disk.crash(Random(seed))))


def test_what_was_never_called_safe_goes_without_a_sync() -> None:
    """As a queue does that pages out and is emptied all the time."""
    bench = Bench()
    bench.queue(1).page_out([Run(ENVELOPE, range(1, 2), [content(b"b")], 1, NEVER)])
    bench.settle()
    bench.forget(1, 1)
    bench.settle()
    steps = [step for job in bench.disk.submitted for step in job]
    assert RemoveFile(f"queues/{uid_of(1)}/0.idx") in steps
    assert Sync(synced.SYNCED) not in steps


@pytest.mark.parametrize("steps", range(60))
def test_what_ends_with_the_node_is_not_missed_by_the_next_recovery(steps: int) -> None:
    """Transient messages were paged out to segments that were made safe; a recovery that removes them is cut short."""
    files = Files()
    paths = [
        files.segment(number, enqueue(number * ENTRIES + 1, b"gone", envelope=TRANSIENT)) for number in (0, 1)
    ]
    files.segment(2, enqueue(2 * ENTRIES + 1, b"stays", envelope=PERSISTENT))
    files.segment(3, enqueue(3 * ENTRIES + 1, b"removed", envelope=PERSISTENT), remove(3 * ENTRIES + 1))
    sizes = [(number, files.disk.size(f"queues/{UID}/{number}.idx")) for number in range(4)]
    files.disk.run(synced.renewal(synced.about_queue(UID, sizes, is_lossy=False)))
    files.journal()
    files.disk.sync_all()
    with suppress(PowerOff):
        files.recover(FailingDisk(files.disk, steps), copies=[UID])
    for seed in range(5):
        left = Files(Files(files.disk.clone()).disk.crash(Random(seed)))
        found, _ = left.recover(copies=[UID])
        assert_all_is_there(found)
        assert left.bodies() == {2 * ENTRIES + 1: b"stays"}
        assert not set(paths) & set(left.disk.paths())


def test_a_loss_is_known_though_the_segment_goes() -> None:
    """It was cut off, all that is left in it is gone, and the recovery that removes it is cut short."""
    for steps in range(60):
        files = Files()
        path = files.segment(0, enqueue(1, b"gone", envelope=TRANSIENT))
        size = files.disk.size(path)
        files.disk.run(synced.renewal(synced.about_queue(UID, [(0, size + 20)], is_lossy=False)))
        files.journal()
        files.disk.sync_all()
        with suppress(PowerOff):
            files.recover(FailingDisk(files.disk, steps), copies=[UID])
        left = Files(files.disk.crash(Random(steps)))
        found, _ = left.recover(copies=[UID])
        assert not found.queues[UID].is_clean


def test_a_journal_file_is_always_there() -> None:
    """Else the journal seems to be lost: a checkpoint may be over before anything comes for the next file."""
    bench = Bench(journal_file_bytes=100)
    bench.keep(1, b"a" * 200)
    bench.settle()
    other = bench.queue(2, durable=False)
    other.page_out([Run(ENVELOPE, range(1, 2), [content(b"b")], 1, NEVER)])
    bench.turn()
    bench.disk.settle()
    other.forget(range(1, 2), 0)  # a batch of nothing but a removal
    for _ in range(10):
        bench.turn(INTERVAL_S)
        while bench.disk.step():
            assert bench.disk.names("journal")
    assert bench.store.figures().checkpoints == 1
    bench.keep(1, b"c")
    bench.settle()
    assert_all_is_there(start(bench.disk.kill()))
