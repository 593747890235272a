"""Known bugs that the simulator of mirrored queues must find, put back one at a time: else it is no evidence.

Source: reliability §5.2 (mutation audit).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from cluster.gm_ring import member
from cluster.mirror import packet_queue
from cluster.mirror.batch import Inventory
from cluster.mirror.copy import Copy
from cluster.mirror.follower import Follower
from cluster.mirror.mirrors import Mirrors
from cluster.mirror.paged_messages import PagedMessages
from cluster.mirror.replica import Replica
from cluster.mirror.replicator import Replicator
from cluster.mirror.ring_watch import RingWatch
from cluster.mirror.slow_disks import SlowDisks
from cluster.mirror.sync_target import Spare
from cluster.remote.remote_queue import RemoteQueue
from node.broker import handoff
from node.broker.damages import Damages
from node.catalogue.mirrors import promotion
from node.catalogue.mirrors.views import View
from node.client.channel import Channel
from node.queue.consumer import Consumer
from node.queue.live_queue import Handoff
from node.queue.number_set import NumberSet
from node.queue.operations import Enqueue
from node.queue.queue import Queue
from node.queue.storage import Waiter
from node.store import rereading
from node.store.completeness import Completeness
from node.store.queue_index import QueueIndex
from node.store.scrubber import Scrubber
from tests.sim.audit import put_back


def _confirm_at_once(patch: pytest.MonkeyPatch) -> None:
    """A publish is answered when the master has it."""

    def await_stable(self: Replicator, waiter: Waiter, first: int, last: int, *, is_kept: bool) -> None:
        waiter.settle(first, last, is_safe=True)

    patch.setattr(Replicator, "await_stable", await_stable)


def _confirm_unsettled(patch: pytest.MonkeyPatch) -> None:
    """A master confirms while a dead member counts as having all that was confirmed."""
    patch.setattr(View, "is_settled", property(lambda self: True))


def _confirm_without_disk(patch: pytest.MonkeyPatch) -> None:
    """A confirm waits for no disk, of mirrors or of the master."""
    whole = Replicator.await_stable

    def await_stable(self: Replicator, waiter: Waiter, first: int, last: int, *, is_kept: bool) -> None:
        whole(self, waiter, first, last, is_kept=False)

    patch.setattr(Replicator, "await_stable", await_stable)


def _no_resend(patch: pytest.MonkeyPatch) -> None:
    """A publish that the master before has not answered is taken for accepted."""
    whole = RemoteQueue.adopt

    def adopt(self: RemoteQueue, handoff_: Handoff) -> None:
        for publish in handoff_.publishes:
            if publish.waiter is not None:
                publish.waiter.accept()
        handoff_.publishes = []
        whole(self, handoff_)

    patch.setattr(RemoteQueue, "adopt", adopt)


def _no_deduplication(patch: pytest.MonkeyPatch) -> None:
    """A publish that is sent again is taken again."""
    patch.setattr(Replicator, "last_received", lambda self, sender: 0)


def _not_redelivered(patch: pytest.MonkeyPatch) -> None:
    """A new master delivers as if nobody had seen any message."""
    from node.queue.paged_backlog import PagedBacklog
    from node.queue.queue import Queue

    whole = Queue.begin_with

    def begin_with(self: Queue, copy: Copy, on_done: Any) -> None:
        def done() -> None:
            for level in self.backlog.levels:
                level._redelivered_below = 0
                for run in level.in_memory(0):
                    run.deliveries = 0
            on_done()

        whole(self, copy, done)

    patch.setattr(Queue, "begin_with", begin_with)
    patch.setattr(PagedBacklog, "redelivered_below", lambda self, seq: None)


def _sent_again_is_new(patch: pytest.MonkeyPatch) -> None:
    """A message that another master may have delivered already comes as new."""
    patch.setattr(handoff.Again, "end", lambda self: self._queue.consumers.release())


def _inventory_skipped(patch: pytest.MonkeyPatch) -> None:
    """A newcomer is told that there is nothing."""
    whole = Replicator.send_inventory

    def send_inventory(self: Replicator, member: int) -> None:
        live, self.live = self.live, type(self.live)()
        whole(self, member)
        self.live = live

    patch.setattr(Replicator, "send_inventory", send_inventory)


def _inventory_without_senders(patch: pytest.MonkeyPatch) -> None:
    """A newcomer does not hear which publishes came in."""
    whole = Follower._take_inventory

    def heard(self: Follower, inventory: Inventory, next_seq: int) -> None:
        whole(self, Inventory(inventory.member, inventory.ids, {}), next_seq)

    patch.setattr(Follower, "_take_inventory", heard)


def _senders_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A new master does not know which publishes came in."""
    whole = Replica._lead

    def lead(self: Replica, queue: Any, live: Any, senders: Mapping[int, int]) -> None:
        whole(self, queue, live, {})

    patch.setattr(Replica, "_lead", lead)


