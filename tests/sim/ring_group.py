"""One node's part in the mirrored queue of the ring's simulator: the real member, and leader or follower above it.

It does what `cluster.mirror.group` does: takes over, steps down, counts, tells who waits.
Source: reliability §4.3-§4.7.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.gm_ring.member import Member
from node.broker.views import MirrorSynced, TookOver, View, ViewChange
from tests.sim.ring_mirror import Follower, Leader, Message

if TYPE_CHECKING:
    from tests.sim.ring_world import Process


class Group:
    """The member `id`.   leader: while it acts as master.   follower: what it has as a mirror."""

    def __init__(self, process: "Process", view: View, id_: int) -> None:
        self.process = process
        self.world = process.world
        self.disk = process.disk
        self.id: int = id_
        self.view: View = view
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.former: list[Leader] = []
        self.is_lost = False
        self.is_active = False
        self.waits_for_master: list[tuple[tuple[str, int], tuple[Any, ...]]] = []
        """What front ends sent while this node was master and had not begun."""
        self._marks: list[tuple[int, int, int]] = []
        """Broadcasts that wait for the disk: what must be synced, origin, number."""
        self._rolled: dict[int, bool] = {}
        self._handed_over = 0
        self._filling = 0
        """The mastership for which the copy is being made a queue."""
        self._is_complete = False
        """Whether the copy lacks nothing, which the view may not show yet."""
        self._confirmed = self._durable = -1
        self.member_next: int = 0
        self.delivered: dict[int, int] = {}
        """By origin, the last number that was delivered: for the checks."""
        self.latest_mastership = 0
        self.seen: dict[int, bool] = {}
        """Messages that have come in here: for the checks."""
        self.member: Member = Member(id_, view, self)
        self.world.checks.joined(self)

    def is_kept(self, message: Message) -> bool:
        """Whether it has to be on disk."""
        return message.is_persistent and self.world.plan.is_durable

    # --- views ---

    def begin(self) -> None:
        """The first view that has this member has just been applied."""
        view = self.view
        me = view.member(self.id)
        assert me is not None
        held = self.disk.state(me.copy)
        if view.master == self.id and (view.is_first or held):
            if not held:
                self.disk.write(("begin", me.copy))
            self._lead(view.since, held, max(held, default=0) + 1, {})
            return
        self.disk.write(("begin", me.copy))
        self._is_complete = self.id in view.synced
        self.follower = Follower(self, is_rolled=self._is_complete)
        self.take_up()

    def see(self, view: View) -> None:
        """The next view."""
        if view.since != self.view.since:
            self.waits_for_master.clear()
        self.view = view
        self.member.see(view)
        if self.is_lost:
            return
        if self.leader is not None and view.master != self.id:
            self._step_down()
        self.take_up()
        self._roll_newcomers()
        self._tell_leaders()
        self.retry()

    def retry(self) -> None:
        """Propose again what the view doesn't show yet."""
        self.member.retry()
        view = self.view
        self.propose_synced()
        self._propose_took_over()
        if self.follower is not None and view.master:
            if self.follower.is_asking:
                self.follower.is_asking = self.world.random.random() < 0.5
            self.follower.pull(self.world.plan.chunk)

    @property
    def may_act(self) -> bool:
        """Whether it is master and has heard all that came before."""
        return self.view.master == self.id and self._handed_over >= self.view.handover

    def take_up(self) -> None:
        """Act as master, if this node is to be."""
        follower = self.follower
        if follower is None or self._filling or not self.may_act:
            return
        self._filling = self.view.since
        if self.world.plan.fill[1]:
            self.world.after(self.world.draw(self.world.plan.fill), self.process, self._filled, self._filling)
        else:
            self._filled(self._filling)

    def _filled(self, since: int) -> None:
        """The copy has become a queue that clients can use.

        If the view has gone on meanwhile, whoever is master waits for the last word.
        """
        if self.is_lost:
            return
        follower = self.follower
        assert follower is not None
        self._filling = 0
        self.follower = None
        self._lead(since, dict(sorted(follower.held.items())), follower.next_seq, self._senders_of(follower))
        if self.view.since != since:
            self._step_down()
            self.take_up()

    def _senders_of(self, follower: Follower) -> dict[int, int]:
        """What came in from whom. Who lacks messages forgets it: what is sent again may be among them."""
        return follower.senders if follower.is_rolled and not follower.owed else {}

    def _lead(self, since: int, held: dict[int, Message], next_seq: int, senders: dict[int, int]) -> None:
        leader = self.leader = Leader(self, since, held, next_seq, senders)
        self._rolled.clear()
        self.world.checks.begins(self)
        leader.begin()
        self._roll_newcomers()
        for front, sender in self.process.fronts_gone():
            leader.forget(front, sender)
        self._propose_took_over()
        if since != self.view.since:
            return
        waiting, self.waits_for_master = self.waits_for_master, []
        for front, item in waiting:
            if self.process.hears(front):
                self.client(front, item)

    def _roll_newcomers(self) -> None:
        leader, view = self.leader, self.view
        if leader is None or view.master != self.id:
            return
        for member in view.ring:
            if member.status == "alive" and member.id not in view.synced and member.id not in self._rolled:
                self._rolled[member.id] = True
                leader.roll(member.id)

    def _step_down(self) -> None:
        leader = self.leader
        assert leader is not None
        self.leader = None
        leader.hand_over(self.view.handover)
        if leader.waiting:
            self.former.append(leader)
        follower = self.follower = Follower(self, is_rolled=True)
        follower.held = leader.held
        follower.senders = leader.senders
        follower.next_seq = leader.next_seq
        self._is_complete = True

    # --- what clients send, and the master's synchronisation ---

    def client(self, front: tuple[str, int], item: tuple[Any, ...]) -> None:
        """What a front end sent to this mastership."""
        leader = self.leader
        if leader is None:
            if self.view.master == self.id:
                self.waits_for_master.append((front, item))
            return
        match item[0]:
            case "publish":
                leader.publish(front, item[2], is_again=item[3])
            case "attach":
                leader.attach(front)
            case "ack":
                leader.settle(front, item[2], is_ack=True)
            case "requeue":
                leader.settle(front, item[2], is_ack=False)
            case "purge":
                leader.purge()

    def side(self, to: int, item: tuple[Any, ...]) -> None:
        """Tell a member something, not through the ring."""
        self.process.send_parcel(self, to, ("side", to, self.id, self.view.version, item))

    def on_side(self, sender: int, item: tuple[Any, ...]) -> None:
        """Synchronisation's messages."""
        if item[0] == "pull":
            _, since, request, wanted = item
            leader = self.leader
            if leader is not None and leader.mastership == since:
                found = [(seq, leader.held[seq]) for seq in wanted if seq in leader.held]
                self.side(sender, ("chunk", since, request, found))
        elif self.follower is not None and self.view.since == item[1]:
            self.follower.install(item[2], item[3])

    # --- a `Host` of the ring's member ---

    def send(self, to: int, message: Any) -> None:
        """See `Host.send`."""
        self.process.send_parcel(self, to, ("ring", to, self.id, message.version, message))

    def deliver(self, origin: int, first: int, payloads: Sequence[Any]) -> None:
        """See `Host.deliver`."""
        for at, batch in enumerate(payloads):
            if self._filling:
                self.world.checks.fail("I10", f"{self.id} is about to begin and hears {origin}:{first + at}")
            self.world.checks.delivered(self, origin, first + at, batch)
            if self.follower is not None:
                self.follower.apply(batch)
        self.written(origin, first + len(payloads) - 1)
        if self.follower is not None and self.view.master == self.id:
            self.take_up()

    def confirmed(self, upto: int) -> None:
        """See `Host.confirmed`."""
        self.world.checks.closes(self, upto)
        self._confirmed = upto
        self._tell_leaders()
        self._propose_took_over()

    def durable(self, upto: int) -> None:
        """See `Host.durable`."""
        self._durable = upto
        self._tell_leaders()

    def _tell_leaders(self) -> None:
        """How far broadcasts are, unless a dead member counts as having what was confirmed, or there is no master."""
        if self._is_settled():
            for leader in (*self.former, *((self.leader,) if self.leader else ())):
                leader.progress(self._confirmed, self._durable)

    def _is_settled(self) -> bool:
        return self.view.is_settled

    def _propose_took_over(self) -> None:
        """When all know what the former master said last: they do when they know the first thing that this one said."""
        if self.leader is not None and self.view.previous and self._is_known(self.leader.first):
            self.propose(TookOver(self.leader.mastership))

    def _is_known(self, number: int) -> bool:
        return self._confirmed >= number

    def propose(self, change: ViewChange) -> None:
        """See `Host.propose`."""
        self.process.propose(change)

    def lost(self, reason: str) -> None:
        """See `Host.lost`."""
        self.is_lost = True
        self.leader = self.follower = None
        self.former = []
        self.world.checks.lost(self, reason)

    def active(self) -> None:
        """See `Host.active`."""
        self.is_active = True
        self.world.checks.activated(self)

    # --- the disk ---

    def written(self, origin: int, number: int) -> None:
        """All of a broadcast has been given to the disk."""
        self._marks.append((self.disk.written, origin, number))
        self.on_synced()

    def on_synced(self) -> None:
        """The disk has more."""
        synced = self.disk.synced
        while self._marks and self._marks[0][0] <= synced and not self.is_lost:
            _, origin, number = self._marks.pop(0)
            self.member.on_disk(origin, number)

    def handed_over(self, mastership: int) -> None:
        """The master of that time has said its last word."""
        self._handed_over = max(self._handed_over, mastership)

    def count_disk(self) -> None:
        """From now on marks wait for this disk."""
        self.member.counts = True

    def is_complete(self) -> None:
        """The copy lacks nothing, and all of it is on disk, or waited for by marks."""
        self._is_complete = True
        self.propose_synced()

    def propose_synced(self) -> None:
        """Ask to be synchronised."""
        if self._is_complete and self.id not in self.view.synced:
            self.propose(MirrorSynced(self.id))

    # --- the end of a turn ---

    def turn(self) -> None:
        """Broadcast what has gathered, and send what is due."""
        leader = self.leader
        if leader is not None:
            leader.pump()
            leader.flush()
        follower = self.follower
        if follower is not None and follower.owed is not None:
            if follower.owed:
                follower.pull(self.world.plan.chunk)
            follower.check_complete()
        member = self.member
        if self.is_lost or not member.has_output:
            return
        if member.is_urgent and not self.world.plan.is_lazy:
            member.flush()
        else:
            self.process.flush_later()
