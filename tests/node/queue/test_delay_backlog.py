"""The messages of a delayed exchange by the time at which they are due, in memory and on disk."""

from random import Random

import pytest

from node.amqp.reader import MIXED_SIZES
from node.queue.delay_backlog import AHEAD_S, EARLY_S, DelayBacklog
from node.queue.number_set import NumberSet
from node.queue.run import NEVER, Absent, Batch, Envelope, Run
from node.queue.storage import Page
from tests.kit.messages import bodies_of, content
from tests.kit.queue_storage import FakeQueueStorage

ENVELOPE = Envelope("x", "k", channel=1, frame_max_bytes=0, persistent=True)


class Bench:
    """A backlog on a storage that answers when asked to."""

    def __init__(self) -> None:
        self.storage = FakeQueueStorage()
        self.loaded = 0
        self.backlog = DelayBacklog(self.storage, self._loaded)
        self.next_seq = 1

    def _loaded(self) -> None:
        self.loaded += 1

    def add(self, *bodies: bytes, at: float, is_kept: bool = True) -> None:
        """Add messages that are due together."""
        sizes = set(map(len, bodies))
        batch = Batch(ENVELOPE, list(map(content, bodies)), sizes.pop() if len(sizes) == 1 else MIXED_SIZES)
        if is_kept:
            self.storage.keep(batch, self.next_seq, at)
        self.backlog.append(batch, self.next_seq, at, is_kept)
        self.next_seq += len(bodies)

    def due(self, now: float) -> list[bytes]:
        """Take what is due and at hand."""
        taken: list[bytes] = []
        while self.backlog.head_expiry <= now:
            taken += bodies_of(self.backlog.take(100))
        return taken

    def reopened(self) -> "Bench":
        """Return a bench with these messages after a restart, when they are known by number only."""
        other = Bench()
        other.storage.entries = self.storage.entries
        other.next_seq = self.next_seq
        pages: dict[int, Page] = {}
        for seq, run in sorted(self.storage.entries.items()):
            segment = seq // self.storage.segment_entries
            page = Page(segment, 0, seq, seq, 1, run.body_bytes)
            pages[segment] = pages[segment].joined(page) if segment in pages else page
        other.backlog.restore(pages.values())
        return other

    def fetch(self, now: float) -> None:
        """Fetch what is due soon until the disk has nothing more to answer."""
        self.backlog.fetch(now)
        while self.storage.questions:
            self.storage.questions.popleft()()
            if not self.storage.questions:
                self.backlog.fetch(now)


def test_messages_leave_by_time_and_ties_in_the_order_of_arrival() -> None:
    bench = Bench()
    bench.add(b"late", at=30.0)
    bench.add(b"a", b"b", at=10.0)
    bench.add(b"early", at=5.0)
    bench.add(b"c", at=10.0)
    assert bench.backlog.count == 5
    assert bench.backlog.head_expiry == 5.0
    assert bench.due(4.9) == []
    assert bench.due(10.0) == [b"early", b"a", b"b", b"c"]
    assert bench.backlog.count == 1
    assert bench.due(30.0) == [b"late"]
    assert (bench.backlog.count, bench.backlog.body_bytes, bench.backlog.head_expiry) == (0, 0, NEVER)


def test_a_run_is_taken_in_pieces() -> None:
    """The rest keeps its place before what came later."""
    bench = Bench()
    bench.add(b"a", b"b", b"c", at=1.0)
    bench.add(b"d", at=1.0, is_kept=False)
    assert bodies_of(bench.backlog.take(2)) == [b"a", b"b"]
    assert bench.backlog.at_hand == 1
    assert bodies_of(bench.backlog.take(2)) == [b"c"]
    assert bodies_of(bench.backlog.take(2)) == [b"d"]


def test_a_long_run_can_be_read_from_any_number() -> None:
    """A mirror that joins reads pieces from any number on."""
    bench = Bench()
    count = 10_000
    bench.add(*(b"x" for _ in range(count)), at=1.0, is_kept=False)
    for first in (0, 1, 4095, 4096, 9_000, count):
        (run, *others) = bench.backlog.in_memory(first)
        assert run.seqs.start <= max(first, 1) <= run.seqs[-1]
        assert [piece.seqs.start for piece in others] == sorted(piece.seqs.start for piece in others)
        assert (others or [run])[-1].seqs[-1] == count
    assert list(bench.backlog.in_memory(count + 1)) == []


