"""A store after a stop, a crash, or damage: what is alive is found, whatever was in the way."""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.queue.operations import Delivered, Enqueue, Operation, Remove
from node.queue.storage import Page
from node.store.disk import Append, MakeDir
from node.store.disk import Remove as FileRemove
from node.store.findings import Damage
from node.store.message_store import TRANSIENT_FIRST_ID
from node.store.records import JOURNAL_HEADER, SEGMENT_HEADER, NewerFormat
from node.store.recovery import PROGRESS_S, Progress, Recovered, recover
from tests.kit.messages import content
from tests.kit.stored import (
    ENTRIES,
    OTHER_UID,
    PERSISTENT,
    TRANSIENT,
    UID,
    UNKNOWN_UID,
    FailingDisk,
    Files,
    PowerOff,
    Store,
    corrupt,
    delivered,
    enqueue,
    enqueue_stored,
    journal_bytes,
    remove,
    segment_bytes,
    told_by,
    urgent,
)

# --- which messages are there ---


def test_a_new_store_has_empty_queues() -> None:
    """Nothing was ever written; each queue begins with number 1."""
    files = Files()
    result, store = files.recover()
    assert result.queues == {UID: Recovered(1, []), OTHER_UID: Recovered(1, [])}
    assert (result.messages, result.findings) == (0, [])
    assert store.indexes[UID].segments == {}


def test_messages_of_the_journal_go_to_segments_and_the_journal_goes() -> None:
    """Alive in the journal and in no segment."""
    files = Files()
    files.journal(enqueue(1, b"a", b"b", b"c"), remove(2), is_clean=True)
    result, store = files.recover()
    assert files.messages() == {1: (b"a", 0), 3: (b"c", 0)}
    assert result.queues[UID] == Recovered(4, [Page(0, 0, 1, 3, 2, 2)])
    assert files.disk.names("journal") == []
    path = f"queues/{UID}/0.idx"
    assert store.indexes[UID].segments == {0: ([1, 3], files.disk.size(path), False)}


def test_a_run_over_several_segments_is_cut() -> None:
    """A run over several segments is cut into a page for each, also where all of it is alive."""
    files = Files()
    bodies = [bytes([65 + n]) for n in range(ENTRIES + 4)]
    files.journal(enqueue(ENTRIES - 2, *bodies), is_clean=True)
    result, _ = files.recover()
    assert list(files.bodies().values()) == bodies
    assert [(page.segment, page.first_seq, page.count) for page in result.queues[UID].pages] == [
        (0, ENTRIES - 2, 2),
        (1, ENTRIES, ENTRIES),
        (2, 2 * ENTRIES, 2),
    ]


def test_what_the_journal_removes_the_segment_is_told() -> None:
    """A message that went after its checkpoint."""
    files = Files()
    files.segment(0, enqueue(1, b"a", b"bb", b"ccc"), remove(1))
    files.journal(remove(2), is_clean=True)
    result, store = files.recover()
    assert files.bodies() == {3: b"ccc"}
    assert remove(2) in files.operations()
    assert result.queues[UID] == Recovered(4, [Page(0, 0, 3, 3, 1, 3)])
    assert store.indexes[UID].segments[0][0] == [3]


def test_what_is_in_both_is_written_once() -> None:
    """A checkpoint was made and the journal not yet removed."""
    files = Files()
    path = files.segment(0, enqueue(1, b"a", b"b"))
    before = files.disk.content(path)
    files.journal(enqueue(1, b"a", b"b"), enqueue(3, b"c"), is_clean=True)
    files.recover()
    assert files.bodies() == {1: b"a", 2: b"b", 3: b"c"}
    assert files.disk.content(path).startswith(before)
    assert len(files.operations()) == 2


