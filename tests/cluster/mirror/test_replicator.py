"""The master's side of a mirrored queue: what leaves the node at the end of a turn, and who is told when it is safe."""

import pytest

from cluster.mirror import replicator
from cluster.mirror.batch import Batch, Clock, Handover, Inventory, SenderGone, Step, decode_batch
from cluster.mirror.replicator import CONGESTED_BYTES, Replicator
from node.queue.number_set import NumberSet
from node.queue.operations import Delivered, Enqueue, Remove
from node.queue.run import NEVER, Envelope
from node.queue.run import Batch as Published
from node.queue.storage import Waiter

TRANSIENT = Envelope("", "q", channel=1, frame_max_bytes=0)
PERSISTENT = Envelope("", "q", channel=1, frame_max_bytes=0, persistent=True)


class Ring:
    """Keeps what is broadcast."""

    def __init__(self, *, is_alone: bool = False) -> None:
        self.now = 0.0
        self.is_alone = is_alone
        self.payloads: list[bytes] = []
        self.pending_bytes = 0
        self.is_node_full = False
        self.touched = 0

    @property
    def next_number(self) -> int:
        return len(self.payloads)

    def broadcast(self, payload: bytes) -> int:
        self.payloads.append(payload)
        return len(self.payloads) - 1

    def touch(self) -> None:
        self.touched += 1

    def said(self) -> list[Batch]:
        return [decode_batch(payload) for payload in self.payloads]


class Disk:
    """A storage that is asked, and answers when told to."""

    epoch_s = 0.0

    def __init__(self) -> None:
        self.asked: list[tuple[Waiter, int, int]] = []

    def await_safety(self, waiter: Waiter, first: int, last: int) -> None:
        self.asked.append((waiter, first, last))

    def sync(self, *, is_safe: bool = True) -> None:
        asked, self.asked = self.asked, []
        for waiter, first, last in asked:
            waiter.settle(first, last, is_safe)


class Client:
    def __init__(self) -> None:
        self.settled: list[tuple[int, int, bool]] = []

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        self.settled.append((first, last, is_safe))


class World:
    def __init__(self, *, is_durable: bool = True, is_alone: bool = False) -> None:
        self.ring, self.disk, self.client = Ring(is_alone=is_alone), Disk(), Client()
        self.replicator = Replicator(
            self.ring,
            self.disk,  # type: ignore[arg-type]
            mastership=7,
            next_seq=1,
            live=NumberSet(),
            senders={},
            is_durable=is_durable,
        )
        self._next = 1

    def publish(self, *contents: bytes, envelope: Envelope = TRANSIENT, size: int = 1) -> range:
        first = self._next
        self._next += len(contents)
        self.replicator.enqueued(Published(envelope, list(contents), size), first, NEVER)
        return range(first, self._next)

    def turn(self) -> list[Step]:
        """The steps of what goes out at the end of the turn."""
        before = len(self.ring.payloads)
        self.replicator.flush()
        return [step for batch in self.ring.said()[before:] for step in batch.steps]


def contents(steps: list[Step]) -> list[tuple[int, list[bytes]]]:
    return [(step.first_seq, step.contents) for step in steps if isinstance(step, Enqueue)]


def test_one_payload_a_turn() -> None:
    world = World()
    world.publish(b"a", b"b")
    world.publish(b"c")
    world.publish(b"d", envelope=PERSISTENT)
    assert world.ring.touched == 1
    assert contents(world.turn()) == [(1, [b"a", b"b", b"c"]), (4, [b"d"])]
    assert world.ring.said()[0].next_seq == 5
    assert world.ring.said()[0].mastership == 7
    assert world.turn() == []
    assert len(world.ring.payloads) == 1


def test_what_came_and_went_in_a_turn_never_leaves() -> None:
    world = World()
    world.publish(b"a", b"b", b"c", b"d")
    world.replicator.removed(range(2, 4))
    assert contents(world.turn()) == [(1, [b"a"]), (4, [b"d"])]
    assert world.replicator.live.ranges() == [range(1, 2), range(4, 5)]
    world.publish(b"e")
    world.replicator.removed(range(4, 6))
    assert world.turn() == [Remove((range(4, 5),))]
    assert world.ring.said()[-1].next_seq == 6, "or a later master would give the number again (S4)"


