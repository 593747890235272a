"""Copies of queues: by hand, and at random over a real store whose machine may lose power."""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cluster.errors import Malformed
from cluster.mirror.copy import Copy
from node.amqp.frames import body_size
from node.catalogue.records import QueueRecord
from node.queue.backlog import RUN_MAX
from node.queue.number_set import NumberSet
from node.queue.operations import Enqueue
from node.queue.paged_backlog import MESSAGE_BYTES, PagedBacklog
from node.queue.run import NEVER, Batch, Run
from node.queue.storage import MemoryStorage
from tests.cluster.mirror.copy_world import ENVELOPES, CopyWorld, Message
from tests.kit.messages import content
from tests.node.store.store_world import small_parts


def seqs_of(copy: Copy) -> list[int]:
    """The numbers of what it holds."""
    return [seq for seqs in copy.held for seq in seqs]


# --- in memory ---


def test_what_comes_and_goes() -> None:
    """Numbers, counts and bytes are those of what is left."""
    world = CopyWorld()
    world.enqueue([10] * 5)
    world.enqueue([10, 20, 30])
    world.remove(range(1, 3), range(5, 7))
    assert seqs_of(world.copy) == [3, 4, 7, 8]
    assert world.copy.next_seq == 9
    assert world.copy.memory_bytes == 10 + 10 + 20 + 30 + 4 * MESSAGE_BYTES
    world.remove(range(1, 1 << 60))
    assert world.copy.memory_bytes == 0
    world.look()


def test_numbers_that_do_not_rise_make_no_sense() -> None:
    """A peer says what cannot be."""
    world = CopyWorld()
    world.enqueue([10] * 5)
    with pytest.raises(Malformed):
        world.copy.enqueue(world.make(5, [10], 0))


def test_w5_removals_of_what_is_not_here_change_nothing() -> None:
    """reliability §1.1 W5: nothing is counted up and down, so nothing becomes negative."""
    world = CopyWorld()
    world.enqueue([10] * 3)
    world.remove(range(2, 3))
    world.remove(range(2, 3), range(1, 2), range(100, 200))
    assert seqs_of(world.copy) == [3]
    world.look()


def test_a_promotion_in_memory_costs_per_run() -> None:
    """400,000 messages become a queue before `fill` returns, in some hundred steps."""
    record = QueueRecord("/", "q", "uid")
    copy = Copy(record, MemoryStorage(), lambda contents, persistent: 0, lambda: 0.0, 4096)
    one = content(b"x" * 100)
    for first in range(1, 400_001, 100):
        copy.enqueue(Enqueue(ENVELOPES[2], first, [one] * 100, 100, 100, 10_000))
    backlog, done = PagedBacklog(MemoryStorage(), lambda: None), []
    copy.fill(backlog, lambda: done.append(True))
    assert done
    assert len(list(backlog.in_memory(0))) < 400_000 / RUN_MAX + 3
    assert (backlog.count, backlog.body_bytes) == (400_000, 40_000_000)
    assert {run.deliveries for run in backlog.in_memory(0)} == {1}


def test_expiry_and_deliveries_come_along() -> None:
    """amqp-behaviour §5.2, §4.11: by the time of day, and by what the master counted."""
    world = CopyWorld()
    world.enqueue([10] * 4, ttl_ms=5000)
    world.copy.delivered([range(2, 4)], 7)
    world.remove(range(3, 4))
    began = world.now
    queue = world.promote()
    [first, second, third] = queue.backlog.in_memory(0)
    assert [run.seqs for run in (first, second, third)] == [range(1, 2), range(2, 3), range(4, 5)]
    assert [run.deliveries for run in (first, second, third)] == [1, 7, 1]
    assert first.expiry == pytest.approx(began + 5)
    assert queue.backlog.head_expiry != NEVER


# --- what is missing ---


def test_sync_detection_what_is_requeued_is_still_missing() -> None:
    """sync_detection follower_synchronization: not synchronised until the unknown message is gone; a requeue is not
    that: it has its number still.
    """
    world = CopyWorld()
    assert world.copy.missing is None, "nobody has said what there is"
    world.copy.take_inventory([range(1, 2)], 2)
    world.next_seq = 2
    world.enqueue([10])
    world.copy.delivered([range(1, 2)], 1)  # it came back to the queue
    assert world.copy.missing == NumberSet([range(1, 2)])
    world.remove(range(2, 3))
    assert world.copy.missing == NumberSet([range(1, 2)]), (
        "as many messages as the master has are not all of them"
    )
    world.remove(range(1, 2))
    assert world.copy.missing is not None
    assert not world.copy.missing