def test_part_of_a_run_is_in_the_segment_already() -> None:
    """The other parts are copied, with contents of different sizes."""
    files = Files()
    files.segment(0, enqueue(2, b"bb"))
    files.journal(enqueue(1, b"a", b"bb", b"ccc"), is_clean=True)
    result, _ = files.recover()
    assert files.bodies() == {1: b"a", 2: b"bb", 3: b"ccc"}
    assert result.queues[UID].pages == [Page(0, 0, 1, 3, 3, 6)]


def test_a_segment_in_which_nothing_is_alive_goes() -> None:
    """A segment without living messages goes, and its numbers are not given again."""
    files = Files()
    files.segment(0, enqueue(1, b"a"))
    files.segment(1, enqueue(ENTRIES, b"b"))
    files.journal(remove(1), remove(ENTRIES), is_clean=True)
    result, _ = files.recover()
    assert files.disk.names(f"queues/{UID}") == []
    assert result.queues[UID] == Recovered(ENTRIES + 1, [])


def test_a_purge_reaches_over_many_segments() -> None:
    """One range for all."""
    files = Files()
    for number in range(5):
        files.segment(number, enqueue(number * ENTRIES + 1, b"a", b"b"))
    files.journal(Remove((range(2, 4 * ENTRIES + 2),)), is_clean=True)
    files.recover()
    assert files.bodies() == {1: b"a", 4 * ENTRIES + 2: b"b"}


def test_transient_messages_are_gone() -> None:
    """Transient messages that were paged out end with the node (amqp-behaviour §7.6)."""
    files = Files()
    files.segment(0, enqueue(1, b"a", b"b", envelope=TRANSIENT), enqueue(3, b"c"))
    files.segment(1, enqueue(ENTRIES, b"d", envelope=TRANSIENT))
    files.disk.write(f"transient/queues/{OTHER_UID}/0.idx", SEGMENT_HEADER)
    result, _ = files.recover()
    assert files.bodies() == {3: b"c"}
    assert files.disk.names(f"queues/{UID}") == ["0.idx"]
    assert files.disk.names("transient") == []
    assert result.queues[UID] == Recovered(ENTRIES + 1, [Page(0, 0, 3, 3, 1, 1)])


def test_pages_are_by_priority() -> None:
    """Sorted by segment."""
    files = Files()
    files.segment(1, enqueue(ENTRIES, b"x", envelope=urgent(5)), enqueue(ENTRIES + 1, b"yy"))
    files.segment(0, enqueue(1, b"a"), enqueue(2, b"bb", envelope=urgent(5)), enqueue(3, b"ccc"))
    result, _ = files.recover()
    assert result.queues[UID].pages == [
        Page(0, 0, 1, 3, 2, 4),
        Page(0, 5, 2, 2, 1, 2),
        Page(1, 0, ENTRIES + 1, ENTRIES + 1, 1, 2),
        Page(1, 5, ENTRIES, ENTRIES, 1, 1),
    ]


def test_expired_messages_and_their_time_stay() -> None:
    """The queue drops them at its head."""
    files = Files()
    files.journal(enqueue(1, b"a", expires_at_ms=5), is_clean=True)
    files.recover()
    [operation] = files.operations()
    assert isinstance(operation, Enqueue)
    assert operation.expires_at_ms == 5


def test_several_journal_files_and_queues() -> None:
    """The mark of a clean stop counts at the end of the last file only."""
    files = Files()
    files.disk.write(
        "journal/9.journal",
        journal_bytes([(UID, enqueue(1, b"a")), (OTHER_UID, enqueue(7, b"x"))], is_clean=True),
    )
    files.disk.write("journal/10.journal", journal_bytes([(OTHER_UID, remove(7)), (UID, enqueue(2, b"b"))]))
    result, _ = files.recover()
    assert (files.bodies(), files.bodies(OTHER_UID)) == ({1: b"a", 2: b"b"}, {})
    assert result.queues[OTHER_UID].next_seq == 8
    assert not result.was_clean
    assert result.operations == 4


