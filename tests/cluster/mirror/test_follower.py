"""A mirror's side: what it does with payloads, when its disk counts, and when it lacks nothing."""

from collections.abc import Iterable

from cluster.mirror.batch import Batch, Handover, Inventory, SenderGone, Step, SyncMode, encode_batch
from cluster.mirror.follower import Follower
from node.queue.number_set import NumberSet
from node.queue.operations import Delivered, Enqueue, Remove
from node.queue.run import Envelope
from tests.cluster.mirror.test_replicator import PERSISTENT, TRANSIENT, Disk


class Ring:
    """Writes down what it is told."""

    id = 9

    def __init__(self) -> None:
        self.disk: dict[int, int] = {}
        self.now = 50.0
        self.handovers: list[int] = []
        self.is_done = False
        self.counts: list[bool] = []
        self.modes: list[bool] = []
        self.rolls = 0

    def on_disk(self, origin: int, upto: int) -> None:
        self.disk[origin] = upto

    def handed_over(self, version: int) -> None:
        self.handovers.append(version)

    def count_disk(self, *, is_on: bool) -> None:
        self.counts.append(is_on)

    def is_complete(self) -> None:
        self.is_done = True

    def sync_mode(self, *, is_on: bool) -> None:
        self.modes.append(is_on)

    def inventory_known(self) -> None:
        self.rolls += 1


class Copy:
    """Numbers only."""

    def __init__(self, *, is_durable: bool) -> None:
        self.is_durable = is_durable
        self.held = NumberSet()
        self.missing: NumberSet | None = None
        self.next_seq = 1
        self.counts: list[tuple[tuple[range, ...], int]] = []

    def hear_clock(self, at_ms: int, now: float) -> None: ...

    def enqueue(self, entry: Enqueue) -> None:
        self.held.add(entry.seqs)

    def remove(self, ranges: Iterable[range]) -> None:
        for seqs in ranges:
            self.held.discard(seqs)
            if self.missing is not None:
                self.missing.discard(seqs)

    def delivered(self, ranges: tuple[range, ...], count: int) -> None:
        self.counts.append((ranges, count))

    def take_inventory(self, ids: Iterable[range], next_seq: int) -> None:
        there = NumberSet(ids)
        self.held = there.minus(there.minus(self.held))
        self.missing = there.minus(self.held)


class World:
    def __init__(self, *, has_inventory: bool, is_durable: bool = True) -> None:
        self.ring, self.disk = Ring(), Disk()
        self.copy = Copy(is_durable=is_durable)
        self.follower = Follower(self.ring, self.copy, self.disk, has_inventory=has_inventory)  # type: ignore[arg-type]
        self.number = -1
        self.next_seq = 1

    def hear(self, *steps: Step, senders: dict[int, int] | None = None) -> None:
        """A payload of member 1."""
        for step in steps:
            if isinstance(step, Enqueue):
                self.next_seq = step.seqs.stop
        self.number += 1
        raw = encode_batch(Batch(self.next_seq, 0, senders or {}, list(steps)))
        self.follower.deliver(1, self.number, [raw])


def enqueue(first: int, count: int, envelope: Envelope = TRANSIENT) -> Enqueue:
    return Enqueue(envelope, first, [b"content"] * count, count, 1, count)


def test_it_does_what_the_master_did() -> None:
    world = World(has_inventory=True)
    world.hear(enqueue(1, 5), senders={3: 8})
    world.hear(Remove((range(2, 4),)), Delivered((range(4, 5),), 2))
    assert world.copy.held.ranges() == [range(1, 2), range(4, 6)]
    assert world.copy.counts == [((range(4, 5),), 2)]
    assert world.follower.senders == {3: 8}
    assert world.copy.next_seq == 6
    world.hear(SenderGone(3))
    assert world.follower.senders == {}


def test_a_joiner_ignores_what_comes_before_its_inventory() -> None:
    """reliability §4.5: that belongs to the past, of which the Inventory tells."""
    world = World(has_inventory=False)
    world.hear(enqueue(1, 5), senders={3: 8})
    world.hear(Inventory(4, (range(1, 6),), {}))
    assert not len(world.copy.held)
    assert world.follower.senders == {}
    world.hear(enqueue(6, 1), Inventory(9, (range(1, 7),), {3: 9}), enqueue(7, 2))
    assert world.copy.held.ranges() == [range(7, 9)]
    assert world.copy.missing is not None
    assert world.copy.missing.ranges() == [range(1, 7)]
    assert world.follower.senders == {3: 9}
    assert world.ring.rolls == 1


