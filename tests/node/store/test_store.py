"""Tests of node.store.store."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.catalogue.records import QueueRecord
from node.queue.operations import Enqueue, Remove, decode
from node.queue.run import NEVER, Absent, Batch, Run
from node.store.disk import Append, MakeDir, RemoveTree, Step, Sync, SyncDir
from node.store.disk import Remove as RemoveFile
from node.store.journal import file_path, split
from node.store.options import MIB
from node.store.queue_index import QueueIndex
from node.store.records import read_records
from node.store.store import CONGESTED_BYTES, EARLY_BATCH_BYTES, SYNCED_S
from tests.kit.disk import SimulatedDisk
from tests.kit.messages import content
from tests.kit.store_bench import (
    EMBED_MAX_BYTES,
    ENVELOPE,
    INTERVAL_S,
    Bench,
    Recorder,
    lost_contents,
    remains,
    uid_of,
)

LARGE = bytes(2000)


class Owner:
    """Has a queue's messages.   unreadable: see `StorageOwner`."""

    def __init__(self, unreadable: Callable[[str], None]) -> None:
        self.unreadable = unreadable


def kinds(steps: list[Step]) -> list[str]:
    """Steps as kind and path."""
    return [f"{type(step).__name__} {step.path}" for step in steps]  # type: ignore[union-attr]


# --- counters ---


def test_what_is_written_is_counted() -> None:
    """Writes are counted: messages in indexes, contents in the message store once, operations in the journal."""
    bench = Bench()
    bench.keep(1, b"a", b"b")
    bench.keep(2, b"L" * EMBED_MAX_BYTES)
    bench.store.await_safety(Recorder(), 1, 1)
    bench.turn()
    bench.disk.settle()
    counters = bench.store.counters
    assert (bench.queue(1).disk_writes, bench.queue(2).disk_writes) == (2, 1)
    assert (counters.msg_store_write_count, counters.queue_index_write_count) == (1, 2)
    assert (counters.msg_store_read_count, counters.queue_index_read_count) == (0, 0)


# --- when a batch goes ---


def test_a_waiter_makes_a_batch_at_the_end_of_the_turn() -> None:
    """A waiter is told when its batch is synced, not before."""
    bench, waiter = Bench(), Recorder()
    bench.keep(1, b"a", b"b")
    bench.store.await_safety(waiter, 1, 2)
    assert bench.disk.submitted == []
    bench.turn()
    assert len(bench.disk.submitted) == 1
    assert waiter.safe == []
    bench.disk.settle()
    assert waiter.safe == [(1, 2)]
    assert remains(bench.disk.crash(Random(1))).seqs(1) == [1, 2]


def test_what_nobody_waits_for_is_put_off() -> None:
    """A timer brings the batch when the oldest operation is as old as it may be."""
    bench = Bench()
    bench.keep(1, b"a")
    bench.turn()
    assert bench.timers.next_deadline() == bench.now + INTERVAL_S
    bench.keep(1, b"b")
    bench.turn(INTERVAL_S / 2)
    assert bench.disk.submitted == []
    bench.now += INTERVAL_S / 2
    bench.timers.run(bench.now)
    assert len(bench.disk.submitted) == 1
    bench.disk.settle()
    assert remains(bench.disk).seqs(1) == [1, 2]
    assert bench.timers.next_deadline() == bench.now + SYNCED_S, "nothing but what tells that it is safe"


def test_a_waiter_cancels_the_timer() -> None:
    """After a batch nothing is left to be put off."""
    bench = Bench()
    bench.keep(1, b"a")
    bench.turn()
    bench.store.await_safety(Recorder(), 1, 1)
    bench.turn()
    assert bench.timers.next_deadline() == bench.now + SYNCED_S, "nothing but what tells that it is safe"
    assert len(bench.disk.submitted) == 1


def test_while_a_batch_is_in_flight_all_gathers_for_the_next() -> None:
    """However many turns there are; then it goes as one."""
    bench, waiter = Bench(), Recorder()
    for number in range(1, 10):
        bench.keep(1, b"x")
        bench.store.await_safety(waiter, number, number)
        bench.turn(INTERVAL_S)
    assert len(bench.disk.submitted) == 1
    bench.disk.settle()
    assert waiter.safe == [(1, 1)]
    assert bench.store.has_work, "the next batch waits for a turn"
    bench.turn()
    assert len(bench.disk.submitted) == 2
    bench.disk.settle()
    assert waiter.safe == [(1, 1), (2, 9)]


def test_much_goes_early() -> None:
    """A batch that is large enough does not wait for its time."""
    bench = Bench(embed_max_bytes=1 << 30)
    bench.keep(1, bytes(EARLY_BATCH_BYTES))
    bench.turn()
    assert len(bench.disk.submitted) == 1


