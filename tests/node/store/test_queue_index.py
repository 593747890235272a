"""The index of a queue: single stories first, then a model that keeps, forgets, pages, scans and loads at random."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from node.amqp.reader import MIXED_SIZES
from node.queue.number_set import NumberSet
from node.queue.operations import Delivered, Enqueue, Remove, decode
from node.queue.run import NEVER, Absent, Batch, Envelope, Run
from node.queue.storage import NO_STORE_ID
from node.store.disk import Append, MakeDir, Read, RemoveTree, Sync, SyncDir
from node.store.disk import Remove as RemoveFile
from node.store.index_host import IndexHost
from node.store.message_store import TRANSIENT_FIRST_ID, MessageStore
from node.store.queue_index import NO_LIMIT, QueueIndex
from node.store.records import read_records
from node.store.rereading import PAUSES_S
from tests.kit.disk import SimulatedDisk
from tests.kit.messages import bodies_of, content
from tests.kit.stored import Image

SEGMENT_ENTRIES = 8
EMBED_MAX_BYTES = 100
EPOCH_S = 1_000_000.0
LARGE = b"L" * EMBED_MAX_BYTES
PERSISTENT = Envelope("x", "persistent", channel=1, frame_max_bytes=0, persistent=True)
TRANSIENT = Envelope("x", "transient", channel=1, frame_max_bytes=0)


def flushed_count(index: QueueIndex) -> int:
    """The messages in segments."""
    return sum(segment.live for segment in index.segments.values())


@dataclass
class Node:
    """An index with all that is around it, and what it told."""

    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    dirty: int = 0
    reports: list[tuple[str, int, str]] = field(default_factory=list)
    later: list[Callable[[], None]] = field(default_factory=list)
    """These calls are to be made after a pause."""

    def __post_init__(self) -> None:
        self.persistent = MessageStore("messages", self.disk)
        self.transient = MessageStore("transient/messages", self.disk, first_id=TRANSIENT_FIRST_ID)
        self.host = IndexHost(
            disk=self.disk,
            persistent=self.persistent,
            transient=self.transient,
            segment_entries=SEGMENT_ENTRIES,
            embed_max_bytes=EMBED_MAX_BYTES,
            epoch_s=lambda: EPOCH_S,
            on_dirty=self.on_dirty,
            report=lambda *what: self.reports.append(what),
            on_failed=self.on_failed,
            later=lambda pause_s, call: self.later.append(call),
            is_over=lambda: False,
        )

    def on_dirty(self, index: QueueIndex) -> None:
        self.dirty += 1

    def on_failed(self, error: OSError) -> None:
        raise AssertionError(error)

    def index(self, *, durable: bool = True) -> QueueIndex:
        return QueueIndex("ab" * 16, is_durable=durable, host=self.host)

    def execute(self, steps: Any) -> None:
        """Have the disk execute steps, and all that waits."""
        self.disk.submit(steps, lambda results: None, self.on_failed)
        self.disk.settle()

    def turn(self, index: QueueIndex) -> None:
        """Execute the steps of both message stores and of the index, as the store does at the end of a turn."""
        self.execute([*self.persistent.take_steps(), *self.transient.take_steps(), *index.take_steps()])

    def scan(self, index: QueueIndex, segment: int, first: int = 0, last: int = NO_LIMIT) -> list[Absent]:
        found: list[list[Absent]] = []
        index.scan(segment, first, last, found.append)
        assert not found, "later"
        self.settle()
        assert len(found) == 1
        return found[0]

    def load(self, index: QueueIndex, *absent: Absent) -> list[Run | None]:
        found: list[list[Run | None]] = []
        index.load(absent, found.append)
        assert not found, "later"
        self.settle()
        assert len(found) == 1
        return found[0]

    def settle(self) -> None:
        """Have the disk do all there is, however long the pauses in between."""
        self.disk.settle()
        while self.later:
            self.later.pop(0)()
            self.disk.settle()

    def operations(self, path: str) -> list[Any]:
        return [decode(payload) for _, payload in read_records(self.disk.content(path))]

    @property
    def stored(self) -> int:
        return self.persistent.figures().messages + self.transient.figures().messages


@pytest.fixture
def node() -> Node:
    return Node()


def keep(node: Node, index: QueueIndex, first_seq: int, *bodies: bytes, expiry: float = NEVER) -> Run:
    """Keep messages as the broker does, large ones with ids; as the run that the broker has."""
    contents = [content(body) for body in bodies]
    size = len(bodies[0]) if len(set(map(len, bodies))) == 1 else MIXED_SIZES
    store_id = node.persistent.place(contents) if len(contents[0]) >= EMBED_MAX_BYTES else NO_STORE_ID
    index.keep(Batch(PERSISTENT, contents, size, store_id), first_seq, expiry)
    seqs = range(first_seq, first_seq + len(bodies))
    return Run(PERSISTENT, seqs, contents, size, expiry, 0, store_id, is_indexed=True)


def passing(first_seq: int, *bodies: bytes, step: int = 1, expiry: float = NEVER) -> Run:
    """A run of messages that are not kept."""
    seqs = range(first_seq, first_seq + step * len(bodies), step)
    size = len(bodies[0]) if len(set(map(len, bodies))) == 1 else MIXED_SIZES
    return Run(TRANSIENT, seqs, list(map(content, bodies)), size, expiry)


DIRECTORY = "queues/" + "ab" * 16


def path(segment: int) -> str:
    return f"{DIRECTORY}/{segment}.idx"


def seqs_of(absents: list[Absent]) -> list[range]:
    return [absent.seqs for absent in absents]


# --- to the journal ---


def test_what_is_kept_goes_to_the_journal_once(node: Node) -> None:
    """The next batch takes it; the one after that has nothing."""
    index = node.index()
    keep(node, index, 1, b"a", b"b", expiry=2.5)
    [entry], removed, delivered = index.take_operations()
    assert entry.seqs == range(1, 3)
    assert entry.contents == [content(b"a"), content(b"b")]
    assert entry.expires_at_ms == 1_000_002_500
    assert (removed, delivered) == (None, [])
    assert index.take_operations() == ([], None, [])


def test_what_follows_joins_the_entry(node: Node) -> None:
    """A batch costs per run: the same envelope and expiry, no gap, one way of keeping contents."""
    index = node.index()
    keep(node, index, 0, b"a")
    keep(node, index, 1, b"bb")
    keep(node, index, 3, b"gap")
    keep(node, index, 4, b"expiry", expiry=1.0)
    keep(node, index, 5, LARGE)
    keep(node, index, 6, LARGE)
    entries, _, _ = index.take_operations()
    assert [(entry.seqs, entry.size) for entry in entries] == [
        (range(2), MIXED_SIZES),
        (range(3, 4), 3),
        (range(4, 5), 6),
        (range(5, 7), len(LARGE)),
    ]
    assert (entries[3].store_id, entries[3].contents) == (1, [])
    keep(node, index, 7, LARGE)
    assert [entry.seqs for entry in index.take_operations()[0]] == [range(7, 8)], "the batch has gone"


def test_stored_contents_do_not_join_embedded_ones(node: Node) -> None:
    """Not even where the number of those happens to be the id of these."""
    index = node.index()
    keep(node, index, 1, b"a")
    keep(node, index, 2, LARGE)
    keep(node, index, 3, b"b")
    keep(node, index, 4, LARGE + b"!")
    keep(node, index, 5, LARGE)
    entries, _, _ = index.take_operations()
    assert [(entry.seqs, entry.store_id) for entry in entries] == [
        (range(1, 2), NO_STORE_ID),
        (range(2, 3), 1),
        (range(3, 4), NO_STORE_ID),
        (range(4, 5), 2),
        (range(5, 6), 3),
    ]


def test_an_entry_ends_with_its_segment(node: Node) -> None:
    """A record is in one file."""
    index = node.index()
    run = keep(node, index, 6, *[b"m"] * 20)
    assert [entry.seqs for entry in index.take_operations()[0]] == [
        range(6, 8),
        range(8, 16),
        range(16, 24),
        range(24, 26),
    ]
    index.page_out([run])
    assert [len(node.scan(index, segment)) for segment in range(5)] == [1, 1, 1, 1, 0]


def test_stored_contents_of_mixed_sizes_are_cut_by_size(node: Node) -> None:
    """Entries of stored contents are cut so that each has one size; the ids go on."""
    index = node.index()
    keep(node, index, 1, LARGE, LARGE, LARGE + b"!", LARGE)
    entries, _, _ = index.take_operations()
    assert [(entry.seqs, entry.store_id, entry.size - len(LARGE)) for entry in entries] == [
        (range(1, 3), 1, 0),
        (range(3, 4), 3, 1),
        (range(4, 5), 4, 0),
    ]


def test_what_is_forgotten_before_it_is_written_is_written_nowhere(node: Node) -> None:
    """Not the message and not that it is gone; its bytes are let go of at once."""
    index = node.index()
    keep(node, index, 1, b"a", b"b", b"c", b"d")
    keep(node, index, 8, b"e")
    index.forget(range(1, 4, 2), NO_STORE_ID)
    index.forget(range(8, 9), NO_STORE_ID)
    entries, removed, _ = index.take_operations()
    assert [entry.seqs for entry in entries] == [range(2, 3), range(4, 5)]
    assert removed is None
    steps, is_done = index.flush(NO_LIMIT, NO_LIMIT)
    node.execute(steps)
    assert is_done
    assert [entry.contents for entry in node.operations(path(0))] == [[content(b"b")], [content(b"d")]]


def test_bytes_are_let_go_of(node: Node) -> None:
    """Bytes of a forgotten message are let go of at once, those of others once they are journaled and in a segment."""
    freed: list[int] = []

    class Watched(bytes):
        def __del__(self) -> None:
            freed.append(len(self))

    index = node.index()
    index.keep(
        Batch(PERSISTENT, [Watched(content(b"m" * size)) for size in (0, 1, 2)], MIXED_SIZES), 1, NEVER
    )
    index.forget(range(2, 3), NO_STORE_ID)
    assert len(freed) == 1
    keep(node, index, 6, b"not flushed")
    index.flush(NO_LIMIT, 6)
    assert len(freed) == 1, "the journal wants them"
    index.take_operations()
    assert len(freed) == 3


def test_fresh_bytes_are_those_of_the_next_batch(node: Node) -> None:
    """Fresh bytes come and go with what is kept for the next batch."""
    index = node.index()
    assert index.fresh_bytes == 0
    keep(node, index, 1, b"a" * 50)
    assert 50 < index.fresh_bytes < 300
    index.forget(range(1, 2), NO_STORE_ID)
    assert index.fresh_bytes == 0


def test_what_was_journaled_is_removed_there(node: Node) -> None:
    """In the fewest ranges, whatever the order and the step."""
    index = node.index()
    keep(node, index, 1, *[b"m"] * 6)
    index.take_operations()
    index.forget(range(2, 7, 2), NO_STORE_ID)
    index.forget(range(1, 4, 2), NO_STORE_ID)
    assert index.take_operations() == ([], Remove((range(1, 5), range(6, 7))), [])


def test_the_host_is_told_once(node: Node) -> None:
    """The host is told once of operations, steps and removals each, until they are taken."""
    index = node.index()
    for seq in range(1, 4):
        keep(node, index, seq, b"a")
    assert node.dirty == 1
    index.take_operations()
    run = keep(node, index, 4, b"a")
    assert node.dirty == 2
    index.page_out([run])
    assert node.dirty == 3
    index.take_steps()
    index.take_operations()
    index.forget(range(1, 5), NO_STORE_ID)
    assert node.dirty == 5, "an operation for the journal and a file to be removed"


# --- counters ---


def test_messages_that_go_to_disk_and_come_back_are_counted(node: Node) -> None:
    """Kept ones once, though a checkpoint writes them to a segment; others when they are paged out."""
    index = node.index()
    run = keep(node, index, 1, b"a", b"b")
    assert index.disk_writes == 2
    index.page_out([run])
    index.page_out([passing(3, LARGE)])
    node.turn(index)
    assert index.disk_writes == 3
    found = node.scan(index, 0)
    assert (index.disk_reads, node.host.counters.queue_index_read_count) == (0, 1)
    node.load(index, *found)
    assert index.disk_reads == 3
    assert (node.host.counters.queue_index_read_count, node.host.counters.msg_store_read_count) == (2, 1)


# --- to segments ---


def test_a_checkpoint_writes_the_oldest_first(node: Node) -> None:
    """As much as it may, up to a number, and says whether that was all."""
    index = node.index()
    for seq in range(1, 7):
        keep(node, index, seq, b"m" * 50, expiry=seq)
    steps, is_done = index.flush(1, 6)
    node.execute(steps)
    assert not is_done
    assert seqs_of(node.scan(index, 0)) == [range(1, 2)]
    steps, is_done = index.flush(NO_LIMIT, 6)
    node.execute(steps)
    assert is_done
    assert seqs_of(node.scan(index, 0)) == [range(seq, seq + 1) for seq in range(1, 6)]
    assert (index.unflushed.count, flushed_count(index), index.needs_flush) == (1, 5, True)


def test_paging_kept_messages_writes_all_below_them(node: Node) -> None:
    """Paging kept messages out writes those below them first, and none of them twice."""
    index = node.index()
    runs = [keep(node, index, seq, b"m", expiry=seq) for seq in range(1, 5)]
    index.page_out([runs[2]])
    assert index.unflushed.count == 1
    index.page_out(runs)
    index.page_out(runs)
    node.turn(index)
    assert [operation.seqs for operation in node.operations(path(0))] == [
        range(seq, seq + 1) for seq in range(1, 5)
    ]
    assert [entry.seqs for entry in index.take_operations()[0]] == [
        range(seq, seq + 1) for seq in range(1, 5)
    ], "the journal gets them nevertheless: nobody syncs what was paged out"


def test_paging_others_writes_them_now(node: Node) -> None:
    """From both ends of what is in memory, whatever their step, across segments; a scan finds them in order."""
    index = node.index(durable=False)
    index.page_out([passing(5, b"m")])
    index.page_out([passing(20, *[b"m"] * 7)])
    index.page_out([passing(2, b"a", b"b", b"c", step=5)])
    assert seqs_of(node.scan(index, 0)) == [range(2, 3), range(5, 6), range(7, 8)]
    assert seqs_of(node.scan(index, 1)) == [range(12, 13)]
    assert seqs_of(node.scan(index, 2)) == [range(20, 24)]
    assert index.take_operations() == ([], None, [])
    assert index.flush(NO_LIMIT, NO_LIMIT) == ([], True)
    assert index.sync_steps() == []
    assert node.disk.paths()[0].startswith("transient/queues/")


def test_large_contents_are_paged_to_the_message_store(node: Node) -> None:
    """Each once, and only the large ones of a mixed run."""
    index = node.index(durable=False)
    index.page_out([passing(1, b"s", LARGE, LARGE, b"t")])
    placed = passing(5, LARGE)
    placed.store_id = node.transient.reserve(1)
    index.page_out([placed])
    node.turn(index)
    found = node.scan(index, 0)
    assert seqs_of(found) == [range(1, 2), range(2, 4), range(4, 5), range(5, 6)]
    assert [absent.place is None for absent in found] == [False, True, False, True]
    assert found[3].store_id == placed.store_id
    runs = node.load(index, *found)
    assert [bodies_of(run) for run in runs if run] == [[b"s"], [LARGE, LARGE], [b"t"], [LARGE]]
    assert node.stored == 3
    for absent in found:
        index.forget(absent.seqs, absent.store_id)
    assert node.stored == 0


def test_steps_are_joined_by_file(node: Node) -> None:
    """One Append for each, the directory first; then syncs of files and names."""
    index = node.index()
    runs = [keep(node, index, seq, b"m") for seq in (1, 2, 9)]
    index.page_out(runs)
    steps = index.take_steps()
    assert [(type(step), getattr(step, "path", "")) for step in steps] == [
        (MakeDir, DIRECTORY),
        (Append, path(0)),
        (Append, path(1)),
    ]
    assert index.take_steps() == []
    assert index.sync_steps(1) == [Sync(path(0)), SyncDir(DIRECTORY), SyncDir("queues")]
    assert index.sync_steps() == [Sync(path(1))]
    assert index.sync_steps() == []


# --- forgotten in segments ---


def test_a_checkpoint_tells_what_is_gone(node: Node) -> None:
    """Removals are written at a checkpoint, and known in memory only until then."""
    index = node.index()
    index.page_out([keep(node, index, 1, *[b"m"] * 6)])
    node.turn(index)
    index.forget(range(2, 6, 3), NO_STORE_ID)
    assert seqs_of(node.scan(index, 0)) == [range(1, 2), range(3, 5), range(6, 7)]
    assert len(node.operations(path(0))) == 1
    steps, _ = index.flush(NO_LIMIT, NO_LIMIT)
    node.execute(steps)
    assert node.operations(path(0))[1:] == [Remove((range(2, 3), range(5, 6)))]
    assert not index.needs_flush
    index.forget(range(1, 2), NO_STORE_ID)
    steps, _ = index.flush(NO_LIMIT, NO_LIMIT)
    node.execute(steps)
    assert node.operations(path(0))[2:] == [Remove((range(1, 2),))], "what is new"


def test_a_dead_segment_is_removed(node: Node) -> None:
    """As a file, and its name is made safe; the next message of its numbers begins a new file."""
    index = node.index()
    index.page_out([keep(node, index, 1, b"a", b"b")])
    node.turn(index)
    index.sync_steps()
    index.forget(range(1, 3), NO_STORE_ID)
    steps = index.take_removals()
    assert steps == [RemoveFile(path(0))]
    node.execute(steps)
    assert (len(index.segments), index.needs_flush) == (0, False)
    assert index.sync_steps() == [SyncDir(DIRECTORY)]
    index.page_out([keep(node, index, 3, b"c")])
    node.turn(index)
    assert [operation.seqs for operation in node.operations(path(0))] == [range(3, 4)]
    assert seqs_of(node.scan(index, 0)) == [range(3, 4)]


def test_a_segment_that_is_written_to_again_is_not_dead(node: Node) -> None:
    """A segment that is written to again is not dead, so a later request for removals must not get it."""
    index = node.index()
    index.page_out([keep(node, index, 1, b"a")])
    index.forget(range(1, 2), NO_STORE_ID)
    index.page_out([keep(node, index, 2, b"b")])
    assert index.take_removals() == []
    assert bodies_of(node.load(index, *node.scan(index, 0))[0]) == [b"b"]  # type: ignore[arg-type]


def test_what_was_never_written_is_not_written_after_its_end(node: Node) -> None:
    """The file of a dead segment that is still in the outbox."""
    index = node.index()
    index.page_out([keep(node, index, 1, b"a")])
    index.forget(range(1, 2), NO_STORE_ID)
    index.take_removals()
    assert index.take_steps() == [MakeDir(DIRECTORY)]


def test_clear_spares_what_is_outside_and_what_is_not_in_segments(node: Node) -> None:
    """Over several segments; the journal hears of what was there."""
    index = node.index()
    index.page_out([keep(node, index, 1, *[b"m"] * 20)])
    keep(node, index, 21, b"m")
    index.take_operations()
    index.clear(3, 30)
    assert index.take_operations() == ([], Remove((range(3, 21),)), [])
    node.turn(index)
    assert seqs_of(node.scan(index, 0)) == [range(1, 3)]
    assert index.take_removals() == [RemoveFile(path(1)), RemoveFile(path(2))]
    assert (flushed_count(index), index.unflushed.count) == (2, 1)


def test_clear_drops_references_before_files_are_removed(node: Node) -> None:
    """Only the file knows the ids."""
    index = node.index()
    index.page_out([keep(node, index, 1, LARGE, LARGE), keep(node, index, 3, b"small")])
    index.page_out([keep(node, index, 9, LARGE)])
    node.turn(index)
    index.clear(2, 20)
    assert index.take_removals() == [], "it must be read first"
    node.disk.settle()
    assert node.stored == 1
    assert index.take_removals() == [RemoveFile(path(1))]


def test_one_reading_drops_the_references_of_several_clearings(node: Node) -> None:
    """A copy of a queue clears what its master says is gone, range by range."""
    index = node.index()
    index.page_out([keep(node, index, 1, *[LARGE] * 6)])
    node.turn(index)
    for first in (1, 2, 3, 5):
        index.clear(first, first)
    assert len(node.disk.waiting) == 1
    node.disk.settle()
    assert node.stored == 2
    assert index.alive == [range(4, 5), range(6, 7)]


def test_a_mirror_keeps_older_messages_after_newer_ones(node: Node) -> None:
    """Older messages that a mirror lacked are journaled as they come, and written in order."""
    index = node.index()
    keep(node, index, 10, b"new")
    keep(node, index, 2, b"old", b"old")
    keep(node, index, 4, b"old")
    keep(node, index, 11, b"new")
    assert index.kept_to == 12
    entries, _, _ = index.take_operations()
    assert sorted(entry.seqs.start for entry in entries) == [2, 10]
    index.forget(range(3, 4), 0)
    index.page_out([keep(node, index, 5, b"old")])
    assert index.alive == [range(2, 3), range(4, 6)]
    assert index.unflushed.count == 2


def test_drop_lets_go_of_everything(node: Node) -> None:
    """References in memory at once, those in files when they were read; then the directory goes."""
    index = node.index()
    index.page_out([keep(node, index, 1, LARGE, LARGE)])
    index.forget(range(1, 2), 1)
    keep(node, index, 3, LARGE, LARGE)
    index.forget(range(4, 5), 4)
    node.turn(index)
    assert node.stored == 2
    index.drop()
    assert node.stored == 1
    assert index.take_removals() == []
    node.disk.settle()
    assert node.stored == 0
    assert index.take_removals() == [RemoveTree(DIRECTORY)]
    assert index.take_removals() == []
    index.forget(range(2, 4), 2)
    index.page_out([passing(7, b"late")])
    keep_late = node.scan(index, 0)
    assert (keep_late, index.take_steps(), index.take_operations()) == ([], [], ([], None, []))


def test_a_drop_is_told_even_if_there_is_nothing(node: Node) -> None:
    """A drop of an empty index is told too, so that the store lets go of the index."""
    node.index().drop()
    assert node.dirty == 1


# --- back from disk ---


def test_a_scan_finds_what_was_just_paged_out(node: Node) -> None:
    """The index hands over its outbox before it reads."""
    index = node.index()
    run = keep(node, index, 1, b"a", b"bb", expiry=7.25)
    index.page_out([run])
    [absent] = node.scan(index, 0)
    assert (absent.seqs, absent.size, absent.body_bytes) == (range(1, 3), MIXED_SIZES, 3)
    assert absent.expiry == pytest.approx(7.25)
    [loaded] = node.load(index, absent)
    assert loaded is not None
    assert (loaded.contents, loaded.is_indexed, loaded.deliveries) == (run.contents, True, 0)


def test_stored_contents_that_were_just_placed_can_be_loaded(node: Node) -> None:
    """The message store's steps are handed over first, too."""
    index = node.index()
    run = keep(node, index, 1, LARGE)
    absent = Absent(PERSISTENT, run.seqs, run.size, run.body_bytes, NEVER, 0, run.store_id, None)
    [loaded] = node.load(index, absent)
    assert loaded is not None
    assert loaded.contents == run.contents