def test_removals_alone_are_not_urgent() -> None:
    world = World()
    world.publish(*[b"x"] * 10)
    assert world.replicator.is_urgent
    world.turn()
    world.replicator.removed(range(1, 3))
    assert (world.replicator.is_due, world.replicator.is_urgent) == (True, False)
    touched = world.ring.touched
    world.replicator.await_stable(world.client, 1, 1, is_kept=False)
    assert world.replicator.is_urgent
    assert world.ring.touched == touched + 1
    world.turn()
    assert not world.replicator.is_due
    assert not world.replicator.is_urgent
    world.replicator.removed(range(3, 4))
    world.replicator.returned(range(4, 5), 1)
    assert world.replicator.is_urgent
    world.turn()
    for number in range(replicator.REMOVALS_MAX):
        assert not world.replicator.is_urgent
        world.replicator.removed(range(10 + number, 11 + number))
    assert world.replicator.is_urgent


def test_removals_are_joined_whatever_their_order() -> None:
    """A round robin over consumers settles every other number."""
    world = World()
    world.publish(*[b"x"] * 10)
    world.turn()
    world.replicator.removed(range(2, 11, 2))
    world.replicator.removed(range(1, 10, 2))
    assert world.turn() == [Remove((range(1, 11),))]
    assert not len(world.replicator.live)


def test_transient_publish_is_stable_when_all_members_have_it() -> None:
    """reliability §4.4 rule 1."""
    world = World()
    world.publish(b"a")
    world.replicator.await_stable(world.client, 1, 1, is_kept=False)
    world.turn()
    assert world.client.settled == []
    world.replicator.progress(0, -1)
    assert world.client.settled == [(1, 1, True)]


def test_persistent_publish_is_stable_when_all_disks_have_it() -> None:
    """reliability §4.4 rule 2, §4.7 S18: a slow disk holds up persistent messages, and nothing else."""
    world = World()
    world.publish(b"a", envelope=PERSISTENT)
    world.replicator.await_stable(world.client, 1, 1, is_kept=True)
    world.publish(b"b")
    world.replicator.await_stable(world.client, 2, 2, is_kept=False)
    world.turn()
    world.replicator.progress(0, -1)
    assert world.client.settled == [(2, 2, True)]
    world.replicator.progress(0, 0)
    assert world.client.settled == [(2, 2, True)], "the others have it; the own disk has not"
    world.disk.sync()
    assert world.client.settled == [(2, 2, True), (1, 1, True)]


def test_own_disk_is_not_enough() -> None:
    """reliability §4.4 rule 2: the disks of all members that count."""
    world = World()
    world.publish(b"a", envelope=PERSISTENT)
    world.replicator.await_stable(world.client, 1, 1, is_kept=True)
    world.turn()
    world.disk.sync()
    world.replicator.progress(0, -1)
    assert world.client.settled == []
    world.replicator.progress(0, 0)
    assert world.client.settled == [(1, 1, True)]


def test_a_mark_ahead_of_the_circle_counts_for_nothing() -> None:
    world = World()
    world.publish(b"a", envelope=PERSISTENT)
    world.replicator.await_stable(world.client, 1, 1, is_kept=True)
    world.turn()
    world.disk.sync()
    world.replicator.progress(-1, 0)
    assert world.client.settled == []
    world.replicator.progress(0, 0)
    assert world.client.settled == [(1, 1, True)]


def test_own_disk_may_be_enough() -> None:
    """`ha-confirm: master`: all members have it, and this disk; the others' are not waited for."""
    world = World()
    world.replicator.is_own_disk_enough = True
    world.publish(b"a", envelope=PERSISTENT)
    world.replicator.await_stable(world.client, 1, 1, is_kept=True)
    world.turn()
    world.replicator.progress(0, -1)
    assert world.client.settled == []
    world.disk.sync()
    assert world.client.settled == [(1, 1, True)]