def test_forgetting_alone_is_written_too() -> None:
    """Acknowledgements reach the journal though nobody waits for them."""
    bench = Bench()
    bench.keep(1, b"a", b"b", b"c")
    bench.settle()
    bench.forget(1, 1, 3)
    bench.settle()
    assert remains(bench.disk).seqs(1) == [2]


def test_a_turn_without_work_does_nothing() -> None:
    """No job, no timer."""
    bench = Bench()
    bench.queue(1)
    bench.turn()
    assert bench.disk.submitted == []
    assert len(bench.timers) == 0


def test_idle_queues_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only queues that have operations are asked for them, however many queues there are."""
    bench = Bench()
    asked: list[str] = []
    take_operations = QueueIndex.take_operations

    def take(index: QueueIndex) -> object:
        asked.append(index.uid)
        return take_operations(index)

    monkeypatch.setattr(QueueIndex, "take_operations", take)
    for number in range(1, 20):
        bench.queue(number)
    bench.keep(7, b"a")
    bench.settle()
    assert asked == [uid_of(7)]


def test_work_is_announced_once_until_the_turn() -> None:
    """`wake` is called by the first of keep, place and await_safety."""
    bench = Bench()
    woken: list[bool] = []
    bench.store.wake = lambda: woken.append(bench.store.has_work)
    bench.keep(1, b"a")
    bench.keep(2, LARGE)
    bench.store.await_safety(Recorder(), 1, 1)
    assert woken == [True]
    bench.turn()
    assert not bench.store.has_work
    bench.keep(1, b"a")
    assert woken == [True, True]


# --- what is in a batch, in which order ---


def test_contents_come_before_the_journal() -> None:
    """Contents that the journal refers to are synced before it."""
    bench = Bench()
    bench.keep(1, LARGE)
    bench.store.await_safety(Recorder(), 1, 1)
    bench.turn()
    [steps] = bench.disk.submitted
    assert kinds(steps) == [
        "MakeDir messages",
        "Append messages/1.rdq",
        "Sync messages/1.rdq",
        "SyncDir messages",
        "SyncDir ",
        "Append journal/1.journal",
        "Sync journal/1.journal",
    ]


def test_without_contents_the_message_store_is_not_synced() -> None:
    """The journal's is the only sync."""
    bench = Bench()
    bench.keep(1, LARGE)
    bench.settle()
    bench.keep(1, b"small")
    bench.settle()
    assert kinds(bench.disk.journal_jobs[-1]) == ["Append journal/1.journal", "Sync journal/1.journal"]


def test_a_content_for_two_queues_is_written_once() -> None:
    """Both refer to the same id."""
    bench = Bench()
    contents = [content(LARGE)]
    store_id = bench.store.place(contents, persistent=True)
    for queue in (1, 2):
        bench.queue(queue).keep(Batch(ENVELOPE, contents, len(LARGE), store_id), 1, NEVER)
    bench.settle()
    found = remains(bench.disk)
    assert found.seqs(1) == found.seqs(2) == [1]
    assert lost_contents(bench.disk, found) == []
    assert bench.disk.size("messages/1.rdq") < 2 * len(LARGE)


def test_all_that_comes_stands_before_all_that_goes() -> None:
    """Over all queues: a torn batch may double a message that moves, and never loses it."""
    bench = Bench()
    bench.keep(1, b"a")
    bench.keep(2, b"b")
    bench.settle()
    before = bench.disk.size(file_path(1))
    bench.forget(1, 1)
    bench.keep(2, b"a")
    bench.forget(2, 1)
    bench.keep(1, b"b")
    bench.settle()
    operations = [
        type(decode(split(payload)[1]))
        for _, payload in read_records(bench.disk.content(file_path(1)), before)
    ]
    assert operations == [Enqueue, Enqueue, Remove, Remove]


def test_dead_segments_are_removed_behind_the_sync() -> None:
    """The journal must know first that their messages are gone."""
    bench = Bench(journal_file_bytes=100)
    bench.keep(1, b"a", b"b")
    bench.settle()
    bench.keep(2, b"x")
    bench.settle()
    assert "queues/" + uid_of(1) + "/0.idx" in bench.disk.paths(), "a checkpoint has brought it there"
    bench.forget(1, 1, 2)
    bench.store.await_safety(Recorder(), 1, 1)
    bench.turn()
    steps = bench.disk.journal_jobs[-1]
    path = f"queues/{uid_of(1)}/0.idx"
    assert RemoveFile(path) in steps
    syncs = [at for at, step in enumerate(steps) if isinstance(step, Sync) and "journal" in step.path]
    assert syncs[0] < steps.index(RemoveFile(path))
    bench.disk.settle()
    assert path not in bench.disk.paths()


