"""The five sub-queues against a sorted list, over a storage whose answers come when the test lets them.

The marks § are sections of amqp-behaviour.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from node.queue.number_set import NumberSet
from node.queue.paged_backlog import PagedBacklog
from node.queue.priority_backlog import PriorityBacklog
from node.queue.run import Batch, Run
from node.queue.storage import Page
from tests.kit.messages import bodies_of, content, envelope
from tests.kit.queue_storage import FakeQueueStorage


def drained(backlog: PagedBacklog, storage: FakeQueueStorage) -> list[bytes]:
    """All bodies, in the order in which they come."""
    bodies: list[bytes] = []
    while backlog.count:
        backlog.refill()
        storage.answer_all()
        bodies += bodies_of(backlog.take(3))
    return bodies


def filled(storage: FakeQueueStorage, count: int, *, store_id: int = 0) -> PagedBacklog:
    """Numbered messages from 1 on; persistent ones if they are in the message store."""
    backlog = PagedBacklog(storage, lambda: None)
    shared = envelope()
    contents = [content(b"%03d" % seq) for seq in range(1, count + 1)]
    if store_id:
        storage.keep(Batch(shared, contents, 3, store_id), 1, 9.0)
    backlog.tail.append(Batch(shared, contents, 3, store_id), 1, 9.0, is_indexed=bool(store_id))
    return backlog


def test_without_pressure_there_is_only_q4() -> None:
    """§7.3: alphas at the head."""
    storage = FakeQueueStorage()
    assert filled(storage, 20).lengths() == {"q1": 0, "q2": 0, "delta": 0, "q3": 0, "q4": 20}
    assert storage.entries == {}


def test_the_tail_becomes_delta_and_what_comes_then_is_q1() -> None:
    """§7.3: delta stands between the head and what is newest."""
    storage = FakeQueueStorage()
    backlog = filled(storage, 20)
    backlog.page_out(1 << 40, keep_bytes=15)
    backlog.tail.append(Batch(envelope(), [content(b"new")], 3), 21)
    assert backlog.lengths() == {"q1": 1, "q2": 0, "delta": 14, "q3": 0, "q4": 6}
    assert (backlog.count, backlog.body_bytes) == (21, 63)
    assert drained(backlog, storage) == [b"%03d" % seq for seq in range(1, 21)] + [b"new"]


def test_scanned_pages_are_q3_until_their_contents_are_here() -> None:
    """§7.3: beta and gamma on the way back."""
    storage = FakeQueueStorage()
    backlog = filled(storage, 20)
    backlog.page_out(1 << 40, keep_bytes=0)
    backlog.refill()
    storage.answer()
    assert backlog.lengths() == {"q1": 0, "q2": 0, "delta": 13, "q3": 7, "q4": 0}
    storage.answer()
    assert backlog.lengths() == {"q1": 0, "q2": 0, "delta": 13, "q3": 0, "q4": 7}


def paged_in_parts(storage: FakeQueueStorage) -> PagedBacklog:
    """1 to 3 in memory, 4 to 20 on disk, 21 in memory."""
    backlog = filled(storage, 20)
    backlog.page_out(1 << 40, keep_bytes=9)
    backlog.tail.append(Batch(envelope(), [content(b"new")], 3), 21)
    return backlog


def test_where_messages_are() -> None:
    """For whoever copies them, from some number on, in order."""
    storage = FakeQueueStorage()
    backlog = paged_in_parts(storage)
    in_memory = [run.seqs for run in backlog.in_memory(0)]
    kept = in_memory[0].stop
    assert in_memory == [range(1, kept), range(21, 22)]
    assert [run.seqs for run in backlog.in_memory(kept)] == [range(21, 22)]
    pages = [page for page in backlog.on_disk(0) if isinstance(page, Page)]
    assert [(page.first_seq, page.last_seq) for page in pages] == [(kept, 7), (8, 15), (16, 20)]
    assert list(backlog.on_disk(16)) == pages[2:]
    assert backlog.levels == (backlog,)
    assert sorted(seq for seqs in backlog.ready_ranges() for seq in seqs) == list(range(1, 22))


def test_what_was_taken_of_a_run_is_not_shown() -> None:
    """The first run may be partly gone."""
    backlog = filled(FakeQueueStorage(), 20)
    backlog.take(3)
    assert [run.seqs for run in backlog.in_memory(0)] == [range(4, 21)]


def test_a_purge_says_what_is_gone() -> None:
    """Mirrors are told."""
    storage = FakeQueueStorage()
    gone: list[range] = []
    assert paged_in_parts(storage).clear(gone.append) == 21
    assert sorted(seq for seqs in gone for seq in seqs) == list(range(1, 22))


def test_handing_over_leaves_nothing() -> None:
    """Pages that come from the disk after a hand-over are ignored, and the backlog is empty."""
    storage = FakeQueueStorage()
    backlog = paged_in_parts(storage)
    backlog.refill()
    runs, absents, pages = backlog.hand_over()
    storage.answer_all()
    assert backlog.count == backlog.body_bytes == 0
    assert sum(map(len, runs)) + sum(map(len, absents)) + sum(page.count for page in pages) == 21


def test_what_was_there_before_some_number_is_redelivered() -> None:
    """reliability §1.1 D2, also within a run."""
    storage = FakeQueueStorage()
    backlog = filled(storage, 20)
    backlog.page_out(1 << 40, keep_bytes=0)
    # One record on disk, on both sides of the bound.
    entries = [storage.entries.pop(seq) for seq in (8, 9, 10)]
    joint = Run(entries[0].envelope, range(8, 11), [run.contents[0] for run in entries], 3, 9.0, 0, 0, True)
    backlog.abandon()
    backlog.redelivered_below(10)
    backlog._add_loaded(joint)
    assert [(run.seqs, run.deliveries) for run in backlog.in_memory(0)] == [
        (range(8, 10), 1),
        (range(10, 11), 0),
    ]


def test_contents_of_the_message_store_leave_through_q2() -> None:
    """§7.3: what stands on disk already only lets go of its contents."""
    storage = FakeQueueStorage()
    backlog = filled(storage, 20)
    backlog.page_out(1 << 40, keep_bytes=0)
    shared = envelope()
    contents = [content(b"abc"), content(b"def")]
    storage.keep(Batch(shared, contents, 3, 7), 21, 9.0)
    backlog.tail.append(Batch(shared, contents, 3, 7), 21, 9.0, is_indexed=True)
    backlog.page_out(1 << 40)
    assert backlog.lengths()["q2"] == 2
    backlog.tail.append(Batch(shared, [content(b"ghi")], 3), 23)
    backlog.page_out(1 << 40)
    assert backlog.lengths() == {"q1": 0, "q2": 0, "delta": 23, "q3": 0, "q4": 0}
    assert drained(backlog, storage)[-3:] == [b"abc", b"def", b"ghi"]


def test_what_was_taken_is_not_paged_when_it_comes_back() -> None:
    """§4.11: numbers on disk are above all that were ever taken, so that a requeue finds its place in memory."""
    storage = FakeQueueStorage()
    backlog = filled(storage, 20)
    first, second = backlog.take(3), backlog.take(3)
    backlog.put_back(first)
    backlog.page_out(1 << 40, keep_bytes=0)
    assert backlog.lengths() == {"q1": 0, "q2": 0, "delta": 14, "q3": 0, "q4": 3}
    backlog.put_back(second)
    assert drained(backlog, storage) == [b"%03d" % seq for seq in range(1, 21)]


def test_a_lazy_backlog_holds_only_what_is_asked_for() -> None:
    """§7.3, lazy mode: what came in leaves at once; what consumers need comes back."""
    storage = FakeQueueStorage()
    backlog = PagedBacklog(storage, lambda: None)
    backlog.set_lazy(True)
    for seq in range(1, 21):
        backlog.tail.append(Batch(envelope(), [content(b"%03d" % seq)], 3), seq)
        backlog.page_new()
    assert backlog.lengths() == {"q1": 0, "q2": 0, "delta": 20, "q3": 0, "q4": 0}
    assert drained(backlog, storage) == [b"%03d" % seq for seq in range(1, 21)]
    backlog.tail.append(Batch(envelope(), [content(b"new")], 3), 21)
    backlog.refill()
    assert backlog.at_hand == 1


def test_messages_that_the_disk_lost_no_longer_count() -> None:
    storage = FakeQueueStorage()
    backlog = filled(storage, 20)
    backlog.page_out(1 << 40, keep_bytes=0)
    del storage.entries[9], storage.entries[10]
    assert drained(backlog, storage) == [b"%03d" % seq for seq in range(1, 21) if seq not in (9, 10)]
    assert (backlog.count, backlog.body_bytes) == (0, 0)


def given_up(storage: FakeQueueStorage, backlog: PagedBacklog | PriorityBacklog, *seqs: int) -> None:
    """Messages that can't be read, and are nowhere else."""
    for seq in seqs:
        del storage.entries[seq]
    backlog.go_on(NumberSet([range(seq, seq + 1) for seq in seqs]))


