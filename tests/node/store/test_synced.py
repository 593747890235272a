"""The record of what was safe says no more than is true, whatever fails: nothing is missed that was removed."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from unittest.mock import patch

import pytest

from node.catalogue.records import QueueRecord
from node.queue.run import NEVER, Run
from node.scheduling.timers import Timers
from node.store import synced
from node.store.disk import Append, Step, Sync
from node.store.disk import Remove as RemoveFile
from node.store.findings import Damage
from node.store.options import StoreOptions
from node.store.records import HEADER_BYTES
from node.store.recovery import RecoveredStore, recover
from node.store.store import Store
from tests.kit.disk import SimulatedDisk
from tests.kit.messages import content
from tests.kit.store_bench import ENVELOPE, INTERVAL_S, Bench, uid_of
from tests.kit.stored import (
    ENTRIES,
    OTHER_UID,
    PERSISTENT,
    TRANSIENT,
    UID,
    FailingDisk,
    Files,
    PowerOff,
    corrupt,
    enqueue,
    enqueue_stored,
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
    """Move what the first queue has to segments, so that its journal file goes."""
    bench.settle()
    bench.keep(2, b"x")
    bench.settle()


def lives() -> Iterator[Callable[[Bench], None]]:
    """Yield what may become of a segment that is known to be safe."""

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
    """The removal of a segment is safe before it goes: its number may soon be that of a shorter file."""
    for seed in range(60):
        bench = Bench(journal_file_bytes=100)
        bench.keep(1, b"a" * 50, b"b" * 50, b"c" * 50)
        checkpoint(bench)
        assert listed(bench.disk, uid_of(1))
        bench.disk.sync_all()
        life(bench)
        left = bench.disk.crash(Random(seed), reorders=reorders)
        assert_all_is_there(start(left))


@pytest.mark.parametrize("reorders", [False, True])
def test_what_a_checkpoint_has_made_safe_is_known_once_the_journal_is_gone(reorders: bool) -> None:
    """Messages that a checkpoint made safe are known to be, or damage to them would look like what was never safe."""
    gone = 0
    for seed in range(60):
        bench = Bench(journal_file_bytes=100)
        bench.disk.run(synced.renewal([]))  # as each start does
        bench.keep(1, b"a" * 50, b"b" * 50, b"c" * 50)
        checkpoint(bench)
        left = bench.disk.crash(Random(seed), reorders=reorders)
        if "1.journal" not in left.names("journal"):
            gone += 1
            assert listed(left, uid_of(1))
    assert gone


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
    """A segment's loss is known though all that is left in it is gone, and its recovery is cut short."""
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


def damages() -> Iterator[Callable[[Files], None]]:
    """Yield what may have become of three messages of a copy, of which the second was safe."""

    def is_in_its_segment(files: Files) -> None:
        path = files.segment(0, enqueue(1, b"a"), enqueue(2, b"b"), enqueue(3, b"c"))
        corrupt(files.disk, path, 1)
        files.journal(enqueue(4, b"d" * 100))

    def is_in_its_segment_of_which_some_is_listed(files: Files) -> None:
        """The file is soon longer again than it is known to have been."""
        is_in_its_segment(files)
        files.disk.run(synced.renewal(synced.about_queue(UID, [(0, 100)], is_lossy=False)))

    def is_of_the_contents(files: Files) -> None:
        path = files.contents(1, {1: b"a" * 5000, 2: b"b" * 5000, 3: b"c" * 5000})
        corrupt(files.disk, path, 1)
        segment = files.segment(0, enqueue_stored(1, 1, 3))
        size = files.disk.size(segment)
        files.disk.run(synced.renewal(synced.about_queue(UID, [(0, size)], is_lossy=False)))
        files.journal(remove(1))

    def is_of_all_contents(files: Files) -> None:
        is_of_the_contents(files)
        files.disk.write("messages/1.rdq", bytes(range(1, 200)))

    def is_of_the_journal(files: Files) -> None:
        """Lose a segment whose journal is gone too, with what told of it."""
        files.segment(0, enqueue(1, b"a"), remove(1))
        other = files.segment(0, enqueue(1, b"b"), enqueue(2, b"c"), uid=OTHER_UID)
        corrupt(files.disk, other, 0)
        files.segment(2, enqueue(2 * ENTRIES + 1, b"c"))

    yield from (
        is_in_its_segment,
        is_in_its_segment_of_which_some_is_listed,
        is_of_the_contents,
        is_of_all_contents,
        is_of_the_journal,
    )