def test_a_message_forgotten_before_its_batch_is_never_written() -> None:
    """A waiter for a forgotten message is settled at the end of the turn, without the disk (amqp-behaviour §7.5)."""
    bench, waiter = Bench(), Recorder()
    bench.keep(1, LARGE)
    bench.keep(2, b"a")
    bench.store.await_safety(waiter, 1, 2)
    bench.forget(1, 1)
    bench.forget(2, 1)
    assert waiter.safe == []
    bench.turn()
    assert waiter.safe == [(1, 2)]
    assert bench.disk.submitted == []


def test_paged_out_messages_go_in_the_same_turn() -> None:
    """No batch is due, nothing is synced; also for a queue that is not durable, which never has a batch."""
    bench = Bench()
    for number, durable in ((1, True), (2, False)):
        index = bench.queue(number, durable=durable)
        index.page_out([Run(ENVELOPE, range(1, 3), [content(b"a"), content(LARGE)], -1)])
    bench.turn()
    steps = [step for job in bench.disk.submitted for step in job]
    paths = [step.path for step in steps if isinstance(step, Append)]
    assert sorted(paths) == [
        f"queues/{uid_of(1)}/0.idx",
        "transient/messages/1.rdq",
        f"transient/queues/{uid_of(2)}/0.idx",
    ]
    assert all(isinstance(step, Append | MakeDir) for step in steps)
    bench.settle()
    assert bench.disk.journal_jobs == []


def test_a_deleted_queue_is_forgotten() -> None:
    """A deleted queue's files go, and the store lets go of the index."""
    bench = Bench(journal_file_bytes=100)
    bench.keep(1, b"a")
    bench.settle()
    bench.keep(2, b"b")
    bench.settle()
    index = bench.queue(1)
    assert bench.store.figures().queues == 2
    index.drop()
    bench.settle()
    assert bench.store.figures().queues == 1
    assert not any(uid_of(1) in path for path in bench.disk.paths())
    assert any(RemoveTree(f"queues/{uid_of(1)}") in steps for steps in bench.disk.submitted)


# --- waiters ---


def test_ranges_that_follow_each_other_are_one() -> None:
    """Each waiter has its own."""
    bench, one, two = Bench(), Recorder(), Recorder()
    bench.keep(1, b"a")
    for first, last in ((1, 3), (4, 4), (6, 9), (10, 12)):
        bench.store.await_safety(one, first, last)
        bench.store.await_safety(two, first, last)
    bench.turn()
    bench.disk.settle()
    assert one.safe == two.safe == [(1, 4), (6, 12)]


def test_with_nothing_on_its_way_a_waiter_is_settled_at_once() -> None:
    """All that was kept is safe."""
    bench, waiter = Bench(), Recorder()
    bench.store.await_safety(waiter, 1, 1)
    assert waiter.safe == [(1, 1)]
    bench.keep(1, b"a")
    bench.settle()
    bench.store.await_safety(waiter, 2, 2)
    assert waiter.safe == [(1, 1), (2, 2)]


def test_a_waiter_for_what_is_in_flight_waits_for_that_batch() -> None:
    """A waiter for what is in flight needs no batch of its own."""
    bench, waiter = Bench(), Recorder()
    bench.keep(1, b"a")
    bench.store.await_safety(waiter, 1, 1)
    bench.turn()
    bench.store.await_safety(waiter, 2, 2)
    assert waiter.safe == []
    bench.disk.settle()
    assert waiter.safe == [(1, 2)]
    assert len(bench.disk.submitted) == 1


def test_waiters_are_settled_in_order() -> None:
    """One that comes later is never settled before one that waits."""
    bench, waiter = Bench(), Recorder()
    for number in range(1, 40):
        if number % 3:
            bench.keep(1, b"a")
        if number % 7 == 0:
            bench.forget(1, bench.next_seqs[1] - 1)
        bench.store.await_safety(waiter, number, number)
        if number % 4 == 0:
            bench.turn()
        bench.disk.step()
    bench.settle()
    numbers = [number for first, last in waiter.safe for number in range(first, last + 1)]
    assert numbers == list(range(1, 40))


def test_a_settled_waiter_may_publish_at_once() -> None:
    """Messages kept while a waiter is settled are for the next batch."""
    bench, waiter = Bench(), Recorder()

    def publish() -> None:
        if len(waiter.safe) == 1:
            bench.keep(1, b"b")
            bench.store.await_safety(waiter, 5, 5)

    waiter.on_settled = publish
    bench.keep(1, b"a")
    bench.store.await_safety(waiter, 1, 1)
    bench.settle()
    assert waiter.safe == [(1, 1), (5, 5)]
    assert remains(bench.disk).seqs(1) == [1, 2]