def test_messages_that_were_given_up_no_longer_count() -> None:
    """Messages that were given up no longer count, also where nobody takes any."""
    storage = FakeQueueStorage()
    backlog = filled(storage, 20)
    backlog.page_out(1 << 40, keep_bytes=0)
    given_up(storage, backlog, 9, *range(16, 21))
    assert len(storage.questions) == 1  # one page after the other
    storage.answer_all()
    assert backlog.lengths() == {"q1": 0, "q2": 0, "delta": 14, "q3": 0, "q4": 0}
    assert (backlog.count, backlog.body_bytes) == (14, 42)
    assert drained(backlog, storage) == [b"%03d" % seq for seq in range(1, 16) if seq != 9]


def test_of_which_priority_lost_messages_were() -> None:
    """Pages of several levels have them between their first and last numbers."""
    storage = FakeQueueStorage()
    backlog = PriorityBacklog(storage, lambda: None, 3)
    for seq in range(1, 21):
        backlog.tail.append(Batch(envelope(priority=seq % 2), [content(b"%03d" % seq)], 3), seq)
    backlog.page_out(1 << 40, keep_bytes=0)
    given_up(storage, backlog, 4, 10, 11)
    storage.answer_all()
    assert backlog.priority_lengths() == {0: 8, 1: 9, 2: 0, 3: 0}