def test_after_a_restart_nothing_leaves_before_all_times_are_known() -> None:
    """The last segment may have what is due first."""
    bench = Bench()
    for number in range(20):
        bench.add(b"%d" % number, at=100.0 - number)
    again = bench.reopened()
    backlog = again.backlog
    assert (backlog.count, backlog.head_expiry, backlog.look_again_at) == (20, NEVER, -NEVER)
    backlog.fetch(200.0)
    again.storage.questions.popleft()()
    assert backlog.head_expiry == NEVER, "two more segments are to be read"
    again.fetch(200.0)
    assert again.due(200.0) == [b"%d" % number for number in reversed(range(20))]
    assert (backlog.count, backlog.body_bytes, backlog.is_paged) == (0, 0, False)


def test_only_what_is_due_soon_comes_from_disk() -> None:
    bench = Bench()
    for at in range(0, 10_000, 100):
        bench.add(b"%d" % at, at=float(at))
    again = bench.reopened()
    again.fetch(920.0)
    assert again.backlog.lengths()["q4"] == 10
    assert again.backlog.count == 100
    assert again.due(920.0) == [b"%d" % at for at in range(0, 1000, 100)]
    assert again.backlog.look_again_at == 1000.0 - AHEAD_S
    again.fetch(again.backlog.look_again_at)
    assert again.backlog.head_expiry == 1000.0


def test_with_what_is_due_soon_comes_what_is_due_next_in_its_segment() -> None:
    """A fetch reads a whole segment; not while memory is short, and nothing goes out before its time."""
    bench = Bench()
    for number in range(1, 17):  # the first segment has numbers to 7, the last one only 16
        bench.add(b"%d" % number, at=number * EARLY_S / 4)
    again = bench.reopened()
    again.fetch(EARLY_S / 4)
    assert again.backlog.lengths()["q4"] == 5, "the other segments are not read"
    assert again.due(EARLY_S / 4) == [b"1"]
    assert again.backlog.page_out(1 << 30) > 0
    assert again.backlog.lengths()["q4"] == 0
    again.fetch(EARLY_S / 2)
    assert again.backlog.lengths()["q4"] == 1
    seen = again.due(EARLY_S / 2)
    for now in range(3, 17):
        again.fetch(now * EARLY_S / 4)
        seen += again.due(now * EARLY_S / 4)
    assert seen == [b"%d" % number for number in range(2, 17)]


def test_what_follows_and_is_due_at_the_same_time_joins_the_run() -> None:
    """A publisher of single messages makes few runs; not from one chunk into the next, nor with other traits."""
    bench = Bench()
    bench.add(b"a", at=1.0)
    bench.add(b"bb", b"c", at=1.0)
    bench.add(b"d", at=1.0, is_kept=False)
    bench.add(b"e", at=2.0, is_kept=False)
    assert [run.seqs for run in bench.backlog.in_memory(0)] == [range(1, 4), range(4, 5), range(5, 6)]
    assert bodies_of(bench.backlog.take(2)) == [b"a", b"bb"]
    bench.add(b"f", at=2.0, is_kept=False)
    assert (bench.backlog.count, bench.backlog.body_bytes) == (4, 4)
    assert bench.due(2.0) == [b"c", b"d", b"e", b"f"]
    bench.next_seq = 4090
    for _ in range(12):
        bench.add(b"x", at=3.0)
    assert [run.seqs for run in bench.backlog.in_memory(0)] == [range(4090, 4096), range(4096, 4102)]


def test_what_comes_in_meanwhile_waits_for_what_is_due_before_on_disk() -> None:
    bench = Bench()
    bench.add(b"old", at=10.0)
    again = bench.reopened()
    again.fetch(0.0)
    again.add(b"new", at=10.0)
    again.add(b"before", at=9.0)
    assert again.due(10.0) == [b"before"]
    assert again.backlog.at_hand == 0
    again.fetch(10.0)
    assert again.due(10.0) == [b"old", b"new"]