# --- the disk fails ---


def test_after_a_failed_sync_nothing_is_safe() -> None:
    """After a failed sync early and late waiters are told; nothing is written any more; the journal stays."""
    bench, early, late = Bench(), Recorder(), Recorder()
    bench.keep(1, b"a")
    bench.store.await_safety(early, 1, 1)
    bench.turn()
    bench.keep(1, b"b")
    bench.store.await_safety(late, 2, 2)
    bench.disk.fail_sync()
    bench.disk.settle()
    assert early.unsafe == [(1, 1)]
    assert late.unsafe == [(2, 2)]
    assert early.safe == late.safe == []
    assert bench.store.is_broken
    assert len(bench.errors) == 1
    bench.store.await_safety(late, 3, 3)
    assert late.unsafe == [(2, 2), (3, 3)]
    jobs = len(bench.disk.submitted)
    bench.keep(1, b"c")
    bench.turn(INTERVAL_S)
    bench.store.close()
    assert len(bench.disk.submitted) == jobs
    assert bench.disk.names("journal") == ["1.journal"]
    assert len(bench.timers) == 0


def test_a_batch_of_nothing_but_removals_ends_after_a_failure() -> None:
    """A broken disk still removes files: by then nobody waits for the batch."""
    bench = Bench()
    paged = bench.queue(1, durable=False)
    paged.page_out([Run(ENVELOPE, range(1, 2), [content(b"a")], 1, NEVER)])
    bench.settle()
    paged.forget(range(1, 2), 0)
    bench.disk.submitted.clear()
    bench.turn()
    bench.queue(2, durable=False).page_out([Run(ENVELOPE, range(1, 2), [content(b"b")], 1, NEVER)])
    bench.disk.fail(Append)
    bench.turn(INTERVAL_S)
    assert [isinstance(job[-1], RemoveFile) for job in bench.disk.submitted] == [False, True]
    bench.disk.settle()
    assert bench.store.is_broken
    assert len(bench.errors) == 1


def test_a_failure_is_reported_once() -> None:
    """A failure of the disk is reported once, however many jobs of whatever kind fail by it."""
    bench = Bench()
    bench.keep(1, b"a")
    bench.queue(2).page_out([Run(ENVELOPE, range(1, 2), [content(b"a")], 1)])
    bench.store.await_safety(Recorder(), 1, 1)
    bench.disk.fail(Append)
    bench.turn()
    assert len(bench.disk.submitted) == 2
    bench.disk.settle()
    assert len(bench.errors) == 1


def test_what_is_paged_out_in_vain_breaks_the_store() -> None:
    """The broker has let go of it."""
    bench = Bench()
    bench.queue(2, durable=False).page_out([Run(ENVELOPE, range(1, 2), [content(b"a")], 1)])
    bench.disk.fail(Append)
    bench.settle()
    assert bench.store.is_broken


def test_a_full_disk_makes_everything_wait() -> None:
    """Nothing is lost and nothing is called safe until there is room; all later messages go in one batch."""
    bench, waiter = Bench(), Recorder()
    bench.disk.fill_up()
    for number in range(1, 6):
        bench.keep(1, b"a")
        bench.store.await_safety(waiter, number, number)
        bench.turn(INTERVAL_S)
        bench.disk.settle()
    assert waiter.safe == waiter.unsafe == []
    assert bench.store.figures().waiting == 2
    bench.disk.free()
    bench.settle()
    assert waiter.safe == [(1, 1), (2, 5)]
    assert len(bench.disk.journal_jobs) == 2


def test_on_a_full_disk_no_segment_goes_before_its_batch() -> None:
    """A stalled disk lets removals go ahead: those of a batch stay with it."""
    bench = Bench(journal_file_bytes=100)
    bench.keep(1, b"a")
    bench.settle()
    bench.keep(2, b"x")
    bench.settle()
    path = f"queues/{uid_of(1)}/0.idx"
    assert path in bench.disk.paths()
    bench.disk.fill_up()
    bench.keep(3, b"a")
    bench.forget(1, 1)
    bench.turn(INTERVAL_S)
    bench.turn(INTERVAL_S)
    bench.disk.settle()
    assert path in bench.disk.paths()
    bench.disk.free()
    bench.settle()
    assert path not in bench.disk.paths()


