"""The message store, on a simulated disk; against a dictionary at the end."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from node.store import file_merge
from node.store.disk import Append, MakeDir, Read, Remove, Rename, Step, Sync, SyncDir
from node.store.message_store import TRANSIENT_FIRST_ID, MessageStore, StoreFigures
from node.store.records import HEADER_BYTES, NewerFormat
from node.store.store_file import OVERHEAD_BYTES, StoreFile, framed
from tests.kit.disk import SimulatedDisk

CONTENT_BYTES = 100
RECORD_BYTES = CONTENT_BYTES + OVERHEAD_BYTES
PER_FILE = 8
FILE_BYTES = HEADER_BYTES + PER_FILE * RECORD_BYTES
"""A file of the tests has so many contents and no room for another byte."""


class RecordingDisk(SimulatedDisk):
    """A simulated disk that remembers the jobs it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[list[Step]] = []

    def submit(self, steps: Any, done: Any, failed: Any) -> None:
        self.submitted.append(list(steps))
        super().submit(steps, done, failed)


class Bench:
    """A store with its disk, and what a node does with them."""

    def __init__(self, file_max_bytes: int = FILE_BYTES, first_id: int = 1, disk: Any = None) -> None:
        self.disk: Any = disk if disk is not None else RecordingDisk()
        self.store = MessageStore("messages", self.disk, file_max_bytes, first_id)
        self.reports: list[tuple[str, int, str]] = []

    def submit(self, steps: Any) -> list[Any]:
        """Submit a job; its results appear in the list that this gives."""
        results: list[Any] = []
        self.disk.submit(steps, results.extend, lambda error: results.append(error))
        return results

    def put(self, *contents: bytes, refs: int = 1) -> int:
        """Contents come, and so many queues refer to them."""
        first_id = self.store.place(contents)
        for _ in range(refs):
            self.store.add_refs(first_id, len(contents))
        return first_id

    def flush(self) -> None:
        """The end of a turn, and the disk does it all."""
        self.submit([*self.store.take_steps(turn_ended=True), *self.store.sync_steps()])
        self.store.collect()
        self.disk.settle()

    def read(self, first_id: int, count: int = 1) -> list[bytes | None]:
        self.submit(self.store.take_steps())
        results = self.submit(self.store.read_steps(first_id, count))
        self.disk.settle()
        assert not [result for result in results if isinstance(result, OSError)]
        return [content for part in results for content in part]

    def restart(self, refs: list[range], disk: Any = None) -> "Bench":
        """The node starts again on what the disk has now. Each of the ranges of ids is referred to once."""
        other = Bench(disk=disk if disk is not None else self.disk.kill())
        other.store.recover(other.disk, lambda *what: other.reports.append(what))
        for ids in refs:
            other.store.add_refs(ids.start, len(ids))
        other.store.finish_recovery()
        return other

    @property
    def figures(self) -> StoreFigures:
        return self.store.figures()


def contents(count: int, first: int = 0) -> list[bytes]:
    return [b"%0*d" % (CONTENT_BYTES, number) for number in range(first, first + count)]


def filled(files: int, first_id: int = 1) -> Bench:
    """A store with so many full files and one content more; ids begin with 1, contents with 0."""
    bench = Bench(first_id=first_id)
    bench.put(*contents(files * PER_FILE + 1))
    bench.flush()
    return bench


def wasteful() -> Bench:
    """A store with four full files, of which each has but its first two contents, and one more content."""
    bench = filled(4)
    for file in range(4):
        bench.store.drop_refs(file * PER_FILE + 3, PER_FILE - 2)
    return bench


def left(files: int = 4) -> list[range]:
    """The ids that `wasteful` leaves."""
    firsts = [file * PER_FILE + 1 for file in range(files)]
    return [*(range(first, first + 2) for first in firsts), range(33, 34)]


def assert_left(bench: Bench) -> None:
    for ids in left():
        assert bench.read(ids.start, len(ids)) == contents(len(ids), ids.start - 1)


# --- in and out ---


def test_contents_come_back_in_order() -> None:
    """Whether they were on disk already or not."""
    bench = Bench()
    first_id = bench.put(*contents(3))
    assert first_id == 1
    assert bench.put(*contents(2, 3)) == 4
    assert bench.read(2, 4) == contents(4, 1)
    assert bench.read(1, 5) == contents(5)


def test_contents_are_written_once() -> None:
    """However many queues hold them, in one append for each file."""
    bench = Bench()
    bench.put(*contents(3), refs=7)
    make, append = bench.store.take_steps()
    assert make == MakeDir("messages")
    assert isinstance(append, Append)
    assert (append.path, len(b"".join(append.parts))) == ("messages/1.rdq", HEADER_BYTES + 3 * RECORD_BYTES)
    assert bench.store.take_steps() == []


