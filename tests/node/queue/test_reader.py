"""Messages by number from a queue that changes all the time, against a dictionary of all that there ever was."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from node.amqp.reader import MIXED_SIZES
from node.catalogue.policy import QueueSettings
from node.queue.paged_backlog import PagedBacklog
from node.queue.priority_backlog import PriorityBacklog
from node.queue.reader import RUNS_MAX, Found, QueueReader
from node.queue.run import NEVER, Batch, Run
from node.queue.storage import QueueStorage
from tests.kit.messages import bodies_of, content, envelope, run_of
from tests.kit.queue_storage import MUCH, SegmentStorage


@dataclass
class Reading:
    """A queue to be read from, and what clients have of it."""

    storage: QueueStorage
    settings: QueueSettings = field(default_factory=QueueSettings)
    away: list[Run] = field(default_factory=list)
    asked: int = 0
    now: float = 0.0

    def __post_init__(self) -> None:
        top = self.settings.max_priority
        self.backlog = (
            PagedBacklog(self.storage, lambda: None)
            if top is None
            else PriorityBacklog(self.storage, lambda: None, top)
        )
        self.reader = QueueReader(self, self._unsettled)

    def _unsettled(self) -> Iterable[Run]:
        self.asked += 1
        return list(self.away)

    def fill(self, count: int, *, first_seq: int = 1) -> None:
        contents = [content(b"%03d" % seq) for seq in range(first_seq, first_seq + count)]
        self.backlog.tail.append(Batch(envelope(), contents, 3), first_seq)

    def ask(self, *wanted: range, max_bytes: int = MUCH) -> list[Found]:
        found: list[Found] = []
        self.reader.read(wanted, max_bytes, self.now, found.append)
        return found


def in_memory(count: int) -> Reading:
    reading = Reading(SegmentStorage())
    reading.fill(count)
    return reading


def on_disk(count: int) -> tuple[Reading, SegmentStorage]:
    storage = SegmentStorage()
    reading = Reading(storage)
    reading.fill(count)
    reading.backlog.page_out(MUCH, 0)
    return reading, storage


def numbers(found: Sequence[Found]) -> list[int]:
    [one] = found
    return [seq for run in one.runs for seq in run.seqs]


# --- in memory --------------------------------------------------------------------------------------------


def test_messages_in_memory_are_found_at_once_and_nobody_is_asked_for_more() -> None:
    reading = in_memory(10)
    found = reading.ask(range(2, 4), range(7, 9))
    assert numbers(found) == [2, 3, 7, 8]
    assert bodies_of(found[0].runs[0]) == [b"002", b"003"]
    assert found[0].upto == 9
    assert reading.asked == 0


def test_what_is_read_is_the_readers_own() -> None:
    """The queue grows its last run in place, and lets go of what was consumed."""
    reading = in_memory(3)
    [found] = reading.ask(range(1, 10))
    reading.fill(2, first_seq=4)
    reading.backlog.take(2)
    assert bodies_of(found.runs[0]) == [b"001", b"002", b"003"]


def test_a_partly_consumed_run_gives_what_is_left_of_it() -> None:
    reading = in_memory(10)
    reading.backlog.take(4)
    assert numbers(reading.ask(range(1, 20))) == [5, 6, 7, 8, 9, 10]


def test_a_read_ends_where_its_bytes_do() -> None:
    reading = in_memory(10)
    each = len(content(b"000"))
    [found] = reading.ask(range(1, 11), max_bytes=3 * each)
    assert (numbers([found]), found.upto) == ([1, 2, 3], 4)
    [found] = reading.ask(range(1, 11), max_bytes=3 * each + each // 2)
    assert (numbers([found]), found.upto) == ([1, 2, 3], 4)


def test_a_read_takes_a_bounded_number_of_runs() -> None:
    """Each message with an envelope of its own costs as much as a run of thousands."""
    reading = Reading(SegmentStorage(), QueueSettings(max_priority=1))
    for seq in range(1, 2 * RUNS_MAX + 1):
        reading.backlog.tail.append(Batch(envelope(priority=seq % 2), [content(b"%04d" % seq)], 4), seq)
    found = reading.ask(range(1, 5000))
    assert (numbers(found), found[0].upto) == ([*range(1, RUNS_MAX + 1)], RUNS_MAX + 1)
    reading.away += [reading.backlog.take(1) for _ in range(RUNS_MAX)]
    found = reading.ask(range(1, 5000))
    assert (numbers(found), found[0].upto) == ([*range(1, RUNS_MAX + 1)], RUNS_MAX + 1)


def test_a_larger_message_comes_alone() -> None:
    reading = Reading(SegmentStorage())
    reading.backlog.tail.append(
        Batch(envelope(), [content(b"x" * 9), content(b"x" * 9000), content(b"x")], MIXED_SIZES), 1
    )
    assert [numbers(reading.ask(range(seq, 4), max_bytes=100)) for seq in (1, 2, 3)] == [[1], [2], [3]]


def test_levels_of_a_priority_queue_are_read_in_order_of_numbers() -> None:
    reading = Reading(SegmentStorage(), QueueSettings(max_priority=5))
    for seq in range(1, 9):
        reading.backlog.tail.append(Batch(envelope(priority=seq % 3), [content(b"%03d" % seq)], 3), seq)
    assert numbers(reading.ask(range(2, 8))) == [2, 3, 4, 5, 6, 7]


# --- with clients -----------------------------------------------------------------------------------------


def test_what_clients_have_is_found_and_asked_for_once_in_a_while() -> None:
    reading = in_memory(10)
    reading.away.append(reading.backlog.take(3))
    assert numbers(reading.ask(range(1, 6))) == [1, 2, 3, 4, 5]
    reading.away.append(reading.backlog.take(1))
    assert numbers(reading.ask(range(1, 6))) == [1, 2, 3, 5]
    assert reading.asked == 1
    reading.now = 0.2
    assert numbers(reading.ask(range(1, 6))) == [1, 2, 3, 4, 5]
    assert reading.asked == 2


def test_a_round_robin_over_consumers_leaves_every_second_number() -> None:
    reading = Reading(SegmentStorage())
    reading.away += [
        run_of(b"2", b"4", b"6", first_seq=2, step=2),
        run_of(b"1", b"3", b"5", first_seq=1, step=2),
        run_of(b"7", first_seq=7, step=5),
    ]
    [found] = reading.ask(range(2, 6), range(7, 20))
    assert [(run.seqs, bodies_of(run)) for run in found.runs] == [
        (range(seq, seq + 1), [b"%d" % seq]) for seq in (2, 3, 4, 5, 7)
    ]


def test_settled_messages_inside_an_open_run_are_not_found() -> None:
    reading = Reading(SegmentStorage())
    run = run_of(b"1", b"2", b"3", b"4", b"5")
    run.contents[1:3] = [None, None]  # type: ignore[list-item]
    reading.away.append(run)
    [found] = reading.ask(range(1, 6))
    assert [run.seqs for run in found.runs] == [range(1, 2), range(4, 6)]


# --- on disk ----------------------------------------------------------------------------------------------


def test_a_segment_is_scanned_once_however_many_reads_it_takes() -> None:
    reading, storage = on_disk(20)
    got: list[int] = []
    at = 1
    while at < 21:
        found = reading.ask(range(at, min(at + 3, 21)))
        storage.answer_all()
        got += numbers(found)
        at = found[0].upto
    assert got == list(range(1, 21))
    assert storage.scans == [0, 1, 2]
    assert storage.loaded == 20
    assert reading.backlog.lengths()["delta"] == 20  # undisturbed


def test_no_more_than_fits_is_loaded() -> None:
    reading, storage = on_disk(7)
    found = reading.ask(range(1, 8), max_bytes=3 * 150)
    storage.answer_all()
    assert numbers(found) == [1, 2, 3]
    assert storage.loaded == 3


def test_messages_of_other_sizes_in_one_record_are_loaded_together() -> None:
    storage = SegmentStorage()
    reading = Reading(storage)
    contents = [content(b"x" * seq) for seq in range(7)]
    reading.backlog.tail.append(Batch(envelope(), contents, MIXED_SIZES), 1)
    reading.backlog.page_out(MUCH, 0)
    found = reading.ask(range(2, 4), range(6, 7))
    storage.answer_all()
    assert numbers(found) == [2, 3, 6]
    assert [bodies_of(run) for run in found[0].runs] == [[b"x", b"xx"], [b"x" * 5]]


def test_what_was_purged_during_a_scan_is_not_loaded() -> None:
    """A forgotten message's contents may be gone from the disk: to look for them would look like damage."""
    reading, storage = on_disk(7)
    found = reading.ask(range(1, 8))
    reading.backlog.clear()
    storage.answer_all()
    assert numbers(found) == []
    assert storage.loaded == 0
    reading.fill(3, first_seq=8)
    reading.backlog.page_out(MUCH, 0)
    found = reading.ask(range(1, 20))
    storage.answer_all()
    assert numbers(found) == [8, 9, 10]


