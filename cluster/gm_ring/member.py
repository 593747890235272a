"""One member of a ring: guaranteed multicast to all copies of a queue, as a state machine without I/O.

**Why a ring.** A member tells its broadcast to its right neighbour only, which tells its own, until the broadcast is
back where it began. Each node sends every payload once, whatever the number of copies, and the origin needs to hear
its left neighbour only. And as all links keep their order, each member knows a prefix of the broadcasts of an origin
that its left neighbour knows. Everything below rests on that.

    O ──► A ──► B ──► C ─┐      publish round: A, B, C take the payload; back at O all have it: confirmed
    ▲────────────────────┘      acknowledgement round: A, B, C forget the payload

**The publish round.** A broadcast that has come round is at every member: `RingHost.confirmed`. A payload is kept by
each member until it knows that all have it, since a neighbour may have to be told again. The last hop carries the
number only, as the origin has the payload. Where the origin waits for the disk of that member, the number goes with
the mark below.

**The acknowledgement round.** The origin then tells how far all have it, the same way round, and they forget. No
member waits for it, so it travels with the next broadcasts.

**What a confirmed broadcast proves.** Every member of the ring has it, so each member that survives has it. It says
nothing of disks: for that a *mark* goes round as well, the least of the disks that it passed.

**Inheritance.** When an origin dies (a view says so), its last broadcasts may have come to some members only. The
next member that is alive (the heir) knows the most of them and answers for them from now on, as if it were the
origin: it acknowledges the broadcasts that come round to it; when the acknowledgement of the last one has come round
all have the same, and the dead one can be erased from the view. Should the heir die, the next one answers for both.
Broadcasts that only dead members had vanish: they were not at all members, so none of them was confirmed. A member
that is joining never answers for others: it knows least.

**Views and edges.** Views decide which members are neighbours. All members see them in the same order, though at
different times. Neighbours that were parted and are neighbours again later must not take up where they were: each
had another neighbour in between, and frames of the first time may still be on their way. So each adjacency has a
number, its *edge*: the version of the view that made it. A frame carries its edge, and the first one on an edge is a
`CatchUp`: all that the left one has and the right one may lack. It may be heard twice without harm, so neither needs
to know what the other has. A frame of a later view than ours waits for the view.

**Order.** Payloads of one origin come in their order, and those of different origins in an order that fits all: if
an origin broadcast something after it had been delivered something else, it is so everywhere. This holds for
repeated payloads too, since they are sent again in the order in which they came.

The rules R1 to R11 are those of reliability §4.3, each in a method of its own. Links need no sessions: between two
incarnations of nodes nothing is lost, and an incarnation that ended comes as a view.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from cluster.gm_ring.host import Nobody, RingHost
from cluster.gm_ring.messages import NOTHING, Activity, CatchUp, Item
from cluster.gm_ring.origin import Origin
from cluster.gm_ring.parts import PART_MAX_BYTES, parts
from node.catalogue.mirrors.views import ActivateMirror, EraseMirror, RingMember, View


class RuleBroken(Exception):
    """A neighbour sent numbers that contradict what is known (R11)."""


class _Early(NamedTuple):
    """A frame of a view that this node has not seen yet."""

    sender: int
    version: int
    edge: int
    message: Activity | CatchUp


class Member:
    """One member, from the first view that has it to the last.

    view: the present one.   left, right: neighbours; itself if it is alone.
    origins: of each member of the view, the dead too.   is_active: it has a state; else it waits for one.
    counts: marks wait for this node's disk. True for synchronised members; the host sets it before it asks for that,
        and waits until the payloads of that time are on disk: marks may have passed them.
    pending_bytes: payloads that are kept until they are acknowledged.
    has_output, is_urgent: `flush` has something to do, something that should go now.

    Waiting payloads are bounded by unconfirmed broadcasts: origins must stop broadcasting while these are too many.
    It is kept once, sent once in a flush, and may be held once while its view isn't here.
    """

    def __init__(self, id_: int, view: View, host: RingHost) -> None:
        """Join the ring.   view: the first one that this node sees.
        A member that isn't joining begins with nothing, as all others do. Where the queue is not new, its right
        neighbour may have seen it as such later, and waits for a catch-up.
        """
        self.id = id_
        self.view = view
        self.is_lost = False
        self.counts = False
        self.pending_bytes = 0
        self.is_urgent = False
        self.origins: dict[int, Origin] = {}
        self._host = host
        self._own = Origin(id_)
        self._own_confirmed = self._own_durable = NOTHING
        self._arrivals: deque[tuple[Origin, int]] = deque()  # the order in which pending payloads came
        self._segments: list[tuple[Origin, int, list[bytes]]] = []  # payloads for the right neighbour
        self._news: dict[int, Origin] = {}  # of these origins it should hear
        self._early: list[_Early] = []
        self._least_edge = self._cut_edge = 0
        self._cut: list[Item] = []  # the items so far of a catch-up on that edge
        self._proposed: dict[int, EraseMirror] = {}
        self._owes_catch_up = False
        self._is_alone = False
        member = view.member(id_)
        assert member is not None
        assert member.status != "dead"
        self.is_active = member.status == "alive"
        self._awaits_catch_up = not self.is_active
        self._place(member)
        if not view.is_first:
            self._new_right()

    # --- what the host says ---

    def see(self, view: View) -> None:
        """Take the next view. The host passes all views, in order."""
        if self.is_lost:
            return
        assert view.version > self.view.version
        member = self._in(view)
        if member is None:
            self._lose(f"view {view.version} is without it")
            return
        if self._is_alone:
            self._settle_alone()
        edge, right, right_edge = self._edge, self.right, self._right_edge
        self.view = view
        try:
            self._place(member)
            if self._edge != edge:
                self._new_left()
            if (self.right, self._right_edge) != (right, right_edge):
                self._new_right()
            if self._is_alone:
                self._settle_alone()
            self._heed_early()
            if not self.is_lost:
                self._erase_finished()
        except RuleBroken as broken:
            self._lose(f"{broken}; {self}")

    def receive(self, sender: int, version: int, edge: int, message: Activity | CatchUp) -> None:
        """Take a message of another member. A message that is not for this view and edge is ignored."""
        if self.is_lost or edge < self._least_edge:
            return
        if self._is_early(version):
            self._hold(_Early(sender, version, edge, message))
        else:
            self._heed(sender, edge, message)

    def broadcast(self, payload: bytes) -> int:
        """Send a payload to all members. It calls no method of the host: `flush` or later calls do (R3)."""
        own = self._own
        own.last = number = own.last + 1
        if self.is_lost:
            return number
        assert self._may_broadcast()
        self.is_urgent = True
        if self._is_alone:
            own.acked = number
            return number
        own.pending.append(payload)
        self.pending_bytes += len(payload)
        self._note_arrival(own)
        self._gather(own, (payload,))
        return number

    def on_disk(self, origin: int, upto: int) -> None:
        """Note that all payloads of an origin up to this number are on this node's disk."""
        known = self.origins.get(origin)
        if known is None or upto <= known.disk:
            return
        assert upto <= known.last
        known.disk = upto
        if not known.is_dead and (known is self._own or self.counts):
            self._raise_mark(known)

    def flush(self) -> None:
        """Send what has gathered. A member that is alone settles its broadcasts at once."""
        if self._is_alone:
            if self.is_urgent:
                self._settle_alone()
            return
        self._report_confirmed()
        if not self.has_output:
            return
        version, edge = self.view.version, self._right_edge
        message: Activity | CatchUp
        if self._owes_catch_up:
            message = CatchUp(version, edge, self._state())
        else:
            message = Activity(version, edge, self._gathered())
        self._forget_gathered()
        if self.pending_bytes <= PART_MAX_BYTES:  # everything in it is pending
            self._host.send(self.right, message)
            return
        for part in parts(message):
            self._host.send(self.right, part)

    def leave(self) -> None:
        """Stop calling the host, which has no use for this member any more."""
        self._host = Nobody()

    def retry(self) -> None:
        """Propose again what no view shows yet. A member that began late and alone has all from the beginning."""
        member = self.view.member(self.id)
        if self.is_lost or not self.is_active or member is None:
            return
        if member.status == "joining":
            self._host.propose(ActivateMirror(self.id))
        for change in list(self._proposed.values()):
            self._host.propose(change)
        if self._is_alone:
            self._settle_alone()
        self._erase_finished()

    @property
    def has_output(self) -> bool:
        """True if `flush` has something to send."""
        return self.is_urgent or bool(self._news)

    @property
    def oldest_unconfirmed(self) -> int | None:
        """The number of the first own broadcast that has not come round; None if all have."""
        return self._own_confirmed + 1 if self._own.last > self._own_confirmed else None

    def disk_of(self, origin: int) -> int:
        """The number up to which an origin's payloads are on this node's disk; `NOTHING` if none are."""
        known = self.origins.get(origin)
        return NOTHING if known is None else known.disk

    def last_of(self, origin: int) -> int:
        """The number of the last payload that came from an origin; `NOTHING` if none came."""
        known = self.origins.get(origin)
        return NOTHING if known is None else known.last

    def __str__(self) -> str:
        origins = "; ".join(str(known) for known in self.origins.values() if known.last != NOTHING)
        waits = ", awaits catch-up" if self._awaits_catch_up else ""
        return (
            f"member {self.id} in view {self.view.version}: {self.left} → {self.right}, edge {self._edge}"
            f"{waits}, origins [{origins}]"
        )

    # --- views ---

    def _in(self, view: View) -> RingMember | None:
        """R9: return the view's record of this member; None if the member is out of it, or dead to the others."""
        member = view.member(self.id)
        return None if member is None or member.status == "dead" else member

    def _place(self, member: RingMember) -> None:
        """Take the neighbours from the view, and which member answers for each origin."""
        view = self.view
        self.left, self.right = view.left_of(self.id), view.right_of(self.id)
        right = view.member(self.right)
        assert right is not None
        self._edge, self._right_edge = member.edge, right.edge
        self._is_alone = self.right == self.id
        self._is_alive = member.status == "alive"
        if self.id in view.synced:
            self.counts = True
        self._has_dead = any(each.status == "dead" for each in view.members)
        self._forget_erased()
        for each in view.members:
            known = self.origins.get(each.id)
            if known is None:
                known = self._own if each.id == self.id else Origin(each.id)
                self.origins[each.id] = known
            owner = view.owner_of(each.id) if each.status == "dead" else each.id
            known.is_dead = each.status == "dead"
            known.is_mine, known.is_rights = owner == self.id, owner == self.right

    def _forget_erased(self) -> None:
        """Drop the origins that the view has no more. All that they broadcast has come round twice."""
        view = self.view
        for id_ in [id_ for id_ in self.origins if view.member(id_) is None]:
            known = self.origins.pop(id_)
            self._proposed.pop(id_, None)
            self._news.pop(id_, None)
            if known.pending:
                raise RuleBroken(f"{id_} is erased and not all of it has come round")

    def _new_left(self) -> None:
        """R2: nothing counts from a left neighbour before its catch-up."""
        self._awaits_catch_up = not self._is_alone

    def _new_right(self) -> None:
        """R7: begin with a catch-up for the new right neighbour. It replaces what has gathered for the former one."""
        self._forget_gathered()
        self._owes_catch_up = not self._is_alone
        self.is_urgent = self.is_active and not self._is_alone

    def _settle_alone(self) -> None:
        """R10: a member that is alone in a view is all members, so its broadcasts are confirmed at once."""
        self._forget_gathered()
        for known in self.origins.values():
            known.retired = known.last
            self._release(known, known.last)
        self._report_confirmed()
        self._came_round_on_disk(self._own.disk)

    # --- frames ---

    def _is_early(self, version: int) -> bool:
        """R1: a frame of a later view waits for it."""
        return version > self.view.version

    def _hold(self, frame: _Early) -> None:
        """Keep a frame for its view.
        A catch-up that waits has all that frames of earlier edges have, so they aren't needed from then on.
        """
        if isinstance(frame.message, CatchUp):
            self._least_edge = frame.edge
            self._early = [held for held in self._early if held.edge >= frame.edge]
        self._early.append(frame)

    def _heed_early(self) -> None:
        """Take the frames that waited for this view."""
        if not self._early:
            return
        frames, self._early = self._early, []
        for frame in frames:
            self.receive(*frame)

    def _is_from_left(self, sender: int, edge: int) -> bool:
        """R2: True if a frame came from the left neighbour, on the edge of the present view."""
        return sender == self.left and edge == self._edge

    def _heed(self, sender: int, edge: int, message: Activity | CatchUp) -> None:
        """Take a frame of this view or an earlier one."""
        if not self._is_from_left(sender, edge):
            return
        try:
            if isinstance(message, CatchUp):
                self._gather_catch_up(edge, message)
            elif not self._awaits_catch_up:
                self._take(message.items)
            self._erase_finished()
        except RuleBroken as broken:
            self._lose(f"{broken}, says {sender} on edge {edge}; {self}")

    def _gather_catch_up(self, edge: int, message: CatchUp) -> None:
        """Put together a catch-up that was too large for one message. It counts when all of it is here."""
        if self._cut_edge != edge:
            self._cut_edge, self._cut = edge, []
        self._cut += message.origins
        if not message.is_cut:
            items, self._cut = self._cut, []
            self._catch_up(items)

    def _catch_up(self, items: Sequence[Item]) -> None:
        """R6: adopt the state, if it is the first one; else take from it what is new."""
        self._awaits_catch_up = False
        if self.is_active:
            self._take(items)
        else:
            self._adopt(items)

    def _adopt(self, items: Sequence[Item]) -> None:
        """R6: begin with the left neighbour's state.
        Payloads that the neighbour has not seen acknowledged are kept for the right neighbour. They are not
        delivered.
        """
        for item in items:
            known = self.origins.get(item.origin)
            if known is None or known is self._own:
                continue
            if item.payloads:
                self.pending_bytes += known.append(item.upto, item.payloads)
                self._note_arrival(known)
            known.last = known.disk = item.upto
            known.acked, known.left_mark = item.ack, item.mark
            self._raise_mark(known)
        for known in self.origins.values():
            if len(known.pending) != known.last - known.acked:
                raise RuleBroken(f"a state has a gap at {known}")
        self.is_active = self._owes_catch_up = self.is_urgent = True
        self._host.active()
        self._host.propose(ActivateMirror(self.id))

    def _take(self, items: Sequence[Item]) -> None:
        """Take news, in order. An origin that the view has no more is skipped: all of its broadcasts have been
        heard.
        """
        origins = self.origins
        for origin, upto, payloads, ack, mark in items:
            known = origins.get(origin)
            if known is None:
                continue
            if known.is_mine:
                self._close(known, upto, ack)
            else:
                self._relay(known, upto, payloads)
                if ack > known.acked:
                    self._relay_ack(known, ack)
            if mark > known.left_mark and not known.is_dead:
                self._pass_mark(known, mark)

    # --- the two rounds ---

    def _may_broadcast(self) -> bool:
        """R3: True if this member is alive in the view; no other member would answer for one that is joining."""
        return self._is_alive

    def _relay(self, known: Origin, upto: int, payloads: Sequence[bytes]) -> None:
        """R4: deliver and pass on the new payloads of an origin that another member answers for."""
        new = upto - known.last
        if new <= 0:
            return
        if new > len(payloads):
            raise RuleBroken(f"{upto} with {len(payloads)} payloads leaves a gap at {known}")
        if new < len(payloads):
            payloads = payloads[-new:]
        first = known.last + 1
        self.pending_bytes += known.append(upto, payloads)
        self._note_arrival(known)
        if not known.is_rights:
            self._gather(known, payloads)
            self._host.deliver(known.id, first, payloads)
            return
        self._news[known.id] = known  # the right neighbour has the payloads
        is_behind = known.disk < first - 1
        awaits_disk = self._host.deliver(known.id, first, payloads)
        if known.is_dead or is_behind or not (awaits_disk and self.counts):
            self.is_urgent = True
        # Else the origin confirms nothing that is written before this disk's mark, with which the number goes. What is
        # not written, in the same broadcasts, waits as long, for `LAZY_S` of the host at most. A disk that is behind
        # holds up no number: the origin sends the next broadcast sooner if it hears of this one.

    def _relay_ack(self, known: Origin, ack: int) -> None:
        """R4: forget what all have, and pass that on."""
        if ack > known.last:
            raise RuleBroken(f"{ack} is acknowledged at {known}")
        self._release(known, ack)
        if known.is_dead or not known.is_rights:  # a live origin knows its own acknowledgement
            self._tell(known, is_urgent=known.is_dead)

    def _close(self, known: Origin, upto: int, ack: int) -> None:
        """R5: broadcasts that this member answers for have come round: all members have them, or know that all have."""
        if upto > known.last or ack > known.acked:
            raise RuleBroken(f"{upto}, {ack} come round at {known}")
        if ack > known.retired:
            known.retired = ack
        if upto > known.acked:
            self._release(known, upto)
            self._tell(known, is_urgent=known.is_dead)
            self._report_confirmed()

    def _report_confirmed(self) -> None:
        """Report to the host how far own broadcasts have come round, if further than before."""
        if self._own.acked > self._own_confirmed:
            self._own_confirmed = self._own.acked
            self._host.confirmed(self._own_confirmed)

    def _erase_finished(self) -> None:
        """R8: propose to erase dead members whose broadcasts have all come round twice."""
        if not self._has_dead:
            return
        for known in list(self.origins.values()):
            if (
                known.is_dead
                and known.is_mine
                and known.retired >= known.last
                and known.id not in self._proposed
            ):
                self._proposed[known.id] = change = EraseMirror(known.id, self.id)
                self._host.propose(change)

    def _release(self, known: Origin, upto: int) -> None:
        """Forget an origin's payloads up to a number: all members have them."""
        self.pending_bytes -= known.release(upto)
        arrivals = self._arrivals
        while arrivals and arrivals[0][1] <= arrivals[0][0].acked:
            arrivals.popleft()

    def _lose(self, reason: str) -> None:
        """R9, R11: leave the ring and forget all state. Another member will take this one's place."""
        self.is_lost, self.is_active = True, False
        self._forget_gathered()
        self.origins.clear()
        self._arrivals.clear()
        self._early.clear()
        self._cut.clear()
        self._proposed.clear()
        self._own.pending.clear()
        self.pending_bytes = 0
        self._host.lost(reason)

    # --- marks ---

    def _pass_mark(self, known: Origin, mark: int) -> None:
        """Take an origin's mark from the left neighbour, and pass it on."""
        if mark > known.last:
            raise RuleBroken(f"mark {mark} at {known}")
        known.left_mark = mark
        if known is self._own:
            self._came_round_on_disk(mark)
        else:
            self._raise_mark(known)

    def _came_round_on_disk(self, upto: int) -> None:
        if upto > self._own_durable:
            self._own_durable = upto
            self._host.durable(upto)

    def _raise_mark(self, known: Origin) -> None:
        """Pass on how far disks are. Marks only rise: a member that begins to count has what passed it before."""
        if known is self._own:
            mark = known.disk
        else:
            mark = min(known.left_mark, known.disk) if self.counts else known.left_mark
        if mark > known.mark:
            known.mark = mark
            self._tell(known, is_urgent=True)

    # --- what goes to the right neighbour ---

    def _note_arrival(self, known: Origin) -> None:
        """Note the order in which payloads of different origins came."""
        arrivals = self._arrivals
        if arrivals and arrivals[-1][0] is known:
            arrivals[-1] = (known, known.last)
        else:
            arrivals.append((known, known.last))

    def _gather(self, known: Origin, payloads: Sequence[bytes]) -> None:
        """Gather new payloads of an origin, the last of which is its last one, for the right neighbour."""
        assert not known.is_rights, "it has them"
        self.is_urgent = True
        segments = self._segments
        if segments and segments[-1][0] is known:
            gathered = segments.pop()[2]
        else:
            gathered = []
        gathered += payloads
        segments.append((known, known.last, gathered))

    def _tell(self, known: Origin, *, is_urgent: bool) -> None:
        """Gather an origin's numbers, without payloads, for the right neighbour."""
        self._news[known.id] = known
        if is_urgent:
            self.is_urgent = True

    def _forget_gathered(self) -> None:
        self._segments.clear()
        self._news.clear()
        self.is_urgent = self._owes_catch_up = False

    def _gathered(self) -> list[Item]:
        """The gathered payloads in order; the last item of each origin has its numbers too."""
        items: list[Item] = []
        news = self._news
        for known, _, _ in self._segments:
            news[known.id] = known
        for known, upto, payloads in reversed(self._segments):
            if news.pop(known.id, None) is None:
                items.append(Item(known.id, upto, payloads, NOTHING, NOTHING))
            else:
                items.append(Item(known.id, upto, payloads, known.acked, known.mark))
        items.reverse()
        items += (Item(known.id, known.last, (), known.acked, known.mark) for known in news.values())
        return items

    def _state(self) -> list[Item]:
        """The whole state of this member, for a neighbour that may know nothing."""
        items = list(self._pending_in_order())
        for known in self.origins.values():
            if known.last != NOTHING:
                items.append(Item(known.id, known.last, (), known.acked, known.mark))
        return items

    def _pending_in_order(self) -> Iterator[Item]:
        """The payloads that are not acknowledged, in the order in which they came."""
        rest: dict[int, tuple[int, Iterator[bytes]]] = {}
        for known, upto in self._arrivals:
            if known.is_rights or upto <= known.acked:
                continue
            told, payloads = rest.get(known.id) or (known.acked, iter(known.pending))
            yield Item(known.id, upto, list(islice(payloads, upto - told)), NOTHING, NOTHING)
            rest[known.id] = (upto, payloads)