def test_the_log_is_told_in_a_line() -> None:
    """The log is told in one line how much there was and how the node had ended."""
    files = Files()
    files.journal(enqueue(1, b"abc"), is_clean=True)
    result, _ = files.recover()
    assert result.summary == (
        "recovered 1 messages, 3 bytes, in 2 durable queues after a clean stop; "
        "1 operations of the journal; nothing damaged"
    )


def test_progress_is_told_now_and_then() -> None:
    """A file takes a second of this clock's time."""
    files = Files()
    paths = [files.segment(number, enqueue(number * ENTRIES + 1, b"a")) for number in range(4)]
    sizes = [files.disk.size(path) for path in paths]
    times = iter(range(100))
    told: list[Progress] = []
    recover(files.disk, Store(files.disk), files.records, now=lambda: next(times), progress=told.append)
    assert PROGRESS_S == 2.0
    assert told == [
        Progress(sum(sizes[:2]), sum(sizes), 2),
        Progress(sum(sizes), sum(sizes), 4),
    ]


# --- redelivered ---


def test_after_a_crash_all_count_as_delivered() -> None:
    """amqp-behaviour §4.11: every recovered message is redelivered; those that came back before keep their count."""
    files = Files()
    files.segment(0, enqueue(1, b"a", b"b", b"c"), delivered(3, 2))
    files.journal(enqueue(4, b"d", b"e"), delivered(2, 3), delivered(5, 5), enqueue(6, b"f", deliveries=4))
    result, _ = files.recover()
    assert not result.was_clean
    assert {seq: count for seq, (_, count) in files.messages().items()} == {
        1: 1,
        2: 3,
        3: 2,
        4: 1,
        5: 5,
        6: 4,
    }


def test_after_a_clean_stop_only_those_that_were() -> None:
    """amqp-behaviour §7.6. What the journal knows of it gets to the segments."""
    files = Files()
    files.segment(0, enqueue(1, b"a", b"b"), delivered(3, 2))
    files.journal(enqueue(3, b"c", b"d"), delivered(2, 1), delivered(2, 2), delivered(1, 3), is_clean=True)
    result, _ = files.recover()
    assert result.was_clean
    assert {seq: count for seq, (_, count) in files.messages().items()} == {1: 2, 2: 3, 3: 1, 4: 0}


def test_that_they_were_delivered_outlives_a_clean_stop() -> None:
    """After a crash, a start, and a clean stop."""
    files = Files()
    files.segment(0, enqueue(1, b"a"))
    files.recover()
    size = files.disk.size(f"queues/{UID}/0.idx")
    files.journal(is_clean=True)
    files.recover()
    assert files.messages() == {1: (b"a", 1)}
    files.recover()  # another crash adds nothing
    assert files.disk.size(f"queues/{UID}/0.idx") == size


# --- large contents ---


def test_references_are_counted() -> None:
    """References of living messages are counted once for each queue; contents without any go."""
    files = Files()
    files.contents(1, {1: content(b"x"), 2: content(b"y")})
    files.contents(2, {3: content(b"z")})
    files.segment(0, enqueue_stored(1, 1, 3), remove(3))
    files.journal(enqueue_stored(1, 1, 1), uid=OTHER_UID)
    result, store = files.recover()
    assert result.findings == []
    assert files.bodies() == {1: 1, 2: 2}
    assert files.bodies(OTHER_UID) == {1: 1}
    assert files.disk.names("messages") == ["1.rdq"]
    store.persistent.drop_refs(1, 2)
    store.persistent.drop_refs(1, 1)
    assert store.persistent.figures().messages == 0
    assert store.indexes[UID].segments[0][2]