def _acks_not_replicated(patch: pytest.MonkeyPatch) -> None:
    """Mirrors do not hear of what is done with."""
    patch.setattr(Copy, "remove", lambda self, ranges: None)


def _transient_not_replicated(patch: pytest.MonkeyPatch) -> None:
    """Mirrors keep persistent messages only."""
    whole = Copy.enqueue

    def enqueue(self: Copy, entry: Enqueue) -> None:
        if entry.envelope.persistent:
            whole(self, entry)

    patch.setattr(Copy, "enqueue", enqueue)


def _prefetch_not_counted_anew(patch: pytest.MonkeyPatch) -> None:
    """A re-attached consumer still counts what the master before gave it."""
    whole = Channel.reattached

    def reattached(self: Channel, consumer: Consumer, queue: Any) -> Consumer | None:
        unacked = consumer.unacked
        successor = whole(self, consumer, queue)
        if successor is not None and unacked:
            successor.unacked = unacked
        return successor

    patch.setattr(Channel, "reattached", reattached)


def _consumer_not_reattached(patch: pytest.MonkeyPatch) -> None:
    """Consumers at the master's own node are left behind."""

    def attach(queue: Any, consumers: Any, now: float) -> None:
        for consumer in consumers:
            consumer.channel.reattached(consumer, queue)

    patch.setattr("node.broker.broker.attach", attach)


def _remote_consumer_not_reattached(patch: pytest.MonkeyPatch) -> None:
    """Consumers at other nodes are left behind."""
    patch.setattr(RemoteQueue, "_join_again", lambda self, consumer: None)


def _stale_mastership(patch: pytest.MonkeyPatch) -> None:
    """Both ends take frames of any mastership for those of the present one."""
    from cluster.remote.front_end import FrontEnd
    from cluster.remote.home_link import HomeLink

    whole = FrontEnd.receive

    def receive(self: FrontEnd, frame: Any) -> None:
        proxy = self.proxies.get(frame.uid)
        if proxy is not None and frame.mastership < proxy.mastership:
            frame.mastership = proxy.mastership
        whole(self, frame)

    def home_says(self: HomeLink, frame: Any) -> None:
        queue = self.queues.get(frame.uid)
        if queue is not None:
            frame.mastership = queue.mastership
        whole_of_home(self, frame)

    whole_of_home = HomeLink.receive
    patch.setattr(FrontEnd, "receive", receive)
    patch.setattr(HomeLink, "receive", home_says)


def _copy_stays_on_disk(patch: pytest.MonkeyPatch) -> None:
    """A copy that is given up is not dropped, and all of a queue's copies have one name."""
    patch.setattr("node.broker.broker.stored_uid", lambda uid, copy: uid)
    patch.setattr("node.store.copies.stored_uid", lambda uid, copy: uid)
    patch.setattr("tests.kit.recovery.stored_uid", lambda uid, copy: uid)
    patch.setattr(QueueIndex, "drop", lambda self: None)


def _lost_is_safe(patch: pytest.MonkeyPatch) -> None:
    """A publisher that waits for a master that steps down hears that all is well."""
    whole = Replica._step_down

    def step_down(self: Replica) -> None:
        assert self.replicator is not None
        self.replicator.abandon(is_safe=True)
        whole(self)

    patch.setattr(Replica, "_step_down", step_down)


def _unacked_left_behind(patch: pytest.MonkeyPatch) -> None:
    """Messages that clients hold when a master moves are not given back."""
    patch.setattr("cluster.mirror.replica.unsettled", lambda broker, queue, *, take=False: [])


def _handover_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """A new master begins before the old one has said its last word."""
    whole = Replica.take_up

    def take_up(self: Replica) -> None:
        self._handed_over = max(self._handed_over, self.view.handover)
        whole(self)

    patch.setattr(Replica, "take_up", take_up)