def test_natural_synchronisation() -> None:
    """reliability §2.3 follower_synchronization: unsynchronised until the unknown messages are gone, by number."""
    world = World(has_inventory=False)
    world.hear(Inventory(9, (range(1, 3),), {}))
    world.hear(enqueue(3, 5))
    world.hear(Remove((range(3, 8),)))
    world.hear(Remove((range(1, 2),)))
    world.disk.sync()
    assert not world.ring.is_done, "one that was requeued at the master is still missing"
    world.hear(Remove((range(2, 3),)))
    assert not world.ring.is_done, "not before all is on disk"
    world.disk.sync()
    world.disk.sync()
    assert world.ring.is_done


def test_roll_of_an_empty_queue_completes() -> None:
    world = World(has_inventory=False, is_durable=False)
    world.hear(Inventory(9, (), {}))
    assert world.ring.is_done


def test_marks_wait_for_a_disk_before_it_is_waited_for_itself() -> None:
    """A mark waits for the disk first, or it would say that this disk has what it lacks."""
    world = World(has_inventory=False)
    world.hear(Inventory(9, (), {}))
    assert world.ring.counts == [], "a disk that hangs holds up nobody"
    world.disk.sync()
    assert world.ring.counts == [True]
    assert not world.ring.is_done
    world.disk.sync()
    assert world.ring.is_done


def test_a_broken_disk_is_never_complete() -> None:
    world = World(has_inventory=False)
    world.hear(Inventory(9, (), {}))
    world.disk.sync(is_safe=False)
    assert not world.ring.is_done
    assert world.ring.counts == [False]
    world.hear(enqueue(1, 1))
    assert not world.disk.asked, "it isn't tried again and again"


def test_a_disk_that_breaks_when_it_counts_is_never_complete() -> None:
    world = World(has_inventory=False)
    world.hear(Inventory(9, (), {}))
    world.disk.sync()
    world.disk.sync(is_safe=False)
    assert not world.ring.is_done
    assert world.ring.counts == [True, False]


def test_disk_counts_when_it_has_it() -> None:
    """reliability §4.4 rule 2."""
    world = World(has_inventory=True)
    world.hear(enqueue(1, 1))
    assert world.ring.disk == {1: 0}, "nothing of it has to be on disk"
    world.hear(enqueue(2, 1, PERSISTENT))
    world.hear(enqueue(3, 1))
    assert world.ring.disk == {1: 0}, "nor is what comes behind ahead of it"
    world.disk.sync()
    assert world.ring.disk == {1: 2}


def two_origins_wait() -> None:
    """Two members' payloads wait for the disk, whose store joins waits that follow each other."""
    world = World(has_inventory=True)
    world.hear(enqueue(1, 1))
    world.hear(enqueue(2, 1, PERSISTENT))
    raw = encode_batch(Batch(4, 1, {}, [enqueue(3, 1, PERSISTENT)]))
    world.follower.deliver(2, 0, [encode_batch(Batch(3, 1, {}, []))] * 3 + [raw])
    (waiter, first, _), (_, _, last) = world.disk.asked
    waiter.settle(first, last, True)
    assert world.ring.disk == {1: 1, 2: 3}


def test_waits_of_two_origins_are_told_apart() -> None:
    two_origins_wait()


def test_disk_that_breaks_counts_no_more() -> None:
    world = World(has_inventory=True)
    world.hear(enqueue(1, 1, PERSISTENT))
    world.disk.sync(is_safe=False)
    assert world.ring.disk == {}


def test_transient_queue_asks_no_disk() -> None:
    world = World(has_inventory=True, is_durable=False)
    world.hear(enqueue(1, 1, PERSISTENT))
    assert world.disk.asked == []
    assert world.ring.disk == {1: 0}


def test_words_to_the_replica() -> None:
    """A replica hears handovers and changes of mode, also before the Inventory: they concern every member."""
    for has_inventory in (True, False):
        world = World(has_inventory=has_inventory)
        world.hear(Handover(7), SyncMode(True), SyncMode(False))
        assert world.ring.handovers == [7]
        assert world.ring.modes == [True, False]


def test_payload_of_who_was_alone_is_empty() -> None:
    world = World(has_inventory=True)
    world.follower.deliver(1, 0, [b""])
    assert world.ring.disk == {1: 0}