def test_contents_wait_by_reference() -> None:
    """Nothing is copied before a job needs it, nor then."""
    bench = Bench()
    content = bytes(5000)
    bench.put(content)
    assert bench.store.gathered_bytes == 5000 + OVERHEAD_BYTES
    append = bench.store.take_steps()[1]
    assert isinstance(append, Append)
    assert any(part is content for part in append.parts)
    assert bench.store.gathered_bytes == 0


def test_a_full_file_is_followed_by_another() -> None:
    bench = filled(2)
    assert bench.disk.paths() == ["messages/1.rdq", "messages/2.rdq", "messages/3.rdq"]
    assert bench.disk.size("messages/1.rdq") == FILE_BYTES
    assert bench.read(1, 17) == contents(17)
    assert bench.figures == StoreFigures(3, 3 * HEADER_BYTES + 17 * RECORD_BYTES, 0, 17)


def test_a_content_larger_than_a_file_has_one_for_itself() -> None:
    bench = Bench()
    bench.put(b"a", b"b" * 2 * FILE_BYTES, b"c")
    bench.flush()
    assert len(bench.disk.paths()) == 3
    assert bench.read(1, 3) == [b"a", b"b" * 2 * FILE_BYTES, b"c"]


def test_what_nobody_refers_to_when_the_turn_ends_is_not_written() -> None:
    """A large message that was consumed at once; in the middle of a turn its queues may yet come."""
    bench = Bench()
    bench.put(*contents(3))
    bench.store.drop_refs(2, 1)
    bench.flush()
    assert bench.disk.size("messages/1.rdq") == HEADER_BYTES + 2 * RECORD_BYTES
    assert bench.read(1, 3) == [contents(1)[0], None, contents(1, 2)[0]]
    bench.put(b"late", refs=0)
    assert bench.read(4) == [b"late"]
    bench.store.add_refs(4, 1)


def test_reading_comes_after_submitting() -> None:
    bench = Bench()
    bench.put(b"a")
    with pytest.raises(AssertionError, match="take_steps comes first"):
        bench.store.read_steps(1, 1)


def test_reads_are_few_and_not_too_large() -> None:
    bench = Bench(file_max_bytes=1 << 24)
    bench.put(*[bytes(1 << 18)] * 9)
    bench.flush()
    sizes = [read.size for read in bench.store.read_steps(1, 9)]
    assert sizes == [3 * (OVERHEAD_BYTES + (1 << 18))] * 3


def test_a_damaged_content_is_none() -> None:
    bench = Bench()
    bench.put(*contents(3))
    bench.flush()
    bench.disk.flip_bit("messages/1.rdq", HEADER_BYTES + RECORD_BYTES + OVERHEAD_BYTES + 5)
    assert bench.read(1, 3) == [contents(1)[0], None, contents(1, 2)[0]]


@pytest.mark.parametrize("path", ["messages/1.rdq", "messages/2.rdq"])
def test_a_file_that_was_left_does_not_grow(path: str) -> None:
    """The one that is written to, or another one, which changes nothing."""
    bench = filled(1)
    bench.store.leave(path)
    bench.put(contents(1)[0])
    bench.flush()
    is_current = path == "messages/2.rdq"
    assert ("messages/3.rdq" in bench.disk.paths()) is is_current
    assert bench.read(1, PER_FILE + 2) == [*contents(PER_FILE + 1), contents(1)[0]]


def test_another_content_in_the_same_place_is_none() -> None:
    """Though its record is good."""
    bench = filled(0)
    bench.disk.truncate("messages/1.rdq", HEADER_BYTES)
    bench.submit([Append("messages/1.rdq", framed(2, contents(1)[0]))])
    assert bench.read(1) == [None]


def test_contents_that_are_not_there_are_none() -> None:
    bench = Bench()
    bench.put(b"a")
    bench.store.reserve(2)
    bench.put(b"b")
    assert bench.store.missing(1, 4) == [2, 3]
    assert bench.read(1, 3) == [b"a", None, None]
    assert bench.read(2, 3) == [None, None, b"b"]
    assert bench.read(1, 4) == [b"a", None, None, b"b"]
    assert bench.store.read_steps(2, 2) == []


def test_what_is_synced_is_what_was_written() -> None:
    """With the names of new files, and that of the directory."""
    bench = Bench()
    bench.put(*contents(PER_FILE + 1))
    bench.store.take_steps()
    files = [Sync("messages/1.rdq"), Sync("messages/2.rdq")]
    assert bench.store.sync_steps() == [*files, SyncDir("messages"), SyncDir("")]
    assert bench.store.sync_steps() == []
    bench.put(b"a")
    bench.store.take_steps()
    assert bench.store.sync_steps() == [Sync("messages/2.rdq")]


def test_transient_contents_are_never_synced() -> None:
    bench = Bench(first_id=TRANSIENT_FIRST_ID)
    assert bench.put(b"a") == TRANSIENT_FIRST_ID
    bench.store.take_steps()
    assert bench.store.sync_steps() == []


# --- contents that are written when they are paged out ---