def test_equal_envelopes_become_one(node: Node) -> None:
    """A backlog sees by identity that runs belong together."""
    index = node.index(durable=False)
    index.page_out([passing(1, b"a"), passing(3, b"b")])
    first, second = node.scan(index, 0)
    assert first.envelope is second.envelope


def test_a_scan_is_of_a_range(node: Node) -> None:
    """Bodies of different sizes are counted by themselves when a record is cut."""
    index = node.index(durable=False)
    index.page_out([passing(1, b"1", b"22", b"333", b"4444")])
    [absent] = node.scan(index, 0, 2, 3)
    assert (absent.seqs, absent.body_bytes) == (range(2, 4), 5)
    assert [bodies_of(run) for run in node.load(index, absent) if run] == [[b"22", b"333"]]


def test_absents_of_one_record_share_a_read(node: Node) -> None:
    """A record is read once."""
    index = node.index(durable=False)
    index.page_out([passing(1, *[b"m"] * 7)])
    index.forget(range(2, 7, 2), NO_STORE_ID)
    absents = node.scan(index, 0)
    index.load(absents, lambda runs: None)
    assert [type(step) for step in node.disk.waiting] == [Read]


@pytest.mark.parametrize("body", [b"m", b"other sizes"])
def test_what_is_forgotten_during_a_scan_is_not_found(node: Node, body: bytes) -> None:
    """A scan leaves out what is forgotten meanwhile; where sizes differ it reads the file once more."""
    index = node.index(durable=False)
    index.page_out([passing(1, b"m", b"m", b"m", body)])
    found: list[Absent] = []
    index.scan(0, 0, 9, found.extend)
    index.forget(range(2, 3), NO_STORE_ID)
    node.disk.settle()
    assert [(absent.seqs, absent.body_bytes) for absent in found] == [
        (range(1, 2), 1),
        (range(3, 5), 1 + len(body)),
    ]