@pytest.mark.parametrize("body", [b"a", LARGE])
@pytest.mark.parametrize("is_full", [True, False])
def test_what_was_never_written_is_not_damaged(is_full: bool, body: bytes) -> None:
    """At the end of a node nothing waits for room, and what was to be read is then not there; as after an error."""
    bench = Bench()
    queue, reasons, answers = bench.queue(1), [], []
    queue.belong_to(Owner(reasons.append))
    first, behind = (Run(ENVELOPE, range(seq, seq + 1), [content(body)], len(body)) for seq in (1, 2))
    queue.page_out([first])
    bench.settle()
    found: list[list[Absent]] = []
    queue.scan(0, 1, 1, found.append)
    bench.settle()
    if is_full:
        bench.disk.fill_up()
    else:
        bench.disk.fail(Append)
    queue.page_out([behind])
    queue.scan(0, 1, 2, answers.append)
    queue.load([_follower(found[0][0])], answers.append)
    bench.turn()
    bench.disk.settle()
    bench.disk.give_up()
    bench.disk.settle()
    queue.scan(0, 1, 2, answers.append)
    bench.disk.settle()
    assert bench.store.is_broken
    assert (reasons, bench.reports, queue.unreadable) == ([], [], None)
    assert answers == [], "who asked is told nothing, rather than that there is less"


def _follower(absent: Absent) -> Absent:
    """The message that was written next, and is as large."""
    place = absent.place
    return Absent(
        absent.envelope,
        range(2, 3),
        absent.size,
        absent.body_bytes,
        absent.expiry,
        absent.deliveries,
        absent.store_id + 1 if absent.store_id else 0,
        place._replace(offset=place.offset + place.length) if place is not None else None,
    )


def test_a_file_that_was_never_begun_is_not_missing() -> None:
    """The messages that it was to have are with the journal, or were never safe."""
    bench, reasons = Bench(), []
    queue = bench.queue(1)
    queue.belong_to(Owner(reasons.append))
    bench.disk.fail(Append)
    queue.page_out([Run(ENVELOPE, range(1, 2), [content(b"a")], 1)])
    queue.scan(0, 1, 1, lambda absents: None)
    bench.disk.settle()
    assert bench.store.is_broken
    assert (reasons, bench.reports) == ([], [])


# --- congestion ---