def test_messages_without_their_contents_are_dropped_and_reported() -> None:
    """In a segment and in the journal; their neighbours stay."""
    files = Files()
    files.contents(1, {1: content(b"x"), 3: content(b"z")})
    segment = files.segment(0, enqueue_stored(1, 1, 3))
    files.journal(enqueue_stored(1, 2, 2), enqueue_stored(9, 9, 1), uid=OTHER_UID, is_clean=True)
    result, store = files.recover()
    assert files.bodies() == {1: 1, 3: 3}
    assert files.bodies(OTHER_UID) == {2: 3}
    assert [(each.damage, each.path) for each in result.findings] == [
        (Damage.MISSING, segment),
        (Damage.MISSING, "journal/1.journal"),
        (Damage.MISSING, "journal/1.journal"),
    ]
    assert "message 2 " in str(result.findings[0])
    assert store.indexes[OTHER_UID].segments[0][0] == [2]
    again, _ = files.recover()
    assert again.findings == []


def test_a_segment_whose_new_messages_have_no_contents_is_no_more() -> None:
    """A segment whose new messages have no contents goes, or its file would get a second header."""
    files = Files()
    files.segment(0, enqueue(1, b"a"))
    files.journal(remove(1), enqueue_stored(2, TRANSIENT_FIRST_ID, 1), is_clean=True)
    result, store = files.recover()
    assert files.disk.names(f"queues/{UID}") == []
    assert store.indexes[UID].segments == {}
    assert result.queues[UID] == Recovered(3, [])


def test_a_damaged_file_of_the_message_store_is_kept_once() -> None:
    """A damaged file of contents stays in use for what is good in it, and each start finds it again."""
    files = Files()
    path = files.contents(1, {1: content(b"x"), 2: content(b"y"), 3: content(b"z")})
    files.segment(0, enqueue_stored(1, 1, 3))
    corrupt(files.disk, path, 1)
    damaged = files.disk.content(path)
    result, _ = files.recover()
    assert files.bodies() == {1: 1, 3: 3}
    assert [each.path for each in result.findings] == [path, f"queues/{UID}/0.idx"]
    assert result.findings[0].kept_as == f"corrupt/{path}"
    assert files.disk.content(f"corrupt/{path}") == damaged
    files.recover()
    assert files.disk.names("corrupt/messages") == ["1.rdq"]


def test_a_hopeless_file_of_the_message_store_is_moved() -> None:
    """Nothing in it is good."""
    files = Files()
    files.disk.write("messages/1.rdq", b"nonsense" * 10)
    result, _ = files.recover()
    assert files.disk.names("messages") == []
    assert files.disk.content("corrupt/messages/1.rdq") == b"nonsense" * 10
    assert len(result.findings) == 1


# --- damage ---


def test_a_torn_tail_of_the_journal_is_cut() -> None:
    """At the last good record; what was cut is kept."""
    files = Files()
    path = files.journal(enqueue(1, b"a"), enqueue(2, b"b"))
    data = files.disk.content(path)
    files.disk.write(path, data[:-3])
    result, _ = files.recover()
    assert files.bodies() == {1: b"a"}
    [finding] = result.findings
    assert (finding.damage, finding.path) == (Damage.TORN, path)
    assert data.endswith(files.disk.content(finding.kept_as) + data[-3:])


def test_zeros_at_the_end_are_reported_and_not_kept() -> None:
    """Blocks that were allocated and never written."""
    files = Files()
    path = files.journal(enqueue(1, b"a"))
    files.disk.write(path, files.disk.content(path) + bytes(100))
    result, _ = files.recover()
    assert files.bodies() == {1: b"a"}
    assert [(each.damage, each.length, each.kept_as) for each in result.findings] == [(Damage.TORN, 100, "")]
    assert files.disk.names("corrupt") == []


def test_a_torn_mark_of_a_clean_stop_is_none() -> None:
    files = Files()
    path = files.journal(enqueue(1, b"a"), is_clean=True)
    files.disk.truncate(path, files.disk.size(path) - 1)
    result, _ = files.recover()
    assert not result.was_clean