def test_deliveries_are_told_apart(node: Node) -> None:
    """Before a checkpoint, after it, and for the journal."""
    index = node.index()
    index.page_out([keep(node, index, 1, b"1", b"22", b"3")])
    index.take_operations()
    index.delivered(range(2, 3), 4)
    assert index.take_operations() == ([], None, [Delivered((range(2, 3),), 4)])
    expected = [(range(1, 2), 0, 1), (range(2, 3), 4, 2), (range(3, 4), 0, 1)]
    for _ in range(2):
        found = node.scan(index, 0)
        assert [(absent.seqs, absent.deliveries, absent.body_bytes) for absent in found] == expected
        assert [run.deliveries for run in node.load(index, *found) if run] == [0, 4, 0]
        steps, _ = index.flush(NO_LIMIT, NO_LIMIT)
        node.execute(steps)
        assert not index.needs_flush
    assert node.operations(path(0))[1:] == [Delivered((range(2, 3),), 4)]


def test_deliveries_come_behind_their_messages(node: Node) -> None:
    """Deliveries are written behind their messages, which get to the segment first."""
    index = node.index()
    keep(node, index, 1, b"a")
    index.delivered(range(1, 2), 1)
    index.flush(NO_LIMIT, 1)
    steps, _ = index.flush(NO_LIMIT, NO_LIMIT)
    node.execute(steps)
    assert [type(operation) for operation in node.operations(path(0))] == [Enqueue, Delivered]