def test_pages_that_change_while_they_are_counted_anew() -> None:
    """More is paged out, more is lost, somebody takes messages: none is counted twice, and none forgotten."""
    storage = FakeQueueStorage()
    backlog = filled(storage, 20)
    backlog.page_out(1 << 40, keep_bytes=0)
    given_up(storage, backlog, 17)
    given_up(storage, backlog, 2, 18)
    backlog.tail.append(Batch(envelope(), [content(b"021")], 3), 21)
    backlog.page_new()
    backlog.refill()
    storage.answer_all()
    assert (backlog.count, backlog.body_bytes) == (18, 54)
    assert drained(backlog, storage) == [b"%03d" % seq for seq in range(1, 22) if seq not in (2, 17, 18)]
    assert (backlog.count, backlog.body_bytes) == (0, 0)


def test_counting_anew_waits_for_what_is_not_decided() -> None:
    """Messages that may still be read elsewhere count; those of a purged queue don't."""
    storage = FakeQueueStorage()
    backlog = filled(storage, 20)
    backlog.page_out(1 << 40, keep_bytes=0)
    given_up(storage, backlog, 9)
    storage.unreadable = NumberSet([range(10, 11)])
    lost = storage.entries.pop(10)  # a scan doesn't find it
    storage.answer_all()
    assert backlog.count == 20
    storage.entries[10], storage.unreadable = lost, None
    given_up(storage, backlog, 10)
    backlog.clear()
    storage.answer_all()
    assert backlog.count == 0


def test_a_late_answer_to_a_purged_queue_changes_nothing() -> None:
    storage = FakeQueueStorage()
    backlog = filled(storage, 20)
    backlog.page_out(1 << 40, keep_bytes=0)
    backlog.refill()
    assert backlog.clear() == 20
    assert storage.entries == {}
    backlog.tail.append(Batch(envelope(), [content(b"new")], 3), 21)
    storage.answer_all()
    assert drained(backlog, storage) == [b"new"]