def test_paging_writes_in_any_order() -> None:
    bench = Bench(first_id=TRANSIENT_FIRST_ID)
    first = bench.store.reserve(20)
    for start, stop in ((10, 15), (2, 6), (18, 19), (6, 7)):
        bench.store.write(first + start, contents(stop - start, start))
        bench.store.add_refs(first + start, stop - start)
    bench.flush()
    assert bench.read(first + 2, 5) == contents(5, 2)
    assert bench.read(first + 9, 7) == [None, *contents(5, 10), None]
    bench.store.write(first, contents(20))
    bench.store.add_refs(first, 20)
    assert bench.read(first, 20) == contents(20)
    assert bench.figures.messages == 20


def test_what_is_there_is_not_written_again() -> None:
    bench = Bench(first_id=TRANSIENT_FIRST_ID)
    first = bench.store.reserve(2)
    for _ in range(3):
        bench.store.write(first, contents(2))
        bench.store.add_refs(first, 2)
    bench.flush()
    bench.store.write(first, contents(2))
    assert bench.store.take_steps() == []


# --- references ---


def test_contents_live_as_long_as_somebody_refers_to_them() -> None:
    bench = Bench()
    bench.put(*contents(4), refs=2)
    bench.flush()
    bench.store.drop_refs(1, 3)
    assert bench.figures.garbage_bytes == 0
    bench.store.drop_refs(2, 3)
    assert (bench.figures.garbage_bytes, bench.figures.messages) == (2 * RECORD_BYTES, 2)


def test_dropping_more_than_there_are_is_noticed() -> None:
    bench = Bench()
    bench.put(b"a")
    bench.store.drop_refs(1, 1)
    with pytest.raises(AssertionError):
        bench.store.drop_refs(1, 1)
    bench.store.take_steps()
    with pytest.raises(AssertionError):
        bench.store.drop_refs(1, 1)
    with pytest.raises(AssertionError):
        bench.store.drop_refs(2, 1)
    with pytest.raises(AssertionError):
        bench.store.add_refs(2, 1)


def test_as_many_references_as_queues() -> None:
    """32 bits of them."""
    file = StoreFile("1.rdq", written_in=0)
    file.append(1, [RECORD_BYTES], [(1 << 32) - 2])
    file.add_refs(0, 1)
    assert file.refs_at(0) == (1 << 32) - 1


# --- garbage ---


def test_a_full_file_without_references_is_removed_at_once() -> None:
    bench = filled(2)
    bench.store.drop_refs(1, PER_FILE)
    bench.flush()
    assert bench.disk.paths() == ["messages/2.rdq", "messages/3.rdq"]
    assert bench.store.missing(1, 17) == list(range(1, PER_FILE + 1))


def test_the_file_that_is_written_stays() -> None:
    bench = Bench()
    bench.put(*contents(2))
    bench.flush()
    bench.store.drop_refs(1, 2)
    bench.flush()
    assert bench.disk.paths() == ["messages/1.rdq"]
    bench.put(*contents(PER_FILE))
    bench.flush()
    bench.flush()
    assert bench.read(3, PER_FILE) == contents(PER_FILE)


def test_what_came_in_this_turn_may_yet_be_referred_to() -> None:
    bench = Bench()
    bench.store.place(contents(PER_FILE + 1))
    bench.submit(bench.store.take_steps())
    bench.store.collect()
    bench.store.add_refs(1, 1)
    bench.disk.settle()
    assert bench.read(1) == contents(1)
    bench.store.drop_refs(1, 1)
    bench.store.collect()
    bench.disk.settle()
    assert bench.disk.paths() == ["messages/2.rdq"]


def test_nothing_is_removed_before_the_operations_are_safe() -> None:
    """A full disk keeps back the operations that dropped the references, and lets removes pass."""
    bench = filled(2)
    bench.store.drop_refs(1, PER_FILE)
    bench.disk.fill_up()
    bench.submit([Append("messages/journal", [b"the message was moved"])])
    bench.store.collect()
    bench.disk.settle()
    assert "messages/1.rdq" in bench.disk.paths()
    bench.disk.free()
    bench.disk.settle()
    assert "messages/1.rdq" not in bench.disk.paths()


def test_what_is_removed_is_not_synced() -> None:
    """A removed file is not synced, as that would fail and pass for a broken disk."""
    bench = Bench()
    bench.put(*contents(PER_FILE + 1))
    bench.submit(bench.store.take_steps())
    bench.store.collect()
    bench.store.drop_refs(1, PER_FILE)
    bench.store.collect()
    assert Sync("messages/1.rdq") not in bench.store.sync_steps()


# --- merges ---


def test_neighbours_are_merged_when_more_than_half_is_garbage() -> None:
    bench = wasteful()
    bench.flush()
    assert bench.disk.paths() == ["messages/5.rdq", "messages/6.rdq"]
    assert bench.disk.size("messages/6.rdq") == FILE_BYTES
    assert bench.figures == StoreFigures(2, 2 * HEADER_BYTES + 9 * RECORD_BYTES, 0, 9)
    assert_left(bench)