@pytest.mark.parametrize("length", [0, 5, len(JOURNAL_HEADER)])
def test_a_file_that_was_just_created(length: int) -> None:
    """Journal and segment without a whole header."""
    files = Files()
    files.disk.write("journal/2.journal", JOURNAL_HEADER[:length])
    files.journal(enqueue(1, b"a"))
    files.disk.write(f"queues/{UID}/0.idx", SEGMENT_HEADER[:length])
    result, _ = files.recover()
    assert files.bodies() == {1: b"a"}
    assert files.disk.content(f"queues/{UID}/0.idx").startswith(SEGMENT_HEADER + b"\0\0")
    assert len(result.findings) == (2 if length == 5 else 0)


def test_a_power_loss_may_leave_zeros_behind_half_a_header() -> None:
    """Length and first bytes were written, the others not."""
    files = Files()
    files.disk.write("journal/1.journal", JOURNAL_HEADER[:3] + bytes(50))
    result, _ = files.recover()
    assert [each.damage for each in result.findings] == [Damage.TORN]


def test_a_bad_stretch_in_the_journal_is_isolated() -> None:
    """Reading goes on behind it."""
    files = Files()
    path = files.journal(enqueue(1, b"a"), enqueue(2, b"b"), enqueue(3, b"c"))
    offset = corrupt(files.disk, path, 1)
    data = files.disk.content(path)
    result, _ = files.recover()
    assert files.bodies() == {1: b"a", 3: b"c"}
    [finding] = result.findings
    assert (finding.damage, finding.path, finding.offset) == (Damage.CORRUPT, path, offset)
    assert files.disk.content(f"corrupt/{path}") == data[offset : offset + finding.length]
    assert str(finding).startswith(f"{path}, offset {offset}, {finding.length} bytes: ")
    assert str(finding).endswith(f"(kept as corrupt/{path})")


def test_a_bad_stretch_in_a_segment_is_isolated_and_the_segment_rewritten() -> None:
    """Without it, but with all else."""
    files = Files()
    path = files.segment(0, enqueue(1, b"a"), enqueue(2, b"b"), enqueue(3, b"c"), remove(3))
    corrupt(files.disk, path, 1)
    files.journal(enqueue(4, b"d"), is_clean=True)
    result, store = files.recover()
    assert files.bodies() == {1: b"a", 4: b"d"}
    assert [each.kept_as for each in result.findings] == [f"corrupt/{path}"]
    assert store.indexes[UID].segments[0][1] == files.disk.size(path)
    assert files.disk.names(f"queues/{UID}") == ["0.idx"]


def test_what_a_bad_stretch_lost_may_be_in_the_journal() -> None:
    files = Files()
    path = files.segment(0, enqueue(1, b"a"), enqueue(2, b"b"))
    corrupt(files.disk, path, 0)
    files.journal(enqueue(1, b"a"), enqueue(2, b"b"), is_clean=True)
    files.recover()
    assert files.bodies() == {1: b"a", 2: b"b"}


def test_copies_are_never_overwritten() -> None:
    """The next one has another name."""
    files = Files()
    files.disk.write("corrupt/journal/1.journal", b"an older copy")
    files.disk.write("corrupt/journal/1.journal.1", b"another one")
    corrupt(files.disk, files.journal(enqueue(1, b"a"), enqueue(2, b"b")), 0)
    result, _ = files.recover()
    assert result.findings[0].kept_as == "corrupt/journal/1.journal.2"
    assert files.disk.content("corrupt/journal/1.journal") == b"an older copy"


def test_a_record_that_makes_no_sense_is_bad() -> None:
    """A record that makes no sense is bad though its crc is right, as in a segment a message of another one."""
    files = Files()
    files.disk.write("journal/1.journal", journal_bytes([]) + journal_bytes([(UID, enqueue(1, b"a"))])[8:])
    path = files.segment(0, enqueue(2, b"b"), enqueue(ENTRIES, b"x"), enqueue(3, b"c"))
    result, _ = files.recover()
    assert files.bodies() == {1: b"a", 2: b"b", 3: b"c"}
    [finding] = result.findings
    assert (finding.path, finding.damage) == (path, Damage.CORRUPT)
    assert f"messages {ENTRIES} to {ENTRIES} don't belong here" in finding.text