def test_a_file_that_a_recovery_found_goes_on(node: Node) -> None:
    """Messages of a recovered file are known, and new ones are appended to it."""
    before = node.index()
    before.page_out([keep(node, before, 1, *[b"m"] * 4)])
    node.turn(before)
    index = node.index()
    index.adopt(0, [range(1, 2), range(3, 5)], size_bytes=len(node.disk.content(path(0))), has_stored=False)
    index.forget(range(4, 5), NO_STORE_ID)
    index.page_out([keep(node, index, 5, b"n")])
    assert seqs_of(node.scan(index, 0)) == [range(1, 2), range(3, 4), range(5, 6)]
    assert index.sync_steps() == [Sync(path(0))]


# --- what can't be read ---


def test_a_damaged_record_costs_its_messages_only(node: Node) -> None:
    """A damaged record is reported once, with its place; the file stays for the next start to set it aside."""
    index = node.index()
    runs = [keep(node, index, seq, b"m", expiry=seq) for seq in (1, 2, 3)]
    index.page_out(runs)
    [_, second, _] = node.scan(index, 0)
    assert second.place is not None
    node.disk.flip_bit(path(0), second.place.offset + 20)
    assert seqs_of(node.scan(index, 0)) == [range(1, 2), range(3, 4)]
    assert [report[:2] for report in node.reports] == [(path(0), second.place.offset), (path(0), 0)]
    node.scan(index, 0)
    assert len(node.reports) == 2
    index.forget(range(1, 4), NO_STORE_ID)
    assert index.take_removals() == []