def test_less_garbage_is_let_be() -> None:
    bench = filled(4)
    for file in range(4):
        bench.store.drop_refs(file * PER_FILE + 1, PER_FILE // 2)
    bench.flush()
    assert len(bench.disk.paths()) == 5
    bench.store.drop_refs(PER_FILE, 1)
    bench.flush()
    assert len(bench.disk.paths()) < 5


def test_two_files_are_let_be() -> None:
    bench = filled(1)
    bench.store.drop_refs(2, PER_FILE - 1)
    bench.flush()
    assert len(bench.disk.paths()) == 2


def test_a_merge_is_done_in_small_jobs() -> None:
    """The new file is safe before it has its name, and has its name before the old ones go."""
    bench = wasteful()
    with patch.object(file_merge, "_JOB_MAX_BYTES", 3 * RECORD_BYTES):
        bench.disk.submitted.clear()
        bench.flush()
    kinds = [[type(step) for step in job] for job in bench.disk.submitted[1:]]
    part = [Append, Sync]
    two = [Read, Read]
    assert kinds == [two, part, two, part, [Read], part, [Rename, SyncDir], [MakeDir], [Remove] * 4]
    for job in bench.disk.submitted[1:]:
        assert sum(step.size for step in job if isinstance(step, Read)) <= 3 * RECORD_BYTES
    assert_left(bench)


def test_many_small_contents_are_merged_in_several_jobs() -> None:
    """Merging many small contents takes several jobs, so that planning one doesn't take long."""
    bench = wasteful()
    with patch.object(file_merge, "_JOB_MAX_RECORDS", 3):
        bench.flush()
    reads = [job for job in bench.disk.submitted if Read in map(type, job)]
    assert len(reads) == 3
    assert_left(bench)


def test_a_content_larger_than_a_job_is_copied_in_parts() -> None:
    bench = wasteful()
    with patch.object(file_merge, "_JOB_MAX_BYTES", 30):
        bench.flush()
    assert len(bench.disk.paths()) == 2
    assert_left(bench)


def test_a_transient_merge_is_not_synced() -> None:
    bench = filled(4, TRANSIENT_FIRST_ID)
    for file in range(4):
        bench.store.drop_refs(TRANSIENT_FIRST_ID + file * PER_FILE + 2, PER_FILE - 2)
    bench.disk.submitted.clear()
    bench.flush()
    assert not [step for job in bench.disk.submitted for step in job if isinstance(step, Sync | SyncDir)]
    assert len(bench.disk.paths()) == 2
    assert bench.read(TRANSIENT_FIRST_ID + PER_FILE) == contents(1, PER_FILE)


def each_step(bench: Bench) -> Iterator[None]:
    """Executes the disk's jobs, with a pause after each step."""
    bench.store.collect()
    while bench.disk.step():
        yield


@pytest.mark.parametrize("steps", range(14))
def test_contents_can_be_read_at_any_moment_of_a_merge(steps: int) -> None:
    bench = wasteful()
    with patch.object(file_merge, "_JOB_MAX_BYTES", 4 * RECORD_BYTES):
        for _ in zip(range(steps), each_step(bench), strict=False):
            pass
        assert_left(bench)


@pytest.mark.parametrize("steps", range(14))
def test_what_is_dropped_during_a_merge_is_garbage(steps: int) -> None:
    """Contents that are dropped during a merge become garbage, and those that gain references stay."""
    bench = wasteful()
    with patch.object(file_merge, "_JOB_MAX_BYTES", 4 * RECORD_BYTES):
        for _ in zip(range(steps), each_step(bench), strict=False):
            pass
        bench.store.drop_refs(PER_FILE + 1, 2)
        bench.store.add_refs(1, 1)
        bench.flush()
    bench.store.drop_refs(1, 1)
    assert bench.read(1, 2) == contents(2)
    assert (bench.figures.messages, bench.figures.garbage_bytes) in ((7, 0), (7, 2 * RECORD_BYTES))


def test_a_merge_of_what_is_all_dropped_meanwhile_leaves_nothing() -> None:
    bench = wasteful()
    steps = each_step(bench)
    next(steps)
    for ids in left()[:4]:
        bench.store.drop_refs(ids.start, len(ids))
    for _ in steps:
        pass
    bench.flush()
    assert bench.disk.paths() == ["messages/5.rdq"]


def test_old_files_stay_until_what_was_dropped_meanwhile_is_submitted() -> None:
    """`collect` says when it is."""
    bench = wasteful()
    steps = each_step(bench)
    next(steps)
    bench.store.drop_refs(1, 1)
    for _ in steps:
        pass
    assert len(bench.disk.paths()) == 6
    bench.flush()
    assert len(bench.disk.paths()) == 2


def paged_out_and_wasteful() -> tuple[Bench, int]:
    """As `wasteful`, with contents that may come back; and the first id."""
    bench = filled(4, TRANSIENT_FIRST_ID)
    for file in range(4):
        bench.store.drop_refs(TRANSIENT_FIRST_ID + file * PER_FILE + 2, PER_FILE - 2)
    return bench, TRANSIENT_FIRST_ID


def test_what_came_back_during_a_merge_is_not_lost_with_the_old_file() -> None:
    """Consumed, and then paged out for another queue, when the merge had passed it over."""
    bench, first = paged_out_and_wasteful()
    steps = each_step(bench)
    next(steps)
    bench.store.write(first, contents(3))
    bench.store.add_refs(first, 3)
    for _ in steps:
        pass
    bench.flush()
    assert bench.read(first, 3) == contents(3)
    bench.store.drop_refs(first + 1, 2)
    bench.store.drop_refs(first, 2)


def test_what_came_back_when_it_was_copied_already_is_there_once() -> None:
    bench, first = paged_out_and_wasteful()
    bench.put(*contents(PER_FILE - 1))  # so that it comes to a file that is newer than the merged one
    bench.submit(bench.store.take_steps())
    bench.disk.settle()
    steps = each_step(bench)
    for _ in range(5):
        next(steps)
    bench.store.drop_refs(first, 1)
    bench.store.write(first, contents(1))
    bench.store.add_refs(first, 1)
    for _ in steps:
        pass
    bench.flush()
    assert bench.read(first, 2) == contents(2)
    bench.store.drop_refs(first, 2)
    assert bench.figures.messages == 7 + PER_FILE - 1


def test_what_is_dropped_before_its_turn_is_not_copied() -> None:
    bench = wasteful()
    with patch.object(file_merge, "_JOB_MAX_BYTES", RECORD_BYTES):
        steps = each_step(bench)
        next(steps)
        bench.store.drop_refs(2, 1)
        bench.store.drop_refs(PER_FILE + 1, 2)
        for _ in steps:
            pass
    assert bench.disk.size("messages/6.rdq") == HEADER_BYTES + 5 * RECORD_BYTES


def test_what_came_in_this_turn_is_not_merged() -> None:
    """References may yet be added to it."""
    bench = filled(3)
    bench.store.drop_refs(2, 3 * PER_FILE)
    bench.store.place(contents(2 * PER_FILE))
    bench.submit(bench.store.take_steps())
    bench.store.collect()
    bench.store.add_refs(26, 2 * PER_FILE)
    bench.flush()
    assert bench.read(26, 2 * PER_FILE) == contents(2 * PER_FILE)


def test_a_broken_disk_ends_merging() -> None:
    bench = wasteful()
    bench.store.collect()
    bench.disk.fail(Append)
    bench.disk.settle()
    assert_left(bench)
    jobs = len(bench.disk.submitted)
    bench.store.collect()
    assert len(bench.disk.submitted) == jobs


def cut_off(bench: Bench, path: str) -> None:
    """Somebody cuts a file off behind its first content."""
    bench.disk.truncate(path, HEADER_BYTES + RECORD_BYTES)


def refuse(bench: Bench, path: str) -> None:
    """The disk can't read a file any more."""
    bench.disk.fail_always(Read, path)


@pytest.mark.parametrize("fault", [cut_off, refuse])
@pytest.mark.parametrize("job_records", [2, 100])
def test_what_cannot_be_read_is_left_out_of_merges(
    fault: Callable[[Bench, str], None], job_records: int
) -> None:
    """Nothing moves to where something else is expected, and the garbage of other files goes all the same."""
    bench = wasteful()
    fault(bench, "messages/2.rdq")
    with patch.object(file_merge, "_JOB_MAX_BYTES", job_records * RECORD_BYTES):
        for _ in range(4):
            bench.flush()
    bench.disk.mend()
    assert bench.disk.paths() == [f"messages/{number}.rdq" for number in (2, 5, 7)]
    assert bench.read(PER_FILE + 1) == contents(1, PER_FILE)
    for ids in (left()[0], *left()[2:]):
        assert bench.read(ids.start, len(ids)) == contents(len(ids), ids.start - 1)
    jobs = len(bench.disk.submitted)
    bench.store.collect()
    assert len(bench.disk.submitted) == jobs  # it is not tried again and again
    bench.store.drop_refs(PER_FILE + 1, 2)
    bench.flush()
    assert "messages/2.rdq" not in bench.disk.paths()
    assert not bench.store.files.unreadable


def test_each_file_that_cannot_be_read_is_left_out() -> None:
    bench = wasteful()
    for number in (1, 3, 4):
        refuse(bench, f"messages/{number}.rdq")
    for _ in range(6):
        bench.flush()
    bench.disk.mend()
    assert bench.disk.paths() == [f"messages/{number}.rdq" for number in (1, 3, 4, 5, 9)]
    assert_left(bench)
    for ids in left():
        bench.store.drop_refs(ids.start, len(ids))
    bench.flush()
    assert bench.disk.paths() == ["messages/5.rdq"]


def test_an_error_of_reading_that_is_over_at_once_costs_nothing() -> None:
    bench = wasteful()
    bench.disk.fail(Read)
    bench.flush()
    bench.flush()
    assert len(bench.disk.paths()) == 2
    assert_left(bench)


def test_what_came_back_during_a_merge_that_fails_is_found_where_it_came_to() -> None:
    """The old file has it too, and must not be taken for the one that counts its references."""
    bench, first = paged_out_and_wasteful()
    refuse(bench, "messages/4.rdq")
    steps = each_step(bench)
    with patch.object(file_merge, "_JOB_MAX_BYTES", 2 * RECORD_BYTES):
        for _ in range(3):
            next(steps)
        bench.store.drop_refs(first, 1)
        bench.store.write(first, contents(3))
        bench.store.add_refs(first, 1)
        bench.store.add_refs(first + 2, 1)
        bench.submit(bench.store.take_steps(turn_ended=True))
        bench.disk.settle()
        assert not any(file.is_leaving for file in bench.store.files)
        assert bench.read(first, 3) == contents(3)
        for _ in range(4):
            bench.flush()
    bench.disk.mend()
    assert bench.read(first, 3) == contents(3)
    bench.store.drop_refs(first, 3)
    assert bench.figures.messages == 2 * 3 + 1


# --- recovery ---


def test_a_node_that_starts_again_finds_everything() -> None:
    bench = filled(2).restart([range(1, 18), range(1, 18)])
    assert bench.reports == []
    assert bench.read(1, 17) == contents(17)
    bench.store.drop_refs(1, 17)
    assert (bench.figures.garbage_bytes, bench.figures.messages) == (0, 17)


def test_new_contents_follow_the_old_ones() -> None:
    """In the same file, if it is whole and there is room."""
    bench = filled(1).restart([range(1, 10)])
    assert bench.put(b"new") == 10
    bench.flush()
    assert bench.disk.paths() == ["messages/1.rdq", "messages/2.rdq"]
    bench = bench.restart([range(1, 11)])
    assert bench.read(9, 2) == [contents(1, 8)[0], b"new"]


def test_what_nobody_refers_to_is_dropped_at_the_start() -> None:
    bench = filled(3)
    other = Bench(disk=bench.disk.kill())
    assert other.store.recover(other.disk, pytest.fail) == []
    other.store.add_refs(PER_FILE + 1, 1)
    assert other.store.finish_recovery() == 3 * PER_FILE * RECORD_BYTES
    assert other.disk.paths() == ["messages/2.rdq"]
    other.put(b"new")
    other.flush()
    assert other.read(26) == [b"new"]


def test_a_torn_end_is_cut_off() -> None:
    """In silence. What comes next goes to another file, once and again."""
    bench = filled(0)
    bench.put(*contents(2, 1))
    bench.flush()
    bench.disk.truncate("messages/1.rdq", HEADER_BYTES + 3 * RECORD_BYTES - 1)
    for number in range(2):
        bench = bench.restart([range(1, 3 + number)])
        assert bench.reports == []
        bench.put(b"%d" % number)
        bench.flush()
        assert bench.read(1, 3 + number) == [*contents(2), b"0", b"1"][: 3 + number]


def test_a_file_that_was_hardly_begun_is_no_damage() -> None:
    for content in (b"", b"FLFM\0", bytes(100)):
        bench = Bench()
        bench.disk.write("messages/1.rdq", content)
        bench = bench.restart([])
        assert (bench.reports, bench.disk.paths()) == ([], [])


def test_damage_is_reported_and_passed_over() -> None:
    bench = filled(1)
    bench.disk.flip_bit("messages/1.rdq", HEADER_BYTES + RECORD_BYTES + 50)
    bench = bench.restart([range(1, 2), range(3, 10)])
    at = HEADER_BYTES + RECORD_BYTES
    assert bench.reports == [("messages/1.rdq", at, f"{RECORD_BYTES} bytes are no record")]
    assert bench.store.missing(1, 9) == [2]
    assert bench.read(1, 9) == [contents(1)[0], None, *contents(7, 2)]


def test_a_file_with_a_damaged_header_still_serves() -> None:
    bench = filled(1)
    bench.disk.flip_bit("messages/1.rdq", 1)
    bench = bench.restart([range(1, 10)])
    assert bench.reports == [("messages/1.rdq", 0, "the header is damaged")]
    assert bench.read(1, 9) == contents(9)


def test_a_file_with_nothing_good_is_let_alone() -> None:
    bench = filled(0)
    bench.disk.write("messages/7.rdq", b"something else altogether")
    other = Bench(disk=bench.disk.kill())
    assert other.store.recover(other.disk, lambda *what: other.reports.append(what)) == ["messages/7.rdq"]
    assert other.reports == [("messages/7.rdq", 0, "the header is damaged")]
    other.store.finish_recovery()
    other.put(*contents(PER_FILE + 1))
    other.flush()
    assert other.disk.paths() == ["messages/7.rdq", "messages/8.rdq", "messages/9.rdq"]


def test_a_newer_format_is_not_touched() -> None:
    bench = Bench()
    bench.disk.write("messages/1.rdq", b"FLFM\0\0\0\2")
    with pytest.raises(NewerFormat, match=r"messages/1\.rdq: format 2"):
        bench.restart([])


def test_ids_of_lost_contents_do_not_come_again() -> None:
    """Ids of lost contents do not come again, or an old reference would come to mean a new message."""
    bench = filled(0).restart([range(1, 2), range(50, 60)])
    assert bench.put(b"new") == 60
    bench.store.drop_refs(50, 10)


def test_ids_that_were_asked_for_do_not_come_again() -> None:
    bench = filled(0)
    other = Bench(disk=bench.disk.kill())
    other.store.recover(other.disk, pytest.fail)
    assert other.store.missing(1, 3) == [2, 3]
    other.store.finish_recovery()
    assert other.put(b"new") == 4
    other.store.drop_refs(2, 2)


def test_what_was_found_is_synced_again() -> None:
    """A process that was killed may not have got to it."""
    bench = filled(1).restart([range(1, 10)])
    syncs = [Sync("messages/1.rdq"), Sync("messages/2.rdq"), SyncDir("messages"), SyncDir("")]
    assert bench.store.sync_steps() == syncs


@pytest.mark.parametrize("steps", range(18))
@pytest.mark.parametrize("is_power_loss", [False, True])
def test_a_crash_at_any_moment_of_a_merge(steps: int, is_power_loss: bool) -> None:
    """Nothing is lost, and nothing is there twice."""
    bench = wasteful()
    with patch.object(file_merge, "_JOB_MAX_BYTES", 4 * RECORD_BYTES):
        for _ in zip(range(steps), each_step(bench), strict=False):
            pass
    disk = bench.disk.crash(Random(steps)) if is_power_loss else bench.disk.kill(Random(steps))
    bench = bench.restart(left(), disk)
    assert not [path for path in bench.disk.paths() if path.endswith(".tmp")]
    assert bench.figures.messages == 9
    assert bench.put(b"new") == 34
    assert_left(bench)
    bench.flush()
    assert bench.figures.files == 2
    assert_left(bench)


# --- against a dictionary ---

SIZES = st.lists(st.integers(0, 150), min_size=1, max_size=12)


class AgainstADictionary(RuleBasedStateMachine):
    """References of ids are held by nobody in particular: a number for each."""

    first_id = 1

    def __init__(self) -> None:
        super().__init__()
        self.patches = [patch.object(file_merge, "_JOB_MAX_BYTES", 400)]
        for each in self.patches:
            each.start()
        self.bench = Bench(first_id=self.first_id, disk=SimulatedDisk())
        self.serial = 0
        self.known: dict[int, bytes] = {}
        self.refs: dict[int, int] = {}
        self.written: set[int] = set()
        self.synced: set[int] = set()

    @property
    def store(self) -> MessageStore:
        return self.bench.store

    def teardown(self) -> None:
        self.check_space()
        for each in self.patches:
            each.stop()

    def new(self, sizes: list[int]) -> list[bytes]:
        self.serial += 1
        return [b"%d " % self.serial + b"x" * size for size in sizes]

    def alive(self, pick: int, length: int) -> range:
        """Some consecutive ids that are referred to."""
        ids = sorted(self.refs)
        at = pick % len(ids)
        stop = at + 1
        while stop < len(ids) and ids[stop] == ids[stop - 1] + 1 and stop - at < length:
            stop += 1
        return range(ids[at], ids[stop - 1] + 1)

    def drop(self, ids: range) -> None:
        self.store.drop_refs(ids.start, len(ids))
        for store_id in ids:
            self.refs[store_id] -= 1
            if not self.refs[store_id]:
                del self.refs[store_id]

    def add(self, ids: range) -> None:
        self.store.add_refs(ids.start, len(ids))
        for store_id in ids:
            self.refs[store_id] = self.refs.get(store_id, 0) + 1

    def submit_writes(self, *, turn_ended: bool) -> None:
        ids = set(self.refs)
        steps = self.store.take_steps(turn_ended=turn_ended)
        self.bench.disk.submit(steps, lambda _results: self.written.update(ids), pytest.fail)
        syncs = self.store.sync_steps()
        self.bench.disk.submit(syncs, lambda _results: self.synced.update(ids), pytest.fail)

    @rule(sizes=SIZES, queues=st.integers(0, 3), early=st.booleans())
    def place(self, sizes: list[int], queues: int, early: bool) -> None:
        came = self.new(sizes)
        first = self.store.place(came)
        ids = range(first, first + len(came))
        assert not self.known.keys() & set(ids)
        self.known.update(zip(ids, came, strict=True))
        if early:
            self.submit_writes(turn_ended=False)
        for _ in range(queues):
            self.add(ids)

    @precondition(lambda self: self.refs)
    @rule(pick=st.integers(0, 1000), length=st.integers(1, 30))
    def add_refs(self, pick: int, length: int) -> None:
        self.add(self.alive(pick, length))

    @precondition(lambda self: self.refs)
    @rule(pick=st.integers(0, 1000), length=st.integers(1, 30))
    def drop_refs(self, pick: int, length: int) -> None:
        self.drop(self.alive(pick, length))

    @rule(count=st.integers(30, 60), keep=st.integers(2, 9))
    def make_garbage(self, count: int, keep: int) -> None:
        """Much comes, and most goes, so that a merge begins."""
        self.place([CONTENT_BYTES] * count, 1, False)
        self.submit_writes(turn_ended=True)
        self.store.collect()
        for store_id in sorted(self.refs):
            while store_id % keep and store_id in self.refs:
                self.drop(range(store_id, store_id + 1))
        self.end_turn()

    @rule()
    def end_turn(self) -> None:
        self.submit_writes(turn_ended=True)
        self.store.collect()

    @precondition(lambda self: self.bench.disk.jobs)
    @rule(steps=st.integers(1, 40))
    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.bench.disk.step()

    @precondition(lambda self: self.refs)
    @rule(pick=st.integers(0, 1000), length=st.integers(1, 30))
    def read(self, pick: int, length: int) -> None:
        """The answer comes whenever it comes."""
        ids = self.alive(pick, length)
        expected = [self.known[store_id] for store_id in ids]
        self.submit_writes(turn_ended=False)

        def check(results: list[Any]) -> None:
            assert [content for part in results for content in part] == expected

        self.bench.disk.submit(self.store.read_steps(ids.start, len(ids)), check, pytest.fail)

    @invariant()
    def figures_are_right(self) -> None:
        figures = self.store.figures()
        assert 0 <= figures.garbage_bytes <= figures.bytes
        assert figures.messages >= len(self.refs)

    def check_space(self) -> None:
        """Check that the disk holds little more than it must when all is done, and that the figures agree."""
        for _ in range(3):
            self.end_turn()
            self.bench.disk.settle()
        live_bytes = sum(OVERHEAD_BYTES + len(self.known[store_id]) for store_id in self.refs)
        used_bytes = sum(self.bench.disk.size(path) for path in self.bench.disk.paths())
        figures = self.store.figures()
        assert (figures.bytes, figures.messages) == (used_bytes, len(self.refs))
        assert len(self.bench.disk.paths()) == figures.files
        current_bytes = FILE_BYTES + 200
        assert (
            figures.files < 3 or used_bytes <= 2 * live_bytes + figures.files * HEADER_BYTES + current_bytes
        )
        for store_id in self.refs:
            assert self.bench.read(store_id) == [self.known[store_id]]


class PersistentStore(AgainstADictionary):
    """Contents that outlive the node."""

    @precondition(lambda self: self.bench.disk.jobs)
    @rule(seed=st.integers(0, 1 << 30), is_power_loss=st.booleans())
    def crash(self, seed: int, is_power_loss: bool) -> None:
        disk = self.bench.disk
        self.bench = Bench(disk=disk.crash(Random(seed)) if is_power_loss else disk.kill(Random(seed)))
        assert self.store.recover(self.bench.disk, pytest.fail) == []
        safe = self.synced if is_power_loss else self.written
        for store_id in list(self.refs):
            if self.store.missing(store_id, 1):
                assert store_id not in safe
                del self.refs[store_id]
            else:
                for _ in range(self.refs[store_id]):
                    self.store.add_refs(store_id, 1)
        self.store.finish_recovery()
        self.bench.disk.run(self.store.sync_steps())
        self.known = {store_id: self.known[store_id] for store_id in self.refs}
        self.written = self.written & self.refs.keys()
        self.synced = set(self.refs)


class TransientStore(AgainstADictionary):
    """Contents that are written when they are paged out, perhaps more than once."""

    first_id = TRANSIENT_FIRST_ID

    @initialize()
    def begin(self) -> None:
        self.reserved: list[range] = []

    @rule(sizes=SIZES)
    def reserve(self, sizes: list[int]) -> None:
        came = self.new(sizes)
        first = self.store.reserve(len(came))
        ids = range(first, first + len(came))
        self.known.update(zip(ids, came, strict=True))
        self.reserved.append(ids)

    @precondition(lambda self: self.reserved)
    @rule(pick=st.integers(0, 1000), start=st.integers(0, 11), stop=st.integers(1, 12))
    def page_out(self, pick: int, start: int, stop: int) -> None:
        ids = self.reserved[pick % len(self.reserved)][start:stop]
        if ids:
            self.store.write(ids.start, [self.known[store_id] for store_id in ids])
            self.add(ids)


TestPersistentStore = PersistentStore.TestCase
TestPersistentStore.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTransientStore = TransientStore.TestCase
TestTransientStore.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