def test_congestion_begins_and_ends() -> None:
    """Above the limit publishers hold on; they are told once that half of it is written."""
    bench = Bench(embed_max_bytes=1 << 30, journal_file_bytes=1 << 30)
    for _ in range(CONGESTED_BYTES // MIB + 1):
        bench.keep(1, bytes(MIB))
    bench.turn()
    assert bench.store.is_congested
    assert bench.relieved == 0
    bench.disk.settle()
    assert not bench.store.is_congested
    assert bench.relieved == 1


def test_what_gathers_behind_a_slow_disk_counts() -> None:
    """Neither part need be above the limit by itself, and relief comes below half of it only."""
    bench = Bench(embed_max_bytes=1 << 30, journal_file_bytes=1 << 30)
    bench.keep(1, *[bytes(MIB)] * 10)
    bench.turn()
    assert not bench.store.is_congested
    bench.keep(1, *[bytes(MIB)] * 9)
    bench.turn()
    assert bench.store.is_congested
    while bench.disk.jobs:
        bench.disk.step()
    assert bench.store.is_congested, "and the second is more than half the limit"
    bench.turn()
    bench.disk.settle()
    assert bench.relieved == 1


def test_a_broken_store_holds_nobody_up() -> None:
    """Publishers must hear that nothing is safe."""
    bench = Bench(embed_max_bytes=1 << 30)
    bench.keep(1, *[bytes(MIB)] * 20)
    bench.turn()
    assert bench.store.is_congested
    bench.disk.fail_sync()
    bench.disk.settle()
    assert not bench.store.is_congested
    assert bench.relieved == 1


def test_a_long_journal_is_congestion_too() -> None:
    """A journal that grows because checkpoints don't keep up counts as congestion, so publishers wait."""
    bench, waiter = Bench(journal_file_bytes=100), Recorder()
    bench.disk.settle()
    for number in range(1, 200):
        bench.keep(1, b"a" * 50)
        bench.store.await_safety(waiter, number, number)
        bench.turn()
        while bench.disk.jobs and not waiter.safe:
            bench.disk.step()  # no more than what the batch needs: the checkpoint lags
        waiter.safe.clear()
        if bench.store.is_congested:
            break
    assert bench.store.is_congested
    bench.settle()
    assert not bench.store.is_congested
    assert bench.relieved == 1


# --- checkpoints ---


def test_a_full_file_brings_a_checkpoint() -> None:
    """Messages of a full journal file go to segments, and then the file goes."""
    bench = Bench(journal_file_bytes=1000)
    for _ in range(30):
        bench.keep(1, b"a" * 60, b"b" * 60)
        bench.keep(2, LARGE)
        bench.forget(1, bench.next_seqs[1] - 1)
        bench.settle()
    assert bench.store.figures().checkpoints >= 3
    assert len(bench.disk.names("journal")) == 1
    found = remains(bench.disk)
    assert found.seqs(1) == list(range(1, 60, 2))
    assert found.seqs(2) == list(range(1, 31))
    assert lost_contents(bench.disk, found) == []


def test_many_small_operations_bring_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the file is far from full."""
    monkeypatch.setattr("node.store.store.OPERATIONS_MAX", 10)
    bench = Bench()
    bench.keep(1, *[b"a"] * 20)
    bench.settle()
    for seq in range(1, 20):
        bench.forget(1, seq)
        bench.settle()
    assert bench.store.figures().checkpoints >= 1
    assert remains(bench.disk).seqs(1) == [20]


def test_batches_go_between_the_jobs_of_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter for safety waits for a job or two of a checkpoint, not for all."""
    monkeypatch.setattr("node.store.checkpoint.FLUSH_BYTES", 500)
    bench, waiter = Bench(journal_file_bytes=20_000), Recorder()
    for queue in range(1, 30):
        bench.keep(queue, b"a" * 900)
    bench.settle()
    assert bench.store.figures().checkpoints == 0
    bench.keep(1, b"b")
    bench.turn(INTERVAL_S)  # the file is full: a batch to the next one, and the first job
    jobs_of_checkpoint = 0
    for number in range(1, 10):
        bench.keep(2, b"c")
        bench.store.await_safety(waiter, number, number)
        while waiter.safe[-1:] != [(number, number)]:
            bench.turn()
            bench.disk.step()
        assert bench.store.figures().checkpoints == 0, "it is a long one"
    journal = [any("journal" in kind for kind in kinds(steps)) for steps in bench.disk.submitted]
    jobs_of_checkpoint = journal.count(False)
    assert jobs_of_checkpoint >= 9
    longest = max(len(run) for run in "".join("j" if is_ours else "c" for is_ours in journal).split("j"))
    assert longest <= 3
    bench.settle()
    assert bench.store.figures().checkpoints == 1


def test_a_checkpoint_syncs_a_few_files_at_a_time() -> None:
    """However many queues there are."""
    bench = Bench(journal_file_bytes=1000)
    for queue in range(1, 60):
        bench.keep(queue, b"a" * 30)
    bench.settle()
    bench.keep(1, b"b")
    bench.settle()
    assert bench.store.figures().checkpoints == 1
    counts = [
        sum(isinstance(step, Sync | SyncDir) for step in steps)
        for steps in bench.disk.submitted
        if steps not in bench.disk.journal_jobs
    ]
    assert max(counts) <= 16 + 2
    assert sum(counts) >= 59 * 2


def test_a_queue_that_is_not_durable_is_never_synced() -> None:
    """A queue that is not durable is neither synced nor in the journal."""
    bench = Bench(journal_file_bytes=100)
    bench.queue(9, durable=False).page_out([Run(ENVELOPE, range(1, 2), [content(b"a")], 1)])
    bench.keep(1, b"a")
    bench.settle()
    bench.keep(1, b"a")
    bench.settle()
    assert bench.store.figures().checkpoints >= 1
    paths = [
        step.path for steps in bench.disk.submitted for step in steps if isinstance(step, Sync | SyncDir)
    ]
    assert not any("transient" in path for path in paths)


def test_an_exclusive_queue_is_not_durable() -> None:
    """An exclusive queue ends with its connection, whatever it was declared as."""
    bench = Bench()
    record = QueueRecord("/", "x", uid_of(5), durable=True, exclusive_owner="c1")
    assert not bench.store.open(record).is_durable
    assert bench.store.open(record) is bench.store.open(record)


# --- crashes ---

_WEIGHTS = {"keep": 8, "forget": 6, "move": 3, "page": 1, "wait": 6, "turn": 8, "steps": 10}


class History:
    """Records what happened to messages, each by queue and number, at which time."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.time = 0
        self.kept: dict[tuple[int, int], int] = {}
        self.forgotten: dict[tuple[int, int], int] = {}
        self.bodies: dict[tuple[int, int], bytes] = {}
        self.moved: dict[tuple[int, int], tuple[int, int]] = {}
        self.waiter = Recorder()

    def act(self, what: str, queue: int, number: int) -> None:
        bench = self.bench
        self.time += 1
        alive = sorted(key for key in self.kept if key[0] == queue and key not in self.forgotten)
        if what == "keep":
            self.keep(queue, f"{self.time}".encode().ljust(number, b"."))
        elif what == "forget" and alive:
            self.forget(alive[number % len(alive)])
        elif what == "move" and alive:
            source = alive[number % len(alive)]
            self.moved[source] = self.keep(queue % 3 + 1, self.bodies[source])
            self.forget(source)
        elif what == "page" and alive:
            self.page(alive[: number % len(alive) + 1])
        elif what == "wait":
            bench.store.await_safety(self.waiter, self.time, self.time)
        elif what == "turn":
            bench.turn(INTERVAL_S if number else 0.0)
        elif what == "steps":
            for _ in range(number):
                bench.disk.step()

    def keep(self, queue: int, body: bytes) -> tuple[int, int]:
        key = (queue, self.bench.keep(queue, body)[0])
        self.kept[key] = self.time
        self.bodies[key] = body
        return key

    def forget(self, key: tuple[int, int]) -> None:
        self.bench.forget(*key)
        self.forgotten[key] = self.time

    def page(self, keys: list[tuple[int, int]]) -> None:
        queue = keys[0][0]
        self.bench.queue(queue).page_out(
            [
                Run(
                    ENVELOPE,
                    range(key[1], key[1] + 1),
                    [content(self.bodies[key])],
                    len(self.bodies[key]),
                    store_id=self.bench.store_ids.get(key, 0),
                    is_indexed=True,
                )
                for key in keys
            ]
        )

    def check(self, disk: SimulatedDisk) -> None:
        """Check that safe messages are there, safely removed ones aren't, and moved ones aren't lost on the way."""
        found = remains(disk)
        present = {(queue, seq) for queue in (1, 2, 3) for seq in found.seqs(queue)}
        safe_at = max((last for _, last in self.waiter.safe), default=0)
        assert self.waiter.unsafe == []
        for key, at in self.kept.items():
            gone_at = self.forgotten.get(key)
            if at < safe_at and gone_at is None:
                assert key in present
            if gone_at is not None and gone_at < safe_at:
                assert key not in present
            if at < safe_at and key in self.moved and key not in present:
                assert self.is_further(key, present), key
        assert present <= self.kept.keys()
        needed = {key for key in present if self.kept[key] < safe_at and key not in self.forgotten}
        for uid, seq in lost_contents(disk, found):
            assert (int(uid, 16), seq) not in needed

    def is_further(self, key: tuple[int, int], present: set[tuple[int, int]]) -> bool:
        """Whether a message is where it moved to, or was forgotten there."""
        while key in self.moved:
            key = self.moved[key]
            if key in present or (key in self.forgotten and key not in self.moved):
                return True
        return False


def busy_life(random: Random) -> History:
    """A store at some moment of a life with small files, so that all that can happen happens often."""
    bench = Bench(
        journal_file_bytes=random.choice([300, 1000, 3000]),
        store_file_bytes=random.choice([2000, 5000]),
        segment_entries=random.choice([2, 8]),
    )
    history = History(bench)
    steps_max = random.choice([3, 10, 40])
    actions = random.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=random.randint(1, 250))
    for what in actions:
        queue = random.randint(1, 3)
        if what == "keep":
            number = random.choice([1, 100, 1500])
        elif what == "turn":
            number = random.randint(0, 1)
        elif what == "steps":
            number = random.randint(1, steps_max)
        else:
            number = random.randrange(1 << 16)
        history.act(what, queue, number)
    return history


@pytest.mark.parametrize("is_power_loss", [False, True])
@given(st.integers(0, 1 << 32))
@settings(max_examples=300, deadline=None)
def test_a_crash_loses_nothing_that_was_safe(is_power_loss: bool, seed: int) -> None:
    """At any moment, of batches, checkpoints, paging and removals; nor does what was safely gone come back."""
    random = Random(seed)
    history = busy_life(random)
    disk = history.bench.disk
    history.check(disk.crash(random) if is_power_loss else disk.kill(random))


def test_a_busy_life_ends_well() -> None:
    """Nothing is left to do in the end, and files say what happened."""
    for seed in range(30):
        history = busy_life(Random(seed))
        bench = history.bench
        bench.settle()
        bench.store.close()
        found = remains(bench.disk)
        assert found.is_clean
        present = {(queue, seq) for queue in (1, 2, 3) for seq in found.seqs(queue)}
        assert present == history.kept.keys() - history.forgotten.keys()
        assert lost_contents(bench.disk, found) == []
        assert len(bench.disk.names("journal")) <= 2


def test_segments_never_know_what_the_journal_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint rests while something gathers: it would tell that a message has gone which is nowhere else yet."""
    monkeypatch.setattr("node.store.checkpoint.FLUSH_BYTES", 1)
    bench = Bench(journal_file_bytes=100)
    for queue in (1, 2, 3):
        bench.keep(queue, b"a")
    bench.settle()
    bench.disk.submitted.clear()
    bench.keep(3, b"b")
    bench.store.await_safety(Recorder(), 1, 1)
    bench.turn()
    assert len(bench.disk.submitted) == 2, "a batch, and the first job of the checkpoint"
    bench.forget(2, 1)
    bench.keep(1, b"a")
    bench.turn()
    assert len(bench.disk.submitted) == 2
    bench.disk.settle()
    bench.turn()
    assert [steps in bench.disk.journal_jobs for steps in bench.disk.submitted[2:]] == [True, False]


@pytest.mark.parametrize("pace", range(2, 8))
def test_checkpoints_under_steady_load_leave_nothing_behind(pace: int) -> None:
    """Messages kept while a checkpoint begins stay in the journal until the next, at whatever pace the disk works."""
    bench, waiter, random = Bench(journal_file_bytes=300), Recorder(), Random(pace)
    for number in range(2000):
        bench.keep(number // 4 + 1, b"a" * 20)  # each queue has a few messages in a row, then never any more
        bench.store.await_safety(waiter, number, number)
        if random.random() < 0.7:
            bench.turn()
        for _ in range(random.randint(0, pace)):
            bench.disk.step()
    bench.settle()
    assert bench.store.figures().checkpoints >= 10
    found = remains(bench.disk)
    for queue in range(1, 501):
        assert found.seqs(queue) == [1, 2, 3, 4], queue


# --- the end, and the beginning ---


def test_a_closed_store_has_written_everything() -> None:
    """Closing writes also what nobody waited for; the last record says that the node was stopped."""
    bench, waiter = Bench(), Recorder()
    bench.keep(1, b"a", b"b")
    bench.keep(2, LARGE)
    bench.forget(1, 1)
    bench.store.await_safety(waiter, 1, 3)
    bench.store.close()
    assert waiter.safe == [(1, 3)]
    found = remains(bench.disk.crash(Random(1)))
    assert found.is_clean
    assert found.seqs(1) == [2]
    assert found.seqs(2) == [1]
    assert bench.disk.submitted == []


def test_deliveries_are_known_after_a_clean_stop() -> None:
    """A clean stop keeps how often each message was delivered."""
    bench = Bench()
    bench.keep(1, b"a", b"b", b"c")
    bench.settle()
    bench.queue(1).delivered(range(2, 3), 4)
    bench.store.close()
    image = remains(bench.disk).images[uid_of(1)]
    assert [(entry.first_seq, entry.deliveries) for entry in image.entries] == [(1, 0), (2, 4), (3, 0)]


def test_nothing_is_written_after_the_end() -> None:
    """The mark stays the last record; whoever asks is told that nothing will be safe."""
    bench, waiter = Bench(), Recorder()
    bench.store.close()
    bench.keep(1, b"late")
    bench.store.await_safety(waiter, 1, 1)
    bench.turn(INTERVAL_S)
    bench.store.close()
    assert waiter.unsafe == [(1, 1)]
    assert bench.disk.submitted == []
    assert remains(bench.disk).is_clean


def test_a_stop_without_room_is_no_clean_one() -> None:
    """The store breaks, and who waits is told."""
    bench, waiter = Bench(), Recorder()
    bench.keep(1, b"a")
    bench.store.await_safety(waiter, 1, 1)
    bench.disk.fill_up()
    bench.store.close()
    assert bench.store.is_broken
    assert waiter.unsafe == [(1, 1)]
    assert len(bench.errors) == 1
    assert not remains(bench.disk).is_clean


def test_a_store_does_nothing_before_it_begins() -> None:
    """Built over a directory with files it leaves them alone, and then writes behind them."""
    first = Bench()
    first.keep(1, b"a")
    first.settle()
    disk = first.disk
    assert disk.names("journal") == ["1.journal"]
    second = Bench(disk)
    assert disk.names("journal") == ["1.journal", "2.journal"]
    second.next_seqs[1] = 2
    second.keep(1, b"b")
    second.settle()
    assert remains(disk).seqs(1) == [1, 2]


def test_figures_tell_how_it_goes() -> None:
    """Counts of what was written, and who waits."""
    bench = Bench()
    bench.keep(1, b"a")
    bench.keep(2, b"b")
    bench.store.await_safety(Recorder(), 1, 1)
    bench.turn()
    figures = bench.store.figures()
    assert (figures.waiting, figures.batches, figures.operations) == (1, 1, 2)
    bench.disk.settle()
    figures = bench.store.figures()
    assert (figures.waiting, figures.journal_files, figures.queues) == (0, 1, 2)
    assert figures.journal_bytes == bench.disk.size(file_path(1)) - 8