def test_messages_that_are_not_due_soon_leave_memory_and_come_back() -> None:
    """Paging: transient ones too."""
    bench = Bench()
    bench.fetch(0.0)
    dice = Random(5)
    times = [float(dice.randrange(1, 100)) for _ in range(60)]
    for number, at in enumerate(times):
        bench.add(b"%03d" % number, at=at, is_kept=bool(number % 2))
    before = bench.backlog.body_bytes
    assert bench.backlog.page_out(1 << 30) > 0
    assert bench.backlog.lengths()["q4"] == sum(at <= AHEAD_S for at in times), "what is due soon stays"
    assert (bench.backlog.count, bench.backlog.body_bytes) == (60, before)
    expected = [body for _, _, body in sorted((at, n, b"%03d" % n) for n, at in enumerate(times))]
    seen: list[bytes] = []
    for now in range(100):
        bench.fetch(float(now))
        seen += bench.due(float(now))
    assert seen == expected
    assert bench.backlog.count == 0


def test_paging_stops_when_enough_is_out() -> None:
    bench = Bench()
    for number in range(50):
        bench.add(b"x" * 100, at=50.0 + number)
    assert 1000 <= bench.backlog.page_out(1000) < 1500
    assert bench.backlog.lengths()["delta"] == 5


def test_a_great_many_that_are_due_together_come_in_several_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is a smaller one than the product's, of which each message costs three milliseconds here."""
    monkeypatch.setattr("node.queue.delay_backlog.FETCHED_MAX", 200)
    bench = Bench()
    count = 2 * 200 + 10
    for number in range(count):
        bench.add(b"%d" % number, at=1.0)
    bench.backlog.page_out(1 << 30)
    bench.fetch(1.0)
    seen = bench.due(1.0)
    assert seen == [b"%d" % number for number in range(count)]


def test_messages_that_the_disk_has_lost_no_longer_count() -> None:
    bench = Bench()
    for number in range(4):
        bench.add(b"%d" % number, at=1.0)
    again = bench.reopened()
    again.fetch(-50.0)
    del again.storage.entries[2]
    again.fetch(1.0)
    assert again.due(1.0) == [b"0", b"2", b"3"]
    assert (again.backlog.count, again.backlog.body_bytes) == (0, 0)


@pytest.mark.parametrize("is_paged", [False, True])
def test_purging_forgets_what_waits_and_nothing_else(is_paged: bool) -> None:
    """A message that has left is not forgotten before its targets have it."""
    bench = Bench()
    bench.add(b"out", at=1.0)
    bench.add(b"b", b"c", at=50.0)
    out = bench.backlog.take(1)
    if is_paged:
        bench.backlog.page_out(1 << 30)
    gone: list[range] = []
    assert bench.backlog.clear(gone.append) == 2
    while bench.storage.questions:
        bench.storage.questions.popleft()()
    assert sorted(seq for seqs in gone for seq in seqs) == [2, 3]
    assert list(bench.storage.entries) == [out.seqs[0]]
    assert (bench.backlog.count, bench.backlog.head_expiry) == (0, NEVER)


@pytest.mark.parametrize("is_paged", [False, True])
@pytest.mark.parametrize("gone", [1, 2, 3, 4])
def test_a_single_message_can_be_withdrawn(gone: int, is_paged: bool) -> None:
    """From either end of a run, from within, and one that is a run of its own."""
    bench = Bench()
    bench.add(b"1", b"2", b"3", at=50.0)
    bench.add(b"4", at=40.0)
    if is_paged:
        bench.backlog.page_out(1 << 30)
    found: list[Run | Absent | None] = []
    assert bench.backlog.withdraw(gone, found.append)
    while bench.storage.questions:
        bench.storage.questions.popleft()()
    (message,) = found
    assert message is not None
    assert message.seqs == range(gone, gone + 1)
    bench.storage.forget(message.seqs, message.store_id)
    assert (bench.backlog.count, bench.backlog.body_bytes) == (3, 3)
    assert bench.backlog.withdraw(gone, found.append)
    assert bench.backlog.withdraw(1000, found.append)
    assert found[1:] == [None, None]
    bench.fetch(50.0)
    assert bench.due(50.0) == [body for body in (b"4", b"1", b"2", b"3") if body != b"%d" % gone]
    assert (bench.backlog.count, bench.backlog.body_bytes, bench.backlog.is_paged) == (0, 0, False)