@pytest.mark.parametrize("size", [0, 4, 30])
def test_a_file_that_was_cut_off(node: Node, size: int) -> None:
    """Messages behind the cut are reported as unreadable, and nothing crashes."""
    index = node.index()
    index.page_out([keep(node, index, 1, b"m")])
    node.turn(index)
    node.disk.truncate(path(0), size)
    assert node.scan(index, 0) == []
    assert any("1 message(s) cannot be read" in what for _, _, what in node.reports)


def test_a_load_from_a_damaged_record_gives_none(node: Node) -> None:
    """The other runs come."""
    index = node.index()
    index.page_out([keep(node, index, seq, b"m", expiry=seq) for seq in (1, 2)])
    first, second = node.scan(index, 0)
    assert first.place is not None
    node.disk.flip_bit(path(0), first.place.offset + 20)
    lost, loaded = node.load(index, first, second)
    assert lost is None
    assert loaded is not None
    assert [report[:2] for report in node.reports] == [(path(0), first.place.offset)]


def test_stored_contents_that_are_partly_gone_give_none(node: Node) -> None:
    """The whole run, and it is reported."""
    index = node.index()
    runs = [keep(node, index, 1, LARGE, LARGE), keep(node, index, 3, LARGE)]
    index.page_out(runs)
    node.turn(index)
    [absent] = node.scan(index, 0)
    node.disk.flip_bit("messages/1.rdq", 60)
    lost, loaded = node.load(index, absent[:2], absent[2:])
    assert lost is None
    assert loaded is not None
    assert len(node.reports) == 1


