"""Tests of node.store.journal."""

import pytest

from node.queue.operations import Enqueue, Operation, Remove, decode
from node.queue.run import Envelope
from node.store.disk import Append, Sync, SyncDir
from node.store.disk import Remove as RemoveFile
from node.store.journal import CLEAN, Journal, file_numbers, file_path, split
from node.store.records import JOURNAL_HEADER, check_header, read_records
from tests.kit.disk import SimulatedDisk

QUEUE = bytes(range(16))
MANY = 1 << 40
ENVELOPE = Envelope("", "q", channel=1, frame_max_bytes=0, persistent=True)


def removed(first: int, stop: int) -> Remove:
    return Remove((range(first, stop),))


def enqueued(first: int, *contents: bytes) -> Enqueue:
    size = len(contents[0])
    return Enqueue(ENVELOPE, first, list(contents), len(contents), size, size * len(contents))


def begun(disk: SimulatedDisk, file_bytes: int = MANY) -> Journal:
    journal = Journal(file_bytes)
    disk.run(journal.begin(disk.names("journal")))
    return journal


def operations(disk: SimulatedDisk, number: int) -> list[tuple[str, Operation] | None]:
    """Return the operations of a journal file; None stands for the mark of a clean stop."""
    data = disk.content(file_path(number))
    assert check_header(data, JOURNAL_HEADER)
    found: list[tuple[str, Operation] | None] = []
    for _, payload in read_records(data):
        if payload == CLEAN:
            found.append(None)
        else:
            uid, operation = split(payload)
            found.append((uid, decode(operation)))
    return found


def test_operations_are_written_with_their_queue() -> None:
    """Added operations are in the file with their queue, in order, after the steps were executed."""
    disk = SimulatedDisk()
    journal = begun(disk)
    journal.add(QUEUE, removed(1, 5))
    journal.add(bytes(15) + b"\1", removed(7, 8))
    assert journal.gathered_bytes > 0
    disk.run(journal.take_steps())
    assert operations(disk, 1) == [(QUEUE.hex(), removed(1, 5)), ("00" * 15 + "01", removed(7, 8))]


def test_a_batch_is_one_append_and_one_sync() -> None:
    """However many operations there are, the disk has two things to do, with few parts."""
    journal = begun(SimulatedDisk())
    for seq in range(1000):
        journal.add(QUEUE, removed(seq, seq + 1))
    append, sync = journal.take_steps()
    assert isinstance(append, Append)
    assert len(append.parts) < 4
    assert sync == Sync(file_path(1))


def test_large_contents_make_parts_of_their_own_size() -> None:
    """Large contents become parts of their own and are not copied once more."""
    journal = begun(SimulatedDisk())
    for seq in range(8):
        journal.add(QUEUE, enqueued(seq, bytes(600_000)))
    append, _ = journal.take_steps()
    assert isinstance(append, Append)
    assert sum(len(part) >= 600_000 for part in append.parts) == 8
    assert len(append.parts) == 16


def test_nothing_gathered_makes_no_steps() -> None:
    """Taking twice gives nothing the second time, and counts nothing as gathered."""
    journal = begun(SimulatedDisk())
    journal.add(QUEUE, removed(1, 2))
    journal.take_steps()
    assert journal.take_steps() == []
    assert journal.gathered_bytes == 0


def test_the_first_file_is_behind_all_that_are_there() -> None:
    """Whatever a crash has left, nobody writes to it again."""
    disk = SimulatedDisk()
    for name in ("3.journal", "12.journal", "x.journal", "99.idx", "-5.journal"):
        disk.write(f"journal/{name}", b"old")
    begun(disk)
    assert disk.content("journal/13.journal") == JOURNAL_HEADER
    assert disk.content("journal/12.journal") == b"old"


def test_numbers_of_files_rise_as_numbers() -> None:
    """Ten comes behind nine; other names are none of ours."""
    names = ["1.journal", "10.journal", "9.journal", "journal", "a.journal", "7.journal.tmp"]
    assert file_numbers(names) == [1, 9, 10]


def test_a_rotated_file_is_created_by_its_first_batch() -> None:
    """A rotated file has a header, and its name is made safe with its first batch."""
    disk = SimulatedDisk()
    journal = begun(disk)
    journal.rotate()
    assert disk.names("journal") == ["1.journal"]
    journal.add(QUEUE, removed(1, 2))
    steps = journal.take_steps()
    assert steps[1:] == [Sync(file_path(2)), SyncDir("journal")]
    disk.run(steps)
    assert operations(disk, 2) == [(QUEUE.hex(), removed(1, 2))]
    journal.add(QUEUE, removed(2, 3))
    disk.run(journal.take_steps())
    assert operations(disk, 2) == [(QUEUE.hex(), removed(1, 2)), (QUEUE.hex(), removed(2, 3))]
    assert journal.older == [1]


def test_a_file_is_full_by_its_size() -> None:
    """The header counts."""
    journal = begun(SimulatedDisk(), file_bytes=100)
    assert not journal.is_full(MANY)
    journal.add(QUEUE, enqueued(1, bytes(100)))
    assert not journal.is_full(MANY), "what is gathered isn't in the file yet"
    journal.take_steps()
    assert journal.is_full(MANY)
    journal.rotate()
    assert not journal.is_full(MANY)


def test_a_file_is_full_by_its_operations() -> None:
    """Small operations pile up without much size."""
    journal = begun(SimulatedDisk())
    for seq in range(3):
        journal.add(QUEUE, removed(seq, seq + 1))
    assert journal.is_full(3)
    assert not journal.is_full(4)
    journal.rotate()
    assert not journal.is_full(3)


def test_older_files_are_removed_oldest_first() -> None:
    """Each is gone for good before the next one goes."""
    disk = SimulatedDisk()
    journal = begun(disk)
    for seq in range(3):
        journal.add(QUEUE, removed(seq, seq + 1))
        disk.run(journal.take_steps())
        journal.rotate()
    steps = journal.remove_steps([1, 2])
    assert steps == [
        RemoveFile(file_path(1)),
        SyncDir("journal"),
        RemoveFile(file_path(2)),
        SyncDir("journal"),
    ]
    disk.run(steps)
    assert disk.names("journal") == ["3.journal"]
    assert journal.older == [3]
    with pytest.raises(AssertionError, match="oldest"):
        journal.remove_steps([4])


def test_the_mark_of_a_clean_stop_is_the_last_record() -> None:
    """The mark of a clean stop is the last record, and no operation of any queue."""
    disk = SimulatedDisk()
    journal = begun(disk)
    journal.add(QUEUE, removed(1, 2))
    journal.add_clean()
    disk.run(journal.take_steps())
    assert operations(disk, 1) == [(QUEUE.hex(), removed(1, 2)), None]


def test_what_is_too_short_has_an_empty_operation() -> None:
    """Recovery meets it as an operation that is none, which it reports."""
    assert split(b"ab") == ("6162", b"")


def test_figures_count_what_was_written() -> None:
    """Bytes of the file but for the first header, and operations."""
    disk = SimulatedDisk()
    journal = begun(disk)
    journal.add(QUEUE, removed(1, 2))
    disk.run(journal.take_steps())
    assert journal.written_bytes == disk.size(file_path(1)) - len(JOURNAL_HEADER)
    assert journal.operations == 1