def test_what_was_purged_since_a_scan_is_not_loaded() -> None:
    reading, storage = on_disk(7)
    reading.ask(range(1, 3))
    storage.answer_all()
    reading.backlog.clear()
    found = reading.ask(range(1, 8))
    assert numbers(found) == []


def test_what_another_level_has_lost_since_a_scan_is_not_loaded() -> None:
    """Pages of two levels name the same numbers."""
    storage = SegmentStorage()
    reading = Reading(storage, QueueSettings(max_priority=1))
    for seq in range(1, 7):
        reading.backlog.tail.append(Batch(envelope(priority=seq % 2), [content(b"%03d" % seq)], 3), seq)
    reading.backlog.page_out(MUCH, 0)
    reading.ask(range(1, 2))
    storage.answer_all()
    reading.backlog.refill()
    storage.answer_all()
    for _ in range(3):
        storage.forget(reading.backlog.take(1).seqs, 0)  # 1, 3 and 5
    found = reading.ask(range(1, 7))
    storage.answer_all()
    assert numbers(found) == [2, 4, 6]


def test_what_came_to_the_head_during_a_scan_is_found_there() -> None:
    reading, storage = on_disk(7)
    found = reading.ask(range(1, 8))
    reading.backlog.refill()
    storage.answer()
    storage.answer_all()
    assert numbers(found) == [1, 2, 3, 4, 5, 6, 7]