def _synced_before_disk(patch: pytest.MonkeyPatch) -> None:
    """A copy counts as synchronised as soon as it has its inventory."""

    def check_complete(self: Follower) -> None:
        if self.has_inventory and self.copy.missing is not None:
            self._finished(is_safe=True)

    def finished(self: Follower, *, is_safe: bool) -> None:
        self.copy.missing = None
        self._host.is_complete()

    patch.setattr(Follower, "check_complete", check_complete)
    patch.setattr(Follower, "_finished", finished)


def _own_disk_ignored(patch: pytest.MonkeyPatch) -> None:
    """A mirror says that its disk has what it only has heard of."""

    def report(self: Follower, origin: int, upto: int) -> None:
        self._host.on_disk(origin, upto)

    patch.setattr(Follower, "_report", report)


def _early_packets_dropped(patch: pytest.MonkeyPatch) -> None:
    """A packet that comes before its view is lost."""
    from cluster.mirror.packet_queue import PacketQueue

    patch.setattr(PacketQueue, "put_by", lambda self, node, packet: None)


def _questions_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A client that asked the master before waits for ever."""
    whole = RemoteQueue.hand_off

    def hand_off(self: RemoteQueue) -> Handoff:
        found = whole(self)
        found.questions = []
        return found

    patch.setattr(RemoteQueue, "hand_off", hand_off)


def _own_publishes_lost(patch: pytest.MonkeyPatch) -> None:
    """Publishes of a node that becomes master itself are not enqueued."""

    def publish_again(broker: Any, queue: Any, found: Handoff) -> None:
        for publish in found.publishes:
            if publish.waiter is not None:
                publish.waiter.accept()

    patch.setattr("node.broker.broker.publish_again", publish_again)


def _unmirrored_is_safe(patch: pytest.MonkeyPatch) -> None:
    """A publisher that waits for disks hears that all is well when the policy goes."""
    patch.setattr(Replicator, "go_on_alone", lambda self: None)


def _waits_are_joined(patch: pytest.MonkeyPatch) -> None:
    """A wait for the disk is named by what it is for, and the store joins such as follow each other."""

    def report(self: Follower, origin: int, upto: int) -> None:
        if not self._was_kept and not self._asked:
            self._host.on_disk(origin, upto)
            return
        self._was_kept = False
        self._asked.append((origin, upto, 0))
        self._storage.await_safety(self, origin, upto)

    def settle(self: Follower, first: int, last: int, is_safe: bool) -> None:
        self._asked.clear()
        self._host.on_disk(first, last)

    patch.setattr(Follower, "_report", report)
    patch.setattr(Follower, "settle", settle)


def _early_for_new_queues_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A packet that came before a declaration waits until some view changes."""
    patch.setattr(
        Mirrors, "_is_early_due", property(lambda self: False, lambda self, value: None), raising=False
    )


def _own_writes_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A former master says that its disk has what it has not written yet."""
    whole = Replica._follow

    def follow(
        self: Replica, copy: Copy, *, has_inventory: bool, is_written: bool, spare: Spare | None = None
    ) -> None:
        whole(self, copy, has_inventory=has_inventory, is_written=True, spare=spare)

    patch.setattr(Replica, "_follow", follow)


def _lost_joins_again(patch: pytest.MonkeyPatch) -> None:
    """A member that left the ring is made again as the same member, with nothing."""

    def lost(self: Replica, reason: str) -> None:
        self.is_lost = True
        self._go()

    patch.setattr(Replica, "lost", lost)


def _damaged_says_nothing(patch: pytest.MonkeyPatch) -> None:
    """A master that lacks messages leaves before its last word has been sent."""

    def give_up(self: Replica, reason: str) -> None:
        self.is_lost = True
        self._go()

    patch.setattr(Replica, "give_up", give_up)


def _idle_unwatched(patch: pytest.MonkeyPatch) -> None:
    """A ring that stands still is noticed only while something comes by it."""
    patch.setattr(Replica, "is_unconfirmed", property(lambda self: False))


def _flush_unwatched(patch: pytest.MonkeyPatch) -> None:
    """A mirror that holds up a queue without a master does not go."""
    patch.setattr(RingWatch, "_look_as_heir_of_the_dead", lambda self, replica, now: None)


def _last_word_awaited_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A member that is to be master waits for the last word of the one before, however long that takes."""
    patch.setattr(RingWatch, "_await_last_word", lambda self, replica, now: None)


