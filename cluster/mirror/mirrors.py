"""The mirrored queues of one broker: the `Mirroring` of `node.queue.mirroring`.

    ViewChanged ─► see ─► Replica (if this node has a copy) ─► live queue: here, on the master's node, or nowhere
    data stream ─► receive ─► Replica of the packet's member
    end of the turn ─► each replica that has something to say ─► one frame a node

Source: reliability §4; docs/internals/mirrors.md.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster.errors import Malformed
from cluster.gm_ring.messages import Activity, CatchUp
from cluster.gm_ring.wire import RingPacket, encode_packet
from cluster.mirror.copy import Copy, numbers_of
from cluster.mirror.kept_messages import KeptMessages
from cluster.mirror.known_queue import KnownQueue
from cluster.mirror.metered_replica import MeteredReplica
from cluster.mirror.mirror_controller import MirrorController, NoMirrorController
from cluster.mirror.pacing import FLUSH_S, Pacing
from cluster.mirror.packet_queue import CountedPacketQueue, PacketQueue
from cluster.mirror.recovered_copies import RecoveredCopies
from cluster.mirror.replica import Replica
from cluster.mirror.replica_facts import facts, lacks
from node.broker.unsettled import unsettled
from node.catalogue.commands import ChangeView
from node.catalogue.mirrors.views import RingMember, View, ViewChange
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.live_queue import LiveQueue
from node.queue.mirroring import MirrorStatus, RecoveredCopy, ReplicaFacts
from node.queue.number_set import NumberSet
from node.queue.queue import Queue
from node.queue.storage import QueueStorage
from node.scheduling.timers import Timer

if TYPE_CHECKING:
    from node.broker.broker import Broker

RETRY_S: Final = 1.0
"""How often proposals are repeated, and unsettled replicas are looked after."""


class Mirrors:
    """All mirrored queues of one broker.

    send: hands a frame for a node to the transport.   on_fault: called with a node and text after a malformed
    message.
    flush_s, pacing: when masters here broadcast.   count_packets: gets a node and how many packets are sent there.
    """

    def __init__(
        self,
        broker: "Broker",
        send: Callable[[str, bytes], None],
        on_fault: Callable[[str, str], None] = lambda node, text: None,
        *,
        flush_s: float = FLUSH_S,
        count_packets: Callable[[str, int], None] | None = None,
    ) -> None:
        self.broker = broker
        self.pacing = Pacing[Replica](flush_s, self.touch)
        self._packets = (
            PacketQueue(send) if count_packets is None else CountedPacketQueue(send, count_packets)
        )
        self._on_fault = on_fault
        self._incarnation = 0
        """The incarnation of this broker, from the moment when it counts as up."""
        self._controller: MirrorController | NoMirrorController = NoMirrorController()
        self._known: dict[str, KnownQueue] = {}
        self._dirty: dict[Replica, None] = {}
        self._waiting: dict[Replica, float] = {}
        """The replicas that are to be called again, and when."""
        self._timer: Timer | None = None
        self._needing_attention: dict[Replica, None] = {}
        self._proposed: set[tuple[str, ViewChange]] = set()
        self._recovered = RecoveredCopies(broker.settings.node_name)
        self.is_store_whole = True
        self._is_early_due = False
        """True if a packet that came too early may be for a queue that is known now."""
        self._is_closed = False
        self.own_bytes = 0
        """The bytes that masters here have broadcast and that are not everywhere yet."""

    # --- what the catalogue says ---

    def entered(self, incarnation: int) -> None:
        """Begin with this node's copies: the broker counts as up from now on, as this incarnation."""
        broker = self.broker
        self._incarnation = incarnation
        self._controller = MirrorController(broker, incarnation, self._is_acting)
        for known in list(self._known.values()):
            self._join(known, is_new=False)
            self._refresh(known)
        self._take_early()
        self._recover_unread()
        for uid in list(self._recovered):
            found = self._known.get(uid)
            copy = self._recovered.sift(uid, None if found is None else found.view)
            if found is not None and copy is not None:
                self._controller.recovered(found.record, copy)
        broker.timers.at(broker.now + RETRY_S, self._tick)
        broker.wake()

    def _recover_unread(self) -> None:
        """Recover queues declared for an earlier start of this node, which became known after the store was read.

        Our copies were empty, unless the store lost them. No other node could say so, and they would stay down.
        """
        here = self.broker.settings.node_name
        for uid, known in self._known.items():
            copy = known.view.copy_to_keep(here)
            if copy is not None and known.replica is None and uid not in self._recovered:
                storage = self.broker.open_storage(known.record, copy)
                self._recovered[uid] = RecoveredCopy(storage, copy, 1, [], self.is_store_whole)

    @property
    def incarnations_up(self) -> set[int]:
        """The incarnations of all nodes that are up."""
        return {member.incarnation for member in self.broker.catalogue.members.values() if member.is_up}

    def open(self, record: QueueRecord) -> LiveQueue:
        """Begin with a mirrored queue, with the copy here if there is one, and return its live queue."""
        known = self._known[record.uid] = KnownQueue(record)
        self._join(known, is_new=True)
        known.kind = self._kind_of(known)
        self.settings_changed(record)
        if not self._is_early_due:
            self._is_early_due = True  # at the end of the turn: the queue is in no vhost yet
            self.broker.wake()
        return self._live(known)

    def see(self, before: QueueRecord, after: QueueRecord, cause: str = "") -> None:
        """Follow a queue to another view, to its first one, or to none.   cause: see `ViewChanged`."""
        if after.view is None:
            self._unmirror(after)
        elif before.view is None:
            self._start_mirroring(after)
        elif after.view.version == before.view.version:
            self._replan(self._known[after.uid], after)
        else:
            self._follow(self._known[after.uid], after)
        self.broker.vhosts[after.vhost].queues[after.name].record = after
        self._take_early()
        self._controller.see(after, self.settings_of(after))
        self._controller.tell(before, after, cause)

    def _follow(self, known: KnownQueue, record: QueueRecord) -> None:
        known.record = record
        if known.replica is not None:
            known.replica.see(record)
        self._join(known, is_new=False)
        self._refresh(known)
        replica = known.replica
        if replica is not None and replica.needs_attention:
            self._needing_attention[replica] = None
        self._recovered.sift(record.uid, known.view)

    def _replan(self, known: KnownQueue, record: QueueRecord) -> None:
        """Take a record with the same view, but another plan: copies that are wanted now may be synchronised."""
        known.record = record
        if known.replica is not None:
            known.replica.record = record
            known.replica.settings_changed()

    def close(self, record: QueueRecord) -> None:
        """Drop what is here of a queue that was deleted."""
        known = self._known.pop(record.uid, None)
        self._recovered.discard(record.uid)
        if known is not None and known.replica is not None:
            known.replica.close(is_safe=True)
            known.replica.part()
        self._controller.forget(record.uid)

    def settings_changed(self, record: QueueRecord) -> None:
        """Follow the policy of a queue."""
        known = self._known.get(record.uid)
        if known is not None and known.replica is not None:
            known.replica.settings_changed()
        self._controller.see(record, self.settings_of(record))

    def disks_changed(self) -> None:
        """Note that the set of stuck message disks of other nodes has changed (`Broker.stuck_disks`)."""
        self._controller.disks_changed()

    def healed(self, *nodes: str) -> None:
        """Note that links to or between these nodes are up again."""
        self._controller.healed(*nodes)

    def nodes_changed(self) -> None:
        """Note that nodes came, went, or are in maintenance mode."""
        self._controller.nodes_changed()
        for known in self._known.values():
            if known.replica is not None:
                known.replica.nodes_changed()

    def recovered(self, record: QueueRecord, copy: RecoveredCopy) -> None:
        """Keep a copy that was found on disk and may bring its queue back. Comes before this broker is up."""
        self._recovered[record.uid] = copy

    # --- copies of this node ---

    def _own(self, view: View) -> RingMember | None:
        """Return the view's member in this broker, if any."""
        own = view.member_on(self.broker.settings.node_name)
        return own if own is not None and self._incarnation and own.incarnation == self._incarnation else None

    def _join(self, known: KnownQueue, *, is_new: bool) -> None:
        """Begin with a copy, if the view has one here. A new queue lacks nothing."""
        own = self._own(known.view)
        if own is None or known.replica is not None:
            return
        record, view = known.record, known.view
        recovered = self._recovered.get(record.uid)
        if view.master == own.id and recovered is not None and recovered.copy == own.copy:
            replica = known.replica = self._make_replica(record, own.id, recovered.storage)
            copy = self._make_copy(record, recovered.storage)
            copy.adopt(recovered.next_seq, recovered.pages, recovered.storage.alive)
            del self._recovered[record.uid]
            recovered.storage.belong_to(known)
            replica.begin_as_mirror(copy, has_inventory=True)
            replica.take_up()
            return
        storage = self.broker.open_storage(record, own.copy)
        replica = known.replica = self._make_replica(record, own.id, storage)
        if view.master == own.id and is_new:
            replica.begin_as_master(self.broker.make_queue(record, storage), NumberSet())
        else:
            storage.belong_to(known)
            spare = None
            if recovered is not None and view.common:
                spare = KeptMessages(recovered, view.common, replica.touch)
            copy = self._make_copy(record, storage)
            replica.begin_as_mirror(copy, has_inventory=own.id in view.synced, spare=spare)
            replica.take_up()
        if not is_new and not replica.is_gone and replica.needs_attention:
            self._needing_attention[replica] = None  # a late member may be the only one that can act

    def _make_replica(self, record: QueueRecord, id_: int, storage: QueueStorage) -> Replica:
        meter = self.broker.meter
        if meter is not None:
            return MeteredReplica(self, record, id_, storage, meter)
        return Replica(self, record, id_, storage)

    def _make_copy(self, record: QueueRecord, storage: QueueStorage) -> Copy:
        return Copy(record, storage, *self.place_and_time)

    @property
    def place_and_time(self) -> tuple[Callable[[list[bytes], bool], int], Callable[[], float], int]:
        """The node's functions and limit for placing contents and reading time that a `Copy` needs."""
        storage = self.broker.storage
        return (
            lambda contents, is_kept: storage.place(contents, persistent=is_kept),
            lambda: storage.epoch_s,
            storage.embed_max_bytes,
        )

    def _start_mirroring(self, record: QueueRecord) -> None:
        """Begin to mirror a queue of this node; its copies are added later."""
        known = self._known[record.uid] = KnownQueue(record)
        live = self.broker.vhosts[record.vhost].queues[record.name]
        own = self._own(known.view)
        if own is not None and isinstance(live, Queue):
            known.replica = self._make_replica(record, own.id, live.storage)
            loose = unsettled(self.broker, live)
            known.replica.begin_as_master(live, numbers_of(live, loose, live.storage.alive))
        known.kind = self._kind_of(known)

    def _unmirror(self, record: QueueRecord) -> None:
        replica = self._known.pop(record.uid).replica
        self._recovered.discard(record.uid)
        if replica is not None:
            replica.unmirror()
            if replica.queue is not None and replica.replicator is not None:
                replica.queue.received = replica.replicator.last_received_of_all
                replica.queue.replicator = None
            replica.part()

    def retire(self, replica: Replica) -> None:
        """Take a useless copy from clients, if it was the live queue. Its messages on disk stay."""
        queue, replica.replicator, replica.queue = replica.queue, None, None
        if (known := self._known.get(replica.record.uid)) is not None:
            self._refresh(known)
        if queue is not None:
            unsettled(self.broker, queue, take=True)
            queue.retire()

    def gone(self, replica: Replica) -> None:
        """Drop a copy whose member is in the view no more."""
        queue = replica.queue
        replica.close(is_safe=False)
        known = self._known.get(replica.record.uid)
        if known is not None and known.replica is replica:
            known.replica = None
        self.retire(replica)
        if queue is not None:
            replica.storage.drop()
        replica.part()

    def damaged(self, record: QueueRecord, reason: str) -> bool:
        """Give up a damaged copy if a better one may exist. False: its unreadable messages are lost."""
        known = self._known.get(record.uid)
        replica = None if known is None else known.replica
        if replica is None or replica.is_gone:
            return False
        if replica.replicator is not None and not replica.is_spared:
            if self.controller.awaits_kept(record, replica.id, reason):
                replica.set_sync(is_on=True)  # whatever the policy says
                return True
            replica.defect = ""
            self.controller.hand_over(record, "")
            return False
        replica.give_up(reason)
        self._needing_attention[replica] = None
        return True

    # --- what clients have of a queue ---

    def _kind_of(self, known: KnownQueue) -> tuple[Any, ...]:
        view, replica = known.view, known.replica
        if replica is not None and replica.is_acting:
            return "here", known.record.mastership
        master = view.member(view.master)
        if view.state == "live" and master is not None and master.node != self.broker.settings.node_name:
            return "there", master.incarnation, known.record.mastership
        return "nowhere", view.state

    def _is_acting(self, uid: str) -> bool:
        known = self._known.get(uid)
        return known is not None and known.replica is not None and known.replica.is_acting

    def _live(self, known: KnownQueue) -> LiveQueue:
        """Return a live queue of the present kind."""
        record, replica = known.record, known.replica
        if known.kind[0] == "here":
            assert replica is not None
            assert replica.queue is not None
            return replica.queue
        assert self.broker.peers is not None
        return self.broker.peers.open(record, self.settings_of(record))

    def _refresh(self, known: KnownQueue) -> None:
        """Give clients the live queue that they are to have now."""
        kind = self._kind_of(known)
        if kind != known.kind and known.kind:
            known.kind = kind
            self.broker.replace(known.record, self._live(known))

    def live_changed(self, replica: Replica) -> None:
        """Note that a replica begins or ceases to act as master."""
        known = self._known.get(replica.record.uid)
        if known is not None and known.replica is replica:
            if replica.replicator is None:
                replica.storage.belong_to(known)
            self._refresh(known)
            self.settings_changed(known.record)  # what waited for it may be proposed now

    # --- what replicas need ---

    def settings_of(self, record: QueueRecord) -> QueueSettings:
        """Return the queue's settings by its arguments and policies."""
        return self.broker.queue_settings(record)

    def is_automatic(self, record: QueueRecord) -> bool:
        """True if copies synchronise as soon as they lack something: also while a plan moves them."""
        is_always = record.type == "quorum" or bool(record.placement)
        return is_always or self.settings_of(record).ha_sync_mode == "automatic"

    @property
    def controller(self) -> MirrorController:
        """The mirror controller, which replicas report to. It exists before there is a replica."""
        assert isinstance(self._controller, MirrorController)
        return self._controller

    def touch(self, replica: Replica) -> None:
        """Call a replica at the end of the turn, as it has something to send."""
        if not self._dirty:
            self.broker.wake()
        self._dirty[replica] = None

    def took_over(self, replica: Replica) -> None:
        """Note that a replica acts as master, and that all members have all batches of the master before."""
        self._controller.took_over(replica.record)

    def propose(self, record: QueueRecord, change: ViewChange) -> None:
        """Submit a change of the view; not again while the answer is awaited."""
        key = record.uid, change
        if key in self._proposed or self._is_closed:
            return
        self._proposed.add(key)
        command = ChangeView(record.vhost, record.name, record.uid, change)
        self.broker.log.submit(command, lambda _: self._proposed.discard(key))

    def sync_began(self, record: QueueRecord, member: int, messages: int) -> None:
        """Report that a mirror begins to get the messages that it lacks, from here."""
        self._controller.tell_sync_begun(record, member, messages)

    def sync_ended(self, record: QueueRecord, *, is_whole: bool) -> None:
        """Report that a mirror has all messages, or wants no more."""
        self._controller.tell_sync_ended(record, is_whole=is_whole)

    def send(self, replica: Replica, to: int, message: Activity | CatchUp | bytes) -> None:
        """Send to another member of a replica's ring, at the end of the turn."""
        receiver = replica.view.member(to)
        if receiver is None:
            return
        if not self._packets:
            self.broker.wake()
        version = replica.view.version
        self._packets.add(receiver.node, encode_packet(replica.record.uid, replica.id, to, message, version))

    # --- frames ---

    def receive(self, node: str, frames: Sequence[bytes]) -> None:
        """Take frames of a node's mirrors; a turn has to follow."""
        if self._is_early_due:
            self._is_early_due = False
            self._take_early()  # what came earlier goes first
        faults: list[str] = []
        for frame in frames:
            for packet in self._packets.open(frame, faults):
                self._take(node, packet, faults)
        if faults:
            self._on_fault(node, faults[0])

    def _take(self, node: str, packet: RingPacket, faults: list[str]) -> None:
        """Take a packet. A malformed one does not affect the others.   faults: gets the error's text."""
        known = self._known.get(packet.uid)
        replica = known.replica if known is not None else None
        if replica is not None and replica.id == packet.receiver and not replica.is_lost:
            try:
                replica.receive(packet)
            except Malformed as error:
                faults.append(str(error))
            self._needing_attention[replica] = None
        elif known is None or packet.version > known.view.version or not self._incarnation:
            self._packets.put_by(node, packet)

    def _take_early(self) -> None:
        for node, packet in self._packets.take_early():
            faults: list[str] = []
            self._take(node, packet, faults)
            if faults:
                self._on_fault(node, faults[0])

    # --- the turn ---

    @property
    def has_work(self) -> bool:
        """True if `turn` has something to do."""
        return bool(self._dirty or self._packets or self._is_early_due or self._controller.has_work)

    def turn(self, now: float) -> None:
        """End a turn: send what has gathered."""
        if self._is_early_due:
            self._is_early_due = False
            self._take_early()
        if self._dirty:
            dirty, self._dirty = self._dirty, {}
            for replica in dirty:
                self._wait(replica, None if replica.is_lost else replica.turn(now), now)
                if replica.is_unconfirmed or replica.defect:
                    self._needing_attention[replica] = None
                self.own_bytes += replica.newly_pending
            self.pacing.turn(now, self.own_bytes)
            if not self._waiting and self._timer is not None:
                self._timer.cancel()
                self._timer = None
        if self._packets:
            self._packets.flush()
        self._controller.turn(now)

    def _wait(self, replica: Replica, due: float | None, now: float) -> None:
        """Note when a replica is to be called again; None: nothing is left."""
        if due is None or due <= now:
            self._waiting.pop(replica, None)
            if due is not None:
                self.touch(replica)
            return
        self._waiting[replica] = due
        timer = self._timer
        if timer is None or due < timer.when:
            if timer is not None:
                timer.cancel()
            self._timer = self.broker.timers.at(due, self._due)

    def _due(self, now: float) -> None:
        self._timer = None
        waiting = self._waiting
        for replica in [each for each, due in waiting.items() if due <= now]:
            del waiting[replica]
            self.touch(replica)
        if waiting:
            self._timer = self.broker.timers.at(min(waiting.values()), self._due)

    def _tick(self, now: float) -> None:
        """Look after replicas that are not settled, each second."""
        if self._is_closed:
            return
        self._packets.age()
        for replica in list(self._needing_attention):
            if not replica.is_gone:
                replica.look_after()
                self.touch(replica)
            if replica.is_gone or not replica.needs_attention:
                self._needing_attention.pop(replica, None)
        self.broker.timers.at(now + RETRY_S, self._tick)

    # --- what others ask ---

    def sync(self, record: QueueRecord, *, is_on: bool) -> None:
        """Have the mirrors of a queue whose master is here synchronise, or stop it."""
        known = self._known.get(record.uid)
        if known is not None and known.replica is not None:
            known.replica.set_sync(is_on=is_on)

    def status(self, record: QueueRecord) -> MirrorStatus:
        """Return the state of a queue that has a view."""
        view, known = record.view, self._known.get(record.uid)
        assert view is not None
        replica = known.replica if known is not None else None
        nodes = {member.id: member.node for member in view.ring}
        progress = replica.sync_progress if replica is not None and replica.is_acting else {}
        return MirrorStatus(
            version=view.version,
            state=view.state,
            master=view.master_node,
            mirrors=tuple(node for id_, node in nodes.items() if id_ != view.master),
            synced=tuple(node for id_, node in nodes.items() if id_ in view.synced),
            ring=tuple(nodes.values()),
            joining=tuple(member.node for member in view.ring if member.status == "joining"),
            recoverable=view.recoverable,
            pending=0 if replica is None or replica.replicator is None else replica.replicator.under_way,
            sync={
                nodes[id_]: each
                for id_, each in progress.items()
                if id_ in nodes and (each.is_running or id_ not in view.synced)
            },
            lacks={nodes[id_]: count for id_, count in lacks(replica).items()} if replica is not None else {},
        )

    def replica(self, record: QueueRecord) -> ReplicaFacts | None:
        """Return the facts of this node's copy of a queue; None: there is none."""
        known = self._known.get(record.uid)
        replica = known.replica if known is not None else None
        return None if replica is None or replica.is_lost else facts(replica)

    def copies(self) -> Iterable[Copy]:
        """Return all mirrors' copies here, which can be paged out."""
        return [
            known.replica.follower.copy
            for known in self._known.values()
            if known.replica is not None and known.replica.follower is not None
        ]

    # --- the end ---

    def leave(self) -> None:
        """Move masters away, as far as there are mirrors: this node is about to stop."""
        self._controller.leave()

    @property
    def moving(self) -> int:
        """The number of masters here that will still move."""
        return self._controller.moving

    def close_all(self) -> None:
        """Stop: note the deliveries of all copies."""
        self._is_closed = True
        for copy in self.copies():
            copy.note_deliveries()
