"""The file of a Raft member: reliability §3.1, §3.9 item 1."""

import pytest

from cluster.metadata.entries import LogEntry
from cluster.metadata.journal import RaftJournal
from cluster.metadata.journal_file import (
    HEADER,
    NEW_PATH,
    PATH,
    Image,
    JournalUnreadable,
    framed,
    new_head,
    piece_payloads,
    read_image,
    read_record,
    write_image,
)
from cluster.metadata.snapshots import first_entries
from node.store.records import NewerFormat, read_records
from tests.kit.disk import PAGE_BYTES, SimulatedDisk


def _written(*items: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    write_image(disk, Image(new_head(*first_entries(), ["a", "b"]), list(piece_payloads(items)), term=1))
    return disk


def _journal(disk: SimulatedDisk) -> RaftJournal:
    def failed(error: OSError) -> None:
        raise error

    return RaftJournal(read_image(disk), disk, lambda: None, failed)


def _entry(index: int, term: int = 2) -> LogEntry:
    return b"\0command %d" % index, index, term


def _entries(disk: SimulatedDisk) -> list[LogEntry]:
    return read_image(disk).entries[2:]


def test_what_is_written_is_read() -> None:
    disk = _written(b"one", b"two")
    assert PATH in disk.names("")
    journal = _journal(disk)
    journal.setCurrentTerm(2, "b")
    journal.add(*_entry(12))
    journal.add(*_entry(13))
    journal.setRaftCommitIndex(12)
    journal.flush()
    disk.settle()
    image = read_image(disk)
    assert (image.term, image.vote, image.commit_index) == (2, "b", 12)
    assert image.entries[2:] == [_entry(12), _entry(13)]
    assert list(image.items()) == [[b"one", b"two"]]
    assert set(image.head.voters) == {"a", "b"}


def test_a_closed_journal_gives_the_disk_nothing_more() -> None:
    """A node stops while a job is under way and more has gathered: the disk takes no jobs when it ends."""
    disk = _written()
    journal = _journal(disk)
    journal.add(*_entry(12))
    journal.flush()
    journal.add(*_entry(13))
    journal.close()
    disk.settle()
    journal.flush()
    disk.settle()
    assert _entries(disk) == [_entry(12)]


def test_what_is_cut_off_is_gone_after_a_restart() -> None:
    disk = _written()
    journal = _journal(disk)
    for index in (12, 13, 14):
        journal.add(*_entry(index))
    journal.deleteEntriesFrom(3)
    journal.add(*_entry(13, term=3))
    journal.flush()
    disk.settle()
    assert _entries(disk) == [_entry(12), _entry(13, term=3)]


def test_synced_follows_the_disk_and_jobs_are_shared() -> None:
    disk = _written()
    journal = _journal(disk)
    journal.add(*_entry(12))
    journal.flush()
    journal.add(*_entry(13))
    journal.add(*_entry(14))
    journal.flush()
    assert (journal.written, journal.synced, journal.synced_index, disk.jobs) == (3, 0, 11, 1)
    while journal.synced == 0:
        disk.step()
    assert (journal.synced, journal.synced_index, disk.jobs) == (1, 12, 1)
    disk.settle()
    assert (journal.synced, journal.synced_index) == (3, 14)


def test_a_torn_end_is_cut_off() -> None:
    disk = _written()
    journal = _journal(disk)
    journal.add(*_entry(12))
    journal.flush()
    disk.settle()
    journal.add(*_entry(13))
    journal.flush()
    disk.settle()
    disk.truncate(PATH, disk.size(PATH) - 1)
    assert _entries(disk) == [_entry(12)]
    assert not read_image(disk).is_torn, "it is cut off on disk, too"


def _journal_with_two_writes() -> tuple[SimulatedDisk, int]:
    """A journal with two writes of several pages each, and where the second one begins."""
    disk = _written()
    journal = _journal(disk)
    for index in range(12, 20):
        journal.add(b"\0" + b"x" * 2000, index, 2)
    journal.flush()
    disk.settle()
    second = disk.size(PATH)
    for index in range(20, 28):
        journal.add(b"\0" + b"y" * 2000, index, 2)
    journal.flush()
    disk.settle()
    return disk, second


@pytest.mark.parametrize("page", range(4))
def test_a_page_of_the_last_write_that_is_zeros_is_a_torn_end(page: int) -> None:
    """A power loss may keep later pages of a write that was never synced and lose earlier ones."""
    disk, second = _journal_with_two_writes()
    begin = max(second, (second // PAGE_BYTES + page) * PAGE_BYTES)
    end = (second // PAGE_BYTES + page + 1) * PAGE_BYTES
    disk.zero(PATH, begin, end - begin)
    entries = _entries(disk)
    assert entries[:8] == [(b"\0" + b"x" * 2000, index, 2) for index in range(12, 20)]
    assert len(entries) == 8 + max(0, (begin - second) // 2020)
    assert _entries(disk) == entries, "it is cut off on disk, too"


def test_a_page_of_an_earlier_write_that_is_zeros_is_refused() -> None:
    """The write behind it says that it had been synced: it may be a promise."""
    disk, second = _journal_with_two_writes()
    disk.zero(PATH, second // PAGE_BYTES * PAGE_BYTES - PAGE_BYTES, PAGE_BYTES)
    with pytest.raises(JournalUnreadable, match="are no record"):
        read_image(disk)


def test_a_bad_byte_of_the_last_write_is_refused() -> None:
    """A bad byte is no page that was never written, so it is refused: what is behind it may have been synced."""
    disk, second = _journal_with_two_writes()
    disk.flip_bit(PATH, second + 100)
    with pytest.raises(JournalUnreadable, match="are no record"):
        read_image(disk)


def test_a_write_that_was_followed_by_another_was_synced() -> None:
    """A write is known to be synced once anything follows it, even the note of how far the log is committed."""
    disk, second = _journal_with_two_writes()
    journal = _journal(disk)
    journal.setRaftCommitIndex(27)
    journal.onOneSecondTimer()
    journal.flush()
    disk.settle()
    disk.zero(PATH, (second // PAGE_BYTES + 1) * PAGE_BYTES, PAGE_BYTES)
    with pytest.raises(JournalUnreadable, match="are no record"):
        read_image(disk)


def test_a_hole_in_a_journal_of_an_earlier_version_is_refused() -> None:
    """Records of an earlier version do not say where their write began, so a hole is refused."""
    disk, second = _journal_with_two_writes()
    data, old = disk.content(PATH), bytearray(HEADER)
    for _, payload in read_records(data):
        record = read_record(payload)
        record.append_at = 0
        old += framed(record.SerializeToString())
    disk.write(PATH, bytes(old))
    assert len(_entries(disk)) == 16
    disk.zero(PATH, (second // PAGE_BYTES + 1) * PAGE_BYTES, PAGE_BYTES)
    with pytest.raises(JournalUnreadable, match="are no record"):
        read_image(disk)


def test_damage_elsewhere_is_refused_by_name() -> None:
    disk = _written(b"x" * 50)
    journal = _journal(disk)
    for index in (12, 13, 14):
        journal.add(*_entry(index))
    journal.flush()
    disk.settle()
    disk.flip_bit(PATH, disk.size(PATH) - 40)
    with pytest.raises(JournalUnreadable, match=r"raft/journal: .* bytes at byte .* are no record"):
        read_image(disk)


def test_a_snapshot_that_is_not_whole_is_refused() -> None:
    disk = _written(b"x" * 50)
    disk.truncate(PATH, 60)
    with pytest.raises(JournalUnreadable, match="not whole"):
        read_image(disk)


def test_a_damaged_header_is_refused() -> None:
    disk = _written()
    disk.flip_bit(PATH, 0)
    with pytest.raises(JournalUnreadable, match="header"):
        read_image(disk)


def test_a_newer_format_is_refused() -> None:
    disk = _written()
    disk.flip_bit(PATH, 7, 1)
    with pytest.raises(NewerFormat, match="raft/journal: format 3 of FLFR"):
        read_image(disk)


def test_a_gap_in_the_log_is_refused() -> None:
    disk = _written()
    write_image(disk, Image(new_head(*first_entries(), ["a"]), [], [*first_entries(), _entry(13)]))
    with pytest.raises(JournalUnreadable, match="entry 13 of term 2 after entry 11"):
        read_image(disk)


def test_what_is_left_of_a_compaction_is_removed() -> None:
    disk = _written()
    disk.write(NEW_PATH, b"half")
    read_image(disk)
    assert disk.paths() == [PATH]


def test_a_disk_that_fails_is_told_once() -> None:
    disk = _written()
    failures: list[OSError] = []
    journal = RaftJournal(read_image(disk), disk, lambda: None, failures.append)
    disk.fail_sync(PATH)
    journal.add(*_entry(12))
    journal.flush()
    disk.settle()
    journal.add(*_entry(13))
    journal.flush()
    disk.settle()
    assert len(failures) == 1
    assert journal.synced == 0


def test_one_vote_a_term() -> None:
    journal = _journal(_written())
    journal.setCurrentTerm(5, "a")
    with pytest.raises(AssertionError, match="a second vote in term 5"):
        journal.setCurrentTerm(5, "b")
    with pytest.raises(AssertionError, match="term 4 after 5"):
        journal.setCurrentTerm(4, None)


def test_voters_follow_the_log() -> None:
    """A change counts once it is in the log, also after a restart, until it is cut off (reliability §3.5)."""
    disk = _written()
    journal = _journal(disk)
    seen: list[frozenset[str]] = []
    journal.on_voters = lambda: seen.append(journal.voters())
    journal.add(b"\2add c", 12, 2)
    journal.add(b"\2remove a", 13, 2)
    assert journal.voters(12) == {"a", "b", "c"}
    journal.flush()
    disk.settle()
    assert _journal(disk).voters() == {"b", "c"}
    journal.deleteEntriesFrom(3)
    assert seen == [{"a", "b", "c"}, {"b", "c"}, {"a", "b", "c"}]
