"""One node's part in one mirrored queue of which it has a copy: the ring's member and the master's or mirror's side.

    Replicator ─► broadcast ─► Member ─► right neighbour ─► … ─► confirmed, durable ─► Replicator
    left neighbour ─► Member ─► deliver ─► Follower ─► Copy ─► on_disk ─► Member

Views say which node is master. A node *acts* as master once it has heard all that came before: a view makes a mirror
the master, it fills a queue with its copy, and begins. Source: reliability §4.3-§4.7.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cluster.errors import Malformed
from cluster.gm_ring.member import Member
from cluster.gm_ring.messages import Activity, CatchUp
from cluster.gm_ring.wire import RingPacket
from cluster.mirror.copy import Copy
from cluster.mirror.follower import Follower
from cluster.mirror.pacing import LAZY_S
from cluster.mirror.replicator import NODE_BYTES, Replicator
from cluster.mirror.ring_watch import RingWatch
from cluster.mirror.side import Chunk, Probe, Pull, Report, decode_side, encode_side
from cluster.mirror.sync_source import SyncSource, refusal
from cluster.mirror.sync_target import Spare, SyncTarget
from node.broker.unsettled import unsettled
from node.catalogue.mirrors.views import GiveUp, MirrorSynced, View, ViewChange, is_spared
from node.catalogue.records import QueueRecord
from node.queue.kinds import apply_settings
from node.queue.mirroring import SyncProgress
from node.queue.number_set import NumberSet
from node.queue.queue import Queue
from node.queue.storage import QueueStorage

if TYPE_CHECKING:
    from cluster.mirror.mirrors import Mirrors

_NEVER: Final = float("inf")


class Replica:
    """The member `id` of one queue's ring.

    queue: the queue that clients of this node use, while it acts as master.   storage: the queue's disk side here.
    """

    def __init__(self, mirrors: "Mirrors", record: QueueRecord, id_: int, storage: QueueStorage) -> None:
        assert record.view is not None
        own = record.view.member(id_)
        assert own is not None
        self._own = own  # as it was at first: its node and its copy stay the same
        self.id = id_
        self.record = record
        self.storage = storage
        self.queue: Queue | None = None
        self.replicator: Replicator | None = None
        self.follower: Follower | None = None
        self.is_lost = False
        """True if its member has left the ring: nothing comes from it any more."""
        self.is_gone = False
        """True if the view shows that, and does not want its copy, which is dropped."""
        self.defect = ""
        """The reason why the copy is of no use; empty: it is of use."""
        self._mirrors = mirrors
        self._broker = mirrors.broker
        self._source: SyncSource | None = None
        self._target: SyncTarget | None = None
        self._is_sync_wanted = False
        """True if an operator wants the copy synchronised, whatever the policy says."""
        self._watch = RingWatch(mirrors)
        self._former: list[Replicator] = []
        """Earlier replicators of this node, as long as publishers or others wait for them."""
        self._handed_over = 0
        """The latest view in which a master handed over whose last batch was heard."""
        self.told_from: dict[int, int] = {}
        """The members that got an inventory from this replicator, and the number of the first message after that."""
        self.is_filling = False
        self._is_complete = False
        """True if the copy lacks nothing, which the view may not show yet."""
        self._is_broken = False
        """True if a mirror's disk keeps nothing any more."""
        self._confirmed = self._durable = -1
        """The number up to which our broadcasts are confirmed; replicators hear it while the view is settled."""
        self._lazy_at: float | None = None
        self._counted = 0
        """The pending bytes that `Mirrors` knows of."""
        self.member = Member(id_, record.view, self)

    # --- views ---

    @property
    def view(self) -> View:
        """The view that was seen last."""
        assert self.record.view is not None
        return self.record.view

    @property
    def is_master(self) -> bool:
        """True if the view makes this node the master, which may not have begun."""
        return self.view.master == self.id and self.view.state == "live"

    @property
    def is_acting(self) -> bool:
        """True if this node acts as master."""
        return self.replicator is not None and not self.is_lost

    def see(self, record: QueueRecord) -> None:
        """Take the next view, in order."""
        assert record.view is not None
        self.record = record
        was_lost = self.is_lost
        self.member.see(record.view)
        if self.is_lost:
            if was_lost and not self.view.wants(self._own):
                self._go()
            return
        if self.replicator is not None and not self.is_master:
            self._step_down()
        self.take_up()
        self._send_inventories()
        self._forget_served()
        self._tell_replicators()
        self.look_after()
        self.touch()

    @property
    def is_spared(self) -> bool:
        """True if the ring has another synchronised copy."""
        return is_spared(self.view, self.id)

    def look_after(self) -> None:
        """Propose again what the view doesn't show yet. Called now and then."""
        self._propose_leaving()
        if self.is_lost:
            return
        self.member.retry()
        self._propose_synced()
        self._watch.look(self, self.now)

    @property
    def needs_attention(self) -> bool:
        """True if the replica must be looked after each second."""
        view = self.view
        is_settled = len(view.ring) == len(view.members) and not view.previous
        is_well = self.id in view.synced and not (self._is_broken or self.is_lost or self.defect)
        return not (is_settled and is_well) or self.is_unconfirmed

    @property
    def is_unconfirmed(self) -> bool:
        """True if a broadcast of this node has not come round, or is awaited on disks."""
        is_awaited = self.replicator is not None and self.replicator.is_disk_awaited
        return is_awaited or self.member.oldest_unconfirmed is not None

    # --- roles ---

    def begin_as_mirror(self, copy: Copy, *, has_inventory: bool, spare: Spare | None = None) -> None:
        """Begin with a copy.   has_inventory: it is known that it lacks nothing.   spare: see `SyncTarget`."""
        self._follow(copy, has_inventory=has_inventory, is_written=True, spare=spare)

    def _follow(
        self, copy: Copy, *, has_inventory: bool, is_written: bool, spare: Spare | None = None
    ) -> None:
        storage = self._broker.storage
        self.follower = Follower(self, copy, storage, has_inventory=has_inventory, is_written=is_written)
        self._target = SyncTarget(
            copy,
            lambda message: self.send_side(self.view.master, message),
            has_inventory=has_inventory,
            on_done=self.follower.check_complete,
            is_congested=lambda: self._broker.storage.is_congested,
            spare=spare,
        )
        self._follow_confirm_policy()

    def begin_as_master(self, queue: Queue, live: NumberSet) -> None:
        """Act as master of a queue that is here already.   live: the numbers of its messages."""
        self.queue = queue
        self._lead(queue, live, queue.received)

    def take_up(self) -> None:
        """Make the copy a queue and act as its master, if this node is to be and has heard all that came before."""
        follower = self.follower
        may_act = self.is_master and self._handed_over >= self.view.handover
        if follower is None or self.is_filling or self.is_lost or not may_act:
            return
        if self._watch.has_declined(self.view) or (self.defect and self.is_spared):
            return  # another one is to be master
        self.is_filling = True
        live = follower.copy.held
        # An incomplete copy may have heard of publishes that it lacks. Their publishers must not believe that they
        # are here; that they may come twice is the lesser evil.
        is_whole = follower.has_inventory and not follower.copy.missing
        senders = follower.senders if is_whole else {}
        queue = self._broker.make_queue(self.record, self.storage)

        def filled() -> None:
            self.is_filling = False
            if self.is_lost:
                return
            self.follower = self._target = None
            self.queue = queue
            self._lead(queue, live, senders)
            if self.is_master and queue.mastership == self.record.mastership:
                queue.record = self.record
                apply_settings(queue, self._mirrors.settings_of(self.record), self.now)
                self._mirrors.live_changed(self)
            else:
                self._step_down()  # the view has gone on meanwhile, and the next master waits for the last batch
                self.take_up()  # it may be this one again

        queue.begin_with(follower.copy, filled)

    def _lead(self, queue: Queue, live: NumberSet, senders: Mapping[int, int]) -> None:
        self.replicator = queue.replicator = Replicator(
            self,
            self._broker.storage,
            mastership=queue.mastership,
            next_seq=queue.next_seq,
            live=live,
            senders=senders,
            is_durable=queue.is_durable,
        )
        self._source = SyncSource(
            queue,
            lambda: unsettled(self._broker, queue),
            self.send_side,
            epoch_s=lambda: self._broker.storage.epoch_s,
            wake=self.touch,
        )
        self.told_from.clear()
        self.defect = ""  # there is no better copy: what it lacks is lost
        self.settings_changed()
        self.replicator.begin()
        self._send_inventories()
        self.nodes_changed()

    def _send_inventories(self) -> None:
        """Send each member that is not synchronised the inventory, once."""
        replicator, view = self.replicator, self.view
        if replicator is None or not self.is_master:
            return
        for member in view.ring:
            if member.status == "alive" and member.id not in view.synced and member.id not in self.told_from:
                self.told_from[member.id] = replicator.next_seq
                replicator.send_inventory(member.id)

    def _forget_served(self) -> None:
        """Stop serving members that are gone or have all."""
        if self._source is not None:
            there = {member.id for member in self.view.ring}
            for id_ in [each for each in self._source.progress if each not in there]:
                self._source.forget(id_)

    def _step_down(self) -> None:
        """Be a mirror from now on: all that clients of this queue had goes back into the copy."""
        replicator, queue = self.replicator, self.queue
        assert replicator is not None
        assert queue is not None
        self.replicator = self.queue = None
        if self._source is not None:
            self._source.close()
            self._source = None
        replicator.hand_over(self.view.handover)
        replicator.release()
        self._former.append(replicator)
        loose = unsettled(self._broker, queue, take=True)
        self._mirrors.live_changed(self)  # takes clients away from the queue
        queue.replicator = None
        copy, missing = Copy.taken_from(queue, replicator.live, loose, *self._mirrors.place_and_time)
        queue.retire()
        self._follow(copy, has_inventory=True, is_written=False)
        assert self.follower is not None
        self.follower.senders = dict(replicator.senders)
        if missing:  # then the copy is not synchronised, as the view claims
            self.give_up(f"lacks {sum(map(len, missing))} messages")

    # --- a `RingHost` of the ring's member ---

    def send(self, to: int, message: Activity | CatchUp) -> None:
        """Send a ring message to another member."""
        self._mirrors.send(self, to, message)

    def deliver(self, origin: int, first: int, payloads: Sequence[bytes]) -> bool:
        """Apply broadcasts; a bad one is its origin's fault, not that of the neighbour that passed it on."""
        if self.follower is None:
            return False
        awaits_disk = False
        try:
            awaits_disk = self.follower.deliver(origin, first, payloads)
        except Malformed as error:
            speaker = self.view.member(origin)
            name = "a node that is gone" if speaker is None else speaker.node
            self.give_up(f"cannot do what {name} said: {error}")
        self.take_up()
        return awaits_disk

    def confirmed(self, upto: int) -> None:
        """Note that own broadcasts up to this number are everywhere, and tell the replicators."""
        self._confirmed = upto
        self._tell_replicators()

    def durable(self, upto: int) -> None:
        """Note that own broadcasts up to this number are on all disks that count, and tell the replicators."""
        self._durable = upto
        self._tell_replicators()

    def _tell_replicators(self) -> None:
        replicator, view = self.replicator, self.view
        if replicator is not None and view.previous and self._confirmed >= replicator.first_number:
            # Only now: broadcasts that came round came everywhere after the last batch of the master before. A flush
            # after this one's death would tell of its own broadcasts, and of none of a former master that is alive.
            self._mirrors.took_over(self)
        if view.is_settled:
            for replicator in self._replicators():
                replicator.progress(self._confirmed, self._durable)

    def _replicators(self) -> list[Replicator]:
        self._former = [replicator for replicator in self._former if not replicator.is_idle]
        return [*self._former, self.replicator] if self.replicator is not None else self._former

    def propose(self, change: ViewChange) -> None:
        """Submit a change of the view."""
        self._mirrors.propose(self.record, change)

    def lost(self, reason: str) -> None:
        """Leave the ring. While the view wants the copy it stays: it still has all that was confirmed."""
        self.is_lost = True
        if not self.view.wants(self._own):
            self._go()
            return
        self._abandon(is_safe=False)
        self._mirrors.retire(self)
        if self.view.has(self.id):
            self.give_up(reason)

    def _go(self) -> None:
        self.is_gone = True
        self._mirrors.gone(self)

    def active(self) -> None:
        """Do nothing: the copy begins with its inventory."""

    # --- what the replicator and the follower call ---

    @property
    def now(self) -> float:
        """The broker's clock in seconds."""
        return self._broker.now

    @property
    def next_number(self) -> int:
        """The number of this member's next broadcast."""
        return self.member.last_of(self.id) + 1

    @property
    def is_alone(self) -> bool:
        """True if this is the only member of the ring."""
        return len(self.view.ring) == 1

    @property
    def pending_bytes(self) -> int:
        """The bytes of payloads that are not acknowledged."""
        return self.member.pending_bytes

    @property
    def is_node_full(self) -> bool:
        """True if the masters of this node together have too many bytes under way."""
        return self._mirrors.own_bytes > NODE_BYTES

    @property
    def newly_pending(self) -> int:
        """Return how many more bytes a master here has under way than at the last call. Called once in a turn."""
        before, self._counted = self._counted, self.member.pending_bytes if self.is_acting else 0
        return self._counted - before

    def broadcast(self, payload: bytes) -> int:
        """Broadcast a payload, and return its number."""
        number = self.member.broadcast(payload)
        # The replicator waits for this node's disk itself. A mark that waited for it would need a message of its own.
        self.member.on_disk(self.id, number)
        return number

    def on_disk(self, origin: int, upto: int) -> None:
        """Note that an origin's broadcasts up to this number are on this node's disk."""
        if not self.is_lost:
            self.member.on_disk(origin, upto)
            if self.member.is_urgent:
                self.touch()

    def touch(self) -> None:
        """Ask for a call at the end of the turn, as there is something to send."""
        self._mirrors.touch(self)

    def handed_over(self, version: int) -> None:
        """Note the view in which a master handed over that has sent its last batch."""
        self._handed_over = max(self._handed_over, version)

    def count_disk(self, *, is_on: bool) -> None:
        """Make marks wait for this disk, or leave the ring, as the disk keeps nothing."""
        self._is_broken = not is_on
        if is_on or self.id not in self.view.synced:
            self.member.counts = is_on
        self._propose_leaving()

    def give_up(self, reason: str) -> None:
        """Give up this copy: it goes as soon as another one is master and has heard all that this one sent.

        The node may get a new one then, which is another member. Until then it passes on what it gets, if it can.
        """
        if not self.defect:
            self.defect = reason
            self._mirrors.controller.tell_defect(self.record, self.id, reason)
        self._propose_leaving()

    def _propose_leaving(self) -> None:
        """Propose to leave the ring: a synchronised member that can't keep messages would hold up all confirms."""
        is_useless = self._is_broken and self.follower is not None and self.id in self.view.synced
        if self.is_gone or not (self.defect or is_useless):
            return
        if self.replicator is not None:
            self._mirrors.controller.hand_over(self.record, self.defect)
        elif self.is_lost or self.view.previous != self.id:
            self.propose(GiveUp(self.id))

    def is_complete(self) -> None:
        """Note that the copy lacks nothing, and propose to show it as synchronised."""
        self._is_complete = True
        self._propose_synced()

    def _propose_synced(self) -> None:
        if self._is_complete and not self._is_broken and self.id not in self.view.synced:
            self.propose(MirrorSynced(self.id))

    # --- synchronisation ---

    def sync_mode(self, *, is_on: bool) -> None:
        """Begin or stop to synchronise. A quorum queue always does, as nothing would begin it again."""
        if self.record.type == "quorum":
            return
        self._is_sync_wanted = is_on
        if self._target is None:
            return
        self._target.start() if is_on else self._target.cancel()
        self.touch()

    def inventory_known(self) -> None:
        """Begin to synchronise if the policy wants so: it is known what the copy lacks."""
        if self._target is not None:
            self._target.inventory_known()
        self.settings_changed()

    def settings_changed(self) -> None:
        """Follow the policy, which may want the copy synchronised, or confirms sooner."""
        self._follow_confirm_policy()
        if self._target is not None and (self._is_sync_wanted or self._mirrors.is_automatic(self.record)):
            self._target.start()
            self.touch()

    def _follow_confirm_policy(self) -> None:
        is_own_disk_enough = self._mirrors.settings_of(self.record).ha_confirm == "master"
        if self.replicator is not None:
            self.replicator.is_own_disk_enough = is_own_disk_enough
        if self.follower is not None:
            self.follower.is_disk_awaited = not is_own_disk_enough

    @property
    def sync_progress(self) -> dict[int, SyncProgress]:
        """At the master: the progress of its mirrors that were ever synchronised, by member."""
        return self._source.progress if self._source is not None else {}

    def set_sync(self, *, is_on: bool) -> None:
        """Have the mirrors of a queue whose master is here synchronise, or stop it, as an operator wants."""
        if self.replicator is not None:
            self.replicator.set_sync(is_on=is_on)

    def send_side(self, to: int, message: bytes) -> None:
        """Send a member a message beside the ring."""
        self._mirrors.send(self, to, message)

    # --- what comes from other nodes ---

    def receive(self, packet: RingPacket) -> None:
        """Take a packet for this member. Raises: Malformed."""
        if isinstance(packet.message, bytes):
            self._receive_side(packet.sender, packet.message)
        else:
            self.member.receive(packet.sender, packet.version, packet.edge, packet.message)
        self.touch()

    def _receive_side(self, sender: int, raw: bytes) -> None:
        match message := decode_side(raw):
            case Pull():
                if self._source is not None:
                    self._pull(self._source, sender, message)
                else:
                    self.send_side(sender, refusal(message))
            case Chunk():
                if self._target is not None and sender == self.view.master:
                    self._target.chunk(message)
            case Probe():
                member = self.member
                disk = member.disk_of(sender) if member.counts else None
                self.send_side(sender, encode_side(Report(member.last_of(sender), disk)))
            case Report():
                self._watch.reported(sender, message, self.now)

    def _pull(self, source: SyncSource, sender: int, message: Pull) -> None:
        """Serve a mirror's request, and report if a synchronisation begins or ends with it."""
        before = source.progress.get(sender)
        source.pull(sender, message)
        after = source.progress.get(sender)
        was_running = before is not None and before.is_running
        is_running = after is not None and after.is_running
        if is_running and not was_running:
            self._mirrors.sync_began(self.record, sender, message.missing)
        elif was_running and not is_running:
            self._mirrors.sync_ended(self.record, is_whole=not message.missing)

    # --- the end of a turn ---

    def turn(self, now: float) -> float | None:
        """Send what is due. Returns when to come again for the rest, None: nothing is left."""
        due: list[float] = []
        replicator = self.replicator
        if replicator is not None:
            replicator.relieve()
        if replicator is not None and replicator.is_due:
            at = now if self.is_alone else self._mirrors.pacing.at_for(self, replicator, now)
            if at <= now:
                replicator.flush()
            else:
                due.append(at)
        if self._source is not None:
            self._source.turn(now)
            due.append(now if self._source.has_work else self._source.due_at)
        if self._target is not None:
            self._target.tick(now)
            due.append(self._target.due_at)
        lazy_at = self._send_out(now)
        if lazy_at is not None:
            due.append(lazy_at)
        at = min(due, default=_NEVER)
        return at if at < _NEVER else None

    def _send_out(self, now: float) -> float | None:
        """Pass on the member's messages. Returns when that is due, if not now."""
        member = self.member
        if not member.has_output:
            self._lazy_at = None
            return None
        if self._lazy_at is None:
            self._lazy_at = now + LAZY_S
        # Others wait for news of dead members: until these are erased there is no master.
        is_urgent = member.is_urgent or len(self.view.ring) < len(self.view.members)
        if not is_urgent and now < self._lazy_at:
            return self._lazy_at
        self._lazy_at = None
        member.flush()
        return None

    # --- the end ---

    def nodes_changed(self) -> None:
        """Forget front ends whose nodes are down."""
        if self.replicator is not None:
            self.replicator.forget_senders(self._mirrors.incarnations_up)

    def unmirror(self) -> None:
        """Continue the queue on this node without a view."""
        for replicator in self._replicators():
            replicator.go_on_alone()
        self.close(is_safe=True)

    def close(self, *, is_safe: bool) -> None:
        """End the replica: the queue is deleted or has no view. Waiters hear whether their publishes are safe."""
        self.is_lost = self.is_gone = True
        self._abandon(is_safe=is_safe)
        if self.follower is not None:
            self.follower.copy.drop()
        elif self.queue is None:
            self.storage.drop()

    def part(self) -> None:
        """Drop all references to this closed replica: else Python's collector would have to find the cycle."""
        assert self.is_gone
        self.member.leave()
        self.queue = self.replicator = self.follower = self._target = self._source = None
        self._former.clear()

    def _abandon(self, *, is_safe: bool) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None
        for replicator in self._replicators():
            replicator.abandon(is_safe=is_safe)
        self.touch()