def test_eager_sync_cancel_what_is_missing_stays_missing() -> None:
    """eager_sync_cancel: a synchronisation that stopped half-way has synchronised nothing; it may go on."""
    world = CopyWorld()
    world.copy.take_inventory([range(1, 11)], 11)
    world.copy.install([world.make(1, [10] * 4, 0)])
    assert world.copy.missing == NumberSet([range(5, 11)])
    world.copy.take_inventory([range(3, 11)], 11)  # another master
    assert world.copy.missing == NumberSet([range(5, 11)])
    assert seqs_of(world.copy) == [3, 4]


def test_what_is_not_missing_is_not_installed() -> None:
    """A message that was removed on its way, or is here, is not installed."""
    world = CopyWorld()
    world.copy.install([world.make(1, [10], 0)])
    world.copy.take_inventory([range(1, 5)], 5)
    world.copy.remove([range(2, 3)])
    world.copy.install([world.make(1, [10] * 6, 0)])
    world.copy.install([world.make(1, [10] * 6, 0)])
    assert seqs_of(world.copy) == [1, 3, 4]
    assert not world.copy.missing


def test_an_inventory_of_more_than_there_can_be_makes_no_sense() -> None:
    """A peer must not have us count for hours."""
    with pytest.raises(Malformed):
        CopyWorld().copy.take_inventory([range(1, 1 << 61)], 1 << 61)


# --- on disk ---


def test_w7_what_is_installed_where_memory_is_short_goes_to_disk() -> None:
    """reliability §1.1 W7: newer messages have left memory, so older ones don't stay there."""
    world = CopyWorld()
    world.copy.take_inventory([range(1, 21)], 21)
    world.next_seq = 21
    world.enqueue([10] * 4)
    assert world.copy.page_out(1 << 40) == 4 * (10 + MESSAGE_BYTES)
    for first in range(1, 21, 5):
        entry = world.make(first, [100] * 5, 0)
        world.model.update(world._note(entry))
        world.copy.install([entry])
        assert world.copy.memory_bytes == 0
    world.look()


def test_the_oldest_leave_memory_first_and_not_more_than_asked_for() -> None:
    """A turn takes as much as a turn may."""
    world = CopyWorld()
    world.enqueue([100] * 50)
    freed = world.copy.page_out(10 * (100 + MESSAGE_BYTES))
    assert freed == 10 * (100 + MESSAGE_BYTES)
    queue = world.promote()
    assert queue.backlog.lengths() == {"q1": 40, "q2": 0, "delta": 10, "q3": 0, "q4": 0}


def test_nothing_leaves_memory_while_a_copy_becomes_a_queue() -> None:
    """No message is paged out while segments are counted, as it would be counted out of the queue with them."""
    world = CopyWorld()
    world.enqueue([10, 100, 20, 200])
    world.copy.page_out(1 << 40)
    world.remove(range(2, 3))  # of unequal sizes: it has to be read what is left
    world.enqueue([10, 100])
    freed: list[int] = []
    queue = world.promote(lambda: freed.append(world.copy.page_out(1 << 40)))
    assert freed == [0]
    assert [seq for run in world.take(queue, 10) for seq in run.seqs] == [1, 3, 4, 5, 6]


def test_pages_are_redelivered() -> None:
    """reliability §1.1 D2: all that a mirror had may have been delivered; what comes after the promotion was not."""
    world = CopyWorld()
    world.enqueue([10] * 20)
    world.copy.page_out(1 << 40)
    queue = world.promote()
    queue.enqueue(Batch(ENVELOPES[0], [content(b"new")], 3), world.now)
    queue.backlog.page_out(1 << 40, 0)
    deliveries = []
    while queue.backlog.count:
        queue.backlog.refill()
        world.settle()
        run = queue.backlog.take(1)
        deliveries.append(run.deliveries)
    assert deliveries == [1] * 20 + [0]


def test_counted_deliveries_survive_paging() -> None:
    """amqp-behaviour §4.11: a quorum queue's limit counts on another node as well."""
    world = CopyWorld()
    world.enqueue([10] * 6)
    world.copy.delivered([range(2, 4)], 3)
    world.copy.page_out(1 << 40)
    world.copy.delivered([range(5, 6)], 2)
    taken = world.take(world.promote(), 6)
    deliveries = {seq: run.deliveries for run in taken for seq in run.seqs}
    assert deliveries == {1: 1, 2: 3, 3: 3, 4: 1, 5: 2, 6: 1}


def test_l9_a_copy_that_is_dropped_leaves_nothing() -> None:
    """reliability §1.1 L9: a node that comes back begins with an empty copy."""
    world = CopyWorld()
    world.enqueue([10, 300, 10] * 5)
    world.copy.page_out(1000)
    world.settle()
    world.copy.drop()
    world.settle()
    assert not world.copy.held
    assert world.copy.memory_bytes == 0
    assert not [path for path in world.disk.paths() if world.record.uid in path]