def _declines_and_begins(patch: pytest.MonkeyPatch) -> None:
    """A member that has declined begins all the same when the last word comes."""
    whole = Replica.take_up

    def take_up(self: Replica) -> None:
        declined, self._watch._declined = self._watch._declined, 0
        whole(self)
        self._watch._declined = declined

    patch.setattr(Replica, "take_up", take_up)


def _disks_unwatched(patch: pytest.MonkeyPatch) -> None:
    """A disk that hangs holds up publishers for ever."""
    patch.setattr(SlowDisks, "look", lambda self, view, state, policy, now: [])
    patch.setattr(SlowDisks, "own_stuck_s", lambda self, state, now: 0.0)


def _unreadable_dropped(patch: pytest.MonkeyPatch) -> None:
    """A message that a master's disk cannot read is dropped though mirrors have it, and they hear nothing."""

    def is_over(self: Damages, queue: Queue, reason: str) -> bool:
        if queue.storage.unreadable:
            lost = queue.storage.unreadable.copy()
            queue.storage.lose(lost)
            queue.backlog.go_on(lost)
        return True

    patch.setattr(Damages, "_is_over", is_over)


def _read_errors_stay(patch: pytest.MonkeyPatch) -> None:
    """A read that the disk refuses is not tried again."""
    patch.setattr(rereading, "PAUSES_S", ())


def _unreadable_at_promotion_is_gone(patch: pytest.MonkeyPatch) -> None:
    """A message that a mirror cannot read when it takes over counts as never having been there."""
    patch.setattr(PagedMessages, "_unreadable", lambda self, numbers: [])


def _findings_ignored(patch: pytest.MonkeyPatch) -> None:
    """The findings of the search for rot are told to no queue."""
    patch.setattr(
        Scrubber, "_reading", lambda self, step, is_there, take: lambda on_end: on_end() or step.size
    )


def _losses_untold(patch: pytest.MonkeyPatch) -> None:
    """Mirrors do not hear which messages their master has lost, and owe them for ever."""
    whole = Damages._give_up

    def give_up(self: Damages, queue: Queue, lost: NumberSet, reason: str) -> None:
        mirror, queue.replicator = queue.replicator, None
        try:
            whole(self, queue, lost, reason)
        finally:
            queue.replicator = mirror

    patch.setattr(Damages, "_give_up", give_up)


def _other_copies_go_at_once(patch: pytest.MonkeyPatch) -> None:
    """The copies that were not taken after a total restart are removed before a mirror is synchronised."""
    whole = promotion._revived_from

    def revived_from(view: View, offer: tuple[str, int, int]) -> View:
        return replace(whole(view, offer), kept=(), common=0)

    patch.setattr(promotion, "_revived_from", revived_from)


def _missing_ends_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """A store takes a file for whole although its end is missing, which was synced."""
    patch.setattr(Completeness, "_has_all", lambda self, file, size, meaning: True)


def _own_clock_trusted(patch: pytest.MonkeyPatch) -> None:
    """A mirror takes times of the master's clock for times of its own clock."""
    patch.setattr(Copy, "hear_clock", lambda self, at_ms, now: None)


def _frames_without_bound(patch: pytest.MonkeyPatch) -> None:
    """All that a neighbour is to hear goes into one message, and all messages for a node into one frame."""
    patch.setattr(member, "parts", lambda message: [message])
    patch.setattr(packet_queue, "_joined", lambda packets: [b"".join(packets)])


def _node_without_bound(patch: pytest.MonkeyPatch) -> None:
    """Each queue may have its 16 MiB under way, however many queues a node is master of."""
    patch.setattr(Replica, "is_node_full", property(lambda self: False))


def _neighbour_blamed(patch: pytest.MonkeyPatch) -> None:
    """The neighbour that passes nonsense on has to start anew, not the node that said it."""

    def deliver(self: Replica, origin: int, first: int, payloads: Sequence[bytes]) -> None:
        if self.follower is not None:
            self.follower.deliver(origin, first, payloads)
            self.take_up()

    patch.setattr(Replica, "deliver", deliver)