def test_a_damaged_header_costs_no_message() -> None:
    files = Files()
    segment = files.segment(0, enqueue(1, b"a"))
    path = files.journal(enqueue(2, b"b"), is_clean=True)
    for each in (segment, path):
        files.disk.flip_bit(each, 1)
    result, _ = files.recover()
    assert files.bodies() == {1: b"a", 2: b"b"}
    assert files.disk.content(segment).startswith(SEGMENT_HEADER)
    assert len(result.findings) == 2
    assert not result.was_clean


@pytest.mark.parametrize("kind", ["journal", "segment"])
def test_a_newer_format_stops_the_start(kind: str) -> None:
    """Before anything was changed."""
    files = Files()
    journal_path = files.journal(enqueue(1, b"a"))
    segment_path = files.segment(0, enqueue(2, b"b"))
    path = journal_path if kind == "journal" else segment_path
    files.disk.flip_bit(path, 7, 1)
    before = {each: files.disk.content(each) for each in files.disk.paths()}
    with pytest.raises(NewerFormat, match=path):
        files.recover()
    assert {each: files.disk.content(each) for each in files.disk.paths()} == before


# --- what belongs to nobody ---


def test_what_belongs_to_no_queue_goes() -> None:
    """The queue was deleted just before the end."""
    files = Files()
    files.segment(0, enqueue(1, b"a"), uid=UNKNOWN_UID)
    files.journal(enqueue(2, b"b"), uid=UNKNOWN_UID)
    result, _ = files.recover()
    assert files.disk.names("queues") == []
    assert files.disk.names("journal") == []
    assert result.unknown_queues == {UNKNOWN_UID}
    assert result.findings == []


def test_with_damaged_metadata_what_belongs_to_nobody_is_kept() -> None:
    """The queue may only have been forgotten."""
    files = Files()
    files.segment(0, enqueue(1, b"a"), uid=UNKNOWN_UID)
    files.journal(enqueue(2, b"b"), uid=UNKNOWN_UID)
    result, _ = files.recover(is_catalogue_whole=False)
    assert files.disk.names("queues") == []
    assert files.disk.names("journal") == []
    assert files.disk.names(f"corrupt/queues/{UNKNOWN_UID}") == ["0.idx"]
    assert files.disk.names("corrupt/journal") == ["1.journal"]
    assert {each.damage for each in result.findings} == {Damage.UNKNOWN}


# --- whatever happens ---


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[str, Operation]], int, bool]:
    """Operations on two queues as a node writes them, how many of them segments know, and how the node ended."""
    operations: list[tuple[str, Operation]] = []
    next_seqs = {UID: 1, OTHER_UID: 1}
    for _ in range(draw(st.integers(0, 12))):
        uid = draw(st.sampled_from([UID, OTHER_UID]))
        next_seq = next_seqs[uid]
        kind = draw(st.sampled_from(["enqueue", "enqueue", "remove", "deliver"]))
        if kind == "enqueue":
            bodies = draw(st.lists(st.binary(max_size=3), min_size=1, max_size=ENTRIES))
            envelope = draw(st.sampled_from([PERSISTENT, urgent(3)]))
            operations.append((uid, enqueue(next_seq, *bodies, envelope=envelope)))
            next_seqs[uid] += len(bodies)
        elif next_seq > 1:
            start = draw(st.integers(1, next_seq - 1))
            seqs = range(start, draw(st.integers(start + 1, next_seq)))
            if kind == "remove":
                operations.append((uid, Remove((seqs,))))
            else:
                operations.append((uid, Delivered((seqs,), len(operations) + 1)))
    return operations, draw(st.integers(0, len(operations))), draw(st.booleans())