def test_while_the_disk_is_asked_nothing_can_be_withdrawn_from_it() -> None:
    """The message may be on its way into memory. One that is there can go."""
    bench = Bench()
    bench.add(b"a", b"b", at=1.0)
    again = bench.reopened()
    found: list[Run | Absent | None] = []
    assert not again.backlog.withdraw(1, found.append)
    again.fetch(-50.0)
    again.backlog.fetch(1.0)
    assert not again.backlog.withdraw(1, found.append)
    again.add(b"c", at=9.0)
    assert again.backlog.withdraw(3, found.append)
    assert [message is not None for message in found] == [True]
    again.fetch(1.0)
    assert again.due(9.0) == [b"a", b"b"]


def test_an_answer_that_comes_after_the_end_is_ignored() -> None:
    bench = Bench()
    bench.add(b"a", at=1.0)
    again = bench.reopened()
    again.backlog.fetch(1.0)
    again.backlog.close()
    again.storage.questions.popleft()()
    assert again.backlog.count == 0
    assert again.loaded == 0


def test_handing_over_gives_runs_and_pages() -> None:
    """When another node becomes the master."""
    bench = Bench()
    bench.add(b"a", at=90.0)
    bench.backlog.page_out(1 << 30)
    bench.add(b"b", at=10.0)
    assert NumberSet(bench.backlog.ready_ranges()).ranges() == [range(1, 3)]
    had = bench.backlog.hand_over()
    assert [run.seqs for run in had.runs] == [range(2, 3)]
    assert [(page.first_seq, page.count) for page in had.pages] == [(1, 1)]
    assert bench.backlog.count == 0


def test_unreadable_messages_are_waited_for_until_they_are_given_up() -> None:
    bench = Bench()
    bench.add(b"a", b"b", at=1.0)
    again = bench.reopened()
    again.storage.unreadable = NumberSet([range(1, 2)])
    again.fetch(1.0)
    assert again.due(1.0) == []
    del again.storage.entries[1]
    again.storage.unreadable = None
    again.backlog.go_on(NumberSet([range(1, 2)]))
    again.fetch(1.0)
    assert again.due(1.0) == [b"b"]
    assert again.backlog.count == 0


@pytest.mark.parametrize("seed", range(30))
def test_any_history_gives_each_message_once_and_in_order(seed: int) -> None:
    """Publishes, paging, answers of the disk, restarts and time in any order, beside a sorted list."""
    dice = Random(seed)
    bench = Bench()
    now = 0.0
    expected: list[tuple[float, int, bytes]] = []
    taken: list[bytes] = []
    for _ in range(300):
        step = dice.randrange(8)
        if step <= 2:
            at = round(now + dice.choice((0.0, 0.5, 1.0, 3.0, 7.0, 20.0)), 6)
            bodies = [b"%d" % (bench.next_seq + index) for index in range(dice.randrange(1, 4))]
            expected += [(at, bench.next_seq + index, body) for index, body in enumerate(bodies)]
            bench.add(*bodies, at=at)
        elif step == 3:
            bench.backlog.page_out(dice.choice((1, 300, 1 << 30)))
        elif step == 4:
            bench.backlog.fetch(now)
        elif step == 5 and bench.storage.questions:
            bench.storage.questions.popleft()()
        elif step == 6 and not dice.randrange(10):
            bench = bench.reopened()
        elif step == 7:
            now += dice.choice((0.1, 1.0, 4.0))
        while bench.backlog.head_expiry <= now and dice.randrange(6):
            run = bench.backlog.take(dice.randrange(1, 3))
            bench.storage.forget(run.seqs, run.store_id)
            taken += bodies_of(run)
            for body in bodies_of(run):
                first = min(expected)
                assert body == first[2]
                expected.remove(first)
        assert bench.backlog.count == len(expected)
        held = NumberSet(bench.backlog.ready_ranges())
        assert all(number in held for _, number, _ in expected)
    bench.fetch(1e9)
    taken += bench.due(1e9)
    assert len(taken) == bench.next_seq - 1
    assert (bench.backlog.count, bench.backlog.body_bytes, bench.backlog.is_paged) == (0, 0, False)