class PagedBacklogMachine(RuleBasedStateMachine):
    """The model: the numbers of the ready messages."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = FakeQueueStorage()
        self.backlog = PagedBacklog(self.storage, lambda: None)
        self.envelopes = [envelope("a"), envelope("b")]
        self.next_seq = 1
        self.next_id = 1000
        self.ready: list[int] = []
        self.bodies: dict[int, bytes] = {}
        self.out: list[Run] = []

    @rule(
        lengths=st.lists(st.integers(0, 3), min_size=1, max_size=12),
        which=st.integers(0, 1),
        kind=st.sampled_from(["transient", "persistent", "stored"]),
    )
    def append(self, lengths: list[int], which: int, kind: str) -> None:
        if kind == "stored":
            lengths = [lengths[0]] * len(lengths)
        bodies = [bytes([self.next_seq % 256]) * length for length in lengths]
        contents = [content(body) for body in bodies]
        size = lengths[0] if len(set(lengths)) == 1 else -1
        store_id = self.next_id if kind == "stored" else 0
        self.next_id += len(lengths)
        batch = Batch(self.envelopes[which], contents, size, store_id)
        if kind != "transient":
            self.storage.keep(batch, self.next_seq, 9.0)
        self.backlog.tail.append(batch, self.next_seq, 9.0, is_indexed=kind != "transient")
        for body in bodies:
            self.bodies[self.next_seq] = body
            self.ready.append(self.next_seq)
            self.next_seq += 1

    @precondition(lambda self: self.backlog.at_hand)
    @rule(limit=st.integers(1, 10))
    def take(self, limit: int) -> None:
        run = self.backlog.take(limit)
        assert list(run.seqs) == self.ready[: len(run)]
        assert bodies_of(run) == [self.bodies[seq] for seq in run.seqs]
        del self.ready[: len(run)]
        self.out.append(run)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        run = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        self.backlog.put_back(run)
        self.ready = sorted([*self.ready, *run.seqs])

    @precondition(lambda self: self.out)
    @rule()
    def settle(self) -> None:
        run = self.out.pop()
        if run.is_indexed:
            self.storage.forget(run.seqs, run.store_id)

    @rule(limit=st.sampled_from([1, 300, 1 << 30]), keep=st.sampled_from([0, 5]))
    def page_out(self, limit: int, keep: int) -> None:
        self.backlog.page_out(limit, keep)

    @rule()
    def page_new(self) -> None:
        self.backlog.page_new()

    @rule(is_lazy=st.booleans())
    def set_lazy(self, is_lazy: bool) -> None:
        self.backlog.set_lazy(is_lazy)

    @rule()
    def refill(self) -> None:
        self.backlog.refill()

    @precondition(lambda self: self.storage.questions)
    @rule()
    def answer(self) -> None:
        self.storage.answer()

    @rule()
    def clear(self) -> None:
        assert self.backlog.clear() == len(self.ready)
        self.ready.clear()

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """Give up messages that are only on disk; they are discounted as soon as the disk has answered."""
        in_memory = {seq for run in self.backlog.in_memory(0) for seq in run.seqs}
        on_disk = [seq for seq in self.ready if seq not in in_memory]
        if on_disk:
            lost = data.draw(st.sets(st.sampled_from(on_disk), min_size=1, max_size=3))
            given_up(self.storage, self.backlog, *sorted(lost))
            self.ready = [seq for seq in self.ready if seq not in lost]
            self.storage.answer_all()

    @invariant()
    def figures_agree(self) -> None:
        assert self.backlog.count == len(self.ready) == sum(self.backlog.lengths().values())
        assert self.backlog.body_bytes == sum(len(self.bodies[seq]) for seq in self.ready)

    def teardown(self) -> None:
        expected = [self.bodies[seq] for seq in self.ready]
        assert drained(self.backlog, self.storage) == expected


TestPagedBacklogAgainstAList = PagedBacklogMachine.TestCase
TestPagedBacklogAgainstAList.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