def write_history(
    files: Files, operations: list[tuple[str, Operation]], flushed: int, is_clean: bool
) -> None:
    """All operations in two journal files, the first ones in segments too, as in the middle of a checkpoint."""
    half = len(operations) // 2
    for number, part in ((3, operations[:half]), (4, operations[half:])):
        files.disk.write(f"journal/{number}.journal", journal_bytes(part, is_clean=is_clean and number == 4))
    by_segment: dict[tuple[str, int], list[Operation]] = {}
    for uid, operation in operations[:flushed]:
        for number in range(20):
            seqs = range(number * ENTRIES, (number + 1) * ENTRIES)
            part = within(operation, seqs)
            if part is not None:
                by_segment.setdefault((uid, number), []).append(part)
    for (uid, number), part in by_segment.items():
        files.segment(number, *part, uid=uid)
    files.disk.sync_all()


def within(operation: Operation, seqs: range) -> Operation | None:
    """Return the part of an operation that concerns some numbers, or None."""
    if isinstance(operation, Enqueue):
        low, high = max(operation.first_seq, seqs.start), min(operation.seqs.stop, seqs.stop)
        return operation[low - operation.first_seq : high - operation.first_seq] if low < high else None
    ranges = tuple(
        range(max(part.start, seqs.start), min(part.stop, seqs.stop))
        for part in operation.ranges
        if max(part.start, seqs.start) < min(part.stop, seqs.stop)
    )
    if not ranges:
        return None
    return Remove(ranges) if isinstance(operation, Remove) else Delivered(ranges, operation.count)


def expected(
    operations: list[tuple[str, Operation]], uid: str, is_clean: bool
) -> dict[int, tuple[object, int]]:
    """Return the bodies and delivery counts that must be there after a recovery, by number."""
    told = told_by(operation for owner, operation in operations if owner == uid)
    if is_clean:
        return dict(told)
    return {seq: (body, max(count, 1)) for seq, (body, count) in told.items()}


def check(files: Files, operations: list[tuple[str, Operation]], is_clean: bool) -> None:
    """Recover and compare: files, pages, what the indexes were told."""
    result, store = files.recover()
    assert result.findings == []
    assert files.disk.names("journal") == []
    for uid in (UID, OTHER_UID):
        messages = expected(operations, uid, is_clean)
        assert files.messages(uid) == messages
        adopted = store.indexes[uid].segments
        assert [seq for number in sorted(adopted) for seq in adopted[number][0]] == sorted(messages)
        assert all(
            size == files.disk.size(f"queues/{uid}/{number}.idx") for number, (_, size, _) in adopted.items()
        )
        pages = result.queues[uid].pages
        assert sum(page.count for page in pages) == len(messages)
        assert sum(page.body_bytes for page in pages) == sum(len(body) for body, _ in messages.values())  # type: ignore[misc, arg-type]
        assert sorted({page.segment for page in pages}) == sorted(adopted)


@settings(max_examples=150, deadline=None)
@given(histories())
def test_any_history_is_recovered(history: tuple[list[tuple[str, Operation]], int, bool]) -> None:
    """Segments may know any part of what the journal knows."""
    operations, flushed, is_clean = history
    files = Files()
    write_history(files, operations, flushed, is_clean)
    check(files, operations, is_clean)