def test_what_needs_no_disk_is_not_ahead_of_what_does() -> None:
    """A removal after a persistent message, which takes its time: their order on the own disk is that of broadcasts."""
    world = World()
    world.publish(b"a", envelope=PERSISTENT)
    world.replicator.await_stable(world.client, 1, 1, is_kept=True)
    world.turn()
    world.publish(b"b")
    world.turn()
    world.replicator.progress(1, 1)
    assert world.client.settled == []
    world.disk.sync()
    assert world.client.settled == [(1, 1, True)]


def test_transient_queue_waits_for_no_disk() -> None:
    world = World(is_durable=False)
    world.publish(b"a", envelope=PERSISTENT)
    world.replicator.await_stable(world.client, 1, 1, is_kept=True)
    world.turn()
    assert world.disk.asked == []
    world.replicator.progress(0, 0)
    assert world.client.settled == [(1, 1, True)]


def test_broken_disk_is_never_called_safe() -> None:
    world = World()
    world.publish(b"a", envelope=PERSISTENT)
    world.replicator.await_stable(world.client, 1, 1, is_kept=True)
    world.turn()
    world.disk.sync(is_safe=False)
    world.publish(b"b", envelope=PERSISTENT)
    world.replicator.await_stable(world.client, 2, 2, is_kept=True)
    world.turn()
    assert world.client.settled == [], "the next master answers"


def test_new_master_says_something_in_any_case() -> None:
    """reliability §1.1 L5: a publish that came before is answered when that has come round: absence is no consent."""
    world = World()
    world.replicator.begin()
    world.replicator.await_stable(world.client, 5, 5, is_kept=False)
    assert world.client.settled == []
    world.turn()
    assert len(world.ring.payloads) == 1
    assert world.client.settled == []
    world.replicator.progress(0, 0)
    assert world.client.settled == [(5, 5, True)]
    world.replicator.await_stable(world.client, 6, 6, is_kept=False)
    assert world.client.settled[-1] == (6, 6, True), "it waits for nothing that is under way"


def test_consecutive_publishes_share_an_entry() -> None:
    world = World()
    for number in range(1, 101):
        world.publish(b"x")
        world.replicator.await_stable(world.client, number, number, is_kept=False)
    world.turn()
    world.replicator.progress(0, 0)
    assert world.client.settled == [(1, 100, True)]


def test_senders_go_along() -> None:
    """reliability §4.4: the table of what came from which front end is part of what is replicated."""
    world = World()
    world.publish(b"a")
    world.replicator.received(3, 17)
    assert world.replicator.last_received(3) == 17
    world.turn()
    assert world.ring.said()[-1].senders == {3: 17}
    assert world.replicator.last_received(3) == 17
    assert world.replicator.last_received(4) == 0
    world.replicator.forget_senders({4})
    assert world.turn() == [SenderGone(3)]
    assert world.replicator.last_received(3) == 0


def test_roll_has_all_that_came_before_it() -> None:
    """reliability §4.5: also what gathered in this turn, which goes out first."""
    world = World()
    world.publish(b"a", b"b", b"c")
    world.replicator.received(3, 1)
    world.replicator.removed(range(2, 3))
    world.replicator.send_inventory(9)
    said = world.ring.said()
    assert [contents(batch.steps) for batch in said] == [[(1, [b"a"]), (3, [b"c"])], []]
    assert said[1].steps[1:] == [Inventory(9, (range(1, 2), range(3, 4)), {3: 1})]
    assert isinstance(said[1].steps[0], Clock), "a mirror that gets them hears when they expire"


def test_last_word_comes_last() -> None:
    world = World()
    world.publish(b"a")
    world.replicator.hand_over(12)
    assert [type(step) for step in world.ring.said()[-1].steps] == [Enqueue, Handover]


def test_redeliveries_of_queues_that_count() -> None:
    world = World()
    world.publish(b"a", b"b")
    world.turn()
    world.replicator.returned(range(1, 3), 2)
    assert world.turn() == [Delivered((range(1, 3),), 2)]


