"""A mirror's side of a synchronisation; then both sides with a real queue and a real copy."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import pytest

from cluster.mirror.copy import Copy
from cluster.mirror.side import RANGES_MAX, Chunk, Pull, decode_side
from cluster.mirror.sync_target import (
    CONGESTED_S,
    REFUSED_S,
    RETRY_MAX_S,
    RETRY_S,
    STUCK_S,
    Spare,
    SyncTarget,
)
from node.amqp.reader import MIXED_SIZES
from node.catalogue.records import QueueRecord
from node.queue.mirroring import SyncProgress
from node.queue.number_set import NumberSet
from node.queue.operations import Enqueue
from node.queue.run import Batch, Envelope
from node.queue.storage import MemoryStorage
from tests.cluster.mirror.test_sync_source import Master
from tests.kit.messages import bodies_of, content, envelope
from tests.kit.queue_storage import MUCH, SegmentStorage
from tests.kit.store_bench import EMBED_MAX_BYTES, Bench


class FakeCopy:
    """Holds the numbers that are missing, and records those that came."""

    def __init__(self, *missing: range) -> None:
        self.missing: NumberSet | None = NumberSet(missing)
        self.installed: list[int] = []
        self.epoch_s = 7.0

    def install(self, entries: Iterable[Enqueue]) -> None:
        assert self.missing is not None
        for entry in entries:
            for part in self.missing.intersection(entry.seqs):
                self.installed += part
                self.missing.discard(part)


class Mirror:
    """A target whose messages to the master are in `sent`."""

    def __init__(self, *missing: range, has_inventory: bool = True, spare: Spare | None = None) -> None:
        self.copy = FakeCopy(*missing)
        if not has_inventory:
            self.copy.missing = None
        self.sent: list[Pull] = []
        self.done = 0
        self.is_congested = False
        self.target = SyncTarget(
            self.copy,
            self._send,
            has_inventory=has_inventory,
            on_done=self._done,
            is_congested=lambda: self.is_congested,
            spare=spare,
        )
        self.target.tick(100.0)

    def _send(self, raw: bytes) -> None:
        message = decode_side(raw)
        assert isinstance(message, Pull)
        self.sent.append(message)

    def _done(self) -> None:
        self.done += 1

    def take(self) -> list[Pull]:
        sent, self.sent = self.sent, []
        return sent

    def give(self, *seqs: int, request: int | None = None, is_end: bool = False) -> None:
        entries = tuple(Enqueue(envelope(), seq, [content(b"x")], 1, 1, 1) for seq in seqs)
        known = self.target._request if request is None else request
        self.target.chunk(Chunk(known, entries, is_end))

    @property
    def wait_s(self) -> float:
        return self.target.due_at - 100.0


# --- asking -----------------------------------------------------------------------------------------------


def test_what_is_missing_is_pulled_and_each_chunk_taken() -> None:
    mirror = Mirror(range(1, 5), range(7, 9))
    assert mirror.target.start()
    assert mirror.take() == [Pull(1, (range(1, 5), range(7, 9)), 0, 0, 6)]
    mirror.give(1, 2)
    assert mirror.take() == [Pull(1, (), 1, 2, 4)]
    assert mirror.target.progress == SyncProgress(2, 6, is_running=True)
    mirror.give(3, 4, 7, 8, is_end=True)
    assert mirror.take() == [Pull(2, (), 0, 6, 0)]  # the master may let go
    assert (mirror.done, mirror.target.progress) == (1, SyncProgress(6, 6, is_running=False))


def test_a_million_fragments_are_pulled_piece_by_piece_in_rising_order() -> None:
    mirror = Mirror(*(range(seq, seq + 1) for seq in range(1, 5 * RANGES_MAX, 2)))
    mirror.target.start()
    asked: list[int] = []
    for _ in range(3):
        [pull] = mirror.take()
        assert len(pull.ranges) <= RANGES_MAX
        seqs = [part.start for part in pull.ranges]
        asked += seqs
        mirror.give(*seqs, is_end=True)
    assert asked == list(range(1, 5 * RANGES_MAX, 2))
    assert mirror.done == 1


def test_what_was_not_found_is_asked_for_again_after_a_while() -> None:
    """contract: 100 ms; less and less often while nothing comes."""
    mirror = Mirror(range(1, 5))
    mirror.target.start()
    mirror.take()
    mirror.give(2, 3, is_end=True)
    assert mirror.take() == []
    assert mirror.wait_s == pytest.approx(RETRY_S)
    waits, now = [], 100.0
    for _ in range(9):
        now = mirror.target.due_at
        mirror.target.tick(now)
        [pull] = mirror.take()
        assert pull.ranges == (range(1, 2), range(4, 5))
        mirror.give(is_end=True)
        waits.append(mirror.target.due_at - now)
    assert waits[0] == pytest.approx(2 * RETRY_S)
    assert waits[-1] == RETRY_MAX_S
    mirror.target.tick(mirror.target.due_at)
    mirror.take()
    now = mirror.target.due_at - STUCK_S
    mirror.give(1, is_end=True)
    assert mirror.target.due_at - now == pytest.approx(RETRY_S)


class Shelf:
    """A spare that has some messages, and says so when it is told."""

    def __init__(self, *seqs: int) -> None:
        self.seqs = set(seqs)
        self.asked: list[list[range]] = []
        self.answer = lambda: None

    def give(self, wanted: Sequence[range], epoch_s: float, done: Callable[[list[Enqueue]], None]) -> None:
        assert epoch_s == 7.0
        self.asked.append(list(wanted))
        found = [seq for part in wanted for seq in part if seq in self.seqs][:2]
        self.answer = lambda: done([Enqueue(envelope(), seq, [content(b"x")], 1, 1, 1) for seq in found])


def once_around(mirror: Mirror, *seqs: int) -> None:
    """Let a mirror ask the master for all that it lacks, and get no more than this."""
    mirror.target.tick(mirror.target.due_at)
    mirror.take()
    mirror.give(*seqs, is_end=True)


def test_what_the_master_does_not_give_is_looked_for_on_this_node() -> None:
    """Not before a whole round in which nothing came of it."""
    shelf = Shelf(2, 3, 4, 9)
    mirror = Mirror(range(1, 6), spare=shelf)
    mirror.target.start()
    mirror.give(1, is_end=True)
    assert shelf.asked == []
    once_around(mirror)
    assert shelf.asked == [[range(2, 6)]]
    shelf.answer()
    assert mirror.copy.installed == [1, 2, 3]
    once_around(mirror)
    once_around(mirror)
    shelf.answer()
    assert (mirror.copy.installed, mirror.done) == ([1, 2, 3, 4], 0)
    once_around(mirror, 5)
    assert (mirror.done, mirror.target.progress) == (1, SyncProgress(5, 5, is_running=False))


def test_all_that_is_missing_is_looked_for_however_much_it_is() -> None:
    """A part at a time, and over again: what is there may be behind what is not."""
    last = 2 * RANGES_MAX
    shelf = Shelf(4 * last)
    mirror = Mirror(*(range(seq, seq + 1) for seq in range(2, 4 * last + 1, 2)), spare=shelf)
    mirror.target.start()
    mirror.take()
    while mirror.copy.installed == []:
        assert len(shelf.asked) < 10
        mirror.target._next = 1 << 40  # the master was asked for all
        mirror.give(is_end=True)
        shelf.answer()
        mirror.target.tick(mirror.target.due_at)
    assert mirror.copy.installed == [4 * last]
    assert all(len(ranges) <= RANGES_MAX for ranges in shelf.asked)


def test_what_this_node_has_is_of_no_use_once_nobody_wants_it() -> None:
    """The synchronisation was stopped meanwhile."""
    shelf = Shelf(1)
    mirror = Mirror(range(1, 3), spare=shelf)
    mirror.target.start()
    mirror.give(is_end=True)
    once_around(mirror)
    mirror.target.cancel()
    shelf.answer()
    assert mirror.copy.installed == []


def test_what_was_removed_at_the_master_is_no_longer_waited_for() -> None:
    """reliability §2.3, sync_detection: it is synchronised once the unknown message is gone."""
    mirror = Mirror(range(1, 3))
    mirror.target.start()
    mirror.give(1, is_end=True)
    assert mirror.copy.missing is not None
    mirror.copy.missing.discard(range(2, 3))  # a Remove came by the ring
    mirror.target.tick(100.01)
    assert (mirror.done, mirror.target.progress.is_running) == (1, False)


def test_a_chunk_that_never_comes_is_asked_for_anew() -> None:
    mirror = Mirror(range(1, 9))
    mirror.target.start()
    mirror.give(1)
    mirror.take()
    assert mirror.wait_s == STUCK_S
    mirror.target.tick(mirror.target.due_at)
    assert mirror.take() == [Pull(2, (range(2, 9),), 0, 1, 7)]
    mirror.give(2, request=1)  # too late
    assert mirror.copy.installed == [1]


# --- rows -------------------------------------------------------------------------------------------------


def test_eager_sync_of_a_synchronised_queue_is_a_no_op() -> None:
    """reliability §2.3, eager_sync."""
    mirror = Mirror()
    assert not mirror.target.start()
    assert (mirror.take(), mirror.done) == ([], 0)
    mirror.copy.missing = None  # what a follower makes of it
    assert not mirror.target.start()


def test_eager_sync_of_a_queue_that_is_being_synchronised_is_a_no_op() -> None:
    mirror = Mirror(range(1, 9))
    assert mirror.target.start()
    mirror.take()
    assert not mirror.target.start()
    assert mirror.take() == []


def test_eager_sync_cancel_is_idempotent() -> None:
    """reliability §2.3, eager_sync_cancel: `{ok, not_syncing}`; the copy still lacks what it lacks."""
    mirror = Mirror(range(1, 9))
    assert not mirror.target.cancel()
    mirror.target.start()
    mirror.give(1)
    mirror.take()
    assert mirror.target.cancel()
    assert mirror.take() == [Pull(2, (), 0, 1, 7)]
    assert not mirror.target.cancel()
    mirror.give(2, request=1)
    mirror.target.tick(1e6)
    assert (mirror.take(), mirror.copy.installed, mirror.done) == ([], [1], 0)
    assert mirror.target.start()
    assert mirror.take() == [Pull(3, (range(2, 9),), 0, 0, 7)]


@pytest.mark.parametrize("is_congested", [False, True])
@pytest.mark.parametrize("given", [(), (1,)])
def test_w6_a_stuck_synchronisation_can_be_cancelled(is_congested: bool, given: tuple[int, ...]) -> None:
    """reliability §1.1 W6: deadlocks; a memory alarm; cancel blocked while stuck."""
    mirror = Mirror(range(1, 9))
    mirror.target.start()
    mirror.is_congested = is_congested
    mirror.give(*given)
    assert mirror.target.cancel()
    assert mirror.sent[-1] == Pull(2, (), 0, len(given), 8 - len(given))
    assert mirror.target.due_at == float("inf")


def test_w7_a_mirror_that_is_short_of_room_takes_no_more() -> None:
    """reliability §1.1 W7: memory blows up; a memory alarm at the mirror."""
    mirror = Mirror(range(1, 9))
    mirror.target.start()
    mirror.take()
    mirror.is_congested = True
    mirror.give(1)
    mirror.give(2)
    assert mirror.take() == []
    assert mirror.wait_s == pytest.approx(CONGESTED_S)
    mirror.target.tick(mirror.target.due_at)
    assert mirror.take() == []
    mirror.is_congested = False
    mirror.target.tick(mirror.target.due_at)
    assert mirror.take() == [Pull(1, (), 2, 2, 6)]
    mirror.is_congested = True
    mirror.give(3, is_end=True)
    mirror.target.tick(mirror.target.due_at)
    assert mirror.take() == []


def test_another_master_is_asked_from_the_beginning() -> None:
    """reliability §2.3: the master changes in the middle; its Inventory says what is missing now."""
    mirror = Mirror(range(1, 9))
    mirror.target.start()
    mirror.give(1, 2)
    mirror.take()
    mirror.copy.missing = NumberSet([range(3, 8)])
    mirror.target.inventory_known()
    assert mirror.take() == [Pull(2, (range(3, 8),), 0, 2, 5)]
    mirror.give(3, request=1)
    assert mirror.copy.installed == [1, 2]
    mirror.give(*range(3, 8), is_end=True)
    assert mirror.done == 1


def test_who_is_refused_waits_for_another_master() -> None:
    mirror = Mirror(range(1, 9))
    mirror.target.start()
    mirror.target.chunk(Chunk(1, is_end=True, is_refused=True))
    assert mirror.wait_s == REFUSED_S
    mirror.take()
    mirror.target.inventory_known()
    assert [pull.ranges for pull in mirror.take()] == [(range(1, 9),)]


def test_who_knows_nothing_yet_waits_for_the_inventory() -> None:
    mirror = Mirror(has_inventory=False)
    assert mirror.target.start()
    mirror.target.tick(1e6)
    assert (mirror.take(), mirror.target.progress.is_running) == ([], True)
    mirror.copy.missing = NumberSet([range(1, 3)])
    mirror.target.inventory_known()
    assert [pull.ranges for pull in mirror.take()] == [(range(1, 3),)]


def test_an_inventory_of_nothing_ends_it() -> None:
    mirror = Mirror(has_inventory=False)
    mirror.target.start()
    mirror.copy.missing = NumberSet()
    mirror.target.inventory_known()
    assert (mirror.take(), mirror.done, mirror.target.progress.is_running) == ([], 1, False)


# --- both sides -------------------------------------------------------------------------------------------


class Pair:
    """A master with a queue, and a mirror that joined when all was there already."""

    def __init__(self, master: Master) -> None:
        self.master = master
        self.pulls: deque[bytes] = deque()
        self.done = 0
        record = QueueRecord("/", "q", "uid")
        self.copy = Copy(record, MemoryStorage(), lambda contents, is_kept: 0, lambda: 1000.0, MUCH)
        self.target = SyncTarget(self.copy, self.pulls.append, has_inventory=False, on_done=self._done)

    def _done(self) -> None:
        self.done += 1

    def take_inventory(self, *ids: range) -> None:
        self.copy.take_inventory(ids, self.master.queue.next_seq)
        self.target.inventory_known()

    def run(self, turns: int = 10_000) -> None:
        """Run until there is nothing to do but wait for the disk."""
        source = self.master.source
        for _ in range(turns):
            while self.pulls:
                pull = decode_side(self.pulls.popleft())
                assert isinstance(pull, Pull)
                source.pull(2, pull)
            sent, self.master.sent = self.master.sent, []
            for _, chunk in sent:
                self.target.chunk(chunk)
            if not source.has_work and not self.pulls:
                return
            source.turn(self.master.now)
        assert turns < 10_000, "it goes on for ever"

    def later(self, seconds: float = 1.0) -> None:
        self.master.now += seconds
        self.target.tick(self.master.now)


def test_a_queue_in_memory_is_synchronised() -> None:
    pair = Pair(Master(20_000, 9))
    pair.target.start()
    pair.take_inventory(range(1, 20_001))
    pair.run()
    assert pair.copy.held.ranges() == [range(1, 20_001)]
    assert (pair.done, pair.target.progress) == (1, SyncProgress(20_000, 20_000, is_running=False))


def test_a_paged_queue_is_synchronised() -> None:
    storage = SegmentStorage()
    master = Master(100, storage=storage)
    master.queue.backlog.page_out(MUCH, 30)
    pair = Pair(master)
    pair.target.start()
    pair.take_inventory(range(1, 101))
    for _ in range(100):
        pair.run()
        storage.answer_all()
    assert (pair.done, pair.copy.held.ranges()) == (1, [range(1, 101)])


def test_a_queue_in_a_real_store_is_synchronised() -> None:
    """Embedded contents of any size, and large ones in the message store; kept, paged, or in memory."""
    bench = Bench()
    master = Master(storage=bench.queue(1), is_durable=True)
    bodies: dict[int, bytes] = {}

    def publish(*sizes: int, is_persistent: bool = True) -> None:
        queue = master.queue
        batch = {queue.next_seq + at: bytes([queue.next_seq % 256]) * size for at, size in enumerate(sizes)}
        bodies.update(batch)
        contents = [content(body) for body in batch.values()]
        is_large = len(contents[0]) >= EMBED_MAX_BYTES
        store_id = bench.store.place(contents, persistent=is_persistent) if is_large else 0
        size = sizes[0] if len(set(sizes)) == 1 else MIXED_SIZES
        shared = Envelope("", "q", channel=1, frame_max_bytes=0, persistent=is_persistent)
        queue.enqueue(Batch(shared, contents, size, store_id), 0.0)

    for turn in range(40):
        publish(*range(1, 60), is_persistent=turn % 2 == 0)
        publish(*[40] * 50, is_persistent=turn % 2 == 0)
        publish(*[5000] * 5, is_persistent=turn % 3 == 0)
        if turn in (12, 25):
            bench.settle()
            master.queue.backlog.page_out(MUCH, 20_000)
    for _ in range(10):
        run = master.queue.get(0.0)
        assert run is not None
        master.away.append(run)
    pair = Pair(master)
    pair.target.start()
    pair.take_inventory(range(1, len(bodies) + 1))
    for _ in range(500):
        pair.run()
        bench.settle()
        master.now += 1.0
        pair.target.tick(master.now)
    assert pair.done == 1
    got = {seq: body for run in pair.copy._runs() for seq, body in zip(run.seqs, bodies_of(run), strict=True)}
    assert got == bodies


def test_a_queue_is_synchronised_while_it_is_consumed_and_published_to() -> None:
    """reliability §4.5: the queue is never blocked; what is removed meanwhile is skipped."""
    master = Master(200, batch=8)
    pair = Pair(master)
    pair.target.start()
    pair.take_inventory(range(1, 201))
    for turn in range(200):
        pair.run(1)
        taken = master.queue.get(0.0)
        assert taken is not None
        if turn % 2:
            pair.copy.remove([taken.seqs])
        else:
            master.away.append(taken)
        pair.later(0.01)
    for _ in range(20):
        pair.run()
        pair.later()
    assert (pair.done, pair.copy.held.ranges()) == (1, [range(seq, seq + 1) for seq in range(1, 201, 2)])


def test_w6_a_priority_queue_is_sent_once() -> None:
    """reliability §1.1 W6: a priority queue was sent again without end."""
    master = Master(max_priority=5)
    for seq in range(1, 301):
        master.queue.enqueue(Batch(envelope(priority=seq % 7), [content(b"%03d" % seq)], 3), 0.0)
    pair = Pair(master)
    pair.target.start()
    pair.take_inventory(range(1, 301))
    pair.run()
    assert (pair.done, pair.copy.held.ranges()) == (1, [range(1, 301)])
    assert pair.target.progress.installed == 300


def test_a_missing_message_does_not_hold_up_the_others() -> None:
    """A message that only the master's disk has lost does not hold up the others."""
    master = Master(50, batch=8)
    pair = Pair(master)
    lost = master.queue.backlog.take(1)
    assert list(lost.seqs) == [1]
    pair.target.start()
    pair.take_inventory(range(1, 51))
    for _ in range(5):
        pair.run()
        pair.later()
    assert pair.copy.held.ranges() == [range(2, 51)]
    assert (pair.done, pair.target.progress) == (0, SyncProgress(49, 50, is_running=True))