def test_what_came_to_the_head_during_a_load_is_found_by_the_next_read() -> None:
    """A client settled a message of the same run: a run is loaded as a whole, or not."""
    reading, storage = on_disk(4)
    found = reading.ask(range(1, 5))
    reading.backlog.refill()
    storage.answer()  # the reader's scan
    storage.answer()  # the backlog's, which asks for contents after the reader did
    load = storage.questions.popleft()
    storage.answer_all()
    storage.forget(reading.backlog.take(1).seqs, 0)
    load()
    assert (numbers(found), found[0].upto) == ([], 5)
    assert numbers(reading.ask(range(1, 5))) == [2, 3, 4]


def test_what_the_disk_lost_is_not_found_and_ends_no_read() -> None:
    reading, storage = on_disk(7)
    found = reading.ask(range(1, 8))
    storage.answer()
    del storage.entries[3]
    storage.answer()
    assert (numbers(found), found[0].upto) == ([], 8)  # with its record
    found = reading.ask(range(1, 3))
    storage.answer_all()
    assert numbers(found) == [1, 2]


def test_a_resting_reader_keeps_nothing() -> None:
    reading, storage = on_disk(7)
    reading.ask(range(1, 8))
    storage.answer_all()
    reading.reader.rest()
    reading.ask(range(1, 8))
    assert storage.scans == [0, 0]


# --- against a model --------------------------------------------------------------------------------------