def test_a_queue_hands_over_what_only_lacks_its_contents() -> None:
    """Large ones that left memory without being written (q2) are found in their segment afterwards."""
    world = CopyWorld()
    world.enqueue([10] * 20)
    world.copy.page_out(1 << 40)
    queue = world.promote()
    entry = world.make(queue.next_seq, [300] * 3, 0)
    world.model.update(world._note(entry))
    store_id = world.store.place(entry.contents, persistent=True)
    queue.enqueue(Batch(entry.envelope, entry.contents, entry.size, store_id), world.now)
    queue.backlog.page_out(1 << 40, 0)
    assert queue.backlog.lengths()["q2"] == 3
    world.demote(queue, [])
    world.remove(range(22, 23))
    world.look()
    world.leave_nothing(is_dropped=False)


def test_missing_messages_are_said_and_owed() -> None:
    """A demoted master that can't find what it has lacks it."""
    world = CopyWorld()
    world.enqueue([10] * 5)
    queue = world.promote()
    lost = queue.backlog.take(2)
    live = NumberSet([range(1, 6)])
    copy, missing = Copy.taken_from(queue, live, [], *world.means)
    assert missing == [lost.seqs]
    assert copy.missing == NumberSet([lost.seqs])
    assert seqs_of(copy) == [3, 4, 5]


def test_what_the_ring_knows_nothing_of_is_let_go_of() -> None:
    """A queue that has more than its mirrors were told does not keep it as a mirror."""
    world = CopyWorld()
    world.enqueue([300] * 5)
    queue = world.promote()
    del world.model[2], world.model[5]
    world.copy, missing = Copy.taken_from(
        queue, NumberSet([range(1, 2), range(3, 5)]), [queue.backlog.take(3)], *world.means
    )
    assert missing == []
    world.look()
    world.leave_nothing(is_dropped=False)


def test_blank_contents_are_with_nobody() -> None:
    """A content that a client has settled is blank in its delivery and does not come back into the copy."""
    world = CopyWorld()
    world.enqueue([10] * 4)
    queue = world.promote()
    run = queue.backlog.take(4)
    run.contents[1] = None  # type: ignore[call-overload]
    queue.storage.forget(range(2, 3), 0)
    del world.model[2]
    world.demote(queue, [run])
    world.look()


# --- at random ---


def single(seq: int, message: Message) -> Enqueue:
    """One message as a master sends it to a copy that lacks it."""
    size = body_size(message.content)
    return Enqueue(
        message.envelope, seq, [message.content], 1, size, size, message.expires_at_ms, message.deliveries
    )


sizes = st.lists(st.sampled_from((4, 4, 10, 40, 300)), min_size=1, max_size=6)
seeds = st.integers(0, 1 << 30)