def test_a_read_that_fails_for_good_costs_what_it_was_of(node: Node) -> None:
    """A load is tried part by part, a scan finds nothing; each several times."""
    index = node.index()
    index.page_out([keep(node, index, seq, b"m", expiry=seq) for seq in (1, 9)])
    absents = [*node.scan(index, 0), *node.scan(index, 1)]
    node.disk.fail_always(Read, path(0))
    lost, loaded = node.load(index, *absents)
    assert lost is None
    assert loaded is not None
    assert [report[0] for report in node.reports] == [path(0)]
    node.disk.fail_always(Read, path(1))
    assert node.scan(index, 1) == []
    assert index.unreadable == NumberSet([range(1, 2), range(9, 10)])
    assert flushed_count(index) == 2, "nobody has given them up"


@pytest.mark.parametrize("times", [1, len(PAUSES_S)])
def test_a_read_that_fails_for_a_while_costs_nothing(node: Node, times: int) -> None:
    """A failed read is tried again after a pause; a load fails together and then part by part."""
    index = node.index()
    index.page_out([keep(node, index, seq, b"m", expiry=seq) for seq in (1, 9)])
    for _ in range(times):
        node.disk.fail(Read, path(0))
    absents = [*node.scan(index, 0), *node.scan(index, 1)]
    assert seqs_of(absents) == [range(1, 2), range(9, 10)]
    for _ in range(times + 1):
        node.disk.fail(Read, path(0))
    assert None not in node.load(index, *absents)
    assert (index.unreadable, node.reports) == (None, [])


class Owner:
    """Is told of what is unreadable."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def unreadable(self, reason: str) -> None:
        self.reasons.append(reason)


def test_what_is_unreadable_is_told_once_until_it_is_given_up(node: Node) -> None:
    """To who has the messages, and to who has them later; who gives some up hears no more of the others."""
    index, owner = node.index(), Owner()
    index.belong_to(owner)
    index.page_out([keep(node, index, 1, *[b"m"] * 4)])
    [absent] = node.scan(index, 0)
    node.disk.flip_bit(path(0), 30)
    assert node.scan(index, 0) == []
    assert node.load(index, absent) == [None]
    assert len(owner.reasons) == 1
    assert owner.reasons[0].startswith(path(0))
    assert index.unreadable == NumberSet([range(1, 5)])
    later = Owner()
    index.belong_to(later)
    assert len(later.reasons) == 1
    index.forget(range(4, 5), NO_STORE_ID)
    assert index.unreadable == NumberSet([range(1, 4)])
    index.lose([range(1, 3)])
    assert (index.unreadable, index.alive) == (None, [range(3, 4)])
    assert node.scan(index, 0) == []
    assert (len(owner.reasons), len(later.reasons)) == (1, 2), "it is looked for once more"


def test_one_stored_content_that_is_damaged_is_the_only_unreadable_one(node: Node) -> None:
    """Though its run comes back as a whole or not at all."""
    index = node.index()
    index.page_out([keep(node, index, 1, LARGE, LARGE, LARGE)])
    node.turn(index)
    [absent] = node.scan(index, 0)
    node.disk.flip_bit("messages/1.rdq", len(node.disk.content("messages/1.rdq")) // 2)
    assert node.load(index, absent) == [None]
    assert index.unreadable == NumberSet([range(2, 3)])


# --- a model ---


@dataclass
class Message:
    """The model keeps this of a message that the index knows and that isn't forgotten."""

    body: bytes
    expiry: float
    is_kept: bool
    is_stored: bool
    deliveries: int = 0