@pytest.mark.parametrize("damage", list(damages()), ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("is_power_loss", [False, True])
def test_a_loss_is_known_whenever_the_recovery_that_finds_it_is_cut_short(
    damage: Callable[[Files], None], is_power_loss: bool
) -> None:
    """The segment is soon one in which nothing is wrong: what is lost is safely written down before."""
    files = Files()
    damage(files)
    files.disk.sync_all()
    is_over, steps = False, 0
    while not is_over:
        cut = Files(files.disk.clone())
        try:
            cut.recover(FailingDisk(cut.disk, steps), copies=[UID, OTHER_UID])
            is_over = True
        except PowerOff:
            steps += 1
        for seed in range(8 if is_power_loss else 1):
            disk = cut.disk.clone()
            left = Files(disk.crash(Random(seed)) if is_power_loss else disk.kill())
            found, _ = left.recover(copies=[UID, OTHER_UID])
            assert not found.queues[UID].is_clean, steps
    assert steps > 10


def test_a_segment_that_is_gone_is_missed_though_some_of_it_was_removed() -> None:
    """The journal's word that messages went does not explain that the file is gone."""
    files = Files()
    segment = files.segment(0, enqueue(1, b"a"), enqueue(2, b"b"))
    listing = synced.about_queue(UID, [(0, files.disk.size(segment))], is_lossy=False)
    files.disk.run(synced.renewal(listing))
    files.journal(remove(1))
    files.disk.run([RemoveFile(segment)])
    found, _ = files.recover(copies=[UID])
    assert not found.queues[UID].is_clean


@pytest.mark.parametrize("is_in_the_journal", [False, True])
def test_contents_that_a_page_out_wrote_are_missed_if_the_journal_has_the_message(
    is_in_the_journal: bool,
) -> None:
    """A lazy queue writes its segment without a sync; what says that the message was safe is the journal."""
    files = Files()
    corrupt(files.disk, files.contents(1, {1: b"a" * 5000, 2: b"b" * 5000}), 0)
    files.segment(0, enqueue_stored(1, 1, 2))
    files.journal(*([enqueue_stored(1, 1, 2)] if is_in_the_journal else []))
    found, _ = files.recover(copies=[UID])
    assert found.queues[UID].is_clean is not is_in_the_journal


def test_what_is_lost_of_many_copies_is_written_down_at_once() -> None:
    """Not each time that another segment turns out to be damaged."""
    files = Files()
    uids = [f"{number:032x}" for number in range(1, 50)]
    files.records = {uid: QueueRecord("/", f"q{uid}", uid, durable=True) for uid in uids}
    for uid in uids:
        corrupt(files.disk, files.segment(0, enqueue(1, b"a"), enqueue(2, b"b"), uid=uid), 0)
    with patch.object(files.disk, "run", wraps=files.disk.run) as run:
        found, _ = files.recover(copies=uids)
    assert not any(found.queues[uid].is_clean for uid in uids)
    steps: list[Step] = [step for call in run.call_args_list for step in call.args[0]]
    assert steps.count(Sync(synced.NEW_SYNCED)) == 2


def full_disk(*, is_damaged: bool = False) -> Files:
    """No byte is left; three segments are known to have been safe, of which two have transient messages only."""
    files = Files()
    for number in (0, 1):
        files.segment(number, enqueue(number * ENTRIES + 1, b"x" * 1000, envelope=TRANSIENT))
    files.segment(2, enqueue(2 * ENTRIES + 1, b"stays"))
    sizes = [(number, files.disk.size(f"queues/{UID}/{number}.idx")) for number in range(3)]
    files.disk.run(synced.renewal(synced.about_queue(UID, sizes, is_lossy=False)))
    if is_damaged:
        files.disk.zero(f"queues/{UID}/1.idx", HEADER_BYTES, sizes[1][1])  # of which no copy is kept
    files.journal()
    files.disk.sync_all()
    files.disk.fill_up()
    return files


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_node_starts_on_a_full_disk(is_damaged: bool) -> None:
    """Removing what ended with the node makes the room for the record of its removal."""
    files = full_disk(is_damaged=is_damaged)
    store = Store(files.disk, StoreOptions(segment_entries=ENTRIES), Timers())
    found = recover(files.disk, store, files.records, now=lambda: 0.0, copies=[UID])
    store.begin()
    assert listed(files.disk, UID).keys() == {2}
    again, _ = Files(files.disk.crash(Random(1))).recover(copies=[UID])
    assert found.queues[UID].is_clean == again.queues[UID].is_clean == (not is_damaged)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_start_on_a_full_disk_that_is_cut_short_hides_no_loss(is_damaged: bool) -> None:
    """A cut start on a full disk may see a loss where none is, between the removal that makes room and its note."""
    suspected = 0
    for steps in range(60):
        files = full_disk(is_damaged=is_damaged)
        with suppress(PowerOff):
            files.recover(FailingDisk(files.disk, steps), copies=[UID])
        files.disk.free()
        left = Files(files.disk.kill())
        found, _ = left.recover(copies=[UID])
        assert left.bodies() == {2 * ENTRIES + 1: b"stays"}
        assert not (is_damaged and found.queues[UID].is_clean)
        suspected += not found.queues[UID].is_clean
    assert is_damaged or 0 < suspected < 8


def test_a_journal_file_is_always_there() -> None:
    """A journal file is always there, or the journal seems lost when a checkpoint ends before the next file begins."""
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