class ReaderMachine(RuleBasedStateMachine):
    """bodies: of all messages ever.   live: numbers of those that aren't done with.   still: those of them, since the
    read began, that no client was given."""

    @initialize(top=st.sampled_from([None, 2]))
    def begin(self, top: int | None) -> None:
        self.storage = SegmentStorage()
        self.reading = Reading(self.storage, QueueSettings(max_priority=top))
        self.backlog = self.reading.backlog
        self.envelopes = [envelope("a"), envelope("b", priority=1), envelope("c", priority=7)]
        self.next_seq = 1
        self.next_id = 1000
        self.bodies: dict[int, bytes] = {}
        self.live: set[int] = set()
        self.still: set[int] = set()
        self.out = self.reading.away
        self.wanted: list[range] = []
        self.max_bytes = 0
        self.found: list[Found] | None = None

    @rule(
        lengths=st.lists(st.integers(0, 3), min_size=1, max_size=12),
        which=st.integers(0, 2),
        kind=st.sampled_from(["transient", "persistent", "stored"]),
    )
    def append(self, lengths: list[int], which: int, kind: str) -> None:
        if kind == "stored":
            lengths = [lengths[0]] * len(lengths)
        bodies = [bytes([self.next_seq % 256]) * length for length in lengths]
        contents = [content(body) for body in bodies]
        size = lengths[0] if len(set(lengths)) == 1 else MIXED_SIZES
        store_id = self.next_id if kind == "stored" else 0
        self.next_id += len(lengths)
        shared, is_kept = self.envelopes[which], kind != "transient"
        if is_kept:
            self.storage.keep(Batch(shared, contents, size, store_id), self.next_seq, NEVER)
        self.backlog.tail.append(Batch(shared, contents, size, store_id), self.next_seq, is_indexed=is_kept)
        for body in bodies:
            self.bodies[self.next_seq] = body
            self.live.add(self.next_seq)
            self.next_seq += 1

    @precondition(lambda self: self.backlog.at_hand)
    @rule(limit=st.integers(1, 10), is_split=st.booleans())
    def take(self, limit: int, is_split: bool) -> None:
        run = self.backlog.take(limit)
        self.out += [run[::2], run[1::2]] if is_split and len(run) > 1 else [run]
        self.still.difference_update(run.seqs)

    @precondition(lambda self: self.out)
    @rule()
    def put_back(self) -> None:
        run = self.out.pop()
        if None in run.contents:
            self.out.append(run)
        else:
            self.backlog.put_back(run)

    @precondition(lambda self: self.out)
    @rule()
    def settle(self) -> None:
        run = self.out.pop()
        for at, seq in enumerate(run.seqs):
            if run.contents[at] is not None and run.is_indexed:
                self.storage.forget(range(seq, seq + 1), 0)
        self.live.difference_update(run.seqs)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def settle_one(self, data: st.DataObject) -> None:
        run = self.out[-1]
        at = data.draw(st.integers(0, len(run.contents) - 1))
        if run.contents[at] is None:
            return
        run.contents[at] = None  # type: ignore[call-overload]
        if run.is_indexed:
            self.storage.forget(run.seqs[at : at + 1], 0)
        self.live.discard(run.seqs[at])

    @rule(limit=st.sampled_from([1, 300, MUCH]), keep=st.sampled_from([0, 5]))
    def page_out(self, limit: int, keep: int) -> None:
        self.backlog.page_out(limit, keep)

    @rule(is_lazy=st.booleans())
    def set_lazy(self, is_lazy: bool) -> None:
        self.backlog.set_lazy(is_lazy)
        self.backlog.page_new()

    @rule()
    def refill(self) -> None:
        self.backlog.refill()

    @precondition(lambda self: self.storage.questions)
    @rule()
    def answer(self) -> None:
        self.storage.answer()
        self.check()

    @rule(is_meant=st.integers(0, 9))
    def clear(self, is_meant: int) -> None:
        if not is_meant:
            self.storage.answer_all()  # the backlog's own forgetting of a level waits for a scan
            self.check()
            self.live = {seq for run in self.out for seq in self._open(run)}
            self.backlog.clear()
            self.storage.answer_all()

    def _open(self, run: Run) -> Iterable[int]:
        return (seq for seq, raw in zip(run.seqs, run.contents, strict=True) if raw is not None)

    @precondition(lambda self: self.found is None and self.next_seq > 1)
    @rule(data=st.data(), max_bytes=st.sampled_from([1, 60, 300, MUCH]))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        bounds = data.draw(st.sets(st.integers(1, self.next_seq + 3), min_size=2, max_size=8))
        edges = sorted(bounds)[: len(bounds) // 2 * 2]
        self.wanted = [range(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True)]
        self.max_bytes = max_bytes
        self.still = set(self.live)
        self.storage.torn.clear()
        self.reading.now += 1
        self.found = self.reading.ask(*self.wanted, max_bytes=max_bytes)
        self.check()

    def check(self) -> None:
        if not self.found:
            return
        [found] = self.found
        self.found = None
        seqs = [seq for run in found.runs for seq in run.seqs]
        assert seqs == sorted(set(seqs))
        assert all(run.seqs.step == 1 for run in found.runs)
        for run in found.runs:
            assert bodies_of(run) == [self.bodies[seq] for seq in run.seqs]
            assert run.size == MIXED_SIZES or all(len(body) == run.size for body in bodies_of(run))
        assert len(seqs) == 1 or sum(len(raw) for run in found.runs for raw in run.contents) <= self.max_bytes
        named = {seq for part in self.wanted for seq in part if seq < found.upto}
        assert named >= set(seqs)
        assert named
        assert not (self.still & self.live & named) - set(seqs) - self.storage.torn

    def teardown(self) -> None:
        if hasattr(self, "storage"):
            self.storage.answer_all()
            self.check()
            assert self.found is None


TestReaderAgainstAllThatThereWas = ReaderMachine.TestCase
TestReaderAgainstAllThatThereWas.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