BODIES = st.lists(st.sampled_from([b"", b"a", b"b", b"three", LARGE, LARGE + b"!"]), min_size=1, max_size=12)
EXPIRIES = st.sampled_from([NEVER, NEVER, 5.0])


class IndexAgainstModel(RuleBasedStateMachine):
    """Everything at random times, the disk as slow as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node()
        self.index = self.node.index()
        self.alive: dict[int, Message] = {}
        self.in_memory: list[Run] = []  # not kept, not paged out
        self.runs: list[Run | Absent] = []  # that the index knows, or knew: parts may be forgotten
        self.next_seq = 1
        self.journal: list[Any] = []
        self.answers = 0
        self.asked = 0

    # --- what should be where ---

    def unflushed(self) -> set[int]:
        """The prefix rule: of what was kept the last ones."""
        kept = sorted(seq for seq, message in self.alive.items() if message.is_kept)
        return set(kept[len(kept) - self.index.unflushed.count :])

    def in_segments(self) -> set[int]:
        return self.alive.keys() - self.unflushed()

    # --- rules ---

    @rule(bodies=BODIES, expiry=EXPIRIES, gap=st.integers(0, 3))
    def keep(self, bodies: list[bytes], expiry: float, gap: int) -> None:
        is_large = len(content(bodies[0])) >= EMBED_MAX_BYTES
        bodies = [body for body in bodies if (len(content(body)) >= EMBED_MAX_BYTES) is is_large]
        self.next_seq += gap
        run = keep(self.node, self.index, self.next_seq, *bodies, expiry=expiry)
        self.next_seq += len(bodies)
        self.runs.append(run)
        for seq, body in zip(run.seqs, bodies, strict=True):
            self.alive[seq] = Message(body, expiry, True, is_large)

    @rule(bodies=BODIES, expiry=EXPIRIES, step=st.integers(1, 3))
    def hold(self, bodies: list[bytes], expiry: float, step: int) -> None:
        run = passing(self.next_seq, *bodies, step=step, expiry=expiry)
        self.next_seq = run.seqs[-1] + 1
        self.in_memory.append(run)

    @rule(data=st.data())
    def page_out(self, data: st.DataObject) -> None:
        leaving = [run for run in self.in_memory if data.draw(st.booleans())]
        self.in_memory = [run for run in self.in_memory if run not in leaving]
        known = [
            run
            for run in self.runs
            if data.draw(st.booleans()) and all(seq in self.alive for seq in run.seqs)
        ]
        self.index.page_out(data.draw(st.permutations([*leaving, *known])))
        for run in leaving:
            for seq, body in zip(run.seqs, bodies_of(run), strict=True):
                is_large = len(content(body)) >= EMBED_MAX_BYTES
                self.alive[seq] = Message(body, run.expiry, False, is_large)
        last = max((run.seqs[-1] for run in known), default=0)
        assert all(seq > last for seq in self.unflushed())

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.runs))
        start = data.draw(st.integers(0, len(run) - 1))
        stop = data.draw(st.integers(start + 1, len(run)))
        seqs = run.seqs[start : stop : data.draw(st.integers(1, 3))]
        store_id = run.store_id + seqs.start - run.seqs.start if run.store_id else NO_STORE_ID
        if not all(seq in self.alive for seq in seqs):
            return
        self.index.forget(seqs, store_id)
        for seq in seqs:
            del self.alive[seq]

    @rule(first=st.integers(0, 60), length=st.integers(0, 30))
    def clear(self, first: int, length: int) -> None:
        cleared = {seq for seq in self.in_segments() if first <= seq <= first + length}
        self.index.clear(first, first + length)
        for seq in cleared:
            del self.alive[seq]

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), count=st.integers(1, 3), length=st.integers(1, 5))
    def delivered(self, data: st.DataObject, count: int, length: int) -> None:
        first = data.draw(st.sampled_from(sorted(self.alive)))
        seqs = range(first, first + length)
        seqs = seqs[: next((at for at, seq in enumerate(seqs) if seq not in self.alive), length)]
        self.index.delivered(seqs, count)
        for seq in seqs:
            self.alive[seq].deliveries = count

    @rule(limit_bytes=st.sampled_from([1, 200, NO_LIMIT]), upto_seq=st.integers(0, 80))
    def flush(self, limit_bytes: int, upto_seq: int) -> None:
        steps, is_done = self.index.flush(limit_bytes, upto_seq)
        self.submit(steps)
        if is_done:
            assert all(seq >= upto_seq or seq > min(self.unflushed()) for seq in self.unflushed())

    @rule()
    def batch(self) -> None:
        entries, removed, delivered = self.index.take_operations()
        self.journal += [*entries, *delivered, *([removed] if removed else [])]
        self.submit(self.node.persistent.take_steps(turn_ended=True))
        self.submit(self.node.transient.take_steps(turn_ended=True))
        self.submit(self.index.take_steps())
        self.submit(self.index.take_removals())

    @rule(limit=st.integers(1, 3))
    def sync(self, limit: int) -> None:
        self.submit(self.index.sync_steps(limit))

    @rule(count=st.integers(1, 30))
    def disk_goes_on(self, count: int) -> None:
        for _ in range(count):
            self.node.disk.step()

    @rule(segment=st.integers(0, 7), first=st.integers(0, 60), length=st.sampled_from([3, 20, 100]))
    def scan(self, segment: int, first: int, length: int) -> None:
        entries = range(segment * SEGMENT_ENTRIES, (segment + 1) * SEGMENT_ENTRIES)
        expected = {seq for seq in self.in_segments() if seq in entries and first <= seq <= first + length}
        deliveries = {seq: self.alive[seq].deliveries for seq in expected}

        def found(absents: list[Absent]) -> None:
            self.answers += 1
            seqs = [seq for absent in absents for seq in absent.seqs]
            assert seqs == sorted(expected & self.alive.keys())
            for absent in absents:
                self.check(absent)
                assert {deliveries[seq] for seq in absent.seqs} == {absent.deliveries}
            self.runs += absents

        self.asked += 1
        self.index.scan(segment, first, first + length, found)

    @precondition(lambda self: any(isinstance(run, Absent) for run in self.runs))
    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        wanted = [
            run
            for run in self.runs
            if isinstance(run, Absent) and run.seqs[0] in self.alive and run.seqs[-1] in self.alive
        ][-data.draw(st.integers(1, 5)) :]
        wanted = [run for run in wanted if all(seq in self.alive for seq in run.seqs)]
        bodies = [[self.alive[seq].body for seq in absent.seqs] for absent in wanted]

        def loaded(runs: list[Run | None]) -> None:
            self.answers += 1
            for absent, run, expected in zip(wanted, runs, bodies, strict=True):
                if run is None:
                    assert not all(seq in self.alive for seq in absent.seqs)
                    self.node.reports.clear()
                else:
                    assert bodies_of(run) == expected
                    assert (run.seqs, run.is_indexed) == (absent.seqs, True)

        self.asked += 1
        self.index.load(wanted, loaded)

    # --- checks ---

    @invariant()
    def counts(self) -> None:
        kept = sum(message.is_kept for message in self.alive.values())
        assert self.index.unflushed.count <= kept
        assert flushed_count(self.index) == len(self.alive) - self.index.unflushed.count

    def check(self, absent: Absent) -> None:
        messages = [self.alive[seq] for seq in absent.seqs]
        assert absent.body_bytes == sum(len(message.body) for message in messages)
        assert absent.expiry in {message.expiry for message in messages}
        assert {message.is_stored for message in messages} == {absent.place is None}
        assert {message.is_kept for message in messages} == {absent.envelope.persistent}
        assert absent.place is None or absent.store_id == NO_STORE_ID

    def submit(self, steps: Any) -> None:
        self.node.disk.submit(steps, lambda results: None, self.node.on_failed)

    def teardown(self) -> None:
        self.node.disk.settle()
        assert (self.answers, self.node.reports) == (self.asked, [])
        self.all_is_found()
        self.replay_equals_the_model()
        self.drop()

    def all_is_found(self) -> None:
        """Scans and loads give everything that is in segments."""
        found: list[int] = []
        for segment in range(self.next_seq // SEGMENT_ENTRIES + 1):
            absents = self.node.scan(self.index, segment)
            for absent, run in zip(absents, self.node.load(self.index, *absents), strict=True):
                assert run is not None
                assert bodies_of(run) == [self.alive[seq].body for seq in run.seqs]
                found += absent.seqs
        assert found == sorted(self.in_segments())

    def replay_equals_the_model(self) -> None:
        """The journal has what was kept, and after a checkpoint the files have everything."""
        self.batch()
        self.node.disk.settle()
        kept = [seq for seq, message in sorted(self.alive.items()) if message.is_kept]
        assert [seq for entry in Image(self.journal).entries for seq in entry.seqs] == kept
        steps, is_done = self.index.flush(NO_LIMIT, NO_LIMIT)
        assert is_done
        self.node.execute(steps)
        assert not self.index.needs_flush
        files = [path for path in self.node.disk.paths() if path.startswith(DIRECTORY)]
        assert len(files) == len(self.index.segments)
        found: dict[int, Enqueue] = {}
        for file in files:
            for entry in Image(self.node.operations(file)).entries:
                found |= dict.fromkeys(entry.seqs, entry)
        assert found.keys() == self.alive.keys()
        assert all(entry.deliveries == self.alive[seq].deliveries for seq, entry in found.items())

    def drop(self) -> None:
        """No reference is left, and no file."""
        assert self.node.stored == sum(message.is_stored for message in self.alive.values())
        self.index.drop()
        self.node.disk.settle()
        self.submit(self.index.take_removals())
        self.node.disk.settle()
        assert self.node.stored == 0
        assert not any(path.startswith(DIRECTORY) for path in self.node.disk.paths())


TestIndexAgainstModel = IndexAgainstModel.TestCase
TestIndexAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