OF_STORIES: dict[str, Any] = {
    "other copies go at once": _other_copies_go_at_once,
    "missing ends unnoticed": _missing_ends_unnoticed,
    "own clock trusted": _own_clock_trusted,
    "frames without bound": _frames_without_bound,
    "node without bound": _node_without_bound,
    "neighbour blamed": _neighbour_blamed,
}
"""The bugs that only stories find: no seed has clocks so far apart, frames so large, or a node that says nonsense."""

BUGS: dict[str, Any] = {
    "confirm at once": _confirm_at_once,
    "confirm unsettled": _confirm_unsettled,
    "confirm without disk": _confirm_without_disk,
    "no resend": _no_resend,
    "no deduplication": _no_deduplication,
    "not redelivered": _not_redelivered,
    "sent again is new": _sent_again_is_new,
    "inventory skipped": _inventory_skipped,
    "inventory without senders": _inventory_without_senders,
    "senders forgotten": _senders_forgotten,
    "acks not replicated": _acks_not_replicated,
    "transient not replicated": _transient_not_replicated,
    "prefetch not counted anew": _prefetch_not_counted_anew,
    "consumer not reattached": _consumer_not_reattached,
    "remote consumer not reattached": _remote_consumer_not_reattached,
    "stale mastership": _stale_mastership,
    "copy stays on disk": _copy_stays_on_disk,
    "lost is safe": _lost_is_safe,
    "unacked left behind": _unacked_left_behind,
    "handover not awaited": _handover_not_awaited,
    "synced before disk": _synced_before_disk,
    "own disk ignored": _own_disk_ignored,
    "early packets dropped": _early_packets_dropped,
    "questions forgotten": _questions_forgotten,
    "own publishes lost": _own_publishes_lost,
    "unmirrored is safe": _unmirrored_is_safe,
    "waits are joined": _waits_are_joined,
    "early for new queues forgotten": _early_for_new_queues_forgotten,
    "own writes forgotten": _own_writes_forgotten,
    "lost joins again": _lost_joins_again,
    "damaged says nothing": _damaged_says_nothing,
    "idle unwatched": _idle_unwatched,
    "flush unwatched": _flush_unwatched,
    "last word awaited for ever": _last_word_awaited_for_ever,
    "declines and begins": _declines_and_begins,
    "disks unwatched": _disks_unwatched,
    "unreadable dropped": _unreadable_dropped,
    "read errors stay": _read_errors_stay,
    "unreadable at promotion is gone": _unreadable_at_promotion_is_gone,
    "findings ignored": _findings_ignored,
    "losses untold": _losses_untold,
    **OF_STORIES,
}

AUDIT: dict[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {
    "confirm at once": (17, ("crash",), ("plain",)),
    "confirm without disk": (97, ("total",), ("plain",)),
    "no resend": (6, ("crash", "transfer"), ("plain",)),
    "no deduplication": (8, ("crash", "transfer"), ("plain",)),
    "not redelivered": (6, ("crash", "transfer"), ("plain",)),
    "sent again is new": (17, ("ambush",), ("plain",)),
    "inventory skipped": (0, ("crash",), ("plain",)),
    "senders forgotten": (50, ("crash",), ("plain",)),
    "acks not replicated": (6, ("transfer",), ("plain",)),
    "transient not replicated": (8, ("crash",), ("plain",)),
    "prefetch not counted anew": (7, ("transfer",), ("plain",)),
    "consumer not reattached": (7, ("transfer",), ("plain",)),
    "remote consumer not reattached": (6, ("transfer",), ("plain",)),
    "unacked left behind": (6, ("transfer",), ("plain",)),
    "handover not awaited": (0, ("transfer", "hold"), ("plain",)),
    "synced before disk": (0, ("crash",), ("plain",)),
    "early packets dropped": (1, ("crash",), ("plain",)),
    "questions forgotten": (1, ("transfer", "hold"), ("plain", "purge")),
    "own publishes lost": (0, ("transfer", "crash"), ("plain",)),
    "early for new queues forgotten": (1, ("transfer",), ("plain",)),
}
"""This run finds the bug: seed, faults, kinds of queues; four seconds long. It is well without the bug.

"waits are joined" is not among them: thousands of seeds pass before two members' waits for a disk follow each other. It
has a history of its own.
"""


bug = partial(put_back, BUGS)
"""`with bug(name):` has it while the context lasts."""