def test_abandoned_waiters_hear_that_nobody_knows() -> None:
    world = World()
    world.publish(b"a", b"b", envelope=PERSISTENT)
    world.replicator.await_stable(world.client, 1, 1, is_kept=True)
    world.replicator.await_stable(world.client, 2, 2, is_kept=False)
    world.turn()
    world.replicator.abandon(is_safe=False)
    assert sorted(world.client.settled) == [(1, 1, False), (2, 2, False)]
    assert world.replicator.is_idle


def test_who_publishes_to_a_queue_that_has_just_gone_is_answered() -> None:
    """A publisher is answered for a queue that has gone: its message may be for a thousand queues, in parts."""
    world = World()
    world.publish(b"a", envelope=PERSISTENT)
    world.turn()
    world.replicator.abandon(is_safe=True)
    for is_kept in (False, True):
        world.replicator.await_stable(world.client, 7, 7, is_kept=is_kept)
    assert world.client.settled == [(7, 7, True)] * 2


def test_alone_it_encodes_nothing() -> None:
    world = World(is_alone=True)
    world.publish(b"a")
    world.replicator.flush()
    assert world.ring.payloads == [b""]


def test_congestion() -> None:
    """reliability §1.1 W9: publishers hold on while too much is on the ring."""

    class Throttle:
        relieved = 0

        def peer_relieved(self) -> None:
            self.relieved += 1

    world, throttle = World(), Throttle()
    world.ring.pending_bytes = CONGESTED_BYTES + 1
    assert world.replicator.is_congested
    world.replicator.await_relief(throttle)
    assert throttle.relieved == 0
    world.ring.pending_bytes = CONGESTED_BYTES // 2
    world.publish(b"a")
    world.turn()
    world.replicator.progress(0, 0)
    assert throttle.relieved == 1


def test_a_node_that_has_too_much_under_way_holds_up_queues_that_have_some() -> None:
    world = World()
    world.ring.is_node_full = True
    assert not world.replicator.is_congested
    world.ring.pending_bytes = 1
    assert world.replicator.is_congested
    world.ring.is_node_full = False
    assert not world.replicator.is_congested


def test_what_is_too_large_together_goes_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each publish is told together with the number that its front end gave it: else it could come twice."""
    monkeypatch.setattr(replicator, "BATCH_BYTES", 10)
    world = World()
    for number, body in enumerate([b"123456", b"1234", b"1", b"x" * 30, b"2"], 1):
        world.publish(body, size=len(body))
        world.replicator.received(3, number)
    world.turn()
    said = world.ring.said()
    assert [batch.next_seq for batch in said] == [3, 4, 5, 6]
    assert [batch.senders for batch in said] == [{3: 2}, {3: 3}, {3: 4}, {3: 5}]


def test_messages_that_came_in_together_and_are_too_large_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicator, "BATCH_BYTES", 10)
    world = World()
    world.publish(*(b"123456" for _ in range(4)), size=6)
    world.replicator.received(3, 1)
    world.replicator.say(Handover(5))
    world.replicator.await_stable(world.client, 1, 1, is_kept=False)
    world.turn()
    said = world.ring.said()
    assert [batch.next_seq for batch in said] == [2, 3, 4, 5]
    assert [batch.senders for batch in said] == [{}, {}, {}, {3: 1}]
    assert [len(batch.steps) for batch in said] == [1, 1, 1, 2]
    world.replicator.progress(2, 2)
    assert world.client.settled == []
    world.replicator.progress(3, 3)
    assert world.client.settled == [(1, 1, True)]


def test_oldest_broadcast() -> None:
    world = World()
    assert world.replicator.under_way == 0
    world.publish(b"a")
    world.turn()
    world.ring.now = 3.0
    world.publish(b"b")
    world.turn()
    assert (world.replicator.under_way, world.replicator.oldest_age_s(5.0)) == (2, 5.0)
    world.replicator.progress(0, 0)
    assert (world.replicator.under_way, world.replicator.oldest_age_s(5.0)) == (1, 2.0)