@settings(max_examples=150, deadline=None)
@given(histories(), st.integers(0, 60), st.integers(), st.booleans())
def test_a_recovery_may_be_cut_short_anywhere(
    history: tuple[list[tuple[str, Operation]], int, bool], steps: int, seed: int, is_power_loss: bool
) -> None:
    """The power goes, or the process is killed and the power goes during the next one: the next recovery finds the
    same messages. They may count as delivered."""
    operations, flushed, is_clean = history
    files = Files()
    write_history(files, operations, flushed, is_clean)
    random = Random(seed)
    try:
        files.recover(FailingDisk(files.disk, steps))
        is_whole = True
    except PowerOff:
        is_whole = False
    if is_power_loss:
        files = Files(files.disk.crash(random))
    elif not is_whole:
        try:
            files.recover(FailingDisk(files.disk, random.randint(0, steps)))
        except PowerOff:
            files = Files(files.disk.crash(random))
    result, _ = files.recover()
    assert not any(each.damage is Damage.MISSING for each in result.findings)
    for uid in (UID, OTHER_UID):
        wanted = expected(operations, uid, is_clean)
        found = files.messages(uid)
        assert {seq: body for seq, (body, _) in found.items()} == {
            seq: body for seq, (body, _) in wanted.items()
        }
        assert all(found[seq][1] in (count, max(count, 1)) for seq, (_, count) in wanted.items())


def test_a_node_that_was_killed_has_left_what_was_never_synced() -> None:
    """Recovery makes the files safe that it relies on, before the journal goes."""
    files = Files()
    files.journal(enqueue(1, b"a"))
    files.disk.sync_all()
    segment = segment_bytes([enqueue(1, b"a")])
    files.disk.run([MakeDir(f"queues/{UID}"), Append(f"queues/{UID}/0.idx", [segment])])
    files.recover()
    for seed in range(10):
        left = Files(files.disk.crash(Random(seed)))
        assert left.bodies() == {1: b"a"}


def test_what_a_killed_node_removed_does_not_come_back() -> None:
    """A segment that is gone, while the directory was never synced."""
    files = Files()
    path = files.segment(0, enqueue(1, b"a"))
    files.journal(remove(1))
    files.disk.sync_all()
    files.disk.run([FileRemove(path)])
    files.recover()
    for seed in range(10):
        assert Files(files.disk.crash(Random(seed))).bodies() == {}


@pytest.mark.parametrize("steps", range(4, 24))
def test_why_something_is_removed_is_safe_before_it_is(steps: int) -> None:
    """A killed node has left a journal that was never synced: a message moved from one queue to another."""
    files = Files()
    files.segment(0, enqueue(1, b"a"), enqueue(2, b"b"))
    files.disk.write("journal/1.journal", JOURNAL_HEADER)
    files.disk.sync_all()
    moved = journal_bytes([(OTHER_UID, enqueue(1, b"a")), (UID, remove(1))])[len(JOURNAL_HEADER) :]
    files.disk.run([Append("journal/1.journal", [moved])])
    with suppress(PowerOff):
        files.recover(FailingDisk(files.disk, steps))
    for seed in range(10):
        left = Files(files.disk.crash(Random(seed)))
        left.recover()
        assert b"a" in [*left.bodies().values(), *left.bodies(OTHER_UID).values()]


@settings(max_examples=200, deadline=None)
@given(histories(), st.integers(0, 2000), st.integers(0, 7))
def test_a_bad_bit_costs_what_it_hits_and_is_told(
    history: tuple[list[tuple[str, Operation]], int, bool], place: int, bit: int
) -> None:
    """Whatever bit of whatever file: it is reported, or all is as it was."""
    operations, flushed, is_clean = history
    files = Files()
    write_history(files, operations, flushed, is_clean)
    paths = [path for path in files.disk.paths() if path != "store.json"]
    path = paths[place % len(paths)]
    files.disk.flip_bit(path, place % files.disk.size(path), bit)
    before = files.disk.content(path)
    try:
        result, _ = files.recover()
    except NewerFormat:
        assert place % len(before) < len(JOURNAL_HEADER)
        return
    assert [finding.path for finding in result.findings] == [path]
    for finding in result.findings:
        assert before[finding.offset : finding.offset + finding.length] == files.disk.content(finding.kept_as)
    again, _ = files.recover()
    assert again.findings == []