class CopyMachine(RuleBasedStateMachine):
    """All that may happen to a copy, against a dict from numbers to messages."""

    @initialize(durable=st.booleans(), max_priority=st.sampled_from((None, 1)))
    def begin(self, durable: bool, max_priority: int | None) -> None:
        self.world = CopyWorld(durable=durable, max_priority=max_priority)

    @rule(sizes=sizes, kind=st.integers(0, 3), ttl_ms=st.sampled_from((0, 0, 60_000)), gap=st.integers(0, 2))
    def enqueue(self, sizes: list[int], kind: int, ttl_ms: int, gap: int) -> None:
        self.world.enqueue(sizes, kind, ttl_ms=ttl_ms, gap=gap)

    @rule(count=st.integers(5, 20), kind=st.integers(0, 3), size=st.sampled_from((10, 300)))
    def enqueue_many(self, count: int, kind: int, size: int) -> None:
        self.world.enqueue([size] * count, kind)

    @rule(count=st.integers(1, 12))
    def remove_oldest(self, count: int) -> None:
        oldest = sorted(self.world.model)[:count]
        if oldest:
            self.world.remove(range(oldest[0], oldest[-1] + 1))

    @rule(seed=seeds)
    def remove_some(self, seed: int) -> None:
        random = Random(seed)
        some = [seq for seq in range(1, self.world.next_seq) if random.random() < 0.2]
        self.world.remove(*(range(seq, seq + 1) for seq in some))

    @rule(seed=seeds)
    def returned(self, seed: int) -> None:
        """Note that messages came back to a queue that counts deliveries, which are durable ones."""
        random, world = Random(seed), self.world
        if not world.record.durable or not world.model:
            return
        first = random.choice(sorted(world.model))
        seqs, count = range(first, first + random.randint(1, 9)), random.randint(1, 5)
        if any(seq in world.model and not world.model[seq].envelope.persistent for seq in seqs):
            return
        for seq in seqs:
            if seq in world.model:
                world.model[seq].deliveries = count
        world.copy.delivered([seqs], count)

    @rule(seed=seeds)
    def take_inventory(self, seed: int) -> None:
        """A master says what there is: some of what is here, and of what never was."""
        random, world = Random(seed), self.world
        there = {seq for seq in world.model if random.random() < 0.9}
        for seq in world.model.keys() - there:
            del world.model[seq]
        first = world.next_seq
        entry = world.make(first, random.choices((4, 10, 300), k=12), random.randint(0, 3))
        world.next_seq += 12
        world.master = {seq: each for seq, each in world._note(entry).items() if random.random() < 0.7}
        numbers = NumberSet(range(seq, seq + 1) for seq in there | world.master.keys())
        world.copy.take_inventory(numbers.ranges(), world.next_seq)

    @rule(seed=seeds)
    def install(self, seed: int) -> None:
        random, world = Random(seed), self.world
        entries = []
        for seq, message in sorted(world.master.items())[: random.randint(1, 6)]:
            entries.append(single(seq, message))
        for entry in entries:
            world.model[entry.first_seq] = world.master.pop(entry.first_seq)
        if random.random() < 0.3:
            random.shuffle(entries)
        world.copy.install(entries)

    @rule(limit=st.sampled_from((1, 300, 2000, 1 << 40)))
    def page_out(self, limit: int) -> None:
        before = self.world.copy.memory_bytes
        assert self.world.copy.page_out(limit) == before - self.world.copy.memory_bytes

    @rule(steps=st.integers(0, 20), is_confirmed=st.booleans())
    def turn(self, steps: int, is_confirmed: bool) -> None:
        if is_confirmed:
            self.world.confirm()
        self.world.turn(steps)

    @rule()
    def settle(self) -> None:
        self.world.settle()

    @rule(seed=seeds)
    def crash(self, seed: int) -> None:
        if self.world.record.durable:
            self.world.crash(Random(seed))

    @rule(seed=seeds)
    def be_master_for_a_while(self, seed: int) -> None:
        """Promoted, used as a queue, and demoted."""
        random, world = Random(seed), self.world
        queue = world.promote()
        world.master.clear()
        loose = world.take(queue, random.randint(0, 12))
        for _ in range(random.randint(0, 3)):
            entry = world.make(
                queue.next_seq, [random.choice((10, 300))] * random.randint(1, 5), random.randint(0, 3)
            )
            world.model.update(world._note(entry))
            large = len(entry.contents[0]) >= 250
            is_kept = entry.envelope.persistent and queue.is_durable
            store_id = world.store.place(entry.contents, persistent=is_kept) if large else 0
            queue.enqueue(Batch(entry.envelope, entry.contents, entry.size, store_id), world.now)
        if random.random() < 0.5:
            queue.backlog.page_out(random.choice((500, 1 << 40)), random.choice((0, 100)))
        if random.random() < 0.5:
            queue.backlog.refill()
            world.turn(random.randint(0, 5))
        kept: list[Run] = []
        for run in loose:
            choice = random.random()
            if choice < 0.3:
                queue.forget(run)
                for seq in run.seqs:
                    del world.model[seq]
            elif choice < 0.5:
                queue.backlog.put_back(run)
            else:
                kept.append(run)
        world.demote(queue, kept)

    @rule()
    def look(self) -> None:
        self.world.master.clear()
        self.world.look()

    @invariant()
    def the_numbers_are_right(self) -> None:
        if not hasattr(self, "world"):
            return
        copy, world = self.world.copy, self.world
        assert seqs_of(copy) == sorted(world.model)
        assert {seq for seqs in copy.missing or () for seq in seqs} == world.master.keys()
        assert (copy.memory_bytes > 0) is (copy._paged.count < len(copy.held))

    def teardown(self) -> None:
        if hasattr(self, "world"):
            if self.world.next_seq % 2:
                self.look()
            self.world.leave_nothing(is_dropped=self.world.next_seq % 3 == 0)


class SmallPartsMachine(CopyMachine):
    """Tests a copy as `CopyMachine` does, while work of the store comes in many small parts."""

    def __init__(self) -> None:
        super().__init__()
        self._parts = small_parts()
        self._parts.__enter__()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self._parts.__exit__(None, None, None)


TestCopy = CopyMachine.TestCase
TestCopy.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestSmallParts = SmallPartsMachine.TestCase
TestSmallParts.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
